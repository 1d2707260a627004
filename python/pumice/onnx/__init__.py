"""Import ONNX models as the engine's Graphs."""

from __future__ import annotations

from .._pumice import Graph
from ..base.errors import unsupported_error
from ..importer.file.model_file import Folder, Source
from ..importer.load_graph import load_graph

__all__ = ["import_graph"]


def import_graph(source: Source, folder: Folder | None = None) -> Graph:
    """Return the Graph of a model given as a path, bytes, a file object or a ModelProto; folder: see pumice.load.

    Raise UnsupportedError listing everything unsupported, GraphError if the model breaks a rule.
    """
    graph, recipe = load_graph(source, folder)
    inputs_and_outputs = dict.fromkeys(value.name for value in (*recipe.inputs, *recipe.outputs))
    if names := [name for name in inputs_and_outputs if name in recipe.string_values]:
        unsupported = [f"'{name}': strings, which a Graph does not support" for name in names]
        raise unsupported_error(f"graph of model '{recipe.name}'", unsupported)
    return graph
