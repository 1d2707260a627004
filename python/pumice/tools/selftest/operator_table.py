"""The operator cases of the self-test, by area: odd and even sizes, broadcasting, strides and both small and split reductions."""

from __future__ import annotations

import numpy as np

from .operands import Case, case, const, flags, gain, given, integers, uniform, w, weights, x

ELEMENTWISE = (
    case("broadcast", "Add", x(3, 1, 37), x(5, 1)),
    case("of large arrays", "Add", x(3, 70_001), x(3, 70_001)),
    case("", "Sub", x(7, 65), x(7, 65)),
    case("by column", "Mul", x(4, 33, 6), x(33, 1)),
    case("", "Div", x(9, 31), uniform(0.5, 2, 9, 31)),
    case("", "Pow", uniform(0.5, 2, 5, 21), uniform(-2, 2, 5, 21)),
    case("of three", "Max", x(6, 19), x(19), x(6, 1)),
    case("", "Relu", x(3, 1031)),
    case("", "Clip", x(3, 77), const(-0.5, "float32"), const(0.75, "float32")),
    case("", "Exp", uniform(-4, 4, 13, 17)),
    case("", "Log", uniform(0.25, 8, 13, 17)),
    case("", "Sqrt", uniform(0, 9, 255)),
    case("", "Sigmoid", x(11, 23)),
    case("", "Tanh", x(11, 23)),
    case("", "Erf", x(11, 23)),
    case("with tanh", "Gelu", x(11, 23), approximate="tanh"),
    case("", "Softplus", x(11, 23)),
    case("", "Sin", uniform(-6, 6, 129)),
    case("with halves", "Round", given(np.arange(-8, 8, 0.125))),
    case("", "Where", flags(5, 1, 9), x(5, 3, 9), x(3, 1)),
    case("", "Less", x(4, 63), x(4, 63)),
    case("to int32", "Cast", uniform(-100, 100, 3, 43), to=6),
    case("of int64", "Mod", integers("int64", -1000, 1000, 77), integers("int64", 1, 30, 77)),
    case("of int32", "Mul", integers("int32", -40_000, 40_000, 5, 41), integers("int32", -9, 9, 41)),
    case("of uint8", "BitShift", integers("uint8", 0, 255, 67), integers("uint8", 0, 8, 67), direction="LEFT"),
)

GEMM = (
    case("of odd sizes", "MatMul", x(17, 33), w(33, 29)),
    case("of even sizes", "MatMul", x(64, 128), w(128, 96)),
    case("of one row", "MatMul", x(1, 512), w(512, 200)),
    case("with long K", "MatMul", x(16, 4096), w(4096, 16)),
    case("of batches", "MatMul", x(2, 3, 19, 32), x(2, 3, 32, 16)),
    case("of a vector", "MatMul", x(4, 24, 18), x(18)),
    case("with transB and bias", "Gemm", x(13, 40), w(24, 40), w(24), transB=1),
    case("with alpha and beta", "Gemm", x(20, 9), w(20, 12), x(9, 12), transA=1, alpha=0.5, beta=2.0),
    case("of three", "Einsum", x(3, 8, 10), x(3, 10, 7), equation="bij,bjk->bki"),
)

CONVOLUTION = (
    case("3x3", "Conv", x(2, 6, 9, 11), w(8, 6, 3, 3), w(8), pads=[1, 1, 1, 1]),
    case("3x3 of 32 channels", "Conv", x(1, 32, 16, 16), w(32, 32, 3, 3), w(32), pads=[1, 1, 1, 1]),
    case("1x1", "Conv", x(2, 24, 7, 7), w(40, 24, 1, 1), w(40)),
    case("7x7 with stride 2", "Conv", x(1, 3, 29, 31), w(16, 3, 7, 7), w(16), pads=[3, 3, 3, 3], strides=[2, 2]),
    case("depthwise", "Conv", x(1, 12, 13, 10), w(12, 1, 3, 3), w(12), pads=[1, 1, 1, 1], group=12),
    case(
        "depthwise, dilated", "Conv", x(2, 5, 7, 9), w(5, 1, 3, 3), w(5), pads=[2, 2, 2, 2], dilations=[2, 2], group=5
    ),
    case("in groups", "Conv", x(1, 12, 8, 8), w(18, 4, 3, 3), group=3),
    case("dilated", "Conv", x(1, 5, 14, 14), w(7, 5, 3, 3), dilations=[2, 2], pads=[2, 2, 2, 2]),
    case("1D", "Conv", x(2, 4, 50), w(6, 4, 5), w(6), strides=[2]),
    case("with stride 2", "ConvTranspose", x(1, 6, 7, 8), w(6, 4, 4, 4), w(4), strides=[2, 2], pads=[1, 1, 1, 1]),
)

