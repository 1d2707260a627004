"""Data movement operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cases.rows import EXACT, Case, Given, case, fixed, x

INTEGERS = {"uint8": "8", "int16": "16", "int32": "32", "int64": "64"}  # bits


def moved(op: str, note: str, *inputs: Given | None, **options: Any) -> Case:
    return case(op, note, *inputs, **{**EXACT, **options})


def transposes() -> Iterator[Case]:
    """Transpositions through tiles of 64 or 32 a side, for long enough rows and columns: at tile borders, within one
    tile and past several."""
    for rows, columns in ((16, 16), (15, 33), (32, 64), (33, 65), (64, 32), (130, 66), (67, 131)):
        yield moved("Transpose", f"tiles of {rows} by {columns}", x(rows, columns))
    for dtype, bits in INTEGERS.items():
        yield moved("Transpose", f"{bits} bits in tiles", x(66, 70, dtype=dtype, low=0, high=100))
        yield moved("Transpose", f"{bits} bits, odd sizes", x(35, 67, dtype=dtype, low=0, high=100))
        yield moved("Transpose", f"{bits} bits, pairs", x(18, 34, 2, dtype=dtype, low=0, high=100), perm=[1, 0, 2])
    yield moved("Transpose", "matrices of a batch", x(3, 34, 18), perm=[0, 2, 1])
    yield moved("Transpose", "matrices among four axes", x(2, 18, 3, 34), perm=[2, 3, 0, 1])
    yield moved("Transpose", "matrices among five axes", x(2, 18, 3, 34, 2), perm=[4, 2, 0, 3, 1])
    yield moved("Transpose", "columns far apart", x(2, 18, 3, 20), perm=[0, 3, 2, 1])
    yield moved("Transpose", "runs of four", x(5, 3, 4), perm=[1, 0, 2])
    yield moved("Transpose", "runs of six", x(5, 3, 6), perm=[1, 0, 2])


def groups() -> Iterator[Case]:
    """Neighbouring elements that are moved or computed as one group of 32 to 128 bits, if sizes, strides and offsets permit."""
    for dtype, bits in INTEGERS.items():

        def given(*shape: int, dtype: str = dtype) -> Given:
            return x(*shape, dtype=dtype, low=0, high=100)

        for width in (2, 4, 8, 16, 24):
            yield moved("Concat", f"{bits} bits, columns of {width}", given(3, width), given(3, width), axis=1)
        yield moved("Concat", f"{bits} bits, rows of two", given(1, 2), given(2, 2), given(5, 2), given(8, 2), axis=0)
        yield moved("Split", f"{bits} bits, from 4 and 12 on", given(3, 28), fixed([4, 8, 16]), outputs=3, axis=1)
        yield moved("Slice", f"{bits} bits, from 1 on", given(5, 33), fixed([1]), fixed([33]), fixed([1]))
        yield moved(
            "Slice", f"{bits} bits, every second", given(5, 32), fixed([0]), fixed([32]), fixed([1]), fixed([2])
        )
        yield moved(
            "Slice", f"{bits} bits, backwards", given(4, 16), fixed([-1]), fixed([-99]), fixed([1]), fixed([-1])
        )
        yield moved("DepthToSpace", f"{bits} bits, blocks of two", given(1, 8, 3, 8), blocksize=2, mode="CRD")
        yield moved("DepthToSpace", f"{bits} bits, blocks of four", given(2, 16, 2, 4), blocksize=4)
        yield moved("SpaceToDepth", f"{bits} bits, blocks of two", given(2, 2, 4, 16), blocksize=2)
        yield moved("Expand", f"{bits} bits, along the last axis", given(3, 1), fixed([3, 16]))
        yield moved("Expand", f"{bits} bits, rows", given(1, 16), fixed([7, 16]))
        yield moved("Tile", f"{bits} bits", given(3, 16), fixed([2, 3]))
        for before, after in ((16, 32), (4, 8), (2, 2), (1, 3)):
            pads = fixed([1, before, 0, after])
            yield moved("Pad", f"{bits} bits, {before} before {after}", given(3, 16), pads, fixed(77, dtype))
        for mode in ("reflect", "wrap", "edge", "constant"):
            yield moved(
                "Pad", f"{bits} bits, {mode}, made at once", given(2, 3, 13), fixed([0, 1, 1, 0, 2, 2]), mode=mode
            )
        yield moved("Pad", f"{bits} bits, whole rows", given(3, 16), fixed([2, 0, 1, 0]), mode="edge")
        for width in (2, 4, 6, 16):
            yield moved("Gather", f"{bits} bits, rows of {width}", given(5, width), fixed([3, 0, -1, 3]))
        yield moved("Gather", f"{bits} bits, within a batch", given(2, 5, 16), fixed([[4, 0], [1, 1]]), axis=1)
        yield moved("GatherND", f"{bits} bits, rows", given(2, 3, 8), fixed([[1, 2], [0, 0], [1, 0]]))


def data_movement() -> Iterator[Case]:
    yield from transposes()
    yield from groups()
    yield moved("Concat", "channels", x(1, 3, 5, 7), x(1, 4, 5, 7), axis=1)
    yield moved("Concat", "the last axis, odd sizes", x(3, 5), x(3, 1), x(3, 7), axis=-1)
    yield moved("Concat", "one", x(3, 5), axis=0)
    yield moved("Concat", "an empty one", x(3, 0), x(3, 5), axis=1)
    yield moved(
        "Concat", "bytes", x(3, 5, dtype="uint8", low=0, high=255), x(3, 2, dtype="uint8", low=0, high=255), axis=1
    )
    yield moved(
        "Concat",
        "64-bit integers",
        x(2, 3, dtype="int64", low=-9, high=9),
        x(1, 3, dtype="int64", low=-9, high=9),
        axis=0,
    )
    yield moved("Concat", "seven", *[x(2, n, 3) for n in (1, 2, 3, 4, 5, 6, 7)], axis=1)
    yield moved("Split", "equal parts", x(2, 6, 5), outputs=3, axis=1, num_outputs=3)
    yield moved("Split", "sizes given, odd starts", x(3, 11), fixed([1, 3, 7]), outputs=3, axis=1)
    yield moved("Split", "an empty last part", x(4, 3), outputs=3, axis=0, num_outputs=3)
    yield moved("Split", "an uneven last part", x(7, 3), outputs=3, axis=0, num_outputs=3)
    yield moved("Slice", "a crop", x(1, 3, 11, 13), fixed([2, 3]), fixed([-2, -1]), fixed([2, 3]))
    yield moved("Slice", "steps", x(11, 13), fixed([1, 0]), fixed([11, 100]), fixed([0, 1]), fixed([3, 2]))
    yield moved("Slice", "backwards", x(7, 5), fixed([-1, 4]), fixed([-100, 0]), fixed([0, 1]), fixed([-1, -2]))
    yield moved("Slice", "nothing", x(7, 5), fixed([3]), fixed([3]))
    yield moved(
        "Slice", "bytes from an odd start", x(9, 7, dtype="uint8", low=0, high=255), fixed([1]), fixed([6]), fixed([1])
    )
    yield moved("Transpose", "a matrix", x(13, 17))
    yield moved("Transpose", "NCHW to NHWC", x(2, 3, 5, 7), perm=[0, 2, 3, 1])
    yield moved("Transpose", "five axes", x(2, 3, 4, 5, 3), perm=[4, 1, 3, 0, 2])
    yield moved("Transpose", "bytes", x(5, 7, dtype="int8", low=-128, high=127), perm=[1, 0])
    yield moved("Transpose", "booleans", x(5, 7, dtype="bool"), perm=[1, 0])
    yield moved("Transpose", "rank 8", x(2, 1, 3, 2, 1, 2, 3, 2), perm=[7, 6, 5, 4, 3, 2, 1, 0])
    yield moved("DepthToSpace", "DCR", x(2, 12, 3, 5), blocksize=2)
    yield moved("DepthToSpace", "CRD", x(1, 9, 5, 4), blocksize=3, mode="CRD")
    yield moved("SpaceToDepth", "blocks of two", x(2, 3, 6, 4), blocksize=2)
    yield moved("Expand", "two axes", x(3, 1, 5), fixed([2, 3, 4, 5]))
    yield moved("Expand", "one element", x(1), fixed([67]))
    yield moved("Expand", "bytes", x(1, 3, dtype="uint8", low=0, high=255), fixed([5, 3]))
    yield moved("Pad", "constant", x(1, 3, 5, 7), fixed([0, 0, 1, 2, 0, 1, 3, 4]))
    yield moved("Pad", "constant of its own", x(5, 7), fixed([1, 0, 0, 3]), fixed(1.5, "float32"))
    yield moved("Pad", "reflect", x(1, 3, 9, 8), fixed([0, 0, 4, 3, 0, 0, 2, 7]), mode="reflect")
    yield moved("Pad", "edge", x(1, 2, 4, 3), fixed([0, 0, 2, 5, 0, 0, 1, 1]), mode="edge")
    yield moved("Pad", "some axes", x(3, 5, 4), fixed([1, 2, 0, 1]), None, fixed([2, 0]))
    yield moved("Pad", "crops", x(6, 7), fixed([-1, 2, 1, -3]))
    yield moved("Pad", "integers", x(3, 5, dtype="int32", low=-9, high=9), fixed([1, 1, 1, 1]), fixed(7, "int32"))
    yield moved(
        "Pad", "64-bit integers", x(3, 5, dtype="int64", low=-9, high=9), fixed([1, 0, 2, 1]), fixed(-7, "int64")
    )
    yield moved("Pad", "bytes", x(3, 5, dtype="uint8", low=0, high=255), fixed([0, 2, 1, 1]), mode="edge")
    yield moved("Pad", "wrap", x(3, 5), fixed([1, 2, 2, 4]), mode="wrap")
    yield moved(
        "Pad",
        "eight axes",
        x(2, 1, 3, 2, 1, 2, 2, 3),
        fixed([1, 0, 1, 1, 2, 0, 1, 1, 0, 1, 0, 1, 0, 1, 1, 0]),
        mode="edge",
    )
    yield moved("Pad", "six axes, bytes", x(2, 3, 2, 3, 2, 3, dtype="uint8", low=0, high=255), fixed([1] * 12))
    yield moved(
        "Slice",
        "eight axes, backwards",
        x(2, 3, 2, 2, 3, 2, 2, 3),
        fixed([-1] * 8),
        fixed([-9] * 8),
        fixed([*range(8)]),
        fixed([-1, -2] * 4),
    )
    yield moved("SpaceToDepth", "bytes", x(1, 1, 4, 6, dtype="uint8", low=0, high=255), blocksize=2)
    yield moved(
        "DepthToSpace", "64-bit integers", x(1, 8, 2, 3, dtype="int64", low=-9, high=9), blocksize=2, mode="CRD"
    )
    yield moved("Split", "bytes, uneven", x(3, 7, dtype="uint8", low=0, high=255), outputs=3, axis=1, num_outputs=3)
