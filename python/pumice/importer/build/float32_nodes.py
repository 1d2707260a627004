"""Finds the engine's nodes that come from nodes of the file which are to compute in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..._pumice import Graph
    from ..file.recipe import NodeRecipe


class Float32Nodes:
    """Collects the names, as reports have them, of all that the builder makes of the nodes that are wanted.

    `wants` is asked once for each node of the file, with the node and its name behind the names of the graphs around it.
    """

    def __init__(self, wants: Callable[[NodeRecipe, str], bool]) -> None:
        self.wants = wants
        self.names: list[str] = []

    def note(self, graph: Graph, prefix: str, first: int) -> None:
        """Takes the nodes of a graph from a position on."""
        self.names.extend(prefix + name for name in graph.node_names(first))
