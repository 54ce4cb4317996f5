"""Opens pages of `sluice bench report` in Chromium. Prints a line for each page; exit status 1 when one fails.

Usage: report_test.py DIRECTORY-OF-PAGES SCREENSHOT-DIRECTORY

Pages are files, opened without a server. Needs Playwright, axe and Chromium, as page_test.py does.
"""

import os
import re
import shutil
import sys
import time
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

# Widest and narrowest width that a page must fit.
WIDTHS = {"narrow": 360, "wide": 1280}
# Pages that are checked in both colour schemes, and whose pictures are taken. The others differ in data only.
CHOSEN = {"run", "comparison", "hostile"}

STRUCTURE = """() => {
  const faults = [];
  const levels = [...document.querySelectorAll("h1,h2,h3,h4,h5,h6")].map((one) => +one.tagName[1]);
  if (levels[0] !== 1 || levels.filter((one) => one === 1).length !== 1) faults.push("the page needs one h1, at its beginning");
  levels.forEach((level, at) => { if (at && level > levels[at - 1] + 1) faults.push(`h${level} follows h${levels[at - 1]}`); });
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of ids.filter((one, at) => ids.indexOf(one) !== at)) faults.push(`the id ${id} is used twice`);
  for (const svg of document.querySelectorAll("svg.plot")) {
    for (const name of ["aria-labelledby", "aria-describedby"]) {
      const target = document.getElementById(svg.getAttribute(name));
      if (!target || !target.textContent.trim()) faults.push(`a plot has no ${name}`);
    }
    if (svg.getAttribute("role") !== "img") faults.push("a plot has no role");
    const figure = svg.closest("figure");
    if (figure.dataset.cursor && figure.querySelectorAll("details tbody tr").length === 0)
      faults.push(`${figure.querySelector("figcaption").textContent} has no data`);
    const box = svg.viewBox.baseVal;
    for (const part of svg.querySelectorAll("path,text,rect")) {
      if (part.closest("defs")) continue;
      const bounds = part.getBBox();
      if (![bounds.x, bounds.y, bounds.width, bounds.height].every(Number.isFinite)) faults.push("a part of a plot has no place");
      if (part.tagName === "text" && (bounds.x < -1 || bounds.x + bounds.width > box.width + 1))
        faults.push(`“${part.textContent.slice(0, 40)}” leaves its plot`);
    }
    if (/NaN|undefined|Infinity/.test(svg.outerHTML)) faults.push("a plot has no number");
  }
  for (const table of document.querySelectorAll("table")) {
    if (!table.caption || !table.caption.textContent.trim()) faults.push("a table has no caption");
    if ([...table.querySelectorAll("th")].some((cell) => !cell.scope)) faults.push("a header cell has no scope");
    const widths = new Set([...table.rows].map((row) => row.cells.length));
    if (widths.size !== 1) faults.push(`rows of ${table.caption.textContent} differ in length`);
    const box = table.parentElement;
    if (!box.matches(".scroll[tabindex='0'][aria-label]")) faults.push("a table can't be scrolled by keyboard");
  }
  if (/\\bNaN\\b|undefined|Infinity|\\bnil\\b/.test(document.body.innerText)) faults.push("the text has no number");
  return faults;
}"""

# Contrast of lines with the ground must be 3 : 1, that of text 4.5 : 1; axe does not look into plots.
CONTRAST = """() => {
  const style = getComputedStyle(document.documentElement);
  const channel = (part) => { part /= 255; return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4; };
  const light = (name) => {
    let hex = style.getPropertyValue(name).trim().slice(1);
    if (hex.length === 3) hex = [...hex].map((one) => one + one).join("");
    const [red, green, blue] = [0, 2, 4].map((at) => channel(parseInt(hex.slice(at, at + 2), 16)));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const faults = [];
  const need = (one, two, least) => {
    const [low, high] = [light(one), light(two)].sort((first, second) => first - second);
    const ratio = (high + 0.05) / (low + 0.05);
    if (!(ratio >= least)) faults.push(`${one} on ${two} has a contrast of ${ratio.toFixed(2)}`);
  };
  for (const line of ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5"])
    for (const ground of ["--ground", "--band"]) need(line, ground, 3);
  for (const text of ["--ink", "--soft"]) for (const ground of ["--ground", "--band", "--strip", "--panel"]) need(text, ground, 4.5);
  for (const text of ["--good", "--bad", "--link"]) for (const ground of ["--ground", "--panel"]) need(text, ground, 4.5);
  need("--flag-ink", "--flag", 4.5);
  need("--ink", "--warn", 4.5);
  return faults;
}"""

