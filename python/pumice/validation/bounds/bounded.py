"""A float64 value with an error bound, and arithmetic on such pairs (running error analysis)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...base.element_types import Array
from .block_ranges import BLOCK, by_blocks
from .alternatives import Sides
from .float_types import FLOAT16, FLOAT32, FloatType, Types, is_float


class Bounded:
    """A tensor with per-element error bounds.

    value: float64; integers and booleans keep their type. error: float64, >= 0; None for zeros, infinity for unknown.
    dtype: the declared type.
    stored: the value comes from a tensor of the storage type, so storing it again rounds nothing.
    constant: a constant, or moved from one. GEMM kernels read it in the storage type; other kernels may not.
    sides: alternative values of elements that depend on an undecided choice; `error` covers them all. None if there are
    none or they are not tracked.
    unrounded: mask of sums that are exact in any order of additions, unless a following operation is folded into the
    sum; None if unknown.
    memo: cached results for a constant that several nodes or views read; None without caching.
    """

    __slots__ = ("constant", "dtype", "error", "memo", "sides", "stored", "unrounded", "value")

    def __init__(
        self, value: Any, error: Array | None = None, dtype: Any = None, stored: bool = False, constant: bool = False
    ) -> None:
        array: Array = np.asarray(value)
        self.dtype = np.dtype(array.dtype if dtype is None else dtype)
        self.value: Array = array.astype(np.float64) if is_float(self.dtype) and array.dtype != np.float64 else array
        self.error = error
        self.stored = stored
        self.constant = constant
        self.sides: Sides | None = None
        self.unrounded: Array | None = None
        self.memo: dict[str, Any] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.value.shape

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.value.size

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.value.ndim

    @property
    def is_float(self) -> bool:
        """Whether the declared type is a float."""
        return is_float(self.dtype)

    @property
    def exact(self) -> bool:
        """Whether all errors are zero."""
        return self.error is None

    def errors(self) -> Array:
        """Return the errors as an array, possibly read-only."""
        return np.broadcast_to(np.float64(0), self.shape) if self.error is None else self.error

    def once(self, key: str, make: Callable[[], Any]) -> Any:
        """Return `make()`, cached under `key` if the value has a memo."""
        if self.memo is None:
            return make()
        if key not in self.memo:
            self.memo[key] = make()
        return self.memo[key]

    def magnitude(self) -> Array:
        """Return the largest magnitude that the device's value may have."""
        with np.errstate(all="ignore"):
            size = np.abs(self.value.astype(np.float64, copy=False))
        return size if self.error is None else size + self.error

    def with_error(self, error: Array | None) -> Bounded:
        """Return the same value with another error."""
        return Bounded(self.value, error, self.dtype)

    def with_sides(self, sides: Sides | None) -> Bounded:
        """Set the alternative values and return self."""
        self.sides = sides
        return self

    def with_unrounded(self, unrounded: Array | None) -> Bounded:
        """Set the mask of exact sums and return self."""
        self.unrounded = unrounded
        return self

    def unrounded_in(self, kept: FloatType) -> Array | None:
        """Return the mask of sums that are still exact after they are stored in a type."""
        return None if self.unrounded is None else self.unrounded & (kept.rounded(self.value) == self.value)

    def unfolded(self) -> Bounded:
        """Return the value for an operator that no kernel folds into a sum."""
        if self.unrounded is None or self.error is None:
            return self
        error = np.where(self.unrounded, 0.0, self.error)
        made = Bounded(self.value, error if error.any() else None, self.dtype, self.stored, self.constant)
        return made.with_sides(self.sides)

    def at(self, actual: Array, spread: float = 1.0) -> Bounded:
        """Return the alternative of every choice nearest to the device's value, with its own error. spread: factor on
        the errors.
        """
        if self.sides is None or actual.shape != self.shape:
            return self
        value, error = self.sides.nearest(actual, self.value, spread)
        mask = self.sides.mask
        made = Bounded(np.where(mask, value, self.value), np.where(mask, error, self.errors()), self.dtype, self.stored)
        made.constant = self.constant
        return made

    def part(self, index: tuple[slice, ...]) -> Bounded:
        """Return a view of the elements that the index selects."""
        error = None if self.error is None else np.broadcast_to(self.error, self.value.shape)[index]
        made = Bounded(self.value[index], error, self.dtype, self.stored, self.constant)
        made.unrounded = None if self.unrounded is None else self.unrounded[index]
        return made if self.sides is None else made.with_sides(self.sides.part(index))

    def whole(self) -> Bounded:
        """Return self; other kinds of values assemble their blocks."""
        return self

    def as_constant(self) -> Bounded:
        """Return the value as computed and stored before the program runs, keeping its errors."""
        return Bounded(self.value, self.error, self.dtype, True, self.constant).with_sides(self.sides)

    def moved(self, move: Callable[[Array], Array]) -> Bounded:
        """Apply an operation that only moves elements."""
        error = None if self.error is None else move(self.error)
        made = Bounded(move(self.value), error, self.dtype, self.stored, self.constant)
        made.unrounded = None if self.unrounded is None else move(self.unrounded.astype(np.float64)) == 1
        return made if self.sides is None else made.with_sides(self.sides.moved(move))

    def __repr__(self) -> str:
        worst = 0.0 if self.error is None else float(np.max(self.error, initial=0.0))
        return f"Bounded({self.dtype}{list(self.shape)}, error <= {worst:.3g})"


