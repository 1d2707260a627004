"""Float types, and bounds for the error of rounded sums (Higham, Accuracy and Stability, ch. 3)."""

from __future__ import annotations

import math
from copy import copy
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ...base.element_types import Array, numpy_dtype

_PRECISIONS = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
HALVES = ("float16", "bfloat16")
# Extra roundings per term when fp32 factors are split into fp16 hi/lo, including the dropped low part.
MOST_OF_FACTORS = 36


class FloatType(NamedTuple):
    """A float type: unit roundoff, smallest normal number, subnormal step and largest finite number."""

    name: str
    unit: float
    normal: float
    step: float
    largest: float

    @property
    def is_half(self) -> bool:
        """Whether the type has 16 bits."""
        return self.name in HALVES

    def rounded(self, value: Any) -> Array:
        """Round to the nearest number of the type; the result is float64."""
        if self.name == "float64":
            return np.asarray(value)
        with np.errstate(all="ignore"):
            return np.asarray(value).astype(numpy_dtype(self.name)).astype(np.float64)

    def held(self, value: Any) -> Array:
        """Return constants as kernels store them: bfloat16 saturates, values beyond float16 stay float32."""
        exact = np.asarray(value, np.float64)
        rounded = self.rounded(exact)
        beyond = np.isinf(rounded) & np.isfinite(exact)
        if not beyond.any():
            return rounded
        return np.where(beyond, np.copysign(self.largest, exact) if self.name == "bfloat16" else exact, rounded)

    def apart(self, value: Any) -> Array:
        """Return the difference between constants and their stored values; 0 for infinity and NaN."""
        with np.errstate(all="ignore"):
            own = np.abs(self.held(value) - np.asarray(value, np.float64))
        return np.where(np.isfinite(own), own, 0.0)


FLOAT64 = FloatType("float64", 2.0**-53, 2.0**-1022, 2.0**-1074, float(np.finfo(np.float64).max))
FLOAT32 = FloatType("float32", 2.0**-24, 2.0**-126, 2.0**-149, float(np.finfo(np.float32).max))
FLOAT16 = FloatType("float16", 2.0**-11, 2.0**-14, 2.0**-24, 65504.0)
BFLOAT16 = FloatType("bfloat16", 2.0**-8, 2.0**-126, 2.0**-133, (2 - 2.0**-7) * 2.0**127)
_TYPES = {one.name: one for one in (FLOAT64, FLOAT32, FLOAT16, BFLOAT16)}


# Above _SMALL, square roots lose no bits to underflow; below _LARGE, squares do not overflow.
_SMALL, _LARGE = 1e-140, 1e300

SPREAD = 4.0  # a rounding error is at most 1.73 of its standard deviations, so 4 times covers 6.9 sigma


def gamma(n: float, unit: float) -> float:
    """Return the worst-case relative error of n successive roundings; infinity if all bits may be lost."""
    return n * unit / (1 - n * unit) if n * unit < 1 else math.inf


def gamma6(n: float, unit: float) -> float:
    """Return the relative error of n independent roundings that holds with 6-sigma probability (Higham and Mary 2019)."""
    exponent = 6 * math.sqrt(n) * unit + n * unit * unit / (1 - unit)
    return math.expm1(exponent) if exponent < 700 else math.inf


def float_type(name: str) -> FloatType:
    """Return the FloatType of an element type's name. Raise KeyError for other types."""
    return _TYPES[name]


# NumPy rebuilds the name of a dtype on every call, and validation asks for it several hundred times per node.
@cache
def name_of(dtype: Any) -> str:
    """Return the name of an element type; object arrays are strings."""
    name = str(dtype)
    return "string" if name == "object" else name


@cache
def is_float(dtype: Any) -> bool:
    """Whether the element type is a float of 16 bits or more."""
    return str(dtype) in _TYPES


