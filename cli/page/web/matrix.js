// SPDX-License-Identifier: Apache-2.0
// Who hands how much to whom, as a heat map of ranks, nodes or files.
import { element, section, choice } from "./dom.js";
import { boxText, countText, exactText, nameText, percentText, sizeText } from "./format.js";
import { DATA, IS_PLAN, STAGES, TOTAL, boxesOfRank, columnName, rowName, shareOfBoxes, tensorsBetween } from "./data.js";
import { darkNow, heatColour, heatText, ink } from "./colour.js";
import { drawing, tickStep } from "./canvas.js";
import { state, onState, setState, choose } from "./state.js";

const NODE_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const SIDE_MAX = 620;
const FINE = 96; // with more cells than this on a side, they are drawn as an image

let current = { key: null };

/**
 * The matrix that is shown now, of the chosen stage and with cells of the chosen size; its values without bytes that
 * stay within a rank; and the largest of these.
 */
function currentMatrix() {
    const key = `${state.stage} ${state.node}`;
    if (current.key !== key) {
        const whole = STAGES[state.stage] ?? TOTAL;
        const matrix = whole.joined(Math.max(whole.cell, Math.ceil((state.node ?? 1) / whole.cell) * whole.cell));
        current = { key, matrix, ...splitMatrix(matrix) };
    }
    return current;
}

function splitMatrix(matrix) {
    const values = Float64Array.from(matrix.values);
    const kept = new Float64Array(matrix.height);
    if (IS_PLAN && matrix.cell === 1) {
        for (let i = 0; i < matrix.height; i++) kept[i] = values[i * matrix.width + i];
    } else if (IS_PLAN && state.stage === null) {
        DATA.rank_list.kept.forEach((bytes, rank) => { kept[Math.floor(rank / matrix.cell)] += bytes; });
    }
    if (IS_PLAN) for (let i = 0; i < matrix.height; i++) values[i * matrix.width + i] -= kept[i];
    let most = 0;
    for (const bytes of values) if (bytes > most) most = bytes;
    return { values, kept, most };
}

function cellName(matrix, index, isRow) {
    const name = isRow ? rowName : columnName;
    const count = Math.min(matrix.cell, (isRow ? matrix.rows : matrix.columns) - index * matrix.cell);
    if (count === 1) return name(index * matrix.cell);
    const from = index * matrix.cell;
    return IS_PLAN ? `node ${index} (ranks ${from}\u2013${from + count - 1})` : `files ${from}\u2013${from + count - 1}`;
}

/** The links that carry the most: [[source, target], ...]. */
function findBusiest(matrix) {
    let most = 0;
    let links = [];
    for (let s = 0; s < matrix.height; s++) {
        for (let t = 0; t < matrix.width; t++) {
            const bytes = matrix.at(s, t);
            if ((IS_PLAN && s === t) || bytes < most || bytes === 0) continue;
            if (bytes > most) links = [];
            most = bytes;
            if (links.length < 1000000) links.push([s, t]);
        }
    }
    return { most, links };
}

/** Why so much goes from one rank to another: what one holds and the other needs. */
function planReason([s, t]) {
    if (DATA.layouts.length > 2)
        return "The plan goes through another layout, so that no rank has to send everything to everybody; the pictures show it.";
    const [has, wants] = [boxesOfRank(DATA.layouts[0], s), boxesOfRank(DATA.layouts.at(-1), t)];
    const { boxes: shared, volume } = shareOfBoxes(has, wants);
    if (shared.length === 0) return "They have no box in common.";
    const some = (boxes) => boxText(boxes[0].offset, boxes[0].size) + (boxes.length > 1 ? ` and ${boxes.length - 1} more` : "");
    const others = TOTAL.at(s, t) < volume * DATA.element_bytes ? " Other ranks hold the same, and send their share of it." : "";
    return `Rank ${s} holds ${some(has)}, rank ${t} wants ${some(wants)}; they share ${some(shared)}.${others}`;
}

/** The same between files: the tensors that contribute most. */
function conversionReason([s, t]) {
    const found = tensorsBetween(s, t);
    if (found.length === 0) return "";
    const shown = found.slice(0, 3).map(({ tensor, bytes }) => `${nameText(tensor.name)} (${sizeText(bytes)})`);
    return `Parts of ${countText(found.length, "tensor")}; the largest: ${shown.join(", ")}.`;
}

