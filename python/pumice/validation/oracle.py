"""The values that validation compares with: from the float64 rules, or a reference with bounds (ValueOracle)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..base.element_types import Array
from .bounds.bounded import Bounded
from .bounds.float_types import COVERAGE_FACTOR, ProgramTypes, is_float
from .bounds.registry import Undecided, Unproved, Value
from .bounds.rule_runner import Runner, SingleTypeRunner, bounded_input
from .deviation import Deviation, compare_tensor
from .monte_carlo import MonteCarloSamples
from .reference import Reference, ReferenceNode
from .report_rows import Finding

if TYPE_CHECKING:
    from .tensor_sources import TensorSource

Tolerance = Callable[[str, str], "float | None"]  # (node, tensor) -> the caller's tolerance


class ExpectedValue(NamedTuple):
    """The value that a kernel's tensor is compared with.

    note: why it comes from the rules only. fault: how the reference contradicts the rules.
    """

    value: Value
    note: str = ""
    fault: str = ""


class Oracle:
    """Compares with the float64 rules. Subclasses use the values of another reference instead.

    chained: the reference only has values from the model's inputs on, so no node is checked on the device's inputs.
    values_by_name, own_values: by name, kept until the last reader. notes: per tensor, why the rules are used instead.
    faults: per tensor, how the reference itself exceeds its bound.
    """

    name = "float64"
    chained = False
    has_own_values = False  # whether the comparison needs the nodes' inputs
    checks_kernels = True  # by the rules, because nothing else covers intermediates inside a kernel

    def __init__(self) -> None:
        self.values_by_name: dict[str, Value] = {}
        self.own_values: dict[str, Array] = {}
        self.notes: dict[str, str] = {}
        self.faults: dict[str, str] = {}

    def bind(self, reference: Reference, tolerance: Tolerance, tensors: TensorSource) -> None:
        """Prepare for a model, once before any case. Raise InputError if the reference does not fit the model."""

    def begin_case(
        self, inputs: Mapping[str, Array], case_inputs: Mapping[str, Any], case: int, sampled: bool = False
    ) -> None:
        """Start a case, given the program's inputs and the model's.

        sampled: track dependent errors by sampling.
        """

    def forget(self, name: str) -> None:
        """Drop a value after its last reader."""
        self.values_by_name.pop(name, None)
        self.own_values.pop(name, None)

    def node_expectation(
        self, node: ReferenceNode, isolated: Mapping[str, Value], rule_results: dict[str, Value] | None
    ) -> dict[str, Value] | None:
        """Return the values to compare a node's outputs with. isolated: the device's inputs."""
        return rule_results

    def follow_node(self, node: ReferenceNode) -> None:
        """Replace `node_expectation` when the case is checked again from the model's inputs on."""

    def chained_expectation(self, name: str, rule_value: Value, is_undecided: bool) -> Value:
        """Return the value to compare a tensor with from the model's inputs on. is_undecided: whether it depends on an
        undecided choice.
        """
        return rule_value

    def kernel_expectation(
        self, members: Sequence[ReferenceNode], name: str, rule_value: Value, read: Callable[[str], Value]
    ) -> ExpectedValue:
        """Return the value to compare a kernel's tensor with; its last member computes it.

        read: returns a kernel input by name. Raise KeyError if there is no such value.
        """
        return ExpectedValue(rule_value)

    def compare_bits(self, node: str, output: str, actual: Array, case: int) -> Finding | None:
        """Return a finding about a device tensor in addition to its verdict. output: "" for a result of the fused
        program.
        """
        return None

    def close(self) -> None:
        """Free resources."""


