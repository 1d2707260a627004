"""Labels of elements that depend on the same choice: elements with equal labels have the same alternative."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...base.element_types import Array
from .bounded import Bounded
from .alternatives import ALONE, Options, as_options, is_undecided, new_labels

_DECIDED = -2  # replaces the label of an element that is decided in this input but not in others


def labelled(options: Options) -> Array:
    """Return the labels of choices; elements without one get a new label."""
    own = new_labels() + np.arange(options.mask.size).reshape(options.mask.shape)
    return own if options.group is None else np.where(options.group == ALONE, own, options.group)


def repeated(options: Options, shape: tuple[int, ...]) -> Options:
    """Label options before broadcasting, so that all copies of an element have the same alternative."""
    if options.mask.size == math.prod(shape):
        return options
    return Options(options.mask, options.values, options.errors, labelled(options))


def of_one_choice(value: Bounded, shape: tuple[int, ...]) -> Bounded:
    """Label a value before its broadcast result is split into blocks."""
    options = as_options(value) if value.size != math.prod(shape) and is_undecided(value) else None
    if options is None:
        return value
    whole = value.whole()
    made = Bounded(whole.value, whole.error, whole.dtype, whole.stored, whole.constant)
    return made.with_sides(repeated(options, shape))


def joined_groups(several: Sequence[Options | None], mask: Array) -> Array | None:
    """Return labels for the outputs of an elementwise operator at the masked elements. several: options of the inputs,
    combined pairwise.

    Outputs share a label if they share one in every input. An element that is independent in one input stays
    independent.
    """
    given = [one for one in several if one is not None]
    if all(one.group is None for one in given):
        return None
    rows = [np.broadcast_to(_labels(one), mask.shape)[mask] for one in given]
    if len(rows) == 1:
        return _some(rows[0])
    made = np.zeros(rows[0].shape, np.uint64)
    alone = np.zeros(rows[0].shape, bool)
    for one, row in zip(given, rows, strict=True):
        held = np.broadcast_to(one.mask, mask.shape)[mask]
        alone |= held & (row == ALONE)
        made = _mixed(made, np.where(held, row, _DECIDED))
    return _some(np.where(alone, ALONE, (made >> np.uint64(1)).astype(np.int64)))


def chosen_groups(first: Options, second: Options, unsure: Array, group: Array) -> Array:
    """Return labels for elements that come from either of two tensors, depending on the choices that `group` labels."""
    before, other = (np.where(one.mask, _labels(one), _DECIDED) for one in (first, second))
    made = np.zeros(unsure.shape, np.uint64)
    for one in (before, other, np.where(unsure, group, _DECIDED)):
        made = _mixed(made, one)
    alone = (before == ALONE) | (other == ALONE)
    return np.where(alone, ALONE, (made >> np.uint64(1)).astype(np.int64))


def _labels(options: Options) -> Array:
    return np.full(options.mask.shape, ALONE) if options.group is None else options.group


def _some(row: Array) -> Array | None:
    return row if (row != ALONE).any() else None


def _mixed(made: Array, labels: Array) -> Array:
    """Hash two labels into one with the SplitMix64 finalizer; 63 bits make collisions very unlikely."""
    mixed = made * np.uint64(0x9E3779B97F4A7C15) + labels.astype(np.int64).view(np.uint64) + np.uint64(1)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def stacked(several: Sequence[Options | None], shapes: Sequence[tuple[int, ...]]) -> list[Array] | None:
    """Return the labels of concatenated tensors; None if there are none."""
    if all(one is None or one.group is None for one in several):
        return None
    return [np.full(shape, ALONE) if one is None else _labels(one) for one, shape in zip(several, shapes, strict=True)]


class OneSided:
    """The alternative chosen for each label: the one that makes all its device values right, or least wrong."""

    def __init__(self) -> None:
        # Per block: its labels, and per (alternative, label) the number of wrong elements and the largest ratio.
        self._seen: list[tuple[Array, Array, Array]] = []
        self._labels: Array = np.zeros(0, np.int64)
        self._sides: Array = np.zeros(0, np.int64)

    def add(self, options: Options, ratios: Sequence[Array]) -> None:
        """Add a block of device values. ratios: error / bound for each alternative."""
        held = _of_groups(options)
        if not held.any():
            return
        labels, at = np.unique(_labels(options)[held], return_inverse=True)
        shape = len(ratios), len(labels)
        wrong, most = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
        for k, ratio in enumerate(ratios):
            one = np.nan_to_num(ratio[held], nan=np.inf)
            np.add.at(wrong[k], at.reshape(-1), one > 1)
            with np.errstate(over="ignore"):
                np.maximum.at(most[k], at.reshape(-1), one.astype(np.float32))
        self._seen.append((labels, wrong, most))

    def settle(self) -> OneSided:
        """Choose the alternatives after all blocks are added."""
        if not self._seen:
            return self
        self._labels, at = np.unique(np.concatenate([labels for labels, _, _ in self._seen]), return_inverse=True)
        sides = max(len(some) for _, some, _ in self._seen)
        wrong, most = np.zeros((sides, len(self._labels)), np.int32), np.zeros((sides, len(self._labels)), np.float32)
        ends = np.cumsum([0, *(len(labels) for labels, _, _ in self._seen)])
        for (_, some, worst), begin, end in zip(self._seen, ends, ends[1:], strict=False):
            # A missing alternative repeats the last one.
            here, rows = at.reshape(-1)[begin:end], np.minimum(np.arange(sides), len(some) - 1)
            wrong[:, here] += some[rows]
            most[:, here] = np.maximum(most[:, here], worst[rows])
        self._sides = np.lexsort((most, wrong), axis=0)[0]
        return self

    def of(self, value: Bounded) -> Bounded:
        """Return a value, or a block of one, with only the chosen alternative of each label."""
        options = as_options(value) if value.sides is not None and value.sides.is_grouped else None
        if options is None or not len(self._labels):
            return value
        held = _of_groups(options)
        place = np.searchsorted(self._labels, np.where(held, _labels(options), self._labels[0]))
        side = np.minimum(self._sides[place], len(options.values) - 1)[None]
        values, errors = (np.stack(np.broadcast_arrays(*one)) for one in (options.values, options.errors))
        value_of, error_of = (np.take_along_axis(one, side, 0)[0] for one in (values, errors))
        left = [np.where(held, value_of, one) for one in values], [np.where(held, error_of, one) for one in errors]
        made = Bounded(value.value, value.error, value.dtype, value.stored, value.constant)
        return made.with_sides(Options(options.mask, *left))


def _of_groups(options: Options) -> Array:
    return np.asarray(options.mask & (_labels(options) != ALONE))
