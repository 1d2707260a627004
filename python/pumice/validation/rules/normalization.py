"""Error-bound rules for normalisation operators (V7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...base.element_types import Array
from .bounded_tensor import BoundedTensor, OperatorCall, UnprovedError, evaluate_operator, round_to_storage, rule
from .gemm_conv import compute_sum_error, replace_nan_with_infinity, sum_axes
from .math_functions import apply_function


def _keep_unrounded(call: OperatorCall, x: BoundedTensor) -> BoundedTensor:
    """Return x unchanged: the intermediate stays inside a kernel and is not rounded to storage."""
    return x


def compute_mean_and_variance(
    call: OperatorCall,
    x: BoundedTensor,
    axes: tuple[int, ...],
    round_intermediate: Callable[[OperatorCall, BoundedTensor], BoundedTensor] = _keep_unrounded,
) -> tuple[BoundedTensor, BoundedTensor, BoundedTensor]:
    """Return the mean, the deviations from it, and the variance. round_intermediate: applied to each intermediate.

    A kernel that reports its additions makes two passes, one for the mean and one for the deviations c (see
    `_compute_two_pass_variance`). Other kernels may compute the variance in any way, so the mean's error adds
    2 mean(|c| e(c)).
    """
    m = call.make_arithmetic(x.dtype)
    count = int(np.prod([x.shape[i] for i in axes], dtype=int))
    mean = round_intermediate(call, m.div(sum_axes(x, axes, call.types), m.wrap(float(count))))
    distance = round_intermediate(call, m.sub(x, mean))
    if call.types.additions and not call.types.independent_errors:
        return _compute_two_pass_variance(call, x, mean, axes)
    with np.errstate(all="ignore"):
        squares = np.mean(np.square(distance.value), axis=axes, keepdims=True)
        squared_error = 2 * np.abs(distance.value) * distance.get_errors() + np.square(distance.get_errors())
        propagated = compute_sum_error(squared_error, axes, call.types) / count
        own_error = call.types.compute_sum_error_factor(count + 2, x.dtype) * (squares + propagated)
    return (
        mean,
        distance,
        round_intermediate(call, BoundedTensor(squares, replace_nan_with_infinity(propagated + own_error), x.dtype)),
    )


def _compute_two_pass_variance(
    call: OperatorCall, x: BoundedTensor, mean: BoundedTensor, axes: tuple[int, ...]
) -> tuple[BoundedTensor, BoundedTensor, BoundedTensor]:
    """Return the mean and variance as layer_norm.comp and layer_norm_registers.comp compute them.

    Let c be the exact deviations, g the input errors, and d the error of the computed mean m'. The kernels compute v =
    c + g - d + r, where r is the rounding of that difference, and mean(v) = mean(g + r) - d. They subtract mean(v) from
    each v, and its square from mean(v^2). Because the c sum to 0, mean(v^2) = mean(c^2) + 2 mean(c (g + r)) + mean((g +
    r)^2) + d^2 - 2 d mean(g + r). So d affects the variance only together with the other errors.
    """
    types, count = call.types, int(np.prod([x.shape[i] for i in axes], dtype=int))
    unit = call.make_arithmetic(x.dtype).unit

    def compute_mean(values: Array) -> Array:
        return np.asarray(np.mean(values, axis=axes, keepdims=True))

    with np.errstate(all="ignore"):
        c, d = x.value - mean.value, mean.get_errors()
        g = np.broadcast_to(x.get_errors(), c.shape)
        size = np.abs(c) + g + d
        r = unit * size
        error, terms = g + r, types.count_max_roundings(count)
        # Rounding error of the mean of the deviations: from its sum and from its division.
        second_pass = (types.compute_sum_error_factor(terms, x.dtype) + 2 * unit) * compute_mean(size + r)
        rest = compute_mean(error) + second_pass  # the part of d that remains after that mean is subtracted
        distance = error + rest + unit * (np.abs(c) + error + rest)
        squares = compute_mean(np.square(c))
        moved = (
            compute_mean(2 * np.abs(c) * error + np.square(error))
            + 2 * d * (compute_mean(error) + rest)
            + np.square(rest)
        )
        variance_error = moved + types.compute_sum_error_factor(terms + 4, x.dtype) * (squares + moved + np.square(d))
    return (
        BoundedTensor(mean.value, replace_nan_with_infinity(rest + unit * (np.abs(mean.value) + rest)), x.dtype),
        BoundedTensor(c, replace_nan_with_infinity(distance), x.dtype),
        BoundedTensor(squares, replace_nan_with_infinity(variance_error), x.dtype),
    )


def compute_inverse_std(call: OperatorCall, variance: BoundedTensor, epsilon: float) -> BoundedTensor:
    """Return 1 / sqrt(variance + epsilon)."""
    m = call.make_arithmetic(variance.dtype)
    epsilon_constant = m.make_constant(epsilon)
    return m.div(m.wrap(1.0), apply_function("sqrt", m.add(variance, epsilon_constant), m))


def normalize(
    call: OperatorCall, x: BoundedTensor, axes: tuple[int, ...], epsilon: float
) -> tuple[BoundedTensor, BoundedTensor, BoundedTensor]:
    """Return (x - mean) / sqrt(variance + epsilon), the mean, and 1 / sqrt(variance + epsilon)."""
    mean, distance, variance = compute_mean_and_variance(call, x, axes)
    inverse = compute_inverse_std(call, variance, epsilon)
    return call.make_arithmetic(x.dtype).mul(distance, inverse), mean, inverse


def _scale_and_shift(
    call: OperatorCall, y: BoundedTensor, scale: BoundedTensor | None, bias: BoundedTensor | None
) -> BoundedTensor:
    m = call.make_arithmetic(y.dtype)
    if scale is not None:
        y = m.mul(y, scale)
    return y if bias is None else m.add(y, bias)


def broadcast_channels(value: BoundedTensor | None, rank: int) -> BoundedTensor | None:
    """Reshape per-channel values to broadcast over [N, C, ...] tensors of this rank."""
    return value if value is None else value.rearrange(lambda v: v.reshape(-1, *[1] * (rank - 2)))


@rule("LayerNormalization")
def _evaluate_layer_norm(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    axis = call.attribute("axis", -1) % x.ndim
    axes = tuple(range(axis, x.ndim))
    y, mean, inverse = normalize(call, x, axes, call.attribute("epsilon", 1e-5))
    y = _scale_and_shift(call, y, call.optional_input(1), call.optional_input(2))
    statistic = np.float32
    result = [BoundedTensor(y.value, y.error, x.dtype)]
    for value in (mean, inverse):
        dtype = x.dtype if str(x.dtype) == "float64" else statistic
        result.append(BoundedTensor(value.value, value.error, dtype))
    return result[: call.outputs]


@rule("RMSNormalization", "SimplifiedLayerNormalization")
def _evaluate_rms_norm(call: OperatorCall) -> list[Any]:
    x, m = call.input(0), call.make_arithmetic()
    axes = tuple(range(call.attribute("axis", -1) % x.ndim, x.ndim))
    count = int(np.prod([x.shape[i] for i in axes], dtype=int))
    squares = m.div(sum_axes(m.mul(x, x), axes, call.types), m.wrap(float(count)))
    y = m.mul(x, compute_inverse_std(call, squares, call.attribute("epsilon", 1e-5)))
    y = _scale_and_shift(call, y, call.optional_input(1), None)
    return [BoundedTensor(y.value, y.error, x.dtype)]


@rule("InstanceNormalization")
def _evaluate_instance_norm(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    y, _, _ = normalize(call, x, tuple(range(2, x.ndim)), call.attribute("epsilon", 1e-5))
    return [
        _scale_and_shift(call, y, broadcast_channels(call.input(1), x.ndim), broadcast_channels(call.input(2), x.ndim))
    ]


@rule("GroupNormalization")
def _evaluate_group_norm(call: OperatorCall) -> list[Any]:
    x, groups = call.input(0), call.attribute("num_groups")
    n, c = x.shape[:2]
    rows = x.rearrange(lambda v: v.reshape(n, groups, -1))
    y, _, _ = normalize(call, rows, (2,), call.attribute("epsilon", 1e-5))
    y = y.rearrange(lambda v: v.reshape(x.shape))
    scale, bias = call.input(1), call.input(2)
    if call.opset < 21:  # scale and bias per group, not per channel
        scale, bias = (p.rearrange(lambda v: np.repeat(v, c // groups)) for p in (scale, bias))
    return [_scale_and_shift(call, y, broadcast_channels(scale, x.ndim), broadcast_channels(bias, x.ndim))]


@rule("BatchNormalization")
def _evaluate_batch_norm(call: OperatorCall) -> list[Any]:
    """Evaluate BatchNormalization. Opsets 7 to 13 indicate training by the number of outputs, earlier opsets by is_test."""
    x, m = call.input(0), call.make_arithmetic()
    training = call.attribute("training_mode", 0) or (call.opset < 7 and not call.attribute("is_test", 0))
    training = training or (7 <= call.opset < 14 and call.outputs > 1)
    scale, bias, mean, variance = (call.input(i) for i in range(1, 5))
    if training and call.opset >= 14:
        return _evaluate_batch_norm_training(call, x, scale, bias, [mean, variance])
    if training:
        raise UnprovedError(f"BatchNormalization in training of operator set {call.opset}")
    if call.opset < 9 and not call.attribute("spatial", 1):
        shaped = [p.rearrange(lambda v: v.reshape(x.shape[1:])) for p in (scale, bias, mean, variance)]
    else:
        shaped = [p for v in (scale, bias, mean, variance) if (p := broadcast_channels(v, x.ndim)) is not None]
    scale, bias, mean, variance = (BoundedTensor(p.value, p.error, x.dtype) for p in shaped)
    factor = m.mul(scale, compute_inverse_std(call, variance, call.attribute("epsilon", 1e-5)))
    result = m.add(m.mul(m.sub(x, mean), factor), bias)
    if call.types.other_runtime:  # another runtime may fold all parameters into a single multiply-add
        folded_form = m.add(m.mul(x, factor), m.sub(bias, m.mul(mean, factor)))
        result = result.with_error(np.maximum(result.get_errors(), folded_form.get_errors()))
    return [result]


def _evaluate_batch_norm_training(
    call: OperatorCall, x: BoundedTensor, scale: BoundedTensor, bias: BoundedTensor, before: list[BoundedTensor]
) -> list[Any]:
    """Normalise by batch statistics and update the running statistics; several kernels store the intermediates."""
    m = call.make_arithmetic()
    mean, distance, variance = compute_mean_and_variance(call, x, (0, *range(2, x.ndim)), round_between_kernels)
    deviation = round_between_kernels(
        call,
        apply_function(
            "sqrt", round_between_kernels(call, m.add(variance, m.make_constant(call.attribute("epsilon", 1e-5)))), m
        ),
    )
    y = round_between_kernels(call, m.div(distance, deviation))
    params = [p for v in (scale, bias) if (p := broadcast_channels(v, x.ndim)) is not None]
    result = [m.add(round_between_kernels(call, m.mul(y, params[0])), params[1])]
    momentum = m.make_constant(call.attribute("momentum", 0.9))
    rest = m.make_constant(1 - call.attribute("momentum", 0.9))
    for old, now in zip(before, (mean, variance), strict=True):
        flat = now.rearrange(lambda v: v.reshape(-1))
        total = m.add(round_between_kernels(call, m.mul(old, momentum)), round_between_kernels(call, m.mul(flat, rest)))
        result.append(BoundedTensor(total.value, total.error, old.dtype))
    return [BoundedTensor(result[0].value, result[0].error, x.dtype), *result[1:]][: call.outputs]


def round_between_kernels(call: OperatorCall, x: BoundedTensor) -> BoundedTensor:
    """Round an intermediate to storage, as it is stored between two kernels."""
    return round_to_storage(BoundedTensor(x.value, x.error, x.dtype), call.types)


@rule("MeanVarianceNormalization")
def _evaluate_mean_variance_norm(call: OperatorCall) -> list[Any]:
    """Divide the centred values by (standard deviation + 1e-9), as ONNX's function body does."""
    x, m = call.input(0), call.make_arithmetic()
    axes = tuple(axis % x.ndim for axis in call.attribute("axes", [0, 2, 3]))
    _, distance, variance = compute_mean_and_variance(call, x, axes)
    deviation = m.add(apply_function("sqrt", variance, m), m.make_constant(1e-9))
    return [m.div(distance, deviation)]


