"""Errors of If and While nodes: one test per rule of pumice.graph_rules(), and a check that the list is complete."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pumice
from control_graphs import count_up, counting_loop, graph_of, identity, integer, less_than_limit, truth

ROOT = Path(__file__).resolve().parents[2]
RULES = pumice.graph_rules()


def expect_error(
    rule: str, call: Callable[[], object], match: str | None = None, error: type[Exception] = pumice.GraphError
) -> None:
    with pytest.raises(error, match=match) as caught:
        call()
    assert caught.value.rule == rule  # type: ignore[attr-defined]


def outer() -> tuple[pumice.Graph, pumice.Value, pumice.Value]:
    """Return a graph with a condition and an int32[1]."""
    graph = pumice.Graph("outer")
    return graph, graph.input("decides", "bool", [1]), graph.input("x", "int32", [1])


def test_every_rule_has_a_test_and_a_sentence() -> None:
    tested = set(re.findall(r"def test_b2_(\d+)_", Path(__file__).read_text()))
    assert {f"B2.{number}" for number in tested} == set(RULES) == {f"B2.{number}" for number in range(1, 14)}
    assert all(len(text) > 15 and not text.endswith(".") for text in RULES.values())


def test_every_rule_that_the_engine_names_is_in_the_list() -> None:
    files = [
        file
        for file in [*(ROOT / "cpp/graph").rglob("*.cpp"), *ROOT.glob("src/*.cpp")]
        if file.name != "graph_rules.cpp"
    ]
    named = set().union(*(re.findall(r'"(B2\.\d+)"', file.read_text()) for file in files))
    assert named <= set(RULES)
    assert named >= set(RULES) - {"B2.10"}  # B2.10 permits something


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("int32", [1]), ("bool", []), ("bool", [2]), ("bool", [1, 1]), ("bool", [None]), ("bool", None)],
)
def test_b2_1_a_condition_is_bool_of_shape_1(dtype: str, shape: list[int | None] | None) -> None:
    graph = pumice.Graph("outer")
    condition, x = graph.input("decides", dtype, shape), graph.input("x", "int32", [1])
    expect_error(
        "B2.1",
        lambda: graph.if_(condition, identity(), identity(), inputs=[x]),
        r"expected bool\[1\], given 'decides' " + dtype,
    )
    ends = graph_of("Identity", [(dtype, shape)])
    expect_error("B2.1", lambda: graph.while_(ends, identity(dtype, shape), carried=[condition]), r"expected bool\[1\]")


def test_b2_2_what_is_run_is_a_graph() -> None:
    graph, condition, x = outer()
    for wrong in (3, "body", integer(1), x):
        expect_error(
            "B2.2", lambda wrong=wrong: graph.if_(condition, wrong, identity(), inputs=[x]), "then: expected a Graph"
        )  # type: ignore[misc]
        expect_error(
            "B2.2", lambda wrong=wrong: graph.if_(condition, identity(), wrong, inputs=[x]), "else: expected a Graph"
        )  # type: ignore[misc]
        expect_error(
            "B2.2", lambda wrong=wrong: graph.while_(wrong, identity(), carried=[x]), "condition: expected a Graph"
        )  # type: ignore[misc]
        expect_error(
            "B2.2", lambda wrong=wrong: graph.while_(identity("bool"), wrong, carried=[x]), "body: expected a Graph"
        )  # type: ignore[misc]


def test_b2_3_branches_take_the_inputs_and_give_the_outputs_of_an_if() -> None:
    graph, condition, x = outer()
    two = graph_of("Add", [("int32", [1]), ("int32", [1])], name="two")
    expect_error("B2.3", lambda: graph.if_(condition, two, identity(), inputs=[x]), "then 'two': expected 2, given 1")
    expect_error("B2.3", lambda: graph.if_(condition, identity(), two, inputs=[x]), "else 'two': expected 2, given 1")
    for dtype, shape in (("float32", [1]), ("int32", [2]), ("int32", [1, 1]), ("int32", [])):
        other = identity(dtype, shape)
        expect_error("B2.3", lambda other=other: graph.if_(condition, identity(), other, inputs=[x]), "given 'x' int32")  # type: ignore[misc]
    truths = graph_of("Less", [("int32", [1])], integer(3), name="truths")
    expect_error("B2.3", lambda: graph.if_(condition, identity(), truths, inputs=[x]), "bool")
    twice = pumice.Graph("twice")
    one = twice.input("one", "int32", [1])
    twice.output("a", twice.add("Neg", one))
    twice.output("b", twice.add("Abs", one))
    expect_error("B2.3", lambda: graph.if_(condition, identity(), twice, inputs=[x]), "expected 1, given 2")


def test_b2_3_an_operand_deduces_sizes_that_a_node_inside_cannot_take() -> None:
    graph, condition, _ = outer()
    pair = graph.input("pair", "int32", [2])
    adds = graph_of("Add", [("int32", [None])], integer(1, 2, 3), name="adds")
    expect_error("B2.3", lambda: graph.if_(condition, adds, identity("int32", [None]), inputs=[pair]), "adds")


def quantized(scale: float, zero_point: int, out_scale: float | None = None) -> pumice.Graph:
    graph = pumice.Graph("quantized")
    x = graph.input("x", "uint8", [4], scale=scale, zero_point=zero_point)
    graph.output("y", graph.add("nnapi::ADD", x, x, 0, scale=out_scale or scale, zero_point=zero_point))
    return graph


def test_b2_3_and_5_values_are_quantized_alike(context: pumice.Context) -> None:
    graph, condition, _ = outer()
    x = graph.input("q", "uint8", [4], scale=0.5, zero_point=3)
    right = quantized(0.5, 3)
    for wrong in (quantized(0.25, 3), quantized(0.5, 4)):
        expect_error("B2.3", lambda wrong=wrong: graph.if_(condition, wrong, right, inputs=[x]), "scale")  # type: ignore[misc]
    expect_error("B2.3", lambda: graph.if_(condition, right, quantized(0.5, 3, 0.75), inputs=[x]), "scale")
    once = pumice.Graph("once")
    once.input("x", "uint8", [4], scale=0.5, zero_point=3)
    once.output("more", once.add("Identity", once.constant(truth(False))))
    expect_error("B2.5", lambda: graph.while_(once, quantized(0.5, 3, 0.75), carried=[x]), "scale")
    graph.output("y", graph.if_(condition, right, quantized(0.5, 3), inputs=[x])[0])
    given = np.array([3, 5, 100, 255], "uint8")
    result = graph.compile(context)({"decides": truth(True), "x": integer(0), "q": given})["y"]
    assert result.tolist() == [3, 7, 197, 255]


def test_b2_3_branches_may_declare_different_shapes() -> None:
    graph, condition, x = outer()
    grown = graph_of("Concat", [("int32", [1])], integer(7), axis=0)
    (result,) = graph.if_(condition, grown, identity(), inputs=[x])
    assert result.shape == (None,)
    (result,) = graph.if_(condition, graph_of("Reshape", [("int32", [1])], np.array([1, 1])), identity(), inputs=[x])
    assert result.shape is None


def test_b2_4_a_condition_graph_takes_everything_and_gives_the_condition() -> None:
    graph, _, x = outer()
    expect_error("B2.4", lambda: graph.while_(less_than_limit(), identity(), carried=[x]), "expected 2, given 1")
    wrong = graph_of("Less", [("int32", [2])], integer(3))
    expect_error(
        "B2.4", lambda: graph.while_(wrong, identity(), carried=[x]), r"expected '.*' int32\[2\], given 'x' int32\[1\]"
    )
    two = pumice.Graph("two")
    one = two.input("one", "int32", [1])
    two.output("a", two.add("Less", one, integer(3)))
    two.output("b", two.add("Less", one, integer(4)))
    expect_error("B2.4", lambda: graph.while_(two, identity(), carried=[x]), "expected 1, given 2")


def test_b2_5_a_body_takes_everything_and_gives_the_next_values() -> None:
    graph, _, x = outer()
    ends = graph_of("Less", [("int32", [1])], integer(3))
    both = less_than_limit()
    expect_error("B2.5", lambda: graph.while_(ends, count_up(), carried=[x]), "expected 2, given 1")
    expect_error(
        "B2.5",
        lambda: graph.while_(both, count_up(), carried=[x, x]),
        r"expected 2 \(2 carried values, 0 state values\), given 1",
    )
    expect_error(
        "B2.5", lambda: graph.while_(both, count_up(), carried=[x], state=[x]), r"1 carried value, 1 state value"
    )
    expect_error(
        "B2.5", lambda: graph.while_(both, count_up(), carried=[], state=[x], invariant=[x]), "at least one carried"
    )
    for wrong in (
        graph_of("Less", [("int32", [1])], integer(3)),
        graph_of("Concat", [("int32", [1])], integer(3), axis=0),
        identity("int32", [2]),
        identity("float32"),
    ):
        expect_error("B2.5", lambda wrong=wrong: graph.while_(ends, wrong, carried=[x]))  # type: ignore[misc]


def test_b2_6_a_loop_on_unknown_sizes_is_no_operator(context: pumice.Context) -> None:
    graph = pumice.Graph("outer")
    x = graph.input("x", "int32", [1])
    small = graph_of("Less", [("int32", None)], integer(3))
    ends = pumice.Graph("ends")
    few = ends.add("Shape", ends.input("x", "int32", [None]))
    ends.output("more", ends.add("Less", few, np.array([4])))
    grows = graph_of("Concat", [("int32", [None])], integer(7), axis=0, name="grows")
    (result,) = graph.while_(ends, grows, carried=[x], name="growing")
    assert result.shape == (None,)
    graph.output("y", result)
    expect_error("B2.6", lambda: graph.compile_operator(context), "growing")
    del small
    with pytest.raises(pumice.UnsupportedError, match="loop"):
        counting_loop().compile_operator(context)


def test_b2_7_a_graph_is_no_value() -> None:
    graph, condition, x = outer()
    expect_error("B2.7", lambda: graph.add("Neg", identity()))
    expect_error("B2.7", lambda: graph.output("y", identity()))
    expect_error("B2.7", lambda: graph.if_(condition, identity(), identity(), inputs=[identity()]))
    expect_error("B2.7", lambda: graph.if_(identity(), identity(), identity(), inputs=[x]))


def test_b2_8_no_graph_runs_itself() -> None:
    graph, condition, x = outer()
    graph.output("y", graph.add("Neg", x))
    expect_error("B2.8", lambda: graph.if_(condition, graph, identity(), inputs=[x]), "run itself")
    expect_error("B2.8", lambda: graph.while_(graph, identity(), carried=[x]), "run itself")
    assert not graph.finished
    branch = graph_of("Not", [("bool", [1])])
    (negated,) = graph.if_(condition, branch, branch, inputs=[condition])  # a graph may be run twice
    graph.if_(negated, branch, branch, inputs=[condition])
    # A longer cycle would pass through a graph that is already finished.
    expect_error("B2.12", lambda: branch.if_(branch.inputs[0], graph, graph, inputs=[]), error=pumice.StateError)


def test_b2_9_a_graph_that_is_run_has_nodes_that_make_its_outputs() -> None:
    graph, condition, x = outer()
    through = pumice.Graph("through")
    one = through.input("one", "int32", [1])
    through.output("y", one)
    expect_error("B2.9", lambda: graph.if_(condition, through, identity(), inputs=[x]), "node")
    through.add("Neg", one)
    expect_error("B2.9", lambda: graph.if_(condition, through, identity(), inputs=[x]), "'y' is an input")
    fixed = identity(name="fixed")
    fixed.output("z", fixed.constant(integer(1)))
    expect_error("B2.9", lambda: graph.if_(condition, identity(), fixed, inputs=[x]), "'z' is a constant")
    twice = identity(name="twice")
    twice.output("z", twice.outputs["y"])
    expect_error("B2.9", lambda: graph.while_(less_than_limit(), twice, carried=[x]), "twice")


def test_b2_10_inputs_may_be_unused_and_outputs_unread(context: pumice.Context) -> None:
    graph, condition, x = outer()
    ignores = pumice.Graph("ignores")
    one = ignores.input("one", "int32", [1])
    ignores.input("unused", "bool", [1])
    ignores.output("y", ignores.add("Neg", one))
    ignores.output("unread", ignores.add("Abs", one))
    result, _ = graph.if_(condition, ignores, ignores, inputs=[x, condition])
    graph.output("y", result)
    assert graph.compile(context)({"decides": truth(True), "x": integer(4)})["y"] == [-4]


def test_b2_11_a_graph_that_is_run_is_given_and_can_be_finished() -> None:
    graph, condition, x = outer()
    expect_error(
        "B2.11", lambda: graph.if_(condition, None, identity(), inputs=[x]), "then: expected a Graph, given None"
    )
    expect_error(
        "B2.11", lambda: graph.while_(less_than_limit(), None, carried=[x]), "body: expected a Graph, given None"
    )
    open_ended = pumice.Graph("open")
    open_ended.add("Neg", open_ended.input("one", "int32", [1]))
    expect_error(
        "B2.11", lambda: graph.if_(condition, open_ended, identity(), inputs=[x]), "no output", pumice.StateError
    )
    assert not open_ended.finished
    branch = identity()
    graph.if_(condition, branch, branch, inputs=[x])
    assert branch.finished


def test_b2_12_a_finished_graph_does_not_change() -> None:
    graph, condition, x = outer()
    graph.output("y", graph.add("Neg", x))
    graph.finish()
    expect_error(
        "B2.12", lambda: graph.if_(condition, identity(), identity(), inputs=[x]), "finished", pumice.StateError
    )
    expect_error(
        "B2.12", lambda: graph.while_(less_than_limit(), count_up(), carried=[x]), "finished", pumice.StateError
    )
    expect_error("B2.12", lambda: graph.add("Neg", x), "finished", pumice.StateError)


def test_b2_12_a_rejected_node_leaves_the_graph_as_it_was() -> None:
    graph, condition, x = outer()
    expect_error("B2.3", lambda: graph.if_(condition, identity("float32"), identity(), inputs=[x], name="choice"))
    assert len(graph) == 0
    graph.if_(condition, identity(), identity(), inputs=[x], name="choice", output_names=["y"])
    with pytest.raises(pumice.GraphError, match="choice"):
        graph.if_(condition, identity(), identity(), inputs=[x], name="choice")


def test_b2_13_an_absent_condition_fails_when_it_runs_and_an_absent_value_at_once(context: pumice.Context) -> None:
    graph, condition, x = outer()
    expect_error("B2.13", lambda: graph.if_(condition, identity(), identity(), inputs=[None]), "None")
    expect_error("B2.13", lambda: graph.while_(less_than_limit(), count_up(), carried=[x], invariant=[None]), "None")
    (result,) = graph.if_(None, identity(), identity(), inputs=[x], name="undecided")
    graph.output("y", result)
    program = graph.compile(context)
    expect_error("B2.13", lambda: program({"decides": truth(True), "x": integer(1)}), "undecided")
