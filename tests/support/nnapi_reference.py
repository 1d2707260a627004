"""NNAPI's data-movement operations in NumPy, following the specification; illegal operands raise Illegal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
Numbers = Sequence[int]


class Illegal(Exception):
    """Raised if operands violate a rule of the operation."""


def expect(holds: bool, rule: str) -> None:
    if not holds:
        raise Illegal(rule)


def axis_of(axis: int, rank: int) -> int:
    expect(-rank <= axis < rank, "an axis of the operand")
    return axis % rank


def slice_(x: Array, begin: Numbers, size: Numbers) -> Array:
    expect(len(begin) == len(size) == x.ndim, "one number for each axis")
    parts = []
    for extent, first, count in zip(x.shape, begin, size, strict=True):
        expect(first >= 0 and count >= -1 and first <= extent, "a begin within the axis")
        last = extent if count == -1 else first + count
        expect(last <= extent, "an end within the axis")
        parts.append(slice(first, last))
    return x[tuple(parts)]


def strided_slice(
    x: Array, begin: Numbers, end: Numbers, strides: Numbers, begin_mask: int, end_mask: int, shrink_mask: int
) -> Array:
    """Slice like Python's range: negative begin and end count from the end of the axis, and both are clamped."""
    expect(len(begin) == len(end) == len(strides) == x.ndim, "one number for each axis")
    expect(0 not in strides, "strides other than 0")
    gone = []
    for axis, (first, last, step) in enumerate(zip(begin, end, strides, strict=True)):
        opens, ends, goes = (mask >> axis & 1 == 1 for mask in (begin_mask, end_mask, shrink_mask))
        extent = x.shape[axis]
        places = range(extent)[slice(None if opens else first, None if ends else last, step)]
        if goes and not opens and not ends and (first, last) == (-1, 0) and step > 0:
            places = range(extent)[-1:]  # begin and begin + 1, as the specification writes it for the last element
        if goes:
            expect(step > 0, "a step above 0 on an axis that goes")
            expect(len(places) == 1, "one element on an axis that goes")
            gone.append(axis)
        x = np.take(x, np.array(places, int), axis)
    if len(gone) == x.ndim:
        gone.pop()
    return np.squeeze(x, tuple(gone))


def split(x: Array, axis: int, parts: int) -> tuple[Array, ...]:
    axis = axis_of(axis, x.ndim)
    expect(parts >= 1 and x.shape[axis] % parts == 0 and parts <= x.shape[axis], "parts of one size")
    return tuple(np.split(x, parts, axis))


def gather(x: Array, axis: int, indices: Array) -> Array:
    axis = axis_of(axis, x.ndim)
    expect(bool(np.all((indices >= 0) & (indices < x.shape[axis]))), "indices of the axis")
    return np.take(x, indices, axis)


def embedding_lookup(indices: Array, values: Array) -> Array:
    return gather(values, 0, indices)


def pairs_of(x: Array, pads: Array) -> list[tuple[int, int]]:
    expect(pads.shape == (x.ndim, 2), "a pair for each axis")
    expect(bool(np.all(pads >= 0)), "paddings of at least 0")
    return [(int(before), int(after)) for before, after in pads]


def pad(x: Array, pads: Array, value: float = 0) -> Array:
    return np.pad(x, pairs_of(x, pads), constant_values=value)


def mirror_pad(x: Array, pads: Array, mode: int) -> Array:
    pairs = pairs_of(x, pads)
    for extent, pair in zip(x.shape, pairs, strict=True):
        expect(max(pair) <= extent - (mode == 0), "no more than there is to mirror")
    return np.pad(x, pairs, "reflect" if mode == 0 else "symmetric")


def tile(x: Array, multiples: Numbers) -> Array:
    expect(len(multiples) == x.ndim and min(multiples, default=0) >= 0, "one multiple for each axis")
    return np.tile(x, tuple(multiples))


def select(condition: Array, a: Array, b: Array) -> Array:
    expect(condition.shape == a.shape == b.shape, "operands of one shape")
    return np.where(condition, a, b)
