"""The table of rewrites: operators that become other ONNX nodes, and the functions that rewrite them.

String tensors have a separate table (MOVES in string_to_index.py).
"""

from __future__ import annotations

from ...base.errors import graph_error
from ..file.graph_recipe import NodeRecipe
from .contrib_nodes import FLOAT_NODES
from .contrib_quantized import QUANTIZED_NODES
from .early_opsets import FIRST_UPGRADES, drop_consumed_inputs
from .later_opsets import LATER_UPGRADES
from .rewrite_helpers import NodeRewrite, Nodes, RewriteScope, get_input

MIN_OPSET, MAX_OPSET = 1, 28  # supported range of ONNX opsets
CONTRIB_DOMAIN = "com.microsoft"

# ONNX operator -> [(first opset with the change, function that upgrades nodes of older opsets)], oldest change first.
UPGRADES: dict[str, list[tuple[int, NodeRewrite]]] = {
    name: [*FIRST_UPGRADES.get(name, ()), *LATER_UPGRADES.get(name, ())]
    for name in sorted({*FIRST_UPGRADES, *LATER_UPGRADES})
}
# ONNX Runtime contrib operator -> function that rewrites it.
CONTRIB: dict[str, NodeRewrite] = {**FLOAT_NODES, **QUANTIZED_NODES}


def rewrite_node(node: NodeRecipe, version: int, scope: RewriteScope) -> Nodes:
    """Rewrite a node as ONNX nodes of the latest opset. It is unchanged if the tables have no entry for it.

    version: the node's ONNX opset. Raise UnrepresentableError if this form of the node is unsupported, GraphError if the node is
    invalid.
    """
    return [
        rewritten for upgraded in _upgrade_node(node, version, scope) for rewritten in _rewrite_contrib(upgraded, scope)
    ]


def _upgrade_node(node: NodeRecipe, version: int, scope: RewriteScope) -> Nodes:
    nodes = [drop_consumed_inputs(node, version)]
    for since, upgrade in UPGRADES.get(node.op, ()):
        if version >= since or node.domain:
            continue
        if not get_input(node, 0) and node.op != "Scan":  # the first input of Scan-8 is optional
            raise graph_error("node", node.name, f"{node.op} without its first input")
        nodes = [*nodes[:-1], *upgrade(nodes[-1], scope)]
    return nodes


def _rewrite_contrib(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    # ONNX Runtime emits SimplifiedLayerNormalization in ONNX's domain.
    is_simplified_norm = node.op == "SimplifiedLayerNormalization" and not node.domain
    rewrite = CONTRIB.get(node.op) if node.domain == CONTRIB_DOMAIN or is_simplified_norm else None
    return rewrite(node, scope) if rewrite else [node]
