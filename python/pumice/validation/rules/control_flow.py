"""Error-bound rules for If, Loop and Scan. Bodies are evaluated by the rules; conditions must be decided."""

from __future__ import annotations

from typing import Any

import numpy as np

from .bounded_tensor import MAX_ITERATIONS, BoundedTensor, OperatorCall, UndecidedError, UnprovedError, rule
from .data_movement import concat_values
from .float_types import dtype_from_onnx


def _get_decided_condition(value: Any, description: str) -> bool:
    if value is None:
        return True
    if value.error is not None and np.any(value.error > 0):
        raise UndecidedError(f"{description} is undecided")
    return bool(value.value.reshape(-1)[0])


@rule("If")
def _evaluate_if(call: OperatorCall) -> list[Any]:
    branch = "then_branch" if _get_decided_condition(call.input(0), "the condition") else "else_branch"
    return list(call.run_graph(call.attribute(branch), [], call.outer))[: call.outputs]


def _make_empty_scan_output(body: Any, index: int, iteration_result: Any = None) -> BoundedTensor:
    """Return an empty scan output. iteration_result: output of a trial iteration, which supplies undeclared sizes."""
    number = body.output[index].type.tensor_type.elem_type
    dtype = dtype_from_onnx(number) if number else np.dtype(np.float32)
    dims = body.output[index].type.tensor_type.shape.dim
    sizes = (
        0,
        *(
            iteration_result.shape
            if isinstance(iteration_result, BoundedTensor)
            else [value.dim_value for value in dims]
        ),
    )
    value = BoundedTensor(np.zeros(0), None, dtype)
    return BoundedTensor(np.zeros(sizes, np.float64 if value.is_float else dtype), None, dtype, stored=True)


@rule("Loop")
def _evaluate_loop(call: OperatorCall) -> list[Any]:
    body = call.attribute("body")
    limit = call.optional_input(0)
    trips = None if limit is None else int(call.get_decided_input(0).reshape(-1)[0])
    going = _get_decided_condition(call.optional_input(1), "the condition")
    carried = list(call.inputs[2:])
    states = len(carried)
    scanned: list[list[Any]] = [[] for _ in body.output[1 + states :]]
    count = 0
    while going and (trips is None or count < trips):
        if count >= MAX_ITERATIONS:
            raise UnprovedError(f"a Loop of more than {MAX_ITERATIONS} iterations")
        step = BoundedTensor(np.asarray(count, np.int64), None, np.int64)
        results = call.run_graph(body, [step, BoundedTensor(np.asarray(True), None, bool), *carried], call.outer)
        going = _get_decided_condition(results[0], f"the condition after {count + 1} iterations")
        carried = list(results[1 : 1 + states])
        for slices, value in zip(scanned, results[1 + states :], strict=True):
            slices.append(value)
        count += 1
    trial = _run_trial_iteration(call, body, carried) if scanned and not count else []
    stacked = [
        concat_values(slices, 0, new_axis=True)
        if slices
        else _make_empty_scan_output(body, 1 + states + i, trial[1 + states + i] if trial else None)
        for i, slices in enumerate(scanned)
    ]
    return [*carried, *stacked][: call.outputs]


def _run_trial_iteration(call: OperatorCall, body: Any, carried: list[Any]) -> list[Any]:
    """Run one iteration to find the sizes of the scan outputs. Return [] if it fails."""
    begin = [BoundedTensor(np.asarray(0, np.int64), None, np.int64), BoundedTensor(np.asarray(True), None, bool)]
    try:
        return list(call.run_graph(body, [*begin, *carried], call.outer))
    except (UndecidedError, UnprovedError, IndexError, ValueError):
        return []


@rule("Scan")
def _evaluate_scan(call: OperatorCall) -> list[Any]:
    if call.opset < 9:
        raise UnprovedError("Scan of operator set 8")
    body, slices = call.attribute("body"), call.attribute("num_scan_inputs")
    states = len(call.inputs) - slices
    outs = len(body.output) - states
    axes_in = call.attribute("scan_input_axes") or [0] * slices
    axes_out = call.attribute("scan_output_axes") or [0] * outs
    back_in = call.attribute("scan_input_directions") or [0] * slices
    back_out = call.attribute("scan_output_directions") or [0] * outs
    carried = list(call.inputs[:states])
    scan_inputs = [call.input(states + i) for i in range(slices)]
    length = scan_inputs[0].shape[axes_in[0]]
    scanned: list[list[Any]] = [[] for _ in range(outs)]
    for step in range(length):
        inputs = []
        for value, axis, reverse in zip(scan_inputs, axes_in, back_in, strict=True):
            index = length - 1 - step if reverse else step
            inputs.append(value.rearrange(lambda v, index=index, axis=axis: np.take(v, index, axis)))  # type: ignore[misc]
        results = call.run_graph(body, [*carried, *inputs], call.outer)
        carried = list(results[:states])
        for collected, result_slice in zip(scanned, results[states:], strict=True):
            collected.append(result_slice)
    stacked = []
    for i, (collected, axis, reverse) in enumerate(zip(scanned, axes_out, back_out, strict=True)):
        ordered = collected[::-1] if reverse else collected
        stacked.append(
            concat_values(ordered, axis, new_axis=True) if ordered else _make_empty_scan_output(body, states + i)
        )
    return [*carried, *stacked][: call.outputs]
