"""Compares a device tensor with the reference: each element's error is divided by its bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...base.element_types import Array
from ..rules.alternative_values import (
    INDEPENDENT,
    EnumeratedAlternatives,
    get_group_labels,
    list_alternatives,
)
from ..rules.block_ranges import BLOCK_ELEMENTS, iter_blocks
from ..rules.bounded_tensor import BoundedTensor
from ..rules.float_types import COVERAGE_FACTOR, ProgramTypes, is_float
from ..rules.lazy_values import iter_block_pairs
from .tensor_statistics import count_finite_ratios, count_ratios

RIGHT, WRONG, UNPROVED, ILL_CONDITIONED = "right", "wrong", "unproved", "ill-conditioned"


class Deviation(NamedTuple):
    """Deviation of a tensor from the reference, at one element: the wrong element with the largest error, or if none is
    wrong, the element nearest to its bound.

    error, allowed: absolute error and bound of that element. undecided: number of elements that depend on a choice that
    rounding may change, for which every alternative is right. unknown: number of elements without a bound. kind: an
    error other than a wrong number: "NaN made", "infinity made", "wrong shape or dtype", "wrong index",
    "wrong sign of zero". ratios: histogram of error over bound, in the bins of `count_ratios`. nans, infinities: number
    of NaN and of infinite elements where the reference is finite, with or without a bound; infinities caused by
    rounding to storage do not count.
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
        """Error divided by the bound; more than 1 means wrong."""
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
        return f"{self.undecided} of {self.elements} elements depend on a choice that rounding may flip"


class ElementErrors(NamedTuple):
    """Errors and bounds of all elements, and masks of undecided and unknown elements.

    raw: the errors, also of unknown elements.
    """

    raw: Array
    errors: Array
    allowed: Array
    undecided: Array
    unknown: Array


