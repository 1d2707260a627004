"""Regions of interest and blocks of images."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from cases.rows import Array, Case, case, fixed, given, w, x

BOXES = [[0, 0, 9, 9], [0, 5, 4, 9], [5.25, 5.5, 5.5, 6], [-3, 2, 20, 7.25], [8, 8, 2, 3]]


def regions() -> Iterator[Case]:
    boxes, images = given(BOXES), fixed([0, 1, 1, 0, 1])
    for mode in ("avg", "max"):
        for corner in ("half_pixel", "output_half_pixel"):
            cells = {"output_height": 5, "output_width": 3, "coordinate_transformation_mode": corner, "mode": mode}
            yield case("RoiAlign", f"{mode}, {corner}", x(2, 3, 10, 13), boxes, images, sampling_ratio=2, **cells)
            scaled = {"spatial_scale": 0.5, **cells}
            yield case("RoiAlign", f"{mode}, {corner}, as many as needed", x(2, 3, 10, 13), boxes, images, **scaled)
    yield case("RoiAlign", "no regions", x(2, 3, 10, 13), x(0, 4), w(0, dtype="int64"))
    numbered = given([[i % 2, *box] for i, box in enumerate(BOXES)])
    yield case("MaxRoiPool", "cells", x(2, 3, 10, 13), numbered, pooled_shape=[3, 2])
    yield case("MaxRoiPool", "a scale", x(2, 3, 10, 13), numbered, pooled_shape=[4, 5], spatial_scale=0.75)


def rounded(v: float) -> int:
    """Round half away from zero."""
    return int(math.copysign(math.floor(abs(v) + 0.5), v))


def pooled_regions(image: Array, rois: Array, pooled_shape: list[int], spatial_scale: float = 1.0) -> Array:
    """MaxRoiPool, which onnx's reference lacks."""
    y = np.zeros((len(rois), image.shape[1], *pooled_shape), image.dtype)
    for i, (number, *box) in enumerate(rois):
        left, top, right, bottom = (rounded(float(v) * spatial_scale) for v in box)
        for index in np.ndindex(*pooled_shape):
            spans = []
            for axis, first, last in ((0, top, bottom), (1, left, right)):
                each = np.float32(max(last - first + 1, 1)) / np.float32(pooled_shape[axis])
                ends = math.floor(index[axis] * each) + first, math.ceil((index[axis] + 1) * each) + first
                spans.append(slice(*np.clip(ends, 0, image.shape[2 + axis])))
            cell: Any = image[int(number)][:, spans[0], spans[1]]
            y[(i, slice(None), *index)] = cell.max((1, 2)) if cell.size else 0
    return y


REFERENCES = {"MaxRoiPool": pooled_regions}


def blocks() -> Iterator[Case]:
    yield case("Col2Im", "apart", x(2, 15, 5), fixed([5, 5]), fixed([1, 5]))
    yield case("Col2Im", "overlapping", x(2, 3 * 9, 35), fixed([7, 9]), fixed([3, 3]))
    padded = {"pads": [1, 0, 1, 2], "strides": [2, 3], "dilations": [1, 2]}
    yield case("Col2Im", "padded, dilated, with strides", x(1, 2 * 6, 4 * 4), fixed([8, 11]), fixed([3, 2]), **padded)
    yield case("Col2Im", "one axis", x(2, 3 * 4, 6), fixed([9]), fixed([4]))
    yield case("Col2Im", "three axes", x(1, 2 * 12, 2 * 2 * 4), fixed([3, 4, 5]), fixed([2, 3, 2]))


def bits() -> Iterator[Case]:
    for dtype, to in (("int32", 12), ("int64", 13), ("uint8", 3), ("int16", 4), ("int32", 6)):
        yield case(
            "BitCast", f"{dtype} as ONNX's {to}", x(3, 5, 7, dtype=dtype, low=-9 if dtype[0] == "i" else 0), to=to
        )
    yield case("BitCast", "float64 as int64", x(3, 5, dtype="float64"), to=7)