NORMALISATION = (
    case("last axis", "Softmax", x(5, 3, 77), axis=-1),
    case("middle axis", "Softmax", x(3, 19, 10), axis=1),
    case("of long rows", "Softmax", x(2, 5000), axis=-1),
    case("", "LogSoftmax", x(9, 33), axis=-1),
    case("", "BatchNormalization", x(2, 5, 7, 6), gain(5), w(5), w(5), gain(5)),
    case("", "LayerNormalization", x(6, 5, 45), gain(45), w(45), axis=-1),
    case("of long rows", "LayerNormalization", x(3, 2500), gain(2500), w(2500), axis=-1),
    case("", "InstanceNormalization", x(2, 4, 9, 7), gain(4), w(4)),
    case("", "SimplifiedLayerNormalization", x(7, 64), gain(64), axis=-1),
    case("", "LRN", x(1, 9, 5, 5), size=3),
    case("", "LpNormalization", x(5, 21), axis=1, p=2),
)

ATTENTION = (
    case("of 3 heads", "Attention", x(2, 3, 17, 32), x(2, 3, 17, 32), x(2, 3, 17, 32)),
    case("causal", "Attention", x(1, 4, 40, 64), x(1, 4, 40, 64), x(1, 4, 40, 64), is_causal=1),
    case("of grouped heads", "Attention", x(1, 6, 9, 16), x(1, 2, 21, 16), x(1, 2, 21, 16)),
    case("of one query", "Attention", x(1, 4, 1, 64), x(1, 4, 130, 64), x(1, 4, 130, 64)),
    case("with a mask", "Attention", x(1, 2, 12, 16), x(1, 2, 15, 16), x(1, 2, 15, 16), x(12, 15)),
    case("", "RotaryEmbedding", x(1, 2, 10, 16), uniform(-1, 1, 1, 10, 8), uniform(-1, 1, 1, 10, 8)),
)

REDUCTIONS = (
    case("last axis", "ReduceSum", x(6, 7, 129), const([-1])),
    case("first axis", "ReduceSum", x(65, 40), const([0]), keepdims=0),
    case("of all", "ReduceSum", x(5, 70, 11)),
    case("of two axes", "ReduceMean", x(3, 10, 4, 9), const([1, 3])),
    case("", "ReduceMax", x(9, 200), const([1])),
    case("of int32", "ReduceMin", integers("int32", -9999, 9999, 4, 99), const([1])),
    case("", "ReduceProd", uniform(0.8, 1.2, 6, 12), const([1])),
    case("", "ReduceL2", x(6, 31), const([1])),
    case("", "ReduceLogSumExp", x(6, 31), const([1])),
    case("", "ArgMax", x(7, 60), axis=1),
    case("", "CumSum", x(5, 90), const(1)),
    case("", "TopK", x(4, 50), const([5]), outputs=2),
    # In bf16, too many of 1,500 numbers are equal.
    case("of long rows", "TopK", x(3, 1500), const([9]), outputs=2, precisions=("fp32", "fp16")),
)

MOVEMENT = (
    case("4D", "Transpose", x(2, 5, 6, 7), perm=[0, 2, 3, 1]),
    case("2D", "Transpose", x(67, 130), perm=[1, 0]),
    case("", "Concat", x(3, 4, 5), x(3, 1, 5), x(3, 7, 5), axis=1),
    case("with steps", "Slice", x(9, 20, 3), const([8, 1]), const([0, 19]), const([0, 1]), const([-2, 3])),
    case("", "Split", x(4, 15), const([4, 4, 7]), outputs=3, axis=1),
    case("with zeros", "Pad", x(3, 4, 5), const([0, 1, 2, 0, 3, 1])),
    case("reflected", "Pad", x(3, 6, 5), const([0, 2, 1, 0, 1, 2]), mode="reflect"),
    case("", "Tile", x(2, 1, 5), const([2, 3, 1])),
    case("", "Expand", x(4, 1, 3), const([2, 4, 5, 3])),
    case("", "Gather", x(30, 7), integers("int64", -30, 30, 4, 3)),
    case("", "GatherElements", x(5, 9), integers("int64", 0, 9, 5, 4), axis=1),
    case("", "GatherND", x(6, 5, 4), integers("int64", 0, 5, 7, 2)),
    case("", "ScatterElements", x(3, 8), const([[1, 0, 6], [7, 2, 3], [0, 4, 5]]), x(3, 3), axis=1),
    case("", "ScatterND", x(8, 5), const([[3], [6], [0]]), x(3, 5)),
    case("", "DepthToSpace", x(1, 12, 3, 5), blocksize=2),
    case("", "OneHot", integers("int64", 0, 6, 11), const(6), const([0, 1], "float32")),
    case("", "Trilu", x(2, 9, 7), const(1)),
)

_SCALE = const(0.05, "float32")
_ZERO = const(128, "uint8")

