"""Searches for small failing subgraphs: fewer nodes, fewer outputs, smaller tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx

from ..._pumice import Error, IndexRangeError, sha256
from ...base.element_types import Array
from ...base.host_arrays import view_element_bytes
from ...importer.load_graph import load_graph
from ..reference.reference_model import ReferenceModel
from ..reference.subgraph_extraction import MissingTensorError, Subgraph, extract_subgraph
from ..reference.tensor_sources import DeviceTensors
from ..report.deviation import WRONG
from ..report.model_load_setup import ReportOrigin
from ..report.report_rows import ValidationRow
from .repeatability import count_differing_runs

FailureTest: TypeAlias = Callable[[onnx.ModelProto, dict[str, Array]], bool]
TrialCallback: TypeAlias = Callable[[int, int], None]


class SubgraphShrinker:
    """Searches for small failing subgraphs. values: the device's tensors by name."""

    def __init__(
        self, reference: ReferenceModel, values: Mapping[str, Array], fails: FailureTest, step: TrialCallback | None
    ) -> None:
        self.reference = reference
        self.values = dict(values)
        self.num_trials = 0
        self._failure_test = fails
        self._step = step
        self._cache: dict[str, bool] = {}

    def does_fail(self, subgraph: Subgraph) -> bool:
        """Return whether a subgraph fails; one that does not run does not fail."""
        key = sha256(
            subgraph.proto.SerializeToString(),
            *(view_element_bytes(array).tobytes() for array in subgraph.inputs.values()),
        )
        if key not in self._cache:
            self.num_trials += 1
            try:
                self._cache[key] = bool(self._failure_test(subgraph.proto, subgraph.inputs))
            except Error:
                self._cache[key] = False
            if self._step:
                self._step(self.num_trials, self.num_trials)
        return self._cache[key]

    def try_subgraph(self, nodes: Sequence[str], outputs: Iterable[str] | None = None) -> Subgraph | None:
        """Return the subgraph of these nodes if it can be built and fails, else None."""
        try:
            subgraph = extract_subgraph(self.reference, nodes, self.values, outputs)
        except MissingTensorError:
            return None
        return subgraph if subgraph.outputs and self.does_fail(subgraph) else None

    def find_smallest(self, first: Sequence[Sequence[str]] = ()) -> Subgraph | None:
        """Return the smallest failing subgraph found, or None. first: groups of nodes to try first."""
        subgraph = next(
            (candidate_subgraph for nodes in first if (candidate_subgraph := self.try_subgraph(nodes))), None
        )
        subgraph = subgraph or self.try_subgraph([node.name for node in self.reference.nodes])
        if subgraph is None:
            return None
        return self.shrink_tensors(self._remove_outputs(self._remove_nodes(subgraph)))

    def _remove_nodes(self, subgraph: Subgraph) -> Subgraph:
        """Remove groups of nodes (halves, quarters, ..., single nodes) as long as the remaining subgraph fails."""
        size = max(len(subgraph.nodes) // 2, 1)
        while len(subgraph.nodes) > 1:
            begin, before = 0, len(subgraph.nodes)
            while begin < len(subgraph.nodes) and len(subgraph.nodes) > 1:
                rest = subgraph.nodes[:begin] + subgraph.nodes[begin + size :]
                candidate_subgraph = self.try_subgraph(rest) if rest else None
                subgraph = candidate_subgraph or subgraph
                begin += 0 if candidate_subgraph else size
            if size == 1 and len(subgraph.nodes) == before:
                break
            size = max(size // 2, 1)
        return subgraph

    def _remove_outputs(self, subgraph: Subgraph) -> Subgraph:
        for name in list(subgraph.outputs):
            rest = [other for other in subgraph.outputs if other != name]
            subgraph = (self.try_subgraph(subgraph.nodes, rest) if rest else None) or subgraph
        return subgraph

    # ---- sizes

    def shrink_tensors(self, subgraph: Subgraph, max_bytes: int = 0) -> Subgraph:
        """Halve axes while the subgraph fails and has more than `max_bytes` bytes.

        First halve axis n of all inputs in which it has the same size, then all axes of one size, including those of
        constants.
        """
        for axis in range(max((array.ndim for array in subgraph.inputs.values()), default=0)):
            sizes = {array.shape[axis] for array in subgraph.inputs.values() if array.ndim > axis}
            for size in sorted(sizes, reverse=True):
                subgraph = self._halve_axis(subgraph, size, axis, max_bytes)
        sizes = {size for array in [*subgraph.inputs.values(), *subgraph.constants.values()] for size in array.shape}
        for size in sorted(sizes, reverse=True):
            subgraph = self._halve_axis(subgraph, size, None, max_bytes)
        return subgraph

    def _halve_axis(self, subgraph: Subgraph, size: int, axis: int | None, max_bytes: int) -> Subgraph:
        while size > 1 and subgraph.bytes > max_bytes:
            half = (size + 1) // 2
            halves = (self._slice_axis(subgraph, size, axis, begin) for begin in (0, size - half))
            smaller = next((half_subgraph for half_subgraph in halves if half_subgraph is not None), None)
            if smaller is None:
                break
            subgraph, size = smaller, half
        return subgraph

    def _slice_axis(self, subgraph: Subgraph, size: int, axis: int | None, begin: int) -> Subgraph | None:
        """Return the subgraph with axes of this size halved, starting at `begin`, if it still fails; else None.

        axis: which axis of the inputs; None for all axes, including those of constants.
        """
        chosen = slice(begin, begin + (size + 1) // 2)

        def take_half(array: Array) -> Array:
            axes = [
                axis_size == size and axis in (None, axis_index) for axis_index, axis_size in enumerate(array.shape)
            ]
            return np.ascontiguousarray(array[tuple(chosen if axis_size else slice(None) for axis_size in axes)])

        inputs = {name: take_half(array) for name, array in subgraph.inputs.items()}
        constants = {
            name: array if axis is not None else take_half(array) for name, array in subgraph.constants.items()
        }
        candidate_subgraph = extract_subgraph(self.reference, subgraph.nodes, inputs, subgraph.outputs, constants)
        return candidate_subgraph if self.does_fail(candidate_subgraph) else None


def compute_device_tensors(origin: ReportOrigin, case: int) -> dict[str, Array]:
    """Return the inputs of a case and every tensor of the unfused program, by name."""
    with origin.load_model() as model:
        tensors = DeviceTensors(model, load_graph)
        inputs = origin.cases[case][0]
        try:
            tensors_by_name = tensors.compute_tensors(
                model._tensor_strings.encode_tensors(inputs) if model._tensor_strings else inputs
            )
        except IndexRangeError:  # an index computed by the faulty node is out of range
            tensors_by_name = {}
        finally:
            tensors.close()
    return {**origin.cases[case][0], **tensors_by_name}


def make_failure_test(origin: ReportOrigin, repeat: int) -> FailureTest:
    """Return a predicate: whether validation finds a subgraph wrong or, with `repeat`, whether that many runs differ."""

    def is_wrong(proto: onnx.ModelProto, inputs: dict[str, Array]) -> bool:
        return origin.validate_subgraph(Subgraph(proto, inputs), origin.setup).state == WRONG

    def has_differing_runs(proto: onnx.ModelProto, inputs: dict[str, Array]) -> bool:
        with origin.setup.load_subgraph(proto) as model:
            return count_differing_runs(model, inputs, repeat) > 0

    return has_differing_runs if repeat else is_wrong


def make_subgraph_shrinker(
    origin: ReportOrigin, case: int, fails: FailureTest, step: TrialCallback | None = None
) -> SubgraphShrinker:
    """Return a SubgraphShrinker for a case of the report."""
    reference = ReferenceModel(origin.source, origin.folder, origin.setup.precision, origin.setup.kernels)
    return SubgraphShrinker(reference, compute_device_tensors(origin, case), fails, step)


def list_suspect_node_groups(row: ValidationRow) -> list[list[str]]:
    """Return groups of nodes that may cause a wrong row on their own: the node, then all nodes of its kernel.

    There are none for an output.
    """
    if row.op == "output":
        return []
    # Whether the members are in a subgraph that the node runs.
    is_inside = any(member.startswith(f"{row.node}.") for member in row.members)
    return [[row.node], list(row.members)] if len(row.members) > 1 and not is_inside else [[row.node]]
