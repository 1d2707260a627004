"""Elementwise operators on undecided elements: every alternative is evaluated, if there are few."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...base.element_types import Array
from .bounded import Bounded
from .choice_groups import chosen_groups, joined_groups, labelled, repeated, stacked
from .registry import Call, Rule
from .alternatives import ALONE, MOST, Options, as_options, is_undecided

_MOST_RUNS = 16  # maximum number of combinations of the inputs' alternatives


def with_choices(found: Rule, call: Call, made: list[Any]) -> list[Any]:
    """Add the results for every alternative of the inputs to the result of an elementwise operator."""
    inputs = call.given
    if len(made) != 1 or not isinstance(made[0], Bounded) or call.types.values_only:
        return made
    if not all(one is None or isinstance(one, Bounded) for one in inputs):
        return made
    if not any(one is not None and is_undecided(one) for one in inputs):
        return made
    several = [None if one is None else as_options(one) for one in inputs]
    runs = 1
    for options in several:
        runs *= 1 if options is None else len(options.values)
    unknown = any(one is not None and is_undecided(one) and several[i] is None for i, one in enumerate(inputs))
    if runs > _MOST_RUNS or unknown:
        return [_by_error(made[0])]
    mask = np.zeros(made[0].shape, bool)
    for options in several:
        if options is not None:
            mask |= options.mask
    results = [_result(found, call, given) for given in _combinations(inputs, several, mask)]
    group = joined_groups([options and repeated(options, mask.shape) for options in several], mask)
    return [_followed(made[0], mask, results, group)]


def followed(found: Rule, call: Call) -> list[Any]:
    """Evaluate an elementwise operator with broadcasting, including the alternatives of its inputs."""
    return with_choices(found, call, found(call))


def _by_error(made: Bounded) -> Bounded:
    """Return a result with too many alternatives, bounded by its error only."""
    return made.with_sides(None)


def _combinations(inputs: Sequence[Any], several: Sequence[Options | None], mask: Array) -> Any:
    """Yield the inputs at the undecided elements, with one alternative of each input at a time."""
    ways = []
    for one, options in zip(inputs, several, strict=True):
        if one is None or options is None:
            ways.append([one if one is None else _row(one, one.value, one.error, mask)])
            continue
        pairs = zip(options.values, options.errors, strict=True)
        ways.append([
            _row(one, np.where(options.mask, v, one.value), np.where(options.mask, e, one.errors()), mask)
            for v, e in pairs
        ])  # fmt: skip
    return itertools.product(*ways)


def _row(one: Bounded, value: Array, error: Array | None, mask: Array) -> Bounded:
    """Broadcast and select the masked elements. A boolean's error is dropped because both of its values are tried."""
    picked = None if error is None else np.broadcast_to(error, mask.shape)[mask]
    if picked is not None and not (picked > 0).any():
        picked = None
    return Bounded(np.broadcast_to(value, mask.shape)[mask], picked, one.dtype, one.stored, one.constant)


def _result(found: Rule, call: Call, given: Sequence[Any]) -> Bounded:
    again = Call(call.op, list(given), call.attributes, call.opset, call.types, call.outputs)
    again.node, again.opsets, again.run_graph, again.outer = call.node, call.opsets, call.run_graph, call.outer
    (made,) = found(again)
    assert isinstance(made, Bounded)
    return made


