"""Sequences and optional values of ONNX models, against onnx's reference implementation."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import pumice
from onnx_models import model, node, results_of, subgraph, value
from pumice.tools.cli import main
from tensor_arrays import ramp

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Array = np.ndarray[Any, Any]


def sequence(name: str, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_sequence_value_info(name, dtype, None)


def optional(name: str, of_sequence: bool = False) -> onnx.ValueInfoProto:
    tensor = helper.make_tensor_type_proto(FLOAT, None)
    inner = helper.make_sequence_type_proto(tensor) if of_sequence else tensor
    return helper.make_value_info(name, helper.make_optional_type_proto(inner))


def typed(proto: onnx.ModelProto, *outputs: onnx.ValueInfoProto) -> onnx.ModelProto:
    del proto.graph.output[:]
    proto.graph.output.extend(outputs)
    return proto


def assert_same(result: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert isinstance(result, list) and len(result) == len(expected)
        for one, other in zip(result, expected, strict=True):
            assert_same(one, other)
    elif expected is None:
        assert result is None
    else:
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


def check(context: pumice.Context, proto: onnx.ModelProto, *cases: dict[str, Any]) -> pumice.Model:
    loaded = pumice.load(proto.SerializeToString(), context)
    for inputs in cases:
        results = loaded(**inputs)
        results = [results] if len(loaded.outputs) == 1 else list(results)
        for result, expected in zip(results, ReferenceEvaluator(proto).run(None, inputs), strict=True):
            assert_same(result, expected)
    return loaded


ITEMS = [ramp(2, 3), ramp(4), ramp(), ramp(1, 0, 2), ramp(5, 1)]
NUMBERS = {name: np.array(number) for name, number in (("zero", 0), ("one", 1), ("two", 2), ("last", -1))}


# Sequences whose tensors are all known at import


def test_a_sequence_of_known_tensors_costs_nothing(context: pumice.Context) -> None:
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("SequenceConstruct", ["x", "r"], ["s"]),
        node("Neg", ["x"], ["n"]),
        node("SequenceInsert", ["s", "n", "one"], ["t"]),
        node("SequenceErase", ["t", "zero"], ["u"]),
        node("SequenceLength", ["t"], ["three"]),
        node("SequenceAt", ["u", "last"], ["back"]),
        node("SequenceAt", ["u", "zero"], ["front"]),
        node("Sub", ["front", "back"], ["y"]),
        node("ConcatFromSequence", ["u"], ["z"], axis=-1, new_axis=1),
    ]
    proto = model(nodes, outputs=["y", "z", "three"], constants=NUMBERS)
    loaded = check(context, proto, {"x": ramp(3, 4)})
    assert {row["op"] for row in loaded.report()} == {"Relu", "Neg", "Sub", "Unsqueeze", "Concat"}


@pytest.mark.parametrize(
    ("split", "attributes"),
    [(None, {}), (None, {"axis": 1, "keepdims": 0}), (np.array(4), {}), (np.array([1, 5, 2]), {"axis": -1})],
)
@pytest.mark.parametrize("known", [False, True])
def test_split(context: pumice.Context, split: Array | None, attributes: dict[str, int], known: bool) -> None:
    nodes = [node("SplitToSequence", ["x"] if split is None else ["x", "split"], ["s"], **attributes)]
    nodes += [node("SequenceAt", ["s", "last"]), node("SequenceLength", ["s"], ["n"])]
    constants = NUMBERS if split is None else {**NUMBERS, "split": split}
    proto = model(nodes, [value("x", [7, 8] if known else ["A", "B"])], ["s", "y", "n"], constants)
    proto = typed(proto, sequence("s"), value("y", None), value("n", [], INT64))
    check(context, proto, {"x": ramp(7, 8)}, *([] if known else [{"x": ramp(9, 8)}]))


# Sequences whose length is known only at run time


def given(nodes: list[onnx.NodeProto], *outputs: onnx.ValueInfoProto) -> onnx.ModelProto:
    inputs = [sequence("s"), value("i", [], INT64), value("x", None)]
    return typed(model(nodes, inputs, constants=NUMBERS), *outputs)


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4, -1, -5])
def test_a_position_that_the_program_is_given(context: pumice.Context, at: int) -> None:
    nodes = [
        node("SequenceAt", ["s", "i"], ["y"], name="at"),
        node("SequenceInsert", ["s", "x", "i"], ["more"]),
        node("SequenceErase", ["s", "i"], ["fewer"]),
        node("SequenceLength", ["more"], ["n"]),
    ]
    proto = given(nodes, value("y", None), sequence("more"), sequence("fewer"), value("n", [], INT64))
    loaded = check(context, proto, {"s": ITEMS, "i": np.array(at), "x": ramp(2, 2)})
    with pytest.raises(pumice.GraphError, match="'at/Position.*expected a position in a sequence of 5"):
        loaded(ITEMS, np.array(5 if at >= 0 else -6), ramp(1))


def test_positions_that_are_constants(context: pumice.Context) -> None:
    nodes = [
        node("SequenceInsert", ["s", "x"], ["appended"]),
        node("SequenceInsert", ["s", "x", "last"], ["before"]),
        node("SequenceErase", ["s"], ["erased"]),
        node("SequenceAt", ["s", "two"], ["y"]),
        node("Identity", ["s"], ["same"]),
        node("Neg", ["x"], ["z"]),
    ]
    outputs = [sequence(name) for name in ("appended", "before", "erased", "same")]
    check(context, given(nodes, *outputs, value("y", None)), {"s": ITEMS, "i": np.array(0), "x": ramp(2, 2)})


@pytest.mark.parametrize(
    ("new_axis", "axis"), [(0, 0), (1, 0), (0, 1), (1, 1), (0, -1), (1, -1), (1, -2), (1, 2), (0, -2)]
)
def test_joining_what_comes_in(context: pumice.Context, new_axis: int, axis: int) -> None:
    join = node("ConcatFromSequence", ["s"], ["y"], axis=axis, new_axis=new_axis, name="join")
    parts = [ramp(2, 3), ramp(2, 3) + 9, ramp(2, 3) * 3]
    cases = [{"s": parts}, {"s": parts[:1]}]
    if not new_axis:
        other = np.zeros((1, 3) if axis % 2 == 0 else (2, 5), np.float32)
        cases.append({"s": [parts[0], other, parts[1]]})
    loaded = check(context, model([join], [sequence("s")]), *cases)
    with pytest.raises(pumice.Error, match="join"):
        loaded(s=[ramp(2, 3), ramp(3, 4)])


def test_what_is_no_sequence_is_rejected_by_name(context: pumice.Context) -> None:
    loaded = pumice.load(given([node("SequenceLength", ["s"])], value("y", [], INT64)), context)
    assert str(loaded.inputs[0]) == "s: sequence of float32"
    assert loaded(s=[], i=np.array(0), x=ramp(1)) == 0
    with pytest.raises(pumice.BindingError, match="'s'.*a list of arrays of float32.*ndarray"):
        loaded(ramp(3), np.array(0), ramp(1))
    with pytest.raises(pumice.BindingError, match="'s'.*arrays of float32.*int64"):
        loaded([np.arange(3)], np.array(0), ramp(1))
    with pytest.raises(pumice.BindingError, match="'s'.*NoneType"):
        loaded(None, np.array(0), ramp(1))
    for wrong in (node("Relu", ["s"]), node("SequenceAt", ["x", "i"]), node("SequenceInsert", ["s", "i"])):
        with pytest.raises(pumice.GraphError, match="expected a"):
            pumice.load(given([wrong], value("y", None)), context)


def test_wrong_sequence_nodes_are_rejected_by_name() -> None:
    inner = subgraph([node("Identity", ["i"], ["j"])], [sequence("i")], [sequence("j")])
    in_place_of_tensors = node("SequenceMap", ["s"], ["y"], name="it", body=inner)
    branch = subgraph([node("SequenceConstruct", [], ["j"], name="it")], [], [sequence("j")])
    without_any = node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    passes_nothing = node("Identity", [], ["on"], name="it")
    body = subgraph(
        [passes_nothing], [value("n", [], INT64), value("go", [], BOOL)], [value("on", [], BOOL), value("x", None)]
    )
    loop = node("Loop", ["", "c"], ["y"], body=body)
    grows = subgraph(
        [node("Identity", ["go"], ["on"]), node("SequenceLength", ["before"], ["after"])],
        [value("n", [], INT64), value("go", [], BOOL), sequence("before")],
        [value("on", [], BOOL), sequence("after")],
    )
    a_tensor_back = node("Loop", ["", "c", "s"], ["y"], name="it", body=grows)
    for wrong, text in (
        (a_tensor_back, "'it'.*expected sequence.*given int64"),
        (in_place_of_tensors, "'it'.*'i' of its body to be a tensor, given sequence"),
        (without_any, "'it'.*expected inputs as input 0"),
        (loop, "'it'.*needs input 0"),
    ):
        with pytest.raises(pumice.GraphError, match=text):
            pumice.load(model([wrong], [sequence("s"), value("c", [], BOOL), value("x", None)]), folder=".")


# Sequences carried through loops and branches


@pytest.mark.parametrize("trips", [None, 3])
def test_a_loop_gathers_the_sizes_that_an_if_chooses(context: pumice.Context, trips: int | None) -> None:
    """Every other iteration appends a tensor; the others remove the last one and double it."""
    grows = subgraph(
        [node("Slice", ["x", "from", "to"], ["part"]), node("SequenceInsert", ["s", "part"], ["a"])],
        [],
        [sequence("a")],
    )
    nodes = [
        node("SequenceAt", ["s", "last"], ["end"]),
        node("SequenceErase", ["s"], ["rest"]),
        node("Add", ["end", "end"], ["twice"]),
        node("SequenceInsert", ["rest", "twice"], ["b"]),
    ]
    doubles = subgraph(nodes, [], [sequence("b")], last=np.array(-1))
    nodes = [
        node("Mod", ["number", "two"], ["odd"]),
        node("Cast", ["odd"], ["is_odd"], to=BOOL),
        node("Unsqueeze", ["number", "from"], ["to"]),
        node("If", ["is_odd"], ["t"], name="if", then_branch=doubles, else_branch=grows),
        node("Identity", ["go_on"], ["still"]),
    ]
    inputs = [value("number", [], INT64), value("go_on", [], BOOL), sequence("s")]
    body = subgraph(
        nodes, inputs, [value("still", [], BOOL), sequence("t")], two=np.array(2), **{"from": np.array([0])}
    )
    nodes = [
        node("SequenceConstruct", ["x"], ["first"]),
        node("Loop", ["m", "c", "first"], ["y"], name="loop", body=body),
    ]
    constants = {"c": np.array(True), **({} if trips is None else {"m": np.array(trips)})}
    given = [value("x", ["N"])] + ([value("m", [], INT64)] if trips is None else [])
    proto = typed(model(nodes, given, constants=constants), sequence("y"))
    cases = [{"x": ramp(6)}] if trips else [{"x": ramp(6), "m": np.array(count)} for count in (0, 1, 5)]
    check(context, proto, *cases)


def test_optional_values(context: pumice.Context) -> None:
    nodes = [node("OptionalHasElement", ["o"], ["has"])]
    get = subgraph([node("OptionalGetElement", ["o"], ["e"]), node("Neg", ["e"], ["t"])], [], [value("t", None)])
    other = subgraph([node("Relu", ["x"], ["r"])], [], [value("r", None)])
    nodes.append(node("If", ["has"], ["y"], name="if", then_branch=get, else_branch=other))
    proto = typed(model(nodes, [value("x"), optional("o")]), value("y", None), value("has", [], BOOL))
    loaded = check(context, proto, {"x": ramp(2, 4), "o": ramp(3)}, {"x": ramp(2, 4), "o": None})
    assert str(loaded.inputs[1]) == "o: optional of float32"
    empty = helper.make_tensor_type_proto(FLOAT, None)
    nodes = [node("Optional", [], ["o"], type=empty), node("OptionalGetElement", ["o"], name="get")]
    with pytest.raises(pumice.GraphError, match="'get'.*empty"):
        pumice.load(model(nodes), context)


def test_a_model_with_sequences_is_validated(context: pumice.Context) -> None:
    nodes = [
        node("SequenceConstruct", ["x", "x"], ["s"]),
        node("SequenceAt", ["s", "one"], ["e"]),
        node("Neg", ["e"], ["n"]),
        node("SequenceInsert", ["s", "n"], ["t"]),
        node("ConcatFromSequence", ["t"], axis=0),
    ]
    report = pumice.validate(model(nodes, constants=NUMBERS), [ramp(2, 4)], context=context)
    report.raise_if_failed()
    assert {"n", "y"} <= {row.output for row in report.rows}
    nodes = [node("Neg", ["x"], ["n"]), node("SequenceInsert", ["s", "n", "i"], ["more"])]
    case = {"s": ITEMS, "i": np.array(1), "x": ramp(2, 2)}
    report = pumice.validate(given(nodes, sequence("more")), [case], context=context)
    report.raise_if_failed()
    assert {row.output: row.accumulated is not None for row in report.rows}["more/data"]


def test_the_command_line_writes_the_arrays_of_a_sequence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = typed(model([node("SplitToSequence", ["x"], ["s"], axis=1)]), sequence("s"))
    onnx.save(proto, tmp_path / "split.onnx")
    np.save(tmp_path / "x.npy", ramp(3, 4))
    given = ["--input", f"x={tmp_path / 'x.npy'}", "--output", str(tmp_path / "out")]
    assert main(["run", str(tmp_path / "split.onnx"), *given]) == 0
    assert len(list((tmp_path / "out").glob("*.npy"))) == 4
    assert "s[3]: float32[3, 1]" in capsys.readouterr().out
    taking = typed(model([node("SequenceLength", ["s"])], [sequence("s")]), value("y", [], INT64))
    onnx.save(taking, tmp_path / "taking.onnx")
    assert main(["bench", str(tmp_path / "taking.onnx")]) != 0
    assert "'s: sequence of float32'" in capsys.readouterr().err


def test_sequences_of_what_is_unknown_are_listed_with_all_else(context: pumice.Context) -> None:
    nodes = [
        node("SequenceEmpty", [], ["s"], name="empty", dtype=TensorProto.COMPLEX64),
        node("SplitToSequence", ["x", "lengths"], ["p"], name="parts"),
        node("SequenceLength", ["p"], ["n"]),
        node("Wobble", ["x"], ["w"], name="wobbles"),
    ]
    proto = model(nodes, [value("x"), value("lengths", ["K"], INT64)], ["s", "n", "w"])
    with pytest.raises(pumice.UnsupportedError) as caught:
        pumice.load(proto, context)
    text = "\n".join(caught.value.items)
    for part in ("'empty': operator SequenceEmpty: element type complex64", "'parts'.*number of parts", "wobbles"):
        assert re.search(part, text)


# ONNX's own tests of these operators


def standard_cases() -> list[Any]:
    from onnx.backend.test.case import node as cases

    modules = ("if_", "loop", "identity", "optionalgetelement", "optionalhaselement", "sequence_map", "sequenceinsert")
    for module in (*modules, "splittosequence"):
        importlib.import_module(f"{cases.__name__}.{module}")
    kinds = ("sequence", "optional", "_seq", "_opt")
    found = [case for case in cases._NodeTestCases if any(kind in case.name for kind in kinds)]
    return [pytest.param(case, id=case.name) for case in found if "reversesequence" not in case.name]


@pytest.mark.parametrize("case", standard_cases())
def test_the_tests_of_the_standard(context: pumice.Context, case: Any) -> None:
    for result, expected in results_of(case, context):
        assert_same(result, expected)


@pytest.mark.parametrize("at", [-3, -1, 0, 2, -4, -5, 3, 100])
@pytest.mark.parametrize("is_computed", [False, True])
def test_a_position_outside_of_a_sequence_of_unknown_length_is_rejected(
    context: pumice.Context, at: int, is_computed: bool
) -> None:
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=0),
        helper.make_node("SequenceAt", ["s", "i"], ["y"]),
    ]
    inputs = [info("x", TensorProto.FLOAT, [None, 2])]
    if is_computed:
        inputs.append(info("i", TensorProto.INT64, []))
    constants = [] if is_computed else [helper.make_tensor("i", TensorProto.INT64, [], [at])]
    graph = helper.make_graph(nodes, "at", inputs, [info("y", TensorProto.FLOAT, None)], constants)
    model = pumice.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), context)
    x = np.arange(6, dtype="float32").reshape(3, 2)
    arguments = (x, np.array(at)) if is_computed else (x,)
    if -3 <= at < 3:
        np.testing.assert_array_equal(model(*arguments), x[at : at + 1] if at != -1 else x[-1:])
    else:
        with pytest.raises(pumice.Error):
            model(*arguments)


@pytest.mark.parametrize("at", [-4, -3, -1, 0, 2, 3, 4, 100])
@pytest.mark.parametrize("is_computed", [False, True])
@pytest.mark.parametrize("op", ["SequenceInsert", "SequenceErase", "SequenceAt"])
def test_a_rejected_position_is_named_with_the_length_of_the_sequence(
    context: pumice.Context, op: str, is_computed: bool, at: int
) -> None:
    """Insertion after the last tensor is allowed. A sequence whose length is set by the call behaves like one of known length."""
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("SplitToSequence", ["x"], ["s"], axis=0)]
    if op == "SequenceAt":
        nodes.append(helper.make_node(op, ["s", "i"], ["y"]))
    else:
        inputs = ["s", "z", "i"] if op == "SequenceInsert" else ["s", "i"]
        nodes += [helper.make_node(op, inputs, ["t"]), helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=0)]
    given = [info("x", TensorProto.FLOAT, [None, 2]), info("i", TensorProto.INT64, [])]
    constants = [helper.make_tensor("z", TensorProto.FLOAT, [1, 2], [-1, -2])]
    if not is_computed:
        constants.append(helper.make_tensor("i", TensorProto.INT64, [], [at]))
    graph = helper.make_graph(
        nodes, "at", given[: 2 if is_computed else 1], [info("y", TensorProto.FLOAT, None)], constants
    )
    model = pumice.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), context)
    x = np.arange(6, dtype="float32").reshape(3, 2)
    arguments = (x, np.array(at)) if is_computed else (x,)
    if not -3 <= at < (4 if op == "SequenceInsert" else 3):
        with pytest.raises(pumice.GraphError, match=f"{op}.*expected a position in a sequence of 3, given {at}"):
            model(*arguments)
        return
    if op == "SequenceInsert":
        expected = np.insert(x, at, [-1, -2], axis=0)
    elif op == "SequenceErase":
        expected = np.delete(x, at, axis=0)
    else:
        expected = x[[at]]
    np.testing.assert_array_equal(model(*arguments), expected)
