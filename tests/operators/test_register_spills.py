"""Variants whose kernels spill according to the driver are replaced by others, noted in the report, cached, and rejected by Model.tune().
A quirk simulates spills for all workgroups of 256 or more invocations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice
from features import need_limits
from pumice._pumice import simulate_spills

RANDOM = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PUMICE_NO_CACHE", raising=False)
    monkeypatch.setenv("PUMICE_CACHE_DIR", str(tmp_path))
    return tmp_path / "pumice" / "spills"


def made(of: pumice.Context, quirks: list[str]) -> pumice.Context:
    """Return a device that uses the GPU kernels."""
    return pumice.Context(f"uuid:{of.info.uuid}", without=["subgroupShuffle"], quirks=quirks)


@pytest.fixture
def spilling(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    with made(pumice_context, ["told_spills"]) as context:
        yield context


@pytest.fixture
def plain(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    with made(pumice_context, []) as context:
        yield context


def product(rows: int, context: pumice.Context, taken: dict[str, str] | None = None, **more: Any) -> pumice.Program:
    graph = pumice.Graph("product")
    x = graph.input("x", "float32", [rows, 200])
    w = np.random.default_rng(1).standard_normal((200, 72)).astype(np.float32)
    graph.output("y", graph.add("MatMul", x, w))
    return graph.compile(context, "fp32", measured=taken or {}, **more)


def rows_in(rows: int) -> npt.NDArray[np.float32]:
    return RANDOM.standard_normal((rows, 200)).astype(np.float32)


def choice_of(program: pumice.Program, rows: int) -> dict[str, Any]:
    (found,) = [step["choice"] for step in program.plan([[rows, 200]])]
    return found  # type: ignore[no-any-return]


def need_large_tile(context: pumice.Context) -> None:
    """Skip the test where the default tile of these products, conv_tiled 32x32 split 4, does not fit: the quirk spares smaller ones."""
    need_limits(context, maxComputeWorkGroupInvocations=256, maxComputeSharedMemorySize=17408)


@pytest.mark.parametrize("rows", [1, 70])
def test_another_variant_stands_for_one_that_spills(rows: int, plain: pumice.Context, spilling: pumice.Context) -> None:
    """The replacement is another variant of the same kernel, or of another kernel if none is valid."""
    if rows == 1:
        need_limits(plain, maxComputeWorkGroupInvocations=512)  # the smallest workgroup of gemv.comp
    need_large_tile(plain)
    x = rows_in(rows)
    right = product(rows, plain)
    own = choice_of(product(rows, plain, list_variants=True), rows)["own"]
    program = product(rows, spilling)
    np.testing.assert_allclose(program.call((x,))[0], right.call((x,))[0], rtol=1e-4, atol=1e-4)
    note = program.report()[0]["note"]
    assert f"{own} spills, " in note
    taken = choice_of(product(rows, spilling, list_variants=True), rows)["own"]
    assert taken != own
    assert f"{taken} does not" in note
    assert "spills" not in right.report()[0]["note"]


def tile_of(variant: str) -> list[int]:
    """Parse "conv_tiled 128x64 split 1 registers 8x4": pixels, channels, split, pixels and channels per invocation."""
    found = re.fullmatch(r"conv_tiled (\d+)x(\d+) split (\d+) registers (\d+)(?:x(\d+))?", variant)
    assert found
    return [int(one or found[4]) for one in found.groups()]


def apart(one: str, other: str) -> float:
    """Return the distance between two tiles in powers of two."""
    pairs = zip(tile_of(one), tile_of(other), strict=True)
    return sum(abs(math.log2(a / b)) for a, b in pairs)


def spills(variant: str) -> bool:
    """Return whether the quirk reports spills: workgroups of 256 or more invocations."""
    pixels, channels, split, thread_pixels, thread_channels = tile_of(variant)
    return pixels * channels * split >= 256 * thread_pixels * thread_channels


@pytest.mark.parametrize(("rows", "columns"), [(512, 512), (2048, 2048), (4096, 64), (300, 4096)])
def test_the_nearest_tile_stands_for_one_that_spills(
    rows: int, columns: int, plain: pumice.Context, spilling: pumice.Context
) -> None:
    """It is not the next in the list, which wraps around from the largest to the smallest tile."""
    need_large_tile(plain)
    choices = []
    for context in (plain, spilling):
        graph = pumice.Graph("product")
        a, b = graph.input("a", "float32", [rows, 512]), graph.input("b", "float32", [512, columns])
        graph.output("y", graph.add("MatMul", a, b))
        with graph.compile(context, "fp32", list_variants=True) as program:
            (step,) = [one for one in program.plan([[rows, 512], [512, columns]]) if one["choice"]]
        choices.append(step["choice"])
    own, taken = choices[0]["own"], choices[1]["own"]
    others = [one for one in choices[0]["variants"] if one.startswith("conv_tiled ") and not spills(one)]
    if not spills(own) and plain.info.kind != "software":
        pytest.skip(f"this driver reports spills itself, so that both contexts replace the tile: {own}")
    assert spills(own)
    assert taken in others
    assert apart(taken, own) == min(apart(one, own) for one in others)


def test_reported_spills_are_kept_in_the_cache(pumice_context: pumice.Context, cache: Path) -> None:
    """A second context, like a later process, reads the cached answers and rewrites no file."""
    need_large_tile(pumice_context)
    times: list[dict[Path, int]] = []
    for _ in range(2):
        with made(pumice_context, ["told_spills"]) as context:
            program = product(70, context)
            program.call((rows_in(70),))
            assert "spills" in program.report()[0]["note"]
        times.append({path: path.stat().st_ino for path in cache.glob("*/*.bin")})
    assert len(times[0]) > 1
    assert times[0] == times[1]


def counted(rows: int, context: pumice.Context) -> tuple[int, int]:
    """Return how often loading with one shape plans, and how many pipelines it creates."""
    before = context.pipelines_created
    with pumice.profile() as measured:
        program = product(rows, context)
        program.plan([[rows, 200]])
    assert "spills" in program.report()[0]["note"]
    return sum(span.kind == "plan" for span in measured.host), context.pipelines_created - before


def test_what_is_known_of_spills_is_asked_and_planned_once(pumice_context: pumice.Context, cache: Path) -> None:
    """Only the load that compiles a kernel re-plans for spills. Later loads in the process query nothing, create no pipeline and plan
    once. A later process also plans once, and only creates pipelines that it runs.
    """
    need_large_tile(pumice_context)
    with made(pumice_context, ["told_spills"]) as context:
        plans, pipelines = counted(70, context)
        assert plans > 1
        assert pipelines > 2  # one spilling, one not, and one for packing the weights
        told = {path: path.read_bytes() for path in cache.glob("*/*.bin")}
        for path in told:
            path.unlink()
        assert counted(70, context) == (1, 0)
        assert not list(cache.glob("*/*.bin"))
    for path, text in told.items():
        path.write_bytes(text)
    with made(pumice_context, ["told_spills"]) as context:
        later = counted(70, context)
        assert later[0] == 1
        assert later[1] < pipelines


def test_another_shape_keeps_the_spills_reported_for_the_first(spilling: pumice.Context) -> None:
    """A new shape reuses steps of the last plan, except for spilling kernels."""
    need_large_tile(spilling)
    graph = pumice.Graph("product")
    x = graph.input("x", "float32", [None, 200])
    w = np.random.default_rng(1).standard_normal((200, 72)).astype(np.float32)
    graph.output("y", graph.add("MatMul", x, w))
    program = graph.compile(spilling, "fp32")
    for rows in (70, 71, 70):
        given = rows_in(rows)
        np.testing.assert_allclose(program.call((given,))[0], given @ w, rtol=1e-3, atol=1e-3)
        assert " does not" in program.report()[0]["note"]


def test_drivers_with_statistics_are_asked_only_for_numbers(plain: pumice.Context, cache: Path) -> None:
    """The validation layer would warn if pipelines were queried for text without being created for it. Nothing is cached for other
    drivers.
    """
    product(70, plain).call((rows_in(70),))
    tells = plain.info.kind != "software" and plain.feature("pipelineExecutableInfo")
    assert cache.exists() == tells


def test_a_measured_variant_that_spills_is_rejected(plain: pumice.Context, spilling: pumice.Context) -> None:
    need_large_tile(plain)
    choice = choice_of(product(70, plain, list_variants=True), 70)
    program = product(70, spilling, {choice["kind"]: choice["own"]})
    (told,) = [step["choice"] for step in program.plan([[70, 200]])]
    assert (told["refused"], told["spills"]) == (choice["own"], True)
    assert f"cannot take {choice['own']}, which spills" in program.report()[0]["note"]


def test_tuning_rejects_variants_that_spill(spilling: pumice.Context) -> None:
    need_limits(spilling, maxComputeWorkGroupInvocations=256)
    info = helper.make_tensor_value_info
    w = numpy_helper.from_array(RANDOM.standard_normal((200, 72)).astype(np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "product")]
    x, y = info("x", TensorProto.FLOAT, [70, 200]), info("y", TensorProto.FLOAT, [70, 72])
    graph = helper.make_graph(nodes, "one_product", [x], [y], [w])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pumice.load(model, spilling) as loaded:
        (step,) = loaded.tune(rows_in(70), runs=1, progress=False).steps
    rejected = {one.variant for one in step.variants if "spills" in one.rejected}
    assert rejected
    assert step.chosen not in rejected
    assert all(one.seconds is None for one in step.variants if one.variant in rejected)


def attention(context: pumice.Context, taken: dict[str, str]) -> tuple[pumice.Program, list[dict[str, Any]]]:
    shape = [1, 32, 2048, 128]
    graph = pumice.Graph("attention")
    q, k, v = (graph.input(name, "float16", shape) for name in "qkv")
    graph.output("y", graph.add("Attention", q, k, v, is_causal=1))
    program = graph.compile(context, "fp16", measured=taken)
    return program, program.plan([shape] * 3)


def test_attention_avoids_a_tiling_that_spills(units: pumice.Context) -> None:
    """With cooperative matrices, the quirk affects tilings with eight subgroups of 32 invocations, if the device selects one."""
    own = attention(units, {"attention of 2048 rows": "nothing"})[1][0]["choice"]["own"]
    with pumice.Context(f"uuid:{units.info.uuid}", quirks=["told_spills"]) as context:
        note = attention(context, {})[0].report()[0]["note"]
    assert (f"{own} spills, " in note) == own.startswith("attention_mma 8 x "), note


def run_graph(
    context: pumice.Context, op: str, arrays: list[npt.NDArray[Any]], precision: str = "fp32", **attributes: Any
) -> tuple[npt.NDArray[Any], str]:
    """Return the output of one operator, and its note in the report. The first array is an input, the others are constants."""
    graph = pumice.Graph("one")
    x = graph.input("x", str(arrays[0].dtype), list(arrays[0].shape))
    graph.output("y", graph.add(op, x, *arrays[1:], **attributes))
    program = graph.compile(context, precision)
    y = program.call((arrays[0],))[0]
    return y, program.report()[0]["note"]


def softmax(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    result: npt.NDArray[np.float64] = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return result


def normalize(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    axes = tuple(range(1, x.ndim)) if x.ndim < 4 else (2, 3)
    result: npt.NDArray[np.float64] = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
    return result


@pytest.fixture
def simulate() -> Iterator[Callable[[list[str]], None]]:
    """Yield a function that makes variants spill whose names match one of its wildcard patterns."""
    yield simulate_spills
    simulate_spills([])


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("fp16", 4e-3)])
@pytest.mark.parametrize(
    ("op", "size", "pattern", "note"),
    [
        ("Softmax", 200, "registers 16x*", "registers 16x4 spills, registers (32x2|128x1) does not"),
        ("LogSoftmax", 3000, "registers 256x*", "registers 256x4 spills, registers 512x2 does not"),
        ("Softmax", 3000, "registers*", "registers 256x4 spills, rows in loops does not"),
        (
            "LayerNormalization",
            1600,
            "registers* prefetch",
            "registers 128x4 prefetch spills, registers 128x4 does not",
        ),
        ("LayerNormalization", 1600, "registers 128x*", "registers 128x4 prefetch spills, registers 256x2 does not"),
        ("LayerNormalization", 1600, "registers*", "registers 128x4 prefetch spills, rows in loops does not"),
        ("InstanceNormalization", 1600, "registers 128x*", "registers 128x4 spills, registers 256x2 does not"),
        ("InstanceNormalization", 1600, "registers*", ""),
    ],
)
def test_rows_in_registers_that_spill_are_shared_by_more_invocations_or_read_again(
    op: str,
    size: int,
    pattern: str,
    note: str,
    precision: str,
    tolerance: float,
    plain: pumice.Context,
    simulate: Callable[[list[str]], None],
) -> None:
    need_limits(plain, maxComputeWorkGroupInvocations=512)  # the largest workgroup of these cases
    x = RANDOM.standard_normal((5, size)).astype(np.float32)
    constants: list[npt.NDArray[Any]] = []
    if op == "InstanceNormalization":
        x = x.reshape(5, 1, size // 4, 4)
        constants = [np.ones(1, np.float32), np.zeros(1, np.float32)]
        expected = normalize(x.astype(np.float64))
    elif op == "LayerNormalization":
        constants = [RANDOM.standard_normal(size).astype(np.float32) for _ in range(2)]
        expected = normalize(x.astype(np.float64)) * constants[0] + constants[1]
    else:
        expected = softmax(x.astype(np.float64))
        expected = np.log(expected) if op == "LogSoftmax" else expected
    simulate([pattern])
    y, given = run_graph(plain, op, [x, *constants], precision)
    np.testing.assert_allclose(y, expected, rtol=tolerance, atol=4 * tolerance)
    assert re.fullmatch(note, given), given


@pytest.mark.parametrize("op", ["Div", "Mod", "Less"])
@pytest.mark.parametrize("shapes", [((7, 12), (7, 12)), ((5, 1, 9), (3, 9))])
def test_integers_of_64_bits_that_spill_are_computed_singly(
    op: str,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    plain: pumice.Context,
    simulate: Callable[[list[str]], None],
) -> None:
    a = RANDOM.integers(-(2**62), 2**62, shapes[0])
    b = RANDOM.integers(1, 2**33, shapes[1]) * RANDOM.choice([-1, 1], shapes[1])
    simulate(["elementwise vec4"])
    y, note = run_graph(plain, op, [a, b])
    expected = {"Mod": np.mod(a, b), "Less": a < b}.get(op, np.abs(a) // np.abs(b) * np.sign(a) * np.sign(b))
    np.testing.assert_array_equal(y, expected)
    assert "elementwise vec4 spills, elementwise single does not" in note


@pytest.mark.parametrize(
    ("patterns", "chosen"),
    [
        (["attention_decode"], "attention_decode 2"),
        (["attention_decode", "attention_decode 2"], "attention_decode 1"),
        (["attention_decode", "attention_decode [0-9]"], "attention_decode no subgroups"),
        (
            ["attention_decode", "attention_decode [0-9]", "attention_decode no subgroups"],
            "attention_decode 2 no subgroups",
        ),
    ],
)
def test_decode_attention_that_spills_takes_fewer_queries_or_no_subgroups(
    patterns: list[str],
    chosen: str,
    plain: pumice.Context,
    pumice_context: pumice.Context,
    simulate: Callable[[list[str]], None],
) -> None:
    context = pumice_context if has_large_subgroups(pumice_context) else plain
    if context is plain and "subgroups" in chosen:
        pytest.skip("needs subgroups of 16")
    if "subgroups" in chosen and has_attention_crash(context):
        pytest.skip("needs a driver without the quirk attention_crash")
    q = RANDOM.standard_normal((1, 4, 1, 32)).astype(np.float32)
    k, v = (RANDOM.standard_normal((1, 1, 40, 32)).astype(np.float32) for _ in range(2))
    scores = np.einsum("bhqd,bxkd->bhqk", q.astype(np.float64), k) / math.sqrt(32)
    expected = np.einsum("bhqk,bxkd->bhqd", softmax(scores), v)
    simulate(patterns)
    y, note = run_graph(context, "Attention", [q, k, v])
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    assert f"attention_decode spills, {chosen} does not" in note, note


def test_decode_attention_keeps_subgroups_where_the_driver_crashes_without(
    pumice_context: pumice.Context, simulate: Callable[[list[str]], None]
) -> None:
    if not has_large_subgroups(pumice_context):
        pytest.skip("needs subgroups of 16")
    q, k, v = (
        RANDOM.standard_normal((1, heads, rows, 32)).astype(np.float32) for heads, rows in ((4, 1), (1, 40), (1, 40))
    )
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", quirks=["attention_crash"]) as context:
        simulate(["attention_decode", "attention_decode [0-9]"])
        _, note = run_graph(context, "Attention", [q, k, v])
    assert "no subgroups" not in note, note


def has_attention_crash(context: pumice.Context) -> bool:
    return "attention_crash" in {quirk.name for quirk in context.driver_quirks}


def has_large_subgroups(context: pumice.Context) -> bool:
    """Return whether GPU kernels use subgroup operations: lavapipe has subgroups of 8, or of 16 with vectors of 512 bits."""
    return context.feature("subgroupShuffle") and context.limit("subgroupSize") >= 16


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("unroll", [4, 2, 1])
def test_a_column_major_matrix_whose_kernel_spills_is_read_with_fewer_loads_in_flight(
    rows: int, unroll: int, pumice_context: pumice.Context, simulate: Callable[[list[str]], None]
) -> None:
    if not has_large_subgroups(pumice_context):
        pytest.skip("needs subgroups of 16")
    if rows == 2 and unroll == 4:
        pytest.skip("with two rows, the kernel loads four vec8s at once")
    w = RANDOM.standard_normal((1000, 72)).astype(np.float32)
    x = RANDOM.standard_normal((rows, 1000)).astype(np.float32)
    simulate(["gemv_col_major", *(f"gemv_col_major unroll {count}" for count in (4, 2, 1) if count > unroll)])
    y, note = run_graph(pumice_context, "MatMul", [x, w])
    np.testing.assert_allclose(y, x @ w, rtol=1e-3, atol=1e-3)
    assert f"gemv_col_major spills, gemv_col_major unroll {unroll} does not" in note


def test_a_tile_that_spills_without_alternative_does_not_prefetch(
    plain: pumice.Context, simulate: Callable[[list[str]], None]
) -> None:
    simulate(["conv_tiled *[0-9]", "gemv*", "conv_patch*"])  # all but "no prefetch"
    x, w = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((70, 200), (200, 72)))
    y, note = run_graph(plain, "MatMul", [x, w])
    np.testing.assert_allclose(y, x @ w, rtol=1e-3, atol=1e-3)
    assert re.search("conv_tiled [^,]* spills, conv_tiled [^,]* no prefetch does not", note), note


CONV = {"auto_pad": "SAME_UPPER"}


@pytest.mark.parametrize(
    ("tile", "shape"),
    [
        ("16x16 split 1 registers 4", (1, 7, 9, 9)),
        ("16x16 split 2 registers 4", (1, 40, 5, 6)),
        ("128x8 split 1 registers 4", (1, 3, 12, 11)),
        ("8x64 split 4 registers 4", (1, 64, 3, 2)),
        ("64x64 split 1 registers 8x4", (2, 5, 8, 8)),
    ],
)
@pytest.mark.parametrize("op", ["Conv", "ConvInteger", "MatMul"])
def test_a_tile_without_prefetch(op: str, tile: str, shape: tuple[int, ...], plain: pumice.Context) -> None:
    """A variant that is chosen if all others spill, and never measured."""
    channels = 70
    graph = pumice.Graph("tile")
    if op == "MatMul":
        x: npt.NDArray[Any] = RANDOM.standard_normal((shape[2] * shape[3], shape[1])).astype(np.float32)
        w: npt.NDArray[Any] = RANDOM.standard_normal((shape[1], channels)).astype(np.float32)
        out = graph.add("MatMul", graph.input("x", "float32", list(x.shape)), w)
        inputs = [x]
    elif op == "Conv":
        x = RANDOM.standard_normal(shape).astype(np.float32)
        w = RANDOM.standard_normal((channels, shape[1], 3, 3)).astype(np.float32)
        out = graph.add("Conv", graph.input("x", "float32", list(shape)), w, **CONV)
        inputs = [x]
    else:
        x = RANDOM.integers(0, 256, shape).astype(np.uint8)
        w = RANDOM.integers(-128, 128, (channels, shape[1], 3, 3)).astype(np.int8)
        zero = np.array(131, np.uint8)
        out = graph.add("ConvInteger", graph.input("x", "uint8", list(shape)), w, zero, **CONV)
        inputs = [x]
    graph.output("y", out)
    with graph.compile(plain, "fp32", list_variants=True) as program:
        expected = program.call(tuple(inputs))[0]
        (choice,) = [one["choice"] for one in program.plan([list(x.shape)]) if one["choice"]]
    variant = f"conv_tiled {tile} no prefetch"
    if f"conv_tiled {tile}" not in choice["variants"]:
        pytest.skip(f"the tile does not suit this size or device: {choice['variants']}")
    assert variant not in choice["variants"]
    with graph.compile(plain, "fp32", measured={choice["kind"]: variant}) as program:
        (taken,) = [one["choice"] for one in program.plan([list(x.shape)]) if one["choice"]]
        assert not taken["refused"]
        y = program.call(tuple(inputs))[0]
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-3)
