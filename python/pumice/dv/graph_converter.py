"""Convert the nodes of a Graph to layers of the dv interface."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from .._pumice import Graph, Node, Value
from ..base.element_types import Array
from ..base.errors import unsupported_error
from .commands import Run
from .layers import Activations, Layer, LayerWeights, Shape


class NotConvertibleError(Exception):
    """Raised if a node cannot be converted to the dv interface. The message is the reason; it is empty if the producer of an input was
    rejected.
    """


def require_convertible(condition: object, reason: str) -> None:
    """Raise NotConvertibleError with the reason unless the condition holds."""
    if not condition:
        raise NotConvertibleError(reason)


class GraphConverter:
    """Converts a graph with one input to layers. Raise UnsupportedError listing every node that cannot be converted."""

    def __init__(
        self,
        graph: Graph,
        input_shape: Sequence[int] | None,
        images: int,
        handlers: Mapping[str, Callable[[GraphConverter, Node], None]],
    ) -> None:
        self.graph = graph
        self.images = images
        self.layers: list[Layer] = []
        self.softmax_axes: dict[Value, int] = {}  # graph output -> axis of its final Softmax, which the host computes
        self.unsupported: list[str] = []
        self.outputs: dict[str, Activations] = {}
        self._activations: dict[Value, Activations] = {}
        self._producers: dict[Activations, Layer] = {}
        self._concat_inputs: dict[Activations, list[Activations]] = {}
        self._shared: set[Activations] = set()  # activations that several graph values alias
        self._use_counts = Counter(value for node in graph.nodes for value in node.inputs if value is not None)
        self._use_counts.update(graph.outputs.values())
        self.input = self._convert_input(input_shape)
        for node in graph.nodes:
            try:
                require_convertible(node.op in handlers, "no such operator")
                handlers[node.op](self, node)
            except NotConvertibleError as reason:
                if str(reason):
                    op = node.attributes["operator"] if node.op == "pumice::Kernel" else node.op
                    self.unsupported.append(f"node '{node.name}': {op}: {reason}")
        self._raise_if_unsupported()
        self.outputs = {name: self._convert_output(name, value) for name, value in graph.outputs.items()}
        self._raise_if_unsupported()

    def _raise_if_unsupported(self) -> None:
        if self.unsupported:
            raise unsupported_error(f"graph '{self.graph.name}' in the dv interface", self.unsupported)

    def _convert_input(self, requested_shape: Sequence[int] | None) -> Activations:
        values = self.graph.inputs
        declared_shape = (values[0].shape or ()) if len(values) == 1 else ()
        shape = declared_shape[1:] if requested_shape is None else requested_shape
        sizes = tuple(int(size) for size in shape if size is not None and size > 0)
        if len(declared_shape) != 4 or len(sizes) != 3:
            input_list = ", ".join(f"'{value.name}' of shape {value.shape}" for value in values)
            expectation = "expected one input, of images of known (channels, height, width)"
            self.unsupported.append(
                f"inputs {input_list}{'' if requested_shape is None else f' as {tuple(requested_shape)}'}: {expectation}"
            )
            self._raise_if_unsupported()
        channels, height, width = sizes
        activations = self._activations[values[0]] = Activations((channels, height, width))
        return activations

    def _convert_output(self, name: str, value: Value) -> Activations:
        activations = self._activations.get(value, self.input)
        if activations.root is self.input:
            self.unsupported.append(f"output '{name}': no node produces it")
        return activations

    def is_output(self, activations: Activations) -> bool:
        """Return whether the activations are an output of the graph."""
        return any(activations is output for output in self.outputs.values())

    # ---- accessors used by the node converters

    def get_input_activations(self, node: Node, i: int = 0) -> Activations:
        """Return the activations of input `i` of the node. Raise NotConvertibleError for a constant, or if its producer was rejected."""
        value = node.inputs[i]
        if value is None or value not in self._activations:
            require_convertible(value is None or value.constant is None, f"input {i} is a constant")
            raise NotConvertibleError  # its producer was rejected
        return self._activations[value]

    @staticmethod
    def get_constant(node: Node, i: int, description: str) -> Array:
        """Return the elements of input `i` of the node. Raise NotConvertibleError, naming `description`, if it is not constant."""
        value = node.inputs[i]
        array = None if value is None else value.constant
        if array is None:
            raise NotConvertibleError(f"{description} that are not constant")
        return array

    @staticmethod
    def has_input(node: Node, i: int) -> bool:
        """Return whether input `i` of the node is present."""
        return i < len(node.inputs) and node.inputs[i] is not None

    def is_final_output(self, node: Node) -> bool:
        """Return whether the node's result is an output of the graph and has no other consumer."""
        activations = node.outputs[0]
        return self._use_counts[activations] == sum(activations == output for output in self.graph.outputs.values()) > 0

    def find_fusable_layer(self, node: Node, i: int = 0) -> Layer | None:
        """Return the layer whose only consumer is this node, so that the node can be fused into it; else None."""
        value, activations = node.inputs[i], self.get_input_activations(node, i)
        return (
            None
            if value is None or self._use_counts[value] != 1 or activations in self._shared
            else self._producers.get(activations)
        )

    def find_producer_index(self, activations: Activations) -> int:
        """Return the index of the layer that completes the activations; -1 for the graph's input."""
        if activations in self._concat_inputs:
            return max(
                self.find_producer_index(slice_activations) for slice_activations in self._concat_inputs[activations]
            )
        return self.layers.index(self._producers[activations]) if activations in self._producers else -1

    def add_layer(
        self, node: Node, source: Activations, shape: Shape, run: Run, weights: LayerWeights | None = None
    ) -> Layer:
        """Add a layer that computes the node's output."""
        layer = Layer([], source, Activations(shape), run, weights)
        self.layers.append(layer)
        self.fuse_node(node, layer, shape)
        return layer

    def fuse_node(self, node: Node, layer: Layer, shape: Shape | None = None) -> None:
        """Fuse the node into the layer; the layer's result becomes the node's output."""
        self._producers.pop(layer.target, None)
        layer.target = self._activations[node.outputs[0]] = Activations(shape or layer.target.shape)
        self._producers[layer.target] = layer
        layer.nodes.append(node.name)

    def concatenate(self, node: Node, pieces: Sequence[Activations]) -> None:
        """Make the node's output the concatenation of `pieces` in memory. No piece may belong to another concatenation."""
        _, height, width = pieces[0].shape
        parent = self._activations[node.outputs[0]] = Activations(
            (sum(slice_activations.shape[0] for slice_activations in pieces), height, width)
        )
        self._concat_inputs[parent] = list(pieces)
        offset_in_parent = 0
        for slice_activations in pieces:
            slice_activations.parent, slice_activations.offset_in_parent = parent, offset_in_parent
            offset_in_parent += slice_activations.elements

    def can_concatenate(self, activations: Activations) -> bool:
        """Return whether the activations can become part of a concatenation: not the graph's input, and not in another concatenation."""
        return activations is not self.input and activations.parent is None

    def make_alias(self, node: Node) -> None:
        """Make the node's output an alias of its input."""
        value, activations = node.inputs[0], self.get_input_activations(node)
        if value is not None and self._use_counts[value] > 1:
            self._shared.add(activations)
        self._activations[node.outputs[0]] = activations