def compare_tensor(
    actual: Array, expected: BoundedTensor, types: ProgramTypes, allowed: float | None = None
) -> Deviation:
    """Compare a tensor with its expected value. allowed: absolute error set by the caller; it replaces the derived bounds.

    An undecided element is compared with its nearest alternative; elements that share a choice use the same alternative.
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        texts = (f"{actual.dtype}{list(actual.shape)}", f"{expected.dtype}{list(expected.shape)}")
        return Deviation(math.inf, 0.0, (), *texts, elements=actual.size, kind="wrong shape or dtype")
    if not actual.size:
        return Deviation(0.0, 0.0, (), None, None)
    merged: Deviation | None = None
    shared_choices = _choose_shared_alternatives(actual, expected, types, allowed)
    for index, array, value in iter_block_pairs(actual, expected):
        block = _compare_block(array, shared_choices.apply(value) if shared_choices else value, types, allowed)
        if index:
            block = block._replace(
                at=tuple(i + axis_slice.start for i, axis_slice in zip(block.at, index, strict=True))
            )
        merged = block if merged is None else _merge_deviations(merged, block)
    assert merged is not None
    return merged


def _merge_deviations(first: Deviation, second: Deviation) -> Deviation:
    """Merge the deviations of two blocks: keep the worse element and add the counts."""
    if first.ok and second.ok:
        worst = second if _compute_bound_ratio(second) > _compute_bound_ratio(first) else first
    elif first.ok or second.ok:
        worst = second if first.ok else first
    else:
        worst = second if _nan_as_infinity(second.error) > _nan_as_infinity(first.error) else first
    return worst._replace(
        elements=first.elements + second.elements,
        undecided=first.undecided + second.undecided,
        unknown=first.unknown + second.unknown,
        ratios=tuple(map(sum, zip(first.ratios, second.ratios, strict=True))),
        nans=first.nans + second.nans,
        infinities=first.infinities + second.infinities,
    )


def _compute_bound_ratio(deviation: Deviation) -> float:
    """Return error / bound of a right element; 0 if the bound is infinite."""
    return deviation.error / deviation.allowed if 0 < deviation.allowed < math.inf else 0.0


def _nan_as_infinity(error: float) -> float:
    return math.inf if math.isnan(error) else error


def _choose_shared_alternatives(
    actual: Array, expected: BoundedTensor, types: ProgramTypes, allowed: float | None
) -> CorrelatedAlternatives | None:
    """Choose the best alternative for each choice that several elements share, possibly in different blocks."""
    if expected.alternatives is None or not expected.alternatives.is_grouped:
        return None
    choices = CorrelatedAlternatives()
    for _, array, value in iter_block_pairs(actual, expected):
        options = list_alternatives(value) if value.alternatives is not None and value.alternatives.is_grouped else None
        if options is None:
            continue
        ratios = []
        for alternative, error in zip(options.values, options.errors, strict=True):
            value_and_error = (
                np.where(options.mask, alternative, value.value),
                np.where(options.mask, error, value.get_errors()),
            )
            ratios.append(
                _compute_error_ratios(
                    np.asarray(array), BoundedTensor(*value_and_error, value.dtype, value.stored), types, allowed
                )
            )
        choices.add(options, ratios)
    return choices.choose()


def _compute_error_ratios(actual: Array, expected: BoundedTensor, types: ProgramTypes, allowed: float | None) -> Array:
    """Return error / bound of each element; 1 for unknown elements."""
    with np.errstate(all="ignore"):
        element_errors = _compute_element_errors(actual, expected, types, allowed)
        ratio = np.where(element_errors.errors <= element_errors.allowed, 0.0, np.inf)
        ratio = np.where(
            element_errors.allowed > 0,
            element_errors.errors / np.where(element_errors.allowed > 0, element_errors.allowed, 1.0),
            ratio,
        )
    return np.where(element_errors.unknown, 1.0, ratio)


def _compute_element_errors(
    actual: Array, expected: BoundedTensor, types: ProgramTypes, allowed: float | None
) -> ElementErrors:
    element_errors = (
        _compare_floats(actual, expected, types) if is_float(actual.dtype) else _compare_exactly(actual, expected)
    )
    if allowed is None:
        return element_errors
    bounds, unknown = np.full(actual.shape, allowed), np.zeros(actual.shape, bool)
    return element_errors._replace(errors=element_errors.raw, allowed=bounds, unknown=unknown)


def _compare_block(actual: Array, expected: BoundedTensor, types: ProgramTypes, allowed: float | None) -> Deviation:
    """Return the deviation of a block, which is small enough that temporaries fit into the CPU cache."""
    actual = np.asarray(actual)
    if (plain := _compare_block_fast(actual, expected, types, allowed)) is not None:
        return plain
    with np.errstate(all="ignore"):
        chosen = expected.alternatives.mask if expected.alternatives is not None else np.zeros(actual.shape, bool)
        expected = expected.select_nearest_alternative(actual, COVERAGE_FACTOR if types.independent_errors else 1.0)
        element_errors = _compute_element_errors(actual, expected, types, allowed)
        errors, bounds = element_errors.errors, element_errors.allowed
        beyond = ~(errors <= bounds)
        ratio = np.where(bounds > 0, errors / np.where(bounds > 0, bounds, 1.0), 0.0)
        ratio = np.where(np.isinf(bounds) | np.isnan(ratio), 0.0, ratio)
        # The wrong element with the largest error, or else the element nearest to its bound.
        rank = np.where(beyond, np.nan_to_num(errors, nan=np.inf), -1.0) if beyond.any() else ratio
    at = np.unravel_index(int(np.argmax(rank)), actual.shape) if actual.ndim else ()
    index = tuple(int(i) for i in at)
    return Deviation(
        float(errors[index]),
        float(bounds[index]),
        index,
        actual[index],
        _get_element(expected, index),
        actual.size,
        int((element_errors.undecided | chosen).sum()),
        int(element_errors.unknown.sum()),
        _classify_fault(actual[index], expected.value[index], errors[index], bounds[index]),
        count_ratios(errors, bounds),
        *_count_not_finite(actual, expected, element_errors.raw),
    )


def _count_not_finite(actual: Array, expected: BoundedTensor, errors: Array) -> tuple[int, int]:
    """Return the numbers of NaNs and infinities at wrong elements for which the reference is finite."""
    is_beyond_bound = np.isinf(errors) & np.isfinite(expected.value) if is_float(actual.dtype) else np.zeros(0, bool)
    if not is_beyond_bound.any():
        return 0, 0
    nans = int(np.isnan(np.asarray(actual, np.float64)[is_beyond_bound]).sum())
    return nans, int(is_beyond_bound.sum()) - nans


def _compare_block_fast(
    actual: Array, expected: BoundedTensor, types: ProgramTypes, allowed: float | None
) -> Deviation | None:
    """Compare a block whose elements are all finite, decided, far from overflow and within bounds; else return None."""
    if allowed is not None or expected.alternatives is not None or not is_float(actual.dtype) or not actual.ndim:
        return None
    storage, read = types.get_storage_type(expected.dtype), types.get_read_back_type(expected.dtype)
    value, error = expected.value, expected.error
    with np.errstate(all="ignore"):
        errors = np.subtract(actual, value, dtype=np.float64)
        np.abs(errors, out=errors)
        farthest, reach = float(errors.max()), 0.0 if error is None else float(types.to_max_deviation(error.max()))
        largest = max(abs(float(value.max())), abs(float(value.min())))
        # False for infinity or NaN. Below half the limit no rounding overflows.
        if not (farthest < math.inf and largest + reach < min(storage.largest, read.largest) / 2):
            return None
        bounds = np.zeros(value.shape) if error is None else np.broadcast_to(types.to_max_deviation(error), value.shape)
        if read.unit > storage.unit or read.largest < storage.largest or read.normal > storage.normal:
            bounds = bounds + ((np.abs(value) + bounds) * read.unit + read.step)
        if not (errors <= bounds).all():
            return None
        ratio = np.divide(errors, bounds, out=np.zeros(errors.shape), where=bounds > 0)
    index = tuple(int(i) for i in np.unravel_index(int(ratio.argmax()), ratio.shape))
    counts = count_finite_ratios(errors, ratio)
    deviation = Deviation(
        float(errors[index]), float(bounds[index]), index, actual[index], _get_element(expected, index)
    )
    return deviation._replace(elements=actual.size, ratios=counts)


def check_zero_signs(actual: Array, expected: BoundedTensor, deviation: Deviation) -> Deviation:
    """Return the deviation of a node that only moves elements.

    A zero with the wrong sign is wrong too, because 1/x would differ.
    """
    if not is_float(actual.dtype) or not actual.size:
        return deviation
    for index, array, value in iter_block_pairs(actual, expected):
        if wrong_zero := _find_wrong_zero_sign(array, value):
            at = (
                tuple(i + axis_slice.start for i, axis_slice in zip(wrong_zero[0], index, strict=True))
                if index
                else wrong_zero[0]
            )
            return deviation._replace(
                error=0.0, allowed=0.0, at=at, actual=wrong_zero[1], expected=wrong_zero[2], kind="wrong sign of zero"
            )
    return deviation


def _find_wrong_zero_sign(actual: Array, expected: BoundedTensor) -> tuple[tuple[int, ...], Any, Any] | None:
    """Return the first zero with the wrong sign: its index and both values."""
    actual64 = np.asarray(actual, np.float64)
    has_wrong_sign = (actual64 == 0) & (expected.value == 0) & (np.signbit(actual64) != np.signbit(expected.value))
    if expected.error is not None:
        has_wrong_sign &= expected.error == 0
    if not has_wrong_sign.any():
        return None
    at = np.unravel_index(int(np.argmax(has_wrong_sign)), actual64.shape) if actual64.ndim else ()
    index = tuple(int(i) for i in at)
    return index, np.asarray(actual)[index], _get_element(expected, index)


_DATA_MOVEMENT = (
    "Concat",
    "Gather",
    "Pad",
    "Slice",
    "Split",
    "Tile",
    "Transpose",
)  # operators that copy elements bit for bit


def compare_node_output(
    op: str, actual: Array, expected: BoundedTensor, types: ProgramTypes, allowed: float | None, *, unfused: bool = True
) -> Deviation:
    """Return the deviation of an operator's result. unfused: whether the kernel fuses no operator before this one."""
    deviation = compare_tensor(actual, expected, types, allowed)
    if op in _DATA_MOVEMENT and deviation.ok and unfused:
        deviation = check_zero_signs(actual, expected, deviation)
    return deviation


