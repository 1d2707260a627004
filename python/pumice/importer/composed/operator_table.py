"""The table of ONNX operators that are not single engine nodes. If becomes IF, Loop and Scan become WHILE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...base.errors import graph_error
from ..build.builder import Builder
from ..build.compound_values import Kind, Made, kind_of
from ..build.subgraphs import add_captured, captured, inner_builder, signature, single_bool, subgraphs_of, tensors
from ..file.recipe import NodeRecipe, Recipe
from .attention import ATTENTION_NODES
from .block_quantized_gemm import BLOCK_NODES
from .misc_operators import FORM_NODES
from .affine_grid import add_affine_grid
from .ml_operators import ML_NODES
from .tfidf_vectorizer import add_tf_idf
from .random import RANDOM_NODES
from .selection import SELECTION_NODES
from .sequences import SEQUENCE_NODES
from .ml_svm import SVM_NODES

if TYPE_CHECKING:
    from ..._pumice import Graph
    from ..build.builder import Composed


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
    """Return the then and else graphs, and their output kinds."""
    key = (*map(id, recipes), builder.path(node), signature(values), builder.graph.exact)
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


# The modules for loops are imported lazily, because few models need them.


def _add_loop(builder: Builder, node: NodeRecipe) -> None:
    from .loops import add_loop

    add_loop(builder, node)


def _add_scan(builder: Builder, node: NodeRecipe) -> None:
    from .loops import add_scan

    add_scan(builder, node)


COMPOSED: Composed = {
    "AffineGrid": add_affine_grid,
    "If": _add_if,
    "Loop": _add_loop,
    "Scan": _add_scan,
    **ATTENTION_NODES,
    **BLOCK_NODES,
    "TfIdfVectorizer": add_tf_idf,
    **FORM_NODES,
    **ML_NODES,
    **RANDOM_NODES,
    **SEQUENCE_NODES,
    **SELECTION_NODES,
    **SVM_NODES,
}
