"""Finds the node that makes the fused program wrong, by binary search over prefixes of the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from .._pumice import GraphError, IndexRangeError, UnsupportedError
from ..base.element_types import Array
from ..model.model import Model
from .bounds.bounded import Bounded
from .bounds.registry import Undecided, Unproved, Value
from .bounds.rule_runner import from_device, given_input
from .live_values import computed_beforehand, decided
from .case_runs import compared, observed_outputs
from .exact_outputs import ExactOutputs
from .deviation import ILL, UNPROVED, WRONG, judged, overflow_text, overflowing
from .loop_limits import loop_timeout
from .model_splitter import ModelParts
from .options import Options, check_names
from .run_comparison import OBSERVED, empty_case
from .race import RacingStep, racing_step
from .reference import Reference, ReferenceNode
from .report import ValidationReport
from .report_rows import RACE, Finding, ValidationRow
from .monte_carlo import Samples
from .output_scales import Scales

_Step = Callable[[int, int], None]
_Choices = Callable[[int, list[str]], Mapping[str, Array]]  # (number of nodes, tensor names) -> device values


class _Walk:
    """The reference's live values after the first nodes, from the model's inputs on.

    sampled: track dependent errors by sampling.
    """

    def __init__(
        self, reference: Reference, cuts: ModelParts, choices: _Choices, given: Mapping[str, Any], sampled: bool = False
    ) -> None:
        self._reference = reference
        self._cuts = cuts
        self._choices = choices
        self.at = 0
        types = reference.chained.types
        self.held: dict[str, Value] = {name: given_input(value, types) for name, value in given.items()}
        self.unproved: dict[str, str] = {}  # tensor -> why it is unproved
        self.chosen: dict[str, str] = {}  # tensor -> node of the undecided choice it depends on
        self.taken: set[str] = set()  # tensors computed only from device tensors
        self.faults: dict[str, str] = {}
        # Per node: a number that overflows the storage type, and that type.
        self.over: dict[str, tuple[float, str]] = {}
        self.scales = Scales(reference)
        self.samples = Samples() if sampled else None
        if self.samples is not None:
            self.samples.begin(self.held, types)

    def to(self, count: int) -> _Walk:
        """Return a copy advanced to the values after `count` nodes."""
        made = _Walk(self._reference, self._cuts, self._choices, {})
        made.held, made.unproved, made.chosen = dict(self.held), dict(self.unproved), dict(self.chosen)
        made.faults, made.over, made.taken = dict(self.faults), dict(self.over), set(self.taken)
        made.scales.of = dict(self.scales.of)
        made.samples = None if self.samples is None else self.samples.copy()
        for index in range(self.at, count):
            made._run(index)
        made.at = count
        return made

    def __getitem__(self, name: str) -> Value:
        if name in self.held:
            return self.held[name]
        return self._reference.held(name, self._reference.chained)

    def _run(self, index: int) -> None:
        node = self._reference.nodes[index]
        reason = next((self.unproved[name] for name in node.inputs if name in self.unproved), "")
        choice = next((self.chosen[name] for name in node.inputs if name in self.chosen), "")
        made: dict[str, Value] = {}
        if not reason:
            try:
                made = self._made(node)
            except IndexError as error:
                self.faults[node.name] = f"wrong index: {error}"
                reason = f"an index of node '{node.name}' is out of range"
            except Undecided:
                made = dict(self._device(index, node.outputs))
                self.taken.update(made)
                choice = choice or node.name
                reason = "" if made else f"rests on a choice of node '{node.name}' that rounding may turn"
            except (Unproved, KeyError, MemoryError) as error:
                reason = f"rests on node '{node.name}': {error}"
        self._follow(node)
        for name in node.outputs:
            value = made.get(name)
            if value is None and not reason:
                reason = f"rests on node '{node.name}', of which the reference has no such value"
            if isinstance(value, Bounded):
                if not value.is_float and value.error is not None and (value.error > 0).any():
                    choice = choice or node.name
                    if np.isinf(value.error).any() and (device := self._device(index, [name])):
                        value = decided(value, device[name])
                if (over := overflowing(value, self._reference.chained.types.at(node.precision))) is not None:
                    self.over.setdefault(node.name, (over, str(value.dtype)))
                types = self._reference.chained.types.at(node.precision)
                self.held[name] = computed_beforehand(value, types) if node.folded else value
            elif value is not None:
                self.held[name] = value
            if reason:
                self.unproved[name] = reason
            if choice:
                self.chosen[name] = choice
        self.scales.follow(node, self)
        self._let_go((*node.inputs, *node.outputs), index)

    def _let_go(self, names: tuple[str, ...], index: int) -> None:
        """Drop the values that no node after `index` reads."""
        for name in names:
            if self._cuts.last_reader(name) <= index:
                self.held.pop(name, None)
                if self.samples is not None:
                    self.samples.pop(name)

    def _follow(self, node: ReferenceNode) -> None:
        """Mark results computed only from device tensors as unverified."""
        variable = [name for name in node.inputs if name not in self._reference.constants]
        if variable and self.taken.issuperset(variable):
            self.taken.update(node.outputs)

    def _made(self, node: ReferenceNode) -> dict[str, Value]:
        values, runner = {name: self[name] for name in node.inputs}, self._reference.chained
        return node.run(values, runner) if self.samples is None else self.samples.run(node, values, runner)

    def _device(self, index: int, names: list[str]) -> dict[str, Bounded]:
        """Return the device's results of undecided choices, from which the reference continues."""
        types = self._reference.chained.types
        return {name: from_device(array, types) for name, array in self._choices(index + 1, names).items()}


