"""Expand operators without a rule into the nodes that the importer builds for them, which then supply the bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, ValueInfoProto, helper, numpy_helper

from ..._pumice import BindingError, GraphError, UnsupportedError
from ...importer.build.builder import build_graph
from ...importer.file.model_file import ModelFile
from ...importer.parse_onnx import make_recipe, parse_model
from ...importer.translators.operator_table import TRANSLATORS
from ..rules.bounded_tensor import BoundedTensor, Value

if TYPE_CHECKING:
    from ..._pumice import Node


def import_node(node: NodeProto, inputs: Sequence[Value], opsets: Mapping[str, int]) -> GraphProto | None:
    """Return the nodes that the importer builds for a node, as ONNX nodes of the latest opset.

    The inputs of the graph are those of the node; its outputs are in the order of the node's named outputs. Return None if the
    importer rejects the node or keeps it as it is, or if it reads sequences or strings or has subgraphs.
    """
    if any(isinstance(item, list) or (item is not None and item.dtype == object) for item in inputs):
        return None
    if any(attribute.type == AttributeProto.GRAPH for attribute in node.attribute):
        return None
    try:
        file = ModelFile(_make_model(node, inputs, opsets))
        graph = build_graph(make_recipe(parse_model(file), file), TRANSLATORS)
    except (BindingError, GraphError, UnsupportedError, TypeError, ValueError):
        return None
    names = list(node.input)
    nodes = [_make_node(item) for item in graph.nodes]
    if [(item.domain, item.op_type, list(item.input)) for item in nodes] == [(node.domain, node.op_type, names)]:
        return None
    values = {value.name: value for item in graph.nodes for value in item.inputs if value is not None}
    values.update((value.name, value) for value in graph.outputs.values())
    arrays = {name: value.constant for name, value in values.items() if name not in names}
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items() if array is not None]
    outputs = [ValueInfoProto(name=value.name) for value in graph.outputs.values()]
    graph_inputs = [ValueInfoProto(name=name) for name in names]
    return helper.make_graph(nodes, node.op_type, graph_inputs, outputs, constants)


def _make_model(node: NodeProto, inputs: Sequence[Value], opsets: Mapping[str, int]) -> onnx.ModelProto:
    """Return a model with this node. Constants are initializers, because some translators need their elements."""
    graph_inputs, initializers = [], []
    for name, value in dict(zip(node.input, inputs, strict=False)).items():
        if not isinstance(value, BoundedTensor):
            continue
        if value.constant:
            initializers.append(numpy_helper.from_array(np.asarray(value.value).astype(value.dtype), name))
        else:
            dtype = helper.np_dtype_to_tensor_dtype(value.dtype)
            graph_inputs.append(helper.make_tensor_value_info(name, dtype, value.shape))
    outputs = [ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], node.op_type, graph_inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*item) for item in opsets.items()])


def _make_node(node: Node) -> NodeProto:
    domain, _, op = node.op.rpartition("::")
    inputs = [value.name if value is not None else "" for value in node.inputs]
    proto = helper.make_node(op, inputs, [value.name for value in node.outputs], node.name, domain=domain)
    for name, value in node.attributes.items():
        item: Any = numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        kind = AttributeProto.INTS if isinstance(item, list | tuple) and not item else None
        proto.attribute.append(helper.make_attribute(name, item, attr_type=kind))
    return proto
