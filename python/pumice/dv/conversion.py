"""Convert the nodes of a Graph to layers of the dv interface."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from .._pumice import Graph, Node, Value
from ..base.element_types import Array
from ..base.errors import unsupported_error
from .commands import Run
from .layers import Activations, Layer, Shape, Weights


class NoForm(Exception):
    """Raised if a node cannot be converted to the dv interface. The message is the reason, or empty if a producer of its inputs was
    rejected.
    """


def require(holds: object, reason: str) -> None:
    """Raise NoForm with the reason unless the condition holds."""
    if not holds:
        raise NoForm(reason)


class Conversion:
    """Converts a graph with one input to layers. Raise UnsupportedError listing every node that cannot be converted."""

    def __init__(
        self,
        graph: Graph,
        input_shape: Sequence[int] | None,
        images: int,
        handlers: Mapping[str, Callable[[Conversion, Node], None]],
    ) -> None:
        self.graph = graph
        self.images = images
        self.layers: list[Layer] = []
        self.softmax_axes: dict[Value, int] = {}  # output -> axis of the Softmax that is left to the host
        self.unsupported: list[str] = []
        self.outputs: dict[str, Activations] = {}
        self._made: dict[Value, Activations] = {}
        self._makers: dict[Activations, Layer] = {}
        self._parts: dict[Activations, list[Activations]] = {}
        self._shared: set[Activations] = set()  # activations shared by several values
        self._uses = Counter(value for node in graph.nodes for value in node.inputs if value is not None)
        self._uses.update(graph.outputs.values())
        self.input = self._input(input_shape)
        for node in graph.nodes:
            try:
                require(node.op in handlers, "no such operator")
                handlers[node.op](self, node)
            except NoForm as reason:
                if str(reason):
                    op = node.attributes["operator"] if node.op == "pumice::Kernel" else node.op
                    self.unsupported.append(f"node '{node.name}': {op}: {reason}")
        self._check()
        self.outputs = {name: self._output(name, value) for name, value in graph.outputs.items()}
        self._check()

    def _check(self) -> None:
        if self.unsupported:
            raise unsupported_error(f"graph '{self.graph.name}' in the dv interface", self.unsupported)

    def _input(self, given: Sequence[int] | None) -> Activations:
        values = self.graph.inputs
        known = (values[0].shape or ()) if len(values) == 1 else ()
        shape = known[1:] if given is None else given
        sizes = tuple(int(size) for size in shape if size is not None and size > 0)
        if len(known) != 4 or len(sizes) != 3:
            named = ", ".join(f"'{value.name}' of shape {value.shape}" for value in values)
            wanted = "expected one input, of images of known (channels, height, width)"
            self.unsupported.append(f"inputs {named}{'' if given is None else f' as {tuple(given)}'}: {wanted}")
            self._check()
        channels, height, width = sizes
        made = self._made[values[0]] = Activations((channels, height, width))
        return made

    def _output(self, name: str, value: Value) -> Activations:
        made = self._made.get(value, self.input)
        if made.root is self.input:
            self.unsupported.append(f"output '{name}': no node makes it")
        return made

    def is_output(self, made: Activations) -> bool:
        """Return whether the activations are an output of the graph."""
        return any(made is output for output in self.outputs.values())

    # ---- accessors for converters

    def source(self, node: Node, i: int = 0) -> Activations:
        """Return the activations of input `i` of the node. Raise NoForm for a constant, or if its producer was rejected."""
        value = node.inputs[i]
        if value is None or value not in self._made:
            require(value is None or value.constant is None, f"input {i} is a constant")
            raise NoForm  # its producer was rejected
        return self._made[value]

    @staticmethod
    def constant(node: Node, i: int, what: str) -> Array:
        """Return the elements of input `i` of the node. Raise NoForm, naming `what`, if it is not constant."""
        value = node.inputs[i]
        array = None if value is None else value.constant
        if array is None:
            raise NoForm(f"{what} that are not constant")
        return array

    @staticmethod
    def has_input(node: Node, i: int) -> bool:
        """Return whether input `i` of the node is present."""
        return i < len(node.inputs) and node.inputs[i] is not None

    def is_last(self, node: Node) -> bool:
        """Return whether the node's result is an output of the graph and has no other consumer."""
        made = node.outputs[0]
        return self._uses[made] == sum(made == output for output in self.graph.outputs.values()) > 0

    def open(self, node: Node, i: int = 0) -> Layer | None:
        """Return the layer whose only consumer is this node, so that the node can be fused into it; else None."""
        value, made = node.inputs[i], self.source(node, i)
        return None if value is None or self._uses[value] != 1 or made in self._shared else self._makers.get(made)

    def made_by(self, made: Activations) -> int:
        """Return the index of the layer that completes the activations; -1 for the graph's input."""
        if made in self._parts:
            return max(self.made_by(part) for part in self._parts[made])
        return self.layers.index(self._makers[made]) if made in self._makers else -1

    def add(self, node: Node, source: Activations, shape: Shape, run: Run, weights: Weights | None = None) -> Layer:
        """Add a layer that computes the node's output."""
        layer = Layer([], source, Activations(shape), run, weights)
        self.layers.append(layer)
        self.extend(node, layer, shape)
        return layer

    def extend(self, node: Node, layer: Layer, shape: Shape | None = None) -> None:
        """Fuse the node into the layer; the layer's result becomes the node's output."""
        self._makers.pop(layer.target, None)
        layer.target = self._made[node.outputs[0]] = Activations(shape or layer.target.shape)
        self._makers[layer.target] = layer
        layer.nodes.append(node.name)

    def join(self, node: Node, parts: Sequence[Activations]) -> None:
        """Concatenate `parts` in memory as the node's output. No part may belong to another concatenation."""
        _, height, width = parts[0].shape
        whole = self._made[node.outputs[0]] = Activations((sum(part.shape[0] for part in parts), height, width))
        self._parts[whole] = list(parts)
        first = 0
        for part in parts:
            part.whole, part.first = whole, first
            first += part.elements

    def may_join(self, part: Activations) -> bool:
        """Return whether the activations can join a concatenation: they must be neither the graph's input nor in another concatenation."""
        return part is not self.input and part.whole is None

    def alias(self, node: Node) -> None:
        """Make the node's output an alias of its input."""
        value, made = node.inputs[0], self.source(node)
        if value is not None and self._uses[value] > 1:
            self._shared.add(made)
        self._made[node.outputs[0]] = made
