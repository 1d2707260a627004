"""The operator table's test table: one row a case. The same rows are compared with onnx's reference and timed by the benchmarks.

A row is `case(OP, NOTE, *inputs, **attributes)`. Inputs are arrays to be given at the call (`x`), constants of the graph (`w`, and
every array written out with `fixed`) or None where an optional input is left out. Random floats are multiples of 1/64 between -2
and 2, so that float16 holds them exactly and its tolerance is that of the arithmetic alone. Sizes are odd primes, one element,
nothing, just past a workgroup, just past a tile.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

OPSET = 21


@dataclass(frozen=True)
class Given:
    """One input of a case."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    constant: bool = False
    low: float = -2.0
    high: float = 2.0
    written: Array | None = field(default=None, compare=False)

    def array(self, random: np.random.Generator) -> Array:
        if self.written is not None:
            return self.written
        if self.dtype == "bool":
            return random.integers(0, 2, self.shape).astype(bool)
        if self.dtype.startswith("float"):
            steps = random.integers(round(self.low * 64), round(self.high * 64), self.shape, endpoint=True)
            return (steps / 64).astype(self.dtype)
        return random.integers(int(self.low), int(self.high), self.shape, endpoint=True).astype(self.dtype)


def x(*shape: int, dtype: str = "float32", low: float = -2.0, high: float = 2.0) -> Given:
    """Random elements, given at the call."""
    return Given(shape, dtype, False, low, high)


def w(*shape: int, dtype: str = "float32", low: float = -2.0, high: float = 2.0) -> Given:
    """Random elements, a constant of the graph."""
    return Given(shape, dtype, True, low, high)


def fixed(values: Any, dtype: str = "int64") -> Given:
    """A constant of the graph with these elements."""
    array = np.array(values, dtype)
    return Given(array.shape, dtype, True, written=array)


def given(values: Any, dtype: str = "float32") -> Given:
    """These elements, given at the call."""
    array = np.array(values, dtype)
    return Given(array.shape, dtype, False, written=array)


@dataclass(frozen=True)
class Case:
    """An operator on inputs. Tolerances are relative and absolute; integers and booleans have to be equal."""

    op: str
    note: str
    inputs: tuple[Given | None, ...]
    attributes: dict[str, Any]
    outputs: int
    fp32: tuple[float, float]
    fp16: tuple[float, float]
    large: bool  # for benchmarks and the --all tier

    def __str__(self) -> str:
        return f"{self.op}: {self.note}"

    @property
    def has_floats(self) -> bool:
        return any(one is not None and one.dtype == "float32" for one in self.inputs)

    def tolerance(self, precision: str) -> tuple[float, float]:
        """bfloat16 has three bits of mantissa less than float16."""
        if precision == "bf16":
            return 8 * self.fp16[0], 8 * self.fp16[1]
        return self.fp32 if precision == "fp32" else self.fp16

    def arrays(self) -> list[Array | None]:
        """The inputs' elements: always the same for the same row."""
        random = np.random.default_rng(zlib.crc32(str(self).encode()))
        return [one.array(random) if one else None for one in self.inputs]


def case(
    op: str,
    note: str,
    *inputs: Given | None,
    outputs: int = 1,
    fp32: tuple[float, float] = (1e-5, 1e-5),
    fp16: tuple[float, float] = (1e-3, 1e-3),
    large: bool = False,
    **attributes: Any,
) -> Case:
    return Case(op, note, inputs, attributes, outputs, fp32, fp16, large)