def _get_element(expected: BoundedTensor, index: tuple[int, ...]) -> Any:
    value = expected.value[index]
    return value.item() if isinstance(value, np.generic) else value


def _classify_fault(actual: Any, expected: Any, error: float, allowed: float) -> str:
    if not error > allowed or not is_float(np.asarray(actual).dtype):
        return ""
    if np.isnan(float(actual)):
        return "NaN made"
    return "infinity made" if np.isinf(float(actual)) and np.isfinite(expected) else ""


def _compare_exactly(actual: Array, expected: BoundedTensor) -> ElementErrors:
    """Compare integers, booleans or strings, which must be equal unless they are undecided."""
    if actual.dtype == object:
        errors, zeros = np.where(actual == expected.value, 0.0, 1.0), np.zeros(actual.shape)
        return ElementErrors(errors, errors, zeros, zeros > 0, zeros > 0)
    if actual.dtype.kind not in "biu":
        same = actual.view(f"u{actual.dtype.itemsize}") == np.asarray(expected.value).view(f"u{actual.dtype.itemsize}")
        zeros, errors = np.zeros(actual.shape), np.where(same, 0.0, 1.0)
        return ElementErrors(errors, errors, zeros, zeros > 0, zeros > 0)
    differ = np.asarray(actual != expected.value)
    distance = np.abs(np.asarray(actual, np.float64) - np.asarray(expected.value, np.float64))
    errors = np.where(differ, np.maximum(distance, 1.0), 0.0)
    allowed = np.broadcast_to(np.asarray(expected.get_errors()), actual.shape)
    unknown = ~(allowed < np.inf)
    return ElementErrors(errors, np.where(unknown, 0.0, errors), allowed, (allowed > 0) & ~unknown, unknown)


