"""Alternative values of elements whose result depends on an undecided choice (rule V8).

Each alternative has its own error bound; values between two alternatives are wrong.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np

from ...base.element_types import Array, Index

MAX_ALTERNATIVES = 8  # maximum alternatives tracked per element; with more, only an error bound is kept
INDEPENDENT = -1  # label of elements that share their choice with no other element
_label_counter = itertools.count()


def reserve_choice_labels() -> int:
    """Reserve 2^32 unused labels and return the first."""
    return next(_label_counter) << 32


class AlternativeValues:
    """The possible values of each element where `mask` is true."""

    mask: Array

    @property
    def is_grouped(self) -> bool:
        """Whether one choice decides several elements."""
        return False

    def find_nearest(self, actual: Array, value: Array, error_factor: float = 1.0) -> tuple[Array, Array]:
        """Return, for each element, the alternative nearest to the device's value, and its error.

        value: the alternative that the reference chose. error_factor: multiplies the errors.
        """
        raise NotImplementedError

    def enumerate_values(self, value: Array, error: Array) -> EnumeratedAlternatives | None:
        """Return all alternatives, starting with `value`; None if there are too many."""
        raise NotImplementedError

    def get_block(self, index: Index) -> AlternativeValues | None:
        """Return the alternatives of the selected elements; None if all are decided."""
        return self.rearrange(lambda array: array[index])

    def rearrange(self, move: Callable[[Array], Array]) -> AlternativeValues | None:
        """Apply an operation that only moves elements."""
        raise NotImplementedError

    def round_to_storage(
        self, round_error: Callable[[Array, Array], Array | None], round_value: Callable[[Any], Array]
    ) -> AlternativeValues:
        """Round the alternatives to a storage type.

        round_error: function from (value, error) to the error after rounding. round_value: rounds values to the type.
        """
        return self

    def scale_errors(self, factor: float) -> AlternativeValues:
        """Multiply the errors by a factor."""
        return self

    def drop_decided(self, decided: Array) -> AlternativeValues | None:
        """Return the alternatives of elements that are not `decided`; None if no undecided element remains."""
        remaining = copy(self)
        remaining.mask = self.mask & ~decided
        return remaining if remaining.mask.any() else None


class EnumeratedAlternatives(AlternativeValues):
    """A short list of possible values for each element, each with an error.

    group: a label per element. Elements with equal labels take the same alternative (index into `values`). Elements
    labelled `INDEPENDENT` choose independently. None if all elements are independent.
    """

    def __init__(
        self, mask: Array, values: Sequence[Array], errors: Sequence[Array], group: Array | None = None
    ) -> None:
        self.mask, self.values, self.errors, self.group = mask, list(values), list(errors), group

    @property
    def is_grouped(self) -> bool:
        """Whether one choice decides several elements."""
        return self.group is not None

    def find_nearest(self, actual: Array, value: Array, error_factor: float = 1.0) -> tuple[Array, Array]:
        """Return, for each element, the alternative that minimises |device value - alternative| - error_factor * error."""
        actual64 = np.asarray(actual, np.float64)
        with np.errstate(all="ignore"):
            ranks = []
            for alternative_value, error in zip(self.values, self.errors, strict=True):
                alternative = np.asarray(alternative_value, np.float64)
                is_equal = (actual64 == alternative) | (np.isnan(actual64) & np.isnan(alternative))
                rank = np.where(is_equal, -np.inf, np.abs(actual64 - alternative) - error_factor * error)
                # An infinite device value is nearest to the largest or smallest alternative.
                ranks.append(np.where(np.isinf(actual64) & ~is_equal, -np.sign(actual64) * alternative, rank))
            best = np.argmin(np.where(np.isnan(ranks), np.inf, ranks), axis=0)[None]
        values = np.take_along_axis(np.stack(np.broadcast_arrays(*self.values)), best, 0)[0]
        errors = np.take_along_axis(np.stack(np.broadcast_arrays(*self.errors)), best, 0)[0]
        return values, errors

    def enumerate_values(self, value: Array, error: Array) -> EnumeratedAlternatives | None:
        """Return self."""
        return self

    def rearrange(self, move: Callable[[Array], Array]) -> AlternativeValues | None:
        """Apply an operation that only moves elements."""
        mask = move(self.mask.astype(np.float64)) == 1
        if not mask.any():
            return None
        group = None if self.group is None else move(self.group)
        return EnumeratedAlternatives(
            mask, [move(array) for array in self.values], [move(array) for array in self.errors], group
        )

    def round_to_storage(
        self, round_error: Callable[[Array, Array], Array | None], round_value: Callable[[Any], Array]
    ) -> AlternativeValues:
        """Round each alternative once to a storage type."""
        pairs = zip(self.values, self.errors, strict=True)
        errors = [np.asarray(0.0 if (stored_error := round_error(*pair)) is None else stored_error) for pair in pairs]
        errors = [np.broadcast_to(stored_item, self.mask.shape) for stored_item in errors]
        return EnumeratedAlternatives(self.mask, self.values, errors, self.group)

    def scale_errors(self, factor: float) -> AlternativeValues:
        """Multiply the errors by a factor."""
        return EnumeratedAlternatives(self.mask, self.values, [error * factor for error in self.errors], self.group)


class IntegerAlternatives(AlternativeValues):
    """All integers in a closed interval, per element."""

    def __init__(self, mask: Array, low: Array, high: Array, round_value: Callable[[Any], Array] | None = None) -> None:
        self.mask, self.low, self.high, self.round_value = mask, low, high, round_value

    def find_nearest(self, actual: Array, value: Array, error_factor: float = 1.0) -> tuple[Array, Array]:
        """Return the integer of the interval nearest to the device's value, and its storage error."""
        with np.errstate(all="ignore"):
            actual64 = np.asarray(actual, np.float64)
            whole = np.clip(np.rint(np.where(np.isnan(actual64), value, actual64)), self.low, self.high)
            if value.dtype.kind in "iu":
                info, inside = np.iinfo(value.dtype), (actual64 >= self.low) & (actual64 <= self.high)
                whole = np.where(whole >= float(info.max), 0.0, np.maximum(whole, float(info.min))).astype(value.dtype)
                above = self.high >= float(info.max)
                integers = np.where(inside, actual, np.where(above & (actual64 > self.high), info.max, whole))
                return integers.astype(value.dtype), np.zeros(value.shape)
        if value.dtype.kind != "f":  # sub-byte integers
            return whole.astype(np.int64).astype(value.dtype), np.zeros(value.shape)
        return whole, self._compute_storage_error(whole)

    def _compute_storage_error(self, whole: Array) -> Array:
        if self.round_value is None:
            return np.zeros(whole.shape)
        with np.errstate(all="ignore"):
            error = np.abs(self.round_value(whole) - whole)
        return np.where(np.isfinite(error), error, 0.0)

    def enumerate_values(self, value: Array, error: Array) -> EnumeratedAlternatives | None:
        """Return all integers of the interval; None if there are too many."""
        count = int(np.max(self.high - self.low, initial=0.0, where=self.mask)) + 1
        if count > MAX_ALTERNATIVES:
            return None
        whole = [np.where(self.mask, np.minimum(self.low + k, self.high), value) for k in range(count)]
        errors = [np.where(self.mask, self._compute_storage_error(integers), error) for integers in whole]
        return EnumeratedAlternatives(self.mask, [integers.astype(value.dtype) for integers in whole], errors)

    def rearrange(self, move: Callable[[Array], Array]) -> AlternativeValues | None:
        """Apply an operation that only moves elements."""
        mask = move(self.mask.astype(np.float64)) == 1
        return IntegerAlternatives(mask, move(self.low), move(self.high), self.round_value) if mask.any() else None

    def round_to_storage(
        self, round_error: Callable[[Array, Array], Array | None], round_value: Callable[[Any], Array]
    ) -> AlternativeValues:
        """Round each alternative once to a storage type."""
        return IntegerAlternatives(self.mask, self.low, self.high, round_value)


