"""Convolutions with few channels on fp16 cooperative matrices: conv_few_channels.comp, with K = taps x channels.

The error bound of an element is the step's number of roundings times 2^-24 of the sum of absolute products, plus the rounding of the
stored result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from coopmat_context import coopmat_context
from described_operators import Operand, executed
from features import need_limits
from mma_convolutions import EMULATION

Array = npt.NDArray[Any]
UNIT = 2.0**-24


@pytest.fixture(scope="module", params=["emulated", "real"])
def units(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A device that emulates cooperative matrices, and one that has them (skipped if absent). Spilling tiles are allowed. CPU (SIMD)
    kernels are excluded, as they pack weights differently.
    """
    without = ["subgroupShuffle"] if pumice_context.info.kind == "software" else []
    with coopmat_context(request.param, pumice_context, *without) as made:
        yield made


@dataclass(frozen=True)
class Case:
    """A convolution of images of `size`, with input and output channels. `tile`: the variant, "" for the engine's choice."""

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
    output: str = "float16"  # float32: the node stays in fp32, but reads fp16 values
    last: bool = True  # the result is channels-last, as inside a network
    last_in: bool = False  # the input is channels-last

    @property
    def out(self) -> tuple[int, int]:
        top, left, bottom, right = self.pads
        high = (self.size[0] + top + bottom - (self.kernel[0] - 1) * self.dilations[0] - 1) // self.strides[0] + 1
        wide = (self.size[1] + left + right - (self.kernel[1] - 1) * self.dilations[1] - 1) // self.strides[1] + 1
        return high, wide


def graph_of(case: Case, weights: Array, bias: Array) -> pumice.Graph:
    """Build the convolution; views make its input and output channels-last."""
    graph = pumice.Graph("taps")
    images, (channels, out) = case.images, case.channels
    shape = [images, *case.size, channels] if case.last_in else [images, channels, *case.size]
    x = graph.input("x", case.output, shape)
    weights, bias = weights.astype(case.output), bias.astype(case.output)
    if case.last_in:
        x = graph.add("Transpose", x, perm=[0, 3, 1, 2], name="first")
    if case.output == "float32":  # as from a 16-bit node: the images flipped
        ends = [np.array([number], np.int64) for number in (-1, np.iinfo(np.int64).min, 3, -1)]
        x = graph.add("Slice", x, *ends, name="turned")
    attributes: dict[str, Any] = {
        "pads": list(case.pads),
        "strides": list(case.strides),
        "dilations": list(case.dilations),
    }
    made = graph.add("Conv", x, weights, *([bias] if case.bias else []), name="conv", **attributes)
    if case.residual:
        shape = [images, *case.out, out] if case.last else [images, out, *case.out]
        r = graph.input("r", "float16", shape)
        made = graph.add(
            "Add", made, graph.add("Transpose", r, perm=[0, 3, 1, 2], name="r") if case.last else r, name="sum"
        )
    if case.relu:
        made = graph.add("Relu", made, name="relu")
    graph.output("y", graph.add("Transpose", made, perm=[0, 2, 3, 1], name="last") if case.last else made)
    return graph


def choice_of(program: pumice.Program) -> tuple[Any, int]:
    """Return the variant choice of the convolution step, and its number of roundings."""
    shapes = [[int(size) for size in one.shape] for one in program.inputs]
    ((choice, additions),) = [
        (step["choice"], int(step["additions"])) for step in program.plan(shapes) if "choice" in step
    ]
    return choice, additions


def compiled(case: Case, graph: pumice.Graph, context: pumice.Context) -> tuple[pumice.Program, int]:
    """Compile with the case's tile, which must be a valid variant. Return the program and the roundings of the step."""
    wide = ["conv"] if case.output == "float32" else []
    choice, _ = choice_of(graph.compile(context, "fp16", float32_nodes=wide, list_variants=True))
    if not case.tile:
        assert choice["own"].startswith("conv_few_channels ")
    tile = case.tile or choice["own"]
    if tile not in choice["variants"]:
        need_limits(context, **EMULATION)
    assert tile in choice["variants"]
    program = graph.compile(context, "fp16", float32_nodes=wide, measured={choice["kind"]: tile})
    taken, additions = choice_of(program)
    assert taken["taken"] == tile
    return program, additions


