"""Elementwise operators on undecided elements: every alternative is evaluated, if there are few."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...base.element_types import Array
from .alternatives import INDEPENDENT, MAX_ALTERNATIVES, ValueAlternatives, is_undecided, list_alternatives
from .bounded import Bounded
from .choice_groups import combine_chosen_labels, combine_labels, concat_labels, label_before_broadcast, label_choices
from .registry import Call, Rule

_MAX_EVALUATIONS = 16  # maximum number of combinations of the inputs' alternatives


def evaluate_alternatives(rule: Rule, call: Call, result: list[Any]) -> list[Any]:
    """Add the results for every alternative of the inputs to the result of an elementwise operator."""
    inputs = call.inputs
    if len(result) != 1 or not isinstance(result[0], Bounded) or call.types.skips_errors:
        return result
    if not all(value is None or isinstance(value, Bounded) for value in inputs):
        return result
    if not any(value is not None and is_undecided(value) for value in inputs):
        return result
    alternatives_per_input = [None if value is None else list_alternatives(value) for value in inputs]
    runs = 1
    for options in alternatives_per_input:
        runs *= 1 if options is None else len(options.values)
    unknown = any(
        value is not None and is_undecided(value) and alternatives_per_input[i] is None
        for i, value in enumerate(inputs)
    )
    if runs > _MAX_EVALUATIONS or unknown:
        return [_without_alternatives(result[0])]
    mask = np.zeros(result[0].shape, bool)
    for options in alternatives_per_input:
        if options is not None:
            mask |= options.mask
    results = [_evaluate_rule(rule, call, inputs) for inputs in _combine_inputs(inputs, alternatives_per_input, mask)]
    group = combine_labels(
        [options and label_before_broadcast(options, mask.shape) for options in alternatives_per_input], mask
    )
    return [_merge_alternatives(result[0], mask, results, group)]


def evaluate_with_alternatives(rule: Rule, call: Call) -> list[Any]:
    """Evaluate an elementwise operator with broadcasting, including the alternatives of its inputs."""
    return evaluate_alternatives(rule, call, rule(call))


def _without_alternatives(result: Bounded) -> Bounded:
    """Return a result with too many alternatives, bounded by its error only."""
    return result.with_alternatives(None)


def _combine_inputs(
    inputs: Sequence[Any], alternatives_per_input: Sequence[ValueAlternatives | None], mask: Array
) -> Any:
    """Yield the inputs at the undecided elements, with one alternative of each input at a time."""
    input_variants = []
    for value, options in zip(inputs, alternatives_per_input, strict=True):
        if value is None or options is None:
            input_variants.append([value if value is None else _masked_elements(value, value.value, value.error, mask)])
            continue
        pairs = zip(options.values, options.errors, strict=True)
        input_variants.append([
            _masked_elements(value, np.where(options.mask, v, value.value), np.where(options.mask, e, value.errors()), mask)
            for v, e in pairs
        ])  # fmt: skip
    return itertools.product(*input_variants)


def _masked_elements(bounded: Bounded, value: Array, error: Array | None, mask: Array) -> Bounded:
    """Broadcast and select the masked elements. A boolean's error is dropped because both of its values are tried."""
    picked = None if error is None else np.broadcast_to(error, mask.shape)[mask]
    if picked is not None and not (picked > 0).any():
        picked = None
    return Bounded(np.broadcast_to(value, mask.shape)[mask], picked, bounded.dtype, bounded.stored, bounded.constant)


def _evaluate_rule(rule: Rule, call: Call, inputs: Sequence[Any]) -> Bounded:
    again = Call(call.op, list(inputs), call.attributes, call.opset, call.types, call.outputs)
    again.node, again.opsets, again.run_graph, again.outer = call.node, call.opsets, call.run_graph, call.outer
    (result,) = rule(again)
    assert isinstance(result, Bounded)
    return result


