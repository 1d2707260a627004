"""Pooling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cases.rows import EXACT, Case, Given, case, fixed, given, x


def windows() -> Iterator[Case]:
    yield case("MaxPool", "3x3, stride 2", x(1, 5, 11, 13), kernel_shape=[3, 3], strides=[2, 2], **EXACT)
    yield case("MaxPool", "channels in fours, batch 3", x(3, 8, 7, 7), kernel_shape=[2, 2], strides=[2, 2], **EXACT)
    yield case(
        "MaxPool",
        "padded, rounded up",
        x(1, 3, 8, 9),
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        ceil_mode=1,
        **EXACT,
    )
    yield case("MaxPool", "dilated", x(1, 3, 12, 12), kernel_shape=[3, 2], dilations=[2, 3], **EXACT)
    yield case(
        "MaxPool",
        "all negative, padded",
        x(1, 2, 5, 5, low=-2, high=-1),
        kernel_shape=[3, 3],
        pads=[1, 1, 1, 1],
        **EXACT,
    )
    yield case("MaxPool", "one axis", x(2, 3, 17), kernel_shape=[3], strides=[2], **EXACT)
    yield case(
        "MaxPool", "SAME_UPPER", x(1, 3, 10, 11), kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER", **EXACT
    )
    yield case("AveragePool", "3x3", x(1, 5, 11, 13), kernel_shape=[3, 3])
    yield case(
        "AveragePool",
        "padding counts",
        x(2, 3, 7, 7),
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        count_include_pad=1,
    )
    yield case(
        "AveragePool", "padding does not count", x(2, 3, 7, 7), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    )
    yield case("AveragePool", "rounded up", x(1, 4, 8, 8), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    yield case("AveragePool", "the whole plane", x(1, 40, 13, 13), kernel_shape=[13, 13], strides=[13, 13])
    yield case("AveragePool", "one axis", x(2, 3, 17), kernel_shape=[4], strides=[2])
    for order in (0, 1):
        options = {"storage_order": order, "outputs": 2, **EXACT}
        yield case("MaxPool", f"indices, order {order}", x(2, 3, 7, 9), kernel_shape=[3, 2], strides=[2, 1], **options)
    yield case("MaxPool", "indices, padded", x(1, 8, 6, 8), kernel_shape=[3, 3], pads=[1, 1, 1, 1], outputs=2, **EXACT)
    yield case("MaxPool", "indices, one axis", x(2, 3, 17), kernel_shape=[3], strides=[2], outputs=2, **EXACT)
    volume = x(2, 3, 7, 6, 9)
    pool = {"kernel_shape": [3, 2, 3], "strides": [2, 1, 2], "pads": [1, 0, 1, 1, 1, 0]}
    yield case("MaxPool", "three axes", volume, **pool, **EXACT)
    yield case("MaxPool", "three axes, dilated", volume, kernel_shape=[2, 2, 2], dilations=[2, 1, 3], **EXACT)
    for dtype in ("uint8", "int8"):
        low = 0 if dtype == "uint8" else -128
        yield case("MaxPool", dtype, x(1, 3, 7, 9, dtype=dtype, low=low, high=127), kernel_shape=[3, 3], strides=[2, 2])
    for counted in (0, 1):
        yield case("AveragePool", f"three axes, count_include_pad={counted}", volume, **pool, count_include_pad=counted)
    yield case(
        "AveragePool",
        "three axes, rounded up",
        x(1, 2, 6, 6, 6),
        kernel_shape=[3, 3, 3],
        strides=[2, 2, 2],
        ceil_mode=1,
    )
    yield case("AveragePool", "dilated", x(1, 3, 9, 9), kernel_shape=[2, 3], dilations=[3, 2])
    loose = {"fp32": (1e-5, 1e-5), "fp16": (2e-3, 4e-3)}
    for p in (1, 2, 3):
        yield case("LpPool", f"p {p}", x(2, 3, 7, 9), kernel_shape=[3, 2], strides=[2, 1], p=p, **loose)
        yield case("GlobalLpPool", f"p {p}", x(2, 3, 7, 5), p=p, **loose)
    yield case("LpPool", "one axis, padded", x(2, 3, 17), kernel_shape=[4], pads=[1, 2], **loose)
    yield case("GlobalAveragePool", "batch 3", x(3, 7, 13, 11))
    yield case("GlobalAveragePool", "one axis", x(2, 5, 101))
    yield case("GlobalAveragePool", "one element", x(1, 1, 1, 1))
    yield case("GlobalAveragePool", "a large plane", x(1, 2, 127, 131))
    yield case("GlobalMaxPool", "batch 3", x(3, 7, 13, 11), **EXACT)
    yield case("GlobalMaxPool", "NaN stays", given([[[1.0, np.nan, 2.0]], [[3.0, 4.0, -np.inf]]]), **EXACT)


def unpoolings() -> Iterator[Case]:
    def unpool(note: str, data: Given, pooled: int, *sizes: Given, **options: Any) -> Case:
        """A MaxUnpool with distinct indices into a tensor of `pooled` elements."""
        places = np.random.default_rng(pooled).permutation(pooled)[: np.prod(data.shape, dtype=int)]
        return case("MaxUnpool", note, data, given(places.reshape(data.shape), "int64"), *sizes, **options, **EXACT)

    halved = {"kernel_shape": [2, 2], "strides": [2, 2]}
    yield unpool("2x2", x(1, 1, 2, 2), 16, **halved)
    yield unpool("channels and images", x(2, 3, 5, 7), 2 * 3 * 10 * 14, **halved)
    yield unpool("3x3 of stride 1, padded", x(1, 5, 7, 3), 5 * 7 * 3, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    yield unpool("one axis", x(2, 3, 7), 2 * 3 * 15, kernel_shape=[3], strides=[2])
    yield unpool("three axes", x(1, 2, 3, 2, 2), 2 * 6 * 4 * 4, kernel_shape=[2, 2, 2], strides=[2, 2, 2])
    yield unpool("into a larger output", x(1, 3, 2, 3), 3 * 4 * 6, fixed([1, 3, 5, 9]), **halved)
    yield unpool("the size that it would have", x(1, 3, 2, 3), 3 * 4 * 6, fixed([1, 3, 4, 6]), **halved)
    yield unpool("no images", x(0, 3, 2, 3), 1, **halved)
