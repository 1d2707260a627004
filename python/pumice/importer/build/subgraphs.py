"""Helpers for nodes with subgraphs. Outer-scope values become inputs of the engine's subgraph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.element_types import Array
from ...base.errors import graph_error
from ..file.graph_recipe import GraphRecipe, NodeRecipe
from .builder import GraphBuilder, NodeRejectedError
from .non_tensor_values import BuiltValue, get_tensors, get_value_kind, replace_tensors

if TYPE_CHECKING:
    from ..._pumice import Value

SHAPE_1 = np.array([1])  # shape of conditions and counts in the engine's control flow


def get_subgraphs(builder: GraphBuilder, node: NodeRecipe, *attributes: str) -> list[GraphRecipe]:
    """Return the subgraphs in a node's attributes.

    Raise GraphError if one is missing, NodeRejectedError if one is unsupported.
    """
    recipes = []
    reasons = []
    for attribute in attributes:
        recipe = node.attributes.get(attribute)
        if not isinstance(recipe, GraphRecipe):
            raise graph_error("node", node.name, f"expected a graph as attribute '{attribute}', given none")
        recipes.append(recipe)
        reasons += _find_unsupported(builder, recipe, f"{builder.get_node_path(node)}.{attribute}")
    if reasons:
        builder.unsupported.extend(reasons)
        raise NodeRejectedError
    return recipes


def _find_unsupported(builder: GraphBuilder, recipe: GraphRecipe, path: str) -> list[str]:
    """Return all unsupported features of a subgraph without building it, because its outer-scope values may not exist."""
    reasons = [f"graph '{path}': {reason}" for reason in recipe.unsupported]
    for node in recipe.nodes:
        if reason := builder.get_unsupported_reason(node, f"{path}/{node.name}"):
            reasons.append(reason)
        for name, graph in node.subgraphs.items():
            reasons += _find_unsupported(builder, graph, f"{path}/{node.name}.{name}")
    return reasons


def get_captured_values(builder: GraphBuilder, recipes: list[GraphRecipe]) -> dict[str, BuiltValue]:
    """Return the outer-scope values that subgraphs read, except constants, which are copied into each subgraph."""
    names = dict.fromkeys(name for recipe in recipes for name in recipe.captured)
    return {name: builder.require_value(name) for name in names if name not in builder.constants}


def make_subgraph_builder(builder: GraphBuilder, node: NodeRecipe, role: str, recipe: GraphRecipe) -> GraphBuilder:
    """Return a GraphBuilder for a node's subgraph. role: a suffix for the graph's name, such as "then" or "body"."""
    return GraphBuilder(recipe, builder.translators, f"{builder.get_node_path(node)}.{role}", builder)


def flatten_tensors(values: dict[str, BuiltValue]) -> list[Value]:
    """Return all tensors of the values."""
    return [leaf for value in values.values() for leaf in get_tensors(value)]


def add_captured_inputs(inner: GraphBuilder, values: dict[str, BuiltValue]) -> None:
    """Add captured values as inputs of a subgraph. All branches of a node get the same inputs, even inputs they do not read."""
    for name, value in values.items():
        is_read_here = name in inner.recipe.captured
        base_name = name if is_read_here else f"{inner.graph.name}/outer {name}"
        value_tensors = get_tensors(value)
        names = [base_name] if value_tensors == [value] else [f"{base_name}/{i}" for i in range(len(value_tensors))]
        assumed = inner.outer is not None and not inner.outer.graph.exact
        subgraph_inputs = [
            inner.graph.input(input_name, leaf.dtype, leaf.shape, assumed=assumed)
            for input_name, leaf in zip(names, value_tensors, strict=True)
        ]
        if is_read_here:
            inner.values[name] = replace_tensors(value, iter(subgraph_inputs))


def make_capture_signature(values: dict[str, BuiltValue]) -> tuple[Any, ...]:
    """Return the names, kinds and shapes of captured values as a cache key: a subgraph is built once per signature."""
    return tuple(
        (name, str(get_value_kind(value)), *((leaf.dtype, leaf.shape) for leaf in get_tensors(value)))
        for name, value in values.items()
    )


def get_condition(builder: GraphBuilder, node: NodeRecipe, name: str) -> Value | Array:
    """Return a condition as bool[1] for the engine's control flow. Raise GraphError if it is not a single bool."""
    array = builder.get_constant_array(name)
    if array is not None:
        if array.dtype != np.bool_ or array.size != 1:
            raise graph_error(
                "node", node.name, f"condition '{name}': expected one bool, given {array.dtype}{array.shape}"
            )
        return array.reshape(1)
    value = builder.require_tensor(name)
    if value.dtype != "bool":
        raise graph_error("node", node.name, f"condition '{name}': expected one bool, given {value.dtype}")
    return value if value.shape == (1,) else builder.add_helper(node, "Reshape", value, SHAPE_1)
