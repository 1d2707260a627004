"""NNAPI's data movement and reduction operations, in every type that they support, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pumice
from nnapi_operations import Quantized, assert_near, quantize, random_quantized, run

FLOATS = ["float32", "float16"]
BYTES = ["uint8", "int8"]
REALS = [*FLOATS, *BYTES]
NUMBERS = [*REALS, "int32"]


def elements(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    """Return elements that differ as far as the type allows; quantized ones for 8-bit types."""
    array = np.random.default_rng(seed).permutation(int(np.prod(shape))).reshape(shape) % 120
    return Quantized(array.astype(dtype), 0.5, 3) if dtype in BYTES else array.astype(dtype)


def plain(x: Any) -> np.ndarray:
    return x.array if isinstance(x, Quantized) else x


MOVES: list[tuple[str, tuple[int, ...], tuple[Any, ...], Callable[[np.ndarray], np.ndarray], list[str]]] = [
    ("SLICE", (5, 7), ([1, 2], [3, 4]), lambda x: x[1:4, 2:6], NUMBERS),
    ("SLICE", (5, 7), ([2, 0], [-1, 1]), lambda x: x[2:, :1], NUMBERS),
    ("GATHER", (5, 7), (1, np.array([[3, 0], [6, 6]], "int32")), lambda x: x[:, [[3, 0], [6, 6]]], NUMBERS),
    ("GATHER", (5, 7), (-2, np.array([4], "int32")), lambda x: x[[4]], NUMBERS),
    ("TILE", (2, 3), ([2, 3],), lambda x: np.tile(x, (2, 3)), NUMBERS),
    ("EXPAND_DIMS", (2, 3), (-1,), lambda x: x[..., None], NUMBERS),
    ("EXPAND_DIMS", (2, 3), (0,), lambda x: x[None], NUMBERS),
    ("RESHAPE", (2, 6), ([3, -1],), lambda x: x.reshape(3, 4), NUMBERS),
    ("REVERSE", (3, 5), ([1],), lambda x: x[:, ::-1], NUMBERS),
    ("REVERSE", (3, 5), ([-2],), lambda x: x[::-1], NUMBERS),
    ("TRANSPOSE", (2, 3, 4), ([2, 0, 1],), lambda x: x.transpose(2, 0, 1), REALS),
    ("TRANSPOSE", (2, 3), (), lambda x: x.T, REALS),
    ("SQUEEZE", (1, 3, 1), ([0],), lambda x: x[0], REALS),
    ("SQUEEZE", (1, 3, 1), (), lambda x: x.reshape(3), REALS),
    ("SQUEEZE", (1, 1), ([0, 1],), lambda x: x.reshape(1), REALS),
    ("STRIDED_SLICE", (7, 8), ([1, -1], [6, 0], [2, -3], 0, 0, 0), lambda x: x[1:6:2, -1:0:-3], REALS),
    ("STRIDED_SLICE", (7, 8), ([1, 5], [6, 6], [2, -2], 1, 2, 0), lambda x: x[:6:2, 5::-2], REALS),
    ("STRIDED_SLICE", (7, 8), ([-1, 2], [0, 5], [1, 1], 0, 0, 1), lambda x: x[-1, 2:5], REALS),
    ("STRIDED_SLICE", (7, 8), ([3, 2], [4, 3], [1, 1], 0, 0, 3), lambda x: x[3, 2].reshape(1), REALS),
    ("MIRROR_PAD", (3, 4), ([[1, 2], [3, 0]], 0), lambda x: np.pad(x, [(1, 2), (3, 0)], "reflect"), NUMBERS),
    ("MIRROR_PAD", (3, 4), ([[1, 3], [4, 0]], 1), lambda x: np.pad(x, [(1, 3), (4, 0)], "symmetric"), NUMBERS),
]


@pytest.mark.parametrize(
    ("op", "shape", "more", "function", "dtype"),
    [
        pytest.param(op, shape, more, function, dtype, id=f"{op}-{i}-{dtype}")
        for i, (op, shape, more, function, dtypes) in enumerate(MOVES)
        for dtype in dtypes
    ],
)
def test_elements_move_as_they_are(
    context: pumice.Context,
    op: str,
    shape: tuple[int, ...],
    more: tuple[Any, ...],
    function: Callable[[np.ndarray], np.ndarray],
    dtype: str,
) -> None:
    x = elements(shape, dtype)
    constants = [np.asarray(one, "int32") if isinstance(one, list) else one for one in more]
    indices = [one.tolist() if isinstance(one, np.ndarray) and op != "GATHER" else one for one in more]
    assert_near(run(context, op, x, *indices), function(plain(x)))
    graph = pumice.Graph()
    parameters = {"scale": x.scale, "zero_point": x.zero_point} if isinstance(x, Quantized) else {}
    y = graph.add(f"nnapi::{op}", graph.input("x", dtype, list(shape), **parameters), *constants)
    assert (y.scale, y.zero_point) == (parameters.get("scale"), parameters.get("zero_point"))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_several_tensors_and_several_outputs(context: pumice.Context, dtype: str) -> None:
    x, y = elements((4, 6), dtype), elements((4, 6), dtype, 1)
    parts = run(context, "SPLIT", x, -1, 3)
    for part, expected in zip(parts, np.split(plain(x), 3, 1), strict=True):
        assert_near(part, expected)
    assert_near(run(context, "SPLIT", x, 0, 1), plain(x))
    assert_near(run(context, "PACK", 1, x, y), np.stack([plain(x), plain(y)], 1))
    assert_near(run(context, "EMBEDDING_LOOKUP", np.array([2, 0], "int32"), x), plain(x)[[2, 0]])
    values, indices = run(context, "TOPK_V2", x, 2)
    order = np.argsort(-plain(x).astype(float), axis=1, kind="stable")[:, :2].astype("int32")
    assert_near(indices, order)
    assert_near(values, np.take_along_axis(plain(x), order, 1))


@pytest.mark.parametrize("dtype", REALS)
def test_padding_with_zeros_and_with_a_value(context: pumice.Context, dtype: str) -> None:
    x = elements((2, 3), dtype)
    pads = np.array([[0, 1], [2, 0]], "int32")
    zero = x.zero_point if isinstance(x, Quantized) else 0
    assert_near(run(context, "PAD", x, [[0, 1], [2, 0]]), np.pad(plain(x), pads, constant_values=zero))
    value = 9 if isinstance(x, Quantized) else 9.5
    assert_near(run(context, "PAD_V2", x, [[0, 1], [2, 0]], value), np.pad(plain(x), pads, constant_values=value))


@pytest.mark.parametrize("dtype", FLOATS)
def test_concatenation_of_floats(context: pumice.Context, dtype: str) -> None:
    parts = [elements((2, n, 3), dtype, n) for n in (1, 4, 2)]
    assert_near(run(context, "CONCATENATION", *parts, 1), np.concatenate(parts, 1))


@pytest.mark.parametrize("dtype", BYTES)
def test_concatenation_brings_operands_to_the_scale_of_the_output(context: pumice.Context, dtype: str) -> None:
    a, b = random_quantized((4, 8), dtype, 0.5), random_quantized((4, 3), dtype, 0.25, 1)
    joined = run(context, "CONCATENATION", a, b, -1, scale=0.5, zero_point=a.zero_point)
    assert_near(joined, np.concatenate([a.array, quantize(b.reals, 0.5, a.zero_point, dtype)], 1))
    assert_near(run(context, "CONCATENATION", a, a, 0), np.concatenate([a.array, a.array]))
    with pytest.raises(pumice.GraphError, match="'scale' of the output is needed"):
        run(context, "CONCATENATION", a, b, 1)


@pytest.mark.parametrize(("value", "dtype"), [(3, "int32"), (2.5, "float32"), (np.float16(0.5), "float16")])
def test_fill(context: pumice.Context, value: Any, dtype: str) -> None:
    assert_near(run(context, "FILL", [2, 3], value), np.full((2, 3), value, dtype))


@pytest.mark.parametrize("shape", [[], [3], [2, 1, 4]])
def test_rank_is_a_scalar(context: pumice.Context, shape: list[int]) -> None:
    graph = pumice.Graph()
    graph.output("y", graph.add("nnapi::RANK", graph.input("x", "bool", shape)))
    y = graph.compile(context)({"x": np.zeros(shape, bool)})["y"]
    assert (y.dtype, y.shape, int(y)) == ("int32", (), len(shape))


def test_the_rank_of_any_shape(context: pumice.Context) -> None:
    graph = pumice.Graph()
    graph.output("y", graph.add("nnapi::RANK", graph.input("x", "float32", None)))
    program = graph.compile(context)
    assert [int(program({"x": np.zeros(shape, "float32")})["y"]) for shape in [(2,), (1, 2, 3)]] == [1, 3]


def test_a_slice_that_begins_where_the_device_says(context: pumice.Context) -> None:
    """The slice sizes are known, so a different start needs no new binding."""
    graph = pumice.Graph()
    x, begin = graph.input("x", "float32", [6, 5]), graph.input("begin", "int32", [2])
    y = graph.add("nnapi::SLICE", x, begin, [2, 1])
    assert y.shape == (2, 1)
    graph.output("y", y)
    program = graph.compile(context)
    array = np.arange(30, dtype="float32").reshape(6, 5)
    for row, column in [(0, 0), (4, 4), (3, 1)]:
        made = program({"x": array, "begin": np.array([row, column], "int32")})["y"]
        assert_near(made, array[row : row + 2, column : column + 1])


def test_sizes_that_the_program_computes(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x, size = graph.input("x", "float32", [6]), graph.input("size", "int32", [1])
    more = graph.add("nnapi::ADD", size, [1], 0)
    graph.output("slice", graph.add("nnapi::SLICE", x, [1], size))
    graph.output("tile", graph.add("nnapi::TILE", x, more))
    graph.output("fill", graph.add("nnapi::FILL", more, 7))
    program = graph.compile(context)
    array = np.arange(6, dtype="float32")
    for count in (-1, 0, 2, 5):
        made = program({"x": array, "size": np.array([count], "int32")})
        assert_near(made["slice"], array[1:] if count < 0 else array[1 : 1 + count])
        assert_near(made["tile"], np.tile(array, count + 1))
        assert_near(made["fill"], np.full(count + 1, 7, "int32"))


# ---- along axes

REDUCTIONS: list[tuple[str, np.ufunc, list[str]]] = [
    ("REDUCE_SUM", np.add, FLOATS),
    ("REDUCE_PROD", np.multiply, FLOATS),
    ("REDUCE_MAX", np.maximum, REALS),
    ("REDUCE_MIN", np.minimum, REALS),
    ("REDUCE_ANY", np.logical_or, ["bool"]),
    ("REDUCE_ALL", np.logical_and, ["bool"]),
]


@pytest.mark.parametrize(
    ("op", "function", "dtype"),
    [(op, function, dtype) for op, function, dtypes in REDUCTIONS for dtype in dtypes],
)
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("axes", [[1], [0, -1], [-1, 2, 2], [0, 1, 2]])
def test_reductions(
    context: pumice.Context, op: str, function: np.ufunc, dtype: str, axes: list[int], keep: bool
) -> None:
    random = np.random.default_rng(len(axes))
    array = random.integers(0, 2, (3, 2, 4)).astype(dtype) if dtype == "bool" else plain(elements((3, 2, 4), dtype))
    if op in ("REDUCE_SUM", "REDUCE_PROD"):
        array = (array % 3 / 2 + 0.5).astype(dtype)
    x = Quantized(array, 0.5, 3) if dtype in BYTES else array
    expected = function.reduce(array, tuple({axis % 3 for axis in axes}), keepdims=keep)
    expected = np.asarray(expected, dtype).reshape(np.shape(expected) or (1,))
    assert_near(run(context, op, x, axes, keep), expected, ulp=8)


@pytest.mark.parametrize("dtype", REALS)
def test_mean_reductions(context: pumice.Context, dtype: str) -> None:
    x = elements((3, 4, 5), dtype)
    for axes, keep in (([1], 0), ([0, 2], 1), ([0, 1, 2], 0)):
        expected = np.mean(plain(x).astype("float32"), tuple(axes), keepdims=bool(keep))
        expected = np.asarray(np.round(expected) if dtype in BYTES else expected, dtype)
        assert_near(run(context, "MEAN", x, axes, keep), expected.reshape(expected.shape or (1,)), ulp=8)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize(("op", "function"), [("ARGMAX", np.argmax), ("ARGMIN", np.argmin)])
def test_argmax_and_argmin(context: pumice.Context, op: str, function: Callable[..., np.ndarray], dtype: str) -> None:
    x = elements((3, 4, 5), dtype)
    for axis in (0, 1, -1):
        assert_near(run(context, op, x, axis), function(plain(x), axis).astype("int32"))
    row = elements((9,), dtype)
    assert_near(run(context, op, row, 0), np.asarray([function(plain(row))], "int32"))


def softmax(x: np.ndarray, beta: float, axis: int) -> np.ndarray:
    e = np.exp((x - x.max(axis, keepdims=True)) * beta)
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("more", [(1.0,), (0.5, 1), (2.0, -2)])
def test_softmax(context: pumice.Context, dtype: str, more: tuple[Any, ...]) -> None:
    x = random_quantized((3, 4, 5), dtype, 0.02) if dtype in BYTES else (elements((3, 4, 5), dtype) / 40).astype(dtype)
    given = x.reals if isinstance(x, Quantized) else x.astype("float32")
    expected = softmax(given, more[0], more[1] if len(more) > 1 else -1)
    y = run(context, "SOFTMAX", x, *more)
    if dtype in BYTES:
        zero = 0 if dtype == "uint8" else -128
        assert np.abs(y.astype(int) - quantize(expected, 1 / 256, zero, dtype)).max() <= 1
    else:
        assert_near(y, expected.astype(dtype), ulp=8)
        assert_near(run(context, "LOG_SOFTMAX", x, *more), np.log(expected).astype(dtype), ulp=8)


@pytest.mark.parametrize("dtype", REALS)
def test_l2_normalization(context: pumice.Context, dtype: str) -> None:
    x = random_quantized((3, 5), dtype, 0.02) if dtype in BYTES else (elements((3, 5), dtype) + 1).astype(dtype)
    given = x.reals if isinstance(x, Quantized) else x.astype("float32")
    for axis in (-1, 0):
        expected = given / np.sqrt((given * given).sum(axis, keepdims=True))
        y = run(context, "L2_NORMALIZATION", x, axis)
        if dtype in BYTES:
            zero = 128 if dtype == "uint8" else 0
            assert np.abs(y.astype(int) - quantize(expected, 1 / 128, zero, dtype)).max() <= 1
        else:
            assert_near(y, expected.astype(dtype), ulp=8)


def test_R8_no_operand_has_more_axes_than_tensors_have() -> None:
    """All operations accept up to 8 axes; one whose result would have 9 raises an error with its name."""
    graph = pumice.Graph()
    with pytest.raises(pumice.GraphError, match="rank 9; the highest rank is 8") as found:
        graph.input("x", "float32", [2] * 9)
    assert found.value.rule == "R8"
    with pytest.raises(pumice.GraphError, match="rank 9; the highest rank is 8") as found:  # NumPy allows 64 axes
        graph.constant(np.zeros((1,) * 9, "float32"))
    assert found.value.rule == "R8"
    x = graph.input("x", "float32", [2] * 8)
    y = graph.add("nnapi::MIRROR_PAD", x, [[1, 1]] * 8, 0)
    assert y.shape == (4,) * 8
    for op, operands in (
        ("EXPAND_DIMS", (x, 0)),
        ("PACK", (0, x, x)),
        ("RESHAPE", (x, [2] * 8 + [1])),
        ("FILL", ([1] * 9, 1.0)),
    ):
        with pytest.raises(pumice.GraphError, match=f"'it': nnapi::{op}: .*9.*; the highest rank is 8") as found:
            graph.add(f"nnapi::{op}", *operands, name="it")
        assert (found.value.node, found.value.rule) == ("it", "R8")
    with pytest.raises(
        pumice.GraphError, match=r"a pair of numbers for each axis of operand 0 expected; given \[9, 2\]"
    ):
        graph.add("nnapi::MIRROR_PAD", x, [[1, 1]] * 9, 1)
    any_rank = graph.input("any", "float32", None)
    with pytest.raises(pumice.GraphError, match="MIRROR_PAD: operand 0, 'x': a rank of 9 expected, .* is 8") as found:
        graph.add("nnapi::MIRROR_PAD", any_rank, [[1, 1]] * 9, 1, name="it")
    assert (found.value.node, found.value.rule) == ("it", "R8")


def test_R8_paddings_of_nine_axes_that_a_program_is_given(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x, paddings = graph.input("x", "float32", None), graph.input("paddings", "int32", None)
    graph.output("y", graph.add("nnapi::MIRROR_PAD", x, paddings, 0, name="it"))
    array = np.arange(6, dtype="float32").reshape(2, 3)
    with graph.compile(context) as program:
        made = program({"x": array, "paddings": np.array([[1, 0], [0, 2]], "int32")})["y"]
        np.testing.assert_array_equal(made, np.pad(array, [(1, 0), (0, 2)], mode="reflect"))
        with pytest.raises(pumice.GraphError, match="'it': nnapi::MIRROR_PAD: .*; given"):
            program({"x": array, "paddings": np.ones((9, 2), "int32")})
