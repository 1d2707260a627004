"""NNAPI's elementwise operations, in every type that they support, against NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import pumice
from features import need_limits
from nnapi_operations import Quantized, assert_near, quantize, random_quantized, run

FLOATS = ["float32", "float16"]
BYTES = ["uint8", "int8"]
ACTIVATIONS: list[Callable[[np.ndarray], np.ndarray]] = [
    lambda x: x,
    lambda x: np.maximum(x, 0),
    lambda x: np.clip(x, -1, 1),
    lambda x: np.clip(x, 0, 6),
]


def reals(shape: tuple[int, ...], dtype: str, seed: int = 0, low: float = -8, high: float = 8) -> np.ndarray:
    """Return multiples of 1/8, so that sums and products are exact."""
    return (np.random.default_rng(seed).integers(low * 8, high * 8, shape) / 8).astype(dtype)


@pytest.mark.parametrize("code", range(4))
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("op", "function"), [("ADD", np.add), ("SUB", np.subtract), ("MUL", np.multiply), ("DIV", np.divide)]
)
def test_float_arithmetic_then_activation(
    context: pumice.Context, op: str, function: np.ufunc, dtype: str, code: int
) -> None:
    a, b = reals((2, 3, 5), dtype), reals((3, 1), dtype, 1, 1, 4)
    expected = ACTIVATIONS[code](function(a.astype("float32"), b.astype("float32"))).astype(dtype)
    assert_near(run(context, op, a, b, code), expected)


def floor_division(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    safe = np.where(b == 0, 1, b).astype("int64")
    return np.where(b == 0, 0, a.astype("int64") // safe).astype("int32")


@pytest.mark.parametrize("shapes", [((1,), (1,)), ((4, 1, 3), (2, 3)), ((7,), (1,))])
@pytest.mark.parametrize(
    ("op", "function"),
    [("ADD", np.add), ("SUB", np.subtract), ("MUL", np.multiply), ("DIV", floor_division)],
)
def test_integer_arithmetic(
    context: pumice.Context,
    op: str,
    function: Callable[[np.ndarray, np.ndarray], np.ndarray],
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    random = np.random.default_rng(3)
    a, b = (random.integers(-30, 30, shape).astype("int32") for shape in shapes)
    assert_near(run(context, op, a, b, 0), function(a, b))


def test_integers_are_divided_downwards_and_never_crash(context: pumice.Context) -> None:
    ends = np.iinfo("int32")
    a = np.array([7, -7, 7, -7, 6, -6, 5, ends.min, ends.min, ends.max, 0, -1, ends.min], "int32")
    b = np.array([2, 2, -2, -2, 3, 3, 0, 0, -1, -1, 5, ends.max, 3], "int32")
    quotients = run(context, "DIV", a, b, 0)
    assert quotients.tolist() == [3, -4, -4, 3, 2, -2, 0, 0, ends.min, -ends.max, 0, -1, -715827883]
    graph = pumice.Graph()
    x = graph.input("x", "int32", [1])
    halves = graph.add("nnapi::DIV", graph.constant(a[:7]), graph.constant(b[:7]), 0)
    graph.output("y", graph.add("nnapi::ADD", x, halves, 0))
    folded = graph.compile(context)({"x": np.zeros(1, "int32")})["y"]
    assert folded.tolist() == [3, -4, -4, 3, 2, -2, 0]


def test_integers_wrap_around(context: pumice.Context) -> None:
    ends = np.iinfo("int32")
    a, b = np.array([ends.max, ends.min], "int32"), np.array([1, -1], "int32")
    assert run(context, "ADD", a, b, 0).tolist() == [ends.min, ends.max]


@pytest.mark.parametrize("code", range(4))
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize(("op", "function"), [("ADD", np.add), ("SUB", np.subtract), ("MUL", np.multiply)])
def test_quantized_arithmetic_rounds_once_and_saturates(
    context: pumice.Context, op: str, function: np.ufunc, dtype: str, code: int
) -> None:
    """Scales are powers of 2, so that inputs and results are exact."""
    a, b = random_quantized((3, 64), dtype, 0.0625), random_quantized((3, 64), dtype, 0.125, 1)
    middle = 128 if dtype == "uint8" else 0
    y = run(context, op, a, b, code, scale=0.25, zero_point=middle)
    expected = quantize(ACTIVATIONS[code](function(a.reals, b.reals)), 0.25, middle, dtype)
    assert_near(y, expected)
    assert code > 0 or len(np.unique(expected)) > 20


@pytest.mark.parametrize("dtype", BYTES)
def test_any_scales_come_out_within_a_step(context: pumice.Context, dtype: str) -> None:
    a, b = random_quantized((1, 256), dtype, 0.013), random_quantized((256, 1), dtype, 0.0071, 5)
    y = run(context, "ADD", a, b, 0, scale=0.0193, zero_point=77)
    difference = np.abs(y.astype(int) - quantize(a.reals + b.reals, 0.0193, 77, dtype))
    assert difference.max() <= 1
    assert difference.mean() < 1e-3


@pytest.mark.parametrize("dtype", [*FLOATS, "int32", *BYTES])
@pytest.mark.parametrize(("op", "function"), [("MAXIMUM", np.maximum), ("MINIMUM", np.minimum)])
def test_extremes(context: pumice.Context, op: str, function: np.ufunc, dtype: str) -> None:
    if dtype in BYTES:
        a, b = random_quantized((4, 5), dtype, 0.5), random_quantized((5,), dtype, 0.25, 1)
        y = run(context, op, a, b, scale=0.5, zero_point=7)
        return assert_near(y, quantize(function(a.reals, b.reals), 0.5, 7, dtype))
    x, z = reals((4, 5), dtype), reals((5,), dtype, 1)
    return assert_near(run(context, op, x, z), function(x, z))


COMPARISONS = [
    ("EQUAL", np.equal),
    ("NOT_EQUAL", np.not_equal),
    ("LESS", np.less),
    ("LESS_EQUAL", np.less_equal),
    ("GREATER", np.greater),
    ("GREATER_EQUAL", np.greater_equal),
]


@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "bool", *BYTES])
@pytest.mark.parametrize(("op", "function"), COMPARISONS)
def test_comparisons_of_every_type(context: pumice.Context, op: str, function: np.ufunc, dtype: str) -> None:
    if dtype in BYTES:
        a, b = random_quantized((6, 40), dtype, 0.5), random_quantized((40,), dtype, 0.25, 1)
        return assert_near(run(context, op, a, b), function(a.reals, b.reals))
    random = np.random.default_rng(1)
    x, z = (random.integers(0 if dtype == "bool" else -3, 2, shape).astype(dtype) for shape in ((6, 40), (40,)))
    return assert_near(run(context, op, x, z), function(x, z))


def test_a_comparison_of_equal_reals_of_different_scales(context: pumice.Context) -> None:
    a = Quantized(np.array([128, 130], "uint8"), 0.5, 128)
    b = Quantized(np.array([3, 7], "uint8"), 0.25, 3)
    assert run(context, "EQUAL", a, b).tolist() == [True, True]
    assert run(context, "LESS", a, b).tolist() == [False, False]


def test_logic(context: pumice.Context) -> None:
    a, b = np.array([[False], [True]]), np.array([False, True])
    assert_near(run(context, "LOGICAL_AND", a, b), a & b)
    assert_near(run(context, "LOGICAL_OR", a, b), a | b)
    assert_near(run(context, "LOGICAL_NOT", b), ~b)


@pytest.mark.parametrize("dtype", [*FLOATS, "int32", *BYTES])
def test_select(context: pumice.Context, dtype: str) -> None:
    condition = np.random.default_rng(0).integers(0, 2, (3, 7)).astype(bool)
    if dtype in BYTES:
        a, b = random_quantized((3, 7), dtype, 0.5), random_quantized((3, 7), dtype, 0.25, 1)
        y = run(context, "SELECT", condition, a, b, scale=0.5, zero_point=9)
        return assert_near(y, quantize(np.where(condition, a.reals, b.reals), 0.5, 9, dtype))
    x, z = reals((3, 7), dtype), reals((3, 7), dtype, 1)
    return assert_near(run(context, "SELECT", condition, x, z), np.where(condition, x, z))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("ABS", np.abs),
        ("NEG", np.negative),
        ("EXP", np.exp),
        ("LOG", np.log),
        ("SIN", np.sin),
        ("SQRT", np.sqrt),
        ("RSQRT", lambda x: 1 / np.sqrt(x)),
        ("FLOOR", np.floor),
        ("RELU", ACTIVATIONS[1]),
        ("RELU1", ACTIVATIONS[2]),
        ("RELU6", ACTIVATIONS[3]),
        ("LOGISTIC", lambda x: 1 / (1 + np.exp(-x))),
        ("TANH", np.tanh),
        ("HARD_SWISH", lambda x: x * np.clip(x + 3, 0, 6) / 6),
    ],
)
def test_functions_of_one_float(
    context: pumice.Context, op: str, function: Callable[[np.ndarray], np.ndarray], dtype: str
) -> None:
    x = reals((3, 17), dtype, 2, -7, 7)
    if op in ("LOG", "SQRT", "RSQRT"):
        x = np.abs(x) + np.asarray(0.5, dtype)
    assert_near(run(context, op, x), function(x.astype("float32")).astype(dtype))


@pytest.mark.parametrize(("op", "function"), [("ABS", np.abs), ("NEG", np.negative)])
def test_functions_of_one_integer(context: pumice.Context, op: str, function: np.ufunc) -> None:
    x = np.array([-5, 0, 3, 2**31 - 1], "int32")
    assert_near(run(context, op, x), function(x))


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("op", ["RELU", "RELU1", "RELU6"])
def test_clipping_keeps_the_parameters(context: pumice.Context, op: str, dtype: str) -> None:
    x = random_quantized((256,), dtype, 0.0625)
    function = ACTIVATIONS[["RELU", "RELU1", "RELU6"].index(op) + 1]
    assert_near(run(context, op, x), quantize(function(x.reals), x.scale, x.zero_point, dtype))
    graph = pumice.Graph()
    y = graph.add(f"nnapi::{op}", graph.input("x", dtype, [4], scale=x.scale, zero_point=x.zero_point))
    assert (y.scale, y.zero_point) == (x.scale, x.zero_point)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize(
    ("op", "function", "scale", "zero_point"),
    [
        ("LOGISTIC", lambda x: 1 / (1 + np.exp(-x)), 1 / 256, 0),
        ("TANH", np.tanh, 1 / 128, 128),
    ],
)
def test_bounded_functions_fix_their_parameters(
    context: pumice.Context,
    op: str,
    function: Callable[[np.ndarray], np.ndarray],
    scale: float,
    zero_point: int,
    dtype: str,
) -> None:
    x = random_quantized((256,), dtype, 0.03)
    zero = zero_point - (128 if dtype == "int8" else 0)
    y = run(context, op, x)
    difference = np.abs(y.astype(int) - quantize(function(x.reals), scale, zero, dtype))
    assert difference.max() <= 1
    assert difference.mean() < 0.01
    np.testing.assert_array_equal(run(context, op, x, scale=scale, zero_point=zero), y)
    with pytest.raises(pumice.GraphError, match="expected; given scale 0.5"):
        run(context, op, x, scale=0.5)


@pytest.mark.parametrize("dtype", BYTES)
def test_quantized_functions_with_declared_parameters(context: pumice.Context, dtype: str) -> None:
    x, slope = random_quantized((4, 32), dtype, 0.0625), random_quantized((32,), dtype, 0.015625, 1)
    y = run(context, "PRELU", x, slope, scale=0.125, zero_point=20)
    assert_near(y, quantize(np.where(x.reals < 0, x.reals * slope.reals, x.reals), 0.125, 20, dtype))
    swish = x.reals * np.clip(x.reals + 3, 0, 6) / 6
    y = run(context, "HARD_SWISH", x, scale=0.1, zero_point=20)
    assert np.abs(y.astype(int) - quantize(swish, 0.1, 20, dtype)).max() <= 1


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_floats_with_parameters(context: pumice.Context, dtype: str) -> None:
    x = reals((5, 6), dtype)
    wide = x.astype("float32")
    assert_near(run(context, "ELU", x, 0.5), np.where(wide < 0, 0.5 * np.expm1(wide), wide).astype(dtype))
    slope = reals((6,), dtype, 1)
    assert_near(run(context, "PRELU", x, slope), np.where(wide < 0, wide * slope.astype("float32"), wide).astype(dtype))
    base, exponent = np.abs(x) + np.asarray(0.5, dtype), np.asarray([0, 1, 2, 0.5, -1, 1.5], dtype)
    assert_near(
        run(context, "POW", base, exponent),
        np.power(base.astype("float32"), exponent.astype("float32")).astype(dtype),
        ulp=8,
    )


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("real", FLOATS)
def test_quantize_and_dequantize(context: pumice.Context, dtype: str, real: str) -> None:
    x = np.concatenate([reals((64,), real), np.asarray([1000, -1000], real)])
    zero = 3
    assert_near(run(context, "QUANTIZE", x, scale=0.25, zero_point=zero, dtype=dtype), quantize(x, 0.25, zero, dtype))
    y = random_quantized((5, 9), dtype, 0.125)
    assert_near(run(context, "DEQUANTIZE", y, dtype=real), y.reals.astype(real))


def test_uint8_and_float32_are_the_usual_types(context: pumice.Context) -> None:
    assert run(context, "QUANTIZE", np.array([0.5, 1.5], "float32"), scale=1.0).tolist() == [0, 2]
    assert run(context, "DEQUANTIZE", random_quantized((2,))).dtype == "float32"


def test_scales_of_channels_are_dequantized(context: pumice.Context) -> None:
    graph = pumice.Graph()
    w = graph.input("w", "int8", [2, 3], scale=[0.5, 0.25], channel_axis=0)
    graph.output("y", graph.add("nnapi::DEQUANTIZE", w))
    y = graph.compile(context)({"w": np.array([[1, 2, 3], [4, 5, -6]], "int8")})["y"]
    assert y.tolist() == [[0.5, 1, 1.5], [1, 1.25, -1.5]]


@pytest.mark.parametrize("to", ["float32", "float16", "int32", "uint8"])
@pytest.mark.parametrize("source", ["float32", "float16", "int32", "uint8"])
def test_casts_among_numbers(context: pumice.Context, source: str, to: str) -> None:
    numbers = [0, 1, 7, 200, 255] if source == "uint8" else [-300, -1, 0, 1, 99, 300, 2000]
    if source.startswith("float"):
        numbers += [1.75, -1.75]
    given = np.asarray(numbers, source)
    x = Quantized(given, 0.5, 9) if source == "uint8" else given
    expected = np.clip(given.astype("float64"), 0, 255) if to == "uint8" else given.astype("float64")
    if to in ("int32", "uint8"):
        expected = np.trunc(expected)
    assert_near(run(context, "CAST", x, dtype=to), expected.astype(to))


def test_casts_to_the_same_type_and_no_others(context: pumice.Context) -> None:
    truths = np.array([True, False])
    assert_near(run(context, "CAST", truths, dtype="bool"), truths)
    x = random_quantized((3,), "int8")
    assert_near(run(context, "CAST", x, dtype="int8"), x.array)
    for given, to in ((truths, "int32"), (np.array([1], "int32"), "bool"), (x, "float32"), (x, "uint8")):
        with pytest.raises(pumice.GraphError, match=f"CAST: operand 0, 'x': .* cannot be cast to {to}"):
            run(context, "CAST", given, dtype=to)
    with pytest.raises(pumice.GraphError, match="'dtype' of the output is needed"):
        run(context, "CAST", truths)


def test_quantized_arithmetic_is_one_kernel(context: pumice.Context) -> None:
    need_limits(context, maxPerStageDescriptorStorageBuffers=5)
    graph = pumice.Graph()
    a = graph.input("a", "uint8", [64], scale=0.5, zero_point=3)
    b = graph.input("b", "uint8", [64], scale=0.25, zero_point=200)
    graph.output("y", graph.add("nnapi::ADD", a, b, 3, scale=0.125, zero_point=0))
    program = graph.compile(context)
    x = np.arange(64, dtype="uint8")
    program({"a": x, "b": x})
    assert [row["node"] for row in program.report() if row["kernel"]] == ["nnapi::ADD_0"]
