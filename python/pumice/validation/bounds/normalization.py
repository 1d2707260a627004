"""Rules of normalisations (V7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...base.element_types import Array
from .bounded import Bounded, stored
from .math_functions import apply
from .registry import Call, Unproved, rule
from .registry import call as other
from .gemm_conv import known, summed, total_error


def _in_kernel(call: Call, x: Bounded) -> Bounded:
    """Return x unchanged, because the intermediate stays inside one kernel."""
    return x


def centred(
    call: Call, x: Bounded, axes: tuple[int, ...], between: Callable[[Call, Bounded], Bounded] = _in_kernel
) -> tuple[Bounded, Bounded, Bounded]:
    """Return the mean, the deviations and the variance. between: applied to each intermediate.

    A kernel that reports its additions reads a row once for the mean and once for the deviations (`_of_two_passes`).
    Other kernels may compute the variance in any way; the mean's error then adds 2 mean(|c| e(c)).
    """
    m = call.arithmetic(x.dtype)
    count = int(np.prod([x.shape[i] for i in axes], dtype=int))
    mean = between(call, m.div(summed(x, axes, call.types), m.of(float(count))))
    distance = between(call, m.sub(x, mean))
    if call.types.additions and not call.types.independent:
        return _of_two_passes(call, x, mean, axes)
    with np.errstate(all="ignore"):
        squares = np.mean(np.square(distance.value), axis=axes, keepdims=True)
        each = 2 * np.abs(distance.value) * distance.errors() + np.square(distance.errors())
        shaken = total_error(each, axes, call.types) / count
        own = call.types.sum_factor(count + 2, x.dtype) * (squares + shaken)
    return mean, distance, between(call, Bounded(squares, known(shaken + own), x.dtype))


def _of_two_passes(call: Call, x: Bounded, mean: Bounded, axes: tuple[int, ...]) -> tuple[Bounded, Bounded, Bounded]:
    """Return mean and variance as layer_norm.comp and layer_norm_registers.comp compute them.

    Let c be the exact deviations, g the input errors, and d the error of the computed mean m'. The kernels compute v =
    c + g - d + r, where r is the rounding of that difference, and mean(v) = mean(g + r) - d. They subtract mean(v) from
    each v, and its square from mean(v^2). Because the c sum to 0, mean(v^2) = mean(c^2) + 2 mean(c (g + r)) + mean((g +
    r)^2) + d^2 - 2 d mean(g + r). So d affects the variance only together with the other errors.
    """
    types, count = call.types, int(np.prod([x.shape[i] for i in axes], dtype=int))
    unit = call.arithmetic(x.dtype).unit

    def averaged(values: Array) -> Array:
        return np.asarray(np.mean(values, axis=axes, keepdims=True))

    with np.errstate(all="ignore"):
        exact, off = x.value - mean.value, mean.errors()
        given = np.broadcast_to(x.errors(), exact.shape)
        size = np.abs(exact) + given + off
        rounded = unit * size
        own, terms = given + rounded, types.longest(count)
        # Rounding error of the computed mean of the deviations: its sum and its division.
        second = (types.sum_factor(terms, x.dtype) + 2 * unit) * averaged(size + rounded)
        settled = averaged(own) + second  # remainder of d after subtracting that mean
        distance = own + settled + unit * (np.abs(exact) + own + settled)
        squares = averaged(np.square(exact))
        moved = (
            averaged(2 * np.abs(exact) * own + np.square(own))
            + 2 * off * (averaged(own) + settled)
            + np.square(settled)
        )
        spread = moved + types.sum_factor(terms + 4, x.dtype) * (squares + moved + np.square(off))
    return (
        Bounded(mean.value, known(settled + unit * (np.abs(mean.value) + settled)), x.dtype),
        Bounded(exact, known(distance), x.dtype),
        Bounded(squares, known(spread), x.dtype),
    )


def inverse_deviation(call: Call, variance: Bounded, epsilon: float) -> Bounded:
    """Return 1 / sqrt(variance + epsilon)."""
    m = call.arithmetic(variance.dtype)
    held = m.constant(epsilon)
    return m.div(m.of(1.0), apply("sqrt", m.add(variance, held), m))


def normalised(call: Call, x: Bounded, axes: tuple[int, ...], epsilon: float) -> tuple[Bounded, Bounded, Bounded]:
    """Return (x - mean) / sqrt(variance + epsilon), the mean, and 1 / deviation."""
    mean, distance, variance = centred(call, x, axes)
    inverse = inverse_deviation(call, variance, epsilon)
    return call.arithmetic(x.dtype).mul(distance, inverse), mean, inverse


def _scaled(call: Call, y: Bounded, scale: Bounded | None, bias: Bounded | None) -> Bounded:
    m = call.arithmetic(y.dtype)
    if scale is not None:
        y = m.mul(y, scale)
    return y if bias is None else m.add(y, bias)


def per_channel(value: Bounded | None, rank: int) -> Bounded | None:
    """Reshape per-channel values to broadcast over images of that rank."""
    return value if value is None else value.moved(lambda v: v.reshape(-1, *[1] * (rank - 2)))


@rule("LayerNormalization")
def _layer(call: Call) -> list[Any]:
    x = call.input(0)
    axis = call.attribute("axis", -1) % x.ndim
    axes = tuple(range(axis, x.ndim))
    y, mean, inverse = normalised(call, x, axes, call.attribute("epsilon", 1e-5))
    y = _scaled(call, y, call.optional(1), call.optional(2))
    statistic = np.float32
    made = [Bounded(y.value, y.error, x.dtype)]
    for one in (mean, inverse):
        dtype = x.dtype if str(x.dtype) == "float64" else statistic
        made.append(Bounded(one.value, one.error, dtype))
    return made[: call.outputs]


@rule("RMSNormalization", "SimplifiedLayerNormalization")
def _rms(call: Call) -> list[Any]:
    x, m = call.input(0), call.arithmetic()
    axes = tuple(range(call.attribute("axis", -1) % x.ndim, x.ndim))
    count = int(np.prod([x.shape[i] for i in axes], dtype=int))
    squares = m.div(summed(m.mul(x, x), axes, call.types), m.of(float(count)))
    y = m.mul(x, inverse_deviation(call, squares, call.attribute("epsilon", 1e-5)))
    y = _scaled(call, y, call.optional(1), None)
    return [Bounded(y.value, y.error, x.dtype)]


@rule("InstanceNormalization")
def _instance(call: Call) -> list[Any]:
    x = call.input(0)
    y, _, _ = normalised(call, x, tuple(range(2, x.ndim)), call.attribute("epsilon", 1e-5))
    return [_scaled(call, y, per_channel(call.input(1), x.ndim), per_channel(call.input(2), x.ndim))]


@rule("GroupNormalization")
def _group(call: Call) -> list[Any]:
    x, groups = call.input(0), call.attribute("num_groups")
    n, c = x.shape[:2]
    rows = x.moved(lambda v: v.reshape(n, groups, -1))
    y, _, _ = normalised(call, rows, (2,), call.attribute("epsilon", 1e-5))
    y = y.moved(lambda v: v.reshape(x.shape))
    scale, bias = call.input(1), call.input(2)
    if call.opset < 21:  # one value per group
        scale, bias = (one.moved(lambda v: np.repeat(v, c // groups)) for one in (scale, bias))
    return [_scaled(call, y, per_channel(scale, x.ndim), per_channel(bias, x.ndim))]


@rule("BatchNormalization")
def _batch(call: Call) -> list[Any]:
    """Normalise in inference; opsets 7 to 13 signal training by the number of outputs, earlier ones by is_test."""
    x, m = call.input(0), call.arithmetic()
    training = call.attribute("training_mode", 0) or (call.opset < 7 and not call.attribute("is_test", 0))
    training = training or (7 <= call.opset < 14 and call.outputs > 1)
    scale, bias, mean, variance = (call.input(i) for i in range(1, 5))
    if training and call.opset >= 14:
        return _trained(call, x, scale, bias, [mean, variance])
    if training:
        raise Unproved(f"BatchNormalization in training of operator set {call.opset}")
    if call.opset < 9 and not call.attribute("spatial", 1):
        shaped = [one.moved(lambda v: v.reshape(x.shape[1:])) for one in (scale, bias, mean, variance)]
    else:
        shaped = [one for v in (scale, bias, mean, variance) if (one := per_channel(v, x.ndim)) is not None]
    scale, bias, mean, variance = (Bounded(one.value, one.error, x.dtype) for one in shaped)
    factor = m.mul(scale, inverse_deviation(call, variance, call.attribute("epsilon", 1e-5)))
    made = m.add(m.mul(m.sub(x, mean), factor), bias)
    if call.types.foreign:  # another runtime may fold the parameters into one multiply-add
        other = m.add(m.mul(x, factor), m.sub(bias, m.mul(mean, factor)))
        made = made.with_error(np.maximum(made.errors(), other.errors()))
    return [made]


def _trained(call: Call, x: Bounded, scale: Bounded, bias: Bounded, before: list[Bounded]) -> list[Any]:
    """Normalise by batch statistics and update the running ones, in several kernels with stored intermediates."""
    m = call.arithmetic()
    mean, distance, variance = centred(call, x, (0, *range(2, x.ndim)), kept)
    deviation = kept(call, apply("sqrt", kept(call, m.add(variance, m.constant(call.attribute("epsilon", 1e-5)))), m))
    y = kept(call, m.div(distance, deviation))
    wide = [one for v in (scale, bias) if (one := per_channel(v, x.ndim)) is not None]
    made = [m.add(kept(call, m.mul(y, wide[0])), wide[1])]
    momentum = m.constant(call.attribute("momentum", 0.9))
    rest = m.constant(1 - call.attribute("momentum", 0.9))
    for old, now in zip(before, (mean, variance), strict=True):
        flat = now.moved(lambda v: v.reshape(-1))
        total = m.add(kept(call, m.mul(old, momentum)), kept(call, m.mul(flat, rest)))
        made.append(Bounded(total.value, total.error, old.dtype))
    return [Bounded(made[0].value, made[0].error, x.dtype), *made[1:]][: call.outputs]


def kept(call: Call, x: Bounded) -> Bounded:
    """Return an intermediate as stored between two kernels."""
    return stored(Bounded(x.value, x.error, x.dtype), call.types)


@rule("MeanVarianceNormalization")
def _mean_variance(call: Call) -> list[Any]:
    """Divide by the deviation + 1e-9, as ONNX's function does."""
    x, m = call.input(0), call.arithmetic()
    axes = tuple(axis % x.ndim for axis in call.attribute("axes", [0, 2, 3]))
    _, distance, variance = centred(call, x, axes)
    deviation = m.add(apply("sqrt", variance, m), m.constant(1e-9))
    return [m.div(distance, deviation)]


