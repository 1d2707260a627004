"""A step that does not wait for its input: copies after each step hide the race, as does memory that already holds the right answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fault_runner
import pumice
import race_runner
from fault_models import numbers
from pumice.validation.checker.case_results import find_racing_step


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    """Run a correct program, and one with a step that runs before the step it depends on."""
    tasks = [{"folder": "", "fault": fault} for fault in ("", "race")]
    plain, raced = fault_runner.answers(race_runner.__file__, tasks)
    return {"": plain, "race": raced}


def test_filled_memory_shows_what_a_run_on_the_same_inputs_hides(results: dict[str, dict[str, Any]]) -> None:
    assert results[""]["right"] == [True, True, True]
    assert results["race"]["right"][1:] == [True, False]


@pytest.mark.parametrize("mode", ["both", "bisect"])
def test_the_step_that_does_not_wait_is_named(
    results: dict[str, dict[str, Any]], mode: str, context: pumice.Context
) -> None:
    if context.info.kind != "software":
        pytest.skip("a GPU may overlap the step with others, which then go wrong first")
    plain, raced = results[""], results["race"]
    assert (plain["states"][mode], plain["race"][mode], plain["differing"][mode]) == ("right", [], [])
    assert (raced["states"][mode], raced["first"][mode]) == ("wrong", "rows")
    assert "node 'rows'" in raced["race"][mode][0]
    assert "output 'y'" in raced["differing"][mode][0]
    assert len(raced["differing"][mode]) == 1


def test_no_node_by_itself_is_accused(results: dict[str, dict[str, Any]]) -> None:
    assert set(results["race"]["nodes"]) == {"right"}


def test_a_shorter_list_has_the_tensors_of_the_whole_one(context: pumice.Context) -> None:
    """Observed: tensors that are complete after `count` steps and whose memory no later step reuses."""
    x = numbers(7, 12)
    with pumice.load(race_runner.two_ends().SerializeToString(), context) as loaded:
        steps = loaded.program.plan([x])
        whole = {one["name"]: one["array"] for one in loaded.program.observe((x,))["tensors"]}
        seen = set()
        for count in range(1, len(steps) + 1):
            for one in loaded.program.observe((x,), None, count)["tensors"]:
                if one["array"] is not None:
                    seen.add(one["name"])
                    assert one["array"].tobytes() == whole[one["name"]].tobytes()
                    assert one["node"] in {step["label"] for step in steps[:count]}
        assert seen == set(whole)
        assert find_racing_step(loaded.program, [x], []) is None
        with pytest.raises(pumice.BindingError, match="steps"):
            loaded.program.observe((x,), None, len(steps) + 1)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_filled_memory_leaves_results_as_they_are(context: pumice.Context, precision: str) -> None:
    """A program reads only what it has written; run it twice, so that memory of the first run is reused."""
    x = numbers(7, 12)
    with pumice.load(race_runner.two_ends().SerializeToString(), context, precision=precision) as loaded:
        expected = loaded.program({"x": x})
        for _ in range(2):
            made = loaded.program({"x": x}, filled=True)
            assert all(made[name].tobytes() == array.tobytes() for name, array in expected.items())
        execution = loaded.program.execution(filled=True)
        execution.set("x", x)
        assert np.array_equal(execution.compute()["y"], expected["y"])
