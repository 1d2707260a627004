"""MatMulInteger, ConvInteger, QLinearMatMul, QLinearConv and DynamicQuantizeLinear, with models of them in 64-bit integers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cases.rows import Array, Case, Given, case, fixed, given, w, x

LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}
SIGNS = ("int8", "uint8")


def bytes_of(make: Any, dtype: str, *shape: int) -> Given:
    """Return an input over the whole range of the type."""
    low, high = LIMITS[dtype]
    return make(*shape, dtype=dtype, low=low, high=high)


def scales(make: Any, *shape: int) -> Given:
    return make(*shape, low=0.03125, high=1.0)


def lowest(dtype: str, *shape: int) -> Given:
    return given(np.full(shape, LIMITS[dtype][0]), dtype)


def matmuls() -> Iterator[Case]:
    for a in SIGNS:
        for b in SIGNS:
            both = f"{a} by {b}"
            data, weights = bytes_of(x, a, 13, 37), bytes_of(w, b, 37, 19)
            yield case("MatMulInteger", f"{both}, no zero points", data, weights)
            yield case("MatMulInteger", f"{both}, zero points", data, weights, fixed(5, a), fixed(7, b))
            rows, columns = bytes_of(x, a, 13), bytes_of(w, b, 19)
            yield case("MatMulInteger", f"{both}, by row and by column", data, weights, rows, columns)
    a, b = SIGNS
    yield case("MatMulInteger", "extremes", lowest(a, 5, 1031), lowest(a, 1031, 3))
    yield case(
        "MatMulInteger", "extremes of zero points", lowest(a, 5, 131), lowest(a, 131, 3), fixed(127, a), fixed(127, a)
    )
    yield case(
        "MatMulInteger", "past a tile, weights given at the call", bytes_of(x, b, 67, 65), bytes_of(x, a, 65, 66)
    )
    yield case("MatMulInteger", "channels in fours", bytes_of(x, b, 65, 64), bytes_of(w, a, 64, 72), fixed(128, b))
    yield case(
        "MatMulInteger",
        "many tiles",
        bytes_of(x, b, 1030, 72),
        bytes_of(w, a, 72, 260),
        fixed(9, b),
        bytes_of(w, a, 260),
    )
    yield case(
        "MatMulInteger", "known zeros", bytes_of(x, b, 5, 7), bytes_of(w, a, 7, 3), fixed(0, b), fixed([0, 0, 0], a)
    )
    yield case("MatMulInteger", "vectors", bytes_of(x, b, 31), bytes_of(x, a, 31), fixed(3, b), fixed([5], a))
    yield case(
        "MatMulInteger",
        "vector and batch",
        bytes_of(x, b, 7),
        bytes_of(x, a, 3, 7, 4),
        fixed([3], b),
        bytes_of(x, a, 4),
    )
    yield case("MatMulInteger", "batch and vector", bytes_of(x, b, 2, 3, 7), bytes_of(w, a, 7), bytes_of(x, b, 3))
    batches = bytes_of(x, b, 2, 1, 5, 7), bytes_of(x, a, 3, 7, 4)
    yield case("MatMulInteger", "batches", *batches, fixed(3, b), bytes_of(w, a, 4))
    yield case(
        "MatMulInteger", "zero points of every matrix", *batches, bytes_of(x, b, 2, 1, 5, 1), bytes_of(x, a, 3, 1, 4)
    )
    yield case("MatMulInteger", "zero points of rows of a batch", *batches, bytes_of(x, b, 5, 1), bytes_of(x, a, 1, 4))
    one = bytes_of(x, b, 2, 3, 5, 8), bytes_of(w, a, 8, 12)
    yield case("MatMulInteger", "a batch and one matrix", *one, bytes_of(x, b, 2, 3, 5, 1), bytes_of(w, a, 12))
    yield case("MatMulInteger", "a batch and one matrix, the same rows", *one, bytes_of(x, b, 5))
    yield case("MatMulInteger", "one element", bytes_of(x, b, 1, 1), bytes_of(x, a, 1, 1))
    yield case("MatMulInteger", "an empty sum", bytes_of(x, b, 3, 0), bytes_of(x, a, 0, 4), fixed(3, b), fixed(4, a))
    yield case(
        "MatMulInteger",
        "odd and large",
        bytes_of(x, b, 131, 1031),
        bytes_of(w, b, 1031, 67),
        bytes_of(x, b, 131),
        fixed(200, b),
    )
    tall = bytes_of(x, b, 2, 19, 80), bytes_of(w, a, 80, 36)
    yield case("MatMulInteger", "rows of a batch, large", *tall, bytes_of(x, b, 19, 1), bytes_of(w, a, 36))
    yield case("MatMulInteger", "few rows", bytes_of(x, a, 3, 2, 192), bytes_of(w, a, 192, 132))
    yield case("MatMulInteger", "no rows, large", bytes_of(x, b, 0, 65), bytes_of(w, a, 65, 40), bytes_of(x, b, 0))
    yield case("MatMulInteger", "no rows", bytes_of(x, b, 0, 5), bytes_of(w, a, 5, 4), bytes_of(x, b, 0))


def convolutions() -> Iterator[Case]:
    def conv(note: str, *inputs: Given | None, **options: Any) -> Case:
        return case("ConvInteger", note, *inputs, **options)

    for a in SIGNS:
        for b in SIGNS:
            data, weights = bytes_of(x, a, 2, 5, 7, 11), bytes_of(w, b, 13, 5, 3, 3)
            zeros = fixed(77, a), bytes_of(w, b, 13)
            yield conv(f"{a} by {b}", data, weights, pads=[1, 1, 1, 1])
            yield conv(f"{a} by {b}, zero points", data, weights, *zeros, pads=[1, 2, 0, 1], strides=[2, 1])
    a, b = SIGNS
    yield conv("extremes", lowest(a, 1, 131, 5, 5), lowest(a, 3, 131, 3, 3), fixed(127, a), fixed(127, a))
    yield conv(
        "two groups, dilated",
        bytes_of(x, b, 1, 6, 9, 8),
        bytes_of(w, a, 10, 3, 3, 2),
        fixed(3, b),
        bytes_of(w, a, 10),
        group=2,
        dilations=[2, 3],
    )
    yield conv("depthwise", bytes_of(x, b, 1, 7, 9, 8), bytes_of(w, a, 7, 1, 3, 3), fixed(3, b), group=7)
    yield conv("many pixels", bytes_of(x, b, 1, 16, 37, 41), bytes_of(w, a, 67, 16, 1, 1), fixed(3, b), fixed(9, a))
    yield conv(
        "weights given at the call", bytes_of(x, b, 1, 3, 5, 7), bytes_of(x, a, 4, 3, 2, 2), None, bytes_of(x, a, 4)
    )
    yield conv("one axis", bytes_of(x, b, 2, 3, 31), bytes_of(w, a, 4, 3, 5), fixed(3, b), pads=[2, 2], strides=[2])
    yield conv(
        "three axes",
        bytes_of(x, b, 1, 4, 5, 6, 7),
        bytes_of(w, a, 6, 2, 2, 3, 2),
        fixed(3, b),
        bytes_of(w, a, 6),
        group=2,
        pads=[1, 1, 0, 0, 1, 1],
    )
    yield conv(
        "SAME_UPPER",
        bytes_of(x, b, 1, 3, 10, 11),
        bytes_of(w, a, 4, 3, 3, 4),
        fixed(3, b),
        auto_pad="SAME_UPPER",
        strides=[2, 2],
    )
    yield conv("no images", bytes_of(x, b, 0, 3, 8, 8), bytes_of(w, a, 4, 3, 3, 3))


def requantized() -> Iterator[Case]:
    for a in SIGNS:
        for b in SIGNS:
            for y in SIGNS:
                data, weights = bytes_of(x, a, 13, 37), bytes_of(w, b, 37, 19)
                first = data, fixed(0.5, "float32"), fixed(5, a), weights
                last = fixed(64.0, "float32"), fixed(3, y)
                yield case("QLinearMatMul", f"{a} by {b} to {y}", *first, fixed(0.25, "float32"), fixed(7, b), *last)
    a, b = SIGNS
    by_row = bytes_of(x, b, 13, 37), scales(x, 13), bytes_of(x, b, 13)
    by_column = bytes_of(w, a, 37, 19), scales(w, 19), bytes_of(w, a, 19)
    yield case("QLinearMatMul", "by row and by column", *by_row, *by_column, fixed(32.0, "float32"), fixed(3, b))
    yield case(
        "QLinearMatMul",
        "results by row",
        *by_row,
        *by_column,
        fixed([8.0] * 6 + [64.0] * 7, "float32"),
        bytes_of(w, b, 13),
    )
    batch = bytes_of(x, b, 2, 1, 5, 7), scales(x, 2, 1, 5, 1), bytes_of(x, b, 2, 1, 5, 1)
    other = bytes_of(x, a, 3, 7, 4), scales(x, 3, 1, 4), bytes_of(x, a, 3, 1, 4)
    yield case("QLinearMatMul", "every matrix", *batch, *other, fixed(16.0, "float32"), fixed(100, b))
    ones = fixed(1.0, "float32"), fixed(0, a)
    halves = given([[1], [3], [5], [-1], [-3], [127]], "int8"), *ones, given([[1]], "int8")
    yield case(
        "QLinearMatMul", "halves to even, then the zero point", *halves, *ones, fixed(2.0, "float32"), fixed(1, a)
    )
    yield case(
        "QLinearMatMul",
        "vectors",
        bytes_of(x, a, 31),
        *ones,
        bytes_of(x, a, 31),
        *ones,
        fixed(512.0, "float32"),
        fixed(0, a),
    )
    yield case("QLinearMatMul", "nothing", bytes_of(x, a, 0, 3), *ones, bytes_of(w, a, 3, 5), *ones, *ones)

    def conv(note: str, *inputs: Given | None, **options: Any) -> Case:
        return case("QLinearConv", note, *inputs, **options)

    for a in SIGNS:
        for b in SIGNS:
            first = bytes_of(x, a, 1, 5, 7, 11), fixed(0.25, "float32"), fixed(9, a)
            last = bytes_of(w, b, 13, 5, 3, 3), scales(w, 13), bytes_of(w, b, 13), fixed(32.0, "float32"), fixed(4, b)
            yield conv(f"{a} by {b}", *first, *last, pads=[1, 1, 1, 1])
    bias = w(6, dtype="int32", low=-99999, high=99999)
    first = bytes_of(x, b, 2, 4, 7, 5), fixed(0.25, "float32"), fixed(128, b)
    last = bytes_of(w, a, 6, 2, 3, 3), fixed(0.5, "float32"), fixed(0, a), fixed(128.0, "float32"), fixed(130, b)
    yield conv("bias, groups, strides", *first, *last, bias, group=2, strides=[2, 2])
    first = bytes_of(x, b, 1, 4, 3, 5, 4), *first[1:]
    last = bytes_of(w, a, 6, 2, 2, 2, 2), *last[1:]
    yield conv("three axes, bias", *first, *last, bias, group=2)


def dynamic() -> Iterator[Case]:
    def quantize(note: str, data: Given) -> Case:
        return case("DynamicQuantizeLinear", note, data, outputs=3)

    yield quantize("both signs", given([[-1.5, 0.0, 2.25], [0.75, 3.6, -0.3]]))
    yield quantize("positive", x(3, 37, low=1.0, high=2.0))
    yield quantize("negative", x(67, low=-2.0, high=-1.0))
    yield quantize("all zero", given([0.0] * 7))
    yield quantize("one element", given(1.5))
    yield quantize("many", x(3, 1031))
    yield quantize("halves to even", given([0.0, 255.0, 0.5, 1.5, 2.5, 253.5]))


def quantity(numbers: Array | None, columns: bool, axis: int | None = None) -> Array | int:
    """Return a zero point or scale of matrix rows or columns, or of channels (`axis`), in a broadcastable shape."""
    if numbers is None:
        return 0
    wide = numbers.astype("int64" if numbers.dtype.kind in "iu" else "float32")
    if numbers.size == 1:
        return wide.reshape(())
    if axis is not None:
        return wide.reshape(-1, *[1] * axis)
    return wide[:, None] if numbers.ndim == 1 and not columns else wide


def matmul_integer(a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None) -> Array:
    """MatMulInteger. The axes of vectors are removed only at the end, because a row's zero point needs the row axis."""
    left, right = np.atleast_2d(a.astype("int64")), b.astype("int64")
    if right.ndim == 1:
        right = right[:, None]
    wide = np.matmul(left - quantity(a_zero, False), right - quantity(b_zero, True))
    if b.ndim == 1:
        wide = wide[..., 0]
    return (wide if a.ndim > 1 else wide[..., 0] if b.ndim == 1 else wide[..., 0, :]).astype("int32")


