"""The table of translators for ONNX operators that do not map to one engine node. If becomes IF; Loop and Scan become WHILE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...base.errors import graph_error
from ..build.builder import GraphBuilder
from ..build.non_tensor_values import BuiltValue, ValueKind, get_value_kind
from ..build.subgraphs import (
    add_captured_inputs,
    flatten_tensors,
    get_captured_values,
    get_condition,
    get_subgraphs,
    make_capture_signature,
    make_subgraph_builder,
)
from ..file.graph_recipe import GraphRecipe, NodeRecipe
from .affine_grid import add_affine_grid
from .attention import ATTENTION_NODES
from .block_quantized_gemm import BLOCK_NODES
from .misc_operators import MISC_NODES
from .ml_operators import ML_NODES
from .ml_svm import SVM_NODES
from .nms_and_unique import NMS_AND_UNIQUE_NODES
from .random import RANDOM_NODES
from .sequences import SEQUENCE_NODES
from .tfidf_vectorizer import add_tfidf_vectorizer

if TYPE_CHECKING:
    from ..._pumice import Graph
    from ..build.builder import TranslatorTable


def _add_if(builder: GraphBuilder, node: NodeRecipe) -> None:
    recipes = get_subgraphs(builder, node, "then_branch", "else_branch")
    if len(node.inputs) != 1:
        raise graph_error("node", node.name, f"expected one input, the condition, given {len(node.inputs)}")
    values = get_captured_values(builder, recipes)
    used_outputs = [j for j, name in enumerate(node.outputs) if name]
    for role, recipe in zip(("then", "else"), recipes, strict=True):
        if recipe.inputs or len(recipe.outputs) < len(node.outputs):
            received = f"{len(recipe.inputs)} and {len(recipe.outputs)}"
            expected = f"no inputs and {len(node.outputs)} outputs of {role}_branch"
            raise graph_error("node", node.name, f"expected {expected}, given {received}")
    graphs, kinds = _build_branches(builder, node, recipes, used_outputs, values)
    condition = get_condition(builder, node, node.inputs[0])
    names = [
        name for j, kind in zip(used_outputs, kinds, strict=True) for name in kind.get_tensor_names(node.outputs[j])
    ]
    then, orelse = graphs
    if_outputs = builder.graph.if_(
        condition, then, orelse, inputs=flatten_tensors(values), name=node.name, output_names=names
    )
    remaining = iter(if_outputs)
    for j, kind in zip(used_outputs, kinds, strict=True):
        builder.set_values([node.outputs[j]], (kind.make_value(remaining),))


def _build_branches(
    builder: GraphBuilder,
    node: NodeRecipe,
    recipes: list[GraphRecipe],
    used_outputs: list[int],
    values: dict[str, BuiltValue],
) -> tuple[list[Graph], list[ValueKind]]:
    """Return the then and else graphs, and their output kinds."""
    key = (*map(id, recipes), builder.get_node_path(node), make_capture_signature(values), builder.graph.exact)
    if key not in builder.subgraphs:
        inners = []
        for role, recipe in zip(("then", "else"), recipes, strict=True):
            inner = make_subgraph_builder(builder, node, role, recipe)
            add_captured_inputs(inner, values)
            inner.add_nodes()
            inners.append(inner)
        kinds = []
        for j in used_outputs:
            then_kind, else_kind = (
                get_value_kind(inner.require_value(inner.recipe.outputs[j].name)) for inner in inners
            )
            if then_kind.sequence != else_kind.sequence:
                raise graph_error(
                    "node", node.name, f"output {j}: {then_kind} of then_branch, but {else_kind} of else_branch"
                )
            kinds.append(then_kind.with_optional(else_kind))
        for inner in inners:
            outputs = [(inner.recipe.outputs[j].name, kind) for j, kind in zip(used_outputs, kinds, strict=True)]
            for i, (name, kind) in enumerate(outputs):
                for part_index, value in enumerate(inner.make_subgraph_outputs(node, name, kind)):
                    inner.graph.output(
                        f"{used_outputs[i]}.{part_index}" if kind.is_non_tensor else f"{used_outputs[i]}", value
                    )
        builder.subgraphs[key] = [inner.graph for inner in inners], kinds
    graphs, kinds = builder.subgraphs[key]
    return graphs, kinds


# Loops are imported lazily, because few models need them.


def _add_loop(builder: GraphBuilder, node: NodeRecipe) -> None:
    from .loops import add_loop

    add_loop(builder, node)


def _add_scan(builder: GraphBuilder, node: NodeRecipe) -> None:
    from .loops import add_scan

    add_scan(builder, node)


TRANSLATORS: TranslatorTable = {
    "AffineGrid": add_affine_grid,
    "If": _add_if,
    "Loop": _add_loop,
    "Scan": _add_scan,
    **ATTENTION_NODES,
    **BLOCK_NODES,
    "TfIdfVectorizer": add_tfidf_vectorizer,
    **MISC_NODES,
    **ML_NODES,
    **RANDOM_NODES,
    **SEQUENCE_NODES,
    **NMS_AND_UNIQUE_NODES,
    **SVM_NODES,
}
