"""The overhead of repeated runs: contexts, compilations and readings of the model, all counted."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnx
import pytest

import pumice
from onnx_models import gemm, model, node, subgraph, value
from pumice.importer import load_graph
from pumice.validation.checker.model_validation import ModelValidation
from pumice.validation.checker.options import ValidationOptions
from pumice.validation.report.repeat_results import FRESH_CONTEXT, SAME_RECORDING, UNDER_LOAD
from pumice.validation.search import repeatability
from pumice.validation.search.repeatability import RepeatedRuns

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def test_validations_on_one_context_share_the_second_one(
    context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Creating a device is slow, and its pipelines are slower. Nothing else of a validation stays on it."""
    made: list[pumice.Context] = []
    another = repeatability.another_context

    def counted(*given: Any) -> pumice.Context:
        made.append(another(*given))
        return made[-1]

    monkeypatch.setattr(repeatability, "another_context", counted)
    with pumice.Context(f"uuid:{context.info.uuid}") as own, pumice.load(gemm(), own) as loaded:
        assert pumice.validate(loaded, [X], repeat=4).deterministic
        (second,) = made
        pipelines = second.pipelines_created
        for _ in range(2):
            assert pumice.validate(loaded, [X], repeat=4).deterministic
        assert (len(made), second.pipelines_created, second.closed) == (1, pipelines, False)
        assert second.memory.buffers == 0
    assert second.closed, "it ends with the context of the model"


def test_the_model_is_read_once_for_both_contexts(context: pumice.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counting(real: Any) -> Any:
        def counted(*given: Any, **options: Any) -> Any:
            read.append(real.__name__)
            return real(*given, **options)

        return counted

    for name in ("build_recipe_graph", "build_cached_graph"):
        monkeypatch.setattr(load_graph, name, counting(getattr(load_graph, name)))
    with pumice.load(gemm().SerializeToString(), context) as loaded:
        read.clear()
        pumice.validate(loaded, [X])
        once = list(read)
        pumice.validate(loaded, [X], repeat=4)
    assert read == once * 2
    assert once


def test_the_second_program_is_compiled_as_the_model_was(context: pumice.Context) -> None:
    for options in ({}, {"fuse": False}, {"fuse": ["epilogue"]}, {"deterministic": True}, {"check_indices": True}):
        with pumice.load(gather(), context, "fp16", **options) as loaded:
            proof = ModelValidation(loaded, ValidationOptions({}, frozenset(), "chained", repeat=2))
            repeats = RepeatedRuns(proof)
            ours, theirs = loaded.program, repeats.fresh_program.program
            assert theirs.context is not ours.context
            assert theirs.checks_indices == ours.checks_indices == ("check_indices" in options)
            assert theirs.report() == ours.report()
            repeats.close()
            proof.close()


def test_the_first_run_on_the_second_context_is_made_beside_the_judgement_and_is_not_counted(
    context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[tuple[bool, int]] = []
    real = repeatability.make_replay

    def noted(program: pumice.Program, inputs: Any) -> Any:
        once = real(program, inputs)

        def call() -> Any:
            runs.append((program.context is context, threading.get_ident()))
            return once()

        return call

    monkeypatch.setattr(repeatability, "make_replay", noted)
    report = pumice.validate(gemm().SerializeToString(), [X, X], repeat=8, context=context)
    assert [one.runs for one in report.repeats] == [{SAME_RECORDING: 8, FRESH_CONTEXT: 2, UNDER_LOAD: 2}] * 2
    assert len(runs) == 2 * 12 + 1
    fresh = [thread for ours, thread in runs if not ours]
    main_thread = threading.get_ident()
    assert [thread == main_thread for thread in fresh] == [False, True, True, False, True, True, False]


def test_a_first_run_that_fails_or_may_not_end_is_not_made_beforehand(context: pumice.Context) -> None:
    table = gather().SerializeToString()
    with pumice.load(table, context, check_indices=True) as loaded:
        assert repeatability._start_program(loaded.program, {"i": np.array([9])}) is None
        assert repeatability._start_program(loaded.program, {"i": np.array([1])}) is not None
    branch = [subgraph([node(op, ["x"], [op])], [], [value(op, [2, 4])]) for op in ("Neg", "Abs")]
    chosen = model(
        [node("If", ["c"], ["y"], then_branch=branch[0], else_branch=branch[1])],
        [value("c", [], onnx.TensorProto.BOOL), value("x", [2, 4])],
    )
    with pumice.load(chosen.SerializeToString(), context) as loaded:
        assert loaded.program.has_control_flow
        assert repeatability._start_program(loaded.program, {"c": np.array(True), "x": X}) is None


def gather() -> onnx.ModelProto:
    """Return a Gather and an Add; the indices are known only on the device."""
    nodes = [node("Gather", ["t", "i"], ["g"], name="rows"), node("Add", ["g", "g"], ["y"], name="twice")]
    made: onnx.ModelProto = model(nodes, [value("i", [1], onnx.TensorProto.INT64)], constants={"t": X})
    return made


def test_the_second_context_is_limited_as_the_first(pumice_context: pumice.Context) -> None:
    """Smaller workgroups split long sums differently: with the device's own limits the results would have other bits."""
    limits = {"maxComputeWorkGroupInvocations": 64, "maxComputeWorkGroupSize_0": 64}
    random = np.random.default_rng(0)
    x, w = (random.normal(size=shape).astype(np.float32) for shape in ((5, 700), (700, 64)))
    graph = model([node("MatMul", ["x", "w"])], [value("x", (5, 700))], constants={"w": w})
    of = f"uuid:{pumice_context.info.uuid}"
    with pumice.Context(of, without=["subgroupShuffle"], limits=limits) as context:
        assert pumice.validate(graph.SerializeToString(), [x], context=context, repeat=4).deterministic
