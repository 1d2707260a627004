"""Kernels of programs with control flow: the kernels of each region are checked on their own inputs, in the region's first runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import pumice
from observed_programs import ObservedProgram
from onnx_models import model, node, subgraph, value

FLOAT = np.float32
RANDOM = np.random.default_rng(5)
X = RANDOM.standard_normal((4, 8)).astype(FLOAT)
WEIGHT = (RANDOM.standard_normal((8, 8)) / 4).astype(FLOAT)
Array = np.ndarray[Any, Any]


def choice() -> onnx.ModelProto:
    branches = [subgraph([node(op, ["x"], [op])], [], [value(op, [4, 8])]) for op in ("Relu", "Neg")]
    nodes = [
        node("ReduceSum", ["x"], ["s"], name="sum", keepdims=0),
        node("Greater", ["s", "zero"], ["positive"], name="decides"),
        node("If", ["positive"], ["y"], name="choice", then_branch=branches[0], else_branch=branches[1]),
    ]
    return model(nodes, [value("x", [4, 8])], constants={"zero": np.zeros((), FLOAT)})


def loop(trips: int = 6) -> onnx.ModelProto:
    """Return a Loop on the device with a MatMul and two elementwise nodes; the nodes before and after it are other regions."""
    body = subgraph(
        [
            node("MatMul", ["state", "weight"], ["product"], name="product"),
            node("Add", ["product", "start"], ["sum"], name="add"),
            node("Tanh", ["sum"], ["next"], name="tanh"),
            node("Softmax", ["next"], ["row"], name="soft", axis=-1),
            node("Identity", ["go"], ["on"]),
        ],
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("state", [4, 8])],
        [value("on", [], TensorProto.BOOL), value("next", [4, 8]), value("row", [4, 8])],
    )
    nodes = [
        node("Sin", ["x"], ["start"], name="before"),
        node("Loop", ["trips", "", "start"], ["last", "rows"], name="loop", body=body),
        node("Mul", ["last", "last"], ["y"], name="behind"),
    ]
    made = model(nodes, [value("x", [4, 8])], constants={"weight": WEIGHT, "trips": np.array(trips, np.int64)})
    made.graph.output.add().CopyFrom(value("rows", [trips, 4, 8]))
    return made


def scan(direction: int) -> onnx.ModelProto:
    body = subgraph(
        [node("Add", ["state", "row"], ["sum"], name="add"), node("Exp", ["row"], ["e"], name="exp")],
        [value("state", [8]), value("row", [8])],
        [value("sum", [8]), value("e", [8])],
    )
    scanned = node("Scan", ["zeros", "x"], ["y", "z"], name="scan", body=body, num_scan_inputs=1)
    scanned.attribute.append(onnx.helper.make_attribute("scan_input_directions", [direction]))
    return model([scanned], [value("x", [4, 8])], constants={"zeros": np.zeros(8, FLOAT)})


def not_judged(report: pumice.ValidationReport) -> list[str]:
    return [one.text for one in report.findings if one.kind == "kernels not judged"]


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_the_branch_that_ran_is_checked_and_the_other_is_named(context: pumice.Context, precision: str) -> None:
    cases = [np.abs(X)]
    assert pumice.validate(choice(), cases, context=context, precision=precision).state == "unproved"
    report = pumice.validate(choice(), cases, context=context, precision=precision, allow_unchecked=["choice"])
    report.raise_if_failed()
    inside = {row.output: row.members for row in report.kernels if row.node == "choice"}
    assert list(inside) == ["choice.then/Relu", "choice.else"]
    assert all(one.startswith("choice.then/") for one in inside["choice.then/Relu"])
    assert not_judged(report) == ["graph 'choice.else' did not run in any case"]


def test_nothing_is_left_where_every_branch_ran(context: pumice.Context) -> None:
    report = pumice.validate(choice(), [np.abs(X), -np.abs(X)], context=context)
    report.raise_if_failed()
    assert {row.output for row in report.kernels} >= {"choice.then/Relu", "choice.else/Neg"}
    assert not_judged(report) == []


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_kernels_of_a_body_are_checked_in_its_first_runs(context: pumice.Context, precision: str) -> None:
    with pumice.load(loop(), context, precision=precision) as loaded:
        found = loaded.program.observe_runs((X,), 3)
        report = pumice.validate(loaded, [X])
        execution = loaded.program.execution()
        execution.set("x", X)
        execution.compute(loop_timeout=None)
        (told,) = execution.report["loops"]
    assert told["kind"] in ("device", "counted")
    bodies = [run for run in found["runs"] if run["graph"] == "loop.body"]
    assert [run["number"] for run in bodies] == [0, 1, 2]
    assert [one["runs"] for one in found["regions"] if one["graph"] == "loop.body"] == [6]
    report.raise_if_failed()
    outputs = {row.output for row in report.kernels if row.node == "loop"}
    assert outputs >= {"loop.body/next", "loop.body/row"}
    assert {row.output for row in report.kernels} >= {"start", "y"}
    assert not_judged(report) == []


class Observed(ObservedProgram):
    """A program with corrupted observations of its regions."""

    def observe_runs(self, *given: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._program.observe_runs(*given)
        for run in found["runs"]:
            self._change(run)
        return found


def test_what_is_wrong_in_one_iteration_is_found_at_its_kernel(context: pumice.Context) -> None:
    def change(run: dict[str, Any]) -> None:
        for one in run["tensors"]:
            if run["graph"] == "loop.body" and run["number"] == 1 and one["name"] == "row":
                one["array"][2, 3] += FLOAT(0.01)

    with pumice.load(loop(), context) as loaded:
        loaded._program = Observed(loaded._program, change)  # type: ignore[assignment]
        report = pumice.validate(loaded, [X])
    assert report.state == "wrong"
    first = report.first_divergence
    assert first is not None and first.local is not None
    assert (first.node, first.op, first.output, first.local.at) == ("loop", "Softmax", "loop.body/row", (2, 3))
    assert first.members == ("loop.body/soft",)
    assert {row.output for row in report.kernels if row.verdict == "wrong"} == {"loop.body/row"}
    assert "loop.body/row" in report.summary


@pytest.mark.parametrize("direction", [0, 1])
def test_slices_of_a_scan_are_known_by_their_names(context: pumice.Context, direction: int) -> None:
    report = pumice.validate(scan(direction), [X], context=context)
    report.raise_if_failed()
    assert {row.output for row in report.kernels} >= {"scan.body/sum", "scan.body/e"}
    assert not_judged(report) == []


def test_a_branch_in_a_body_is_reported_at_the_loop(context: pumice.Context) -> None:
    branches = [subgraph([node(op, ["next"], [op], name=op)], [], [value(op, [4, 8])]) for op in ("Sin", "Cos")]
    body = subgraph(
        [
            node("MatMul", ["state", "weight"], ["next"], name="product"),
            node("ReduceSum", ["next"], ["s"], name="sum", keepdims=0),
            node("Greater", ["s", "zero"], ["g"], name="greater"),
            node("If", ["g"], ["turned"], name="if", then_branch=branches[0], else_branch=branches[1]),
            node("Identity", ["go"], ["on"]),
        ],
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("state", [4, 8])],
        [value("on", [], TensorProto.BOOL), value("turned", [4, 8])],
    )
    constants = {"weight": WEIGHT, "trips": np.array(8, np.int64), "zero": np.zeros((), FLOAT)}
    source = model(
        [node("Loop", ["trips", "", "x"], ["y"], name="loop", body=body)], [value("x", [4, 8])], constants=constants
    )
    report = pumice.validate(source, [X, -X], context=context)
    report.raise_if_failed()
    assert {row.node for row in report.kernels} == {"loop"}
    inner = {row.output for row in report.kernels if row.output.startswith("loop.body/if.")}
    assert inner and inner <= {"loop.body/if.then/Sin", "loop.body/if.else/Cos"}


def test_a_loop_that_is_one_kernel_is_named(context: pumice.Context) -> None:
    """A loop over single elements: no iteration stores anything, and its regions do not run."""
    condition, body = pumice.Graph("more"), pumice.Graph("next")
    for graph in (condition, body):
        x, i = graph.input("x", "float32", [1]), graph.input("i", "int32", [1])
        if graph is condition:
            graph.output("more", graph.add("Less", i, np.array([50], np.int32)))
        else:
            graph.output("x", graph.add("Mul", x, np.array([0.5], FLOAT)))
            graph.output("i", graph.add("Add", i, np.array([1], np.int32)))
    main = pumice.Graph()
    start = np.zeros(1, np.int32)
    (made,) = main.while_(condition, body, carried=[main.input("x", "float32", [1])], state=[start], name="halving")
    main.output("y", made)
    program = main.compile(context)
    found = program.observe_runs((np.array([3], FLOAT),))
    assert found["single_loops"] == ["halving"]
    assert {region["graph"]: region["runs"] for region in found["regions"]} == {"more": 0, "next": 0}
    assert found["runs"] == []


def test_programs_are_observed_by_the_function_for_them(context: pumice.Context) -> None:
    with pumice.load(choice(), context) as loaded:
        assert loaded.program.has_control_flow
        with pytest.raises(pumice.UnsupportedError, match="observe"):
            loaded.program.observe((X,))
    plain = model([node("Relu", ["x"], name="relu")], [value("x", [4, 8])])
    with pumice.load(plain, context) as loaded:
        assert not loaded.program.has_control_flow
        with pytest.raises(pumice.UnsupportedError, match="observe_runs"):
            loaded.program.observe_runs((X,))
