"""Float types, and error bounds for sums with rounding (Higham, Accuracy and Stability, ch. 3)."""

from __future__ import annotations

import math
from copy import copy
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ...base.element_types import Array, get_numpy_dtype

_PRECISIONS = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
SIXTEEN_BIT_FLOATS = ("float16", "bfloat16")
# Extra roundings per term when fp32 factors are split into fp16 hi/lo, including the dropped low part.
MAX_EXTRA_ADDITIONS = 36


class FloatType(NamedTuple):
    """A float type: unit roundoff, smallest normal number, subnormal step and largest finite number."""

    name: str
    unit: float
    normal: float
    step: float
    largest: float

    @property
    def is_16_bit(self) -> bool:
        """Whether the type is 16 bits wide."""
        return self.name in SIXTEEN_BIT_FLOATS

    def round(self, value: Any) -> Array:
        """Round to the nearest number of the type; the result is a float64 array."""
        if self.name == "float64":
            return np.asarray(value)
        with np.errstate(all="ignore"):
            return np.asarray(value).astype(get_numpy_dtype(self.name)).astype(np.float64)

    def store_constant(self, value: Any) -> Array:
        """Return constants as the program stores them: bfloat16 saturates, and values beyond float16 stay float32."""
        exact = np.asarray(value, np.float64)
        rounded = self.round(exact)
        beyond = np.isinf(rounded) & np.isfinite(exact)
        if not beyond.any():
            return rounded
        return np.where(beyond, np.copysign(self.largest, exact) if self.name == "bfloat16" else exact, rounded)

    def compute_storage_error(self, value: Any) -> Array:
        """Return |constant - stored constant|; 0 for infinity and NaN."""
        with np.errstate(all="ignore"):
            difference = np.abs(self.store_constant(value) - np.asarray(value, np.float64))
        return np.where(np.isfinite(difference), difference, 0.0)


FLOAT64 = FloatType("float64", 2.0**-53, 2.0**-1022, 2.0**-1074, float(np.finfo(np.float64).max))
FLOAT32 = FloatType("float32", 2.0**-24, 2.0**-126, 2.0**-149, float(np.finfo(np.float32).max))
FLOAT16 = FloatType("float16", 2.0**-11, 2.0**-14, 2.0**-24, 65504.0)
BFLOAT16 = FloatType("bfloat16", 2.0**-8, 2.0**-126, 2.0**-133, (2 - 2.0**-7) * 2.0**127)
_TYPES = {error.name: error for error in (FLOAT64, FLOAT32, FLOAT16, BFLOAT16)}


# Above _MIN_SQUARE, square roots lose no bits to underflow; below _MAX_SQUARE, squares do not overflow.
_MIN_SQUARE, _MAX_SQUARE = 1e-140, 1e300

COVERAGE_FACTOR = 4.0  # a rounding error is at most 1.73 of its standard deviations; four times that covers 6.9 sigma


def compute_gamma(n: float, unit: float) -> float:
    """Return the worst-case relative error of n successive roundings; infinity if all bits may be lost."""
    return n * unit / (1 - n * unit) if n * unit < 1 else math.inf


def compute_probabilistic_gamma(n: float, unit: float) -> float:
    """Return the relative error of n independent roundings that holds with 6-sigma probability (Higham and Mary 2019)."""
    exponent = 6 * math.sqrt(n) * unit + n * unit * unit / (1 - unit)
    return math.expm1(exponent) if exponent < 700 else math.inf


def find_float_type(name: str) -> FloatType:
    """Return the FloatType of an element type's name. Raise KeyError for other types."""
    return _TYPES[name]


# Cached, because NumPy rebuilds a dtype's name on every call and validation needs it hundreds of times per node.
@cache
def dtype_name(dtype: Any) -> str:
    """Return the name of an element type; object arrays are strings."""
    name = str(dtype)
    return "string" if name == "object" else name


@cache
def is_float(dtype: Any) -> bool:
    """Return whether the element type is a float of 16 bits or more."""
    return str(dtype) in _TYPES


