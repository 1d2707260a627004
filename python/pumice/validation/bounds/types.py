"""What element types can hold, and how far sums of rounded numbers are from exact ones (Higham, Accuracy and Stability, ch. 3)."""

from __future__ import annotations

import math
from copy import copy
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ...base.element_types import Array, numpy_dtype

_PRECISIONS = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
HALVES = ("float16", "bfloat16")
MOST_OF_FACTORS = (
    36  # roundings of both factors of products in float32 that are sums of two halves, and of what these leave out
)


class FloatType(NamedTuple):
    """A type of floats: the unit roundoff, the smallest normal number, the step below it, and the largest finite number."""

    name: str
    unit: float
    normal: float
    step: float
    largest: float

    @property
    def is_half(self) -> bool:
        """Whether it has 16 bits."""
        return self.name in HALVES

    def rounded(self, value: Any) -> Array:
        """To the nearest number of the type, as float64."""
        if self.name == "float64":
            return np.asarray(value)
        with np.errstate(all="ignore"):
            return np.asarray(value).astype(numpy_dtype(self.name)).astype(np.float64)

    def held(self, value: Any) -> Array:
        """Constants as kernels have them in the type: bfloat16's limit for those beyond it. Those beyond float16 are kept in float32."""
        exact = np.asarray(value, np.float64)
        rounded = self.rounded(exact)
        beyond = np.isinf(rounded) & np.isfinite(exact)
        if not beyond.any():
            return rounded
        return np.where(beyond, np.copysign(self.largest, exact) if self.name == "bfloat16" else exact, rounded)

    def apart(self, value: Any) -> Array:
        """How far constants are from what kernels have of them; 0 for infinity and NaN."""
        with np.errstate(all="ignore"):
            own = np.abs(self.held(value) - np.asarray(value, np.float64))
        return np.where(np.isfinite(own), own, 0.0)


FLOAT64 = FloatType("float64", 2.0**-53, 2.0**-1022, 2.0**-1074, float(np.finfo(np.float64).max))
FLOAT32 = FloatType("float32", 2.0**-24, 2.0**-126, 2.0**-149, float(np.finfo(np.float32).max))
FLOAT16 = FloatType("float16", 2.0**-11, 2.0**-14, 2.0**-24, 65504.0)
BFLOAT16 = FloatType("bfloat16", 2.0**-8, 2.0**-126, 2.0**-133, (2 - 2.0**-7) * 2.0**127)
_TYPES = {one.name: one for one in (FLOAT64, FLOAT32, FLOAT16, BFLOAT16)}


_SMALL, _LARGE = 1e-140, 1e300  # of a root from the first on and of squares up to the second nothing is lost

SPREAD = 4.0  # a rounding is at most 1.73 times its deviation: this many times are 6.9 deviations


def gamma(n: float, unit: float) -> float:
    """The worst case of n roundings on top of one another, relative; infinity where they may leave nothing."""
    return n * unit / (1 - n * unit) if n * unit < 1 else math.inf


def gamma6(n: float, unit: float) -> float:
    """The same with a probability of 6 sigma (Higham and Mary 2019), for roundings that are independent of one another."""
    exponent = 6 * math.sqrt(n) * unit + n * unit * unit / (1 - unit)
    return math.expm1(exponent) if exponent < 700 else math.inf


def float_type(name: str) -> FloatType:
    """The FloatType of an element type's name. Raises KeyError for what are no such floats."""
    return _TYPES[name]


# NumPy composes the name of an element type anew each time, and a validation asks for it some hundred times a node.
@cache
def name_of(dtype: Any) -> str:
    """Return the name of an element type; objects stand for strings."""
    name = str(dtype)
    return "string" if name == "object" else name


@cache
def is_float(dtype: Any) -> bool:
    """Whether it is a type of floats of 16 bits or more."""
    return str(dtype) in _TYPES


