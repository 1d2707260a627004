"""Validates a model node by node against float64 values with bounds: every node in isolation, and the whole program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from random import Random
from typing import Any, NamedTuple

import onnx

from .._pumice import Context
from ..base.element_types import Array
from ..base.errors import InputError
from ..base.log import forward_log
from ..base.printable_text import escape_unprintable, shorten_and_escape
from ..importer.file.model_file import Folder, Source
from ..model.model import Model
from ..model.precision_policy import Precision, parse_policy
from .checker.model_validation import ModelValidation, ReferenceInputValidation
from .checker.options import (
    Case,
    Progress,
    ValidationOptions,
    check_accuracy,
    check_output_limits,
    collect_option_metadata,
    make_step_counter,
    read_case_inputs,
)
from .reference.candidate import Candidate, CandidateModel, CandidatePrecision, CandidateTensors
from .reference.oracle import Oracle
from .reference.reference_oracles import FunctionOracle, make_oracle
from .reference.subgraph_extraction import compute_expected_results
from .reference.tensor_sources import DeviceTensors
from .report.deviation import UNPROVED, WRONG
from .report.explanation import Explanation
from .report.findings import Finding
from .report.report import ReportOrigin, ValidationReport, collect_model_metadata
from .report.report_rows import ValidationRow, make_findings, select_deciding_rows
from .report.subgraph import (
    ModelLoadSetup,
    Subgraph,
    declare_outputs,
    make_subgraph_precision,
    make_test_files,
    write_folder,
)
from .search.bisect import bisect_model
from .search.explain import (
    FailureTest,
    TrialCallback,
    list_suspect_node_groups,
    make_failure_test,
    make_subgraph_shrinker,
)
from .search.repeatability import RepeatedRuns, check_repeat_count, make_repeatability_findings

MODES = ("isolated", "chained", "both", "bisect")
INPUTS = ("device", "reference")


def validate(
    model: Model | Source,
    cases: Iterable[Case],
    *,
    context: Context | None = None,
    precision: Precision | None = None,
    progress: Progress | None = None,
    tolerances: Mapping[str, float] | None = None,
    allow_unchecked: bool | Collection[str] = (),
    mode: str = "both",
    inputs: str = "device",
    reference: Any = None,
    candidate: Candidate | None = None,
    candidate_precision: CandidatePrecision = None,
    repeat: int = 0,
    allow_nondeterministic: bool = False,
    accuracy: float | Mapping[str, float] | None = None,
    allow_ill_conditioned: bool | Collection[str] = (),
) -> ValidationReport:
    """Prove every tensor of the model right, within bounds derived element by element, or report which is not.

    The reference computes each value in float64 with NumPy, and a bound on the effect of rounding at this precision:
    in storage, in accumulation over a sum's length, and in elementary functions. A tensor is "right" if
    every element is within its bound, "wrong" if one is not, and "unproved" if no rule covers its operator, an element
    has no finite bound, or more than half depend on undecided choices. Results that depend on an unproved tensor are
    unproved too.

    Each case is a tuple of inputs, a dict by name, or the only input. A node is checked on the inputs that the device
    computed, so the first divergence is at the fault (`local`), and from the model's inputs on (`accumulated`). The
    fused program's outputs are checked by the latter, with independent roundings: 4 times their root-sum-square. An
    out-of-range index is a fault of the node that reads it.

    context, precision: by default a loaded model's, else the default context and "fp32"; if they differ, the
    model is loaded again.
    tolerances: absolute errors by node or tensor name, replacing the bounds.
    allow_unchecked: names of operators (`com.microsoft::Name`), nodes and outputs that may be unproved; True allows
    all.
    mode: "isolated" checks nodes on the device's inputs, "chained" checks everything from the model's inputs on, and
    "both" does both. "bisect" checks the outputs from the model's inputs on; if one is wrong, it finds the first wrong
    prefix of the fused model by binary search, without keeping every tensor.
    inputs: the inputs of nodes in mode "isolated". "device": the device's values. "reference": the reference's values,
    rounded to storage, with each node in its own program, so an overflow before a node does not affect it. The
    optimised program does not run then, and no kernels are checked.
    reference: the values that tensors are compared with, within the device's bound plus the reference's own. "float64"
    (None): the rules. "onnx", "onnxruntime": these runtimes, node by node, kernel by kernel and from the model's inputs
    on. From the model's inputs on only: a precision, a device name, a Context or a Model (another program of pumice),
    and stored tensors (a mapping or .npz file by name, or a list with one per case). "run": the rules, and another run
    of the same program, whose bits have to be equal. {operator: function}: function(attributes, float64 inputs) returns
    outputs, or pairs of output and bound, replacing the operator's rule.
    candidate: a callable to validate instead of the device. It receives a dict of inputs and returns the outputs in
    order, or a dict, which may include other tensors of the model; then nodes are checked on these.
    candidate_precision: its storage precision, or a tuple of storage and accumulation; None: declared types, float32
    accumulation.
    repeat: run each case this many times (at least 2), a quarter as often on another context of the device, and an
    eighth as often under load; see `report.repeats`. Every distinct result is checked. The other context is kept for
    the next validation on the model's context, and closed with it.
    allow_nondeterministic: whether bits may differ between runs. Otherwise any difference makes the report not ok.
    Cases run in a different order than given, on memory filled with NaN, and the optimised program runs twice for each:
    observed, for its kernels, and plain.
    accuracy: how far an output may be from its expected value, relative to the largest magnitude of its sample; by
    default 0.02, at bf16 0.1; or limits by output. An output within its bound but above the limit is "ill-conditioned",
    which is not ok.
    allow_ill_conditioned: names of outputs that may be ill-conditioned; True allows all.

    Raise BindingError for wrong inputs, InputError for invalid arguments, and UnsupportedError or GraphError if the
    model cannot be loaded. Raise TimeoutError, which names the Loop, if a Loop without an iteration count does not end
    within 15 s (at 16 bits its condition may never become false).
    """
    settings = _check_tolerances(tolerances), _check_allowed(allow_unchecked, "allow_unchecked"), _check_mode(mode)
    limits = check_accuracy(accuracy), _check_allowed(allow_ill_conditioned, "allow_ill_conditioned")
    options = ValidationOptions(*settings, check_repeat_count(repeat), allow_nondeterministic, inputs, *limits)
    check_output_limits(options)
    _check_inputs(options, candidate)
    if repeat and (candidate is not None or mode == "bisect"):
        raise InputError("validate: repeat: runs of whole programs are repeated; expected no candidate and no 'bisect'")
    if candidate is not None:
        if context is not None or precision is not None:
            raise InputError(
                "validate: candidate: a candidate chooses its own device and precision; expected no context and no precision"
            )
        if mode == "bisect":
            raise InputError("validate: mode: 'bisect' splits pumice programs; expected no candidate with it")
        return _validate_candidate(
            CandidateModel(model, candidate, candidate_precision), candidate, cases, progress, options, reference
        )
    if candidate_precision is not None:
        raise InputError("validate: candidate_precision: expected a candidate with it, given none")
    if not isinstance(model, Model):
        with Model(model, context, "fp32" if precision is None else precision) as loaded:
            return _validate_model(loaded, cases, progress, options, reference)
    policy = model.policy if precision is None else parse_policy(precision).entries
    if (context or model.context) is not model.context or policy != model.policy:
        with model.loaded_again(context, precision) as other:
            return _validate_model(other, cases, progress, options, reference)
    return _validate_model(model, cases, progress, options, reference)


def _validate_model(
    model: Model, cases: Iterable[Case], progress: Progress | None, options: ValidationOptions, reference: Any
) -> ValidationReport:
    inputs = _require_cases([read_case_inputs(model, case) for case in cases])
    if options.mode == "bisect":
        if reference not in (None, "float64"):
            raise InputError(f"validate: mode: 'bisect' supports only reference='float64', given {reference!r}")
        report = bisect_model(model, inputs, options, progress)
        report.origin = ReportOrigin.from_model(model, inputs, options.tolerances, _validate_subgraph, _explain_report)
        return report
    oracle = make_oracle(reference, model, len(inputs))
    if options.inputs == "reference":
        return _run_validation(
            _open_validation(oracle, lambda: _make_reference_input_validation(model, options, oracle, reference)),
            inputs,
            progress,
        )
    options = _make_chained_options(options, "reference") if oracle.chained else options
    return _run_validation(_open_validation(oracle, lambda: ModelValidation(model, options, oracle)), inputs, progress)


def _make_reference_input_validation(
    model: Model, options: ValidationOptions, oracle: Oracle, reference: Any
) -> ReferenceInputValidation:
    if type(oracle) not in (Oracle, FunctionOracle):
        raise InputError(
            f"validate: inputs: 'reference' supports only reference='float64' or functions, given {reference!r}"
        )
    return ReferenceInputValidation(model, options, oracle)


def _validate_candidate(
    model: CandidateModel,
    candidate: Candidate,
    cases: Iterable[Case],
    progress: Progress | None,
    options: ValidationOptions,
    reference: Any,
) -> ValidationReport:
    arrays = _require_cases([model.case(case) for case in cases])
    tensors = CandidateTensors(model, candidate, arrays[0])
    options = _make_chained_options(options, "candidate") if tensors.only_outputs else options
    oracle = make_oracle(reference, model, len(arrays))
    options = _make_chained_options(options, "reference") if oracle.chained else options
    validation = _open_validation(oracle, lambda: ModelValidation(model, options, oracle, tensors))
    return _run_validation(validation, [(case_arrays, dict(case_arrays)) for case_arrays in arrays], progress)


def _require_cases(cases: list[Any]) -> list[Any]:
    if not cases:
        raise InputError("validate: expected at least one case, given none")
    return cases


def _make_chained_options(options: ValidationOptions, source_kind: str) -> ValidationOptions:
    """Return the options for a reference or candidate that only has values computed from the model's inputs."""
    if options.mode == "isolated":
        raise InputError(
            f"validate: mode: this {source_kind} has no values of isolated nodes; expected 'chained' or 'both'"
        )
    return options._replace(mode="chained")


