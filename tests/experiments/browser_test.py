"""The page in a real browser, where there is one."""

import html
import json
import os
import re
import shutil
import subprocess

import pytest

NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
)
BROWSER = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, NAMES)), None
)
pytestmark = pytest.mark.skipif(
    BROWSER is None,
    reason="no Chromium is installed; CHROMIUM may name its program",
)
# Writes what the browser made of the page into the page around it.
PROBE = """
<script>
const errors = [];
addEventListener("error", event => errors.push(event.message));
addEventListener("load", () => {
  document.querySelectorAll("details").forEach(part => part.open = true);
  parent.document.getElementById("probe").textContent = JSON.stringify({
    inner: innerWidth,
    page: document.documentElement.scrollWidth,
    images: document.images.length,
    broken: [...document.images].filter(i => !i.naturalWidth).length,
    requests: performance.getEntriesByType("resource")
      .map(entry => entry.name).filter(name => !name.startsWith("data:")),
    errors: errors,
  });
});
</script>
</head>"""


def visit(page, folder, width):
    probed = html.escape(page.read_text().replace("</head>", PROBE, 1))
    around = folder / "around.html"
    # Windows have a smallest width, frames have not.
    around.write_text(
        '<!DOCTYPE html><meta charset="utf-8"><pre id="probe"></pre>'
        f'<iframe width="{width}" height="900" style="border:0" '
        f'srcdoc="{probed}"></iframe>'
    )
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--enable-logging=stderr",
            f"--user-data-dir={folder / 'profile'}",
            "--dump-dom",
            around.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = re.search(r'<pre id="probe">(.+?)</pre>', done.stdout)
    assert found, done.stderr
    return json.loads(html.unescape(found[1])), done.stderr


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_and_needs_nothing(page, tmp_path, width):
    seen, log = visit(page, tmp_path, width)
    # With every folded table open.
    assert seen["page"] <= seen["inner"] == width
    assert seen["images"] == page.read_text().count("<figure") > 5
    assert seen["broken"] == 0
    assert seen["requests"] == []
    assert seen["errors"] == []
    assert "CONSOLE" not in log