class Types:
    """The types in which a program at some precision stores and accumulates what a model declares as floats.

    Tensors of double are doubles at every precision. Other floats are stored at the program's precision and summed in float32; a
    tensor that the file declares as a half is read back as one, also where the program keeps it in float32.

    independent: errors are added as those of independent roundings are, which is for chains of many nodes, where the worst case of all
    roundings at once says nothing. Such an error has to be taken `SPREAD` times.
    foreign: another runtime than the engine computes, whose functions and formulas may be any of the usual ones. sums: the precision in
    which it accumulates.
    """

    def __init__(
        self, precision: str = "fp32", independent: bool = False, foreign: bool = False, sums: str = "fp32"
    ) -> None:
        self.precision = precision
        self.independent = independent
        self.foreign = foreign
        self._stored = self._program = _TYPES[_PRECISIONS[precision]]
        self._summed = _TYPES[_PRECISIONS[sums]]
        self.constants = "either"  # exact or rounded
        self.values_only = False
        self.wide = False  # the node at hand has a constant beyond float16: all of its constants are kept in float32
        self.overflows = False  # float32 numbers that the type does not hold are infinite, as in ONNX
        self.absorbs = (
            False  # the lowest half, as which masks of lower numbers are stored, takes up what is added to it
        )
        self.erf_by_cdf = False  # a kernel may compute erf as the normal distribution: a Gelu written with Erf
        self.trusts_exact = (
            not foreign
        )  # no rounding moves a result that the type holds: so kernels compute, but maybe not what was stored
        self.additions = 0  # of the longest chain in the sums of the node at hand, where its kernel tells; 0: as many as there are terms

    def as_independent(self) -> Types:
        """Types with which errors of different origin are added as independent ones: the root of the sum of their squares."""
        made = copy(self)
        made.independent = True
        return made

    def for_values(self) -> Types:
        """The same types for what nobody asks the errors of: sums leave them out, which take as long as the values."""
        made = copy(self)
        made.values_only = True
        return made

    def with_overflow(self) -> Types:
        """Return the same types for programs in which results beyond float32 are infinite before the next operation reads them."""
        made = copy(self)
        made.overflows = True
        return made

    def with_masks(self) -> Types:
        """Return the same types for sums of scores and masks in attention, where the lowest half absorbs what it is added to."""
        made = copy(self)
        made.absorbs = self.is_float16
        return made

    def of_stored(self) -> Types:
        """Return the same types for results that are stored beside a model, of which it is not known how they were computed."""
        made = copy(self)
        made.trusts_exact = False
        return made

    def with_erf_by_cdf(self) -> Types:
        """Return the same types for kernels that may compute erf as the normal distribution."""
        made = copy(self)
        made.erf_by_cdf = True
        return made

    def with_additions(self, most: int) -> Types:
        """The same types for a node in whose kernel no term goes through more roundings than so many (V4)."""
        if most <= 0:
            return self
        made = copy(self)
        made.additions = most
        return made

    @property
    def is_float16(self) -> bool:
        """Whether the program stores in float16, also where a kernel hands on numbers of float32."""
        return self._program is FLOAT16

    def with_wide(self) -> Types:
        """The same types for a node that a constant beyond float16 makes compute in float32."""
        made = copy(self)
        made.wide = True
        return made

    def longest(self, terms: int) -> int:
        """The roundings that a term of a sum of so many goes through: those of its own product and of the additions behind it.

        A kernel that tells of more additions than there are terms adds zeros, which loses nothing, or rounds factors beforehand: so many
        more count at most.
        """
        return min(self.additions, terms + MOST_OF_FACTORS) if self.additions else terms

    def within_kernel(self, constants: str) -> Types:
        """Types of what a kernel hands on to its own next operation: numbers of float32, which are not rounded to storage.

        constants: what the kernel reads of them: "exact", float32; "rounded", the storage type; "scaled", products with other constants,
        which are rounded to the storage type.
        """
        made = copy(self)
        made._stored = FLOAT32
        made.constants = constants
        return made

    def at(self, precision: str) -> Types:
        """The types of a node that computes at another precision."""
        if precision == self.precision:
            return self
        made = copy(self)
        made.precision = precision
        made._stored = made._program = _TYPES[_PRECISIONS[precision]]
        return made

    def joined(self, *errors: Array | None) -> Array | None:
        """What errors come to together; of which some are zero (None)."""
        given = [one for one in errors if one is not None]
        if len(given) < 2:
            return given[0] if given else None
        with np.errstate(all="ignore"):
            total: Array = given[0]
            for one in given[1:]:
                total = _root_of_squares(total, one) if self.independent else total + one
        return total

    def reach(self, error: Array) -> Array:
        """How far a value may be off at most, by which choices are undecided or not."""
        return error * SPREAD if self.independent else error

    def share(self, reached: Array) -> Array:
        """The error whose reach that is: of what is no line within its argument's reach, so that less of it would say too little."""
        return reached / SPREAD if self.independent else reached

    def storage(self, dtype: Any) -> FloatType:
        """The type in which the program keeps tensors that the model declares so."""
        return FLOAT64 if name_of(dtype) == "float64" else self._stored

    def constant(self, dtype: Any) -> FloatType:
        """The type to which constants that the model declares so are rounded, if they are."""
        kept = self._stored if self.constants == "exact" else self._program
        return FLOAT64 if name_of(dtype) == "float64" else kept

    def read_back(self, dtype: Any) -> FloatType:
        """The type in which a result of that declared type reaches the host."""
        return _TYPES[name_of(dtype)]

    def accumulation(self, dtype: Any) -> FloatType:
        """The type in which kernels compute and sum such numbers."""
        return FLOAT64 if name_of(dtype) == "float64" else self._summed

    def brief(self, dtype: Any) -> bool:
        """Whether the engine may take its shorter elementary functions, which are for results of 16 bits (PM_BRIEF in math.glsl)."""
        return name_of(dtype) in HALVES or (self._program.is_half and name_of(dtype) != "float64")

    def sum_factor(self, n: int, dtype: Any) -> float:
        """The relative error of a sum of n products, in parts of the sum of their magnitudes. With it that of the reference itself."""
        return _sum_factor(max(int(n), 1), self.accumulation(dtype).unit, self.independent)

    def __repr__(self) -> str:
        return f"Types({self.precision!r})"


