"""Extracts subgraphs as models, with their weights."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import onnx

from ..importer.file.model_file import Folder, ModelFile, Source
from ..importer.parse import parse
from .reference import Reference, ReferenceNode


class ModelParts:
    """Splits a model into subgraphs. keep: inputs that every subgraph gets, with the initializers of the same names."""

    def __init__(self, source: Source, folder: Folder | None, reference: Reference, keep: Collection[str] = ()) -> None:
        self._model = parse(ModelFile(source, folder), whole=True)
        graph = self._model.graph
        self.nodes = reference.nodes
        self.outputs = [value.name for value in graph.output]
        self._keep = set(keep)
        self._inputs = {value.name: value for value in graph.input}
        self._weights = {tensor.name: tensor for tensor in graph.initializer}
        self._sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        self._constants = {
            node.output[0]: node for node in graph.node if node.op_type == "Constant" and not node.domain
        }
        last = {name: index for index, node in enumerate(self.nodes) for name in node.inputs}
        last.update(dict.fromkeys(self.outputs, len(self.nodes)))
        self._last = last

    def alive(self, count: int) -> list[str]:
        """Return the live values after the first nodes, which later nodes or the caller read, in graph order."""
        return [
            name
            for node in self.nodes[:count]
            if not node.folded
            for name in node.outputs
            if self._last.get(name, -1) >= count
        ]

    def last_reader(self, name: str) -> int:
        """Return the index of a value's last reader; the number of nodes for an output, -1 without readers."""
        return self._last.get(name, -1)

    def prefix(self, count: int, outputs: Iterable[str]) -> onnx.ModelProto:
        """Return the first nodes, pruned to these outputs."""
        return self.part(self.nodes[:count], list(outputs), {})

    def part(
        self, nodes: list[ReferenceNode], outputs: list[str], given: dict[str, onnx.ValueInfoProto]
    ) -> onnx.ModelProto:
        """Return the nodes that the outputs depend on, as a model. given: values of other nodes, as inputs."""
        wanted, kept = set(outputs), []
        for node in reversed(nodes):
            if wanted.intersection(node.outputs):
                wanted.update(node.inputs)
                kept.append(node)
        read = self._keep.union(*(node.inputs for node in kept), outputs)
        made = onnx.ModelProto()
        made.ir_version = self._model.ir_version
        made.opset_import.extend(self._model.opset_import)
        graph = made.graph
        graph.name = self._model.graph.name
        graph.node.extend(node for name, node in self._constants.items() if name in read)
        for node in reversed(kept):
            graph.node.append(node.proto)
            graph.node[-1].name = node.name
        graph.input.extend(value for name, value in self._inputs.items() if name in read)
        graph.input.extend(value for name, value in given.items() if name in read)
        graph.initializer.extend(tensor for name, tensor in self._weights.items() if name in read)
        graph.sparse_initializer.extend(tensor for name, tensor in self._sparse.items() if name in read)
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
        return made
