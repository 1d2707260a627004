"""Group layers into commands and plan their memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ..base.errors import unsupported_error
from .commands import MAX_RUNS, Conv, FullyConnected, MemoryLocation
from .context_and_memory import Memory
from .graph_converter import GraphConverter
from .layers import Activations, Layer

_ALIGNMENT = 256  # alignment of tensors in memory, in bytes
_FP16_BYTES = 2  # bytes per float16 element


@dataclass
class _CommandGroup:
    """The layers of one command: one or more chains. The last layers of the chains write adjacent outputs."""

    layers: list[Layer]
    topo: int

    @property
    def source(self) -> Activations:
        return self.layers[0].source

    @property
    def targets(self) -> list[Activations]:
        return [layer.target for i, layer in enumerate(self.layers) if self.topo >> i & 1]

    @property
    def addend(self) -> Activations | None:
        return self.layers[-1].addend

    @property
    def can_be_merged(self) -> bool:
        return self.addend is None and not self.layers[-1].needs_separate_command


def _build_chains(converter: GraphConverter) -> list[_CommandGroup]:
    """Group layers into chains whose intermediate results stay on chip, because they have no other consumer.

    Chains are ordered by their last layer, which may also read a second tensor, its `addend`.
    """
    readers: Counter[Activations | None] = Counter()
    for layer in converter.layers:
        readers.update((layer.source, layer.addend))
    chains: dict[Activations, _CommandGroup] = {}  # keyed by the output of the chain's last layer
    for layer in converter.layers:
        source_activations = layer.source
        previous = chains.get(source_activations)
        stays_on_chip = (
            readers[source_activations] == 1
            and source_activations.parent is None
            and not converter.is_output(source_activations)
        )
        if (
            previous is None
            or not stays_on_chip
            or layer.needs_separate_command
            or not previous.can_be_merged
            or len(previous.layers) == MAX_RUNS
        ):
            chains[layer.target] = _CommandGroup([layer], 1)
            continue
        del chains[source_activations]
        chains[layer.target] = _CommandGroup([*previous.layers, layer], previous.topo << 1)
    return list(chains.values())


def _can_merge(group: _CommandGroup, chain: _CommandGroup) -> bool:
    """Return whether a group and a chain can form one command: they need the same input and adjacent outputs."""
    previous, target = group.targets[-1], chain.targets[0]
    is_adjacent = previous.root is target.root and previous.offset + previous.elements == target.offset
    fits = len(group.layers) + len(chain.layers) <= MAX_RUNS
    return group.source is chain.source and is_adjacent and fits and group.can_be_merged and chain.can_be_merged


def _build_groups(converter: GraphConverter) -> list[_CommandGroup]:
    groups: list[_CommandGroup] = []
    for chain in _build_chains(converter):
        if groups and _can_merge(groups[-1], chain):
            first = groups.pop()
            chain = _CommandGroup([*first.layers, *chain.layers], first.topo | chain.topo << len(first.layers))
        groups.append(chain)
    return groups


def _check_batch_slices(groups: Iterable[_CommandGroup], converter: GraphConverter) -> None:
    """Raise UnsupportedError listing nodes and outputs that use a slice of a concatenation. In a batch such a slice is not contiguous."""
    rejected = []
    for group in groups:
        sources = [group.source, *([] if group.addend is None else [group.addend])]
        writes_all = sum(target.elements for target in group.targets) == group.targets[0].root.elements
        if not writes_all or any(source.parent is not None for source in sources):
            rejected.append(f"node '{group.layers[-1].nodes[-1]}': several images of a part of a concatenation")
    rejected += [
        f"output '{name}': several images of a part"
        for name, tensor in converter.outputs.items()
        if tensor.parent is not None
    ]
    if rejected:
        raise unsupported_error(f"graph '{converter.graph.name}' in the dv interface", rejected)


@dataclass
class CommandPlan:
    """Commands whose operands are offsets in two memories: weights and activations."""

    images: int
    groups: list[_CommandGroup]
    weights: bytes = b""
    weight_offsets: dict[Layer, int] = field(default_factory=dict)
    offsets: dict[Activations, int] = field(default_factory=dict)  # byte offsets of activations that are not slices
    activation_bytes: int = 0
    quantized: bool = False

    def get_byte_offset(self, tensor: Activations, image: int = 0) -> int:
        """Return the byte offset of one image of a tensor in the activation memory."""
        return self.offsets[tensor.root] + (tensor.offset + image * tensor.root.elements) * _FP16_BYTES

    def commands(self, weights: Memory | int, activations: Memory | int) -> list[Conv | FullyConnected]:
        """Return the commands for these two memories, in group order."""
        return [
            command
            for group in self.groups
            for command in (
                self._make_fc_commands(group.layers[0], weights, activations)
                if group.layers[0].is_fully_connected
                else [self._make_conv_command(group, weights, activations)]
            )
        ]

    def _make_fc_commands(
        self, layer: Layer, weights: Memory | int, activations: Memory | int
    ) -> list[Conv | FullyConnected]:
        return [
            FullyConnected(
                weight_buf=(weights, self.weight_offsets[layer]),
                input_buf=(activations, self.get_byte_offset(layer.source, image)),
                output_buf=(activations, self.get_byte_offset(layer.target, image)),
                input_size=layer.source.elements,
                output_size=layer.target.elements,
                weight_fmt=int(self.quantized),
                actfunc=layer.run.actfunc,
                actfunc_param=layer.run.actfunc_param,
            )
            for image in range(self.images)
        ]

    def _make_conv_command(self, group: _CommandGroup, weights: Memory | int, activations: Memory | int) -> Conv:
        def to_location(tensor: Activations | None) -> MemoryLocation:
            return None if tensor is None else (activations, self.get_byte_offset(tensor))

        runs = [
            layer.run
            if layer.weights is None
            else replace(
                layer.run,
                weight_buf=(weights, self.weight_offsets[layer]),
                weight_fmt=3 if self.quantized else 1,
            )
            for layer in group.layers
        ]
        channels, height, width = group.source.shape
        return Conv(
            input_buf=to_location(group.source),
            output_buf=to_location(group.targets[0]),
            eltwise_buf=to_location(group.addend),
            topo=group.topo,
            w=width,
            h=height,
            c=channels,
            input_circular_offset=self.images,
            output_mode=int(group.addend is not None),
            run=runs,
        )


def _allocate_activations(plan: CommandPlan, converter: GraphConverter) -> None:
    """Assign memory offsets; tensors with disjoint lifetimes may share memory. The graph's input and outputs are live throughout."""
    lifetimes: dict[Activations, tuple[int, int]] = {}
    for i, group in enumerate(plan.groups):
        for activations_used in (group.source, group.addend, *group.targets):
            if activations_used is not None:
                lifetimes[activations_used.root] = lifetimes.get(activations_used.root, (i, i))[0], i
    for endpoint in (converter.input, *converter.outputs.values()):
        lifetimes[endpoint.root] = 0, len(plan.groups)
    allocations: list[tuple[int, int, Activations]] = []
    for root in sorted(lifetimes, key=lambda root: -root.elements):
        size = -(-root.elements * _FP16_BYTES * plan.images // _ALIGNMENT) * _ALIGNMENT
        begin = 0
        for low, high, other in sorted(allocations, key=lambda allocation: allocation[:2]):
            overlap_in_time = lifetimes[root][0] <= lifetimes[other][1] and lifetimes[other][0] <= lifetimes[root][1]
            if overlap_in_time and begin < high and low < begin + size:
                begin = high
        allocations.append((begin, begin + size, root))
        plan.offsets[root] = begin
        plan.activation_bytes = max(plan.activation_bytes, begin + size)


def plan_network(converter: GraphConverter, quantized: bool) -> CommandPlan:
    """Plan the commands, weights and memory offsets of a converted graph.

    Raise UnsupportedError if the graph does not support a batch, GraphError for weights outside float16.
    """
    plan = CommandPlan(converter.images, _build_groups(converter), quantized=quantized)
    if converter.images > 1:
        _check_batch_slices(plan.groups, converter)
    packed_weight_blobs: list[bytes] = []
    for group in plan.groups:
        for layer in group.layers:
            if layer.weights is not None:
                plan.weight_offsets[layer] = sum(map(len, packed_weight_blobs))
                packed_weight_blobs.append(layer.pack_weights(quantized))
    plan.weights = b"".join(packed_weight_blobs)
    _allocate_activations(plan, converter)
    return plan


def get_node_names(groups: Sequence[_CommandGroup]) -> list[list[list[str]]]:
    """Return the node names by command and run."""
    return [[layer.nodes for layer in group.layers] for group in groups]
