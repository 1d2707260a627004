"""Convolutions of few channels on matrix units of halves: conv_taps.comp, whose depth is all taps of all channels.

The result of each element may be off by the roundings that the step tells of, times 2^-24 of the sum of absolute products, and by the
rounding of what is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice

Array = npt.NDArray[Any]
UNIT = 2.0**-24


@pytest.fixture(scope="module", params=["emulated", "real"])
def units(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A device that emulates the units, and one that has them; where there are none, the latter is nothing to run on. Tiles whose kernels
    spill are taken too. The kernels of CPU drivers, which have weights of their own, are not.
    """
    quirks = {quirk.name for quirk in pumice_context.driver_quirks}
    has_units = bool(pumice_context.info.matrices) and pumice_context.info.limits["subgroupSize"] == 32
    if request.param == "real" and (not has_units or "other_matrix_layout" in quirks):
        pytest.skip("needs matrix units of halves whose components lie as the kernels take them to lie")
    taken = ["emulated_fragments"] if request.param == "emulated" else []
    software = ["subgroupShuffle"] if pumice_context.info.kind == "software" else []
    uuid = f"uuid:{pumice_context.info.uuid}"
    with pumice.Context(uuid, without=["pipelineExecutableInfo", *software], quirks=taken) as made:
        yield made


@dataclass(frozen=True)
class Case:
    """A convolution of images of `size`; channels in and out, and what it has besides. `tile`: the variant; "": the engine's own."""

    size: tuple[int, int]
    kernel: tuple[int, int]
    channels: tuple[int, int]
    tile: str = ""
    images: int = 1
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    bias: bool = True
    residual: bool = False
    relu: bool = False
    output: str = "float16"

    @property
    def out(self) -> tuple[int, int]:
        top, left, bottom, right = self.pads
        high = (self.size[0] + top + bottom - (self.kernel[0] - 1) * self.dilations[0] - 1) // self.strides[0] + 1
        wide = (self.size[1] + left + right - (self.kernel[1] - 1) * self.dilations[1] - 1) // self.strides[1] + 1
        return high, wide


def graph_of(case: Case, weights: Array, bias: Array) -> pumice.Graph:
    graph = pumice.Graph("taps")
    x = graph.input("x", "float16", [case.images, case.channels[0], *case.size])
    attributes = {"pads": list(case.pads), "strides": list(case.strides), "dilations": list(case.dilations)}
    made = graph.add("Conv", x, weights, *([bias] if case.bias else []), name="conv", **attributes)
    if case.residual:
        made = graph.add(
            "Add", made, graph.input("r", "float16", [case.images, case.channels[1], *case.out]), name="sum"
        )
    if case.relu:
        made = graph.add("Relu", made, name="relu")
    graph.output("y", made if case.output == "float16" else graph.add("Cast", made, to=1))
    return graph


def choice_of(program: pumice.Program) -> tuple[Any, int]:
    """The choice of the step of the convolution, and the roundings that it tells of."""
    shapes = [[int(size) for size in one.shape] for one in program.inputs]
    ((choice, additions),) = [
        (step["choice"], int(step["additions"])) for step in program.plan(shapes) if "choice" in step
    ]
    return choice, additions


def compiled(case: Case, graph: pumice.Graph, context: pumice.Context) -> tuple[pumice.Program, int]:
    """With the case's tile, which is one of those that the convolution can take; and the roundings of its step."""
    choice, _ = choice_of(graph.compile(context, "fp16", list_variants=True))
    if not case.tile:
        assert choice["own"].startswith("conv_taps ")
    tile = case.tile or choice["own"]
    assert tile in choice["variants"]
    program = graph.compile(context, "fp16", measured={choice["kind"]: tile})
    taken, additions = choice_of(program)
    assert taken["taken"] == tile
    return program, additions


def sums_of(case: Case, x: Array, weights: Array) -> Array:
    """The convolution in float64, tap by tap."""
    top, left, bottom, right = case.pads
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    made = np.zeros((case.images, case.channels[1], *case.out))
    (high, wide), (step_h, step_w) = case.out, case.strides
    for i, j in np.ndindex(*case.kernel):
        rows = padded[:, :, i * case.dilations[0] :, j * case.dilations[1] :]
        window = rows[:, :, : (high - 1) * step_h + 1 : step_h, : (wide - 1) * step_w + 1 : step_w]
        made += np.einsum("nchw,kc->nkhw", window, weights[:, :, i, j].astype(np.float64))
    return made


SAME5, SAME9, SAME7, SAME3 = (2, 2, 2, 2), (4, 4, 4, 4), (3, 3, 3, 3), (1, 1, 1, 1)
CASES = [
    Case((19, 37), (5, 5), (1, 64), "conv_taps 4x16x64 of 64", pads=SAME5),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions_are_as_near_as_the_step_tells(case: Case, units: pumice.Context) -> None:
    random = np.random.default_rng(5)
    weights = random.standard_normal((case.channels[1], case.channels[0], *case.kernel)).astype(np.float16)
    bias = random.standard_normal(case.channels[1]).astype(np.float16)
    x = random.standard_normal((case.images, case.channels[0], *case.size)).astype(np.float16)
    program, additions = compiled(case, graph_of(case, weights, bias), units)
    given = {"x": x}
    expected, sizes = sums_of(case, x, weights), sums_of(case, np.abs(x), np.abs(weights))
    if case.residual:
        given["r"] = random.standard_normal(expected.shape).astype(np.float16)
    for added in ([bias[:, None, None]] if case.bias else []) + ([given["r"]] if case.residual else []):
        expected, sizes = expected + added, sizes + np.abs(added.astype(np.float64))
    expected = np.maximum(expected, 0) if case.relu else expected
    made = program(given, loop_timeout=None)["y"]
    assert made.dtype == case.output
    error = np.abs(made.astype(np.float64) - expected)
    stored = np.abs(expected) * 2.0**-11 + 2.0**-25 if case.output == "float16" else 0
    assert (error <= sizes * UNIT * additions + stored).all()
