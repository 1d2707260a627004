"""Error-bound rules for elementwise operators: a kernel computes in the accumulation type and rounds the result once."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...base.element_types import Array
from .alternative_values import IntegerAlternatives
from .bounded_tensor import BoundedArithmetic, BoundedTensor, OperatorCall, UndecidedError, UnprovedError, rule
from .float_types import is_float
from .math_functions import apply_function
from .undecided_choices import make_value_with_two_alternatives, select_with_alternatives

_UNARY_FUNCTIONS = {
    "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Erf": "erf", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin",
    "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh",
    "Atanh": "atanh", "Sigmoid": "sigmoid", "Softplus": "softplus",
}  # fmt: skip


@rule(*_UNARY_FUNCTIONS)
def _evaluate_math_function(call: OperatorCall) -> list[Any]:
    return [apply_function(_UNARY_FUNCTIONS[call.op], call.input(0), call.make_arithmetic())]


@rule("Abs", "Neg", "Sign", "Relu", "Reciprocal", "Softsign", "Mish", "HardSwish")
def _evaluate_unary(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    if not x.is_float:
        table: dict[str, Any] = {"Abs": np.abs, "Neg": np.negative, "Sign": np.sign, "Relu": lambda v: np.maximum(v, 0)}
        result = table[call.op](x.value).astype(x.value.dtype)
        error = _compute_sign_error(x) if call.op == "Sign" else x.error
        return [BoundedTensor(result, wrap_integer_error(result, error), x.dtype)]
    return [_SIMPLE_FUNCTIONS[call.op](x, call.make_arithmetic())]


def _compute_sign_error(x: BoundedTensor) -> Array | None:
    if x.error is None:
        return None
    value = x.value.astype(np.float64)
    up, down = np.sign(value + x.error) - np.sign(value), np.sign(value) - np.sign(value - x.error)
    return np.asarray(np.maximum(up, down))


def _apply_sign(x: BoundedTensor, a: BoundedArithmetic) -> BoundedTensor:
    value = np.sign(x.value)
    if x.error is None:
        return a.wrap(value)
    reach = a.types.to_max_deviation(x.error)
    with np.errstate(all="ignore"):
        low, high = np.sign(x.value - reach), np.sign(x.value + reach)
    undecided = ~(low == high) & ~np.isnan(value)
    low, high = np.where(np.isnan(low), -1.0, low), np.where(np.isnan(high), 1.0, high)
    alternatives = IntegerAlternatives(undecided, np.where(undecided, low, value), np.where(undecided, high, value))
    return a.wrap(value, np.where(undecided, 2.0, 0.0)).set_alternatives(alternatives if undecided.any() else None)


def _copy_stored_flag(result: BoundedTensor, x: BoundedTensor) -> BoundedTensor:
    """Return the result of an exact operation, marked as stored if its input was stored."""
    result.stored = x.stored
    return result


def _apply_hard_swish(x: BoundedTensor, a: BoundedArithmetic) -> BoundedTensor:
    gate = a.add(a.div(x, a.wrap(6.0)), a.wrap(0.5))
    return a.mul(x, a.maximum(a.wrap(0.0), a.minimum(a.wrap(1.0), gate)))


_SIMPLE_FUNCTIONS: dict[str, Any] = {
    "Abs": lambda x, a: _copy_stored_flag(a.abs(x), x),
    "Neg": lambda x, a: _copy_stored_flag(a.neg(x), x),
    "Sign": _apply_sign,
    "Relu": lambda x, a: _copy_stored_flag(a.maximum(x, a.wrap(0.0)), x),
    "Reciprocal": lambda x, a: a.div(a.wrap(1.0), x),
    "Softsign": lambda x, a: a.div(x, a.add(a.wrap(1.0), a.abs(x))),
    "Mish": lambda x, a: a.mul(x, apply_function("tanh", apply_function("softplus", x, a), a)),
    "HardSwish": _apply_hard_swish,
}


def wrap_integer(value: Any, dtype: np.dtype[Any]) -> Any:
    """Wrap integers around modulo 2^bits, as the engine does."""
    return np.asarray(value).astype(dtype)


def wrap_integer_error(value: Array, error: Array | None) -> Array | None:
    """Return the error of integers that may wrap around: infinite if the interval exceeds the type's range."""
    if error is None or value.dtype == bool:
        return error
    limits, exact = np.iinfo(value.dtype), value.astype(np.float64)
    margin = 0.0 if value.dtype.itemsize < 8 else 2048.0  # float64 cannot represent all 64-bit integers
    beyond = (exact + error > limits.max - margin) | (exact - error < limits.min + (margin if limits.min else 0))
    return np.where((error > 0) & beyond, np.inf, error)


