"""Operators whose result is a view of their input."""

from __future__ import annotations

from collections.abc import Iterator

from cases.rows import EXACT, Case, case, fixed, x


def copies() -> Iterator[Case]:
    yield case("Reshape", "a zero and a one", x(2, 3, 35), fixed([0, -1, 5]), **EXACT)
    yield case("Flatten", "from the second axis", x(2, 3, 5, 7), axis=1, **EXACT)
    yield case("Squeeze", "one axis", x(2, 1, 5), fixed([1]), **EXACT)
    yield case("Unsqueeze", "two axes", x(2, 5), fixed([0, 3]), **EXACT)
    yield case("Shape", "all axes", x(2, 5, 3))
    yield case("Shape", "some axes", x(2, 5, 3, 7), start=1, end=-1)
    yield case("Constant", "numbers", value_floats=[1.0, -2.5, 3.0])
    yield case("Dropout", "passes its input on", x(3, 37), **EXACT)
