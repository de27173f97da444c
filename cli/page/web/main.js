// SPDX-License-Identifier: Apache-2.0
// Puts the page together.
import { element, section } from "./dom.js";
import { DATA, IS_PLAN, REPORT } from "./data.js";
import { beginTips } from "./canvas.js";
import { pictureRow } from "./pictures.js";
import { matrixSection } from "./matrix.js";
import { timelineSection } from "./timeline.js";
import { ranksSection } from "./ranks.js";
import { tensorsSection } from "./tensors.js";
import { choiceBar, pageHeader, summarySection, titleText } from "./summary.js";
import { state, beginState, choose } from "./state.js";

function layoutsSection() {
    if (!IS_PLAN) return null;
    const last = DATA.layouts.length - 1;
    const titles = ["Source", ...REPORT.intermediates.map((_, i) => (last > 2 ? `In between, ${i + 1}` : "In between")), "Target"];
    const texts = [REPORT.from, ...REPORT.intermediates, REPORT.to];
    const items = DATA.layouts.map((layout, i) => ({
        title: titles[i], text: texts[i], layout, owner: "rank", bytes: DATA.element_bytes, padding: null,
        // A chosen link highlights its sender in the source and its receiver in the target.
        chosen: () => state.link ? state.link[i === 0 ? 0 : 1] : state.rank,
        pick: (rank) => choose("rank", rank),
    }));
    return section("layouts", "Where the data is", pictureRow(items, { ghosts: true }),
        element("p", { class: "hint" }, "A box is what one rank holds; stripes and lists of ranks mark replicas",
            DATA.layouts.some((layout) => layout.partial) ? ", \u03a3 marks contributions to a sum" : "",
            ". Choose a rank: dashes show what it holds in the source and will hold in the target; of a link, what its ends share."));
}

function begin() {
    document.title = `${titleText()} \u00b7 reshard`;
    const main = element("main", { id: "main", tabindex: "-1" });
    main.append(...[summarySection(), layoutsSection(), tensorsSection(), matrixSection(), timelineSection(), ranksSection()]
        .filter((part) => part !== null));
    document.getElementById("page").replaceChildren(pageHeader(), main, choiceBar(),
        element("footer", {}, `Made by reshard ${DATA.version}. This file needs no network, and holds no weights.`));
    beginTips();
    beginState();
}

begin();