def _open_validation(oracle: Oracle, make: Callable[[], ModelValidation]) -> ModelValidation:
    try:
        return make()
    except BaseException:
        oracle.close()
        raise


def _run_validation(validation: ModelValidation, inputs: list[Any], progress: Progress | None) -> ValidationReport:
    order = _shuffle_cases(len(inputs))
    repeats = RepeatedRuns(validation, inputs[order[0]][0])
    total = len(inputs) * (len(validation.reference.nodes) + 1 + bool(validation.options.repeat))
    step = make_step_counter(total, progress)
    with ExitStack() as ends:
        for end in (forward_log, validation.close, repeats.close):  # ExitStack runs these in reverse order
            ends.callback(end)
        if len(inputs) > 1 and isinstance(validation.tensors, DeviceTensors):
            validation.tensors.run_preceding_case(inputs[order[-1]][0])
        for index in order:
            arrays, case_inputs = inputs[index]
            validation.run(arrays, case_inputs, index, step)
            if validation.options.repeat:
                repeats.run(arrays, index)
                step()
        unproved = any(row.verdict == UNPROVED for row in validation.collected.rows.values())
        work = validation.tensors.measure_node_costs(inputs[0][0]) if unproved else {}
    report = _make_report(validation, len(inputs))
    report.work = work
    if isinstance(validation.fused, Model):
        report.origin = ReportOrigin.from_model(
            validation.fused, inputs, validation.options.tolerances, _validate_subgraph, _explain_report
        )
    report.add_repeats(repeats.results(), make_repeatability_findings(repeats.results()))
    return report


