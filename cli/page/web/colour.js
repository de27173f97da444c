// SPDX-License-Identifier: Apache-2.0
// Colours of ranks and of amounts. The meaning is always also in numbers and borders, never in colour alone.

// Hues that colour-blind people can tell apart. Further hues advance by the golden angle.
const FIRST_HUES = [[212, 72], [28, 85], [160, 60], [330, 55], [48, 90], [265, 55], [190, 70], [5, 70]];

const isDark = matchMedia("(prefers-color-scheme: dark)");
const isPrint = matchMedia("print");

let dark = isDark.matches && !isPrint.matches;

export function onTheme(listener) {
    isDark.addEventListener("change", listener);
    isPrint.addEventListener("change", listener);
}

onTheme(() => { dark = isDark.matches && !isPrint.matches; });

export function darkNow() {
    return dark;
}

export function rankColour(rank, alpha = 1) {
    const [hue, saturation] = FIRST_HUES[rank] ?? [(rank * 137.508) % 360, 50 + ((rank * 7) % 4) * 8];
    const light = darkNow() ? 38 + ((rank * 5) % 3) * 3 : 76 + ((rank * 5) % 3) * 2;
    return `hsl(${hue} ${darkNow() ? saturation * 0.7 : saturation}% ${light}% / ${alpha})`;
}

// From nothing to the maximum: darker in the light theme, brighter in the dark one.
const HEAT = {
    light: [[232, 241, 251], [168, 205, 240], [93, 154, 217], [38, 97, 173]],
    dark: [[26, 36, 52], [31, 72, 120], [51, 117, 186], [121, 184, 245]],
    keptLight: [[241, 241, 239], [226, 227, 224], [211, 212, 209], [196, 198, 194]],
    keptDark: [[32, 35, 40], [45, 49, 55], [59, 64, 71], [74, 80, 88]],
};

/** The colour of a share between 0 and 1, as [red, green, blue]; grey for kept bytes. */
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

const inks = new Map(); // a cache: computing a style thousands of times takes seconds
onTheme(() => inks.clear());

/** The value of a CSS variable, for drawing on canvases. */
export function ink(name) {
    if (!inks.has(name)) inks.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
    return inks.get(name);
}
