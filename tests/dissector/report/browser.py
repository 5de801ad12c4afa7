"""A headless Chromium for tests of the page, driven by command line only."""

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# Runs in the page when everything is drawn, and writes down what it finds at the end of the body.
_PROBE: Final = """
<script>
window.addEventListener("error", (event) => window.faults.push(String(event.message)));
window.addEventListener("load", () => setTimeout(() => {
  const outside = [];
  const width = document.documentElement.clientWidth;
  for (const each of document.querySelectorAll("body *")) {
    const box = each.getBoundingClientRect();
    const inner = each.closest(".scroll, nav ul, svg, .hint");
    if (!inner && box.width > 0 && (box.right > width + 1 || box.left < -1)) {
      outside.push(each.tagName + "." + each.className + ": " + each.textContent.slice(0, 40));
    }
  }
  const style = (name) => getComputedStyle(document.body)[name];
  const found = {
    width: width,
    scrolls: document.documentElement.scrollWidth,
    outside: outside,
    faults: window.faults,
    requests: performance.getEntriesByType("resource").map((each) => each.name),
    paper: style("backgroundColor"),
    ink: style("color"),
    // Medians and 99th percentiles that can be seen only by scrolling sideways.
    hidden: Array.from(document.querySelectorAll("th")).filter((each) => {
      const region = each.closest(".scroll");
      const box = each.getBoundingClientRect();
      return ["p50", "p99"].includes(each.textContent) && region && box.width > 0
        && box.right > region.getBoundingClientRect().right + 1;
    }).map((each) => each.closest(".scroll").getAttribute("aria-label")),
    // Tables of which a part can be seen only by scrolling sideways.
    cut: Array.from(document.querySelectorAll(".scroll")).filter(
      (each) => each.scrollWidth > each.clientWidth + 1).map(
      (each) => each.getAttribute("aria-label")),
    noted: window.noted,
    sorts: document.querySelectorAll("th button").length,
    drawings: Array.from(document.querySelectorAll(".drawing svg")).filter(
      (each) => each.getBoundingClientRect().width > 0).length,
    smallest: Math.min(...Array.from(document.querySelectorAll(".drawing svg text")).filter(
      (each) => each.getBoundingClientRect().width > 0).map(
      (each) => parseFloat(getComputedStyle(each).fontSize)
        * each.ownerSVGElement.getBoundingClientRect().width
        / each.ownerSVGElement.viewBox.baseVal.width)),
  };
  const place = document.createElement("pre");
  place.id = "found";
  place.textContent = JSON.stringify(found);
  document.body.append(place);
}, 100));
</script>
"""
_FIRST: Final = """
<script>
window.faults = [];
window.noted = null;
for (const name of ["error", "warn"]) {
  const before = console[name];
  console[name] = (...words) => { window.faults.push(words.join(" ")); before(...words); };
}
</script>
"""


def chromium() -> str:
    """The path of a Chromium; the test is skipped where there is none."""
    for name in _NAMES:
        found = shutil.which(name)
        if found:
            return found
    pytest.skip("no Chromium is installed; .ci/run installs one")


def looked_at(
    page: str, folder: Path, width: int, *, is_dark: bool = False, act: str = ""
) -> dict[str, Any]:
    """Open a page in a window of some width; what the probe found in it, and what was printed.

    act: a script that does what a user would, before the probe; it leaves in window.noted what it
    saw.
    """
    # The page lets no other script run than its own; the probe is let, and the rest stays refused.
    last = _PROBE.replace("<script>", f"<script>{act}", 1)
    probed = page.replace("<head>", f"<head>{_FIRST}", 1).replace("</body>", f"{last}</body>", 1)
    text = last.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    assert probed.count("script-src ") == 1, "the page has a policy"
    probed = probed.replace("script-src ", f"script-src 'sha256-{digest}' ")
    file = folder / f"page-{width}-{is_dark}.html"
    file.write_text(probed, "utf-8")
    # A window is at least 500 wide; narrower ones are made with a frame of that width.
    if width < 500:
        inner = file
        file = folder / f"frame-{width}-{is_dark}.html"
        file.write_text(
            f'<!DOCTYPE html><body style="margin:0"><iframe src="{inner.name}" style="border:0" '
            f'width="{width}" height="20000"></iframe><script>addEventListener("load", () => '
            "setTimeout(() => { const found = frames[0].document.getElementById('found'); "
            "document.body.append(found); }, 600));</script>",
            "utf-8",
        )
    done = subprocess.run(
        [
            chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--allow-file-access-from-files", "--disable-dev-shm-usage", "--no-first-run",
            f"--user-data-dir={folder / 'profile'}", f"--window-size={max(500, width)},1000",
            f"--blink-settings=preferredColorScheme={0 if is_dark else 1}",
            "--enable-logging=stderr", "--virtual-time-budget=4000", "--dump-dom", file.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    match = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(html.unescape(match.group(1)))
    found["console"] = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return found
