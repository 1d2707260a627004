"""Write ONNX nodes in place of an ONNX Runtime contrib node."""

from __future__ import annotations

from ..file.recipe import Attribute, NodeRecipe, NotExpressible, strip_trailing_empty
from .rewrite_helpers import Nodes, RewriteScope, get_input


class NodeWriter:
    """Collects the nodes that replace one node."""

    def __init__(self, node: NodeRecipe, scope: RewriteScope) -> None:
        self.node = node
        self.scope = scope
        self.nodes: Nodes = []
        self.outputs = node.outputs[:1]

    def add(self, op: str, *inputs: str, **attributes: Attribute) -> str:
        """Add a node and return its output name."""
        return self.add_named(self.scope.make_name(self.node, op), op, *inputs, **attributes)

    def add_named(self, output: str, op: str, *inputs: str, **attributes: Attribute) -> str:
        """Add a node that outputs `output`, and return that name."""
        name = f"{self.node.name}/{op}.{len(self.nodes)}"
        self.nodes.append(NodeRecipe(op, name, [*inputs], [output], attributes))
        return output

    def add_sum(self, values: list[str], output: str) -> str:
        """Return the sum of several values, named `output` if that is not empty."""
        total = values[0]
        for i, value in enumerate(values[1:], 2):
            name = output if output and i == len(values) else self.scope.make_name(self.node, "sum")
            total = self.add_named(name, "Add", total, value)
        return total

    def finish_with(self, op: str, *inputs: str, **attributes: Attribute) -> Nodes:
        """Finish with an operator that receives the replaced node's name and first output."""
        self.nodes.append(NodeRecipe(op, self.node.name, strip_trailing_empty([*inputs]), self.outputs, attributes))
        return self.nodes

    def reject_attributes(self, *attributes: str) -> None:
        """Raise NotExpressible if one of these attributes is non-zero."""
        for name in attributes:
            if self.node.attributes.get(name, 0) != 0:
                raise NotExpressible(f"{name}={self.node.attributes[name]}")

    def reject_inputs(self, first: int, *names: str) -> None:
        """Raise NotExpressible if one of these inputs, starting at index `first`, is present."""
        for index, name in enumerate(names, first):
            if get_input(self.node, index):
                raise NotExpressible(f"the input '{name}'")

    def reject_outputs(self, first: int, *names: str) -> None:
        """Raise NotExpressible if one of these outputs, starting at index `first`, is requested."""
        for name, output_name in zip(names, self.node.outputs[first:], strict=False):
            if output_name:
                raise NotExpressible(f"the output '{name}'")
