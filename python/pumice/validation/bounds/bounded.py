"""A value in float64 beside a bound on how far the device may be from it, and the arithmetic of both (running error analysis)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...base.element_types import Array
from .cuts import BLOCK, by_blocks
from .sides import Sides
from .types import FLOAT16, FLOAT32, FloatType, Types, is_float


class Bounded:
    """`value` in float64 (integers and booleans in their own type), and `error` >= 0 in float64, of which None stands for zeros.

    `dtype` is what the model declares. `stored`: the value has been through a tensor of the storage type, or was moved from one, so
    that nothing is rounded where it is stored again. `constant`: it is a constant, or was moved from one, which kernels of products have
    in the storage type, whatever others have. An error of infinity says that nothing is known. `sides`: what else numbers may be that rest
    on a choice which rounding may turn, of which `error` covers all; None where there are none, or where they are not told apart.
    `unrounded`: mask of the sums that no order of additions rounds, so that the device has the value itself unless an operation behind is
    folded into the sum; None where that is not known. `memo`: what has been computed of a constant that several nodes or several views
    read; None where nothing is kept.
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
        """The sizes of the tensor."""
        return self.value.shape

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.value.size

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.value.ndim

    @property
    def is_float(self) -> bool:
        """Whether the model declares the tensor as floats."""
        return is_float(self.dtype)

    @property
    def exact(self) -> bool:
        """Whether all errors are zero."""
        return self.error is None

    def errors(self) -> Array:
        """The errors as an array, which need not be writable."""
        return np.broadcast_to(np.float64(0), self.shape) if self.error is None else self.error

    def once(self, key: str, make: Callable[[], Any]) -> Any:
        """What `make` makes of it, which is kept where it has a memo."""
        if self.memo is None:
            return make()
        if key not in self.memo:
            self.memo[key] = make()
        return self.memo[key]

    def magnitude(self) -> Array:
        """The largest that the device's value may be."""
        with np.errstate(all="ignore"):
            size = np.abs(self.value.astype(np.float64, copy=False))
        return size if self.error is None else size + self.error

    def with_error(self, error: Array | None) -> Bounded:
        """The same value with another error."""
        return Bounded(self.value, error, self.dtype)

    def with_sides(self, sides: Sides | None) -> Bounded:
        """Itself, with what else its numbers may be."""
        self.sides = sides
        return self

    def with_unrounded(self, unrounded: Array | None) -> Bounded:
        """Itself, with where it is exact unless what follows is folded into its sum."""
        self.unrounded = unrounded
        return self

    def unrounded_in(self, kept: FloatType) -> Array | None:
        """Its `unrounded` once it is stored in a type."""
        return None if self.unrounded is None else self.unrounded & (kept.rounded(self.value) == self.value)

    def unfolded(self) -> Bounded:
        """The value for an operator that no kernel folds into a sum."""
        if self.unrounded is None or self.error is None:
            return self
        error = np.where(self.unrounded, 0.0, self.error)
        made = Bounded(self.value, error if error.any() else None, self.dtype, self.stored, self.constant)
        return made.with_sides(self.sides)

    def at(self, actual: Array, spread: float = 1.0) -> Bounded:
        """The side of every choice that is nearest to what the device has, with its own error. spread: how many times errors count."""
        if self.sides is None or actual.shape != self.shape:
            return self
        value, error = self.sides.nearest(actual, self.value, spread)
        mask = self.sides.mask
        made = Bounded(np.where(mask, value, self.value), np.where(mask, error, self.errors()), self.dtype, self.stored)
        made.constant = self.constant
        return made

    def part(self, index: tuple[slice, ...]) -> Bounded:
        """The numbers that an index selects, which are not copied."""
        error = None if self.error is None else np.broadcast_to(self.error, self.value.shape)[index]
        made = Bounded(self.value[index], error, self.dtype, self.stored, self.constant)
        made.unrounded = None if self.unrounded is None else self.unrounded[index]
        return made if self.sides is None else made.with_sides(self.sides.part(index))

    def whole(self) -> Bounded:
        """Itself; other values are made of what is kept of them."""
        return self

    def as_constant(self) -> Bounded:
        """The same, computed before the program runs and stored; with the errors of that, unless it was moved alone."""
        return Bounded(self.value, self.error, self.dtype, True, self.constant).with_sides(self.sides)

    def moved(self, move: Callable[[Array], Array]) -> Bounded:
        """What an operation makes of it that only puts elements elsewhere."""
        error = None if self.error is None else move(self.error)
        made = Bounded(move(self.value), error, self.dtype, self.stored, self.constant)
        made.unrounded = None if self.unrounded is None else move(self.unrounded.astype(np.float64)) == 1
        return made if self.sides is None else made.with_sides(self.sides.moved(move))

    def __repr__(self) -> str:
        worst = 0.0 if self.error is None else float(np.max(self.error, initial=0.0))
        return f"Bounded({self.dtype}{list(self.shape)}, error <= {worst:.3g})"


def _finite(error: Array | None) -> Array | None:
    """Unknown (infinity) where a difference or product of infinities left no number."""
    return error if error is None or not np.isnan(error).any() else np.where(np.isnan(error), np.inf, error)


