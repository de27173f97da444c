// SPDX-License-Identifier: Apache-2.0
// The top of the page: what it shows, its figures, what is chosen, and what the page leaves out.
import { element, section, codeLine } from "./dom.js";
import { boxText, countText, exactText, percentText, shapeText, sizeText, timeText } from "./format.js";
import { DATA, IS_PLAN, REPORT, STAGES, TENSORS, TOTAL, boxesOfRank, columnName, lackText, rowName } from "./data.js";
import { state, onState, clearChoice } from "./state.js";

function tile(name, field, text, note, bar = null) {
    return element("div", { class: "tile" }, element("dt", {}, name),
        element("dd", {}, element("data", { value: `${REPORT[field]}`, "data-field": field, title: exactText(REPORT[field]) }, text),
            note ? element("small", {}, note) : null,
            bar === null ? null : element("span", { class: "bar", "aria-hidden": "true" }, element("i", { style: `width: ${100 * bar}%` }))));
}

const size = (name, field, note = "", bar = null) => tile(name, field, sizeText(REPORT[field]), note, bar);
const count = (name, field, note = "") => tile(name, field, exactText(REPORT[field]), note);

/** The first rank that has this many bytes. */
function whoHas(values, bytes) {
    const rank = values && bytes > 0 ? values.indexOf(bytes) : -1;
    return rank === -1 ? "" : `rank ${rank}`;
}

function planTiles() {
    const handled = REPORT.bytes_moved + REPORT.bytes_kept;
    const share = (bytes) => handled > 0 ? bytes / handled : 0;
    return [size("Written to targets", "bytes_total"),
        size("Moved", "bytes_moved", percentText(REPORT.bytes_moved, handled), share(REPORT.bytes_moved)),
        size("Kept", "bytes_kept", percentText(REPORT.bytes_kept, handled), share(REPORT.bytes_kept)),
        size("Busiest sender", "bytes_out_max", whoHas(DATA.rank_list?.out, REPORT.bytes_out_max)),
        size("Busiest receiver", "bytes_in_max", whoHas(DATA.rank_list?.in, REPORT.bytes_in_max)),
        size("For messages", "staging_bytes_peak", "on one rank"),
        count("Moves", "moves", countText(REPORT.records, "record")),
        count("Stages", "stages", REPORT.checked ? "checked" : ""),
        REPORT.prediction ? element("div", { class: "tile" }, element("dt", {}, "Predicted"),
            element("dd", {}, element("data", { value: `${REPORT.prediction.seconds}`, id: "predicted" }, timeText(REPORT.prediction.seconds)),
                element("small", {}, "on the given cluster"))) : null,
        "bytes_moved_without_relabel" in REPORT ? size("Moved otherwise", "bytes_moved_without_relabel", "without --relabel") : null];
}

function conversionTiles() {
    const seconds = REPORT.seconds_estimated;
    return [count("Tensors", "tensors"), count("Files", "files", REPORT.format), size("Read", "bytes_read"), size("Written", "bytes_written"),
        size("Can be shared", "bytes_shared", percentText(REPORT.bytes_shared, REPORT.bytes_written)),
        size("Memory", "memory_bytes", countText(REPORT.threads, "thread")), count("Moves", "moves", "from file to file"),
        seconds === undefined ? null : tile("Time", "seconds_estimated", `${seconds.toFixed(1)} s`, "about")];
}

export function titleText() {
    if (IS_PLAN) return `${shapeText(REPORT.shape)} ${REPORT.dtype} over ${countText(REPORT.ranks, "rank")}`;
    return `${countText(REPORT.tensors, "tensor")}, ${DATA.source_format} to ${REPORT.format}`;
}

export function pageHeader() {
    const specs = IS_PLAN ? element("p", { class: "specs" }, codeLine(REPORT.from, "the spec of the source"),
        element("span", { class: "arrow", "aria-label": "to" }, "\u2192"), codeLine(REPORT.to, "the spec of the target")) : null;
    return element("header", {}, element("p", { class: "mark" }, IS_PLAN ? "reshard plan" : "reshard conversion"),
        element("h1", {}, titleText()), specs,
        element("p", { class: "command" }, codeLine(DATA.command, "the command that made this page")));
}

