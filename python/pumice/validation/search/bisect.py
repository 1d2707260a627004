"""Finds the node that makes the fused program wrong, by binary search over prefixes of the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..._pumice import GraphError, IndexRangeError, UnsupportedError
from ...base.element_types import Array
from ...model.model import Model
from ..checker.case_results import (
    OBSERVED_RUN,
    RacingStep,
    compare_output_bits,
    find_racing_step,
    get_observed_outputs,
    make_empty_case_rows,
)
from ..checker.live_values import adopt_device_choices, round_folded_constant
from ..checker.options import Progress, ValidationOptions, check_option_names, make_step_counter
from ..checker.output_values import ExactOutputs, OutputScales
from ..reference.loop_timeouts import get_loop_timeout
from ..reference.monte_carlo import MonteCarloSamples
from ..reference.reference_model import ReferenceModel, ReferenceNode
from ..reference.tensor_sources import ModelSplitter
from ..report.deviation import (
    ILL_CONDITIONED,
    UNPROVED,
    WRONG,
    compare_tensor,
    describe_overflow,
    find_overflowing_number,
)
from ..report.findings import RACE, Finding
from ..report.report import ValidationReport
from ..report.report_rows import ValidationRow
from ..rules.bounded_tensor import BoundedTensor, UndecidedError, UnprovedError, Value
from ..rules.program_values import make_bounded_device_tensor, make_bounded_input

# (prefix length in nodes, tensor names) -> device values
_ChoiceReader = Callable[[int, list[str]], Mapping[str, Array]]


class _PrefixValues:
    """Reference values that are live after a prefix of the nodes, computed from the model's inputs.

    sampled: whether to track correlated errors by Monte Carlo sampling.
    """

    def __init__(
        self,
        reference: ReferenceModel,
        splitter: ModelSplitter,
        choices: _ChoiceReader,
        case_inputs: Mapping[str, Any],
        sampled: bool = False,
    ) -> None:
        self._reference = reference
        self._splitter = splitter
        self._choices = choices
        self.at = 0
        types = reference.chained.types
        self.values_by_name: dict[str, Value] = {
            name: make_bounded_input(value, types) for name, value in case_inputs.items()
        }
        self.unproved: dict[str, str] = {}  # tensor -> reason
        self.undecided_sources: dict[str, str] = {}  # tensor -> node whose undecided choice it depends on
        self.from_device: set[str] = set()  # tensors computed only from device tensors
        self.faults: dict[str, str] = {}
        # Maps a node to a number that overflows its storage type, and the declared dtype.
        self.overflows: dict[str, tuple[float, str]] = {}
        self.scales = OutputScales(reference)
        self.samples = MonteCarloSamples() if sampled else None
        if self.samples is not None:
            self.samples.add_inputs(self.values_by_name, types)

    def advance(self, count: int) -> _PrefixValues:
        """Return a copy advanced to the state after the first `count` nodes."""
        copy = _PrefixValues(self._reference, self._splitter, self._choices, {})
        copy.values_by_name = dict(self.values_by_name)
        copy.unproved = dict(self.unproved)
        copy.undecided_sources = dict(self.undecided_sources)
        copy.faults, copy.overflows = dict(self.faults), dict(self.overflows)
        copy.from_device = set(self.from_device)
        copy.scales.by_name = dict(self.scales.by_name)
        copy.samples = None if self.samples is None else self.samples.copy()
        for index in range(self.at, count):
            copy._run_node(index)
        copy.at = count
        return copy

    def __getitem__(self, name: str) -> Value:
        if name in self.values_by_name:
            return self.values_by_name[name]
        return self._reference.get_constant(name, self._reference.chained)

    def _run_node(self, index: int) -> None:
        node = self._reference.nodes[index]
        reason = next((self.unproved[name] for name in node.inputs if name in self.unproved), "")
        choice = next((self.undecided_sources[name] for name in node.inputs if name in self.undecided_sources), "")
        results: dict[str, Value] = {}
        if not reason:
            try:
                results = self._evaluate_node(node)
            except IndexError as error:
                self.faults[node.name] = f"wrong index: {error}"
                reason = f"an index of node '{node.name}' is out of range"
            except UndecidedError:
                results = dict(self._read_device_choices(index, node.outputs))
                self.from_device.update(results)
                choice = choice or node.name
                reason = "" if results else f"depends on a choice of node '{node.name}' that rounding may flip"
            except (UnprovedError, KeyError, MemoryError) as error:
                reason = f"depends on node '{node.name}': {error}"
        self._track_device_values(node)
        for name in node.outputs:
            value = results.get(name)
            if value is None and not reason:
                reason = f"depends on node '{node.name}', for which the reference has no such value"
            if isinstance(value, BoundedTensor):
                if not value.is_float and value.error is not None and (value.error > 0).any():
                    choice = choice or node.name
                    if np.isinf(value.error).any() and (device := self._read_device_choices(index, [name])):
                        value = adopt_device_choices(value, device[name])
                types = self._reference.chained.types.at_precision(node.precision)
                if (over := find_overflowing_number(value, types)) is not None:
                    self.overflows.setdefault(node.name, (over, str(value.dtype)))
                self.values_by_name[name] = round_folded_constant(value, types) if node.is_folded else value
            elif value is not None:
                self.values_by_name[name] = value
            if reason:
                self.unproved[name] = reason
            if choice:
                self.undecided_sources[name] = choice
        self.scales.add_node(node, self)
        self._drop_unread_values((*node.inputs, *node.outputs), index)

    def _drop_unread_values(self, names: tuple[str, ...], index: int) -> None:
        """Drop the values that no node after `index` reads."""
        for name in names:
            if self._splitter.find_last_reader(name) <= index:
                self.values_by_name.pop(name, None)
                if self.samples is not None:
                    self.samples.pop(name)

    def _track_device_values(self, node: ReferenceNode) -> None:
        """Record outputs that depend only on device tensors; the reference cannot verify them."""
        variable = [name for name in node.inputs if name not in self._reference.constants]
        if variable and self.from_device.issuperset(variable):
            self.from_device.update(node.outputs)

    def _evaluate_node(self, node: ReferenceNode) -> dict[str, Value]:
        values, runner = {name: self[name] for name in node.inputs}, self._reference.chained
        return node.run(values, runner) if self.samples is None else self.samples.run(node, values, runner)

    def _read_device_choices(self, index: int, names: list[str]) -> dict[str, BoundedTensor]:
        """Return the device's values of a node's undecided outputs, from which the reference continues."""
        types = self._reference.chained.types
        return {
            name: make_bounded_device_tensor(array, types) for name, array in self._choices(index + 1, names).items()
        }


class _PrefixResult(NamedTuple):
    """Result of running a prefix of the model: number of nodes, and one row per checked tensor."""

    nodes: int
    rows: list[ValidationRow]

    @property
    def is_wrong(self) -> bool:
        return any(row.verdict == WRONG for row in self.rows)

    @property
    def worst_row(self) -> ValidationRow:
        """The worst row of the prefix: a wrong one, else an unproved one, else the one nearest to its bound."""
        return max(self.rows, key=lambda row: (row.verdict == WRONG, row.verdict == UNPROVED, row.severity))


class _BisectSearch:
    """Binary search for the first wrong node in one case."""

    def __init__(
        self, model: Model, reference: ReferenceModel, splitter: ModelSplitter, options: ValidationOptions, case: int
    ) -> None:
        self.model = model
        self.reference = reference
        self.splitter = splitter
        self.options = options
        self.case = case
        self.probes: list[_PrefixResult] = []
        self.case_inputs: Mapping[str, Any] = {}
        self.exact_outputs = ExactOutputs(reference, {})
        self._loop_timeout = get_loop_timeout(model.source, model.folder)
        self._full_run: tuple[dict[str, Array], dict[str, str]] | None = None
        self.overflows: dict[str, tuple[float, str]] = {}  # node -> (number that overflows, declared dtype)
        self.num_choice_runs = 0  # number of device runs for undecided choices

    def check_case(
        self, inputs: dict[str, Array], case_inputs: Mapping[str, Any]
    ) -> tuple[_PrefixResult, _PrefixValues]:
        """Check the optimised program on a case. Return the result, and the reference values from which a search starts."""
        self.case_inputs, self.exact_outputs = case_inputs, ExactOutputs(self.reference, case_inputs)
        for sampled in (False, True):  # a wrong output may only have correlated errors: check again with sampling
            prefix_values = _PrefixValues(self.reference, self.splitter, self.try_run_prefix, case_inputs, sampled)
            whole = self._check_full_program(inputs, prefix_values)
            if not whole.is_wrong:
                break
        return whole, prefix_values

    def _check_full_program(self, inputs: dict[str, Array], prefix_values: _PrefixValues) -> _PrefixResult:
        """Check one run of the optimised program."""
        end = prefix_values.advance(len(self.reference.nodes))
        self.overflows = end.overflows
        if self._full_run is None:
            self._full_run = self._run_full_program(inputs)
        results, faults = self._full_run
        for node, fault in faults.items():
            end.faults.setdefault(node, fault)
        rows = [self._check_tensor(name, "output", name, array, end) for name, array in results.items()]
        rows.extend(make_empty_case_rows(results, self.case, self.options.allows_unproved))
        for node, fault in end.faults.items():
            op = next((other.op for other in self.reference.nodes if other.name == node), "indices")
            rows.insert(0, ValidationRow(node, op, "", "", (), self.case, None, None, "", fault))
        return _PrefixResult(len(self.reference.nodes), rows)

    def _run_full_program(self, inputs: dict[str, Array]) -> tuple[dict[str, Array], dict[str, str]]:
        """Run the program. Return its outputs, and an error message by node for out-of-range indices."""
        try:
            results = dict(self.model.program(inputs, loop_timeout=self._loop_timeout, filled=True))
            return self.reference.decode_strings(results), {}
        except IndexRangeError as error:
            return {}, {error.node: str(error)}

    def find_race(self, inputs: dict[str, Array]) -> tuple[list[Finding], RacingStep | None]:
        """Compare a plain run with one that copies all tensors after each step. Return findings and the first differing step."""
        program = self.model.program
        results, _ = self._full_run or ({}, {})
        if program.has_control_flow or not results:
            return [], None
        differing = compare_output_bits(
            results, self.reference.decode_strings(get_observed_outputs(program, inputs)), OBSERVED_RUN, self.case
        )
        arrays = [inputs[value.name] for value in program.inputs]
        step = find_racing_step(program, arrays, self.reference.nodes) if differing else None
        if step is not None:
            differing.append(Finding(RACE, step.node, str(step), step.number, self.case))
        return differing, step

    def try_run_prefix(self, count: int, names: list[str]) -> Mapping[str, Array]:
        """Run the first nodes on the device; return {} if they cannot run separately."""
        self.num_choice_runs += 1
        try:
            return self._run_prefix(count, names)
        except (UnsupportedError, GraphError):
            return {}

    def _run_prefix(self, count: int, names: list[str]) -> dict[str, Array]:
        """Compile and run the first nodes as a fused program."""
        with self.model.loaded_again(part=self.splitter.extract_prefix(count, names)) as prefix_model:
            input_names = [value.name for value in (*prefix_model.inputs, *prefix_model.overridable)]
            arrays = prefix_model._indexed_arguments(
                **{name: self.case_inputs[name] for name in input_names if name in self.case_inputs}
            )
            inputs = {value.name: array for value, array in zip(prefix_model.program.inputs, arrays, strict=True)}
            results = dict(prefix_model.program(inputs, loop_timeout=self._loop_timeout, filled=True))
            return prefix_model._tensor_strings.decode_tensors(results) if prefix_model._tensor_strings else results

    def check_prefix(self, count: int, prefix_values: _PrefixValues) -> tuple[_PrefixResult, _PrefixValues]:
        """Run the first nodes as a fused program and check all tensors that later nodes read."""
        end = prefix_values.advance(count)
        node = self.reference.nodes[count - 1]
        names = [
            name for name in self.splitter.find_live_values(count) if not isinstance(end.values_by_name.get(name), list)
        ]
        try:
            results = self._run_prefix(count, names)
        except (UnsupportedError, GraphError) as error:
            note = f"the prefix cannot be run by itself: {str(error).splitlines()[0]}"
            row = ValidationRow(
                node.name, node.op, node.outputs[0], "", (), self.case, None, None, note, "", (node.name,)
            )
            return _PrefixResult(count, [row]), end
        rows = [self._check_tensor(node.name, node.op, name, array, end) for name, array in results.items()]
        return _PrefixResult(count, rows), end

    def _check_tensor(self, node: str, op: str, name: str, array: Array, prefix_values: _PrefixValues) -> ValidationRow:
        row = ValidationRow(node, op, name, str(array.dtype), array.shape, self.case, None, None)
        waived = self.options.allows_unproved(op, node, name)
        try:
            expected = prefix_values[name]
        except KeyError:
            expected = None
        if name in prefix_values.unproved or not isinstance(expected, BoundedTensor):
            note = prefix_values.unproved.get(name, "the reference has no such value")
            return row._replace(note=note, waived=waived, unproved=(node,))
        allowed = self.options.get_tolerance(node, name)
        if name in prefix_values.from_device:  # the expected value comes from the device itself
            note = f"depends on a choice of node '{prefix_values.undecided_sources[name]}' that rounding may flip"
            return row._replace(note=note, waived=waived, unproved=(node,))
        deviation = compare_tensor(array, expected, self.reference.chained.types, allowed)
        if not deviation.ok and not deviation.kind and allowed is None and name in prefix_values.undecided_sources:
            note = f"depends on a choice of node '{prefix_values.undecided_sources[name]}' that rounding may flip"
            return row._replace(
                accumulated=deviation._replace(allowed=math.inf), note=note, unproved=(node,), waived=waived
            )
        note = deviation.missing if deviation.verdict == UNPROVED else ""
        row = row._replace(accumulated=deviation, waived=waived, note=note)
        limit = self.options.get_accuracy_limit(name, self.reference.types.precision) if op == "output" else None
        scale, is_exact = prefix_values.scales.by_name.get(name), name not in prefix_values.undecided_sources
        above = self.exact_outputs.find_accuracy_violation(name, array, expected, limit, scale, is_exact)
        return row.with_accuracy(above, self.options.allows_ill_conditioned(name))

    def search(self, prefix_values: _PrefixValues, step: Callable[[], None]) -> tuple[int, int]:
        """Return the lengths of the longest correct prefix found and of the wrong prefix after it.

        The empty prefix is correct and the whole model is wrong, so a transition exists, even if an error vanishes and
        reappears in between.
        """
        total = len(self.reference.nodes)
        prefix_lengths = [count for count in range(1, total) if not self.reference.nodes[count - 1].is_folded]
        prefix_lengths = [0, *(count for count in prefix_lengths if self.splitter.find_live_values(count)), total]
        low, high = 0, len(prefix_lengths) - 1
        while high - low > 1:
            middle = (low + high) // 2
            probe, end = self.check_prefix(prefix_lengths[middle], prefix_values)
            self.probes.append(probe)
            if probe.is_wrong:
                high = middle
            else:
                low, prefix_values = middle, end
            step()
        return prefix_lengths[low], prefix_lengths[high]


def _keep_worst_rows(outputs: dict[tuple[str, str], ValidationRow], rows: list[ValidationRow]) -> None:
    """Keep the most severe row of each output."""
    for row in rows:
        key = (row.node, row.output)
        if key not in outputs or row.severity > outputs[key].severity:
            outputs[key] = row


def bisect_model(
    model: Model, inputs: list[Any], options: ValidationOptions, progress: Progress | None
) -> ValidationReport:
    """Check the outputs of the fused program; if one is wrong, find the first wrong prefix.

    inputs: for each case, the inputs of the program and of the model. The report has one row
    for each prefix that ran: the worst tensor, under the name of the prefix's last node.
    """
    reference = ReferenceModel(model.source, model.folder, model.precision, model.kernel_table)
    reference.strings = model._tensor_strings
    check_option_names(model, reference, options)
    splitter = ModelSplitter(model.source, model.folder, reference, [value.name for value in model.overridable])
    total = len(inputs) + max(1, len(reference.nodes)).bit_length()
    step = make_step_counter(total, progress)
    outputs: dict[tuple[str, str], ValidationRow] = {}
    findings: dict[tuple[str, str], Finding] = {}
    failed_search: _BisectSearch | None = None
    transition = (0, 0)
    for case, (arrays, case_inputs) in enumerate(inputs):
        search = _BisectSearch(model, reference, splitter, options, case)
        whole, prefix_values = search.check_case(arrays, reference.select_case_inputs(case_inputs, arrays))
        _keep_worst_rows(outputs, whole.rows)
        step()
        differing, racing = search.find_race(arrays)
        for finding in differing:
            findings.setdefault((finding.kind, finding.node), finding)
        if racing is not None and whole.is_wrong:
            row = ValidationRow(racing.node, "kernel", racing.tensor, "", (racing.size,), case, None, None)
            outputs[racing.node, racing.tensor] = row._replace(fault=str(racing))
        elif whole.is_wrong and failed_search is None and not any(row.fault for row in whole.rows):
            failed_search = search
            transition = search.search(prefix_values, step)
            search.probes.append(whole)
    if progress:
        progress(total, total)
    report = _make_report(model, reference, outputs, failed_search, transition, len(inputs))
    report.findings.extend(findings.values())
    report.allows_differences = options.allows_differences
    return report


def _make_report(
    model: Model,
    reference: ReferenceModel,
    outputs: dict[tuple[str, str], ValidationRow],
    search: _BisectSearch | None,
    transition: tuple[int, int],
    cases: int,
) -> ValidationReport:
    count = len(reference.nodes)
    rows = sorted(outputs.values(), key=lambda row: not row.fault)
    if search is None:
        unproved = any(row.verdict == UNPROVED for row in rows)
        state = "the outputs are unproved, none is wrong" if unproved else "the outputs are right"
        if any(row.verdict == ILL_CONDITIONED for row in rows):
            state = "an output is ill-conditioned, none is wrong"
        fault = next((row.fault for row in rows if row.fault), "")
        state = "a step does not wait" if fault.startswith(RACE) else "an index is wrong" if fault else state
        text = f"{state}: no prefix was searched"
        findings = [Finding("bisected", "", text, cases)]
    else:
        findings = [_make_bisection_finding(reference, search, transition)]
        for name, (over, dtype) in search.overflows.items():
            text = describe_overflow(model.precision, over, dtype, name)
            findings.append(Finding("overflow", name, text, over, search.case))
        prefixes = sorted(search.probes[:-1], key=lambda probe: probe.nodes)
        rows = [*(probe.worst_row for probe in prefixes), *rows]
        if transition[1] == count:  # the wrong prefix is the whole program: its rows are the model outputs
            worst = search.probes[-1].worst_row
            last = reference.nodes[-1]
            rows.insert(len(prefixes), worst._replace(node=last.name, op=last.op))
    findings.extend(finding for row in rows for finding in _iter_row_findings(row))
    return ValidationReport(model.name, model.device.name, model.precision, cases, rows, findings)


def _iter_row_findings(row: ValidationRow) -> Iterator[Finding]:
    """Yield the findings that follow from a row's verdict."""
    if row.fault and not row.fault.startswith(RACE):
        yield Finding("wrong index", row.node, row.fault, case=row.case)
    if row.verdict == WRONG and row.deviation is not None and row.op == "output":
        yield Finding(row.deviation.kind or "wrong value", row.node, _describe_wrong_row(row), row.severity, row.case)
    if row.verdict == ILL_CONDITIONED:
        yield Finding(ILL_CONDITIONED, row.node, f"output '{row.output}' is {row.note}", row.severity, row.case)
    if row.verdict == UNPROVED:
        yield Finding("unproved", row.node, f"'{row.output}': {row.note}", row.elements, row.case)


def _make_bisection_finding(reference: ReferenceModel, search: _BisectSearch, transition: tuple[int, int]) -> Finding:
    low, high = transition
    probe = next(probe for probe in search.probes if probe.nodes == high)
    before = next((probe for probe in search.probes if probe.nodes == low), None)
    node = reference.nodes[high - 1]
    proved = before is None or all(row.verdict != UNPROVED for row in before.rows)
    state = "are right together" if proved else "are not wrong together, and not all proved right"
    start = f"the first {low} of {len(reference.nodes)} nodes {state}" if low else "no node comes before it"
    runs = f"{len(search.probes)} probes" + (
        f" and {search.num_choice_runs} runs for undecided choices" if search.num_choice_runs else ""
    )
    text = f"{start}; with node '{node.name}' ({node.op}) {_describe_wrong_row(probe.worst_row)}; {runs}"
    return Finding("bisected", node.name, text, len(search.probes), search.case)


def _describe_wrong_row(row: ValidationRow) -> str:
    deviation = row.deviation
    if row.fault or deviation is None:
        return row.fault
    where = f"{deviation.actual} instead of {deviation.expected} at {list(deviation.at)}"
    return f"'{row.output}' is wrong: {where}"
