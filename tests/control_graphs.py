"""Graphs that IF and WHILE nodes run, small enough to check by hand."""

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
    """A graph of one node: the inputs, then the constants."""
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
