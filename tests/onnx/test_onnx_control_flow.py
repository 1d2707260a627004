"""If and Loop of ONNX models, against onnx's reference implementation and ONNX Runtime."""

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import pumice
from onnx_control_flow_models import BOOL, FLOAT, INT64, Arrays, check, loop_body, loops_of, scalar, typed
from onnx_models import check_standard, model, node, subgraph, value
from tensor_arrays import ramp

# If


def choice() -> onnx.ModelProto:
    """Captures an input, a node's output and a constant; one branch returns an input and a constant unchanged."""
    then = subgraph(
        [node("Add", ["x", "doubled"], ["a"]), node("Mul", ["a", "w"], ["t0"])],
        [],
        [value("t0"), value("t1", [4])],
        t1=ramp(4),
    )
    otherwise = subgraph([], [], [value("x"), value("w", [4])])  # ONNX Runtime rejects this
    nodes = [
        node("Add", ["x", "x"], ["doubled"]),
        node("If", ["c"], ["y", "z"], name="if", then_branch=then, else_branch=otherwise),
    ]
    proto = model(nodes, [value("x"), value("c", [], BOOL)], ["y", "z"], {"w": 2 * ramp(4)})
    return typed(proto)


def test_an_if_captures_values_of_the_graph_around_it(context: pumice.Context) -> None:
    cases = [{"x": ramp(n, 4), "c": np.array(c)} for n in (2, 3) for c in (True, False)]
    loaded = check(context, choice(), cases, runtime=False)
    assert {row["node"]: row["op"] for row in loaded.report()}["if"] == "If"


def test_an_if_with_a_constant_condition_and_branches_of_other_ranks(context: pumice.Context) -> None:
    flat = subgraph([node("Flatten", ["x"], ["t"])], [], [value("t", None)])
    deep = subgraph([node("Unsqueeze", ["x", "axis"], ["e"])], [], [value("e", None)], axis=np.array([0]))
    for decides in (True, False):
        branches = {"then_branch": flat, "else_branch": deep}
        proto = typed(model([node("If", ["c"], ["y"], **branches)], constants={"c": np.array([decides])}))
        check(context, proto, [{"x": ramp(2, 4)}])


