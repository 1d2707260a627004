"""Faults that a Vulkan layer injects into dispatches: validation finds each one that changes a bit, at its node.

`python tests/fault_table.py` tries all faults of all models; these tests use a random sample with seed
PUMICE_FAULT_SEED.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import layer_faults
import pumice
from fault_worker import Worker
from layer_models import LAYER_MODELS

FAULTS = 8  # per model
AT_NODE = 0.95
ROUNDING = {"fp32": 2.0**-24, "fp16": 2.0**-11}  # maximum relative error of one rounding
# Each model runs in one precision only, to halve the number of kernels to compile.
SUBJECTS = list(zip(LAYER_MODELS, ["fp32", "fp16", "fp16", "fp32", "fp32"], strict=True))


@pytest.fixture(scope="module")
def worker(layer_folder: Path) -> Iterator[Worker]:
    # The suite's caches stay enabled: all shader modules come from the engine itself.
    with Worker(layer_faults.__file__, layer_folder, PUMICE_NO_CACHE=os.environ.get("PUMICE_NO_CACHE", "")) as made:
        yield made


@pytest.fixture(scope="module")
def tried(worker: Worker) -> list[dict[str, Any]]:
    """Return the results of FAULTS faults per model, among faults that have an effect."""
    random = np.random.default_rng(int(os.environ.get("PUMICE_FAULT_SEED", "0")))
    found: list[dict[str, Any]] = []
    for model, precision in SUBJECTS:
        subject = {"model": model, "precision": precision}
        answer = worker.ask(**subject)
        if "refused" in answer:
            raise pumice.UnsupportedError(answer["refused"])
        order = random.permutation(len(answer["kinds"]))
        answers = (worker.ask(**subject, number=int(number), repeat=0, shares=[(1, 0)]) for number in order)
        with_effect = (answer | subject for answer in answers if answer.get("failed") or answer["effect"])
        found += [answer for answer, _ in zip(with_effect, range(FAULTS), strict=False)]
    return found


def is_within_rounding(answer: dict[str, Any]) -> bool:
    """Return whether a changed weight moves the result by less than one rounding of its maximum, which makes the result
    right.

    Which weight a fault changes depends on how the device's kernels pack weights, and so on its subgroup size.
    """
    is_weight = answer["kind"] in ("weights", "weights for good")
    return is_weight and answer["change"] <= ROUNDING[answer["precision"]]


def test_every_fault_is_found(tried: list[dict[str, Any]]) -> None:
    assert len(tried) == FAULTS * len(SUBJECTS)
    for answer in tried:
        assert "failed" not in answer, answer
        assert answer["validations"][0]["state"] != "right" or is_within_rounding(answer), answer


def test_faults_are_found_at_their_nodes(tried: list[dict[str, Any]]) -> None:
    missed = [answer for answer in tried if not answer["validations"][0]["at"]]
    assert len(missed) <= (1 - AT_NODE) * len(tried), missed


def test_every_missing_barrier_is_named(worker: Worker) -> None:
    """Test barriers of the optimised program that remain in lists with copies after some steps."""
    subject = {"model": "cnn", "precision": "fp32"}
    numbers = (i for i, kind in enumerate(worker.ask(**subject)["kinds"]) if kind == "no barrier")
    answers = [worker.ask(**subject, number=number, repeat=0, shares=[(1, 0)]) for number in numbers]
    races = [answer for answer in answers if answer["effect"]]
    assert len(races) >= 6
    for answer in races:
        assert answer["validations"][0]["at"], answer


@pytest.mark.parametrize("model", ["cnn", "recurrent"])
def test_a_fault_of_some_runs_is_not_right_if_a_run_had_it(worker: Worker, model: str) -> None:
    """Weights are wrong in every second or third run: a validation may or may not include such a run, 20 runs always do."""
    subject = {"model": model, "precision": "fp32"}
    numbers = (i for i, kind in enumerate(worker.ask(**subject)["kinds"]) if kind == "weights")
    shares = [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
    answers = (worker.ask(**subject, number=number, repeat=0, shares=shares) for number in numbers)
    answer = next(answer for answer in answers if answer["effect"])
    assert any(one["seen"] for one in answer["validations"])
    for one in answer["validations"]:
        assert not one["seen"] or one["state"] != "right", one
    repeated = worker.ask(**subject, number=answer["number"], repeat=20, shares=shares[:1] + shares[-1:])
    assert all(one["seen"] and one["state"] != "right" for one in repeated["validations"]), repeated
