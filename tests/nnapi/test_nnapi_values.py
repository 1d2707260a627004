"""Quantized values of a graph: inputs, constants, unknown ranks, fixed scales; and lists that repeat an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pumice
from nnapi_operations import Quantized, random_quantized, run

Array = np.ndarray[Any, Any]
SCALE, ZERO = 0.25, 130


def test_a_quantized_input_carries_its_scale_and_zero_point() -> None:
    graph = pumice.Graph()
    x = graph.input("x", "uint8", [2, 3], scale=0.5, zero_point=128)
    assert (x.scale, x.zero_point, x.channel_axis) == (0.5, 128, None)
    assert graph.input("y", "int8", None, scale=0.25).zero_point == 0
    plain = graph.input("z", "uint8", [2])
    assert (plain.scale, plain.zero_point) == (None, None)


def test_a_constant_carries_scales_of_channels() -> None:
    graph = pumice.Graph()
    w = graph.constant(np.zeros((3, 2), "int8"), scale=[1, 2, 4], channel_axis=-2)
    assert (w.scale, w.zero_point, w.channel_axis) == ((1, 2, 4), 0, 0)
    assert graph.constant(np.zeros(2, "int32"), scale=0.125).scale == 0.125


@pytest.mark.parametrize(
    ("dtype", "given", "text"),
    [
        ("float32", {"scale": 0.5}, "elements of float32; given scale 0.5"),
        ("bool", {"scale": 0.5}, "elements of bool"),
        ("uint8", {"zero_point": 3}, "without a scale"),
        ("uint8", {"scale": 0.5, "zero_point": -1}, "not a valid uint8; given scale 0.5 and zero point -1"),
        ("uint8", {"scale": 0.5, "zero_point": 256}, "not a valid uint8; given .* 256"),
        ("int8", {"scale": 0.5, "zero_point": 128}, "not a valid int8; given .* 128"),
        ("uint8", {"scale": 0.0}, "greater than 0"),
        ("uint8", {"scale": [1, 2], "channel_axis": 0}, "each of the 3 channels"),
        ("uint8", {"scale": [1, 2]}, "expected one if no channel_axis is given; given 2"),
    ],
)
def test_parameters_that_do_not_fit_are_rejected(dtype: str, given: dict[str, object], text: str) -> None:
    graph = pumice.Graph()
    with pytest.raises(pumice.GraphError, match=text):
        graph.input("x", dtype, [3, 2], **given)
    with pytest.raises(pumice.GraphError, match=text):
        graph.constant(np.zeros((3, 2), dtype), **given)
    assert graph.input("x", dtype, [3, 2]).scale is None


# Operation -> operands after the first, and the equivalent on integers with that zero point.
KEEPERS: dict[str, tuple[tuple[Any, ...], Callable[[Array, int], Array]]] = {
    "REDUCE_MAX": (([1], True), lambda x, _: x.max(1, keepdims=True)),
    "REDUCE_MIN": (([0], False), lambda x, _: x.min(0)),
    "MEAN": (([1], 1), lambda x, _: rounded_mean(x, 1)),
    "CHANNEL_SHUFFLE": ((2, 1), lambda x, _: x.reshape(4, 2, 3).swapaxes(1, 2).reshape(4, 6)),
    "RESHAPE": (([4, 6],), lambda x, _: x.reshape(4, 6)),
    "SQUEEZE": ((), lambda x, _: x),
    "TRANSPOSE": (([1, 0],), lambda x, _: x.T),
    "REVERSE": (([1],), lambda x, _: x[:, ::-1]),
    "TILE": (([2, 1],), lambda x, _: np.tile(x, (2, 1))),
    "EXPAND_DIMS": ((0,), lambda x, _: x[None]),
    "SLICE": (([0, 1], [4, 3]), lambda x, _: x[:, 1:4]),
    "STRIDED_SLICE": (([0, 1], [4, 5], [1, 2], 0, 0, 0), lambda x, _: x[:, 1:5:2]),
    "GATHER": ((0, np.array([2, 0], "int32")), lambda x, _: x[[2, 0]]),
    "PAD": (([[0, 1], [1, 0]],), lambda x, zero: np.pad(x, [(0, 1), (1, 0)], constant_values=zero)),
    "MIRROR_PAD": (([[0, 1], [1, 0]], 0), lambda x, _: np.pad(x, [(0, 1), (1, 0)], mode="reflect")),
    "RELU": ((), lambda x, zero: np.maximum(x, np.array(zero, x.dtype))),
}
READERS: dict[str, tuple[tuple[Any, ...], Callable[[Array], Array]]] = {
    "REDUCE_MAX": (([-1], True), lambda x: x.max(-1, keepdims=True)),
    "MEAN": (([-1], 1), lambda x: rounded_mean(x, -1)),
    "CHANNEL_SHUFFLE": ((1, 0), lambda x: x),
}


def rounded_mean(x: Array, axis: int) -> Array:
    made: Array = np.round(x.astype("float64").mean(axis, keepdims=True)).astype(x.dtype)
    return made


@pytest.mark.parametrize("second", [None, "REDUCE_MAX", "MEAN", "CHANNEL_SHUFFLE"])
@pytest.mark.parametrize("first", KEEPERS)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_a_quantized_value_of_unknown_rank_keeps_its_scale(
    context: pumice.Context, dtype: str, first: str, second: str | None
) -> None:
    """Passes through two operations; the results are dequantized without repeating the scale."""
    zero = ZERO if dtype == "uint8" else ZERO - 128
    more, moved = KEEPERS[first]
    x = random_quantized((4, 6), dtype, seed=1).array
    graph, expected = pumice.Graph(), moved(x, zero)
    given = graph.input("x", dtype, None, scale=SCALE, zero_point=zero)
    value = graph.add(f"nnapi::{first}", given, *more)
    if second:
        more, read = READERS[second]
        value, expected = graph.add(f"nnapi::{second}", value, *more), read(expected)
    assert (value.scale, value.zero_point) == (given.scale, given.zero_point)
    graph.output("y", graph.add("nnapi::DEQUANTIZE", value))
    made = graph.compile(context)({"x": x})["y"]
    np.testing.assert_array_equal(made, (expected.astype("float32") - zero) * np.float32(SCALE))


# ---- fixed scales


def boxes() -> list[Any]:
    rois = Quantized(np.array([[0, 0, 80, 160], [8, 16, 160, 240]], "uint16"), 0.125, 0)
    deltas = random_quantized((2, 8), "uint8", 0.05)
    return [rois, deltas, np.zeros(2, "int32"), Quantized(np.array([[256, 256]], "uint16"), 0.125, 0)]


@pytest.mark.parametrize("declared", [{}, {"scale": 0.125}, {"zero_point": 0}, {"scale": 0.125, "zero_point": 0}])
def test_boxes_have_the_scale_that_they_must_have(context: pumice.Context, declared: dict[str, Any]) -> None:
    np.testing.assert_array_equal(
        run(context, "AXIS_ALIGNED_BBOX_TRANSFORM", *boxes(), **declared),
        run(context, "AXIS_ALIGNED_BBOX_TRANSFORM", *boxes()),
    )
    with pytest.raises(pumice.GraphError, match="0.125"):
        run(context, "AXIS_ALIGNED_BBOX_TRANSFORM", *boxes(), scale=0.25)


def lstm() -> list[Any]:
    draw = np.random.default_rng(0)
    codes = lambda *shape: draw.integers(0, 256, shape).astype("uint8")  # noqa: E731
    weights = [Quantized(codes(4, 5), 0.01, 100) for _ in range(4)] + [
        Quantized(codes(4, 4), 0.01, 100) for _ in range(4)
    ]
    biases = [draw.integers(-2000, 2000, 4).astype("int32") for _ in range(4)]
    cell = Quantized(draw.integers(-999, 999, (3, 4)).astype("int16"), 2.0**-11, 0)
    return [Quantized(codes(3, 5), 1 / 128, 128), *weights, *biases, cell, Quantized(codes(3, 4), 1 / 128, 128)]


@pytest.mark.parametrize(
    "declared", [{"scale": 2.0**-11}, {"scale": 2.0**-11, "zero_point": 0}, {"scale": 1 / 128, "zero_point": 128}]
)
def test_the_cell_and_the_state_have_the_scales_that_they_must_have(
    context: pumice.Context, declared: dict[str, Any]
) -> None:
    for one, other in zip(
        run(context, "QUANTIZED_16BIT_LSTM", *lstm(), **declared),
        run(context, "QUANTIZED_16BIT_LSTM", *lstm()),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    for wrong in ({"scale": 0.5}, {"scale": 2.0**-11, "zero_point": 128}):
        with pytest.raises(pumice.GraphError, match="expected; given"):
            run(context, "QUANTIZED_16BIT_LSTM", *lstm(), **wrong)


# ---- lists as inputs

X = np.arange(24, dtype="float32").reshape(1, 2, 3, 4)
REDUCTIONS = {"MEAN": np.mean, "REDUCE_SUM": np.sum, "REDUCE_MAX": np.max, "REDUCE_PROD": np.prod}


@pytest.mark.parametrize("shape", [X.shape, None])
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("op", REDUCTIONS)
def test_a_list_may_name_an_axis_twice_when_the_program_runs(
    context: pumice.Context, op: str, keep: int, shape: tuple[int, ...] | None
) -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float32", None if shape is None else list(shape))
    axes = graph.input("axes", "int32", [None])
    graph.output("y", graph.add(f"nnapi::{op}", x, axes, keep if op == "MEAN" else bool(keep), name="it"))
    program = graph.compile(context)
    for given in ([1, 1], [1, -3, 3], [0, 1, 2, 3, 0], [2], []):
        distinct = tuple({axis % 4 for axis in given})
        expected = REDUCTIONS[op](X, distinct, keepdims=bool(keep)) if given else X
        made = program({"x": X, "axes": np.array(given, "int32")})["y"]
        np.testing.assert_allclose(made, np.atleast_1d(expected), rtol=1e-5)
    for wrong in ([4], [1, -5]):
        with pytest.raises(pumice.GraphError, match="axis"):
            program({"x": X, "axes": np.array(wrong, "int32")})


def test_a_squeeze_names_an_axis_twice_when_the_program_runs(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x, axes = graph.input("x", "float32", [1, 2, 1, 4]), graph.input("axes", "int32", [None])
    graph.output("y", graph.add("nnapi::SQUEEZE", x, axes))
    program = graph.compile(context)
    for given, expected in (([0, 0], (2, 1, 4)), ([2, -2, 0], (2, 4)), ([], (1, 2, 1, 4))):
        made = program({"x": X[:, :, :1], "axes": np.array(given, "int32")})["y"]
        np.testing.assert_array_equal(made, X[:, :, :1].reshape(expected))


@pytest.mark.parametrize("known", [True, False])
def test_an_axis_that_goes_is_not_walked_backwards(context: pumice.Context, known: bool) -> None:
    lists = ([2, 0], [1, 3], [-1, 1])
    with pytest.raises(pumice.GraphError, match="a positive step expected on axis 0, which is removed; given -1"):
        graph = pumice.Graph()
        x = graph.input("x", "float32", [4, 3] if known else None)
        graph.output("y", graph.add("nnapi::STRIDED_SLICE", x, *lists, 0, 0, 1, name="it"))
        graph.compile(context)({"x": np.zeros((4, 3), "float32")})
    graph = pumice.Graph()
    x = graph.input("x", "float32", [4, 3])
    step = graph.input("step", "int32", [2])
    graph.output("y", graph.add("nnapi::STRIDED_SLICE", x, *lists[:2], step, 0, 0, 1, name="it"))
    with pytest.raises(pumice.GraphError, match="which is removed; given -1"):
        graph.compile(context)({"x": np.zeros((4, 3), "float32"), "step": np.array([-1, 1], "int32")})