def sums_of(case: Case, x: Array, weights: Array) -> Array:
    """Return the convolution in float64, computed tap by tap."""
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
    # First layers of super resolution, style transfer and classification networks.
    Case((19, 37), (5, 5), (1, 64), "conv_few_channels 4x16x64 of 64", pads=SAME5),
    Case((19, 37), (5, 5), (1, 64), "conv_few_channels 4x16x64 of 64", pads=SAME5, last=False),
    Case((17, 35), (5, 5), (1, 64), "conv_few_channels 8x32x64 of 64", pads=SAME5, relu=True),
    Case((17, 35), (5, 5), (1, 64), "conv_few_channels 4x32x64 of 32", pads=SAME5, bias=False),
    Case((12, 20), (9, 9), (3, 32), "conv_few_channels 4x16x32 of 32", pads=SAME9),
    Case((9, 33), (9, 9), (3, 32), "conv_few_channels 8x32x32 of 16", pads=SAME9, relu=True),
    Case((15, 41), (3, 3), (3, 64), "conv_few_channels 4x16x64 of 64", strides=(2, 2)),
    Case((21, 69), (3, 3), (3, 64), "conv_few_channels 8x32x64 of 64", strides=(2, 2), last_in=True),
    Case((20, 38), (7, 7), (3, 64), "conv_few_channels 4x16x64 of 32", strides=(2, 2), pads=SAME7),
    Case((20, 38), (7, 7), (3, 64), "conv_few_channels 4x32x64 of 32", strides=(2, 2), pads=SAME7, relu=True),
    # One pixel, one more and one fewer than a tile, and primes.
    Case((1, 1), (3, 3), (3, 16), "conv_few_channels 4x16x16 of 16", pads=SAME3),
    Case((3, 15), (3, 3), (3, 16), "conv_few_channels 4x16x16 of 16", pads=SAME3),
    Case((4, 16), (3, 3), (3, 16), "conv_few_channels 4x16x16 of 16", pads=SAME3),
    Case((5, 17), (3, 3), (3, 16), "conv_few_channels 4x16x16 of 16", pads=SAME3),
    Case((7, 31), (3, 3), (3, 32), "conv_few_channels 8x32x32 of 32", pads=SAME3),
    Case((9, 33), (3, 3), (3, 32), "conv_few_channels 8x32x32 of 32", pads=SAME3),
    Case((23, 101), (2, 3), (2, 24), "conv_few_channels 4x32x32 of 32"),
    Case((1, 70), (1, 7), (2, 16), "conv_few_channels 4x16x16 of 16"),
    # K of one iteration, of whole iterations, and the maximum.
    Case((9, 20), (2, 1), (1, 16), "conv_few_channels 4x16x16 of 16"),
    Case((9, 20), (4, 4), (1, 16), "conv_few_channels 4x16x16 of 16"),
    Case((9, 20), (4, 8), (1, 16), "conv_few_channels 4x16x16 of 16"),
    Case((20, 20), (8, 8), (4, 32), "conv_few_channels 4x16x32 of 32"),
    Case((9, 20), (3, 3), (7, 32), "conv_few_channels 4x16x32 of 32", pads=SAME3, last_in=True),
    Case((9, 20), (3, 3), (12, 32), "conv_few_channels 4x16x32 of 32", pads=SAME3),
    # Channels that fill a matrix partially, and more channels than a workgroup computes.
    Case((9, 20), (3, 3), (3, 1), "conv_few_channels 4x16x16 of 16", pads=SAME3),
    Case((9, 20), (3, 3), (3, 9), "conv_few_channels 4x16x16 of 16", pads=SAME3),
    Case((9, 20), (3, 3), (3, 17), "conv_few_channels 4x16x32 of 16", pads=SAME3),
    Case((9, 20), (3, 3), (3, 17), "conv_few_channels 4x16x32 of 32", pads=SAME3, relu=True),
    Case((9, 20), (3, 3), (3, 33), "conv_few_channels 4x16x64 of 64", pads=SAME3),
    Case((9, 20), (3, 3), (3, 33), "conv_few_channels 4x16x64 of 32", pads=SAME3, last=False),
    Case((9, 20), (3, 3), (3, 36), "conv_few_channels 4x16x64 of 64", pads=SAME3),
    Case((9, 20), (3, 3), (3, 40), "conv_few_channels 4x16x64 of 32", pads=SAME3, residual=True),
    Case((9, 20), (3, 3), (3, 70), "conv_few_channels 4x16x96 of 32", pads=SAME3),
    Case((9, 20), (3, 3), (3, 266), "conv_few_channels 4x16x192 of 64", pads=SAME3),
    # Different strides, dilations and pads.
    Case((23, 40), (3, 5), (2, 24), "conv_few_channels 4x16x32 of 32", strides=(3, 1), pads=(0, 3, 2, 1)),
    Case((23, 60), (3, 2), (3, 24), "conv_few_channels 4x16x32 of 32", strides=(1, 3), pads=(2, 0, 0, 1)),
    Case((31, 37), (3, 4), (3, 24), "conv_few_channels 4x32x32 of 32", dilations=(3, 2), pads=(2, 5, 3, 1)),
    Case(
        (31, 37),
        (3, 3),
        (2, 16),
        "conv_few_channels 8x32x16 of 16",
        dilations=(1, 5),
        strides=(2, 2),
        pads=(9, 9, 9, 9),
    ),
    # Batches, residuals, and fp32 results.
    Case((11, 18), (5, 5), (1, 64), "conv_few_channels 8x32x64 of 64", images=3, pads=SAME5, residual=True, relu=True),
    Case((11, 18), (5, 5), (1, 20), "conv_few_channels 4x16x32 of 32", images=3, pads=SAME5, residual=True),
    Case((11, 18), (3, 3), (3, 21), "conv_few_channels 4x16x32 of 32", images=2, pads=SAME3, residual=True, last=False),
    Case((11, 18), (3, 3), (3, 32), "conv_few_channels 4x16x32 of 32", images=2, pads=SAME3, output="float32"),
    Case(
        (11, 18), (3, 3), (3, 30), "conv_few_channels 4x16x32 of 32", images=2, pads=SAME3, output="float32", last=False
    ),
    # More tiles than workgroups, and convolutions for which the engine selects this kernel.
    Case((9, 33), (2, 2), (1, 16), "conv_few_channels 4x16x16 of 16", images=600),
    Case((66, 66), (5, 5), (1, 64), pads=SAME5),
    Case((66, 66), (3, 3), (3, 16), pads=SAME3),
    Case((13, 27), (3, 3), (3, 16), images=16, pads=SAME3),
]