def _shuffle_cases(cases: int) -> list[int]:
    """Return the cases in a fixed shuffled order, because neighbouring cases are often similar."""
    order = list(range(cases))
    Random(cases).shuffle(order)
    return order


def _make_report(validation: ModelValidation, cases: int) -> ValidationReport:
    """Return the report on all cases."""
    collected = validation.collected
    for row in (
        validation.flow_kernels.make_unrun_rows(validation.options.allows_unproved) if validation.flow_kernels else ()
    ):
        collected.add_row(row)
    rows = collected.get_ordered_rows()
    for node, (case, fault) in collected.faults.items():
        node_rows = [i for i, row in enumerate(rows) if row.node == node and row.program == "nodes"]
        for i in node_rows:
            rows[i] = rows[i]._replace(case=case, fault=fault)
        if not node_rows:  # the node is inside a body or branch
            rows.insert(0, ValidationRow(node, "indices", "", "", (), case, None, None, "", fault))
    rows = _mark_overflowing_nodes(rows, collected.findings_by_key)
    findings = make_findings(rows)
    reported = {(finding.kind, finding.node) for finding in findings}
    findings.extend(finding for key, finding in collected.findings_by_key.items() if key not in reported)
    if validation.skip_reason:
        findings.append(Finding("kernels not judged", validation.fused.name, validation.skip_reason))
    name, device, precision = validation.fused.name, validation.fused.device.name, validation.reference.precision
    option_record = collect_option_metadata(validation.options)
    facts = None
    if isinstance(validation.fused, Model):
        policy = validation.fused.policy if validation.fused.float32_nodes else {}
        facts = collect_model_metadata(validation.fused, validation.reference.nodes, option_record)._replace(
            policy=policy
        )
    oracle = validation.oracle.name
    report = ValidationReport(name, device, precision, cases, rows, findings, oracle, facts=facts)
    report.allows_differences = validation.options.allows_differences
    return report


