"""Compares a device tensor with the reference's interval: error over bound, per element."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..base.element_types import Array
from .bounds.lazy_values import pairs
from .bounds.bounded import Bounded
from .bounds.block_ranges import BLOCK, blocks
from .bounds.choice_groups import OneSided
from .bounds.alternatives import as_options
from .bounds.float_types import SPREAD, Types, is_float
from .tensor_statistics import ratio_counts, ratios_counted

RIGHT, WRONG, UNPROVED, ILL = "right", "wrong", "unproved", "ill-conditioned"


class Deviation(NamedTuple):
    """Deviation of a tensor from the reference, at the wrong element with the largest error, or else at the element
    nearest to its bound.

    error, allowed: absolute error and bound of that element. undecided: number of elements that depend on a choice that
    rounding may change; every alternative is right. unknown: number without a bound. kind: an error other than a wrong
    number: "NaN made", "infinity made", "wrong shape or dtype", "wrong index", "wrong sign of zero". ratios: histogram
    of error over bound, in the bins of `statistics`. nans, infinities: number of such elements for which the reference
    is finite, with or without a bound; infinities from rounding to storage do not count.
    """

    error: float
    allowed: float
    at: tuple[int, ...]
    actual: Any
    expected: Any
    elements: int = 0
    undecided: int = 0
    unknown: int = 0
    kind: str = ""
    ratios: tuple[int, ...] = ()
    nans: int = 0
    infinities: int = 0

    @property
    def not_finite(self) -> int:
        """Number of NaN or infinite elements for which the reference is finite."""
        return self.nans + self.infinities

    @property
    def ok(self) -> bool:
        """Whether no element exceeds its bound."""
        return not self.kind and self.error <= self.allowed

    @property
    def severity(self) -> float:
        """Error over bound; above 1 is wrong."""
        if self.kind:
            return math.inf
        if self.allowed > 0:
            return self.error / self.allowed
        return math.inf if self.error > 0 else 0.0

    @property
    def verdict(self) -> str:
        """ "right", "wrong", or "unproved" if an element is unknown or more than half are undecided."""
        if not self.ok:
            return WRONG
        return UNPROVED if self.unknown or 2 * self.undecided > self.elements else RIGHT

    @property
    def missing(self) -> str:
        """Reason why the tensor is unproved although no element is wrong."""
        if self.unknown:
            return f"{self.unknown} of {self.elements} elements have no finite bound"
        return f"{self.undecided} of {self.elements} elements rest on a choice that rounding may turn"


class Element(NamedTuple):
    """Per-element errors and bounds, and masks of undecided and unknown elements. raw: the errors, including those of
    unknown elements.
    """

    raw: Array
    errors: Array
    allowed: Array
    undecided: Array
    unknown: Array


def judged(actual: Array, expected: Bounded, types: Types, allowed: float | None = None) -> Deviation:
    """Compare a tensor with its expected value. `allowed`: the caller's absolute error, replacing the derived bounds.

    An undecided element is compared with its nearest alternative; elements that share a choice use the same one.
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        texts = (f"{actual.dtype}{list(actual.shape)}", f"{expected.dtype}{list(expected.shape)}")
        return Deviation(math.inf, 0.0, (), *texts, elements=actual.size, kind="wrong shape or dtype")
    if not actual.size:
        return Deviation(0.0, 0.0, (), None, None)
    found: Deviation | None = None
    sides = _one_sided(actual, expected, types, allowed)
    for index, array, value in pairs(actual, expected):
        block = _block(array, sides.of(value) if sides else value, types, allowed)
        if index:
            block = block._replace(at=tuple(i + one.start for i, one in zip(block.at, index, strict=True)))
        found = block if found is None else _worse(found, block)
    assert found is not None
    return found


def _worse(first: Deviation, second: Deviation) -> Deviation:
    """Merge two blocks: keep the element that `Deviation` describes, and add the counts."""
    if first.ok and second.ok:
        taken = second if _nearness(second) > _nearness(first) else first
    elif first.ok or second.ok:
        taken = second if first.ok else first
    else:
        taken = second if _size(second.error) > _size(first.error) else first
    return taken._replace(
        elements=first.elements + second.elements,
        undecided=first.undecided + second.undecided,
        unknown=first.unknown + second.unknown,
        ratios=tuple(map(sum, zip(first.ratios, second.ratios, strict=True))),
        nans=first.nans + second.nans,
        infinities=first.infinities + second.infinities,
    )


