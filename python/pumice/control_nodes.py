"""Operators of ONNX that are no nodes of the engine: If, Loop and Scan are its IF and WHILE, sequences are tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .compounds import Kind, Made, kind_of
from .errors import graph_error
from .graph_builder import Builder
from .grid_nodes import add_affine_grid
from .loop_nodes import add_loop, add_scan
from .ml_nodes import ML_NODES
from .recipe import NodeRecipe, Recipe
from .selection_nodes import INT64, SELECTION_NODES
from .sequence_nodes import SEQUENCE_NODES
from .subgraphs import add_captured, captured, inner_builder, signature, single_bool, subgraphs_of, tensors

if TYPE_CHECKING:
    from ._pumice import Graph
    from .graph_builder import ControlNodes


def _add_if(builder: Builder, node: NodeRecipe) -> None:
    recipes = subgraphs_of(builder, node, "then_branch", "else_branch")
    if len(node.inputs) != 1:
        raise graph_error("node", node.name, f"expected one input, the condition, given {len(node.inputs)}")
    values = captured(builder, recipes)
    kept = [j for j, name in enumerate(node.outputs) if name]
    for role, recipe in zip(("then", "else"), recipes, strict=True):
        if recipe.inputs or len(recipe.outputs) < len(node.outputs):
            given = f"{len(recipe.inputs)} and {len(recipe.outputs)}"
            expected = f"no inputs and {len(node.outputs)} outputs of {role}_branch"
            raise graph_error("node", node.name, f"expected {expected}, given {given}")
    graphs, kinds = _branches(builder, node, recipes, kept, values)
    condition = single_bool(builder, node, node.inputs[0])
    names = [name for j, kind in zip(kept, kinds, strict=True) for name in kind.names(node.outputs[j])]
    then, orelse = graphs
    made = builder.graph.if_(condition, then, orelse, inputs=tensors(values), name=node.name, output_names=names)
    left = iter(made)
    for j, kind in zip(kept, kinds, strict=True):
        builder.keep([node.outputs[j]], (kind.packed(left),))


def _branches(
    builder: Builder, node: NodeRecipe, recipes: list[Recipe], kept: list[int], values: dict[str, Made]
) -> tuple[list[Graph], list[Kind]]:
    """Both graphs, and of which kind what they give is."""
    key = (*map(id, recipes), builder.path(node), signature(values))
    if key not in builder.subgraphs:
        inners = []
        for role, recipe in zip(("then", "else"), recipes, strict=True):
            inner = inner_builder(builder, node, role, recipe)
            add_captured(inner, values)
            inner.add_nodes()
            inners.append(inner)
        kinds = []
        for j in kept:
            one, other = (kind_of(inner.operand(inner.recipe.outputs[j].name)) for inner in inners)
            if one.sequence != other.sequence:
                raise graph_error("node", node.name, f"output {j}: {one} of then_branch, but {other} of else_branch")
            kinds.append(one.joined(other))
        for inner in inners:
            outputs = [(inner.recipe.outputs[j].name, kind) for j, kind in zip(kept, kinds, strict=True)]
            for i, (name, kind) in enumerate(outputs):
                for part, value in enumerate(inner.made_values(node, name, kind)):
                    inner.graph.output(f"{kept[i]}.{part}" if kind.compound else f"{kept[i]}", value)
        builder.subgraphs[key] = [inner.graph for inner in inners], kinds
    graphs, kinds = builder.subgraphs[key]
    return graphs, kinds


def _add_dropout(builder: Builder, node: NodeRecipe) -> None:
    """Outside training its mask is true everywhere."""
    builder.add_plain(node._replace(outputs=node.outputs[:1]))
    if len(node.outputs) > 1:
        shape = builder.helper(node, "Shape", builder.tensor(node.inputs[0]))
        mask = builder.helper(node, "ConstantOfShape", shape, output=node.outputs[1], value=np.array([True]))
        builder.keep(node.outputs[1:], (mask,))


def _add_batch_normalization(builder: Builder, node: NodeRecipe) -> None:
    """In training it takes the statistics of its input; exporters leave that where weights are standardised."""
    if node.attributes.get("training_mode", 0) != 1:
        builder.add_plain(node)
        return
    x, scale, bias, *before = (builder.tensor(name) for name in node.inputs)
    if x.shape is None:
        raise graph_error("node", node.name, "expected an input of known rank")
    helper, axes = builder.helper, np.array([axis for axis in range(len(x.shape)) if axis != 1])
    mean = helper(node, "ReduceMean", x, axes, keepdims=1)
    apart = helper(node, "Sub", x, mean)
    variance = helper(node, "ReduceMean", helper(node, "Mul", apart, apart), axes, keepdims=0)
    mean = helper(node, "Squeeze", mean, axes)
    epsilon, momentum = (node.attributes.get(name, value) for name, value in (("epsilon", 1e-5), ("momentum", 0.9)))
    if not isinstance(epsilon, float) or not isinstance(momentum, float):
        raise graph_error(
            "node", node.name, f"expected numbers as epsilon and momentum, given {epsilon!r} and {momentum!r}"
        )
    output = node.outputs[0]
    made: list[Made] = [
        helper(node, "BatchNormalization", x, scale, bias, mean, variance, output=output, epsilon=epsilon)
    ]
    for running, now in zip(before, (mean, variance), strict=True):
        kept = helper(node, "Mul", running, helper(node, "CastLike", np.array(momentum, np.float32), running))
        new = helper(node, "CastLike", np.array(1 - momentum, np.float32), running)
        made.append(helper(node, "Add", kept, helper(node, "Mul", helper(node, "CastLike", now, running), new)))
    for name, value in zip(node.outputs, made, strict=False):
        if name:
            builder.keep([name], (value,))


def _add_one_hot(builder: Builder, node: NodeRecipe) -> None:
    """Its indices and its depth may be of any numbers."""
    converted = list(node.inputs)
    for i, name in enumerate(node.inputs[:2]):
        value = builder.tensor(name)
        if value.dtype not in ("int64", "int32"):
            converted[i] = f"{node.name}/{name} as int64"
            builder.values[converted[i]] = builder.helper(node, "Cast", value, to=INT64)
    builder.add_plain(node._replace(inputs=converted))


CONTROL_NODES: ControlNodes = {
    "AffineGrid": add_affine_grid,
    "BatchNormalization": _add_batch_normalization,
    "Dropout": _add_dropout,
    "If": _add_if,
    "Loop": add_loop,
    "OneHot": _add_one_hot,
    "Scan": add_scan,
    **ML_NODES,
    **SEQUENCE_NODES,
    **SELECTION_NODES,
}
