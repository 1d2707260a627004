"""Labels that connect elements which depend on the same choice: equal labels take the same alternative."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...base.element_types import Array
from .alternative_values import (
    INDEPENDENT,
    EnumeratedAlternatives,
    is_undecided,
    list_alternatives,
    reserve_choice_labels,
)
from .bounded_tensor import BoundedTensor

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


def label_value(value: BoundedTensor, shape: tuple[int, ...]) -> BoundedTensor:
    """Label the alternatives of a value that is broadcast, before the result is split into blocks."""
    alternatives = list_alternatives(value) if value.size != math.prod(shape) and is_undecided(value) else None
    if alternatives is None:
        return value
    whole = value.materialize()
    combined = BoundedTensor(whole.value, whole.error, whole.dtype, whole.stored, whole.constant)
    return combined.set_alternatives(assign_labels_before_broadcast(alternatives, shape))


def combine_labels(alternatives_per_input: Sequence[EnumeratedAlternatives | None], mask: Array) -> Array | None:
    """Return labels for the masked outputs of an elementwise operator.

    Two outputs share a label if their elements share a label in every input. If an element is independent in any
    input, the output is independent.
    """
    present = [alternatives for alternatives in alternatives_per_input if alternatives is not None]
    if all(alternatives.group is None for alternatives in present):
        return None
    rows = [np.broadcast_to(_get_group_labels(alternatives), mask.shape)[mask] for alternatives in present]
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
        np.where(alternatives.mask, _get_group_labels(alternatives), _DECIDED) for alternatives in (first, second)
    )
    combined = np.zeros(undecided.shape, np.uint64)
    for alternatives in (before, other, np.where(undecided, group, _DECIDED)):
        combined = _hash_labels(combined, alternatives)
    is_independent = (before == INDEPENDENT) | (other == INDEPENDENT)
    return np.where(is_independent, INDEPENDENT, (combined >> np.uint64(1)).astype(np.int64))


def _get_group_labels(alternatives: EnumeratedAlternatives) -> Array:
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
        np.full(shape, INDEPENDENT) if alternatives is None else _get_group_labels(alternatives)
        for alternatives, shape in zip(alternatives_per_input, shapes, strict=True)
    ]


class CorrelatedAlternatives:
    """Chooses the best alternative for each label: fewest wrong device values first, then smallest error."""

    def __init__(self) -> None:
        # For each block: the labels, and for each (alternative, label) the number of wrong elements and the largest ratio.
        self._blocks: list[tuple[Array, Array, Array]] = []
        self._group_labels: Array = np.zeros(0, np.int64)
        self._choices: Array = np.zeros(0, np.int64)

    def add(self, alternatives: EnumeratedAlternatives, ratios: Sequence[Array]) -> None:
        """Add a block of device values. ratios: error / bound for each alternative."""
        is_shared = _compute_grouped_mask(alternatives)
        if not is_shared.any():
            return
        labels, at = np.unique(_get_group_labels(alternatives)[is_shared], return_inverse=True)
        shape = len(ratios), len(labels)
        wrong, worst = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
        for k, ratio in enumerate(ratios):
            block_ratio = np.nan_to_num(ratio[is_shared], nan=np.inf)
            np.add.at(wrong[k], at.reshape(-1), block_ratio > 1)
            with np.errstate(over="ignore"):
                np.maximum.at(worst[k], at.reshape(-1), block_ratio.astype(np.float32))
        self._blocks.append((labels, wrong, worst))

    def choose(self) -> CorrelatedAlternatives:
        """Choose an alternative for each label. Call this after all blocks are added."""
        if not self._blocks:
            return self
        self._group_labels, at = np.unique(
            np.concatenate([labels for labels, _, _ in self._blocks]), return_inverse=True
        )
        num_alternatives = max(len(counts) for _, counts, _ in self._blocks)
        wrong, worst_ratio = (
            np.zeros((num_alternatives, len(self._group_labels)), np.int32),
            np.zeros((num_alternatives, len(self._group_labels)), np.float32),
        )
        ends = np.cumsum([0, *(len(labels) for labels, _, _ in self._blocks)])
        for (_, counts, worst), begin, end in zip(self._blocks, ends, ends[1:], strict=False):
            # If the block has fewer alternatives than others, repeat the last one.
            label_indices, rows = at.reshape(-1)[begin:end], np.minimum(np.arange(num_alternatives), len(counts) - 1)
            wrong[:, label_indices] += counts[rows]
            worst_ratio[:, label_indices] = np.maximum(worst_ratio[:, label_indices], worst[rows])
        self._choices = np.lexsort((worst_ratio, wrong), axis=0)[0]
        return self

    def apply(self, value: BoundedTensor) -> BoundedTensor:
        """Return a tensor or block reduced to the chosen alternative of each label."""
        alternatives = (
            list_alternatives(value) if value.alternatives is not None and value.alternatives.is_grouped else None
        )
        if alternatives is None or not len(self._group_labels):
            return value
        is_shared = _compute_grouped_mask(alternatives)
        label_index = np.searchsorted(
            self._group_labels, np.where(is_shared, _get_group_labels(alternatives), self._group_labels[0])
        )
        chosen = np.minimum(self._choices[label_index], len(alternatives.values) - 1)[None]
        values, errors = (
            np.stack(np.broadcast_arrays(*value_array)) for value_array in (alternatives.values, alternatives.errors)
        )
        value_of, error_of = (np.take_along_axis(value_array, chosen, 0)[0] for value_array in (values, errors))
        resolved = (
            [np.where(is_shared, value_of, value_array) for value_array in values],
            [np.where(is_shared, error_of, value_array) for value_array in errors],
        )
        result = BoundedTensor(value.value, value.error, value.dtype, value.stored, value.constant)
        return result.set_alternatives(EnumeratedAlternatives(alternatives.mask, *resolved))


def _compute_grouped_mask(alternatives: EnumeratedAlternatives) -> Array:
    return np.asarray(alternatives.mask & (_get_group_labels(alternatives) != INDEPENDENT))
