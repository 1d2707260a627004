"""Layers of the dv interface. A layer is one of up to 32 runs of a convolution command, or one fully connected command."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .._pumice import pack_conv_weights, pack_dil_weights, pack_fc_weights, quantize_weights
from ..base.element_types import Array
from ..base.errors import graph_error
from . import commands

Shape = tuple[int, int, int]  # channels, height, width


@dataclass(eq=False)
class Activations:
    """A tensor between layers. If it is a slice of `parent`, it starts at element `offset_in_parent` of each image."""

    shape: Shape
    parent: Activations | None = None
    offset_in_parent: int = 0

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def root(self) -> Activations:
        return self if self.parent is None else self.parent.root

    @property
    def offset(self) -> int:
        """Return the offset of this tensor in each image of `root`, in elements."""
        return 0 if self.parent is None else self.offset_in_parent + self.parent.offset


@dataclass
class LayerWeights:
    """Weights of a convolution [output channels, input channels, y, x] or of a fully connected layer [outputs, channels, y, x]."""

    values: Array
    bias: Array
    slopes: Array | None = None


@dataclass(eq=False)
class Layer:
    """A run of a convolution command; with `is_fully_connected` a fully connected command, which uses only the activation of `run`."""

    nodes: list[str]
    source: Activations
    target: Activations
    run: commands.Run = field(default_factory=commands.Run)
    weights: LayerWeights | None = None
    addend: Activations | None = None
    is_fully_connected: bool = False

    @property
    def is_dilated(self) -> bool:
        return self.run.conv_dilation not in (0, (1, 1))

    def pack_weights(self, quantized: bool) -> bytes:
        """Return the packed weights, biases and slopes. Raise GraphError for values outside float16."""
        assert self.weights is not None
        values, table = self._to_fp16(self.weights.values), None
        bias, slopes = self._to_fp16(self.weights.bias), self.weights.slopes
        if quantized:
            values, table = quantize_weights(self.weights.values.astype(np.float32))
        if self.is_fully_connected:
            return pack_fc_weights(values, bias, table=table)
        pack = pack_dil_weights if self.is_dilated else pack_conv_weights
        return pack(values, bias, table=table, prelu=None if slopes is None else self._to_fp16(slopes))

    def _to_fp16(self, values: Array) -> Array:
        with np.errstate(over="ignore"):
            fp16_values = values.astype(np.float16)
        if not np.isfinite(fp16_values).all():
            raise graph_error(
                "node", self.nodes[0], f"expected weights that float16 can hold; given up to {np.abs(values).max()}"
            )
        return fp16_values

    @property
    def needs_separate_command(self) -> bool:
        """Return whether the layer must be the only run of its command."""
        return self.is_fully_connected or self.is_dilated or self.run.lrn != 0


def compute_output_size(size: int, before: int, after: int, window: int, stride: int) -> int:
    """Return the number of window positions on one axis; below 1 if the window does not fit."""
    return (before + size + after - window) // stride + 1


def to_dv_padding(pads: Sequence[int]) -> tuple[int, int, int, int]:
    """Reorder ONNX padding (top, left, bottom, right) to (left, right, top, bottom)."""
    top, left, bottom, right = pads
    return left, right, top, bottom
