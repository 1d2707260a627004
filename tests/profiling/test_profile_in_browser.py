"""The HTML page of a profile in a real browser: no requests, no console errors, and it fits a phone screen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chromium
import pumice
from pumice.demo import DATA

pytestmark = pytest.mark.skipif(chromium.installed() is None, reason="Chromium is not installed")

HOSTILE = "<script>window.taken = 1</script>"


@pytest.mark.parametrize("width", [400, 1280])
def test_a_page_complains_of_nothing_and_fits(context: pumice.Context, tmp_path: Path, width: int) -> None:
    text = "layout(binding = 0) buffer X { float x[]; };\nvoid main() { x[gl_GlobalInvocationID.x] = 1; }"
    kernel = pumice.Kernel(text, context, name=HOSTILE)
    with pumice.profile() as measured:
        kernel(x=np.zeros(8, "float32"), threads=8)
    measured.save_html(tmp_path / "page.html", HOSTILE)
    browser = chromium.Page(tmp_path / "browser", width)
    try:
        browser.open(tmp_path / "page.html")
        assert browser.value("document.documentElement.scrollWidth") <= width
        assert browser.value("document.querySelectorAll('svg path').length") > 1
        assert browser.value("window.taken") is None
        assert browser.value("document.querySelector('h1').textContent") == HOSTILE
        assert [address[:5] for address in browser.requests] == ["file:"]
        assert browser.complaints == []
    finally:
        browser.__exit__(None, None, None)


def test_the_memory_of_a_model_is_drawn(context: pumice.Context, tmp_path: Path) -> None:
    with pumice.load(DATA / "digits.onnx", context) as model, pumice.profile() as measured:
        model(np.zeros((1, *model.inputs[0].shape[1:]), "float32"))
    measured.save_html(tmp_path / "page.html")
    browser = chromium.Page(tmp_path / "browser", 400)
    try:
        browser.open(tmp_path / "page.html")
        drawn = (
            "[...document.querySelectorAll('svg')].find(one => one.getAttribute('aria-label').startsWith('Memory of'))"
        )
        assert browser.value(f"{drawn}.querySelectorAll('g').length") == len(measured.memory[0].tensors)
        assert browser.value(f"{drawn}.getBoundingClientRect().width") <= 400
        assert browser.complaints == []
    finally:
        browser.__exit__(None, None, None)