class ProgramTypes:
    """Storage and accumulation types of a program that runs at a given precision.

    float64 tensors stay float64 at every precision. Other floats are stored at the program's precision and accumulated
    in float32. A tensor that the model declares as fp16 or bf16 is read back in that type, even if the program stores
    it in float32.

    independent_errors: whether errors are combined by root-sum-square, for long chains of nodes, whose worst-case bound
    would be useless. Multiply such an error by `COVERAGE_FACTOR` before you compare it.
    other_runtime: whether another runtime computes the values, with functions and formulas of its choice.
    accumulation: precision in which that runtime accumulates.
    """

    def __init__(
        self,
        precision: str = "fp32",
        independent_errors: bool = False,
        other_runtime: bool = False,
        accumulation: str = "fp32",
    ) -> None:
        self.precision = precision
        self.independent_errors = independent_errors
        self.other_runtime = other_runtime
        self._stored = self._program = _TYPES[_PRECISIONS[precision]]
        self._accumulation = _TYPES[_PRECISIONS[accumulation]]
        self.constant_rounding = "either"  # "either", "exact", "rounded" or "scaled"; see for_fused_kernel()
        self.skips_errors = False
        self.forced_fp32 = False  # whether all constants of this node stay in float32, because one exceeds float16
        self.overflows_to_infinity = False  # whether float32 values beyond the storage type become infinite, as in ONNX
        # Attention masks below float16's range are stored as its lowest value, which absorbs any score added to it.
        self.absorbs_lowest = False
        self.erf_from_normal_cdf = False  # whether a kernel may compute erf from the normal CDF (Gelu written with Erf)
        # The engine's kernels keep exactly representable results; another runtime may not.
        self.allows_exact_sums = not other_runtime
        # Longest chain of additions in the node's sums, as reported by its kernel; 0 to use the number of terms.
        self.additions = 0

    def with_independent_errors(self) -> ProgramTypes:
        """Return a copy that combines errors by root-sum-square."""
        copied = copy(self)
        copied.independent_errors = True
        return copied

    def without_errors(self) -> ProgramTypes:
        """Return a copy for values without errors. Sums skip the error pass, which costs as much as computing the values."""
        copied = copy(self)
        copied.skips_errors = True
        return copied

    def with_overflow(self) -> ProgramTypes:
        """Return a copy for programs whose results become infinite beyond float32, before the next operation reads them."""
        copied = copy(self)
        copied.overflows_to_infinity = True
        return copied

    def with_attention_masks(self) -> ProgramTypes:
        """Return a copy for attention's score + mask sums, in which float16's lowest value absorbs the other operand."""
        copied = copy(self)
        copied.absorbs_lowest = self.is_float16
        return copied

    def for_stored_results(self) -> ProgramTypes:
        """Return a copy for results stored with a model, which an unknown runtime computed."""
        copied = copy(self)
        copied.allows_exact_sums = False
        return copied

    def with_erf_from_normal_cdf(self) -> ProgramTypes:
        """Return a copy for kernels that may compute erf from the normal CDF."""
        copied = copy(self)
        copied.erf_from_normal_cdf = True
        return copied

    def with_additions(self, max_additions: int) -> ProgramTypes:
        """Return a copy for a node whose kernel takes each term through at most `max_additions` additions (V4)."""
        if max_additions <= 0:
            return self
        copied = copy(self)
        copied.additions = max_additions
        return copied

    @property
    def is_float16(self) -> bool:
        """Whether the program stores float16, even if this kernel passes float32 values on internally."""
        return self._program is FLOAT16

    def with_forced_fp32(self) -> ProgramTypes:
        """Return a copy for a node that computes in float32 because one of its constants exceeds float16."""
        copied = copy(self)
        copied.forced_fp32 = True
        return copied

    def count_max_roundings(self, terms: int) -> int:
        """Return how often a term of a sum is rounded: once in its product, and once in each later addition.

        A kernel that reports more additions than terms adds zeros, which is exact, or splits the factors. The excess is
        therefore capped at MAX_EXTRA_ADDITIONS.
        """
        return min(self.additions, terms + MAX_EXTRA_ADDITIONS) if self.additions else terms

    def for_fused_kernel(self, constants: str) -> ProgramTypes:
        """Return a copy for a fused kernel, which keeps intermediates in float32 instead of rounding them to storage.

        constants: how the kernel reads constants: "exact" in float32, "rounded" to the storage type, or "scaled":
        multiplied by other constants and then rounded to the storage type.
        """
        copied = copy(self)
        copied._stored = FLOAT32
        copied.constant_rounding = constants
        return copied

    def at_precision(self, precision: str) -> ProgramTypes:
        """Return a copy for a node that computes at another precision."""
        if precision == self.precision:
            return self
        copied = copy(self)
        copied.precision = precision
        copied._stored = copied._program = _TYPES[_PRECISIONS[precision]]
        return copied

    def combine_errors(self, *errors: Array | None) -> Array | None:
        """Return the combined error of several error sources; None means no error."""
        present = [error for error in errors if error is not None]
        if len(present) < 2:
            return present[0] if present else None
        with np.errstate(all="ignore"):
            total: Array = present[0]
            for error in present[1:]:
                total = _compute_hypot(total, error) if self.independent_errors else total + error
        return total

    def to_max_deviation(self, error: Array) -> Array:
        """Return the largest deviation that an error permits, which determines whether a choice is undecided."""
        return error * COVERAGE_FACTOR if self.independent_errors else error

    def from_max_deviation(self, reached: Array) -> Array:
        """Return the error that permits this deviation: the inverse of `to_max_deviation`."""
        return reached / COVERAGE_FACTOR if self.independent_errors else reached

    def get_storage_type(self, dtype: Any) -> FloatType:
        """Return the type in which the program stores tensors of this declared type."""
        return FLOAT64 if dtype_name(dtype) == "float64" else self._stored

    def get_constant_type(self, dtype: Any) -> FloatType:
        """Return the type to which constants of this declared type may be rounded."""
        format = self._stored if self.constant_rounding == "exact" else self._program
        return FLOAT64 if dtype_name(dtype) == "float64" else format

    def get_read_back_type(self, dtype: Any) -> FloatType:
        """Return the type in which results of this declared type are read back to the host."""
        return _TYPES[dtype_name(dtype)]

    def get_accumulation_type(self, dtype: Any) -> FloatType:
        """Return the type in which kernels compute and accumulate values of this declared type."""
        return FLOAT64 if dtype_name(dtype) == "float64" else self._accumulation

    def uses_fast_functions(self, dtype: Any) -> bool:
        """Return whether the engine may use its faster, less accurate elementary functions (PM_BRIEF in math.glsl)."""
        return dtype_name(dtype) in SIXTEEN_BIT_FLOATS or (self._program.is_16_bit and dtype_name(dtype) != "float64")

    def compute_sum_error_factor(self, n: int, dtype: Any) -> float:
        """Return the error of a sum of n products, relative to the sum of the products' magnitudes.

        It includes the reference's own error.
        """
        return _compute_sum_error_factor(
            max(int(n), 1), self.get_accumulation_type(dtype).unit, self.independent_errors
        )

    def __repr__(self) -> str:
        return f"Types({self.precision!r})"


