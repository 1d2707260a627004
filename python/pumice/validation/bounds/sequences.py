"""Rules of sequences and optional values: lists of bounded tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from .bounded import Bounded
from .data_movement import joined
from .registry import Call, Unproved, rule


def _place(call: Call, index: int, length: int, default: int) -> int:
    if call.optional(index) is None:
        return default
    place = int(call.exact(index).reshape(-1)[0])
    return place + length if place < 0 else place


@rule("SequenceEmpty")
def _empty(call: Call) -> list[Any]:
    return [[]]


@rule("SequenceConstruct")
def _construct(call: Call) -> list[Any]:
    return [list(call.given)]


@rule("SequenceAt")
def _at(call: Call) -> list[Any]:
    return [call.given[0][_place(call, 1, len(call.given[0]), 0)]]


@rule("SequenceInsert")
def _insert(call: Call) -> list[Any]:
    items = list(call.given[0])
    items.insert(_place(call, 2, len(items), len(items)), call.given[1])
    return [items]


@rule("SequenceErase")
def _erase(call: Call) -> list[Any]:
    items = list(call.given[0])
    del items[_place(call, 1, len(items), len(items) - 1)]
    return [items]


@rule("SequenceLength")
def _length(call: Call) -> list[Any]:
    return [Bounded(np.asarray(len(call.given[0]), np.int64), None, np.int64)]


@rule("ConcatFromSequence")
def _concat(call: Call) -> list[Any]:
    return [joined(call.given[0], call.attribute("axis"), new=bool(call.attribute("new_axis", 0)))]


@rule("SplitToSequence")
def _split(call: Call) -> list[Any]:
    x, axis = call.input(0), call.attribute("axis", 0)
    size = x.shape[axis]
    given = call.optional(1)
    if given is None:
        sizes = [1] * size
    elif given.ndim == 0:
        each = int(call.exact(1))
        sizes = [min(each, size - i) for i in range(0, size, each)]
    else:
        sizes = call.integers(1) or []
    ends = [int(one) for one in np.cumsum([0, *sizes])]
    parts = [
        x.moved(lambda v, i=i: np.take(v, np.arange(ends[i], ends[i + 1]), axis))  # type: ignore[misc]
        for i in range(len(sizes))
    ]
    if given is None and not call.attribute("keepdims", 1):
        parts = [one.moved(lambda v: np.squeeze(v, axis)) for one in parts]
    return [parts]


@rule("SequenceMap")
def _map(call: Call) -> list[Any]:
    body, items, more = call.attribute("body"), call.given[0], call.given[1:]
    made: list[list[Any]] = [[] for _ in body.output]
    for i, item in enumerate(items):
        given = [item, *[one[i] if isinstance(one, list) else one for one in more]]
        for kept, one in zip(made, call.run_graph(body, given, call.outer), strict=True):
            kept.append(one)
    return list(made)


@rule("Optional")
def _optional(call: Call) -> list[Any]:
    return [call.optional(0)]


@rule("OptionalHasElement")
def _has(call: Call) -> list[Any]:
    return [Bounded(np.asarray(call.optional(0) is not None), None, bool)]


@rule("OptionalGetElement")
def _get(call: Call) -> list[Any]:
    if call.optional(0) is None:
        raise Unproved("an empty optional value")
    return [call.given[0]]
