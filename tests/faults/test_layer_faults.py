"""Faults that a Vulkan layer injects into dispatches: a validation finds each one that changes a bit, at its node.

`python tests/fault_table.py` tries all faults of all models. Here is a sample of them, drawn by PUMICE_FAULT_SEED.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import layer_faults
from fault_worker import Worker
from layer_models import LAYER_MODELS

FAULTS = 8  # of each model
AT_NODE = 0.95
ROUNDING = {"fp32": 2.0**-24, "fp16": 2.0**-11}  # the largest relative error of one rounding
# Each model in one precision, so that half of its kernels do not have to be compiled.
SUBJECTS = list(zip(LAYER_MODELS, ["fp32", "fp16", "fp16", "fp32", "fp32"], strict=True))


@pytest.fixture(scope="module")
def worker(layer_folder: Path) -> Iterator[Worker]:
    # The caches of the suite stay in use: every module that is created is the engine's own.
    with Worker(layer_faults.__file__, layer_folder, PUMICE_NO_CACHE=os.environ.get("PUMICE_NO_CACHE", "")) as made:
        yield made


@pytest.fixture(scope="module")
def tried(worker: Worker) -> list[dict[str, Any]]:
    """What came of faults with an effect, of which each model has FAULTS."""
    random = np.random.default_rng(int(os.environ.get("PUMICE_FAULT_SEED", "0")))
    found: list[dict[str, Any]] = []
    for model, precision in SUBJECTS:
        subject = {"model": model, "precision": precision}
        order = random.permutation(len(worker.ask(**subject)["kinds"]))
        answers = (worker.ask(**subject, number=int(number), repeat=0, shares=[(1, 0)]) for number in order)
        with_effect = (answer | subject for answer in answers if answer.get("failed") or answer["effect"])
        found += [answer for answer, _ in zip(with_effect, range(FAULTS), strict=False)]
    return found


def is_within_rounding(answer: dict[str, Any]) -> bool:
    """Whether one changed weight moves the result by less than one rounding of its largest number: such a result is right.

    Which weight a fault changes depends on how the device's kernels pack them, and so on its subgroups.
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
    """Those of the program as it ships, which lists with copies after some steps have too."""
    subject = {"model": "cnn", "precision": "fp32"}
    numbers = (i for i, kind in enumerate(worker.ask(**subject)["kinds"]) if kind == "no barrier")
    answers = [worker.ask(**subject, number=number, repeat=0, shares=[(1, 0)]) for number in numbers]
    races = [answer for answer in answers if answer["effect"]]
    assert len(races) >= 6
    for answer in races:
        assert answer["validations"][0]["at"], answer


@pytest.mark.parametrize("model", ["cnn", "recurrent"])
def test_a_fault_of_some_runs_is_not_right_if_a_run_had_it(worker: Worker, model: str) -> None:
    """Weights that are wrong in one run of two or three: each validation has such a run or does not, and 20 runs have some."""
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
