// SPDX-License-Identifier: Apache-2.0
// What each rank, or file, holds: as stacked bars, and as a table.
import { section, element } from "./dom.js";
import { countText, exactText, sizeText } from "./format.js";
import { DATA, IS_PLAN, TOTAL, columnName, rowName } from "./data.js";
import { ink, onTheme } from "./colour.js";
import { CHART_LEFT, barEdge, drawing, tickStep } from "./canvas.js";
import { state, onState, choose } from "./state.js";

const HEIGHT = 190;

/** Stacked bars. series: [{name, ink, values}]. */
function barDrawing(label, series, { nameOf, isChosen, pick }) {
    const count = series[0].values.length;
    const totals = series[0].values.map((_, i) => series.reduce((sum, one) => sum + one.values[i], 0));
    const most = totals.reduce((top, bytes) => Math.max(top, bytes), 1);
    let step = 1;
    const room = HEIGHT - 40;
    return drawing({
        label, height: () => HEIGHT,
        draw: (context, width, height, cursor) => {
            step = Math.min(64, (width - CHART_LEFT - 4) / count);
            const gap = step > 4 ? Math.min(6, step * 0.2) : 0;
            const base = height - 22;
            context.font = `12px ${ink("font")}`;
            context.textBaseline = "middle";
            context.fillStyle = ink("muted");
            context.textAlign = "right";
            context.fillText(sizeText(most), CHART_LEFT - 6, base - room);
            context.fillText("0", CHART_LEFT - 6, base);
            context.textAlign = "center";
            const every = tickStep(step, 30);
            for (let i = 0; i < count; i += every) context.fillText(`${i}`, CHART_LEFT + (i + 0.5) * step, height - 9);
            for (let i = 0; i < count; i++) {
                let top = base;
                context.globalAlpha = isChosen(i) ? 1 : 0.28;
                for (const one of series) {
                    const bar = (one.values[i] / most) * room;
                    top -= bar;
                    context.fillStyle = ink(one.ink);
                    context.fillRect(barEdge(i * step), top, barEdge((i + 1) * step) - barEdge(i * step) - gap, bar);
                }
                context.globalAlpha = 1;
            }
            context.fillStyle = ink("line-strong");
            context.fillRect(CHART_LEFT, base, width - CHART_LEFT, 1);
            if (cursor) {
                context.lineWidth = 2;
                context.strokeStyle = ink("accent");
                context.strokeRect(CHART_LEFT + cursor.at * step - 1, base - room - 2, Math.max(3, step - gap + 2), room + 2);
            }
        },
        hit: (x) => {
            const at = Math.floor((x - CHART_LEFT) / step);
            return at >= 0 && at < count ? { at } : null;
        },
        step: (target, dx, dy) => ({ at: target === null ? 0 : (target.at + dx + dy + count) % count }),
        tell: ({ at }) => [`${nameOf(at)}: ${sizeText(totals[at])}`,
            ...(series.length > 1 ? series.map((one) => `${one.name}: ${sizeText(one.values[at])}`) : [])].join("\n"),
        pick: ({ at }) => pick(at),
    });
}

function keyOf(series) {
    const key = element("p", { class: "hint legend" });
    const fill = () => key.replaceChildren(...series.map((one) =>
        element("span", { class: "key" }, element("i", { style: `background: ${ink(one.ink)}` }), one.name)));
    fill();
    onTheme(fill);
    return key;
}

