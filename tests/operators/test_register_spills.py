"""Variants whose kernels spill according to the driver are replaced by others, noted in the report, cached, and rejected by Model.tune().
A quirk simulates spills for all workgroups of 256 or more invocations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice
from features import need_limits

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
