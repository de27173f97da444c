// SPDX-License-Identifier: Apache-2.0
// Draws one layout: two of its dimensions, and the boxes at the chosen index of the others.
import { boxText, rangesText, rangesCount, sizeText } from "./format.js";
import { boxesOf, extentsOf, holds } from "./data.js";
import { rankColour, ink } from "./colour.js";
import { drawing } from "./canvas.js";

const STRIP_HEIGHT = 72; // for tensors with one dimension
const STRIPES_MAX = 4;

/** Stripes in the colours of the first ranks that hold a box, so that replicas can be recognised. */
function fillOf(context, box, alpha) {
    const ranks = [];
    for (const [first, count] of box.ranges)
        for (let i = 0; i < count && ranks.length < STRIPES_MAX; i++) ranks.push(first + i);
    if (ranks.length === 1) return rankColour(ranks[0], alpha);
    const width = 9;
    const tile = new OffscreenCanvas(width * ranks.length, width * ranks.length);
    const brush = tile.getContext("2d");
    for (let i = -ranks.length; i < 2 * ranks.length; i++) {
        brush.fillStyle = rankColour(ranks[(i + ranks.length) % ranks.length], alpha);
        brush.beginPath();
        brush.moveTo(i * width, 0);
        brush.lineTo((i + 1) * width, 0);
        brush.lineTo((i + 1 - ranks.length) * width, tile.height);
        brush.lineTo((i - ranks.length) * width, tile.height);
        brush.fill();
    }
    return context.createPattern(tile, "repeat");
}

/** Writes the longest of the texts that fits into the middle of a rectangle. */
function writeLabel(context, texts, [x, y, width, height]) {
    const size = Math.min(16, Math.max(10, height * 0.3));
    if (height < 11 || width < 12) return;
    context.font = `600 ${size}px ${ink("font")}`;
    const text = texts.find((one) => context.measureText(one).width <= width - 6);
    if (text === undefined) return;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineWidth = 3;
    context.strokeStyle = ink("halo");
    context.strokeText(text, x + width / 2, y + height / 2);
    context.fillStyle = ink("text");
    context.fillText(text, x + width / 2, y + height / 2);
}

/**
 * view(): {layout, rowDim, columnDim, slice, chosen, ghosts, owner, bytes, padding}. rowDim and columnDim are null if
 * there is no such dimension; `chosen` is the rank to show, or null; `ghosts` are boxes drawn with dashes; `owner` is
 * "rank" or "file"; `padding` is the shape without padding, or null.
 */