class DeclaredTypes(Types):
    """The types of another runtime that stores every tensor as the model declares it.

    narrow: it also computes and sums in the declared type; else in float32, and doubles in double.
    """

    def __init__(self, narrow: bool = False) -> None:
        super().__init__("fp32", foreign=True)
        self.precision = "declared"
        self._narrow = narrow

    def storage(self, dtype: Any) -> FloatType:
        """The declared type."""
        return _TYPES[name_of(np.dtype(dtype))]

    def accumulation(self, dtype: Any) -> FloatType:
        """Float32 at least, unless sums are in the declared type."""
        return _TYPES[name_of(np.dtype(dtype))] if self._narrow else super().accumulation(np.dtype(dtype))


def _root_of_squares(first: Array, second: Array) -> Array:
    """As np.hypot, which takes several times as long, does; of errors whose squares are lost at least the larger one."""
    total: Array = np.asarray(np.square(first) + np.square(second))
    if not total.size or not np.max(total) < _LARGE:  # not so where one is infinite or NaN
        return np.asarray(np.hypot(first, second))
    root: Array = np.sqrt(total)
    return root if np.min(root) > _SMALL else np.asarray(np.maximum(root, np.maximum(first, second)))


@cache
def _sum_factor(n: int, unit: float, independent: bool) -> float:
    likely = independent or unit > 2.0**-20
    factor = min(gamma(n, unit), gamma6(n, unit)) if likely else gamma(n, unit)
    return factor + gamma(n, FLOAT64.unit)
