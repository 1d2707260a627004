"""Operators that create tensors from a shape, or keep or rotate parts of one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cases.gather_scatter import BYTES, LONG, moved
from cases.rows import Array, Case, fixed, given, w, x


def fills() -> Iterator[Case]:
    yield moved("ConstantOfShape", "zeros, made on the device", fixed([71, 67]))
    yield moved("ConstantOfShape", "a value", fixed([67, 71]), value=np.array([-1.5], "float32"))
    yield moved("ConstantOfShape", "64-bit integers", fixed([5001]), value=np.array([-7], "int64"))
    yield moved("ConstantOfShape", "booleans", fixed([3, 1669]), value=np.array([True]))
    yield moved("ConstantOfShape", "a few, made on the host", fixed([2, 3]), value=np.array([5], "int32"))
    yield moved("ConstantOfShape", "rank 0", w(0, dtype="int64"), value=np.array([5], "int64"))
    yield moved("EyeLike", "a matrix", x(5, 7))
    yield moved("EyeLike", "above the diagonal, as bytes", x(5, 7), k=2, dtype=2)
    yield moved("EyeLike", "below the diagonal, as 64-bit integers", x(7, 3, **BYTES), k=-3, dtype=7)
    yield moved("OneHot", "the last axis", x(7, dtype="int64", low=-5, high=4), fixed(5), fixed([0.5, 2.0], "float32"))
    yield moved(
        "OneHot",
        "the first axis, out of range",
        given([[0, 4, -1], [-5, 2, 1]], "int32"),
        fixed([5]),
        fixed([0, 1], "uint8"),
        axis=0,
    )
    yield moved(
        "OneHot",
        "the middle axis, values given at the call",
        x(2, 3, dtype="int64", low=0, high=3),
        fixed(4),
        given([-7, 9], "int64"),
        axis=1,
    )
    yield moved("Trilu", "upper", x(5, 7))
    yield moved("Trilu", "lower from above the diagonal", x(2, 5, 7), fixed(1), upper=0)
    yield moved("Trilu", "bytes, from below the diagonal", x(3, 7, 5, **BYTES), fixed([-2]))
    yield moved("Trilu", "64-bit integers", x(5, 5, **LONG), fixed(0), upper=0)
    yield moved("Trilu", "nothing is left", x(3, 5), fixed(9))
    yield moved("Trilu", "booleans", x(37, 37, dtype="bool"), upper=0)
    yield moved("ReverseSequence", "time first", x(4, 3), fixed([4, 1, 3]))
    yield moved("ReverseSequence", "batches first", x(3, 5, 2), given([5, 2, 1], "int64"), batch_axis=0, time_axis=1)
    yield moved("ReverseSequence", "bytes", x(5, 3, **BYTES), fixed([0, 5, 2]))


def tiles() -> Iterator[Case]:
    yield moved("Tile", "two axes", x(3, 5), fixed([2, 3]))
    yield moved("Tile", "bytes", x(3, 5, **BYTES), fixed([3, 5]))
    yield moved("Tile", "64-bit integers", x(2, 3, 1, **LONG), fixed([1, 2, 7]))
    yield moved("Tile", "booleans, not at all", x(7, dtype="bool"), fixed([1]))
    yield moved("Tile", "no repeats", x(3, 5), fixed([2, 0]))
    yield moved("Tile", "an empty axis", x(3, 0), fixed([2, 3]))
    yield moved("Tile", "eight axes", x(2, 1, 2, 3, 1, 2, 2, 3), fixed([2, 3, 1, 2, 2, 2, 1, 2]))
    yield moved("Tile", "rank 0", x(), w(0, dtype="int64"))
    yield moved("Transpose", "eight axes that do not merge", x(2, 3, 2, 2, 3, 2, 2, 3), perm=[7, 6, 5, 4, 3, 2, 1, 0])


def one_hot(indices: Array, depth: Array, values: Array, axis: int = -1) -> Array:
    """OneHot with out-of-range indices, which onnx's reference wraps around."""
    size = int(depth.reshape(-1)[0])
    at = np.expand_dims(np.where(indices < 0, indices + size, indices), axis)
    classes = np.arange(size).reshape([-1 if k == axis % at.ndim else 1 for k in range(at.ndim)])
    return np.where(at == classes, values[1], values[0]).astype(values.dtype)
