"""The table of rewrites: which operators become other ONNX nodes, and by which functions.

Strings have their own table without functions (MOVES in strings.py): it lists the operators that only move elements and
therefore work unchanged on string indices.
"""

from __future__ import annotations

from ...base.errors import graph_error
from ..file.recipe import NodeRecipe
from .contrib_nodes import FLOAT_NODES
from .contrib_quantized import QUANTIZED_NODES
from .early_opsets import FIRST_UPGRADES, drop_consumed_inputs
from .later_opsets import LATER_UPGRADES
from .rewrite_helpers import Nodes, RewriteScope, Upgrade, get_input

MIN_OPSET, MAX_OPSET = 1, 28  # supported range of ONNX opsets
CONTRIB_DOMAIN = "com.microsoft"

# ONNX operator -> (opset that introduced the change, function that upgrades nodes from older opsets), oldest change first.
UPGRADES: dict[str, list[tuple[int, Upgrade]]] = {
    name: [*FIRST_UPGRADES.get(name, ()), *LATER_UPGRADES.get(name, ())]
    for name in sorted({*FIRST_UPGRADES, *LATER_UPGRADES})
}
# ONNX Runtime contrib operator -> function that rewrites it.
CONTRIB: dict[str, Upgrade] = {**FLOAT_NODES, **QUANTIZED_NODES}


def rewrite_node(node: NodeRecipe, version: int, scope: RewriteScope) -> Nodes:
    """Return the node as ONNX nodes at the latest opset; unchanged if the table has no entry.

    version: the model's ONNX opset. Raise NotExpressible if a form of the node is unsupported, GraphError if the node
    is invalid.
    """
    return [
        rewritten for upgraded in _upgrade_node(node, version, scope) for rewritten in _rewrite_contrib(upgraded, scope)
    ]


def _upgrade_node(node: NodeRecipe, version: int, scope: RewriteScope) -> Nodes:
    nodes = [drop_consumed_inputs(node, version)]
    for since, upgrade in UPGRADES.get(node.op, ()):
        if version >= since or node.domain:
            continue
        if not get_input(node, 0) and node.op != "Scan":  # Scan's first input was optional
            raise graph_error("node", node.name, f"{node.op} without its first input")
        nodes = [*nodes[:-1], *upgrade(nodes[-1], scope)]
    return nodes


def _rewrite_contrib(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    # ONNX Runtime emits this contrib operator in ONNX's domain.
    is_simplified_norm = node.op == "SimplifiedLayerNormalization" and not node.domain
    rewrite = CONTRIB.get(node.op) if node.domain == CONTRIB_DOMAIN or is_simplified_norm else None
    return rewrite(node, scope) if rewrite else [node]
