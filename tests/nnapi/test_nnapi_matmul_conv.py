"""NNAPI's matmuls, convolutions, pools and resizes, in every type that they support, against NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import pumice
from nnapi_operations import Quantized, assert_near, quarters, random_quantized, run

FLOATS = ["float32", "float16"]
BYTES = ["uint8", "int8"]


def activated(x: np.ndarray, code: int) -> np.ndarray:
    return [x, np.maximum(x, 0), np.clip(x, -1, 1), np.clip(x, 0, 6)][code]


def centred(x: Quantized) -> np.ndarray:
    return x.array.astype("int64") - x.zero_point


def requantized(sums: np.ndarray, factor: Any, scale: float, zero_point: int, dtype: str, code: int = 0) -> np.ndarray:
    """Requantize exact integer sums to the output's scale, clamped to the activation's range."""
    places = np.round(sums.astype("float64") * factor / scale) + zero_point
    bounds = [(-np.inf, np.inf), (0, np.inf), (-1, 1), (0, 6)][code]
    low, high = (np.round(bound / scale) + zero_point if np.isfinite(bound) else bound for bound in bounds)
    info = np.iinfo(dtype)
    return np.clip(np.clip(places, low, high), info.min, info.max).astype(dtype)


# ---- matmul


@pytest.mark.parametrize("code", range(4))
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(3, 6), (2, 3, 4), (1, 2, 2, 6)])
def test_fully_connected(context: pumice.Context, dtype: str, shape: tuple[int, ...], code: int) -> None:
    x, w, b = quarters(shape, dtype), quarters((5, 6), dtype, 1), quarters((5,), dtype, 2)
    rows = x.reshape(-1, 6).astype("float32")
    expected = activated(rows @ w.astype("float32").T + b.astype("float32"), code).astype(dtype)
    assert_near(run(context, "FULLY_CONNECTED", x, w, b, code), expected)


@pytest.mark.parametrize("code", range(4))
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("depth", [7, 600])
def test_fully_connected_of_integers_sums_exactly(context: pumice.Context, dtype: str, depth: int, code: int) -> None:
    """Sums of 600 8-bit products exceed float32's exact integers; scales are powers of 2, so results are compared bit by bit."""
    x, w = random_quantized((4, depth), dtype, 0.125), random_quantized((16, depth), dtype, 0.0625, 1)
    bias = np.random.default_rng(2).integers(-4000, 4000, 16).astype("int32")
    sums = centred(x) @ centred(w).T + bias
    scale = 2.0 ** np.ceil(np.log2(np.abs(sums).max() * 0.0078125 / 100))
    scale = min(scale, 0.0625) if code else scale  # makes the activation clamp some values
    y = run(context, "FULLY_CONNECTED", x, w, bias, code, scale=scale, zero_point=11)
    expected = requantized(sums, 0.0078125, scale, 11, dtype, code)
    assert_near(y, expected)
    assert len(np.unique(expected)) > (1 if code else 8)


@pytest.mark.parametrize("dtype", [*FLOATS, "int32"])
@pytest.mark.parametrize("adjoint", [(False, False), (True, False), (False, True), (True, True)])
def test_batches_of_matmuls(context: pumice.Context, dtype: str, adjoint: tuple[bool, bool]) -> None:
    a, b = quarters((2, 3, 4), dtype), quarters((2, 4, 5), dtype, 1)
    x, y = (np.swapaxes(one, 1, 2) if turned else one for one, turned in zip((a, b), adjoint, strict=True))
    expected = (a.astype("float64") @ b.astype("float64")).astype(dtype)
    assert_near(run(context, "BATCH_MATMUL", np.ascontiguousarray(x), np.ascontiguousarray(y), *adjoint), expected)


@pytest.mark.parametrize("dtype", BYTES)
def test_batches_of_matmuls_of_integers(context: pumice.Context, dtype: str) -> None:
    a, b = random_quantized((2, 3, 300), dtype, 0.5), random_quantized((2, 5, 300), dtype, 0.25, 1)
    y = run(context, "BATCH_MATMUL", a, b, False, True, scale=2048.0, zero_point=50)
    assert_near(y, requantized(centred(a) @ centred(b).swapaxes(1, 2), 0.125, 2048, 50, dtype))


