"""Group layers into commands and plan their memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ..base.errors import unsupported_error
from .commands import MOST_RUNS, Conv, FullyConnected, Place
from .conversion import Conversion
from .layers import Activations, Layer
from .objects import Memory

_GRAIN = 256  # alignment of tensors in memory, in bytes
_HALF = 2  # bytes per float16 element


@dataclass
class _Group:
    """The layers in one command: one or more chains, whose last layers write contiguous outputs."""

    layers: list[Layer]
    topo: int

    @property
    def source(self) -> Activations:
        return self.layers[0].source

    @property
    def targets(self) -> list[Activations]:
        return [layer.target for i, layer in enumerate(self.layers) if self.topo >> i & 1]

    @property
    def added(self) -> Activations | None:
        return self.layers[-1].added

    @property
    def is_plain(self) -> bool:
        return self.added is None and not self.layers[-1].stands_alone


def _chains(conversion: Conversion) -> list[_Group]:
    """Build chains of layers whose intermediate results stay on chip, because they have no other consumer.

    Chains are ordered by their last layer, which may read a second tensor (`added`).
    """
    readers: Counter[Activations | None] = Counter()
    for layer in conversion.layers:
        readers.update((layer.source, layer.added))
    chains: dict[Activations, _Group] = {}  # keyed by the output of the chain's last layer
    for layer in conversion.layers:
        read = layer.source
        before = chains.get(read)
        passes = readers[read] == 1 and read.whole is None and not conversion.is_output(read)
        if before is None or not passes or layer.stands_alone or not before.is_plain or len(before.layers) == MOST_RUNS:
            chains[layer.target] = _Group([layer], 1)
            continue
        del chains[read]
        chains[layer.target] = _Group([*before.layers, layer], before.topo << 1)
    return list(chains.values())


def _follows(group: _Group, one: _Group) -> bool:
    """Return whether two groups can form one command, because they have the same input and adjacent outputs."""
    before, target = group.targets[-1], one.targets[0]
    adjoins = before.root is target.root and before.offset + before.elements == target.offset
    fits = len(group.layers) + len(one.layers) <= MOST_RUNS
    return group.source is one.source and adjoins and fits and group.is_plain and one.is_plain


def _groups(conversion: Conversion) -> list[_Group]:
    groups: list[_Group] = []
    for one in _chains(conversion):
        if groups and _follows(groups[-1], one):
            first = groups.pop()
            one = _Group([*first.layers, *one.layers], first.topo | one.topo << len(first.layers))
        groups.append(one)
    return groups


def _check_images(groups: Iterable[_Group], conversion: Conversion) -> None:
    """Reject slices of concatenations in a batch: each image is contiguous, but a slice of several images is not.

    Raise UnsupportedError listing the nodes and outputs.
    """
    refused = []
    for group in groups:
        parts = [group.source, *([] if group.added is None else [group.added])]
        whole = sum(target.elements for target in group.targets) == group.targets[0].root.elements
        if not whole or any(part.whole is not None for part in parts):
            refused.append(f"node '{group.layers[-1].nodes[-1]}': several images of a part of a concatenation")
    refused += [
        f"output '{name}': several images of a part"
        for name, made in conversion.outputs.items()
        if made.whole is not None
    ]
    if refused:
        raise unsupported_error(f"graph '{conversion.graph.name}' in the dv interface", refused)


@dataclass
class Plan:
    """Commands whose operands are offsets in two memories: weights and activations."""

    images: int
    groups: list[_Group]
    weights: bytes = b""
    weight_offsets: dict[Layer, int] = field(default_factory=dict)
    offsets: dict[Activations, int] = field(default_factory=dict)  # byte offsets of activations that are not slices
    activation_bytes: int = 0
    quantized: bool = False

    def place(self, made: Activations, image: int = 0) -> int:
        """Return the byte offset of an image of the activations in their memory."""
        return self.offsets[made.root] + (made.offset + image * made.root.elements) * _HALF

    def commands(self, weights: Memory | int, activations: Memory | int) -> list[Conv | FullyConnected]:
        """Return the commands for these two memories, in group order."""
        return [
            command
            for group in self.groups
            for command in (
                self._full(group.layers[0], weights, activations)
                if group.layers[0].is_full
                else [self._convolution(group, weights, activations)]
            )
        ]

    def _full(self, layer: Layer, weights: Memory | int, activations: Memory | int) -> list[Conv | FullyConnected]:
        return [
            FullyConnected(
                weight_buf=(weights, self.weight_offsets[layer]),
                input_buf=(activations, self.place(layer.source, image)),
                output_buf=(activations, self.place(layer.target, image)),
                input_size=layer.source.elements,
                output_size=layer.target.elements,
                weight_fmt=int(self.quantized),
                actfunc=layer.run.actfunc,
                actfunc_param=layer.run.actfunc_param,
            )
            for image in range(self.images)
        ]

    def _convolution(self, group: _Group, weights: Memory | int, activations: Memory | int) -> Conv:
        def placed(made: Activations | None) -> Place:
            return None if made is None else (activations, self.place(made))

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
            input_buf=placed(group.source),
            output_buf=placed(group.targets[0]),
            eltwise_buf=placed(group.added),
            topo=group.topo,
            w=width,
            h=height,
            c=channels,
            input_circular_offset=self.images,
            output_mode=int(group.added is not None),
            run=runs,
        )


def _place_activations(plan: Plan, conversion: Conversion) -> None:
    """Assign offsets; tensors with disjoint lifetimes may share memory. The input and the outputs live throughout."""
    lives: dict[Activations, tuple[int, int]] = {}
    for i, group in enumerate(plan.groups):
        for one in (group.source, group.added, *group.targets):
            if one is not None:
                lives[one.root] = lives.get(one.root, (i, i))[0], i
    for end in (conversion.input, *conversion.outputs.values()):
        lives[end.root] = 0, len(plan.groups)
    taken: list[tuple[int, int, Activations]] = []
    for root in sorted(lives, key=lambda root: -root.elements):
        size = -(-root.elements * _HALF * plan.images // _GRAIN) * _GRAIN
        begin = 0
        for low, high, other in sorted(taken, key=lambda part: part[:2]):
            meets = lives[root][0] <= lives[other][1] and lives[other][0] <= lives[root][1]
            if meets and begin < high and low < begin + size:
                begin = high
        taken.append((begin, begin + size, root))
        plan.offsets[root] = begin
        plan.activation_bytes = max(plan.activation_bytes, begin + size)


def plan(conversion: Conversion, quantized: bool) -> Plan:
    """Plan the commands, weights and memory offsets for a conversion.

    Raise UnsupportedError if the graph does not support a batch, GraphError for weights outside float16.
    """
    made = Plan(conversion.images, _groups(conversion), quantized=quantized)
    if conversion.images > 1:
        _check_images(made.groups, conversion)
    streams: list[bytes] = []
    for group in made.groups:
        for layer in group.layers:
            if layer.weights is not None:
                made.weight_offsets[layer] = sum(map(len, streams))
                streams.append(layer.packed_weights(quantized))
    made.weights = b"".join(streams)
    _place_activations(made, conversion)
    return made


def names(groups: Sequence[_Group]) -> list[list[list[str]]]:
    """Return the node names by command and run."""
    return [[layer.nodes for layer in group.layers] for group in groups]
