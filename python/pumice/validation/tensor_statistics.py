"""Compact statistics of a tensor: ranges, counts, and histograms with the same bins for all tensors."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..base.element_types import Array
from .bounds.bounded import Bounded
from .bounds.block_ranges import BLOCK, blocks

# Bins of magnitudes: two octaves each from 2^-40 to 2^24, so that fp16's limits 2^-24, 2^-14 and 2^16 are bin edges.
FIRST_OCTAVE, OCTAVES, MAGNITUDES = -40, 2, 32
# Bins of error over bound: 0, then one octave each, (2^(k-1), 2^k], from 2^-10 on; up to 1 is within the bound.
FIRST_RATIO, RATIOS = -10, 16
_MANTISSA_BITS, _BIAS = 52, 1023  # float64 format


class Range(NamedTuple):
    """Range of the finite numbers: minimum, maximum, and smallest nonzero magnitude; None if there are none."""

    least: float | None = None
    most: float | None = None
    smallest: float | None = None


class Statistics(NamedTuple):
    """Statistics of a device tensor in a case. `magnitudes`: histogram of log2 of finite nonzero magnitudes."""

    range: Range
    zeros: int
    nans: int
    infinities: int
    magnitudes: tuple[int, ...]
    reference: Range | None

    def record(self) -> dict[str, Any]:
        """Return the record for JSON."""
        return {
            **self.range._asdict(),
            "zeros": self.zeros,
            "nans": self.nans,
            "infinities": self.infinities,
            "magnitudes": list(self.magnitudes),
            "reference": None if self.reference is None else self.reference._asdict(),
        }


def statistics(actual: Array, expected: object = None) -> Statistics | None:
    """Return a tensor's statistics; None if it is not numeric. `expected`: the reference's tensor, used only
    for its range.
    """
    beside = expected if isinstance(expected, Bounded) else None
    if beside is not None and beside.shape != np.shape(actual):
        found = _statistics(actual, None)
        return None if found is None else found._replace(reference=_range_of(beside))
    if np.size(actual) <= BLOCK:
        return _statistics(actual, None if beside is None else beside.value)
    found = None
    for index in blocks(np.shape(actual)):
        block = _statistics(actual[index], None if beside is None else beside.part(index).value)
        if block is None:
            return None
        found = block if found is None else _both(found, block)
    return found


def _range_of(value: Bounded) -> Range | None:
    wide = _floats(value.value)
    return None if wide is None else _finite_range(wide)


def _statistics(actual: Array, expected: Any) -> Statistics | None:
    given = _floats(actual)
    if given is None:
        return None
    with np.errstate(all="ignore"):
        kept, nans = given, 0
        made = _range(kept)
        if not _is_finite(made):
            finite = np.isfinite(given)
            nans = int(np.isnan(given).sum())
            kept = given[finite]
            made = _range(kept)
        wide = None if expected is None else _floats(expected)
        reference = None if wide is None else _finite_range(wide)
    infinities = given.size - kept.size - nans
    zeros = kept.size - int(np.count_nonzero(kept))
    return Statistics(made, zeros, nans, infinities, _octaves(kept, zeros), reference)


def _octaves(finite: Array, zeros: int) -> tuple[int, ...]:
    """Return the histogram of nonzero magnitudes, from the exponent bits."""
    mantissa, bias = (23, 127) if finite.dtype.itemsize == 4 else (_MANTISSA_BITS, _BIAS)
    bits = np.ascontiguousarray(finite).view(f"u{finite.dtype.itemsize}") >> mantissa
    bits &= 2 * bias + 1
    found = np.bincount(bits.astype(np.intp, copy=False), minlength=2 * bias + 2)
    found[0] -= zeros  # leaves the subnormals in the first bin
    bins = np.clip((np.arange(found.size) - bias - FIRST_OCTAVE) // OCTAVES, 0, MAGNITUDES - 1)
    return tuple(map(int, np.bincount(bins, found, MAGNITUDES)))


def _is_finite(one: Range) -> bool:
    """Whether all numbers in the range are finite. A NaN would be its minimum and maximum."""
    return one.least is None or (math.isfinite(one.least) and math.isfinite(one.most or 0.0))


def _finite_range(wide: Array) -> Range:
    found = _range(wide)
    return found if _is_finite(found) else _range(wide[np.isfinite(wide)])


def _both(first: Statistics, second: Statistics) -> Statistics:
    """Merge the statistics of two blocks."""
    return Statistics(
        _joined(first.range, second.range),
        first.zeros + second.zeros,
        first.nans + second.nans,
        first.infinities + second.infinities,
        tuple(map(sum, zip(first.magnitudes, second.magnitudes, strict=True))),
        None if first.reference is None or second.reference is None else _joined(first.reference, second.reference),
    )


def _joined(first: Range, second: Range) -> Range:
    def of(pick: Any, one: float | None, other: float | None) -> float | None:
        return other if one is None else one if other is None else pick(one, other)

    return Range(
        of(min, first.least, second.least), of(max, first.most, second.most), of(min, first.smallest, second.smallest)
    )


def ratio_counts(errors: Array, allowed: Array) -> tuple[int, ...]:
    """Return the histogram of error over bound, without elements that have no finite bound."""
    bounded = np.isfinite(allowed)
    if not bounded.all():
        errors, allowed = errors[bounded], allowed[bounded]
    wrong = errors > 0
    with np.errstate(all="ignore"):
        ratio = np.divide(errors, allowed, out=np.zeros(errors.shape), where=wrong)
    return ratios_counted(errors, ratio)


def ratios_counted(errors: Array, ratio: Array) -> tuple[int, ...]:
    """Return the histogram of ratios, which is modified in place; zero errors have ratio 0, and all bounds are finite."""
    # Reads the exponent bits, after subtracting 1 so that a power of two stays in the bin that it ends.
    bins = ratio.view(np.int64)
    bins -= 1
    bins >>= _MANTISSA_BITS
    bins += 1
    found = np.bincount(bins.ravel(), minlength=2 * _BIAS + 3)
    none = errors.size - int(np.count_nonzero(errors))
    first = _BIAS + FIRST_RATIO + 1  # exponent at the end of the first bin
    last = first + RATIOS - 3
    least, most = int(found[:first].sum()), int(found[last:].sum())
    return (none, least - none, *map(int, found[first:last]), most)


def _range(numbers: Array) -> Range:
    if not numbers.size:
        return Range()
    least, most = float(numbers.min()), float(numbers.max())
    if least > 0 or most < 0:
        return Range(least, most, min(abs(least), abs(most)))
    size = np.abs(numbers)
    smallest = float(np.min(size, initial=np.inf, where=size > 0))
    return Range(least, most, smallest if smallest < np.inf else None)


def _floats(given: Any) -> Array | None:
    """Return a flat array in a float type that NumPy supports natively; None for strings and the like."""
    array = np.asarray(given)
    if array.dtype.kind == "f" and array.dtype.itemsize in (4, 8):
        return array.ravel()
    if array.dtype.kind in "cO":
        return None
    try:
        return array.astype(np.float32 if str(array.dtype) in ("float16", "bfloat16") else np.float64).ravel()
    except (TypeError, ValueError):
        return None