def _nearness(one: Deviation) -> float:
    """Return error over bound of a right element; 0 if the bound is infinite."""
    return one.error / one.allowed if 0 < one.allowed < math.inf else 0.0


def _size(error: float) -> float:
    return math.inf if math.isnan(error) else error


def _one_sided(actual: Array, expected: Bounded, types: Types, allowed: float | None) -> OneSided | None:
    """Return the alternatives of choices shared by several elements, possibly in several blocks."""
    if expected.sides is None or not expected.sides.is_grouped:
        return None
    made = OneSided()
    for _, array, value in pairs(actual, expected):
        options = as_options(value) if value.sides is not None and value.sides.is_grouped else None
        if options is None:
            continue
        ratios = []
        for one, error in zip(options.values, options.errors, strict=True):
            both = np.where(options.mask, one, value.value), np.where(options.mask, error, value.errors())
            ratios.append(_ratios(np.asarray(array), Bounded(*both, value.dtype, value.stored), types, allowed))
        made.add(options, ratios)
    return made.settle()


def _ratios(actual: Array, expected: Bounded, types: Types, allowed: float | None) -> Array:
    """Return error over bound; 1 for unknown elements."""
    with np.errstate(all="ignore"):
        parts = _compared(actual, expected, types, allowed)
        ratio = np.where(parts.errors <= parts.allowed, 0.0, np.inf)
        ratio = np.where(parts.allowed > 0, parts.errors / np.where(parts.allowed > 0, parts.allowed, 1.0), ratio)
    return np.where(parts.unknown, 1.0, ratio)


def _compared(actual: Array, expected: Bounded, types: Types, allowed: float | None) -> Element:
    parts = _floats(actual, expected, types) if is_float(actual.dtype) else _others(actual, expected)
    if allowed is None:
        return parts
    bounds, unknown = np.full(actual.shape, allowed), np.zeros(actual.shape, bool)
    return parts._replace(errors=parts.raw, allowed=bounds, unknown=unknown)


def _block(actual: Array, expected: Bounded, types: Types, allowed: float | None) -> Deviation:
    """Return the deviation of a block that is small enough for its temporaries to fit into the cache."""
    actual = np.asarray(actual)
    if (plain := _plain(actual, expected, types, allowed)) is not None:
        return plain
    with np.errstate(all="ignore"):
        chosen = expected.sides.mask if expected.sides is not None else np.zeros(actual.shape, bool)
        expected = expected.at(actual, SPREAD if types.independent else 1.0)
        parts = _compared(actual, expected, types, allowed)
        errors, bounds = parts.errors, parts.allowed
        beyond = ~(errors <= bounds)
        ratio = np.where(bounds > 0, errors / np.where(bounds > 0, bounds, 1.0), 0.0)
        ratio = np.where(np.isinf(bounds) | np.isnan(ratio), 0.0, ratio)
        # The wrong element with the largest error, or else the element nearest to its bound.
        rank = np.where(beyond, np.nan_to_num(errors, nan=np.inf), -1.0) if beyond.any() else ratio
    at = np.unravel_index(int(np.argmax(rank)), actual.shape) if actual.ndim else ()
    place = tuple(int(i) for i in at)
    return Deviation(
        float(errors[place]),
        float(bounds[place]),
        place,
        actual[place],
        _shown(expected, place),
        actual.size,
        int((parts.undecided | chosen).sum()),
        int(parts.unknown.sum()),
        _kind(actual[place], expected.value[place], errors[place], bounds[place]),
        ratio_counts(errors, bounds),
        *_not_finite(actual, expected, parts.raw),
    )


def _not_finite(actual: Array, expected: Bounded, errors: Array) -> tuple[int, int]:
    """Return the number of NaNs and infinities where the reference is finite and the element is in error."""
    far = np.isinf(errors) & np.isfinite(expected.value) if is_float(actual.dtype) else np.zeros(0, bool)
    if not far.any():
        return 0, 0
    nans = int(np.isnan(np.asarray(actual, np.float64)[far]).sum())
    return nans, int(far.sum()) - nans


