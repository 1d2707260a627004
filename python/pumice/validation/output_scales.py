"""Scales of outputs, which the accuracy limit is relative to (see accuracy.py)."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..base.element_types import Array
from .accuracy import magnitudes, sample_scale
from .bounds.bounded import Bounded
from .bounds.registry import Undecided, Unproved, Value
from .bounds.rule_runner import attributes_of
from .reference import Reference, ReferenceNode

_JOINS = {"Concat", "ScatterElements", "ScatterND", "Where"}
_MOVES = {
    *("DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Pad", "Reshape", "ReverseSequence"),
    *("Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
}
_KEEPS_SCALE = {"Abs", "Cast", "Clip", "Dropout", "Identity", "Neg", "Relu"}
_MULTIPLIES = {"Div", "Mul"}


class _Values(Protocol):
    def __getitem__(self, name: str) -> Value: ...


class Scales:
    """Scales of output elements that differ from the sample's scale: `of[name]`.

    These are softmax rows, and outputs that join tensors (Concat, Where, ScatterND) and then move, clip or scale them.
    Call `follow` for each node in order.
    """

    def __init__(self, reference: Reference) -> None:
        self.of: dict[str, Array] = {}
        self._reference = reference
        self._constants = {
            *reference.constants,
            *(name for node in reference.nodes if node.folded for name in node.outputs),
        }
        self._outputs = set(reference.outputs)
        self._runner = reference.runner.with_types(reference.runner.types.for_values())
        self._sources = self._tracked(reference)

    def _tracked(self, reference: Reference) -> set[str]:
        """Return the tensors that outputs are concatenated or selected from."""
        found = set(self._outputs)
        joins = False
        for node in reversed(reference.nodes):
            if found.isdisjoint(node.outputs) or not self._passes(node):
                continue
            joins = joins or node.op in _JOINS
            found.update(node.inputs)
        return found - self._constants if joins else set()

    def _passes(self, node: ReferenceNode) -> bool:
        if node.domain:
            return False
        if node.op in _MULTIPLIES:
            return any(name in self._constants for name in node.inputs[-1:])
        return node.op in _JOINS or node.op in _MOVES or node.op in _KEEPS_SCALE

    def follow(self, node: ReferenceNode, values: _Values) -> None:
        """Add the scales of a node's outputs; `values` has its inputs and outputs."""
        wanted = [name for name in node.outputs if name in self._sources]
        is_softmax = node.op == "Softmax" and not node.domain
        if is_softmax and (wanted or not self._outputs.isdisjoint(node.outputs)):
            wanted = node.outputs
        if not wanted or node.folded:
            return
        try:
            if is_softmax:
                self.of[node.outputs[0]] = self._softmax_scale(node, values)
            elif self._passes(node):
                self.of.update(self._passed(node, values))
            else:
                for name in wanted:
                    if isinstance(value := values[name], Bounded) and value.is_float:
                        self.of[name] = sample_scale(value)
        except (Unproved, Undecided, IndexError, KeyError, MemoryError, ValueError):
            return  # the sample's scale is used instead

    def _softmax_scale(self, node: ReferenceNode, values: _Values) -> Array:
        value = values[node.outputs[0]]
        if not isinstance(value, Bounded):
            raise Unproved("no value")
        old = self._reference.opsets.get("", 1) < 13
        axis = attributes_of(node.proto).get("axis", 1 if old else -1) % max(value.ndim, 1)
        axes = tuple(range(axis, value.ndim)) if old else axis
        return np.asarray(magnitudes(value.whole().value).max(axes, keepdims=True))

    def _passed(self, node: ReferenceNode, values: _Values) -> dict[str, Array]:
        given = {name: self._scale_of(name, values[name]) for name in node.inputs}
        if node.op in _KEEPS_SCALE:
            first = given[node.inputs[0]]
            return {node.outputs[0]: first.value} if isinstance(first, Bounded) else {}
        made = node.run(given, self._runner)
        return {name: np.abs(one.value) for name, one in made.items() if isinstance(one, Bounded) and one.is_float}

    def _scale_of(self, name: str, value: Value) -> Value:
        """Return the scales of a float tensor, or the magnitudes of a constant."""
        if not isinstance(value, Bounded) or not value.is_float:
            return value
        if name in self._constants:
            return Bounded(magnitudes(value.value), None, value.dtype, constant=True)
        scale = self.of[name] if name in self.of else sample_scale(value)
        return Bounded(np.broadcast_to(scale, value.shape), None, value.dtype)