class _Probe(NamedTuple):
    """Result of running a prefix: its number of nodes, and a row per tensor."""

    nodes: int
    rows: list[ValidationRow]

    @property
    def wrong(self) -> bool:
        return any(row.verdict == WRONG for row in self.rows)

    @property
    def worst(self) -> ValidationRow:
        """The prefix's worst row: wrong, then unproved, then nearest to its bound."""
        return max(self.rows, key=lambda row: (row.verdict == WRONG, row.verdict == UNPROVED, row.severity))


class _Search:
    """The search for the first wrong node of a case."""

    def __init__(self, model: Model, reference: Reference, cuts: ModelParts, options: Options, case: int) -> None:
        self.model = model
        self.reference = reference
        self.cuts = cuts
        self.options = options
        self.case = case
        self.probes: list[_Probe] = []
        self.given: Mapping[str, Any] = {}
        self.exact = ExactOutputs(reference, {})
        self._loop_timeout = loop_timeout(model.source, model.folder)
        self._ran: tuple[dict[str, Array], dict[str, str]] | None = None
        self.over: dict[str, tuple[float, str]] = {}  # numbers that overflow storage, by node
        self.choices = 0  # device queries for undecided choices

    def whole(self, inputs: dict[str, Array], walk: _Walk) -> tuple[_Probe, _Walk]:
        """Check one run of the optimised program."""
        end = walk.to(len(self.reference.nodes))
        self.over = end.over
        if self._ran is None:
            self._ran = self._results_of_whole(inputs)
        results, faults = self._ran
        for node, fault in faults.items():
            end.faults.setdefault(node, fault)
        rows = [self._row(name, "output", name, array, end) for name, array in results.items()]
        rows.extend(empty_case(results, self.case, self.options))
        for node, fault in end.faults.items():
            op = next((one.op for one in self.reference.nodes if one.name == node), "indices")
            rows.insert(0, ValidationRow(node, op, "", "", (), self.case, None, None, "", fault))
        return _Probe(len(self.reference.nodes), rows), end

    def _results_of_whole(self, inputs: dict[str, Array]) -> tuple[dict[str, Array], dict[str, str]]:
        """Run the program; return its outputs and any out-of-range index, by node."""
        try:
            made = dict(self.model.program(inputs, loop_timeout=self._loop_timeout, filled=True))
            return self.reference.texts(made), {}
        except IndexRangeError as error:
            return {}, {error.node: str(error)}

    def race(self, inputs: dict[str, Array]) -> tuple[list[Finding], RacingStep | None]:
        """Compare that run with one that copies tensors after every step. Return the differences and the first
        differing step.
        """
        program = self.model.program
        results, _ = self._ran or ({}, {})
        if program.has_control_flow or not results:
            return [], None
        found = compared(results, self.reference.texts(observed_outputs(program, inputs)), OBSERVED, self.case)
        arrays = [inputs[value.name] for value in program.inputs]
        step = racing_step(program, arrays, self.reference.nodes) if found else None
        if step is not None:
            found.append(Finding(RACE, step.node, str(step), step.number, self.case))
        return found, step

    def choose(self, count: int, names: list[str]) -> Mapping[str, Array]:
        """Run the first nodes on the device; return {} if they cannot run separately."""
        self.choices += 1
        try:
            return self._results(count, names)
        except (UnsupportedError, GraphError):
            return {}

    def _results(self, count: int, names: list[str]) -> dict[str, Array]:
        """Run the first nodes as a fused program."""
        with self.model.loaded_again(part=self.cuts.prefix(count, names)) as part:
            wanted = [value.name for value in (*part.inputs, *part.overridable)]
            arrays = part._kept_arguments(**{name: self.given[name] for name in wanted if name in self.given})
            inputs = {value.name: array for value, array in zip(part.program.inputs, arrays, strict=True)}
            made = dict(part.program(inputs, loop_timeout=self._loop_timeout, filled=True))
            return part._kept_strings.texts(made) if part._kept_strings else made

    def prefix(self, count: int, walk: _Walk) -> tuple[_Probe, _Walk]:
        """Check the first nodes as a fused program: all tensors that later nodes read."""
        end = walk.to(count)
        node = self.reference.nodes[count - 1]
        names = [name for name in self.cuts.alive(count) if not isinstance(end.held.get(name), list)]
        try:
            results = self._results(count, names)
        except (UnsupportedError, GraphError) as error:
            note = f"the prefix cannot be run by itself: {str(error).splitlines()[0]}"
            row = ValidationRow(
                node.name, node.op, node.outputs[0], "", (), self.case, None, None, note, "", (node.name,)
            )
            return _Probe(count, [row]), end
        rows = [self._row(node.name, node.op, name, array, end) for name, array in results.items()]
        return _Probe(count, rows), end

    def _row(self, node: str, op: str, name: str, array: Array, walk: _Walk) -> ValidationRow:
        row = ValidationRow(node, op, name, str(array.dtype), array.shape, self.case, None, None)
        waived = self.options.allows(op, node, name)
        try:
            expected = walk[name]
        except KeyError:
            expected = None
        if name in walk.unproved or not isinstance(expected, Bounded):
            note = walk.unproved.get(name, "the reference has no such value")
            return row._replace(note=note, waived=waived, unproved=(node,))
        allowed = self.options.tolerance(node, name)
        if name in walk.taken:  # the device's own value proves nothing
            note = f"rests on a choice of node '{walk.chosen[name]}' that rounding may turn"
            return row._replace(note=note, waived=waived, unproved=(node,))
        found = judged(array, expected, self.reference.chained.types, allowed)
        if not found.ok and not found.kind and allowed is None and name in walk.chosen:
            note = f"rests on a choice of node '{walk.chosen[name]}' that rounding may turn"
            return row._replace(
                accumulated=found._replace(allowed=math.inf), note=note, unproved=(node,), waived=waived
            )
        note = found.missing if found.verdict == UNPROVED else ""
        row = row._replace(accumulated=found, waived=waived, note=note)
        limit = self.options.accuracy_limit(name, self.reference.types.precision) if op == "output" else None
        scale, is_exact = walk.scales.of.get(name), name not in walk.chosen
        above = self.exact.inaccuracy(name, array, expected, limit, scale, is_exact)
        return row.with_accuracy(above, self.options.allows_ill(name))

    def run(self, walk: _Walk, step: Callable[[], None]) -> tuple[int, int]:
        """Return the longest correct prefix found, and the wrong one after it.

        The whole model is wrong and the empty prefix is correct, so there is a transition in between, even if errors
        come and go elsewhere.
        """
        total = len(self.reference.nodes)
        places = [count for count in range(1, total) if not self.reference.nodes[count - 1].folded]
        places = [0, *(count for count in places if self.cuts.alive(count)), total]
        low, high = 0, len(places) - 1
        while high - low > 1:
            middle = (low + high) // 2
            probe, end = self.prefix(places[middle], walk)
            self.probes.append(probe)
            if probe.wrong:
                high = middle
            else:
                low, walk = middle, end
            step()
        return places[low], places[high]


