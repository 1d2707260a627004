"""NNAPI's fixed-point arithmetic in NumPy, following sections G6 and F of the specification. All arrays are int64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
LEAST, MOST = -32768, 32767


def truncated(x: Array, divisor: int) -> Array:
    return np.asarray(np.sign(x) * (np.abs(x) // divisor))


def sat(x: Array) -> Array:
    return np.clip(x, LEAST, MOST)


def rdp(x: Array, k: int) -> Array:
    """G6: shift right, rounding half away from zero."""
    mask = (1 << k) - 1
    return np.asarray((x >> k) + ((x & mask) > (mask >> 1) + (x < 0)))


def m(a: Array, b: Array | int) -> Array:
    """Multiply by F1."""
    exact = a * np.asarray(b)
    result = truncated(exact + np.where(exact >= 0, 1 << 14, 1 - (1 << 14)), 1 << 15)
    return np.where((a == LEAST) & (np.asarray(b) == LEAST), MOST, result)


def sh(x: Array, e: int) -> Array:
    return sat(x << e) if e > 0 else rdp(x, -e) if e < 0 else x


def qm(d: float) -> tuple[int, int]:
    """G6: convert a factor to a 31-bit mantissa and an exponent."""
    if d == 0:
        return 0, 0
    fraction, exponent = math.frexp(d)
    mantissa = math.floor(fraction * 2**31 + 0.5)
    if mantissa == 2**31:
        mantissa, exponent = 2**30, exponent + 1
    return (0, 0) if exponent < -31 else (mantissa, exponent)


def mul(x: Array, factor: tuple[int, int]) -> Array:
    """G6: multiply with two roundings."""
    mantissa, e = factor
    exact = (x << max(e, 0)) * mantissa
    return rdp(truncated(exact + np.where(exact >= 0, 1 << 30, 1 - (1 << 30)), 1 << 31), max(-e, 0))


def exp_quarter(a: Array) -> Array:
    """Compute the exponential of F2."""
    x = a + 4096
    x2 = m(x, x)
    x3, x4 = m(x2, x), m(x2, x2)
    u = rdp(m(sat(rdp(x4, 2) + x3), 10923) + x2, 1)
    return sat(28918 + m(np.full_like(x, 28918), x + u))


def exp(a: Array, k: int) -> Array:
    """Compute the exponential of F3."""
    f = 15 - k
    quarter = 1 << (f - 2)
    b = (a & (quarter - 1)) - quarter
    r = exp_quarter(sh(b, k))
    for j, c in zip(range(-2, 5), (25520, 19875, 12055, 4435, 600, 11, 0), strict=True):
        if k > j:
            r = np.where((b - a) >> (f + j) & 1 == 1, m(r, c), r)
    if k > 5:
        r = np.where(a < -(32 << f), 0, r)
    return np.where(a == 0, MOST, r)


def near_half(a: Array) -> Array:
    """Compute F4."""
    total = a + MOST
    h = truncated(total + np.where(total >= 0, 1, -1), 2)
    x = 23130 + m(h, -15420)
    for _ in range(3):
        x = x + sh(m(x, 8192 - m(h, x)), 2)
    return x


def tanh(a: Array, k: int) -> Array:
    """Compute tanh by F5."""
    n = -np.abs(a)
    t = sh(near_half(exp(n, k + 1)) - 8192, 2)
    return np.where(a == 0, 0, np.where(a > 0, t, -t))


def logistic(a: Array, k: int) -> Array:
    """Compute the logistic function by F6."""
    p = sh(near_half(exp(-np.abs(a), k)), 1)
    return np.where(a == 0, 16384, np.where(a > 0, p, MOST - p))