class RankAlternatives(AlternativeValues):
    """Indices that may occupy a rank in a descending sort of values with errors.

    rows: which sorted row each element belongs to. ranks: rank of the element in that row. min_rank, max_rank
    [rows, indices]: range of ranks that each index may have. Within a row, two elements have the same index if and only
    if they have the same rank. first_label: label of rank 0 in row 0.
    """

    def __init__(
        self, mask: Array, rows: Array, ranks: Array, min_rank: Array, max_rank: Array, first_label: int | None = None
    ) -> None:
        self.mask, self.rows, self.ranks, self.min_rank, self.max_rank = mask, rows, ranks, min_rank, max_rank
        self.first_label = reserve_choice_labels() if first_label is None else first_label

    def find_nearest(self, actual: Array, value: Array, error_factor: float = 1.0) -> tuple[Array, Array]:
        """Return the device's index if rounding errors permit it at this rank, else the reference's."""
        indices = np.asarray(actual)
        inside = (indices >= 0) & (indices < self.min_rank.shape[1])
        index = np.where(inside, indices, 0).astype(np.int64)
        is_possible_index = (
            inside & (self.min_rank[self.rows, index] <= self.ranks) & (self.ranks <= self.max_rank[self.rows, index])
        )
        keys = self.rows * self.min_rank.shape[1] + index
        ranks = self.rows * (int(np.max(self.ranks, initial=0)) + 1) + self.ranks
        is_possible_index &= _find_unambiguous_keys(keys, ranks) & _find_unambiguous_keys(ranks, keys)
        return np.where(is_possible_index, indices, value).astype(value.dtype), np.zeros(value.shape)

    def find_possible_indices(self) -> Array:
        """Return mask[element, index]: whether rounding errors permit this index. Rows of decided elements are False."""
        at = self.ranks[..., None]
        return np.asarray((self.min_rank[self.rows] <= at) & (at <= self.max_rank[self.rows]) & self.mask[..., None])

    def enumerate_values(self, value: Array, error: Array) -> EnumeratedAlternatives | None:
        """Return the possible indices of each element; None if there are too many."""
        if value.size * self.min_rank.shape[1] > 1 << 20:
            return None
        is_possible_index = self.find_possible_indices()
        count = int(np.max(is_possible_index.sum(-1), initial=1, where=self.mask))
        if count > MAX_ALTERNATIVES:
            return None
        order = np.argsort(~is_possible_index, axis=-1, kind="stable")[..., :count]
        is_possible = np.take_along_axis(is_possible_index, order, -1)
        values = [np.where(is_possible[..., k], order[..., k], value).astype(value.dtype) for k in range(count)]
        group = self.first_label + self.rows.astype(np.int64) * self.min_rank.shape[1] + self.ranks
        return EnumeratedAlternatives(self.mask, values, [np.zeros(value.shape)] * count, group)

    def rearrange(self, move: Callable[[Array], Array]) -> AlternativeValues | None:
        """Apply an operation that only moves elements."""
        mask = move(self.mask.astype(np.float64)) == 1
        if not mask.any():
            return None
        rows, ranks = (move(array.astype(np.float64)).astype(np.int64) for array in (self.rows, self.ranks))
        return RankAlternatives(mask, rows, ranks, self.min_rank, self.max_rank, self.first_label)


