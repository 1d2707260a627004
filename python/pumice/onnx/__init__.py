"""ONNX models as the engine's Graphs."""

from __future__ import annotations

from .._pumice import Graph
from ..graph_cache import load_graph
from ..model_file import Source

__all__ = ["import_graph"]


def import_graph(source: Source) -> Graph:
    """The Graph of a model given as a path, bytes or a ModelProto.

    Raises UnsupportedError with everything that is not supported, GraphError where the model breaks a rule.
    """
    return load_graph(source)[0]