/** Describes a link, with its reason. */
function linkWords(link, note = "") {
    const bytes = TOTAL.at(...link);
    return [element("p", {}, element("button", { type: "button", class: "link", onclick: () => choose("link", link) },
        `${rowName(link[0])} \u2192 ${columnName(link[1])}`), " ",
        element("data", { value: `${bytes}`, title: `${exactText(bytes)} bytes` }, sizeText(bytes))),
    element("p", { class: "hint" }, note, IS_PLAN ? planReason(link) : conversionReason(link))];
}

function busiestPanel() {
    if (TOTAL.cell > 1) return element("p", {}, "The matrix is too irregular to be shown one by one here.");
    const { links } = findBusiest(TOTAL);
    if (links.length === 0) return element("p", { id: "busiest" }, "Nothing goes from one rank to another.");
    const same = links.length === 1 ? "No other link carries as much. " :
        `${exactText(links.length - 1)} other link${links.length === 2 ? " carries" : "s carry"} as much. `;
    return element("div", { id: "busiest" }, element("h3", {}, "Busiest link"), linkWords(links[0], same));
}

/** The chosen link, with its reason. */
function chosenPanel() {
    const panel = element("div", { id: "chosen-link" });
    onState(() => {
        const isThere = state.link && TOTAL.cell === 1 && state.link[0] < TOTAL.rows && state.link[1] < TOTAL.columns;
        panel.hidden = !isThere;
        panel.replaceChildren(...(isThere ? [element("h3", {}, "Chosen link"), ...linkWords(state.link)] : []));
    });
    return panel;
}

function nodeFigures() {
    const shown = element("p", { class: "hint", id: "nodes" });
    onState(() => {
        const { matrix, values } = currentMatrix();
        if (!IS_PLAN || (state.node ?? 1) === 1 || (matrix.cell > 1 && state.stage !== null)) {
            shown.textContent = "";
            return;
        }
        const all = values.reduce((sum, bytes) => sum + bytes, 0);
        let within = 0;
        for (let i = 0; i < matrix.height; i++) within += values[i * matrix.width + i];
        shown.textContent = `Between nodes of ${matrix.cell}: ${sizeText(all - within)} (${percentText(all - within, all)}), ` +
            `within them: ${sizeText(within)}.`;
    });
    return shown;
}

function controls() {
    const sizes = NODE_SIZES.filter((size) => size === 1 || (size < Math.max(TOTAL.rows, TOTAL.columns) && size >= TOTAL.cell));
    const word = IS_PLAN ? "rank" : "file";
    const by = choice("By", sizes.map((size) => [`${size}`, size === 1 ? word : IS_PLAN ? `node of ${size}` : `${size} files`]),
        "1", (value) => setState({ node: value === "1" ? null : Number(value) }));
    const stages = choice("Stage", [["", "all"], ...STAGES.map((_, i) => [`${i}`, `${i}`])], "",
        (value) => setState({ stage: value === "" ? null : Number(value) }));
    onState(() => {
        by.select.value = `${state.node ?? 1}`;
        stages.select.value = state.stage === null ? "" : `${state.stage}`;
    });
    return element("div", { class: "controls" }, sizes.length > 1 ? by.node : null, STAGES.length > 1 ? stages.node : null);
}

// ---- the drawing ---------------------------------------------------------------------------------

function shareOf(shown, bytes) {
    return shown.most > 0 ? bytes / shown.most : 0;
}

const SHADES = 255;

/** All cells as an image of one pixel each, which the canvas then enlarges. */
function cellsImage({ matrix, values, kept, most }) {
    const image = new ImageData(matrix.width, matrix.height);
    const nothing = darkNow() ? [22, 25, 31] : [250, 250, 249];
    const shades = Array.from({ length: SHADES + 1 }, (_, i) => heatColour(i / SHADES));
    const put = (i, colour) => {
        image.data[4 * i] = colour[0];
        image.data[4 * i + 1] = colour[1];
        image.data[4 * i + 2] = colour[2];
        image.data[4 * i + 3] = 255;
    };
    for (let i = 0; i < values.length; i++)
        put(i, values[i] === 0 ? nothing : shades[Math.max(1, Math.round((values[i] / most) * SHADES))]);
    if (IS_PLAN && matrix.cell === 1) {
        for (let i = 0; i < matrix.height; i++)
            if (kept[i] > 0) put(i * matrix.width + i, heatColour(kept[i] / (most || 1), true));
    }
    const made = new OffscreenCanvas(matrix.width, matrix.height);
    made.getContext("2d").putImageData(image, 0, 0);
    return made;
}

