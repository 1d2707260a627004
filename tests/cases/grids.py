"""More work than 64 workgroups per grid axis cover, for every kernel family and grid axis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cases import attentions, integer_conv_gemm, recurrents
from cases.rows import EXACT, Case, case, fixed, given, w, x

DEEP: dict[str, Any] = {"fp32": (1e-4, 1e-3), "fp16": (4e-3, 8e-2)}


def convolutions() -> Iterator[Case]:
    def conv(note: str, *inputs: Any, **more: Any) -> Case:
        return case("Conv", note, *inputs, **DEEP, **more)

    yield conv("one channel, many pixels", x(1, 1, 211, 223), w(1, 1, 1, 1), w(1))
    yield conv("3x3, many pixels", x(1, 3, 131, 137), w(20, 3, 3, 3), w(20), pads=[1, 1, 1, 1])
    yield conv("many images", x(67, 4, 17, 19), w(24, 4, 3, 3), w(24), strides=[2, 1], pads=[0, 1, 1, 0])
    yield conv("a long row", x(2, 2, 30011), w(8, 2, 5), w(8), strides=[2], pads=[2, 2], dilations=[3])
    yield conv("a long column", x(1, 4, 9001, 1), w(9, 4, 4, 1), pads=[1, 0, 2, 0], strides=[2, 1])
    yield conv("many channels", x(1, 8, 5, 7), w(1100, 8, 3, 3), w(1100))
    yield conv("many channels and pixels", x(3, 4, 31, 29), w(1030, 4, 1, 1), w(1030))
    yield conv("many groups", x(2, 402, 5, 6), w(402, 2, 3, 3), w(402), group=201)
    yield conv("many groups of many channels", x(1, 142, 3, 2), w(71 * 40, 2, 1, 1), w(71 * 40), group=71)
    yield conv("groups of more channels than a block", x(1, 6, 4, 5), w(3 * 1040, 2, 2, 2), w(3 * 1040), group=3)
    yield conv("patches", x(1, 4, 152, 148), w(40, 4, 4, 4), w(40), strides=[4, 4])
    yield conv("three axes", x(1, 3, 17, 18, 19), w(5, 3, 3, 3, 3), w(5))
    yield conv("depthwise", x(2, 40, 41, 43), w(40, 1, 3, 3), w(40), group=40)
    up = {"strides": [2, 3], "output_padding": [1, 1]}
    yield case("ConvTranspose", "many pixels", x(1, 3, 71, 73), w(3, 20, 3, 4), w(20), **up, **DEEP)
    yield case("ConvTranspose", "many channels", x(1, 4, 5, 7), w(4, 1050, 3, 3), w(1050), strides=[2, 2], **DEEP)


def products() -> Iterator[Case]:
    yield case("MatMul", "many rows", x(9001, 12), w(12, 7), **DEEP)
    yield case("MatMul", "many rows, 3 columns", x(33001, 5), w(5, 3), **DEEP)
    yield case("MatMul", "many columns", x(40, 20), w(20, 4104), **DEEP)
    yield case("MatMul", "many columns, one row", x(1, 256), w(256, 4104), **DEEP)
    yield case("MatMul", "many columns of a matrix given at the call", x(9, 24), x(24, 4104), **DEEP)
    yield case("MatMul", "a batch", x(199, 3, 5), x(199, 5, 4), **DEEP)
    yield case("MatMul", "a batch of many columns", x(3, 4, 24), x(3, 24, 1100), **DEEP)
    yield case("MatMul", "a batch that is broadcast", x(3, 1, 9, 8), x(70, 8, 16), **DEEP)
    yield case("Gemm", "many rows and a matrix", x(5001, 12), w(12, 24), x(5001, 24), alpha=0.5, beta=2.0, **DEEP)
    yield case("Gemm", "many columns and a matrix", x(5, 36), w(1160, 36), x(5, 1160), transB=1, **DEEP)
    yield case("Gemm", "many columns and a row", x(33, 36), w(1160, 36), w(1160), transB=1, **DEEP)
    yield case("Gemm", "transposed rows", x(12, 4001), w(12, 9), w(4001, 1), transA=1, **DEEP)
    yield case("Einsum", "batches", x(131, 3, 4), x(131, 4, 5), equation="bij,bjk->bik", **DEEP)
    yield case("Det", "many", x(4301, 3, 3), fp32=(1e-3, 1e-3), fp16=(1e-1, 1e-1))


def integers() -> Iterator[Case]:
    bytes_of = integer_conv_gemm.bytes_of
    rows, columns = bytes_of(x, "uint8", 5001), bytes_of(w, "int8", 1100)
    yield case("MatMulInteger", "many rows", bytes_of(x, "uint8", 5001, 68), bytes_of(w, "int8", 68, 36), rows)
    wide = bytes_of(x, "uint8", 33, 68), bytes_of(w, "int8", 68, 1100), fixed(7, "uint8"), columns
    yield case("MatMulInteger", "many columns", *wide)
    batch = bytes_of(x, "uint8", 150, 3, 7), bytes_of(x, "int8", 150, 7, 4), bytes_of(x, "uint8", 150, 3, 1)
    yield case("MatMulInteger", "a batch", *batch)
    conv = bytes_of(x, "uint8", 1, 4, 91, 93), bytes_of(w, "int8", 20, 4, 3, 3), fixed(7, "uint8")
    yield case("ConvInteger", "many pixels", *conv, bytes_of(w, "int8", 20))
    deep = bytes_of(x, "uint8", 1, 4, 5, 7), bytes_of(w, "int8", 1100, 4, 3, 3), fixed(7, "uint8")
    yield case("ConvInteger", "many channels", *deep, bytes_of(w, "int8", 1100))
    groups = bytes_of(x, "uint8", 1, 140, 5, 6), bytes_of(w, "int8", 140, 2, 3, 3), fixed(7, "uint8")
    yield case("ConvInteger", "many groups", *groups, bytes_of(w, "int8", 140), group=70)


def attention() -> Iterator[Case]:
    heads, close = attentions.heads, attentions.CLOSE

    def of(note: str, *inputs: Any, **more: Any) -> Case:
        return case("Attention", note, *inputs, **close, **more)

    yield of("many rows", heads(1, 2, 4200, 8), heads(1, 2, 13, 8), heads(1, 2, 13, 12))
    yield of("many rows, causal", heads(1, 1, 4200, 8), heads(1, 1, 4200, 8), heads(1, 1, 4200, 8), is_causal=1)
    yield of("many images", heads(70, 2, 17, 8), heads(70, 2, 19, 8), heads(70, 2, 19, 8), x(70, 1, 17, 19))
    shared = heads(1, 140, 18, 8), heads(1, 70, 11, 8), heads(1, 70, 11, 8), x(140, 18, 11, dtype="bool")
    yield of("many heads, keys of two", *shared)
    yield of("many heads of one", heads(1, 150, 18, 8), heads(1, 1, 11, 8), heads(1, 1, 11, 8), x(150, 18, 11))
    yield of("one row of many images", heads(80, 2, 1, 16), heads(80, 2, 40, 16), heads(80, 2, 40, 16))
    yield of("few rows of many heads", heads(2, 330, 1, 8), heads(2, 1, 9, 8), heads(2, 1, 9, 8))
    counted = heads(66, 2, 17, 8), heads(66, 1, 24, 8), heads(66, 1, 24, 8), None, None, None
    yield of("counted keys", *counted, given([24, 17, 20] * 22, "int64"), is_causal=1)
    long = heads(1, 1, 4200, 8), heads(1, 1, 4300, 8), heads(1, 1, 4300, 8), None, None, None
    yield of("counted keys of many rows", *long, fixed([4250]), is_causal=1)
    for mode in (0, 3):
        note = f"scores, mode {mode}"
        inputs = heads(3, 50, 30, 8), heads(3, 50, 70, 8), heads(3, 50, 70, 8), x(30, 70)
        yield of(note, *inputs, outputs=4, qk_matmul_output_mode=mode, softcap=1.5 if mode else 0.0)
    rows = heads(2, 3, 1100, 8), heads(2, 3, 13, 8), heads(2, 3, 13, 8), x(1100, 13)
    yield of("scores of many rows", *rows, outputs=4, qk_matmul_output_mode=3)


def others() -> Iterator[Case]:
    for op in recurrents.GATES:
        yield recurrents.layer(op, "many sequences", 3, 301, 5, 11)
        yield recurrents.layer(op, "many units", 2, 3, 5, 1030, largest=0.0625)
        both = {"direction": "bidirectional", "lengths": [2, 1, 3] * 90}
        yield recurrents.layer(op, "many units and sequences", 3, 270, 4, 150, largest=0.125, **both)
    yield case("InstanceNormalization", "many channels", x(3, 1500, 3, 5), w(1500), w(1500), **DEEP)
    statistics = w(4200), w(4200), w(4200), w(4200, low=0.5)
    yield case("BatchNormalization", "many channels", x(1, 4200, 2, 2), *statistics, **DEEP)
    yield case("LayerNormalization", "many rows", x(301, 40), w(40), w(40), **DEEP)
    yield case("Softmax", "many rows", x(301, 40), **DEEP)
    yield case("Softmax", "many columns", x(3, 40, 4100), axis=1, **DEEP)
    yield case("ReduceSum", "many rows", x(5001, 40), fixed([1]), **DEEP)
    yield case("ReduceSum", "many columns", x(40, 17001), fixed([0]), **DEEP)
    yield case("ArgMax", "many rows", x(5001, 40), axis=1, **EXACT)
    yield case("TopK", "many rows", x(1301, 40), fixed([3]), outputs=2, **EXACT)
    yield case("CumSum", "many rows", x(9001, 9), fixed(1), **DEEP)
    yield case("Transpose", "many tiles", x(301, 290), **EXACT)
    yield case("Concat", "many elements", x(40001, 3), x(40001, 2), axis=1, **EXACT)
    yield case("Gather", "many rows", x(50, 33), fixed([index % 50 for index in range(2001)]), **EXACT)
    yield case("Relu", "many elements", x(200003), **EXACT)
    yield case("MaxPool", "many pixels", x(2, 3, 131, 137), kernel_shape=[3, 3], **EXACT)
    yield case("Resize", "many pixels", x(1, 2, 71, 73), None, fixed([1, 1, 2, 2], "float32"), mode="linear", **DEEP)


def grids() -> Iterator[Case]:
    for family in (convolutions, products, integers, attention, others):
        yield from family()