@rule("LpNormalization")
def _evaluate_lp_norm(call: OperatorCall) -> list[Any]:
    """Divide each row by its norm; a row of zeros stays zero."""
    x, m = call.input(0), call.make_arithmetic()
    axis, p = call.attribute("axis", -1) % x.ndim, call.attribute("p", 2)
    size = m.abs(x) if p == 1 else m.mul(x, x)
    norm = sum_axes(size, (axis,), call.types)
    norm = norm if p == 1 else apply_function("sqrt", norm, m)
    y = m.div(x, norm)
    zero = np.broadcast_to((norm.value == 0) & (norm.get_errors() == 0), x.shape)
    return [BoundedTensor(np.where(zero, 0.0, y.value), np.where(zero, 0.0, y.get_errors()), x.dtype)]


@rule("LRN")
def _evaluate_lrn(call: OperatorCall) -> list[Any]:
    x, m = call.input(0), call.make_arithmetic()
    size = call.attribute("size")
    alpha, beta, bias = (call.attribute(n, d) for n, d in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    squares = m.mul(x, x)
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    width = [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)]
    with np.errstate(all="ignore"):

        def sum_channel_window(v: Any) -> Any:
            padded = np.pad(v, width)
            return sum(padded[:, i : i + x.shape[1]] for i in range(size))

        value, sizes = sum_channel_window(squares.value), sum_channel_window(squares.max_magnitude())
        error = call.types.combine_errors(
            call.types.compute_sum_error_factor(size, x.dtype) * sizes, sum_channel_window(squares.get_errors())
        )
    spread = m.add(
        m.make_constant(bias), m.mul(m.div(m.make_constant(alpha), m.wrap(float(size))), m.wrap(value, error))
    )
    power = evaluate_operator("Pow", [spread, m.make_constant(beta)], like=call)[0]
    return [m.div(x, power)]
