// SPDX-License-Identifier: Apache-2.0
// The docs as `make site` renders them, opened from their folder: every link, search by word, dark, narrow windows.
//
//   node test_site.mjs SITE FOLDER BROWSER
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const [site, folder, executablePath] = process.argv.slice(2);
const { chromium } = createRequire(path.join(folder, "package.json"))("playwright-core");
const top = path.resolve(site);
const pages = readdirSync(top, { recursive: true }).filter((name) => name.endsWith(".html"));
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const complaints = [];

async function open(name, options) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
    const page = await context.newPage();
    page.on("pageerror", (error) => complaints.push(`${name}: ${error.message}`));
    page.on("request", (request) => { if (!/^(file|data):/.test(request.url())) complaints.push(`${name} asks for ${request.url()}`); });
    page.on("requestfailed", (request) => complaints.push(`${name} lacks ${request.url()}`));
    await page.goto(`file://${top}/${name}`);
    return page;
}

// Links lead to files, and to headings in them. No page is wider than a telephone.
assert.ok(pages.length > 50);
const ids = new Map(), links = [];
const narrow = await open("index.html", { viewport: { width: 400, height: 800 } });
for (const name of pages) {
    await narrow.goto(`file://${top}/${name}`);
    ids.set(name, new Set(await narrow.evaluate(() => [...document.querySelectorAll("[id]")].map((one) => one.id))));
    for (const href of await narrow.evaluate(() => [...document.querySelectorAll("a")].map((one) => one.href))) links.push([name, href]);
    const wide = await narrow.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= 400, `${name} is ${wide} wide`);
    assert.equal(await narrow.evaluate(() => document.querySelectorAll("h1").length), 1, `${name}: one h1`);
    assert.ok(!/\]\(|^#+ |\*\*|`|\x00/m.test(await narrow.evaluate(() => {
        const main = document.querySelector("main").cloneNode(true);
        main.querySelectorAll("code, pre").forEach((one) => one.remove());
        return main.textContent;
    })), `${name} shows Markdown`);
}
for (const [name, href] of links) {
    if (!href.startsWith("file:")) continue;
    const url = new URL(href), target = path.relative(top, decodeURIComponent(url.pathname));
    assert.ok(existsSync(path.join(top, target)), `${name}: ${href}`);
    if (url.hash && target.endsWith(".html")) assert.ok(ids.get(target).has(decodeURIComponent(url.hash.slice(1))), `${name}: ${href}`);
}

// Search finds the page of an error that others print, from anywhere, and Enter is not needed.
const page = await open("docs/man/reshard.1.html");
await page.fill("input", "MetadataIncompleteBuffer");
assert.deepEqual(await page.locator("#found a").allInnerTexts(), ["Is my checkpoint whole?"]);
assert.match(await page.locator("#found small").innerText(), /deserializing header: MetadataIncompleteBuffer/);
await page.click("#found a");
assert.match(page.url(), /docs\/answers\/is-my-checkpoint-whole\.html$/);
await page.fill("input", "no page has zyxwv");
assert.match(await page.locator("#found").innerText(), /no page has all of these words/);

// Dark, and legible in both.
for (const colorScheme of ["light", "dark"]) {
    const shown = await open("index.html", { colorScheme });
    const [ink, paper] = await shown.evaluate(() => [getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]
        .map((text) => text.match(/\d+/g).slice(0, 3).reduce((sum, one) => sum + Number(one), 0) / 3));
    assert.ok(colorScheme === "dark" ? ink - paper > 150 : paper - ink > 150, `${colorScheme}: ${ink} on ${paper}`);
    mkdirSync(path.join(folder, "pictures"), { recursive: true });
    await shown.screenshot({ path: path.join(folder, "pictures", `site-1280-${colorScheme}.png`) });
}
await narrow.goto(`file://${top}/index.html`);
await narrow.screenshot({ path: path.join(folder, "pictures", "site-400.png") });
await browser.close();
assert.deepEqual(complaints, []);
console.log(`site: ${pages.length} pages, ${links.length} links`);