def _compare_floats(actual: Array, expected: BoundedTensor, types: ProgramTypes) -> ElementErrors:
    storage, read = types.get_storage_type(expected.dtype), types.get_read_back_type(expected.dtype)
    actual64, value = np.asarray(actual, np.float64), expected.value
    bound = np.asarray(expected.get_errors()) * (COVERAGE_FACTOR if types.independent_errors else 1.0)
    size = np.abs(value) + bound
    if read.unit > storage.unit or read.largest < storage.largest or read.normal > storage.normal:
        bound = bound + size * read.unit + read.step
    errors = np.abs(actual64 - value)
    is_equal = (actual64 == value) | (np.isnan(actual64) & np.isnan(value))
    errors = np.where(is_equal, 0.0, np.where(np.isnan(errors), np.inf, errors))
    errors = np.where(
        _compute_storage_overflow_mask(actual64, value, expected.get_errors(), types, expected.dtype), 0.0, errors
    )
    unknown = ~(expected.get_errors() < np.inf) & ~(np.isnan(actual64) & np.isnan(value))
    bound = np.where(np.isfinite(value), bound, 0.0)
    none = np.zeros(actual.shape, bool)
    return ElementErrors(errors, np.where(unknown, 0.0, errors), np.where(unknown, np.inf, bound), none, unknown)


def _compute_storage_overflow_mask(
    actual64: Array, value: Array, error: Array, types: ProgramTypes, dtype: Any
) -> Array:
    """Return a mask of the device's infinities and largest values that are right because the storage overflows (V10).

    The limit is halfway between the largest value and the next power of two. It applies to the value before the final
    rounding, with the error so far.
    """
    storage, read = types.get_storage_type(dtype), types.get_read_back_type(dtype)
    smaller_type = storage if storage.largest <= read.largest else read
    size = np.abs(value)
    # Rounding to another storage type first may push the number over the limit.
    rounding = np.where(np.isfinite(size), size, 0.0) * storage.unit if smaller_type is storage else 0.0
    error_before_rounding = (
        np.sqrt(np.maximum(error * error - rounding * rounding, 0.0))
        if types.independent_errors
        else np.maximum(error - rounding, 0.0)
    )
    # In float64 the limit itself would be infinite.
    limit = (
        smaller_type.largest
        if smaller_type.name == "float64"
        else smaller_type.largest * (1 - smaller_type.unit / 2) / (1 - smaller_type.unit)
    )
    beyond = ((size + types.to_max_deviation(error_before_rounding)) >= limit) & ~np.isnan(value)
    is_saturated = np.isinf(actual64) | (np.abs(actual64) >= smaller_type.largest)
    return np.asarray(beyond & is_saturated & (np.sign(actual64) == np.sign(value)))


def find_overflowing_number(expected: BoundedTensor, types: ProgramTypes) -> float | None:
    """Return a finite number that overflows the storage type but not the declared type; None if there is none."""
    if not is_float(expected.dtype):
        return None
    storage, read = types.get_storage_type(expected.dtype), types.get_read_back_type(expected.dtype)
    if storage.largest >= read.largest:
        return None
    worst = 0.0
    for index in iter_blocks(expected.shape):
        value = (expected.get_block(index) if expected.size > BLOCK_ELEMENTS else expected).value
        if value.size and max(float(value.max()), -float(value.min())) <= storage.largest:  # false for NaN
            continue
        with np.errstate(all="ignore"):
            size = np.where(np.isfinite(value), np.abs(value), 0.0)
            size = np.where(size <= read.largest, size, 0.0)
        if size.size and float(size.max()) > abs(worst):
            worst = float(value[np.unravel_index(int(np.argmax(size)), size.shape)])
    return None if abs(worst) * (1 - storage.unit / 2) <= storage.largest else worst


