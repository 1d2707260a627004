"""Random graphs of unknown sizes: legal sizes give what the oracles give, others are refused by one of the engine's own errors."""

from __future__ import annotations

import pytest

import pumice

pytest.importorskip("onnxruntime", reason="random sizes are compared with ONNX Runtime, which is not installed")

from random_sizes import Result, run_seed

SAMPLE = 40
WHOLE, PARTS = 20_000, 100  # parts of a minute, which workers can share


def run(context: pumice.Context, seeds: range) -> list[Result]:
    return [run_seed(seed, context) for seed in seeds]


def failures(results: list[Result]) -> list[str]:
    return [f"seed {one.seed}: {text}" for one in results for text in one.failures]


def test_legal_sizes_are_right_and_others_are_refused(context: pumice.Context) -> None:
    results = run(context, range(SAMPLE))
    assert not failures(results), "\n".join(failures(results))
    assert sum(one.legal for one in results) > SAMPLE and sum(one.illegal for one in results) > SAMPLE


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_many_legal_sizes_are_right_and_others_are_refused(context: pumice.Context, part: int) -> None:
    each = WHOLE // PARTS
    found = failures(run(context, range(1000 + part * each, 1000 + (part + 1) * each)))
    assert not found, "\n".join(found[:40])
