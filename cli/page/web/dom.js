// SPDX-License-Identifier: Apache-2.0
// Makes elements from data. Text is only ever inserted as text nodes, so that no name can become markup.

/** element("p", {class: "x", onclick: f}, "text", child, ...); null children are left out. */
export function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (value === null || value === undefined || value === false) continue;
        if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
        else made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return made;
}

/** A section, labelled by its heading. */
export function section(id, title, ...children) {
    return element("section", { id, "aria-labelledby": `${id}-title` },
        element("h2", { id: `${id}-title` }, title), ...children);
}

async function copyText(text) {
    try {
        await navigator.clipboard.writeText(text);
    } catch {
        // Pages opened from a disk may lack navigator.clipboard.
        const area = element("textarea", { "aria-hidden": "true" });
        area.value = text;
        document.body.append(area);
        area.select();
        document.execCommand("copy");
        area.remove();
    }
}

/** A button that copies a text and says so. */
function copyButton(text, what) {
    const button = element("button", {
        type: "button", class: "copy", "aria-label": `Copy ${what}`,
        onclick: async () => {
            await copyText(text);
            button.textContent = "Copied";
            setTimeout(() => { button.textContent = "Copy"; }, 1500);
        },
    }, "Copy");
    return button;
}

/** A piece of code with a button that copies it, or another text in its place. */
export function codeLine(text, what, copied = text) {
    return element("span", { class: "code" }, element("code", { tabindex: "0" }, text), copyButton(copied, what));
}

/** A labelled choice: options are [value, text]. */
export function choice(label, options, value, onpick) {
    const select = element("select", { onchange: () => onpick(select.value) },
        options.map(([key, text]) => element("option", { value: key }, text)));
    select.value = value;
    return { node: element("label", { class: "choice" }, element("span", {}, label), select), select };
}
