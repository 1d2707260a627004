"""Convolutions with every GPU kernel and tile, whether or not the engine selects it, at sizes around the tile sizes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice
from pumice.model.step_variants import StepVariants

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng(11)
AT_ONCE = 4  # variants per case in the default tier
ALLOWED = {"fp32": 2e-6, "fp16": 3e-3}  # relative to the largest absolute value


class Conv(NamedTuple):
    """A convolution of images of `size` with `kernel`, channels (in per group, out), and its attributes."""

    size: tuple[int, int]
    kernel: tuple[int, int]
    channels: tuple[int, int]
    images: int = 1
    attributes: Mapping[str, Any] = MappingProxyType({})

    def model(self, w: Array, b: Array, skip: Array | None) -> onnx.ModelProto:
        """Build the convolution with bias, residual and Relu."""
        value = helper.make_tensor_value_info
        nodes = [helper.make_node("Conv", ["x", "w", "b"], ["h"], "conv", **self.attributes)]
        inputs = [value("x", TensorProto.FLOAT, [self.images, self.channels[0] * self.groups, *self.size])]
        if skip is not None:
            nodes.append(helper.make_node("Add", ["h", "skip"], ["s"], "sum"))
            inputs.append(value("skip", TensorProto.FLOAT, skip.shape))
        nodes.append(helper.make_node("Relu", ["h" if skip is None else "s"], ["y"], "relu"))
        weights = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")]
        graph = helper.make_graph(nodes, "one_conv", inputs, [value("y", TensorProto.FLOAT, None)], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    @property
    def groups(self) -> int:
        return int(self.attributes.get("group", 1))


CONVS = {
    "candy's first": Conv((26, 35), (9, 9), (3, 16)),
    "candy's last": Conv((17, 33), (9, 9), (16, 3), attributes={"pads": [4, 4, 4, 4]}),
    "one channel in": Conv((15, 31), (5, 5), (1, 64), 2, {"pads": [2, 2, 2, 2]}),
    "odd channels out": Conv((9, 16), (3, 3), (32, 9), 3, {"pads": [1, 1, 1, 1]}),
    "as large as a tile": Conv((8, 16), (3, 3), (4, 8), attributes={"pads": [1, 1, 1, 1]}),
    "one pixel": Conv((5, 5), (5, 5), (8, 16)),
    "one row": Conv((1, 70), (1, 7), (2, 5)),
    "one column": Conv((70, 1), (7, 1), (2, 5)),
    "steps": Conv((33, 40), (7, 7), (3, 24), attributes={"pads": [3, 3, 3, 3], "strides": [2, 2]}),
    "unlike steps": Conv((33, 40), (3, 5), (5, 7), attributes={"pads": [0, 3, 2, 1], "strides": [3, 1]}),
    "dilations": Conv((31, 37), (3, 4), (6, 6), 2, {"dilations": [3, 2], "pads": [2, 2, 2, 2]}),
    "groups": Conv((19, 18), (5, 5), (4, 6), attributes={"group": 3, "pads": [2, 2, 2, 2]}),
    "wide": Conv((3, 300), (3, 3), (3, 20), attributes={"pads": [1, 1, 1, 1]}),
    "many channels": Conv((12, 13), (3, 3), (40, 72), attributes={"pads": [1, 1, 1, 1]}),
}


def expected(conv: Conv, x: Array, w: Array, b: Array) -> Array:
    """Return the convolution with bias in float64, computed tap by tap."""
    rows, columns = conv.kernel
    top, left, bottom, right = conv.attributes.get("pads", [0] * 4)
    step_h, step_w = conv.attributes.get("strides", [1, 1])
    apart_h, apart_w = conv.attributes.get("dilations", [1, 1])
    padded = np.pad(x.astype("float64"), ((0, 0), (0, 0), (top, bottom), (left, right)))
    high = (padded.shape[2] - (rows - 1) * apart_h - 1) // step_h + 1
    wide = (padded.shape[3] - (columns - 1) * apart_w - 1) // step_w + 1
    images, groups = conv.images, conv.groups
    made = np.zeros((images, groups, w.shape[0] // groups, high, wide))
    by_group = w.astype("float64").reshape(groups, w.shape[0] // groups, *w.shape[1:])
    for i in range(rows):
        for j in range(columns):
            window = padded[:, :, i * apart_h :, j * apart_w :][:, :, : (high - 1) * step_h + 1 : step_h]
            window = window[..., : (wide - 1) * step_w + 1 : step_w].reshape(images, groups, -1, high, wide)
            made += np.einsum("ngchw,gkc->ngkhw", window, by_group[..., i, j])
    sums: Array = made.reshape(images, w.shape[0], high, wide) + b.astype("float64")[:, None, None]
    return sums


def choice_of(model: pumice.Model, given: list[Array]) -> dict[str, Any]:
    (found,) = [step["choice"] for step in model.program.plan(given) if "choice" in step]
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", CONVS)
def test_variants_of_a_convolution_are_right(device: pumice.Context, name: str, precision: str, every: bool) -> None:
    conv = CONVS[name]
    channels_in, channels_out = conv.channels
    x = RANDOM.normal(size=(conv.images, channels_in * conv.groups, *conv.size)).astype("float32")
    w = RANDOM.normal(size=(channels_out * conv.groups, channels_in, *conv.kernel)).astype("float32")
    b = RANDOM.normal(size=channels_out * conv.groups).astype("float32")
    sums = expected(conv, x, w, b)
    skip = RANDOM.normal(size=sums.shape).astype("float32") if precision == "fp16" else None
    wanted = (sums if skip is None else sums + skip).clip(min=0)
    given = [x] if skip is None else [x, skip]
    with pumice.load(conv.model(w, b, skip), device, precision, tuned=StepVariants.with_variant_listing({})) as model:
        choice = choice_of(model, given)
        notes = {row["node"]: row["note"] for row in model.report()}
    assert skip is None or conv.groups > 1 or notes["sum"] == notes["relu"] == "fused into conv"
    kernels = {variant.split()[0] for variant in choice["variants"]}
    # Different variants for each case, so that all are covered.
    first = [*CONVS].index(name) * 2 + (precision == "fp16")
    step = 1 if every else max(len(choice["variants"]) // AT_ONCE, 1)
    for variant in [choice["own"], *choice["variants"][first % step :: step]]:
        tuned = StepVariants.with_variant_listing({choice["kind"]: variant})
        with pumice.load(conv.model(w, b, skip), device, precision, tuned=tuned) as model:
            error = np.abs(model(*given) - wanted).max() / np.abs(wanted).max()
            taken = choice_of(model, given)["taken"]
        assert taken == variant
        assert error < ALLOWED[precision], variant
    assert "conv_tiled" in kernels
    few = channels_in * channels_out <= 512 and conv.kernel != (1, 1)
    assert ("conv_patch" in kernels) == few
