"""Operators that order elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cases.gather_scatter import moved
from cases.rows import SPECIAL, Case, fixed, given, x


def sorts() -> Iterator[Case]:
    def top(note: str, k: int, one: Any, **options: Any) -> Case:
        return moved("TopK", note, one, fixed([k]), outputs=2, **options)

    yield top("the largest", 3, x(5, 17))
    yield top("the smallest", 4, x(3, 11), largest=0)
    yield top("the first axis", 2, x(7, 3), axis=0)
    yield top("the middle axis", 5, x(2, 7, 3), axis=1, largest=0)
    yield top("ties, the whole axis", 67, x(67, low=-0.05, high=0.05))
    yield top("one of one", 1, x(1))
    yield top("none", 0, x(3, 5))
    yield top("of an empty tensor", 2, x(0, 5))
    yield top("NaN, infinities and both zeros", 11, given(SPECIAL))
    yield top("NaN, infinities and both zeros, the smallest", 11, given(SPECIAL), largest=0)
    yield top("a few of many", 5, x(2, 5003))
    yield top("half of many", 1500, x(2, 2999), largest=0)
    yield top("all of many", 4097, x(4097))
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        ends = np.iinfo(dtype)
        values = np.array([ends.max, 0, ends.min, 1, ends.max - 1, 0, ends.max // 2, ends.max // 2 + 1], dtype)
        yield top(dtype, 8, given(values, dtype), largest=0)
    yield top("64-bit integers, the largest of many", 7, x(2100, dtype="int64", low=-(2**40), high=2**40))
    yield top("float64", 9, given([1.5, np.nan, -np.inf, 2.0**-1000, 0.0, -0.0, np.inf, -1.0, 1e300], "float64"))
