"""A model's nodes, one by one, as onnx's reference implementation runs them. Nothing of pumice's own import is used on data."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING

import onnx
from onnx import helper, numpy_helper

from ..base.element_types import Array
from ..importer.file.model_file import Folder, ModelFile, Source
from ..importer.file.node_names import node_names
from ..importer.file.node_order import in_order, needed
from ..importer.file.recipe import NodeRecipe
from ..importer.parse import opsets, parse
from ..importer.rewrites.first_opsets import FIRST_UPGRADES

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

_OLDEST = 7  # operator set
_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}


def _subgraphs(node: NodeProto) -> list[GraphProto]:
    return [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]


def _captured(graph: GraphProto) -> list[str]:
    """What a subgraph reads of those around it."""
    own = {value.name for value in [*graph.input, *graph.initializer]}.union(*(node.output for node in graph.node))
    read = [name for node in graph.node for name in _reads(node)] + [output.name for output in graph.output]
    return [name for name in read if name and name not in own]


def _reads(node: NodeProto) -> list[str]:
    return [*node.input, *(name for graph in _subgraphs(node) for name in _captured(graph))]


def _incomparable(node: NodeProto, false: Collection[str] = ()) -> str:
    """Why the reference says nothing of a node; "" where it does. `false`: constants that are."""
    trains = node.op_type == "Dropout" and len(node.input) > 2 and node.input[2] and node.input[2] not in false
    if node.op_type in _RANDOM or trains:
        return "random numbers, compared with none"
    if node.op_type == "Loop" and (len(node.input) < 2 or not node.input[1]):
        return "the reference runs no Loop without a condition"
    if node.op_type == "Loop" and len(node.output) > len(node.input) - 2:
        return "the reference joins what the iterations of a Loop give along an axis of theirs"
    inner = (_incomparable(inner) for graph in _subgraphs(node) for inner in graph.node)
    return next(filter(None, inner), "")


def _is_of_old_form(node: NodeProto, version: int) -> bool:
    """Whether the node is written otherwise than in the oldest set that the reference knows."""
    changes = FIRST_UPGRADES.get(node.op_type, ()) if not node.domain else ()
    return any(version < since for since, _ in changes)


class ReferenceNode:
    """One node as a model of its own."""

    def __init__(self, name: str, node: NodeProto, model: ModelProto, false: Collection[str]) -> None:
        self.name = name
        self.op = node.op_type
        self.inputs = list(dict.fromkeys(filter(None, _reads(node))))
        self.outputs = [output for output in node.output if output]
        self.incomparable = _incomparable(node, false)
        self._node = node
        self._opsets = list(model.opset_import)
        version = opsets(model).get("", _OLDEST)
        if version < _OLDEST:
            if _is_of_old_form(node, version):
                self.incomparable = self.incomparable or f"the reference knows no {self.op} of operator set {version}"
            self._node = onnx.NodeProto()
            self._node.CopyFrom(node)
            del self._node.attribute[:]
            self._node.attribute.extend(one for one in node.attribute if one.name != "consumed_inputs")
            others = [entry for entry in model.opset_import if entry.domain not in ("", "ai.onnx")]
            self._opsets = [helper.make_opsetid("", _OLDEST), *others]
        self._evaluator: onnx.reference.ReferenceEvaluator | None = None

    def run(self, values: dict[str, Array]) -> dict[str, Array]:
        """The node's outputs by name. Raises whatever the reference raises."""
        if self._evaluator is None:
            self._evaluator = self._made()
        results = self._evaluator.run(None, {name: values[name] for name in self.inputs})
        return dict(zip(self.outputs, results, strict=True))

    def _made(self) -> onnx.reference.ReferenceEvaluator:
        from onnx.reference import ReferenceEvaluator

        inputs = [onnx.ValueInfoProto(name=name) for name in self.inputs]
        outputs = [onnx.ValueInfoProto(name=name) for name in self.outputs]
        graph = helper.make_graph([self._node], self.name, inputs, outputs)
        return ReferenceEvaluator(helper.make_model(graph, opset_imports=self._opsets))


class Reference:
    """The nodes that the outputs depend on, in an order in which they can run, and the constants by name."""

    def __init__(self, source: Source, folder: Folder | None = None) -> None:
        file = ModelFile(source, folder)
        model = parse(file, whole=True)
        self.constants: dict[str, Array] = {
            tensor.name: numpy_helper.to_array(tensor, os.fspath(file.folder or ""))
            for tensor in model.graph.initializer
        }
        protos = dict(zip(node_names(model.graph), model.graph.node, strict=True))
        recipes = [NodeRecipe(node.op_type, name, _reads(node), list(node.output), {}) for name, node in protos.items()]
        known = {*self.constants, *(value.name for value in model.graph.input)}
        ordered = needed(in_order(recipes, known), [value.name for value in model.graph.output])
        for node in ordered:
            if node.op == "Constant":
                self.constants.update(ReferenceNode(node.name, protos[node.name], model, ()).run({}))
        false = {name for name, array in self.constants.items() if array.dtype == bool and not array.any()}
        self.nodes = [
            ReferenceNode(node.name, protos[node.name], model, false) for node in ordered if node.op != "Constant"
        ]
