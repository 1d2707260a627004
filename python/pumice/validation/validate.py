"""Validates a model node by node against float64 values with bounds: each node on its own, and the whole program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from random import Random
from typing import Any, TypeAlias

import numpy as np

from .._pumice import Context
from ..base.element_types import Array
from ..base.errors import InputError
from ..base.log import forward_log
from ..importer.file.model_file import Source
from ..model.model import Model
from ..model.precision_policy import Precision, policy_of
from .oracle import Against
from .bisect import bisected
from .candidate import Candidate, CandidateModel, CandidatePrecision, CandidateTensors
from .subgraph import Cut
from .report_facts import facts_of, option_facts
from .deviation import UNPROVED, WRONG
from .options import Options, check_outputs_are_judged, checked_accuracy
from .model_validation import Proof
from .reference_inputs import ReferenceInputs
from .reference_oracles import Functions, against_of
from .repeatability import Repeats, checked_count, findings
from .report import ValidationReport
from .report_rows import Finding, ValidationRow, findings_of
from .load_setup import Origin, Setup
from .tensor_sources import DeviceTensors

Case: TypeAlias = "Sequence[Any] | Mapping[str, Any] | Array"
Progress: TypeAlias = Callable[[int, int], None]

MODES = ("isolated", "chained", "both", "bisect")
INPUTS = ("device", "reference")


def _by_name(model: Model, case: Case) -> tuple[dict[str, Array], dict[str, Any]]:
    """Check a case and return its inputs: for the program, and for the model by name. An array is the only input."""
    positional: Sequence[Any] = ()
    named: Mapping[str, Any] = {}
    if isinstance(case, Mapping):
        named = case
    elif isinstance(case, np.ndarray) or not isinstance(case, Sequence):
        positional = [case]
    else:
        positional = case
    arrays = model._kept_arguments(*positional, **named)
    inputs = {value.name: array for value, array in zip(model.program.inputs, arrays, strict=True)}
    texts = model._kept_strings.texts(inputs) if model._kept_strings else inputs
    return inputs, {**model.named(*positional, **named), **texts}


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

    context, precision: by default those of a loaded model, else the default context and "fp32"; if they differ, the
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
    given = _tolerances(tolerances), _allowed(allow_unchecked, "allow_unchecked"), _mode(mode)
    limits = checked_accuracy(accuracy), _allowed(allow_ill_conditioned, "allow_ill_conditioned")
    options = Options(*given, checked_count(repeat), allow_nondeterministic, inputs, *limits)
    check_outputs_are_judged(options)
    _check_inputs(options, candidate)
    if repeat and (candidate is not None or mode == "bisect"):
        raise InputError("validate: repeat: runs of whole programs are repeated; expected no candidate and no 'bisect'")
    if candidate is not None:
        if context is not None or precision is not None:
            raise InputError(
                "validate: candidate: a candidate runs where it runs; expected no context and no precision"
            )
        if mode == "bisect":
            raise InputError("validate: mode: 'bisect' cuts programs of pumice; expected no candidate with it")
        return _of_candidate(
            CandidateModel(model, candidate, candidate_precision), candidate, cases, progress, options, reference
        )
    if candidate_precision is not None:
        raise InputError("validate: candidate_precision: expected a candidate with it, given none")
    if not isinstance(model, Model):
        with Model(model, context, "fp32" if precision is None else precision) as loaded:
            return _validated(loaded, cases, progress, options, reference)
    policy = model.policy if precision is None else policy_of(precision).entries
    if (context or model.context) is not model.context or policy != model.policy:
        with model.loaded_again(context, precision) as other:
            return _validated(other, cases, progress, options, reference)
    return _validated(model, cases, progress, options, reference)


def _validated(
    model: Model, cases: Iterable[Case], progress: Progress | None, options: Options, reference: Any
) -> ValidationReport:
    inputs = _some([_by_name(model, case) for case in cases])
    if options.mode == "bisect":
        if reference not in (None, "float64"):
            raise InputError(
                f"validate: mode: 'bisect' judges by the rules in float64; given a reference, {reference!r}"
            )
        report = bisected(model, inputs, options, progress)
        report.origin = Origin.of(model, inputs, options.tolerances, _of_part)
        return report
    against = against_of(reference, model, len(inputs))
    if options.inputs == "reference":
        return _judged(_opened(against, lambda: _on_reference(model, options, against, reference)), inputs, progress)
    options = _chained(options, "reference") if against.chained else options
    return _judged(_opened(against, lambda: Proof(model, options, against)), inputs, progress)


def _on_reference(model: Model, options: Options, against: Against, reference: Any) -> ReferenceInputs:
    if type(against) not in (Against, Functions):
        raise InputError(
            f"validate: inputs: 'reference' judges by the rules in float64 or by functions; given a reference, {reference!r}"
        )
    return ReferenceInputs(model, options, against)


def _of_candidate(
    model: CandidateModel,
    candidate: Candidate,
    cases: Iterable[Case],
    progress: Progress | None,
    options: Options,
    reference: Any,
) -> ValidationReport:
    arrays = _some([model.case(case) for case in cases])
    tensors = CandidateTensors(model, candidate, arrays[0])
    options = _chained(options, "candidate") if tensors.only_outputs else options
    against = against_of(reference, model, len(arrays))
    options = _chained(options, "reference") if against.chained else options
    proof = _opened(against, lambda: Proof(model, options, against, tensors))
    return _judged(proof, [(one, dict(one)) for one in arrays], progress)


def _some(cases: list[Any]) -> list[Any]:
    if not cases:
        raise InputError("validate: expected at least one case, given none")
    return cases


def _chained(options: Options, what: str) -> Options:
    """Return the options for a reference or candidate whose values all start from the model's inputs."""
    if options.mode == "isolated":
        raise InputError(
            f"validate: mode: this {what} has no values of nodes by themselves; expected 'chained' or 'both'"
        )
    return options._replace(mode="chained")


