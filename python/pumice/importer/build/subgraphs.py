"""Helpers for nodes with subgraphs. An outer-scope value becomes an input of the subgraph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.element_types import Array
from ...base.errors import graph_error
from ..file.recipe import NodeRecipe, Recipe
from .builder import Builder, Refused
from .compound_values import Made, kind_of, leaves, replaced

if TYPE_CHECKING:
    from ..._pumice import Value

SINGLE = np.array([1])  # the shape of conditions and counts in the engine's control flow


def subgraphs_of(builder: Builder, node: NodeRecipe, *attributes: str) -> list[Recipe]:
    """Return the subgraphs in a node's attributes.

    Raise GraphError if one is missing, Refused if one is unsupported.
    """
    recipes = []
    reasons = []
    for attribute in attributes:
        recipe = node.attributes.get(attribute)
        if not isinstance(recipe, Recipe):
            raise graph_error("node", node.name, f"expected a graph as attribute '{attribute}', given none")
        recipes.append(recipe)
        reasons += _unsupported(builder, recipe, f"{builder.path(node)}.{attribute}")
    if reasons:
        builder.unsupported.extend(reasons)
        raise Refused
    return recipes


def _unsupported(builder: Builder, recipe: Recipe, path: str) -> list[str]:
    """Return all unsupported features in a subgraph. The subgraph is not built, because its outer-scope values may not
    exist.
    """
    reasons = [f"graph '{path}': {reason}" for reason in recipe.unsupported]
    for node in recipe.nodes:
        if reason := builder.unsupported_node(node, f"{path}/{node.name}"):
            reasons.append(reason)
        for name, graph in node.subgraphs.items():
            reasons += _unsupported(builder, graph, f"{path}/{node.name}.{name}")
    return reasons


def captured(builder: Builder, recipes: list[Recipe]) -> dict[str, Made]:
    """Return the outer-scope values that subgraphs use, except constants, which each subgraph contains itself."""
    names = dict.fromkeys(name for recipe in recipes for name in recipe.captured)
    return {name: builder.operand(name) for name in names if name not in builder.constants}


def inner_builder(builder: Builder, node: NodeRecipe, role: str, recipe: Recipe) -> Builder:
    """Return a Builder for a node's subgraph. role: such as "then" or "body", for the graph's name."""
    return Builder(recipe, builder.composed, f"{builder.path(node)}.{role}", builder)


def tensors(values: dict[str, Made]) -> list[Value]:
    """Return all tensors of the values."""
    return [leaf for value in values.values() for leaf in leaves(value)]


def add_captured(inner: Builder, values: dict[str, Made]) -> None:
    """Add captured values as inputs of a subgraph, including those that only another branch reads."""
    for name, value in values.items():
        own = name in inner.recipe.captured
        stem = name if own else f"{inner.graph.name}/outer {name}"
        made = leaves(value)
        names = [stem] if made == [value] else [f"{stem}/{i}" for i in range(len(made))]
        assumed = inner.outer is not None and not inner.outer.graph.exact
        taken = [
            inner.graph.input(one, leaf.dtype, leaf.shape, assumed=assumed)
            for one, leaf in zip(names, made, strict=True)
        ]
        if own:
            inner.values[name] = replaced(value, iter(taken))


def signature(values: dict[str, Made]) -> tuple[Any, ...]:
    """Return the names, kinds and shapes of captured values: a subgraph is built only once for equal signatures."""
    return tuple(
        (name, str(kind_of(value)), *((leaf.dtype, leaf.shape) for leaf in leaves(value)))
        for name, value in values.items()
    )


def single_bool(builder: Builder, node: NodeRecipe, name: str) -> Value | Array:
    """Return a condition as bool[1] for the engine's control flow. Raise GraphError for anything but a single bool."""
    array = builder.array(name)
    if array is not None:
        if array.dtype != np.bool_ or array.size != 1:
            raise graph_error(
                "node", node.name, f"condition '{name}': expected one bool, given {array.dtype}{array.shape}"
            )
        return array.reshape(1)
    value = builder.tensor(name)
    if value.dtype != "bool":
        raise graph_error("node", node.name, f"condition '{name}': expected one bool, given {value.dtype}")
    return value if value.shape == (1,) else builder.helper(node, "Reshape", value, SINGLE)
