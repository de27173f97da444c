// SPDX-License-Identifier: Apache-2.0
// The tensors of a checkpoint, as a list to search and sort, with a picture of each.
import { section, element, codeLine } from "./dom.js";
import { exactText, nameText, shapeText, sizeText } from "./format.js";
import { DATA, REPORT, TENSORS, boxesOf, holds, layoutOf, tensorBytes } from "./data.js";
import { pictureRow } from "./pictures.js";
import { state, onState, setState, choose } from "./state.js";

const SHOWN_FIRST = 200;

const cutText = (tensor) => tensor.cut ? tensor.cut.slice(tensor.cut.indexOf(": ") + 2) : "whole";
const ruleText = (tensor) => tensor.rules ? `${tensor.rules}:${tensor.line}` : "";
const compareText = (a, b) => a.localeCompare(b, undefined, { numeric: true });

const COLUMNS = [
    { key: "name", name: "tensor", show: (tensor) => nameText(tensor.name), compare: (a, b) => compareText(a.name, b.name) },
    { key: "dtype", name: "dtype", show: (tensor) => tensor.dtype, compare: (a, b) => compareText(a.dtype, b.dtype) },
    { key: "shape", name: "shape", show: (tensor) => shapeText(tensor.shape), compare: (a, b) => compareText(shapeText(a.shape), shapeText(b.shape)) },
    { key: "bytes", name: "bytes", show: (tensor) => sizeText(tensorBytes(tensor)), compare: (a, b) => tensorBytes(a) - tensorBytes(b) },
    { key: "cut", name: "cut", show: cutText, compare: (a, b) => compareText(cutText(a), cutText(b)) },
    { key: "local", name: "on one rank", show: (tensor) => shapeText(tensor.local_shape ?? tensor.shape),
        compare: (a, b) => compareText(shapeText(a.local_shape ?? a.shape), shapeText(b.local_shape ?? b.shape)) },
    { key: "rule", name: "rule", show: ruleText, compare: (a, b) => compareText(ruleText(a), ruleText(b)) },
];

/** The tensors in whose row all of the words occur. */
function findTensors(words) {
    const wanted = words.toLowerCase().split(/\s+/).filter((word) => word);
    return TENSORS.filter((tensor) => {
        tensor.words ??= COLUMNS.map((column) => column.show(tensor)).join(" ").toLowerCase();
        return wanted.every((word) => tensor.words.includes(word));
    });
}

/** sort is "name", or "-name" for descending order; "" is the order of the page. */
function sortTensors(found, sort) {
    const column = COLUMNS.find((one) => one.key === sort.replace(/^-/, ""));
    if (!column) return found;
    const sign = sort.startsWith("-") ? -1 : 1;
    return [...found].sort((a, b) => sign * column.compare(a, b));
}

/** What a tensor is made of, if a map makes it: a line for each part. */
function tensorOrigin(tensor) {
    if (!tensor.map) return null;
    const parts = tensor.links.map((link) => element("li", {}, element("code", {}, `${nameText(link.source)}${link.from}`),
        ...(link.into ? [" into ", element("code", {}, link.into)] : []), link.in_order ? null : ", in another order"));
    const left = tensor.link_count - tensor.links.length;
    if (left > 0) parts.push(element("li", {}, `and ${exactText(left)} more`));
    return [element("p", { class: "hint" }, `${parts.length > 0 ? "Made of the following" : "A constant"}, by line ${tensor.map_line} of the map ${tensor.map}` +
        (parts.length > 0 ? ":" : ".")), parts.length > 0 ? element("ul", { class: "origin" }, parts) : null];
}

/** Pictures of a tensor as it is stored and as it will be. */
function tensorPicture(tensor) {
    const layout = layoutOf(tensor);
    const items = [];
    if (tensor.stored) {
        items.push({ title: "As it is stored", text: null, layout: { ...tensor.stored, ranks: tensor.stored.pieces.length / (2 + 2 * tensor.stored.shape.length) }, owner: "file", bytes: null, padding: null,
            chosen: () => state.link ? state.link[0] : state.file, pick: (file) => choose("file", file) });
    }
    if (layout) {
        const isPadded = tensor.padded_shape.some((length, d) => length !== tensor.shape[d]);
        items.push({ title: "As it will be cut", text: tensor.cut, layout, owner: "rank", bytes: tensor.bits / 8,
            padding: isPadded ? tensor.shape : null,
            chosen: () => state.link ? state.link[1] : state.rank, pick: (rank) => choose("rank", rank) });
    }
    return element("div", { class: "tensor-picture" },
        element("p", {}, codeLine(nameText(tensor.name), "the tensor's name", tensor.name)),
        tensor.local_shape ? element("p", { class: "hint" }, `${shapeText(tensor.shape)} ${tensor.dtype}, on one rank ${shapeText(tensor.local_shape)}, ` +
            `by line ${tensor.line} of the rules ${tensor.rules}.`) :
            element("p", { class: "hint" }, `${shapeText(tensor.shape)} ${tensor.dtype}, written whole.`),
        tensorOrigin(tensor),
        items.length > 0 ? pictureRow(items) : element("p", { class: "hint" }, "Its picture found no room on this page."),
        tensor.local_shape && !layout ? element("p", { class: "hint" }, "The picture of its cut found no room on this page.") : null);
}

