"""Ordering of values with errors: the candidates for the largest value, and for each rank."""

from __future__ import annotations

import numpy as np

from ...base.element_types import Array
from .bounded import Bounded
from .alternatives import Ranked
from .float_types import Types


def best_of(x: Bounded, axis: int, made: Bounded, types: Types, last: bool = False) -> Bounded:
    """Return the index of the largest value, undecided if several may be the largest.

    made: the reference's choice, without the axis. last: whether ties take the last index instead of the first.
    """
    if last:
        flipped = Bounded(np.flip(x.value, axis), np.flip(x.errors(), axis), x.dtype)
        turned = best_of(flipped, axis, made.moved(lambda v: x.shape[axis] - 1 - v), types)
        if not isinstance(turned.sides, Ranked):
            return made
        sides = turned.sides
        back = Ranked(sides.mask, sides.rows, sides.places, np.flip(sides.sure, 1), np.flip(sides.maybe, 1))
        return Bounded(made.value, turned.error, made.dtype).with_sides(back)
    first = made.moved(lambda v: np.expand_dims(v, axis))
    return places_of(x, axis, first, types).moved(lambda v: np.squeeze(v, axis))


def places_of(x: Bounded, axis: int, made: Bounded, types: Types) -> Bounded:
    """Return the indices of the largest values in descending order, undecided if rounding may change them. Ties take
    the first.

    made: the reference's choice.
    """
    count = x.shape[axis]
    rows = np.moveaxis(x.value, axis, -1).reshape(-1, count)
    reach = types.reach(np.moveaxis(np.broadcast_to(x.errors(), x.shape), axis, -1).reshape(-1, count))
    chosen = np.moveaxis(made.value, axis, -1)
    wanted = np.arange(chosen.shape[-1])
    sure, maybe = np.zeros(rows.shape, np.int32), np.zeros(rows.shape, np.int32)
    mask = np.zeros((len(rows), len(wanted)), bool)
    for i in np.flatnonzero(_close(rows, reach, len(wanted))):
        sure[i], maybe[i] = _before(rows[i], reach[i])
        mask[i] = ((sure[i][:, None] <= wanted) & (wanted <= maybe[i][:, None])).sum(0) > 1
    if not mask.any():
        return made
    number = np.broadcast_to(np.arange(len(rows)).reshape(*chosen.shape[:-1], 1), chosen.shape)
    all_of = (mask.reshape(chosen.shape), number, np.broadcast_to(wanted, chosen.shape))
    undecided, number, places = (np.moveaxis(one, -1, axis) for one in all_of)
    sides = Ranked(undecided, number, places, sure, maybe)
    return Bounded(made.value, np.where(undecided, np.inf, 0.0), made.dtype).with_sides(sides)


def _ends(rows: Array, reach: Array) -> tuple[Array, Array]:
    """Return the bounds of each value; NaN sorts first."""
    with np.errstate(all="ignore"):
        low, high = (np.where(reach == 0, rows, rows + sign * reach) for sign in (-1, 1))
    missing = np.isnan(rows)
    low = np.where(missing, np.inf, np.where(np.isnan(low), -np.inf, low))
    return low, np.where(missing | np.isnan(high), np.inf, high)


def _close(rows: Array, reach: Array, wanted: int) -> Array:
    """Return a mask of the rows in which one of the first `wanted` values may change its rank."""
    if not rows.shape[1]:
        return np.zeros(len(rows), bool)
    low, high = _ends(rows, reach)
    order = np.argsort(-np.where(np.isnan(rows), np.inf, rows), axis=1, kind="stable")
    low = np.minimum.accumulate(np.take_along_axis(low, order, 1), axis=1)
    high = np.maximum.accumulate(np.take_along_axis(high, order, 1)[:, ::-1], axis=1)[:, ::-1]
    apart = low[:, :-1] > high[:, 1:]
    return np.asarray(~apart[:, :wanted].all(1) & (reach > 0).any(1))


def _before(row: Array, reach: Array) -> tuple[Array, Array]:
    """Return, for each value of a row, how many others certainly precede it and how many may precede it."""
    low, high = _ends(row, reach)
    count = len(row)
    sure = np.asarray(count - np.searchsorted(np.sort(low), high, "right"))
    maybe = np.asarray(count - np.searchsorted(np.sort(high), low, "left") - 1)
    # Exact equal values keep their order.
    exact = np.flatnonzero((reach == 0) | np.isnan(row))
    if len(exact) > 1:
        _, group = np.unique(high[exact], return_inverse=True)
        group = np.asarray(group).reshape(-1)
        order = np.argsort(group, kind="stable")
        sizes = np.bincount(group)
        ranks = np.empty(len(exact), np.int64)
        ranks[order] = np.arange(len(exact)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        sure[exact] += ranks
        maybe[exact] -= sizes[group] - 1 - ranks
    return sure, maybe
