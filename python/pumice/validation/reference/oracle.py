"""Expected values of a validation: from the float64 rules, or from a reference with bounds (ValueOracle)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...base.element_types import Array
from ...base.string_table import TensorStringTable
from ...model.precision_policy import Precision
from ..report.deviation import Deviation, compare_tensor
from ..report.findings import Finding
from ..report.node_costs import NodeCost
from ..rules.bounded_tensor import BoundedTensor, UndecidedError, UnprovedError, Value
from ..rules.float_types import COVERAGE_FACTOR, ProgramTypes, is_float
from ..rules.program_values import make_bounded_input
from .monte_carlo import MonteCarloSamples
from .reference_model import ReferenceModel, ReferenceNode, RuleRunner, UniformPrecisionRunner
from .streaming import TensorMap


class ValidationSubject(Protocol):
    """What is validated: a loaded model or a candidate."""

    source: Any
    folder: Any
    name: str
    precision: Any
    kernel_table: Any

    @property
    def device(self) -> Any:
        """The device, an object with a `name`."""
        ...

    @property
    def program(self) -> Any:
        """An object with `outputs`, the named tensors that the caller receives."""
        ...

    @property
    def outputs(self) -> Any:
        """The model's outputs, which may be sequences."""
        ...

    def packed_outputs(self, values: Any) -> dict[str, Array]:
        """Return the program's tensors for outputs that are sequences or optional values."""
        ...


