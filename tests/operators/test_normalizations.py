"""Normalisations with cancellation, against float64: large means, a single outlier, groups of one element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from onnx_models import model, node, value

Array = np.ndarray[Any, Any]
EPSILON = float(np.float32(1e-5))
# Batch, channels, pixels: rows kept in registers, planes divisible by four or not, one pixel, several chunks.
SHAPES = [[8, 1, 1], [2, 4, 1, 1], [2, 8, 3, 5], [1, 4, 16, 16], [2, 2, 40, 50], [1, 2, 129, 127], [1, 6, 64, 64]]
OPERATORS = [
    "InstanceNormalization",
    "GroupNormalization 1",
    "GroupNormalization 2",
    "LayerNormalization",
    "BatchNormalization",
]


def numbers(kind: str, shape: list[int]) -> Array:
    random = np.random.default_rng(len(kind) + sum(shape))
    x = random.standard_normal(shape)
    if kind == "large mean":
        x += 300
    if kind == "first far away":
        x[(slice(None), slice(None), *[0] * (len(shape) - 2))] = 1e4
    if kind == "all alike":
        x = np.broadcast_to(random.standard_normal([*shape[:2], *[1] * (len(shape) - 2)]) * 50, shape)
    return x.astype("float32")


def normalised(x: Array, axes: tuple[int, ...], scale: Array, bias: Array) -> Array:
    wide = x.astype(np.float64)
    mean = wide.mean(axis=axes, keepdims=True)
    variance = ((wide - mean) ** 2).mean(axis=axes, keepdims=True)
    made: Array = (wide - mean) / np.sqrt(variance + EPSILON) * scale + bias
    return made


def by_channel(array: Array, rank: int) -> Array:
    return array.astype(np.float64).reshape([-1, *[1] * (rank - 2)])


@pytest.mark.parametrize("kind", ["plain", "large mean", "first far away", "all alike"])
@pytest.mark.parametrize("case", OPERATORS)
def test_normalisations_lose_nothing_by_cancellation(context: pumice.Context, case: str, kind: str) -> None:
    op, _, count = case.partition(" ")
    for shape in SHAPES:
        groups = int(count or 1)
        if shape[1] % groups:
            continue
        random = np.random.default_rng(1)
        x, rank, channels = numbers(kind, shape), len(shape), shape[1]
        scale, bias = (
            random.uniform(0.5, 2, channels).astype("float32"),
            random.uniform(-2, 2, channels).astype("float32"),
        )
        constants = {"s": scale, "b": bias}
        names, attributes = ["x", "s", "b"], {}
        pixels = tuple(range(2, rank))
        wide_scale, wide_bias = by_channel(scale, rank), by_channel(bias, rank)
        if op == "GroupNormalization":
            attributes["num_groups"] = groups
            grouped = x.reshape([shape[0], groups, -1])
            ones = normalised(grouped, (2,), np.ones(1), np.zeros(1)).reshape(shape)
            expected = ones * wide_scale + wide_bias
        elif op == "InstanceNormalization":
            expected = normalised(x, pixels, wide_scale, wide_bias)
        elif op == "LayerNormalization":
            scale, bias = random.uniform(0.5, 2, shape[1:]).astype("float32"), np.zeros(shape[1:], "float32")
            constants, attributes["axis"] = {"s": scale, "b": bias}, 1
            expected = normalised(x, tuple(range(1, rank)), scale.astype(np.float64), bias)
        else:
            mean = x.mean(axis=(0, *pixels), dtype=np.float64).astype("float32")
            variance = x.astype(np.float64).var(axis=(0, *pixels)).astype("float32")
            constants |= {"m": mean, "v": variance}
            names += ["m", "v"]
            distance = x.astype(np.float64) - by_channel(mean, rank)
            expected = distance / np.sqrt(by_channel(variance, rank) + EPSILON) * wide_scale + wide_bias
        loaded = pumice.load(
            model([node(op, names, **attributes)], [value("x", shape)], constants=constants, opset=21), context
        )
        # The mean may be rounded to float32, which shifts all differences; the bound adds a few ulps.
        off = np.abs(x).max() * 2.0**-23 / np.sqrt(x.astype(np.float64).var() + EPSILON)
        # On CPU drivers an invocation sums an eighth of a layer's squares sequentially.
        sums = x[0].size / 64 * 2.0**-24 if op == "LayerNormalization" else 0
        limit = 2 * (off if kind == "large mean" else 0) + (3e-6 + sums) * np.maximum(np.abs(expected), 1)
        wrong = np.abs(loaded(x) - expected) - limit
        assert wrong.max() <= 0, f"{case} of {shape}: {wrong.max()} beyond the bound"


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("which", [0, 1])
def test_a_group_normalisation_with_a_scale_for_each_group_is_rejected(
    context: pumice.Context, known: bool, which: int
) -> None:
    """Opsets before 21 define the operator this way."""
    x = np.ones([1, 4, 2, 2], "float32")
    sizes = [4, 4]
    sizes[which] = 2
    inputs = [
        value("x", x.shape if known else [None] * 4),
        *[value(n, [s] if known else [None]) for n, s in zip("sb", sizes, strict=True)],
    ]
    given = (x, np.ones(sizes[0], "float32"), np.ones(sizes[1], "float32"))
    proto = model([node("GroupNormalization", ["x", "s", "b"], num_groups=2)], inputs, opset=21)
    with pytest.raises(pumice.GraphError, match="a value for each channel"):
        pumice.load(proto, context, progress=False)(*given)


def test_a_group_normalisation_of_operator_set_18_has_a_scale_for_each_group(context: pumice.Context) -> None:
    x = np.random.default_rng(0).standard_normal([2, 4, 3, 3]).astype("float32")
    proto = model(
        [node("GroupNormalization", ["x", "s", "b"], num_groups=2)],
        [value("x", [None] * 4)],
        constants={"s": np.array([2, 3], "float32"), "b": np.array([-1, 1], "float32")},
        opset=18,
    )
    ones = normalised(x.reshape(2, 2, -1), (2,), np.ones(1), np.zeros(1)).reshape(x.shape)
    expected = ones * np.repeat([2, 3], 2)[:, None, None] + np.repeat([-1, 1], 2)[:, None, None]
    np.testing.assert_allclose(pumice.load(proto, context, progress=False)(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("bias", [None, [6], [1], [5, 1]])
@pytest.mark.parametrize("scale", [[5, 6], [6], [1, 6], [5, 1], []])
def test_statistics_of_a_layer_normalisation_whose_scale_broadcasts(
    context: pumice.Context, scale: list[int], bias: list[int] | None, precision: str
) -> None:
    random = np.random.default_rng(3)
    x = (random.standard_normal([3, 4, 5, 6]) * 2 + 1).astype("float32")
    constants = {"s": random.uniform(0.5, 2, scale).astype("float32")}
    if bias is not None:
        constants["b"] = random.uniform(-1, 1, bias).astype("float32")
    proto = model(
        [node("LayerNormalization", ["x", *constants], ["y", "mean", "inverse"], axis=2)],
        [value("x", [None] * 4)],
        ["y", "mean", "inverse"],
        constants,
    )
    y, mean, inverse = pumice.load(proto, context, precision=precision, progress=False)(x)
    wide = x.astype(np.float64)
    averages = wide.mean(axis=(2, 3), keepdims=True)
    inverses = 1 / np.sqrt(wide.var(axis=(2, 3), keepdims=True) + EPSILON)
    near = 1e-5 if precision == "fp32" else 5e-3
    np.testing.assert_allclose(mean, averages, rtol=near, atol=near)
    np.testing.assert_allclose(inverse, inverses, rtol=near)
    expected = (wide - averages) * inverses * constants["s"] + constants.get("b", np.zeros(1))
    np.testing.assert_allclose(y, expected, rtol=near, atol=near)


@pytest.mark.parametrize("large", [1.7e38, 1e30])
@pytest.mark.parametrize(
    ("op", "shape"),
    [
        ("LayerNormalization", [2, 8]),
        ("LayerNormalization", [2, 1024]),
        ("LayerNormalization", [2, 10007]),
        ("InstanceNormalization", [1, 2, 8]),
        ("InstanceNormalization", [1, 2, 64, 64]),
        ("InstanceNormalization", [1, 2, 256, 256]),
        ("InstanceNormalization", [1, 1, 1024, 512]),
        ("GroupNormalization", [1, 4, 4, 4]),
        ("GroupNormalization", [1, 4, 64, 64]),
    ],
)
def test_squares_that_overflow_leave_the_bias(context: pumice.Context, op: str, shape: list[int], large: float) -> None:
    """The variance is infinite and x / sqrt(var) is 0; a difference of infinities used to make everything NaN."""
    channels = shape[-1] if op == "LayerNormalization" else shape[1]
    graph = pumice.Graph(op)
    x = graph.input("x", "float32", shape)
    constants = [graph.constant(np.full(channels, number, "float32")) for number in (1, 0.5)]
    graph.output("y", graph.add(op, x, *constants, **({"num_groups": 2} if op == "GroupNormalization" else {})))
    given = np.random.default_rng(0).standard_normal(shape).astype("float32")
    given.reshape(-1)[3] = large
    made = graph.compile(context)({"x": given})["y"]
    assert (made.reshape(-1)[:4] == 0.5).all() and np.isfinite(made).all()
