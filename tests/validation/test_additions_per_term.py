"""Additions per term that kernels report for their sums: no term goes through more, on rows that lose the most to each addition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from onnx_models import model, node, value
from pumice.validation.rules.bounded_tensor import BoundedTensor, OperatorCall, find_rule
from pumice.validation.rules.float_types import ProgramTypes

FLOAT = np.float32
Array = np.ndarray[Any, Any]
SIZES = [8, 33, 64, 100, 512, 1000, 4096, 5000]


def rows(size: int) -> Array:
    """Return rows of ones with one 2^24 at a different index each: half of every 1 that is added to it alone is lost."""
    places = np.unique(np.linspace(0, size - 1, 40).astype(int))
    made = np.ones((len(places), size), FLOAT)
    made[np.arange(len(places)), places] = 2.0**24
    return made


def additions(source: Any, x: Array, context: pumice.Context) -> int:
    with pumice.load(source, context) as loaded:
        return max(step["additions"] for step in loaded.program.plan([x]))


@pytest.mark.parametrize("size", [*SIZES, 40000])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceSumSquare", "ReduceL1", "GlobalAveragePool"])
def test_reductions_lose_no_more_than_they_tell(context: pumice.Context, op: str, size: int) -> None:
    x = rows(size)
    if op == "GlobalAveragePool":
        x = x.reshape(1, len(x), 1, size)
        source = model([node(op, ["x"], name="sum")], [value("x", x.shape)])
    else:
        source = model([node(op, ["x", "axes"], name="sum")], [value("x", x.shape)], constants={"axes": np.array([1])})
    if op != "GlobalAveragePool" or size == 40000:  # one invocation pools a small plane and reports nothing
        assert 0 < additions(source, x, context) <= size + 16
    pumice.validate(source, [x], context=context).raise_if_failed()


@pytest.mark.parametrize("size", SIZES)
def test_columns_lose_no_more_than_they_tell(context: pumice.Context, size: int) -> None:
    x = np.ascontiguousarray(rows(size).T)
    source = model(
        [node("ReduceSum", ["x", "axes"], name="sum")], [value("x", x.shape)], constants={"axes": np.array([0])}
    )
    assert additions(source, x, context) > 0
    pumice.validate(source, [x], context=context).raise_if_failed()


@pytest.mark.parametrize("count", [1, 2, 40])
@pytest.mark.parametrize("size", SIZES)
def test_matmuls_lose_no_more_than_they_report(context: pumice.Context, size: int, count: int) -> None:
    x = rows(size)[:count]
    constants = {"w": np.ones((size, 70), FLOAT), "b": np.full(70, 3, FLOAT)}
    source = model([node("Gemm", ["x", "w", "b"], name="product")], [value("x", x.shape)], constants=constants)
    assert additions(source, x, context) > 0
    pumice.validate(source, [x], context=context).raise_if_failed()


@pytest.mark.parametrize("channels", [3, 16, 100])
def test_convolutions_lose_no_more_than_they_tell(context: pumice.Context, channels: int) -> None:
    x = rows(channels * 81)[:, : channels * 81].reshape(-1, channels, 9, 9)
    constants = {"w": np.ones((20, channels, 3, 3), FLOAT), "b": np.full(20, 3, FLOAT)}
    nodes = [node("Conv", ["x", "w", "b"], name="conv", pads=[1, 1, 1, 1])]
    source = model(nodes, [value("x", x.shape)], constants=constants)
    assert additions(source, x, context) > 0
    pumice.validate(source, [x], context=context).raise_if_failed()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_normalisations_lose_no_more_than_they_tell(context: pumice.Context, size: int, shift: float) -> None:
    """Includes rows far from zero: their mean is inexact, and the mean of the deviations from it corrects that."""
    random = np.random.default_rng(size)
    x = np.concatenate([rows(size), (random.standard_normal((16, size)) + shift).astype(FLOAT)])
    constants = {"scale": np.ones(size, FLOAT), "bias": np.zeros(size, FLOAT)}
    source = model(
        [node("LayerNormalization", ["x", "scale", "bias"], name="norm")], [value("x", x.shape)], constants=constants
    )
    assert additions(source, x, context) > 0
    pumice.validate(source, [x], context=context).raise_if_failed()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_loses_no_more_than_it_reports(context: pumice.Context, op: str, size: int) -> None:
    x = np.log(rows(size)).astype(FLOAT)
    source = model([node(op, ["x"], name="soft", axis=1)], [value("x", x.shape)])
    assert additions(source, x, context) > 0
    pumice.validate(source, [x], context=context).raise_if_failed()


def test_a_kernel_that_reports_depth_has_a_tighter_bound() -> None:
    """The additions that a kernel reports give a normalisation a tighter bound than a sum over the whole row."""
    random = np.random.default_rng(0)
    inputs = [BoundedTensor(random.standard_normal((4, 256)), None, FLOAT)] + [
        BoundedTensor(np.ones(256), None, FLOAT)
    ] * 2
    found = find_rule("LayerNormalization")
    assert found is not None
    long, short = (
        found(OperatorCall("LayerNormalization", inputs, {}, types=ProgramTypes().with_additions(most)))[0].get_errors()
        for most in (0, 16)
    )
    assert np.all(short < long / 4)


def in_float32(x: Array, epsilon: float) -> Array:
    """Simulate layer_norm.comp with sequential invocations and a rounding after each operation."""
    made = np.empty_like(x)
    for row, out in zip(x, made, strict=True):
        size = FLOAT(len(row))
        total = FLOAT(0)
        for v in row:
            total += v
        mean = total / size
        left, squares = FLOAT(0), FLOAT(0)
        for v in row:
            squares += (v - mean) * (v - mean)
            left += v - mean
        rest = left / size
        variance = np.maximum(squares / size - rest * rest, FLOAT(0))
        out[:] = ((row - mean) - rest) * (FLOAT(1) / np.sqrt(variance + FLOAT(epsilon)))
    return made


@pytest.mark.parametrize("shift", [0.0, 10.0, 3000.0, -1e5])
@pytest.mark.parametrize("size", [5, 64, 700])
def test_the_rule_of_two_passes_holds_in_float32(size: int, shift: float) -> None:
    """Check the rule against NumPy's float32 roundings, with sequential sums."""
    random = np.random.default_rng(size)
    x = (random.standard_normal((20, size)) + shift).astype(FLOAT)
    found = find_rule("LayerNormalization")
    assert found is not None
    inputs = [BoundedTensor(x, None, FLOAT), BoundedTensor(np.ones(size), None, FLOAT)]
    expected = found(
        OperatorCall("LayerNormalization", inputs, {"epsilon": 1e-5}, types=ProgramTypes().with_additions(size))
    )[0]
    assert np.all(np.abs(in_float32(x, 1e-5) - expected.value) <= expected.get_errors())