class TensorSource:
    """Source of the tensors under test: all tensors for checks of single nodes, and the optimised program's outputs.

    A subclass overrides what it knows: by default, nothing is known of the nodes, and there is nothing to free.
    missing_note: note for a missing tensor; "" if only outputs are checked. from_one_run: whether tensors and outputs
    come from the same run, so that comparing them proves nothing. types: the precision, or the types, of the computation.
    strings: string table of a program that represents strings as indices.
    """

    missing_note: str = ""
    from_one_run: bool = True
    types: Precision | ProgramTypes
    loop_timeout: float | None = None
    strings: TensorStringTable | None = None

    def mark_float32_nodes(self, reference: ReferenceModel) -> None:
        """Tell the reference which nodes compute in float32, and which float32 values are rounded for some readers."""

    def compute_tensors(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return every available tensor by name."""
        return {}

    def stream(self, inputs: dict[str, Array], reference: ReferenceModel) -> TensorMap:
        """Return the same tensors as `compute_tensors`, possibly loading those of later nodes on demand."""
        return TensorMap(self.compute_tensors(inputs))

    def get_addition_counts(self, inputs: dict[str, Array]) -> dict[str, int]:
        """Return the longest chain of additions in the kernel of each node.

        Kernels that do not report it are omitted. For a streamed model, only nodes that ran are included.
        """
        return {}

    def measure_node_costs(self, inputs: dict[str, Array]) -> dict[str, NodeCost]:
        """Return the cost of each node by name; {} if it is unknown."""
        return {}

    def compute_outputs(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return the outputs by name. Raise IndexRangeError if the program checks indices and finds a wrong one."""
        return {}

    def check_indices(self, inputs: dict[str, Array]) -> None:
        """Raise IndexRangeError for an out-of-range index that only the device knows."""

    def close(self) -> None:
        """Free resources."""


Tolerance = Callable[[str, str], "float | None"]  # (node name, tensor name) -> the caller's tolerance, or None


class ExpectedValue(NamedTuple):
    """The value with which a kernel's tensor is compared.

    note: why the value comes only from the rules. fault: how the reference contradicts the rules.
    """

    value: Value
    note: str = ""
    fault: str = ""


class Oracle:
    """Supplies expected values from the float64 rules. Subclasses take them from another reference instead.

    chained: whether the reference only has values computed from the model's inputs, so that no node is checked on the
    device's inputs.
    values_by_name, own_values: tensors by name, kept until their last reader. notes: tensor -> why the rules are used
    instead. faults: tensor -> how the reference itself exceeds its bound.
    """

    name = "float64"
    chained = False
    has_own_values = False  # whether expected values come from the oracle, which then needs the inputs of the nodes
    checks_kernels = True  # whether kernels can be checked; most references have no intermediates of a kernel

    def __init__(self) -> None:
        self.values_by_name: dict[str, Value] = {}
        self.own_values: dict[str, Array] = {}
        self.notes: dict[str, str] = {}
        self.faults: dict[str, str] = {}

    def prepare_for_model(self, reference: ReferenceModel, tolerance: Tolerance, tensors: TensorSource) -> None:
        """Prepare for a model, once before any case. Raise InputError if the reference does not fit the model."""

    def begin_case(
        self, inputs: Mapping[str, Array], case_inputs: Mapping[str, Any], case: int, sampled: bool = False
    ) -> None:
        """Start a case, given the program's inputs and the model's.

        sampled: whether to track correlated errors by sampling.
        """

    def forget(self, name: str) -> None:
        """Drop a value after its last reader."""
        self.values_by_name.pop(name, None)
        self.own_values.pop(name, None)

    def compute_expected_outputs(
        self, node: ReferenceNode, isolated: Mapping[str, Value], rule_results: dict[str, Value] | None
    ) -> dict[str, Value] | None:
        """Return the values with which to compare a node's outputs. isolated: live values, with the device's inputs."""
        return rule_results

    def advance_past_node(self, node: ReferenceNode) -> None:
        """Advance past a node if a case is rechecked from the model's inputs on, instead of `compute_expected_outputs`."""

    def get_expected_chained_value(self, name: str, rule_value: Value, is_undecided: bool) -> Value:
        """Return the expected value of a tensor computed from the model's inputs. is_undecided: whether it depends on a choice."""
        return rule_value

    def compute_expected_kernel_value(
        self, members: Sequence[ReferenceNode], name: str, rule_value: Value, read: Callable[[str], Value]
    ) -> ExpectedValue:
        """Return the value with which to compare a kernel's tensor, the result of its last member.

        read: returns a kernel input by name. Raise KeyError if there is no such value.
        """
        return ExpectedValue(rule_value)

    def compare_bits(self, node: str, output: str, actual: Array, case: int) -> Finding | None:
        """Return a finding about a device tensor that is reported in addition to its verdict, or None.

        output: "" for a result of the fused program.
        """
        return None

    def close(self) -> None:
        """Free resources."""


class ValueOracle(Oracle):
    """A reference with its own values, each within the rules' bound for the types in which it computes.

    A tensor may differ from such a value by the sum of both bounds. A reference value beyond its own bound is a fault,
    even if the device agrees: two runtimes with the same error prove nothing. Without a reference value, or after an
    undecided choice that the reference may have made differently, the tensor is compared with the rules only.
    any_float: whether values may have float types other than the declared ones.
    """

    any_float = False
    has_mixed_precision = False  # whether nodes compute at different precisions, like those of the program under test
    has_own_values = True
    checks_kernels = False

    def __init__(self, types: ProgramTypes) -> None:
        super().__init__()
        self.types = types
        self._undecided_names: set[str] = set()  # tensors that depend on a choice of the reference
        self._tolerance: Tolerance = lambda node, output: None
        self._producers: dict[str, str] = {}
        self._samples: MonteCarloSamples | None = None
        self._case = -1
        self._case_values: dict[str, Array] = {}  # the reference's tensors of the current case
        self._case_notes: dict[str, str] = {}

    def prepare_for_model(self, reference: ReferenceModel, tolerance: Tolerance, tensors: TensorSource) -> None:
        """Create runners for the rules in this reference's types."""
        self.reference = reference
        self._tolerance = tolerance
        self._producers = {name: node.name for node in reference.nodes for name in node.outputs}
        kind = RuleRunner if self.has_mixed_precision else UniformPrecisionRunner
        self._runner = kind(reference.opsets, self.types)
        self._chain = kind(reference.opsets, self.types.with_independent_errors())
        for runner in (self._runner, self._chain):
            runner.custom_rules = dict(reference.runner.custom_rules)  # the rules of user kernels

    def begin_case(
        self, inputs: Mapping[str, Array], case_inputs: Mapping[str, Any], case: int, sampled: bool = False
    ) -> None:
        """Start a case and drop the previous one."""
        self.values_by_name = {name: make_bounded_input(value, self.types) for name, value in case_inputs.items()}
        self._samples = MonteCarloSamples() if sampled else None
        if self._samples is not None:
            self._samples.add_inputs(self.values_by_name, self.types)
        self._undecided_names = set()
        self.notes, self.faults = {}, {}
        if case != self._case:  # a recheck of the same case reuses the values
            self._case, self._case_values = case, self.run_reference(inputs, case_inputs, case)
            self._case_notes = dict(self.notes)
        self.own_values, self.notes = dict(self._case_values), dict(self._case_notes)

    def forget(self, name: str) -> None:
        """Drop a value after its last reader."""
        super().forget(name)
        if self._samples is not None:
            self._samples.pop(name)

    def run_reference(self, inputs: Mapping[str, Array], case_inputs: Mapping[str, Any], case: int) -> dict[str, Array]:
        """Return the reference's tensors for a case, by name."""
        raise NotImplementedError

    def evaluate_isolated(self, node: ReferenceNode, arrays: Mapping[str, Array | None]) -> Mapping[str, Any] | None:
        """Run a node in the reference on the given inputs (name -> array). Return its results by name, or None after adding a note."""
        return None

    def compute_expected_outputs(
        self, node: ReferenceNode, isolated: Mapping[str, Value], rule_results: dict[str, Value] | None
    ) -> dict[str, Value] | None:
        """Return the reference's values on the device's inputs, with the sum of its own and the rules' bound."""
        self.advance_past_node(node)
        if self.chained or rule_results is None:
            return rule_results
        exact = {name: drop_error_bound(value) for name, value in isolated.items()}
        arrays = {name: None if value is None else to_declared_array(value) for name, value in exact.items()}
        if any(arrays[name] is None and exact[name] is not None for name in arrays):
            self._add_note(node, "an input is not a tensor, or not a number of its type")
            return rule_results
        values = self.evaluate_isolated(node, arrays)
        oracle_bounded = self._try_evaluate(node, lambda: node.run(exact, self._runner))
        if values is None or oracle_bounded is None:
            return rule_results
        runner = self._runner
        return {
            name: self._combine_and_record_contradiction(
                name, values.get(name), rule_value, oracle_bounded.get(name), runner
            )
            for name, rule_value in rule_results.items()
        }

    def get_expected_chained_value(self, name: str, rule_value: Value, is_undecided: bool) -> Value:
        """Return the reference's tensor, with the sum of its own and the rules' bound."""
        value = self.own_values.get(name)
        if value is None:
            return rule_value
        if rule_value is None:
            allowed = self._tolerance(self._producers.get(name, name), name)
            return None if allowed is None else BoundedTensor(value, np.full(value.shape, allowed), value.dtype)
        if is_undecided or name in self._undecided_names:
            self.notes[name] = f"by the rules: what {self.name} has depends on a choice that rounding may flip"
            return rule_value
        return self._combine_and_record_contradiction(
            name, value, rule_value, self.values_by_name.get(name), self._chain
        )

    def _add_note(self, node: ReferenceNode, reason: str) -> None:
        self.notes.update((name, f"by the rules, not by {self.name}: {reason}") for name in node.outputs)

    def _try_evaluate(self, node: ReferenceNode, run: Callable[[], dict[str, Value]]) -> dict[str, Value] | None:
        try:
            return run()
        except UndecidedError:
            self._undecided_names.update(node.outputs)
        except (UnprovedError, IndexError, KeyError, MemoryError):
            pass
        return None

    def advance_past_node(self, node: ReferenceNode) -> None:
        """Propagate the reference's own bounds. If no rule covers the node, continue from the reference's value."""
        inputs = {name: self._get_value(name) for name in node.inputs}
        samples, chain = self._samples, self._chain
        results = (
            self._try_evaluate(node, lambda: samples.run(node, inputs, chain) if samples else node.run(inputs, chain))
            or {}
        )
        is_after_choice = any(name in self._undecided_names for name in node.inputs)
        for name in node.outputs:
            value, own_value = results.get(name), self.own_values.get(name)
            if isinstance(value, BoundedTensor) and node.is_folded:
                value = value.as_constant()
            undecided = (
                isinstance(value, BoundedTensor) and not value.is_float and bool(np.isinf(value.get_errors()).any())
            )
            if (value is None or undecided) and own_value is not None:
                value = BoundedTensor(own_value, None, own_value.dtype)
            if is_after_choice or undecided or (value is not None and name not in results):
                self._undecided_names.add(name)
            self.values_by_name[name] = value

    def _get_value(self, name: str) -> Value:
        if name in self.values_by_name:
            return self.values_by_name[name]
        return self.reference.get_constant(name, self._chain) if name in self.reference.constants else None

    def _combine_and_record_contradiction(
        self, name: str, value: Any, rule_value: Value, oracle_bounded: Value, runner: RuleRunner
    ) -> Value:
        """Return the reference's value with the sum of both bounds, and record a contradiction."""
        expected = self._combine_bounds(value, rule_value, oracle_bounded, runner)
        if expected.fault:
            self.faults[name] = expected.fault
        return expected.value

    def _combine_bounds(
        self, value: Any, rule_value: Value, oracle_bounded: Value, runner: RuleRunner
    ) -> ExpectedValue:
        """Return the reference's value with the sum of both bounds.

        If the reference's types cannot represent a number, return the rules' value instead.
        """
        if not isinstance(rule_value, BoundedTensor) or not isinstance(oracle_bounded, BoundedTensor):
            return ExpectedValue(rule_value)
        if not isinstance(value, np.ndarray):
            return ExpectedValue(rule_value)
        alike = value.dtype == rule_value.dtype or (self.any_float and rule_value.is_float and is_float(value.dtype))
        if value.shape != rule_value.shape or not alike or oracle_bounded.shape != rule_value.shape:
            return ExpectedValue(BoundedTensor(value, None, value.dtype))
        coverage = COVERAGE_FACTOR if runner.types.independent_errors else 1.0
        oracle_value = BoundedTensor(oracle_bounded.value, oracle_bounded.error, value.dtype).set_alternatives(
            oracle_bounded.alternatives
        )
        deviation = compare_tensor(value, oracle_value, runner.types)
        fault = "" if deviation.ok else _describe_contradiction(self.name, deviation)
        if not rule_value.is_float:
            error = rule_value.get_errors() + oracle_bounded.get_errors()
            combined = BoundedTensor(value, error if np.any(error) else None, rule_value.dtype)
            return ExpectedValue(_with_undecided_choices(combined, rule_value, oracle_bounded), "", fault)
        storage, read = self.types.get_storage_type(rule_value.dtype), self.types.get_read_back_type(value.dtype)
        with np.errstate(all="ignore"):
            exact = np.asarray(value, np.float64)
            error = oracle_bounded.get_errors() + (
                np.abs(exact) * read.unit + read.step if read.unit > storage.unit else 0.0
            )
            error = np.where(np.isfinite(exact), error, oracle_bounded.get_errors())
            # The weights may be rounded to the type of the rules or of the reference.
            difference = np.abs(rule_value.value - oracle_bounded.value) / coverage
            error = error + np.where(np.isfinite(difference), difference, 0.0)
            largest = (np.abs(rule_value.value) + error * coverage) * (1 + storage.unit)
            beyond = np.isfinite(rule_value.value) & (largest > min(storage.largest, read.largest))
            values = np.where(beyond, rule_value.value, exact)
        combined = BoundedTensor(values, rule_value.get_errors() + error, rule_value.dtype, rule_value.stored)
        return ExpectedValue(_with_undecided_choices(combined, rule_value, oracle_bounded), "", fault)


def _with_undecided_choices(
    combined: BoundedTensor, rule_value: BoundedTensor, oracle_bounded: BoundedTensor
) -> BoundedTensor:
    """Return the reference's value, with the rules' alternatives for choices that the reference may make differently."""
    masks = [value.alternatives.mask for value in (rule_value, oracle_bounded) if value.alternatives is not None]
    if not masks:
        return combined
    mask = np.any(masks, axis=0)
    error = np.where(mask, rule_value.get_errors(), combined.get_errors())
    value = np.where(mask, rule_value.value, combined.value)
    return BoundedTensor(value, error if error.any() else None, rule_value.dtype, rule_value.stored).set_alternatives(
        rule_value.alternatives
    )


def _describe_contradiction(name: str, deviation: Deviation) -> str:
    where = f"{deviation.error:.3g} at {list(deviation.at)} ({deviation.actual} instead of {deviation.expected})"
    return f"{name} differs from the rules by {where}, allowed {deviation.allowed:.3g}: one of them is wrong"


def drop_error_bound(value: Value) -> Value:
    """Return the value with an error of zero."""
    return (
        BoundedTensor(value.value, None, value.dtype, True, value.constant)
        if isinstance(value, BoundedTensor)
        else value
    )


def to_declared_array(value: Value) -> Array | None:
    """Return an array of the declared type; None if that is lossy, or the value is not a tensor."""
    if not isinstance(value, BoundedTensor):
        return None
    with np.errstate(all="ignore"):
        array = np.asarray(value.value).astype(value.dtype, order="C")
        same = not value.is_float or np.array_equal(np.asarray(array, np.float64), value.value, equal_nan=True)
    return array if same else None