OVERFLOW = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return "";
  const wide = [...document.querySelectorAll("body *")].filter((one) => one.getBoundingClientRect().right > width + 1
    && !one.closest(".scroll,pre,.hidden,.skip"));
  return `the page is ${document.documentElement.scrollWidth} px wide: ` + wide.slice(0, 4).map((one) => one.outerHTML.slice(0, 90));
}"""


class Checks:
    def __init__(self, browser, directory):
        self.browser = browser
        self.directory = Path(directory)

    def open(self, path, **options):
        context = self.browser.new_context(locale="en-GB", reduced_motion="reduce", **options)
        page = context.new_page()
        self.faults = []
        page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        page.on("console", lambda message: self.faults.append(f"console: {message.text}"))
        page.on("dialog", lambda dialog: (self.faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        own = path.resolve().as_uri()
        page.on("request", lambda request: None if request.url.split("#")[0] == own or request.url.startswith("data:")
                else self.faults.append(f"request: {request.url}"))
        page.goto(own)
        return page

    def shot(self, page, name):
        page.screenshot(path=self.directory / f"{name}.png", full_page=True)

    def check(self, path):
        found = []
        is_chosen = path.stem in CHOSEN
        for width_name, width in WIDTHS.items():
            page = self.open(path, viewport={"width": width, "height": 900})
            for scheme in ("light", "dark") if is_chosen else ("light",):
                page.emulate_media(color_scheme=scheme)
                page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
                if is_chosen:
                    self.shot(page, f"{path.stem}-{width_name}-{scheme}")
                found += page.evaluate(CONTRAST)
                if width_name == "wide":
                    for fault in Axe().run(page).response["violations"]:
                        found += [f"axe {fault['id']} at {node['target']}: {node.get('failureSummary', '')[:200]}"
                                  for node in fault["nodes"][:3]]
            found += page.evaluate(STRUCTURE)
            found.append(page.evaluate(OVERFLOW))
            # Opened tables may be wide; the page must not become so.
            page.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            found.append(page.evaluate(OVERFLOW))
            found += self.faults
            page.context.close()
        found += self.keyboard(path) + self.without_script(path) + self.paper(path)
        return [f"{path.stem}: {fault}" for fault in dict.fromkeys(found) if fault]

    def keyboard(self, path):
        """Reaches links, tables and sliders by keyboard alone."""
        page = self.open(path, viewport={"width": 1280, "height": 900})
        page.keyboard.press("Tab")
        found = []
        if page.evaluate("() => document.activeElement.className") != "skip":
            found.append("the first stop is not the link to the verdict")
        plots = page.locator("figure[data-cursor]")
        if plots.count() == 0:
            return found
        summary = page.locator("figure details > summary").first
        summary.focus()
        page.keyboard.press("Enter")
        if not page.locator("figure details").first.evaluate("(one) => one.open"):
            found.append("a table does not open by keyboard")
        slider = page.locator("figure[data-cursor] input[type=range]")
        if slider.count():
            slider.first.focus()
            before = slider.first.get_attribute("aria-valuetext")
            page.keyboard.press("ArrowRight")
            after = slider.first.get_attribute("aria-valuetext")
            if before == after or ":" not in after:
                found.append(f"the slider reads {after} after {before}")
            if page.locator(".cursor[visibility=visible]").count() == 0:
                found.append("the cursor is not shown")
            figure = plots.filter(has=page.locator("input")).first
            figure.locator("svg.plot").hover()
            if slider.first.get_attribute("aria-valuetext") == after and slider.first.get_attribute("max") != "1":
                found.append("the pointer moves no cursor")
        found += self.faults
        page.context.close()
        return found

    def without_script(self, path):
        page = self.open(path, viewport={"width": 1280, "height": 900}, java_script_enabled=False)
        found = []
        if page.locator("input").count():
            found.append("a control is there that needs the script")
        if page.locator("h1").inner_text().strip() == "":
            found.append("there is no heading without the script")
        for index in range(min(3, page.locator("svg.plot").count())):
            if not page.locator("svg.plot").nth(index).is_visible():
                found.append("a plot is absent without the script")
        # Chromium reports on the console that the script was blocked.
        page.context.close()
        return found

    def paper(self, path):
        page = self.open(path, viewport={"width": 1280, "height": 900}, color_scheme="dark")
        page.emulate_media(media="print", color_scheme="dark")
        found = []
        plots = page.locator("svg.plot")
        for index in range(plots.count()):
            if not plots.nth(index).is_visible():
                found.append("a plot is absent on paper")
        if page.evaluate("() => getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)":
            found.append("paper is not white")
        if page.locator("nav").is_visible() or page.locator(".reader").count() and page.locator(".reader").first.is_visible():
            found.append("paper has controls")
        target = self.directory / f"{path.stem}.pdf"
        page.pdf(path=target, format="A4", print_background=True, prefer_css_page_size=True)
        pages = len(re.findall(rb"/Type\s*/Page\b", target.read_bytes()))
        if pages == 0 or plots.count() > 3 and pages < 2:
            found.append(f"the document for paper has {pages} pages for {plots.count()} plots")
        # Columns of paper: nothing may be wider than the sheet.
        page.set_viewport_size({"width": 690, "height": 980})
        found += [f"on paper {text}" for text in [page.evaluate(OVERFLOW)] if text]
        if path.stem in CHOSEN:
            self.shot(page, f"{path.stem}-paper")
        found += self.faults
        page.context.close()
        return found


def main():
    source, directory = sys.argv[1:3]
    os.makedirs(directory, exist_ok=True)
    failed = 0
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        checks = Checks(browser, directory)
        pages = sorted(Path(source).glob("*.html"))
        for page in pages:
            started = time.monotonic()
            faults = checks.check(page)
            failed += bool(faults)
            for fault in faults[:20]:
                print(f"FAIL {fault}", flush=True)
            if not faults:
                print(f"ok   {page.stem} ({time.monotonic() - started:.1f} s)", flush=True)
        if not pages:
            print(f"FAIL no page in {source}")
    sys.exit(1 if failed or not pages else 0)


if __name__ == "__main__":
    main()
