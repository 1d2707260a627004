"""Unique names for the nodes of an ONNX graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto


def make_node_names(graph: GraphProto) -> list[str]:
    """Return a unique name for each node of a graph. Names in files may be missing or repeated."""
    used_names: set[str] = set()
    names = []
    for index, node in enumerate(graph.node):
        base_name = name = node.name or f"{node.op_type}_{index}"
        count = 1
        while name in used_names:
            count += 1
            name = f"{base_name}#{count}"
        used_names.add(name)
        names.append(name)
    return names
