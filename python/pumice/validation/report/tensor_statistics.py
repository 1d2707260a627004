"""Compact statistics of a tensor: ranges, counts, and histograms whose bins are the same for all tensors."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ...base.element_types import Array
from ..rules.block_ranges import BLOCK_ELEMENTS, iter_blocks
from ..rules.bounded_tensor import BoundedTensor

# Bins of magnitudes: two octaves each from 2^-40 to 2^24, so that fp16's limits 2^-24, 2^-14 and 2^16 are bin edges.
MIN_EXPONENT, EXPONENTS_PER_BIN, NUM_MAGNITUDE_BINS = -40, 2, 32
# Bins of error over bound: 0, then one octave each, (2^(k-1), 2^k], from 2^-10 on; up to 1 is within the bound.
MIN_RATIO_EXPONENT, NUM_RATIO_BINS = -10, 16
_MANTISSA_BITS, _EXPONENT_BIAS = 52, 1023  # float64 format


class ValueRange(NamedTuple):
    """Range of a tensor's finite numbers: minimum, maximum, and smallest nonzero magnitude; None without such numbers."""

    least: float | None = None
    most: float | None = None
    smallest: float | None = None


class TensorStatistics(NamedTuple):
    """Statistics of a device tensor in a case. `magnitudes`: histogram of log2 of finite nonzero magnitudes."""

    range: ValueRange
    zeros: int
    nans: int
    infinities: int
    magnitudes: tuple[int, ...]
    reference: ValueRange | None

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


def compute_statistics(actual: Array, expected: object = None) -> TensorStatistics | None:
    """Return a tensor's statistics; None if it is not numeric. `expected`: the reference's tensor, used only
    for its range.
    """
    reference = expected if isinstance(expected, BoundedTensor) else None
    if reference is not None and reference.shape != np.shape(actual):
        merged = _compute_block_statistics(actual, None)
        return None if merged is None else merged._replace(reference=_compute_reference_range(reference))
    if np.size(actual) <= BLOCK_ELEMENTS:
        return _compute_block_statistics(actual, None if reference is None else reference.value)
    merged = None
    for index in iter_blocks(np.shape(actual)):
        block = _compute_block_statistics(
            actual[index], None if reference is None else reference.get_block(index).value
        )
        if block is None:
            return None
        merged = block if merged is None else _merge_statistics(merged, block)
    return merged


def _compute_reference_range(value: BoundedTensor) -> ValueRange | None:
    floats = _flatten_floats(value.value)
    return None if floats is None else _compute_finite_range(floats)


def _compute_block_statistics(actual: Array, expected: Any) -> TensorStatistics | None:
    floats = _flatten_floats(actual)
    if floats is None:
        return None
    with np.errstate(all="ignore"):
        finite_values, nans = floats, 0
        value_range = _compute_value_range(finite_values)
        if not _is_finite_range(value_range):
            finite = np.isfinite(floats)
            nans = int(np.isnan(floats).sum())
            finite_values = floats[finite]
            value_range = _compute_value_range(finite_values)
        reference_floats = None if expected is None else _flatten_floats(expected)
        reference = None if reference_floats is None else _compute_finite_range(reference_floats)
    infinities = floats.size - finite_values.size - nans
    zeros = finite_values.size - int(np.count_nonzero(finite_values))
    return TensorStatistics(
        value_range, zeros, nans, infinities, _compute_magnitude_histogram(finite_values, zeros), reference
    )


def _compute_magnitude_histogram(finite: Array, zeros: int) -> tuple[int, ...]:
    """Return the histogram of nonzero magnitudes, from the exponent bits."""
    mantissa, bias = (23, 127) if finite.dtype.itemsize == 4 else (_MANTISSA_BITS, _EXPONENT_BIAS)
    bits = np.ascontiguousarray(finite).view(f"u{finite.dtype.itemsize}") >> mantissa
    bits &= 2 * bias + 1
    exponent_counts = np.bincount(bits.astype(np.intp, copy=False), minlength=2 * bias + 2)
    exponent_counts[0] -= zeros  # like subnormals, zeros have exponent 0; count only the subnormals
    bins = np.clip(
        (np.arange(exponent_counts.size) - bias - MIN_EXPONENT) // EXPONENTS_PER_BIN, 0, NUM_MAGNITUDE_BINS - 1
    )
    return tuple(map(int, np.bincount(bins, exponent_counts, NUM_MAGNITUDE_BINS)))


