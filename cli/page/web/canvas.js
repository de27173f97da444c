// SPDX-License-Identifier: Apache-2.0
// A canvas that is sharp on every screen, describes what is under the pointer, and can be used with the keyboard.
import { element } from "./dom.js";
import { onTheme } from "./colour.js";

/** The left edge of charts, to the right of their axis labels. */
export const CHART_LEFT = 64;

/** The step from one number on an axis to the next, such that the numbers have enough room. */
export function tickStep(length, room) {
    return 2 ** Math.max(0, Math.ceil(Math.log2(room / length)));
}

/** The edge of a bar, rounded to half a pixel, so that adjacent thin bars make no moire pattern. */
export function barEdge(x) {
    return CHART_LEFT + Math.round(2 * x) / 2;
}

const tip = element("div", { id: "tip", role: "presentation", hidden: true });

function showTip(text, x, y) {
    tip.replaceChildren(...text.split("\n").map((line) => element("div", {}, line)));
    tip.hidden = false;
    const room = document.documentElement;
    tip.style.left = `${Math.max(4, Math.min(x + 14, room.clientWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${y + 18 + tip.offsetHeight > room.clientHeight ? y - tip.offsetHeight - 10 : y + 18}px`;
}

function hideTip() {
    tip.hidden = true;
}

/**
 * parts: {label, height(width), draw(context, width, height, cursor), hit(x, y), tell(target), pick(target),
 * step(target, dx, dy)}. A target is whatever hit() finds: an object, or null. tell() returns its description, step()
 * the target next to it, for the arrow keys.
 */
export function drawing(parts) {
    const canvas = element("canvas", { role: "img", tabindex: "0", "aria-label": parts.label, "aria-describedby": "keys" });
    const node = element("div", { class: "drawing" }, canvas);
    let cursor = null;
    let waiting = false;

    function drawNow() {
        waiting = false;
        const width = node.clientWidth;
        if (width === 0) return;
        const height = Math.round(parts.height(width));
        const scale = Math.max(2, window.devicePixelRatio || 1); // at least 2, for printing
        canvas.width = Math.round(width * scale);
        canvas.height = Math.round(height * scale);
        canvas.style.height = `${height}px`;
        const context = canvas.getContext("2d");
        context.scale(scale, scale);
        parts.draw(context, width, height, cursor);
    }
    function redraw() {
        if (waiting) return;
        waiting = true;
        requestAnimationFrame(drawNow);
    }
    function setCursor(target) {
        cursor = target;
        redraw();
    }
    function find(event) {
        const place = canvas.getBoundingClientRect();
        return parts.hit(event.clientX - place.left, event.clientY - place.top);
    }

    canvas.addEventListener("pointermove", (event) => {
        const target = find(event);
        canvas.style.cursor = target && parts.pick ? "pointer" : "";
        if (target) showTip(parts.tell(target), event.clientX, event.clientY);
        else hideTip();
        if (JSON.stringify(target) !== JSON.stringify(cursor)) setCursor(target);
    });
    canvas.addEventListener("pointerleave", () => { hideTip(); setCursor(null); });
    canvas.addEventListener("blur", () => { hideTip(); setCursor(null); });
    canvas.addEventListener("click", (event) => {
        const target = find(event);
        if (target && parts.pick) parts.pick(target);
    });
    canvas.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
        if (step && parts.step) {
            setCursor(parts.step(cursor, ...step));
            event.preventDefault();
        } else if ((event.key === "Enter" || event.key === " ") && cursor && parts.pick) {
            parts.pick(cursor);
            event.preventDefault();
        } else {
            return;
        }
        if (!cursor) return;
        const place = canvas.getBoundingClientRect();
        canvas.setAttribute("aria-label", `${parts.label}. ${parts.tell(cursor)}`);
        showTip(parts.tell(cursor), place.left + 8, place.top + 8);
    });
    new ResizeObserver(redraw).observe(node);
    onTheme(redraw);
    return { node, canvas, redraw };
}

export function beginTips() {
    document.body.append(tip, element("p", { id: "keys", class: "unseen" },
        "Arrow keys move, Enter chooses, Escape lets go."));
    // The keyboard may scroll the page to its target, whose description must stay; so do not listen to "scroll".
    window.addEventListener("wheel", hideTip, { passive: true });
    window.addEventListener("touchmove", hideTip, { passive: true });
}
