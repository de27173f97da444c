// SPDX-License-Identifier: Apache-2.0
// Colours of ranks and of amounts. Numbers and borders carry the meaning; colour only helps.

// Told apart by people who see fewer colours, too; beyond them hues go round by the golden angle.
const FIRST_HUES = [[212, 72], [28, 85], [160, 60], [330, 55], [48, 90], [265, 55], [190, 70], [5, 70]];

const isDark = matchMedia("(prefers-color-scheme: dark)");
const isPrint = matchMedia("print");

export function darkNow() {
    return isDark.matches && !isPrint.matches;
}

export function onTheme(listener) {
    isDark.addEventListener("change", listener);
    isPrint.addEventListener("change", listener);
}

export function rankColour(rank, alpha = 1) {
    const [hue, saturation] = FIRST_HUES[rank] ?? [(rank * 137.508) % 360, 50 + ((rank * 7) % 4) * 8];
    const light = darkNow() ? 42 + ((rank * 5) % 3) * 3 : 72 + ((rank * 5) % 3) * 3;
    return `hsl(${hue} ${saturation}% ${light}% / ${alpha})`;
}

// From nothing to the most, darker by day and brighter by night.
const HEAT = {
    light: [[233, 240, 250], [150, 193, 233], [58, 123, 200], [22, 62, 130]],
    dark: [[27, 36, 51], [35, 84, 140], [72, 150, 219], [196, 228, 255]],
    keptLight: [[240, 240, 238], [205, 206, 203], [165, 167, 163], [122, 125, 120]],
    keptDark: [[32, 34, 37], [62, 65, 69], [98, 102, 107], [146, 150, 156]],
};

/** The colour of a share between 0 and 1, as [red, green, blue]; kept: of what stays, in grey. */
export function heatColour(share, kept = false) {
    const scale = HEAT[kept ? (darkNow() ? "keptDark" : "keptLight") : darkNow() ? "dark" : "light"];
    const place = Math.min(1, Math.max(0, share)) ** 0.7 * (scale.length - 1);
    const step = Math.min(scale.length - 2, Math.floor(place));
    return scale[step].map((from, i) => Math.round(from + (scale[step + 1][i] - from) * (place - step)));
}

export function heatText(share) {
    const isBright = heatColour(share).reduce((sum, part) => sum + part, 0) > 400;
    return isBright ? "#10151d" : "#fff";
}

/** The value of a CSS variable, for what is drawn on canvases. */
export function ink(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
