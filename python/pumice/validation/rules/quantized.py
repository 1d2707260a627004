"""Error-bound rules for quantised tensors: a value near the midpoint of two steps may round to either (V8, V9)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.element_types import Array
from .bounded_tensor import BoundedTensor
from .comparisons_and_casts import apply_step_function, dtype_from_onnx, is_sub_16_bit_float
from .elementwise import to_float_value
from .float_types import ProgramTypes, is_float
from .gemm_conv import convolve_integers, evaluate_integer_bilinear, subtract_zero_point
from .rule_registry import OperatorCall, UnprovedError, rule
from .undecided_choices import evaluate_with_alternatives


def broadcast_parameter(value: BoundedTensor, shape: tuple[int, ...], axis: int, block: int) -> BoundedTensor:
    """Broadcast scales or zero points that are per tensor, per channel or per block."""
    if value.size == 1:
        return value.rearrange(lambda v: v.reshape(()))
    if value.ndim == 1 and not (block and len(shape) == 1):
        sizes = [1] * len(shape)
        sizes[axis] = value.size
        return value.rearrange(lambda v: v.reshape(sizes))
    return value.rearrange(lambda v: np.take(np.repeat(v, block, axis), np.arange(shape[axis]), axis))


def get_integer_limits(dtype: Any) -> tuple[float, float]:
    """Return the range of an integer type, including sub-byte types."""
    name = str(dtype)
    if name in ("int4", "uint4", "int2", "uint2"):
        bits = int(name[-1])
        return (0.0, 2.0**bits - 1) if name[0] == "u" else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1)
    info = np.iinfo(dtype)
    return float(info.min), float(info.max)


def quantize(real: BoundedTensor, zero: Any, dtype: Any, types: ProgramTypes) -> BoundedTensor:
    """Quantise scaled values: round half to even, add the zero point and saturate."""
    low, high = get_integer_limits(dtype)

    def round_and_saturate(v: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(np.clip(np.rint(v) + zero, low, high))

    value = round_and_saturate(np.where(np.isnan(real.value), 0.0, real.value))
    return apply_step_function(
        round_and_saturate, real, BoundedTensor(value.astype(np.int64).astype(dtype), None, dtype), types
    )


def _get_zero_point(zero: BoundedTensor | None) -> Any:
    return 0.0 if zero is None else zero.value.astype(np.float64)


def _add_zero_point_error(result: BoundedTensor, zero: BoundedTensor | None) -> BoundedTensor:
    if zero is None or zero.error is None:
        return result
    return BoundedTensor(result.value, result.get_errors() + zero.error, result.dtype)


@rule("QuantizeLinear")
@rule("QuantizeLinear", domain="com.microsoft")
def _evaluate_quantize_linear(call: OperatorCall) -> list[Any]:
    x, scale, zero = call.input(0), call.input(1), call.optional_input(2)
    number = call.attribute("output_dtype", 0)
    dtype = zero.dtype if zero is not None else dtype_from_onnx(number) if number else np.dtype(np.uint8)
    if is_sub_16_bit_float(str(dtype)):
        raise UnprovedError(f"QuantizeLinear to {dtype}")
    axis, block = call.attribute("axis", 1), call.attribute("block_size", 0)
    axis = axis % x.ndim if x.ndim else 0
    scale = broadcast_parameter(scale, x.shape, axis, block)
    zero = None if zero is None else broadcast_parameter(zero, x.shape, axis, block)

    def quantize_inputs(node_call: OperatorCall) -> list[Any]:
        x, scale, zero = node_call.inputs
        m = node_call.make_arithmetic(np.float32 if not is_float(x.dtype) else x.dtype)
        real = m.div(to_float_value(x, np.float32), scale)
        return [_add_zero_point_error(quantize(real, _get_zero_point(zero), dtype, node_call.types), zero)]

    return evaluate_with_alternatives(
        quantize_inputs, OperatorCall(call.op, [x, scale, zero], call.attributes, call.opset, call.types)
    )


@rule("DequantizeLinear")
@rule("DequantizeLinear", domain="com.microsoft")
def _evaluate_dequantize_linear(call: OperatorCall) -> list[Any]:
    x, scale, zero = call.input(0), call.input(1), call.optional_input(2)
    number = call.attribute("output_dtype", 0)
    dtype = dtype_from_onnx(number) if number else scale.dtype
    axis, block = call.attribute("axis", 1), call.attribute("block_size", 0)
    axis = axis % x.ndim if x.ndim else 0
    scale = broadcast_parameter(scale, x.shape, axis, block)
    zero = None if zero is None else broadcast_parameter(zero, x.shape, axis, block)

    def dequantize_inputs(node_call: OperatorCall) -> list[Any]:
        x, scale, zero = node_call.inputs
        if is_sub_16_bit_float(str(x.dtype)):
            whole = BoundedTensor(np.asarray(x.value).astype(np.float64), None, dtype)
        else:
            shifted = subtract_zero_point(x, zero)
            whole = BoundedTensor(shifted.value.astype(np.float64), shifted.error, dtype)
        result = node_call.make_arithmetic(dtype).mul(whole, scale)
        return [BoundedTensor(result.value, result.error, dtype)]

    return evaluate_with_alternatives(
        dequantize_inputs, OperatorCall(call.op, [x, scale, zero], call.attributes, call.opset, call.types)
    )


@rule("DynamicQuantizeLinear")
def _evaluate_dynamic_quantize_linear(call: OperatorCall) -> list[Any]:
    x, m = call.input(0), call.make_arithmetic()
    if np.isnan(x.value).any():
        raise UnprovedError("DynamicQuantizeLinear of NaN")
    low, high = min(0.0, float(np.min(x.value, initial=0.0))), max(0.0, float(np.max(x.value, initial=0.0)))
    worst = None if x.error is None else np.asarray(np.max(x.error, initial=0.0))
    ends = [m.wrap(low, worst), m.wrap(high, worst)]
    scale = m.div(m.sub(ends[1], ends[0]), m.wrap(255.0))
    if high == low:
        scale = m.wrap(1.0)  # any scale is correct for a tensor of zeros
    storage = call.types.get_storage_type(x.dtype)
    reread = [*call.stored, None, None, None]
    # Kernels divide by the scale, and add the zero point, that they stored.
    if reread[1] is not None and high > low:
        divisor = BoundedTensor(reread[1].value.astype(np.float64), None, x.dtype)
    else:  # a kernel may use the scale before or after it is rounded to storage
        divisor = BoundedTensor(
            scale.value, scale.get_errors() + storage.unit * np.abs(scale.value) * storage.is_16_bit, x.dtype
        )
    zero = quantize(m.div(m.neg(ends[0]), divisor), 0.0, np.dtype(np.uint8), call.types)
    y = quantize(m.div(x, divisor), _get_zero_point(reread[2] or zero), np.dtype(np.uint8), call.types)
    scale_out = BoundedTensor(scale.value, scale.error if high > low else np.asarray(np.inf), x.dtype)
    return [y if reread[2] is not None else _add_zero_point_error(y, zero), scale_out, zero]


def _requantize(
    call: OperatorCall,
    total: BoundedTensor,
    scales: list[BoundedTensor],
    output_scale: BoundedTensor,
    zero: BoundedTensor | None,
) -> BoundedTensor:
    m = call.make_arithmetic(np.float32)
    factor = m.div(m.mul(scales[0], scales[1]), output_scale)
    real = m.mul(BoundedTensor(total.value.astype(np.float64), total.error, np.float32), factor)
    real = m.round(real.value, real.error)  # converts the integer sum to float
    dtype = zero.dtype if zero is not None else np.dtype(np.uint8)
    return _add_zero_point_error(quantize(real, _get_zero_point(zero), dtype, call.types), zero)


@rule("QLinearMatMul")
def _evaluate_qlinear_matmul(call: OperatorCall) -> list[Any]:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (call.input(i) for i in range(8))
    rows = a_zero.size > 1
    shifted = subtract_zero_point(
        a, a_zero.rearrange(lambda v: v.reshape(-1, 1)) if rows and a_zero.ndim == 1 else a_zero
    )
    if a_scale.size > 1 and a_scale.ndim == 1:
        a_scale = a_scale.rearrange(lambda v: v.reshape(-1, 1))
    total = evaluate_integer_bilinear(np.matmul, shifted, subtract_zero_point(b, b_zero))
    return [_requantize(call, total, [a_scale, b_scale], y_scale, y_zero)]


@rule("QLinearConv")
def _evaluate_qlinear_conv(call: OperatorCall) -> list[Any]:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (call.input(i) for i in range(8))
    bias = call.optional_input(8)
    total = convolve_integers(call, x, w, x_zero, w_zero)
    shape = (-1, *[1] * (x.ndim - 2))
    if bias is not None:
        total = BoundedTensor(total.value + bias.value.astype(np.int64).reshape(shape), total.error, np.int64)
    if w_scale.size > 1:
        w_scale = w_scale.rearrange(lambda v: v.reshape(shape))
    return [_requantize(call, total, [x_scale, w_scale], y_scale, y_zero)]