QUANTISED = (
    case("beyond the range", "QuantizeLinear", uniform(-10, 10, 5, 66), _SCALE, _ZERO),
    case("", "DequantizeLinear", integers("uint8", 0, 256, 5, 66), _SCALE, _ZERO),
    case("by channel", "DequantizeLinear", integers("int8", -128, 128, 4, 30), gain(4), axis=0),
    # With 16 bits, rounding the input decides the scale, so that nothing can be proved.
    case("", "DynamicQuantizeLinear", x(6, 30), outputs=3, precisions=("fp32",)),
    case("", "MatMulInteger", integers("uint8", 0, 256, 9, 40), weights("int8", -128, 128, 40, 12), _ZERO),
    case("", "ConvInteger", integers("uint8", 0, 256, 1, 4, 9, 9), weights("int8", -128, 128, 6, 4, 3, 3), _ZERO),
    case(
        "",
        "QLinearMatMul",
        *(integers("uint8", 0, 256, 7, 24), _SCALE, _ZERO),
        *(weights("int8", -128, 128, 24, 10), const(0.01, "float32"), const(0, "int8")),
        *(const(0.1, "float32"), _ZERO),
    ),
    case(
        "",
        "QLinearConv",
        *(integers("uint8", 0, 256, 1, 8, 8, 8), _SCALE, _ZERO),
        *(weights("int8", -128, 128, 12, 8, 3, 3), const(0.01, "float32"), const(0, "int8")),
        *(const(0.1, "float32"), _ZERO),
        pads=[1, 1, 1, 1],
    ),
    case(
        "of 4 bits",
        "com.microsoft::MatMulNBits",
        *(x(3, 64), weights("uint8", 0, 256, 20, 2, 16), gain(40)),
        K=64,
        N=20,
        bits=4,
        block_size=32,
    ),
)

RECURRENT = (
    case("", "LSTM", x(5, 2, 7), w(1, 24, 7), w(1, 24, 6), w(1, 48), outputs=3, hidden_size=6),
    case("", "GRU", x(5, 2, 7), w(1, 18, 7), w(1, 18, 6), w(1, 36), outputs=2, hidden_size=6),
    case("", "RNN", x(4, 3, 5), w(2, 6, 5), w(2, 6, 6), outputs=2, hidden_size=6, direction="bidirectional"),
)

POOLING = (
    case("of NaN", "MaxPool", given([[[np.nan, 1, 2, 3], [0, -1, np.nan, 5]]]), kernel_shape=[2], strides=[2]),
    case("2x2", "MaxPool", x(2, 5, 12, 14), kernel_shape=[2, 2], strides=[2, 2]),
    case("3x3 with pads", "MaxPool", x(1, 4, 9, 9), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    case("3x3", "AveragePool", x(1, 4, 10, 9), kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    case("", "GlobalAveragePool", x(2, 6, 9, 7)),
    case("nearest", "Resize", x(1, 3, 6, 7), None, const([1, 1, 2, 3], "float32"), mode="nearest"),
    case("linear", "Resize", x(1, 3, 6, 7), None, None, const([1, 3, 11, 9]), mode="linear"),
    case("cubic", "Resize", x(1, 2, 8, 8), None, const([1, 1, 1.5, 2], "float32"), mode="cubic"),
    case("", "GridSample", x(1, 3, 8, 9), uniform(-1, 1, 1, 5, 6, 2)),
)

# A small network, whose nodes are fused: activation, residual and pooling into convolutions, and elementwise chains.
NETWORK = (
    case("1", "Conv", x(2, 3, 20, 20), w(16, 3, 3, 3), w(16), pads=[1, 1, 1, 1]),
    case("1", "Relu", "Conv 1"),
    case("2", "Conv", "Relu 1", w(16, 16, 3, 3), w(16), pads=[1, 1, 1, 1]),
    case("residual", "Add", "Conv 2", "Relu 1"),
    case("2", "Relu", "Add residual"),
    case("", "MaxPool", "Relu 2", kernel_shape=[2, 2], strides=[2, 2]),
    case("", "Reshape", "MaxPool", const([2, 16, 100])),
    case("", "LayerNormalization", "Reshape", gain(100), w(100), axis=-1),
    case("wide", "MatMul", "LayerNormalization", w(100, 64)),
    case("bias", "Add", "MatMul wide", w(64)),
    case("", "Gelu", "Add bias"),
    case("narrow", "MatMul", "Gelu", w(64, 10)),
    case("", "Mul", "MatMul narrow", const(0.25, "float32")),
    case("", "Softmax", "Mul", axis=-1),
    case("", "ReduceMean", "Softmax", const([1])),
)

# Area -> its opset version and cases. Attention and RotaryEmbedding are in opset 23, all others in those that onnx 1.15 knows.
OPERATOR_AREAS: dict[str, tuple[int, tuple[Case, ...]]] = {
    "elementwise": (20, ELEMENTWISE),
    "gemm": (20, GEMM),
    "convolution": (20, CONVOLUTION),
    "normalisation": (20, NORMALISATION),
    "attention": (23, ATTENTION),
    "reductions": (20, REDUCTIONS),
    "movement": (20, MOVEMENT),
    "quantised": (20, QUANTISED),
    "recurrent": (20, RECURRENT),
    "pooling": (20, POOLING),
    "network": (20, NETWORK),
}
