"""fp16 convolutions on kernels that read weights in fragment layout, one tile size after another.

Each element's error is at most the roundings reported by the step, times 2^-24 of the sum of absolute products, plus one rounding to fp16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from features import need_limits

Array = npt.NDArray[Any]
UNIT = 2.0**-24
HALF_UNIT, LEAST_HALF = 2.0**-11, 2.0**-25  # fp16 rounding errors: relative, and half a step for denormals


# The default tiles with emulated fragments, which are in shared memory: 68 bytes for each of up to 256 invocations.
EMULATION = {"maxComputeSharedMemorySize": 32768, "maxComputeWorkGroupInvocations": 256}


@dataclass(frozen=True)
class Case:
    """A convolution of images of `size` with `kernel`, channels (in, out)."""

    size: tuple[int, int]
    kernel: tuple[int, int]
    channels: tuple[int, int]
    variant: str = "conv_halo 8x16x32 of 32x32 planes 1"
    images: int = 1
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)  # top, left, bottom, right
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    bias: bool = False
    relu: bool = False
    residual: bool = False

    @property
    def made(self) -> tuple[int, int]:
        """Return the output height and width."""
        top, left, bottom, right = self.pads
        sizes = (self.size[0] + top + bottom, self.size[1] + left + right)
        spans = [(self.kernel[i] - 1) * self.dilations[i] + 1 for i in range(2)]
        return ((sizes[0] - spans[0]) // self.strides[0] + 1, (sizes[1] - spans[1]) // self.strides[1] + 1)


def inside(value: Any, graph: pumice.Graph, turns: str) -> Any:
    """Pass the value through a 16-bit node, so that the convolution reads it channels-last."""
    return graph.add("Mul", value, np.ones(1, np.float32), name=turns)


def graph_of(case: Case, weights: Array, bias: Array) -> pumice.Graph:
    graph = pumice.Graph("convolution")
    shape = [case.images, case.channels[0], *case.size]
    result = inside(graph.input("x", "float32", shape), graph, "turned")
    pads, strides, dilations = list(case.pads), list(case.strides), list(case.dilations)
    parameters = [weights, *([bias] if case.bias else [])]
    result = graph.add("Conv", result, *parameters, name="conv", pads=pads, strides=strides, dilations=dilations)
    if case.residual:
        result = graph.add(
            "Add", result, graph.input("r", "float32", [case.images, case.channels[1], *case.made]), name="residual"
        )
    if case.relu:
        result = graph.add("Relu", result, name="relu")
    graph.output("y", result)
    return graph


def shapes_of(program: pumice.Program) -> list[list[int]]:
    return [[int(size or 0) for size in value.shape or ()] for value in program.inputs]


def compiled(case: Case, graph: pumice.Graph, context: pumice.Context) -> pumice.Program:
    """Compile with the case's tile, which must be among the convolution's choices."""
    listed = graph.compile(context, "fp16", list_variants=True)
    (choice,) = [step["choice"] for step in listed.plan(shapes_of(listed)) if "choice" in step]
    if case.variant not in choice["variants"]:
        need_limits(context, **EMULATION)
    assert case.variant in choice["variants"]
    program = graph.compile(context, "fp16", measured={choice["kind"]: case.variant})
    (taken,) = [step["choice"]["taken"] for step in program.plan(shapes_of(program)) if "choice" in step]
    assert taken == case.variant
    return program


def convolution(case: Case, x: Array, w: Array) -> Array:
    """Return the sums in float64, tap by tap."""
    top, left, bottom, right = case.pads
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    rows, columns = case.made
    sums = np.zeros((case.images, w.shape[0], rows, columns))
    for i in range(case.kernel[0]):
        for j in range(case.kernel[1]):
            window = padded[:, :, i * case.dilations[0] :, j * case.dilations[1] :]
            window = window[:, :, : (rows - 1) * case.strides[0] + 1 : case.strides[0]]
            window = window[..., : (columns - 1) * case.strides[1] + 1 : case.strides[1]]
            sums += np.einsum("nchw,kc->nkhw", window, w[:, :, i, j].astype(np.float64), optimize=True)
    return sums


def check_near(case: Case, units: pumice.Context) -> None:
    """Check that each element is within the error reported by the step."""
    random = np.random.default_rng(5)
    inputs, outputs = case.channels
    weights = random.standard_normal((outputs, inputs, *case.kernel)).astype(np.float16).astype(np.float32)
    bias = random.standard_normal(outputs).astype(np.float32)
    x = random.standard_normal((case.images, inputs, *case.size)).astype(np.float16).astype(np.float32)
    program = compiled(case, graph_of(case, weights, bias), units)
    given = {"x": x}
    expected, sizes = convolution(case, x, weights), convolution(case, np.abs(x), np.abs(weights))
    if case.bias:
        expected, sizes = expected + bias[:, None, None], sizes + np.abs(bias)[:, None, None]
    if case.residual:
        given["r"] = random.standard_normal(expected.shape).astype(np.float16).astype(np.float32)
        expected, sizes = expected + given["r"], sizes + np.abs(given["r"])
    if case.relu:
        expected = np.maximum(expected, 0)
    (step,) = [step for step in program.plan(shapes_of(program)) if "choice" in step]
    result = program(given, loop_timeout=None)["y"].astype(np.float64)
    error = np.abs(result - expected)
    assert (
        error <= int(step["additions"]) * UNIT * sizes + np.maximum(np.abs(expected) * HALF_UNIT * 1.01, LEAST_HALF)
    ).all()


def check_large(case: Case, units: pumice.Context) -> None:
    """Check tiles that may need too much shared memory, or loops too long, for emulated cooperative matrices."""
    if any(quirk.name == "emulated_fragments" for quirk in units.driver_quirks):
        pytest.skip("units that are emulated need more shared memory, or longer loops")
    check_near(case, units)
