// SPDX-License-Identifier: Apache-2.0
// The plan's data, as the command put it into the page, unpacked for the other modules.
import { boxText } from "./format.js";

export const DATA = JSON.parse(document.getElementById("data").textContent);
export const REPORT = DATA.report;
export const IS_PLAN = DATA.kind === "plan";

/** A matrix of sums: each number stands for `cell` x `cell` entries of the plan's matrix. */
class Matrix {
    constructor(rows, columns, cell) {
        this.rows = rows; // in entries: ranks or files
        this.columns = columns;
        this.cell = cell;
        this.height = Math.ceil(rows / cell);
        this.width = Math.ceil(columns / cell);
        this.values = new Float64Array(this.height * this.width);
    }

    at(row, column) {
        return this.values[row * this.width + column];
    }

    /** The same with larger cells; `cell` is a multiple of this one's. */
    joined(cell) {
        if (cell === this.cell) return this;
        const made = new Matrix(this.rows, this.columns, cell);
        const step = cell / this.cell;
        for (let row = 0; row < this.height; row++) {
            const base = Math.floor(row / step) * made.width;
            for (let column = 0; column < this.width; column++)
                made.values[base + Math.floor(column / step)] += this.at(row, column);
        }
        return made;
    }

    plus(other) {
        const made = new Matrix(this.rows, this.columns, this.cell);
        for (let i = 0; i < made.values.length; i++) made.values[i] = this.values[i] + other.values[i];
        return made;
    }
}

function unpackMatrix(packed) {
    const matrix = new Matrix(packed.rows, packed.columns, packed.cell);
    packed.runs.forEach((runs, row) => {
        let at = row * matrix.width;
        for (let i = 0; i < runs.length; i += 2) {
            matrix.values.fill(runs[i], at, at + runs[i + 1]);
            at += runs[i + 1];
        }
    });
    return matrix;
}

/** One matrix for each stage, all with cells of the same size. Empty if the page has none. */
function unpackStages() {
    const packed = IS_PLAN ? (DATA.stage_list ?? []).map((stage) => stage.matrix) : DATA.matrix ? [DATA.matrix] : [];
    const stages = packed.map(unpackMatrix);
    const cell = Math.max(1, ...stages.map((stage) => stage.cell));
    return stages.map((stage) => stage.joined(cell));
}

export const STAGES = unpackStages();
export const TOTAL = STAGES.length === 0 ? null : STAGES.reduce((sum, stage) => sum.plus(stage));

/**
 * The boxes of a layout, each with all ranks that hold it: {offset, size, ranges}, where ranges are
 * [first, count].
 */
function unpackBoxes(layout) {
    const ndim = layout.shape.length;
    const found = new Map();
    for (let at = 0; at < layout.pieces.length; at += 2 + 2 * ndim) {
        const [first, count] = layout.pieces.slice(at, at + 2);
        const corners = layout.pieces.slice(at + 2, at + 2 + 2 * ndim);
        const key = corners.join();
        const box = found.get(key) ?? { offset: corners.slice(0, ndim), size: corners.slice(ndim), ranges: [] };
        const last = box.ranges.at(-1);
        if (last && last[0] + last[1] === first) last[1] += count;
        else box.ranges.push([first, count]);
        found.set(key, box);
    }
    return [...found.values()];
}

/** The layout's boxes, unpacked at the first call. */
export function boxesOf(layout) {
    layout.boxes ??= unpackBoxes(layout);
    return layout.boxes;
}

export function holds(box, rank) {
    return box.ranges.some(([first, count]) => rank >= first && rank < first + count);
}

export function boxesOfRank(layout, rank) {
    return boxesOf(layout).filter((box) => holds(box, rank));
}

/** The intersection of two boxes, or null. */
function meet(a, b) {
    const offset = a.offset.map((from, d) => Math.max(from, b.offset[d]));
    const size = a.size.map((length, d) => Math.min(a.offset[d] + length, b.offset[d] + b.size[d]) - offset[d]);
    return size.some((length) => length <= 0) ? null : { offset, size };
}

/** How much of each dimension is drawn: all of it or, if the page lacks some boxes, the part that the others reach. */
export function extentsOf(layout) {
    const isWhole = layout.ranks_shown >= layout.ranks && !layout.pieces_cut;
    layout.extents ??= isWhole ? layout.shape :
        layout.shape.map((_, d) => boxesOf(layout).reduce((end, box) => Math.max(end, box.offset[d] + box.size[d]), 0));
    return layout.extents;
}

/** Says what a layout's picture lacks; "" if it is complete. */
export function lackText(layout) {
    if (layout.ranks_shown >= layout.ranks && !layout.pieces_cut) return "";
    const what = layout.ranks_shown < layout.ranks ? `the first ${layout.ranks_shown} of ${layout.ranks} ranks` : "the first boxes of each rank";
    return `${what}, in ${boxText(layout.shape.map(() => 0), extentsOf(layout))}`;
}

export const TENSORS = DATA.tensor_list ?? [];
const PICTURES = new Map(TENSORS.filter((tensor) => tensor.layout).map((tensor) => [tensor.picture, tensor.layout]));

/** The layout that a tensor is cut into; null if it stays whole, or there was no room on the page. */
export function layoutOf(tensor) {
    return PICTURES.get(tensor.picture) ?? null;
}

export function tensorBytes(tensor) {
    return Math.ceil((tensor.shape.reduce((volume, length) => volume * length, 1) * tensor.bits) / 8);
}

/** The names of the matrix's rows and columns. */
export function rowName(row) {
    return IS_PLAN ? `rank ${row}` : DATA.source_files[row] || `file ${row}`;
}

export function columnName(column) {
    return IS_PLAN ? `rank ${column}` : DATA.target_files[column] || `file ${column}`;
}

/** The intersection of one rank's boxes with another's, as boxes and as a number of elements. */
export function shareOfBoxes(has, wants) {
    const boxes = has.flatMap((a) => wants.map((b) => meet(a, b))).filter((box) => box !== null);
    return { boxes, volume: boxes.reduce((sum, box) => sum + box.size.reduce((product, length) => product * length, 1), 0) };
}

/** The tensors that a stored file contributes to a written one: [{tensor, bytes}], largest first. */
export function tensorsBetween(file, rank) {
    const wanted = new Map(); // by layout: tensors that are cut alike share one
    const found = [];
    for (const tensor of TENSORS) {
        const layout = layoutOf(tensor);
        if (!tensor.stored || !layout || layout.shape.length !== tensor.stored.shape.length) continue;
        const has = boxesOfRank(tensor.stored, file);
        if (has.length === 0) continue;
        if (!wanted.has(layout)) wanted.set(layout, boxesOfRank(layout, rank));
        const { volume } = shareOfBoxes(has, wanted.get(layout));
        if (volume > 0) found.push({ tensor, bytes: (volume * tensor.bits) / 8 });
    }
    return found.sort((a, b) => b.bytes - a.bytes);
}
