"""Error-bound rules for operators that run user kernels: the kernels' NumPy references, with bounds.

How such a function propagates errors is measured: it also runs on inputs to which their errors are added with random
signs. The root mean square of the changes is an independent error, which allows `COVERAGE_FACTOR` times as much, like
every independent error.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...base.element_types import Array, get_numpy_dtype
from ...base.errors import InputError
from ...importer.kernel_operator import KernelNodeRecorder, KernelOperator, resolve_node_attributes
from ...importer.load_graph import load_graph
from ...model.model import Model
from .bounded_tensor import BoundedTensor, OperatorCall, Rule, UndecidedError, UnprovedError
from .float_types import COVERAGE_FACTOR, is_float

_NUM_SAMPLES = 16  # number of runs with random error signs


def make_kernel_rules(kernels: Mapping[str, KernelOperator]) -> dict[str, Rule]:
    """Return a rule for each operator. Without a reference, the rule reports that the operator is not checked."""
    return {name: _make_rule(name, operator) for name, operator in kernels.items()}


def describe_kernel_nodes(model: Model) -> list[str]:
    """Return a string for each node that runs a user kernel, from the kernel's source and the results of its rules."""
    if not model.kernel_table:
        return []
    recorder = KernelNodeRecorder(model.kernel_table)
    load_graph(model.source, model.folder, None, [value.name for value in model.overridable], kernels=recorder)
    return recorder.nodes


def _make_rule(name: str, operator: KernelOperator) -> Rule:
    def rule(call: OperatorCall) -> list[Any]:
        if operator.reference is None:
            raise UnprovedError(
                f"not checked: kernel '{operator.text['kernel']}' of {name} was given without a reference"
            )
        inputs = [_require_decided_tensor(name, value) for value in call.inputs]
        arrays = [np.asarray(value.value) for value in inputs]
        try:
            attributes = resolve_node_attributes(operator, call.attributes)
        except InputError as input_error:
            raise UnprovedError(f"{name}: {input_error}") from None
        outputs = _call_reference(name, operator, arrays, attributes)[: call.outputs]
        changes = _propagate_errors(name, operator, inputs, arrays, attributes, [value for value, _ in outputs])
        dtypes = _infer_output_dtypes(operator, inputs)
        results = []
        for (value, bound), dtype, change in zip(outputs, dtypes, changes, strict=False):
            kernel_error = _compute_kernel_error(operator, call, value, bound, dtype)
            error = (
                None
                if change is None
                else np.asarray(change) * (1.0 if call.types.independent_errors else COVERAGE_FACTOR)
            )
            results.append(BoundedTensor(value, call.types.combine_errors(kernel_error, error), dtype))
        return results

    return rule


def _require_decided_tensor(name: str, value: Any) -> BoundedTensor:
    if not isinstance(value, BoundedTensor):
        raise UnprovedError(f"an input of {name} is not a tensor")
    if not value.is_float and value.error is not None and np.any(value.error > 0):
        raise UndecidedError(f"{name} of integers that rounding may change")
    return value


def _infer_output_dtypes(operator: KernelOperator, inputs: list[BoundedTensor]) -> list[Any]:
    declared = operator.dtype if operator.dtype is not None else operator.inputs[:1] * len(operator.outputs)
    listed = [declared] * len(operator.outputs) if isinstance(declared, str) else declared
    named = [listed[name] for name in operator.outputs] if isinstance(listed, Mapping) else list(listed)
    return [
        inputs[operator.inputs.index(dtype_or_input)].dtype
        if dtype_or_input in operator.inputs
        else get_numpy_dtype(dtype_or_input)
        for dtype_or_input in named
    ]


