// SPDX-License-Identifier: Apache-2.0
// Numbers and boxes as people read them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** "512 B", "48 MiB", "1.5 GiB", as the command writes sizes. */
export function sizeText(bytes) {
    let unit = 0;
    let value = bytes;
    while (value >= 1024 && unit + 1 < UNITS.length) {
        value /= 1024;
        unit++;
    }
    return `${unit === 0 ? value : Number(value.toFixed(1))} ${UNITS[unit]}`;
}

/** All digits, with thin spaces between thousands; "about" beyond 2^53, where JSON numbers are not exact. */
export function exactText(number) {
    const digits = String(number).replace(/\B(?=(\d{3})+$)/g, "\u2009");
    return Number.isSafeInteger(number) ? digits : `about ${number}`;
}

/** A name, with invisible characters and those that change the direction of text spelt out. */
export function nameText(name) {
    const shown = name.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);
    return shown === "" ? "(no name)" : shown;
}

export function countText(count, word) {
    return `${exactText(count)} ${word}${count === 1 ? "" : "s"}`;
}

export function percentText(part, whole) {
    return whole > 0 ? `${((100 * part) / whole).toFixed(1)}%` : "";
}

/** "371 \u00b5s", "2.5 s" */
export function timeText(seconds) {
    const [unit, name] = seconds < 1e-3 ? [1e-6, "\u00b5s"] : seconds < 1 ? [1e-3, "ms"] : [1, "s"];
    return `${Number((seconds / unit).toPrecision(3))} ${name}`;
}

export function shapeText(shape) {
    return shape.length === 0 ? "scalar" : shape.join("\u00d7");
}

/** "[0:2048, 0:8192]" */
export function boxText(offset, size) {
    return `[${offset.map((from, d) => `${from}:${from + size[d]}`).join(", ")}]`;
}

/** "0\u20133, 8", with a count if there are many; ranges are [first, count]. */
export function rangesText(ranges, limit = 4) {
    const shown = ranges.slice(0, limit).map(([first, count]) =>
        count === 1 ? `${first}` : count === 2 ? `${first}, ${first + 1}` : `${first}\u2013${first + count - 1}`);
    return ranges.length > limit ? `${shown.join(", ")} .. (${rangesCount(ranges)})` : shown.join(", ");
}

export function rangesCount(ranges) {
    return ranges.reduce((sum, [, count]) => sum + count, 0);
}
