"""Time limit of Loops in validation: a Loop that ends only by its condition may never end at 16-bit precision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import onnx
from onnx import numpy_helper

from ..importer.file.model_file import Folder, ModelFile, Source
from ..importer.parse import parse_model
from .bounds.control_flow import MAX_ITERATIONS
from .bounds.rule_runner import constant_node_value

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto

MAX_LOOP_SECONDS = 15.0  # seconds; the largest limit that a program accepts


def loop_timeout(source: Source, folder: Folder | None) -> float | None:
    """Return the time limit of each Loop in seconds; None if all of them have an iteration count."""
    return graph_loop_timeout(parse_model(ModelFile(source, folder)).graph)


def graph_loop_timeout(graph: GraphProto) -> float | None:
    """Return the time limit for a graph."""
    return MAX_LOOP_SECONDS if any(_is_loop_uncounted(graph, {})) else None


def _is_loop_uncounted(graph: GraphProto, outer: Mapping[str, TensorProto | NodeProto]) -> Iterator[bool]:
    """Yield for each Loop whether it has no iteration count, or one above the rules' limit."""
    known = {**outer, **{tensor.name: tensor for tensor in graph.initializer}}
    for node in graph.node:
        known.update(dict.fromkeys(node.output, node))
        if node.op_type == "Loop":
            yield not node.input[0] or _trip_count(known.get(node.input[0])) > MAX_ITERATIONS
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _is_loop_uncounted(attribute.g, known)


def _trip_count(producer: TensorProto | NodeProto | None) -> int:
    """Return the value of a constant iteration count; 0 for a computed count or an input, which also ends the Loop."""
    if isinstance(producer, onnx.TensorProto):
        return int(numpy_helper.to_array(producer).reshape(-1)[0])
    if producer is not None and producer.op_type == "Constant":
        return int(constant_node_value(producer).reshape(-1)[0])
    return 0