EXACT = {"fp32": (0.0, 0.0), "fp16": (0.0, 0.0)}
LOOSE = {"fp32": (2e-5, 1e-4), "fp16": (2e-3, 2e-2)}  # sums of hundreds of products
SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 2.0**-14, 65504.0, -65504.0, 0.5]


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
    yield conv("two groups", x(2, 6, 7, 8), w(10, 3, 3, 3), w(10), group=2, pads=[1, 1, 1, 1])
    yield conv("depthwise", x(2, 7, 11, 13), w(7, 1, 3, 3), w(7), group=7, pads=[1, 1, 1, 1])
    yield conv(
        "depthwise, channels in fours, stride 2", x(1, 32, 15, 15), w(32, 1, 3, 3), w(32), group=32, strides=[2, 2]
    )
    yield conv("depthwise with a multiplier", x(1, 5, 9, 9), w(15, 1, 3, 3), w(15), group=5)
    yield conv("one axis", x(2, 3, 31), w(4, 3, 5), w(4), pads=[2, 2], strides=[2])
    yield conv("SAME_UPPER", x(1, 3, 10, 11), w(4, 3, 3, 4), w(4), auto_pad="SAME_UPPER", strides=[2, 2])
    yield conv("SAME_LOWER", x(1, 3, 10, 11), w(4, 3, 3, 4), w(4), auto_pad="SAME_LOWER", strides=[2, 2])
    yield conv("VALID", x(1, 3, 10, 11), w(4, 3, 3, 3), w(4), auto_pad="VALID")
    yield conv("weights given at the call", x(1, 3, 8, 7), x(6, 3, 3, 3), x(6), pads=[1, 1, 1, 1])
    yield conv("no images", x(0, 3, 8, 8), w(4, 3, 3, 3), w(4))

    def transposed(note: str, *inputs: Given | None, **options: Any) -> Case:
        return case("ConvTranspose", note, *inputs, **{**LOOSE, **options})

    yield transposed(
        "3x3, stride 2, output padding", x(1, 6, 5, 7), w(6, 5, 3, 3), w(5), strides=[2, 2], output_padding=[1, 1]
    )
    yield transposed("stride 1", x(2, 3, 4, 5), w(3, 7, 3, 2), w(7))
    yield transposed("padding crops", x(1, 4, 6, 6), w(4, 3, 4, 4), strides=[2, 2], pads=[1, 1, 1, 1])
    yield transposed("stride 3 skips", x(1, 2, 4, 3), w(2, 3, 2, 2), w(3), strides=[3, 3])
    yield transposed("dilated", x(1, 3, 5, 5), w(3, 4, 3, 3), w(4), dilations=[2, 2], strides=[2, 2])
    yield transposed("two groups", x(1, 6, 4, 4), w(6, 3, 3, 3), w(6), group=2, strides=[2, 2])
    yield transposed("one axis", x(1, 3, 9), w(3, 4, 3), w(4), strides=[2])
    yield transposed("one element", x(1, 1, 1, 1), w(1, 1, 1, 1), w(1))
    yield transposed(
        "channels in fours", x(1, 16, 9, 10), w(16, 32, 3, 3), w(32), strides=[2, 2], output_padding=[1, 1]
    )


def products() -> Iterator[Case]:
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


