"""One validation: an unfused program, the fused program, and the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from .._pumice import IndexRangeError
from ..base.element_types import Array
from ..base.errors import InputError
from ..importer.load import load_graph
from ..model.model import Model
from . import streaming
from .oracle import Against
from .bounds.bounded import Bounded
from .bounds.registry import Undecided, Unproved, Value
from .bounds.rule_runner import Runner
from .bounds.float_types import Types, is_float, name_of
from .live_values import Carried, computed_beforehand, decided, folded, read, widened
from .case_runs import CaseRuns
from .error_propagation import Drifts, ill_conditioned, overflow_of
from .result_collector import Collected, rests_on, row_of
from .exact_outputs import ExactOutputs
from .control_flow_kernels import FlowKernels
from .deviation import Deviation, judged, node_deviation
from .kernel_checker import Judged, ShippedKernels
from .options import Options, check_names
from .packed_outputs import packed_parts
from .run_comparison import compare_runs, empty_case
from .range_findings import RangeFindings
from .reference import Reference, ReferenceNode
from .report_rows import DIFFERS, Finding, ValidationRow
from .output_scales import Scales
from .tensor_sources import DeviceTensors, Subject, Tensors
from .tensor_statistics import statistics
from .streaming import Held, Windowed

_UNDECIDED = "undecided: "
_FLOAT32 = 2.0**-24  # half an ulp


class _Local(NamedTuple):
    """Check of a node on its own: whether a rule covered it, and per output a deviation, note and reference fault."""

    evaluated: bool
    deviations: dict[str, Deviation | None]
    notes: dict[str, str]
    faults: dict[str, str]


# The rules' results on the device's inputs, and from the model's inputs on; None if missing or not requested.
_Expected = tuple[dict[str, Value] | None, dict[str, Value] | None]


class Proof:
    """Checks a model case by case; `report` has the result."""

    def __init__(
        self, fused: Subject, options: Options, against: Against | None = None, tensors: Tensors | None = None
    ) -> None:
        self.fused = fused
        self.options = options
        self.tensors: Tensors = tensors or DeviceTensors(cast(Model, fused), load_graph)
        self.against = against or Against()
        self.reference = Reference(fused.source, fused.folder, self.tensors.types, fused.kernel_table)
        self.reference.strings = self.tensors.strings
        self.tensors.set_float32(self.reference)
        self.against.bind(self.reference, options.tolerance, self.tensors)
        self.ranges = RangeFindings(self.reference, fused)
        self.kernels: ShippedKernels | None = None
        self.flow_kernels: FlowKernels | None = None
        judges = self.against.judges_kernels and options.mode != "chained"
        if tensors is None:
            if fused.program.has_control_flow:
                self.flow_kernels = FlowKernels(fused.program, self.reference, options.tolerance, judges)
            elif judges:
                self.kernels = ShippedKernels(fused.program, self.reference, options.tolerance, self.against)
        self.types: Types = self.reference.types
        self.nodes = {node.name: node for node in self.reference.nodes}
        try:
            check_names(fused, self.reference, options)
        except InputError:
            self.close()
            raise
        self.collected = Collected()
        self.runs = CaseRuns(self.tensors)
        self._is_again = False  # whether the case is checked again, from the model's inputs on
        self._local: dict[str, _Local] = {}  # per node, from the first check
        self.alone = Carried(self.reference, self.reference.runner, {})  # values of the current case
        self._exact = ExactOutputs(self.reference, {})  # outputs of the current case
        self._chained = self.reference.chained
        # Checks other results of the fused program for the last case; None if outputs are not checked.
        self.judge_results: Callable[[Mapping[str, Array]], None] | None = None
        # Tensors of this case that depend on an overflow in the unfused program -> the node that overflows.
        self._spoilt: dict[str, str] = {}
        # Integers and booleans of the unfused program, if there is control flow.
        self.choices: dict[str, Array] = {}
        results = {value.name for value in fused.program.outputs} | {value.name for value in fused.outputs}
        self._readers = self.reference.last_readers(results)
        self._read = {name for node in self.reference.nodes for name in node.inputs}

    @property
    def refused(self) -> str:
        """Why the optimised program's kernels are not checked; "" if they are, or if that was not requested."""
        judging = self.kernels or self.flow_kernels
        return judging.refused if judging else ""

    def close(self) -> None:
        """Close the programs compiled for the validation."""
        self.tensors.close()
        self.against.close()

    # ---- one case

    def run(self, inputs: dict[str, Array], given: dict[str, Any], case: int, step: Callable[[], None]) -> None:
        """Check every node and result of a case, from one run (streamed models run several times).

        Errors from the inputs on are first combined as independent, then in other ways if something exceeds its bound.
        """
        self.runs.begin()
        self.collected.begin()
        given = {name: value for name, value in given.items() if name not in self.reference.constants or name in inputs}
        self._exact = ExactOutputs(self.reference, given)
        for number, (sampled, runner) in enumerate(self._ways):
            self._is_again, self._chained = number > 0, runner
            if self._is_again:
                last = dict(self.collected.rows)
                self.collected.again()
            try:
                self._run(inputs, given, case, step, sampled)
            except IndexRangeError as error:  # every program rejects these inputs
                self.collected.fault(error.node, case, str(error))
                return
            step = _nothing
            if self.runs.differing:
                self.collected.rows = last
                text = f"{len(self.runs.differing)} tensors have other bits when the program of single nodes runs again"
                self._find(Finding(DIFFERS, self.runs.differing[0], text, len(self.runs.differing), case))
                break
            wrong = self.collected.wrong()
            apart = self.against.faults.values()  # the reference's errors may be dependent too
            later = all(row.judged is row.accumulated and (not row.fault or row.fault in apart) for row in wrong)
            if not wrong or not later:
                break
        compare_runs(self, inputs, case)

    @property
    def _ways(self) -> list[tuple[bool, Runner]]:
        """Ways to combine errors from the inputs on: whether by samples, and the runner."""
        independent, together = self.reference.chained, self.reference.runner
        ways = [(False, independent), (True, independent)]
        if self.types.storage(np.dtype(np.float32)).unit <= _FLOAT32:
            ways.append((False, together))
        return [*ways, (False, independent.with_types(independent.types.with_overflow()))]

    def _run(
        self, inputs: dict[str, Array], given: dict[str, Any], case: int, step: Callable[[], None], sampled: bool
    ) -> None:
        ours = self.runs.stream(inputs, self.reference)
        if by_parts := isinstance(ours, Windowed):
            self._exact = ExactOutputs(self.reference, None)
        alone = self.alone = Carried(self.reference, self.reference.runner, given, by_parts=by_parts)
        chain = Carried(self.reference, self._chained, given, sampled, by_parts, alone)
        drifts = Drifts()
        self.scales = Scales(self.reference)
        self._spoilt, self.choices = {}, {}
        self._case = case
        self.against.begin(inputs, given, case, sampled)
        if not self._is_again:
            self._check_indices(inputs, case)
        if self.kernels and not self._is_again:
            self.kernels.begin(inputs, given, streaming.WINDOW if isinstance(ours, Windowed) else None)
        step()
        for index, node in enumerate(self.reference.nodes):
            ours.load(index)
            if index == 0 or isinstance(ours, Windowed):
                alone.additions = self.tensors.additions(inputs)
            alone.stored = {} if self.tensors.single else ours
            self._node(node, ours, alone, chain, drifts, case)
            if self.options.mode != "isolated":
                self.scales.follow(node, chain)
            for name in self._readers.get(index, ()):
                for values in (alone, chain, self.against):
                    values.forget(name)
                ours.pop(name, None)
            step()
        if self.flow_kernels and not self._is_again:
            self._flow(self.flow_kernels, inputs, ours, case)
        if self.options.mode != "isolated":
            self._outputs(inputs, ours, chain, drifts, case)

    def _check_indices(self, inputs: dict[str, Array], case: int) -> None:
        """Check for out-of-range indices that only the device knows."""
        try:
            self.tensors.check_indices(inputs)
        except IndexRangeError as error:
            self.collected.fault(error.node, case, str(error))

    def _evaluated(
        self, node: ReferenceNode, values: Carried, beside: Mapping[str, Array], case: int
    ) -> tuple[dict[str, Value] | None, str]:
        """Evaluate a node by the rules; return its results, or None and the reason."""
        try:
            return values.run(node, beside), ""
        except Undecided as error:
            return None, f"{_UNDECIDED}{error}"
        except Unproved as error:
            return None, str(error)
        except IndexError as error:
            self.collected.fault(node.name, case, f"wrong index: {error}")
            return None, f"an index is out of range: {error}"
        except (KeyError, MemoryError) as error:
            return None, f"the reference fails: {type(error).__name__}: {error}"

    def _from_inputs(
        self, node: ReferenceNode, chain: Carried, packed: dict[str, Array], case: int
    ) -> tuple[dict[str, Value] | None, str]:
        """Evaluate a node from the model's inputs on, with the caller's tolerances, or return None and the reason."""
        if self.options.mode == "isolated":
            return None, ""
        far, note = self._evaluated(node, chain, packed, case)
        far = far and {
            name: widened(one, self.options.tolerance(node.name, name), self._chained.types)
            for name, one in far.items()
        }
        if not note.startswith(_UNDECIDED):
            return far, note
        # The chain continues from the device's choice.
        chain.chosen.update(dict.fromkeys(node.outputs, node.name))
        return far, ""

    def _node(
        self, node: ReferenceNode, ours: dict[str, Array], alone: Carried, chain: Carried, drifts: Drifts, case: int
    ) -> None:
        # Streamed tensors are kept in compact form.
        packed = ours if isinstance(ours, Windowed) and not self.against.reads_values else {}
        local, kernels = self._judge_alone(node, ours, alone, packed, case)
        known = self._local[node.name]
        missing = chain.missing(node)
        far, far_note = self._from_inputs(node, chain, packed, case)
        if (far is None and far_note) or not known.evaluated:
            missing = (*missing, node.name)
        chain.follow(node)
        if text := chain.decides(node, far):
            self._find(Finding("undecided decisions", node.name, text, case=case))
        for name in node.outputs:
            self._keep_values(node, name, ours, (alone, chain), (local, far))
            if missing:
                chain.unproved[name] = missing
            if spoilt := next((self._spoilt[one] for one in node.inputs if one in self._spoilt), ""):
                self._spoilt[name] = spoilt
            if name in ours:
                shown = self.against.far(name, (far or {}).get(name), name in chain.chosen)
                reason = known.notes[name] or far_note or self.against.notes.get(name, "")
                self._judge(node, name, ours[name], known.deviations[name], shown, reason)
                self._compare(node.name, name, ours[name], case)
                if far is not None and isinstance(far.get(name), Bounded):
                    self._drift(node, name, ours[name], far[name], drifts, case)
                if self.flow_kernels and not is_float(ours[name].dtype):
                    self.choices[name] = ours[name]
            elif (
                self.tensors.absent
                and not self._is_again
                and name in self._read
                and isinstance(made := (local or far or {}).get(name), Bounded)
            ):
                row = row_of(node, name, made.value, case)
                self._keep(row._replace(note=self.tensors.absent, waived=True), fixed=True)
        for row in kernels:
            self._keep(row, fixed=True)

    def _judge_alone(
        self, node: ReferenceNode, ours: dict[str, Array], alone: Carried, packed: dict[str, Array], case: int
    ) -> tuple[dict[str, Value] | None, list[ValidationRow]]:
        """Check a node on the device's inputs. Return the rules' results and the rows of kernels that end there."""
        if self._is_again:
            self.against.follow(node)
            return None, []
        local, note = (None, "") if self.options.mode == "chained" else self._evaluated(node, alone, packed, case)
        for one in self.ranges.of_node(node, alone, local or {}, ours):
            self._find(one._replace(case=case), fixed=True)
        given = alone.of(node) if local is not None and self.against.reads_values else {}
        expected = self.against.node(node, given, local)
        near = {
            name: self._near(node, name, ours[name], (expected or {}).get(name))
            for name in node.outputs
            if name in ours
        }
        notes = {name: note or self.against.notes.get(name, "") for name in near}
        faults = {name: self.against.faults[name] for name in near if name in self.against.faults}
        self._local[node.name] = _Local(local is not None or not note, near, notes, faults)
        referred = expected if self.against.reads_values else None
        del expected  # frees unread values below
        if packed and local is not None and not node.folded:  # free unread values before creating new ones
            local = {name: self._left_of(node, name, one, name in ours) for name, one in local.items()}
        kernels = self._kernels(node, ours, local if referred is None else referred, case)
        if packed and self.options.mode == "both" and local is not None and not node.folded:
            local = {name: None if name in ours else one for name, one in local.items()}
        return local, kernels

    def _left_of(self, node: ReferenceNode, name: str, value: Value, is_judged: bool) -> Value:
        """Return the part of a checked value that later steps read: all of it, or only its type."""
        if not is_judged or not isinstance(value, Bounded) or (self.kernels and self.kernels.reads(node, name)):
            return value
        return Bounded(np.zeros(0), None, value.dtype)

    def _near(self, node: ReferenceNode, name: str, actual: Array, expected: Value) -> Deviation | None:
        types = self.reference.runner.types.at(node.precision)
        return self._deviation(node, actual, expected, types, self.options.tolerance(node.name, name))

    def _kernels(
        self, node: ReferenceNode, ours: dict[str, Array], local: dict[str, Value] | None, case: int
    ) -> list[ValidationRow]:
        """Check the optimised program's stored tensors for this node's results."""
        if not self.kernels:
            return []
        tolerances = {name: self.options.tolerance(node.name, name) for name in node.outputs}
        judged = self.kernels.judged(node, ours, local, tolerances, self.alone.additions.get(node.name, 0))
        return [self._kernel_row(node, one, case) for one in judged]

    def _kernel_row(self, node: ReferenceNode, one: Judged, case: int) -> ValidationRow:
        row = row_of(node, one.name, one.stored.array, case)
        waived = self.options.allows(one.name) or (bool(one.unproved) and all(map(self._allows_node, one.unproved)))
        note = one.note or (self.against.notes.get(one.name, "") if one.members == (node.name,) else "")
        row = row._replace(local=one.deviation, note=note, unproved=one.unproved, waived=waived, fault=one.fault)
        row = row._replace(program="kernels", members=one.members, kernel=one.stored.kernel)
        return row._replace(statistics=one.statistics)

    def _flow(self, kernels: FlowKernels, inputs: dict[str, Array], ours: Held, case: int) -> None:
        """Check the optimised program's stored tensors, if it has control flow."""
        if isinstance(ours, Windowed):
            kernels.refuse("the tensors are too many to be on the host at once")
        owners = [(node, name) for node in self.reference.nodes for name in node.outputs]
        tolerances = {name: self.options.tolerance(node.name, name) for node, name in owners}
        for one in kernels.judged(inputs, self.choices, tolerances, self.tensors.loop_timeout):
            row = self._kernel_row(one.owner, one.shown, case)
            if self.against.reads_values and not row.note:
                row = row._replace(note=f"by the rules, not by {self.against.name}: the program has control flow")
            waived = self.options.allows(one.owner.op, one.owner.operator, one.owner.name)
            self._keep(one.placed(row, waived), fixed=True)

    def _keep_values(
        self,
        node: ReferenceNode,
        name: str,
        ours: dict[str, Array],
        carried: tuple[Carried, Carried],
        expected: _Expected,
    ) -> None:
        """Store later nodes' inputs: alone, the device's values; in the chain, the reference's if available."""
        (alone, chain), (local, far) = carried, expected
        far_made, made = (far or {}).get(name), (local or {}).get(name)
        of_device = None
        if name in ours:
            of_device = read(ours[name], self.types.at(node.precision), far_made, isinstance(ours, Windowed))
        if node.folded and isinstance(made, Bounded):
            # Folded, possibly without intermediate rounding; later nodes read a constant.
            types = self.types.at(node.precision)
            alone.held[name] = folded(ours[name], types) if name in ours else computed_beforehand(made, types)
        elif of_device is not None:
            alone.held[name] = of_device
        elif made is not None or local is not None:
            alone.held[name] = made
        if node.folded and isinstance(far_made, Bounded):
            far_made = computed_beforehand(far_made, self._chained.types.at(node.precision))
        if found := next((chain.chosen[one] for one in node.inputs if one in chain.chosen), ""):
            chain.chosen[name] = found
        if isinstance(far_made, Bounded) and of_device is not None:
            agreed = decided(far_made, of_device)
            if agreed is not far_made:
                chain.chosen.setdefault(name, node.name)
                chain.open[name] = far_made
            chain.held[name] = agreed
        elif far is not None and name in far:
            chain.held[name] = far_made
        elif of_device is not None:
            chain.held[name] = of_device
            chain.taken[name] = node.name

    def _judge(
        self, node: ReferenceNode, name: str, actual: Array, near: Deviation | None, far: Value, note: str
    ) -> None:
        row = row_of(node, name, actual, self._case)
        allowed = self.options.tolerance(node.name, name)
        total = self._deviation(node, actual, far, self._chained.types.at(node.precision), allowed)
        if self.options.mode == "both" and near is None:
            total = None  # checked on its own or not at all
            note = note or "the reference has no such value"
        if self.options.mode == "chained" and total is not None and not total.ok and name in self._spoilt:
            # Only the unfused program is sure to store that number, and no caller runs it; the outputs show its effect.
            total = None
            note = f"rests on node '{self._spoilt[name]}', which overflows"
        waived = self.options.allows(node.op, node.operator, node.name, name)
        if near is None and total is None:
            row = row._replace(unproved=(node.name,))
        like = statistics(actual, far)
        known = self._local.get(node.name)
        fault = (known.faults.get(name, "") if known else "") or self.against.faults.get(name, "")
        row = row._replace(note=note, fault=fault, waived=waived, statistics=like)
        self._keep(row._replace(local=near, accumulated=total, given=allowed is not None))

    def _deviation(
        self, node: ReferenceNode, actual: Array, expected: Value, types: Types, allowed: float | None
    ) -> Deviation | None:
        if not isinstance(expected, Bounded):
            return None
        return node_deviation(node.op, actual, expected, types, allowed)

    def _drift(self, node: ReferenceNode, name: str, actual: Array, expected: Value, drifts: Drifts, case: int) -> None:
        assert isinstance(expected, Bounded)
        types = self.types.at(node.precision)
        drifts.add(node, name, actual, expected, types)
        if found := overflow_of(node.name, actual, expected, types, self.fused.precision):
            self._find(found._replace(case=case))
            if not self.tensors.single:
                self._spoilt.setdefault(name, node.name)

    def _compare(self, node: str, name: str, array: Array, case: int) -> None:
        if not self._is_again and (finding := self.against.compared(node, name, array, case)):
            self._find(finding, fixed=True)

    # ---- outputs

    def _outputs(
        self, inputs: dict[str, Array], ours: dict[str, Array], chain: Carried, drifts: Drifts, case: int
    ) -> None:
        try:
            results = self.runs.results(inputs)
        except IndexRangeError:  # raised by a model with index checks; already recorded as a fault
            return
        self.judge_results = lambda made: self._results(self.reference.texts(made), ours, chain, drifts, case)
        self.judge_results(results)
        for row in empty_case(results, case, self.options):
            self._keep(row)

    def _results(
        self, results: Mapping[str, Array], ours: dict[str, Array], chain: Carried, drifts: Drifts, case: int
    ) -> None:
        expected = {**packed_parts(self.fused, chain), **chain.known(), **chain.open}
        for name, result in results.items():
            value = expected.get(name)
            if value is None and name in self.reference.constants:
                value = chain[name]
            value = self.against.far(name, None if name in chain.taken else value, name in chain.chosen)
            self._compare(name, "", result, case)
            self._output(name, result, value, chain, drifts)

    def _output(self, name: str, result: Array, expected: Value, chain: Carried, drifts: Drifts) -> None:
        row = ValidationRow(name, "output", name, name_of(result.dtype), result.shape, self._case, None, None)
        row = row._replace(program="outputs", statistics=statistics(result, expected))
        missing = chain.unproved.get(name, ())
        if not isinstance(expected, Bounded):
            missing = missing or tuple({chain.taken[name]} if name in chain.taken else ())
            note = rests_on(missing) or "the reference has no such value"
            self._keep(row._replace(note=note, unproved=missing, waived=self._waives(name, missing)))
            return
        allowed = self.options.tolerance(name, name)
        total = judged(result, expected, self.reference.types_of(name, self._chained.types), allowed)
        derived = allowed is None  # the caller's tolerance is not adjusted
        if derived and not total.ok and not total.kind and name in chain.chosen:
            missing = (*missing, chain.chosen[name])  # the fused program may have chosen differently
        waived, note = self._waives(name, missing), rests_on(missing)
        if not total.ok and missing and not total.kind:  # unproved nodes before it may explain the error
            if name in chain.chosen:
                note = f"rests on a choice of node '{chain.chosen[name]}' that rounding may turn"
            total = total._replace(allowed=np.inf, undecided=total.elements)
        row = row._replace(accumulated=total, note=note, unproved=missing, waived=waived)
        limit, scale = self.options.accuracy_limit(name, self.types.precision), self.scales.of.get(name)
        is_exact = not self.against.reads_values and name not in chain.chosen
        above = self._exact.inaccuracy(name, result, expected, limit, scale, is_exact)
        self._keep(row.with_accuracy(above, self.options.allows_ill(name)))
        self._explain(name, expected, drifts, self._case)

    def _waives(self, output: str, missing: tuple[str, ...]) -> bool:
        return self.options.allows(output) or (bool(missing) and all(self._allows_node(one) for one in missing))

    def _allows_node(self, name: str) -> bool:
        node = self.nodes[name]
        return self.options.allows(node.op, node.operator, node.name, *node.outputs)

    def _explain(self, name: str, expected: Bounded, drifts: Drifts, case: int) -> None:
        unit = self.types.storage(expected.dtype).unit if expected.is_float else 0.0
        for finding in (
            *drifts.findings(name, case, unit),
            *ill_conditioned(name, expected, self.scales.of.get(name), case),
        ):
            self._find(finding)

    def _find(self, finding: Finding, fixed: bool = False) -> None:
        self.collected.find(finding, fixed)

    def _keep(self, row: ValidationRow, fixed: bool = False) -> None:
        self.collected.keep(row, fixed)


def _nothing() -> None:
    """No-op progress step for a repeated check."""
