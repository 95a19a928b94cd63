"""The page in a real browser, where there is one."""

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
# Writes what the browser made of the page into the page.
PROBE = """
<script>
const errors = [];
addEventListener("error", event => errors.push(event.message));
addEventListener("load", () => {
  document.querySelectorAll("details").forEach(part => part.open = true);
  const box = document.createElement("pre");
  box.id = "probe";
  box.textContent = JSON.stringify({
    inner: innerWidth,
    page: document.documentElement.scrollWidth,
    images: document.images.length,
    broken: [...document.images].filter(i => !i.naturalWidth).length,
    requests: performance.getEntriesByType("resource")
      .map(entry => entry.name).filter(name => !name.startsWith("data:")),
    errors: errors,
  });
  document.body.append(box);
});
</script>
</head>"""


def visit(page, folder, width):
    copy = folder / "probed.html"
    copy.write_text(page.read_text().replace("</head>", PROBE, 1))
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
            f"--user-data-dir={folder / 'profile'}",
            f"--window-size={width},900",
            "--dump-dom",
            copy.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout)
    assert found, done.stderr
    return json.loads(found[1]), done.stderr


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_and_needs_nothing(page, tmp_path, width):
    seen, log = visit(page, tmp_path, width)
    # With every folded table open.
    assert seen["page"] <= seen["inner"] == width
    assert seen["images"] == page.read_text().count("<figure") > 10
    assert seen["broken"] == 0
    assert seen["requests"] == []
    assert seen["errors"] == []
    assert "CONSOLE" not in log
