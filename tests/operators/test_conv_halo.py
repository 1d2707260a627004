"""fp16 convolutions on cooperative matrices that read input patches from shared memory: conv_halo.comp."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from features import need_limits
from mma_convolutions import EMULATION, Case, check_large, check_near, compiled, graph_of, inside, shapes_of

NARROW, SMALL = "conv_halo 8x16x16 of 32x16 planes 1", "conv_halo 8x8x32 of 32x16 planes 1"
SAME = (1, 1, 1, 1)
CASES = [
    Case((7, 9), (3, 3), (64, 64), pads=SAME),
    Case((8, 16), (3, 3), (64, 64), "conv_halo 8x16x64 of 64x32 planes 1", pads=SAME, bias=True, relu=True),
    Case((9, 17), (3, 3), (64, 64), "conv_halo 8x16x64 of 64x32 planes 2 prefetch", pads=SAME, residual=True),
    Case(
        (7, 15), (3, 3), (64, 64), "conv_halo 8x16x64 of 64x32 planes 2", pads=SAME, bias=True, residual=True, relu=True
    ),
    Case((17, 19), (3, 3), (64, 32), "conv_halo 8x16x32 of 32x32 planes 1 prefetch", pads=SAME, bias=True),
    Case((1, 1), (3, 3), (64, 32), "conv_halo 8x16x32 of 32x32 planes 2", pads=SAME),
    Case((11, 23), (3, 3), (32, 9), NARROW, images=3, pads=SAME, bias=True),
    Case((17, 17), (3, 3), (32, 9), "conv_halo 8x16x16 of 32x16 planes 1 prefetch", pads=SAME, relu=True),
    Case((9, 13), (3, 3), (64, 9), f"{NARROW} prefetch", pads=SAME, residual=True),
    Case((10, 11), (9, 9), (32, 3), "conv_halo 8x8x16 of 16x16 planes 1", pads=(4, 4, 4, 4), bias=True),
    Case((9, 9), (5, 5), (16, 17), SMALL, pads=(2, 2, 2, 2), bias=True),
    Case((7, 13), (1, 3), (48, 40), images=3, pads=(0, 1, 0, 1)),
    Case((13, 7), (3, 1), (72, 36), "conv_halo 8x16x32 of 32x32 planes 2 prefetch", pads=(1, 0, 1, 0), residual=True),
    Case((13, 19), (3, 3), (32, 32), SMALL, images=3, dilations=(2, 2), pads=(2, 2, 2, 2)),
    Case((12, 10), (3, 4), (24, 8), NARROW, dilations=(1, 3), pads=(0, 3, 2, 1), relu=True),
    Case((12, 18), (3, 3), (40, 65), SMALL, pads=(3, 0, 1, 2)),
    Case((15, 17), (3, 3), (32, 32), f"{SMALL} prefetch", strides=(2, 2), pads=SAME, bias=True),
    Case((2, 65), (2, 3), (32, 16), NARROW, strides=(1, 2)),
    Case((11, 35), (3, 3), (32, 9), "conv_halo folded 4x32x32 of 32x32 planes 1", images=2, pads=SAME, bias=True),
    Case((5, 30), (3, 3), (64, 9), "conv_halo folded 2x32x32 of 16x32 planes 1 prefetch", pads=SAME, residual=True),
    Case((5, 31), (3, 3), (64, 4), "conv_halo folded 2x32x16 of 16x16 planes 2", pads=SAME, bias=True, relu=True),
    Case((10, 26), (9, 9), (32, 3), "conv_halo folded 2x32x32 of 16x32 planes 1", pads=(4, 4, 4, 4), bias=True),
    Case((7, 61), (1, 5), (40, 6), "conv_halo folded 4x32x32 of 32x32 planes 1", pads=(0, 3, 0, 0)),
    Case(
        (9, 29),
        (3, 3),
        (24, 1),
        "conv_halo folded 4x32x16 of 32x16 planes 1 prefetch",
        dilations=(2, 3),
        pads=(0, 3, 2, 1),
    ),
    Case(
        (9, 15),
        (3, 3),
        (128, 24),
        "conv_halo 8x8x16 of 64x16 planes 4 split 2 prefetch",
        pads=SAME,
        bias=True,
        relu=True,
    ),
    Case((9, 15), (2, 3), (64, 24), "conv_halo 8x8x16 of 64x16 planes 2 split 4 prefetch", pads=SAME, bias=True),
    Case((8, 9), (2, 3), (168, 33), "conv_halo 8x8x32 of 64x32 planes 4 split 2 prefetch", images=2, residual=True),
    Case((7, 8), (2, 3), (40, 17), "conv_halo 8x8x32 of 32x32 planes 2 split 2 prefetch", pads=SAME, bias=True),
    Case((17, 15), (3, 3), (32, 64), "conv_halo 8x16x64 of 64x32 planes 1 prefetch", pads=SAME, bias=True),
    Case((7, 17), (3, 3), (32, 128), "conv_halo 8x16x64 of 64x32 planes 1", pads=SAME),
    Case((17, 33), (3, 3), (64, 64), "conv_halo 8x16x64 of 64x32 planes 1 prefetch", pads=SAME, bias=True),
    Case((18, 31), (3, 3), (64, 64), "conv_halo 8x16x64 of 64x32 planes 2 prefetch", pads=SAME, relu=True),
    Case((33, 67), (3, 3), (32, 9), "conv_halo 8x16x16 of 32x16 planes 1 prefetch", pads=SAME, bias=True),
]
LARGE = [
    Case((31, 65), (9, 9), (32, 3), "conv_halo 8x16x16 of 32x16 planes 1 prefetch", pads=(4, 4, 4, 4), bias=True),
    Case((30, 34), (3, 3), (128, 128), "conv_halo 8x16x64 of 64x32 planes 2", images=2, pads=SAME, residual=True),
    Case((8, 9), (3, 3), (72, 33), "conv_halo 8x8x32 of 64x32 planes 3 split 2 prefetch", images=2, residual=True),
    Case((8, 9), (1, 3), (168, 17), "conv_halo 8x8x16 of 64x16 planes 4 split 4 prefetch", images=2, pads=SAME),
    Case((17, 31), (3, 3), (128, 128), "conv_halo 8x8x32 of 64x32 planes 4 split 4 prefetch", pads=SAME, bias=True),
    Case((7, 61), (1, 5), (40, 6), "conv_halo folded 8x32x32 of 64x32 planes 1", pads=(0, 3, 0, 0), relu=True),
    Case(
        (17, 61), (3, 3), (32, 9), "conv_halo folded 8x32x32 of 64x32 planes 1 prefetch", images=2, pads=SAME, bias=True
    ),
    Case(
        (17, 45), (9, 9), (32, 3), "conv_halo folded 8x32x32 of 64x32 planes 1 prefetch", pads=(4, 4, 4, 4), bias=True
    ),
]


@pytest.mark.parametrize("case", LARGE, ids=str)
def test_large_tiles_are_within_the_reported_error(case: Case, either_units: pumice.Context) -> None:
    check_large(case, either_units)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions_are_within_the_reported_error(case: Case, either_units: pumice.Context) -> None:
    check_near(case, either_units)


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("tile", [SMALL, NARROW, "conv_halo folded 4x32x32 of 32x32 planes 1"])
def test_a_number_that_is_not_finite_reaches_the_windows_that_have_it(
    tile: str, number: float, either_units: pumice.Context
) -> None:
    """Padding of channels and of the image never multiplies the infinity."""
    channels = (40, 36) if tile == SMALL else (24, 9)
    case = Case((9, 18), (3, 3), channels, tile, images=2, pads=SAME, bias=True)
    random = np.random.default_rng(6)
    weights = (random.uniform(1, 2, (channels[1], channels[0], 3, 3)) / 64).astype(np.float16).astype(np.float32)
    x = random.uniform(1, 2, (case.images, channels[0], *case.size)).astype(np.float16).astype(np.float32)
    x[0, channels[0] - 1, 0, 0] = x[1, 3, 8, 17] = number
    made = compiled(case, graph_of(case, weights, weights[:, 0, 0, 0]), either_units)({"x": x}, loop_timeout=None)["y"]
    wanted = np.zeros_like(made)
    wanted[0, :, :2, :2] = wanted[1, :, 7:, 16:] = number
    np.testing.assert_array_equal(np.where(np.isfinite(made), 0, made), wanted)


# ---- selection


def choice_of(
    case: Case, context: pumice.Context, precision: str = "fp16", group: int = 1, constant: bool = True
) -> Any:
    graph = pumice.Graph("halo")
    weights = np.full((case.channels[1], case.channels[0] // group, *case.kernel), 1 / 64, np.float32)
    x = inside(graph.input("x", "float32", [case.images, case.channels[0], *case.size]), graph, "turned")
    w = weights if constant else graph.input("w", "float32", list(weights.shape))
    made = graph.add("Conv", x, w, pads=list(case.pads), group=group, name="conv")
    graph.output("y", graph.add("Add", made, np.ones(1, np.float32)))
    program = graph.compile(context, precision, list_variants=True)
    return next(step["choice"] for step in program.plan(shapes_of(program)) if "choice" in step)


@pytest.mark.parametrize(
    ("outputs", "start"),
    [(9, "conv_halo folded "), (16, "conv_halo 8x16x16 "), (32, "conv_halo 8x16x32 "), (64, "conv_halo 8x16x64 ")],
)
def test_convolutions_that_keep_many_tiles_busy_take_it(outputs: int, start: str, either_units: pumice.Context) -> None:
    need_limits(either_units, **EMULATION)
    assert choice_of(Case((150, 170), (3, 3), (32, outputs), pads=SAME), either_units)["own"].startswith(start)
    assert "conv_halo" not in choice_of(Case((20, 20), (3, 3), (32, outputs), pads=SAME), either_units)["own"]


@pytest.mark.parametrize("images", [1, None], ids=str)
def test_it_is_taken_where_nothing_is_measured(images: int | None, either_units: pumice.Context) -> None:
    """The image count may be unknown when the weights are packed. Small images use other kernels with the same weights."""
    need_limits(either_units, **EMULATION)
    graph = pumice.Graph("halo")
    x = inside(graph.input("x", "float32", [images, 32, 150, 170]), graph, "turned")
    graph.output("y", graph.add("Conv", x, np.ones((9, 32, 3, 3), np.float32), pads=[1, 1, 1, 1], name="conv"))
    program = graph.compile(either_units, "fp16")
    assert "conv_halo.comp" in [step["kernel"] for step in program.plan([[1, 32, 150, 170]])]


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        (Case((9, 9), (1, 1), (32, 32)), {}),
        (Case((9, 9), (3, 3), (36, 32)), {}),
        (Case((9, 9), (3, 3), (64, 32)), {"group": 2}),
        (Case((9, 9), (3, 3), (32, 32)), {"constant": False}),
        (Case((9, 9), (3, 3), (32, 32)), {"precision": "fp32"}),
        (Case((9, 9), (3, 3), (32, 32)), {"precision": "bf16"}),
    ],
    ids=str,
)
def test_other_convolutions_have_no_such_variant(
    case: Case, kind: dict[str, Any], either_units: pumice.Context
) -> None:
    assert not [variant for variant in choice_of(case, either_units, **kind)["variants"] if "halo" in variant]


def test_split_k_subgroups_have_a_row_of_taps_each(either_units: pumice.Context) -> None:
    """Subgroups without taps would read past the end of the weights."""
    for kernel, inputs in (((3, 3), 32), ((1, 3), 32), ((1, 5), 96), ((5, 2), 16)):
        variants = choice_of(Case((17, 18), kernel, (inputs, 24)), either_units)["variants"]
        for variant in (one for one in variants if " split " in one and "halo" in one):
            planes, split = (int(variant.split(f" {name} ")[1].split()[0]) for name in ("planes", "split"))
            assert planes * kernel[0] >= split, variant


def test_tiles_fit_next_to_emulated_fragments(either_units: pumice.Context) -> None:
    """A patch of 379 pixels and 128 invocations: 68 bytes of emulated fragments for each exceed 32 KiB of shared memory."""
    graph = pumice.Graph("room")
    x = inside(graph.input("x", "float32", [1, 16, 124, 120]), graph, "turned")
    weights = np.full((32, 16, 5, 4), 1 / 64, np.float32)
    made = graph.add("Conv", x, weights, pads=[6, 1, 6, 2], dilations=[3, 1], name="conv")
    graph.output("y", graph.add("Add", made, np.ones(1, np.float32)))
    program = graph.compile(either_units, "fp16")
    y = program({"x": np.zeros((1, 16, 124, 120), np.float32)}, loop_timeout=None)["y"]
    assert (y == 1).all()


def test_taps_that_are_far_apart_have_no_such_variant(either_units: pumice.Context) -> None:
    """Such large receptive fields are excluded, since sizes would overflow."""
    far = 400_000_000
    case = Case((1, 1), (2, 2), (16, 32), dilations=(far, far), pads=(far, far, 0, 0))
    graph = pumice.Graph("far")
    x = inside(graph.input("x", "float32", [1, 16, 1, 1]), graph, "turned")
    made = graph.add(
        "Conv", x, np.ones((32, 16, 2, 2), np.float32), pads=list(case.pads), dilations=[far, far], name="conv"
    )
    graph.output("y", graph.add("Add", made, np.ones(1, np.float32)))
    program = graph.compile(either_units, "fp16", list_variants=True)
    (choice,) = [step["choice"] for step in program.plan(shapes_of(program)) if "choice" in step]
    assert not [variant for variant in choice["variants"] if "halo" in variant or "taps" in variant]


def test_weights_are_stored_twice_if_a_kernel_needs_its_own_layout(either_units: pumice.Context) -> None:
    """A measured choice of another kind needs only one packed copy."""
    graph = graph_of(
        Case((14, 14), (3, 3), (64, 32), pads=SAME), np.ones((32, 64, 3, 3), np.float32), np.ones(32, np.float32)
    )

    def held(**options: Any) -> int:
        program = graph.compile(either_units, "fp16", **options)
        (compiled,) = [program.compiled(shapes_of(program))]
        return int(compiled.binding_properties.persistent_bytes)

    once = held()
    assert held(measured={"convolution of another kind": "conv_tiled 32x32 split 1"}) == once
    assert held(list_variants=True) > once
    assert held(measured={"convolution of another kind": "conv_halo 8x16x64 of 64x32 planes 1"}) > once
