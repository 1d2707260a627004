"""Tensors a block at a time: what lies between the operations on large tensors is then as large as a block, and not as the tensors.

A validation keeps a value in float64 and its error in float64 for each number that is read later. Beside what the device has of a tensor
less is enough: the distance to it and the error in float32, which leave an error behind that is known and is added to the other one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...base.element_types import Array
from .bounded import Bounded
from .cuts import BLOCK, Index, blocks
from .sides import Joined, Sides
from .types import is_float

FEW = 1 << 12  # numbers of a tensor that is kept as it is
_ALL = slice(None)  # of an axis of one element


class Deferred(Bounded):
    """A value of which parts are made when they are read. Its `value` and `error` are made whole each time that they are asked for."""

    __slots__ = ("_shape",)

    def __init__(self, shape: tuple[int, ...], dtype: Any, stored: bool, constant: bool) -> None:
        self._shape = shape
        self.dtype, self.stored, self.constant = np.dtype(dtype), stored, constant
        self.sides: Sides | None = None
        self.memo = None
        self.unrounded = None

    def part(self, index: Index) -> Bounded:
        """The numbers that an index selects."""
        raise NotImplementedError

    def whole(self) -> Bounded:
        """All of them."""
        return self.part(tuple(slice(0, size) for size in self._shape))

    def __getattr__(self, name: str) -> Any:
        # Slots that are not set: nothing is kept of what is made for one reader.
        if name in ("value", "error"):
            return getattr(self.whole(), name)
        raise AttributeError(name)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the tensor."""
        return self._shape

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._shape)


def pairs(array: Array, value: Bounded) -> Iterator[tuple[Index, Array, Bounded]]:
    """A tensor of the device and a value of the same shape, block by block with what selects it; all of a small one, at ()."""
    if array.size <= BLOCK:
        yield (), array, value.whole()
        return
    for index in blocks(array.shape):
        yield index, array[index], value.part(index)


class Read(Deferred):
    """A tensor of the device, of which `make` makes a value, number by number."""

    __slots__ = ("_array", "_make")

    def __init__(self, array: Array, make: Callable[[Array], Bounded]) -> None:
        like = make(array[:0] if array.ndim else array)
        super().__init__(array.shape, like.dtype, like.stored, like.constant)
        self._array, self._make = array, make

    def part(self, index: Index) -> Bounded:
        """The numbers that an index selects."""
        return self._make(self._array[index])


class Packed(Deferred):
    """A value and its error in float32 as distances from what the device has; where either is None there are zeros alone."""

    __slots__ = ("_beside", "_distance", "_error")

    def __init__(self, beside: Array, distance: Array | None, error: Array | None, like: Bounded) -> None:
        super().__init__(beside.shape, like.dtype, like.stored, like.constant)
        self._beside, self._distance, self._error = beside, distance, error

    @property
    def exact(self) -> bool:
        """Whether all errors are zero."""
        return self._error is None

    def part(self, index: Index) -> Bounded:
        """The numbers that an index selects."""
        value = self._beside[index].astype(np.float64)
        if self._distance is not None:
            value += self._distance[index]
        error = None if self._error is None else self._error[index].astype(np.float64)
        made = Bounded(value, error, self.dtype, self.stored, self.constant)
        return made if self.sides is None else made.with_sides(self.sides.part(index))


class Fed(Deferred):
    """A value that is evaluated a block at a time, for one reader: what is there is the block that `indices` is at."""

    __slots__ = ("_at", "_block", "_evaluate", "_ways")

    def __init__(self, shape: tuple[int, ...], ways: Iterator[Index], evaluate: Callable[[Index], Bounded]) -> None:
        self._ways, self._evaluate = ways, evaluate
        self._at = next(ways)
        self._block = evaluate(self._at)
        super().__init__(shape, self._block.dtype, self._block.stored, self._block.constant)

    def indices(self) -> Iterator[Index]:
        """The indices of blocks of BLOCK numbers each, within the larger blocks that are evaluated."""
        while True:
            for inner in blocks(self._block.shape):
                yield tuple(
                    slice(one.start + at.start, one.stop + at.start) for one, at in zip(inner, self._at, strict=True)
                )
            at = next(self._ways, None)
            if at is None:
                return
            del self._block  # before the next one is made
            self._at, self._block = at, self._evaluate(at)

    def part(self, index: Index) -> Bounded:
        """The numbers that an index selects, all of which are in the block that is there."""
        pairs_of = zip(index, self._at, strict=True)
        inner = (one if one == _ALL else slice(one.start - at.start, one.stop - at.start) for one, at in pairs_of)
        return self._block.part(tuple(inner))