def describe_overflow(precision: str, number: float, dtype: Any, node: str) -> str:
    """Return a sentence about a number that overflows the storage type."""
    number_text = f"{number:,.0f}" if abs(number) < 1e12 else f"{number:.3g}"
    return f"{precision} overflow: {number_text} in {dtype} at node '{node}'"


class CorrelatedAlternatives:
    """Chooses the best alternative for each label: fewest wrong device values first, then smallest error."""

    def __init__(self) -> None:
        # For each block: the labels, and for each (alternative, label) the number of wrong elements and the largest ratio.
        self._blocks: list[tuple[Array, Array, Array]] = []
        self._group_labels: Array = np.zeros(0, np.int64)
        self._choices: Array = np.zeros(0, np.int64)

    def add(self, alternatives: EnumeratedAlternatives, ratios: Sequence[Array]) -> None:
        """Add a block of device values. ratios: error / bound for each alternative."""
        is_shared = _compute_grouped_mask(alternatives)
        if not is_shared.any():
            return
        labels, at = np.unique(get_group_labels(alternatives)[is_shared], return_inverse=True)
        shape = len(ratios), len(labels)
        wrong, worst = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
        for k, ratio in enumerate(ratios):
            block_ratio = np.nan_to_num(ratio[is_shared], nan=np.inf)
            np.add.at(wrong[k], at.reshape(-1), block_ratio > 1)
            with np.errstate(over="ignore"):
                np.maximum.at(worst[k], at.reshape(-1), block_ratio.astype(np.float32))
        self._blocks.append((labels, wrong, worst))

    def choose(self) -> CorrelatedAlternatives:
        """Choose an alternative for each label. Call this after all blocks are added."""
        if not self._blocks:
            return self
        self._group_labels, at = np.unique(
            np.concatenate([labels for labels, _, _ in self._blocks]), return_inverse=True
        )
        num_alternatives = max(len(counts) for _, counts, _ in self._blocks)
        wrong, worst_ratio = (
            np.zeros((num_alternatives, len(self._group_labels)), np.int32),
            np.zeros((num_alternatives, len(self._group_labels)), np.float32),
        )
        ends = np.cumsum([0, *(len(labels) for labels, _, _ in self._blocks)])
        for (_, counts, worst), begin, end in zip(self._blocks, ends, ends[1:], strict=False):
            # If the block has fewer alternatives than others, repeat the last one.
            label_indices, rows = at.reshape(-1)[begin:end], np.minimum(np.arange(num_alternatives), len(counts) - 1)
            wrong[:, label_indices] += counts[rows]
            worst_ratio[:, label_indices] = np.maximum(worst_ratio[:, label_indices], worst[rows])
        self._choices = np.lexsort((worst_ratio, wrong), axis=0)[0]
        return self

    def apply(self, value: BoundedTensor) -> BoundedTensor:
        """Return a tensor or block reduced to the chosen alternative of each label."""
        alternatives = (
            list_alternatives(value) if value.alternatives is not None and value.alternatives.is_grouped else None
        )
        if alternatives is None or not len(self._group_labels):
            return value
        is_shared = _compute_grouped_mask(alternatives)
        label_index = np.searchsorted(
            self._group_labels, np.where(is_shared, get_group_labels(alternatives), self._group_labels[0])
        )
        chosen = np.minimum(self._choices[label_index], len(alternatives.values) - 1)[None]
        values, errors = (
            np.stack(np.broadcast_arrays(*value_array)) for value_array in (alternatives.values, alternatives.errors)
        )
        value_of, error_of = (np.take_along_axis(value_array, chosen, 0)[0] for value_array in (values, errors))
        resolved = (
            [np.where(is_shared, value_of, value_array) for value_array in values],
            [np.where(is_shared, error_of, value_array) for value_array in errors],
        )
        result = BoundedTensor(value.value, value.error, value.dtype, value.stored, value.constant)
        return result.set_alternatives(EnumeratedAlternatives(alternatives.mask, *resolved))


def _compute_grouped_mask(alternatives: EnumeratedAlternatives) -> Array:
    return np.asarray(alternatives.mask & (get_group_labels(alternatives) != INDEPENDENT))