class DeclaredTypes(ProgramTypes):
    """Types of another runtime that stores every tensor in its declared type.

    low_precision: whether the runtime also computes and accumulates in the declared type, instead of in float32 (float64
    for doubles).
    """

    def __init__(self, low_precision: bool = False) -> None:
        super().__init__("fp32", other_runtime=True)
        self.precision = "declared"
        self._low_precision = low_precision

    def get_storage_type(self, dtype: Any) -> FloatType:
        """Return the declared type."""
        return _TYPES[dtype_name(np.dtype(dtype))]

    def get_accumulation_type(self, dtype: Any) -> FloatType:
        """Return float32 or float64, or the declared type if `low_precision`."""
        return (
            _TYPES[dtype_name(np.dtype(dtype))]
            if self._low_precision
            else super().get_accumulation_type(np.dtype(dtype))
        )


def _compute_hypot(first: Array, second: Array) -> Array:
    """Return hypot(first, second) faster than np.hypot. If the squares underflow, return the larger magnitude instead."""
    total: Array = np.asarray(np.square(first) + np.square(second))
    if not total.size or not np.max(total) < _MAX_SQUARE:  # this branch also handles infinity and NaN
        return np.asarray(np.hypot(first, second))
    root: Array = np.sqrt(total)
    return root if np.min(root) > _MIN_SQUARE else np.asarray(np.maximum(root, np.maximum(first, second)))


@cache
def _compute_sum_error_factor(n: int, unit: float, independent: bool) -> float:
    likely = independent or unit > 2.0**-20
    factor = min(compute_gamma(n, unit), compute_probabilistic_gamma(n, unit)) if likely else compute_gamma(n, unit)
    return factor + compute_gamma(n, FLOAT64.unit)


def dtype_from_onnx(number: int | str) -> np.dtype[Any]:
    """Return the dtype of an ONNX element type number, or of its name as in Cast of opset 1; object for strings."""
    from onnx import TensorProto

    name = (number if isinstance(number, str) else TensorProto.DataType.Name(number)).lower()
    names = {"float": "float32", "double": "float64", "float8e4m3fn": "float8_e4m3fn", "float8e5m2": "float8_e5m2",
             "float8e4m3fnuz": "float8_e4m3fnuz", "float8e5m2fnuz": "float8_e5m2fnuz", "float4e2m1": "float4_e2m1fn",
             "float8e8m0": "float8_e8m0fnu"}  # fmt: skip
    return np.dtype(object) if name == "string" else get_numpy_dtype(names.get(name, name))