def _call_reference(
    name: str, operator: KernelOperator, arrays: list[Array], attributes: dict[str, Any]
) -> list[tuple[Array, Any]]:
    """Return each output with its bound, or None. Raise UnprovedError if the function fails or its outputs do not match
    the kernel's.
    """
    assert operator.reference is not None
    arguments = {**dict(zip(operator.inputs, arrays, strict=True)), **attributes}
    try:
        parameters = inspect.signature(operator.reference).parameters.values()
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            arguments = {
                parameter.name: arguments[parameter.name] for parameter in parameters if parameter.name in arguments
            }
        result = operator.reference(**arguments)
    except Exception as error:  # the caller's function may raise any exception
        raise UnprovedError(f"the reference of {name} fails: {type(error).__name__}: {error}") from None
    if isinstance(result, Mapping):
        if missing := [output for output in operator.outputs if output not in result]:
            raise UnprovedError(f"the reference of {name} does not return '{missing[0]}'")
        outputs = [result[output] for output in operator.outputs]
    else:
        outputs = [result] if len(operator.outputs) == 1 and not isinstance(result, list) else list(result)
    if len(outputs) != len(operator.outputs):
        raise UnprovedError(
            f"the reference of {name} gives {len(outputs)} outputs, but the kernel has {len(operator.outputs)}"
        )
    bounded_outputs = [
        output if isinstance(output, tuple) and len(output) == 2 else (output, None) for output in outputs
    ]
    return [(np.asarray(value), bound) for value, bound in bounded_outputs]


def _propagate_errors(
    name: str,
    operator: KernelOperator,
    inputs: list[BoundedTensor],
    arrays: list[Array],
    attributes: dict[str, Any],
    values: list[Array],
) -> list[Array | None]:
    """Return the root-mean-square change of each output that input errors cause; None if the inputs are exact."""
    if all(value.error is None or not np.any(value.error > 0) for value in inputs):
        return [None] * len(values)
    random = np.random.default_rng(0)
    sums = [np.zeros(value.shape) for value in values]
    for _ in range(_NUM_SAMPLES):
        perturbed = []
        for tensor, array in zip(inputs, arrays, strict=True):
            if tensor.error is None:
                perturbed.append(array)
                continue
            error = np.broadcast_to(np.nan_to_num(tensor.error, nan=0.0), array.shape)
            perturbed.append(array + np.where(random.random(array.shape) < 0.5, -1.0, 1.0) * error)
        for total, (other, _), value in zip(
            sums, _call_reference(name, operator, perturbed, attributes), values, strict=False
        ):
            if other.shape != value.shape:
                raise UndecidedError(f"an output shape of {name} depends on rounding")
            if not is_float(value.dtype) and np.any(other != value):
                raise UndecidedError(f"{name} converts values to integers that rounding may flip")
            difference = np.asarray(other, np.float64) - np.asarray(value, np.float64)
            # Equal infinities count as no change.
            total += (
                np.where(np.asarray(other == value), 0.0, np.nan_to_num(difference, nan=np.inf, posinf=np.inf)) ** 2
            )
    return [
        np.sqrt(total / _NUM_SAMPLES) if is_float(value.dtype) else None
        for total, value in zip(sums, values, strict=True)
    ]


def _compute_kernel_error(
    operator: KernelOperator, call: OperatorCall, value: Array, bound: Any, dtype: Any
) -> Array | None:
    """Return the kernel's own error: the reference's bound, else `tolerance` times the largest magnitude."""
    if bound is not None:
        error = np.array(np.broadcast_to(np.asarray(bound, np.float64), value.shape))
        if not (error >= 0).all():
            raise UnprovedError("the reference returns a negative bound")
        return call.types.from_max_deviation(error)
    if not is_float(dtype):
        return (
            None
            if not operator.tolerance
            else np.full(value.shape, float(operator.tolerance) * _find_largest_magnitude(value))
        )
    relative = operator.tolerance
    if relative is None:
        relative = float(np.sqrt(2 * call.types.get_storage_type(dtype).unit))
    return call.types.from_max_deviation(np.full(value.shape, relative * _find_largest_magnitude(value)))


def _find_largest_magnitude(value: Array) -> float:
    finite = np.abs(np.asarray(value, np.float64))
    finite = finite[np.isfinite(finite)]
    return float(finite.max()) if finite.size else 0.0
