"""Conv, ConvTranspose, Gemm and MatMul."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cases.rows import EXACT, LOOSE, Case, Given, case, fixed, given, w, x


def convolutions() -> Iterator[Case]:
    def conv(note: str, *inputs: Given | None, **options: Any) -> Case:
        return case("Conv", note, *inputs, **{**LOOSE, **options})

    yield conv("3x3 with padding", x(1, 3, 7, 11), w(5, 3, 3, 3), w(5), pads=[1, 1, 1, 1])
    yield conv("1x1, batch 3, 17 pixels", x(3, 5, 1, 17), w(7, 5, 1, 1), w(7))
    yield conv("one element", x(1, 1, 1, 1), w(1, 1, 1, 1), w(1))
    yield conv("no bias, strides and uneven padding", x(2, 4, 13, 9), w(16, 4, 3, 5), strides=[2, 3], pads=[0, 2, 1, 1])
    yield conv("many tiles, channels in eights", x(1, 40, 65, 67), w(72, 40, 3, 3), w(72), pads=[1, 1, 1, 1])
    yield conv("many tiles, few channels out", x(1, 24, 97, 89), w(30, 24, 1, 1), w(30), strides=[1, 1])
    yield conv("many tiles of groups", x(2, 32, 65, 67), w(48, 16, 3, 3), group=2, strides=[1, 1], dilations=[2, 1])
    yield conv("dilated", x(1, 8, 19, 17), w(9, 8, 3, 3), w(9), dilations=[2, 3], pads=[2, 3, 2, 3])
    yield conv("kernel larger than the image", x(1, 2, 3, 3), w(3, 2, 5, 5), w(3), pads=[2, 2, 2, 2])
    yield conv("9x9 of three channels", x(1, 3, 21, 19), w(17, 3, 9, 9), w(17), pads=[4, 4, 4, 4])
    yield conv("three output channels", x(1, 16, 18, 23), w(3, 16, 9, 9), w(3), pads=[4, 4, 4, 4])
    yield conv("past one tile of pixels and channels", x(1, 12, 9, 9), w(67, 12, 3, 3), w(67), pads=[1, 1, 1, 1])
    yield conv("many channels, few pixels", x(1, 131, 5, 5), w(66, 131, 1, 1), w(66))
    yield conv("channels in fours", x(1, 64, 13, 13), w(64, 64, 3, 3), w(64), pads=[1, 1, 1, 1])
    yield conv("patches", x(2, 3, 32, 24), w(10, 3, 8, 8), w(10), strides=[8, 8])
    yield conv("patches, and a rest of the image", x(1, 3, 37, 30), w(24, 3, 8, 8), strides=[8, 8], auto_pad="VALID")
    yield conv("two groups", x(2, 6, 7, 8), w(10, 3, 3, 3), w(10), group=2, pads=[1, 1, 1, 1])
    yield conv("depthwise", x(2, 7, 11, 13), w(7, 1, 3, 3), w(7), group=7, pads=[1, 1, 1, 1])
    yield conv(
        "depthwise, channels in fours, stride 2", x(1, 32, 15, 15), w(32, 1, 3, 3), w(32), group=32, strides=[2, 2]
    )
    yield conv("depthwise, rows in fours", x(2, 3, 6, 12), w(3, 1, 3, 3), w(3), group=3, pads=[1, 1, 1, 1])
    yield conv("depthwise 5x3, dilated", x(1, 4, 17, 19), w(4, 1, 5, 3), group=4, dilations=[2, 3], pads=[4, 3, 4, 3])
    yield conv("depthwise 7x7, uneven steps", x(1, 8, 21, 23), w(8, 1, 7, 7), w(8), group=8, strides=[2, 3])
    yield conv("depthwise, a kernel too large to unroll", x(1, 3, 13, 31), w(3, 1, 3, 27), w(3), group=3)
    yield conv("depthwise, steps too wide to hold", x(1, 3, 9, 90), w(3, 1, 3, 3), w(3), group=3, strides=[1, 9])
    yield conv("depthwise over one axis", x(2, 6, 31), w(6, 1, 5), w(6), group=6, pads=[2, 2])
    yield conv("depthwise, SAME_UPPER", x(1, 5, 10, 11), w(5, 1, 3, 4), group=5, auto_pad="SAME_UPPER", strides=[2, 2])
    yield conv("depthwise, weights given at the call", x(1, 4, 8, 7), x(4, 1, 3, 3), x(4), group=4)
    yield conv("depthwise, no images", x(0, 4, 8, 8), w(4, 1, 3, 3), w(4), group=4)
    yield conv("depthwise with a multiplier", x(1, 5, 9, 9), w(15, 1, 3, 3), w(15), group=5)
    yield conv("one axis", x(2, 3, 31), w(4, 3, 5), w(4), pads=[2, 2], strides=[2])
    yield conv("SAME_UPPER", x(1, 3, 10, 11), w(4, 3, 3, 4), w(4), auto_pad="SAME_UPPER", strides=[2, 2])
    yield conv("SAME_LOWER", x(1, 3, 10, 11), w(4, 3, 3, 4), w(4), auto_pad="SAME_LOWER", strides=[2, 2])
    yield conv("VALID", x(1, 3, 10, 11), w(4, 3, 3, 3), w(4), auto_pad="VALID")
    yield conv("weights given at the call", x(1, 3, 8, 7), x(6, 3, 3, 3), x(6), pads=[1, 1, 1, 1])
    yield conv("three axes", x(2, 3, 5, 7, 6), w(4, 3, 2, 3, 3), w(4), pads=[1, 1, 0, 0, 1, 1], strides=[1, 2, 1])
    yield conv("three axes, groups, dilated", x(1, 6, 7, 5, 6), w(4, 3, 2, 3, 1), group=2, dilations=[2, 1, 1])
    yield conv(
        "three axes, SAME_UPPER", x(1, 2, 5, 6, 7), w(3, 2, 3, 2, 3), w(3), auto_pad="SAME_UPPER", strides=[2, 2, 2]
    )
    yield conv("three axes, weights given at the call", x(1, 2, 4, 5, 6), x(3, 2, 3, 3, 3), x(3))
    yield conv("no images", x(0, 3, 8, 8), w(4, 3, 3, 3), w(4))

    def transposed(note: str, *inputs: Given | None, **options: Any) -> Case:
        return case("ConvTranspose", note, *inputs, **{**LOOSE, **options})

    yield transposed(
        "3x3, stride 2, output padding", x(1, 6, 5, 7), w(6, 5, 3, 3), w(5), strides=[2, 2], output_padding=[1, 1]
    )
    yield transposed("stride 1", x(2, 3, 4, 5), w(3, 7, 3, 2), w(7))
    yield transposed("strides past all outputs", x(1, 2, 1, 1), w(2, 3, 3, 2), w(3), strides=[1 << 20, 1 << 20])
    yield transposed("strides of many phases", x(2, 4, 2, 3), w(4, 3, 3, 2), w(3), strides=[70, 70], dilations=[2, 3])
    yield transposed("one axis of many phases", x(1, 4, 3), w(4, 3, 5), strides=[5000], pads=[3, 4], output_padding=[9])
    yield transposed("padding crops", x(1, 4, 6, 6), w(4, 3, 4, 4), strides=[2, 2], pads=[1, 1, 1, 1])
    yield transposed("stride 3 skips", x(1, 2, 4, 3), w(2, 3, 2, 2), w(3), strides=[3, 3])
    yield transposed("dilated", x(1, 3, 5, 5), w(3, 4, 3, 3), w(4), dilations=[2, 2], strides=[2, 2])
    yield transposed("two groups", x(1, 6, 4, 4), w(6, 3, 3, 3), w(6), group=2, strides=[2, 2])
    yield transposed("one axis", x(1, 3, 9), w(3, 4, 3), w(4), strides=[2])
    yield transposed(
        "three axes", x(1, 3, 4, 3, 5), w(3, 4, 2, 3, 3), w(4), strides=[2, 1, 2], output_padding=[1, 0, 1]
    )
    yield transposed(
        "three axes, cropped, dilated", x(2, 2, 3, 4, 3), w(2, 3, 2, 2, 2), dilations=[2, 1, 2], pads=[1, 0, 1, 0, 1, 1]
    )
    yield transposed("three axes, groups", x(1, 4, 3, 3, 2), w(4, 2, 2, 2, 2), w(4), group=2, strides=[1, 2, 2])
    yield transposed("depthwise", x(1, 5, 4, 6), w(5, 1, 3, 3), w(5), group=5, strides=[2, 2])
    yield transposed("one element", x(1, 1, 1, 1), w(1, 1, 1, 1), w(1))
    yield transposed(
        "channels in fours", x(1, 16, 9, 10), w(16, 32, 3, 3), w(32), strides=[2, 2], output_padding=[1, 1]
    )


def einsums() -> Iterator[Case]:
    def einsum(equation: str, *inputs: Given | None, note: str = "", **options: Any) -> Case:
        return case("Einsum", equation + note, *inputs, equation=equation, **{**LOOSE, **options})

    yield einsum("ij,jk->ik", x(5, 7), w(7, 3))
    yield einsum("ij,jk", x(5, 7), x(7, 3))
    yield einsum("bij,bkj->bki", x(3, 5, 7), x(3, 2, 7))
    yield einsum("bhqd,bkhd->bhqk", x(2, 3, 5, 7), x(2, 11, 3, 7))
    yield einsum("i,j->ji", x(5), x(7))
    yield einsum("i,i->", x(31), x(31))
    yield einsum("ii->i", x(7, 7), **EXACT)
    yield einsum("ii", x(7, 7))
    yield einsum("iji,j->ij", x(5, 3, 5), x(3))
    yield einsum("ijk->ki", x(3, 5, 7))
    yield einsum("ijk->kij", x(3, 5, 7), **EXACT)
    yield einsum("...ij,...jk->...ik", x(2, 1, 5, 7), x(3, 7, 4))
    yield einsum("...i,i...->...", x(3, 7), x(7, 3))
    yield einsum("i...->...", x(3, 5, 7))
    yield einsum("ij,jk,kl->il", x(3, 5), x(5, 7), x(7, 2))
    yield einsum("abc,cd,ad,b->bd", x(2, 3, 5), x(5, 4), x(2, 4), x(3), fp16=(4e-3, 0.1))
    yield einsum("ij,ij->ij", x(5, 7), x(5, 7))
    yield einsum(" i j , j k -> i k ", x(5, 0), x(0, 3), note=", an empty sum")
    yield einsum("ij,jk->ik", x(5, 7, dtype="float64"), x(7, 3, dtype="float64"), note=", doubles", fp32=(1e-14, 1e-14))
    integers: dict[str, Any] = {"dtype": "int32", "low": -9, "high": 9}
    yield einsum("ij,kj->ki", x(5, 7, **integers), x(3, 7, **integers), note=", integers")


def fp64_matmuls() -> Iterator[Case]:
    """Matmuls of float64 and integers."""
    for dtype in ("float64", "int32", "uint32", "int64", "uint64"):
        numbers: dict[str, Any] = {"dtype": dtype, "low": 0 if dtype.startswith("u") else -9, "high": 9}
        tight = {"fp32": (1e-14, 1e-14)}
        yield case("MatMul", f"{dtype}, batches", x(2, 1, 5, 7, **numbers), w(3, 7, 4, **numbers), **tight)
        yield case("MatMul", f"{dtype}, vectors", x(31, **numbers), x(31, **numbers), **tight)
        both = x(13, 17, **numbers), x(9, 13, **numbers), w(9, **numbers)
        yield case("Gemm", f"{dtype}, both transposed", *both, transA=1, transB=1, alpha=2.0, beta=3.0, **tight)
    yield case("Gemm", "float64, factors", x(7, 11, dtype="float64"), w(11, 5, dtype="float64"), alpha=0.125, **tight)
    yield case("MatMul", "float64, vector and batch", x(7, dtype="float64"), x(3, 7, 4, dtype="float64"), **tight)
    yield case("MatMul", "float64, batch and vector", x(3, 4, 7, dtype="float64"), x(7, dtype="float64"), **tight)


def determinants() -> Iterator[Case]:
    def det(note: str, *inputs: Given | None, **options: Any) -> Case:
        return case("Det", note, *inputs, **{"fp32": (1e-4, 1e-4), "fp16": (2e-2, 2e-2), **options})

    double: dict[str, Any] = {"fp32": (1e-12, 1e-12)}
    yield det("one matrix", x(3, 3))
    yield det("batches", x(2, 3, 5, 5))
    yield det("one element", x(1, 1))
    yield det("many small ones", x(67, 2, 2))
    yield det("past a workgroup", x(2, 67, 67, low=-0.125, high=0.125), fp32=(1e-3, 1e-30), fp16=(1.0, 1e-3))
    yield det("doubles", x(3, 7, 7, dtype="float64"), **double)
    yield det("doubles, past a workgroup", x(2, 71, 71, dtype="float64", low=-0.25, high=0.25), fp32=(1e-9, 0.0))
    singular = [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 1.0, 1.0]]
    yield det("singular", given(singular))
    yield det("a zero where the first pivot would be", given([[0.0, 2.0], [3.0, 1.0]]))
    yield det("NaN", given([[[1.0, np.nan], [3.0, 1.0]], [[1.0, 2.0], [3.0, 4.0]]]))
    yield det("empty matrices", x(3, 0, 0))
    yield det("no matrices", x(0, 3, 3))


def matmuls() -> Iterator[Case]:
    def gemm(note: str, *inputs: Given | None, **options: Any) -> Case:
        return case("Gemm", note, *inputs, **{**LOOSE, **options})

    yield gemm("one row", x(1, 37), w(37, 10), w(10))
    yield gemm("three rows, B transposed", x(3, 64), w(19, 64), w(19), transB=1)
    yield gemm("A transposed, factors", x(13, 7), w(13, 5), w(5), transA=1, alpha=0.5, beta=-2.0)
    yield gemm("both transposed, no C", x(13, 17), w(9, 13), transA=1, transB=1)
    yield gemm("C is a matrix", x(7, 11), w(11, 6), w(7, 6), alpha=2.0, beta=0.25)
    yield gemm("C is a column", x(7, 11), w(11, 6), w(7, 1), beta=0.5)
    yield gemm("C is a number", x(7, 11), w(11, 6), fixed(1.5, "float32"))
    yield gemm("C is one row of two axes", x(7, 11), w(11, 6), w(1, 6))
    yield gemm("everything given at the call", x(5, 8), x(8, 12), x(12))
    yield gemm("one element", x(1, 1), w(1, 1), w(1))
    yield gemm("no rows", x(0, 4), w(4, 3), w(3))
    yield gemm("an empty sum", x(3, 0), w(0, 4), w(4))
    yield gemm("past a tile", x(65, 33), w(33, 65), w(65))

    def matmul(note: str, *inputs: Given | None, **options: Any) -> Case:
        return case("MatMul", note, *inputs, **{**LOOSE, **options})

    for rows in (1, 2, 3, 4):
        yield matmul(f"{rows} rows by many columns", x(rows, 203), w(203, 75))
    yield matmul("a row by a batch", x(3, 1, 131), x(3, 131, 40))
    yield gemm("one row, bias of the row", x(1, 257), w(257, 33), w(33))
    for rows in (1, 2):
        yield matmul(f"{rows} rows by a deep constant", x(rows, 520), w(520, 40))
        yield gemm(f"{rows} rows by a deep constant", x(rows, 512), w(512, 136), w(136))
    deep: dict[str, Any] = {"fp32": (1e-4, 1e-3), "fp16": (2e-3, 0.1)}
    for rows, depth, columns in (
        (3, 256, 64),
        (16, 264, 65),
        (17, 320, 97),
        (33, 1000, 66),
        (64, 520, 2049),
        (65, 2048, 72),
        (128, 256, 96),
        (130, 1544, 130),
    ):
        yield matmul(f"{rows} rows by a constant of {columns} columns", x(rows, depth), w(depth, columns), **deep)
    yield gemm("33 rows, B transposed, factors", x(33, 264), w(72, 264), w(72), transB=1, alpha=0.5, beta=2.0, **deep)
    yield gemm("40 rows, a matrix added", x(40, 512), w(512, 100), x(40, 100), beta=0.5, **deep)
    yield matmul("a batch of rows by a deep constant", x(2, 3, 11, 256), w(256, 80), **deep)
    yield gemm("two rows, a matrix added", x(2, 160), w(160, 48), x(2, 48), alpha=0.5, beta=2.0)
    yield matmul("many wide tiles", x(1411, 19), w(19, 1543))
    yield matmul("sixteen rows", x(16, 512), w(512, 200))
    yield matmul("sixteen rows, deep", x(13, 1030), w(1030, 72))
    yield matmul("sixty rows, deep", x(61, 1024), x(1024, 96))
    yield matmul("depth off eights", x(70, 131), w(131, 101))
    yield gemm("A transposed, off eights", x(131, 70), x(131, 104), transA=1)

    yield matmul("matrices", x(7, 13), x(13, 5))
    yield matmul("constant right side", x(17, 24), w(24, 36))
    yield matmul("vectors", x(31), x(31))
    yield matmul("vector and matrix", x(11), x(11, 7))
    yield matmul("matrix and vector", x(7, 11), x(11))
    yield matmul("batches", x(3, 5, 7), x(3, 7, 4))
    yield matmul("broadcast batches", x(2, 1, 5, 7), x(3, 7, 4))
    yield matmul("a batch and one matrix", x(2, 3, 5, 8), w(8, 12))
    yield matmul("one matrix and a batch", x(5, 8), x(3, 8, 4))
    yield matmul("one element", x(1, 1), x(1, 1))
    yield matmul("an empty sum", x(3, 0), x(0, 4))
    yield matmul("long sum", x(3, 1031), w(1031, 17), fp32=(1e-4, 1e-3), fp16=(2e-3, 0.1))
    yield matmul("past a tile", x(67, 65), x(65, 66))
    yield matmul("many tiles, a depth of eights", x(1030, 72), w(72, 260))
    yield matmul("many tiles of a batch", x(3, 520, 40), x(3, 40, 264))
