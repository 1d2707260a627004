"""Timeout of Loops during validation: at 16-bit precision, the condition that ends a Loop may never become false."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import onnx
from onnx import numpy_helper

from ...importer.file.model_file import Folder, ModelFile, Source
from ...importer.parse_onnx import parse_model
from ..rules.bounded_tensor import MAX_ITERATIONS
from ..rules.program_values import read_constant_node

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto

MAX_LOOP_SECONDS = 15.0  # the largest timeout that a program accepts, in seconds


def get_loop_timeout(source: Source, folder: Folder | None) -> float | None:
    """Return the timeout per Loop in seconds; None if every Loop has an iteration count."""
    return get_graph_loop_timeout(parse_model(ModelFile(source, folder)).graph)


def get_graph_loop_timeout(graph: GraphProto) -> float | None:
    """Return the timeout per Loop of a graph in seconds; None if none is needed."""
    return MAX_LOOP_SECONDS if any(_iter_uncounted_loops(graph, {})) else None


def _iter_uncounted_loops(graph: GraphProto, outer: Mapping[str, TensorProto | NodeProto]) -> Iterator[bool]:
    """Yield, for each Loop, whether its iteration count is missing or exceeds the rules' limit."""
    known = {**outer, **{tensor.name: tensor for tensor in graph.initializer}}
    for node in graph.node:
        known.update(dict.fromkeys(node.output, node))
        if node.op_type == "Loop":
            yield not node.input[0] or _read_trip_count(known.get(node.input[0])) > MAX_ITERATIONS
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _iter_uncounted_loops(attribute.g, known)


def _read_trip_count(producer: TensorProto | NodeProto | None) -> int:
    """Return the iteration count if it is constant; 0 for a computed count or an input, which limits the Loop too."""
    if isinstance(producer, onnx.TensorProto):
        return int(numpy_helper.to_array(producer).reshape(-1)[0])
    if producer is not None and producer.op_type == "Constant":
        return int(read_constant_node(producer).reshape(-1)[0])
    return 0