# ---- convolutions


def padded_sizes(size: int, kernel: int, step: int, dilation: int, scheme: int) -> tuple[int, int]:
    """Return the padding before and after an axis under a padding scheme."""
    if scheme == 2:
        return 0, 0
    reach = (kernel - 1) * dilation + 1
    total = max((-(-size // step) - 1) * step + reach - size, 0)
    return total // 2, total - total // 2


def convolved(
    x: np.ndarray,
    w: np.ndarray,
    pads: tuple[tuple[int, int], tuple[int, int]],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    groups: int,
) -> np.ndarray:
    """Exact convolution of NHWC input with OHWI filters."""
    x = np.pad(x.astype("float64"), ((0, 0), *pads, (0, 0)))
    out, height, width, depth = w.shape
    reach = [(size - 1) * dilation + 1 for size, dilation in zip((height, width), dilations, strict=True)]
    rows, columns = ((x.shape[1 + k] - reach[k]) // strides[k] + 1 for k in range(2))
    y = np.zeros((x.shape[0], rows, columns, out))
    per_group = out // groups
    for r in range(rows):
        for c in range(columns):
            top, left = r * strides[0], c * strides[1]
            patch = x[:, top : top + reach[0] : dilations[0], left : left + reach[1] : dilations[1]]
            for g in range(groups):
                part = patch[..., g * depth : (g + 1) * depth]
                kernels = w[g * per_group : (g + 1) * per_group].astype("float64")
                y[:, r, c, g * per_group : (g + 1) * per_group] = np.einsum("nhwi,ohwi->no", part, kernels)
    return y


class Form(NamedTuple):
    """How padding and strides are given: the padding operands, their meaning, and the strides of height and width."""

    name: str
    given: tuple[Any, ...]
    pads: tuple[tuple[int, int], tuple[int, int]] | int  # of rows and of columns, or the code of a scheme
    strides: tuple[int, int]

    @property
    def operands(self) -> tuple[Any, ...]:
        """Return the padding operands, then the strides of width and height."""
        return (*self.given, self.strides[1], self.strides[0])

    def __str__(self) -> str:
        return self.name


FORMS = [
    Form("explicit", (1, 0, 2, 1), ((2, 1), (1, 0)), (2, 1)),  # left, right, top, bottom
    Form("same", (1,), 1, (2, 3)),
    Form("valid", (2,), 2, (1, 1)),
]


def pads_for(
    pads: tuple[tuple[int, int], tuple[int, int]] | int,
    sizes: tuple[int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int] = (1, 1),
) -> tuple[tuple[int, int], tuple[int, int]]:
    if not isinstance(pads, int):
        return pads
    first, second = (padded_sizes(sizes[k], kernel[k], strides[k], dilations[k], pads) for k in range(2))
    return first, second


def layouts(x: np.ndarray, planes: bool) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if planes else x


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(
    ("more", "planes", "dilations"), [((), False, (1, 1)), ((True,), True, (1, 1)), ((False, 2, 1), False, (1, 2))]
)
def test_convolutions(
    context: pumice.Context,
    dtype: str,
    form: Form,
    more: tuple[Any, ...],
    planes: bool,
    dilations: tuple[int, int],
) -> None:
    x, w, b = quarters((2, 7, 9, 3), dtype), quarters((4, 3, 2, 3), dtype, 1), quarters((4,), dtype, 2)
    around = pads_for(form.pads, (7, 9), (3, 2), form.strides, dilations)
    expected = activated(convolved(x, w, around, form.strides, dilations, 1) + b.astype("float64"), 1).astype(dtype)
    y = run(context, "CONV_2D", layouts(x, planes), w, b, *form.operands, 1, *more)
    assert_near(y, layouts(expected, planes))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("multiplier", [1, 2])
def test_convolutions_of_each_channel(
    context: pumice.Context,
    dtype: str,
    form: Form,
    multiplier: int,
) -> None:
    x, w = quarters((2, 7, 9, 3), dtype), quarters((1, 3, 2, 3 * multiplier), dtype, 1)
    b = quarters((3 * multiplier,), dtype, 2)
    around = pads_for(form.pads, (7, 9), (3, 2), form.strides)
    expected = convolved(x, w.transpose(3, 1, 2, 0), around, form.strides, (1, 1), 3) + b.astype("float64")
    y = run(context, "DEPTHWISE_CONV_2D", x, w, b, *form.operands, multiplier, 0)
    assert_near(y, expected.astype(dtype))


@pytest.mark.parametrize("planes", [False, True])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_convolutions_of_groups(context: pumice.Context, form: Form, planes: bool) -> None:
    x, w, b = quarters((1, 7, 9, 4), "float32"), quarters((6, 3, 2, 2), "float32", 1), quarters((6,), "float32", 2)
    around = pads_for(form.pads, (7, 9), (3, 2), form.strides)
    expected = convolved(x, w, around, form.strides, (1, 1), 2) + b
    y = run(context, "GROUPED_CONV_2D", layouts(x, planes), w, b, *form.operands, 2, 0, planes)
    assert_near(y, layouts(expected.astype("float32"), planes))


@pytest.mark.parametrize("code", range(4))
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("channels", [3, 80])
def test_convolutions_of_integers_sum_exactly(context: pumice.Context, dtype: str, channels: int, code: int) -> None:
    x, w = random_quantized((1, 6, 5, channels), dtype, 0.125), random_quantized((4, 3, 3, channels), dtype, 0.0625, 1)
    bias = np.array([5, -700, 12345, 0], "int32")
    sums = convolved(centred(x), centred(w), ((1, 1), (1, 1)), (1, 1), (1, 1), 1) + bias
    scale = 2.0 ** np.ceil(np.log2(np.abs(sums).max() * 0.0078125 / 100)) if code == 0 else 0.0625
    y = run(context, "CONV_2D", x, w, bias, 1, 1, 1, code, scale=scale, zero_point=9)
    assert_near(y, requantized(sums, 0.0078125, scale, 9, dtype, code))


@pytest.mark.parametrize("dtype", BYTES)
def test_scales_of_channels(context: pumice.Context, dtype: str) -> None:
    x = random_quantized((1, 5, 5, 4), dtype, 0.125)
    scales = np.array([0.25, 0.5, 1, 0.0625], "float32")
    random = np.random.default_rng(1)
    whole, each = random.integers(-127, 128, (4, 3, 3, 4)), random.integers(-127, 128, (1, 3, 3, 4))
    bias = np.array([100, -100, 7, 0], "int32")
    for op, w, axis, more in (("CONV_2D", whole, 0, ()), ("DEPTHWISE_CONV_2D", each, 3, (1,))):
        graph = pumice.Graph()
        image = graph.input("x", dtype, list(x.array.shape), scale=x.scale, zero_point=x.zero_point)
        filters = graph.constant(w.astype("int8"), scale=scales.tolist(), channel_axis=axis)
        y = graph.add(f"nnapi::{op}", image, filters, bias, 2, 1, 1, *more, 0, scale=16.0, zero_point=40)
        graph.output("y", y)
        kernels = w if axis == 0 else w.transpose(3, 1, 2, 0)
        sums = convolved(centred(x), kernels, ((0, 0), (0, 0)), (1, 1), (1, 1), 1 if axis == 0 else 4) + bias
        made = graph.compile(context)({"x": x.array})["y"]
        assert_near(made, requantized(sums, scales * np.float32(x.scale), 16, 40, dtype))


def test_the_scale_of_a_bias_is_the_product_of_the_others(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x = graph.input("x", "uint8", [1, 2], scale=0.5, zero_point=3)
    w = graph.constant(np.ones((4, 2), "uint8"), scale=0.25)
    right, wrong = (graph.constant(np.ones(4, "int32"), scale=scale) for scale in (0.125, 0.25))
    graph.add("nnapi::FULLY_CONNECTED", x, w, right, 0, scale=1.0)
    with pytest.raises(pumice.GraphError, match=r"operand 2, 'bias': a scale of 0.125.* expected.*; given 0.25"):
        graph.add("nnapi::FULLY_CONNECTED", x, w, wrong, 0, scale=1.0)


def test_images_that_follow_each_other_are_not_turned_in_between(context: pumice.Context) -> None:
    graph = pumice.Graph()
    y = graph.input("x", "float32", [1, 8, 8, 4])
    for i in range(3):
        y = graph.add("nnapi::CONV_2D", y, quarters((4, 3, 3, 4), "float32", i), np.zeros(4, "float32"), 1, 1, 1, 1)
    graph.output("y", graph.add("nnapi::MAX_POOL_2D", y, 2, 2, 2, 2, 2, 0))
    program = graph.compile(context)
    program({"x": np.zeros((1, 8, 8, 4), "float32")})
    turned = [
        row for row in program.report() if row["op"] == "Transpose" and row["note"] not in ("folded", "not needed")
    ]
    assert len(turned) == 2  # one at each end of the model


# ---- pools, resizes, blocks


def pooled(x: np.ndarray, kernel: tuple[int, int], pads: Any, strides: tuple[int, int], function: Any) -> np.ndarray:
    """Pool NHWC windows; padding is NaN."""
    x = np.pad(x.astype("float64"), ((0, 0), *pads, (0, 0)), constant_values=np.nan)
    rows, columns = ((x.shape[1 + k] - kernel[k]) // strides[k] + 1 for k in range(2))
    y = np.zeros((x.shape[0], rows, columns, x.shape[3]))
    for r in range(rows):
        for c in range(columns):
            top, left = r * strides[0], c * strides[1]
            y[:, r, c] = function(x[:, top : top + kernel[0], left : left + kernel[1]])
    return y


POOLS = {
    "AVERAGE_POOL_2D": lambda w: np.nanmean(w, (1, 2)),
    "MAX_POOL_2D": lambda w: np.nanmax(w, (1, 2)),
    "L2_POOL_2D": lambda w: np.sqrt(np.nanmean(w * w, (1, 2))),
}


@pytest.mark.parametrize(
    ("op", "dtype"), [(op, dtype) for op in POOLS for dtype in (FLOATS if op == "L2_POOL_2D" else [*FLOATS, *BYTES])]
)
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("planes", [False, True])
def test_pools(
    context: pumice.Context,
    op: str,
    dtype: str,
    form: Form,
    planes: bool,
) -> None:
    x = random_quantized((2, 7, 9, 3), dtype).array if dtype in BYTES else quarters((2, 7, 9, 3), dtype)
    around = pads_for(form.pads, (7, 9), (3, 2), form.strides)
    expected = pooled(x, (3, 2), around, form.strides, POOLS[op])
    operand = layouts(x, planes)
    y = run(
        context,
        op,
        Quantized(operand, 0.5, 7) if dtype in BYTES else operand,
        *form.operands,
        2,
        3,
        0,
        planes,
    )
    expected = np.round(expected) if dtype in BYTES else expected
    assert_near(y, layouts(expected.astype(dtype), planes))


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("op", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_the_activation_of_a_pool_of_integers(context: pumice.Context, op: str, dtype: str) -> None:
    x = random_quantized((1, 6, 6, 2), dtype, 0.0625)
    expected = np.round(pooled(x.array, (2, 2), ((0, 0), (0, 0)), (2, 2), POOLS[op]))
    for code, (low, high) in enumerate([(-(2**9), 2**9), (0, 2**9), (-1, 1), (0, 6)]):
        bounds = [np.round(bound / x.scale) + x.zero_point for bound in (low, high)]
        y = run(context, op, x, 2, 2, 2, 2, 2, code)
        assert_near(y, np.clip(expected, *bounds).astype(dtype))


def resized(x: np.ndarray, sizes: tuple[int, int], linear: bool, corners: bool, half: bool) -> np.ndarray:
    """Resize NHWC, one axis at a time."""
    for axis, size in ((1, sizes[0]), (2, sizes[1])):
        given = x.shape[axis]
        step = (given - 1) / (size - 1) if corners and size > 1 else given / size
        at = (np.arange(size) + 0.5) * step - (0.5 if linear else 0) if half else np.arange(size) * step
        if not linear:
            places = np.floor(at + 0.5) if corners else np.floor(at)
            x = np.take(x, np.clip(places, 0, given - 1).astype(int), axis)
            continue
        at = np.clip(at, 0, given - 1)
        low = np.floor(at).astype(int)
        weight = (at - low).reshape([-1 if k == axis else 1 for k in range(4)])
        x = np.take(x, low, axis) * (1 - weight) + np.take(x, np.minimum(low + 1, given - 1), axis) * weight
    return x


@pytest.mark.parametrize("dtype", [*FLOATS, *BYTES])
@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize(("corners", "half"), [(False, False), (True, False), (False, True)])
def test_resizes(context: pumice.Context, dtype: str, linear: bool, corners: bool, half: bool) -> None:
    op = "RESIZE_BILINEAR" if linear else "RESIZE_NEAREST_NEIGHBOR"
    array = random_quantized((1, 4, 6, 2), dtype).array if dtype in BYTES else quarters((1, 4, 6, 2), dtype)
    x = Quantized(array, 0.5, 7) if dtype in BYTES else array
    for sizes, given in (((7, 9), (9, 7)), ((2, 3), (3, 2)), ((8, 9), (1.5, 2.0))):
        expected = resized(array.astype("float64"), sizes, linear, corners, half)
        y = run(context, op, x, *given, False, corners, half)
        if dtype in BYTES:
            assert np.abs(y.astype(int) - np.round(expected)).max() <= (1 if linear else 0)
        else:
            assert_near(y, expected.astype(dtype), ulp=8)


@pytest.mark.parametrize("dtype", [*FLOATS, *BYTES])
@pytest.mark.parametrize("planes", [False, True])
def test_blocks(context: pumice.Context, dtype: str, planes: bool) -> None:
    array = np.arange(2 * 3 * 2 * 8).reshape(2, 3, 2, 8).astype(dtype)
    wide = array.reshape(2, 3, 2, 2, 2, 2).transpose(0, 1, 3, 2, 4, 5).reshape(2, 6, 4, 2)
    for op, x, expected in (("DEPTH_TO_SPACE", array, wide), ("SPACE_TO_DEPTH", wide, array)):
        operand = layouts(np.ascontiguousarray(x), planes)
        y = run(context, op, Quantized(operand, 0.5, 7) if dtype in BYTES else operand, 2, planes)
        assert_near(y, layouts(expected, planes))


@pytest.mark.parametrize("dtype", [*FLOATS, *BYTES])
@pytest.mark.parametrize("planes", [False, True])
def test_blocks_of_batches(context: pumice.Context, dtype: str, planes: bool) -> None:
    array = (np.arange(12 * 2 * 3 * 2) % 100).reshape(12, 2, 3, 2).astype(dtype)
    wide = array.reshape(2, 3, 2, 2, 3, 2).transpose(2, 3, 0, 4, 1, 5).reshape(2, 4, 9, 2)

    def operand(x: np.ndarray) -> Any:
        x = layouts(np.ascontiguousarray(x), planes)
        return Quantized(x, 0.5, 7) if dtype in BYTES else x

    assert_near(run(context, "BATCH_TO_SPACE_ND", operand(array), [2, 3], planes), layouts(wide, planes))
    assert_near(
        run(context, "SPACE_TO_BATCH_ND", operand(wide), [2, 3], [[0, 0], [0, 0]], planes), layouts(array, planes)
    )
    small, zero = wide[:, 1:, :8], 7 if dtype in BYTES else 0
    padded = np.pad(small, ((0, 0), (1, 0), (0, 1), (0, 0)), constant_values=zero)
    expected = padded.reshape(2, 2, 2, 3, 3, 2).transpose(2, 4, 0, 1, 3, 5).reshape(12, 2, 3, 2)
    y = run(context, "SPACE_TO_BATCH_ND", operand(small), [2, 3], [[1, 0], [0, 1]], planes)
    assert_near(y, layouts(np.ascontiguousarray(expected), planes))


@pytest.mark.parametrize("dtype", [*FLOATS, *BYTES])
def test_channels_are_shuffled(context: pumice.Context, dtype: str) -> None:
    array = np.arange(2 * 6 * 5).reshape(2, 6, 5).astype(dtype)
    x = Quantized(array, 0.5, 7) if dtype in BYTES else array
    expected = array.reshape(2, 2, 3, 5).swapaxes(1, 2).reshape(2, 6, 5)
    assert_near(run(context, "CHANNEL_SHUFFLE", x, 2, 1), expected)
    assert_near(run(context, "CHANNEL_SHUFFLE", x, 5, -1), array)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("planes", [False, True])
def test_normalizations_of_images(context: pumice.Context, dtype: str, planes: bool) -> None:
    x = quarters((2, 4, 5, 3), dtype)
    wide = x.astype("float64")
    deviation = np.sqrt(wide.var((1, 2), keepdims=True) + 0.25)
    expected = ((wide - wide.mean((1, 2), keepdims=True)) / deviation * 1.5 + 0.5).astype(dtype)
    y = run(context, "INSTANCE_NORMALIZATION", layouts(x, planes), 1.5, 0.5, 0.25, planes)
    assert_near(y, layouts(expected, planes), ulp=8)
    squares = np.pad(wide * wide, ((0, 0), (0, 0), (0, 0), (1, 1)))
    sums = squares[..., :-2] + squares[..., 1:-1] + squares[..., 2:]
    expected = (wide / np.sqrt(2 + 0.5 * sums)).astype(dtype)
    y = run(context, "LOCAL_RESPONSE_NORMALIZATION", layouts(x, planes), 1, 2.0, 0.5, 0.5, *([1] if planes else []))
    assert_near(y, layouts(expected, planes), ulp=8)


def test_a_quantized_network_is_near_its_reals(context: pumice.Context) -> None:
    """A convolution, a depthwise one, a pool, a classifier and a softmax in uint8, against the same in float64."""
    random = np.random.default_rng(4)
    scales = {"x": 1 / 128, "w": 0.01, "d": 0.02, "f": 0.005}
    image = random.integers(0, 256, (1, 12, 12, 3)).astype("uint8")
    w, d = random.integers(0, 256, (8, 3, 3, 3)).astype("uint8"), random.integers(0, 256, (1, 3, 3, 8)).astype("uint8")
    f = random.integers(0, 256, (5, 8)).astype("uint8")
    graph = pumice.Graph()
    x = graph.input("x", "uint8", [None, 12, 12, 3], scale=scales["x"], zero_point=128)
    filters = {
        name: graph.constant(array, scale=scales[name], zero_point=128)
        for name, array in (("w", w), ("d", d), ("f", f))
    }
    zeros = [np.zeros(n, "int32") for n in (8, 8, 5)]
    y = graph.add("nnapi::CONV_2D", x, filters["w"], zeros[0], 1, 2, 2, 3, scale=6 / 255, zero_point=0)
    y = graph.add("nnapi::DEPTHWISE_CONV_2D", y, filters["d"], zeros[1], 1, 1, 1, 1, 1, scale=0.1, zero_point=0)
    y = graph.add("nnapi::AVERAGE_POOL_2D", y, 2, 1, 1, 6, 6, 0)
    y = graph.add("nnapi::FULLY_CONNECTED", y, filters["f"], zeros[2], 0, scale=0.1, zero_point=128)
    graph.output("y", graph.add("nnapi::SOFTMAX", y, 1.0))
    made = graph.compile(context)({"x": image})["y"]

    def real(array: np.ndarray, name: str) -> np.ndarray:
        return (array.astype("float64") - 128) * scales[name]

    z = np.clip(convolved(real(image, "x"), real(w, "w"), ((0, 1), (0, 1)), (2, 2), (1, 1), 1), 0, 6)
    z = np.maximum(convolved(z, real(d, "d").transpose(3, 1, 2, 0), ((1, 1), (1, 1)), (1, 1), (1, 1), 8), 0)
    z = z.mean((1, 2)) @ real(f, "f").T
    z = np.exp(z - z.max())
    assert made.shape == (1, 5)
    np.testing.assert_allclose(made / 256, z / z.sum(), atol=0.03)
