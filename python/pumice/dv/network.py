"""Convert a Graph to commands of the dv interface and packed weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import numpy.typing as npt

from .._pumice import Graph, from_whc8, to_whc8
from ..base.element_types import Array
from ..base.errors import binding_error
from ..base.host_arrays import as_array
from ..importer.file.model_file import Source
from ..importer.load_graph import load_graph
from ..model.model import Model
from ..model.model_runs import Outputs
from .command_planning import CommandPlan, get_node_names, plan_network
from .commands import Conv, FullyConnected
from .context_and_memory import Context, Memory
from .node_converters import convert_graph


@dataclass(frozen=True)
class NetworkOutput:
    """An output in the activation memory: float16 in the layout WHC8, with images of `extent` (channels, height, width)."""

    name: str
    shape: tuple[int, ...]  # shape of the result
    extent: tuple[int, int, int]
    offset: int  # byte offset in the activation memory
    softmax_axis: int | None  # axis of a softmax computed on the host

    @property
    def elements(self) -> int:
        """Return the number of elements of the result."""
        return math.prod(self.shape)

    def result(self, elements: Array) -> Array:
        """Return the result, float32 of `shape`, from the device's float16 elements."""
        images = self.elements // math.prod(self.extent)
        float_values = from_whc8(elements, (images, *self.extent)).astype(np.float32).reshape(self.shape)
        if self.softmax_axis is None:
            return float_values
        exponentials = np.exp(float_values - float_values.max(axis=self.softmax_axis, keepdims=True))
        return np.asarray(exponentials / exponentials.sum(axis=self.softmax_axis, keepdims=True))


class Network:
    """A graph as commands, their packed weights, and the offsets of its input and outputs; created by `from_graph`."""

    def __init__(self, graph: Graph, input_shape: Sequence[int] | None, images: int, quantize: bool) -> None:
        if images < 1:
            raise binding_error("D4", "images", "at least 1", str(images), kind="argument")
        converter = convert_graph(graph, input_shape, images)
        self._plan: CommandPlan = plan_network(converter, quantize)
        self.name = graph.name
        self.input_shape: tuple[int, ...] = (images, *converter.input.shape)
        self.input_offset = self._plan.get_byte_offset(converter.input)
        self.outputs: list[NetworkOutput] = []
        for name, value in graph.outputs.items():
            activations_of_output = converter.outputs[name]
            rank = 4 if value.shape is None else len(value.shape)
            shape = (images, *activations_of_output.shape) if rank == 4 else (images, activations_of_output.elements)
            axis = converter.softmax_axes.get(value)
            self.outputs.append(
                NetworkOutput(
                    name, shape, activations_of_output.shape, self._plan.get_byte_offset(activations_of_output), axis
                )
            )

    @property
    def weights(self) -> bytes:
        """Return the concatenated packed weights of all runs: the contents of the weight memory."""
        return self._plan.weights

    @property
    def activation_bytes(self) -> int:
        """Return the required size of the activation memory in bytes."""
        return self._plan.activation_bytes

    @property
    def nodes(self) -> list[list[list[str]]]:
        """Return the names of the graph's nodes, by command and run."""
        return get_node_names(self._plan.groups)

    def commands(self, weights: Memory | int, activations: Memory | int) -> list[Conv | FullyConnected]:
        """Return the commands for these two memories, given as Memory objects or as handles for raw commands."""
        return self._plan.commands(weights, activations)

    def to_input(self, images: npt.ArrayLike) -> Array:
        """Convert images of `input_shape` to the float16 elements that the device reads at `input_offset`.

        Raise BindingError for another shape or a non-numeric dtype.
        """
        array = as_array(images, "images", f"numbers of shape {self.input_shape}", "argument")
        if array.shape != self.input_shape or array.dtype.kind not in "fiu":
            raise binding_error(
                "D4",
                "images",
                f"numbers of shape {self.input_shape}",
                f"{array.dtype} of shape {array.shape}",
                kind="argument",
            )
        return to_whc8(array.astype(np.float16))

    def load(self, context: Context | None = None) -> LoadedNetwork:
        """Load the network on a device, by default the default context's.

        Raise DeviceError if it cannot be opened, OutOfMemoryError if the network does not fit.
        """
        return LoadedNetwork(self, context)

    def __repr__(self) -> str:
        outputs = ", ".join(f"{output.name}: {output.shape}" for output in self.outputs)
        return f"<dv.Network '{self.name}' {self.input_shape} -> {outputs}; {len(self.nodes)} commands>"


class LoadedNetwork:
    """A Network with allocated memories and its command list; a context manager. Calls must not overlap."""

    def __init__(self, network: Network, context: Context | None) -> None:
        self.network = network
        context = context or Context()
        self._memories = context.memory(max(len(network.weights), 1)), context.memory(network.activation_bytes)
        self.commands = context.command_list()
        self._memories[0].write(network.weights)
        for command in network.commands(*self._memories):
            self.commands.add(command)
        self.commands.commit()

    def __call__(self, images: npt.ArrayLike, timeout: float | None = None) -> Array | Outputs:
        """Run the network on images of its `input_shape` and wait.

        Return the output as float32, or all outputs in the graph's order. timeout in seconds. Raise BindingError for another input shape,
        TimeoutError if the timeout expires, DeviceLostError if the device is lost.
        """
        activations, outputs = self._memories[1], self.network.outputs
        activations.write(self.network.to_input(images), self.network.input_offset)
        self.commands.run(timeout)
        results = [output.result(activations.read(np.float16, output.elements, output.offset)) for output in outputs]
        return results[0] if len(results) == 1 else Outputs.named(tuple(output.name for output in outputs))(results)

    def close(self) -> None:
        """Free the memories after the work in flight has finished. Idempotent."""
        for resource in (self.commands, *self._memories):
            resource.close()

    def __enter__(self) -> LoadedNetwork:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def from_graph(
    graph: Graph | Model | Source, input_shape: Sequence[int] | None = None, *, images: int = 1, quantize: bool = False
) -> Network:
    """Convert a convolutional network to commands and packed weights of the dv interface.

    graph: a Graph with constant weights, a Model, or any argument of `pumice.load`. input_shape: (channels, height, width), required if the
    graph leaves dimensions open. images: batch size. quantize: store weights as 8-bit indices into a table per layer.

    Convolutions, deconvolutions, matrix products, pooling, sums, activations and batch normalizations become runs; chains of them and
    concatenations of channels become commands with several runs. A final Softmax runs on the host. LRN is the interface's own
    approximation. Raise UnsupportedError listing every node that cannot be converted, GraphError for weights outside float16.
    """
    if isinstance(graph, Model):
        graph, _ = load_graph(graph.source, graph.folder, kernels=graph.kernel_table)
    elif not isinstance(graph, Graph):
        graph, _ = load_graph(graph)
    return Network(graph, input_shape, images, quantize)
