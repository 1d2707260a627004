"""Five small models of different kinds for the fault layer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from fault_models import Sample, numbers
from onnx_control_flow_models import loop_body
from onnx_models import model, node, subgraph, value
from onnx_transformers import Writer


def cnn() -> Sample:
    """Convolutions with a residual, pooling and a classifier."""
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["a"], name="conv1", pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["r1"], name="relu1"),
        node("Conv", ["r1", "w2", "b2"], ["b"], name="conv2", pads=[1, 1, 1, 1]),
        node("Add", ["r1", "b"], ["s"], name="join"),
        node("MaxPool", ["s"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p", "w3", "b3"], ["c"], name="depthwise", pads=[1, 1, 1, 1], group=8),
        node("Sigmoid", ["c"], ["g"], name="sigmoid"),
        node("GlobalAveragePool", ["g"], ["m"], name="mean"),
        node("Flatten", ["m"], ["f"], name="flatten"),
        node("Gemm", ["f", "w4", "b4"], ["z"], name="classifier"),
        node("Softmax", ["z"], ["y"], name="softmax"),
    ]
    shapes = {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3), "w3": (8, 1, 3, 3), "w4": (8, 10)}
    shapes |= {"b1": (8,), "b2": (8,), "b3": (8,), "b4": (10,)}
    constants = {name: numbers(*shape, seed=i) * np.float32(0.3) for i, (name, shape) in enumerate(shapes.items())}
    return Sample(model(nodes, [value("x", [2, 3, 12, 12])], constants=constants), (numbers(2, 3, 12, 12),))


def transformer() -> Sample:
    """A transformer block: attention with 2 heads and an MLP, each with a residual."""
    w = Writer(np.random.default_rng(5))
    shape = w.constant([1, 6, 2, 8])
    normed = w.norm("x", 16)
    q, k, v = (
        w.add("Transpose", w.add("Reshape", w.linear(normed, 16, 16), shape), perm=[0, 2, 1, 3]) for _ in range(3)
    )
    scores = w.add("MatMul", q, w.add("Transpose", k, perm=[0, 1, 3, 2]))
    shares = w.add("Softmax", w.add("Mul", scores, w.constant(0.35, "float32")), axis=-1)
    merged = w.add("Transpose", w.add("MatMul", shares, v), perm=[0, 2, 1, 3])
    attended = w.add("Add", "x", w.linear(w.add("Reshape", merged, w.constant([1, 6, 16])), 16, 16))
    inner = w.linear(w.norm(attended, 16), 16, 32)
    active = w.add("Mul", inner, w.add("Sigmoid", inner))
    result = w.add("Add", attended, w.linear(active, 32, 16))
    proto = model(w.nodes, [value("x", [1, 6, 16])], [result])
    proto.graph.initializer.extend(w.weights)
    return Sample(proto, (numbers(1, 6, 16),))


def quantized() -> Sample:
    """Integer matrix products and convolutions between floats."""
    random = np.random.default_rng(7)
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["q"], name="quantize"),
        node("QLinearConv", ["q", "xs", "xz", "w", "ws", "wz", "as", "az", "b"], ["a"], name="conv", pads=[1, 1, 1, 1]),
        node("MaxPool", ["a"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["p"], ["f"], name="flatten"),
        node("MatMulInteger", ["f", "m", "az"], ["i"], name="product"),
        node("Cast", ["i"], ["j"], name="cast", to=TensorProto.FLOAT),
        node("Mul", ["j", "ms"], ["k"], name="scale"),
        node("QuantizeLinear", ["k", "ks", "wz"], ["kq"], name="requantize"),
        node("QLinearMatMul", ["kq", "ks", "wz", "n", "ns", "wz", "os", "wz"], ["o"], name="product2"),
        node("DequantizeLinear", ["o", "os", "wz"], ["d"], name="dequantize"),
        node("Tanh", ["d"], ["y"], name="tanh"),
    ]
    constants = {
        "xs": np.float32(0.03),
        "xz": np.uint8(120),
        "w": random.integers(-90, 90, (6, 3, 3, 3)).astype(np.int8),
        "ws": np.float32(0.01),
        "wz": np.int8(0),
        "b": random.integers(-900, 900, 6).astype(np.int32),
        "as": np.float32(0.05),
        "az": np.uint8(110),
        "m": random.integers(-90, 90, (96, 7)).astype(np.int8),
        "ms": np.float32(0.0005),
        "ks": np.float32(0.03),
        "n": random.integers(-90, 90, (7, 5)).astype(np.int8),
        "ns": np.float32(0.01),
        "os": np.float32(0.02),
    }
    proto = model(nodes, [value("x", [2, 3, 8, 8])], constants=constants)
    return Sample(proto, (numbers(2, 3, 8, 8),))


def recurrent() -> Sample:
    """A GRU followed by an LSTM, and a matrix product of the last states."""
    nodes = [
        node("Mul", ["x", "k"], ["a"], name="before"),
        node("GRU", ["a", "gw", "gr", "gb"], ["g", ""], name="gru", hidden_size=12),
        node("Squeeze", ["g", "axis"], ["s"], name="squeeze"),
        node("LSTM", ["s", "lw", "lr", "lb"], ["", "h", ""], name="lstm", hidden_size=10),
        node("Squeeze", ["h", "zero"], ["t"], name="last"),
        node("Gemm", ["t", "w", "b"], ["z"], name="classifier"),
        node("Softmax", ["z"], ["y"], name="softmax"),
    ]
    shapes = {"gw": (1, 36, 9), "gr": (1, 36, 12), "gb": (1, 72), "lw": (1, 40, 12), "lr": (1, 40, 10), "lb": (1, 80)}
    shapes |= {"w": (10, 6), "b": (6,)}
    constants = {name: numbers(*shape, seed=i) * np.float32(0.4) for i, (name, shape) in enumerate(shapes.items())}
    constants |= {"k": np.float32(0.7), "axis": np.int64([1]), "zero": np.int64([0])}
    return Sample(model(nodes, [value("x", [5, 3, 9])], constants=constants), (numbers(5, 3, 9),))


def control_flow() -> Sample:
    """A loop of three iterations, and a branch that depends on its result; the two cases take different branches."""
    state = value("v", [3, 8])
    body = [
        node("MatMul", ["v", "bw"], ["u"], name="body.product"),
        node("Tanh", ["u"], ["t"], name="body.tanh"),
        node("Add", ["t", "bb"], ["next"], name="body.add"),
    ]
    weights = {"bw": numbers(8, 8, seed=1) * np.float32(0.5), "bb": numbers(8, seed=2)}
    loop = loop_body(body, [state], [value("next", [3, 8])], **weights)
    then = subgraph(
        [
            node("MatMul", ["l", "tw"], ["tp"], name="then.product"),
            node("Sigmoid", ["tp"], ["to"], name="then.sigmoid"),
        ],
        [],
        [value("to", [3, 6])],
        tw=numbers(8, 6, seed=3),
    )
    other = subgraph(
        [node("MatMul", ["l", "ew"], ["eo"], name="else.product")], [], [value("eo", [3, 6])], ew=numbers(8, 6, seed=4)
    )
    nodes = [
        node("Neg", ["x"], ["a"], name="before"),
        node("Loop", ["trips", "", "a"], ["l"], name="loop", body=loop),
        node("ReduceSum", ["l"], ["sum"], name="sum", keepdims=0),
        node("Greater", ["sum", "limit"], ["large"], name="greater"),
        node("If", ["large"], ["c"], name="if", then_branch=then, else_branch=other),
        node("Softmax", ["c"], ["y"], name="softmax"),
    ]
    proto = model(nodes, [value("x", [3, 8]), value("limit", [])], constants={"trips": np.int64(3)})
    x = numbers(3, 8)
    return Sample(proto, (x, np.array(-1e3, np.float32)), ((x, np.array(1e3, np.float32)),))


LAYER_MODELS: dict[str, Callable[[], Sample]] = {
    "cnn": cnn,
    "transformer": transformer,
    "quantized": quantized,
    "recurrent": recurrent,
    "control flow": control_flow,
}