def _followed(made: Bounded, mask: Array, results: Sequence[Bounded], group: Array | None) -> Bounded:
    """Return the result with its alternatives, which may in turn be undecided. group: labels of elements that share a
    choice.
    """
    error = np.array(np.broadcast_to(made.errors(), made.shape), np.float64)
    if made.dtype == bool:
        own = made.value[mask]
        unsure = np.any([(one.value != own) | (one.errors() > 0) for one in results], axis=0)
        error[mask] = unsure * 1.0
        return Bounded(made.value, error if error.any() else None, bool)
    values: list[Array] = []
    errors: list[Array] = []
    for one in results:
        own_sides = as_options(one)
        if one.sides is not None and own_sides is None:
            return _by_error(made)
        group = group if own_sides is None else None
        values += [one.value] if own_sides is None else own_sides.values
        errors += [np.asarray(one.errors())] if own_sides is None else own_sides.errors
    if group is None or len(values) > MOST:  # labels refer to alternatives in this order
        values, errors = _apart(values, errors)
        group = None
    with np.errstate(all="ignore"):
        away = [np.abs(np.asarray(v, np.float64) - made.value[mask]) + e for v, e in zip(values, errors, strict=True)]
        away = [np.where(v == made.value[mask], e, one) for v, e, one in zip(values, errors, away, strict=True)]
        widest = np.max(np.stack(away), axis=0)
        widest = np.minimum(np.nan_to_num(error[mask], nan=np.inf), np.nan_to_num(widest, nan=np.inf))
        # If an integer is otherwise unknown, later nodes continue from the device's choice.
        error[mask] = widest if made.is_float else np.where(widest > 0, error[mask], 0.0)
    result = Bounded(made.value, error if error.any() else None, made.dtype, made.stored, made.constant)
    if len(values) > MOST:
        return result
    labels = None if group is None else _wide(np.full(made.shape, ALONE), mask, group)
    sides = Options(mask, [_wide(made.value, mask, v) for v in values], [_wide(error, mask, e) for e in errors], labels)
    return result.with_sides(_undecided(sides, mask))


