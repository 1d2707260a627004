"""Evaluates elementwise operators on undecided elements, once for each combination of alternatives if there are few."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...base.element_types import Array
from .alternative_values import (
    INDEPENDENT,
    MAX_ALTERNATIVES,
    EnumeratedAlternatives,
    assign_choice_labels,
    assign_labels_before_broadcast,
    combine_chosen_labels,
    combine_labels,
    concat_labels,
    is_undecided,
    list_alternatives,
)
from .bounded_tensor import BoundedTensor, OperatorCall, Rule

_MAX_EVALUATIONS = 16  # maximum combinations of the inputs' alternatives


def evaluate_alternatives(rule: Rule, call: OperatorCall, result: list[Any]) -> list[Any]:
    """Add the results for all alternatives of the inputs to the result of an elementwise operator."""
    inputs = call.inputs
    if len(result) != 1 or not isinstance(result[0], BoundedTensor) or call.types.skips_errors:
        return result
    if not all(value is None or isinstance(value, BoundedTensor) for value in inputs):
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
        return [_drop_alternatives(result[0])]
    mask = np.zeros(result[0].shape, bool)
    for options in alternatives_per_input:
        if options is not None:
            mask |= options.mask
    results = [
        _evaluate_rule(rule, call, inputs) for inputs in _iter_input_combinations(inputs, alternatives_per_input, mask)
    ]
    group = combine_labels(
        [options and assign_labels_before_broadcast(options, mask.shape) for options in alternatives_per_input], mask
    )
    return [_merge_alternatives(result[0], mask, results, group)]


def evaluate_with_alternatives(rule: Rule, call: OperatorCall) -> list[Any]:
    """Evaluate an elementwise operator with broadcasting, including the alternatives of its inputs."""
    return evaluate_alternatives(rule, call, rule(call))


def _drop_alternatives(result: BoundedTensor) -> BoundedTensor:
    """Return the result with an error bound only, because it has too many alternatives."""
    return result.set_alternatives(None)


def _iter_input_combinations(
    inputs: Sequence[Any], alternatives_per_input: Sequence[EnumeratedAlternatives | None], mask: Array
) -> Any:
    """Yield the masked elements of the inputs for each combination of alternatives."""
    input_variants = []
    for value, options in zip(inputs, alternatives_per_input, strict=True):
        if value is None or options is None:
            input_variants.append(
                [value if value is None else _select_masked_elements(value, value.value, value.error, mask)]
            )
            continue
        pairs = zip(options.values, options.errors, strict=True)
        input_variants.append([
            _select_masked_elements(value, np.where(options.mask, v, value.value), np.where(options.mask, e, value.get_errors()), mask)
            for v, e in pairs
        ])  # fmt: skip
    return itertools.product(*input_variants)


def _select_masked_elements(bounded: BoundedTensor, value: Array, error: Array | None, mask: Array) -> BoundedTensor:
    """Broadcast and select the masked elements. Booleans lose their error, because both values are tried."""
    picked = None if error is None else np.broadcast_to(error, mask.shape)[mask]
    if picked is not None and not (picked > 0).any():
        picked = None
    return BoundedTensor(
        np.broadcast_to(value, mask.shape)[mask], picked, bounded.dtype, bounded.stored, bounded.constant
    )


def _evaluate_rule(rule: Rule, call: OperatorCall, inputs: Sequence[Any]) -> BoundedTensor:
    again = OperatorCall(call.op, list(inputs), call.attributes, call.opset, call.types, call.outputs)
    again.node, again.opsets, again.run_graph, again.outer = call.node, call.opsets, call.run_graph, call.outer
    (result,) = rule(again)
    assert isinstance(result, BoundedTensor)
    return result


def _merge_alternatives(
    base: BoundedTensor, mask: Array, results: Sequence[BoundedTensor], shared_labels: Array | None
) -> BoundedTensor:
    """Return the result with the alternatives in `results`. shared_labels: labels of elements that share a choice."""
    error = np.array(np.broadcast_to(base.get_errors(), base.shape), np.float64)
    decided = base.value[mask]
    if base.dtype == bool:
        undecided = np.any([(value.value != decided) | (value.get_errors() > 0) for value in results], axis=0)
        error[mask] = undecided * 1.0
        return BoundedTensor(base.value, error if error.any() else None, bool)
    values: list[Array] = []
    errors: list[Array] = []
    for value in results:
        nested = list_alternatives(value)
        if value.alternatives is not None and nested is None:
            return _drop_alternatives(base)
        shared_labels = shared_labels if nested is None else None
        values += [value.value] if nested is None else nested.values
        errors += [np.asarray(value.get_errors())] if nested is None else nested.errors
    if shared_labels is None or len(values) > MAX_ALTERNATIVES:  # labels depend on the order of alternatives
        values, errors = _remove_duplicates(values, errors)
        shared_labels = None
    with np.errstate(all="ignore"):
        distances = [np.abs(np.asarray(v, np.float64) - decided) + e for v, e in zip(values, errors, strict=True)]
        distances = [np.where(v == decided, e, d) for v, e, d in zip(values, errors, distances, strict=True)]
        widest = np.max(np.stack(distances), axis=0)
        widest = np.minimum(np.nan_to_num(error[mask], nan=np.inf), np.nan_to_num(widest, nan=np.inf))
        # If an integer is otherwise unknown, later nodes continue from the device's choice.
        error[mask] = widest if base.is_float else np.where(widest > 0, error[mask], 0.0)
    result = BoundedTensor(base.value, error if error.any() else None, base.dtype, base.stored, base.constant)
    if len(values) > MAX_ALTERNATIVES:
        return result
    labels = None if shared_labels is None else _scatter_masked(np.full(base.shape, INDEPENDENT), mask, shared_labels)
    alternatives = EnumeratedAlternatives(
        mask,
        [_scatter_masked(base.value, mask, v) for v in values],
        [_scatter_masked(error, mask, e) for e in errors],
        labels,
    )
    return result.set_alternatives(_keep_undecided(alternatives, mask))


def _remove_duplicates(values: Sequence[Array], errors: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """Remove alternatives that are equal to an earlier one in every element."""
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


def _keep_undecided(alternatives: EnumeratedAlternatives, mask: Array) -> EnumeratedAlternatives | None:
    """Return the alternatives, limited to elements in which they differ; None if there are no such elements."""
    with np.errstate(all="ignore"):
        first, low = alternatives.values[0], alternatives.errors[0]
        differ = np.any(
            [
                (v != first) & ~(_compute_nan_mask(v) & _compute_nan_mask(first)) | (e != low)
                for v, e in zip(alternatives.values, alternatives.errors, strict=True)
            ],
            axis=0,
        )
    undecided_mask = mask & differ
    return (
        EnumeratedAlternatives(undecided_mask, alternatives.values, alternatives.errors, alternatives.group)
        if undecided_mask.any()
        else None
    )


def _compute_nan_mask(value: Array) -> Array:
    return np.isnan(value) if _is_float_array(value) else np.zeros(value.shape, bool)


def _scatter_masked(tensor: Array, mask: Array, row: Array) -> Array:
    """Scatter a row into the masked elements of a tensor."""
    scattered = np.array(tensor)
    scattered[mask] = row
    return scattered


def select_with_alternatives(
    mask: BoundedTensor, a: BoundedTensor, b: BoundedTensor, base: BoundedTensor, group: Array | None = None
) -> BoundedTensor:
    """Add alternatives to `base` = where(mask, a, b). Where the mask is undecided, both a's and b's values are alternatives.

    group: labels of elements whose mask depends on the same choice.
    """
    undecided = np.broadcast_to(mask.get_errors() > 0, base.shape)
    if not undecided.any() and a.alternatives is None and b.alternatives is None:
        return base
    first, second = _enumerate_possible_values(a, base.shape), _enumerate_possible_values(b, base.shape)
    if first is None or second is None or len(first.values) + len(second.values) > MAX_ALTERNATIVES:
        return base
    true = np.broadcast_to(mask.value, base.shape)
    values, errors = [], []
    for may_be_taken, taken_side, other_side in ((undecided | true, first, second), (undecided | ~true, second, first)):
        values += [np.where(may_be_taken, value, other_side.values[0]) for value in taken_side.values]
        errors += [np.where(may_be_taken, value, other_side.errors[0]) for value in taken_side.errors]
    labels = None if group is None else combine_chosen_labels(first, second, undecided, group)
    alternatives = EnumeratedAlternatives(undecided | np.where(true, first.mask, second.mask), values, errors, labels)
    return base.set_alternatives(_keep_undecided(alternatives, undecided | first.mask | second.mask))


def _enumerate_possible_values(value: BoundedTensor, shape: tuple[int, ...]) -> EnumeratedAlternatives | None:
    """Return the possible values of each element, broadcast to `shape`; decided elements have a single one."""
    result = list_alternatives(value)
    if result is None and value.alternatives is not None:
        return None
    if result is None:
        result = EnumeratedAlternatives(np.zeros(value.shape, bool), [value.value], [np.asarray(value.get_errors())])
    values = [np.where(result.mask, v, value.value) for v in result.values]
    errors = [np.where(result.mask, e, value.get_errors()) for e in result.errors]

    def broadcast_all(arrays: Sequence[Array]) -> list[Array]:
        return [np.broadcast_to(array, shape) for array in arrays]

    group = None if result.group is None else np.broadcast_to(result.group, shape)
    return EnumeratedAlternatives(
        np.broadcast_to(result.mask, shape), broadcast_all(values), broadcast_all(errors), group
    )


def make_value_with_two_alternatives(
    undecided: Array, a: BoundedTensor, b: BoundedTensor, group: Array | None = None
) -> BoundedTensor:
    """Return a, with b as an alternative where `undecided` is true. group: labels of elements that share a choice."""
    with np.errstate(all="ignore"):
        distance = np.abs(b.value.astype(np.float64) - a.value) + np.maximum(a.get_errors(), b.get_errors())
    distance = np.where(a.value == b.value, np.maximum(a.get_errors(), b.get_errors()), distance)
    error = np.where(undecided, np.where(np.isnan(distance), np.inf, distance), a.get_errors())
    result = BoundedTensor(a.value, error if error.any() else None, a.dtype, a.stored and b.stored)
    mask = BoundedTensor(np.ones(a.shape, bool), undecided * 1.0)
    return select_with_alternatives(mask, a, b, result, group)


def gather_alternatives(
    indices: BoundedTensor,
    gather_at: Callable[[Array], BoundedTensor],
    result: BoundedTensor,
    expand_to_result: Callable[[Array], Array],
    rows: bool = True,
) -> BoundedTensor:
    """Gather with undecided indices. If there are too many alternatives, the error of the result is unknown.

    expand_to_result: expands an array from the shape of the indices to that of the result. rows: whether an index
    gathers several elements, which then share its choice.
    """
    options = list_alternatives(indices)
    undecided = expand_to_result(indices.get_errors() > 0)
    unknown = BoundedTensor(result.value, np.where(undecided, np.inf, result.get_errors()), result.dtype)
    if options is None:
        return unknown
    index_variants = [np.where(options.mask, value, indices.value) for value in options.values]
    group = assign_choice_labels(options) if rows else options.group
    try:
        gathered_variants = [gather_at(value) for value in index_variants]
    except IndexError:  # an alternative is out of range
        return unknown
    return add_alternatives(result, gathered_variants, undecided, None if group is None else expand_to_result(group))


def add_alternatives(
    base: BoundedTensor, variants: Sequence[BoundedTensor], undecided: Array, group: Array | None
) -> BoundedTensor:
    """Return `base`, with `variants` as alternatives where `undecided` is true. group: labels of elements that share a choice."""
    values = [value.value for value in variants]
    errors = [np.asarray(value.get_errors()) for value in variants]
    same = [(v == base.value) | (_compute_nan_mask(v) & _compute_nan_mask(base.value)) for v in values]
    if base.dtype == bool:
        undecided = undecided & ~np.all(same, axis=0) | (base.get_errors() > 0)
        return BoundedTensor(base.value, undecided * 1.0 if undecided.any() else None, bool)
    with np.errstate(all="ignore"):
        zipped = zip(same, values, errors, strict=True)
        distances = np.max([np.where(value, e, np.abs(v - base.value) + e) for value, v, e in zipped], axis=0)
    distances = np.where(np.isnan(distances) | ((distances > 0) & (not base.is_float)), np.inf, distances)
    error = np.where(undecided, distances, base.get_errors())
    result = BoundedTensor(base.value, error, base.dtype, base.stored)
    return result.set_alternatives(_keep_undecided(EnumeratedAlternatives(undecided, values, errors, group), undecided))


def concat_alternatives(
    values: Sequence[BoundedTensor], join: Callable[[list[Array]], Array]
) -> EnumeratedAlternatives | None:
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
            (value.value, value.get_errors())
            if o is None
            else (o.values[min(k, len(o.values) - 1)], o.errors[min(k, len(o.values) - 1)])
            for value, o in zip(values, alternatives_per_input, strict=True)
        ]
        joined.append((join([v for v, _ in pieces]), join([np.asarray(e) for _, e in pieces])))
    labels = concat_labels(alternatives_per_input, [value.shape for value in values])
    return EnumeratedAlternatives(
        mask, [v for v, _ in joined], [e for _, e in joined], None if labels is None else join(labels)
    )