class Retyped(Deferred):
    """Another value as one of another type, whose numbers are the same."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Bounded, dtype: Any) -> None:
        super().__init__(inner.shape, dtype, inner.stored, inner.constant)
        self._inner = inner
        self.sides = inner.sides

    @property
    def exact(self) -> bool:
        """Whether all errors are zero."""
        return self._inner.exact

    def part(self, index: Index) -> Bounded:
        """The numbers that an index selects."""
        one = self._inner.part(index)
        return Bounded(one.value, one.error, self.dtype, self.stored, self.constant).with_sides(one.sides)


class Collector:
    """Joins the blocks of a value. beside: what the device has of it, beside which it is packed where nothing is lost by that."""

    def __init__(self, shape: tuple[int, ...], beside: Array | None = None) -> None:
        self._shape = shape
        fits = beside is not None and beside.shape == shape and is_float(beside.dtype)
        self._beside = beside if fits else None
        self._value: Array | None = None  # or the distance, where it is packed
        self._error: Array | None = None
        self._like: Bounded | None = None
        self._sides: list[tuple[Index, Sides]] = []

    def add(self, index: Index, block: Bounded) -> None:
        """Enters a block."""
        self._like = self._like or block
        if self._beside is not None and not (block.is_float and self._pack(index, block, self._beside)):
            self._unpack(self._beside)
        if self._beside is None:
            self._put(index, block.value, block.error, np.float64)
        if block.sides is not None:
            self._sides.append((index, block.sides))

    def value(self) -> Bounded:
        """All of it."""
        like = self._like
        assert like is not None
        sides = Joined(self._shape, self._sides) if self._sides else None
        if self._beside is not None:
            return Packed(self._beside, self._value, self._error, like).with_sides(sides)
        return Bounded(self._value, self._error, like.dtype, like.stored, like.constant).with_sides(sides)

    def _put(self, index: Index, value: Array | None, error: Array | None, dtype: Any) -> None:
        if value is not None:
            if self._value is None:
                kept = np.float32 if self._beside is not None else value.dtype
                self._value = np.zeros(self._shape, kept)
            self._value[index] = value
        if error is not None:
            if self._error is None:
                self._error = np.zeros(self._shape, dtype)
            self._error[index] = error

    def _pack(self, index: Index, block: Bounded, beside: Array) -> bool:
        """Enters it in float32. False where that would change what is known of a number: that it is exact, finite, or any at all."""
        with np.errstate(all="ignore"):
            given = beside[index].astype(np.float64)
            distance = (block.value - given).astype(np.float32)
            lost = np.abs((given + distance) - block.value)
            if not np.isfinite(lost).all():
                return False
            if block.error is None:
                if lost.any():
                    return False
                self._put(index, distance if distance.any() else None, None, np.float32)
                return True
            error = np.broadcast_to(block.error, lost.shape)
            if (lost[error == 0] > 0).any():
                return False
            total = error + lost * (1 + 2.0**-50)
            narrow = total.astype(np.float32)
            narrow = np.where(narrow < total, np.nextafter(narrow, np.float32(np.inf)), narrow)
            if (np.isinf(narrow) & np.isfinite(error)).any():
                return False
        self._put(index, distance if distance.any() else None, narrow, np.float32)
        return True

    def _unpack(self, beside: Array) -> None:
        """Goes on with what has been entered so far in float64."""
        self._beside = None
        assert self._like is not None
        if self._value is not None or self._error is not None or self._like.is_float:
            whole = Packed(beside, self._value, self._error, self._like).whole() if self._like.is_float else None
            self._value = None if whole is None else whole.value
            self._error = None if whole is None else whole.error


def packed(value: Bounded, beside: Array | None) -> Bounded:
    """A value beside what the device has of it, where that keeps what is known of it."""
    if beside is None or isinstance(value, Deferred) or not value.is_float or beside.shape != value.shape:
        return value
    if value.size < FEW:
        return value
    made = Collector(value.shape, beside)
    for index in blocks(value.shape):
        made.add(index, value.part(index))
    return made.value()
