"""Operators that look up elements by indices from a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cases.rows import EXACT, Array, Case, Given, case, fixed, given, w, x

BYTES: dict[str, Any] = {"dtype": "uint8", "low": 0, "high": 255}
LONG: dict[str, Any] = {"dtype": "int64", "low": -9, "high": 9}


def moved(op: str, note: str, *inputs: Given | None, **options: Any) -> Case:
    return case(op, note, *inputs, **{**EXACT, **options})


def gathered_elements(data: Array, indices: Array, axis: int = 0) -> Array:
    """GatherElements with indices shorter than the data, which onnx's reference accepts only along the first axis."""
    axis %= data.ndim
    kept = tuple(slice(None) if k == axis else slice(size) for k, size in enumerate(indices.shape))
    return np.take_along_axis(data[kept], indices.astype(np.int64), axis)


def gathers() -> Iterator[Case]:
    yield moved("Gather", "rows", x(7, 5), fixed([0, 6, 3, -1, 0]))
    yield moved("Gather", "columns, indices of two axes", x(7, 5), fixed([[0, 4], [-2, 1]]), axis=1)
    yield moved("Gather", "indices given at the call", x(7, 3), given([1, 0, -7], "int32"))
    yield moved("Gather", "one index", x(7, 3), fixed(2))
    yield moved("Gather", "bytes", x(9, **BYTES), fixed([8, 1, 1]))
    yield moved("Gather", "no indices", x(7, 3), fixed([[]]))
    yield moved("Gather", "64-bit integers in the middle", x(3, 5, 2, **LONG), fixed([[4, -5, 0]]), axis=1)
    yield moved("GatherElements", "columns", x(5, 7), fixed([[0, 6, -1], [1, 1, 2]]), axis=1)
    yield moved("GatherElements", "rows, indices given at the call", x(5, 3), given([[4, 0, -5], [1, 2, 3]], "int64"))
    yield moved(
        "GatherElements", "the middle of three axes", x(2, 5, 3), given([[[4, 1, 0]], [[-1, -2, 2]]], "int32"), axis=1
    )
    yield moved("GatherElements", "bytes", x(3, 7, **BYTES), fixed([[1, 2, 6], [0, 0, -7], [5, 4, 3]]), axis=-1)
    yield moved("GatherElements", "64-bit integers", x(5, **LONG), fixed([4, 4, -2]))
    yield moved("GatherElements", "booleans", x(5, 3, dtype="bool"), given([[4, 0, 1]], "int64"))
    yield moved("GatherElements", "nothing", x(5, 3), fixed([[], []]), axis=1)
    yield moved(
        "GatherElements",
        "eight axes",
        x(2, 2, 1, 3, 2, 2, 2, 2),
        x(2, 1, 1, 2, 2, 1, 2, 2, dtype="int64", low=-3, high=2),
        axis=3,
    )
    yield moved("GatherND", "elements", x(5, 7), fixed([[0, 1], [4, -1], [-5, 3]]))
    yield moved("GatherND", "rows", x(5, 7), given([[[0], [-1]], [[2], [2]]], "int64"))
    yield moved("GatherND", "a batch axis", x(2, 5, 3), given([[[1], [4]], [[-1], [0]]], "int64"), batch_dims=1)
    yield moved("GatherND", "two batch axes", x(2, 3, 4, 5), x(2, 3, 2, dtype="int64", low=-4, high=3), batch_dims=2)
    yield moved("GatherND", "bytes", x(3, 5, 3, **BYTES), fixed([[0, 1], [2, 4]]))
    yield moved("GatherND", "booleans", x(3, 5, dtype="bool"), given([[2, 4], [0, 0], [1, -2]], "int64"))
    yield moved("GatherND", "64-bit integers", x(3, 5, **LONG), given([[2], [-3]], "int64"))
    yield moved(
        "GatherND",
        "eight axes",
        x(2, 1, 3, 2, 1, 2, 3, 2),
        fixed([[1, 0, 2, 1, 0, 1, 2, 1], [0, 0, -1, 0, 0, 1, 1, 0]]),
    )
    yield moved("GatherND", "nothing", x(3, 5), w(0, 1, dtype="int64"))


