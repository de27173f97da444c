// SPDX-License-Identifier: Apache-2.0
// Draws several layouts of one tensor side by side, with the same two dimensions and a slider for each other one.
import { element, choice, codeLine } from "./dom.js";
import { countText, shapeText } from "./format.js";
import { boxesOf, boxesOfRank, extentsOf, lackText, shareOfBoxes } from "./data.js";
import { layoutPicture } from "./picture.js";
import { state, onState } from "./state.js";

/** The two dimensions to show first: those that are cut, otherwise the last ones. */
function pickDims(layouts) {
    const ndim = layouts[0].shape.length;
    const isCut = (d) => layouts.some((layout) => boxesOf(layout).some((box) => box.size[d] !== layout.shape[d]));
    const dims = Array.from({ length: ndim }, (_, d) => d);
    const wanted = [...dims.filter(isCut), ...dims.filter((d) => !isCut(d)).reverse()].slice(0, 2).sort((a, b) => a - b);
    if (ndim === 0) return { rowDim: null, columnDim: null };
    if (ndim === 1) return { rowDim: null, columnDim: 0 };
    return { rowDim: wanted[0], columnDim: wanted[1] };
}

function axisText(shape, { rowDim, columnDim }) {
    if (shape.length === 0) return "scalar";
    const across = `dim ${columnDim} across (${shape[columnDim]})`;
    return rowDim === null ? across : `dim ${rowDim} down (${shape[rowDim]}), ${across}`;
}

function sliders(shape, axes, slice, onchange) {
    return shape.map((length, d) => {
        if (d === axes.rowDim || d === axes.columnDim) return null;
        const shown = element("output", {}, `${slice[d]}`);
        const input = element("input", {
            type: "range", min: "0", max: `${Math.max(0, length - 1)}`, value: `${slice[d]}`, "aria-label": `place in dim ${d}`,
            oninput: () => {
                slice[d] = Number(input.value);
                shown.textContent = `${slice[d]}`;
                onchange();
            },
        });
        return element("label", { class: "slider" }, element("span", {}, `dim ${d} at`), input, shown);
    });
}

function chooser(shape, axes, onchange) {
    const options = shape.map((length, d) => [`${d}`, `dim ${d} (${length})`]);
    const turn = (mine, other) => (value) => {
        const dim = Number(value);
        if (dim === axes[other]) axes[other] = axes[mine];
        axes[mine] = dim;
        onchange();
    };
    return [choice("Down", options, `${axes.rowDim}`, turn("rowDim", "columnDim")).node,
        choice("Across", options, `${axes.columnDim}`, turn("columnDim", "rowDim")).node];
}

/**
 * items: [{title, text, layout, owner, bytes, padding, chosen(), pick(rank)}]. `text` is the spec, or null; chosen()
 * returns the rank to show, or null. With ghosts, the boxes that a chosen rank has in the first layout are drawn dashed
 * in the last one and vice versa, and the intersection of the ends of a chosen link is drawn dashed in both.
 */
export function pictureRow(items, { ghosts = false } = {}) {
    const shape = extentsOf(items.at(-1).layout);
    const alike = items.filter((item) => item.layout.shape.length === shape.length).map((item) => item.layout);
    const axes = pickDims(alike);
    const slice = shape.map(() => 0);
    const controls = element("div", { class: "controls" });
    const figures = element("div", { class: "pictures" });
    const redraws = [];
    const redraw = () => redraws.forEach((one) => one());

    function ghostsOf(i) {
        if (!ghosts || (i !== 0 && i !== items.length - 1)) return [];
        const [first, last] = [items[0].layout, items.at(-1).layout];
        if (state.link) return shareOfBoxes(boxesOfRank(first, state.link[0]), boxesOfRank(last, state.link[1])).boxes;
        return state.rank === null ? [] : boxesOfRank(i === 0 ? last : first, state.rank);
    }
    function fillControls() {
        controls.replaceChildren(...(shape.length > 2 ? chooser(shape, axes, () => { fillControls(); redraw(); }) : []),
            ...sliders(shape, axes, slice, redraw).filter((one) => one !== null));
        controls.hidden = controls.childElementCount === 0;
    }
    items.forEach((item, i) => {
        const own = item.layout.shape.length === shape.length ? null : pickDims([item.layout]);
        const caption = element("span", { class: "axes" });
        const view = () => ({ ...item, ...(own ?? axes), slice: own ? item.layout.shape.map(() => 0) : slice,
            chosen: item.chosen(), ghosts: own ? [] : ghostsOf(i) });
        const label = `${item.title}: ${shapeText(item.layout.shape)} over ${countText(item.layout.ranks, item.owner)}`;
        const picture = layoutPicture(label, view, item.pick);
        const lack = lackText(item.layout);
        redraws.push(() => {
            caption.textContent = axisText(item.layout.shape, own ?? axes);
            picture.redraw();
        });
        figures.append(element("figure", {},
            element("figcaption", {}, element("h3", {}, item.title), item.text ? codeLine(item.text, `the spec of the ${item.title.toLowerCase()}`) : null),
            picture.node, element("p", { class: "hint" }, caption, lack ? ` \u00b7 drawn: ${lack}` : "",
                item.padding ? " \u00b7 hatched: padding" : "")));
    });
    fillControls();
    redraw();
    onState(redraw);
    return element("div", { class: "picture-row" }, controls, figures);
}