export function layoutPicture(label, view, pick) {
    let placed = []; // boxes and where they were drawn last

    function place(now, box, width, height) {
        const part = (dim, room) => {
            if (dim === null) return [0, room];
            const length = Math.max(1, extentsOf(now.layout)[dim]);
            return [(box.offset[dim] / length) * room, (box.size[dim] / length) * room];
        };
        const [x, across] = part(now.columnDim, width - 2);
        const [y, down] = part(now.rowDim, height - 2);
        return [x + 1, y + 1, across, down];
    }
    function isInSlice(now, box) {
        return box.offset.every((from, d) => d === now.rowDim || d === now.columnDim ||
            (now.slice[d] >= from && now.slice[d] < from + box.size[d]));
    }
    function height(width) {
        const now = view();
        if (now.rowDim === null) return STRIP_HEIGHT;
        const extents = extentsOf(now.layout);
        const shape = Math.max(1, extents[now.rowDim]) / Math.max(1, extents[now.columnDim]);
        return width * Math.min(1, Math.max(0.35, shape));
    }
    function drawBox(context, now, box, rectangle, isHovered) {
        const isChosen = now.chosen !== null && holds(box, now.chosen);
        const [x, y, width, down] = rectangle;
        context.globalAlpha = now.chosen === null || isChosen ? 1 : 0.28;
        context.fillStyle = fillOf(context, box, 1);
        context.fillRect(x, y, width, down);
        if (Math.min(width, down) > 3) {
            context.lineWidth = 1;
            context.strokeStyle = ink("line-strong");
            context.strokeRect(x + 0.5, y + 0.5, width - 1, down - 1);
        }
        const mark = now.layout.partial ? "\u03a3 " : "";
        const count = rangesCount(box.ranges);
        writeLabel(context, [mark + rangesText(box.ranges), `${mark}${count} ${now.owner}s`, `${mark}${box.ranges[0][0]}..`,
            ...(count === 1 ? [] : [`${mark}\u00d7${count}`])], rectangle);
        context.globalAlpha = 1;
        if (isChosen || isHovered) {
            context.lineWidth = isChosen ? 3 : 2;
            context.strokeStyle = ink("accent");
            context.strokeRect(x + 1, y + 1, Math.max(1, width - 2), Math.max(1, down - 2));
        }
    }
    function drawGhosts(context, now, width, down) {
        context.setLineDash([5, 4]);
        context.lineWidth = 2;
        context.strokeStyle = ink("text");
        for (const box of now.ghosts.filter((one) => isInSlice(now, one))) {
            const [x, y, across, height_] = place(now, box, width, down);
            context.strokeRect(x + 2, y + 2, Math.max(1, across - 4), Math.max(1, height_ - 4));
        }
        context.setLineDash([]);
    }
    function drawPadding(context, now, width, down) {
        const tile = new OffscreenCanvas(8, 8);
        const brush = tile.getContext("2d");
        brush.strokeStyle = ink("text");
        brush.beginPath();
        brush.moveTo(-1, 9);
        brush.lineTo(9, -1);
        brush.stroke();
        context.fillStyle = context.createPattern(tile, "repeat");
        for (const dim of [now.rowDim, now.columnDim].filter((one) => one !== null)) {
            const offset = now.padding.map((length, d) => (d === dim ? length : 0));
            const size = now.layout.shape.map((length, d) => length - offset[d]);
            if (size[dim] > 0) context.fillRect(...place(now, { offset, size }, width, down));
        }
    }
    function draw(context, width, down, cursor) {
        const now = view();
        context.fillStyle = ink("empty");
        context.fillRect(0, 0, width, down);
        placed = boxesOf(now.layout).filter((box) => isInSlice(now, box))
            .map((box) => ({ box, rectangle: place(now, box, width, down) }));
        placed.forEach(({ box, rectangle }, i) => drawBox(context, now, box, rectangle, cursor?.index === i));
        if (now.padding) drawPadding(context, now, width, down);
        drawGhosts(context, now, width, down);
        context.lineWidth = 1;
        context.strokeStyle = ink("line-strong");
        context.strokeRect(0.5, 0.5, width - 1, down - 1);
    }
    function tell({ index }) {
        const now = view();
        const { box } = placed[index];
        const count = rangesCount(box.ranges);
        const volume = box.size.reduce((product, length) => product * length, 1);
        const role = now.layout.partial ? `, contributions (${now.layout.partial})` : count > 1 ? ", the same on each" : "";
        return `${now.owner}${count > 1 ? "s" : ""} ${rangesText(box.ranges, 8)}${role}\n` +
            `${boxText(box.offset, box.size)} ${now.bytes === null ? "" : sizeText(volume * now.bytes)}`;
    }
    return drawing({
        label, height, draw, tell,
        hit: (x, y) => {
            const index = placed.findLastIndex(({ rectangle: [left, top, width, down] }) =>
                x >= left && x < left + width && y >= top && y < top + down);
            return index === -1 ? null : { index };
        },
        step: (target, dx, dy) => placed.length === 0 ? null :
            { index: target === null ? 0 : (target.index + dx + dy + placed.length) % placed.length },
        pick: ({ index }) => {
            // Picking the same box again chooses the next rank that holds it.
            const { ranges } = placed[index].box;
            const ranks = ranges.flatMap(([first, count]) => Array.from({ length: Math.min(count, 4096) }, (_, i) => first + i));
            const at = ranks.indexOf(view().chosen);
            pick(at === -1 || ranks.length === 1 ? ranks[0] : ranks[(at + 1) % ranks.length]);
        },
    });
}
