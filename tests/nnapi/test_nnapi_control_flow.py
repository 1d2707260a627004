"""NNAPI's IF and WHILE with NNAPI's operand order, and the operation catalogue."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
import pumice.nnapi

TWO = np.array([1, -2], "float32")


def branch(op: str, outputs: int = 1) -> pumice.Graph:
    graph = pumice.Graph(op)
    x, y = graph.input("x", "float32", [2]), graph.input("y", "float32", [2])
    for i in range(outputs):
        graph.output(f"out{i}", graph.add(f"nnapi::{op}", x, y, 0))
    return graph


def test_IF_takes_a_condition_two_graphs_and_inputs(context: pumice.Context) -> None:
    graph = pumice.Graph()
    c, x = graph.input("c", "bool", [1]), graph.input("x", "float32", [2])
    made = graph.add("nnapi::IF", c, branch("ADD"), branch("MUL"), x, [3.0, 4.0], name="choice")
    assert isinstance(made, pumice.Value)
    graph.output("y", made)
    program = graph.compile(context)
    assert program({"c": np.array([True]), "x": TWO})["y"].tolist() == [4, 2]
    assert program({"c": np.array([False]), "x": TWO})["y"].tolist() == [3, -8]


def test_IF_gives_a_tuple_of_several() -> None:
    graph = pumice.Graph()
    c, x = graph.input("c", "bool", [1]), graph.input("x", "float32", [2])
    for given in ({}, {"outputs": 2}):
        made = graph.add("nnapi::IF", c, branch("ADD", 2), branch("MUL", 2), x, x, output_names=[], **given)
        assert [one.shape for one in made] == [(2,), (2,)]


def loop(context: pumice.Context, outputs: int) -> list[np.ndarray[Any, Any]]:
    """i, x and a state s: while i < limit, x += s and s += s."""
    condition, body, graph = pumice.Graph("condition"), pumice.Graph("body"), pumice.Graph("main")
    values = [("i", "int32", [1]), ("x", "float32", [2]), ("s", "float32", [2]), ("limit", "int32", [1])]
    tested, inside, given = ([one.input(*value) for value in values] for one in (condition, body, graph))
    condition.output("more", condition.add("nnapi::LESS", tested[0], tested[3]))
    body.output("i", body.add("nnapi::ADD", inside[0], [1], 0))
    body.output("x", body.add("nnapi::ADD", inside[1], inside[2], 0))
    body.output("s", body.add("nnapi::ADD", inside[2], inside[2], 0))
    made = graph.add("nnapi::WHILE", condition, body, *given, outputs=outputs)
    results = made if isinstance(made, tuple) else (made,)
    assert len(results) == outputs
    for i, value in enumerate(results):
        graph.output(f"y{i}", value)
    fed = {"i": np.zeros(1, "int32"), "x": TWO, "s": np.ones(2, "float32"), "limit": np.array([3], "int32")}
    run = graph.compile(context)(fed)
    return [run[f"y{i}"] for i in range(outputs)]


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_WHILE_carries_as_many_values_as_there_are_outputs(context: pumice.Context, outputs: int) -> None:
    """Body outputs beyond these are states, initialised by the operands that follow."""
    expected: list[list[float]] = [[3], [8, 5], [8, 8]]
    assert [one.tolist() for one in loop(context, outputs)] == expected[:outputs]


def test_what_IF_and_WHILE_reject() -> None:
    graph = pumice.Graph()
    c, x = graph.input("c", "bool", [1]), graph.input("x", "float32", [2])

    def refused(match: str, op: str, *operands: Any, **keywords: Any) -> None:
        with pytest.raises(pumice.GraphError, match=match):
            graph.add(f"nnapi::{op}", *operands, **keywords)

    refused("G1.*a condition, two graphs", "IF", c, branch("ADD"))
    refused("G1.*two graphs", "WHILE", branch("ADD"))
    refused("B2.2", "IF", c, branch("ADD"), x, x, x)
    refused("B2.2", "WHILE", x, branch("ADD"), x, x)
    refused("B2.1", "IF", x, branch("ADD"), branch("MUL"), x, x)
    refused("B2.3", "IF", c, branch("ADD"), branch("MUL"), x)
    refused("B2.5", "WHILE", branch("ADD"), branch("ADD"), x, x, outputs=2)
    refused("B2.5", "WHILE", branch("ADD"), branch("ADD"))
    refused("requested 2", "IF", c, branch("ADD"), branch("MUL"), x, x, outputs=2)
    refused("keywords", "IF", c, branch("ADD"), branch("MUL"), x, x, scale=0.5)


def test_IF_and_WHILE_are_in_the_catalogue() -> None:
    """They are listed like all others, with graphs among their operands."""
    for name, kinds in (("IF", ["tensor", "graph", "graph", "tensor"]), ("WHILE", ["graph", "graph", "tensor"])):
        one = pumice.operators(f"nnapi::{name}")
        assert [role.kind for role in one.inputs] == kinds
        assert one.since == (4,)
        assert "graph" in str(one)
        with pytest.raises(pumice.GraphError, match="graph|branch|two graphs"):
            graph = pumice.Graph()
            graph.add(f"nnapi::{name}", graph.input("c", "bool", [1]))


def product() -> pumice.Graph:
    """x times weights that fp16 cannot represent."""
    graph = pumice.Graph("product")
    x = graph.input("x", "float32", [1, 2])
    weights = np.array([[1 + 2.0**-12, 0.5], [3, -(2.0**-7) - 2.0**-20]], "float32")
    graph.output("y", graph.add("nnapi::FULLY_CONNECTED", x, graph.constant(weights), np.zeros(2, "float32"), 0))
    return graph


@pytest.mark.parametrize("flow", [False, True])
def test_relaxed_precision_is_a_property_of_a_graph(context: pumice.Context, flow: bool) -> None:
    """G9: relaxed precision gives fp16 results. An explicit precision of compile() takes precedence; branches inherit it."""
    graph = product()
    if flow:
        graph, branches = pumice.Graph(), (product(), product())
        c, x = graph.input("c", "bool", [1]), graph.input("x", "float32", [1, 2])
        graph.output("y", graph.add("nnapi::IF", c, *branches, x))
    assert graph.relaxed_precision is False
    x0 = np.array([[1 + 2.0**-11, 3.0]], "float32")
    fed = {"x": x0} | ({"c": np.array([True])} if flow else {})

    def made(**given: Any) -> np.ndarray[Any, Any]:
        return graph.compile(context, **given)(fed)["y"]

    full, half = made(precision="fp32"), made(precision="fp16")
    assert (full != half).any()
    np.testing.assert_array_equal(made(), full)
    graph.relaxed_precision = True
    assert graph.relaxed_precision is True
    np.testing.assert_array_equal(made(), half)
    np.testing.assert_allclose(half, full, rtol=5 * 2.0**-10, atol=5 * 2.0**-10)
    np.testing.assert_array_equal(made(precision="fp32"), full)


def test_operations_by_feature_level() -> None:
    everything = pumice.nnapi.operations()
    names = [one.name for one in everything]
    assert names == sorted(set(names))
    assert {"nnapi::IF", "nnapi::WHILE", "nnapi::ADD", "nnapi::DENSIFY"} <= set(names)
    of = {one.name: one.level for one in everything}
    assert (of["nnapi::ADD"], of["nnapi::TRANSPOSE_CONV_2D"], of["nnapi::WHILE"]) == (1, 3, 4)
    assert of["nnapi::DENSIFY"] == pumice.nnapi.EXPERIMENTAL
    for level in (1, 2, 3, 4, 5):
        assert pumice.nnapi.operations(level) == [one for one in everything if one.level <= level]
    assert all(one.summary for one in everything)
    with pytest.raises(ValueError, match="positive feature level"):
        pumice.nnapi.operations(0)