class ValueOracle(Oracle):
    """A reference with its own values, each within the rules' bound for the types in which it computes.

    A tensor may differ from such a value by the sum of both bounds. A value beyond its own bound is a fault whatever
    the device computed: two runtimes with the same error prove nothing. Without a value, or after an undecided choice
    that the reference may have made differently, the tensor is compared with the rules only.
    any_float: values may have other float types.
    """

    any_float = False
    has_mixed_precision = False  # whether nodes compute at different precisions, as in the program under test
    has_own_values = True
    checks_kernels = False

    def __init__(self, types: ProgramTypes) -> None:
        super().__init__()
        self.types = types
        self._undecided_names: set[str] = set()  # tensors that depend on the reference's own choices
        self._tolerance: Tolerance = lambda node, output: None
        self._producers: dict[str, str] = {}
        self._samples: MonteCarloSamples | None = None
        self._case = -1
        self._case_values: dict[str, Array] = {}  # the reference's tensors of the current case
        self._case_notes: dict[str, str] = {}

    def bind(self, reference: Reference, tolerance: Tolerance, tensors: TensorSource) -> None:
        """Create runners for the rules in this reference's types."""
        self.reference = reference
        self._tolerance = tolerance
        self._producers = {name: node.name for node in reference.nodes for name in node.outputs}
        kind = Runner if self.has_mixed_precision else SingleTypeRunner
        self._runner = kind(reference.opsets, self.types)
        self._chain = kind(reference.opsets, self.types.with_independent_errors())
        for runner in (self._runner, self._chain):
            runner.custom_rules = dict(reference.runner.custom_rules)  # user kernels

    def begin_case(
        self, inputs: Mapping[str, Array], case_inputs: Mapping[str, Any], case: int, sampled: bool = False
    ) -> None:
        """Start a case and drop the previous one."""
        self.values_by_name = {name: bounded_input(value, self.types) for name, value in case_inputs.items()}
        self._samples = MonteCarloSamples() if sampled else None
        if self._samples is not None:
            self._samples.add_inputs(self.values_by_name, self.types)
        self._undecided_names = set()
        self.notes, self.faults = {}, {}
        if case != self._case:  # a repeated check uses the results of the first run
            self._case, self._case_values = case, self.compute_case(inputs, case_inputs, case)
            self._case_notes = dict(self.notes)
        self.own_values, self.notes = dict(self._case_values), dict(self._case_notes)

    def forget(self, name: str) -> None:
        """Drop a value after its last reader."""
        super().forget(name)
        if self._samples is not None:
            self._samples.pop(name)

    def compute_case(self, inputs: Mapping[str, Array], case_inputs: Mapping[str, Any], case: int) -> dict[str, Array]:
        """Return the reference's tensors of a case by name, as far as it has them."""
        raise NotImplementedError

    def evaluate_isolated(self, node: ReferenceNode, arrays: Mapping[str, Array | None]) -> Mapping[str, Any] | None:
        """Return the reference's results for a node's inputs by name, or None with a note."""
        return None

    def node_expectation(
        self, node: ReferenceNode, isolated: Mapping[str, Value], rule_results: dict[str, Value] | None
    ) -> dict[str, Value] | None:
        """Return the reference's values for the device's inputs, with the sum of both bounds."""
        self.follow_node(node)
        if self.chained or rule_results is None:
            return rule_results
        exact = {name: drop_error(value) for name, value in isolated.items()}
        arrays = {name: None if value is None else to_declared_array(value) for name, value in exact.items()}
        if any(arrays[name] is None and exact[name] is not None for name in arrays):
            self._note(node, "an input is no tensor, or no number of its type")
            return rule_results
        values = self.evaluate_isolated(node, arrays)
        own_bounded = self._try_evaluate(node, lambda: node.run(exact, self._runner))
        if values is None or own_bounded is None:
            return rule_results
        runner = self._runner
        return {
            name: self._with_contradiction(name, values.get(name), rule_value, own_bounded.get(name), runner)
            for name, rule_value in rule_results.items()
        }

    def chained_expectation(self, name: str, rule_value: Value, is_undecided: bool) -> Value:
        """Return the reference's tensor, with the sum of both bounds."""
        value = self.own_values.get(name)
        if value is None:
            return rule_value
        if rule_value is None:
            allowed = self._tolerance(self._producers.get(name, name), name)
            return None if allowed is None else Bounded(value, np.full(value.shape, allowed), value.dtype)
        if is_undecided or name in self._undecided_names:
            self.notes[name] = f"by the rules: what {self.name} has rests on a choice that rounding may turn"
            return rule_value
        return self._with_contradiction(name, value, rule_value, self.values_by_name.get(name), self._chain)

    def _note(self, node: ReferenceNode, why: str) -> None:
        self.notes.update((name, f"by the rules, not by {self.name}: {why}") for name in node.outputs)

    def _try_evaluate(self, node: ReferenceNode, run: Callable[[], dict[str, Value]]) -> dict[str, Value] | None:
        try:
            return run()
        except Undecided:
            self._undecided_names.update(node.outputs)
        except (Unproved, IndexError, KeyError, MemoryError):
            pass
        return None

    def follow_node(self, node: ReferenceNode) -> None:
        """Propagate the reference's own bounds, from its own value if no rule covers the node."""
        inputs = {name: self._value(name) for name in node.inputs}
        samples, chain = self._samples, self._chain
        results = (
            self._try_evaluate(node, lambda: samples.run(node, inputs, chain) if samples else node.run(inputs, chain))
            or {}
        )
        is_after_choice = any(name in self._undecided_names for name in node.inputs)
        for name in node.outputs:
            value, own_value = results.get(name), self.own_values.get(name)
            if isinstance(value, Bounded) and node.is_folded:
                value = value.as_constant()
            unsure = isinstance(value, Bounded) and not value.is_float and bool(np.isinf(value.errors()).any())
            if (value is None or unsure) and own_value is not None:
                value = Bounded(own_value, None, own_value.dtype)
            if is_after_choice or unsure or (value is not None and name not in results):
                self._undecided_names.add(name)
            self.values_by_name[name] = value

    def _value(self, name: str) -> Value:
        if name in self.values_by_name:
            return self.values_by_name[name]
        return self.reference.get_constant(name, self._chain) if name in self.reference.constants else None

    def _with_contradiction(
        self, name: str, value: Any, rule_value: Value, own_bounded: Value, runner: Runner
    ) -> Value:
        """Return the reference's value with the sum of both bounds, and record a contradiction."""
        expected = self._combine_bounds(value, rule_value, own_bounded, runner)
        if expected.fault:
            self.faults[name] = expected.fault
        return expected.value

    def _combine_bounds(self, value: Any, rule_value: Value, own_bounded: Value, runner: Runner) -> ExpectedValue:
        """Return the reference's value with the sum of both bounds, or the rules' value if its types cannot represent a
        number.
        """
        if not (isinstance(rule_value, Bounded) and isinstance(own_bounded, Bounded) and isinstance(value, np.ndarray)):
            return ExpectedValue(rule_value)
        alike = value.dtype == rule_value.dtype or (self.any_float and rule_value.is_float and is_float(value.dtype))
        if value.shape != rule_value.shape or not alike or own_bounded.shape != rule_value.shape:
            return ExpectedValue(Bounded(value, None, value.dtype))
        coverage = COVERAGE_FACTOR if runner.types.independent_errors else 1.0
        own = Bounded(own_bounded.value, own_bounded.error, value.dtype).with_alternatives(own_bounded.alternatives)
        deviation = compare_tensor(value, own, runner.types)
        fault = "" if deviation.ok else _describe_contradiction(self.name, deviation)
        if not rule_value.is_float:
            error = rule_value.errors() + own_bounded.errors()
            combined = Bounded(value, error if np.any(error) else None, rule_value.dtype)
            return ExpectedValue(_with_undecided_choices(combined, rule_value, own_bounded), "", fault)
        storage, read = self.types.storage_type(rule_value.dtype), self.types.read_back_type(value.dtype)
        with np.errstate(all="ignore"):
            exact = np.asarray(value, np.float64)
            error = own_bounded.errors() + (np.abs(exact) * read.unit + read.step if read.unit > storage.unit else 0.0)
            error = np.where(np.isfinite(exact), error, own_bounded.errors())
            # The weights may be rounded to either type.
            difference = np.abs(rule_value.value - own_bounded.value) / coverage
            error = error + np.where(np.isfinite(difference), difference, 0.0)
            largest = (np.abs(rule_value.value) + error * coverage) * (1 + storage.unit)
            beyond = np.isfinite(rule_value.value) & (largest > min(storage.largest, read.largest))
            values = np.where(beyond, rule_value.value, exact)
        combined = Bounded(values, rule_value.errors() + error, rule_value.dtype, rule_value.stored)
        return ExpectedValue(_with_undecided_choices(combined, rule_value, own_bounded), "", fault)


