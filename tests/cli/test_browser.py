"""The report in a browser: nothing scrolls sideways, no error, sorting and hover work, all is printed."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine

from onefit.cli import run

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
WebDriverWait = pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="no Chromium with its chromedriver: apt-get install chromium chromium-driver",
)
WIDTHS = (360, 1280)
LOOKS_AT_PICTURES = True


def many():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3))
    return pd.DataFrame(X, columns=["a", "b", "a rather long name of a column " * 2]).assign(
        target=X[:, 0] + rng.normal(size=4000)
    )


def panel():
    rng = np.random.default_rng(1)
    subject = np.repeat(np.arange(20), 10)
    x = rng.normal(size=200)
    return pd.DataFrame({"subject": subject, "x": x, "target": x + rng.normal(size=20)[subject]})


def counts():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(200, 2))
    return pd.DataFrame(X, columns=["a", "b"]).assign(target=rng.poisson(np.exp(X[:, 0])))


def bunch(loader, every=1):
    return lambda: loader(as_frame=True).frame[::every]


TABLES = {
    "numbers": (bunch(load_diabetes, 3), ["--model", "lasso"]),
    "two classes": (bunch(load_breast_cancer, 4), ["--model", "logistic"]),
    "three classes": (bunch(load_wine, 2), ["--model", "logistic"]),
    "flowers": (bunch(load_iris, 3), ["--model", "logistic-l1"]),
    "many rows": (many, ["--model", "ridge"]),
    "groups": (panel, ["--model", "ridge", "--groups", "subject"]),
    "counts": (counts, ["--model", "poisson"]),
}


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module", params=TABLES, ids=str)
def page(request, tmp_path_factory) -> Path:
    """A report as the command line writes it."""
    make, options = TABLES[request.param]
    folder = tmp_path_factory.mktemp("report")
    make().to_csv(folder / "table.csv", index=False)
    arguments = ["tune", str(folder / "table.csv"), "--target", "target", *options, "--audit", "0"]
    assert run([*arguments, "--out", str(folder / "out")]) == 0
    return folder / "out" / "report.html"


def opened(browser, page, width):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page.as_uri())  # returns while the page is read, if it shows the same one already
    WebDriverWait(browser, 30).until(lambda it: it.execute_script("return document.readyState") == "complete")


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_scrolls_sideways_and_nothing_fails(browser, page, width):
    opened(browser, page, width)
    wide, inner = browser.execute_script(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide <= inner
    assert [line for line in browser.get_log("browser") if line["level"] in ("SEVERE", "WARNING")] == []


def test_a_table_sorts(browser, page):
    opened(browser, page, WIDTHS[1])
    read = (
        "const every = Array.from(document.querySelectorAll('table.sorts'));"
        "const t = every.find(t => t.tBodies[0].rows.length > 2);"
        "const k = t.tHead.rows[0].cells.length - 1; t.tHead.rows[0].cells[k - 1].click();"
        "return Array.from(t.tBodies[0].rows).map(r => parseFloat(r.cells[k - 1].textContent))"
    )
    falling = [number for number in browser.execute_script(read) if number is not None]
    rising = [number for number in browser.execute_script(read) if number is not None]
    assert falling == sorted(falling, reverse=True)
    assert rising == sorted(rising)


def test_a_point_tells_its_numbers(browser, page):
    opened(browser, page, WIDTHS[1])
    told = browser.execute_script(
        "const mark = document.querySelector('figure use title, figure path title').parentNode;"
        "const said = mark.querySelector('title').textContent;"
        "mark.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: 50, clientY: 50}));"
        "const tip = document.getElementById('tip'); return [said, tip.textContent, tip.hidden]"
    )
    assert told[0] == told[1]
    assert told[2] is False
    assert any(character.isdigit() for character in told[0])


def test_what_is_folded_is_printed(browser, page):
    opened(browser, page, WIDTHS[1])
    browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = false")
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")
    assert browser.execute_script(
        "return Array.from(document.querySelectorAll('details')).every(d => d.open)"
    )