def windows() -> Iterator[Case]:
    yield case("MaxPool", "3x3, stride 2", x(1, 5, 11, 13), kernel_shape=[3, 3], strides=[2, 2], **EXACT)
    yield case("MaxPool", "channels in fours, batch 3", x(3, 8, 7, 7), kernel_shape=[2, 2], strides=[2, 2], **EXACT)
    yield case(
        "MaxPool",
        "padded, rounded up",
        x(1, 3, 8, 9),
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        ceil_mode=1,
        **EXACT,
    )
    yield case("MaxPool", "dilated", x(1, 3, 12, 12), kernel_shape=[3, 2], dilations=[2, 3], **EXACT)
    yield case(
        "MaxPool",
        "all negative, padded",
        x(1, 2, 5, 5, low=-2, high=-1),
        kernel_shape=[3, 3],
        pads=[1, 1, 1, 1],
        **EXACT,
    )
    yield case("MaxPool", "one axis", x(2, 3, 17), kernel_shape=[3], strides=[2], **EXACT)
    yield case(
        "MaxPool", "SAME_UPPER", x(1, 3, 10, 11), kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER", **EXACT
    )
    yield case("AveragePool", "3x3", x(1, 5, 11, 13), kernel_shape=[3, 3])
    yield case(
        "AveragePool",
        "padding counts",
        x(2, 3, 7, 7),
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        count_include_pad=1,
    )
    yield case(
        "AveragePool", "padding does not count", x(2, 3, 7, 7), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    )
    yield case("AveragePool", "rounded up", x(1, 4, 8, 8), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    yield case("AveragePool", "the whole plane", x(1, 40, 13, 13), kernel_shape=[13, 13], strides=[13, 13])
    yield case("AveragePool", "one axis", x(2, 3, 17), kernel_shape=[4], strides=[2])
    yield case("GlobalAveragePool", "batch 3", x(3, 7, 13, 11))
    yield case("GlobalAveragePool", "one axis", x(2, 5, 101))
    yield case("GlobalAveragePool", "one element", x(1, 1, 1, 1))
    yield case("GlobalAveragePool", "a large plane", x(1, 2, 127, 131))
    yield case("GlobalMaxPool", "batch 3", x(3, 7, 13, 11), **EXACT)
    yield case("GlobalMaxPool", "NaN stays", given([[[1.0, np.nan, 2.0]], [[3.0, 4.0, -np.inf]]]), **EXACT)


def normalizations() -> Iterator[Case]:
    norm = {"fp32": (1e-4, 1e-4), "fp16": (4e-3, 4e-3)}
    yield case("Softmax", "rows", x(3, 37))
    yield case("Softmax", "the first axis", x(7, 5), axis=0)
    yield case("Softmax", "a middle axis", x(2, 11, 3, 5), axis=1)
    yield case("Softmax", "one element a row", x(5, 1))
    yield case("Softmax", "a long row", x(2, 1031))
    yield case("Softmax", "large numbers", given([[60000.0, 59968.0, -60000.0], [-60000.0, -60032.0, -59968.0]]))
    yield case("Softmax", "minus infinity beside numbers", given([[-np.inf, 0.0, 1.0], [-np.inf, -np.inf, 2.0]]))
    yield case("LogSoftmax", "rows", x(3, 37), fp16=(1e-3, 4e-3))
    yield case("LogSoftmax", "a middle axis", x(2, 11, 3), axis=1, fp16=(1e-3, 4e-3))
    yield case("InstanceNormalization", "batch 3", x(3, 5, 7, 11), w(5), w(5), **norm)
    yield case("InstanceNormalization", "channels in fours", x(1, 16, 13, 12), w(16), w(16), epsilon=1e-3, **norm)
    yield case("InstanceNormalization", "one axis", x(2, 3, 101), w(3), w(3), **norm)
    yield case(
        "InstanceNormalization",
        "a large mean",
        x(1, 3, 17, 19, low=998, high=1002),
        w(3),
        w(3),
        fp32=(1e-3, 1e-3),
        fp16=(1.0, 1.0),
    )
    yield case("InstanceNormalization", "a large plane", x(1, 2, 211, 199), w(2), w(2), **norm)
    yield case("BatchNormalization", "batch 3", x(3, 5, 7, 11), w(5), w(5), w(5), w(5, low=0.25, high=2), **norm)
    yield case("BatchNormalization", "rank 2", x(3, 8), w(8), w(8), w(8), w(8, low=0.25, high=2), **norm)
    yield case(
        "BatchNormalization",
        "channels in fours",
        x(1, 8, 5, 5),
        w(8),
        w(8),
        w(8),
        w(8, low=0.25, high=2),
        epsilon=1e-2,
        **norm,
    )
    yield case("LayerNormalization", "rows", x(3, 37), w(37), w(37), **norm)
    yield case("LayerNormalization", "two axes, no bias", x(3, 5, 7), w(5, 7), axis=1, **norm)
    yield case("LayerNormalization", "a long row", x(2, 1031), w(1031), w(1031), **norm)


def index_maps() -> Iterator[Case]:
    def moved(op: str, note: str, *inputs: Given | None, **options: Any) -> Case:
        return case(op, note, *inputs, **{**EXACT, **options})

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
    yield moved("Gather", "rows", x(7, 5), fixed([0, 6, 3, -1, 0]))
    yield moved("Gather", "columns, indices of two axes", x(7, 5), fixed([[0, 4], [-2, 1]]), axis=1)
    yield moved("Gather", "indices given at the call", x(7, 3), given([1, 0, -7], "int32"))
    yield moved("Gather", "one index", x(7, 3), fixed(2))
    yield moved("Gather", "bytes", x(9, dtype="uint8", low=0, high=255), fixed([8, 1, 1]))
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
    yield case("ReduceMean", "integers", x(5, 6, dtype="int32", low=0, high=99), fixed([1]))


def maps() -> Iterator[Case]:
    for op in ("Add", "Sub", "Mul", "Div", "Max", "Min"):
        second = x(5, 37, low=0.5, high=2) if op == "Div" else x(5, 37)
        yield case(op, "same shapes", x(5, 37), second)
    yield case("Add", "a channel's constant", x(2, 3, 5, 7), w(1, 3, 1, 1))
    yield case("Mul", "one number", x(3, 5, 7), fixed(0.5, "float32"))
    yield case("Add", "both broadcast", x(3, 1, 7), x(1, 5, 1))
    yield case("Add", "rank 0", fixed(1.25, "float32"), given(2.5))
    yield case("Add", "nothing", x(0, 3), x(0, 3))
    yield case("Add", "one element past a workgroup of fours", x(257), x(257))
    yield case("Add", "five axes, every other broadcast", x(3, 1, 5, 1, 7), x(1, 2, 1, 3, 1))
    yield case("Sub", "integers", x(5, 7, dtype="int32", low=-99, high=99), x(7, dtype="int32", low=-99, high=99))
    yield case(
        "Mul",
        "64-bit integers",
        x(5, 7, dtype="int64", low=-99, high=99),
        x(7, dtype="int64", low=-(2**40), high=2**40),
    )
    yield case("Add", "bytes wrap", x(5, 7, dtype="uint8", low=0, high=255), x(5, 7, dtype="uint8", low=0, high=255))
    yield case(
        "Div", "integers truncate", x(5, 7, dtype="int32", low=-99, high=99), x(5, 7, dtype="int32", low=1, high=9)
    )
    for op in ("Relu", "Tanh", "Sigmoid", "Abs", "Neg", "Exp", "Erf", "Floor", "Ceil", "Round", "Sign"):
        yield case(op, "odd shape", x(3, 5, 7), fp16=(2e-3, 1e-3))
        yield case(op, "special numbers", given(SPECIAL), fp16=(2e-3, 1e-3))
    yield case("Sqrt", "special numbers", given(SPECIAL), fp16=(2e-3, 1e-3))
    yield case("Log", "odd shape", x(3, 5, 7, low=0.25, high=2), fp16=(2e-3, 1e-3))
    yield case("Reciprocal", "odd shape", x(3, 5, 7, low=0.25, high=2), fp16=(2e-3, 1e-3))
    yield case("Pow", "squares of negative numbers", x(5, 7), fixed(2.0, "float32"), fp16=(2e-3, 4e-3))
    yield case("LeakyRelu", "slope", x(3, 37), alpha=0.125)
    yield case("Elu", "odd shape", x(3, 37), alpha=0.5, fp16=(2e-3, 1e-3))
    yield case("HardSigmoid", "odd shape", x(3, 37), fp16=(2e-3, 1e-3))
    yield case("Softplus", "odd shape", x(3, 37), fp16=(2e-3, 1e-3))
    yield case("PRelu", "a slope a channel", x(2, 3, 5, 5), w(3, 1, 1))
    yield case("Clip", "both ends", x(3, 37), fixed(-0.5, "float32"), fixed(1.0, "float32"))
    yield case("Clip", "special numbers", given(SPECIAL), fixed(0.0, "float32"), fixed(6.0, "float32"))
    yield case("Clip", "one end", x(3, 37), None, fixed(0.5, "float32"))
    yield case("Equal", "integers", x(5, 7, dtype="int32", low=0, high=2), x(7, dtype="int32", low=0, high=2))
    yield case("Less", "floats", x(5, 37), x(5, 37))
    yield case("Greater", "NaN is not", given(SPECIAL), fixed(0.0, "float32"))
    yield case("And", "booleans", x(5, 7, dtype="bool"), x(7, dtype="bool"))
    yield case("Not", "booleans", x(5, 7, dtype="bool"))
    yield case("Where", "broadcast", x(5, 1, dtype="bool"), x(5, 7), x(7))
    yield case("Identity", "odd shape", x(3, 5, 7), **EXACT)


def elementary() -> Iterator[Case]:
    """Functions of one operand, where they are defined and at special numbers."""
    for op, low, high in (
        ("Sin", -2, 2),
        ("Cos", -2, 2),
        ("Tan", -1, 1),
        ("Asin", -1, 1),
        ("Acos", -1, 1),
        ("Atan", -2, 2),
        ("Sinh", -2, 2),
        ("Cosh", -2, 2),
        ("Asinh", -2, 2),
        ("Acosh", 1.25, 30),
        ("Atanh", -0.875, 0.875),
        ("Softsign", -2, 2),
        ("Mish", -2, 2),
        ("HardSwish", -4, 4),
        ("Gelu", -3, 3),
        ("Selu", -3, 3),
        ("Celu", -3, 3),
        ("ThresholdedRelu", -3, 3),
    ):
        yield case(op, "odd shape", x(3, 5, 7, low=low, high=high), fp16=(2e-3, 2e-3))
    yield case("Gelu", "tanh", x(3, 37, low=-4, high=4), approximate="tanh", fp16=(2e-3, 2e-3))
    yield case("Celu", "alpha", x(3, 37), alpha=0.5)
    yield case("ThresholdedRelu", "alpha", given([0.25, 0.5, 0.75, -1.0, np.inf]), alpha=0.5, **EXACT)
    yield case("IsNaN", "special numbers", given(SPECIAL))
    yield case("IsInf", "special numbers", given(SPECIAL))
    yield case("IsInf", "negative alone", given(SPECIAL), detect_positive=0)
    small = {"low": 0, "high": 3}
    yield case("Mod", "integers, the sign of the divisor", x(5, 7, dtype="int32", low=-9, high=9), fixed([-4], "int32"))
    yield case("Mod", "floats, the sign of the dividend", x(5, 7), fixed(0.75, "float32"), fmod=1, **EXACT)
    yield case("LessOrEqual", "integers", x(5, 7, dtype="int32", **small), x(7, dtype="int32", **small))
    yield case("GreaterOrEqual", "integers", x(5, 7, dtype="int64", **small), x(7, dtype="int64", **small))
    yield case("GreaterOrEqual", "NaN is not", given(SPECIAL), fixed(0.0, "float32"))
    yield case("Or", "booleans", x(5, 7, dtype="bool"), x(7, dtype="bool"))
    yield case("Xor", "booleans", x(5, 7, dtype="bool"), x(7, dtype="bool"))
    yield case("Sum", "three, broadcast", x(3, 5, 7), x(5, 1), x(7))
    yield case("Sum", "one", x(3, 5), **EXACT)
    yield case("Sum", "six", *[x(3, 5) for _ in range(6)], fp16=(2e-3, 4e-3))
    yield case("Max", "five", *[x(3, 5) for _ in range(5)], **EXACT)


ONNX_TYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "uint32": 12,
    "uint64": 13,
}


