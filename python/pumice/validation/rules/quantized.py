"""Error-bound rules for quantised tensors: a value near the midpoint of two steps may round to either (V8, V9)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.element_types import Array
from .bounded_tensor import BoundedTensor, OperatorCall, UnprovedError, rule
from .comparisons_and_casts import apply_step_function, is_sub_16_bit_float
from .data_movement import normalize_indices
from .elementwise import to_float_value
from .float_types import ProgramTypes, dtype_from_onnx, is_float
from .gemm_conv import (
    broadcast_parameter,
    convolve_integers,
    evaluate_integer_bilinear,
    get_integer_limits,
    subtract_zero_point,
)
from .undecided_choices import evaluate_with_alternatives


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


def _broadcast_parameter(call: OperatorCall, value: Any) -> Any:
    x, axis, block = call.input(0), call.attribute("axis", 1), call.attribute("block_size", 0)
    return None if value is None else broadcast_parameter(value, x.shape, axis % x.ndim if x.ndim else 0, block)


@rule("QuantizeLinear")
@rule("QuantizeLinear", domain="com.microsoft")
def _evaluate_quantize_linear(call: OperatorCall) -> list[Any]:
    x, scale, zero = call.input(0), call.input(1), call.optional_input(2)
    number = call.attribute("output_dtype", 0)
    dtype = zero.dtype if zero is not None else dtype_from_onnx(number) if number else np.dtype(np.uint8)
    if is_sub_16_bit_float(str(dtype)):
        raise UnprovedError(f"QuantizeLinear to {dtype}")
    scale, zero = _broadcast_parameter(call, scale), _broadcast_parameter(call, zero)

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
    scale, zero = _broadcast_parameter(call, scale), _broadcast_parameter(call, zero)

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


def _unpack_codes(codes: BoundedTensor, bits: int, last: int | None = None) -> Array:
    """Unpack quantised elements. A uint8 contains several, with the first in the low bits. last: size of the last axis."""
    if codes.dtype != np.uint8:
        return np.asarray(codes.value).astype(np.float64)
    unpacked = codes.value[..., None] >> np.arange(0, 8, bits, dtype=np.uint8) & np.uint8((1 << bits) - 1)
    return unpacked.reshape(*codes.shape[:-1], -1)[..., :last].astype(np.float64)


def _read_zero_points(call: OperatorCall, bits: int, shape: tuple[int, ...]) -> Array:
    """Return the zero points; they default to half the range for uint8 and to 0 for other types."""
    zeros = call.optional_input(3)
    if zeros is not None:
        return _unpack_codes(zeros, bits, shape[-1])
    return np.full(shape, float(1 << (bits - 1)) if call.input(0).dtype == np.uint8 else 0.0)


# ---- GatherBlockQuantized: (code - zero_point) * scale, both per block


@rule("GatherBlockQuantized", domain="com.microsoft")
def _evaluate_gather_block_quantized(call: OperatorCall) -> list[Any]:
    table, scales, bits = call.input(0), call.input(2), int(call.attribute("bits", 4))
    rank, codes_per_byte = table.ndim, 8 // bits if table.dtype == np.uint8 else 1
    gather_axis, quantize_axis = (
        int(call.attribute(name, i)) % rank for i, name in enumerate(("gather_axis", "quantize_axis"))
    )
    sizes = [*table.shape[:-1], table.shape[-1] * codes_per_byte]
    block = int(call.attribute("block_size", 128)) or sizes[quantize_axis]
    blocks = [-(-size // block) if axis == quantize_axis else size for axis, size in enumerate(sizes)]
    points = _read_zero_points(call, bits, tuple(blocks))
    scales = scales.rearrange(lambda v: np.broadcast_to(v, blocks))
    indices = normalize_indices(BoundedTensor(call.get_decided_input(1)), sizes[gather_axis])[0]

    def expand_blocks(v: Array) -> Array:
        """Gather an array with one value per block, and repeat each value for the elements of its block."""
        if quantize_axis == gather_axis:
            return np.take(v, indices // block, gather_axis)
        axis = quantize_axis if quantize_axis < gather_axis else quantize_axis + indices.ndim - 1
        return np.take(np.repeat(np.take(v, indices, gather_axis), block, axis), np.arange(sizes[quantize_axis]), axis)

    if gather_axis == rank - 1:
        codes = np.take(_unpack_codes(table, bits), indices, gather_axis)
    else:
        codes = _unpack_codes(table.rearrange(lambda v: np.take(v, indices, gather_axis)), bits)
    m = call.make_arithmetic(scales.dtype)
    result = m.mul(m.wrap(codes - expand_blocks(points)), scales.rearrange(expand_blocks))
    return [BoundedTensor(result.value, result.error, scales.dtype)]