def _mark_overflowing_nodes(
    rows: list[ValidationRow], findings: Mapping[tuple[str, str], Finding]
) -> list[ValidationRow]:
    """If only outputs are wrong, add a fault to the rows of the node that overflowed."""
    if not any(row.verdict == WRONG for row in rows) or any(
        row.verdict == WRONG and row.op != "output" for row in rows
    ):
        return rows
    overflow_nodes = [node for kind, node in findings if kind == "overflow"]
    for i, row in enumerate(rows):
        if row.node in overflow_nodes and row.program == "nodes":
            rows[i] = row._replace(fault=findings["overflow", row.node].text)
            break
    return rows


def _explain_report(report: ValidationReport) -> Explanation:
    from .search.explain import explain

    return explain(report)


def _validate_subgraph(subgraph: Subgraph, setup: ModelLoadSetup) -> ValidationReport:
    """Validate a subgraph. Raise whatever validate raises."""
    names = {*subgraph.nodes, *(name for node in subgraph.proto.graph.node for name in node.output)}
    tolerances = {name: number for name, number in (setup.tolerances or {}).items() if name in names}
    with setup.load_subgraph(subgraph.proto) as model:
        return validate(
            model, [subgraph.inputs], tolerances=tolerances, allow_unchecked=True, allow_ill_conditioned=True
        )


def _check_tolerances(tolerances: Mapping[str, float] | None) -> dict[str, float]:
    checked = dict(tolerances or {})
    for name, value in checked.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
            raise InputError(f"validate: tolerances['{name}']: expected a non-negative number, given {value!r}")
    return {name: float(value) for name, value in checked.items()}


def _check_allowed(names: bool | Collection[str], argument: str) -> bool | frozenset[str]:
    if isinstance(names, bool):
        return names
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InputError(f"validate: {argument}: expected True or a list of names, given {names!r}")
    return frozenset(names)


def _check_inputs(options: ValidationOptions, candidate: Candidate | None) -> None:
    if options.inputs not in INPUTS:
        raise InputError(f"validate: inputs: expected 'device' or 'reference', given {options.inputs!r}")
    if options.inputs == "device":
        return
    if options.mode != "isolated":
        raise InputError(
            f"validate: inputs: 'reference' is for isolated nodes; expected mode='isolated' with it, given '{options.mode}'"
        )
    if candidate is not None:
        raise InputError("validate: inputs: a candidate does not run isolated nodes; expected no 'reference' with it")
    if options.repeat:
        raise InputError("validate: inputs: runs of whole programs are repeated; expected no repeat with 'reference'")


def _check_mode(mode: str) -> str:
    if mode not in MODES:
        expected = " or ".join(f"'{name}'" for name in MODES)
        raise InputError(f"validate: mode: expected {expected}, given {mode!r}")
    return mode


# ---- reduction of a failing model to a small subgraph that still fails


