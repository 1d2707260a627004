"""fp16 convolutions on cooperative matrices that read each tap's pixels from global memory: gemm_mma.comp."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from features import need_limits
from mma_convolutions import EMULATION, Case, check_large, check_near, compiled, graph_of, inside, shapes_of

DEEP, DEEPER = "conv_mma 32x48 of 32x48 split 4 unroll 1 prefetch", "conv_mma 32x32 of 32x32 split 8 unroll 2 prefetch"
EARLY, EARLIER = (
    "conv_mma 32x64 of 32x32 split 2 unroll 1 prefetch",
    "conv_mma 32x64 of 32x32 split 4 unroll 1 prefetch",
)
SQUARE, WIDE = "conv_mma 64x96 of 32x48 split 1 unroll 1 prefetch", "conv_mma 64x96 of 32x48 split 1 unroll 1"
FEW = "conv_mma 16x32 of 16x32 split 16 unroll 2"
SAME, ROW = (1, 1, 1, 1), (0, 1, 0, 1)
CASES = [
    Case((1, 65), (1, 3), (64, 64), EARLY, pads=ROW, bias=True),
    Case((1, 97), (1, 3), (80, 65), EARLY, pads=ROW, bias=True, relu=True),
    Case((1, 131), (1, 3), (64, 40), EARLY, images=2, pads=ROW, strides=(1, 2), residual=True),
    Case((1, 33), (1, 5), (24, 33), EARLY, images=3, pads=(0, 4, 0, 0), dilations=(1, 2)),
    Case((1, 2), (1, 2), (16, 7), EARLY, bias=True),
    Case((1, 31), (1, 4), (136, 31), EARLY, pads=(0, 1, 0, 2)),
    Case((7, 9), (3, 3), (64, 64), EARLY, pads=SAME, bias=True, residual=True, relu=True),
    Case((9, 11), (3, 2), (40, 33), EARLY, images=2, pads=(1, 0, 2, 1), strides=(2, 1)),
    Case((13, 7), (3, 1), (72, 36), EARLY, pads=(1, 0, 1, 0), dilations=(2, 1), residual=True),
    Case((2, 3), (2, 3), (16, 24), EARLY, pads=SAME),
]
LARGE = [
    Case((1, 3000), (1, 3), (80, 384), WIDE, pads=ROW, bias=True),
    Case((1, 3000), (1, 3), (384, 384), DEEPER, pads=ROW, strides=(1, 2), bias=True, relu=True),
    Case((1, 1009), (1, 7), (72, 100), SQUARE, images=2, pads=(0, 3, 0, 3)),
    Case((31, 33), (3, 3), (128, 128), EARLIER, pads=SAME, residual=True),
    Case((1, 31), (1, 3), (512, 65), FEW, pads=ROW, bias=True),
    Case((4, 4), (3, 3), (256, 96), FEW, pads=SAME),
    Case((1, 97), (1, 3), (80, 65), DEEP, pads=ROW, bias=True, relu=True),
    Case((9, 11), (3, 2), (40, 33), DEEP, images=2, pads=(1, 0, 2, 1), strides=(2, 1)),
    Case((7, 9), (3, 3), (136, 65), "conv_mma 32x64 of 32x32 split 4 unroll 2 prefetch", pads=SAME, residual=True),
    Case((7, 9), (3, 3), (136, 65), "conv_mma 32x32 of 32x32 split 8 unroll 1 prefetch", pads=SAME, relu=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions_are_within_the_reported_error(case: Case, either_units: pumice.Context) -> None:
    check_near(case, either_units)


@pytest.mark.parametrize("case", LARGE, ids=str)
def test_large_tiles_are_right_if_they_fit(case: Case, either_units: pumice.Context) -> None:
    check_large(case, either_units)


@pytest.mark.parametrize("number", [np.inf, np.nan])
@pytest.mark.parametrize("size", [(1, 41), (5, 9)], ids=str)
def test_a_number_that_is_not_finite_reaches_the_windows_that_have_it(
    size: tuple[int, int], number: float, either_units: pumice.Context
) -> None:
    """Padding of channels and of the image never multiplies the infinity."""
    kernel, pads = ((1, 3), ROW) if size[0] == 1 else ((3, 3), SAME)
    case = Case(size, kernel, (40, 36), EARLY, images=2, pads=pads, bias=True)
    random = np.random.default_rng(6)
    weights = (random.uniform(1, 2, (36, 40, *kernel)) / 64).astype(np.float16).astype(np.float32)
    x = random.uniform(1, 2, (2, 40, *size)).astype(np.float16).astype(np.float32)
    x[0, 39, 0, 0] = x[1, 3, -1, -1] = number
    made = compiled(case, graph_of(case, weights, weights[:, 0, 0, 0]), either_units)({"x": x}, loop_timeout=None)["y"]
    wanted = np.zeros_like(made)
    wanted[0, :, :2, :2] = wanted[1, :, -2:, -2:] = number
    np.testing.assert_array_equal(np.where(np.isfinite(made), 0, made), wanted)


# ---- selection


def taken_by(context: pumice.Context, sizes: list[int | None], run: list[int], taps: list[int], outputs: int) -> Any:
    """Return the kernel of a convolution with this input shape (channels first), known or unknown at load time."""
    graph = pumice.Graph("row")
    x = inside(graph.input("x", "float32", [1, *sizes]), graph, "turned")
    weights = np.full((outputs, sizes[0] or 0, *taps), 1 / 64, np.float32)
    made = graph.add("Conv", x, weights, name="conv", pads=[size // 2 for size in taps] * 2)
    graph.output("y", graph.add("Add", made, np.ones(1, np.float32)))
    program = graph.compile(context, "fp16")
    (kernel,) = [step["kernel"] for step in program.plan([run]) if step["kernel"].startswith(("conv_", "gemm_"))]
    return kernel


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
def test_convolutions_along_one_axis_take_it(is_known: bool, either_units: pumice.Context) -> None:
    need_limits(either_units, **EMULATION)
    length = 200 if is_known else None
    assert taken_by(either_units, [96, length], [1, 96, 200], [3], 64) == "gemm_mma.comp"
    assert taken_by(either_units, [96, length], [1, 96, 200], [3], 32) != "gemm_mma.comp"
    assert taken_by(either_units, [32, length], [1, 32, 200], [3], 64) != "gemm_mma.comp"
    assert taken_by(either_units, [96, 1, length], [1, 96, 1, 200], [1, 3], 64) == "gemm_mma.comp"


def test_images_that_are_too_small_for_patches_take_it(either_units: pumice.Context) -> None:
    need_limits(either_units, **EMULATION)
    assert taken_by(either_units, [96, 20, 20], [1, 96, 20, 20], [3, 3], 64) == "gemm_mma.comp"
    assert taken_by(either_units, [32, 150, 170], [1, 32, 150, 170], [3, 3], 64) != "gemm_mma.comp"
    assert taken_by(either_units, [16, 20, 20], [1, 16, 20, 20], [3, 3], 64) != "gemm_mma.comp"


def test_matmuls_do_not_use_conv_tiles(either_units: pumice.Context) -> None:
    """A tile of eight rows would be seven eighths empty."""
    for size in (30_000, 300):
        assert "halo" not in taken_by(either_units, [32, 1, size], [1, 32, 1, size], [3, 3], 64)


def test_other_convolutions_have_no_such_variant(either_units: pumice.Context) -> None:
    for channels, group, constant, precision in (
        (36, 1, True, "fp16"),
        (64, 2, True, "fp16"),
        (64, 1, False, "fp16"),
        (64, 1, True, "fp32"),
    ):
        graph = pumice.Graph("row")
        x = inside(graph.input("x", "float32", [1, channels, 50]), graph, "turned")
        weights = np.ones((64, channels // group, 3), np.float32)
        given = weights if constant else graph.input("w", "float32", list(weights.shape))
        made = graph.add("Conv", x, given, group=group, name="conv")
        graph.output("y", graph.add("Add", made, np.ones(1, np.float32)))
        program = graph.compile(either_units, precision, list_variants=True)
        (choice,) = [step["choice"] for step in program.plan(shapes_of(program)) if "choice" in step]
        assert not [variant for variant in choice["variants"] if variant.startswith("conv_mma")]