def test_an_if_on_a_size_that_a_symbolic_one_limits(context: pumice.Context) -> None:
    """Slices 50 columns, or fewer if there are fewer."""
    then = subgraph([node("Neg", ["s"], ["t"])], [], [value("t", None)])
    otherwise = subgraph([node("Relu", ["s"], ["e"])], [], [value("e", None)])
    nodes = [
        node("Slice", ["x", "from", "to", "axis"], ["s"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise),
    ]
    constants = {"from": np.array([0]), "to": np.array([50]), "axis": np.array([1])}
    proto = typed(model(nodes, [value("x", [2, "N"]), value("c", [], BOOL)], constants=constants))
    check(context, proto, [{"x": ramp(2, n), "c": np.array(c)} for n in (90, 20, 1) for c in (True, False)])


# Loop


def repeated(
    body: onnx.GraphProto, trips: str = "m", first: str = "c", outputs: tuple[str, ...] = ("y",), **constants: Any
) -> onnx.ModelProto:
    nodes = [node("Loop", [trips, first, "x"], outputs, name="loop", body=body)]
    inputs = [value("x")]
    inputs += [value("m", [], INT64)] if trips == "m" and "m" not in constants else []
    inputs += [value("c", [], BOOL)] if first == "c" and "c" not in constants else []
    return typed(model(nodes, inputs, outputs, constants))


def adding(condition: str = "go_on", scanned: bool = False) -> onnx.GraphProto:
    """x += number while below a limit; the sum of x is a scan output."""
    nodes = [
        node("Cast", ["number"], ["n"], to=FLOAT),
        node("Add", ["x_in", "n"], ["x_out"]),
        node("ReduceMax", ["x_out"], ["most"], keepdims=0),
        node("Less", ["most", "bound"], ["below"]),
        node("Mul", ["x_out", "bound"], ["scan"]),
    ]
    outputs = [value("x_out"), *([value("scan")] if scanned else [])]
    return loop_body(nodes, [value("x_in")], outputs, condition, bound=np.array(12, np.float32))


@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_a_loop_of_a_number_of_trips(context: pumice.Context, scanned: bool, known: bool) -> None:
    outputs = ("y", "s") if scanned else ("y",)
    for trips in (0, 1, 5):
        constants = {"m": scalar(trips)} if known else {}
        proto = repeated(adding(scanned=scanned), outputs=outputs, c=np.array(True), **constants)
        given: Arrays = {} if known else {"m": scalar(trips)}
        stacks = not scanned  # the reference does not stack scan outputs along a new axis
        empty = scanned and trips == 0
        loaded = check(context, proto, [{"x": ramp(2, 4), **given}], stacks, not empty)
        if empty:
            assert loaded(x=ramp(2, 4), **given)["s"].shape[0] == 0


def test_a_loop_of_known_shapes_is_counted_on_the_device(context: pumice.Context) -> None:
    proto = repeated(adding(scanned=True), outputs=("y", "s"), c=np.array(True))
    proto.graph.input[0].CopyFrom(value("x", [2, 4]))
    check(context, proto, [{"x": ramp(2, 4), "m": scalar(n)} for n in (1, 7, 70)], reference=False)
    loaded = pumice.load(proto, context)
    execution = loaded.program.execution()
    execution.set("x", ramp(2, 4))
    execution.set("m", scalar(70))
    execution.compute()
    (loop,) = execution.report["loops"]
    assert (loop["kind"], loop["trips"], loop["wasted_iterations"]) == ("counted", 70, 0)
    assert int(loop["host_syncs"]) < 10


def test_a_counted_loop_with_values_between_an_if_and_other_nodes(context: pumice.Context) -> None:
    """The intermediate values have separate memory in each iteration."""
    halves = subgraph([node("Mul", ["x_in", "half"], ["h"])], [], [value("h", None)])
    keeps = subgraph([node("Add", ["x_in", "x"], ["k"])], [], [value("k", None)])
    nodes = [
        node("Mod", ["number", "two"], ["odd"]),
        node("Cast", ["odd"], ["is_odd"], to=BOOL),
        node("If", ["is_odd"], ["chosen"], then_branch=halves, else_branch=keeps),
        node("Neg", ["chosen"], ["x_out"]),
    ]
    body = loop_body(
        nodes, [value("x_in", None)], [value("x_out", None)], half=np.array(0.5, np.float32), two=scalar(2)
    )
    for trips in (1, 2, 5, 9):
        loaded = check(context, repeated(body, c=np.array(True), m=scalar(trips)), [{"x": ramp(n, 4)} for n in (3, 0)])
        assert loops_of(loaded, x=ramp(3, 4))[0]["kind"] == "counted"


@pytest.mark.parametrize("trips", ["", "m"])
def test_a_loop_with_a_condition(context: pumice.Context, trips: str) -> None:
    for scanned in (False, True):
        proto = repeated(adding("below", scanned), trips, outputs=("y", "s") if scanned else ("y",))
        bounds: list[Arrays] = [{"m": scalar(3)}, {"m": scalar(100)}] if trips else [{}]
        cases = [{"x": ramp(2, 4), "c": np.array(True), **bound} for bound in bounds]
        check(context, proto, cases, reference=not scanned)
        never = {"x": ramp(2, 4), "c": np.array(False), **bounds[0]}
        check(context, proto, [never], reference=not scanned, runtime=not scanned)


def test_a_bound_that_is_known_makes_a_buffer_of_which_the_used_rows_are_given(context: pumice.Context) -> None:
    proto = repeated(adding("below", True), outputs=("y", "s"), m=scalar(50))
    proto.graph.input[0].CopyFrom(value("x", [2, 4]))
    check(context, proto, [{"x": ramp(2, 4), "c": np.array(True)}], reference=False)
    assert pumice.load(proto, context)(ramp(2, 4), np.array(False))["s"].shape == (0, 2, 4)


def test_values_that_grow_and_results_of_scalars(context: pumice.Context) -> None:
    nodes = [node("Concat", ["x_in", "x_in"], ["x_out"], axis=0), node("ReduceSum", ["x_out"], ["sum"], keepdims=0)]
    body = loop_body(nodes, [value("x_in", None)], [value("x_out", None), value("sum", [])])
    proto = repeated(body, outputs=("y", "s"), c=np.array(True))
    check(context, proto, [{"x": ramp(1, 4), "m": scalar(n)} for n in (1, 4)], reference=False)


def test_a_trip_count_of_all_that_is_possible(context: pumice.Context) -> None:
    """Exporters write such a count for a loop that ends only by its condition; a negative count means no iterations."""
    proto = repeated(adding("below"), m=scalar(2**63 - 1), c=np.array(True))
    check(context, proto, [{"x": ramp(2, 4)}])
    proto = repeated(adding("below"))
    check(context, proto, [{"x": ramp(2, 4), "c": np.array(True), "m": scalar(n)} for n in (2**63 - 1, -(2**32) + 1)])


def test_captured_values_and_integers_are_carried(context: pumice.Context) -> None:
    """Fibonacci numbers in int64, and a row of a captured table for each."""
    nodes = [
        node("Add", ["a_in", "b_in"], ["b_out"]),
        node("Identity", ["b_in"], ["a_out"]),
        node("Gather", ["table", "number"], ["row"], axis=0),
        node("Mul", ["row", "x"], ["scaled"]),
    ]
    states = [value("a_in", [], INT64), value("b_in", [], INT64)]
    outputs = [value("a_out", [], INT64), value("b_out", [], INT64), value("scaled", [4])]
    body = loop_body(nodes, states, outputs)
    nodes = [
        node("Neg", ["x"], ["table_negated"]),
        node("Neg", ["table_negated"], ["table"]),
        node("Loop", ["m", "", "zero", "one"], ["a", "b", "rows"], name="loop", body=body),
    ]
    constants = {"zero": scalar(0), "one": scalar(1)}
    proto = model(nodes, [value("x", [6, 4]), value("m", [], INT64)], ["a", "b", "rows"], constants)
    proto = typed(proto, a=INT64, b=INT64)
    check(context, proto, [{"x": ramp(6, 4), "m": scalar(n)} for n in (2, 6)], reference=False)


def test_results_that_the_body_takes_from_elsewhere(context: pumice.Context) -> None:
    """An unchanged state, the iteration number, a captured constant; and an operator of an older opset in the body."""
    outputs = [value("x_in"), value("number", [], INT64), value("r", None), value("k", None)]
    body = loop_body([node("ReduceSum", ["x_in"], ["r"], axes=[0], keepdims=0)], [value("x_in")], outputs)
    nodes = [node("Loop", ["m", "", "x"], ["y", "n", "sums", "ks"], name="loop", body=body)]
    inputs = [value("x"), value("m", [1], INT64)]
    proto = model(nodes, inputs, ["y", "n", "sums", "ks"], {"k": ramp(3)}, opset=11)
    y, n, sums, ks = pumice.load(proto, context)(ramp(2, 4), np.array([3]))
    np.testing.assert_array_equal(y, ramp(2, 4))
    assert (n.dtype, n.tolist()) == (np.int64, [0, 1, 2])
    np.testing.assert_array_equal(sums, np.stack([ramp(2, 4).sum(0)] * 3))
    np.testing.assert_array_equal(ks, np.stack([ramp(3)] * 3))


@pytest.mark.parametrize("rows", [2, "N"])
def test_results_of_several_types(context: pumice.Context, rows: int | str) -> None:
    types = {"g": BOOL, "h": TensorProto.FLOAT16, "i": TensorProto.INT8, "j": INT64}
    casts = [node("Cast", ["x_in"], [name], to=dtype) for name, dtype in types.items()]
    nodes = [*casts, node("Add", ["x_in", "z"], ["x_out"])]
    outputs = [value("x_out"), *(value(name, (rows, 4), dtype) for name, dtype in types.items())]
    body = loop_body(nodes, [value("x_in")], outputs, z=np.array(0.25, np.float32))
    names = ["y", *(name.upper() for name in types)]
    nodes = [node("Loop", ["m", "", "x"], names, name="loop", body=body)]
    proto = model(nodes, [value("x", (rows, 4)), value("m", [], INT64)], names)
    _, *results = pumice.load(proto, context)(ramp(2, 4), scalar(3))
    states = np.stack([ramp(2, 4) + np.float32(i / 4) for i in range(3)])
    for result, dtype in zip(results, ("bool", "float16", "int8", "int64"), strict=True):
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, states.astype(dtype))