function isLit(matrix, row, column) {
    const at = (index) => Math.floor(index / matrix.cell);
    if (state.link) return row === at(state.link[0]) && column === at(state.link[1]);
    if (state.file !== null) return row === at(state.file);
    if (state.rank !== null) return column === at(state.rank) || (IS_PLAN && row === at(state.rank));
    return true;
}

function heatMap() {
    let image = null;
    let drawnFor = "";
    let place = { left: 0, top: 0, side: 1, matrix: TOTAL };

    function measure(width) {
        const { matrix } = currentMatrix();
        const margin = matrix.width > 1 || matrix.height > 1 ? 34 : 20;
        const across = Math.min(width, SIDE_MAX) - margin;
        const cellWidth = Math.min(across / matrix.width, 96);
        const cellHeight = Math.max(Math.min(cellWidth, SIDE_MAX / matrix.height), Math.min(18, 320 / matrix.height));
        return { left: margin, top: 22, cellWidth, cellHeight, matrix };
    }
    function drawAxes(context, { left, top, cellWidth, cellHeight, matrix }) {
        context.fillStyle = ink("muted");
        context.font = `11px ${ink("font")}`;
        context.textBaseline = "middle";
        context.textAlign = "center";
        for (let t = 0; t < matrix.width; t += tickStep(cellWidth, 24))
            context.fillText(`${t}`, left + (t + 0.5) * cellWidth, top - 10);
        context.textAlign = "right";
        for (let s = 0; s < matrix.height; s += tickStep(cellHeight, 16))
            context.fillText(`${s}`, left - 6, top + (s + 0.5) * cellHeight);
    }
    function drawCells(context, shown, { left, top, cellWidth, cellHeight, matrix }) {
        const gap = Math.min(cellWidth, cellHeight) > 6 ? 1 : 0;
        for (let s = 0; s < matrix.height; s++) {
            for (let t = 0; t < matrix.width; t++) {
                const isKept = IS_PLAN && matrix.cell === 1 && s === t;
                const bytes = isKept ? shown.kept[s] : shown.values[s * matrix.width + t];
                const share = shareOf(shown, bytes);
                context.globalAlpha = isLit(matrix, s, t) ? 1 : 0.25;
                context.fillStyle = bytes === 0 ? ink("empty") : `rgb(${heatColour(share, isKept).join()})`;
                context.fillRect(left + t * cellWidth, top + s * cellHeight, cellWidth - gap, cellHeight - gap);
                if (cellWidth >= 52 && cellHeight >= 18 && bytes > 0) {
                    context.globalAlpha = 1;
                    context.fillStyle = !isLit(matrix, s, t) ? ink("muted") : isKept ? ink("text") : heatText(share);
                    context.textAlign = "center";
                    context.fillText(sizeText(bytes), left + (t + 0.5) * cellWidth, top + (s + 0.5) * cellHeight);
                }
            }
        }
        context.globalAlpha = 1;
    }
    function drawImage(context, shown, { left, top, cellWidth, cellHeight, matrix }) {
        const key = `${state.node} ${state.stage} ${darkNow()}`;
        if (image === null || key !== drawnFor) image = cellsImage(shown);
        drawnFor = key;
        context.imageSmoothingEnabled = cellWidth < 1;
        context.drawImage(image, left, top, matrix.width * cellWidth, matrix.height * cellHeight);
        if (state.rank === null && state.file === null && !state.link) return;
        context.fillStyle = ink("veil");
        context.fillRect(left, top, matrix.width * cellWidth, matrix.height * cellHeight);
        const strip = (sx, sy, w, h) => context.drawImage(image, sx, sy, w, h, left + sx * cellWidth, top + sy * cellHeight,
            Math.max(2, w * cellWidth), Math.max(2, h * cellHeight));
        const at = (index) => Math.floor(index / matrix.cell);
        if (state.link) strip(at(state.link[1]), at(state.link[0]), 1, 1);
        if (state.file !== null) strip(0, at(state.file), matrix.width, 1);
        if (state.rank !== null) strip(at(state.rank), 0, 1, matrix.height);
        if (state.rank !== null && IS_PLAN) strip(0, at(state.rank), matrix.width, 1);
    }
    function outline(context, { left, top, cellWidth, cellHeight }, row, column) {
        context.lineWidth = 2;
        context.strokeStyle = ink("accent");
        context.strokeRect(left + column * cellWidth, top + row * cellHeight, Math.max(3, cellWidth), Math.max(3, cellHeight));
    }
    return drawing({
        label: `Heat map of the bytes from each ${IS_PLAN ? "rank" : "file"} (rows) to each (columns)`,
        height: (width) => {
            const { top, cellHeight, matrix } = measure(width);
            return top + cellHeight * matrix.height + 4;
        },
        draw: (context, width, height, cursor) => {
            place = measure(width);
            const shown = currentMatrix();
            drawAxes(context, place);
            if (Math.max(place.matrix.width, place.matrix.height) > FINE) drawImage(context, shown, place);
            else drawCells(context, shown, place);
            const at = (index) => Math.floor(index / place.matrix.cell);
            if (state.link) outline(context, place, at(state.link[0]), at(state.link[1]));
            if (cursor) outline(context, place, cursor.row, cursor.column);
        },
        hit: (x, y) => {
            const row = Math.floor((y - place.top) / place.cellHeight);
            const column = Math.floor((x - place.left) / place.cellWidth);
            const isInside = row >= 0 && row < place.matrix.height && column >= 0 && column < place.matrix.width;
            return isInside ? { row, column } : null;
        },
        step: (target, dx, dy) => {
            const clamp = (value, count) => Math.max(0, Math.min(count - 1, value));
            const from = target ?? { row: 0, column: 0 };
            return { row: clamp(from.row + (target ? dy : 0), place.matrix.height),
                column: clamp(from.column + (target ? dx : 0), place.matrix.width) };
        },
        tell: ({ row, column }) => {
            const { matrix } = place;
            const bytes = matrix.at(row, column);
            if (IS_PLAN && row === column)
                return `${cellName(matrix, row, true)}: ${sizeText(bytes)} stay${matrix.cell > 1 ? " or move within" : ""}`;
            return `${cellName(matrix, row, true)} \u2192 ${cellName(matrix, column, false)}\n${sizeText(bytes)} (${exactText(bytes)} bytes)`;
        },
        pick: ({ row, column }) => {
            const [s, t] = [row * place.matrix.cell, column * place.matrix.cell];
            if (IS_PLAN && row === column) choose("rank", s);
            else choose("link", [s, t]);
        },
    });
}

function legend() {
    const { most } = currentMatrix();
    const shades = element("span", { class: "shades", "aria-hidden": "true" });
    const fill = () => shades.replaceChildren(...Array.from({ length: 12 }, (_, i) =>
        element("i", { style: `background: rgb(${heatColour(i / 11).join()})` })));
    onState(fill);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", fill);
    return element("p", { class: "hint legend" }, "0 B ", shades, ` ${sizeText(most)}`,
        IS_PLAN ? " \u00b7 grey: stays where it is" : "");
}

export function matrixSection() {
    const title = IS_PLAN ? "Who hands how much to whom" : "From file to file";
    if (TOTAL === null) return null;
    const map = heatMap();
    onState(map.redraw);
    const words = IS_PLAN ? "Rows send, columns receive." : "Rows are files read, columns are files written.";
    return section("matrix", title, controls(), element("div", { class: "split" },
        element("div", {}, map.node, legend()),
        element("div", { class: "panel" }, busiestPanel(), chosenPanel(), nodeFigures(), element("p", { class: "hint" }, words,
            TOTAL.cell > 1 ? ` Each cell stands for ${TOTAL.cell} by ${TOTAL.cell} of them.` : ""))));
}
