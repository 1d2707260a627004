"""Error-bound rules for sequences and optional values, which are represented as lists of bounded tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from .bounded_tensor import BoundedTensor, OperatorCall, UnprovedError, rule
from .data_movement import concat_values


def _read_sequence_index(call: OperatorCall, index: int, length: int, default: int) -> int:
    if call.optional_input(index) is None:
        return default
    position = int(call.get_decided_input(index).reshape(-1)[0])
    return position + length if position < 0 else position


@rule("SequenceEmpty")
def _evaluate_sequence_empty(call: OperatorCall) -> list[Any]:
    return [[]]


@rule("SequenceConstruct")
def _evaluate_sequence_construct(call: OperatorCall) -> list[Any]:
    return [list(call.inputs)]


@rule("SequenceAt")
def _evaluate_sequence_at(call: OperatorCall) -> list[Any]:
    return [call.inputs[0][_read_sequence_index(call, 1, len(call.inputs[0]), 0)]]


@rule("SequenceInsert")
def _evaluate_sequence_insert(call: OperatorCall) -> list[Any]:
    items = list(call.inputs[0])
    items.insert(_read_sequence_index(call, 2, len(items), len(items)), call.inputs[1])
    return [items]


@rule("SequenceErase")
def _evaluate_sequence_erase(call: OperatorCall) -> list[Any]:
    items = list(call.inputs[0])
    del items[_read_sequence_index(call, 1, len(items), len(items) - 1)]
    return [items]


@rule("SequenceLength")
def _evaluate_sequence_length(call: OperatorCall) -> list[Any]:
    return [BoundedTensor(np.asarray(len(call.inputs[0]), np.int64), None, np.int64)]


@rule("ConcatFromSequence")
def _evaluate_concat_from_sequence(call: OperatorCall) -> list[Any]:
    return [concat_values(call.inputs[0], call.attribute("axis"), new_axis=bool(call.attribute("new_axis", 0)))]


@rule("SplitToSequence")
def _evaluate_split_to_sequence(call: OperatorCall) -> list[Any]:
    x, axis = call.input(0), call.attribute("axis", 0)
    size = x.shape[axis]
    split_sizes = call.optional_input(1)
    if split_sizes is None:
        sizes = [1] * size
    elif split_sizes.ndim == 0:
        each = int(call.get_decided_input(1))
        sizes = [min(each, size - i) for i in range(0, size, each)]
    else:
        sizes = call.get_integer_list(1) or []
    ends = [int(end) for end in np.cumsum([0, *sizes])]
    pieces = [
        x.rearrange(lambda v, i=i: np.take(v, np.arange(ends[i], ends[i + 1]), axis))  # type: ignore[misc]
        for i in range(len(sizes))
    ]
    if split_sizes is None and not call.attribute("keepdims", 1):
        pieces = [end.rearrange(lambda v: np.squeeze(v, axis)) for end in pieces]
    return [pieces]


@rule("SequenceMap")
def _evaluate_sequence_map(call: OperatorCall) -> list[Any]:
    body, items, more = call.attribute("body"), call.inputs[0], call.inputs[1:]
    outputs: list[list[Any]] = [[] for _ in body.output]
    for i, item in enumerate(items):
        body_inputs = [item, *[extra[i] if isinstance(extra, list) else extra for extra in more]]
        for collected, extra in zip(outputs, call.run_graph(body, body_inputs, call.outer), strict=True):
            collected.append(extra)
    return list(outputs)


@rule("Optional")
def _evaluate_optional(call: OperatorCall) -> list[Any]:
    return [call.optional_input(0)]


@rule("OptionalHasElement")
def _evaluate_optional_has_element(call: OperatorCall) -> list[Any]:
    return [BoundedTensor(np.asarray(call.optional_input(0) is not None), None, bool)]


@rule("OptionalGetElement")
def _evaluate_optional_get_element(call: OperatorCall) -> list[Any]:
    if call.optional_input(0) is None:
        raise UnprovedError("an empty optional value")
    return [call.inputs[0]]