def test_a_loop_of_symbolic_sizes_that_no_other_value_has(context: pumice.Context) -> None:
    """The output has twice as many rows as the input, which is known before the first iteration."""
    nodes = [node("Concat", ["x_in", "x_in"], ["double"], axis=0), node("Neg", ["x_in"], ["x_out"])]
    body = loop_body(nodes, [value("x_in", None)], [value("x_out", None), value("double", None)])
    proto = repeated(body, outputs=("y", "s"), c=np.array(True))
    loaded = check(context, proto, [{"x": ramp(n, 4), "m": scalar(3)} for n in (1, 5)], reference=False)
    assert loops_of(loaded, x=ramp(2, 4), m=scalar(3))[0]["kind"] == "counted"


# Nested


def test_a_loop_in_an_if_and_an_if_in_a_loop(context: pumice.Context) -> None:
    halves = subgraph([node("Mul", ["x_in", "half"], ["h"])], [], [value("h")], half=np.array(0.5, np.float32))
    keeps = subgraph([node("Add", ["x_in", "shift"], ["k"])], [], [value("k")])
    nodes = [
        node("Mod", ["number", "two"], ["odd"]),
        node("Cast", ["odd"], ["is_odd"], to=BOOL),
        node("If", ["is_odd"], ["x_out"], name="inner", then_branch=halves, else_branch=keeps),
    ]
    body = loop_body(nodes, [value("x_in")], [value("x_out"), value("x_out")], two=scalar(2))
    then = subgraph(
        [node("Loop", ["m", "", "x"], ["t", "rows"], name="loop", body=body)], [], [value("t"), value("rows")]
    )
    plain = [node("Relu", ["x"], ["e"]), node("Unsqueeze", ["e", "axis"], ["u"])]
    otherwise = subgraph(plain, [], [value("e"), value("u")], axis=np.array([0]))
    nodes = [
        node("ReduceMean", ["x"], ["shift"], keepdims=0),
        node("If", ["c"], ["y", "s"], name="outer", then_branch=then, else_branch=otherwise),
    ]
    inputs = [value("x"), value("c", [], BOOL), value("m", [], INT64)]
    proto = typed(model(nodes, inputs, ["y", "s"]))
    cases = [{"x": ramp(2, 4), "c": np.array(c), "m": scalar(n)} for c in (True, False) for n in (1, 4)]
    loaded = check(context, proto, cases, reference=False, runtime=False)
    for case in cases:
        shift = case["x"].mean()
        x, rows = case["x"], []
        for i in range(int(case["m"])):
            x = x * np.float32(0.5) if i % 2 else x + shift
            rows.append(x)
        expected = (x, np.array(rows)) if case["c"] else (np.maximum(case["x"], 0), np.maximum(case["x"], 0)[None])
        for result, want in zip(loaded(**case), expected, strict=True):
            np.testing.assert_allclose(result, want, rtol=1e-6)