def _times(error: Array | None, factor: Any) -> Array | None:
    """0 times infinity is 0: an exact zero stays one whatever it is multiplied by."""
    if error is None:
        return None
    with np.errstate(all="ignore"):
        made = error * factor
    return np.where((error == 0) | (np.asarray(factor) == 0), 0.0, made) if np.isnan(made).any() else made


def _is_inexact(x: Bounded) -> bool:
    """Whether no element is exact."""
    return x.error is not None and bool(np.min(x.error, initial=np.inf) > 0)


def _added(total: Array, a: Bounded, second: Array, b: Bounded) -> Array | bool:
    """Where float64 has the exact sum of `a` and `second`, which is b or its negative."""
    if _is_inexact(a) or _is_inexact(b):
        return False
    return np.asarray((total - a.value == second) & (total - second == a.value))


class Arithmetic:
    """Operations of float numbers in an accumulation type A (rule V2): each adds half a unit in the last place of its result."""

    def __init__(self, types: Types, dtype: Any) -> None:
        self.types = types
        self.dtype = np.dtype(dtype)
        self.type: FloatType = types.accumulation(dtype)
        self.unit = self.type.unit * (1 + 2.0**-10) + 2.0**-53  # second order, and the rounding of the reference itself

    def of(self, value: Any, error: Array | None = None) -> Bounded:
        """A number as the kernel has it; constants of the source are rounded to A."""
        return Bounded(np.asarray(value, np.float64), error, self.dtype)

    def constant(self, value: float) -> Bounded:
        """A number of the source of a kernel, which is rounded to float32."""
        held = float(FLOAT32.rounded(value))  # attributes are float32, also of operators on doubles
        return self.of(value, None if held == value else np.asarray(abs(held - value)))

    def rounded(self, value: Array, error: Array | None, units: float = 1.0, lossless: Array | bool = False) -> Bounded:
        """The value after a rounding to A; `units` in halves of the last place. lossless: whether the float64 value is the exact result."""
        with np.errstate(all="ignore"):
            size = np.abs(value) if error is None else np.abs(value) + error
            own = size * (self.unit * units) + self.type.step
            is_inexact = units > 1.0 or (error is not None and bool(np.min(error, initial=1.0) > 0))
            if (
                is_inexact and size.size and size.min() >= self.type.normal and own.max() < np.inf
            ):  # not so where a number is NaN
                return self.of(value, self.types.joined(error, own))
            own = np.where(size < self.type.normal, size + self.type.step, own)  # may be flushed
            own = np.where((value == 0) & (np.asarray(0.0 if error is None else error) == 0), 0.0, own)
            own = np.where(np.isfinite(value), own, 0.0)
            if units <= 1.0:  # sums and products of exact numbers that are integers are exact, in any order
                is_exact = (value == np.rint(value)) & (np.abs(value) <= 1 / self.type.unit)
                if (
                    self.type.name != "float64" and self.types.trusts_exact and np.any(lossless)
                ):  # A has the result, so that no rounding moves it
                    is_exact |= (self.type.rounded(value) == value) & (size >= self.type.normal) & lossless
                own = np.where(is_exact & (np.asarray(0.0 if error is None else error) == 0), 0.0, own)
        total = self.types.joined(error, own)
        return self.of(value, _finite(total) if total is not None and total.any() else None)

    def add(self, a: Bounded, b: Bounded) -> Bounded:
        """The sum, rounded once."""
        with np.errstate(all="ignore"):
            total = a.value + b.value
            made = self.rounded(total, self.types.joined(a.error, b.error), 1.0, _added(total, a, b.value, b))
        return _absorbed(made, a, b) if self.types.absorbs else made

    def sub(self, a: Bounded, b: Bounded) -> Bounded:
        """The difference, rounded once."""
        with np.errstate(all="ignore"):
            total = a.value - b.value
            return self.rounded(total, self.types.joined(a.error, b.error), 1.0, _added(total, a, -b.value, b))

    def mul(self, a: Bounded, b: Bounded) -> Bounded:
        """The product, rounded once."""
        with np.errstate(all="ignore"):
            error = self.types.joined(_times(a.error, b.magnitude()), _times(b.error, np.abs(a.value)))
            if error is not None and (np.isinf(a.value).any() or np.isinf(b.value).any()):
                error = np.where(self._infinite(a, b) | self._infinite(b, a), 0.0, error)
            return self.rounded(a.value * b.value, error, 1.0, lossless=not (_is_inexact(a) or _is_inexact(b)))

    def div(self, a: Bounded, b: Bounded) -> Bounded:
        """The quotient, within one unit in the last place in float32."""
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
        """Where a is infinite for certain, and b is a number that is not 0 and whose sign is certain."""
        sure = np.isinf(a.value) & (a.errors() == 0) & np.isfinite(b.value)
        return np.asarray(sure & (np.abs(b.value) > self.types.reach(b.errors())))

    def neg(self, a: Bounded) -> Bounded:
        """The negative, exactly."""
        return self.of(-a.value, a.error)

    def abs(self, a: Bounded) -> Bounded:
        """The magnitude, exactly."""
        return self.of(np.abs(a.value), a.error)

    def scaled(self, a: Bounded, factor: float) -> Bounded:
        """The value times a power of two, exactly."""
        return self.of(a.value * factor, None if a.error is None else a.error * abs(factor))

    def maximum(self, a: Bounded, b: Bounded) -> Bounded:
        """The larger of both, exactly."""
        return self._chosen(np.maximum, a, b)

    def minimum(self, a: Bounded, b: Bounded) -> Bounded:
        """The smaller of both, exactly."""
        return self._chosen(np.minimum, a, b)

    def _chosen(self, choose: Any, a: Bounded, b: Bounded) -> Bounded:
        """Either, whichever it is: both move by no more than their own errors."""
        value = choose(a.value, b.value)
        if a.error is None and b.error is None:
            return self.of(value)
        with np.errstate(all="ignore"):  # as far as either may be off, for what is 0 nearby is not 0 farther away
            reach_a, reach_b = self.types.reach(a.errors()), self.types.reach(b.errors())
            low, high = choose(a.value - reach_a, b.value - reach_b), choose(a.value + reach_a, b.value + reach_b)
            error = self.types.share(np.maximum(np.abs(high - value), np.abs(value - low)))
        return self.of(value, np.where(np.isnan(error) & (a.errors() == b.errors()), 0.0, error))

    def select(self, mask: Bounded, a: Bounded, b: Bounded) -> Bounded:
        """a where the mask is true; either where that is undecided."""
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
    """A sum, but the lowest half where either operand is that."""
    lowest = -FLOAT16.largest
    takes = np.broadcast_to((a.value == lowest) | (b.value == lowest), total.shape)
    if not takes.any():
        return total
    error = None if total.error is None else np.where(takes, 0.0, total.error)
    return Bounded(np.where(takes, lowest, total.value), error, total.dtype)


