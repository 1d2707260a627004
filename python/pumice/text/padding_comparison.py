"""Compare a decoder's masks, biases and positions between runs with and without padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..base.element_types import Array
from .length_evaluation import LengthEvaluator, LengthProbe, LinearSize, Sizes, make_probe_pairs

MASKED_SCORE = -9e3  # scores up to this value get a softmax weight of zero
KEY_AXIS_SIZE = LinearSize(0, 1, 1)  # past + new_tokens
QUERY_AXIS_SIZE = LinearSize(0, 0, 1)  # new_tokens


class AttentionAxes(NamedTuple):
    """The query axis and the key axis of a value, as negative indices; 0 if absent."""

    queries: int
    keys: int


def find_attention_axes(sizes: Sizes) -> AttentionAxes | None:
    """Return the query and key axes of a value; None if it has several of either, or other axes that depend on the lengths."""
    keys = [i - len(sizes) for i, size in enumerate(sizes) if size.per_past]
    queries = [i - len(sizes) for i, size in enumerate(sizes) if size.per_token and not size.per_past]
    if (
        len(keys) > 1
        or len(queries) > 1
        or any(sizes[i] != KEY_AXIS_SIZE for i in keys)
        or any(sizes[i] != QUERY_AXIS_SIZE for i in queries)
    ):
        return None
    return AttentionAxes(queries[0] if queries else 0, keys[0] if keys else 0)


class PaddingComparison:
    """Compares values that depend only on lengths between runs with and without padding. values: evaluates them."""

    def __init__(self, values: LengthEvaluator, sizes: Mapping[str, Sizes], context: int | None) -> None:
        self.values, self.sizes, self.pairs = values, sizes, make_probe_pairs(context)
        self._invariance: dict[tuple[str, bool], bool] = {}

    def is_padding_invariant(self, name: str, up_to_shift: bool = False) -> bool:
        """Return whether a value is the same with and without padding. up_to_shift: ignore a constant offset per row."""
        key = name, up_to_shift
        if key not in self._invariance:
            axes = find_attention_axes(self.sizes[name]) if name in self.sizes else None
            self._invariance[key] = axes is not None and all(
                self._runs_match(name, axes, *pair, up_to_shift) for pair in self.pairs
            )
        return self._invariance[key]

    def align_runs(
        self, name: str, axes: AttentionAxes, run: LengthProbe, unpadded: LengthProbe
    ) -> tuple[Array, Array, Array]:
        """Return the elements of both runs for the same queries and keys, and a mask that is true where a query may attend to a key."""
        actual, expected = self.values.evaluate(run)[name], self.values.evaluate(unpadded)[name]
        if axes.keys:
            actual = actual.take(range(run.padding, run.capacity), axes.keys)
            expected = expected.take(range(run.total_tokens), axes.keys)
        if axes.queries:
            first = run.past - unpadded.past
            expected = expected.take(range(first, first + run.new_tokens), axes.queries)
        shape = np.broadcast_shapes(actual.shape, expected.shape)
        is_future = _make_future_key_mask(run, axes, len(shape)) if axes.keys and axes.queries else np.zeros((), bool)
        return actual, expected, np.broadcast_to(~is_future, shape)

    def _runs_match(
        self, name: str, axes: AttentionAxes, run: LengthProbe, unpadded: LengthProbe, up_to_shift: bool
    ) -> bool:
        actual, expected, visible = self.align_runs(name, axes, run, unpadded)
        if actual.shape != expected.shape:
            return False
        if actual.dtype.kind not in "fV" and not up_to_shift:
            return bool(np.array_equal(actual[visible], expected[visible]))
        actual, expected = actual.astype(np.float64), expected.astype(np.float64)
        scores = visible & (np.abs(expected) < -MASKED_SCORE)
        tolerance = 2e-6 * max(1.0, float(np.abs(expected[scores]).max(initial=0)))
        if not up_to_shift:
            is_low = (actual <= MASKED_SCORE) & (expected <= MASKED_SCORE)
            return bool((np.isclose(actual, expected, 2e-6, tolerance, True) | is_low)[visible].all())
        if not axes.keys:
            return False
        visible = visible & ~((actual <= MASKED_SCORE) & (expected <= MASKED_SCORE))
        with np.errstate(all="ignore"):
            difference = actual - expected
        low = np.where(visible, difference, np.inf).min(axes.keys, initial=np.inf)
        high = np.where(visible, difference, -np.inf).max(axes.keys, initial=-np.inf)
        return bool((high - low <= tolerance).all())

    def find_masked_regions(self, runs: Sequence[Array], axes: AttentionAxes) -> tuple[bool, bool]:
        """Return whether scores mask later tokens, and whether they mask padding. runs: the scores in the padded run of each pair."""
        masks_future = masks_padding = True
        for (run, _), scores in zip(self.pairs, runs, strict=True):
            is_low = np.broadcast_to(scores <= MASKED_SCORE, _get_broadcast_shape(scores, axes, run))
            hidden = _make_future_key_mask(run, axes, is_low.ndim, with_padding=True)
            masks_future &= bool(axes.queries) and bool(is_low[np.broadcast_to(hidden, is_low.shape)].all())
            padded = _reshape_along(np.arange(run.capacity) < run.padding, axes.keys, is_low.ndim)
            masks_padding &= bool(is_low[np.broadcast_to(padded, is_low.shape)].all())
        return masks_future, masks_padding


def _reshape_along(values: Array, axis: int, rank: int) -> Array:
    return values.reshape([-1 if i - rank == axis else 1 for i in range(rank)])


def _make_future_key_mask(run: LengthProbe, axes: AttentionAxes, rank: int, with_padding: bool = False) -> Array:
    """Return a mask that is true for keys after the query's own token. with_padding: the key axis includes the padding."""
    if not axes.queries:
        return np.zeros([1] * rank, bool)
    keys = np.arange(-run.padding if with_padding else 0, run.total_tokens)
    return _reshape_along(keys, axes.keys, rank) > _reshape_along(
        np.arange(run.past, run.total_tokens), axes.queries, rank
    )


def _get_broadcast_shape(scores: Array, axes: AttentionAxes, run: LengthProbe) -> tuple[int, ...]:
    """Return the shape of scores, broadcast to all queries and keys of a run."""
    rank = max(scores.ndim, -axes.keys, -axes.queries)
    shape = [1] * rank
    shape[axes.keys] = run.capacity
    if axes.queries:
        shape[axes.queries] = run.new_tokens
    return np.broadcast_shapes(scores.shape, tuple(shape))