def _find_unambiguous_keys(keys: Array, others: Array) -> Array:
    """Return a mask of the keys that are always paired with the same element of `others`."""
    pairs = np.unique(np.stack([keys.ravel(), others.ravel()]), axis=1)
    keys_found, counts = np.unique(pairs[0], return_counts=True)
    return np.asarray(counts[np.searchsorted(keys_found, keys)] == 1)


class OneHotAlternatives(AlternativeValues):
    """One-hot rows in which the position of the 1 is undecided."""

    def __init__(self, mask: Array, axis: int) -> None:
        self.mask, self.axis = mask, axis

    def find_nearest(self, actual: Array, value: Array, error_factor: float = 1.0) -> tuple[Array, Array]:
        """Return the device's row if it is a valid alternative, else the reference's."""
        actual64 = np.asarray(actual, np.float64)
        ones, zeros = actual64 == 1, actual64 == 0
        is_possible_row = (ones | zeros).all(self.axis, keepdims=True) & ~(ones & ~self.mask & (value != 1)).any(
            self.axis, keepdims=True
        )
        is_possible_row &= ones.sum(self.axis, keepdims=True) == 1
        return np.where(is_possible_row, actual64, value), np.zeros(value.shape)

    def enumerate_values(self, value: Array, error: Array) -> EnumeratedAlternatives | None:
        """Return the alternatives 0 and 1 for each undecided element."""
        zero_and_one = [np.where(self.mask, bit, value) for bit in (0.0, 1.0)]
        return EnumeratedAlternatives(self.mask, [value, *zero_and_one], [np.zeros(value.shape)] * 3)

    def get_block(self, index: Index) -> AlternativeValues | None:
        """Return the alternatives of the selected rows; None if the index splits rows."""
        axis = self.axis % self.mask.ndim
        axis_slice = index[axis] if len(index) > axis else slice(None)
        if range(*axis_slice.indices(self.mask.shape[axis])) == range(self.mask.shape[axis]):
            mask = self.mask[index]
            return OneHotAlternatives(mask, axis) if mask.any() else None
        return super().get_block(index)

    def rearrange(self, move: Callable[[Array], Array]) -> AlternativeValues | None:
        """Return None, because after the elements have moved a row may no longer contain exactly one 1."""
        return None


