"""Accuracy limit: how far an output may be from its expected value, even within its rounding bound.

A bound limits the effect of rounding; it does not show that the result is useful. An output that is within its bound
but exceeds the limit is ill-conditioned. The limit is relative to a scale: the largest expected magnitude of the sample
(first axis), or of the softmax row. If an output concatenates tensors of different scale, such as boxes and scores,
each element keeps the scale of its source tensor.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ...base.element_types import Array
from ..rules.block_ranges import iter_blocks
from ..rules.bounded_tensor import BoundedTensor
from ..rules.float_types import COVERAGE_FACTOR, is_float
from ..rules.lazy_values import iter_block_pairs

# Limits relative to the scale. bf16 has 8 significand bits, so typical networks deviate by 1% to 3% of their largest logit.
DEFAULT_ACCURACY = {"fp32": 0.02, "fp16": 0.02, "bf16": 0.1}
_MIN_SAMPLE = 16  # smallest number of elements for a scale per sample; else the whole tensor has one scale


class Inaccuracy(NamedTuple):
    """The element of an output that exceeds the accuracy limit most. `limit` is absolute: the accuracy times `scale`."""

    error: float
    limit: float
    scale: float
    at: tuple[int, ...]
    actual: Any
    expected: float
    elements: int  # number of elements above the limit

    @property
    def text(self) -> str:
        """Return a sentence that describes the element, for notes and findings."""
        relative = f"{self.error / self.scale:.3g}" if self.scale else "infinite"
        return (
            f"off by {self.error:.3g} at {list(self.at)} ({self.actual} instead of {self.expected:.6g}), {relative} of its scale "
            f"{self.scale:.3g}: more than the accuracy limit allows ({self.limit:.3g}), although rounding explains it"
        )


def find_accuracy_violation(
    actual: Array, expected: BoundedTensor, accuracy: float, scale: Array | None = None
) -> Inaccuracy | None:
    """Return the worst element whose error exceeds accuracy * scale, or None if there is none.

    scale: broadcastable to `expected`; by default one scale per sample.
    """
    if not expected.is_float or actual.shape != expected.shape or not actual.size or not is_float(actual.dtype):
        return None
    scale = compute_sample_scale(expected) if scale is None else scale
    scales = np.broadcast_to(scale, actual.shape)
    worst: Inaccuracy | None = None
    count = 0
    for index, array, block in iter_block_pairs(actual, expected):
        block_worst = _find_block_violation(array, block, accuracy, scales[index] if index else scales)
        if block_worst is None:
            continue
        count += block_worst.elements
        if worst is None or _compute_error_ratio(block_worst) > _compute_error_ratio(worst):
            at = (
                tuple(i + axis_slice.start for i, axis_slice in zip(block_worst.at, index, strict=True))
                if index
                else block_worst.at
            )
            worst = block_worst._replace(at=at)
    return worst and worst._replace(elements=count)


def _compute_error_ratio(inaccuracy: Inaccuracy) -> float:
    return inaccuracy.error / inaccuracy.limit if inaccuracy.limit > 0 else math.inf


def _find_block_violation(actual: Array, expected: BoundedTensor, accuracy: float, scale: Array) -> Inaccuracy | None:
    with np.errstate(all="ignore"):
        actual64 = np.asarray(actual, np.float64)
        value = expected.select_nearest_alternative(actual, COVERAGE_FACTOR).value
        is_equal = (actual64 == value) | (np.isnan(actual64) & np.isnan(value))
        error = np.where(is_equal, 0.0, np.abs(actual64 - value))
        limit = accuracy * np.maximum(scale, np.where(np.isfinite(value), np.abs(value), 0.0))
        beyond = np.isfinite(value) & ~(error <= limit)
        if not beyond.any():
            return None
        error_over_limit = np.where(beyond, np.where(limit > 0, error / np.where(limit > 0, limit, 1.0), np.inf), -1.0)
        error_over_limit = np.where(np.isnan(error_over_limit), np.inf, error_over_limit)
    at = (
        tuple(int(i) for i in np.unravel_index(int(np.argmax(error_over_limit)), actual64.shape))
        if actual64.ndim
        else ()
    )
    size = float(limit[at]) / accuracy if accuracy else 0.0
    return Inaccuracy(
        float(error[at]), float(limit[at]), size, at, np.asarray(actual)[at], float(value[at]), int(beyond.sum())
    )


def find_loosest_bound(expected: BoundedTensor, scale: Array | None = None) -> tuple[float, float]:
    """Return the largest ratio of an element's bound to its scale, and the scale of that element."""
    scales = np.broadcast_to(compute_sample_scale(expected) if scale is None else scale, expected.shape)
    worst, loosest = 0.0, (0.0, 0.0)
    for index in iter_blocks(expected.shape):
        block, size = expected.get_block(index), scales[index]
        with np.errstate(all="ignore"):
            bound = np.where(np.isfinite(block.value), block.get_errors(), 0.0)
            relative_bound = np.where(size > 0, bound / np.where(size > 0, size, 1.0), np.where(bound > 0, np.inf, 0.0))
        at = np.unravel_index(int(np.argmax(relative_bound)), relative_bound.shape)
        if relative_bound[at] > worst:
            worst, loosest = float(relative_bound[at]), (float(bound[at]), float(size[at]))
    return loosest


def compute_sample_scale(value: BoundedTensor) -> Array:
    """Return the largest finite magnitude of each sample (first axis), or of the whole tensor if the samples are small."""
    is_sampled = value.ndim > 1 and value.size >= _MIN_SAMPLE * value.shape[0]
    scale = np.zeros((value.shape[0], *[1] * (value.ndim - 1)) if is_sampled else [1] * value.ndim)
    for index, _, block in iter_block_pairs(np.broadcast_to(np.float32(0), value.shape), value):
        size = compute_finite_magnitudes(block.value)
        if is_sampled:
            rows = index[0] if index else slice(None)
            scale[rows] = np.maximum(scale[rows], size.max(tuple(range(1, value.ndim)), keepdims=True))
        else:
            scale = np.maximum(scale, size.max(initial=0.0))
    return scale


def compute_finite_magnitudes(value: Array) -> Array:
    """Return absolute values, 0 for infinity and NaN."""
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(value), np.abs(value), 0.0)