def _compute_integer_arithmetic(op: str, a: BoundedTensor, b: BoundedTensor) -> BoundedTensor:
    """Compute an integer operation; the errors come from undecided operands."""
    dtype = a.value.dtype
    x, y = a.value, b.value.astype(dtype, copy=False)
    with np.errstate(all="ignore"):
        if op == "Div":
            safe = np.where(y == 0, np.ones_like(y), y)
            whole = x // safe  # floor division, corrected below; np.abs of the smallest integer would overflow
            if dtype.kind == "i":
                whole = whole + ((x % safe != 0) & ((x < 0) != (safe < 0))).astype(dtype)
            value = np.where(y == 0, np.zeros_like(whole), whole)
        else:
            value = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[op](x, y)
    error = None
    if a.error is not None or b.error is not None:
        error = a.get_errors() + b.get_errors()
        if op == "Mul":
            sizes = np.abs(x.astype(np.float64)), np.abs(y.astype(np.float64))
            error = a.get_errors() * (sizes[1] + b.get_errors()) + sizes[0] * b.get_errors()
        if op == "Div":
            error = np.where(error > 0, np.inf, 0.0)
    result = wrap_integer(value, dtype)
    return BoundedTensor(result, wrap_integer_error(result, error), a.dtype)


@rule("Add", "Sub", "Mul", "Div")
def _evaluate_arithmetic(call: OperatorCall) -> list[Any]:
    call = align_legacy_broadcast(call)
    a, b = call.input(0), call.input(1)
    if not a.is_float:
        return [_compute_integer_arithmetic(call.op, a, b)]
    m = call.make_arithmetic()
    return [{"Add": m.add, "Sub": m.sub, "Mul": m.mul, "Div": m.div}[call.op](a, b)]


def align_legacy_broadcast(call: OperatorCall) -> OperatorCall:
    """Align the second operand at the `axis` attribute, as broadcasting worked before opset 7."""
    if call.opset >= 7 or not call.attribute("broadcast", 0) or call.attribute("axis") is None:
        return call
    a, b, axis = call.input(0), call.input(1), int(call.attribute("axis"))
    axis += a.ndim if axis < 0 else 0
    shape = (*b.shape, *[1] * (a.ndim - axis - b.ndim))
    call.inputs = [a, b.rearrange(lambda v: v.reshape(shape))]
    return call


@rule("Sum", "Mean", "Max", "Min")
def _evaluate_variadic(call: OperatorCall) -> list[Any]:
    values = [call.input(i) for i in range(len(call))]
    if not values[0].is_float:
        if any(not value.is_exact for value in values):
            raise UndecidedError(f"{call.op} of integers that rounding may change")
        fold = {"Max": np.maximum, "Min": np.minimum}[call.op]
        return [BoundedTensor(functools.reduce(fold, [value.value for value in values]), None, values[0].dtype)]
    m = call.make_arithmetic()
    step = {"Max": m.maximum, "Min": m.minimum}.get(call.op, m.add)
    result = functools.reduce(step, values)
    if call.op in ("Max", "Min"):
        result = BoundedTensor(result.value, result.error, result.dtype, all(value.stored for value in values))
    return [m.div(result, m.wrap(float(len(values)))) if call.op == "Mean" else result]


@rule("Pow")
def _evaluate_pow(call: OperatorCall) -> list[Any]:
    call = align_legacy_broadcast(call)
    a, b = call.input(0), call.input(1)
    m = call.make_arithmetic()
    with np.errstate(all="ignore"):
        if not a.is_float:
            if not a.is_exact or not b.is_exact:
                raise UndecidedError("Pow of integers that rounding may change")
            return [_evaluate_integer_pow(a, b)]
        powers = b.value.astype(np.float64)
        value = np.power(a.value, powers)
        error = None
        if a.error is not None or b.error is not None:
            error = _compute_power_error(a, BoundedTensor(powers, b.error), value)
        half_ulps: Any = 0.0 if np.all(powers == 1) else 1.0 if np.all(powers == 2) else 6.0
        if m.type.name == "float64":
            half_ulps = 64.0 + 4 * np.abs(np.where(np.isfinite(powers * np.log(np.abs(a.value))), powers, 0.0))
        result = m.round(value, error, half_ulps) if np.any(half_ulps) else m.wrap(value, error)
    return [result]


