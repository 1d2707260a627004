"""The table of rewrites: which operators become other ONNX nodes, and by which functions.

Strings have their own table without functions (MOVES in strings.py): it lists the operators that only move elements and
therefore work unchanged on string indices.
"""

from __future__ import annotations

from ...base.errors import graph_error
from ..file.recipe import NodeRecipe
from .contrib_nodes import FLOAT_NODES
from .contrib_quantized import QUANTIZED_NODES
from .early_opsets import FIRST_UPGRADES, without_hints
from .rewrite_helpers import Nodes, Scope, Upgrade, input_of
from .later_opsets import LATER_UPGRADES

OLDEST, NEWEST = 1, 28  # supported range of ONNX opsets
CONTRIB_DOMAIN = "com.microsoft"

# ONNX operator -> (opset that introduced the change, function that upgrades nodes from older opsets), oldest change first.
UPGRADES: dict[str, list[tuple[int, Upgrade]]] = {
    name: [*FIRST_UPGRADES.get(name, ()), *LATER_UPGRADES.get(name, ())]
    for name in sorted({*FIRST_UPGRADES, *LATER_UPGRADES})
}
# ONNX Runtime contrib operator -> function that rewrites it.
CONTRIB: dict[str, Upgrade] = {**FLOAT_NODES, **QUANTIZED_NODES}


def rewritten(node: NodeRecipe, version: int, scope: Scope) -> Nodes:
    """Return the node as ONNX nodes at the latest opset; unchanged if the table has no entry.

    version: the model's ONNX opset. Raise NotExpressible if a form of the node is unsupported, GraphError if the node
    is invalid.
    """
    return [made for newest in _upgraded(node, version, scope) for made in _of_onnx(newest, scope)]


def _upgraded(node: NodeRecipe, version: int, scope: Scope) -> Nodes:
    nodes = [without_hints(node, version)]
    for since, upgrade in UPGRADES.get(node.op, ()):
        if version >= since or node.domain:
            continue
        if not input_of(node, 0) and node.op != "Scan":  # Scan's first input was optional
            raise graph_error("node", node.name, f"{node.op} without its first input")
        nodes = [*nodes[:-1], *upgrade(nodes[-1], scope)]
    return nodes


def _of_onnx(node: NodeRecipe, scope: Scope) -> Nodes:
    # ONNX Runtime emits this contrib operator in ONNX's domain.
    own = node.op == "SimplifiedLayerNormalization" and not node.domain
    known = CONTRIB.get(node.op) if node.domain == CONTRIB_DOMAIN or own else None
    return known(node, scope) if known else [node]