/** A table that can be sorted by its columns, {name, values}. Built when it is first opened. */
function rankTable(columns) {
    const count = columns[0].values.length;
    const body = element("tbody");
    const heads = columns.map((column, i) => element("th", { scope: "col" },
        element("button", { type: "button", onclick: () => sort(i) }, column.name)));
    let order = { column: 0, falls: false };

    function fill() {
        const rows = Array.from({ length: count }, (_, i) => i);
        const { values } = columns[order.column];
        rows.sort((a, b) => (order.falls ? values[b] - values[a] : values[a] - values[b]) || a - b);
        heads.forEach((head, i) => i === order.column ?
            head.setAttribute("aria-sort", order.falls ? "descending" : "ascending") : head.removeAttribute("aria-sort"));
        body.replaceChildren(...rows.map((row) => element("tr", { "data-rank": `${row}` },
            columns.map(({ values: cells }, i) => i === 0 ?
                element("th", { scope: "row" }, element("button", { type: "button", class: "link", onclick: () => choose("rank", row) }, `${cells[row]}`)) :
                element("td", { title: `${exactText(cells[row])} bytes` }, sizeText(cells[row]))))));
        light();
    }
    function sort(column) {
        order = { column, falls: order.column === column ? !order.falls : column > 0 };
        fill();
    }
    function light() {
        for (const row of body.rows) row.classList.toggle("lit", Number(row.dataset.rank) === state.rank);
    }
    onState(light);
    const details = element("details", { ontoggle: () => { if (details.open && body.rows.length === 0) fill(); } },
        element("summary", {}, `All ${countText(count, "rank")} as a table`),
        element("div", { class: "scroll" }, element("table", { class: "figures" }, element("thead", {}, element("tr", {}, heads)), body)));
    return details;
}

function planRanks() {
    const list = DATA.rank_list;
    if (!list) return null;
    const series = [{ name: "source shard", ink: "part-1", values: list.source },
        { name: "shards in between", ink: "part-2", values: list.between },
        { name: "target shard", ink: "part-3", values: list.target },
        { name: "messages", ink: "part-4", values: list.staging }].filter((one) => one.values.some((bytes) => bytes > 0));
    const total = list.source.map((_, i) => list.source[i] + list.between[i] + list.target[i] + list.staging[i]);
    if (series.length === 0) return null;
    const most = total.reduce((top, bytes) => Math.max(top, bytes), 0);
    const who = total.indexOf(most);
    const same = total.filter((bytes) => bytes === most).length;
    const bars = barDrawing("Memory of each rank", series, {
        nameOf: (rank) => `rank ${rank}`, pick: (rank) => choose("rank", rank),
        isChosen: (rank) => state.link ? state.link.includes(rank) : state.rank === null || state.rank === rank,
    });
    onState(bars.redraw);
    return section("ranks", "Memory of each rank",
        element("p", { id: "peak" }, "Most: ", element("data", { value: `${most}`, title: `${exactText(most)} bytes` }, sizeText(most)),
            ` on rank ${who}${same > 1 ? ` and ${exactText(same - 1)} other${same === 2 ? "" : "s"}` : ""}, if all of it is there at once.`),
        bars.node, keyOf(series),
        rankTable([{ name: "rank", values: total.map((_, i) => i) }, { name: "sends", values: list.out }, { name: "receives", values: list.in },
            { name: "keeps", values: list.kept }, { name: "source", values: list.source }, { name: "target", values: list.target },
            { name: "messages", values: list.staging }, { name: "memory", values: total }]));
}

function sums(isRow) {
    const made = new Array(isRow ? TOTAL.height : TOTAL.width).fill(0);
    for (let s = 0; s < TOTAL.height; s++)
        for (let t = 0; t < TOTAL.width; t++) made[isRow ? s : t] += TOTAL.at(s, t);
    return made;
}

function conversionFiles() {
    if (TOTAL === null || TOTAL.cell > 1) return null;
    const made = [["Read from each file", true], ["Written to each file", false]].map(([title, isRow]) => {
        const kind = isRow ? "file" : "rank";
        const bars = barDrawing(title, [{ name: "bytes", ink: isRow ? "part-1" : "part-3", values: sums(isRow) }], {
            nameOf: isRow ? rowName : columnName, pick: (at) => choose(kind, at),
            isChosen: (at) => state.link ? state.link[isRow ? 0 : 1] === at : state[kind] === null || state[kind] === at,
        });
        onState(bars.redraw);
        return element("div", {}, element("h3", {}, title), bars.node);
    });
    return section("ranks", "Files", element("div", { class: "pictures" }, made));
}

export function ranksSection() {
    return IS_PLAN ? planRanks() : conversionFiles();
}