def _evaluate_integer_pow(a: BoundedTensor, b: BoundedTensor) -> BoundedTensor:
    """Evaluate Pow for exact integer bases. Integer exponents are exact; for others the float power is truncated."""
    whole = np.ones(b.value.shape, bool)
    if b.is_float:
        whole = (np.trunc(b.value) == b.value) & (np.abs(b.value) < 1 << 24)
    exact = _compute_integer_power(a.value, np.where(whole, b.value, 0).astype(np.int64))
    if whole.all():
        return BoundedTensor(exact, None, a.dtype)
    # For other exponents, pm_pow() computes in floats; its result is truncated and saturates.
    real = np.power(a.value.astype(np.float64), b.value)
    limits = np.iinfo(a.value.dtype)
    saturated = np.clip(np.trunc(np.nan_to_num(real)), float(limits.min), float(limits.max))
    slack = np.abs(np.nan_to_num(real)) * (2.0**-20 + np.abs(b.value) * 2.0**-24)
    is_near = ~(np.abs(real - np.rint(real)) > slack)
    error = np.where(~whole & is_near, 1.0 + slack, 0.0)
    value = np.where(whole, exact, wrap_integer(saturated, a.value.dtype))
    return BoundedTensor(value, error if error.any() else None, a.dtype)


def _compute_integer_power(x: Any, exponents: Any) -> Any:
    """Return x to integer powers, modulo 2^bits; 0 for a negative exponent unless x is 1 or -1."""
    value = np.power(x, np.maximum(exponents, 0).astype(x.dtype))
    negative_power = np.where(x == 1, 1, np.where(x == -1, np.where(exponents % 2 == 0, 1, -1), 0))
    return wrap_integer(np.where(exponents >= 0, value, negative_power), x.dtype)


def _compute_power_error(a: BoundedTensor, b: BoundedTensor, value: Any) -> Any:
    """Return the largest error at the corners of the two intervals: powers are monotonic for positive bases."""
    ea, eb = a.get_errors(), b.get_errors()
    crosses = (np.abs(a.value) <= ea) & (ea > 0)
    corners = [
        np.power(np.where(eb > 0, np.maximum(a.value + s * ea, 0), a.value + s * ea), b.value + t * eb)
        for s in (-1, 1)
        for t in (-1, 1)
    ]
    # The difference of two equal infinities is zero.
    differences = [np.where(corner == value, 0.0, np.abs(corner - value)) for corner in corners]
    worst = functools.reduce(np.maximum, differences)
    # If the base may be zero, its integer power may be zero too: the error is at least the value.
    whole = (np.floor(b.value) == b.value) & (b.value >= 0) & (eb == 0)
    worst = np.where(crosses, np.where(whole, np.maximum(worst, np.abs(value)), np.inf), worst)
    return np.where(np.isnan(worst), np.inf, worst)


