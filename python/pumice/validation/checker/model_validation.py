"""Compares a model's unfused and fused programs with the reference, case by case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from ..._pumice import IndexRangeError
from ...base.element_types import Array
from ...base.errors import InputError
from ...importer.load_graph import load_graph
from ...model.model import Model
from ..reference import streaming
from ..reference.oracle import Oracle, TensorSource, ValidationSubject
from ..reference.reference_model import ReferenceModel, ReferenceNode, RuleRunner
from ..reference.single_node_programs import (
    OPTIMIZED_PROGRAM_NOT_RUN,
    ReferenceValues,
    SingleNodePrograms,
    SingleNodeResult,
)
from ..reference.streaming import TensorMap, WindowedTensors
from ..reference.tensor_sources import DeviceTensors
from ..report.deviation import Deviation, compare_node_output, compare_tensor
from ..report.findings import NOT_DETERMINISTIC, RACE, Finding
from ..report.report_rows import ValidationRow
from ..report.tensor_statistics import compute_statistics
from ..rules.bounded_tensor import BoundedTensor, UndecidedError, UnprovedError, Value
from ..rules.float_types import ProgramTypes, dtype_name, is_float
from ..rules.program_values import make_bounded_constant, make_bounded_input
from .case_results import (
    OBSERVED_RUN,
    CaseResultCache,
    ResultCollector,
    compare_output_bits,
    describe_unproved_nodes,
    find_racing_step,
    get_observed_outputs,
    make_empty_case_rows,
    make_unchecked_row,
)
from .error_propagation import ErrorPropagation, iter_ill_conditioned_findings, make_overflow_finding
from .kernel_checker import ControlFlowKernelChecker, KernelChecker
from .live_values import KernelCheck, LiveValues, RuleResults, make_device_value, widen_error
from .options import ValidationOptions, check_option_names
from .output_values import ExactOutputs, OutputScales, get_non_tensor_output_values
from .range_findings import RangeFindings

_UNDECIDED_PREFIX = "undecided: "
_FLOAT32_UNIT = 2.0**-24  # unit roundoff of float32


class _IsolatedCheck(NamedTuple):
    """Check of a node on its own: whether a rule covers it, and for each output a deviation, a note and a reference fault."""

    is_covered: bool
    deviations: dict[str, Deviation | None]
    notes: dict[str, str]
    faults: dict[str, str]


class ModelValidation:
    """Checks a model case by case, and collects rows and findings."""

    def __init__(
        self,
        fused: ValidationSubject,
        options: ValidationOptions,
        oracle: Oracle | None = None,
        tensors: TensorSource | None = None,
    ) -> None:
        self.fused = fused
        self.options = options
        self.tensors: TensorSource = tensors or DeviceTensors(cast(Model, fused), load_graph)
        self.oracle = oracle or Oracle()
        self.reference = ReferenceModel(fused.source, fused.folder, self.tensors.types, fused.kernel_table)
        self.reference.strings = self.tensors.strings
        self.tensors.mark_float32_nodes(self.reference)
        self.oracle.prepare_for_model(self.reference, options.get_tolerance, self.tensors)
        self.ranges = RangeFindings(self.reference, fused)
        self.kernels, self.flow_kernels = (None, None) if tensors is not None else self._make_kernel_checkers()
        self.types: ProgramTypes = self.reference.types
        self.nodes = {node.name: node for node in self.reference.nodes}
        try:
            check_option_names(fused, self.reference, options)
        except InputError:
            self.close()
            raise
        self.collected = ResultCollector()
        self.runs = CaseResultCache(self.tensors)
        self._is_recheck = False  # whether the case is checked again, from the model's inputs on
        self._isolated_checks: dict[str, _IsolatedCheck] = {}  # by node name, from the first check of the case
        self.isolated = LiveValues(self.reference, self.reference.runner, {})  # live values of the current case
        self._exact = ExactOutputs(self.reference, {})  # exact outputs of the current case
        self._chained = self.reference.chained
        # Checks further results of the fused program for the last case; None if outputs are not checked.
        self.check_results: Callable[[Mapping[str, Array]], None] | None = None
        # Maps each tensor that depends on an overflow in the unfused program to the node that overflows.
        self._overflow_sources: dict[str, str] = {}
        # Integers and booleans of the unfused program, if there is control flow.
        self.choices: dict[str, Array] = {}
        results = {value.name for value in fused.program.outputs} | {value.name for value in fused.outputs}
        self._readers = self.reference.find_last_readers(results)
        self._read_names = {name for node in self.reference.nodes for name in node.inputs}

    def _make_kernel_checkers(self) -> tuple[KernelChecker | None, ControlFlowKernelChecker | None]:
        """Return the kernel checkers for programs without and with control flow; one of them is None."""
        program, reference, tolerance = self.fused.program, self.reference, self.options.get_tolerance
        check_kernels = self.oracle.checks_kernels and self.options.mode != "chained"
        if program.has_control_flow:
            return None, ControlFlowKernelChecker(program, reference, tolerance, check_kernels)
        return KernelChecker(program, reference, tolerance, self.oracle) if check_kernels else None, None

    @property
    def skip_reason(self) -> str:
        """Why the optimised program's kernels are not checked; "" if they are checked, or if no check was requested."""
        checker = self.kernels or self.flow_kernels
        return checker.skip_reason if checker else ""

    def close(self) -> None:
        """Close the programs compiled for the validation."""
        self.tensors.close()
        self.oracle.close()

    # ---- one case

    def run(self, inputs: dict[str, Array], case_inputs: dict[str, Any], case: int, step: Callable[[], None]) -> None:
        """Check every node and output of a case, using one run (several for streamed models).

        Propagated errors are first assumed to be independent; if a tensor exceeds its bound, other error models follow.
        """
        self.runs.begin_case()
        self.collected.begin_case()
        self._case = case
        case_inputs = self.reference.select_case_inputs(case_inputs, inputs)
        self._exact = ExactOutputs(self.reference, case_inputs)
        for number, (sampled, runner) in enumerate(self._error_models):
            self._is_recheck, self._chained = number > 0, runner
            if self._is_recheck:
                last = dict(self.collected.rows)
                self.collected.restart_case()
            try:
                # Rechecks report no progress.
                self._run_once(inputs, case_inputs, step if number == 0 else lambda: None, sampled)
            except IndexRangeError as error:  # every program rejects these inputs
                self.collected.add_fault(error.node, case, str(error))
                return
            if differing := self.runs.differing:
                self.collected.rows = last
                text = f"{len(differing)} tensors have other bits when the program of single nodes runs again"
                self.collected.add_finding(Finding(NOT_DETERMINISTIC, differing[0], text, len(differing), case))
                break
            wrong = self.collected.get_wrong_rows()
            faults = self.oracle.faults.values()  # the reference's errors may be correlated too
            only_chained = all(
                row.deviation is row.accumulated and (not row.fault or row.fault in faults) for row in wrong
            )
            if not wrong or not only_chained:
                break
        self._compare_runs(inputs)

    @property
    def _error_models(self) -> list[tuple[bool, RuleRunner]]:
        """Error models for values computed from the model's inputs: pairs (whether to sample, runner)."""
        independent, worst_case = self.reference.chained, self.reference.runner
        models = [(False, independent), (True, independent)]
        if self.types.get_storage_type(np.dtype(np.float32)).unit <= _FLOAT32_UNIT:
            models.append((False, worst_case))
        return [*models, (False, independent.with_types(independent.types.with_overflow()))]

    def _run_once(
        self, inputs: dict[str, Array], case_inputs: dict[str, Any], step: Callable[[], None], sampled: bool
    ) -> None:
        device_tensors = self.runs.stream(inputs, self.reference)
        if lazy := isinstance(device_tensors, WindowedTensors):
            self._exact = ExactOutputs(self.reference, None)
        isolated = self.isolated = LiveValues(self.reference, self.reference.runner, case_inputs, lazy=lazy)
        chained = LiveValues(self.reference, self._chained, case_inputs, sampled, lazy, isolated)
        propagation, self.scales = ErrorPropagation(), OutputScales(self.reference)
        self._overflow_sources, self.choices = {}, {}
        self.oracle.begin_case(inputs, case_inputs, self._case, sampled)
        if not self._is_recheck:
            self._check_indices(inputs)
        if self.kernels and not self._is_recheck:
            self.kernels.begin_case(inputs, case_inputs, streaming.WINDOW_BYTES if lazy else None)
        step()
        for index, node in enumerate(self.reference.nodes):
            device_tensors.load(index)
            if index == 0 or lazy:
                isolated.additions = self.tensors.get_addition_counts(inputs)
            isolated.device_results = {} if self.tensors.from_one_run else device_tensors
            self._check_node(node, device_tensors, chained, propagation)
            if self.options.mode != "isolated":
                self.scales.add_node(node, chained)
            for name in self._readers.get(index, ()):
                for values in (isolated, chained, self.oracle):
                    values.forget(name)
                device_tensors.pop(name, None)
            step()
        if self.flow_kernels and not self._is_recheck:
            self._check_control_flow(self.flow_kernels, inputs, device_tensors)
        if self.options.mode != "isolated":
            self._check_outputs(inputs, chained, propagation)

    def _check_indices(self, inputs: dict[str, Array]) -> None:
        """Check for out-of-range indices whose values only the device knows."""
        try:
            self.tensors.check_indices(inputs)
        except IndexRangeError as error:
            self.collected.add_fault(error.node, self._case, str(error))

    def _evaluate(
        self, node: ReferenceNode, values: LiveValues, device_tensors: Mapping[str, Array]
    ) -> tuple[RuleResults, str]:
        """Evaluate a node by the rules. Return its results, or None and the reason."""
        try:
            return values.run(node, device_tensors), ""
        except UndecidedError as error:
            return None, f"{_UNDECIDED_PREFIX}{error}"
        except UnprovedError as error:
            return None, str(error)
        except IndexError as error:
            self.collected.add_fault(node.name, self._case, f"wrong index: {error}")
            return None, f"an index is out of range: {error}"
        except (KeyError, MemoryError) as error:
            return None, f"the reference fails: {type(error).__name__}: {error}"

    def _evaluate_chained(
        self, node: ReferenceNode, chained: LiveValues, packable: dict[str, Array]
    ) -> tuple[RuleResults, str]:
        """Evaluate a node on values computed from the model's inputs. Return its results, and the reason if they are missing."""
        if self.options.mode == "isolated":
            return None, ""
        results, note = self._evaluate(node, chained, packable)
        if results is not None:
            types, tolerance = self._chained.types, self.options.get_tolerance
            results = {name: widen_error(value, tolerance(node.name, name), types) for name, value in results.items()}
        if not note.startswith(_UNDECIDED_PREFIX):
            return results, note
        # Later nodes continue from the device's choice.
        chained.choice_sources.update(dict.fromkeys(node.outputs, node.name))
        return results, ""

    def _check_node(
        self, node: ReferenceNode, device_tensors: TensorMap, chained: LiveValues, propagation: ErrorPropagation
    ) -> None:
        types, lazy = self.types.at_precision(node.precision), isinstance(device_tensors, WindowedTensors)
        # In streamed models, pack values to save memory.
        packable = device_tensors if lazy and not self.oracle.has_own_values else {}
        results, kernels = self._check_isolated(node, device_tensors, packable)
        check = self._isolated_checks[node.name]
        missing = chained.find_unproved_inputs(node)
        chained_results, note = self._evaluate_chained(node, chained, packable)
        if (chained_results is None and note) or not check.is_covered:
            missing = (*missing, node.name)
        chained.track_device_values(node)
        if text := chained.describe_choice(node, chained_results):
            self.collected.add_finding(Finding("undecided decisions", node.name, text, case=self._case))
        overflow_sources = [self._overflow_sources[name] for name in node.inputs if name in self._overflow_sources]
        for name in node.outputs:
            tensor, value = device_tensors.get(name), (chained_results or {}).get(name)
            device_value = None if tensor is None else make_device_value(tensor, types, value, lazy)
            self.isolated.store_isolated(node, name, tensor, device_value, results)
            chained.store_chained(node, name, device_value, chained_results)
            if missing:
                chained.unproved[name] = missing
            if overflow_sources:
                self._overflow_sources[name] = overflow_sources[0]
            if tensor is not None:
                expected = self.oracle.get_expected_chained_value(name, value, name in chained.choice_sources)
                reason = check.notes[name] or note or self.oracle.notes.get(name, "")
                self._add_node_row(node, name, tensor, check.deviations[name], expected, reason)
                self._compare_with_other_run(node.name, name, tensor)
                if isinstance(value, BoundedTensor):
                    self._record_propagation(node, name, tensor, value, propagation)
                if self.flow_kernels and not is_float(tensor.dtype):
                    self.choices[name] = tensor
            else:
                self._add_missing_row(node, name, (results or chained_results or {}).get(name))
        for row in kernels:
            self.collected.add_row(row, fixed=True)

    def _add_missing_row(self, node: ReferenceNode, name: str, value: Value) -> None:
        """Add a row for a tensor that nodes read but that the program under test does not provide."""
        is_missing = self.tensors.missing_note and not self._is_recheck and name in self._read_names
        if is_missing and isinstance(value, BoundedTensor):
            row = make_unchecked_row(node, name, value.value, self._case)
            self.collected.add_row(row._replace(note=self.tensors.missing_note, waived=True), fixed=True)

    def _check_isolated(
        self, node: ReferenceNode, device_tensors: TensorMap, packable: dict[str, Array]
    ) -> tuple[RuleResults, list[ValidationRow]]:
        """Check a node on the device's inputs. Return the rules' results and the rows of kernels that end there."""
        if self._is_recheck:
            self.oracle.advance_past_node(node)
            return None, []
        isolated = self.isolated
        results, note = (None, "") if self.options.mode == "chained" else self._evaluate(node, isolated, packable)
        for finding in self.ranges.iter_node_findings(node, isolated, results or {}, device_tensors):
            self.collected.add_finding(finding._replace(case=self._case), fixed=True)
        inputs = isolated.get_inputs(node) if results is not None and self.oracle.has_own_values else {}
        expected = self.oracle.compute_expected_outputs(node, inputs, results)
        deviations = {
            name: self._compare_isolated(node, name, device_tensors[name], (expected or {}).get(name))
            for name in node.outputs
            if name in device_tensors
        }
        notes = {name: note or self.oracle.notes.get(name, "") for name in deviations}
        faults = {name: self.oracle.faults[name] for name in deviations if name in self.oracle.faults}
        self._isolated_checks[node.name] = _IsolatedCheck(results is not None or not note, deviations, notes, faults)
        oracle_results = expected if self.oracle.has_own_values else None
        del expected  # it would keep alive the values that are freed below
        if packable and results is not None and not node.is_folded:  # free unread values before creating new ones
            results = {
                name: self._drop_unread_elements(node, name, value, name in device_tensors)
                for name, value in results.items()
            }
        kernels = self._check_kernels(node, device_tensors, results if oracle_results is None else oracle_results)
        if packable and self.options.mode == "both" and results is not None and not node.is_folded:
            results = {name: None if name in device_tensors else value for name, value in results.items()}
        return results, kernels

    def _drop_unread_elements(self, node: ReferenceNode, name: str, value: Value, is_checked: bool) -> Value:
        """Return a checked value, or an empty tensor of its type if nothing reads its elements later."""
        is_read = not is_checked or (self.kernels and self.kernels.reads_value(node, name))
        if is_read or not isinstance(value, BoundedTensor):
            return value
        return BoundedTensor(np.zeros(0), None, value.dtype)

    def _compare_isolated(self, node: ReferenceNode, name: str, actual: Array, expected: Value) -> Deviation | None:
        types = self.reference.runner.types.at_precision(node.precision)
        return self._compare(node, actual, expected, types, self.options.get_tolerance(node.name, name))

    def _check_kernels(
        self, node: ReferenceNode, device_tensors: TensorMap, isolated_results: RuleResults
    ) -> list[ValidationRow]:
        """Check the tensors that the optimised program stored for this node's outputs."""
        if not self.kernels:
            return []
        tolerances = {name: self.options.get_tolerance(node.name, name) for name in node.outputs}
        additions = self.isolated.additions.get(node.name, 0)
        checks = self.kernels.check_kernels(node, device_tensors, isolated_results, tolerances, additions)
        return [self._make_kernel_row(node, check) for check in checks]

    def _make_kernel_row(self, node: ReferenceNode, check: KernelCheck) -> ValidationRow:
        row = make_unchecked_row(node, check.name, check.stored.array, self._case)
        waived = self._is_output_waived(check.name, check.unproved)
        note = check.note or (self.oracle.notes.get(check.name, "") if check.members == (node.name,) else "")
        row = row._replace(local=check.deviation, note=note, unproved=check.unproved, waived=waived, fault=check.fault)
        row = row._replace(program="kernels", members=check.members, kernel=check.stored.kernel)
        return row._replace(statistics=check.statistics)

    def _check_control_flow(
        self, kernels: ControlFlowKernelChecker, inputs: dict[str, Array], device_tensors: TensorMap
    ) -> None:
        """Check the tensors that an optimised program with control flow stored."""
        if isinstance(device_tensors, WindowedTensors):
            kernels.skip_case("the tensors do not fit on the host together")
        owners = [(node, name) for node in self.reference.nodes for name in node.outputs]
        tolerances = {name: self.options.get_tolerance(node.name, name) for node, name in owners}
        for check in kernels.check_kernels(inputs, self.choices, tolerances, self.tensors.loop_timeout):
            row = self._make_kernel_row(check.owner, check.attributed_check)
            if self.oracle.has_own_values and not row.note:
                row = row._replace(note=f"by the rules, not by {self.oracle.name}: the program has control flow")
            waived = self.options.allows_unproved(check.owner.op, check.owner.operator, check.owner.name)
            self.collected.add_row(check.attribute_row(row, waived), fixed=True)

    def _add_node_row(
        self,
        node: ReferenceNode,
        name: str,
        actual: Array,
        isolated_deviation: Deviation | None,
        chained_value: Value,
        note: str,
    ) -> None:
        row = make_unchecked_row(node, name, actual, self._case)
        allowed = self.options.get_tolerance(node.name, name)
        types = self._chained.types.at_precision(node.precision)
        accumulated = self._compare(node, actual, chained_value, types, allowed)
        if self.options.mode == "both" and isolated_deviation is None:
            accumulated = None  # in mode "both", a node is checked on the device's inputs or not at all
            note = note or "the reference has no such value"
        source = self._overflow_sources.get(name)
        if self.options.mode == "chained" and source is not None and accumulated is not None and not accumulated.ok:
            # A fused program may never store the overflowing number; its outputs show whether it matters.
            accumulated = None
            note = f"depends on node '{source}', which overflows"
        waived = self.options.allows_unproved(node.op, node.operator, node.name, name)
        if isolated_deviation is None and accumulated is None:
            row = row._replace(unproved=(node.name,))
        check = self._isolated_checks.get(node.name)
        fault = (check.faults.get(name, "") if check else "") or self.oracle.faults.get(name, "")
        row = row._replace(note=note, fault=fault, waived=waived, statistics=compute_statistics(actual, chained_value))
        self.collected.add_row(
            row._replace(local=isolated_deviation, accumulated=accumulated, has_tolerance=allowed is not None)
        )

    def _compare(
        self, node: ReferenceNode, actual: Array, expected: Value, types: ProgramTypes, allowed: float | None
    ) -> Deviation | None:
        if not isinstance(expected, BoundedTensor):
            return None
        return compare_node_output(node.op, actual, expected, types, allowed)

    def _record_propagation(
        self, node: ReferenceNode, name: str, actual: Array, expected: BoundedTensor, propagation: ErrorPropagation
    ) -> None:
        types = self.types.at_precision(node.precision)
        propagation.add(node, name, actual, expected, types)
        if overflow := make_overflow_finding(node.name, actual, expected, types, self.fused.precision):
            self.collected.add_finding(overflow._replace(case=self._case))
            if not self.tensors.from_one_run:
                self._overflow_sources.setdefault(name, node.name)

    def _compare_with_other_run(self, node: str, name: str, array: Array) -> None:
        if not self._is_recheck and (finding := self.oracle.compare_bits(node, name, array, self._case)):
            self.collected.add_finding(finding, fixed=True)

    def _compare_runs(self, inputs: dict[str, Array]) -> None:
        """Compare a plain and an observed run of the case bit for bit. If they differ, search for the first differing step.

        Also search if an output is wrong but all kernels are right: the observed run's copies make the device wait, which
        can hide a race.
        """
        if not isinstance(self.tensors, DeviceTensors):
            return
        try:
            results = self.runs.compute_outputs(inputs)
        except IndexRangeError:  # raised by a model with index checks; already recorded as a fault
            return
        if self.options.mode == "isolated":  # this mode checks no outputs
            for row in make_empty_case_rows(results, self._case, self.options.allows_unproved):
                self.collected.add_row(row)
        differing = self._find_differing_outputs(inputs, results)
        for finding in differing:
            self.collected.add_finding(finding)
        wrong = self.collected.get_wrong_rows()
        only_outputs_wrong = self.kernels is not None and bool(wrong) and all(row.op == "output" for row in wrong)
        program = self.fused.program
        if program.has_control_flow or not (differing or only_outputs_wrong):
            return
        step = find_racing_step(program, [inputs[value.name] for value in program.inputs], self.reference.nodes)
        if step is not None:
            self.collected.add_finding(Finding(RACE, step.node, str(step), step.number, self._case))
            if wrong:
                self.collected.add_row(self.collected.make_racing_row(step, self._case))

    def _find_differing_outputs(self, inputs: dict[str, Array], results: dict[str, Array]) -> list[Finding]:
        if self.flow_kernels:
            return [
                *compare_output_bits(results, self.flow_kernels.outputs, OBSERVED_RUN, self._case),
                *self.flow_kernels.make_difference_findings(self._case),
            ]
        outputs = self.kernels.outputs if self.kernels else None
        if outputs is None:
            outputs = self.reference.decode_strings(get_observed_outputs(self.fused.program, inputs))
        return compare_output_bits(results, outputs, OBSERVED_RUN, self._case)

    # ---- outputs

    def _check_outputs(self, inputs: dict[str, Array], chained: LiveValues, propagation: ErrorPropagation) -> None:
        try:
            results = self.runs.compute_outputs(inputs)
        except IndexRangeError:  # raised by a model with index checks; already recorded as a fault
            return
        decode = self.reference.decode_strings
        self.check_results = lambda rerun: self._check_results(decode(rerun), chained, propagation)
        self.check_results(results)
        for row in make_empty_case_rows(results, self._case, self.options.allows_unproved):
            self.collected.add_row(row)

    def _check_results(self, results: Mapping[str, Array], chained: LiveValues, propagation: ErrorPropagation) -> None:
        packed = get_non_tensor_output_values(self.fused, chained)
        expected = {**packed, **chained.get_live_values(), **chained.undecided_values}
        for name, result in results.items():
            value = expected.get(name)
            if value is None and name in self.reference.constants:
                value = chained[name]
            value = None if name in chained.device_sources else value
            value = self.oracle.get_expected_chained_value(name, value, name in chained.choice_sources)
            self._compare_with_other_run(name, "", result)
            self._check_output(name, result, value, chained, propagation)

    def _check_output(
        self, name: str, result: Array, expected: Value, chained: LiveValues, propagation: ErrorPropagation
    ) -> None:
        row = ValidationRow(name, "output", name, dtype_name(result.dtype), result.shape, self._case, None, None)
        row = row._replace(program="outputs", statistics=compute_statistics(result, expected))
        missing = chained.unproved.get(name, ())
        if not isinstance(expected, BoundedTensor):
            if not missing and name in chained.device_sources:
                missing = (chained.device_sources[name],)
            note = describe_unproved_nodes(missing) or "the reference has no such value"
            self.collected.add_row(
                row._replace(note=note, unproved=missing, waived=self._is_output_waived(name, missing))
            )
            return
        allowed = self.options.get_tolerance(name, name)
        deviation = compare_tensor(result, expected, self.reference.get_types(name, self._chained.types), allowed)
        derived = allowed is None  # a tolerance set by the caller is not adjusted
        if derived and not deviation.ok and not deviation.kind and name in chained.choice_sources:
            missing = (*missing, chained.choice_sources[name])  # the fused program may have made another choice
        waived, note = self._is_output_waived(name, missing), describe_unproved_nodes(missing)
        if not deviation.ok and missing and not deviation.kind:  # the error may come from unproved nodes before it
            if name in chained.choice_sources:
                note = f"depends on a choice of node '{chained.choice_sources[name]}' that rounding may flip"
            deviation = deviation._replace(allowed=np.inf, undecided=deviation.elements)
        row = row._replace(accumulated=deviation, note=note, unproved=missing, waived=waived)
        limit, scale = self.options.get_accuracy_limit(name, self.types.precision), self.scales.by_name.get(name)
        is_exact = not self.oracle.has_own_values and name not in chained.choice_sources
        above = self._exact.find_accuracy_violation(name, result, expected, limit, scale, is_exact)
        self.collected.add_row(row.with_accuracy(above, self.options.allows_ill_conditioned(name)))
        self._find_causes(name, expected, propagation)

    def _is_output_waived(self, output: str, missing: tuple[str, ...]) -> bool:
        return self.options.allows_unproved(output) or (bool(missing) and all(map(self._allows_node, missing)))

    def _allows_node(self, name: str) -> bool:
        node = self.nodes[name]
        return self.options.allows_unproved(node.op, node.operator, node.name, *node.outputs)

    def _find_causes(self, name: str, expected: BoundedTensor, propagation: ErrorPropagation) -> None:
        unit = self.types.get_storage_type(expected.dtype).unit if expected.is_float else 0.0
        ill_conditioned = iter_ill_conditioned_findings(name, expected, self.scales.by_name.get(name), self._case)
        for finding in (*propagation.iter_findings(name, self._case, unit), *ill_conditioned):
            self.collected.add_finding(finding)


