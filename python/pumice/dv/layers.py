"""What the nodes of a Graph become in the dv interface: layers, each one run of a command or one fully connected command."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .._pumice import pack_conv_weights, pack_dil_weights, pack_fc_weights, quantize_weights
from ..element_types import Array
from . import commands

Shape = tuple[int, int, int]  # channels, height, width


@dataclass(eq=False)
class Activations:
    """A tensor between layers. Where it is part of `whole` it lies there from that element of an image on."""

    shape: Shape
    whole: Activations | None = None
    first: int = 0

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def root(self) -> Activations:
        return self if self.whole is None else self.whole.root

    @property
    def offset(self) -> int:
        """Elements from the beginning of the root."""
        return 0 if self.whole is None else self.first + self.whole.offset


@dataclass
class Weights:
    """Of a convolution (kernels, channels, y, x), or of a fully connected layer (outputs, channels, y, x)."""

    values: Array
    bias: Array
    slopes: Array | None = None

    def packed(self, is_dilated: bool, is_full: bool, quantized: bool) -> bytes:
        bias = self.bias.astype(np.float16)
        values, table = self.values.astype(np.float16), None
        if quantized:
            values, table = quantize_weights(self.values.astype(np.float32))
        if is_full:
            return pack_fc_weights(values, bias, table=table)
        slopes = None if self.slopes is None else self.slopes.astype(np.float16)
        return (pack_dil_weights if is_dilated else pack_conv_weights)(values, bias, table=table, prelu=slopes)


@dataclass(eq=False)
class Layer:
    """`run` is that of a convolution command; with `is_full` the layer is a fully connected one, whose activation it has."""

    nodes: list[str]
    source: Activations
    target: Activations
    run: commands.Run = field(default_factory=commands.Run)
    weights: Weights | None = None
    added: Activations | None = None
    is_full: bool = False

    @property
    def is_dilated(self) -> bool:
        return self.run.conv_dilation not in (0, (1, 1))

    @property
    def stands_alone(self) -> bool:
        """In a command of one run, as the interface has it."""
        return self.is_full or self.is_dilated or self.run.lrn != 0


def extent(size: int, before: int, after: int, reach: int, stride: int) -> int:
    """The places of a window on one axis; below 1 where there is none."""
    return (before + size + after - reach) // stride + 1


def sides(pads: Sequence[int]) -> tuple[int, int, int, int]:
    """Left, right, top, bottom of ONNX's top, left, bottom, right."""
    top, left, bottom, right = pads
    return left, right, top, bottom