def _finite(error: Array | None) -> Array | None:
    """Replace NaN errors (from infinity - infinity or 0 * infinity) with infinity."""
    return error if error is None or not np.isnan(error).any() else np.where(np.isnan(error), np.inf, error)


def _times(error: Array | None, factor: Any) -> Array | None:
    """Return error * factor with 0 * infinity = 0, because an exact zero stays exact."""
    if error is None:
        return None
    with np.errstate(all="ignore"):
        made = error * factor
    return np.where((error == 0) | (np.asarray(factor) == 0), 0.0, made) if np.isnan(made).any() else made


def _is_inexact(x: Bounded) -> bool:
    """Whether no element is exact."""
    return x.error is not None and bool(np.min(x.error, initial=np.inf) > 0)


def _added(total: Array, a: Bounded, second: Array, b: Bounded) -> Array | bool:
    """Return a mask of exact float64 sums a.value + second. second: b's value or its negative."""
    if _is_inexact(a) or _is_inexact(b):
        return False
    return np.asarray((total - a.value == second) & (total - second == a.value))


class Arithmetic:
    """Float arithmetic in an accumulation type A (rule V2): every operation adds half an ulp of its result."""

    def __init__(self, types: Types, dtype: Any) -> None:
        self.types = types
        self.dtype = np.dtype(dtype)
        self.type: FloatType = types.accumulation(dtype)
        # Adds second-order terms and the reference's own rounding.
        self.unit = self.type.unit * (1 + 2.0**-10) + 2.0**-53

    def of(self, value: Any, error: Array | None = None) -> Bounded:
        """Wrap a value in A; does not round it."""
        return Bounded(np.asarray(value, np.float64), error, self.dtype)

    def constant(self, value: float) -> Bounded:
        """Return a constant of the kernel source, rounded to float32."""
        held = float(FLOAT32.rounded(value))  # attributes are float32, even for float64 operators
        return self.of(value, None if held == value else np.asarray(abs(held - value)))

    def rounded(self, value: Array, error: Array | None, units: float = 1.0, lossless: Array | bool = False) -> Bounded:
        """Round a value to A. units: error in half ulps. lossless: whether the float64 value is exact."""
        with np.errstate(all="ignore"):
            size = np.abs(value) if error is None else np.abs(value) + error
            own = size * (self.unit * units) + self.type.step
            is_inexact = units > 1.0 or (error is not None and bool(np.min(error, initial=1.0) > 0))
            # False if any value is NaN.
            if is_inexact and size.size and size.min() >= self.type.normal and own.max() < np.inf:
                return self.of(value, self.types.joined(error, own))
            own = np.where(size < self.type.normal, size + self.type.step, own)  # subnormals may be flushed to zero
            own = np.where((value == 0) & (np.asarray(0.0 if error is None else error) == 0), 0.0, own)
            own = np.where(np.isfinite(value), own, 0.0)
            if units <= 1.0:  # sums and products of exact integers are exact in any order
                is_exact = (value == np.rint(value)) & (np.abs(value) <= 1 / self.type.unit)
                # A can represent the result, so rounding does not change it.
                if self.type.name != "float64" and self.types.trusts_exact and np.any(lossless):
                    is_exact |= (self.type.rounded(value) == value) & (size >= self.type.normal) & lossless
                own = np.where(is_exact & (np.asarray(0.0 if error is None else error) == 0), 0.0, own)
        total = self.types.joined(error, own)
        return self.of(value, _finite(total) if total is not None and total.any() else None)

    def add(self, a: Bounded, b: Bounded) -> Bounded:
        """Return the sum, rounded once."""
        with np.errstate(all="ignore"):
            total = a.value + b.value
            made = self.rounded(total, self.types.joined(a.error, b.error), 1.0, _added(total, a, b.value, b))
        return _absorbed(made, a, b) if self.types.absorbs else made

    def sub(self, a: Bounded, b: Bounded) -> Bounded:
        """Return the difference, rounded once."""
        with np.errstate(all="ignore"):
            total = a.value - b.value
            return self.rounded(total, self.types.joined(a.error, b.error), 1.0, _added(total, a, -b.value, b))

    def mul(self, a: Bounded, b: Bounded) -> Bounded:
        """Return the product, rounded once."""
        with np.errstate(all="ignore"):
            error = self.types.joined(_times(a.error, b.magnitude()), _times(b.error, np.abs(a.value)))
            if error is not None and (np.isinf(a.value).any() or np.isinf(b.value).any()):
                error = np.where(self._infinite(a, b) | self._infinite(b, a), 0.0, error)
            return self.rounded(a.value * b.value, error, 1.0, lossless=not (_is_inexact(a) or _is_inexact(b)))

    def div(self, a: Bounded, b: Bounded) -> Bounded:
        """Return the quotient, within one ulp in float32."""
        with np.errstate(all="ignore"):
            value = a.value / b.value
            error = None
            if a.error is not None or b.error is not None:
                least = np.abs(b.value) - b.errors()
                both = self.types.joined(a.errors(), np.abs(value) * b.errors())
                error = np.asarray(both) / np.where(least > 0, least, 0.0)
                error = np.where((a.errors() == 0) & (b.errors() == 0) | self._infinite(a, b), 0.0, error)
            return self.rounded(value, error, 2.0 if self.type.name == "float32" else 4.0)

    def _infinite(self, a: Bounded, b: Bounded) -> Array:
        """Return a mask: a is certainly infinite, and b is finite, nonzero and of known sign."""
        sure = np.isinf(a.value) & (a.errors() == 0) & np.isfinite(b.value)
        return np.asarray(sure & (np.abs(b.value) > self.types.reach(b.errors())))

    def neg(self, a: Bounded) -> Bounded:
        """Return the negative; exact."""
        return self.of(-a.value, a.error)

    def abs(self, a: Bounded) -> Bounded:
        """Return the magnitude; exact."""
        return self.of(np.abs(a.value), a.error)

    def scaled(self, a: Bounded, factor: float) -> Bounded:
        """Multiply by a power of two; exact."""
        return self.of(a.value * factor, None if a.error is None else a.error * abs(factor))

    def maximum(self, a: Bounded, b: Bounded) -> Bounded:
        """Return the larger value; exact."""
        return self._chosen(np.maximum, a, b)

    def minimum(self, a: Bounded, b: Bounded) -> Bounded:
        """Return the smaller value; exact."""
        return self._chosen(np.minimum, a, b)

    def _chosen(self, choose: Any, a: Bounded, b: Bounded) -> Bounded:
        """Return the minimum or maximum; the error of the result is at most that of either operand."""
        value = choose(a.value, b.value)
        if a.error is None and b.error is None:
            return self.of(value)
        # Use the full reach of each operand: an error that is zero near the value may be nonzero farther away.
        with np.errstate(all="ignore"):
            reach_a, reach_b = self.types.reach(a.errors()), self.types.reach(b.errors())
            low, high = choose(a.value - reach_a, b.value - reach_b), choose(a.value + reach_a, b.value + reach_b)
            error = self.types.share(np.maximum(np.abs(high - value), np.abs(value - low)))
        return self.of(value, np.where(np.isnan(error) & (a.errors() == b.errors()), 0.0, error))

    def select(self, mask: Bounded, a: Bounded, b: Bounded) -> Bounded:
        """Return a where the mask is true, else b. If the mask is undecided, the error covers both."""
        value = np.where(mask.value, a.value, b.value)
        error: Array | None = None
        if a.error is not None or b.error is not None:
            error = np.where(mask.value, a.errors(), b.errors())
        if mask.error is None:
            return self.of(value, error)
        with np.errstate(all="ignore"):
            either = np.abs(a.value - b.value) + np.maximum(a.errors(), b.errors())
        either = np.where((a.value == b.value) & np.isnan(either), np.maximum(a.errors(), b.errors()), either)
        error = np.where(mask.error > 0, either, 0.0 if error is None else error)
        return self.of(value, error)