class BlockAlternatives(AlternativeValues):
    """Alternatives of a tensor that is evaluated in blocks. blocks: pairs of a block's index and its alternatives."""

    def __init__(self, shape: tuple[int, ...], blocks: Sequence[tuple[Index, AlternativeValues]]) -> None:
        self.blocks = list(blocks)
        self.mask = np.zeros(shape, bool)
        for index, alternatives in self.blocks:
            self.mask[index] = alternatives.mask

    @property
    def is_grouped(self) -> bool:
        """Whether one choice decides several elements."""
        return any(alternatives.is_grouped for _, alternatives in self.blocks)

    def find_nearest(self, actual: Array, value: Array, error_factor: float = 1.0) -> tuple[Array, Array]:
        """Return, for each element, the alternative nearest to the device's value, and its error."""
        values, errors = np.array(value), np.zeros(value.shape)
        for index, alternatives in self.blocks:
            values[index], errors[index] = alternatives.find_nearest(actual[index], value[index], error_factor)
        return values, errors

    def enumerate_values(self, value: Array, error: Array) -> EnumeratedAlternatives | None:
        """Return all alternatives; None if any block has too many."""
        enumerated = [
            (index, alternatives.enumerate_values(value[index], error[index])) for index, alternatives in self.blocks
        ]
        count = max(0 if alternatives is None else len(alternatives.values) for _, alternatives in enumerated)
        values, errors = [np.array(value) for _ in range(count)], [np.array(error) for _ in range(count)]
        group = (
            np.full(value.shape, INDEPENDENT)
            if any(alternatives is not None and alternatives.is_grouped for _, alternatives in enumerated)
            else None
        )
        for index, alternatives in enumerated:
            if alternatives is None:
                return None
            if group is not None and alternatives.group is not None:
                group[index] = alternatives.group
            for k in range(count):
                last = min(k, len(alternatives.values) - 1)
                values[k][index], errors[k][index] = alternatives.values[last], alternatives.errors[last]
        return EnumeratedAlternatives(self.mask, values, errors, group)

    def get_block(self, index: Index) -> AlternativeValues | None:
        """Return the alternatives of the selected elements."""
        for at, alternatives in self.blocks:
            if _is_same_index(at, index, self.mask.shape):
                return alternatives
        wanted_bounds = _get_slice_bounds(index, self.mask.shape)
        selected = []
        for at, alternatives in self.blocks:
            block_bounds = _get_slice_bounds(at, self.mask.shape)
            overlap = [(max(a, b), min(c, d)) for (a, c), (b, d) in zip(block_bounds, wanted_bounds, strict=True)]
            if any(low >= high for low, high in overlap):
                continue
            block = alternatives.get_block(_make_relative_slices(overlap, block_bounds))
            if block is not None:
                selected.append((_make_relative_slices(overlap, wanted_bounds), block))
        shape = tuple(stop - start for start, stop in wanted_bounds)
        return BlockAlternatives(shape, selected) if selected else None

    def drop_decided(self, decided: Array) -> AlternativeValues | None:
        """Return the alternatives of the elements that are still undecided."""
        blocks = [
            (index, remaining)
            for index, alternatives in self.blocks
            if (remaining := alternatives.drop_decided(decided[index])) is not None
        ]
        return BlockAlternatives(self.mask.shape, blocks) if blocks else None

    def round_to_storage(
        self, round_error: Callable[[Array, Array], Array | None], round_value: Callable[[Any], Array]
    ) -> AlternativeValues:
        """Round each alternative once to a storage type."""
        return BlockAlternatives(
            self.mask.shape,
            [(index, alternatives.round_to_storage(round_error, round_value)) for index, alternatives in self.blocks],
        )

    def scale_errors(self, factor: float) -> AlternativeValues:
        """Multiply the errors by a factor."""
        return BlockAlternatives(
            self.mask.shape, [(index, alternatives.scale_errors(factor)) for index, alternatives in self.blocks]
        )

    def rearrange(self, move: Callable[[Array], Array]) -> AlternativeValues | None:
        """Apply an operation that only moves elements; None if there are too many alternatives."""
        none = np.zeros(self.mask.shape)
        enumerated = self.enumerate_values(none, none)
        return None if enumerated is None else enumerated.rearrange(move)