@rule("LeakyRelu", "PRelu")
def _evaluate_leaky_relu_or_prelu(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    if not x.is_float:
        raise UnprovedError(f"{call.op} of integers")
    m = call.make_arithmetic()
    slope = m.make_constant(call.attribute("alpha", 0.01)) if call.op == "LeakyRelu" else call.input(1)
    if call.op == "PRelu" and slope.ndim == 1 and slope.size > 1 and call.opset < 7:
        slope = slope.rearrange(lambda v: v.reshape(-1, *[1] * (x.ndim - 2)))
    low = m.mul(x, slope)
    negative = BoundedTensor(
        x.value < 0, None if x.error is None else ((np.abs(x.value) <= x.error) & (x.error > 0)) * 1.0
    )
    return [m.select(negative, low, x)]


@rule("ThresholdedRelu", "Shrink")
def _evaluate_thresholded_relu_or_shrink(call: OperatorCall) -> list[Any]:
    x, m = call.input(0), call.make_arithmetic()
    zero = m.wrap(0.0)
    if call.op == "ThresholdedRelu":
        return [_select_elements(m, _compare_greater(x, m.make_constant(call.attribute("alpha", 1.0)), m), x, zero)]
    edge, bias = (m.make_constant(call.attribute(name, default)) for name, default in (("lambd", 0.5), ("bias", 0.0)))
    number = BoundedTensor(np.where(np.isnan(x.value), 0.0, x.value), x.error, x.dtype)  # Shrink converts NaN to 0
    inner = _select_elements(m, _compare_greater(number, edge, m), m.sub(number, bias), zero)
    return [_select_elements(m, _compare_greater(m.neg(number), edge, m), m.add(number, bias), inner)]


def _select_elements(m: BoundedArithmetic, mask: BoundedTensor, a: BoundedTensor, b: BoundedTensor) -> BoundedTensor:
    return select_with_alternatives(mask, a, b, m.select(mask, a, b))


def _compare_greater(x: BoundedTensor, edge: BoundedTensor, m: BoundedArithmetic) -> BoundedTensor:
    near = np.abs(x.value - edge.value) <= m.types.to_max_deviation(x.get_errors() + edge.get_errors())
    undecided = near & ((x.get_errors() + edge.get_errors()) > 0)
    return BoundedTensor((x.value > edge.value) | np.isnan(x.value), undecided * 1.0 if undecided.any() else None)


@rule("Elu", "Celu", "Selu")
def _evaluate_elu_variant(call: OperatorCall) -> list[Any]:
    x, m = call.input(0), call.make_arithmetic()
    is_selu = call.op == "Selu"
    defaults = (1.6732, 1.0507) if call.opset < 6 else (1.67326319217681884765625, 1.05070102214813232421875)
    alpha = m.make_constant(call.attribute("alpha", defaults[0] if is_selu else 1.0))
    inner = m.div(x, alpha) if call.op == "Celu" else x
    low = m.mul(alpha, apply_function("expm1", m.minimum(inner, m.wrap(0.0)), m))
    result = m.add(m.maximum(x, m.wrap(0.0)), low)  # one of the operands is always exactly zero
    result = BoundedTensor(result.value, result.error, x.dtype)
    return [m.mul(result, m.make_constant(call.attribute("gamma", defaults[1])))] if is_selu else [result]


@rule("HardSigmoid")
def _evaluate_hard_sigmoid(call: OperatorCall) -> list[Any]:
    x, m = call.input(0), call.make_arithmetic()
    line = m.add(m.mul(m.make_constant(call.attribute("alpha", 0.2)), x), m.make_constant(call.attribute("beta", 0.5)))
    return [m.maximum(m.wrap(0.0), m.minimum(m.wrap(1.0), line))]


def gelu(x: BoundedTensor, m: BoundedArithmetic, approximate: str = "none") -> BoundedTensor:
    """Return x * normal_cdf(x), or its tanh approximation."""
    if approximate != "tanh":
        return m.mul(x, apply_function("normal_cdf", x, m))
    cube = m.mul(m.mul(m.mul(m.make_constant(0.044715), x), x), x)
    inner = m.mul(m.make_constant(0.79788456080286536), m.add(x, cube))
    return m.mul(m.scale(x, 0.5), m.add(m.wrap(1.0), apply_function("tanh", inner, m)))


@rule("Gelu")
def _evaluate_gelu(call: OperatorCall) -> list[Any]:
    return [gelu(call.input(0), call.make_arithmetic(), call.attribute("approximate", "none"))]


@rule("Swish")
def _evaluate_swish(call: OperatorCall) -> list[Any]:
    x, m = call.input(0), call.make_arithmetic()
    return [m.mul(x, apply_function("sigmoid", m.mul(m.make_constant(call.attribute("alpha", 1.0)), x), m))]


@rule("Clip")
def _evaluate_clip(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    low, high = call.optional_input(1), call.optional_input(2)
    if not x.is_float:
        value = x.value if low is None else np.maximum(x.value, low.value)
        return [BoundedTensor(value if high is None else np.minimum(value, high.value), x.error, x.dtype)]
    m = call.make_arithmetic()
    ends = [low, high]
    for i, name in enumerate(("min", "max")):
        if call.opset < 11 and call.attribute(name) is not None:
            end = m.make_constant(call.attribute(name))
            ends[i] = BoundedTensor(
                end.value, call.types.get_storage_type(x.dtype).compute_storage_error(end.value) + end.get_errors()
            )
    result = x
    for end, choose in zip(ends, (m.maximum, m.minimum), strict=True):
        result = result if end is None else choose(result, end)
    return [BoundedTensor(result.value, result.error, x.dtype, x.stored and all(value is None for value in ends))]


@rule("Mod")
def _evaluate_mod(call: OperatorCall) -> list[Any]:
    a, b = call.input(0), call.input(1)
    fmod = call.attribute("fmod", 0)
    with np.errstate(all="ignore"):
        value = np.fmod(a.value, b.value) if fmod else np.mod(a.value, b.value)
        if not a.is_float:
            if not (a.is_exact and b.is_exact):
                raise UndecidedError("Mod of integers that rounding may change")
            return [BoundedTensor(wrap_integer(value, a.value.dtype), None, a.dtype)]
        m = call.make_arithmetic()
        error = None
        if not (a.is_exact and b.is_exact):
            quotient = np.trunc(np.abs(a.value / b.value)) + 1
            error = a.get_errors() + quotient * b.get_errors()
            size = np.abs(b.value)
            reach = call.types.to_max_deviation(error)
            near = (np.minimum(np.abs(value), size - np.abs(value)) <= reach) & (error > 0)
            result = m.round(value, error)
            for away in (size, -size):  # the rounded quotient may differ by one
                result = make_value_with_two_alternatives(
                    near, result, m.round(np.where(near, value + away, value), error)
                )
            return [BoundedTensor(result.value, result.error, m.dtype).set_alternatives(result.alternatives)]
    return [m.round(value, error)]


@rule("Not", "And", "Or", "Xor", "BitwiseNot", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift")
def _evaluate_logical(call: OperatorCall) -> list[Any]:
    call = align_legacy_broadcast(call) if len(call) == 2 else call
    values: list[Any] = [call.input(i).value for i in range(len(call))]
    errors = [call.input(i).get_errors() for i in range(len(call))]
    if call.op == "BitShift":
        result = (np.left_shift if call.attribute("direction") == "LEFT" else np.right_shift)(*values)
        bits = values[0].dtype.itemsize * 8
        filled = (
            0
            if call.attribute("direction") == "LEFT" or values[0].dtype.kind == "u"
            else np.where(values[0] < 0, -1, 0)
        )
        result = np.where(values[1] < bits, result, filled).astype(values[0].dtype)
    else:
        name = call.op.removeprefix("Bitwise")
        is_bool = values[0].dtype == bool
        table: dict[str, Any] = {"Not": np.invert, "And": np.bitwise_and, "Or": np.bitwise_or, "Xor": np.bitwise_xor}
        result = (np.logical_not if name == "Not" and is_bool else table[name])(*values)
    undecided = functools.reduce(np.logical_or, [np.broadcast_to(value, result.shape) > 0 for value in errors])
    if undecided.any() and call.op == "And":  # a certainly false operand decides And
        for value, error in zip(values, errors, strict=True):
            undecided = undecided & ~(~value & (error == 0))
    if undecided.any() and call.op == "Or":
        for value, error in zip(values, errors, strict=True):
            undecided = undecided & ~(value & (error == 0))
    if call.op == "BitwiseNot":
        return [BoundedTensor(result, errors[0] if undecided.any() else None, result.dtype)]
    reach = 1.0 if result.dtype == bool else np.inf  # an error in an integer may change any bit
    return [BoundedTensor(result, np.where(undecided, reach, 0.0) if undecided.any() else None, result.dtype)]


@rule("Where")
def _evaluate_where(call: OperatorCall) -> list[Any]:
    mask, a, b = call.input(0), call.input(1), call.input(2)
    if a.is_float:
        result = call.make_arithmetic(a.dtype).select(mask, a, b)
        return [BoundedTensor(result.value, result.error, a.dtype, a.stored and b.stored)]
    value = np.where(mask.value, a.value, b.value)
    error = None
    if not (mask.is_exact and a.is_exact and b.is_exact):
        error = np.where(mask.value, a.get_errors(), b.get_errors())
        differ = mask.get_errors() > 0
        error = np.where(differ, np.where(a.value == b.value, error, np.inf), error)
    return [BoundedTensor(value, error, a.dtype)]


@rule("IsNaN", "IsInf")
def _evaluate_is_nan_or_inf(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    if call.op == "IsNaN":
        return [BoundedTensor(np.isnan(x.value), None, bool)]
    value = np.isinf(x.value)
    if not call.attribute("detect_positive", 1):
        value &= x.value < 0
    if not call.attribute("detect_negative", 1):
        value &= x.value > 0
    return [BoundedTensor(value, None, bool)]


@rule("Identity")
def _evaluate_identity(call: OperatorCall) -> list[Any]:
    return [call.inputs[0]]


def to_float_value(x: BoundedTensor, dtype: Any) -> BoundedTensor:
    """Convert integers to floats."""
    return x if is_float(x.dtype) else BoundedTensor(x.value.astype(np.float64), x.error, dtype)
