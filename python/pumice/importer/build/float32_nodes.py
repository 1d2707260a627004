"""Find the engine's nodes that were built from nodes in the file that must compute in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..._pumice import Graph
    from ..file.recipe import NodeRecipe


class Float32Nodes:
    """Collects the names, as used in reports, of all engine nodes built from the selected nodes.

    `is_selected` is called once per node in the file, with the node and its name, which is prefixed with the enclosing
    graphs' names.
    """

    def __init__(self, is_selected: Callable[[NodeRecipe, str], bool]) -> None:
        self.is_selected = is_selected
        self.names: list[str] = []

    def record_nodes(self, graph: Graph, prefix: str, first: int) -> None:
        """Record the nodes of a graph from index `first` on."""
        self.names.extend(prefix + name for name in graph.node_names(first))
