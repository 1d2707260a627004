"""Computes the scales of outputs, to which the accuracy limit is relative (see accuracy.py)."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ...base.element_types import Array
from ..reference.reference_model import ReferenceModel, ReferenceNode
from ..report.accuracy import compute_finite_magnitudes, compute_sample_scale
from ..rules.bounded_tensor import BoundedTensor, UndecidedError, UnprovedError, Value
from ..rules.rule_runner import parse_attributes

_JOINING_OPERATORS = {"Concat", "ScatterElements", "ScatterND", "Where"}
_DATA_MOVEMENT = {
    *("DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Pad", "Reshape", "ReverseSequence"),
    *("Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
}
_SCALE_PRESERVING = {"Abs", "Cast", "Clip", "Dropout", "Identity", "Neg", "Relu"}
_SCALING_OPERATORS = {"Div", "Mul"}


class _NamedValues(Protocol):
    def __getitem__(self, name: str) -> Value: ...


class OutputScales:
    """Scales of outputs whose elements do not have the sample's scale, in `by_name`.

    These are softmax outputs, and outputs that combine tensors (Concat, Where, ScatterND) and then move, clip or scale them.
    Call `add_node` for each node in order.
    """

    def __init__(self, reference: ReferenceModel) -> None:
        self.by_name: dict[str, Array] = {}
        self._reference = reference
        self._constants = {
            *reference.constants,
            *(name for node in reference.nodes if node.is_folded for name in node.outputs),
        }
        self._outputs = set(reference.outputs)
        self._runner = reference.runner.with_types(reference.runner.types.without_errors())
        self._sources = self._find_sources(reference)

    def _find_sources(self, reference: ReferenceModel) -> set[str]:
        """Return the tensors that outputs are concatenated or selected from."""
        tracked = set(self._outputs)
        has_join = False
        for node in reversed(reference.nodes):
            if tracked.isdisjoint(node.outputs) or not self._propagates_scale(node):
                continue
            has_join = has_join or node.op in _JOINING_OPERATORS
            tracked.update(node.inputs)
        return tracked - self._constants if has_join else set()

    def _propagates_scale(self, node: ReferenceNode) -> bool:
        if node.domain:
            return False
        if node.op in _SCALING_OPERATORS:
            return any(name in self._constants for name in node.inputs[-1:])
        return node.op in _JOINING_OPERATORS or node.op in _DATA_MOVEMENT or node.op in _SCALE_PRESERVING

    def add_node(self, node: ReferenceNode, values: _NamedValues) -> None:
        """Add the scales of a node's outputs. values: the node's inputs and outputs by name."""
        output_names = [name for name in node.outputs if name in self._sources]
        is_softmax = node.op == "Softmax" and not node.domain
        if is_softmax and (output_names or not self._outputs.isdisjoint(node.outputs)):
            output_names = node.outputs
        if not output_names or node.is_folded:
            return
        try:
            if is_softmax:
                self.by_name[node.outputs[0]] = self._compute_softmax_scale(node, values)
            elif self._propagates_scale(node):
                self.by_name.update(self._propagate_scales(node, values))
            else:
                for name in output_names:
                    if isinstance(value := values[name], BoundedTensor) and value.is_float:
                        self.by_name[name] = compute_sample_scale(value)
        except (UnprovedError, UndecidedError, IndexError, KeyError, MemoryError, ValueError):
            return  # then the sample's scale applies

    def _compute_softmax_scale(self, node: ReferenceNode, values: _NamedValues) -> Array:
        value = values[node.outputs[0]]
        if not isinstance(value, BoundedTensor):
            raise UnprovedError("no value")
        old = self._reference.opsets.get("", 1) < 13
        axis = parse_attributes(node.proto).get("axis", 1 if old else -1) % max(value.ndim, 1)
        axes = tuple(range(axis, value.ndim)) if old else axis
        return np.asarray(compute_finite_magnitudes(value.materialize().value).max(axes, keepdims=True))

    def _propagate_scales(self, node: ReferenceNode, values: _NamedValues) -> dict[str, Array]:
        input_scales = {name: self._get_scale(name, values[name]) for name in node.inputs}
        if node.op in _SCALE_PRESERVING:
            first = input_scales[node.inputs[0]]
            return {node.outputs[0]: first.value} if isinstance(first, BoundedTensor) else {}
        results = node.run(input_scales, self._runner)
        return {
            name: np.abs(scale.value)
            for name, scale in results.items()
            if isinstance(scale, BoundedTensor) and scale.is_float
        }

    def _get_scale(self, name: str, value: Value) -> Value:
        """Return the scales of a float tensor, or the magnitudes of a constant."""
        if not isinstance(value, BoundedTensor) or not value.is_float:
            return value
        if name in self._constants:
            return BoundedTensor(compute_finite_magnitudes(value.value), None, value.dtype, constant=True)
        scale = self.by_name[name] if name in self.by_name else compute_sample_scale(value)
        return BoundedTensor(np.broadcast_to(scale, value.shape), None, value.dtype)
