"""Finds nodes that low precision hurts, and why, by comparing with the same unfused program in float32."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from ..base.element_types import Array
from ..importer.file.recipe import NodeRecipe
from ..importer.load import load_graph
from ..model.model import Model
from .bounds.bounded import Bounded
from .bounds.float_types import FloatType, Types, is_float
from .error_propagation import relative_error
from .loop_limits import loop_timeout

OVERFLOW, LONG_SUM, UNDERFLOW, CANCELLATION, AMPLIFIED, ROUNDING = (
    "overflow",
    "long sum",
    "underflow",
    "cancellation",
    "amplified",
    "rounding",
)
_AMPLIFIES = 4.0  # reported factor on the relative error
_MANY_TERMS = 64  # minimum length of a long sum
_FLUSHED = 0.01  # share of elements that are zero only at low precision
_CANCELS = 8.0  # reported ratio of a node's input to its output
_LINEAR = ("Add", "Conv", "Einsum", "Gemm", "MatMul", "ReduceMean", "ReduceSum", "Sub", "Sum")
_FAR = 8  # search depth before an amplifying node


class Candidate(NamedTuple):
    """A node that may have to stay in float32: name, operator, kind of problem, and a sentence about it."""

    node: str
    op: str
    kind: str
    text: str


class _Facts:
    """Measurements of a node over all cases."""

    def __init__(self, node: NodeRecipe) -> None:
        self.node = node
        self.read = 0.0  # largest input magnitude
        self.made = 0.0  # largest output magnitude
        self.error = 0.0  # relative error at low precision, from the inputs on
        self.error_before = 0.0
        self.flushed = 0.0
        self.terms = 1.0

    def gain(self, unit: float) -> float:
        """Return the ratio of the relative error after the node to that before it."""
        return self.error / max(self.error_before, unit)


def _largest(array: Array) -> float:
    with np.errstate(all="ignore"):
        return float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array)))


def _float_arrays(names: Iterable[str], values: Mapping[str, Array]) -> dict[str, Array]:
    return {name: values[name] for name in names if name in values and is_float(values[name].dtype)}


class Causes:
    """A model's nodes, in the order in which to try them in float32."""

    def __init__(self, model: Model, default: str, cases: list[dict[str, Array]]) -> None:
        overridable = [value.name for value in model.overridable]
        graph, recipe = load_graph(model.source, model.folder, None, overridable, kernels=model.kernel_table)
        self.type: FloatType = Types(default).storage("float32")
        self._default = default
        self._shapes = {name: tuple(one.shape) for name, one in recipe.constants.items()}
        self._facts = {node.name: _Facts(node) for node in recipe.nodes}
        self._makers = {name: node.name for node in recipe.nodes for name in node.outputs if name}
        self._places = {node.name: place for place, node in enumerate(recipe.nodes)}
        floats: set[str] = set()
        exact = graph.compile(model.context, "fp32", keep_all=True, fuse=False)
        narrow = graph.compile(model.context, default, keep_all=True, fuse=False)
        longest = loop_timeout(model.source, model.folder)
        try:
            for inputs in cases:
                expected = dict(exact(inputs, loop_timeout=longest))
                actual = dict(narrow(inputs, loop_timeout=longest))
                floats.update(_float_arrays(expected, expected))
                self._enter({**inputs, **expected}, actual)
        finally:
            exact.close()
            narrow.close()
        self._nodes = [node for node in recipe.nodes if floats.intersection(node.outputs) or node.subgraphs]
        self.count = len(recipe.nodes)

    def _enter(self, expected: Mapping[str, Array], actual: Mapping[str, Array]) -> None:
        errors: dict[str, float] = {}
        for fact in self._facts.values():
            node = fact.node
            read, made = _float_arrays(node.reads, expected), _float_arrays(node.outputs, expected)
            fact.read = max([fact.read, *map(_largest, read.values())])
            fact.error_before = max([fact.error_before, *(errors.get(name, 0.0) for name in read)])
            fact.terms = max(fact.terms, self._terms(node, expected))
            for name, array in made.items():
                if name not in actual or actual[name].shape != array.shape:
                    continue
                errors[name] = relative_error(actual[name], Bounded(array))
                zeros = (actual[name] == 0) & (array != 0)
                fact.flushed = max(fact.flushed, float(np.mean(zeros)) if zeros.size else 0.0)
                fact.made = max(fact.made, _largest(array))
                fact.error = max(fact.error, errors[name])

    def _terms(self, node: NodeRecipe, values: Mapping[str, Array]) -> float:
        """Return the length of a node's sums."""
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

    # ---- problems of a node

    def candidate(self, name: str) -> Candidate:
        """Return the problem of a node on its own."""
        fact = self._facts[name]
        kind, text = self._kind(fact)
        return Candidate(name, fact.node.qualified_op, kind, text)

    def _kind(self, fact: _Facts) -> tuple[str, str]:
        if fact.made > self.type.largest:
            size = f"{fact.made:,.0f}" if fact.made < 1e12 else f"{fact.made:.3g}"
            ends = f"{self._default} ends at {self.type.largest:,.0f}"
            if fact.terms >= _MANY_TERMS and fact.read * _CANCELS < fact.made:
                return LONG_SUM, f"a sum of {fact.terms:.0f} terms reaches {size}; {ends}"
            return OVERFLOW, f"its numbers reach {size}; {ends}"
        flushed = f"{fact.flushed:.0%} of its elements become zero"
        if fact.flushed > _FLUSHED and fact.made < self.type.normal:
            return UNDERFLOW, flushed
        becomes = f"a relative error of {fact.error_before:.2g} becomes {fact.error:.2g}"
        amplifies = fact.gain(self.type.unit) >= _AMPLIFIES
        if amplifies and fact.node.op in _LINEAR and fact.made * _CANCELS <= fact.read:
            return CANCELLATION, f"numbers of {fact.read:.3g} leave {fact.made:.3g}: {becomes}"
        if fact.flushed > _FLUSHED:
            return UNDERFLOW, flushed
        if amplifies:
            return AMPLIFIED, f"it reads numbers of {fact.read:.3g}: {becomes}"
        return ROUNDING, f"its results are off by {fact.error:.2g} of their largest number"

    def reason(self, name: str) -> Candidate:
        """Return why a node has to stay in float32: its own problem, or a later node that amplifies its rounding."""
        own = self.candidate(name)
        if own.kind != ROUNDING:
            return own
        for one, _ in self._behind(name):
            behind = self.candidate(one)
            if behind.kind in (OVERFLOW, LONG_SUM):
                continue
            if behind.kind != ROUNDING:
                return own._replace(kind=behind.kind, text=f"its rounding reaches node '{one}': {behind.text}")
        for one, _ in self._before(name):
            before = self.candidate(one)
            if before.kind in (OVERFLOW, LONG_SUM):
                return own._replace(kind=before.kind, text=f"it reads node '{one}': {before.text}")
        return own

    def _before(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield the nodes before a node, nearest first, with their distance."""
        return self._walk(name, lambda node: (self._makers[one] for one in node.reads if one in self._makers))

    def _behind(self, name: str) -> Iterator[tuple[str, int]]:
        readers: dict[str, list[str]] = {}
        for fact in self._facts.values():
            for one in fact.node.reads:
                readers.setdefault(one, []).append(fact.node.name)
        return self._walk(name, lambda node: (reader for one in node.outputs for reader in readers.get(one, ())))

    def _walk(self, name: str, following: Callable[[NodeRecipe], Iterable[str]]) -> Iterator[tuple[str, int]]:
        seen, waiting = {name}, deque([(name, 0)])
        while waiting:
            at, far = waiting.popleft()
            if far:
                yield at, far
            if far == _FAR:
                continue
            for one in following(self._facts[at].node):
                if one not in seen:
                    seen.add(one)
                    waiting.append((one, far + 1))

    def place(self, name: str) -> int:
        """Return a node's position in execution order."""
        return self._places[name]

    # ---- order of trials

    def groups(self) -> list[list[str]]:
        """Return all float nodes in groups: overflows; their readers; amplifiers with their inputs; the rest."""
        names = [node.name for node in self._nodes]
        known = set(names)
        kinds = {name: self.candidate(name).kind for name in names}
        out_of_range = [name for name in names if kinds[name] in (OVERFLOW, LONG_SUM, UNDERFLOW)]
        readers = [one for name in out_of_range for one, far in self._behind(name) if far == 1]
        amplifying = [name for name in names if kinds[name] in (CANCELLATION, AMPLIFIED)]
        amplifying.sort(key=lambda name: (-min(self._facts[name].gain(self.type.unit), 1e30), names.index(name)))
        before = [[name, *(one for one, _ in self._before(name))] for name in amplifying]
        depth = max(map(len, before), default=0)
        turns = [way[i] for i in range(depth) for way in before if i < len(way)]
        rest = sorted(names, key=lambda name: -min(self._facts[name].error, 1e30))
        found: set[str] = set()
        groups: list[list[str]] = []
        for group in (out_of_range, readers, turns, rest):
            own = [name for name in dict.fromkeys(group) if name in known and name not in found]
            found.update(own)
            groups.append(own)
        return groups