def _is_finite_range(value_range: ValueRange) -> bool:
    """Return whether all numbers are finite. If any number is NaN, the minimum and maximum are NaN."""
    return value_range.least is None or (math.isfinite(value_range.least) and math.isfinite(value_range.most or 0.0))


def _compute_finite_range(floats: Array) -> ValueRange:
    value_range = _compute_value_range(floats)
    return value_range if _is_finite_range(value_range) else _compute_value_range(floats[np.isfinite(floats)])


def _merge_statistics(first: TensorStatistics, second: TensorStatistics) -> TensorStatistics:
    """Merge the statistics of two blocks."""
    return TensorStatistics(
        _merge_ranges(first.range, second.range),
        first.zeros + second.zeros,
        first.nans + second.nans,
        first.infinities + second.infinities,
        tuple(map(sum, zip(first.magnitudes, second.magnitudes, strict=True))),
        None
        if first.reference is None or second.reference is None
        else _merge_ranges(first.reference, second.reference),
    )


def _merge_ranges(first: ValueRange, second: ValueRange) -> ValueRange:
    def combine_optional(pick: Any, first_value: float | None, second_value: float | None) -> float | None:
        return (
            second_value
            if first_value is None
            else first_value
            if second_value is None
            else pick(first_value, second_value)
        )

    return ValueRange(
        combine_optional(min, first.least, second.least),
        combine_optional(max, first.most, second.most),
        combine_optional(min, first.smallest, second.smallest),
    )


def count_ratios(errors: Array, allowed: Array) -> tuple[int, ...]:
    """Return the histogram of error / bound over the elements that have a finite bound."""
    bounded = np.isfinite(allowed)
    if not bounded.all():
        errors, allowed = errors[bounded], allowed[bounded]
    wrong = errors > 0
    with np.errstate(all="ignore"):
        ratio = np.divide(errors, allowed, out=np.zeros(errors.shape), where=wrong)
    return count_finite_ratios(errors, ratio)


def count_finite_ratios(errors: Array, ratio: Array) -> tuple[int, ...]:
    """Return the histogram of error / bound if all bounds are finite. ratio: error / bound, overwritten; 0 for no error."""
    # The exponent bits give the bin. Subtract 1 first, so that a power of two falls into the bin below it.
    bins = ratio.view(np.int64)
    bins -= 1
    bins >>= _MANTISSA_BITS
    bins += 1
    exponent_counts = np.bincount(bins.ravel(), minlength=2 * _EXPONENT_BIAS + 3)
    num_zero = errors.size - int(np.count_nonzero(errors))
    first = _EXPONENT_BIAS + MIN_RATIO_EXPONENT + 1  # exponent at the end of the first bin
    last = first + NUM_RATIO_BINS - 3
    num_small, num_large = int(exponent_counts[:first].sum()), int(exponent_counts[last:].sum())
    return (num_zero, num_small - num_zero, *map(int, exponent_counts[first:last]), num_large)


def _compute_value_range(numbers: Array) -> ValueRange:
    if not numbers.size:
        return ValueRange()
    minimum, maximum = float(numbers.min()), float(numbers.max())
    if minimum > 0 or maximum < 0:
        return ValueRange(minimum, maximum, min(abs(minimum), abs(maximum)))
    size = np.abs(numbers)
    smallest = float(np.min(size, initial=np.inf, where=size > 0))
    return ValueRange(minimum, maximum, smallest if smallest < np.inf else None)


def _flatten_floats(values: Any) -> Array | None:
    """Return the elements as a flat array of a NumPy float type; None for strings and other non-numeric types."""
    array = np.asarray(values)
    if array.dtype.kind == "f" and array.dtype.itemsize in (4, 8):
        return array.ravel()
    if array.dtype.kind in "cO":
        return None
    try:
        return array.astype(np.float32 if str(array.dtype) in ("float16", "bfloat16") else np.float64).ravel()
    except (TypeError, ValueError):
        return None
