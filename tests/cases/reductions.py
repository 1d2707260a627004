"""Reductions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cases.rows import EXACT, Case, case, fixed, given, x


def positions() -> Iterator[Case]:
    """ArgMax and ArgMin."""
    for op in ("ArgMax", "ArgMin"):
        yield case(op, "the last axis", x(5, 37), axis=-1)
        yield case(op, "a middle axis, dropped", x(3, 11, 5), axis=1, keepdims=0)
        for last in (0, 1):
            ties = x(7, 41, dtype="int32", low=-1, high=1)
            yield case(op, f"equals, select_last_index={last}", ties, axis=1, select_last_index=last)
            nan = given(
                [[1.0, np.nan, 3.0, np.nan, -np.inf], [2.0, 5.0, 5.0, np.inf, -1.0], [np.inf] * 5, [-np.inf] * 5]
            )
            yield case(op, f"NaN is the best, select_last_index={last}", nan, axis=1, select_last_index=last)
        yield case(op, "in parts", x(2, 70001), axis=1)
        for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float64"):
            low = 0 if dtype.startswith("u") else -99
            yield case(op, dtype, x(5, 37, dtype=dtype, low=low, high=99), axis=1)
            ends = np.iinfo(dtype) if dtype != "float64" else np.finfo(dtype)
            lowest, highest = np.full(9, ends.min, dtype), np.full(9, ends.max, dtype)
            yield case(op, f"{dtype}, all the lowest or the highest", given([lowest, highest], dtype), axis=1)
        zeros = given([[-1.0, -0.0, 0.0], [1.0, 0.0, -0.0], [-np.nan, 1.0, np.nan], [0.0, -np.nan, np.inf]])
        yield case(op, "zeros and NaN of either sign", zeros, axis=1)
        yield case(op, "one number", given(2.5), axis=0, keepdims=0)
        yield case(op, "no rows", x(0, 4), axis=1)


def teams() -> Iterator[Case]:
    """Rows and columns around the sizes from which more invocations share them, in vec4s or not."""
    sums = {"fp32": (1e-4, 1e-4), "fp16": (2e-3, 0.5)}
    for rows, columns in ((19, 31), (19, 32), (19, 33), (5, 1020), (5, 1023), (5, 1024), (5, 1025)):
        yield case("ReduceSum", f"{rows} rows of {columns}", x(rows, columns), fixed([1]), **sums)
    yield case("ReduceSum", "rows of fours in parts", x(2, 70000), fixed([1]), **sums)
    yield case("ReduceSum", "two axes, fours", x(3, 5, 4, 8), fixed([1, 3]), **sums)
    yield case("ReduceSum", "integers in fours", x(3, 1028, dtype="int32", low=-99, high=99), fixed([1]))
    for rows, columns in ((37, 15), (37, 16), (37, 17), (37, 68), (700, 17), (700, 68)):
        yield case("ReduceSum", f"{columns} columns of {rows}", x(rows, columns), fixed([0]), **sums)
        yield case("ReduceMax", f"{columns} columns of {rows}", x(rows, columns), fixed([0]), **EXACT)
    yield case("ReduceSum", "columns of outer axes", x(3, 5, 7, 16), fixed([0, 2]), keepdims=0, **sums)
    yield case("ReduceSum", "columns of images", x(3, 37, 20), fixed([1]), keepdims=0, **sums)
    yield case("ReduceMin", "columns of integers", x(37, 20, dtype="int32", low=-99, high=99), fixed([0]))
    yield case("ReduceSum", "columns of doubles", x(37, 20, dtype="float64"), fixed([0]), fp32=(1e-13, 1e-13))
    yield case("ReduceLogSumExp", "columns in parts", x(700, 20), fixed([0]), fp16=(2e-3, 1e-2))
    special = np.zeros((37, 16), "float32")
    special[5, :6] = np.inf, -np.inf, np.nan, np.inf, np.nan, -np.inf
    special[9, 3:6] = -np.inf, np.inf, -np.inf
    yield case("ReduceLogSumExp", "columns with NaN and infinities", given(special), fixed([0]), fp16=(2e-3, 1e-2))
    yield case("ReduceMax", "columns with NaN and infinities", given(special), fixed([0]), **EXACT)
    yield case("ReduceSum", "no columns' elements", x(0, 20), fixed([0]))
    yield case("ReduceMax", "no rows' elements", x(3, 0), fixed([1]))
    for op in ("ArgMax", "ArgMin"):
        yield case(op, "rows of fours", x(3, 1028), axis=1)
        yield case(op, "columns of fours in parts", x(700, 20, dtype="int32", low=-50, high=50), axis=0)


def scans() -> Iterator[Case]:
    """CumSum and CumProd."""
    loose = {"fp32": (1e-5, 1e-4), "fp16": (2e-3, 4e-2)}
    for exclusive in (0, 1):
        for reverse in (0, 1):
            options = {"exclusive": exclusive, "reverse": reverse}
            note = f"exclusive={exclusive}, reverse={reverse}"
            yield case("CumSum", note, x(3, 37, 5), fixed(1), **options, **loose)
            yield case("CumSum", f"in parts, {note}", x(2, 70001, dtype="int32", low=-9, high=9), fixed(-1), **options)
            yield case("CumProd", note, x(5, 7, low=0.5, high=1.5), fixed(1), **options, **loose)
    yield case("CumSum", "floats in parts", x(1, 20011), fixed(1), fp32=(1e-4, 1e-2), fp16=(2e-3, 0.1))
    yield case("CumSum", "the first axis", x(131, 7), fixed(0, "int32"), **loose)
    yield case("CumSum", "NaN and infinities", given([1.0, np.inf, -np.inf, 1.0, np.nan]), fixed(0))
    for dtype in ("int64", "uint32", "uint64", "float64"):
        yield case("CumSum", dtype, x(3, 37, dtype=dtype, low=0, high=99), fixed(1), fp32=(1e-14, 1e-14))
        yield case("CumProd", dtype, x(3, 7, dtype=dtype, low=1, high=5), fixed(0), fp32=(1e-14, 1e-14))
    yield case("CumSum", "nothing", x(3, 0), fixed(1))


def reductions() -> Iterator[Case]:
    for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare"):
        yield case(op, "the last axis", x(5, 37), fixed([1]), fp16=(2e-3, 4e-2))
    yield case("ReduceProd", "the last axis", x(5, 7, low=0.5, high=1.5), fixed([1]), fp16=(2e-3, 1e-2))
    yield case("ReduceLogSum", "the last axis", x(5, 7, low=0.5, high=1.5), fixed([1]), fp16=(2e-3, 1e-2))
    yield case("ReduceLogSumExp", "the last axis", x(5, 7), fixed([1]), fp16=(2e-3, 1e-2))
    yield case("ReduceLogSumExp", "large numbers", x(3, 7, low=300, high=310), fixed([1]), fp16=(2e-3, 0.5))
    yield case("ReduceSum", "everything", x(3, 5, 7), keepdims=0, fp16=(2e-3, 4e-2))
    yield case("ReduceSum", "outer axes", x(3, 5, 7, 2), fixed([0, 2]), keepdims=0, fp16=(2e-3, 4e-2))
    yield case("ReduceMean", "the plane", x(2, 5, 13, 11), fixed([2, 3]), fp16=(2e-3, 1e-2))
    yield case("ReduceMean", "a long row", x(2, 70001), fixed([1]), fp32=(1e-4, 1e-5), fp16=(2e-3, 1e-2))
    yield case("ReduceMax", "many short rows", x(131, 3), fixed([-1]), **EXACT)
    yield case("ReduceMax", "NaN stays", given([[1.0, np.nan], [2.0, 3.0]]), fixed([1]), **EXACT)
    yield case("ReduceSum", "no axes, nothing to do", x(3, 5), fixed([], "int64"), noop_with_empty_axes=1)
    yield case("ReduceSum", "integers", x(5, 37, dtype="int32", low=-99, high=99), fixed([1]))
    yield case("ReduceSum", "64-bit integers", x(5, 37, dtype="int64", low=-99, high=99), fixed([0]))
    yield case("ReduceMax", "integers", x(5, 37, dtype="int32", low=-99, high=99), fixed([1]))
    yield case("ReduceMin", "bytes", x(5, 37, dtype="uint8", low=0, high=255), fixed([1]))
    yield case("ReduceMax", "booleans", x(5, 7, dtype="bool"), fixed([1]))
    for op in (
        "ReduceSum",
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
    ):
        yield case(op, "doubles", x(5, 37, dtype="float64"), fixed([1]), fp32=(1e-14, 1e-14))
    positive = x(5, 37, dtype="float64", low=0.5, high=2)
    yield case("ReduceLogSum", "doubles", positive, fixed([1]), fp32=(1e-14, 1e-14))
    for note, axes in (("rows", [1]), ("columns", [0])):
        yield case(
            "ReduceLogSumExp", f"{note} of doubles", x(67, 37, dtype="float64"), fixed(axes), fp32=(1e-14, 1e-14)
        )
    far = given([[-np.inf, 0.0, 1.0], [1e4, 1e4, 0.0]], "float64")
    yield case("ReduceLogSumExp", "doubles far apart", far, fixed([1]), fp32=(1e-14, 1e-14))
    yield case("ReduceSum", "doubles in parts", x(2, 70001, dtype="float64"), fixed([1]), fp32=(1e-13, 1e-11))
    yield case(
        "ReduceSum", "every other axis of eight", x(2, 3, 2, 2, 3, 2, 2, 3), fixed([0, 2, 4, 6]), fp16=(2e-3, 4e-2)
    )
    yield case(
        "ReduceMax",
        "every other axis of eight, dropped",
        x(2, 3, 2, 2, 3, 2, 2, 3),
        fixed([1, 3, 5, 7]),
        keepdims=0,
        **EXACT,
    )
    yield case("ReduceMean", "integers", x(5, 6, dtype="int32", low=0, high=99), fixed([1]))
