"""The page in a real browser: no requests, no console errors, fits a phone screen, and supports keyboard navigation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import chromium
import pumice
from pumice.validation.report.html_page import make_page
from report_records import HOSTILE, long_record, overflowing, report_of

pytestmark = pytest.mark.skipif(chromium.installed() is None, reason="Chromium is not installed")

Shown = Callable[..., chromium.Page]


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Shown]:
    opened: list[chromium.Page] = []

    def show(records: Any, width: int = 1280, dark: bool = False) -> chromium.Page:
        path = tmp_path / "page.html"
        path.write_text(make_page(records, HOSTILE), encoding="utf-8")
        browser = chromium.Page(tmp_path / f"profile{len(opened)}", width, dark=dark)
        opened.append(browser)
        browser.open(path)
        return browser

    yield show
    for browser in opened:
        browser.__exit__(None, None, None)


@pytest.fixture
def record(context: pumice.Context) -> Any:
    report = report_of(context, overflowing(HOSTILE))
    report.model = HOSTILE
    return report.as_dict()


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_a_page_complains_of_nothing_and_fits(shown: Shown, record: Any, width: int, dark: bool) -> None:
    other = {**record, "precision": "fp32", "policy": {"default": "fp16", HOSTILE: "fp32"}}
    browser = shown([record, other], width, dark)
    browser.value("document.querySelectorAll('details').forEach(one => { one.open = true })")
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert [address[:5] for address in browser.requests] == ["file:"]
    assert browser.complaints == []
    assert browser.value("window.taken") is None  # a script in a node's name would have set it
    light = browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert light == (not dark)


def test_colours_can_be_read(shown: Shown, record: Any) -> None:
    """Text has a contrast of at least 4.5:1 to the page, as WCAG requires."""
    contrast = """(() => {
        const light = (text) => text.match(/\\d+/g).slice(0, 3).map(v => v / 255)
            .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
            .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
        const page = light(getComputedStyle(document.body).backgroundColor);
        return [...document.querySelectorAll('h1, a, .badge, th, td, .legend, .hint')].map(one => {
            const ink = light(getComputedStyle(one).color);
            return (Math.max(ink, page) + 0.05) / (Math.min(ink, page) + 0.05);
        }).reduce((a, b) => Math.min(a, b));
    })()"""
    for dark in (False, True):
        assert shown([record], dark=dark).value(contrast) >= 4.5


def test_the_graph_is_walked_by_keyboard(shown: Shown, record: Any) -> None:
    browser = shown([record])
    panel = "document.querySelector('.panel').textContent"
    assert "90000" in browser.value(panel)  # the first wrong node is selected initially
    browser.value("document.querySelector('.graph .node').focus()")
    browser.press("ArrowDown")
    assert browser.value("document.activeElement.getAttribute('aria-label')").startswith("Mul ")
    browser.press("ArrowDown")
    assert browser.value("document.activeElement.getAttribute('aria-label')") == "Softmax softmax.parts, right"
    assert "float32 [2,4]" in browser.value(panel).replace(" ", "").replace("float32", "float32 ")
    histograms = "[...document.querySelectorAll('.panel svg')].map(one => one.getAttribute('aria-label'))"
    # None of the node's numbers is finite. The node and its kernel have one row each.
    assert set(browser.value(histograms)) == {"How many elements have which error over bound"}
    browser.press("ArrowRight")
    browser.value("document.querySelector('.graph .node:nth-of-type(4)').dispatchEvent(new MouseEvent('click'))")
    assert browser.value("document.activeElement.getAttribute('aria-label')").startswith("RandomUniformLike")
    assert browser.value(histograms) == ["How many elements have which magnitude, against the limits of fp16"]
    assert browser.value("document.querySelectorAll('.node[tabindex=\"0\"]').length") == 1
    assert browser.complaints == []


def test_two_thousand_nodes_are_walked_and_filtered(shown: Shown, record: Any) -> None:
    browser = shown([long_record(record, 2000)])
    assert browser.value("document.querySelectorAll('.graph .node').length") == 2003
    middle = "document.querySelector('.graph .chosen').getAttribute('aria-label')"
    assert browser.value(middle) == "MatMul /layers.166/op_1000, wrong"
    browser.value(
        "(() => { const field = document.querySelector('input[type=search]'); field.value = 'op_17';"
        "field.dispatchEvent(new Event('input')) })()"
    )
    kept = browser.value("[...document.querySelectorAll('table.rows tbody tr')].filter(one => !one.hidden).length")
    assert kept == 111  # 17, 170 to 179, 1700 to 1799
    assert "111 of 2000" in browser.value("document.querySelector('.filter').textContent")
    browser.value("document.querySelectorAll('.panel button')[0].click()")
    assert browser.value(middle) == "MatMul /layers.166/op_999, right"
    assert browser.value("performance.timing.domContentLoadedEventEnd - performance.timing.navigationStart") < 10_000
    assert browser.complaints == []


def test_a_link_opens_the_report_that_it_leads_to(shown: Shown, record: Any) -> None:
    browser = shown([record, {**record, "precision": "fp32"}])
    assert browser.value("document.querySelector('#r1').open") is False
    browser.value("document.querySelector('a[href=\"#r1t1\"]').click()")
    browser.value("new Promise(done => setTimeout(done, 50))")
    assert browser.value("location.hash") == "#r1t1"
    assert browser.value("document.querySelector('#r1').open") is True
