"""Alternative values of elements whose choice is undecided (V8): each with its own bound. Values in between are
wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np

from ...base.element_types import Array
from .block_ranges import Index
from .float_types import FloatType

MOST = 8  # alternatives tracked per element; beyond that, results carry only an error
ALONE = -1  # label of an element that shares its choice with no other element
_labels = itertools.count()


def new_labels() -> int:
    """Return the first of 2^32 unused labels."""
    return next(_labels) << 32


class Sides:
    """The alternative values of each element where `mask` is true."""

    mask: Array

    @property
    def is_grouped(self) -> bool:
        """Whether one choice decides several elements."""
        return False

    def nearest(self, actual: Array, value: Array, spread: float = 1.0) -> tuple[Array, Array]:
        """Return the alternative nearest to the device's value for each element, and its error.

        value: the reference's own choice. spread: factor on the errors.
        """
        raise NotImplementedError

    def options(self, value: Array, error: Array) -> Options | None:
        """Return all alternatives, the value itself first; None if there are too many."""
        raise NotImplementedError

    def part(self, index: Index) -> Sides | None:
        """Return the alternatives of the selected elements; None if all are decided."""
        return self.moved(lambda array: array[index])

    def moved(self, move: Callable[[Array], Array]) -> Sides | None:
        """Apply an operation that only moves elements."""
        raise NotImplementedError

    def stored(self, store: Callable[[Array, Array], Array | None], kept: FloatType) -> Sides:
        """Round once to a type. store: maps (value, error) to the new error."""
        return self

    def scaled(self, factor: float) -> Sides:
        """Multiply the errors by a factor."""
        return self

    def without(self, decided: Array) -> Sides | None:
        """Return the elements that are still undecided; None if all are decided."""
        left = copy(self)
        left.mask = self.mask & ~decided
        return left if left.mask.any() else None


class Options(Sides):
    """A few values for each element, each with an error.

    group: a label per element. Elements with the same label use the same index into `values`; `ALONE` elements choose
    independently. None if all are independent.
    """

    def __init__(
        self, mask: Array, values: Sequence[Array], errors: Sequence[Array], group: Array | None = None
    ) -> None:
        self.mask, self.values, self.errors, self.group = mask, list(values), list(errors), group

    @property
    def is_grouped(self) -> bool:
        """Whether one choice decides several elements."""
        return self.group is not None

    def nearest(self, actual: Array, value: Array, spread: float = 1.0) -> tuple[Array, Array]:
        """Return the alternative whose bound contains the device's value with the widest margin, or is exceeded least."""
        given = np.asarray(actual, np.float64)
        with np.errstate(all="ignore"):
            ranks = []
            for one, error in zip(self.values, self.errors, strict=True):
                side = np.asarray(one, np.float64)
                same = (given == side) | (np.isnan(given) & np.isnan(side))
                rank = np.where(same, -np.inf, np.abs(given - side) - spread * error)
                # Infinity matches the outermost alternative.
                ranks.append(np.where(np.isinf(given) & ~same, -np.sign(given) * side, rank))
            best = np.argmin(np.where(np.isnan(ranks), np.inf, ranks), axis=0)[None]
        values = np.take_along_axis(np.stack(np.broadcast_arrays(*self.values)), best, 0)[0]
        errors = np.take_along_axis(np.stack(np.broadcast_arrays(*self.errors)), best, 0)[0]
        return values, errors

    def options(self, value: Array, error: Array) -> Options | None:
        """Return self."""
        return self

    def moved(self, move: Callable[[Array], Array]) -> Sides | None:
        """Apply an operation that only moves elements."""
        mask = move(self.mask.astype(np.float64)) == 1
        if not mask.any():
            return None
        group = None if self.group is None else move(self.group)
        return Options(mask, [move(one) for one in self.values], [move(one) for one in self.errors], group)

    def stored(self, store: Callable[[Array, Array], Array | None], kept: FloatType) -> Sides:
        """Round once to a type."""
        pairs = zip(self.values, self.errors, strict=True)
        errors = [np.asarray(0.0 if (made := store(*pair)) is None else made) for pair in pairs]
        errors = [np.broadcast_to(one, self.mask.shape) for one in errors]
        return Options(self.mask, self.values, errors, self.group)

    def scaled(self, factor: float) -> Sides:
        """Multiply the errors by a factor."""
        return Options(self.mask, self.values, [one * factor for one in self.errors], self.group)


