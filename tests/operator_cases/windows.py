"""Pooling."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from operator_cases.rows import EXACT, Case, case, given, x


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
    yield case("GlobalAveragePool", "batch 3", x(3, 7, 13, 11))
    yield case("GlobalAveragePool", "one axis", x(2, 5, 101))
    yield case("GlobalAveragePool", "one element", x(1, 1, 1, 1))
    yield case("GlobalAveragePool", "a large plane", x(1, 2, 127, 131))
    yield case("GlobalMaxPool", "batch 3", x(3, 7, 13, 11), **EXACT)
    yield case("GlobalMaxPool", "NaN stays", given([[[1.0, np.nan, 2.0]], [[3.0, 4.0, -np.inf]]]), **EXACT)