def _with_undecided_choices(combined: Bounded, rule_value: Bounded, own_bounded: Bounded) -> Bounded:
    """Return the reference's value, but the rules' alternatives for choices that it may have made differently."""
    masks = [value.alternatives.mask for value in (rule_value, own_bounded) if value.alternatives is not None]
    if not masks:
        return combined
    mask = np.any(masks, axis=0)
    error = np.where(mask, rule_value.errors(), combined.errors())
    value = np.where(mask, rule_value.value, combined.value)
    return Bounded(value, error if error.any() else None, rule_value.dtype, rule_value.stored).with_alternatives(
        rule_value.alternatives
    )


def _describe_contradiction(name: str, deviation: Deviation) -> str:
    where = f"{deviation.error:.3g} at {list(deviation.at)} ({deviation.actual} instead of {deviation.expected})"
    return f"{name} differs from the rules by {where}, allowed {deviation.allowed:.3g}: one of them is wrong"


def drop_error(value: Value) -> Value:
    """Return the value without its error."""
    return Bounded(value.value, None, value.dtype, True, value.constant) if isinstance(value, Bounded) else value


def to_declared_array(value: Value) -> Array | None:
    """Return an array of the declared type; None if that is lossy, or the value is not a tensor."""
    if not isinstance(value, Bounded):
        return None
    with np.errstate(all="ignore"):
        array = np.asarray(value.value).astype(value.dtype, order="C")
        same = not value.is_float or np.array_equal(np.asarray(array, np.float64), value.value, equal_nan=True)
    return array if same else None
