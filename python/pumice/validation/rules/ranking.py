"""Argmax and sorting of values with errors: which elements may be the largest or have a given rank."""

from __future__ import annotations

import numpy as np

from ...base.element_types import Array
from .alternative_values import RankAlternatives
from .bounded_tensor import BoundedTensor
from .float_types import ProgramTypes


def find_argmax(
    x: BoundedTensor, axis: int, reference_choice: BoundedTensor, types: ProgramTypes, last: bool = False
) -> BoundedTensor:
    """Return the index of the largest value; it is undecided if several values may be the largest.

    reference_choice: the reference's indices, without the axis. last: whether ties go to the last index
    instead of the first.
    """
    if last:
        flipped = BoundedTensor(np.flip(x.value, axis), np.flip(x.get_errors(), axis), x.dtype)
        flipped_ranking = find_argmax(flipped, axis, reference_choice.rearrange(lambda v: x.shape[axis] - 1 - v), types)
        if not isinstance(flipped_ranking.alternatives, RankAlternatives):
            return reference_choice
        alternatives = flipped_ranking.alternatives
        back = RankAlternatives(
            alternatives.mask,
            alternatives.rows,
            alternatives.ranks,
            np.flip(alternatives.min_rank, 1),
            np.flip(alternatives.max_rank, 1),
        )
        return BoundedTensor(reference_choice.value, flipped_ranking.error, reference_choice.dtype).set_alternatives(
            back
        )
    first = reference_choice.rearrange(lambda v: np.expand_dims(v, axis))
    return find_sorted_indices(x, axis, first, types).rearrange(lambda v: np.squeeze(v, axis))


def find_sorted_indices(
    x: BoundedTensor, axis: int, reference_choice: BoundedTensor, types: ProgramTypes
) -> BoundedTensor:
    """Return the indices of the largest values in descending order; an index is undecided if rounding may change it.

    Ties go to the lower index. reference_choice: the reference's indices.
    """
    count = x.shape[axis]
    rows = np.moveaxis(x.value, axis, -1).reshape(-1, count)
    max_error = types.to_max_deviation(
        np.moveaxis(np.broadcast_to(x.get_errors(), x.shape), axis, -1).reshape(-1, count)
    )
    chosen = np.moveaxis(reference_choice.value, axis, -1)
    ranks = np.arange(chosen.shape[-1])
    min_rank, max_rank = np.zeros(rows.shape, np.int32), np.zeros(rows.shape, np.int32)
    mask = np.zeros((len(rows), len(ranks)), bool)
    for i in np.flatnonzero(_find_rows_with_undecided_ranks(rows, max_error, len(ranks))):
        min_rank[i], max_rank[i] = _count_predecessors(rows[i], max_error[i])
        mask[i] = ((min_rank[i][:, None] <= ranks) & (ranks <= max_rank[i][:, None])).sum(0) > 1
    if not mask.any():
        return reference_choice
    row_index = np.broadcast_to(np.arange(len(rows)).reshape(*chosen.shape[:-1], 1), chosen.shape)
    all_of = (mask.reshape(chosen.shape), row_index, np.broadcast_to(ranks, chosen.shape))
    undecided, row_index, rank_grid = (np.moveaxis(grid, -1, axis) for grid in all_of)
    alternatives = RankAlternatives(undecided, row_index, rank_grid, min_rank, max_rank)
    return BoundedTensor(
        reference_choice.value, np.where(undecided, np.inf, 0.0), reference_choice.dtype
    ).set_alternatives(alternatives)


def _compute_value_intervals(rows: Array, max_error: Array) -> tuple[Array, Array]:
    """Return the lower and upper bound of each value; NaN sorts first."""
    with np.errstate(all="ignore"):
        low, high = (np.where(max_error == 0, rows, rows + sign * max_error) for sign in (-1, 1))
    missing = np.isnan(rows)
    low = np.where(missing, np.inf, np.where(np.isnan(low), -np.inf, low))
    return low, np.where(missing | np.isnan(high), np.inf, high)


def _find_rows_with_undecided_ranks(rows: Array, max_error: Array, num_ranks: int) -> Array:
    """Return a mask of the rows in which one of the first `num_ranks` values may change its rank."""
    if not rows.shape[1]:
        return np.zeros(len(rows), bool)
    low, high = _compute_value_intervals(rows, max_error)
    order = np.argsort(-np.where(np.isnan(rows), np.inf, rows), axis=1, kind="stable")
    low = np.minimum.accumulate(np.take_along_axis(low, order, 1), axis=1)
    high = np.maximum.accumulate(np.take_along_axis(high, order, 1)[:, ::-1], axis=1)[:, ::-1]
    is_separated = low[:, :-1] > high[:, 1:]
    return np.asarray(~is_separated[:, :num_ranks].all(1) & (max_error > 0).any(1))


def _count_predecessors(row: Array, max_error: Array) -> tuple[Array, Array]:
    """Return, for each value of a row, how many other values certainly precede it, and how many may precede it."""
    low, high = _compute_value_intervals(row, max_error)
    count = len(row)
    min_rank = np.asarray(count - np.searchsorted(np.sort(low), high, "right"))
    max_rank = np.asarray(count - np.searchsorted(np.sort(high), low, "left") - 1)
    # Equal values without errors stay in index order.
    exact = np.flatnonzero((max_error == 0) | np.isnan(row))
    if len(exact) > 1:
        _, group = np.unique(high[exact], return_inverse=True)
        group = np.asarray(group).reshape(-1)
        order = np.argsort(group, kind="stable")
        sizes = np.bincount(group)
        ranks = np.empty(len(exact), np.int64)
        ranks[order] = np.arange(len(exact)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        min_rank[exact] += ranks
        max_rank[exact] -= sizes[group] - 1 - ranks
    return min_rank, max_rank