def _apart(values: Sequence[Array], errors: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """Remove duplicate rows."""
    kept: list[tuple[Array, Array]] = []
    for value, error in zip(values, errors, strict=True):
        same = any(np.array_equal(value, v, equal_nan=_is_real(v)) and np.array_equal(error, e) for v, e in kept)
        if not same:
            kept.append((value, error))
    return [v for v, _ in kept], [e for _, e in kept]


def _is_real(value: Array) -> bool:
    return value.dtype.kind == "f"


def _undecided(sides: Options, mask: Array) -> Options | None:
    """Return the alternatives where they differ; None if all are equal."""
    with np.errstate(all="ignore"):
        first, low = sides.values[0], sides.errors[0]
        differ = np.any(
            [
                (v != first) & ~(_nan(v) & _nan(first)) | (e != low)
                for v, e in zip(sides.values, sides.errors, strict=True)
            ],
            axis=0,
        )
    left = mask & differ
    return Options(left, sides.values, sides.errors, sides.group) if left.any() else None


def _nan(value: Array) -> Array:
    return np.isnan(value) if _is_real(value) else np.zeros(value.shape, bool)


def _wide(whole: Array, mask: Array, row: Array) -> Array:
    """Scatter a row into the masked elements of a tensor."""
    made = np.array(whole)
    made[mask] = row
    return made


def selected(mask: Bounded, a: Bounded, b: Bounded, made: Bounded, group: Array | None = None) -> Bounded:
    """Add the alternatives to `made` = where(mask, a, b); both a's and b's if the mask is undecided.

    group: labels of elements whose mask is one choice.
    """
    unsure = np.broadcast_to(mask.errors() > 0, made.shape)
    if not unsure.any() and a.sides is None and b.sides is None:
        return made
    first, second = _ways(a, made.shape), _ways(b, made.shape)
    if first is None or second is None or len(first.values) + len(second.values) > MOST:
        return made
    true = np.broadcast_to(mask.value, made.shape)
    values, errors = [], []
    for here, own, other in ((unsure | true, first, second), (unsure | ~true, second, first)):
        values += [np.where(here, one, other.values[0]) for one in own.values]
        errors += [np.where(here, one, other.errors[0]) for one in own.errors]
    labels = None if group is None else chosen_groups(first, second, unsure, group)
    sides = Options(unsure | np.where(true, first.mask, second.mask), values, errors, labels)
    return made.with_sides(_undecided(sides, unsure | first.mask | second.mask))


def _ways(one: Bounded, shape: tuple[int, ...]) -> Options | None:
    """Return the possible values of each element, broadcast to a shape; decided elements have one."""
    made = as_options(one)
    if made is None and one.sides is not None:
        return None
    if made is None:
        made = Options(np.zeros(one.shape, bool), [one.value], [np.asarray(one.errors())])
    values = [np.where(made.mask, v, one.value) for v in made.values]
    errors = [np.where(made.mask, e, one.errors()) for e in made.errors]

    def wide(arrays: Sequence[Array]) -> list[Array]:
        return [np.broadcast_to(array, shape) for array in arrays]

    group = None if made.group is None else np.broadcast_to(made.group, shape)
    return Options(np.broadcast_to(made.mask, shape), wide(values), wide(errors), group)


def either(unsure: Array, a: Bounded, b: Bounded, group: Array | None = None) -> Bounded:
    """Return a, or either a or b where `unsure`. group: labels of elements that share a choice."""
    with np.errstate(all="ignore"):
        wide = np.abs(b.value.astype(np.float64) - a.value) + np.maximum(a.errors(), b.errors())
    wide = np.where(a.value == b.value, np.maximum(a.errors(), b.errors()), wide)
    error = np.where(unsure, np.where(np.isnan(wide), np.inf, wide), a.errors())
    made = Bounded(a.value, error if error.any() else None, a.dtype, a.stored and b.stored)
    mask = Bounded(np.ones(a.shape, bool), unsure * 1.0)
    return selected(mask, a, b, made, group)


def gathered(
    indices: Bounded,
    take: Callable[[Array], Bounded],
    made: Bounded,
    spread: Callable[[Array], Array],
    rows: bool = True,
) -> Bounded:
    """Gather with undecided indices: keep the alternatives if there are few, else the result is unknown.

    spread: expands an array of the indices' shape to the result's shape. rows: whether an index gathers several
    elements, which then share its choice.
    """
    options = as_options(indices)
    unsure = spread(indices.errors() > 0)
    wide = Bounded(made.value, np.where(unsure, np.inf, made.errors()), made.dtype)
    if options is None:
        return wide
    whole = [np.where(options.mask, one, indices.value) for one in options.values]
    group = labelled(options) if rows else options.group
    try:
        several = [take(one) for one in whole]
    except IndexError:  # an alternative is out of range
        return wide
    return taken(made, several, unsure, None if group is None else spread(group))


def taken(made: Bounded, several: Sequence[Bounded], unsure: Array, group: Array | None) -> Bounded:
    """Return `made` with several possible values where `unsure`. group: labels of elements that share a choice."""
    values = [one.value for one in several]
    errors = [np.asarray(one.errors()) for one in several]
    same = [(v == made.value) | (_nan(v) & _nan(made.value)) for v in values]
    if made.dtype == bool:
        unsure = unsure & ~np.all(same, axis=0) | (made.errors() > 0)
        return Bounded(made.value, unsure * 1.0 if unsure.any() else None, bool)
    with np.errstate(all="ignore"):
        each = zip(same, values, errors, strict=True)
        away = np.max([np.where(one, e, np.abs(v - made.value) + e) for one, v, e in each], axis=0)
    away = np.where(np.isnan(away) | ((away > 0) & (not made.is_float)), np.inf, away)
    error = np.where(unsure, away, made.errors())
    result = Bounded(made.value, error, made.dtype, made.stored)
    return result.with_sides(_undecided(Options(unsure, values, errors, group), unsure))


def joined_sides(values: Sequence[Bounded], join: Callable[[list[Array]], Array]) -> Options | None:
    """Return the alternatives of concatenated tensors; None if nothing is undecided or there are too many."""
    if all(one.sides is None for one in values):
        return None
    several = [as_options(one) if one.sides is not None else None for one in values]
    if any(one.sides is not None and options is None for one, options in zip(values, several, strict=True)):
        return None
    count = max(len(options.values) for options in several if options is not None)
    mask = join([np.zeros(one.shape, bool) if o is None else o.mask for one, o in zip(values, several, strict=True)])
    made: list[tuple[Array, Array]] = []
    for k in range(count):
        parts = [
            (one.value, one.errors())
            if o is None
            else (o.values[min(k, len(o.values) - 1)], o.errors[min(k, len(o.values) - 1)])
            for one, o in zip(values, several, strict=True)
        ]
        made.append((join([v for v, _ in parts]), join([np.asarray(e) for _, e in parts])))
    labels = stacked(several, [one.shape for one in values])
    return Options(mask, [v for v, _ in made], [e for _, e in made], None if labels is None else join(labels))
