"""Extracts subgraphs of a model as models, with their weights."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import onnx

from ...importer.file.model_file import Folder, ModelFile, Source
from ...importer.parse_onnx import parse_model
from .reference_model import ReferenceModel, ReferenceNode


class ModelSplitter:
    """Splits a model into subgraphs. kept_inputs: inputs of every subgraph, with the initializers of the same names."""

    def __init__(
        self, source: Source, folder: Folder | None, reference: ReferenceModel, kept_inputs: Collection[str] = ()
    ) -> None:
        self._model = parse_model(ModelFile(source, folder), with_weights=True)
        graph = self._model.graph
        self.nodes = reference.nodes
        self.outputs = [value.name for value in graph.output]
        self._kept_inputs = set(kept_inputs)
        self._inputs = {value.name: value for value in graph.input}
        self._weights = {tensor.name: tensor for tensor in graph.initializer}
        self._sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        self._constants = {
            node.output[0]: node for node in graph.node if node.op_type == "Constant" and not node.domain
        }
        last = {name: index for index, node in enumerate(self.nodes) for name in node.inputs}
        last.update(dict.fromkeys(self.outputs, len(self.nodes)))
        self._last_readers = last

    def find_live_values(self, count: int) -> list[str]:
        """Return the values available after `count` nodes that later nodes or the caller read: names in graph order."""
        return [
            name
            for node in self.nodes[:count]
            if not node.is_folded
            for name in node.outputs
            if self._last_readers.get(name, -1) >= count
        ]

    def find_last_reader(self, name: str) -> int:
        """Return the index of the last node that reads a value; the number of nodes for an output, -1 if nothing reads it."""
        return self._last_readers.get(name, -1)

    def extract_prefix(self, count: int, outputs: Iterable[str]) -> onnx.ModelProto:
        """Return the first `count` nodes as a model, without those that `outputs` do not depend on."""
        return self.extract(self.nodes[:count], list(outputs), {})

    def extract(
        self, nodes: list[ReferenceNode], outputs: list[str], extra_inputs: dict[str, onnx.ValueInfoProto]
    ) -> onnx.ModelProto:
        """Return the nodes that `outputs` depend on as a model. extra_inputs: results of other nodes that become inputs."""
        needed, kept_nodes = set(outputs), []
        for node in reversed(nodes):
            if needed.intersection(node.outputs):
                needed.update(node.inputs)
                kept_nodes.append(node)
        read = self._kept_inputs.union(*(node.inputs for node in kept_nodes), outputs)
        submodel = onnx.ModelProto()
        submodel.ir_version = self._model.ir_version
        submodel.opset_import.extend(self._model.opset_import)
        graph = submodel.graph
        graph.name = self._model.graph.name
        graph.node.extend(node for name, node in self._constants.items() if name in read)
        for node in reversed(kept_nodes):
            graph.node.append(node.proto)
            graph.node[-1].name = node.name
        graph.input.extend(value for name, value in self._inputs.items() if name in read)
        graph.input.extend(value for name, value in extra_inputs.items() if name in read)
        graph.initializer.extend(tensor for name, tensor in self._weights.items() if name in read)
        graph.sparse_initializer.extend(tensor for name, tensor in self._sparse.items() if name in read)
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
        return submodel
