"""If, Loop and Scan of ONNX as the engine's IF and WHILE.

A value that a subgraph takes from outside becomes an input of it. The engine counts in int32 of shape [1]: an iteration number
is converted, and a trip count above 2^31 - 1 counts as that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import _pumice
from .element_types import Array
from .errors import graph_error
from .graph_builder import Builder, Refused
from .recipe import NodeRecipe, Recipe

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._pumice import Graph, Value

INT32, INT64 = 6, 7  # TensorProto.DataType
ONE = np.array([1], np.int32)
SCALAR, SINGLE = np.zeros(0, np.int64), np.array([1])  # as shapes


def subgraph_of(builder: Builder, node: NodeRecipe, attribute: str) -> Recipe:
    """Raises GraphError where there is none, Refused where it holds what is not supported."""
    recipe = node.attributes.get(attribute)
    if not isinstance(recipe, Recipe):
        raise graph_error("node", node.name, f"expected a graph as attribute '{attribute}', given none")
    path = f"{builder.path(node)}.{attribute}"
    reasons = _unsupported(recipe, path)
    if reasons:
        builder.unsupported.extend(reasons)
        raise Refused
    return recipe


def _unsupported(recipe: Recipe, path: str) -> list[str]:
    """All of it, without building anything: what it takes may not exist."""
    reasons = [f"graph '{path}': {reason}" for reason in recipe.unsupported]
    for node in recipe.nodes:
        known = _pumice.has_operator(node.op, node.domain) or (not node.domain and node.op in CONTROL_NODES)
        if node.unsupported or not known:
            reason = f": {node.unsupported}" if node.unsupported else ""
            reasons.append(f"node '{path}/{node.name}': operator {node.qualified_op}{reason}")
        for name, graph in node.subgraphs.items():
            reasons += _unsupported(graph, f"{path}/{node.name}.{name}")
    return reasons


def captured(builder: Builder, recipes: list[Recipe]) -> dict[str, Value]:
    """What subgraphs take from outside, without constants, which they hold themselves."""
    names = dict.fromkeys(name for recipe in recipes for name in recipe.captured)
    return {name: builder.operand(name) for name in names if name not in builder.constants}


def inner_builder(builder: Builder, node: NodeRecipe, role: str, recipe: Recipe) -> Builder:
    return Builder(recipe, f"{builder.path(node)}.{role}", builder)


def add_captured(inner: Builder, values: dict[str, Value]) -> None:
    """As further inputs; those that only another branch reads, too."""
    for name, value in values.items():
        own = name in inner.recipe.captured
        taken = inner.graph.input(name if own else f"{inner.graph.name}/outer {name}", value.dtype, value.shape)
        if own:
            inner.values[name] = taken


def signature(values: dict[str, Value]) -> tuple[Any, ...]:
    return tuple((name, value.dtype, value.shape) for name, value in values.items())


def single_bool(builder: Builder, node: NodeRecipe, name: str) -> Value | Array:
    """A condition as the engine wants it, bool[1]."""
    array = builder.array(name)
    if array is not None:
        if array.dtype != np.bool_ or array.size != 1:
            raise graph_error("node", node.name, f"condition '{name}': expected one bool, given {array.dtype}{array.shape}")
        return array.reshape(1)
    value = builder.operand(name)
    if value.dtype != "bool":
        raise graph_error("node", node.name, f"condition '{name}': expected one bool, given {value.dtype}")
    return value if value.shape == (1,) else builder.helper(node, "Reshape", value, SINGLE)


def _add_if(builder: Builder, node: NodeRecipe) -> None:
    branches = {role: subgraph_of(builder, node, f"{role}_branch") for role in ("then", "else")}
    if len(node.inputs) != 1:
        raise graph_error("node", node.name, f"expected one input, the condition, given {len(node.inputs)}")
    values = captured(builder, list(branches.values()))
    kept = [j for j, name in enumerate(node.outputs) if name]
    graphs = []
    for role, recipe in branches.items():
        if recipe.inputs or len(recipe.outputs) < len(node.outputs):
            given = f"{len(recipe.inputs)} and {len(recipe.outputs)}"
            expected = f"no inputs and {len(node.outputs)} outputs of {role}_branch"
            raise graph_error("node", node.name, f"expected {expected}, given {given}")
        graphs.append(_branch(builder, node, role, kept, values))
    condition = single_bool(builder, node, node.inputs[0])
    names = [node.outputs[j] for j in kept]
    inputs = list(values.values())
    builder.keep(names, builder.graph.if_(condition, *graphs, inputs=inputs, name=node.name, output_names=names))


def _branch(builder: Builder, node: NodeRecipe, role: str, kept: list[int], values: dict[str, Value]) -> Graph:
    recipe = subgraph_of(builder, node, f"{role}_branch")
    key = (id(recipe), builder.path(node), signature(values))
    if key not in builder.subgraphs:
        inner = inner_builder(builder, node, role, recipe)
        add_captured(inner, values)
        inner.add_nodes()
        for j in kept:
            inner.graph.output(f"{j}", inner.made_value(node, recipe.outputs[j].name))
        builder.subgraphs[key] = inner.graph
    graph: Graph = builder.subgraphs[key]
    return graph


def _add_loop(builder: Builder, node: NodeRecipe) -> None:
    from .loop_nodes import add_loop

    add_loop(builder, node)


def _add_scan(builder: Builder, node: NodeRecipe) -> None:
    from .loop_nodes import add_scan

    add_scan(builder, node)


CONTROL_NODES: dict[str, Callable[[Builder, NodeRecipe], None]] = {
    "If": _add_if,
    "Loop": _add_loop,
    "Scan": _add_scan,
}
