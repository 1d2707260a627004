"""Rules for operators that run user kernels: their NumPy references, with bounds.

Error propagation through such a function is measured: it also runs on inputs perturbed by their errors with random
signs. The root mean square of the changes is an independent error; its reach is `SPREAD` times that, as for every
independent error.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..base.element_types import Array, numpy_dtype
from ..base.errors import InputError
from ..importer.kernel_operator import KernelOperator, ToldKernels, node_attributes
from ..importer.load import load_graph
from ..model.model import Model
from .bounds.bounded import Bounded
from .bounds.registry import Call, Rule, Undecided, Unproved
from .bounds.float_types import SPREAD, is_float

_SAMPLES = 16  # runs with random error signs


def rules_of(kernels: Mapping[str, KernelOperator]) -> dict[str, Rule]:
    """Return a rule per operator; it reports "not checked" for an operator without a reference."""
    return {name: _rule(name, one) for name, one in kernels.items()}


def kernel_nodes(model: Model) -> list[str]:
    """Return, for each node that runs a user kernel, its source and the results of its rules as a string."""
    if not model.kernel_table:
        return []
    told = ToldKernels(model.kernel_table)
    load_graph(model.source, model.folder, None, [value.name for value in model.overridable], kernels=told)
    return told.nodes


def _rule(name: str, one: KernelOperator) -> Rule:
    def rule(call: Call) -> list[Any]:
        if one.reference is None:
            raise Unproved(f"not checked: kernel '{one.text['kernel']}' of {name} was given without a reference")
        inputs = [_tensor(name, value) for value in call.given]
        given = [np.asarray(value.value) for value in inputs]
        try:
            attributes = node_attributes(one, call.attributes)
        except InputError as wrong:
            raise Unproved(f"{name}: {wrong}") from None
        made = _called(name, one, given, attributes)[: call.outputs]
        changes = _changes(name, one, inputs, given, attributes, [value for value, _ in made])
        dtypes = _dtypes(one, inputs)
        results = []
        for (value, bound), dtype, change in zip(made, dtypes, changes, strict=False):
            own = _own_error(one, call, value, bound, dtype)
            error = None if change is None else np.asarray(change) * (1.0 if call.types.independent else SPREAD)
            results.append(Bounded(value, call.types.joined(own, error), dtype))
        return results

    return rule


def _tensor(name: str, value: Any) -> Bounded:
    if not isinstance(value, Bounded):
        raise Unproved(f"an input of {name} is no tensor")
    if not value.is_float and value.error is not None and np.any(value.error > 0):
        raise Undecided(f"{name} of undecided numbers")
    return value


def _dtypes(one: KernelOperator, inputs: list[Bounded]) -> list[Any]:
    given = one.dtype if one.dtype is not None else one.inputs[:1] * len(one.outputs)
    listed = [given] * len(one.outputs) if isinstance(given, str) else given
    named = [listed[name] for name in one.outputs] if isinstance(listed, Mapping) else list(listed)
    return [inputs[one.inputs.index(each)].dtype if each in one.inputs else numpy_dtype(each) for each in named]


def _called(name: str, one: KernelOperator, given: list[Array], attributes: dict[str, Any]) -> list[tuple[Array, Any]]:
    """Return each output with its bound, or None. Raise Unproved if the function fails or its outputs do not match
    the kernel's.
    """
    assert one.reference is not None
    every = {**dict(zip(one.inputs, given, strict=True)), **attributes}
    try:
        wanted = inspect.signature(one.reference).parameters.values()
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in wanted):
            every = {parameter.name: every[parameter.name] for parameter in wanted if parameter.name in every}
        result = one.reference(**every)
    except Exception as error:  # the caller's function may raise anything
        raise Unproved(f"the reference of {name} fails: {type(error).__name__}: {error}") from None
    if isinstance(result, Mapping):
        if missing := [output for output in one.outputs if output not in result]:
            raise Unproved(f"the reference of {name} gives no '{missing[0]}'")
        parts = [result[output] for output in one.outputs]
    else:
        parts = [result] if len(one.outputs) == 1 and not isinstance(result, list) else list(result)
    if len(parts) != len(one.outputs):
        raise Unproved(
            f"the reference of {name} gives {len(parts)} outputs, of which the kernel has {len(one.outputs)}"
        )
    pairs = [part if isinstance(part, tuple) and len(part) == 2 else (part, None) for part in parts]
    return [(np.asarray(value), bound) for value, bound in pairs]


def _changes(
    name: str,
    one: KernelOperator,
    inputs: list[Bounded],
    given: list[Array],
    attributes: dict[str, Any],
    values: list[Array],
) -> list[Array | None]:
    """Return the root mean square change of each output caused by input errors; None if the inputs are exact."""
    if all(value.error is None or not np.any(value.error > 0) for value in inputs):
        return [None] * len(values)
    random = np.random.default_rng(0)
    sums = [np.zeros(value.shape) for value in values]
    for _ in range(_SAMPLES):
        moved = []
        for tensor, array in zip(inputs, given, strict=True):
            if tensor.error is None:
                moved.append(array)
                continue
            error = np.broadcast_to(np.nan_to_num(tensor.error, nan=0.0), array.shape)
            moved.append(array + np.where(random.random(array.shape) < 0.5, -1.0, 1.0) * error)
        for total, (other, _), value in zip(sums, _called(name, one, moved, attributes), values, strict=False):
            if other.shape != value.shape:
                raise Undecided(f"the shape of what {name} makes rests on roundings")
            if not is_float(value.dtype) and np.any(other != value):
                raise Undecided(f"{name} makes whole numbers of what roundings may turn")
            change = np.asarray(other, np.float64) - np.asarray(value, np.float64)
            # Two equal infinities are not a change.
            total += np.where(np.asarray(other == value), 0.0, np.nan_to_num(change, nan=np.inf, posinf=np.inf)) ** 2
    return [
        np.sqrt(total / _SAMPLES) if is_float(value.dtype) else None for total, value in zip(sums, values, strict=True)
    ]


def _own_error(one: KernelOperator, call: Call, value: Array, bound: Any, dtype: Any) -> Array | None:
    """Return the kernel's own error: the reference's bound, else `tolerance` times the largest magnitude."""
    if bound is not None:
        error = np.array(np.broadcast_to(np.asarray(bound, np.float64), value.shape))
        if not (error >= 0).all():
            raise Unproved("the reference gives a bound below 0")
        return call.types.share(error)
    if not is_float(dtype):
        return None if not one.tolerance else np.full(value.shape, float(one.tolerance) * _largest(value))
    part = one.tolerance
    if part is None:
        part = float(np.sqrt(2 * call.types.storage(dtype).unit))
    return call.types.share(np.full(value.shape, part * _largest(value)))


def _largest(value: Array) -> float:
    finite = np.abs(np.asarray(value, np.float64))
    finite = finite[np.isfinite(finite)]
    return float(finite.max()) if finite.size else 0.0
