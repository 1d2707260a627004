"""Rules of sequences and optional values: lists of bounded tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from .bounded import Bounded
from .data_movement import concat
from .registry import Call, Unproved, rule


def _sequence_index(call: Call, index: int, length: int, default: int) -> int:
    if call.optional_input(index) is None:
        return default
    position = int(call.decided_input(index).reshape(-1)[0])
    return position + length if position < 0 else position


@rule("SequenceEmpty")
def _sequence_empty(call: Call) -> list[Any]:
    return [[]]


@rule("SequenceConstruct")
def _sequence_construct(call: Call) -> list[Any]:
    return [list(call.inputs)]


@rule("SequenceAt")
def _sequence_at(call: Call) -> list[Any]:
    return [call.inputs[0][_sequence_index(call, 1, len(call.inputs[0]), 0)]]


@rule("SequenceInsert")
def _sequence_insert(call: Call) -> list[Any]:
    items = list(call.inputs[0])
    items.insert(_sequence_index(call, 2, len(items), len(items)), call.inputs[1])
    return [items]


@rule("SequenceErase")
def _sequence_erase(call: Call) -> list[Any]:
    items = list(call.inputs[0])
    del items[_sequence_index(call, 1, len(items), len(items) - 1)]
    return [items]


@rule("SequenceLength")
def _sequence_length(call: Call) -> list[Any]:
    return [Bounded(np.asarray(len(call.inputs[0]), np.int64), None, np.int64)]


@rule("ConcatFromSequence")
def _concat_from_sequence(call: Call) -> list[Any]:
    return [concat(call.inputs[0], call.attribute("axis"), new=bool(call.attribute("new_axis", 0)))]


@rule("SplitToSequence")
def _split_to_sequence(call: Call) -> list[Any]:
    x, axis = call.input(0), call.attribute("axis", 0)
    size = x.shape[axis]
    split_sizes = call.optional_input(1)
    if split_sizes is None:
        sizes = [1] * size
    elif split_sizes.ndim == 0:
        each = int(call.decided_input(1))
        sizes = [min(each, size - i) for i in range(0, size, each)]
    else:
        sizes = call.integer_list(1) or []
    ends = [int(end) for end in np.cumsum([0, *sizes])]
    pieces = [
        x.rearrange(lambda v, i=i: np.take(v, np.arange(ends[i], ends[i + 1]), axis))  # type: ignore[misc]
        for i in range(len(sizes))
    ]
    if split_sizes is None and not call.attribute("keepdims", 1):
        pieces = [end.rearrange(lambda v: np.squeeze(v, axis)) for end in pieces]
    return [pieces]


@rule("SequenceMap")
def _sequence_map(call: Call) -> list[Any]:
    body, items, more = call.attribute("body"), call.inputs[0], call.inputs[1:]
    outputs: list[list[Any]] = [[] for _ in body.output]
    for i, item in enumerate(items):
        body_inputs = [item, *[extra[i] if isinstance(extra, list) else extra for extra in more]]
        for collected, extra in zip(outputs, call.run_graph(body, body_inputs, call.outer), strict=True):
            collected.append(extra)
    return list(outputs)


@rule("Optional")
def _optional(call: Call) -> list[Any]:
    return [call.optional_input(0)]


@rule("OptionalHasElement")
def _optional_has_element(call: Call) -> list[Any]:
    return [Bounded(np.asarray(call.optional_input(0) is not None), None, bool)]


@rule("OptionalGetElement")
def _optional_get_element(call: Call) -> list[Any]:
    if call.optional_input(0) is None:
        raise Unproved("an empty optional value")
    return [call.inputs[0]]
