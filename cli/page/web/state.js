// SPDX-License-Identifier: Apache-2.0
// What is chosen on the page. It is kept in the URL's hash, so that a link shows what its sender saw.

const NUMBERS = ["rank", "file", "stage", "node"];
const TEXTS = ["find", "sort"];

/** rank: of the target; file: of the source (a conversion); link: [source, target]. */
export const state = { rank: null, file: null, link: null, stage: null, node: null, tensor: null, find: "", sort: "" };

const listeners = [];

export function onState(listener) {
    listeners.push(listener);
}

function writeHash() {
    const words = new URLSearchParams();
    for (const name of NUMBERS) if (state[name] !== null) words.set(name, state[name]);
    if (state.tensor !== null) words.set("tensor", state.tensor); // a tensor may be called ""
    if (state.link) words.set("link", state.link.join("-"));
    for (const name of TEXTS) if (state[name]) words.set(name, state[name]);
    const hash = words.toString();
    if (hash !== location.hash.slice(1))
        history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
}

function readHash() {
    const words = new URLSearchParams(location.hash.slice(1));
    for (const name of NUMBERS) state[name] = /^\d{1,9}$/.test(words.get(name) ?? "") ? Number(words.get(name)) : null;
    const link = /^(\d{1,9})-(\d{1,9})$/.exec(words.get("link") ?? "");
    state.tensor = words.get("tensor");
    state.link = link ? [Number(link[1]), Number(link[2])] : null;
    for (const name of TEXTS) state[name] = words.get(name) ?? "";
}

function tellAll() {
    for (const listener of listeners) listener(state);
}

/** Changes parts of the state: setState({rank: 3}). */
export function setState(change) {
    Object.assign(state, change);
    writeHash();
    tellAll();
}

/** Chooses a rank, a file or a link, which exclude each other; choosing the same again clears it. */
export function choose(kind, value) {
    const same = JSON.stringify(state[kind]) === JSON.stringify(value);
    setState({ rank: null, file: null, link: null, [kind]: same ? null : value });
}

export function clearChoice() {
    setState({ rank: null, file: null, link: null });
}

/** Reads the hash and notifies all listeners, now and whenever it changes. */
export function beginState() {
    readHash();
    window.addEventListener("hashchange", () => { readHash(); tellAll(); });
    tellAll();
}
