"""What the numbers of a tensor are like, in little room: ranges, counts, and histograms with bins that are the same for all tensors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..base.element_types import Array
from .bounds.bounded import Bounded
from .bounds.cuts import BLOCK, blocks

# Bins of magnitudes: two octaves each from 2^-40 to 2^24, so that 2^-24, 2^-14 and 2^16, where fp16 ends, are borders of bins.
FIRST_OCTAVE, OCTAVES, MAGNITUDES = -40, 2, 32
# Bins of error over bound: 0, then one octave each, (2^(k-1), 2^k], from 2^-10 on; what is at most 1 is within its bound.
FIRST_RATIO, RATIOS = -10, 16
_MANTISSA_BITS, _BIAS = 52, 1023  # of a float64


class Range(NamedTuple):
    """A Range is of finite numbers: the least, the largest, and the smallest magnitude that is not zero; None where there is none."""

    least: float | None = None
    most: float | None = None
    smallest: float | None = None


class Statistics(NamedTuple):
    """Statistics of one tensor of the device in one case. `magnitudes` counts finite numbers other than zero by log2 of their magnitude."""

    range: Range
    zeros: int
    nans: int
    infinities: int
    magnitudes: tuple[int, ...]
    reference: Range | None

    def record(self) -> dict[str, Any]:
        """The record, for JSON."""
        return {
            **self.range._asdict(),
            "zeros": self.zeros,
            "nans": self.nans,
            "infinities": self.infinities,
            "magnitudes": list(self.magnitudes),
            "reference": None if self.reference is None else self.reference._asdict(),
        }


def statistics(actual: Array, expected: object = None) -> Statistics | None:
    """The statistics of a tensor; None for what is no array of numbers. `expected`: the reference's tensor; only its range is kept."""
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
    return None if wide is None else _range(wide[np.isfinite(wide)])


def _statistics(actual: Array, expected: Any) -> Statistics | None:
    given = _floats(actual)
    if given is None:
        return None
    with np.errstate(all="ignore"):
        finite = np.isfinite(given)
        nans = int(np.isnan(given).sum())
        kept = given if finite.all() else given[finite]
        size = np.abs(kept)
        nonzero = size[size > 0]
        octave = np.frexp(nonzero)[1] - 1  # floor of log2
        bins = np.clip((octave - FIRST_OCTAVE) // OCTAVES, 0, MAGNITUDES - 1)
        counts = np.bincount(bins, minlength=MAGNITUDES)
        wide = None if expected is None else _floats(expected)
        reference = None if wide is None else _range(wide[np.isfinite(wide)])
    made = _range(kept, nonzero)
    infinities = given.size - kept.size - nans
    return Statistics(made, kept.size - nonzero.size, nans, infinities, tuple(map(int, counts)), reference)


def _both(first: Statistics, second: Statistics) -> Statistics:
    """The statistics of two blocks of a tensor together."""
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
    """How many elements have which error over bound; those without a finite bound are left out."""
    bounded = np.isfinite(allowed)
    if not bounded.all():
        errors, allowed = errors[bounded], allowed[bounded]
    wrong = errors > 0
    with np.errstate(all="ignore"):
        ratio = np.divide(errors, allowed, out=np.zeros(errors.shape), where=wrong)
    # The exponent is read from the bits, after a step down that leaves a power of two in the bin that it ends.
    bins = ratio.view(np.int64)
    bins -= 1
    bins >>= _MANTISSA_BITS
    bins -= _BIAS + FIRST_RATIO - 2
    counts = np.bincount(np.clip(bins, 1, RATIOS - 1, out=bins).ravel(), minlength=RATIOS)
    counts[0] = errors.size - np.count_nonzero(wrong)
    counts[1] -= counts[0]
    return tuple(map(int, counts))


def _range(finite: Array, nonzero: Array | None = None) -> Range:
    if not finite.size:
        return Range()
    if nonzero is None:
        size = np.abs(finite)
        nonzero = size[size > 0]
    smallest = float(nonzero.min()) if nonzero.size else None
    return Range(float(finite.min()), float(finite.max()), smallest)


def _floats(given: Any) -> Array | None:
    """Flat, in a float type that NumPy computes in; None for strings and the like."""
    array = np.asarray(given)
    if array.dtype.kind == "f" and array.dtype.itemsize in (4, 8):
        return array.ravel()
    if array.dtype.kind == "c":
        return None
    try:
        return array.astype(np.float32 if str(array.dtype) in ("float16", "bfloat16") else np.float64).ravel()
    except (TypeError, ValueError):
        return None
