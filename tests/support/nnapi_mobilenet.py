"""A quantised network of depthwise and pointwise convolutions, as an NNAPI program and as the same ONNX model."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import pumice

Array = np.ndarray[Any, Any]
UNIT = 6 / 255  # scale of all activations, which RELU6 limits to 0 .. 6
INPUT, CLASSES = 2 / 255, 100


class Layer(NamedTuple):
    weights: Array  # [outputs, inputs or 1, height, width], uint8
    bias: Array
    scale: float  # of the weights, with zero point 128
    stride: int
    groups: int


def layers(seed: int = 0, widths: tuple[int, ...] = (16, 32, 64, 64, 128, 128)) -> list[Layer]:
    """Return a first convolution, then a depthwise and a pointwise one per further width; every second pair has stride 2."""
    random = np.random.default_rng(seed)

    def drawn(outputs: int, inputs: int, size: int, stride: int, groups: int) -> Layer:
        weights = random.integers(64, 193, (outputs, inputs, size, size)).astype("uint8")
        scale = 0.7 / (37 * np.sqrt(inputs * size * size)) * 4
        return Layer(
            weights, random.integers(-200, 800, outputs).astype("int32"), float(np.float32(scale)), stride, groups
        )

    drawn_layers = [drawn(widths[0], 3, 3, 2, 1)]
    for k, (before, after) in enumerate(itertools.pairwise(widths)):
        drawn_layers += [drawn(before, 1, 3, 1 + k % 2, before), drawn(after, before, 1, 1, 1)]
    return drawn_layers


def head(channels: int, seed: int = 1) -> tuple[Array, Array, float]:
    random = np.random.default_rng(seed)
    weights = random.integers(96, 161, (CLASSES, channels)).astype("uint8")
    return weights, random.integers(-200, 200, CLASSES).astype("int32"), 0.01


def padding(layer: Layer) -> tuple[int, int]:
    """Return (before, after) of SAME padding for even sizes."""
    return (0, 0) if layer.weights.shape[2] == 1 else (0, 1) if layer.stride == 2 else (1, 1)


def nnapi_program(size: int) -> pumice.Graph:
    """Return a graph from a uint8 image [1, size, size, 3] to class probabilities."""
    graph, scale = pumice.Graph("mobilenet"), INPUT
    x = graph.input("x", "uint8", [1, size, size, 3], scale=scale, zero_point=128)
    for layer in layers():
        before, after = padding(layer)
        turned = layer.weights.transpose(1, 2, 3, 0) if layer.groups > 1 else layer.weights.transpose(0, 2, 3, 1)
        weights = graph.constant(np.ascontiguousarray(turned), scale=layer.scale, zero_point=128)
        window = [before, after, before, after, layer.stride, layer.stride]
        more = [1] if layer.groups > 1 else []
        op = "DEPTHWISE_CONV_2D" if layer.groups > 1 else "CONV_2D"
        x = graph.add(f"nnapi::{op}", x, weights, layer.bias, *window, *more, 3, False, scale=UNIT, zero_point=0)
        scale = UNIT
    side = x.shape[1]
    x = graph.add("nnapi::AVERAGE_POOL_2D", x, 0, 0, 0, 0, 1, 1, side, side, 0, False)
    weights, bias, unit = head(x.shape[3])
    result = graph.constant(weights, scale=unit, zero_point=128)
    x = graph.add("nnapi::FULLY_CONNECTED", x, result, bias, 0, scale=0.1, zero_point=128)
    graph.output("y", graph.add("nnapi::SOFTMAX", x, 1.0))
    return graph


class _Writer:
    """Builds an ONNX model whose tensors are quantised between all operators."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def parameters(self, scale: float, zero: int, dtype: str = "uint8") -> list[str]:
        return [self.constant(np.array(scale, "float32")), self.constant(np.array(zero, dtype))]

    def real(self, array: Array, scale: float, zero: int) -> str:
        return self.add("DequantizeLinear", self.constant(array), *self.parameters(scale, zero, str(array.dtype)))

    def between(self, x: str, scale: float, zero: int) -> str:
        parameters = self.parameters(scale, zero)
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, *parameters), *parameters)


def onnx_model(size: int) -> onnx.ModelProto:
    """Return the same network for a uint8 image [1, 3, size, size]."""
    writer, scale = _Writer(), INPUT
    x = writer.add("DequantizeLinear", "x", *writer.parameters(scale, 128))
    bounds = [writer.constant(np.array(item, "float32")) for item in (0, 6)]
    for layer in layers():
        before, after = padding(layer)
        weights = writer.real(layer.weights, layer.scale, 128)
        bias = writer.real(layer.bias, float(np.float32(scale) * np.float32(layer.scale)), 0)
        pads, strides = [before, before, after, after], [layer.stride] * 2
        x = writer.add("Conv", x, weights, bias, pads=pads, strides=strides, group=layer.groups)
        x = writer.between(writer.add("Clip", x, *bounds), UNIT, 0)
        scale = UNIT
    x = writer.between(writer.add("GlobalAveragePool", x), UNIT, 0)
    weights, bias, unit = head(layers()[-1].weights.shape[0])
    x = writer.add("Flatten", x)
    bias_unit = float(np.float32(UNIT) * np.float32(unit))
    x = writer.add("Gemm", x, writer.real(weights, unit, 128), writer.real(bias, bias_unit, 0), transB=1)
    x = writer.add("Softmax", writer.between(x, 0.1, 128), axis=1)
    writer.nodes.append(helper.make_node("QuantizeLinear", [x, *writer.parameters(1 / 256, 0)], ["y"]))
    graph = helper.make_graph(
        writer.nodes,
        "mobilenet",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 3, size, size])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, [1, CLASSES])],
        writer.constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
