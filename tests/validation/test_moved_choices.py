"""Undecided choices that later nodes move, repeat, split into blocks or reshape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from onnx_models import model, node, value
from pumice.validation.reference.reference_model import RuleRunner
from pumice.validation.report.deviation import compare_tensor
from pumice.validation.rules.bounded_tensor import BoundedTensor
from pumice.validation.rules.float_types import ProgramTypes

Array = np.ndarray[Any, Any]
FLOAT = np.float32
NEAR = 1e-3  # an error that leaves equal numbers undecided


def run(op: str, *inputs: BoundedTensor, opset: int = 18, outputs: int = 1, **attributes: Any) -> list[Any]:
    """Evaluate the rules of one operator."""
    names = [f"i{k}" for k in range(len(inputs))]
    made = node(op, names, [f"o{k}" for k in range(outputs)], **attributes)
    return list(RuleRunner({"": opset}, ProgramTypes("fp32")).run_node(made, list(inputs), {}))


def near(numbers: Any) -> BoundedTensor:
    array = np.asarray(numbers, np.float64)
    return BoundedTensor(array, np.full(array.shape, NEAR), FLOAT)


def exact(numbers: Any) -> BoundedTensor:
    return BoundedTensor(np.asarray(numbers), None)


def is_right(actual: Any, expected: BoundedTensor) -> bool:
    found = compare_tensor(np.asarray(actual, expected.dtype), expected, ProgramTypes("fp32"))
    return found.ok and found.verdict == "right"


@pytest.mark.parametrize("axis", [1, -1])
def test_hardmax_counts_its_axis_from_either_end(axis: int) -> None:
    (made,) = run("Hardmax", near([[1, 1, -5, 3], [2, 2, 0, 1]]), axis=axis)
    assert is_right([[0, 0, 0, 1], [0, 1, 0, 0]], made)
    assert not is_right([[0, 0, 0, 1], [0, 0, 1, 0]], made)
    assert not is_right([[0, 0, 0, 1], [1, 1, 0, 0]], made)


def test_rows_of_hardmax_that_are_reshaped_hold_a_single_one() -> None:
    """Before opset 13, all axes from `axis` on form a row."""
    (made,) = run("Hardmax", near([[[1, 1, -5, -6], [-7, -8, -9, -10]]]), opset=11, axis=1)
    assert not is_right([[[1, 1, 0, 0], [0, 0, 0, 0]]], made)
    assert not is_right(np.zeros((1, 2, 4)), made)


REPEATS = [
    ("Tile", [exact(np.array([2, 1]))], {}),
    ("Expand", [exact(np.array([2, 4]))], {}),
    ("Gather", [exact(np.array([0, 0]))], {"axis": 0}),
]


@pytest.mark.parametrize(("op", "more", "attributes"), REPEATS, ids=[one[0] for one in REPEATS])
def test_a_choice_that_is_repeated_may_be_the_other_one(op: str, more: list[BoundedTensor], attributes: Any) -> None:
    _, indices = run("TopK", near([[1, 1, -5, 3]]), exact(np.array([4])), outputs=2)
    (made,) = run(op, indices, *more, **attributes)
    assert is_right([[3, 0, 1, 2]] * 2, made)
    assert is_right([[3, 1, 0, 2]] * 2, made)
    assert not is_right([[3, 1, 1, 2]] * 2, made)
    assert not is_right([[3, 0, 1, 2], [3, 1, 0, 2]], made)


@pytest.mark.parametrize("op", ["Greater", "Round"])
def test_choices_of_some_blocks_of_a_large_image_are_followed(op: str, context: pumice.Context) -> None:
    """Blocks are not split along an axis of size 1."""
    shape = (1, 4, 160, 160)
    if op == "Greater":
        middle = [node("Greater", ["a", "half"], ["c"]), node("Where", ["c", "up", "down"], ["w"])]
    else:
        middle = [node("Round", ["a"], ["w"])]
    nodes = [node("Mul", ["x", "one"], ["a"]), *middle, node("Mul", ["w", "one"], ["y"])]
    constants = {"one": FLOAT(1.0001), "half": FLOAT(0.5), "up": FLOAT(3), "down": FLOAT(5)}
    used = {name: constants[name] for name in ("one", *(("half", "up", "down") if op == "Greater" else ()))}
    x = np.random.default_rng(0).standard_normal(shape).astype(FLOAT)
    x[0, 0, 0, :5] = FLOAT(0.5) / FLOAT(1.0001)
    report = pumice.validate(model(nodes, [value("x", list(shape))], constants=used), [(x,)], context=context)
    assert report.state == "right"
    assert report.undecided


def test_a_cast_to_strings_is_unproved_and_no_error() -> None:
    source = model([node("Cast", ["x"], ["s"], to=8), node("Cast", ["s"], ["y"], to=1)], [value("x", [2])])
    report = pumice.validate(source, [(np.ones(2, FLOAT),)], candidate=lambda given: {"y": given["x"]})
    assert report.state == "unproved"
