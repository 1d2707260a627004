"""Detects sums that are exact in any order of additions.

A sum is exact if all terms are multiples of one power of two and the sum of their magnitudes fits the significand.
"""

from __future__ import annotations

import numpy as np

from ...base.element_types import Array
from .float_types import BFLOAT16, FLOAT16, FLOAT64, FloatType

_SIGNIFICAND_BITS = 53
_SAMPLE_SIZE = 64  # elements checked first, which rules out most tensors cheaply


def find_common_power_of_two(values: Array) -> float:
    """Return the largest power of two that divides all values; infinity if all are zero, 0 if any value is not finite."""
    finite = np.asarray(values, np.float64)
    if not np.isfinite(finite).all():
        return 0.0
    mantissas, exponents = np.frexp(np.abs(finite[finite != 0]))
    if not mantissas.size:
        return float("inf")
    whole = np.ldexp(mantissas, _SIGNIFICAND_BITS).astype(np.int64)
    return float(np.min(np.ldexp((whole & -whole).astype(np.float64), exponents - _SIGNIFICAND_BITS)))


def _sample_elements(values: Array) -> Array:
    flat = np.asarray(values, np.float64).reshape(-1)
    return flat[:: max(flat.size // _SAMPLE_SIZE, 1)]


def compute_exact_sum_mask(sizes: Array, terms: list[Array], accumulation_type: FloatType) -> Array | None:
    """Return a mask of the sums that are exact in the accumulation type in any order; None if there are none.

    sizes: for each sum, the sum of its terms' magnitudes. terms: the factors of the terms, or one array if the terms are
    not products.
    """
    if not all(factor.size for factor in terms) or not sizes.size:
        return None
    for values in ([_sample_elements(factor) for factor in terms], terms):
        step = float(np.prod([find_common_power_of_two(factor) for factor in values]))
        if not step >= accumulation_type.normal:  # `not >=`, because the step may be NaN (zero times infinity)
            return None
        limit = step / accumulation_type.unit
        if not float(np.min(sizes)) <= limit:
            return None
    exact = np.asarray(sizes) <= min(limit, accumulation_type.largest)
    return exact if exact.any() else None


def is_exact_in_16_bits(values: Array, accumulation_type: FloatType) -> bool:
    """Return whether fp16 and bf16 represent all values exactly, so that every GEMM kernel reads them unrounded."""
    if accumulation_type is FLOAT64:
        return True
    return all(np.array_equal(float_format.round(values), values) for float_format in (BFLOAT16, FLOAT16))