function isIn(tensor, file) {
    return tensor.stored ? boxesOf(tensor.stored).some((box) => holds(box, file)) : false;
}

function tensorTable() {
    const body = element("tbody");
    const count = element("p", { class: "hint", role: "status" });
    const more = element("button", { type: "button", hidden: true, onclick: () => { limit = Infinity; fill(true); } });
    const heads = COLUMNS.map((column) => element("th", { scope: "col" }, element("button", { type: "button",
        onclick: () => setState({ sort: state.sort === column.key ? `-${column.key}` : state.sort === `-${column.key}` ? "" : column.key }) }, column.name)));
    let limit = SHOWN_FIRST;
    let filled = null;
    let open = null; // the row of the picture that is open

    function rowOf(tensor) {
        const button = element("button", { type: "button", class: "link name", "aria-expanded": "false",
            onclick: () => setState({ tensor: state.tensor === tensor.name ? null : tensor.name }) }, nameText(tensor.name));
        const row = element("tr", {}, COLUMNS.map((column, i) => i === 0 ? element("th", { scope: "row" }, button) :
            element("td", { class: column.key }, column.show(tensor))));
        row.tensor = tensor;
        return row;
    }
    function fill(again = false) {
        const key = `${state.find}\n${state.sort}`;
        if (key === filled && !again) return;
        filled = key;
        open = null;
        const found = sortTensors(findTensors(state.find), state.sort);
        const chosen = found.findIndex((tensor) => tensor.name === state.tensor);
        const shown = found.slice(0, Math.max(limit, chosen + 1));
        body.replaceChildren(...shown.map(rowOf));
        more.hidden = shown.length === found.length;
        more.textContent = `Show all ${found.length}`;
        count.textContent = `${exactText(found.length)} of ${exactText(REPORT.tensors)} tensors` +
            (TENSORS.length < REPORT.tensors ? `; the page holds the first ${exactText(TENSORS.length)}` : "");
        heads.forEach((head, i) => {
            const isSorted = COLUMNS[i].key === state.sort.replace(/^-/, "");
            if (isSorted) head.setAttribute("aria-sort", state.sort.startsWith("-") ? "descending" : "ascending");
            else head.removeAttribute("aria-sort");
        });
    }
    function showPicture() {
        if (open && open.tensor.name === state.tensor) return;
        open?.previousSibling?.querySelector("button")?.setAttribute("aria-expanded", "false");
        open?.remove();
        open = null;
        const row = [...body.rows].find((one) => one.tensor.name === state.tensor);
        if (!row) return;
        open = element("tr", { class: "open" }, element("td", { colspan: `${COLUMNS.length}` }, tensorPicture(row.tensor)));
        open.tensor = row.tensor;
        row.after(open);
        row.querySelector("button").setAttribute("aria-expanded", "true");
    }
    function light() {
        const file = state.link ? state.link[0] : state.file;
        for (const row of body.rows) row.classList.toggle("lit", file !== null && !row.classList.contains("open") && isIn(row.tensor, file));
    }
    onState(() => { fill(); showPicture(); light(); });
    body.addEventListener("keydown", (event) => {
        const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
        const names = [...body.querySelectorAll("button.name")];
        const at = names.indexOf(document.activeElement);
        if (!step || at === -1) return;
        names[at + step]?.focus();
        event.preventDefault();
    });
    return [count, element("div", { class: "scroll tall" },
        element("table", { class: "tensors" }, element("thead", {}, element("tr", {}, heads)), body)), more];
}

export function tensorsSection() {
    if (!DATA.tensor_list) return null;
    const find = element("input", { type: "search", placeholder: "layers.0 S(0) bf16", "aria-label": "Search tensors by name, dtype, shape, cut or rule",
        oninput: () => setState({ find: find.value }) });
    onState(() => { if (find.value !== state.find) find.value = state.find; });
    return section("tensors", "Tensors", element("div", { class: "controls" }, element("label", { class: "choice" }, element("span", {}, "Search"), find)), ...tensorTable());
}
