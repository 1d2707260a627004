"""Rules of quantised tensors: a value near the midpoint of two steps may round to either (V8, V9)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.element_types import Array
from .bounded import Bounded
from .undecided_choices import followed
from .decisions import dtype_of, narrow_float, stepwise
from .elementwise import float_value
from .registry import Call, Unproved, rule
from .gemm_conv import integer_convolution, integer_product, without_zero
from .float_types import Types, is_float


def _spread(value: Bounded, shape: tuple[int, ...], axis: int, block: int) -> Bounded:
    """Broadcast scales or zero points: per tensor, per channel or per block."""
    if value.size == 1:
        return value.moved(lambda v: v.reshape(()))
    if value.ndim == 1 and not (block and len(shape) == 1):
        sizes = [1] * len(shape)
        sizes[axis] = value.size
        return value.moved(lambda v: v.reshape(sizes))
    return value.moved(lambda v: np.take(np.repeat(v, block, axis), np.arange(shape[axis]), axis))


def limits(dtype: Any) -> tuple[float, float]:
    """Return the range of an integer type, including sub-byte types."""
    name = str(dtype)
    if name in ("int4", "uint4", "int2", "uint2"):
        bits = int(name[-1])
        return (0.0, 2.0**bits - 1) if name[0] == "u" else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1)
    info = np.iinfo(dtype)
    return float(info.min), float(info.max)


def stepped(real: Bounded, zero: Any, dtype: Any, types: Types) -> Bounded:
    """Quantise: round half to even, add the zero point and saturate."""
    low, high = limits(dtype)

    def to(v: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(np.clip(np.rint(v) + zero, low, high))

    value = to(np.where(np.isnan(real.value), 0.0, real.value))
    return stepwise(to, real, Bounded(value.astype(np.int64).astype(dtype), None, dtype), types)


def _number(zero: Bounded | None) -> Any:
    return 0.0 if zero is None else zero.value.astype(np.float64)


def _with_zero(made: Bounded, zero: Bounded | None) -> Bounded:
    if zero is None or zero.error is None:
        return made
    return Bounded(made.value, made.errors() + zero.error, made.dtype)


@rule("QuantizeLinear")
@rule("QuantizeLinear", domain="com.microsoft")
def _quantize(call: Call) -> list[Any]:
    x, scale, zero = call.input(0), call.input(1), call.optional(2)
    number = call.attribute("output_dtype", 0)
    dtype = zero.dtype if zero is not None else dtype_of(number) if number else np.dtype(np.uint8)
    if narrow_float(str(dtype)):
        raise Unproved(f"QuantizeLinear to {dtype}")
    axis, block = call.attribute("axis", 1), call.attribute("block_size", 0)
    axis = axis % x.ndim if x.ndim else 0
    scale = _spread(scale, x.shape, axis, block)
    zero = None if zero is None else _spread(zero, x.shape, axis, block)

    def quantized(one: Call) -> list[Any]:
        x, scale, zero = one.given
        m = one.arithmetic(np.float32 if not is_float(x.dtype) else x.dtype)
        real = m.div(float_value(x, np.float32), scale)
        return [_with_zero(stepped(real, _number(zero), dtype, one.types), zero)]

    return followed(quantized, Call(call.op, [x, scale, zero], call.attributes, call.opset, call.types))


@rule("DequantizeLinear")
@rule("DequantizeLinear", domain="com.microsoft")
def _dequantize(call: Call) -> list[Any]:
    x, scale, zero = call.input(0), call.input(1), call.optional(2)
    number = call.attribute("output_dtype", 0)
    dtype = dtype_of(number) if number else scale.dtype
    axis, block = call.attribute("axis", 1), call.attribute("block_size", 0)
    axis = axis % x.ndim if x.ndim else 0
    scale = _spread(scale, x.shape, axis, block)
    zero = None if zero is None else _spread(zero, x.shape, axis, block)

    def real(one: Call) -> list[Any]:
        x, scale, zero = one.given
        if narrow_float(str(x.dtype)):
            whole = Bounded(np.asarray(x.value).astype(np.float64), None, dtype)
        else:
            held = without_zero(x, zero)
            whole = Bounded(held.value.astype(np.float64), held.error, dtype)
        made = one.arithmetic(dtype).mul(whole, scale)
        return [Bounded(made.value, made.error, dtype)]

    return followed(real, Call(call.op, [x, scale, zero], call.attributes, call.opset, call.types))


@rule("DynamicQuantizeLinear")
def _dynamic(call: Call) -> list[Any]:
    x, m = call.input(0), call.arithmetic()
    if np.isnan(x.value).any():
        raise Unproved("DynamicQuantizeLinear of NaN")
    low, high = min(0.0, float(np.min(x.value, initial=0.0))), max(0.0, float(np.max(x.value, initial=0.0)))
    worst = None if x.error is None else np.asarray(np.max(x.error, initial=0.0))
    ends = [m.of(low, worst), m.of(high, worst)]
    scale = m.div(m.sub(ends[1], ends[0]), m.of(255.0))
    if high == low:
        scale = m.of(1.0)  # a tensor of zeros; any scale is correct
    kept = call.types.storage(x.dtype)
    stored = [*call.stored, None, None, None]
    # Kernels divide by their stored scale and add their stored zero point.
    if stored[1] is not None and high > low:
        divisor = Bounded(stored[1].value.astype(np.float64), None, x.dtype)
    else:  # division may use the scale before or after it is stored
        divisor = Bounded(scale.value, scale.errors() + kept.unit * np.abs(scale.value) * kept.is_half, x.dtype)
    zero = stepped(m.div(m.neg(ends[0]), divisor), 0.0, np.dtype(np.uint8), call.types)
    y = stepped(m.div(x, divisor), _number(stored[2] or zero), np.dtype(np.uint8), call.types)
    scale_out = Bounded(scale.value, scale.error if high > low else np.asarray(np.inf), x.dtype)
    return [y if stored[2] is not None else _with_zero(y, zero), scale_out, zero]


def _requantized(call: Call, total: Bounded, scales: list[Bounded], to: Bounded, zero: Bounded | None) -> Bounded:
    m = call.arithmetic(np.float32)
    factor = m.div(m.mul(scales[0], scales[1]), to)
    real = m.mul(Bounded(total.value.astype(np.float64), total.error, np.float32), factor)
    real = m.rounded(real.value, real.error)  # rounds the sum to a float
    dtype = zero.dtype if zero is not None else np.dtype(np.uint8)
    return _with_zero(stepped(real, _number(zero), dtype, call.types), zero)


@rule("QLinearMatMul")
def _qlinear_matmul(call: Call) -> list[Any]:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (call.input(i) for i in range(8))
    rows = a_zero.size > 1
    left = without_zero(a, a_zero.moved(lambda v: v.reshape(-1, 1)) if rows and a_zero.ndim == 1 else a_zero)
    if a_scale.size > 1 and a_scale.ndim == 1:
        a_scale = a_scale.moved(lambda v: v.reshape(-1, 1))
    total = integer_product(np.matmul, left, without_zero(b, b_zero))
    return [_requantized(call, total, [a_scale, b_scale], y_scale, y_zero)]


@rule("QLinearConv")
def _qlinear_conv(call: Call) -> list[Any]:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (call.input(i) for i in range(8))
    bias = call.optional(8)
    total = integer_convolution(call, x, w, x_zero, w_zero)
    shape = (-1, *[1] * (x.ndim - 2))
    if bias is not None:
        total = Bounded(total.value + bias.value.astype(np.int64).reshape(shape), total.error, np.int64)
    if w_scale.size > 1:
        w_scale = w_scale.moved(lambda v: v.reshape(shape))
    return [_requantized(call, total, [x_scale, w_scale], y_scale, y_zero)]
