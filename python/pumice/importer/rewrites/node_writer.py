"""Write the ONNX nodes that replace an ONNX Runtime contrib node."""

from __future__ import annotations

from ..file.graph_recipe import Attribute, NodeRecipe, UnrepresentableError, strip_trailing_empty
from .rewrite_helpers import Nodes, RewriteScope, get_input


class NodeWriter:
    """Collects the nodes that replace one node. Finish with finish_with() or add_named()."""

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
        """Add nodes for the sum of several values and return its name: `output`, or a new name if that is ""."""
        total = values[0]
        for i, value in enumerate(values[1:], 2):
            name = output if output and i == len(values) else self.scope.make_name(self.node, "sum")
            total = self.add_named(name, "Add", total, value)
        return total

    def finish_with(self, op: str, *inputs: str, **attributes: Attribute) -> Nodes:
        """Add the last node, with the replaced node's name and first output. Return all nodes."""
        self.nodes.append(NodeRecipe(op, self.node.name, strip_trailing_empty([*inputs]), self.outputs, attributes))
        return self.nodes

    def reject_attributes(self, *attributes: str) -> None:
        """Raise UnrepresentableError if one of these attributes is nonzero."""
        for name in attributes:
            if self.node.attributes.get(name, 0) != 0:
                raise UnrepresentableError(f"{name}={self.node.attributes[name]}")

    def reject_inputs(self, first: int, *names: str) -> None:
        """Raise UnrepresentableError if one of the inputs from index `first` on is present. names: their names for the message."""
        for index, name in enumerate(names, first):
            if get_input(self.node, index):
                raise UnrepresentableError(f"the input '{name}'")

    def reject_outputs(self, first: int, *names: str) -> None:
        """Raise UnrepresentableError if one of the outputs from index `first` on is used. names: their names for the message."""
        for name, output_name in zip(names, self.node.outputs[first:], strict=False):
            if output_name:
                raise UnrepresentableError(f"the output '{name}'")