def _absorbed(total: Bounded, a: Bounded, b: Bounded) -> Bounded:
    """Replace the sum with float16's lowest value if either operand has that value."""
    lowest = -FLOAT16.largest
    takes = np.broadcast_to((a.value == lowest) | (b.value == lowest), total.shape)
    if not takes.any():
        return total
    error = None if total.error is None else np.where(takes, 0.0, total.error)
    return Bounded(np.where(takes, lowest, total.value), error, total.dtype)


def stored(result: Bounded, types: Types) -> Bounded:
    """Round once, as a kernel does when it stores (V1). Representable exact results stay exact."""
    if not result.is_float:
        return result
    kept = types.storage(result.dtype)
    if types.overflows and str(result.dtype) != "float64":
        result = replace_beyond(result, FLOAT32.largest, np.inf)
    with np.errstate(all="ignore"):
        # A moved tensor is rounded only if it came from a wider type.
        moved = result.stored
        error = types.joined(result.error, apart(result.value, kept)) if moved else rounding(result, kept, types)
    made = Bounded(result.value, error, result.dtype, True, result.constant)
    made.unrounded = result.unrounded_in(kept)
    if result.sides is None:
        return made

    def store(value: Array, error: Array) -> Array:
        return np.asarray(stored(Bounded(value, error, result.dtype, moved), types).errors())

    return made.with_sides(result.sides.stored(store, kept))