def test_a_loop_in_a_loop(context: pumice.Context) -> None:
    """The inner loop runs as often as the outer iteration number; both have outputs."""
    inner = loop_body([node("Add", ["v_in", "step"], ["v_out"])], [value("v_in")], [value("v_out")])
    nodes = [
        node("Loop", ["number", "", "x_in"], ["x_out"], name="inner", body=inner),
        node("ReduceSum", ["x_out"], ["sum"], keepdims=0),
    ]
    body = loop_body(nodes, [value("x_in")], [value("x_out"), value("sum", [])])
    nodes = [node("Loop", ["m", "", "x"], ["y", "s"], name="outer", body=body)]
    inputs = [value("x"), value("m", [], INT64), value("step", [4])]
    proto = typed(model(nodes, inputs, ["y", "s"]))
    check(context, proto, [{"x": ramp(2, 4), "step": ramp(4), "m": scalar(n)} for n in (1, 5)], reference=False)


# Limits, errors, and other ways to run models


def endless() -> onnx.ModelProto:
    body = loop_body([node("Identity", ["x_in"], ["x_out"])], [value("x_in")], [value("x_out")])
    return repeated(body, "")


def test_a_loop_has_no_timeout_unless_it_is_given_one(context: pumice.Context) -> None:
    loaded = pumice.load(endless(), context)
    with pytest.raises(TimeoutError, match="loop"):
        loaded(ramp(1, 4), np.array(True), loop_timeout=0.05)
    with pytest.raises(TimeoutError, match="loop"):
        loaded.run_async(ramp(1, 4), np.array(True), loop_timeout=0.05)
    np.testing.assert_array_equal(loaded(ramp(1, 4), np.array(False)), ramp(1, 4))
    patient = repeated(adding(), m=scalar(300), c=np.array(True))
    # Input sizes are unknown at import.
    np.testing.assert_allclose(pumice.load(patient, context)(ramp(1, 4)), ramp(1, 4) + 300 * 299 / 2, rtol=1e-6)