class Reduction(NamedTuple):
    """A reduced model: `proto`, its `inputs` by name, and the reference's results where known.

    before, after: number of nodes of the model and of the subgraph. tried: number of subgraphs that ran. precision: the
    precision at which the model fails.
    """

    proto: onnx.ModelProto
    inputs: dict[str, Array]
    expected: dict[str, Array]
    before: int
    after: int
    tried: int
    precision: Precision

    def __str__(self) -> str:
        nodes = ", ".join(
            f"'{shorten_and_escape(node.name)}' ({shorten_and_escape(node.op_type)})"
            for node in self.proto.graph.node[:4]
        )
        more = f" and {self.after - 4} more" if self.after > 4 else ""
        shapes = ", ".join(
            f"{shorten_and_escape(name)} {array.dtype}{list(array.shape)}" for name, array in self.inputs.items()
        )
        which = f"{self.after} of {self.before} nodes still fail at {_format_precision(self.precision)}: {nodes}{more}"
        return f"{which}, on {shapes or 'no inputs'} ({self.tried} parts tried)"

    def save(self, folder: Folder) -> None:
        """Write model.onnx and test_data_set_0, in the layout of ONNX's tests, into a new or empty folder, atomically.

        Raise InputError if the folder is not empty, or OSError.
        """
        write_folder(folder, make_test_files(Subgraph(self.proto, self.inputs), self.expected))


def _format_precision(precision: Precision) -> str:
    return precision if isinstance(precision, str) else escape_unprintable(parse_policy(precision).entries)


def reduce(
    model: Model | Source,
    cases: Iterable[Case],
    *,
    context: Context | None = None,
    precision: Precision | None = None,
    fails: FailureTest | None = None,
    repeat: int = 0,
    progress: TrialCallback | None = None,
) -> Reduction:
    """Find a small subgraph of the model that still fails: fewer nodes, fewer outputs, smaller inputs.

    Results of removed nodes become inputs, with the device's values from the first failing case. A subgraph fails if
    `validate` finds it wrong at this precision; with `repeat`, and no wrong row in the model, if the bits of that many
    runs differ; with `fails`, if fails(ModelProto, inputs by name) returns true. A subgraph that raises an Error does
    not fail. Axes of inputs, and equal axes of constants, are halved while the subgraph fails.

    context, precision: as in `validate`. progress: called as progress(n, n) with the number of subgraphs tried.
    Raise InputError if no case fails, or for `fails` with `repeat`, and whatever `validate` raises.
    """
    if fails and repeat:
        raise InputError(f"reduce: expected `fails` or `repeat`, given both (repeat={repeat})")
    allowed: dict[str, Any] = {"allow_unchecked": True, "allow_ill_conditioned": True}
    report = validate(model, cases, context=context, precision=precision, repeat=repeat, **allowed)
    assert report.origin is not None
    wrong = [row for row in select_deciding_rows([*report.rows, *report.kernels]) if row.verdict == WRONG]
    unstable = [] if wrong else [r for r in report.repeats if not r.deterministic]
    if not fails and report.ok:
        raise InputError(f"reduce: expected a model that fails, given one that does not: {report.summary}")
    first = [nodes for row in wrong for nodes in list_suspect_node_groups(row)] + [[r.node] for r in unstable if r.node]
    fails_test = fails or make_failure_test(report.origin, repeat if unstable else 0)
    tried = 0
    for case in range(len(report.origin.cases)) if fails else [(wrong or unstable)[0].case]:
        shrinker = make_subgraph_shrinker(report.origin, case, fails_test, progress)
        subgraph = shrinker.find_smallest(first)
        tried += shrinker.num_trials
        if subgraph is not None:
            return _make_reduction(subgraph, report.origin.setup, len(shrinker.reference.nodes), tried)
    raise InputError(f"reduce: expected a part that fails, given none that fails by itself: {report.summary}")


def _make_reduction(subgraph: Subgraph, setup: ModelLoadSetup, before: int, tried: int) -> Reduction:
    precision = make_subgraph_precision(setup.precision, subgraph.proto)
    expected = compute_expected_results(subgraph, precision, setup.kernels)
    done = declare_outputs(subgraph, expected)
    return Reduction(done.proto, done.inputs, expected, before, len(done.nodes), tried, precision)
