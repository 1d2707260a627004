"""A network with ResNet-50's layers and seeded random weights, of any width, as an ONNX file for uint8 images."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .contender import Array

STAGES = (3, 4, 6, 3)  # blocks per stage
CLASSES = 1000


@dataclass(frozen=True)
class Shape:
    """Channels of the first layer, and image height; ResNet-50 has 64 and 224."""

    width: int
    side: int


RESNET50 = Shape(64, 224)
SMALL = Shape(16, 64)  # for software devices


class _Writer:
    """Writes nodes and weights; batch normalisations are folded into the convolutions, as exporters do."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def add(self, op: str, inputs: Sequence[str], **attributes: object) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [*inputs], [name], name=name, **attributes))
        return name

    def constant(self, array: Array) -> str:
        name = f"weight{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def conv(self, x: str, channels: tuple[int, int], side: int = 1, stride: int = 1, gain: float = 2.0) -> str:
        taken, made = channels
        scale = np.float32(np.sqrt(gain / (taken * side * side)))
        weights = self.random.standard_normal((made, taken, side, side), np.float32) * scale
        inputs = [x, self.constant(weights), self.constant(np.zeros(made, np.float32))]
        return self.add("Conv", inputs, strides=[stride] * 2, pads=[side // 2] * 4, kernel_shape=[side] * 2)

    def block(self, x: str, taken: int, inner: int, stride: int) -> str:
        """Add three convolutions and a shortcut; the last one has small weights, so that sums do not grow with depth."""
        y = self.add("Relu", [self.conv(x, (taken, inner))])
        y = self.add("Relu", [self.conv(y, (inner, inner), 3, stride)])
        y = self.conv(y, (inner, 4 * inner), gain=0.1)
        if taken != 4 * inner:
            x = self.conv(x, (taken, 4 * inner), stride=stride, gain=1.0)
        return self.add("Relu", [self.add("Add", [x, y])])


def write(path: Path, shape: Shape) -> None:
    """Write the model: pixels [N, 3, side, side] in uint8 -> scores [N, 1000]."""
    made = _Writer()
    x = made.add("Cast", ["pixels"], to=TensorProto.FLOAT)
    x = made.add("Mul", [x, made.constant(np.array(1 / 64, np.float32))])
    x = made.add("Sub", [x, made.constant(np.array(2, np.float32))])
    x = made.add("Relu", [made.conv(x, (3, shape.width), 7, 2)])
    x = made.add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = shape.width
    for stage, count in enumerate(STAGES):
        inner = shape.width << stage
        for i in range(count):
            x = made.block(x, channels, inner, 2 if stage and not i else 1)
            channels = 4 * inner
    x = made.add("Flatten", [made.add("GlobalAveragePool", [x])])
    weights = made.random.standard_normal((channels, CLASSES), np.float32) * np.float32(channels**-0.5)
    scores = helper.make_node("Gemm", [x, made.constant(weights)], ["scores"])
    pixels = helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["N", 3, shape.side, shape.side])
    result = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", CLASSES])
    graph = helper.make_graph([*made.nodes, scores], "resnet50", [pixels], [result], made.weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@functools.cache
def pictures(count: int, side: int) -> Array:
    """Return random images, the same in every process."""
    return np.random.default_rng(1).integers(0, 256, (count, 3, side, side), np.uint8)