@rule("LpNormalization")
def _lp(call: Call) -> list[Any]:
    """Divide by the norm; a row of zeros stays zero."""
    x, m = call.input(0), call.arithmetic()
    axis, p = call.attribute("axis", -1) % x.ndim, call.attribute("p", 2)
    size = m.abs(x) if p == 1 else m.mul(x, x)
    norm = summed(size, (axis,), call.types)
    norm = norm if p == 1 else apply("sqrt", norm, m)
    y = m.div(x, norm)
    zero = np.broadcast_to((norm.value == 0) & (norm.errors() == 0), x.shape)
    return [Bounded(np.where(zero, 0.0, y.value), np.where(zero, 0.0, y.errors()), x.dtype)]


@rule("LRN")
def _lrn(call: Call) -> list[Any]:
    x, m = call.input(0), call.arithmetic()
    size = call.attribute("size")
    alpha, beta, bias = (call.attribute(n, d) for n, d in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    squares = m.mul(x, x)
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    width = [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)]
    with np.errstate(all="ignore"):

        def total(v: Any) -> Any:
            wide = np.pad(v, width)
            return sum(wide[:, i : i + x.shape[1]] for i in range(size))

        value, sizes = total(squares.value), total(squares.magnitude())
        error = call.types.joined(call.types.sum_factor(size, x.dtype) * sizes, total(squares.errors()))
    spread = m.add(m.constant(bias), m.mul(m.div(m.constant(alpha), m.of(float(size))), m.of(value, error)))
    power = other("Pow", [spread, m.constant(beta)], like=call)[0]
    return [m.div(x, power)]