def _plain(actual: Array, expected: Bounded, types: Types, allowed: float | None) -> Deviation | None:
    """Fast path of `_block`: all elements finite, decided, far from overflow and within bounds; otherwise return None."""
    if allowed is not None or expected.sides is not None or not is_float(actual.dtype) or not actual.ndim:
        return None
    kept, read = types.storage(expected.dtype), types.read_back(expected.dtype)
    value, error = expected.value, expected.error
    with np.errstate(all="ignore"):
        errors = np.subtract(actual, value, dtype=np.float64)
        np.abs(errors, out=errors)
        farthest, reach = float(errors.max()), 0.0 if error is None else float(types.reach(error.max()))
        largest = max(abs(float(value.max())), abs(float(value.min())))
        # False for infinity or NaN. Below half the limit no rounding overflows.
        if not (farthest < math.inf and largest + reach < min(kept.largest, read.largest) / 2):
            return None
        bounds = np.zeros(value.shape) if error is None else np.broadcast_to(types.reach(error), value.shape)
        if read.unit > kept.unit or read.largest < kept.largest or read.normal > kept.normal:
            bounds = bounds + ((np.abs(value) + bounds) * read.unit + read.step)
        if not (errors <= bounds).all():
            return None
        ratio = np.divide(errors, bounds, out=np.zeros(errors.shape), where=bounds > 0)
    place = tuple(int(i) for i in np.unravel_index(int(ratio.argmax()), ratio.shape))
    counts = ratios_counted(errors, ratio)
    found = Deviation(float(errors[place]), float(bounds[place]), place, actual[place], _shown(expected, place))
    return found._replace(elements=actual.size, ratios=counts)


def zero_signs(actual: Array, expected: Bounded, found: Deviation) -> Deviation:
    """Return the deviation of a node that only moves elements; a zero with the wrong sign is also wrong,
    because 1/x would differ.
    """
    if not is_float(actual.dtype) or not actual.size:
        return found
    for index, array, value in pairs(actual, expected):
        if place := _turned(array, value):
            at = tuple(i + one.start for i, one in zip(place[0], index, strict=True)) if index else place[0]
            return found._replace(
                error=0.0, allowed=0.0, at=at, actual=place[1], expected=place[2], kind="wrong sign of zero"
            )
    return found


def _turned(actual: Array, expected: Bounded) -> tuple[tuple[int, ...], Any, Any] | None:
    """Return the first zero with the wrong sign: its index and both values."""
    given = np.asarray(actual, np.float64)
    turned = (given == 0) & (expected.value == 0) & (np.signbit(given) != np.signbit(expected.value))
    if expected.error is not None:
        turned &= expected.error == 0
    if not turned.any():
        return None
    at = np.unravel_index(int(np.argmax(turned)), given.shape) if given.ndim else ()
    place = tuple(int(i) for i in at)
    return place, np.asarray(actual)[place], _shown(expected, place)


_MOVES = ("Concat", "Gather", "Pad", "Slice", "Split", "Tile", "Transpose")  # operators that copy elements bit for bit


def node_deviation(
    op: str, actual: Array, expected: Bounded, types: Types, allowed: float | None, *, moved_alone: bool = True
) -> Deviation:
    """Return the deviation of an operator's result. `moved_alone`: no operator is fused in front of it."""
    found = judged(actual, expected, types, allowed)
    if op in _MOVES and found.ok and moved_alone:
        found = zero_signs(actual, expected, found)
    return found


def _shown(expected: Bounded, place: tuple[int, ...]) -> Any:
    value = expected.value[place]
    return value.item() if isinstance(value, np.generic) else value


def _kind(actual: Any, expected: Any, error: float, allowed: float) -> str:
    if not error > allowed or not is_float(np.asarray(actual).dtype):
        return ""
    if np.isnan(float(actual)):
        return "NaN made"
    return "infinity made" if np.isinf(float(actual)) and np.isfinite(expected) else ""


