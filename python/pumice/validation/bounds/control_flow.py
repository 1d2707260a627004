"""Rules of control flow. Bodies are evaluated by the same rules; conditions must be decided."""

from __future__ import annotations

from typing import Any

import numpy as np

from .bounded import Bounded
from .data_movement import joined
from .registry import Call, Undecided, Unproved, rule

MOST_ITERATIONS = 10_000


def _truth(value: Any, what: str) -> bool:
    if value is None:
        return True
    if value.error is not None and np.any(value.error > 0):
        raise Undecided(f"{what} is undecided")
    return bool(value.value.reshape(-1)[0])


@rule("If")
def _if(call: Call) -> list[Any]:
    branch = "then_branch" if _truth(call.input(0), "the condition") else "else_branch"
    return list(call.run_graph(call.attribute(branch), [], call.outer))[: call.outputs]


def _like(body: Any, index: int, made: Any = None) -> Bounded:
    """Return an empty scan output. made: the result of one iteration, for sizes that the body does not declare."""
    from .decisions import dtype_of

    number = body.output[index].type.tensor_type.elem_type
    dtype = dtype_of(number) if number else np.dtype(np.float32)
    dims = body.output[index].type.tensor_type.shape.dim
    sizes = (0, *(made.shape if isinstance(made, Bounded) else [one.dim_value for one in dims]))
    value = Bounded(np.zeros(0), None, dtype)
    return Bounded(np.zeros(sizes, np.float64 if value.is_float else dtype), None, dtype, stored=True)


@rule("Loop")
def _loop(call: Call) -> list[Any]:
    body = call.attribute("body")
    limit = call.optional(0)
    trips = None if limit is None else int(call.exact(0).reshape(-1)[0])
    going = _truth(call.optional(1), "the condition")
    carried = list(call.given[2:])
    states = len(carried)
    scanned: list[list[Any]] = [[] for _ in body.output[1 + states :]]
    count = 0
    while going and (trips is None or count < trips):
        if count >= MOST_ITERATIONS:
            raise Unproved(f"a Loop of more than {MOST_ITERATIONS} iterations")
        step = Bounded(np.asarray(count, np.int64), None, np.int64)
        results = call.run_graph(body, [step, Bounded(np.asarray(True), None, bool), *carried], call.outer)
        going = _truth(results[0], f"the condition after {count + 1} iterations")
        carried = list(results[1 : 1 + states])
        for kept, one in zip(scanned, results[1 + states :], strict=True):
            kept.append(one)
        count += 1
    trial = _trial(call, body, carried) if scanned and not count else []
    stacked = [
        joined(kept, 0, new=True) if kept else _like(body, 1 + states + i, trial[1 + states + i] if trial else None)
        for i, kept in enumerate(scanned)
    ]
    return [*carried, *stacked][: call.outputs]


def _trial(call: Call, body: Any, carried: list[Any]) -> list[Any]:
    """Run one iteration to get the sizes of scan outputs; return [] if that fails."""
    begin = [Bounded(np.asarray(0, np.int64), None, np.int64), Bounded(np.asarray(True), None, bool)]
    try:
        return list(call.run_graph(body, [*begin, *carried], call.outer))
    except (Undecided, Unproved, IndexError, ValueError):
        return []


@rule("Scan")
def _scan(call: Call) -> list[Any]:
    if call.opset < 9:
        raise Unproved("Scan of operator set 8")
    body, slices = call.attribute("body"), call.attribute("num_scan_inputs")
    states = len(call.given) - slices
    outs = len(body.output) - states
    axes_in = call.attribute("scan_input_axes") or [0] * slices
    axes_out = call.attribute("scan_output_axes") or [0] * outs
    back_in = call.attribute("scan_input_directions") or [0] * slices
    back_out = call.attribute("scan_output_directions") or [0] * outs
    carried = list(call.given[:states])
    given = [call.input(states + i) for i in range(slices)]
    length = given[0].shape[axes_in[0]]
    scanned: list[list[Any]] = [[] for _ in range(outs)]
    for step in range(length):
        parts = []
        for value, axis, back in zip(given, axes_in, back_in, strict=True):
            place = length - 1 - step if back else step
            parts.append(value.moved(lambda v, place=place, axis=axis: np.take(v, place, axis)))  # type: ignore[misc]
        results = call.run_graph(body, [*carried, *parts], call.outer)
        carried = list(results[:states])
        for kept, one in zip(scanned, results[states:], strict=True):
            kept.append(one)
    stacked = []
    for i, (kept, axis, back) in enumerate(zip(scanned, axes_out, back_out, strict=True)):
        ordered = kept[::-1] if back else kept
        stacked.append(joined(ordered, axis, new=True) if ordered else _like(body, states + i))
    return [*carried, *stacked][: call.outputs]