def rounded_to(value: Bounded, kept: FloatType, types: Types) -> Bounded:
    """Round a stored value again, to a type narrower than the program's."""

    def round_once(one: Array, error: Array | None) -> Array | None:
        with np.errstate(all="ignore"):  # infinity stays infinite
            return rounding(Bounded(one, error, value.dtype), kept, types)

    made = Bounded(value.value, round_once(value.value, value.error), value.dtype, True, value.constant)
    made.unrounded = value.unrounded_in(kept)
    return made if value.sides is None else made.with_sides(value.sides.stored(round_once, kept))


def replace_beyond(given: Bounded, largest: float, replacement: float) -> Bounded:
    """Replace finite values above `largest` in magnitude with `replacement`, keeping the sign."""
    beyond = np.isfinite(given.value) & (np.abs(given.value) > largest)
    if not beyond.any():
        return given
    value = np.where(beyond, np.copysign(replacement, given.value), given.value)
    error = None if given.error is None else np.where(beyond, 0.0, given.error)
    return Bounded(value, error, given.dtype, given.stored, given.constant).with_sides(given.sides)


def apart(value: Array, kept: FloatType) -> Array | None:
    """Return the distance to the nearest number of the type; None if all are representable."""
    if kept.unit <= 2.0**-53:
        return None
    return (
        _apart(value, kept) if value.size <= BLOCK else by_blocks(value.shape, lambda index: _apart(value[index], kept))
    )


def _apart(value: Array, kept: FloatType) -> Array | None:
    own = kept.apart(value)
    return own if own.any() else None


def rounding(result: Bounded, kept: FloatType, types: Types) -> Array | None:
    """Return the error of a value after rounding it to a type."""
    if result.size <= BLOCK:
        return _rounding(result, kept, types)
    return by_blocks(result.shape, lambda index: _rounding(result.part(index), kept, types))


def _rounding(result: Bounded, kept: FloatType, types: Types) -> Array | None:
    size = np.abs(result.value)
    if result.error is not None and result.size and np.min(result.error) > 0:
        own = (size + result.error) * kept.unit + kept.step
        if np.max(own) < np.inf:  # false if any value is NaN
            return types.joined(result.error, own)
    exact = np.abs(kept.rounded(result.value) - result.value)
    exact = np.where(size < kept.normal, np.maximum(exact, size if kept.name != "float16" else exact), exact)
    exact = np.where(np.isfinite(exact), exact, 0.0)  # infinity and overflow are checked elsewhere
    if result.error is None:
        return exact if exact.any() else None
    own = (size + result.error) * kept.unit + kept.step
    own = np.where(result.error == 0, exact, np.where(np.isfinite(own), own, 0.0))
    return types.joined(result.error, own)