def bisected(model: Model, inputs: list[Any], options: Options, progress: _Step | None) -> ValidationReport:
    """Check the outputs of the fused program; if one is wrong, find the node at which the prefix becomes wrong.

    inputs: for each case, the inputs of the program and of the model. The report has a row per prefix that ran: its
    worst tensor, named by its last node.
    """
    reference = Reference(model.source, model.folder, model.precision, model.kernel_table)
    reference.strings = model._kept_strings
    check_names(model, reference, options)
    cuts = ModelParts(model.source, model.folder, reference, [value.name for value in model.overridable])
    total = len(inputs) + max(1, len(reference.nodes)).bit_length()
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(min(done, total), total)

    outputs: dict[tuple[str, str], ValidationRow] = {}
    findings: dict[tuple[str, str], Finding] = {}
    found: _Search | None = None
    place = (0, 0)
    for case, (arrays, given) in enumerate(inputs):
        given = {name: one for name, one in given.items() if name not in reference.constants or name in arrays}
        search = _Search(model, reference, cuts, options, case)
        search.given, search.exact = given, ExactOutputs(reference, given)
        walk = _Walk(reference, cuts, search.choose, given)
        whole, _ = search.whole(arrays, walk)
        if whole.wrong:  # dependent errors may explain it
            walk = _Walk(reference, cuts, search.choose, given, sampled=True)
            whole, _ = search.whole(arrays, walk)
        for row in whole.rows:
            key = (row.node, row.output)
            if key not in outputs or row.severity > outputs[key].severity:
                outputs[key] = row
        step()
        differing, racing = search.race(arrays)
        for one in differing:
            findings.setdefault((one.kind, one.node), one)
        if racing is not None and whole.wrong:
            row = ValidationRow(racing.node, "kernel", racing.tensor, "", (racing.size,), case, None, None)
            outputs[racing.node, racing.tensor] = row._replace(fault=str(racing))
        elif whole.wrong and found is None and not any(row.fault for row in whole.rows):
            found = search
            place = search.run(walk, step)
            search.probes.append(whole)
    if progress:
        progress(total, total)
    report = _report(model, reference, outputs, found, place, len(inputs))
    report.findings.extend(findings.values())
    report.allows_differences = options.allows_differences
    return report


