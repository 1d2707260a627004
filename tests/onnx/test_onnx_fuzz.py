"""Fuzzed ONNX files: each is rejected with one of our errors or runs, in bounded time and memory; valid ones are correct."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import pumice

sys.path.append(str(Path(__file__).resolve().parents[1] / "fuzz"))

from onnx_files import FINE, outcome_of, run
from onnx_seeds import seeds


def check(count: int, seed: int) -> None:
    kinds = set()
    for i, (_, outcome) in enumerate(run(count, seed, seeds())):
        assert outcome.kind in FINE, f"--seed {seed}, file {i}: {outcome.kind}\n{outcome.detail}"
        kinds.add(outcome.kind)
    assert kinds == set(FINE)


@pytest.mark.parametrize("seed", [100, 101])
def test_some_wrong_files(seed: int) -> None:
    check(60, seed)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (
            "vkAllocateMemory(): allocationSize (8589934592) is larger than maxMemoryAllocationSize (4292870144).",
            "refused",
        ),
        ("vkCmdDispatch(): a descriptor was never updated.", "Vulkan validation"),
    ],
)
def test_memory_beyond_the_declared_limit_is_asked_for_on_purpose(
    context: pumice.Context, monkeypatch: pytest.MonkeyPatch, said: str, kind: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(pumice, "take_validation_messages", lambda: [said])
        outcome = outcome_of(b"no model", context)
    assert (outcome.kind, said in outcome.detail) == (kind, kind not in FINE)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 208))
def test_thousands_of_wrong_files(seed: int) -> None:
    check(500, seed)