class Whole(Sides):
    """Every integer of a closed interval."""

    def __init__(self, mask: Array, low: Array, high: Array, kept: FloatType | None = None) -> None:
        self.mask, self.low, self.high, self.kept = mask, low, high, kept

    def nearest(self, actual: Array, value: Array, spread: float = 1.0) -> tuple[Array, Array]:
        """Return the nearest integer of the interval, and its storage error."""
        with np.errstate(all="ignore"):
            given = np.asarray(actual, np.float64)
            whole = np.clip(np.rint(np.where(np.isnan(given), value, given)), self.low, self.high)
            if value.dtype.kind in "iu":
                info, inside = np.iinfo(value.dtype), (given >= self.low) & (given <= self.high)
                whole = np.where(whole >= float(info.max), 0.0, np.maximum(whole, float(info.min))).astype(value.dtype)
                above = self.high >= float(info.max)
                found = np.where(inside, actual, np.where(above & (given > self.high), info.max, whole))
                return found.astype(value.dtype), np.zeros(value.shape)
        if value.dtype.kind != "f":  # sub-byte integers
            return whole.astype(np.int64).astype(value.dtype), np.zeros(value.shape)
        return whole, self._error(whole)

    def _error(self, whole: Array) -> Array:
        if self.kept is None:
            return np.zeros(whole.shape)
        with np.errstate(all="ignore"):
            error = np.abs(self.kept.rounded(whole) - whole)
        return np.where(np.isfinite(error), error, 0.0)

    def options(self, value: Array, error: Array) -> Options | None:
        """Return all integers of the interval; None if there are too many."""
        count = int(np.max(self.high - self.low, initial=0.0, where=self.mask)) + 1
        if count > MOST:
            return None
        whole = [np.where(self.mask, np.minimum(self.low + k, self.high), value) for k in range(count)]
        errors = [np.where(self.mask, self._error(one), error) for one in whole]
        return Options(self.mask, [one.astype(value.dtype) for one in whole], errors)

    def moved(self, move: Callable[[Array], Array]) -> Sides | None:
        """Apply an operation that only moves elements."""
        mask = move(self.mask.astype(np.float64)) == 1
        return Whole(mask, move(self.low), move(self.high), self.kept) if mask.any() else None

    def stored(self, store: Callable[[Array, Array], Array | None], kept: FloatType) -> Sides:
        """Round once to a type."""
        return Whole(self.mask, self.low, self.high, kept)


