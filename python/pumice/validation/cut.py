"""Parts of models as models: some nodes, the constants that they read, and stored tensors for what other nodes would have made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .._pumice import Error
from ..base.element_types import Array
from ..model.policy import DEFAULT, Precision, literal, policy_of
from .reference import Reference, ReferenceNode

_LEAST_IR = 8  # the version of ONNX's file format that most readers know


class Cut(NamedTuple):
    """A model of some nodes of another, and the inputs on which it is run, by name."""

    proto: onnx.ModelProto
    inputs: dict[str, Array]

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes."""
        return [node.name for node in self.proto.graph.node]

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs."""
        return [value.name for value in self.proto.graph.output]

    @property
    def constants(self) -> dict[str, Array]:
        """The constants by name."""
        return {tensor.name: numpy_helper.to_array(tensor) for tensor in self.proto.graph.initializer}

    @property
    def bytes(self) -> int:
        """The size of the model and of its inputs."""
        return int(self.proto.ByteSize()) + sum(array.nbytes for array in self.inputs.values())


class MissingTensor(Error, LookupError):
    """A part needs a tensor that is not stored: a sequence, or one that only a fused kernel held."""


def cut(
    reference: Reference,
    nodes: Collection[str],
    values: Mapping[str, Array],
    outputs: Iterable[str] | None = None,
    changed: Mapping[str, Array] | None = None,
) -> Cut:
    """The named nodes as a model. `values`: tensors by name, of which those become inputs that the nodes read and do not make. `outputs`:
    by default all that the nodes make and another node, or the model's caller, reads. `changed`: constants in the place of the model's own.
    Raises MissingTensor.
    """
    chosen = [node for node in reference.nodes if node.name in nodes]
    made = {name for node in chosen for name in node.outputs}
    read = list(dict.fromkeys(name for node in chosen for name in node.inputs if name not in made))
    known = {**reference.constants, **(changed or {})}
    constants = {name: known[name] for name in read if name in known and name not in values}
    missing = [name for name in read if name not in constants and not isinstance(values.get(name), np.ndarray)]
    if missing:
        raise MissingTensor(f"no tensor is stored for {', '.join(missing)}")
    inputs = {name: values[name] for name in read if name not in constants}
    results = list(outputs) if outputs is not None else _results(reference, chosen, made)
    graph = helper.make_graph(
        [_named(node) for node in chosen],
        "part",
        [declared(name, array) for name, array in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in results],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid(domain, version) for domain, version in reference.opsets.items()]
    version = max(helper.find_min_ir_version_for(opsets, ignore_unknown=True), _LEAST_IR)
    return Cut(helper.make_model(graph, opset_imports=opsets, ir_version=version, producer_name="pumice"), inputs)


def _results(reference: Reference, chosen: list[ReferenceNode], made: set[str]) -> list[str]:
    """What the nodes make and do not read themselves, or others read."""
    own = {name for node in chosen for name in node.inputs}
    names = {node.name for node in chosen}
    elsewhere = {name for node in reference.nodes if node.name not in names for name in node.inputs}
    elsewhere.update(reference.outputs)
    return [name for node in chosen for name in node.outputs if name not in own or name in elsewhere]


def _named(node: ReferenceNode) -> onnx.NodeProto:
    made = onnx.NodeProto()
    made.CopyFrom(node.proto)
    made.name = node.name
    return made


def declared(name: str, array: Array) -> onnx.ValueInfoProto:
    """The declaration of a graph's input of such an array."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def part_precision(given: Precision, proto: onnx.ModelProto) -> Precision:
    """The policy of a part: what a model's policy says of the nodes in it, by their names."""
    policy = policy_of(given)
    if policy.is_plain:
        return policy.precision
    nodes = {literal(node.name): policy.of(node.name, _operator(node)) for node in proto.graph.node}
    return {DEFAULT: policy.precision, **nodes}


def _operator(node: onnx.NodeProto) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else str(node.op_type)