def casts() -> Iterator[Case]:
    for source, low, high, targets in (
        ("float32", -30, 30, ("int32", "int8", "int64", "float16", "bool")),
        ("float32", 0, 31, ("uint8", "uint16", "uint32")),
        ("int32", -100, 100, ("float32", "int64", "int8", "bool", "float16")),
        ("int64", -100, 100, ("int32", "float32", "bool")),
        ("uint8", 0, 255, ("float32", "int32", "int64")),
        ("float16", -30, 30, ("float32", "int32")),
        ("bool", 0, 1, ("float32", "int32", "int64", "uint8")),
    ):
        for target in targets:
            yield case(
                "Cast", f"{source} to {target}", x(3, 37, dtype=source, low=low, high=high), to=ONNX_TYPES[target]
            )


def copies() -> Iterator[Case]:
    yield case("Reshape", "a zero and a one", x(2, 3, 35), fixed([0, -1, 5]), **EXACT)
    yield case("Flatten", "from the second axis", x(2, 3, 5, 7), axis=1, **EXACT)
    yield case("Squeeze", "one axis", x(2, 1, 5), fixed([1]), **EXACT)
    yield case("Unsqueeze", "two axes", x(2, 5), fixed([0, 3]), **EXACT)
    yield case("Shape", "all axes", x(2, 5, 3))
    yield case("Shape", "some axes", x(2, 5, 3, 7), start=1, end=-1)
    yield case("Constant", "numbers", value_floats=[1.0, -2.5, 3.0])
    yield case("Dropout", "passes its input on", x(3, 37), **EXACT)