class Ranked(Sides):
    """The index at a rank of a descending sort, if the sorted values have errors.

    rows: the sorted row that each element belongs to. places: the rank of the element in that row. sure, maybe [rows,
    indices]: how many values certainly or possibly precede this index. Ranks of a row have distinct indices, and a rank
    that occurs several times has the same index everywhere. first: label of the first rank of the first row.
    """

    def __init__(
        self, mask: Array, rows: Array, places: Array, sure: Array, maybe: Array, first: int | None = None
    ) -> None:
        self.mask, self.rows, self.places, self.sure, self.maybe = mask, rows, places, sure, maybe
        self.first = new_labels() if first is None else first

    def nearest(self, actual: Array, value: Array, spread: float = 1.0) -> tuple[Array, Array]:
        """Return the device's index if rounding allows it, else the reference's."""
        given = np.asarray(actual)
        inside = (given >= 0) & (given < self.sure.shape[1])
        index = np.where(inside, given, 0).astype(np.int64)
        may = inside & (self.sure[self.rows, index] <= self.places) & (self.places <= self.maybe[self.rows, index])
        keys = self.rows * self.sure.shape[1] + index
        places = self.rows * (int(np.max(self.places, initial=0)) + 1) + self.places
        may &= _stands_by_one(keys, places) & _stands_by_one(places, keys)
        return np.where(may, given, value).astype(value.dtype), np.zeros(value.shape)

    def may(self) -> Array:
        """Return mask[element, index]: whether rounding allows this index. False for decided elements."""
        at = self.places[..., None]
        return np.asarray((self.sure[self.rows] <= at) & (at <= self.maybe[self.rows]) & self.mask[..., None])

    def options(self, value: Array, error: Array) -> Options | None:
        """Return the possible indices of each element; None if there are too many."""
        if value.size * self.sure.shape[1] > 1 << 20:
            return None
        may = self.may()
        count = int(np.max(may.sum(-1), initial=1, where=self.mask))
        if count > MOST:
            return None
        order = np.argsort(~may, axis=-1, kind="stable")[..., :count]
        held = np.take_along_axis(may, order, -1)
        values = [np.where(held[..., k], order[..., k], value).astype(value.dtype) for k in range(count)]
        group = self.first + self.rows.astype(np.int64) * self.sure.shape[1] + self.places
        return Options(self.mask, values, [np.zeros(value.shape)] * count, group)

    def moved(self, move: Callable[[Array], Array]) -> Sides | None:
        """Apply an operation that only moves elements."""
        mask = move(self.mask.astype(np.float64)) == 1
        if not mask.any():
            return None
        rows, places = (move(one.astype(np.float64)).astype(np.int64) for one in (self.rows, self.places))
        return Ranked(mask, rows, places, self.sure, self.maybe, self.first)


def _stands_by_one(keys: Array, others: Array) -> Array:
    """Return a mask of elements whose key occurs with only one value of `others`."""
    pairs = np.unique(np.stack([keys.ravel(), others.ravel()]), axis=1)
    found, counts = np.unique(pairs[0], return_counts=True)
    return np.asarray(counts[np.searchsorted(found, keys)] == 1)


class OneHot(Sides):
    """One-hot rows whose 1 may be at several indices."""

    def __init__(self, mask: Array, axis: int) -> None:
        self.mask, self.axis = mask, axis

    def nearest(self, actual: Array, value: Array, spread: float = 1.0) -> tuple[Array, Array]:
        """Return the device's row if rounding allows it, else the reference's."""
        given = np.asarray(actual, np.float64)
        ones, zeros = given == 1, given == 0
        may = (ones | zeros).all(self.axis, keepdims=True) & ~(ones & ~self.mask & (value != 1)).any(
            self.axis, keepdims=True
        )
        may &= ones.sum(self.axis, keepdims=True) == 1
        return np.where(may, given, value), np.zeros(value.shape)

    def options(self, value: Array, error: Array) -> Options | None:
        """Return 0 and 1 for each undecided element."""
        both = [np.where(self.mask, one, value) for one in (0.0, 1.0)]
        return Options(self.mask, [value, *both], [np.zeros(value.shape)] * 3)

    def part(self, index: Index) -> Sides | None:
        """Return the selected rows; None for an index that splits rows."""
        axis = self.axis % self.mask.ndim
        here = index[axis] if len(index) > axis else slice(None)
        if range(*here.indices(self.mask.shape[axis])) == range(self.mask.shape[axis]):
            mask = self.mask[index]
            return OneHot(mask, axis) if mask.any() else None
        return super().part(index)

    def moved(self, move: Callable[[Array], Array]) -> Sides | None:
        """Return None: after moving elements, nothing guarantees a single 1 per row."""
        return None