def test_a_condition_left_out_is_ignored_where_there_is_a_trip_count(context: pumice.Context) -> None:
    loaded = pumice.load(repeated(adding("below"), first=""), context)
    np.testing.assert_array_equal(loaded(ramp(1, 4), scalar(9)), ramp(1, 4) + 36)
    loaded = pumice.load(repeated(adding("below"), "", ""), context)
    np.testing.assert_array_equal(loaded(ramp(1, 4)), ramp(1, 4) + 15)  # 15 - 1/4 is not below 12


WRONG = {
    "expected a body of 4 inputs": {"inputs": ["m", "c", "x", "x"]},
    "expected one bool": {"inputs": ["m", "x", "x"]},
    "expected int64": {"inputs": ["x", "c", "x"]},
    "expected a graph as attribute 'body'": {"body": None},
    "as its body declares": {"inputs": ["m", "c", "m"]},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_loops_are_rejected(context: pumice.Context, message: str) -> None:
    given: dict[str, Any] = {"inputs": ["m", "c", "x"], "body": adding(), **WRONG[message]}
    attributes = {"body": given["body"]} if given["body"] else {}
    nodes = [node("Loop", given["inputs"], ["y"], name="loop", **attributes)]
    proto = model(nodes, [value("x"), value("m", [], INT64), value("c", [], BOOL)])
    with pytest.raises(pumice.GraphError, match=f"node 'loop'.*{message}"):
        pumice.load(proto, context)


def test_more_results_than_a_tensor_can_hold_are_rejected(context: pumice.Context) -> None:
    proto = repeated(adding(scanned=True), outputs=("y", "s"), m=scalar(2**62), c=np.array(True))
    proto.graph.input[0].CopyFrom(value("x", [2, 4]))
    with pytest.raises(pumice.GraphError, match="'loop/ConstantOfShape.*elements"):
        pumice.load(proto, context)


def test_a_subgraph_that_reads_its_own_node_is_rejected(context: pumice.Context) -> None:
    then = subgraph([node("Neg", ["y"], ["t"])], [], [value("t")])
    proto = model([node("If", ["c"], ["y"], name="if", then_branch=then, else_branch=then)], [value("c", [], BOOL)])
    with pytest.raises(pumice.GraphError, match="'if': depends on its own result"):
        pumice.load(proto, context)


def test_deep_nesting_is_built_once_a_level(context: pumice.Context) -> None:
    levels = 12
    outputs = [value("x_out"), value("row")]
    nodes = [node("Add", ["x_in", "x"], ["x_out"]), node("Identity", ["x_out"], ["row"])]
    body = loop_body(nodes, [value("x_in", None)], outputs)
    for level in range(levels):
        nodes = [
            node("Loop", ["one", "", "x_in"], ["x_out", "rows"], name=f"level {level}", body=body),
            node("Squeeze", ["rows", "axis"], ["row"]),
        ]
        constants = {"one": scalar(1), "axis": np.array([0])} if level == levels - 1 else {}
        body = loop_body(nodes, [value("x_in", None)], outputs, **constants)
    proto = repeated(body, first="", outputs=("y", "s"))
    y, s = pumice.load(proto, context)(ramp(1, 4), scalar(2))
    np.testing.assert_array_equal(y, 3 * ramp(1, 4))
    np.testing.assert_array_equal(s, np.array([2 * ramp(1, 4), 3 * ramp(1, 4)]))


def test_a_model_with_control_flow_comes_back_from_the_cache(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from pumice.importer.load_graph import load_recipe

    monkeypatch.setenv("PUMICE_CACHE_DIR", str(tmp_path))
    data = choice().SerializeToString()
    first, second = load_recipe(data), load_recipe(data)
    assert list(tmp_path.glob("pumice/graphs/*.graph"))
    assert [node.reads for node in first.nodes] == [node.reads for node in second.nodes]
    (branch, other) = (recipe.nodes[1].subgraphs["then_branch"] for recipe in (first, second))
    assert list(branch.captured) == list(other.captured) == ["x", "doubled", "w"]
    assert bytes(branch.constants["t1"].raw) == bytes(other.constants["t1"].raw) == ramp(4).tobytes()


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_control_flow_is_validated_as_nodes(context: pumice.Context, precision: str) -> None:
    cases = [(ramp(2, 4), np.array(c)) for c in (True, False)]
    report = pumice.validate(choice().SerializeToString(), cases, context=context, precision=precision)
    report.raise_if_failed()
    assert {row.output for row in report.rows if row.op == "If"} == {"y", "z"}
    proto = repeated(adding(scanned=True), outputs=("y", "s"))
    given = (ramp(2, 4), scalar(3), np.array(True))
    report = pumice.validate(proto.SerializeToString(), [given], context=context, precision=precision)
    report.raise_if_failed()
    (row,) = [row for row in report.rows if row.op == "Loop" and row.output == "s"]
    assert row.verdict == "right"


# ONNX's own tests of these operators


def standard_cases() -> list[Any]:
    """Return the cases of collect_testcases() in onnx.backend.test.case.node, without running the generators of all operators."""
    from onnx.backend.test.case import node as cases

    for module in ("if_", "loop", "scan"):
        importlib.import_module(f"{cases.__name__}.{module}")
    ops = {"If", "Loop", "Scan"}
    # test_sequences.py covers the others
    tensors = [case for case in cases._NodeTestCases if not re.search("_seq|_opt", case.name)]
    found = [case for case in tensors if ops & {node.op_type for node in case.model.graph.node}]
    return [pytest.param(case, id=case.name) for case in found]


@pytest.mark.parametrize("case", standard_cases())
def test_the_tests_of_the_standard(context: pumice.Context, case: Any) -> None:
    check_standard(case, context)
