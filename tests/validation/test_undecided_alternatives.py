"""Undecided choices: the results of all alternatives are right within their own bounds, and nothing else is."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest

from onnx_models import model, node, value
from pumice.validation.checker.live_values import LiveValues
from pumice.validation.reference.reference_model import ReferenceModel
from pumice.validation.report.deviation import compare_tensor
from pumice.validation.rules.bounded_tensor import BoundedTensor
from pumice.validation.rules.float_types import COVERAGE_FACTOR

Array = np.ndarray[Any, Any]
FLOAT = np.float32
UNIT = 2.0**-20  # the error of numbers at a boundary


class Decision(NamedTuple):
    """Nodes from x to y that make a choice, and numbers near its boundary."""

    name: str
    nodes: Sequence[Any]
    x: Any
    constants: dict[str, Any] = {}  # noqa: RUF012


def _by_rows(name: str, op: str, rows: Any, **attributes: Any) -> Decision:
    return Decision(name, [node(op, ["x"], ["y"], **attributes)], rows)


TIED = [[1, 1, -5, 3], [2, 2, 2, 2], [5, 4, 3, 2], [-1, -1, -2, 0]]
INT32 = onnx.TensorProto.INT32
HALVES = [2.5, -1.5, 0.5, 7.25, 3.0, -4.0, 0.0]
PARTS = {"half": FLOAT(0.5), "up": FLOAT(100), "down": FLOAT(-100), "three": FLOAT(3)}
QUANTA = {"scale": FLOAT(0.5), "zero": np.int8(3)}
DECISIONS = [
    *(Decision(op, [node(op, ["x"], ["y"])], HALVES) for op in ("Floor", "Ceil", "Round", "Sign")),
    Decision("Cast", [node("Cast", ["x"], ["y"], to=INT32)], HALVES),
    Decision("ThresholdedRelu", [node("ThresholdedRelu", ["x"], ["y"], alpha=0.5)], [0.5, 0.5, 1, -1]),
    Decision("Shrink", [node("Shrink", ["x"], ["y"], lambd=0.5, bias=0.25)], [0.5, -0.5, 1, 0]),
    Decision("Mod", [node("Mod", ["x", "three"], ["y"], fmod=1)], [3, 6, 1, -3], PARTS),
    Decision(
        "Where",
        [node("Greater", ["x", "half"], ["g"]), node("Where", ["g", "up", "down"], ["y"])],
        [0.5, 0.5, 1, -1],
        PARTS,
    ),
    Decision(
        "Where of the number itself",
        [node("Less", ["x", "half"], ["g"]), node("Where", ["g", "x", "down"], ["w"]), node("Exp", ["w"], ["y"])],
        [0.5, 0.5, 1, -1],
        PARTS,
    ),
    Decision(
        "mask",
        [
            node("GreaterOrEqual", ["x", "half"], ["g"]),
            node("Cast", ["g"], ["f"], to=onnx.TensorProto.FLOAT),
            node("Mul", ["f", "up"], ["m"]),
            node("Add", ["m", "x"], ["y"]),
        ],
        [0.5, 0.5, 1, -1],
        PARTS,
    ),
    Decision("Round and Cast", [node("Round", ["x"], ["r"]), node("Cast", ["r"], ["y"], to=INT32)], HALVES),
    Decision(
        "Round of a row that is turned and joined",
        [
            node("Round", ["x"], ["r"]),
            node("Neg", ["r"], ["n"]),
            node("Concat", ["n", "x"], ["c"], axis=0),
            node("Reshape", ["c", "turned"], ["y"]),
        ],
        HALVES,
        {"turned": np.int64([7, 2])},
    ),
    Decision(
        "QuantizeLinear",
        [node("QuantizeLinear", ["x", "scale", "zero"], ["y"])],
        [0.25, 0.75, 1, -0.25, 62, 63],
        QUANTA,
    ),
    Decision(
        "DequantizeLinear",
        [
            node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
            node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
        ],
        [0.25, 0.75, 1, -0.25, 62, 63],
        QUANTA,
    ),
    _by_rows("ArgMax", "ArgMax", TIED, axis=1),
    _by_rows("ArgMax of columns", "ArgMax", np.transpose(TIED), axis=0, keepdims=0),
    _by_rows("ArgMax, the last", "ArgMax", TIED, axis=1, select_last_index=1),
    _by_rows("ArgMin", "ArgMin", TIED, axis=1, keepdims=0),
    _by_rows("Hardmax", "Hardmax", TIED, axis=1),
    Decision("TopK", [node("TopK", ["x", "k"], ["v", "y"], axis=1)], TIED, {"k": np.int64([2])}),
    Decision(
        "TopK of the least", [node("TopK", ["x", "k"], ["v", "y"], axis=1, largest=0)], TIED, {"k": np.int64([3])}
    ),
    Decision(
        "MaxPool",
        [node("MaxPool", ["x"], ["v", "y"], kernel_shape=[1, 2])],
        [[[[1, 1, 0, 2], [2, 2, 2, 1]]]],
    ),
    Decision(
        "Gather",
        [node("ArgMax", ["x"], ["i"], axis=1, keepdims=0), node("Gather", ["table", "i"], ["y"])],
        TIED,
        {"table": FLOAT([[1, 10], [200, 30], [4000, 50], [60000, 7]])},
    ),
]


def evaluated(one: Decision, x: Array, error: Array | None, independent: bool) -> BoundedTensor:
    """Evaluate the rules for y, with x known to within an error."""
    source = model(list(one.nodes), [value("x", x.shape)], constants=dict(one.constants))
    reference = ReferenceModel(source, None, "fp32")
    chain = LiveValues(reference, reference.chained if independent else reference.runner, {"x": x.astype(FLOAT)})
    chain.values["x"] = BoundedTensor(x, error, FLOAT, stored=True)
    for each in reference.nodes:
        chain.values.update(chain.run(each))
    made = chain["y"]
    assert isinstance(made, BoundedTensor)
    return made


def attained(one: Decision, x: Array, reach: Array) -> list[Array]:
    """Return results for numbers within reach of x: all corners of small rows, and random ones."""
    random = np.random.default_rng(1)
    ways = [random.uniform(-1, 1, x.shape) for _ in range(60)]
    for signs in itertools.product((-1.0, 0.0, 1.0), repeat=4 if x.ndim > 1 else 1):
        corner = np.asarray(signs)
        ways.append(np.broadcast_to(corner, x.shape))
        if x.ndim == 2:
            ways.append(np.broadcast_to(corner[:, None], x.shape))
    return [evaluated(one, x + way * reach, None, False).value for way in ways]


def in_type(array: Array, expected: BoundedTensor) -> Array:
    return np.asarray(array).astype(expected.dtype)


@pytest.mark.parametrize("independent", [False, True], ids=["worst case", "independent"])
@pytest.mark.parametrize("one", DECISIONS, ids=[one.name for one in DECISIONS])
def test_either_side_is_right_and_nothing_else(one: Decision, independent: bool) -> None:
    x = np.float64(one.x)
    error = np.full(x.shape, UNIT)
    types = ReferenceModel(model([node("Relu")], [value("x", (1,))]), None, "fp32").chained.types
    types = (
        types if independent else ReferenceModel(model([node("Relu")], [value("x", (1,))]), None, "fp32").runner.types
    )
    expected = evaluated(one, x, error, independent)
    assert expected.alternatives is not None
    mask = expected.alternatives.mask
    assert mask.any() and (one.name == "Gather" or not mask.all())
    sides = attained(one, x, error * (COVERAGE_FACTOR if independent else 1.0))
    for side in sides:
        found = compare_tensor(in_type(side, expected), expected, types)
        assert found.ok, (found, side)
        assert found.undecided == int(mask.sum())
    random = np.random.default_rng(2)
    tried = 0
    for place in map(tuple, np.argwhere(mask)):
        known = np.unique([side[place] for side in sides])
        for candidate in _candidates(random, known, expected):
            if np.min(np.abs(known - float(candidate))) <= 1e-3 * (1 + np.max(np.abs(known))):
                continue
            spoilt = in_type(sides[0], expected).copy()
            spoilt[place] = candidate
            assert not compare_tensor(spoilt, expected, types).ok, (place, candidate, known)
            tried += 1
    assert tried >= 5


def _candidates(random: np.random.Generator, known: Array, expected: BoundedTensor) -> list[Any]:
    """Return numbers between and beyond the alternatives, in the dtype."""
    low, high = float(known.min()), float(known.max())
    width = max(high - low, 1.0)
    numbers = [*random.uniform(low - 4 * width, high + 4 * width, 12), *random.uniform(low, high, 6)]
    numbers += [low - 1, high + 1, low - 2, high + 2, 99.0, -7.0, (low + high) / 2]
    if not expected.is_float:
        info = np.iinfo(expected.dtype)
        return [int(np.clip(np.rint(one), info.min, info.max)) for one in numbers]
    return [FLOAT(one) for one in (*numbers, np.nan, np.inf, -np.inf)]


def test_numbers_that_are_exact_and_equal_keep_their_order() -> None:
    """Inexact ones may come first in any order; the second of two exact ones never precedes the first."""
    decision = _by_rows("ArgMax", "ArgMax", [[1, 1, 1, 0]], axis=1)
    expected = evaluated(decision, np.float64(decision.x), np.float64([[0, 0, UNIT, 0]]), False)
    types = ReferenceModel(model([node("Relu")], [value("x", (1,))]), None, "fp32").runner.types
    right = [index for index in range(4) if compare_tensor(np.int64([[index]]), expected, types).ok]
    assert right == [0, 2]


def test_two_positions_have_no_common_index() -> None:
    decision = Decision("TopK", [node("TopK", ["x", "k"], ["v", "y"], axis=1)], [[1, 1, 0]], {"k": np.int64([2])})
    expected = evaluated(decision, np.float64(decision.x), np.full((1, 3), UNIT), False)
    types = ReferenceModel(model([node("Relu")], [value("x", (1,))]), None, "fp32").runner.types
    pairs = [[i, j] for i in range(3) for j in range(3)]
    assert [pair for pair in pairs if compare_tensor(np.int64([pair]), expected, types).ok] == [[0, 1], [1, 0]]


def test_large_tensors_have_sides_in_every_block() -> None:
    x = np.full((40, 2048), 0.25)
    x[::3, ::7] = 2.5
    decision = Decision("Round", [node("Round", ["x"], ["r"]), node("Mul", ["r", "two"], ["y"])], x, {"two": FLOAT(2)})
    expected = evaluated(decision, x, np.full(x.shape, UNIT), True)
    types = ReferenceModel(model([node("Relu")], [value("x", (1,))]), None, "fp32").chained.types
    right = np.where(np.random.default_rng(0).random(x.shape) < 0.5, 4, 6).astype(FLOAT) * (x == 2.5)
    found = compare_tensor(right.astype(FLOAT), expected, types)
    assert (found.ok, found.undecided) == (True, np.count_nonzero(x == 2.5))
    for number in (5, 2, 8, 0):
        spoilt = right.astype(FLOAT)
        spoilt[39, 2044] = number
        found = compare_tensor(spoilt, expected, types)
        assert (found.ok, found.at) == (False, (39, 2044))
