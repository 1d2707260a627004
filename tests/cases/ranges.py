"""Tensors of more than 64 KiB, for every family that is split if tensors exceed the binding range."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np

from cases.recurrents import layer
from cases.rows import Case, case, fixed, w, x

DEEP = {"fp32": (1e-4, 1e-4), "fp16": (4e-3, 4e-2)}


def maps() -> Iterator[Case]:
    yield case("Relu", "one long axis", x(50021))
    yield case("Add", "rows that are no whole words", x(3, 50001), x(3, 50001))
    yield case("Mul", "a row and a column", x(1, 301), x(257, 1))
    yield case("Sub", "a broadcast constant", x(7, 11, 613), w(11, 1))
    yield case("Where", "bytes choose words", x(41, 1009, dtype="bool"), x(41, 1009), x(1009))
    yield case("Clip", "bounds", x(5, 8009), fixed(-0.5, "float32"), fixed(0.25, "float32"))
    yield case("Less", "words become bytes", x(131, 1003), x(131, 1))
    yield case("Mod", "64 bits", x(3, 9001, dtype="int64", low=-99, high=99), w(3, 1, dtype="int64", low=1, high=9))
    yield case("Sum", "seven operands", *[x(3, 9011) for _ in range(7)], **DEEP)
    for target in (7, 3, 11, 9, 10):
        yield case("Cast", f"float32 as type {target}", x(3, 30011), to=target)
    for dtype in ("int8", "int64", "bool", "float16", "float64"):
        yield case("Cast", f"{dtype} as float32", x(3, 70001, dtype=dtype, low=-1, high=1), to=1)


def rows() -> Iterator[Case]:
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        yield case(op, "many rows", x(211, 409), **DEEP)
        yield case(op, "columns", x(3, 97, 307), axis=1, **DEEP)
    yield case("LayerNormalization", "many rows, with statistics", x(31, 7, 409), w(409), w(409), outputs=3, **DEEP)
    yield case("RMSNormalization", "many rows", x(211, 409), w(409), **DEEP)
    yield case("LpNormalization", "columns", x(97, 401), axis=0, **DEEP)
    yield case(
        "BatchNormalization", "one large image", x(1, 3, 131, 151), w(3), w(3), w(3), w(3, low=0.5, high=2), **DEEP
    )
    yield case("BatchNormalization", "many channels", x(1, 611, 9, 8), *[w(611, low=0.5, high=2)] * 4, **DEEP)
    yield case("InstanceNormalization", "constants", x(1, 21, 41, 43), w(21), w(21), **DEEP)
    yield case("InstanceNormalization", "given at the call", x(1, 21, 41, 43), x(21), x(21), **DEEP)
    yield case("GroupNormalization", "one image", x(1, 24, 37, 41), w(24), w(24), num_groups=6, **DEEP)
    yield case("LRN", "many images", x(5, 7, 31, 33), size=3, **DEEP)
    yield case("LRN", "one image", x(1, 7, 91, 93), size=3, **DEEP)
    yield case("MeanVarianceNormalization", "by channels", x(1, 9, 61, 63), axes=[0, 2, 3], **DEEP)
    for op in ("ReduceSum", "ReduceMax", "ReduceMean", "ReduceLogSumExp", "ReduceL2"):
        yield case(op, "rows", x(211, 409), fixed([1]), keepdims=0, **DEEP)
        yield case(op, "columns", x(3, 211, 409), fixed([1]), **DEEP)
        yield case(op, "all of a tensor", x(83, 1009, low=0.5), keepdims=0, **DEEP)
        yield case(op, "rows of more than a range", x(3, 40009), fixed([1]), **DEEP)
    yield case("ReduceSum", "integers, all", x(83, 1009, dtype="int32", low=-9, high=9), keepdims=0)
    yield case("ReduceMax", "bytes, all", x(307, 1009, dtype="uint8", low=0, high=200), keepdims=0)
    yield case("ArgMax", "rows", x(211, 409), axis=1)
    yield case("ArgMin", "columns", x(3, 211, 101), axis=1, keepdims=0)
    yield case("CumSum", "rows", x(211, 409), fixed(1), **DEEP)
    yield case("CumSum", "columns", x(3, 97, 409), fixed(1), reverse=1, **DEEP)
    yield case("TopK", "rows", x(211, 409), fixed([5]), outputs=2, axis=1)
    yield case("TopK", "columns", x(97, 409), fixed([3]), outputs=2, axis=0)
    yield case("Det", "a batch", x(2003, 4, 4), **DEEP)
    yield case("DFT", "rows", x(29, 64, 16, 1), None, fixed(1), **DEEP)


def images() -> Iterator[Case]:
    pads = {"pads": [1, 1, 1, 1]}
    yield case("Conv", "one large image", x(1, 5, 131, 67), w(7, 5, 3, 3), w(7), **pads, **DEEP)
    yield case(
        "Conv", "one large image, strides", x(1, 5, 131, 67), w(7, 5, 5, 3), strides=[2, 3], dilations=[2, 1], **DEEP
    )
    yield case(
        "Conv", "one large image, SAME", x(1, 4, 150, 67), w(8, 4, 4, 4), auto_pad="SAME_UPPER", strides=[3, 2], **DEEP
    )
    yield case("Conv", "many channels", x(1, 90, 41, 43), w(3, 90, 3, 3), **DEEP)
    yield case("Conv", "many channels of one tap", x(1, 700, 9, 8), w(30, 700, 1, 1), w(30), **DEEP)
    yield case("Conv", "a long row", x(2, 2, 30011), w(8, 2, 5), w(8), strides=[2], pads=[2, 2], dilations=[3], **DEEP)
    yield case("Conv", "depthwise", x(1, 12, 71, 73), w(12, 1, 3, 3), group=12, **pads, **DEEP)
    yield case("Conv", "two groups", x(1, 12, 71, 73), w(6, 6, 3, 3), group=2, **pads, **DEEP)
    yield case("Conv", "three axes", x(1, 3, 33, 35, 17), w(4, 3, 3, 3, 3), **DEEP)
    yield case("ConvTranspose", "one large image", x(1, 5, 67, 61), w(5, 6, 3, 3), w(6), strides=[2, 2], **pads, **DEEP)
    yield case("ConvTranspose", "gaps", x(1, 3, 67, 61), w(3, 4, 2, 2), strides=[3, 3], output_padding=[1, 2], **DEEP)
    yield case("ConvTranspose", "dilated", x(1, 3, 131, 61), w(3, 4, 3, 2), dilations=[3, 2], **DEEP)
    yield case(
        "ConvInteger", "one large image", x(1, 8, 131, 97, dtype="uint8", low=0, high=255), w(5, 8, 3, 3, dtype="int8")
    )
    window = {"kernel_shape": [3, 4], "strides": [2, 3], "pads": [1, 2, 1, 1]}
    for op in ("MaxPool", "AveragePool", "LpPool"):
        yield case(op, "one large plane", x(1, 1, 211, 223), **window, **DEEP)
        yield case(op, "many planes", x(2, 24, 31, 33), ceil_mode=1, **window, **DEEP)
    yield case("AveragePool", "padding counts", x(1, 1, 211, 223), count_include_pad=1, ceil_mode=1, **window, **DEEP)
    yield case("MaxPool", "bytes", x(1, 3, 211, 223, dtype="int8", low=-99, high=99), **window)
    yield case("GlobalAveragePool", "many planes", x(2, 24, 31, 33), **DEEP)
    yield case("GlobalMaxPool", "large planes", x(1, 3, 181, 191))
    yield case(
        "Resize", "planes twice as large", x(1, 12, 41, 43), None, fixed([1, 1, 2, 2], "float32"), mode="linear", **DEEP
    )
    yield case("GridSample", "many places", x(1, 2, 41, 43), x(1, 101, 99, 2, low=-1, high=1), **DEEP)
    yield case("GridSample", "many images", x(9, 2, 41, 43), x(9, 11, 9, 2, low=-1, high=1), **DEEP)
    boxes = fixed([[1, 2, 30, 33], [0, 0, 40, 41], [5, 9, 6, 40]] * 40, "float32")
    cells = {"output_height": 7, "output_width": 5, "sampling_ratio": 2}
    yield case("RoiAlign", "many regions", x(1, 6, 41, 43), boxes, fixed([0] * 120), **cells, **DEEP)
    yield case("Pad", "planes", x(1, 12, 41, 43), fixed([0, 0, 1, 2, 0, 0, 2, 1]))
    yield case("Pad", "reflected planes", x(1, 12, 41, 43), fixed([0, 0, 1, 2, 0, 0, 2, 1]), mode="reflect")


def moves() -> Iterator[Case]:
    random = np.random.default_rng(2)
    yield case("GatherElements", "many indices", x(97, 409), fixed(random.integers(-97, 97, (97, 409))), axis=0)
    yield case("GatherElements", "rows", x(97, 409), fixed(random.integers(-409, 409, (97, 300))), axis=1)
    yield case("GatherND", "many addresses", x(50, 60), fixed(random.integers(0, 50, (9001, 2))))
    yield case("GatherND", "batches", x(41, 50, 20), fixed(random.integers(0, 50, (41, 200, 1))), batch_dims=1)
    places = fixed(np.argsort(random.random((97, 409)), 1))
    yield case("ScatterElements", "rows", x(97, 409), places, x(97, 409), axis=1)
    yield case("ScatterND", "open axes", x(5, 307, 61), fixed([[1], [4], [0]]), x(3, 307, 61))
    yield case(
        "ReverseSequence", "many sequences", x(31, 17, 101), fixed([17, 3, 9] * 10 + [1]), batch_axis=0, time_axis=1
    )
    yield case("Trilu", "a batch", x(23, 41, 43))
    yield case("OneHot", "many", fixed(random.integers(-9, 9, (61, 67))), fixed(9), fixed([0.5, 2], "float32"))
    yield case("Transpose", "of halves", x(331, 301), perm=[1, 0])
    yield case("Tile", "rows", x(31, 101), fixed([7, 3]))
    yield case("QuantizeLinear", "rows", x(41, 1003), w(41, low=0.01, high=0.1), w(41, dtype="int8"), axis=0)
    yield case("QuantizeLinear", "one scale", x(41, 1003), fixed(0.0625, "float32"), fixed(3, "uint8"))
    yield case(
        "DequantizeLinear", "columns", x(41, 2003, dtype="int8", low=-99, high=99), w(2003, low=0.01, high=0.1), axis=1
    )


def products() -> Iterator[Case]:
    yield case("Einsum", "a batch", x(97, 13, 31), x(97, 31, 17), equation="bij,bjk->bik", **DEEP)
    yield case("Attention", "images", x(5, 2, 67, 32), x(5, 2, 71, 32), x(5, 2, 71, 32), **DEEP)
    yield case("Attention", "heads and a mask", x(1, 9, 67, 32), x(1, 9, 71, 32), x(1, 9, 71, 32), x(9, 67, 71), **DEEP)
    yield layer("LSTM", "weights of more than a range", 3, 2, 9, 70, largest=0.1)
    yield layer("LSTM", "both directions", 3, 5, 9, 67, direction="bidirectional", lengths=[3, 1, 2, 3, 2], largest=0.1)
    yield layer("GRU", "weights of more than a range", 3, 2, 9, 133, largest=0.1)
    yield layer("GRU", "linear before reset", 3, 1, 9, 133, linear_before_reset=1, largest=0.1)
    yield layer("RNN", "a gate of more than a range", 3, 2, 9, 150, largest=0.1)
    yield layer("LSTM", "many sequences", 7, 67, 40, 20, initial=True, largest=0.3)


def ranges() -> Iterator[Case]:
    return chain(maps(), rows(), images(), moves(), products())