def stored(result: Bounded, types: Types) -> Bounded:
    """After the one rounding with which a kernel stores (V1); exact results that the type holds stay exact."""
    if not result.is_float:
        return result
    kept = types.storage(result.dtype)
    if types.overflows and str(result.dtype) != "float64":
        result = replace_beyond(result, FLOAT32.largest, np.inf)
    with np.errstate(all="ignore"):
        # A tensor that was moved is rounded only where it lay in a wider type.
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
    """A stored value after one more rounding, to a type that is narrower than that of the program."""

    def round_once(one: Array, error: Array | None) -> Array | None:
        with np.errstate(all="ignore"):  # infinity stays what it is
            return rounding(Bounded(one, error, value.dtype), kept, types)

    made = Bounded(value.value, round_once(value.value, value.error), value.dtype, True, value.constant)
    made.unrounded = value.unrounded_in(kept)
    return made if value.sides is None else made.with_sides(value.sides.stored(round_once, kept))


def replace_beyond(given: Bounded, largest: float, replacement: float) -> Bounded:
    """Return the value with a number of the same sign in place of each finite one that is larger than `largest`."""
    beyond = np.isfinite(given.value) & (np.abs(given.value) > largest)
    if not beyond.any():
        return given
    value = np.where(beyond, np.copysign(replacement, given.value), given.value)
    error = None if given.error is None else np.where(beyond, 0.0, given.error)
    return Bounded(value, error, given.dtype, given.stored, given.constant).with_sides(given.sides)


def apart(value: Array, kept: FloatType) -> Array | None:
    """How far numbers are from the nearest ones of the type; None where all of them are of it."""
    if kept.unit <= 2.0**-53:
        return None
    return (
        _apart(value, kept) if value.size <= BLOCK else by_blocks(value.shape, lambda index: _apart(value[index], kept))
    )


def _apart(value: Array, kept: FloatType) -> Array | None:
    own = kept.apart(value)
    return own if own.any() else None


def rounding(result: Bounded, kept: FloatType, types: Types) -> Array | None:
    """The error of a value once it is rounded to a type."""
    if result.size <= BLOCK:
        return _rounding(result, kept, types)
    return by_blocks(result.shape, lambda index: _rounding(result.part(index), kept, types))


def _rounding(result: Bounded, kept: FloatType, types: Types) -> Array | None:
    size = np.abs(result.value)
    if result.error is not None and result.size and np.min(result.error) > 0:
        own = (size + result.error) * kept.unit + kept.step
        if np.max(own) < np.inf:  # not so where a number is NaN
            return types.joined(result.error, own)
    exact = np.abs(kept.rounded(result.value) - result.value)
    exact = np.where(size < kept.normal, np.maximum(exact, size if kept.name != "float16" else exact), exact)
    exact = np.where(np.isfinite(exact), exact, 0.0)  # infinity, and overflow, which is looked for elsewhere
    if result.error is None:
        return exact if exact.any() else None
    own = (size + result.error) * kept.unit + kept.step
    own = np.where(result.error == 0, exact, np.where(np.isfinite(own), own, 0.0))
    return types.joined(result.error, own)