def large() -> Iterator[Case]:
    """Shapes of real networks: the benchmarks, and the --all tier."""
    for note, channels, size, filters, kernel, stride, pad in (
        ("SqueezeNet's first", 3, 224, 64, 3, 2, 0),
        ("SqueezeNet 64 to 16 at 55", 64, 55, 16, 1, 1, 0),
        ("SqueezeNet 16 to 64 at 55", 16, 55, 64, 3, 1, 1),
        ("SqueezeNet 32 to 128 at 27", 32, 27, 128, 3, 1, 1),
        ("SqueezeNet 64 to 256 at 13", 64, 13, 256, 3, 1, 1),
        ("SqueezeNet's last", 512, 13, 1000, 1, 1, 0),
        ("candy's first", 3, 200, 16, 9, 1, 4),
        ("candy's down", 32, 100, 64, 3, 2, 1),
        ("candy's residual", 64, 48, 64, 3, 1, 0),
        ("candy's last", 16, 180, 3, 9, 1, 4),
        ("MobileNet's pointwise", 128, 28, 256, 1, 1, 0),
    ):
        inputs = (x(1, channels, size, size), w(filters, channels, kernel, kernel), w(filters))
        yield case(
            "Conv",
            note,
            *inputs,
            strides=[stride, stride],
            pads=[pad] * 4,
            large=True,
            fp32=(1e-4, 2e-3),
            fp16=(2e-3, 0.2),
        )
    yield case(
        "Conv",
        "MobileNet's depthwise",
        x(1, 128, 56, 56),
        w(128, 1, 3, 3),
        w(128),
        group=128,
        pads=[1, 1, 1, 1],
        large=True,
        **LOOSE,
    )
    up = (x(1, 64, 45, 45), w(64, 32, 3, 3), w(32))
    yield case(
        "ConvTranspose",
        "candy's up",
        *up,
        strides=[2, 2],
        output_padding=[1, 1],
        large=True,
        fp32=(1e-4, 2e-3),
        fp16=(2e-3, 0.2),
    )
    yield case("MatMul", "512 cubed", x(512, 512), w(512, 512), large=True, fp32=(1e-4, 1e-3), fp16=(2e-3, 0.1))
    yield case(
        "Gemm",
        "4096 by 1000, one row",
        x(1, 4096),
        w(1000, 4096),
        w(1000),
        transB=1,
        large=True,
        fp32=(1e-4, 1e-3),
        fp16=(2e-3, 0.2),
    )
    yield case(
        "MaxPool", "SqueezeNet's first", x(1, 64, 111, 111), kernel_shape=[3, 3], strides=[2, 2], large=True, **EXACT
    )
    yield case("GlobalAveragePool", "SqueezeNet's", x(1, 1000, 13, 13), large=True)
    yield case(
        "InstanceNormalization",
        "candy's first",
        x(1, 16, 400, 400),
        w(16),
        w(16),
        large=True,
        fp32=(1e-4, 1e-4),
        fp16=(4e-3, 4e-3),
    )
    yield case("Softmax", "1000 classes, 64 rows", x(64, 1000), large=True)
    yield case("Add", "a million", x(1000, 1009), x(1000, 1009), large=True)
    yield case("Tanh", "a million", x(1000, 1009), large=True, fp16=(2e-3, 1e-3))
    yield case("Transpose", "a million", x(1000, 1009), large=True, **EXACT)
    yield case("ReduceSum", "a million", x(1000, 1009), large=True, fp32=(1e-4, 1e-1), fp16=(1.0, 1e3))


FAMILIES = (
    convolutions,
    products,
    windows,
    normalizations,
    index_maps,
    reductions,
    maps,
    elementary,
    casts,
    copies,
    large,
)
CASES: Sequence[Case] = tuple(one for family in FAMILIES for one in family())
