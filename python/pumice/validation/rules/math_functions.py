"""Elementary functions: their error as stated in shaders/include/math.glsl (rule V3), and how they propagate the error
of the argument.

Reference values come from NumPy in float64; error figures come from the comments in math.glsl.
`error_units`: error in float32 ulps. `fast_error`: relative error of the faster versions that the engine uses for 16-bit results
(PM_BRIEF). `absolute_error`: an additional absolute error, if math.glsl states one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from ...base.element_types import Array
from .bounded_tensor import BoundedArithmetic, BoundedTensor

ArrayFunction = Callable[[Array], Array]
_erfc_of = np.vectorize(math.erfc, otypes=[np.float64])
# Grid points per unit of x, Taylor coefficients per grid point, and the x above which erf(x) is 1 in float64.
_POINTS_PER_UNIT, _NUM_COEFFICIENTS, _ERF_SATURATION = 64, 9, 6.0


class MathFunction(NamedTuple):
    """A function, its stated errors, and how it propagates the error of its argument.

    max_slope: the maximum of |f'|; None for a monotonic function, which is evaluated at both ends of the interval.
    domain_min, domain_max: domain of the function.
    """

    value: ArrayFunction
    error_units: float
    fast_error: float = 0.0
    absolute_error: float = 0.0
    max_slope: float | None = None
    domain_min: float = -math.inf
    domain_max: float = math.inf


@cache
def _compute_erf_series() -> list[Array]:
    """Return the Taylor coefficients of erf around each grid point, computed by the Hermite polynomial recurrence."""
    grid = np.arange(int(_ERF_SATURATION * _POINTS_PER_UNIT) + 1) / _POINTS_PER_UNIT
    before, hermite = np.zeros(grid.shape), np.ones(grid.shape)
    slope = 2 / math.sqrt(math.pi) * np.exp(-np.square(grid))
    coefficients_by_power = [np.array([math.erf(point_x) for point_x in grid])]
    for n in range(_NUM_COEFFICIENTS - 1):
        coefficients_by_power.append((-1) ** n * hermite * slope / math.factorial(n + 1))
        before, hermite = hermite, 2 * grid * hermite - 2 * n * before
    return coefficients_by_power


def erf(x: Array) -> Array:
    """Return erf in float64 with a relative error of 2^-51, from the Taylor series around the nearest grid point."""
    x = np.asarray(x, np.float64)
    size = np.fmin(np.abs(x), _ERF_SATURATION)
    point = np.rint(size * _POINTS_PER_UNIT)
    size -= point / _POINTS_PER_UNIT
    index = point.astype(np.intp)
    *first, last = _compute_erf_series()
    total = last[index]
    for coefficients in reversed(first):
        total = total * size + coefficients[index]
    return np.where(np.isnan(x), x, np.copysign(total, x))


def normal_cdf(x: Array) -> Array:
    """Return the normal CDF in float64."""
    return np.asarray(_erfc_of(-np.asarray(x) / math.sqrt(2)) / 2, np.float64).reshape(np.shape(x))


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)) in float64, without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


def softplus(x: Array) -> Array:
    """Return log(1 + exp(x)) in float64, without overflow."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


FUNCTIONS: dict[str, MathFunction] = {
    "exp": MathFunction(np.exp, 1.5, 2.0**-17),
    "expm1": MathFunction(np.expm1, 2),
    "log": MathFunction(np.log, 1, domain_min=0.0),
    "log1p": MathFunction(np.log1p, 2, domain_min=-1.0),
    "sqrt": MathFunction(np.sqrt, 0.5, domain_min=0.0),
    "erf": MathFunction(erf, 2, 2.0**-20, 5e-7),
    "normal_cdf": MathFunction(normal_cdf, 10, 1e-5),  # the error is larger in the tail: see _compute_normal_cdf_error
    "sigmoid": MathFunction(sigmoid, 3, 2.0**-16),
    "softplus": MathFunction(softplus, 3, 2.0**-17),
    "tanh": MathFunction(np.tanh, 3, 2.0**-16),
    "sin": MathFunction(np.sin, 3, max_slope=1.0),
    "cos": MathFunction(np.cos, 3, max_slope=1.0),
    "tan": MathFunction(np.tan, 5),
    "asin": MathFunction(np.arcsin, 3, domain_min=-1.0, domain_max=1.0),
    "acos": MathFunction(np.arccos, 3, domain_min=-1.0, domain_max=1.0),
    "atan": MathFunction(np.arctan, 3),
    "sinh": MathFunction(np.sinh, 3),
    "cosh": MathFunction(np.cosh, 3),
    "asinh": MathFunction(np.arcsinh, 3),
    "acosh": MathFunction(np.arccosh, 3, domain_min=1.0),
    "atanh": MathFunction(np.arctanh, 3, domain_min=-1.0, domain_max=1.0),
}
_EVEN_FUNCTIONS = ("cosh",)
_RELATIVE_ERROR_ONLY = ("exp", "log", "sqrt")  # functions whose error is a few ulps of the result in every runtime
# Another runtime may use 1 + erf(x), exp(x) - 1 or a polynomial around 1/2. In units of the accumulation type, allow two
# roundings near 1 for the formula and two for the function.
_OTHER_RUNTIME_UNITS = 4.0
_DOUBLE_UNITS = 16.0  # bound for math_double.glsl: a few ulps of the result, or of 1