class ReferenceInputValidation(ModelValidation):
    """Checks every node in isolation, with the reference's values as inputs."""

    def __init__(self, fused: Model, options: ValidationOptions, oracle: Oracle) -> None:
        self._nodes = SingleNodePrograms(fused)
        super().__init__(fused, options, oracle, self._nodes)

    @property
    def skip_reason(self) -> str:
        """Reason why kernels are not checked."""
        return OPTIMIZED_PROGRAM_NOT_RUN

    def run(self, inputs: dict[str, Array], case_inputs: dict[str, Any], case: int, step: Callable[[], None]) -> None:
        """Check every node of a case."""
        values = ReferenceValues(self.reference, self.reference.select_case_inputs(case_inputs, inputs))
        self._case = case
        step()
        for index, node in enumerate(self.reference.nodes):
            values.advance(node, self._check_single_node(node, values))
            for name in self._readers.get(index, ()):
                values.forget(name)
            step()

    def _check_single_node(self, node: ReferenceNode, values: ReferenceValues) -> dict[str, Array]:
        """Check a node in its own program. Return the device's results by name."""
        inputs = values.get_node_inputs(node)
        constants = {name: inputs.pop(name) for name in values.folded.intersection(inputs)}
        result = self._nodes.run(self.reference, node, inputs, constants)
        types = self.reference.runner.at_precision(node.precision).types
        isolated = LiveValues(self.reference, self.reference.runner, {})
        isolated.values = {name: make_bounded_input(value, types) for name, value in inputs.items()}
        isolated.values.update((name, make_bounded_constant(value, types)) for name, value in constants.items())
        isolated.additions, isolated.device_results = result.additions, result.tensors
        rule_results, note = self._evaluate(node, isolated, {})
        for finding in self.ranges.iter_node_findings(node, isolated, rule_results or {}, result.tensors):
            self.collected.add_finding(finding._replace(case=self._case))
        for name in node.outputs:
            self._check_node_output(node, name, result, (rule_results or {}).get(name), note)
        return result.tensors

    def _check_node_output(
        self, node: ReferenceNode, name: str, result: SingleNodeResult, expected: Value, note: str
    ) -> None:
        if name not in result.tensors:
            if node.is_folded and not note:
                return  # the program folds this node, so the device does not run it
            row = ValidationRow(node.name, node.op, name, "", (), self._case, None, None, note or result.failure)
            if isinstance(expected, BoundedTensor):
                row = row._replace(dtype=dtype_name(expected.dtype), shape=expected.shape)
            waived = self.options.allows_unproved(node.op, node.operator, node.name, name)
            self.collected.add_row(row._replace(unproved=(node.name,), waived=waived))
            return
        actual = result.tensors[name]
        if isinstance(expected, BoundedTensor):
            types = self.reference.types.at_precision(node.precision)
            if overflow := make_overflow_finding(node.name, actual, expected, types, self.fused.precision):
                self.collected.add_finding(overflow._replace(case=self._case))
        self._add_node_row(node, name, actual, self._compare_isolated(node, name, actual, expected), None, note)
