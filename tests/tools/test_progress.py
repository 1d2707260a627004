"""Progress bars: only on a terminal, and only after a second."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import pumice
from process import output_of

DIGITS = str(Path(pumice.__file__).parent / "data" / "digits" / "digits.onnx")

PROGRESS = """
import time
from pumice.base.progress import Progress
with Progress("nodes") as progress:
    for i in range(30):
        time.sleep(0.05)
        progress(i + 1, 30)
"""


def test_progress_is_shown_on_a_terminal_after_a_second_and_nowhere_else() -> None:
    assert output_of("-c", PROGRESS) == ""
    terminal, inside = pty.openpty()
    subprocess.run(
        [sys.executable, "-c", PROGRESS], stdout=inside, stderr=inside, check=True, env={**os.environ, "TERM": "xterm"}
    )
    os.close(inside)
    shown = os.read(terminal, 1 << 16).decode()
    os.close(terminal)
    assert "nodes" in shown
    assert "/30" in shown


LOADING = """
import sys
import pumice, pumice.base.progress
pumice.base.progress._SHOW_DELAY_SECONDS = 0
pumice.load(sys.argv[1], progress=sys.argv[2] == "yes")
"""


@pytest.mark.parametrize("wanted", ["yes", "no"])
def test_loading_a_model_shows_how_far_it_is(
    wanted: str, context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUMICE_DEVICE", f"uuid:{context.info.uuid}")
    assert output_of("-c", LOADING, DIGITS, wanted) == ""
    terminal, inside = pty.openpty()
    command = [sys.executable, "-c", LOADING, DIGITS, wanted]
    subprocess.run(command, stdout=inside, stderr=inside, check=True, env={**os.environ, "TERM": "xterm"})
    os.close(inside)
    shown = b""
    with contextlib.suppress(OSError):  # if nothing is left to read
        while part := os.read(terminal, 1 << 16):  # a terminal returns at most a page at once
            shown += part
    os.close(terminal)
    for phase in (b"nodes", b"weights"):
        assert (phase in shown) == (wanted == "yes")
