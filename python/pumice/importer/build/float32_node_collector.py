"""Collect the names of the engine nodes that must compute in fp32."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..._pumice import Graph
    from ..file.graph_recipe import NodeRecipe


class Float32NodeCollector:
    """Collects the report names of all engine nodes built from the selected nodes of a model file.

    `is_selected` is called once per node of the file, with the node and its path (its name, prefixed with the names of the
    enclosing graphs).
    """

    def __init__(self, is_selected: Callable[[NodeRecipe, str], bool]) -> None:
        self.is_selected = is_selected
        self.names: list[str] = []

    def record_nodes(self, graph: Graph, prefix: str, first: int) -> None:
        """Record the nodes of `graph` from index `first` on. prefix: path of the graph."""
        self.names.extend(prefix + name for name in graph.node_names(first))
