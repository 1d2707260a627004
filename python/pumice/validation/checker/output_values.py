"""Expected values and scales of outputs, for the accuracy limit and for outputs that are sequences."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from ...base.element_types import Array
from ..reference.oracle import ValidationSubject
from ..reference.reference_model import ReferenceModel, ReferenceNode, UniformPrecisionRunner
from ..report.accuracy import Inaccuracy, compute_finite_magnitudes, compute_sample_scale, find_accuracy_violation
from ..rules.bounded_tensor import BoundedTensor, UndecidedError, UnprovedError, Value
from ..rules.float_types import FLOAT32, ProgramTypes, is_float
from ..rules.program_values import parse_attributes
from .live_values import LiveValues, to_declared_arrays

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


class ExactOutputs:
    """Exact outputs of a case, for checking the accuracy limit of 16-bit programs.

    Bounds start from the program's rounded weights. Rounding weights is not a device error, but it affects the output.
    The outputs are evaluated on first use. They are not needed for fp32 programs, which round no weights.
    case_inputs: inputs of the case; None if there is not enough memory for another evaluation.
    """

    def __init__(self, reference: ReferenceModel, case_inputs: Mapping[str, Any] | None) -> None:
        self._reference = reference
        self._case_inputs = case_inputs
        self._outputs: dict[str, Value] | None = None

    def find_accuracy_violation(
        self,
        name: str,
        actual: Array,
        expected: BoundedTensor,
        limit: float | None,
        scale: Array | None,
        is_exact: bool,
    ) -> Inaccuracy | None:
        """Return the element of an output that exceeds the accuracy limit most; None without such an element or limit.

        is_exact: whether to compare with the exact value, if it is known, instead of `expected`. Elements that depend on
        undecided choices are always compared with `expected`.
        """
        if limit is None:
            return None
        return find_accuracy_violation(
            actual, self._get_exact_or_expected(name, expected) if is_exact else expected, limit, scale
        )

    def _get_exact_or_expected(self, name: str, expected: BoundedTensor) -> BoundedTensor:
        if self._outputs is None:
            self._outputs = self._evaluate()
        exact = self._outputs.get(name)
        if not isinstance(exact, BoundedTensor) or exact.shape != expected.shape or not exact.is_float:
            return expected
        if expected.alternatives is None:
            return exact
        value = np.where(expected.alternatives.mask, expected.materialize().value, exact.materialize().value)
        return BoundedTensor(value, expected.error, expected.dtype).set_alternatives(expected.alternatives)

    def _evaluate(self) -> dict[str, Value]:
        reference = self._reference
        if self._case_inputs is None or reference.types.get_storage_type(np.dtype(np.float32)).unit <= FLOAT32.unit:
            return {}
        runner = UniformPrecisionRunner(reference.runner.opsets, ProgramTypes("fp32").without_errors())
        runner.custom_rules = reference.runner.custom_rules
        values = LiveValues(reference, runner, self._case_inputs)
        readers = reference.find_last_readers(reference.outputs)
        for index, node in enumerate(reference.nodes):
            with suppress(
                UnprovedError, IndexError, KeyError, MemoryError
            ):  # then later nodes have no exact value either
                values.values.update(values.run(node))
            for name in readers.get(index, ()):
                values.forget(name)
        return values.get_live_values()


def get_non_tensor_output_values(fused: ValidationSubject, chain: LiveValues) -> dict[str, Value]:
    """Return the bounded reference values of the tensors inside sequence and optional outputs, by name."""
    live_values = chain.get_live_values()
    tensors = {value.name for value in fused.program.outputs}
    lists = {
        value.name: live_values[value.name] for value in fused.outputs if value.name in live_values.keys() - tensors
    }
    values = fused.packed_outputs({name: to_declared_arrays(value, False) for name, value in lists.items()})
    errors = fused.packed_outputs({name: to_declared_arrays(value, True) for name, value in lists.items()})
    expected: dict[str, Value] = {}
    for name, value in values.items():
        source = name.rsplit("/", 1)[0]
        if source in chain.unproved:
            chain.unproved[name] = chain.unproved[source]
        has_error = errors[name].shape == value.shape and is_float(value.dtype)
        error = np.asarray(errors[name], np.float64) if has_error else None
        expected[name] = BoundedTensor(value, error, value.dtype, stored=True)
    return expected
