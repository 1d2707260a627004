"""TRANSPOSE_CONV_2D in every type, layout and padding form, against NumPy, and its errors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import pumice
from nnapi_operations import Quantized, assert_near, quarters, random_quantized, run

FLOATS = ["float32", "float16"]
BYTES = ["uint8", "int8"]
Array = np.ndarray[Any, Any]


class Form(NamedTuple):
    """The operands between the bias and the strides, and the padding of rows and columns that they mean."""

    operands: tuple[Any, ...]
    strides: tuple[int, int]  # of height and width
    pads: tuple[tuple[int, int], tuple[int, int]]  # before and after rows, then columns


EXPLICIT = [
    Form((0, 0, 0, 0), (1, 1), ((0, 0), (0, 0))),
    Form((1, 0, 0, 2), (2, 3), ((0, 2), (1, 0))),
    Form((2, -1, 1, -3), (3, 2), ((1, -3), (2, -1))),  # left, right, top, bottom; negative padding
]


def transposed(x: Array, w: Array, form: Form) -> Array:
    """Return the sums of N1.5, [batch, rows, columns, out], in the dtype of `x`, computed one element at a time."""
    batch, rows, columns, _ = x.shape
    out, height, width, _ = w.shape
    (top, bottom), (left, right) = form.pads
    down, across = form.strides
    y = np.zeros(
        (batch, rows * down + height - down - top - bottom, columns * across + width - across - left - right, out),
        x.dtype,
    )
    for h in range(rows):
        for c in range(columns):
            for i in range(height):
                for j in range(width):
                    r, s = h * down - top + i, c * across - left + j
                    if 0 <= r < y.shape[1] and 0 <= s < y.shape[2]:
                        y[:, r, s] += x[:, h, c] @ w[:, i, j].T
    return y


def same_form(wanted: tuple[int, int], kernel: tuple[int, int], strides: tuple[int, int], planes: bool) -> Form:
    """Rule N1.4: the operands of the implicit form, and the padding that SAME gives for the requested size."""
    pads = []
    for size, reach, step in zip(wanted, kernel, strides, strict=True):
        total = (-(-size // step) - 1) * step + reach
        head = max(total - size, 0) // 2
        pads.append((head, total - size - head))
    shape = (7, 9, *wanted) if planes else (7, *wanted, 9)  # batch and channels are ignored
    return Form((np.array(shape, "int32"), 1), strides, (pads[0], pads[1]))


def add_it(
    context: pumice.Context, x: Any, w: Any, bias: Any, form: Form, code: int, planes: bool, **declared: Any
) -> Any:
    """Run the operation with its shape tensor as a constant."""
    graph = pumice.Graph()
    fed: dict[str, Array] = {}

    def operand(name: str, one: Any) -> Any:
        if isinstance(one, Quantized):
            fed[name] = one.array
            return graph.input(name, one.array.dtype, one.array.shape, scale=one.scale, zero_point=one.zero_point)
        if isinstance(one, np.ndarray):
            fed[name] = one
            return graph.input(name, one.dtype, one.shape)
        return one(graph)

    middle = [graph.constant(one) if isinstance(one, np.ndarray) else one for one in form.operands]
    down, across = form.strides
    y = graph.add(
        "nnapi::TRANSPOSE_CONV_2D",
        operand("x", x), operand("w", w), operand("b", bias), *middle, across, down, code, planes, **declared,
    )  # fmt: skip
    graph.output("y", y)
    result = graph.compile(context)(fed)["y"]
    assert all(known in (None, size) for known, size in zip(y.shape, result.shape, strict=True))
    return result


def in_layout(x: Array, planes: bool) -> Array:
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if planes else x


def clipped(y: Array, code: int) -> Array:
    return np.asarray([y, np.maximum(y, 0), np.clip(y, -1, 1), np.clip(y, 0, 6)][code])


@pytest.mark.parametrize("planes", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("form", "code"), [(EXPLICIT[0], 0), (EXPLICIT[1], 1), (EXPLICIT[2], 2), (EXPLICIT[1], 3)])
def test_N1_1_reals_with_explicit_padding(
    context: pumice.Context, form: Form, code: int, dtype: str, planes: bool
) -> None:
    x, w, b = quarters((2, 3, 4, 3), dtype), quarters((5, 3, 2, 3), dtype, 1), quarters((5,), dtype, 2)
    expected = clipped(transposed(x.astype("float64"), w.astype("float64"), form) + b, code).astype(dtype)
    y = add_it(context, in_layout(x, planes), w, b, form, code, planes)
    assert_near(y, in_layout(expected, planes))


@pytest.mark.parametrize("planes", [False, True])
@pytest.mark.parametrize(
    ("wanted", "kernel", "strides"),
    [((6, 8), (3, 3), (2, 2)), ((5, 7), (3, 2), (2, 2)), ((8, 9), (1, 2), (3, 3)), ((4, 4), (3, 3), (2, 2))],
)
def test_N1_4_the_scheme_same_pads_by_the_requested_size(
    context: pumice.Context, wanted: tuple[int, int], kernel: tuple[int, int], strides: tuple[int, int], planes: bool
) -> None:
    """The last two are special: a filter smaller than its stride, and an output larger than requested."""
    x, w, b = quarters((1, 3, 4, 2), "float32"), quarters((3, *kernel, 2), "float32", 1), quarters((3,), "float32", 2)
    form = same_form(wanted, kernel, strides, planes)
    expected = (transposed(x.astype("float64"), w.astype("float64"), form) + b).astype("float32")
    for k in range(2):
        steps = -(-wanted[k] // strides[k])
        assert expected.shape[1 + k] == wanted[k] + (x.shape[1 + k] - steps) * strides[k]
    assert_near(add_it(context, in_layout(x, planes), w, b, form, 0, planes), in_layout(expected, planes))


@pytest.mark.parametrize("scheme", [2, 0, 7])
def test_N1_4_every_other_scheme_is_valid(context: pumice.Context, scheme: int) -> None:
    x, w, b = quarters((1, 2, 3, 2), "float32"), quarters((2, 3, 2, 2), "float32", 1), quarters((2,), "float32", 2)
    form = Form((np.array([0, 1, 1, 0], "int32"), scheme), (2, 1), ((0, 0), (0, 0)))
    expected = (transposed(x.astype("float64"), w.astype("float64"), form) + b).astype("float32")
    assert_near(add_it(context, x, w, b, form, 0, False), expected)


@pytest.mark.parametrize("channels", [False, True], ids=["one scale", "scales of channels"])
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize(("form", "code"), [(EXPLICIT[0], 0), (EXPLICIT[1], 1), (EXPLICIT[2], 2), (EXPLICIT[1], 3)])
def test_N1_6_integers_sum_exactly(context: pumice.Context, form: Form, code: int, dtype: str, channels: bool) -> None:
    """Scales are powers of 2, and the output scale avoids ties, so that all bits are compared."""
    x = random_quantized((2, 3, 4, 24), dtype, 0.125)
    random = np.random.default_rng(5)
    bias = random.integers(-4000, 4000, 5).astype("int32")
    if channels:
        scales = [0.0625, 0.125, 0.03125, 0.25, 0.0625]
        array = random.integers(-128, 128, (5, 3, 2, 24)).astype("int8")
        centre = array.astype("int64")
        w: Any = lambda graph: graph.constant(array, scale=scales, channel_axis=0)  # noqa: E731
    else:
        w = random_quantized((5, 3, 2, 24), dtype, 0.0625, 1)
        scales = [0.0625] * 5
        centre = w.array.astype("int64") - w.zero_point
    sums = transposed(x.array.astype("int64") - x.zero_point, centre, form) + bias
    reals = sums * (0.125 * np.array(scales))
    scale = 3 / 64 if code else float(np.float32(np.abs(reals).max() / 110))
    zero = 11
    places = np.floor(reals / np.float32(scale) + 0.5) + zero
    info = np.iinfo(dtype)
    low, high = [(-np.inf, np.inf), (0, np.inf), (-1, 1), (0, 6)][code]
    bounds = [zero + np.floor(one / np.float32(scale) + 0.5) if np.isfinite(one) else one for one in (low, high)]
    expected = np.clip(np.clip(places, bounds[0], bounds[1]), info.min, info.max).astype(dtype)
    y = add_it(context, x, w, bias, form, code, False, scale=scale, zero_point=zero)
    halfway = np.abs(reals / np.float32(scale) - np.floor(reals / np.float32(scale)) - 0.5) < 1e-4
    assert y.shape == expected.shape
    np.testing.assert_array_equal(y[~halfway], expected[~halfway])
    assert np.abs(y.astype("int64") - expected.astype("int64")).max() <= 1
    assert len(np.unique(expected)) > (1 if code else 8)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_N1_7_a_batch_of_none_makes_none(context: pumice.Context, dtype: str) -> None:
    form = EXPLICIT[1]
    if dtype == "uint8":
        x, w = random_quantized((0, 3, 4, 3)), random_quantized((5, 3, 2, 3), seed=1)
        y = add_it(context, x, w, np.zeros(5, "int32"), form, 0, False, scale=1.0, zero_point=0)
    else:
        y = add_it(
            context, quarters((0, 3, 4, 3), dtype), quarters((5, 3, 2, 3), dtype), quarters((5,), dtype), form, 0, False
        )
    assert y.shape == (0, 5, 10, 5)


def test_N1_5_infinities_become_the_largest_numbers(context: pumice.Context) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 2], "float32").reshape(1, 1, 4, 1)
    w, b, most = np.ones((1, 1, 1, 1), "float32"), np.zeros(1, "float32"), np.finfo("float32").max
    for code, expected in ((0, [most, -most, np.nan, 2]), (1, [most, 0, np.nan, 2])):
        y = run(context, "TRANSPOSE_CONV_2D", x, w, b, 0, 0, 0, 0, 1, 1, code, False)
        np.testing.assert_array_equal(y.reshape(-1)[[0, 1, 3]], np.array(expected, "float32")[[0, 1, 3]])


def refuse(
    match: str, x: Any = (1, 3, 4, 3), w: Any = (5, 3, 2, 3), b: Any = (5,), *more: Any, dtype: str = "float32"
) -> None:
    graph = pumice.Graph()
    operands = [graph.input(f"x{i}", dtype, shape) for i, shape in enumerate((x, w, b))]
    with pytest.raises(pumice.GraphError, match=match):
        graph.add("nnapi::TRANSPOSE_CONV_2D", *operands, *(more or (0, 0, 0, 0, 1, 1, 0, False)))


def test_N1_3_padding_strides_and_sizes_are_checked() -> None:
    for more in (
        (-1, 0, 0, 0, 1, 1, 0, False),
        (0, 0, -1, 0, 1, 1, 0, False),
        (0, 0, 0, 0, 0, 1, 0, False),
        (0, 0, 0, 0, 1, -1, 0, False),
    ):
        refuse("N1.3", (1, 3, 4, 3), (5, 3, 2, 3), (5,), *more)
    refuse("N1.3.* rows", (1, 3, 4, 3), (5, 3, 2, 3), (5,), 0, 0, 2, 3, 1, 1, 0, False)
    refuse("RELU6", (1, 3, 4, 3), (5, 3, 2, 3), (5,), 0, 0, 0, 0, 1, 1, 4, False)


def test_N1_7_ranks_and_sizes_are_checked() -> None:
    refuse("rank of 4", (3, 4, 3))
    refuse("rank of 4", (1, 3, 4, 3), (5, 3, 6))
    refuse(r"\[5\]", (1, 3, 4, 3), (5, 3, 2, 3), (4,))
    refuse("3 elements expected on axis 3", (1, 3, 4, 2))


@pytest.mark.parametrize("empty", [(0, 1), (0, 2), (1, 1), (1, 2)])
def test_N1_7_empty_outputs_are_rejected(context: pumice.Context, empty: tuple[int, int]) -> None:
    """Only the batch may be 0. An unknown size is found to be 0 only at binding time."""
    shapes = [[2, 3, 4, 3], [5, 3, 2, 3]]
    shapes[empty[0]][empty[1]] = 0
    x, w = (np.zeros(shape, "float32") for shape in shapes)
    with pytest.raises(pumice.GraphError, match="N1.7"):
        run(context, "TRANSPOSE_CONV_2D", x, w, np.zeros(5, "float32"), 0, 0, 0, 0, 1, 1, 0, False)


def test_N1_2_types_belong_together() -> None:
    graph = pumice.Graph()
    x = graph.input("x", "uint8", [1, 2, 2, 3], scale=0.5)
    other = graph.constant(np.zeros((2, 1, 1, 3), "int8"), scale=0.5)
    wrong_axis = graph.constant(np.zeros((2, 1, 1, 3), "int8"), scale=[1, 2, 3], channel_axis=3)
    bias = np.zeros(2, "int32")
    for w, text in ((other, "uint8 expected"), (wrong_axis, "axis 0")):
        with pytest.raises(pumice.GraphError, match=text):
            graph.add("nnapi::TRANSPOSE_CONV_2D", x, w, bias, 0, 0, 0, 0, 1, 1, 0, False, scale=1.0)
    right = graph.constant(np.zeros((2, 1, 1, 3), "uint8"), scale=0.5)
    with pytest.raises(pumice.GraphError, match="product of those"):
        tilted = graph.constant(bias, scale=0.5)
        graph.add("nnapi::TRANSPOSE_CONV_2D", x, right, tilted, 0, 0, 0, 0, 1, 1, 0, False, scale=1.0)


def test_sizes_known_only_at_bind_are_checked_there(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float32", [None, None, None, 2])
    w, b = graph.constant(np.ones((3, 2, 2, 2), "float32")), graph.constant(np.zeros(3, "float32"))
    graph.output("y", graph.add("nnapi::TRANSPOSE_CONV_2D", x, w, b, 2, 0, 0, 1, 2, 2, 0, False))
    program = graph.compile(context)
    assert program({"x": np.ones((2, 3, 4, 2), "float32")})["y"].shape == (2, 5, 6, 3)
    with pytest.raises(pumice.GraphError, match="N1.3"):
        program({"x": np.ones((1, 3, 1, 2), "float32")})