def apply_function(name: str, x: BoundedTensor, math_type: BoundedArithmetic) -> BoundedTensor:
    """Apply a function in the accumulation type, as a kernel does. Raise KeyError if the function has no stated error."""
    function = FUNCTIONS[name]
    with np.errstate(all="ignore"):
        value = function.value(x.value)
        propagated = None if x.error is None else _propagate_error(function, name, x, value, x.error)
        # The function is nonlinear, so at the end of the interval it may deviate by more than COVERAGE_FACTOR times its error.
        if propagated is not None and math_type.types.independent_errors:
            reach = math_type.types.to_max_deviation(x.get_errors())
            propagated = np.maximum(
                propagated, math_type.types.from_max_deviation(_propagate_error(function, name, x, value, reach))
            )
        if math_type.type.name == "float64":
            own_error = _DOUBLE_UNITS * 2.0**-52 * np.maximum(np.abs(value), 1.0)
            return math_type.wrap(
                value, math_type.types.combine_errors(propagated, np.where(np.isfinite(value), own_error, 0.0))
            )
        relative: Array | float = function.error_units * 2.0**-23 + 2.0**-50
        if math_type.types.uses_fast_functions(math_type.dtype) and function.fast_error:
            relative = _compute_fast_error(name, function, x)
        if name == "normal_cdf":
            relative = _compute_normal_cdf_error(x, value, math_type.types.uses_fast_functions(math_type.dtype))
        size = np.abs(value) if propagated is None else np.abs(value) + propagated
        own_error = size * relative + function.absolute_error * bool(
            function.fast_error and math_type.types.uses_fast_functions(math_type.dtype)
        )
        if name == "erf" and math_type.types.erf_from_normal_cdf:
            own_error = np.maximum(own_error, _compute_erf_error_from_cdf(x))
        if math_type.types.other_runtime:
            own_error = (
                own_error * (math_type.type.unit / 2.0**-24)
                + (name not in _RELATIVE_ERROR_ONLY) * _OTHER_RUNTIME_UNITS * math_type.type.unit
            )
        own_error = np.where(size < 2.0**-126, np.maximum(own_error, size + 2.0**-126), own_error)
        own_error = np.where(np.isfinite(value), own_error, 0.0)
        own_error = np.where(
            _compute_device_independent_mask(name, x.value, value) & (size == np.abs(value)), 0.0, own_error
        )
    return math_type.wrap(value, math_type.types.combine_errors(propagated, own_error))


def _compute_fast_error(name: str, function: MathFunction, x: BoundedTensor) -> Array | float:
    """Return the relative error of the fast version. Vulkan permits exp2(x) 3 + 2 |x| ulps, and x is a rounded product."""
    if name not in ("exp", "sigmoid", "tanh"):
        return max(function.fast_error, function.error_units * 2.0**-23)
    size = np.minimum(np.abs(x.value) * 1.4426950408889634 * (2 if name == "tanh" else 1), 256.0)
    return np.asarray(function.fast_error + (3.0 + 4.0 * size) * 2.0**-23)


def _compute_normal_cdf_tail_error(size: Array) -> Array:
    """Return the relative error of pm_normal_cdf below 0: 10 ulps for |x| < 3, and x^2 / 2 more beyond.

    The exponent is about x^2 / 2 and is rounded twice, each time with a relative error of 2^-24.
    """
    return np.asarray((10.0 + np.where(size < 3.0, 0.0, np.square(np.minimum(size, 40.0)) / 2)) * 2.0**-23)


def _compute_normal_cdf_error(x: BoundedTensor, value: Array, is_fast: bool) -> Array:
    """Return the relative error of pm_normal_cdf. For x >= 0 it computes 1 - cdf(-x), which adds a rounding to the
    error of cdf(-x).

    The fast version uses the driver's exp2, for which Vulkan permits 3 + 2 |x| ulps.
    """
    reach = x.get_errors()
    size = np.abs(x.value) + reach
    stated_error = _compute_normal_cdf_tail_error(size)
    if is_fast:
        stated_error = 1e-5 + (3.0 + 4.0 * np.minimum(np.square(size) * 0.7213475, 256.0)) * 2.0**-23
    rest = normal_cdf(reach - x.value)
    return np.asarray(
        np.where(
            x.value >= reach,
            np.minimum(stated_error, stated_error * rest / value + 2.0**-24 * (1 + 2.0**-10)),
            stated_error,
        )
    )


def _compute_erf_error_from_cdf(x: BoundedTensor) -> Array:
    """Return the absolute error of erf(x) = 2 cdf(x sqrt(2)) - 1 in a Gelu kernel that replaces Erf with the normal CDF."""
    size = np.abs(x.value) * math.sqrt(2)
    return np.asarray(2 * (normal_cdf(-size) * _compute_normal_cdf_tail_error(size) + (x.value > 0) * 2.0**-24))


def _compute_device_independent_mask(name: str, x: Array, value: Array) -> Array:
    """Return a mask of the results that are the same on every device: zeros at zero, NaN and infinity."""
    zero = (x == 0) & (value == 0)
    return np.asarray(zero | ~np.isfinite(value) if name not in ("erf", "tanh") else zero)


def _propagate_error(function: MathFunction, name: str, x: BoundedTensor, value: Array, error: Array) -> Array:
    """Return how much the function's value can change if x changes by up to `error`."""
    if function.max_slope is not None:
        return np.minimum(error * function.max_slope, 2.0)
    low = np.maximum(x.value - error, function.domain_min)
    high = np.minimum(x.value + error, function.domain_max)
    low, high = np.minimum(low, x.value), np.maximum(high, x.value)
    change = np.maximum(np.abs(function.value(low) - value), np.abs(function.value(high) - value))
    if name in _EVEN_FUNCTIONS:
        change = np.where(
            (low < 0) & (high > 0), np.maximum(change, np.abs(value - function.value(np.zeros(())))), change
        )
    if name == "tan":  # the interval may cross a pole
        change = np.where(np.floor(low / np.pi + 0.5) != np.floor(high / np.pi + 0.5), np.inf, change)
    return np.where(error == 0, 0.0, np.where(np.isnan(change), np.inf, change))
