"""Error-bound rules for pooling: the maximum, mean or norm of windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.element_types import Array
from .alternative_values import EnumeratedAlternatives
from .bounded_tensor import BoundedTensor, OperatorCall, evaluate_operator, rule
from .elementwise import wrap_integer
from .gemm_conv import compute_window_geometry, replace_nan_with_infinity
from .math_functions import apply_function
from .reductions import reduce_axes


class _PoolingWindows:
    """Geometry of pooling windows. With ceil_mode, the last windows may extend beyond the padding."""

    def __init__(self, call: OperatorCall, shape: tuple[int, ...]) -> None:
        self.spatial = shape[2:]
        self.kernel = tuple(call.attribute("kernel_shape"))
        strides = call.attribute("strides") or [1] * len(self.kernel)
        self.strides, self.dilations, self.pads_begin, ends = compute_window_geometry(call, self.spatial, self.kernel)
        self.strides = list(strides)
        up = bool(call.attribute("ceil_mode", 0)) and str(call.attribute("auto_pad", "NOTSET")) in ("NOTSET", "")
        self.output_sizes, self.pads_end = [], []
        axes = zip(self.spatial, self.kernel, self.strides, self.dilations, self.pads_begin, ends, strict=True)
        for size, k, s, d, begin, end in axes:
            span = size + begin + end - (k - 1) * d - 1
            count = (-(-span // s) if up else span // s) + 1
            if up and (count - 1) * s >= size + begin:
                count -= 1
            self.output_sizes.append(count)
            self.pads_end.append(max((count - 1) * s + (k - 1) * d + 1 - size - begin, 0))
        self.declared_pads_end = list(ends)

    def pad_input(self, x: Array, fill: float) -> Array:
        """Pad the spatial axes with `fill`, up to the end of the last window."""
        return np.pad(x, [(0, 0), (0, 0), *zip(self.pads_begin, self.pads_end, strict=True)], constant_values=fill)

    def iter_taps(self, padded: Array) -> Any:
        """Yield, for each window offset, the elements that all windows read at this offset."""
        for tap in np.ndindex(*self.kernel):
            yield padded[
                (
                    slice(None),
                    slice(None),
                    *[
                        slice(t * d, t * d + (o - 1) * s + 1, s)
                        for t, d, o, s in zip(tap, self.dilations, self.output_sizes, self.strides, strict=True)
                    ],
                )
            ]

    def count_elements(self, with_padding: bool) -> Array:
        """Return the number of elements in each window, with or without padding."""
        inside = np.ones((1, 1, *self.spatial))
        if with_padding:
            width = [
                (b, min(a, e)) for b, a, e in zip(self.pads_begin, self.pads_end, self.declared_pads_end, strict=True)
            ]
            inside = np.pad(inside, [(0, 0), (0, 0), *width], constant_values=1.0)
            rest = [(0, a - w[1]) for a, w in zip(self.pads_end, width, strict=True)]
            return sum(self.iter_taps(np.pad(inside, [(0, 0), (0, 0), *rest])))  # type: ignore[no-any-return]
        return sum(self.iter_taps(self.pad_input(inside, 0.0)))  # type: ignore[no-any-return]


def _compute_window_maximum(windows: _PoolingWindows, x: Array, lowest: Any) -> Array:
    result: Any = None
    for tap_values in windows.iter_taps(windows.pad_input(x, lowest)):
        result = tap_values if result is None else np.maximum(result, tap_values)
    return np.asarray(result)


@rule("MaxPool")
def _evaluate_max_pool(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    windows = _PoolingWindows(call, x.shape)
    lowest = -np.inf if x.is_float else np.iinfo(x.value.dtype).min
    value = _compute_window_maximum(windows, x.value, lowest)
    error = None
    if x.error is not None:
        with np.errstate(all="ignore"):
            reach = call.types.to_max_deviation(x.error)
            high = _compute_window_maximum(windows, x.value + reach, lowest) - value
            low = value - _compute_window_maximum(windows, x.value - reach, lowest)
            error = replace_nan_with_infinity(call.types.from_max_deviation(np.maximum(high, low)))
            missing = np.isnan(value)  # for a window that contains NaN, use the error of the NaN
            if missing.any():
                nan_errors = _compute_window_maximum(windows, np.where(np.isnan(x.value), x.get_errors(), 0.0), 0.0)
                error = np.where(missing, nan_errors, 0.0 if error is None else error)
    result = [BoundedTensor(value, error, x.dtype, x.stored)]
    return result if call.outputs < 2 else [*result, _find_max_indices(call, windows, x, value)]


def _find_max_indices(call: OperatorCall, windows: _PoolingWindows, x: BoundedTensor, value: Array) -> BoundedTensor:
    """Return the flat index in x of each maximum; ties go to the first element."""
    if call.attribute("storage_order", 0):
        order = np.arange(x.size).reshape(*x.shape[:2], *x.shape[2:][::-1])
        flat = order.transpose(0, 1, *range(x.ndim - 1, 1, -1))
    else:
        flat = np.arange(x.size).reshape(x.shape)
    lowest = -np.inf if x.is_float else np.iinfo(x.value.dtype).min
    indices = np.full(value.shape, -1, np.int64)
    taps = zip(
        windows.iter_taps(windows.pad_input(x.value, lowest)),
        windows.iter_taps(windows.pad_input(flat, -1)),
        strict=True,
    )
    for tap_values, tap_indices in taps:
        indices = np.where((indices < 0) & (tap_values == value) & (tap_indices >= 0), tap_indices, indices)
    result = BoundedTensor(indices, None, np.int64)
    return result if x.error is None else _find_undecided_max_indices(call, windows, x, flat, result)


def _find_undecided_max_indices(
    call: OperatorCall, windows: _PoolingWindows, x: BoundedTensor, flat: Array, result: BoundedTensor
) -> BoundedTensor:
    """Return the indices of the maxima; an index is undecided if several elements of its window may be the maximum."""
    reach = np.broadcast_to(call.types.to_max_deviation(x.get_errors()), x.shape)
    with np.errstate(all="ignore"):
        low, high = (np.where(reach == 0, x.value, x.value + sign * reach) for sign in (-1, 1))
    lower_bound = _compute_window_maximum(windows, np.where(np.isnan(low), -np.inf, low), -np.inf)
    highs = windows.iter_taps(windows.pad_input(np.where(np.isnan(high), np.inf, high), -np.inf))
    values, counts = [], np.zeros(result.shape, int)
    for tap_values, tap_indices in zip(highs, windows.iter_taps(windows.pad_input(flat, -1)), strict=True):
        may_be_max = (tap_values >= lower_bound) & (tap_indices >= 0)
        counts += may_be_max
        values.append(np.where(may_be_max, tap_indices, result.value))
    undecided = counts > 1
    if not undecided.any():
        return result
    alternatives = EnumeratedAlternatives(undecided, values, [np.zeros(result.shape)] * len(values))
    return BoundedTensor(result.value, np.where(undecided, np.inf, 0.0), np.int64).set_alternatives(alternatives)


def _sum_windows(windows: _PoolingWindows, x: BoundedTensor, call: OperatorCall) -> BoundedTensor:
    terms = int(np.prod(windows.kernel, dtype=int))
    with np.errstate(all="ignore"):
        value = sum(windows.iter_taps(windows.pad_input(x.value, 0.0)))
        magnitudes = sum(windows.iter_taps(windows.pad_input(x.max_magnitude(), 0.0)))
        propagated = None if x.error is None else _sum_window_errors(windows, x.error, call)
        own_error = call.types.compute_sum_error_factor(terms - 1, x.dtype) * magnitudes if terms > 1 else None
    return BoundedTensor(value, replace_nan_with_infinity(call.types.combine_errors(own_error, propagated)), x.dtype)


def _sum_window_errors(windows: _PoolingWindows, error: Array, call: OperatorCall) -> Array:
    if call.types.independent_errors:
        return np.asarray(np.sqrt(sum(windows.iter_taps(windows.pad_input(np.square(error), 0.0)))))
    return np.asarray(sum(windows.iter_taps(windows.pad_input(error, 0.0))))


@rule("AveragePool")
def _evaluate_average_pool(call: OperatorCall) -> list[Any]:
    x, m = call.input(0), call.make_arithmetic()
    windows = _PoolingWindows(call, x.shape)
    counts = windows.count_elements(bool(call.attribute("count_include_pad", 0)))
    return [m.div(_sum_windows(windows, x, call), m.wrap(counts))]


@rule("LpPool")
def _evaluate_lp_pool(call: OperatorCall) -> list[Any]:
    x, m, p = call.input(0), call.make_arithmetic(), float(call.attribute("p", 2))
    windows = _PoolingWindows(call, x.shape)
    return [
        compute_nth_root(call, _sum_windows(windows, compute_magnitude_power(call, x, p), call), p)
        if p != 1
        else _sum_windows(windows, m.abs(x), call)
    ]


def compute_magnitude_power(call: OperatorCall, x: BoundedTensor, p: float) -> BoundedTensor:
    """Return |x|^p."""
    m = call.make_arithmetic()
    return (
        m.mul(x, x)
        if p == 2
        else m.wrap(*_get_value_and_error(evaluate_operator("Pow", [m.abs(x), m.wrap(p)], like=call)[0]))
    )


def compute_nth_root(call: OperatorCall, x: BoundedTensor, p: float) -> BoundedTensor:
    """Return the p-th root of a sum of p-th powers."""
    m = call.make_arithmetic()
    if p == 2:
        return apply_function("sqrt", x, m)
    exponent = m.div(m.wrap(1.0), m.wrap(p))
    return m.wrap(*_get_value_and_error(evaluate_operator("Pow", [x, exponent], like=call)[0]))


def _get_value_and_error(x: BoundedTensor) -> tuple[Array, Array | None]:
    return x.value, x.error


@rule("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _evaluate_global_pool(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    axes = tuple(range(2, x.ndim))
    kind = {"GlobalAveragePool": "Mean", "GlobalMaxPool": "Max"}.get(call.op)
    if kind:
        return [reduce_axes(call, kind, x, axes, True)]
    p = float(call.attribute("p", 2))
    return [compute_nth_root(call, reduce_axes(call, "Sum", compute_magnitude_power(call, x, p), axes, True), p)]


@rule("MaxUnpool")
def _evaluate_max_unpool(call: OperatorCall) -> list[Any]:
    x, indices = call.input(0), call.get_decided_input(1)
    output_shape = call.get_integer_list(2)
    kernel = call.attribute("kernel_shape")
    strides, pads = call.attribute("strides") or [1] * len(kernel), call.attribute("pads") or [0] * 2 * len(kernel)
    plain = [
        (size - 1) * s + k - pads[i] - pads[i + len(kernel)]
        for i, (size, s, k) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    shape = (*x.shape[:2], *plain)
    value, error = (
        np.zeros(int(np.prod(shape, dtype=int))),
        None if x.is_exact else np.zeros(int(np.prod(shape, dtype=int))),
    )
    value[indices.reshape(-1)] = x.value.reshape(-1)
    if error is not None:
        error[indices.reshape(-1)] = x.get_errors().reshape(-1)
    result = BoundedTensor(value.reshape(shape), None if error is None else error.reshape(shape), x.dtype, x.stored)
    if output_shape is None or tuple(output_shape) == shape:
        return [result]
    rest = [(0, max(w - s, 0)) for w, s in zip(output_shape, shape, strict=True)]
    return [result.rearrange(lambda v: np.pad(v, rest))]


__all__ = ["compute_magnitude_power", "compute_nth_root", "wrap_integer"]
