"""Write ONNX nodes in place of an ONNX Runtime contrib node."""

from __future__ import annotations

from ..file.recipe import Attribute, NodeRecipe, NotExpressible, without_trailing_gaps
from .rewrite_helpers import Nodes, Scope, input_of


class Writer:
    """Collects the nodes that replace one node."""

    def __init__(self, node: NodeRecipe, scope: Scope) -> None:
        self.node = node
        self.scope = scope
        self.nodes: Nodes = []
        self.outputs = node.outputs[:1]

    def add(self, op: str, *inputs: str, **attributes: Attribute) -> str:
        """Add a node and return its output name."""
        return self.make(self.scope.fresh(self.node, op), op, *inputs, **attributes)

    def make(self, output: str, op: str, *inputs: str, **attributes: Attribute) -> str:
        """Add a node that outputs `output`, and return that name."""
        name = f"{self.node.name}/{op}.{len(self.nodes)}"
        self.nodes.append(NodeRecipe(op, name, [*inputs], [output], attributes))
        return output

    def sum_of(self, values: list[str], output: str) -> str:
        """Return the sum of several values, named `output` if that is not empty."""
        total = values[0]
        for i, value in enumerate(values[1:], 2):
            name = output if output and i == len(values) else self.scope.fresh(self.node, "sum")
            total = self.make(name, "Add", total, value)
        return total

    def last(self, op: str, *inputs: str, **attributes: Attribute) -> Nodes:
        """Finish with an operator that receives the replaced node's name and first output."""
        self.nodes.append(NodeRecipe(op, self.node.name, without_trailing_gaps([*inputs]), self.outputs, attributes))
        return self.nodes

    def refuse(self, *attributes: str) -> None:
        """Raise NotExpressible if one of these attributes is non-zero."""
        for name in attributes:
            if self.node.attributes.get(name, 0) != 0:
                raise NotExpressible(f"{name}={self.node.attributes[name]}")

    def refuse_inputs(self, first: int, *names: str) -> None:
        """Raise NotExpressible if one of these inputs, starting at index `first`, is present."""
        for index, name in enumerate(names, first):
            if input_of(self.node, index):
                raise NotExpressible(f"the input '{name}'")

    def refuse_outputs(self, first: int, *names: str) -> None:
        """Raise NotExpressible if one of these outputs, starting at index `first`, is requested."""
        for name, given in zip(names, self.node.outputs[first:], strict=False):
            if given:
                raise NotExpressible(f"the output '{name}'")
