"""64-bit integers that expose differences between implementations."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
LOWEST, HIGHEST = -(2**63), 2**63 - 1


def points(dtype: str = "int64") -> Array:
    """Return range limits of all widths with their neighbours, and random numbers of every width."""
    random = np.random.default_rng(11)
    powers = (0, 8, 15, 16, 31, 32, 33, 53, 62)
    near = [sign * (2**power) + step for power in powers for sign in (-1, 1) for step in (-1, 0, 1)]
    near += [LOWEST, LOWEST + 1, HIGHEST, HIGHEST - 1, 10, -10, 3, 7, -7, 100000, 2**40 + 1]
    wide = [int(n) >> shift for shift, n in enumerate(random.integers(LOWEST, HIGHEST, 60, endpoint=True))]
    return np.array(sorted({*near, *wide}), "int64").view(dtype)


def pairs(dtype: str) -> tuple[Array, Array]:
    """Return every point paired with every other."""
    numbers = points(dtype)
    return np.repeat(numbers, numbers.size), np.tile(numbers, numbers.size)


def divisible_pairs(dtype: str) -> tuple[Array, Array]:
    """Return the pairs whose quotient SPIR-V defines."""
    a, b = pairs(dtype)
    defined = (b != 0) & ~((b.view("int64") == -1) & (a.view("int64") == LOWEST) & (dtype == "int64"))
    return a[defined], b[defined]


def truncated_quotients(a: Array, b: Array) -> Array:
    found = [abs(int(x)) // abs(int(y)) * (1 if (x < 0) == (y < 0) else -1) for x, y in zip(a, b, strict=True)]
    return np.array(found, a.dtype)
