"""Finds nodes that lose accuracy at low precision, and why, by comparison with the same unfused program in float32."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from ...base.element_types import Array
from ...importer.file.graph_recipe import NodeRecipe
from ...importer.load_graph import build_recipe_graph, load_recipe
from ...model.model import Model
from ..checker.error_propagation import compute_relative_error
from ..reference.loop_timeouts import get_loop_timeout
from ..rules.bounded_tensor import BoundedTensor
from ..rules.float_types import FloatType, ProgramTypes, is_float

OVERFLOW, LONG_SUM, UNDERFLOW, CANCELLATION, AMPLIFIED, ROUNDING = (
    "overflow",
    "long sum",
    "underflow",
    "cancellation",
    "amplified",
    "rounding",
)
_MIN_AMPLIFICATION = 4.0  # minimum amplification of the relative error that is reported
_MIN_LONG_SUM = 64  # sums with at least this many terms count as long
_MIN_FLUSHED_SHARE = 0.01  # minimum share of elements that are zero only at low precision
_CANCELLATION_RATIO = 8.0  # minimum ratio of input to output magnitude that is reported as cancellation
_LINEAR_OPERATORS = ("Add", "Conv", "Einsum", "Gemm", "MatMul", "ReduceMean", "ReduceSum", "Sub", "Sum")
_MAX_DISTANCE = 8  # how far before and after a node the search goes, in nodes


class Float32Candidate(NamedTuple):
    """A node that may have to stay in float32: name, operator, kind of problem, and a sentence about it."""

    node: str
    op: str
    kind: str
    text: str


class _NodeMeasurements:
    """Measurements of a node over all cases."""

    def __init__(self, node: NodeRecipe) -> None:
        self.node = node
        self.input_magnitude = 0.0  # largest magnitude of the inputs
        self.output_magnitude = 0.0  # largest magnitude of the outputs
        self.error = 0.0  # relative error at low precision, accumulated from the model's inputs
        self.input_error = 0.0
        self.flushed_share = 0.0
        self.sum_length = 1.0

    def compute_gain(self, unit: float) -> float:
        """Return the relative error of the outputs divided by that of the inputs."""
        return self.error / max(self.input_error, unit)


def _find_largest_magnitude(array: Array) -> float:
    with np.errstate(all="ignore"):
        return float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array)))


def _select_float_arrays(names: Iterable[str], values: Mapping[str, Array]) -> dict[str, Array]:
    return {name: values[name] for name in names if name in values and is_float(values[name].dtype)}


class PrecisionLossAnalysis:
    """Finds out why nodes need float32, and in which order to try them."""

    def __init__(self, model: Model, default: str, cases: list[dict[str, Array]]) -> None:
        overridable = [value.name for value in model.overridable]
        recipe = load_recipe(model.source, model.folder, overridable)
        graph = build_recipe_graph(recipe, kernels=model.kernel_table)
        self.type: FloatType = ProgramTypes(default).get_storage_type("float32")
        self._default = default
        self._shapes = {name: tuple(array.shape) for name, array in recipe.constants.items()}
        self._facts = {node.name: _NodeMeasurements(node) for node in recipe.nodes}
        self._producers = {name: node.name for node in recipe.nodes for name in node.outputs if name}
        self._positions = {node.name: position for position, node in enumerate(recipe.nodes)}
        floats: set[str] = set()
        exact = graph.compile(model.context, "fp32", keep_all=True, fuse=False)
        low_precision = graph.compile(model.context, default, keep_all=True, fuse=False)
        max_seconds = get_loop_timeout(model.source, model.folder)
        try:
            for inputs in cases:
                expected = dict(exact(inputs, loop_timeout=max_seconds))
                actual = dict(low_precision(inputs, loop_timeout=max_seconds))
                floats.update(_select_float_arrays(expected, expected))
                self._measure({**inputs, **expected}, actual)
        finally:
            exact.close()
            low_precision.close()
        self._nodes = [node for node in recipe.nodes if floats.intersection(node.outputs) or node.subgraphs]
        self.count = len(recipe.nodes)

    def _measure(self, expected: Mapping[str, Array], actual: Mapping[str, Array]) -> None:
        errors: dict[str, float] = {}
        for fact in self._facts.values():
            node = fact.node
            inputs, outputs = _select_float_arrays(node.reads, expected), _select_float_arrays(node.outputs, expected)
            fact.input_magnitude = max([fact.input_magnitude, *map(_find_largest_magnitude, inputs.values())])
            fact.input_error = max([fact.input_error, *(errors.get(name, 0.0) for name in inputs)])
            fact.sum_length = max(fact.sum_length, self._count_terms(node, expected))
            for name, array in outputs.items():
                if name not in actual or actual[name].shape != array.shape:
                    continue
                errors[name] = compute_relative_error(actual[name], BoundedTensor(array))
                zeros = (actual[name] == 0) & (array != 0)
                fact.flushed_share = max(fact.flushed_share, float(np.mean(zeros)) if zeros.size else 0.0)
                fact.output_magnitude = max(fact.output_magnitude, _find_largest_magnitude(array))
                fact.error = max(fact.error, errors[name])

    def _count_terms(self, node: NodeRecipe, values: Mapping[str, Array]) -> float:
        """Return the number of terms in a node's sums."""
        first = values.get(node.inputs[0]) if node.inputs else None
        result = values.get(node.outputs[0])
        if first is None or result is None or not result.size:
            return 1.0
        if node.op.startswith("Reduce") or "Pool" in node.op:
            return first.size / result.size
        if node.op in ("MatMul", "Gemm", "FusedMatMul", "FusedGemm"):
            return float(first.shape[-1]) if first.ndim else 1.0
        if node.op == "Conv" and len(node.inputs) > 1:
            return float(math.prod(self._shapes.get(node.inputs[1], (1,))[1:]))
        return 1.0

    # ---- problems of single nodes

    def describe_node_problem(self, name: str) -> Float32Candidate:
        """Return a node's own problem at low precision."""
        fact = self._facts[name]
        kind, text = self._classify_problem(fact)
        return Float32Candidate(name, fact.node.qualified_op, kind, text)

    def _classify_problem(self, fact: _NodeMeasurements) -> tuple[str, str]:
        if fact.output_magnitude > self.type.largest:
            size = f"{fact.output_magnitude:,.0f}" if fact.output_magnitude < 1e12 else f"{fact.output_magnitude:.3g}"
            ends = f"{self._default} ends at {self.type.largest:,.0f}"
            if fact.sum_length >= _MIN_LONG_SUM and fact.input_magnitude * _CANCELLATION_RATIO < fact.output_magnitude:
                return LONG_SUM, f"a sum of {fact.sum_length:.0f} terms reaches {size}; {ends}"
            return OVERFLOW, f"its numbers reach {size}; {ends}"
        flushed = f"{fact.flushed_share:.0%} of its elements become zero"
        if fact.flushed_share > _MIN_FLUSHED_SHARE and fact.output_magnitude < self.type.normal:
            return UNDERFLOW, flushed
        becomes = f"a relative error of {fact.input_error:.2g} becomes {fact.error:.2g}"
        amplifies = fact.compute_gain(self.type.unit) >= _MIN_AMPLIFICATION
        if (
            amplifies
            and fact.node.op in _LINEAR_OPERATORS
            and fact.output_magnitude * _CANCELLATION_RATIO <= fact.input_magnitude
        ):
            return CANCELLATION, f"numbers of {fact.input_magnitude:.3g} leave {fact.output_magnitude:.3g}: {becomes}"
        if fact.flushed_share > _MIN_FLUSHED_SHARE:
            return UNDERFLOW, flushed
        if amplifies:
            return AMPLIFIED, f"it reads numbers of {fact.input_magnitude:.3g}: {becomes}"
        return ROUNDING, f"its results are off by {fact.error:.2g} of their largest number"

    def find_float32_reason(self, name: str) -> Float32Candidate:
        """Return the reason to keep a node in float32: its own problem, or a later node that amplifies its rounding."""
        candidate = self.describe_node_problem(name)
        if candidate.kind != ROUNDING:
            return candidate
        for other_name, _ in self._iter_nodes_after(name):
            later = self.describe_node_problem(other_name)
            if later.kind in (OVERFLOW, LONG_SUM):
                continue
            if later.kind != ROUNDING:
                return candidate._replace(
                    kind=later.kind, text=f"its rounding reaches node '{other_name}': {later.text}"
                )
        for other_name, _ in self._iter_nodes_before(name):
            earlier = self.describe_node_problem(other_name)
            if earlier.kind in (OVERFLOW, LONG_SUM):
                return candidate._replace(kind=earlier.kind, text=f"it reads node '{other_name}': {earlier.text}")
        return candidate

    def _iter_nodes_before(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield the nodes before a node, nearest first, with their distance."""
        return self._iter_breadth_first(
            name,
            lambda node: (self._producers[input_name] for input_name in node.reads if input_name in self._producers),
        )

    def _iter_nodes_after(self, name: str) -> Iterator[tuple[str, int]]:
        readers: dict[str, list[str]] = {}
        for fact in self._facts.values():
            for value_name in fact.node.reads:
                readers.setdefault(value_name, []).append(fact.node.name)
        return self._iter_breadth_first(
            name, lambda node: (reader for value_name in node.outputs for reader in readers.get(value_name, ()))
        )

    def _iter_breadth_first(
        self, name: str, neighbours: Callable[[NodeRecipe], Iterable[str]]
    ) -> Iterator[tuple[str, int]]:
        visited, queue = {name}, deque([(name, 0)])
        while queue:
            current, distance = queue.popleft()
            if distance:
                yield current, distance
            if distance == _MAX_DISTANCE:
                continue
            for neighbour in neighbours(self._facts[current].node):
                if neighbour not in visited:
                    visited.add(neighbour)
                    queue.append((neighbour, distance + 1))

    def get_position(self, name: str) -> int:
        """Return a node's position in execution order."""
        return self._positions[name]

    # ---- order of trials

    def make_trial_groups(self) -> list[list[str]]:
        """Return all float nodes in groups: overflowing nodes, their readers, amplifying nodes with their inputs, the rest."""
        names = [node.name for node in self._nodes]
        known_names = set(names)
        kinds = {name: self.describe_node_problem(name).kind for name in names}
        out_of_range = [name for name in names if kinds[name] in (OVERFLOW, LONG_SUM, UNDERFLOW)]
        readers = [
            other_name
            for name in out_of_range
            for other_name, distance in self._iter_nodes_after(name)
            if distance == 1
        ]
        amplifying = [name for name in names if kinds[name] in (CANCELLATION, AMPLIFIED)]
        amplifying.sort(
            key=lambda name: (-min(self._facts[name].compute_gain(self.type.unit), 1e30), names.index(name))
        )
        paths = [[name, *(other_name for other_name, _ in self._iter_nodes_before(name))] for name in amplifying]
        depth = max(map(len, paths), default=0)
        interleaved = [path[i] for i in range(depth) for path in paths if i < len(path)]
        rest = sorted(names, key=lambda name: -min(self._facts[name].error, 1e30))
        listed: set[str] = set()
        groups: list[list[str]] = []
        for group in (out_of_range, readers, interleaved, rest):
            new_names = [name for name in dict.fromkeys(group) if name in known_names and name not in listed]
            listed.update(new_names)
            groups.append(new_names)
        return groups
