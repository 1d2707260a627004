"""Models with many tensors are validated in windows of nodes, with the same verdicts as all at once."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import pumice
from onnx_models import model, node, subgraph, value
from pumice.validation.reference import streaming
from pumice.validation.reference.tensor_sources import NodeWindows

FLOAT = np.float32
Array = np.ndarray[Any, Any]
OPS = ("Neg", "Abs", "Add", "Relu")


def chain(length: int, side: int) -> onnx.ModelProto:
    """Return a chain of layers with square tensors."""
    nodes = []
    for i in range(length):
        inputs = ["x" if i == 0 else f"t{i - 1}"] + (["c"] if i % 4 == 2 else [])
        nodes.append(node(OPS[i % 4], inputs, ["y" if i == length - 1 else f"t{i}"], name=f"n{i}"))
    return model(nodes, [value("x", [side, side])], constants={"c": np.array([0.5], FLOAT)})


def square(side: int) -> Array:
    return np.random.default_rng(0).standard_normal((side, side)).astype(FLOAT)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[tuple[int, int]]]:
    """Set the window size in bytes, and return the list of windows that run from then on."""
    run = NodeWindows.run_window

    def install(window: int) -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = []

        def watched(self: NodeWindows, inputs: Any, start: int, end: int, known: Any) -> Any:
            seen.append((start, end))
            return run(self, inputs, start, end, known)

        monkeypatch.setattr(streaming, "WINDOW_BYTES", window)
        monkeypatch.setattr(NodeWindows, "run_window", watched)
        return seen

    return install


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_windows_are_checked_like_the_whole_model(
    context: pumice.Context, parts: Callable[[int], list[tuple[int, int]]], precision: str
) -> None:
    cases = [square(64), square(64)]
    whole = pumice.validate(chain(24, 64), cases, context=context, precision=precision)
    seen = parts(5 * 64 * 64 * 4)
    report = pumice.validate(chain(24, 64), cases, context=context, precision=precision)
    assert seen == [(0, 5), (5, 10), (10, 15), (15, 20), (20, 24)] * 2
    assert report.ok, report.summary
    assert [row._replace(local=None, accumulated=None) for row in report.rows] == [
        row._replace(local=None, accumulated=None) for row in whole.rows
    ]
    for one, other in zip(report.rows, whole.rows, strict=True):
        assert one.deviation is not None and other.deviation is not None
        assert (one.deviation.error, one.deviation.allowed) == pytest.approx(
            (other.deviation.error, other.deviation.allowed), rel=1e-6
        )


def products(length: int, side: int) -> onnx.ModelProto:
    """Return MatMuls, each fused with an elementwise node and stored."""
    nodes = []
    for i in range(length):
        nodes.append(node("MatMul", ["x" if i == 0 else f"t{i - 1}", "w"], [f"p{i}"], name=f"product{i}"))
        nodes.append(node("Tanh", [f"p{i}"], ["y" if i == length - 1 else f"t{i}"], name=f"tanh{i}"))
    return model(nodes, [value("x", [side, side])], constants={"w": square(side) / FLOAT(side**0.5)})


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_kernels_are_checked_by_windows_as_they_are_at_once(
    context: pumice.Context, parts: Callable[[int], list[tuple[int, int]]], precision: str
) -> None:
    whole = pumice.validate(products(9, 64), [square(64)], context=context, precision=precision)
    parts(5 * 64 * 64 * 4)
    report = pumice.validate(products(9, 64), [square(64)], context=context, precision=precision)
    assert report.ok and not report.findings, report.summary
    assert len(report.kernels) == 9
    assert [row.output for row in report.kernels] == [row.output for row in whole.kernels]
    for one, other in zip(report.kernels, whole.kernels, strict=True):
        assert one.local is not None and other.local is not None
        assert (one.local.error, one.local.allowed, one.members) == (
            other.local.error,
            other.local.allowed,
            other.members,
        )


def test_what_kernels_tell_is_of_the_case_at_hand(
    context: pumice.Context, parts: Callable[[int], list[tuple[int, int]]]
) -> None:
    """A streamed case precedes one with longer rows that is not streamed: the additions of the longer sums have to apply to it."""
    nodes = [node("ReduceSum", ["x"], ["s"], name="sum", keepdims=0), node("Sin", ["s"], ["y"], name="sin")]
    nodes = [node("Neg", ["x"], ["n"], name="neg"), *nodes]
    source = model(nodes, [value("x", ["N"])])
    long = np.ones(40000, FLOAT)
    long[0] = 2.0**24
    parts(300)
    report = pumice.validate(source, [np.ones(100, FLOAT), np.ones(8, FLOAT), long], context=context, mode="isolated")
    assert {row.node: row.verdict for row in report.rows}["sum"] == "right", report.summary
    alone = pumice.validate(source, [long], context=context, mode="isolated")
    allowed = [
        next(row.local.allowed for row in one.rows if row.output == "s" and row.local) for one in (report, alone)
    ]
    assert allowed[0] >= allowed[1] > 0


def test_a_window_of_kernels_keeps_no_more_than_it_may(
    context: pumice.Context, parts: Callable[[int], list[tuple[int, int]]]
) -> None:
    """The optimised program runs once for the sizes, then once per window; a wrong tensor in a window is reported by name."""
    window = 3 * 64 * 64 * 4
    kept: list[int] = []

    class Observed:
        def __init__(self, program: pumice.Program) -> None:
            self._program = program

        def __call__(self, *given: Any, **limits: Any) -> Any:
            return self._program(*given, **limits)

        def observe(self, inputs: Any, names: Any) -> dict[str, Any]:
            whole: dict[str, Any] = self._program.observe(inputs, names)
            found = whole["tensors"]
            kept.append(sum(one["array"].nbytes for one in found if one["array"] is not None))
            for one in found:
                if one["name"] == "t5" and one["array"] is not None:
                    one["array"][3, 4] += FLOAT(0.1)
            return whole

        def __getattr__(self, name: str) -> Any:
            return getattr(self._program, name)

    parts(window)
    with pumice.load(products(9, 64), context) as loaded:
        loaded._program = Observed(loaded.program)  # type: ignore[assignment]
        report = pumice.validate(loaded, [square(64)], mode="isolated")
    assert kept == [0, window, window, window, 0]  # the last run is for the outputs
    first = report.first_divergence
    assert first is not None and first.local is not None
    assert (first.program, first.output, first.local.at) == ("kernels", "t5", (3, 4))


def test_a_wrong_node_of_a_window_is_named(
    context: pumice.Context, spoil: Callable[..., None], parts: Callable[[int], list[tuple[int, int]]]
) -> None:
    def change(results: dict[str, Any]) -> None:
        if "t14" in results:
            results["t14"][3, 4] += FLOAT(0.5)

    spoil(change)
    seen = parts(5 * 64 * 64 * 4)
    report = pumice.validate(chain(24, 64), [square(64)], context=context)
    assert len(seen) == 5
    assert [row.node for row in report.rows if row.local is not None and not row.local.ok] == ["n14"]


def test_bodies_branches_and_folded_constants_are_split(
    context: pumice.Context, parts: Callable[[int], list[tuple[int, int]]]
) -> None:
    """Includes captured values that were computed much earlier, and values computed from constants."""
    branches = [subgraph([node(op, ["a"], [op])], [], [value(op, [64, 64])]) for op in ("Neg", "Abs")]
    made = model(
        [
            node("Exp", ["k"], ["e"], name="folded"),
            node("Sin", ["x"], ["a"], name="first"),
            node("Cos", ["x"], ["b"], name="second"),
            node("Mul", ["b", "e"], ["m"], name="mul"),
            node("ReduceSum", ["m"], ["s"], name="sum", keepdims=0),
            node("Greater", ["s", "k"], ["g"], name="greater"),
            node("If", ["g"], ["i"], name="if", then_branch=branches[0], else_branch=branches[1]),
            node("Add", ["i", "m"], ["n"], name="add"),
            node("Div", ["n", "e"], name="div"),
        ],
        [value("x", [64, 64])],
        constants={"k": np.array(0.5, FLOAT)},
    )
    seen = parts(64 * 64 * 4)
    report = pumice.validate(made, [square(64)], context=context, allow_unchecked=["if"])  # one branch is never taken
    assert len(seen) >= 5
    assert report.ok, report.summary
    assert {row.node for row in report.rows} >= {"first", "second", "mul", "sum", "greater", "if", "add", "div"}


def test_sequences_keep_their_parts_together(
    context: pumice.Context, parts: Callable[[int], list[tuple[int, int]]]
) -> None:
    """A window that would start with a sequence is not run separately."""
    made = model(
        [
            node("Sin", ["x"], ["a"], name="sin"),
            node("SplitToSequence", ["a"], ["s"], name="split", axis=0),
            node("Cos", ["x"], ["b"], name="cos"),
            node("Exp", ["b"], ["c"], name="exp"),
            node("ConcatFromSequence", ["s"], ["d"], name="concat", axis=0),
            node("Add", ["c", "d"], name="add"),
        ],
        [value("x", [64, 64])],
    )
    whole = pumice.validate(made, [square(64)], context=context)
    seen = parts(64 * 64 * 4)
    report = pumice.validate(made, [square(64)], context=context)
    assert len(seen) >= 2
    assert [row.verdict for row in report.rows] == [row.verdict for row in whole.rows]


def test_what_is_small_is_run_at_once(context: pumice.Context, parts: Callable[[int], list[tuple[int, int]]]) -> None:
    seen = parts(streaming.WINDOW_BYTES)
    assert pumice.validate(chain(24, 64), [square(64)], context=context).ok
    assert not seen


def test_symbolic_sizes_are_those_of_the_case(
    context: pumice.Context, parts: Callable[[int], list[tuple[int, int]]]
) -> None:
    made = chain(8, 64)
    made.graph.input[0].CopyFrom(value("x", ["N", "M"], TensorProto.FLOAT))
    seen = parts(3 * 64 * 64 * 4)
    assert pumice.validate(made, [square(64), square(16)], context=context).ok
    assert seen == [(0, 3), (3, 6), (6, 8)]


def peak(context: pumice.Context, source: onnx.ModelProto, x: Array) -> int:
    with pumice.load(source, context) as loaded:
        tracemalloc.start()
        try:
            assert pumice.validate(loaded, [x]).ok
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    ("side", "window"), [(256, 1 << 20), pytest.param(1000, 16 << 20, marks=pytest.mark.slow)], ids=["256K", "3.8M"]
)
def test_memory_is_that_of_a_window(
    context: pumice.Context, monkeypatch: pytest.MonkeyPatch, side: int, window: int
) -> None:
    """60 layers have 15 MiB or 229 MiB of tensors. The reference's fp64 arrays of a few nodes come on top.

    Results of 4 MiB and more are in memory that tracemalloc does not trace.
    """
    x = square(side)
    tensors = 60 * x.nbytes
    monkeypatch.setattr(streaming, "WINDOW_BYTES", 1 << 40)
    whole = peak(context, chain(60, side), x)
    monkeypatch.setattr(streaming, "WINDOW_BYTES", window)
    windowed = peak(context, chain(60, side), x)
    assert whole > tensors
    assert whole - windowed > tensors - 3 * window
