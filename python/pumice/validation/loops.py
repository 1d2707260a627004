"""How long a Loop may take in a validation: one that ends by its condition alone may never end at a precision of 16 bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import onnx
from onnx import numpy_helper

from ..importer.file.model_file import Folder, ModelFile, Source
from ..importer.parse import parse
from .bounds.control import MOST_ITERATIONS
from .bounds.run import constant_of

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto

LONGEST = 15.0  # seconds, the most that a program takes for a limit


def loop_timeout(source: Source, folder: Folder | None) -> float | None:
    """Seconds for each Loop of a model; None where all of them have a count of iterations, and end."""
    return timeout_of(parse(ModelFile(source, folder)).graph)


def timeout_of(graph: GraphProto) -> float | None:
    """The same of a model's graph."""
    return LONGEST if any(_uncounted(graph, {})) else None


def _uncounted(graph: GraphProto, outer: Mapping[str, TensorProto | NodeProto]) -> Iterator[bool]:
    """Yields for each Loop whether it has no count of iterations, or one that the rules do not follow."""
    known = {**outer, **{tensor.name: tensor for tensor in graph.initializer}}
    for node in graph.node:
        known.update(dict.fromkeys(node.output, node))
        if node.op_type == "Loop":
            yield not node.input[0] or _count(known.get(node.input[0])) > MOST_ITERATIONS
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _uncounted(attribute.g, known)


def _count(made: TensorProto | NodeProto | None) -> int:
    """The iterations that a constant asks for; 0 for a count that is computed or an input, by which a Loop ends too."""
    if isinstance(made, onnx.TensorProto):
        return int(numpy_helper.to_array(made).reshape(-1)[0])
    if made is not None and made.op_type == "Constant":
        return int(constant_of(made).reshape(-1)[0])
    return 0