def _merge_alternatives(base: Bounded, mask: Array, results: Sequence[Bounded], shared_labels: Array | None) -> Bounded:
    """Return the result with its alternatives, which may in turn be undecided.

    shared_labels: labels of elements that share a choice.
    """
    error = np.array(np.broadcast_to(base.errors(), base.shape), np.float64)
    decided = base.value[mask]
    if base.dtype == bool:
        unsure = np.any([(value.value != decided) | (value.errors() > 0) for value in results], axis=0)
        error[mask] = unsure * 1.0
        return Bounded(base.value, error if error.any() else None, bool)
    values: list[Array] = []
    errors: list[Array] = []
    for value in results:
        nested = list_alternatives(value)
        if value.alternatives is not None and nested is None:
            return _without_alternatives(base)
        shared_labels = shared_labels if nested is None else None
        values += [value.value] if nested is None else nested.values
        errors += [np.asarray(value.errors())] if nested is None else nested.errors
    if shared_labels is None or len(values) > MAX_ALTERNATIVES:  # labels refer to alternatives in this order
        values, errors = _remove_duplicates(values, errors)
        shared_labels = None
    with np.errstate(all="ignore"):
        distances = [np.abs(np.asarray(v, np.float64) - decided) + e for v, e in zip(values, errors, strict=True)]
        distances = [np.where(v == decided, e, d) for v, e, d in zip(values, errors, distances, strict=True)]
        widest = np.max(np.stack(distances), axis=0)
        widest = np.minimum(np.nan_to_num(error[mask], nan=np.inf), np.nan_to_num(widest, nan=np.inf))
        # If an integer is otherwise unknown, later nodes continue from the device's choice.
        error[mask] = widest if base.is_float else np.where(widest > 0, error[mask], 0.0)
    result = Bounded(base.value, error if error.any() else None, base.dtype, base.stored, base.constant)
    if len(values) > MAX_ALTERNATIVES:
        return result
    labels = None if shared_labels is None else _scatter_masked(np.full(base.shape, INDEPENDENT), mask, shared_labels)
    sides = ValueAlternatives(
        mask,
        [_scatter_masked(base.value, mask, v) for v in values],
        [_scatter_masked(error, mask, e) for e in errors],
        labels,
    )
    return result.with_alternatives(_keep_undecided(sides, mask))