class Joined(Sides):
    """Alternatives of the blocks of a tensor, with the index of each block."""

    def __init__(self, shape: tuple[int, ...], parts: Sequence[tuple[Index, Sides]]) -> None:
        self.parts = list(parts)
        self.mask = np.zeros(shape, bool)
        for index, one in self.parts:
            self.mask[index] = one.mask

    @property
    def is_grouped(self) -> bool:
        """Whether one choice decides several elements."""
        return any(one.is_grouped for _, one in self.parts)

    def nearest(self, actual: Array, value: Array, spread: float = 1.0) -> tuple[Array, Array]:
        """Return the nearest alternative for each element."""
        found, errors = np.array(value), np.zeros(value.shape)
        for index, one in self.parts:
            found[index], errors[index] = one.nearest(actual[index], value[index], spread)
        return found, errors

    def options(self, value: Array, error: Array) -> Options | None:
        """Return all alternatives; None if any block has too many."""
        made = [(index, one.options(value[index], error[index])) for index, one in self.parts]
        count = max(0 if one is None else len(one.values) for _, one in made)
        values, errors = [np.array(value) for _ in range(count)], [np.array(error) for _ in range(count)]
        group = np.full(value.shape, ALONE) if any(one is not None and one.is_grouped for _, one in made) else None
        for index, one in made:
            if one is None:
                return None
            if group is not None and one.group is not None:
                group[index] = one.group
            for k in range(count):
                last = min(k, len(one.values) - 1)
                values[k][index], errors[k][index] = one.values[last], one.errors[last]
        return Options(self.mask, values, errors, group)

    def part(self, index: Index) -> Sides | None:
        """Return the alternatives of the selected elements."""
        for at, one in self.parts:
            if _same(at, index, self.mask.shape):
                return one
        wanted = _spans(index, self.mask.shape)
        cut = []
        for at, one in self.parts:
            own = _spans(at, self.mask.shape)
            both = [(max(a, b), min(c, d)) for (a, c), (b, d) in zip(own, wanted, strict=True)]
            if any(low >= high for low, high in both):
                continue
            kept = one.part(_slices(both, own))
            if kept is not None:
                cut.append((_slices(both, wanted), kept))
        shape = tuple(stop - start for start, stop in wanted)
        return Joined(shape, cut) if cut else None

    def without(self, decided: Array) -> Sides | None:
        """Return the elements that are still undecided."""
        parts = [(index, left) for index, one in self.parts if (left := one.without(decided[index])) is not None]
        return Joined(self.mask.shape, parts) if parts else None

    def stored(self, store: Callable[[Array, Array], Array | None], kept: FloatType) -> Sides:
        """Round once to a type."""
        return Joined(self.mask.shape, [(index, one.stored(store, kept)) for index, one in self.parts])

    def scaled(self, factor: float) -> Sides:
        """Multiply the errors by a factor."""
        return Joined(self.mask.shape, [(index, one.scaled(factor)) for index, one in self.parts])

    def moved(self, move: Callable[[Array], Array]) -> Sides | None:
        """Move the `options`; return None if there are too many alternatives."""
        none = np.zeros(self.mask.shape)
        made = self.options(none, none)
        return None if made is None else made.moved(move)


def _same(at: Index, index: Index, shape: tuple[int, ...]) -> bool:
    return len(at) == len(index) and all(a.indices(n) == b.indices(n) for a, b, n in zip(at, index, shape, strict=True))


def _spans(index: Index, shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return (start, stop) of each slice; slices may be open."""
    return [one.indices(size)[:2] for one, size in zip(index, shape, strict=True)]


def _slices(spans: Sequence[tuple[int, int]], within: Sequence[tuple[int, int]]) -> Index:
    """Return spans as slices relative to the start of the enclosing spans."""
    return tuple(slice(low - first, high - first) for (low, high), (first, _) in zip(spans, within, strict=True))


def as_options(value: Any) -> Options | None:
    """Return the few alternatives of each element of a Bounded value; None if nothing is undecided or there are too
    many.
    """
    if value.sides is not None:
        made: Options | None = value.sides.options(value.value, np.broadcast_to(value.errors(), value.shape))
        return made
    if value.dtype == bool and value.error is not None and (value.error > 0).any():
        mask = np.broadcast_to(value.error > 0, value.shape)
        none = np.zeros(value.shape)
        return Options(mask, [value.value, value.value ^ mask], [none, none])
    return None


def is_undecided(value: Any) -> bool:
    """Whether an element depends on an undecided choice."""
    return value.sides is not None or (
        value.dtype == bool and value.error is not None and bool((value.error > 0).any())
    )


def undecided(value: Any) -> int:
    """Return the number of elements that depend on an undecided choice."""
    if value.sides is not None:
        return int(np.count_nonzero(value.sides.mask))
    return int(np.count_nonzero(value.error > 0)) if is_undecided(value) else 0
