"""Extracts nodes of a model as a model of their own, with their constants, and stored tensors as inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ..._pumice import Error
from ...base.element_types import Array
from ...model.precision_policy import DEFAULT, Precision, escape_literal, parse_policy
from .reference_model import ReferenceModel, ReferenceNode

_MIN_IR_VERSION = 8  # ONNX file format version that most readers support


class Subgraph(NamedTuple):
    """A subgraph as a model, and its inputs by name."""

    proto: onnx.ModelProto
    inputs: dict[str, Array]

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes."""
        return [node.name for node in self.proto.graph.node]

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs."""
        return [value.name for value in self.proto.graph.output]

    @property
    def constants(self) -> dict[str, Array]:
        """Constants by name."""
        return {tensor.name: numpy_helper.to_array(tensor) for tensor in self.proto.graph.initializer}

    @property
    def bytes(self) -> int:
        """Size of the model and its inputs."""
        return int(self.proto.ByteSize()) + sum(array.nbytes for array in self.inputs.values())


class MissingTensorError(Error, LookupError):
    """Raised if a subgraph needs a tensor that is not stored: a sequence, or an intermediate of a fused kernel."""


def extract_subgraph(
    reference: ReferenceModel,
    nodes: Collection[str],
    values: Mapping[str, Array],
    outputs: Iterable[str] | None = None,
    changed: Mapping[str, Array] | None = None,
) -> Subgraph:
    """Return the named nodes as a model.

    values: tensors by name; tensors that the nodes read and do not compute become inputs. outputs: by default all results
    that other nodes or the caller read. changed: new values of constants. Raise MissingTensorError if an input is not in
    `values`.
    """
    chosen = [node for node in reference.nodes if node.name in nodes]
    produced = {name for node in chosen for name in node.outputs}
    read = list(dict.fromkeys(name for node in chosen for name in node.inputs if name not in produced))
    known = {**reference.constants, **(changed or {})}
    constants = {name: known[name] for name in read if name in known and name not in values}
    missing = [name for name in read if name not in constants and not isinstance(values.get(name), np.ndarray)]
    if missing:
        raise MissingTensorError(f"no tensor is stored for {', '.join(missing)}")
    inputs = {name: values[name] for name in read if name not in constants}
    results = list(outputs) if outputs is not None else _find_outputs(reference, chosen)
    graph = helper.make_graph(
        [_copy_named_node(node) for node in chosen],
        "part",
        [make_value_info(name, array) for name, array in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in results],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid(domain, version) for domain, version in reference.opsets.items()]
    version = max(helper.find_min_ir_version_for(opsets, ignore_unknown=True), _MIN_IR_VERSION)
    return Subgraph(helper.make_model(graph, opset_imports=opsets, ir_version=version, producer_name="pumice"), inputs)


def _find_outputs(reference: ReferenceModel, chosen: list[ReferenceNode]) -> list[str]:
    """Return the results that other nodes read, or that none of these nodes reads."""
    read_inside = {name for node in chosen for name in node.inputs}
    names = {node.name for node in chosen}
    read_elsewhere = {name for node in reference.nodes if node.name not in names for name in node.inputs}
    read_elsewhere.update(reference.outputs)
    return [name for node in chosen for name in node.outputs if name not in read_inside or name in read_elsewhere]


def _copy_named_node(node: ReferenceNode) -> onnx.NodeProto:
    copied = onnx.NodeProto()
    copied.CopyFrom(node.proto)
    copied.name = node.name
    return copied


def make_value_info(name: str, array: Array) -> onnx.ValueInfoProto:
    """Return the declaration of a graph input for an array."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def make_subgraph_precision(precision: Precision, proto: onnx.ModelProto) -> Precision:
    """Return the precision policy of a subgraph, by node name."""
    policy = parse_policy(precision)
    if policy.is_uniform:
        return policy.precision
    nodes = {
        escape_literal(node.name): policy.get_precision(node.name, _get_qualified_operator(node))
        for node in proto.graph.node
    }
    return {DEFAULT: policy.precision, **nodes}


def _get_qualified_operator(node: onnx.NodeProto) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else str(node.op_type)