def grouped(array: Array) -> Operand:
    """Return [N, C, H, W] as an operand [N, C / 8, 8, H, W] with the eight channels of a pixel adjacent in memory."""
    n, c, h, w = array.shape
    return Operand(array.reshape(n, c // 8, 8, h, w), [c * h * w, 8 * h * w, 1, 8 * w, 8])


def numbers(case: Case) -> tuple[Array, Array, Array]:
    """Return random images, weights and biases."""
    random = np.random.default_rng(5)
    weights = random.standard_normal((case.channels[1], case.channels[0], *case.kernel)).astype(np.float16)
    bias = random.standard_normal(case.channels[1]).astype(np.float16)
    x = random.standard_normal((case.images, case.channels[0], *case.size)).astype(np.float16)
    return x, weights, bias


def find_producer_index(program: pumice.Program, case: Case, x: Array, residual: Array | None = None) -> Array:
    """Return the program's result as [N, C, H, W]."""
    x = x[..., ::-1].astype(np.float32) if case.output == "float32" else x
    given = {"x": np.ascontiguousarray(x.transpose(0, 2, 3, 1) if case.last_in else x)}
    if residual is not None:
        given["r"] = np.ascontiguousarray(residual.transpose(0, 2, 3, 1)) if case.last else residual
    made: Array = program(given, loop_timeout=None)["y"]
    assert made.dtype == case.output
    return made.transpose(0, 3, 1, 2) if case.last else made


@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions_are_within_the_reported_error(case: Case, units: pumice.Context) -> None:
    x, weights, bias = numbers(case)
    program, additions = compiled(case, graph_of(case, weights, bias), units)
    expected, sizes = sums_of(case, x, weights), sums_of(case, np.abs(x), np.abs(weights))
    residual = np.random.default_rng(6).standard_normal(expected.shape).astype(np.float16) if case.residual else None
    for added in ([bias[:, None, None]] if case.bias else []) + ([] if residual is None else [residual]):
        expected, sizes = expected + added, sizes + np.abs(added.astype(np.float64))
    expected = np.maximum(expected, 0) if case.relu else expected
    error = np.abs(find_producer_index(program, case, x, residual).astype(np.float64) - expected)
    stored = np.abs(expected) * 2.0**-11 + 2.0**-25 if case.output == "float16" else 0
    assert (error <= sizes * UNIT * additions + stored).all()


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan, 65504.0])
@pytest.mark.parametrize(
    "case",
    [
        Case((19, 37), (5, 5), (1, 40), "conv_few_channels 4x16x64 of 64", images=2, pads=SAME5),
        Case((15, 41), (3, 3), (3, 16), "conv_few_channels 8x32x16 of 16", images=2, strides=(2, 2)),
    ],
    ids=str,
)
def test_steps_past_the_depth_read_no_numbers_of_the_image(case: Case, number: float, units: pumice.Context) -> None:
    """Zero times infinity would give NaN: only results with an infinite tap are infinite."""
    x, weights, bias = numbers(case)
    weights = np.where(weights == 0, np.float16(1), np.abs(weights)) * np.float16(2.0**-6)
    x[0, 0, ::9, ::11] = number
    program, _ = compiled(case, graph_of(case, weights, bias), units)
    with np.errstate(all="ignore"):
        expected = sums_of(case, x, weights) + bias[:, None, None]
    np.testing.assert_allclose(find_producer_index(program, case, x), expected, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("channels", [16, 24, 40])
def test_channels_in_groups_of_eight(channels: int, units: pumice.Context) -> None:
    """Images stored in groups of eight channels. This many pixels select the kernel by default if conv_coopmat is not available."""
    random = np.random.default_rng(7)
    case = Case((47, 51), (3, 3), (8, channels), images=2, pads=SAME3)
    x, w = (random.integers(-3, 4, shape) for shape in ((2, 8, 47, 51), (channels, 8, 3, 3)))
    expected = sums_of(case, x, w)
    apart = [grouped(one.astype(np.float16)) for one in (x, expected)]
    (made,) = executed(
        units, "pumice::GroupedConv", [apart[0], Operand(w.astype(np.float16))], apart[1:], pads=[1] * 4, strides=[1, 1]
    )
    np.testing.assert_array_equal(made.reshape(expected.shape), expected)


# ---- selection


def variants_of(case: Case, context: pumice.Context, precision: str = "fp16", group: int = 1) -> Any:
    weights = np.zeros((case.channels[1], case.channels[0], *case.kernel), np.float16)
    graph = pumice.Graph("taps")
    x = graph.input("x", "float16", [case.images, case.channels[0] * group, *case.size])
    graph.output("y", graph.add("Conv", x, weights, name="conv", group=group))
    return choice_of(graph.compile(context, precision, list_variants=True))[0]


@pytest.mark.parametrize(
    ("case", "taken"),
    [
        (Case((65, 65), (2, 2), (1, 16)), True),
        (Case((65, 64), (2, 2), (1, 16)), False),  # too few pixels
        (Case((65, 65), (2, 2), (1, 15)), False),  # too few channels
        (Case((2, 4097), (2, 2), (1, 16)), False),  # mostly empty tiles
    ],
    ids=str,
)
def test_convolutions_take_it_where_it_is_quicker(case: Case, taken: bool, units: pumice.Context) -> None:
    choice = variants_of(case, units)
    assert choice["own"].startswith("conv_few_channels ") == taken
    assert [one for one in choice["variants"] if one.startswith("conv_few_channels ")]


def test_larger_tiles_are_taken_where_there_are_enough(units: pumice.Context) -> None:
    small, large = (variants_of(Case((82, 82), (3, 3), (3, 64), images=n), units)["own"] for n in (1, 40))
    assert (small, large) == ("conv_few_channels 4x16x64 of 64", "conv_few_channels 8x32x64 of 64")


@pytest.mark.parametrize(
    ("case", "precision", "group"),
    [
        (Case((70, 70), (5, 5), (1, 16)), "fp32", 1),
        (Case((70, 70), (5, 5), (1, 16)), "bf16", 1),
        (Case((70, 70), (5, 5), (1, 16)), "fp16", 2),
        (Case((70, 70), (1, 1), (3, 16)), "fp16", 1),
        (Case((70, 70), (3, 3), (29, 16)), "fp16", 1),
    ],
    ids=str,
)
def test_other_convolutions_do_not(case: Case, precision: str, group: int, units: pumice.Context) -> None:
    case = replace(case, channels=(case.channels[0], case.channels[1] * group))
    assert not [one for one in variants_of(case, units, precision, group)["variants"] if "conv_few_channels" in one]
