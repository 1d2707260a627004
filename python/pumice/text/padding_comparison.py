"""Compare masks, biases and positions between runs with and without padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..base.element_types import Array
from .length_evaluation import LengthValues, Probe, Size, Sizes, probes_of

HIDDEN = -9e3  # scores at or below this get zero softmax weight
KEYS = Size(0, 1, 1)  # past + rows: the size of a key axis
ROWS = Size(0, 0, 1)


class Layout(NamedTuple):
    """Query and key axes of a value, as negative indices; 0 if absent."""

    rows: int
    keys: int


def layout_of(sizes: Sizes) -> Layout | None:
    """Return the query and key axes of a value; None if it has several of a kind, or other axes that depend on the lengths."""
    keys = [i - len(sizes) for i, size in enumerate(sizes) if size.per_past]
    rows = [i - len(sizes) for i, size in enumerate(sizes) if size.per_row and not size.per_past]
    if len(keys) > 1 or len(rows) > 1 or any(sizes[i] != KEYS for i in keys) or any(sizes[i] != ROWS for i in rows):
        return None
    return Layout(rows[0] if rows else 0, keys[0] if keys else 0)


class LengthChecks:
    """Compares values that depend only on lengths between runs with and without padding."""

    def __init__(self, values: LengthValues, sizes: Mapping[str, Sizes], context: int | None) -> None:
        self.values, self.sizes, self.pairs = values, sizes, probes_of(context)
        self._found: dict[tuple[str, bool], bool] = {}

    def is_right(self, name: str, up_to_shift: bool = False) -> bool:
        """Return whether all runs have the same values. up_to_shift: ignore a constant offset per row."""
        key = name, up_to_shift
        if key not in self._found:
            layout = layout_of(self.sizes[name]) if name in self.sizes else None
            self._found[key] = layout is not None and all(
                self._agrees(name, layout, *pair, up_to_shift) for pair in self.pairs
            )
        return self._found[key]

    def aligned(self, name: str, layout: Layout, run: Probe, true: Probe) -> tuple[Array, Array, Array]:
        """Return the elements of both runs for the same rows and keys, and a mask of the keys to which each row may attend."""
        made, expected = self.values.at(run)[name], self.values.at(true)[name]
        if layout.keys:
            made = made.take(range(run.padding, run.capacity), layout.keys)
            expected = expected.take(range(run.total), layout.keys)
        if layout.rows:
            first = run.past - true.past
            expected = expected.take(range(first, first + run.rows), layout.rows)
        shape = np.broadcast_shapes(made.shape, expected.shape)
        later = _is_later(run, layout, len(shape)) if layout.keys and layout.rows else np.zeros((), bool)
        return made, expected, np.broadcast_to(~later, shape)

    def _agrees(self, name: str, layout: Layout, run: Probe, true: Probe, up_to_shift: bool) -> bool:
        made, expected, seen = self.aligned(name, layout, run, true)
        if made.shape != expected.shape:
            return False
        if made.dtype.kind not in "fV" and not up_to_shift:
            return bool(np.array_equal(made[seen], expected[seen]))
        made, expected = made.astype(np.float64), expected.astype(np.float64)
        scores = seen & (np.abs(expected) < -HIDDEN)
        tolerance = 2e-6 * max(1.0, float(np.abs(expected[scores]).max(initial=0)))
        if not up_to_shift:
            is_low = (made <= HIDDEN) & (expected <= HIDDEN)
            return bool((np.isclose(made, expected, 2e-6, tolerance, True) | is_low)[seen].all())
        if not layout.keys:
            return False
        seen = seen & ~((made <= HIDDEN) & (expected <= HIDDEN))
        with np.errstate(all="ignore"):
            apart = made - expected
        low = np.where(seen, apart, np.inf).min(layout.keys, initial=np.inf)
        high = np.where(seen, apart, -np.inf).max(layout.keys, initial=-np.inf)
        return bool((high - low <= tolerance).all())

    def hides(self, runs: Sequence[Array], layout: Layout) -> tuple[bool, bool]:
        """Return whether scores mask later tokens, and whether they mask padding. runs: the scores of each pair's first run."""
        later = padding = True
        for (run, _), scores in zip(self.pairs, runs, strict=True):
            is_low = np.broadcast_to(scores <= HIDDEN, _spread(scores, layout, run))
            hidden = _is_later(run, layout, is_low.ndim, with_padding=True)
            later &= bool(layout.rows) and bool(is_low[np.broadcast_to(hidden, is_low.shape)].all())
            padded = _along(np.arange(run.capacity) < run.padding, layout.keys, is_low.ndim)
            padding &= bool(is_low[np.broadcast_to(padded, is_low.shape)].all())
        return later, padding


def _along(values: Array, axis: int, rank: int) -> Array:
    return values.reshape([-1 if i - rank == axis else 1 for i in range(rank)])


def _is_later(run: Probe, layout: Layout, rank: int, with_padding: bool = False) -> Array:
    """Return a mask of the keys that come after each row. with_padding: include the keys in the padding."""
    if not layout.rows:
        return np.zeros([1] * rank, bool)
    keys = np.arange(-run.padding if with_padding else 0, run.total)
    return _along(keys, layout.keys, rank) > _along(np.arange(run.past, run.total), layout.rows, rank)


def _spread(scores: Array, layout: Layout, run: Probe) -> tuple[int, ...]:
    """Return the shape of scores broadcast to all rows and keys."""
    rank = max(scores.ndim, -layout.keys, -layout.rows)
    shape = [1] * rank
    shape[layout.keys] = run.capacity
    if layout.rows:
        shape[layout.rows] = run.rows
    return np.broadcast_shapes(scores.shape, tuple(shape))
