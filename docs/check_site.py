"""The built site: every link leads somewhere, and a browser finds what a reader looks for.

``make docs && make site-check``.  The browser is Chromium, headless; without it these tests are skipped.
"""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

SITE = Path(__file__).parent / "_build" / "html"
SCREENS = Path(__file__).parent / "_build" / "screenshots"
PAGES = [
    *("index.html", "start.html", "choosing.html", "how_it_works.html", "how_right.html", "how_fast.html"),
    *("papers.html", "gallery/index.html", "gallery/risk/plot_risk_path.html", "api/index.html"),
    *("api/generated/onefit.loo.html", "api/generated/onefit.LassoLOO.html"),
    *(f"guide/{page.stem}.html" for page in sorted((Path(__file__).parent / "guide").glob("*.md"))),
]

DATA = Path(os.environ.get("ONEFIT_DATA", Path(__file__).parents[2] / "shared" / "data"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no real data in {DATA}: examples are not run")
pytestmark = pytest.mark.skipif(not SITE.is_dir(), reason="no site: run `make docs` first")


class _Page(HTMLParser):
    """Names of a page, and what it links to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.names.update(given[key] for key in ("id", "name") if given.get(key))
        self.links += [given[key] for key in ("href", "src") if given.get(key)]


@functools.cache
def _read(file: Path) -> _Page:
    return _Page(file.read_text(encoding="utf-8"))


def _broken(file: Path) -> list[str]:
    found = []
    for link in _read(file).links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
        target = target / "index.html" if target.is_dir() else target
        if not target.is_file():
            found.append(f"{link}: no such file")
        elif (
            parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in _read(target).names
        ):
            found.append(f"{link}: no such place")
    return found


def test_links_inside_the_site():
    pages = [page for page in sorted(SITE.rglob("*.html")) if "_static" not in page.parts]
    broken = {str(page.relative_to(SITE)): found for page in pages if (found := _broken(page))}
    assert len(pages) > 50
    assert not broken


@needs_data
def test_every_example_has_a_picture():
    examples = sorted((SITE / "gallery").rglob("plot_*.html"))
    assert len(examples) >= 18
    without = [
        page.name
        for page in examples
        if "sphx-glr-single-img" not in page.read_text() and "sphx-glr-multi-img" not in page.read_text()
    ]
    assert not without


# --- in a browser -------------------------------------------------------------------------------------


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        """Say nothing."""


@pytest.fixture(scope="module")
def address():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver")
    binary, driver = (
        shutil.which("chromium") or shutil.which("chromium-browser"),
        shutil.which("chromedriver"),
    )
    if not (binary and driver):
        pytest.skip("no Chromium here: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    chrome.set_page_load_timeout(120)
    yield chrome
    chrome.quit()


def _errors(browser, address):
    """Errors of the console that are ours: pages link to MathJax elsewhere, which may be out of reach."""
    return [
        entry["message"]
        for entry in browser.get_log("browser")
        if entry["level"] == "SEVERE" and ("http" not in entry["message"] or address in entry["message"])
    ]


def _resize(browser, width, height=900):
    """The size of the page itself: windows do not go below 500."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
    )


def _open(browser, address):
    """Show a page; ``get`` returns while it is read, if the browser shows the same one already."""
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get(address)
    WebDriverWait(browser, 90).until(
        lambda chrome: chrome.execute_script("return document.readyState") == "complete"
    )


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("page", PAGES)
def test_page_is_readable(browser, address, page, width):
    _resize(browser, width)
    _open(browser, f"{address}/{page}")
    SCREENS.mkdir(exist_ok=True)
    browser.save_screenshot(str(SCREENS / f"{page.replace('/', '_')[:-5]}_{width}.png"))
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width + 1
    broken = browser.execute_script(
        "return [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
    )
    assert not [source for source in broken if address in source]
    assert not _errors(browser, address)


def test_search_finds_the_lasso(browser, address):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    _resize(browser, 1280)
    _open(browser, f"{address}/search.html?q=lasso")
    WebDriverWait(browser, 90).until(
        lambda chrome: len(chrome.find_elements(By.CSS_SELECTOR, "#search-results li a")) > 3
    )
    SCREENS.mkdir(exist_ok=True)
    browser.save_screenshot(str(SCREENS / "search.png"))
    found = " ".join(link.text for link in browser.find_elements(By.CSS_SELECTOR, "#search-results li a"))
    assert "asso" in found


@pytest.mark.parametrize("tutorial", ["coefficients_with_shape", "first_model", "honest_tuning"])
def test_what_a_tutorial_draws_is_shown(tutorial):
    page = _read(SITE / "tutorials" / "generated" / f"{tutorial}.html")
    assert any(tutorial in link for link in page.links if link.endswith(".png"))