def _opened(against: Against, make: Callable[[], Proof]) -> Proof:
    try:
        return make()
    except BaseException:
        against.close()
        raise


def _judged(proof: Proof, inputs: list[Any], progress: Progress | None) -> ValidationReport:
    order = _order(len(inputs))
    repeats = Repeats(proof, inputs[order[0]][0])
    total = len(inputs) * (len(proof.reference.nodes) + 1 + bool(proof.options.repeat))
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    with ExitStack() as ends:
        for end in (forward_log, proof.close, repeats.close):  # these run in reverse order
            ends.callback(end)
        if len(inputs) > 1 and isinstance(proof.tensors, DeviceTensors):
            proof.tensors.run_before(inputs[order[-1]][0])
        for index in order:
            arrays, given = inputs[index]
            proof.run(arrays, given, index, step)
            if proof.options.repeat:
                repeats.run(arrays, index)
                step()
        unproved = any(row.verdict == UNPROVED for row in proof.collected.rows.values())
        work = proof.tensors.work(inputs[0][0]) if unproved else {}
    report = _report_of(proof, len(inputs))
    report.work = work
    if isinstance(proof.fused, Model):
        report.origin = Origin.of(proof.fused, inputs, proof.options.tolerances, _of_part)
    report.add_repeats(repeats.report(), findings(repeats.report()))
    return report


def _order(cases: int) -> list[int]:
    """Return a fixed, shuffled order of the cases, because neighbouring cases are often similar."""
    order = list(range(cases))
    Random(cases).shuffle(order)
    return order


def _report_of(proof: Proof, cases: int) -> ValidationReport:
    """Return the report on all cases."""
    collected = proof.collected
    for row in proof.flow_kernels.idle(proof.options) if proof.flow_kernels else ():
        collected.keep(row)
    rows = collected.in_order()
    for node, (case, fault) in collected.faults.items():
        own = [i for i, row in enumerate(rows) if row.node == node and row.program == "nodes"]
        for i in own:
            rows[i] = rows[i]._replace(case=case, fault=fault)
        if not own:  # inside a body or branch
            rows.insert(0, ValidationRow(node, "indices", "", "", (), case, None, None, "", fault))
    rows = _blamed(rows, collected.found)
    findings = findings_of(rows)
    told = {(one.kind, one.node) for one in findings}
    findings.extend(one for key, one in collected.found.items() if key not in told)
    if proof.refused:
        findings.append(Finding("kernels not judged", proof.fused.name, proof.refused))
    name, device, precision = proof.fused.name, proof.fused.device.name, proof.reference.precision
    used = option_facts(proof.options)
    facts = None
    if isinstance(proof.fused, Model):
        policy = proof.fused.policy if proof.fused.float32_nodes else {}
        facts = facts_of(proof.fused, proof.reference.nodes, used)._replace(policy=policy)
    against = proof.against.name
    report = ValidationReport(name, device, precision, cases, rows, findings, against, facts=facts)
    report.allows_differences = proof.options.allows_differences
    return report


def _blamed(rows: list[ValidationRow], found: Mapping[tuple[str, str], Finding]) -> list[ValidationRow]:
    """Blame the node that overflowed if only outputs are wrong."""
    if not any(row.verdict == WRONG for row in rows) or any(
        row.verdict == WRONG and row.op != "output" for row in rows
    ):
        return rows
    over = [node for kind, node in found if kind == "overflow"]
    for i, row in enumerate(rows):
        if row.node in over and row.program == "nodes":
            rows[i] = row._replace(fault=found["overflow", row.node].text)
            break
    return rows


def _of_part(part: Cut, setup: Setup) -> ValidationReport:
    """Validate a subgraph. Raise whatever validate raises."""
    names = {*part.nodes, *(name for node in part.proto.graph.node for name in node.output)}
    tolerances = {name: number for name, number in (setup.tolerances or {}).items() if name in names}
    with setup.load(part.proto) as model:
        return validate(model, [part.inputs], tolerances=tolerances, allow_unchecked=True, allow_ill_conditioned=True)


def _tolerances(given: Mapping[str, float] | None) -> dict[str, float]:
    made = dict(given or {})
    for name, value in made.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
            raise InputError(f"validate: tolerances['{name}']: expected a number of at least 0, given {value!r}")
    return {name: float(value) for name, value in made.items()}


def _allowed(given: bool | Collection[str], argument: str) -> bool | frozenset[str]:
    if isinstance(given, bool):
        return given
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise InputError(f"validate: {argument}: expected True or a list of names, given {given!r}")
    return frozenset(given)


def _check_inputs(options: Options, candidate: Candidate | None) -> None:
    if options.inputs not in INPUTS:
        raise InputError(f"validate: inputs: expected 'device' or 'reference', given {options.inputs!r}")
    if options.inputs == "device":
        return
    if options.mode != "isolated":
        raise InputError(
            f"validate: inputs: 'reference' is for nodes by themselves; expected mode='isolated' with it, given '{options.mode}'"
        )
    if candidate is not None:
        raise InputError("validate: inputs: a candidate runs no node by itself; expected no 'reference' with it")
    if options.repeat:
        raise InputError("validate: inputs: runs of whole programs are repeated; expected no repeat with 'reference'")


def _mode(given: str) -> str:
    if given not in MODES:
        expected = " or ".join(f"'{name}'" for name in MODES)
        raise InputError(f"validate: mode: expected {expected}, given {given!r}")
    return given