def _remove_duplicates(values: Sequence[Array], errors: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """Remove duplicate rows."""
    distinct: list[tuple[Array, Array]] = []
    for value, error in zip(values, errors, strict=True):
        is_known = any(
            np.array_equal(value, v, equal_nan=_is_float_array(v)) and np.array_equal(error, e) for v, e in distinct
        )
        if not is_known:
            distinct.append((value, error))
    return [v for v, _ in distinct], [e for _, e in distinct]


def _is_float_array(value: Array) -> bool:
    return value.dtype.kind == "f"


def _keep_undecided(sides: ValueAlternatives, mask: Array) -> ValueAlternatives | None:
    """Return the alternatives where they differ; None if all are equal."""
    with np.errstate(all="ignore"):
        first, low = sides.values[0], sides.errors[0]
        differ = np.any(
            [
                (v != first) & ~(_nan_mask(v) & _nan_mask(first)) | (e != low)
                for v, e in zip(sides.values, sides.errors, strict=True)
            ],
            axis=0,
        )
    undecided_mask = mask & differ
    return ValueAlternatives(undecided_mask, sides.values, sides.errors, sides.group) if undecided_mask.any() else None


def _nan_mask(value: Array) -> Array:
    return np.isnan(value) if _is_float_array(value) else np.zeros(value.shape, bool)


def _scatter_masked(tensor: Array, mask: Array, row: Array) -> Array:
    """Scatter a row into the masked elements of a tensor."""
    scattered = np.array(tensor)
    scattered[mask] = row
    return scattered


def select_with_alternatives(
    mask: Bounded, a: Bounded, b: Bounded, base: Bounded, group: Array | None = None
) -> Bounded:
    """Add the alternatives to `base` = where(mask, a, b); both a's and b's if the mask is undecided.

    group: labels of elements whose mask is one choice.
    """
    unsure = np.broadcast_to(mask.errors() > 0, base.shape)
    if not unsure.any() and a.alternatives is None and b.alternatives is None:
        return base
    first, second = _possible_values(a, base.shape), _possible_values(b, base.shape)
    if first is None or second is None or len(first.values) + len(second.values) > MAX_ALTERNATIVES:
        return base
    true = np.broadcast_to(mask.value, base.shape)
    values, errors = [], []
    for may_be_taken, taken_side, other_side in ((unsure | true, first, second), (unsure | ~true, second, first)):
        values += [np.where(may_be_taken, value, other_side.values[0]) for value in taken_side.values]
        errors += [np.where(may_be_taken, value, other_side.errors[0]) for value in taken_side.errors]
    labels = None if group is None else combine_chosen_labels(first, second, unsure, group)
    sides = ValueAlternatives(unsure | np.where(true, first.mask, second.mask), values, errors, labels)
    return base.with_alternatives(_keep_undecided(sides, unsure | first.mask | second.mask))


def _possible_values(value: Bounded, shape: tuple[int, ...]) -> ValueAlternatives | None:
    """Return the possible values of each element, broadcast to a shape; decided elements have one."""
    result = list_alternatives(value)
    if result is None and value.alternatives is not None:
        return None
    if result is None:
        result = ValueAlternatives(np.zeros(value.shape, bool), [value.value], [np.asarray(value.errors())])
    values = [np.where(result.mask, v, value.value) for v in result.values]
    errors = [np.where(result.mask, e, value.errors()) for e in result.errors]

    def broadcast_all(arrays: Sequence[Array]) -> list[Array]:
        return [np.broadcast_to(array, shape) for array in arrays]

    group = None if result.group is None else np.broadcast_to(result.group, shape)
    return ValueAlternatives(np.broadcast_to(result.mask, shape), broadcast_all(values), broadcast_all(errors), group)


def either_value(unsure: Array, a: Bounded, b: Bounded, group: Array | None = None) -> Bounded:
    """Return a, or either a or b where `unsure`. group: labels of elements that share a choice."""
    with np.errstate(all="ignore"):
        distance = np.abs(b.value.astype(np.float64) - a.value) + np.maximum(a.errors(), b.errors())
    distance = np.where(a.value == b.value, np.maximum(a.errors(), b.errors()), distance)
    error = np.where(unsure, np.where(np.isnan(distance), np.inf, distance), a.errors())
    result = Bounded(a.value, error if error.any() else None, a.dtype, a.stored and b.stored)
    mask = Bounded(np.ones(a.shape, bool), unsure * 1.0)
    return select_with_alternatives(mask, a, b, result, group)


def gather_alternatives(
    indices: Bounded,
    take: Callable[[Array], Bounded],
    result: Bounded,
    spread: Callable[[Array], Array],
    rows: bool = True,
) -> Bounded:
    """Gather with undecided indices: keep the alternatives if there are few, else the result is unknown.

    spread: expands an array of the indices' shape to the result's shape. rows: whether an index gathers several
    elements, which then share its choice.
    """
    options = list_alternatives(indices)
    unsure = spread(indices.errors() > 0)
    unknown = Bounded(result.value, np.where(unsure, np.inf, result.errors()), result.dtype)
    if options is None:
        return unknown
    index_variants = [np.where(options.mask, value, indices.value) for value in options.values]
    group = label_choices(options) if rows else options.group
    try:
        gathered_variants = [take(value) for value in index_variants]
    except IndexError:  # an alternative is out of range
        return unknown
    return with_several_values(result, gathered_variants, unsure, None if group is None else spread(group))


def with_several_values(base: Bounded, variants: Sequence[Bounded], unsure: Array, group: Array | None) -> Bounded:
    """Return `base` with several possible values where `unsure`. group: labels of elements that share a choice."""
    values = [value.value for value in variants]
    errors = [np.asarray(value.errors()) for value in variants]
    same = [(v == base.value) | (_nan_mask(v) & _nan_mask(base.value)) for v in values]
    if base.dtype == bool:
        unsure = unsure & ~np.all(same, axis=0) | (base.errors() > 0)
        return Bounded(base.value, unsure * 1.0 if unsure.any() else None, bool)
    with np.errstate(all="ignore"):
        zipped = zip(same, values, errors, strict=True)
        distances = np.max([np.where(value, e, np.abs(v - base.value) + e) for value, v, e in zipped], axis=0)
    distances = np.where(np.isnan(distances) | ((distances > 0) & (not base.is_float)), np.inf, distances)
    error = np.where(unsure, distances, base.errors())
    result = Bounded(base.value, error, base.dtype, base.stored)
    return result.with_alternatives(_keep_undecided(ValueAlternatives(unsure, values, errors, group), unsure))


def concat_alternatives(values: Sequence[Bounded], join: Callable[[list[Array]], Array]) -> ValueAlternatives | None:
    """Return the alternatives of concatenated tensors; None if nothing is undecided or there are too many."""
    if all(value.alternatives is None for value in values):
        return None
    alternatives_per_input = [list_alternatives(value) if value.alternatives is not None else None for value in values]
    if any(
        value.alternatives is not None and options is None
        for value, options in zip(values, alternatives_per_input, strict=True)
    ):
        return None
    count = max(len(options.values) for options in alternatives_per_input if options is not None)
    mask = join(
        [
            np.zeros(value.shape, bool) if o is None else o.mask
            for value, o in zip(values, alternatives_per_input, strict=True)
        ]
    )
    joined: list[tuple[Array, Array]] = []
    for k in range(count):
        pieces = [
            (value.value, value.errors())
            if o is None
            else (o.values[min(k, len(o.values) - 1)], o.errors[min(k, len(o.values) - 1)])
            for value, o in zip(values, alternatives_per_input, strict=True)
        ]
        joined.append((join([v for v, _ in pieces]), join([np.asarray(e) for _, e in pieces])))
    labels = concat_labels(alternatives_per_input, [value.shape for value in values])
    return ValueAlternatives(
        mask, [v for v, _ in joined], [e for _, e in joined], None if labels is None else join(labels)
    )
