"""A model's nodes, one by one, as onnx's reference implementation runs them. Nothing of pumice's own import is used on data."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import onnx
from onnx import helper, numpy_helper

from .element_types import Array
from .model_file import ModelFile, Source
from .node_order import in_order, needed
from .onnx_import import node_names, parse
from .recipe import NodeRecipe

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}


class ReferenceNode:
    """One node as a model of its own."""

    def __init__(self, name: str, node: NodeProto, model: ModelProto) -> None:
        self.name = name
        self.op = node.op_type
        self.inputs = list(dict.fromkeys(filter(None, node.input)))
        self.outputs = [output for output in node.output if output]
        self.random = node.op_type in _RANDOM
        self._node = node
        self._opsets = model.opset_import
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

    def __init__(self, source: Source) -> None:
        file = ModelFile(source)
        model = parse(file)
        folder = os.path.dirname(file.path)
        self.constants: dict[str, Array] = {
            tensor.name: numpy_helper.to_array(tensor, folder) for tensor in model.graph.initializer
        }
        protos = dict(zip(node_names(model.graph), model.graph.node, strict=True))
        recipes = [
            NodeRecipe(node.op_type, name, list(node.input), list(node.output), {}) for name, node in protos.items()
        ]
        known = {*self.constants, *(value.name for value in model.graph.input)}
        ordered = needed(in_order(recipes, known), [value.name for value in model.graph.output])
        nodes = [ReferenceNode(node.name, protos[node.name], model) for node in ordered]
        self.nodes = [node for node in nodes if node.op != "Constant"]
        for node in nodes:
            if node.op == "Constant":
                self.constants.update(node.run({}))
