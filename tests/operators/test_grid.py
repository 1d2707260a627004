"""Workloads with more workgroups than a grid axis allows: complete results with every kernel, also on lesser devices."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from cases import CASES, Case, grids
from lesser_devices import MIN_LIMITS, SMALL, SMALL_GRID, folded, lesser, results
from operator_references import MEETING, compiled, reference
from pumice.testing import assert_close

Array = npt.NDArray[Any]

SHADERS = Path(__file__).resolve().parents[2] / "shaders"
# GPU kernels with shared-memory reductions also run on software devices if shuffles are disabled.
LACKING = {"lanes": (), "tiled": ("subgroupShuffle",)}
OF_THE_HOST = ("Constant", "NonZero", "Shape", "Size")


@pytest.fixture(scope="module", params=LACKING)
def small(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A device with 64 workgroups per axis."""
    with lesser(pumice_context, SMALL, LACKING[request.param]) as made:
        yield made


@pytest.fixture(scope="module", params=LACKING)
def narrow(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A device with two workgroups on two axes, and minimal other limits."""
    with lesser(pumice_context, SMALL_GRID, LACKING[request.param]) as made:
        yield made


@pytest.fixture(scope="module", params=LACKING)
def least(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A device with the minimum limits that Vulkan guarantees."""
    with lesser(pumice_context, MIN_LIMITS, LACKING[request.param]) as made:
        yield made


# --- Only grid.glsl reads the workgroup index


def test_kernels_index_by_the_grid_alone() -> None:
    """Only grid.glsl reads built-in indices, and tests of drivers. math.glsl reads just a bit of the grid size that is always zero."""
    texts = {path.name: path.read_text() for path in SHADERS.rglob("*.*") if not path.name.endswith("_test.comp")}
    place = re.compile(r"\bgl_(WorkGroupID|GlobalInvocationID)\b")
    size = re.compile(r"\bgl_NumWorkGroups\b(?!\.x >> 31)")
    assert {name for name, text in texts.items() if place.search(text) or size.search(text)} == {"grid.glsl"}


def axes_of(text: str) -> str | None:
    """Return the number of grid axes of a kernel, None if it does not use the workgroup index."""
    if "include/grid.glsl" not in text:
        return None
    said = re.search(r"#define GRID_AXES (\d)", text)
    return said.group(1) if said else "1"


def test_only_conv_gemm_and_attention_split_their_work() -> None:
    """All other kernels support a folded grid, so they work for any size."""
    cut = {path.name for path in SHADERS.glob("*.comp") if axes_of(path.read_text()) == "0"}
    assert cut == {
        "attention_cpu.comp",
        "attention_coopmat.comp",
        "attention_mma.comp",
        "attention_decode_mma.comp",
        "attention_decode.comp",
        "attention_tiled.comp",
        "conv_halo.comp",
        "conv_cpu.comp",
        "conv_coopmat.comp",
        "conv_patch.comp",
        "conv_few_channels.comp",
        "conv_tiled.comp",
        "gemv.comp",
        "gemv_col_major.comp",
        "gemm_split_fp16.comp",
        "gemm_mma.comp",
        "gemv_cpu.comp",
    }


# --- Every kernel family with more work than one axis can hold


def checked(case: Case, context: pumice.Context, precision: str = "fp32") -> dict[str, bool]:
    """Run a case on garbage-filled memory and compare it. Return for each kernel whether its grid was folded."""
    program, given = compiled(case, context, precision)
    expected = reference(case, precision)
    arrays = list(given.values())
    actual = list(program(given).values()) if case.op in OF_THE_HOST else results(program, arrays, expected)
    rtol, atol = case.tolerance(precision)
    for made, wanted in zip(actual, expected, strict=True):
        assert made.shape == wanted.shape and made.dtype == wanted.dtype
        if wanted.dtype.kind == "f":
            assert_close(made, wanted, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(made, wanted)
    return {} if case.op in OF_THE_HOST else folded(program, arrays)


def of_table(every: int) -> Iterator[Any]:
    """Yield all rows of the table; one in `every` runs in the default tier, the others are slow."""
    for case in CASES:
        chosen = zlib.crc32(str(case).encode()) % every == 0 and not case.large
        yield pytest.param(case, id=str(case), marks=[] if chosen else [pytest.mark.slow])


@pytest.mark.parametrize("case", list(of_table(12)))
def test_operators_are_whole_where_every_grid_is_folded(case: Case, narrow: pumice.Context) -> None:
    if narrow.feature("subgroupShuffle") is False and not case.op.startswith(MEETING):
        pytest.skip("has the same kernels with and without shuffles")
    checked(case, narrow)


@pytest.mark.parametrize("case", list(of_table(12)))
def test_operators_work_within_what_every_device_has(case: Case, least: pumice.Context) -> None:
    if least.feature("subgroupShuffle") is False and not case.op.startswith(MEETING):
        pytest.skip("has the same kernels with and without shuffles")
    checked(case, least)
    if case.has_floats and case.op != "DynamicQuantizeLinear":
        checked(case, least, "fp16")


def most_groups(case: Case, context: pumice.Context) -> int:
    """Return the largest grid size on any axis of its dispatches, without device limits."""
    program, given = compiled(case, context)
    plan = program.plan([list(array.shape) for array in given.values()])
    return max(max(step["groups"]) for step in plan)


@pytest.mark.parametrize("case", list(grids.grids()), ids=str)
def test_more_work_than_an_axis_holds_is_done_whole(case: Case, small: pumice.Context) -> None:
    """`small` allows 64 workgroups per axis, and each case exceeds that."""
    checked(case, small)


@pytest.mark.parametrize("case", [one for one in grids.grids() if one.has_floats], ids=str)
@pytest.mark.slow
def test_work_beyond_a_grid_axis_is_done_in_two_halves(case: Case, small: pumice.Context) -> None:
    checked(case, small, "fp16")


@pytest.mark.parametrize("case", list(grids.grids()), ids=str)
def test_each_of_these_cases_has_more_work_than_an_axis_of_64_holds(case: Case, context: pumice.Context) -> None:
    if context.info.limits["subgroupSize"] != 8:
        pytest.skip("needs subgroups of 8: these cases are for their tiles, and other tiles may be larger")
    assert most_groups(case, context) > 64


# --- At the limits of real devices: 65,535 workgroups on an axis


def ramp(*shape: int) -> Array:
    """Return numbers from -1 to 1 with no two neighbours alike."""
    return (np.arange(np.prod(shape), dtype="int64") * 37 % 257 / 128 - 1).astype("float32").reshape(shape)


def run_node(
    context: pumice.Context, op: str, constants: list[Array], expected: Array, x: Array, **attributes: Any
) -> None:
    graph = pumice.Graph()
    given = graph.input("x", str(x.dtype), list(x.shape))
    graph.output("y", graph.add(op, given, *[graph.constant(one) for one in constants], **attributes))
    (made,) = results(graph.compile(context), [x], [expected])
    if expected.dtype.kind == "f":
        assert_close(made, expected, rtol=1e-4, atol=1e-4)
    else:
        np.testing.assert_array_equal(made, expected)


def taps(x: Array, weights: Array) -> Array:
    """Return a 3x3 convolution with padding 1."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    height, width = x.shape[2:]
    sums = np.zeros((len(x), len(weights), height, width), "float32")
    for h in range(3):
        for w in range(3):
            window = padded[:, :, h : h + height, w : w + width]
            for channel, one in enumerate(weights):
                sums[:, channel] += np.tensordot(window, one[:, h, w], (1, 0))
    return sums


def pointwise(context: pumice.Context) -> None:
    x = ramp(1, 1, 1024, 1025)
    run_node(context, "Conv", [np.full((1, 1, 1, 1), 0.5, "float32")], x * np.float32(0.5), x)


def picture(context: pumice.Context) -> None:
    x, weights = ramp(1, 3, 1024, 1025), ramp(3, 3, 3, 3)
    run_node(context, "Conv", [weights], taps(x, weights), x, pads=[1, 1, 1, 1])


def many_pictures(context: pumice.Context) -> None:
    x, weights = ramp(21, 3, 224, 224), ramp(8, 3, 3, 3)
    run_node(context, "Conv", [weights], taps(x, weights), x, pads=[1, 1, 1, 1])


def transposed(context: pumice.Context) -> None:
    x, weights = ramp(1, 2, 1030, 1029), ramp(2, 3, 2, 2)
    products = np.einsum("nchw,cdij->ndhiwj", x, weights).reshape(1, 3, 2060, 2058)
    run_node(context, "ConvTranspose", [weights], products, x, strides=[2, 2])


def samples(context: pumice.Context) -> None:
    x, weights = ramp(1, 1, 1_100_003), ramp(4, 1, 5)
    expected = np.stack([np.convolve(x[0, 0], one[0, ::-1], "valid") for one in weights])[None]
    run_node(context, "Conv", [weights], expected, x)


def matmul(context: pumice.Context) -> None:
    x, weights = ramp(1_200_003, 5), ramp(5, 3)
    run_node(context, "MatMul", [weights], x @ weights, x)


def gemm(context: pumice.Context) -> None:
    x, weights, bias = ramp(1_200_003, 3), ramp(4, 3), ramp(4)
    run_node(context, "Gemm", [weights, bias], x @ weights.T + bias, x, transB=1)


def integers(context: pumice.Context) -> None:
    x = (np.arange(1_200_003 * 4) * 37 % 256).astype("uint8").reshape(-1, 4)
    weights, zero = (np.arange(12) * 5 - 30).astype("int8").reshape(4, 3), np.array(7, "uint8")
    expected = ((x.astype("int32") - 7) @ weights.astype("int32")).astype("int32")
    run_node(context, "MatMulInteger", [weights, zero], expected, x)


def small_products(context: pumice.Context) -> None:
    a, b = ramp(70_000, 2, 3), ramp(70_000, 3, 2)
    graph = pumice.Graph()
    values = [graph.input(name, "float32", list(one.shape)) for name, one in (("a", a), ("b", b))]
    graph.output("y", graph.add("MatMul", *values))
    (made,) = results(graph.compile(context), [a, b], [a @ b])
    assert_close(made, a @ b, rtol=1e-5, atol=1e-5)


def small_heads(context: pumice.Context) -> None:
    q, kv = ramp(70_000, 1, 17, 4), ramp(70_000, 1, 3, 4)
    scores = np.exp(q @ kv.transpose(0, 1, 3, 2) / 2)
    expected = (scores / scores.sum(-1, keepdims=True)) @ kv
    graph = pumice.Graph()
    values = [graph.input(name, "float32", list(one.shape)) for name, one in (("q", q), ("kv", kv))]
    graph.output("y", graph.add("Attention", values[0], values[1], values[1]))
    (made,) = results(graph.compile(context), [q, kv], [expected])
    assert_close(made, expected, rtol=1e-4, atol=1e-4)


LARGE: dict[str, Callable[[pumice.Context], None]] = {
    one.__name__: one
    for one in (
        pointwise,
        picture,
        many_pictures,
        transposed,
        samples,
        matmul,
        gemm,
        integers,
        small_products,
        small_heads,
    )
}


@pytest.mark.parametrize("work", LARGE.values(), ids=LARGE)
def test_large_pictures_and_long_batches_are_computed_whole(
    work: Callable[[pumice.Context], None], context: pumice.Context
) -> None:
    work(context)


@pytest.mark.parametrize("work", LARGE.values(), ids=LARGE)
@pytest.mark.slow
def test_large_pictures_are_computed_whole_within_what_every_device_has(
    work: Callable[[pumice.Context], None], least: pumice.Context
) -> None:
    work(least)


@pytest.mark.slow
def test_a_recurrent_layer_over_131074_steps_is_computed_whole(context: pumice.Context) -> None:
    """The state is not carried over: every step depends only on its own input."""
    steps, batch, units = 131_074, 8, 4
    x, weights = ramp(steps, batch, 3), ramp(1, 4 * units, 3)
    expected_gates = np.split(x @ weights[0].T, 4, -1)

    def sigmoid(v: Array) -> Array:
        return 1 / (1 + np.exp(-v))

    # A bias of -100 closes the forget gate; recurrent weights are zero.
    gate_in, gate_out, _, cell = expected_gates
    expected = (sigmoid(gate_out) * np.tanh(sigmoid(gate_in) * np.tanh(cell)))[:, None].astype("float32")
    bias = np.zeros((1, 8 * units), "float32")
    bias[0, 2 * units : 3 * units] = -100
    graph = pumice.Graph()
    constants = [weights, np.zeros((1, 4 * units, units), "float32"), bias]
    made = graph.add(
        "LSTM", graph.input("x", "float32", [steps, batch, 3]), *[graph.constant(one) for one in constants], outputs=1,
        hidden_size=units,
    )  # fmt: skip
    graph.output("y", made)
    (actual,) = results(graph.compile(context), [x], [expected])
    assert_close(actual, expected, rtol=1e-4, atol=1e-5)


# --- User kernels


def test_a_kernel_of_a_user_is_rejected_where_its_grid_does_not_fit(small: pumice.Context) -> None:
    """A user kernel that reads its workgroup index is not folded; one that only reads its invocation index is (test_launch_sizes.py)."""
    kernel = pumice.Kernel(
        "layout(local_size_x = 4) in;\nlayout(binding = 0) buffer Y { float y[]; };\n"
        "void main() { y[gl_WorkGroupID.x * 4u + gl_LocalInvocationID.x] = 1.0; }",
        small,
    )
    y = pumice.tensor(np.zeros(4 * 64, "float32"), small)
    kernel(y=y, threads=4 * 64)
    assert (y.numpy() == 1).all()
    for size in ({"threads": 4 * 64 + 1}, {"groups": 65}, {"groups": (1, 65)}):
        with pytest.raises(pumice.BindingError, match="at most 64 workgroups on axis"):
            kernel(y=y, **size)
