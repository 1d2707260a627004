"""Wrong ONNX files: each is refused with one of our errors or runs, in bounded time and memory, and is right where it is valid."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "fuzz"))

from onnx_files import FINE, run
from onnx_seeds import seeds


def check(count: int, seed: int) -> None:
    kinds = set()
    for i, (_, outcome) in enumerate(run(count, seed, seeds())):
        assert outcome.kind in FINE, f"--seed {seed}, file {i}: {outcome.kind}\n{outcome.detail}"
        kinds.add(outcome.kind)
    assert kinds == set(FINE)


@pytest.mark.parametrize("seed", [100, 101])
def test_some_wrong_files(seed: int) -> None:
    check(120, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 208))
def test_thousands_of_wrong_files(seed: int) -> None:
    check(500, seed)