class Types:
    """Storage and accumulation types of a program at a given precision.

    float64 tensors stay float64 at every precision. Other floats are stored at the program's precision and accumulated
    in float32. A tensor that the model declares as fp16 or bf16 is read back in that type, even if the program keeps it
    in float32.

    independent: combine errors by root-sum-square, for long chains of nodes where the worst case is useless. Multiply
    such an error by `SPREAD` before comparing.
    foreign: whether another runtime computes, with any of the usual functions and formulas.
    sums: precision in which that runtime accumulates.
    """

    def __init__(
        self, precision: str = "fp32", independent: bool = False, foreign: bool = False, sums: str = "fp32"
    ) -> None:
        self.precision = precision
        self.independent = independent
        self.foreign = foreign
        self._stored = self._program = _TYPES[_PRECISIONS[precision]]
        self._summed = _TYPES[_PRECISIONS[sums]]
        self.constants = "either"  # or "exact", "rounded", "scaled"; see within_kernel()
        self.values_only = False
        self.wide = False  # whether a constant of this node exceeds float16, so all its constants stay in float32
        self.overflows = False  # whether float32 values beyond the storage type become infinite, as in ONNX
        # Attention masks below float16's range are stored as its lowest value, which absorbs whatever is added to it.
        self.absorbs = False
        self.erf_by_cdf = False  # whether a kernel may compute erf via the normal CDF (Gelu written with Erf)
        # Engine kernels never change a result that is exactly representable; stored reference results may differ.
        self.trusts_exact = not foreign
        # Longest chain of additions in this node's sums, as reported by its kernel; 0: use the number of terms.
        self.additions = 0

    def as_independent(self) -> Types:
        """Return types that combine errors by root-sum-square."""
        made = copy(self)
        made.independent = True
        return made

    def for_values(self) -> Types:
        """Return types for values without errors. Sums then skip the error pass, which costs as much as the values."""
        made = copy(self)
        made.values_only = True
        return made

    def with_overflow(self) -> Types:
        """Return types for programs where results beyond float32 become infinite before the next operation reads them."""
        made = copy(self)
        made.overflows = True
        return made

    def with_masks(self) -> Types:
        """Return types for attention's score + mask sums, where float16's lowest value absorbs the other operand."""
        made = copy(self)
        made.absorbs = self.is_float16
        return made

    def of_stored(self) -> Types:
        """Return types for results stored with a model, which were computed in an unknown way."""
        made = copy(self)
        made.trusts_exact = False
        return made

    def with_erf_by_cdf(self) -> Types:
        """Return types for kernels that may compute erf via the normal CDF."""
        made = copy(self)
        made.erf_by_cdf = True
        return made

    def with_additions(self, most: int) -> Types:
        """Return types for a node whose kernel rounds no term more than `most` times (V4)."""
        if most <= 0:
            return self
        made = copy(self)
        made.additions = most
        return made

    @property
    def is_float16(self) -> bool:
        """Whether the program stores float16, even if this kernel passes float32 values on internally."""
        return self._program is FLOAT16

    def with_wide(self) -> Types:
        """Return types for a node that computes in float32 because of a constant beyond float16."""
        made = copy(self)
        made.wide = True
        return made

    def longest(self, terms: int) -> int:
        """Return how many times a term of a sum is rounded: its product plus the additions after it.

        If the kernel reports more additions than there are terms, it adds zeros (exact) or splits the factors, so the
        excess is capped at MOST_OF_FACTORS.
        """
        return min(self.additions, terms + MOST_OF_FACTORS) if self.additions else terms

    def within_kernel(self, constants: str) -> Types:
        """Return types for values that a fused kernel keeps in float32 between operations, without rounding to storage.

        constants: how the kernel reads constants: "exact" in float32, "rounded" to the storage type, or "scaled":
        multiplied by other constants and then rounded to the storage type.
        """
        made = copy(self)
        made._stored = FLOAT32
        made.constants = constants
        return made

    def at(self, precision: str) -> Types:
        """Return types for a node that computes at another precision."""
        if precision == self.precision:
            return self
        made = copy(self)
        made.precision = precision
        made._stored = made._program = _TYPES[_PRECISIONS[precision]]
        return made

    def joined(self, *errors: Array | None) -> Array | None:
        """Combine errors; None is a zero error."""
        given = [one for one in errors if one is not None]
        if len(given) < 2:
            return given[0] if given else None
        with np.errstate(all="ignore"):
            total: Array = given[0]
            for one in given[1:]:
                total = _root_of_squares(total, one) if self.independent else total + one
        return total

    def reach(self, error: Array) -> Array:
        """Return the maximum deviation for an error. It decides whether a choice is undecided."""
        return error * SPREAD if self.independent else error

    def share(self, reached: Array) -> Array:
        """Return the error with this reach, for functions that are not linear within the reach of the argument."""
        return reached / SPREAD if self.independent else reached

    def storage(self, dtype: Any) -> FloatType:
        """Return the type in which the program stores tensors of this declared type."""
        return FLOAT64 if name_of(dtype) == "float64" else self._stored

    def constant(self, dtype: Any) -> FloatType:
        """Return the type that constants of this declared type are rounded to, if they are rounded."""
        kept = self._stored if self.constants == "exact" else self._program
        return FLOAT64 if name_of(dtype) == "float64" else kept

    def read_back(self, dtype: Any) -> FloatType:
        """Return the type in which a result of this declared type reaches the host."""
        return _TYPES[name_of(dtype)]

    def accumulation(self, dtype: Any) -> FloatType:
        """Return the type in which kernels compute and accumulate values of this declared type."""
        return FLOAT64 if name_of(dtype) == "float64" else self._summed

    def brief(self, dtype: Any) -> bool:
        """Whether the engine may use its shorter elementary functions for 16-bit results (PM_BRIEF in math.glsl)."""
        return name_of(dtype) in HALVES or (self._program.is_half and name_of(dtype) != "float64")

    def sum_factor(self, n: int, dtype: Any) -> float:
        """Return the error of a sum of n products relative to the sum of magnitudes, including the reference's own
        error.
        """
        return _sum_factor(max(int(n), 1), self.accumulation(dtype).unit, self.independent)

    def __repr__(self) -> str:
        return f"Types({self.precision!r})"