def _others(actual: Array, expected: Bounded) -> Element:
    """Compare integers, booleans and strings, which must be equal unless undecided."""
    if actual.dtype == object:
        errors, zeros = np.where(actual == expected.value, 0.0, 1.0), np.zeros(actual.shape)
        return Element(errors, errors, zeros, zeros > 0, zeros > 0)
    if actual.dtype.kind not in "biu":
        same = actual.view(f"u{actual.dtype.itemsize}") == np.asarray(expected.value).view(f"u{actual.dtype.itemsize}")
        zeros, errors = np.zeros(actual.shape), np.where(same, 0.0, 1.0)
        return Element(errors, errors, zeros, zeros > 0, zeros > 0)
    differ = np.asarray(actual != expected.value)
    distance = np.abs(np.asarray(actual, np.float64) - np.asarray(expected.value, np.float64))
    errors = np.where(differ, np.maximum(distance, 1.0), 0.0)
    allowed = np.broadcast_to(np.asarray(expected.errors()), actual.shape)
    unknown = ~(allowed < np.inf)
    return Element(errors, np.where(unknown, 0.0, errors), allowed, (allowed > 0) & ~unknown, unknown)


def _floats(actual: Array, expected: Bounded, types: Types) -> Element:
    kept, read = types.storage(expected.dtype), types.read_back(expected.dtype)
    given, value = np.asarray(actual, np.float64), expected.value
    bound = np.asarray(expected.errors()) * (SPREAD if types.independent else 1.0)
    size = np.abs(value) + bound
    if read.unit > kept.unit or read.largest < kept.largest or read.normal > kept.normal:
        bound = bound + size * read.unit + read.step
    errors = np.abs(given - value)
    same = (given == value) | (np.isnan(given) & np.isnan(value))
    errors = np.where(same, 0.0, np.where(np.isnan(errors), np.inf, errors))
    errors = np.where(_saturated(given, value, expected.errors(), types, expected.dtype), 0.0, errors)
    unknown = ~(expected.errors() < np.inf) & ~(np.isnan(given) & np.isnan(value))
    bound = np.where(np.isfinite(value), bound, 0.0)
    none = np.zeros(actual.shape, bool)
    return Element(errors, np.where(unknown, 0.0, errors), np.where(unknown, np.inf, bound), none, unknown)


def _saturated(given: Array, value: Array, error: Array, types: Types, dtype: Any) -> Array:
    """Return where the device has infinity or the largest value, for a number that storage rounds to infinity (V10).

    The limit is halfway between the largest value and the next power of two. It applies to the value before the final
    rounding, with the error so far.
    """
    kept, read = types.storage(dtype), types.read_back(dtype)
    narrow = kept if kept.largest <= read.largest else read
    size = np.abs(value)
    # Rounding to an earlier storage type may carry the number over the limit.
    own = np.where(np.isfinite(size), size, 0.0) * kept.unit if narrow is kept else 0.0
    before = np.sqrt(np.maximum(error * error - own * own, 0.0)) if types.independent else np.maximum(error - own, 0.0)
    # In float64 the limit itself would be infinite.
    limit = narrow.largest if narrow.name == "float64" else narrow.largest * (1 - narrow.unit / 2) / (1 - narrow.unit)
    beyond = ((size + types.reach(before)) >= limit) & ~np.isnan(value)
    ends = np.isinf(given) | (np.abs(given) >= narrow.largest)
    return np.asarray(beyond & ends & (np.sign(given) == np.sign(value)))


def overflowing(expected: Bounded, types: Types) -> float | None:
    """Return a finite number that overflows the storage type but not the declared type; None if there is none."""
    if not is_float(expected.dtype):
        return None
    kept, read = types.storage(expected.dtype), types.read_back(expected.dtype)
    if kept.largest >= read.largest:
        return None
    worst = 0.0
    for index in blocks(expected.shape):
        value = (expected.part(index) if expected.size > BLOCK else expected).value
        if value.size and max(float(value.max()), -float(value.min())) <= kept.largest:  # false for NaN
            continue
        with np.errstate(all="ignore"):
            size = np.where(np.isfinite(value), np.abs(value), 0.0)
            size = np.where(size <= read.largest, size, 0.0)
        if size.size and float(size.max()) > abs(worst):
            worst = float(value[np.unravel_index(int(np.argmax(size)), size.shape)])
    return None if abs(worst) * (1 - kept.unit / 2) <= kept.largest else worst


def overflow_text(precision: str, number: float, dtype: Any, node: str) -> str:
    """Return a sentence about a number that overflows the storage type."""
    shown = f"{number:,.0f}" if abs(number) < 1e12 else f"{number:.3g}"
    return f"{precision} overflow: {shown} in {dtype} at node '{node}'"