def scatters() -> Iterator[Case]:
    rows = fixed([[0, 2, 1], [4, 0, -2]])
    yield moved("ScatterElements", "rows", x(5, 3), rows, x(2, 3))
    yield moved(
        "ScatterElements",
        "columns, indices given at the call",
        x(3, 7),
        given([[6, 0], [-7, 3]], "int32"),
        x(2, 2),
        axis=1,
    )
    yield moved(
        "ScatterElements",
        "the middle of three axes",
        x(2, 5, 3),
        fixed([[[4, 1, 0]], [[-1, -2, 2]]]),
        x(2, 1, 3),
        axis=1,
    )
    yield moved("ScatterElements", "bytes", x(5, 3, **BYTES), rows, x(2, 3, **BYTES))
    yield moved("ScatterElements", "booleans", x(5, 3, dtype="bool"), rows, x(2, 3, dtype="bool"))
    yield moved("ScatterElements", "64-bit integers", x(5, 3, **LONG), rows, x(2, 3, **LONG))
    yield moved("ScatterElements", "no updates", x(5, 3), fixed([[], []]), x(2, 0), axis=1)
    twice = given([[0, 1, 1, 0, 1, -2]], "int64")
    for reduction in ("add", "mul", "max", "min"):
        yield case(
            "ScatterElements",
            f"{reduction} of several",
            x(2, 3),
            twice,
            x(1, 6),
            axis=1,
            reduction=reduction,
            fp16=(4e-3, 4e-3),
        )
        for dtype, low, high in (
            ("int8", -11, 11),
            ("uint8", 0, 15),
            ("int16", -99, 99),
            ("uint16", 0, 99),
            ("int32", -9, 9),
            ("uint32", 0, 9),
            ("int64", -9, 9),
            ("uint64", 0, 9),
        ):
            if dtype in ("int8", "int32", "int64") or reduction == "add":
                kind: dict[str, Any] = {"dtype": dtype, "low": low, "high": high}
                yield moved(
                    "ScatterElements",
                    f"{reduction} of {dtype}",
                    x(2, 3, **kind),
                    twice,
                    x(1, 6, **kind),
                    axis=1,
                    reduction=reduction,
                )
    yield moved("ScatterND", "elements", x(5, 7), fixed([[0, 1], [4, -1], [-5, 3]]), x(3))
    yield moved("ScatterND", "rows", x(5, 7), given([[1], [-1]], "int64"), x(2, 7))
    yield moved("ScatterND", "a row of each of several axes", x(2, 5, 3), fixed([[[0, 1], [1, 4]]]), x(1, 2, 3))
    yield moved("ScatterND", "bytes", x(5, 3, **BYTES), fixed([[0, 1], [4, 2]]), x(2, **BYTES))
    yield moved("ScatterND", "booleans", x(5, 3, dtype="bool"), fixed([[3], [0]]), x(2, 3, dtype="bool"))
    yield moved("ScatterND", "64-bit integers", x(5, 3, **LONG), given([[3], [0]], "int64"), x(2, 3, **LONG))
    yield moved("ScatterND", "nothing", x(5, 3), w(0, 1, dtype="int64"), x(0, 3))
    yield case(
        "ScatterND",
        "sums of rows",
        x(5, 67),
        given([[1], [3], [1], [1]], "int64"),
        x(4, 67),
        reduction="add",
        fp16=(4e-3, 4e-3),
    )
    yield case(
        "ScatterND",
        "products of elements",
        x(5, 3),
        given([[1, 2], [-1, 0], [1, 2]], "int64"),
        x(3),
        reduction="mul",
        fp16=(4e-3, 4e-3),
    )
