"""Searches for small failing subgraphs: fewer nodes, fewer outputs, smaller tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx

from .._pumice import Error, IndexRangeError, sha256
from ..base.element_types import Array
from ..base.host_arrays import element_bytes
from ..importer.load import load_graph
from .subgraph import Cut, MissingTensor, cut
from .deviation import WRONG
from .reference import Reference
from .repeatability import differing_runs
from .report_rows import ValidationRow
from .load_setup import Origin
from .tensor_sources import DeviceTensors

Fails: TypeAlias = Callable[[onnx.ModelProto, dict[str, Array]], bool]
Tried: TypeAlias = Callable[[int, int], None]


class Shrinker:
    """Searches for small failing subgraphs. `values`: the device's tensors by name."""

    def __init__(self, reference: Reference, values: Mapping[str, Array], fails: Fails, step: Tried | None) -> None:
        self.reference = reference
        self.values = dict(values)
        self.tried = 0
        self._fails = fails
        self._step = step
        self._known: dict[str, bool] = {}

    def fails(self, part: Cut) -> bool:
        """Whether a subgraph fails; one that does not run does not fail."""
        key = sha256(
            part.proto.SerializeToString(), *(element_bytes(array).tobytes() for array in part.inputs.values())
        )
        if key not in self._known:
            self.tried += 1
            try:
                self._known[key] = bool(self._fails(part.proto, part.inputs))
            except Error:
                self._known[key] = False
            if self._step:
                self._step(self.tried, self.tried)
        return self._known[key]

    def part(self, nodes: Sequence[str], outputs: Iterable[str] | None = None) -> Cut | None:
        """Return the subgraph of these nodes if it can be built and fails, else None."""
        try:
            made = cut(self.reference, nodes, self.values, outputs)
        except MissingTensor:
            return None
        return made if made.outputs and self.fails(made) else None

    def smallest(self, first: Sequence[Sequence[str]] = ()) -> Cut | None:
        """Return the smallest failing subgraph, or None. `first`: groups of nodes to try first."""
        found = next((part for nodes in first if (part := self.part(nodes))), None)
        found = found or self.part([node.name for node in self.reference.nodes])
        if found is None:
            return None
        return self.smaller(self._fewer_results(self._fewer_nodes(found)))

    def _fewer_nodes(self, found: Cut) -> Cut:
        """Remove halves, quarters and so on down to single nodes, while the rest fails."""
        size = max(len(found.nodes) // 2, 1)
        while len(found.nodes) > 1:
            begin, before = 0, len(found.nodes)
            while begin < len(found.nodes) and len(found.nodes) > 1:
                rest = found.nodes[:begin] + found.nodes[begin + size :]
                part = self.part(rest) if rest else None
                found = part or found
                begin += 0 if part else size
            if size == 1 and len(found.nodes) == before:
                break
            size = max(size // 2, 1)
        return found

    def _fewer_results(self, found: Cut) -> Cut:
        for name in list(found.outputs):
            rest = [other for other in found.outputs if other != name]
            found = (self.part(found.nodes, rest) if rest else None) or found
        return found

    # ---- sizes

    def smaller(self, found: Cut, enough: int = 0) -> Cut:
        """Halve axes while the subgraph fails and has more than `enough` bytes.

        First the n-th axis of all inputs with equal sizes, then all axes of one size, including axes of constants.
        """
        for axis in range(max((array.ndim for array in found.inputs.values()), default=0)):
            sizes = {array.shape[axis] for array in found.inputs.values() if array.ndim > axis}
            for size in sorted(sizes, reverse=True):
                found = self._halved(found, size, axis, enough)
        sizes = {size for array in [*found.inputs.values(), *found.constants.values()] for size in array.shape}
        for size in sorted(sizes, reverse=True):
            found = self._halved(found, size, None, enough)
        return found

    def _halved(self, found: Cut, size: int, axis: int | None, enough: int) -> Cut:
        while size > 1 and found.bytes > enough:
            half = (size + 1) // 2
            parts = (self._sliced(found, size, axis, begin) for begin in (0, size - half))
            less = next((part for part in parts if part is not None), None)
            if less is None:
                break
            found, size = less, half
        return found

    def _sliced(self, found: Cut, size: int, axis: int | None, begin: int) -> Cut | None:
        """Return the subgraph with half of each such axis, from `begin` on, if it fails. axis: None for all axes, also
        of constants.
        """
        chosen = slice(begin, begin + (size + 1) // 2)

        def half(array: Array) -> Array:
            axes = [one == size and axis in (None, place) for place, one in enumerate(array.shape)]
            return np.ascontiguousarray(array[tuple(chosen if one else slice(None) for one in axes)])

        inputs = {name: half(array) for name, array in found.inputs.items()}
        constants = {name: array if axis is not None else half(array) for name, array in found.constants.items()}
        part = cut(self.reference, found.nodes, inputs, found.outputs, constants)
        return part if self.fails(part) else None


def device_tensors(origin: Origin, case: int) -> dict[str, Array]:
    """Return the inputs and every tensor of the unfused program."""
    with origin.load() as model:
        tensors = DeviceTensors(model, load_graph)
        inputs = origin.cases[case][0]
        try:
            made = tensors.tensors(model._kept_strings.places(inputs) if model._kept_strings else inputs)
        except IndexRangeError:  # the call rejects these inputs because of the node at fault
            made = {}
        finally:
            tensors.close()
    return {**origin.cases[case][0], **made}


def fails_by(origin: Origin, repeat: int) -> Fails:
    """Return a predicate: validation finds the subgraph wrong, or with `repeat`, the bits of that many runs differ."""

    def wrong(proto: onnx.ModelProto, inputs: dict[str, Array]) -> bool:
        return origin.validated(Cut(proto, inputs), origin.setup).state == WRONG

    def differs(proto: onnx.ModelProto, inputs: dict[str, Array]) -> bool:
        with origin.setup.load(proto) as model:
            return differing_runs(model, inputs, repeat) > 0

    return differs if repeat else wrong


def shrinker(origin: Origin, case: int, fails: Fails, step: Tried | None = None) -> Shrinker:
    """Return a Shrinker for a case."""
    reference = Reference(origin.source, origin.folder, origin.setup.precision, origin.setup.kernels)
    return Shrinker(reference, device_tensors(origin, case), fails, step)


def parts_of(row: ValidationRow) -> list[list[str]]:
    """Return groups of nodes that may cause a wrong row on their own: the node, then its kernel's nodes. Return no
    groups for an output.
    """
    if row.op == "output":
        return []
    # The members are in a subgraph that the node runs.
    is_inside = any(member.startswith(f"{row.node}.") for member in row.members)
    return [[row.node], list(row.members)] if len(row.members) > 1 and not is_inside else [[row.node]]
