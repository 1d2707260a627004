"""Values in blocks, so that temporaries of large tensors need only the memory of one block.

Validation keeps a float64 value and a float64 error for every element that is read later. If the device also
has the tensor, float32 differences from it suffice; their rounding is known and added to the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...base.element_types import Array
from .bounded import Bounded
from .block_ranges import BLOCK, Index, blocks
from .alternatives import Joined, Sides
from .float_types import is_float

FEW = 1 << 12  # smaller tensors are kept unpacked
_ALL = slice(None)  # index of an axis of size 1


class Deferred(Bounded):
    """A value whose blocks are computed on access. `value` and `error` compute the whole tensor on every access."""

    __slots__ = ("_shape",)

    def __init__(self, shape: tuple[int, ...], dtype: Any, stored: bool, constant: bool) -> None:
        self._shape = shape
        self.dtype, self.stored, self.constant = np.dtype(dtype), stored, constant
        self.sides: Sides | None = None
        self.memo = None
        self.unrounded = None

    def part(self, index: Index) -> Bounded:
        """Return the elements that the index selects."""
        raise NotImplementedError

    def whole(self) -> Bounded:
        """Return the full tensor, computed from its blocks."""
        return self.part(tuple(slice(0, size) for size in self._shape))

    def __getattr__(self, name: str) -> Any:
        # These slots stay unset: results for one reader are not cached.
        if name in ("value", "error"):
            return getattr(self.whole(), name)
        raise AttributeError(name)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self._shape

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self._shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._shape)


def pairs(array: Array, value: Bounded) -> Iterator[tuple[Index, Array, Bounded]]:
    """Yield (index, device block, value block). Tensors of up to BLOCK elements are one block with index ()."""
    if array.size <= BLOCK:
        yield (), array, value.whole()
        return
    for index in blocks(array.shape):
        yield index, array[index], value.part(index)


class Read(Deferred):
    """A device tensor that `make` converts to a value elementwise, on access."""

    __slots__ = ("_array", "_make")

    def __init__(self, array: Array, make: Callable[[Array], Bounded]) -> None:
        like = make(array[:0] if array.ndim else array)
        super().__init__(array.shape, like.dtype, like.stored, like.constant)
        self._array, self._make = array, make

    def part(self, index: Index) -> Bounded:
        """Return the elements that the index selects."""
        return self._make(self._array[index])


class Packed(Deferred):
    """A value stored as float32 differences from the device's tensor, with a float32 error; None for zeros."""

    __slots__ = ("_beside", "_distance", "_error")

    def __init__(self, beside: Array, distance: Array | None, error: Array | None, like: Bounded) -> None:
        super().__init__(beside.shape, like.dtype, like.stored, like.constant)
        self._beside, self._distance, self._error = beside, distance, error

    @property
    def exact(self) -> bool:
        """Whether all errors are zero."""
        return self._error is None

    def part(self, index: Index) -> Bounded:
        """Return the elements that the index selects."""
        value = self._beside[index].astype(np.float64)
        if self._distance is not None:
            value += self._distance[index]
        error = None if self._error is None else self._error[index].astype(np.float64)
        made = Bounded(value, error, self.dtype, self.stored, self.constant)
        return made if self.sides is None else made.with_sides(self.sides.part(index))


class Fed(Deferred):
    """A value evaluated block by block for a single reader. It has only the current block of `indices`."""

    __slots__ = ("_at", "_block", "_evaluate", "_ways")

    def __init__(self, shape: tuple[int, ...], ways: Iterator[Index], evaluate: Callable[[Index], Bounded]) -> None:
        self._ways, self._evaluate = ways, evaluate
        self._at = next(ways)
        self._block = evaluate(self._at)
        super().__init__(shape, self._block.dtype, self._block.stored, self._block.constant)

    def indices(self) -> Iterator[Index]:
        """Yield the index of each part of about BLOCK elements within the larger evaluated blocks."""
        while True:
            for inner in blocks(self._block.shape):
                yield tuple(
                    slice(one.start + at.start, one.stop + at.start) for one, at in zip(inner, self._at, strict=True)
                )
            at = next(self._ways, None)
            if at is None:
                return
            del self._block  # freed before the next block is evaluated
            self._at, self._block = at, self._evaluate(at)

    def part(self, index: Index) -> Bounded:
        """Return the selected elements, which must be in the current block."""
        pairs_of = zip(index, self._at, strict=True)
        inner = (one if one == _ALL else slice(one.start - at.start, one.stop - at.start) for one, at in pairs_of)
        return self._block.part(tuple(inner))


class Retyped(Deferred):
    """A view of another value with a different dtype."""

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
        """Return the elements that the index selects."""
        one = self._inner.part(index)
        return Bounded(one.value, one.error, self.dtype, self.stored, self.constant).with_sides(one.sides)


class Collector:
    """Joins the blocks of a value. beside: the device's tensor, for packing values if that is lossless."""

    def __init__(self, shape: tuple[int, ...], beside: Array | None = None) -> None:
        self._shape = shape
        fits = beside is not None and beside.shape == shape and is_float(beside.dtype)
        self._beside = beside if fits else None
        self._value: Array | None = None  # the float32 difference if packed
        self._error: Array | None = None
        self._like: Bounded | None = None
        self._sides: list[tuple[Index, Sides]] = []

    def add(self, index: Index, block: Bounded) -> None:
        """Add a block."""
        self._like = self._like or block
        if self._beside is not None and not (block.is_float and self._pack(index, block, self._beside)):
            self._unpack(self._beside)
        if self._beside is None:
            self._put(index, block.value, block.error, np.float64)
        if block.sides is not None:
            self._sides.append((index, block.sides))

    def value(self) -> Bounded:
        """Return the joined value."""
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
        """Store a block in float32. Return False if that would change which elements are exact, finite or known."""
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
        """Convert the packed blocks to float64 and stop packing."""
        self._beside = None
        assert self._like is not None
        if self._value is not None or self._error is not None or self._like.is_float:
            whole = Packed(beside, self._value, self._error, self._like).whole() if self._like.is_float else None
            self._value = None if whole is None else whole.value
            self._error = None if whole is None else whole.error


def packed(value: Bounded, beside: Array | None) -> Bounded:
    """Pack a value relative to the device's tensor if that loses no information."""
    if beside is None or isinstance(value, Deferred) or not value.is_float or beside.shape != value.shape:
        return value
    if value.size < FEW:
        return value
    made = Collector(value.shape, beside)
    for index in blocks(value.shape):
        made.add(index, value.part(index))
    return made.value()
