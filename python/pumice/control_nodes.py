"""If, Loop and Scan of ONNX as the engine's IF and WHILE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import graph_error
from .graph_builder import Builder
from .loop_nodes import add_loop, add_scan
from .recipe import NodeRecipe, Recipe
from .subgraphs import add_captured, captured, inner_builder, signature, single_bool, subgraphs_of

if TYPE_CHECKING:
    from ._pumice import Graph, Value
    from .graph_builder import ControlNodes


def _add_if(builder: Builder, node: NodeRecipe) -> None:
    recipes = subgraphs_of(builder, node, "then_branch", "else_branch")
    if len(node.inputs) != 1:
        raise graph_error("node", node.name, f"expected one input, the condition, given {len(node.inputs)}")
    values = captured(builder, recipes)
    kept = [j for j, name in enumerate(node.outputs) if name]
    graphs = []
    for role, recipe in zip(("then", "else"), recipes, strict=True):
        if recipe.inputs or len(recipe.outputs) < len(node.outputs):
            given = f"{len(recipe.inputs)} and {len(recipe.outputs)}"
            expected = f"no inputs and {len(node.outputs)} outputs of {role}_branch"
            raise graph_error("node", node.name, f"expected {expected}, given {given}")
        graphs.append(_branch(builder, node, role, recipe, kept, values))
    condition = single_bool(builder, node, node.inputs[0])
    names = [node.outputs[j] for j in kept]
    inputs = list(values.values())
    builder.keep(
        names, builder.graph.if_(condition, graphs[0], graphs[1], inputs=inputs, name=node.name, output_names=names)
    )


def _branch(
    builder: Builder, node: NodeRecipe, role: str, recipe: Recipe, kept: list[int], values: dict[str, Value]
) -> Graph:
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


CONTROL_NODES: ControlNodes = {"If": _add_if, "Loop": add_loop, "Scan": add_scan}