def _is_same_index(at: Index, index: Index, shape: tuple[int, ...]) -> bool:
    return len(at) == len(index) and all(a.indices(n) == b.indices(n) for a, b, n in zip(at, index, shape, strict=True))


def _get_slice_bounds(index: Index, shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return (start, stop) of each slice of an index; a missing start or stop means the whole axis."""
    return [axis_slice.indices(size)[:2] for axis_slice, size in zip(index, shape, strict=True)]


def _make_relative_slices(spans: Sequence[tuple[int, int]], within: Sequence[tuple[int, int]]) -> Index:
    """Return `spans` as slices relative to the starts of the enclosing spans `within`."""
    return tuple(slice(low - first, high - first) for (low, high), (first, _) in zip(spans, within, strict=True))


def list_alternatives(value: Any) -> EnumeratedAlternatives | None:
    """Return the enumerated alternatives of a BoundedTensor; None if nothing is undecided or there are too many."""
    if value.alternatives is not None:
        alternatives: EnumeratedAlternatives | None = value.alternatives.enumerate_values(
            value.value, np.broadcast_to(value.get_errors(), value.shape)
        )
        return alternatives
    if value.dtype == bool and value.error is not None and (value.error > 0).any():
        mask = np.broadcast_to(value.error > 0, value.shape)
        none = np.zeros(value.shape)
        return EnumeratedAlternatives(mask, [value.value, value.value ^ mask], [none, none])
    return None


def is_undecided(value: Any) -> bool:
    """Return whether any element depends on an undecided choice."""
    return value.alternatives is not None or (
        value.dtype == bool and value.error is not None and bool((value.error > 0).any())
    )


def count_undecided(value: Any) -> int:
    """Return the number of elements that depend on an undecided choice."""
    if value.alternatives is not None:
        return int(np.count_nonzero(value.alternatives.mask))
    return int(np.count_nonzero(value.error > 0)) if is_undecided(value) else 0


# ---- labels that connect elements which depend on the same choice: equal labels take the same alternative


_DECIDED = -2  # label of elements that are decided in this input but undecided in another


def assign_choice_labels(alternatives: EnumeratedAlternatives) -> Array:
    """Return the label of each element; elements without a label get new ones."""
    new_label_array = reserve_choice_labels() + np.arange(alternatives.mask.size).reshape(alternatives.mask.shape)
    return (
        new_label_array
        if alternatives.group is None
        else np.where(alternatives.group == INDEPENDENT, new_label_array, alternatives.group)
    )


def assign_labels_before_broadcast(
    alternatives: EnumeratedAlternatives, shape: tuple[int, ...]
) -> EnumeratedAlternatives:
    """Label the elements before they are broadcast, so that all copies of an element take the same alternative."""
    if alternatives.mask.size == math.prod(shape):
        return alternatives
    return EnumeratedAlternatives(
        alternatives.mask, alternatives.values, alternatives.errors, assign_choice_labels(alternatives)
    )


def combine_labels(alternatives_per_input: Sequence[EnumeratedAlternatives | None], mask: Array) -> Array | None:
    """Return labels for the masked outputs of an elementwise operator.

    Two outputs share a label if their elements share a label in every input. If an element is independent in any
    input, the output is independent.
    """
    present = [alternatives for alternatives in alternatives_per_input if alternatives is not None]
    if all(alternatives.group is None for alternatives in present):
        return None
    rows = [np.broadcast_to(get_group_labels(alternatives), mask.shape)[mask] for alternatives in present]
    if len(rows) == 1:
        return _none_if_independent(rows[0])
    combined = np.zeros(rows[0].shape, np.uint64)
    is_independent = np.zeros(rows[0].shape, bool)
    for alternatives, row in zip(present, rows, strict=True):
        is_undecided = np.broadcast_to(alternatives.mask, mask.shape)[mask]
        is_independent |= is_undecided & (row == INDEPENDENT)
        combined = _hash_labels(combined, np.where(is_undecided, row, _DECIDED))
    return _none_if_independent(np.where(is_independent, INDEPENDENT, (combined >> np.uint64(1)).astype(np.int64)))


def combine_chosen_labels(
    first: EnumeratedAlternatives, second: EnumeratedAlternatives, undecided: Array, group: Array
) -> Array:
    """Return labels for elements selected from two tensors by undecided choices, which `group` labels."""
    before, other = (
        np.where(alternatives.mask, get_group_labels(alternatives), _DECIDED) for alternatives in (first, second)
    )
    combined = np.zeros(undecided.shape, np.uint64)
    for alternatives in (before, other, np.where(undecided, group, _DECIDED)):
        combined = _hash_labels(combined, alternatives)
    is_independent = (before == INDEPENDENT) | (other == INDEPENDENT)
    return np.where(is_independent, INDEPENDENT, (combined >> np.uint64(1)).astype(np.int64))


def get_group_labels(alternatives: EnumeratedAlternatives) -> Array:
    return np.full(alternatives.mask.shape, INDEPENDENT) if alternatives.group is None else alternatives.group


def _none_if_independent(row: Array) -> Array | None:
    return row if (row != INDEPENDENT).any() else None


def _hash_labels(combined: Array, labels: Array) -> Array:
    """Hash two labels into one with the SplitMix64 finalizer; 63 bits make collisions very unlikely."""
    mixed = combined * np.uint64(0x9E3779B97F4A7C15) + labels.astype(np.int64).view(np.uint64) + np.uint64(1)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def concat_labels(
    alternatives_per_input: Sequence[EnumeratedAlternatives | None], shapes: Sequence[tuple[int, ...]]
) -> list[Array] | None:
    """Return the labels of concatenated tensors; None if there are none."""
    if all(alternatives is None or alternatives.group is None for alternatives in alternatives_per_input):
        return None
    return [
        np.full(shape, INDEPENDENT) if alternatives is None else get_group_labels(alternatives)
        for alternatives, shape in zip(alternatives_per_input, shapes, strict=True)
    ]
