"""Operators on constants only, which the host folds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cases.gather_scatter import BYTES, LONG, moved
from cases.rows import Case, case, fixed, given, w, x


def folded() -> Iterator[Case]:
    def host(op: str, *inputs: object, note: str = "on the host", **options: object) -> Case:
        return moved(op, note, *inputs, **options)  # type: ignore[arg-type]

    rows = fixed([[0, 2, 1], [4, 0, -2]])
    yield host("Gather", w(5, 3, **LONG), fixed([[4], [-1]]), axis=0)
    yield host("GatherElements", w(5, 3), rows)
    yield host("GatherND", w(2, 5, 3, **BYTES), fixed([[[1], [4]], [[-1], [0]]]), batch_dims=1)
    yield host("ScatterElements", w(5, 3, **LONG), rows, w(2, 3, **LONG))
    for reduction in ("add", "mul", "max", "min"):
        twice = fixed([[0], [3], [0]])
        yield host("ScatterND", w(5, 3), twice, w(3, 3), note=f"{reduction} on the host", reduction=reduction)
    yield host("OneHot", fixed([0, 3, -1, 7]), fixed(4), fixed([0.5, 2.0], "float32"), axis=0)
    yield host("Tile", w(3, 5, dtype="bool"), fixed([2, 3]))
    yield host("Trilu", w(3, 5, 4), fixed(1), upper=0)
    yield host("TopK", fixed([3.0, np.nan, 1.0, 3.0, -np.inf], "float32"), fixed([4]), outputs=2)
    yield host("TopK", w(5, 7, 2, **LONG), fixed([3]), outputs=2, axis=1, largest=0, note="integers on the host")
    yield host("NonZero", fixed([[1.5, 0.0, -0.0], [np.nan, 0.0, 2.0]], "float32"))
    yield host("NonZero", w(3, 0), note="of nothing")
    yield moved("NonZero", "values given at the call", given([[True, False], [True, True]], "bool"))
    yield host("Compress", w(3, 5), fixed([False, True, True], "bool"), axis=0)
    yield moved("Compress", "an axis", x(3, 5, 2), fixed([True, False, False, True], "bool"), axis=-2)
    yield moved("Compress", "all elements, bytes", x(3, 5, **BYTES), fixed([0, 1] * 7, "bool"))
    yield moved("Compress", "64-bit integers, nothing is left", x(3, **LONG), fixed([False], "bool"), axis=0)
    yield host("Range", fixed(7), fixed(-900), fixed(-3), note="down, on the host")
    yield host("Range", fixed(3, "int16"), fixed(3, "int16"), fixed(1, "int16"), note="nothing, on the host")
    yield case("Size", "of a tensor", x(2, 5, 3))
    yield case("Size", "of nothing", x(2, 0))
    yield case("Size", "rank 0", x())