/** Lists what did not fit on the page. */
function findLacks() {
    const lacks = [];
    if (IS_PLAN && !DATA.stage_list) lacks.push(`Figures of single ranks and pairs are left out: there are ${exactText(REPORT.ranks)} ranks.`);
    if (!IS_PLAN && !DATA.matrix && REPORT.tensors > 0) lacks.push("The bytes from file to file are left out: there are too many files.");
    if (TOTAL !== null && TOTAL.cell > 1)
        lacks.push(`The matrix shows sums of ${TOTAL.cell} by ${TOTAL.cell} ${IS_PLAN ? "ranks" : "files"}.`);
    for (const layout of DATA.layouts ?? []) if (lackText(layout)) lacks.push(`A picture shows ${lackText(layout)}.`);
    if (TENSORS.length < (REPORT.tensors ?? 0) && !IS_PLAN) lacks.push(`The table has the first ${exactText(TENSORS.length)} of ${exactText(REPORT.tensors)} tensors.`);
    if (DATA.pictures_missed > 0) lacks.push(`${countText(DATA.pictures_missed, "picture")} found no room.`);
    return [...new Set(lacks)];
}

function list(id, title, lines) {
    return lines.length === 0 ? null : element("div", { id, class: "notes" }, element("h3", {}, title),
        element("ul", {}, lines.map((line) => element("li", {}, line))));
}

export function summarySection() {
    const rules = !IS_PLAN && REPORT.rules ? element("p", { class: "hint" }, REPORT.rules) : null;
    return section("summary", "In figures", element("dl", { class: "tiles" }, IS_PLAN ? planTiles() : conversionTiles()), rules,
        list("notes", "Notes", REPORT.notes ?? []), list("lacks", "Left out of this page", findLacks()));
}

// ---- what is chosen --------------------------------------------------------------------------------

function boxesText(layout, rank) {
    const boxes = boxesOfRank(layout, rank);
    if (boxes.length === 0) return "nothing";
    return boxText(boxes[0].offset, boxes[0].size) + (boxes.length > 1 ? ` and ${boxes.length - 1} more` : "");
}

function rankText(rank) {
    if (!IS_PLAN) return `${columnName(rank)} of what is written`;
    const ranks = DATA.rank_list;
    const held = `holds ${boxesText(DATA.layouts[0], rank)}, will hold ${boxesText(DATA.layouts.at(-1), rank)}`;
    if (!ranks || rank >= REPORT.ranks) return `rank ${rank} ${held}`;
    return `rank ${rank} ${held}; sends ${sizeText(ranks.out[rank])}, receives ${sizeText(ranks.in[rank])}, keeps ${sizeText(ranks.kept[rank])}`;
}

function linkText([s, t]) {
    const has = TOTAL !== null && TOTAL.cell === 1 && s < TOTAL.rows && t < TOTAL.columns;
    const stages = has && STAGES.length > 1 ? ` (${STAGES.map((stage, i) => `stage ${i}: ${sizeText(stage.at(s, t))}`).join(", ")})` : "";
    return `${rowName(s)} \u2192 ${columnName(t)}${has ? `: ${sizeText(TOTAL.at(s, t))}${stages}` : ""}`;
}

/** A bar at the bottom of the window that says what is chosen, also to screen readers. */
export function choiceBar() {
    const text = element("span", { role: "status", "aria-live": "polite" });
    const bar = element("div", { id: "chosen", hidden: true }, text,
        element("button", { type: "button", onclick: clearChoice, "aria-label": "Let go of what is chosen" }, "Clear"));
    onState(() => {
        const words = state.link ? linkText(state.link) : state.rank !== null ? rankText(state.rank) :
            state.file !== null ? `${rowName(state.file)} of what is read` : "";
        bar.hidden = words === "";
        text.textContent = words;
    });
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") clearChoice(); });
    return bar;
}
