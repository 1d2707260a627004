"""Error-bound rules for reductions, softmax (V6) and cumulative operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.element_types import Array
from .bounded_tensor import BoundedTensor, OperatorCall, UndecidedError, rule
from .gemm_conv import compute_exact_sum_mask, replace_nan_with_infinity, sum_axes
from .math_functions import apply_function


def reduce_axes(
    call: OperatorCall, kind: str, x: BoundedTensor, axes: tuple[int, ...], keepdims: bool
) -> BoundedTensor:
    """Compute Sum, Mean, Max, Min or Prod over axes."""
    m = call.make_arithmetic(x.dtype) if x.is_float else None
    count = int(np.prod([x.shape[i] for i in axes], dtype=int))
    if m is None:
        return _reduce_integers(kind, x, axes, keepdims, count)
    if kind in ("Sum", "Mean"):
        total = sum_axes(x, axes, call.types, keepdims)
        return m.div(total, m.wrap(float(count))) if kind == "Mean" and count != 1 else total
    with np.errstate(all="ignore"):
        if kind == "Prod":
            value = np.prod(x.value, axis=axes, keepdims=keepdims)
            sizes = np.prod(x.max_magnitude(), axis=axes, keepdims=keepdims)
            propagated = sizes - np.prod(np.abs(x.value), axis=axes, keepdims=keepdims) if x.error is not None else None
            return BoundedTensor(
                value,
                replace_nan_with_infinity(
                    call.types.combine_errors(
                        sizes * call.types.compute_sum_error_factor(call.types.count_max_roundings(count), x.dtype),
                        propagated,
                    )
                ),
                x.dtype,
            )
        choose = np.max if kind == "Max" else np.min
        if count == 0:
            edge = -np.inf if kind == "Max" else np.inf
            value = choose(x.value, axis=axes, keepdims=keepdims, initial=edge)
            return BoundedTensor(value, None, x.dtype, True)
        value = choose(x.value, axis=axes, keepdims=keepdims)
        if x.error is None:
            return BoundedTensor(value, None, x.dtype, x.stored)
        reach = call.types.to_max_deviation(x.error)
        high = choose(x.value + reach, axis=axes, keepdims=keepdims) - value
        low = value - choose(x.value - reach, axis=axes, keepdims=keepdims)
        error = call.types.from_max_deviation(np.maximum(np.abs(high), np.abs(low)))
        return BoundedTensor(value, replace_nan_with_infinity(error), x.dtype, x.stored)


def _reduce_integers(kind: str, x: BoundedTensor, axes: tuple[int, ...], keepdims: bool, count: int) -> BoundedTensor:
    if not x.is_exact:
        raise UndecidedError("a reduction of integers that rounding may change")
    dtype = x.value.dtype
    if kind == "Mean":
        total = np.sum(x.value.astype(np.int64), axis=axes, keepdims=keepdims)
        return BoundedTensor((np.sign(total) * (np.abs(total) // max(count, 1))).astype(dtype), None, x.dtype)
    if kind in ("Max", "Min"):
        choose: Any = {"Max": np.max, "Min": np.min}[kind]
        edge = {}
        if count == 0 and dtype.kind != "b":
            edge = {"initial": np.iinfo(dtype).min if kind == "Max" else np.iinfo(dtype).max}
        return BoundedTensor(np.asarray(choose(x.value, axis=axes, keepdims=keepdims, **edge)), None, x.dtype)
    fold: Any = {"Sum": np.sum, "Prod": np.prod}[kind]
    return BoundedTensor(np.asarray(fold(x.value, axis=axes, keepdims=keepdims, dtype=dtype)), None, x.dtype)


_REDUCTION_KINDS = {
    "ReduceSum": "Sum", "ReduceMean": "Mean", "ReduceMax": "Max", "ReduceMin": "Min", "ReduceProd": "Prod",
    "ReduceSumSquare": "Sum", "ReduceL1": "Sum", "ReduceL2": "Sum", "ReduceLogSum": "Sum", "ReduceLogSumExp": "Sum",
}  # fmt: skip


@rule(*_REDUCTION_KINDS)
def _evaluate_reduction(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    axes_value = call.get_axes()
    keepdims = bool(call.attribute("keepdims", 1))
    reduces_all = axes_value is None or not axes_value
    is_noop = reduces_all and bool(call.attribute("noop_with_empty_axes", 0))
    axes = tuple(range(x.ndim)) if reduces_all else tuple(axis % x.ndim for axis in axes_value or [])
    axes = () if is_noop else axes
    op = call.op
    m = call.make_arithmetic() if x.is_float else None
    if op in ("ReduceSumSquare", "ReduceL2"):
        x = m.mul(x, x) if m else BoundedTensor(x.value * x.value, None, x.dtype)
    elif op == "ReduceL1":
        x = m.abs(x) if m else BoundedTensor(np.abs(x.value), None, x.dtype)
    elif op == "ReduceLogSumExp":
        return [_compute_log_sum_exp(call, x, axes, keepdims)]
    result = x if is_noop else reduce_axes(call, _REDUCTION_KINDS[op], x, axes, keepdims)
    if op in ("ReduceSum", "ReduceL1", "ReduceSumSquare") and x.is_float and not is_noop:
        result = result.set_exact_sums(
            _compute_exact_reduction_mask(call, x, np.sum(np.abs(x.value), axis=axes, keepdims=keepdims))
        )
    if op == "ReduceL2":
        if m is None:
            return [
                BoundedTensor(np.sqrt(result.value.astype(np.float64)).astype(result.value.dtype), None, result.dtype)
            ]
        result = apply_function("sqrt", result, m)
    return [apply_function("log", result, m) if op == "ReduceLogSum" and m else result]


def compute_exp_error(call: OperatorCall, distance: Array, dtype: Any, factors: int = 1) -> Array:
    """Return the relative error of exp(-distance), including the rounding error of the distance.

    The kernels call the driver's exp, for which Vulkan permits 3 + 2 |x| ulps. factors: number of exponentials that
    online softmax multiplies together when it rescales.
    """
    unit = call.types.get_accumulation_type(dtype).unit
    if str(dtype) == "float64":
        return 32 * unit + (distance + 1) * unit
    own_error = (3 * factors + 2 * np.minimum(distance, 200.0)) * 2.0**-23 + (factors - 1) * unit
    if call.types.uses_fast_functions(dtype):
        return 2.0**-17 + (3 + 4 * 1.4427 * np.minimum(distance, 200.0)) * 2.0**-23 + (distance + 1) * unit
    return own_error + (distance + 1) * unit


def _compute_log_sum_exp(call: OperatorCall, x: BoundedTensor, axes: tuple[int, ...], keepdims: bool) -> BoundedTensor:
    m = call.make_arithmetic(x.dtype)
    count = int(np.prod([x.shape[i] for i in axes], dtype=int)) if axes else 1

    def compute_log_sum(v: Array) -> Array:
        top = np.max(v, axis=axes, keepdims=True, initial=-np.inf)
        safe = np.where(np.isfinite(top), top, 0.0)
        result: Array = np.log(np.sum(np.exp(v - safe), axis=axes, keepdims=True)) + safe
        return result if keepdims else np.squeeze(result, axes)

    with np.errstate(all="ignore"):
        value = compute_log_sum(x.value)
        propagated = None
        if x.error is not None:
            propagated = np.maximum(
                compute_log_sum(x.value + x.error) - value, value - compute_log_sum(x.value - x.error)
            )
            propagated = replace_nan_with_infinity(propagated)
        top = np.max(x.value, axis=axes, keepdims=True, initial=-np.inf)
        weight = np.exp(x.value - top)
        distance = np.where(weight > 0, top - x.value, 0.0)
        own_error = np.sum(weight * compute_exp_error(call, distance, x.dtype, 2), axis=axes, keepdims=True)
        own_error = own_error / np.maximum(np.sum(weight, axis=axes, keepdims=True), 1e-300)
        own_error = (
            own_error
            + call.types.compute_sum_error_factor(count, x.dtype)
            + 4 * m.unit * np.log(max(count, 2))
            + 2 * m.unit * np.abs(top)
        )
        own_error = own_error if keepdims else np.squeeze(own_error, axes)
        own_error = np.where(np.isfinite(value), own_error, 0.0)
    return m.round(value, call.types.combine_errors(own_error, propagated))


# ---- softmax


@rule("Softmax", "LogSoftmax")
def _evaluate_softmax(call: OperatorCall) -> list[Any]:
    x, axis = call.input(0), call.attribute("axis", 1 if call.opset < 13 else -1)
    if call.opset < 13:
        shape = x.shape
        rows = int(np.prod(shape[: axis + x.ndim if axis < 0 else axis], dtype=int))
        result = compute_softmax(call, x.rearrange(lambda v: v.reshape(rows, -1)), -1, call.op == "LogSoftmax")
        return [result.rearrange(lambda v: v.reshape(shape))]
    return [compute_softmax(call, x, axis, call.op == "LogSoftmax")]


def compute_softmax(
    call: OperatorCall, x: BoundedTensor, axis: int, is_log: bool = False, factors: int = 1
) -> BoundedTensor:
    """Compute softmax along an axis. A row of -inf gives NaN, because 0/0 is NaN. factors: see `compute_exp_error`."""
    if not x.size:
        return BoundedTensor(x.value, None, x.dtype)
    with np.errstate(all="ignore"):
        top = np.max(x.value, axis=axis, keepdims=True)
        shifted = x.value - top
        weight = np.exp(shifted)
        total = np.sum(weight, axis=axis, keepdims=True)
        value = shifted - np.log(total) if is_log else weight / total
        distance = np.where(weight > 0, -shifted, 0.0)
        exp_errors = compute_exp_error(call, distance, x.dtype, factors)
        terms = call.types.count_max_roundings(x.shape[axis])
        sum_error = np.sum(weight * exp_errors, axis=axis, keepdims=True) / total + call.types.compute_sum_error_factor(
            terms, x.dtype
        )
        unit = call.make_arithmetic(x.dtype).unit
        if is_log:
            own_error = sum_error + unit * (
                3 * np.abs(np.log(total)) + np.where(np.isfinite(shifted), 2 * np.abs(shifted), 0.0)
            )
            own_error = own_error + 2 * unit * np.abs(value)
        else:
            own_error = value * (exp_errors + sum_error + 4 * unit) + np.where(value < 2.0**-126, 2.0**-126, 0.0) * (
                value > 0
            )
            own_error = np.where((shifted < -80) & np.isfinite(shifted), own_error + 2.0**-126, own_error)
        own_error = np.where(np.isfinite(value), own_error, 0.0)
        if x.error is None:
            return BoundedTensor(value, own_error, x.dtype)
        propagated = _bound_log_softmax_error(x, axis, value) if is_log else _bound_softmax_error(x, axis, top, value)
    return BoundedTensor(value, call.types.combine_errors(own_error, propagated), x.dtype)


def _bound_softmax_error(x: BoundedTensor, axis: int, top: Array, value: Array) -> Array:
    """Bound the change of softmax: an output is largest with its own input at the upper bound and all others at the lower."""
    error = x.get_errors()
    high, low = np.exp(np.minimum(x.value + error - top, 700.0)), np.exp(x.value - error - top)
    upper_bound, lower_bound = (
        high / (high + _sum_other_elements(low, axis)),
        low / (low + _sum_other_elements(high, axis)),
    )
    propagated = np.maximum(np.abs(upper_bound - value), np.abs(value - lower_bound))
    return np.asarray(np.where(np.isnan(value), 0.0, np.where(np.isnan(propagated), 1.0, np.minimum(propagated, 1.0))))


def _sum_other_elements(values: Array, axis: int) -> Array:
    """Return, for each element, the sum of all other elements of its row, computed without cancellation."""
    largest = np.expand_dims(np.argmax(values, axis=axis), axis)
    rest = np.array(values)
    np.put_along_axis(rest, largest, 0.0, axis)
    without = np.sum(rest, axis=axis, keepdims=True)
    sums: Array = np.sum(values, axis=axis, keepdims=True) - values
    np.put_along_axis(sums, largest, without, axis)
    return np.asarray(np.maximum(sums, 0.0))


def _bound_log_softmax_error(x: BoundedTensor, axis: int, value: Array) -> Array:
    def sum_exponentials(v: Array) -> Array:
        top = np.max(v, axis=axis, keepdims=True)
        return np.asarray(np.log(np.sum(np.exp(v - top), axis=axis, keepdims=True)) + top)

    exp_sum = sum_exponentials(x.value)
    sum_error = np.maximum(
        sum_exponentials(x.value + x.get_errors()) - exp_sum, exp_sum - sum_exponentials(x.value - x.get_errors())
    )
    propagated = x.get_errors() + sum_error
    return np.where(np.isnan(value), 0.0, np.where(np.isnan(propagated), np.inf, propagated))


# ---- cumulative operators


@rule("CumSum", "CumProd")
def _evaluate_cumulative_sum_or_product(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    axis = int(call.get_decided_input(1).reshape(-1)[0])
    reverse, exclusive = call.attribute("reverse", 0), call.attribute("exclusive", 0)
    fold = np.cumsum if call.op == "CumSum" else np.cumprod
    first = 0 if call.op == "CumSum" else 1

    def accumulate(v: Array, empty: float = first) -> Array:
        v = np.flip(v, axis) if reverse else v
        result = fold(v, axis=axis, dtype=v.dtype)
        if exclusive:
            head = np.full_like(np.take(result, [0], axis), empty)
            result = np.concatenate([head, np.take(result, np.arange(result.shape[axis] - 1), axis)], axis)
        return np.flip(result, axis) if reverse else result

    if not x.size:
        return [x]
    with np.errstate(all="ignore"):
        value = accumulate(x.value)
        if not x.is_float:
            if not x.is_exact:
                raise UndecidedError(f"{call.op} of integers that rounding may change")
            return [BoundedTensor(value, None, x.dtype)]
        sizes = accumulate(x.max_magnitude())
        counts = np.cumsum(np.ones(x.shape), axis=axis)
        counts = np.flip(counts, axis) if reverse else counts
        own_error = call.make_arithmetic().unit * np.maximum(counts - 1, 0) * (1 + 2.0**-8) * sizes
        propagated = None
        if x.error is not None:
            propagated = accumulate(x.error, 0) if call.op == "CumSum" else sizes - accumulate(np.abs(x.value))
    result = BoundedTensor(value, replace_nan_with_infinity(call.types.combine_errors(own_error, propagated)), x.dtype)
    return [result.set_exact_sums(_compute_exact_reduction_mask(call, x, sizes) if call.op == "CumSum" else None)]


def _compute_exact_reduction_mask(call: OperatorCall, x: BoundedTensor, sizes: Array) -> Array | None:
    """Return a mask of the sums that are exact in every kernel; None if there are none. sizes: sums of the magnitudes."""
    if not x.is_exact or not call.types.allows_exact_sums or call.types.skips_errors:
        return None
    return compute_exact_sum_mask(sizes, [x.value], call.types.get_accumulation_type(x.dtype))