def padding(
    x: Array, taps: tuple[int, ...], strides: list[int], dilations: list[int], auto_pad: str, pads: list[int] | None
) -> list[tuple[int, int]]:
    if auto_pad == "NOTSET":
        given_pads = pads or [0] * 2 * len(taps)
        return list(zip(given_pads[: len(taps)], given_pads[len(taps) :], strict=True))
    assert auto_pad == "SAME_UPPER"
    totals = [
        max((-(-size // step) - 1) * step + (tap - 1) * dilation + 1 - size, 0)
        for size, tap, step, dilation in zip(x.shape[2:], taps, strides, dilations, strict=True)
    ]
    return [(total // 2, total - total // 2) for total in totals]


def conv_integer(
    x: Array,
    weights: Array,
    x_zero: Array | None = None,
    w_zero: Array | None = None,
    *,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
) -> Array:
    """A sum over filter taps of strided images times weights."""
    taps, axes = weights.shape[2:], weights.ndim - 2
    steps, spread = strides or [1] * axes, dilations or [1] * axes
    around = padding(x, taps, steps, spread, auto_pad, pads)
    images = np.pad(x.astype("int64") - quantity(x_zero, False), [(0, 0), (0, 0), *around])
    kernel = weights.astype("int64") - quantity(w_zero, False, axes + 1)
    sizes = [
        (size - (tap - 1) * dilation - 1) // step + 1
        for size, tap, dilation, step in zip(images.shape[2:], taps, spread, steps, strict=True)
    ]
    results = []
    for part, own in zip(np.split(images, group, 1), np.split(kernel, group), strict=True):
        total = np.zeros((x.shape[0], own.shape[0], *sizes), "int64")
        for tap in np.ndindex(*taps):
            where = [
                slice(at * dilation, at * dilation + (size - 1) * step + 1, step)
                for at, dilation, size, step in zip(tap, spread, sizes, steps, strict=True)
            ]
            total += np.einsum("nc...,oc->no...", part[(slice(None), slice(None), *where)], own[(..., *tap)])
        results.append(total)
    return np.concatenate(results, 1).astype("int32")


def brought_back(sums: Array, factor: Array, y_zero: Array, by: Array | int) -> Array:
    limits = np.iinfo(y_zero.dtype)
    rounded = np.rint(sums.astype("float32") * np.float32(factor))
    return np.clip(rounded.astype("int64") + by, limits.min, limits.max).astype(y_zero.dtype)


def qlinear_matmul(
    a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array, y_scale: Array, y_zero: Array
) -> Array:
    factor = quantity(a_scale, False) * quantity(b_scale, True) / quantity(y_scale, False)
    return brought_back(matmul_integer(a, b, a_zero, b_zero), factor, y_zero, quantity(y_zero, False))


def qlinear_conv(
    x: Array,
    x_scale: Array,
    x_zero: Array,
    weights: Array,
    w_scale: Array,
    w_zero: Array,
    y_scale: Array,
    y_zero: Array,
    bias: Array | None = None,
    **attributes: Any,
) -> Array:
    sums = conv_integer(x, weights, x_zero, w_zero, **attributes)
    axes = weights.ndim - 2
    if bias is not None:
        sums = sums + bias.reshape(-1, *[1] * axes)
    factor = x_scale * quantity(w_scale, False, axes) / y_scale
    return brought_back(sums, factor, y_zero, y_zero.astype("int64"))


REFERENCES = {
    "MatMulInteger": matmul_integer,
    "ConvInteger": conv_integer,
    "QLinearMatMul": qlinear_matmul,
    "QLinearConv": qlinear_conv,
}