def _report(
    model: Model,
    reference: Reference,
    outputs: dict[tuple[str, str], ValidationRow],
    found: _Search | None,
    place: tuple[int, int],
    cases: int,
) -> ValidationReport:
    count = len(reference.nodes)
    rows = sorted(outputs.values(), key=lambda row: not row.fault)
    if found is None:
        unproved = any(row.verdict == UNPROVED for row in rows)
        state = "the outputs are unproved, none is wrong" if unproved else "the outputs are right"
        if any(row.verdict == ILL for row in rows):
            state = "an output is ill-conditioned, none is wrong"
        fault = next((row.fault for row in rows if row.fault), "")
        state = "a step does not wait" if fault.startswith(RACE) else "an index is wrong" if fault else state
        text = f"{state}: no prefix was searched"
        findings = [Finding("bisected", "", text, cases)]
    else:
        findings = [_told(reference, found, place)]
        for name, (over, dtype) in found.over.items():
            text = overflow_text(model.precision, over, dtype, name)
            findings.append(Finding("overflow", name, text, over, found.case))
        prefixes = sorted(found.probes[:-1], key=lambda probe: probe.nodes)
        rows = [*(probe.worst for probe in prefixes), *rows]
        if place[1] == count:  # the last prefix is the program itself
            worst = found.probes[-1].worst
            last = reference.nodes[-1]
            rows.insert(len(prefixes), worst._replace(node=last.name, op=last.op))
    for row in rows:
        if row.fault and not row.fault.startswith(RACE):
            findings.append(Finding("wrong index", row.node, row.fault, case=row.case))
        if row.verdict == WRONG and row.judged is not None and row.op == "output":
            findings.append(Finding(row.judged.kind or "wrong value", row.node, _wrong(row), row.severity, row.case))
        if row.verdict == ILL:
            findings.append(Finding(ILL, row.node, f"output '{row.output}' is {row.note}", row.severity, row.case))
        if row.verdict == UNPROVED:
            findings.append(Finding("unproved", row.node, f"'{row.output}': {row.note}", row.elements, row.case))
    return ValidationReport(model.name, model.device.name, model.precision, cases, rows, findings)


def _told(reference: Reference, found: _Search, place: tuple[int, int]) -> Finding:
    low, high = place
    probe = next(probe for probe in found.probes if probe.nodes == high)
    before = next((probe for probe in found.probes if probe.nodes == low), None)
    node = reference.nodes[high - 1]
    proved = before is None or all(row.verdict != UNPROVED for row in before.rows)
    state = "are right together" if proved else "are not wrong together, and not all proved right"
    start = f"the first {low} of {len(reference.nodes)} nodes {state}" if low else "no node comes before it"
    runs = f"{len(found.probes)} probes" + (f" and {found.choices} runs for undecided choices" if found.choices else "")
    text = f"{start}; with node '{node.name}' ({node.op}) {_wrong(probe.worst)}; {runs}"
    return Finding("bisected", node.name, text, len(found.probes), found.case)


def _wrong(row: ValidationRow) -> str:
    deviation = row.judged
    if row.fault or deviation is None:
        return row.fault
    where = f"{deviation.actual} instead of {deviation.expected} at {list(deviation.at)}"
    return f"'{row.output}' is wrong: {where}"
