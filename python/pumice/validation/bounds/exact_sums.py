"""Sums that are exact in any order: all terms are multiples of one power of two, and their magnitudes fit the
significand.
"""

from __future__ import annotations

import numpy as np

from ...base.element_types import Array
from .float_types import BFLOAT16, FLOAT16, FLOAT64, FloatType

_SIGNIFICANT = 53
_SAMPLE = 64  # number of sampled elements, which rule out most tensors cheaply


def quantum(values: Array) -> float:
    """Return the largest power of two that divides all values; infinity if all are zero, 0 if any is not finite."""
    finite = np.asarray(values, np.float64)
    if not np.isfinite(finite).all():
        return 0.0
    mantissas, exponents = np.frexp(np.abs(finite[finite != 0]))
    if not mantissas.size:
        return float("inf")
    whole = np.ldexp(mantissas, _SIGNIFICANT).astype(np.int64)
    return float(np.min(np.ldexp((whole & -whole).astype(np.float64), exponents - _SIGNIFICANT)))


def _sampled(values: Array) -> Array:
    flat = np.asarray(values, np.float64).reshape(-1)
    return flat[:: max(flat.size // _SAMPLE, 1)]


def exact_sums(sizes: Array, terms: list[Array], kept: FloatType) -> Array | None:
    """Return a mask of the sums that are exact in the type in any order; None if there are none.

    sizes: sums of the terms' magnitudes. terms: arrays of the factors, or one array if the terms are not products.
    """
    if not all(one.size for one in terms) or not sizes.size:
        return None
    for values in ([_sampled(one) for one in terms], terms):
        step = float(np.prod([quantum(one) for one in values]))
        if not step >= kept.normal:  # zero times infinity is NaN
            return None
        limit = step / kept.unit
        if not float(np.min(sizes)) <= limit:
            return None
    exact = np.asarray(sizes) <= min(limit, kept.largest)
    return exact if exact.any() else None


def is_short(values: Array, kept: FloatType) -> bool:
    """Whether every GEMM reads the factors exactly: with an fp16 hi/lo split, the low part is zero."""
    if kept is FLOAT64:
        return True
    return all(np.array_equal(one.rounded(values), values) for one in (BFLOAT16, FLOAT16))
