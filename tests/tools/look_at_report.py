"""Opens a report.html of `cento eval` in Chromium as a reader would, offline, and says what is wrong with it.

    pip install playwright        (and a Chromium in PATH: the package `chromium` of Debian)
    python3 tests/tools/look_at_report.py results/report.html shots

Wide and narrow, light and dark. Wrong are: anything that the page asks for, messages of the browser, a page wider than
its window, text of a chart that is cut off or lies on other text. A picture of each view is written to the folder
`shots`: whether the page is pleasant to read is for the eye. Exit status 1 if something is wrong.
"""

import argparse
import pathlib
import shutil
import sys

from playwright.sync_api import sync_playwright

# Overlaps of less than this many units of the drawing (about a CSS pixel) come from the blank above and below letters.
FAULTS_OF_CHARTS = """() => {
  const faults = [], slack = 0.5, leading = 3;
  for (const svg of document.querySelectorAll('svg')) {
    const page = svg.viewBox.baseVal, chart = svg.querySelector('title').textContent;
    const texts = [...svg.querySelectorAll('text:not([transform])')].map(t => ({words: t.textContent, box: t.getBBox()}));
    texts.forEach(({words, box}, i) => {
      const right = box.x + box.width, bottom = box.y + box.height;
      if (box.x < -slack || right > page.width + slack || box.y < -slack || bottom > page.height + slack)
        faults.push(`${chart}: "${words}" is cut off`);
      for (const other of texts.slice(i + 1)) {
        const across = Math.min(right, other.box.x + other.box.width) - Math.max(box.x, other.box.x);
        const down = Math.min(bottom, other.box.y + other.box.height) - Math.max(box.y, other.box.y);
        if (across > slack && down > leading) faults.push(`${chart}: "${words}" lies on "${other.words}"`);
      }
    });
  }
  return faults;
}"""


def look(browser, url, width, scheme, picture):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    page = context.new_page()
    faults = []
    page.on("request", lambda request: request.url == url or faults.append("asks for " + request.url))
    page.on("console", lambda message: faults.append("message: " + message.text))
    page.on("pageerror", lambda error: faults.append("error: " + str(error)))
    page.goto(url)
    page.screenshot(path=str(picture), full_page=True)
    if page.evaluate("document.documentElement.scrollWidth") > width:
        faults.append("wider than its window")
    faults += page.evaluate(FAULTS_OF_CHARTS)
    context.close()
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("report", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path, help="where the pictures go")
    parser.add_argument("--browser", default=shutil.which("chromium"), help="Chromium's program")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    n_faults = 0
    with sync_playwright() as playwright:
        # A file of our own: no sandbox is needed, and containers have none.
        browser = playwright.chromium.launch(executable_path=args.browser, args=["--no-sandbox"])
        for width in (1280, 400):
            for scheme in ("light", "dark"):
                view = "%d-%s" % (width, scheme)
                for fault in look(browser, args.report.resolve().as_uri(), width, scheme, args.folder / (view + ".png")):
                    print(view + ": " + fault)
                    n_faults += 1
        browser.close()
    print("%d faults; pictures in %s" % (n_faults, args.folder))
    return 1 if n_faults else 0


if __name__ == "__main__":
    sys.exit(main())