class DeclaredTypes(Types):
    """Types of another runtime that stores every tensor in its declared type.

    narrow: whether it also computes and accumulates in the declared type; otherwise in float32, or float64 for doubles.
    """

    def __init__(self, narrow: bool = False) -> None:
        super().__init__("fp32", foreign=True)
        self.precision = "declared"
        self._narrow = narrow

    def storage(self, dtype: Any) -> FloatType:
        """Return the declared type."""
        return _TYPES[name_of(np.dtype(dtype))]

    def accumulation(self, dtype: Any) -> FloatType:
        """Return float32 or float64, or the declared type if `narrow`."""
        return _TYPES[name_of(np.dtype(dtype))] if self._narrow else super().accumulation(np.dtype(dtype))


def _root_of_squares(first: Array, second: Array) -> Array:
    """Return hypot(first, second), several times faster than np.hypot. If the squares underflow, use the larger one."""
    total: Array = np.asarray(np.square(first) + np.square(second))
    if not total.size or not np.max(total) < _LARGE:  # also true for infinity and NaN
        return np.asarray(np.hypot(first, second))
    root: Array = np.sqrt(total)
    return root if np.min(root) > _SMALL else np.asarray(np.maximum(root, np.maximum(first, second)))


@cache
def _sum_factor(n: int, unit: float, independent: bool) -> float:
    likely = independent or unit > 2.0**-20
    factor = min(gamma(n, unit), gamma6(n, unit)) if likely else gamma(n, unit)
    return factor + gamma(n, FLOAT64.unit)
