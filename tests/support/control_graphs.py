"""Graphs for IF and WHILE nodes, small enough to check by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import pumice


def truth(value: bool) -> np.ndarray:
    return np.array([value])


def integer(*values: int) -> np.ndarray:
    return np.array(values, "int32")


def graph_of(
    op: str, inputs: Sequence[tuple[str, Any]], *constants: np.ndarray, name: str = "", **attributes: Any
) -> pumice.Graph:
    """Return a graph of one node: its inputs, then the constants."""
    graph = pumice.Graph(name or op.lower())
    values = [graph.input(f"x{i}", dtype, shape) for i, (dtype, shape) in enumerate(inputs)]
    graph.output("y", graph.add(op, *values, *constants, **attributes))
    return graph


def identity(dtype: str = "int32", shape: Any = (1,), name: str = "identity") -> pumice.Graph:
    return graph_of("Identity", [(dtype, shape)], name=name)


def less_than_limit(name: str = "below") -> pumice.Graph:
    """counter, limit -> counter < limit"""
    return graph_of("Less", [("int32", [1]), ("int32", [1])], name=name)


def count_up(step: int = 1, name: str = "count") -> pumice.Graph:
    """counter, limit -> counter + step"""
    graph = pumice.Graph(name)
    counter = graph.input("counter", "int32", [1])
    graph.input("limit", "int32", [1])
    graph.output("next", graph.add("Add", counter, integer(step)))
    return graph


def counting_loop(step: int = 1) -> pumice.Graph:
    """start, limit -> the counter after the loop"""
    graph = pumice.Graph("counting")
    start = graph.input("start", "int32", [1])
    limit = graph.input("limit", "int32", [1])
    (last,) = graph.while_(less_than_limit(), count_up(step), carried=[start], invariant=[limit], name="loop")
    graph.output("last", last)
    return graph


def fibonacci(size: int = 1) -> tuple[pumice.Graph, pumice.Graph]:
    """Return condition and body over (a, b) carried, i state-only, n invariant; the body permutes its state."""
    values = [("a", [size]), ("b", [size]), ("i", [1]), ("n", [1])]
    condition = pumice.Graph("more")
    _, _, i, n = (condition.input(name, "int32", shape) for name, shape in values)
    condition.output("more", condition.add("Less", i, n))
    body = pumice.Graph("next")
    a, b, i, _ = (body.input(name, "int32", shape) for name, shape in values)
    body.output("a", body.add("Identity", b))
    body.output("b", body.add("Add", a, b))
    body.output("i", body.add("Add", i, integer(1)))
    return condition, body


def loop_of(condition: pumice.Graph, body: pumice.Graph, dtype: str = "int32", name: str = "") -> pumice.Graph:
    """Return a graph of (x[1], limit[1]) with a loop that carries x."""
    graph = pumice.Graph(name or f"loop of {body.name}")
    x, limit = graph.input("x", dtype, [1]), graph.input("limit", dtype, [1])
    (last,) = graph.while_(condition, body, carried=[x], invariant=[limit], name="loop")
    graph.output("last", last)
    return graph


def hidden(graph: pumice.Graph, value: pumice.Value) -> pumice.Value:
    """Return a copy of a non-negative value, opaque to the host's constant folding."""
    return graph.add("Abs", value)


def cumulated(dtype: str, size: int) -> pumice.Graph:
    """Return a branch of 40 dispatches over `size` elements; the host decides an IF that contains it."""
    graph = pumice.Graph("long")
    x = graph.input("x", dtype, [size])
    for _ in range(40):
        x = graph.add("CumSum", x, np.array(0))
    graph.output("y", x)
    return graph


def only_loop(execution: pumice.Execution) -> dict[str, object]:
    (loop,) = execution.report["loops"]
    return loop


def collatz() -> pumice.Graph:
    """Halve or triple `x` until it is 1: an IF in a WHILE. Outputs x and the number of steps."""
    even, odd = graph_of("Div", [("int32", [1])], integer(2)), pumice.Graph("odd")
    odd.output("y", odd.add("Add", odd.add("Mul", odd.input("x", "int32", [1]), integer(3)), integer(1)))
    condition, body = pumice.Graph("more"), pumice.Graph("collatz")
    x, _ = condition.input("x", "int32", [1]), condition.input("steps", "int32", [1])
    condition.output("more", condition.add("Greater", x, integer(1)))
    x, steps = body.input("x", "int32", [1]), body.input("steps", "int32", [1])
    is_even = body.add("Equal", body.add("Mod", x, integer(2)), integer(0))
    body.output("x", body.if_(is_even, even, odd, inputs=[x])[0])
    body.output("steps", body.add("Add", steps, integer(1)))
    graph = pumice.Graph()
    last, steps = graph.while_(condition, body, carried=[graph.input("x", "int32", [1]), integer(0)])
    graph.output("x_last", last)
    graph.output("steps", steps)
    return graph
