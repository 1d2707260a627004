"""Small models, each an operator with nodes before and after it, for faults injected into its kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto

from onnx_models import model, node, value

Array = np.ndarray[Any, Any]


class Sample(NamedTuple):
    """A model, the inputs of one case, and inputs of other cases."""

    proto: onnx.ModelProto
    inputs: tuple[Array, ...]
    more: tuple[tuple[Array, ...], ...] = ()


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _between(x: Array, *middle: onnx.NodeProto, last: str = "Tanh", first: str = "Neg", **constants: Array) -> Sample:
    """Return nodes that read "a" and write "c", with one node before and one after."""
    nodes = [node(first, ["x"], ["a"], name="before"), *middle, node(last, ["c"], ["y"], name="behind")]
    return Sample(model(nodes, [value("x", [None, *x.shape[1:]])], constants=constants), (x,))


def conv(batch: int = 2, group: int = 1) -> Sample:
    middle = node("Conv", ["a", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1], group=group)
    weights = numbers(18, 6 // group, 3, 3, seed=1) * np.float32(0.2)
    return _between(numbers(batch, 6, 7, 9), middle, w=weights, b=numbers(18, seed=2))


def convolutions() -> Sample:
    """Three convolutions of equal size with overlapping result lifetimes, at batch 2 and 3."""
    pads = [1, 1, 1, 1]
    nodes = [
        node("Conv", ["x", "w1"], ["a"], name="first", pads=pads),
        node("Conv", ["a", "w2"], ["b"], name="second", pads=pads),
        node("Add", ["a", "b"], ["c"], name="join"),
        node("Conv", ["c", "w3"], ["d"], name="third", pads=pads),
        node("Softmax", ["d"], ["y"], name="behind", axis=1),
    ]
    constants = {f"w{i}": numbers(6, 6, 3, 3, seed=i) * np.float32(0.2) for i in (1, 2, 3)}
    proto = model(nodes, [value("x", [None, 6, 7, 9])], constants=constants)
    return Sample(proto, (numbers(2, 6, 7, 9),), ((numbers(3, 6, 7, 9, seed=5),),))


def depthwise() -> Sample:
    middle = node("Conv", ["a", "w", "b"], ["c"], name="conv", pads=[2, 2, 2, 2], dilations=[2, 2], group=5)
    return _between(numbers(2, 5, 7, 9), middle, w=numbers(5, 1, 3, 3, seed=1), b=numbers(5, seed=2))


def gemm(depth: int = 21) -> Sample:
    middle = node("Gemm", ["a", "w", "b"], ["c"], name="gemm")
    weights = numbers(depth, 19, seed=1) * np.float32(0.2)
    return _between(numbers(13, depth), middle, w=weights, b=numbers(19, seed=2))


def scaled_gemm() -> Sample:
    """A float64 Gemm with alpha, beta and a C matrix."""
    nodes = [
        node("Neg", ["x"], ["a"], name="before"),
        node("Gemm", ["a", "w", "b"], ["c"], name="gemm", alpha=0.5, beta=2.0),
        node("Neg", ["c"], ["y"], name="behind"),
    ]
    inputs = [value(name, shape, TensorProto.DOUBLE) for name, shape in (("x", [7, 9]), ("w", [9, 5]), ("b", [7, 5]))]
    arrays = (numbers(7, 9), numbers(9, 5, seed=1), numbers(7, 5, seed=2))
    return Sample(model(nodes, inputs), tuple(array.astype(np.float64) for array in arrays))


def integer_product() -> Sample:
    random = np.random.default_rng(3)
    nodes = [
        node("Identity", ["x"], ["a"], name="before"),
        node("MatMulInteger", ["a", "w", "xz", "wz"], ["c"], name="product"),
        node("Cast", ["c"], ["y"], name="behind", to=TensorProto.FLOAT),
    ]
    constants = {
        "w": random.integers(-99, 99, (21, 19)).astype(np.int8),
        "xz": np.uint8(7),
        "wz": np.int8(3),
    }
    x = random.integers(0, 255, (5, 21)).astype(np.uint8)
    return Sample(model(nodes, [value("x", [5, 21], TensorProto.UINT8)], constants=constants), (x,))


def softmax(size: int = 37) -> Sample:
    return _between(numbers(13, size), node("Softmax", ["a"], ["c"], name="softmax", axis=-1), last="Sqrt")


def softmax_inside() -> Sample:
    """Softmax over a strided axis."""
    return _between(numbers(2, 37, 5), node("Softmax", ["a"], ["c"], name="softmax", axis=1), last="Sqrt")


def layer_norm(rows: int = 13) -> Sample:
    middle = node("LayerNormalization", ["a", "w", "b"], ["c"], name="norm", axis=-1)
    return _between(numbers(rows, 37), middle, w=numbers(37, seed=1), b=numbers(37, seed=2))


def rounding(halves: bool = True) -> Sample:
    x = (np.arange(66, dtype=np.float32).reshape(6, 11) - 30) / (2 if halves else 3)
    return _between(x, node("Round", ["a"], ["c"], name="round"))


def quantized(size: float = 1) -> Sample:
    """Per-channel quantisation; a following dequantisation would be fused into another kernel."""
    scales = np.linspace(0.02, 0.04, 11, dtype=np.float32)
    zeros = np.arange(-5, 6).astype(np.int8)
    nodes = [
        node("Neg", ["x"], ["a"], name="before"),
        node("QuantizeLinear", ["a", "s", "z"], ["y"], name="quantize", axis=1),
    ]
    x = numbers(6, 11) * np.float32(size)
    return Sample(model(nodes, [value("x", [None, 11])], constants={"s": scales, "z": zeros}), (x,))


def average_pool() -> Sample:
    middle = node("AveragePool", ["a"], ["c"], name="pool", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    return _between(numbers(2, 5, 7, 9), middle)


def max_pool(nan: bool = True) -> Sample:
    x = numbers(2, 5, 7, 9)
    if nan:
        x[1, 2, 3, 4] = np.nan
    return _between(x, node("MaxPool", ["a"], ["c"], name="pool", kernel_shape=[3, 3]), last="Abs")


def reduce_sum() -> Sample:
    middle = node("ReduceSum", ["a", "axes"], ["c"], name="sum", keepdims=0)
    return _between(numbers(2, 5, 37) * np.float32(0.1), middle, axes=np.int64([2]))


def recurrent() -> Sample:
    """A GRU with initial states, which its units exchange."""
    weights = {"w": numbers(1, 144, 20, seed=1), "r": numbers(1, 144, 48, seed=2), "h": numbers(1, 2, 48, seed=3)}
    middle = node("GRU", ["a", "w", "r", "", "", "h"], ["", "c"], name="gru", hidden_size=48)
    constants = {name: array * np.float32(0.2) for name, array in weights.items()}
    nodes = [node("Neg", ["x"], ["a"], name="before"), middle, node("Tanh", ["c"], ["y"], name="behind")]
    return Sample(model(nodes, [value("x", [5, 2, 20])], constants=constants), (numbers(5, 2, 20),))


def top_of_rows(size: int = 3000) -> Sample:
    """TopK of rows; long rows are sorted by several subgroups."""
    middle = node("TopK", ["a", "count"], ["c", "places"], name="top")
    return _between(numbers(3, size), middle, count=np.int64([40]))


def running_sum() -> Sample:
    return _between(numbers(5, 9), node("CumSum", ["a", "axis"], ["c"], name="sum"), axis=np.int64(1))


def broadcast() -> Sample:
    return _between(numbers(2, 3, 1, 5), node("Mul", ["a", "b"], ["c"], name="mul"), b=numbers(3, 4, 1, seed=1))


def padded() -> Sample:
    """Zero padding, whose sign shows in a reciprocal."""
    middle = node("Pad", ["a", "pads"], ["c"], name="pad")
    return _between(numbers(3, 9), middle, pads=np.int64([1, 1, 1, 2]), last="Reciprocal")


def sliced_words() -> Sample:
    """A Slice of 16-bit integers, two per word."""
    nodes = [
        node("Identity", ["x"], ["a"], name="before"),
        node("Slice", ["a", "from", "to", "axes"], ["c"], name="slice"),
        node("Cast", ["c"], ["y"], name="behind", to=TensorProto.FLOAT),
    ]
    constants = {"from": np.int64([1]), "to": np.int64([8]), "axes": np.int64([1])}
    x = np.random.default_rng(0).integers(-999, 999, (3, 9)).astype(np.int16)
    return Sample(model(nodes, [value("x", [3, 9], TensorProto.INT16)], constants=constants), (x,))


SAMPLES: dict[str, Callable[[], Sample]] = {
    "average pool": average_pool,
    "broadcast": broadcast,
    "conv": conv,
    "convolutions": convolutions,
    "conv of one image": lambda: conv(1),
    "conv in groups": lambda: conv(group=2),
    "depthwise": depthwise,
    "gemm": gemm,
    "gemm of even depth": lambda: gemm(22),
    "integer product": integer_product,
    "layer norm": layer_norm,
    "layer norm of few rows": lambda: layer_norm(3),
    "max pool": max_pool,
    "max pool without NaN": lambda: max_pool(nan=False),
    "padded": padded,
    "quantized": quantized,
    "quantized beyond the range": lambda: quantized(8),
    "recurrent": recurrent,
    "reduce": reduce_sum,
    "rounding": rounding,
    "rounding without halves": lambda: rounding(halves=False),
    "running sum": running_sum,
    "scaled gemm": scaled_gemm,
    "sliced words": sliced_words,
    "softmax": softmax,
    "softmax inside": softmax_inside,
    "softmax of short rows": lambda: softmax(29),
    "top of rows": top_of_rows,
    "top of short rows": lambda: top_of_rows(200),
}
