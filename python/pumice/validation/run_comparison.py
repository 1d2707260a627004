"""Compares the outputs of the plain and the observed run of the optimised program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from .._pumice import IndexRangeError
from ..base.element_types import Array
from .case_runs import compared, observed_outputs
from .options import Options
from .race import racing_step
from .report_rows import CASE, RACE, Finding, ValidationRow
from .tensor_sources import DeviceTensors

if TYPE_CHECKING:
    from .model_validation import Proof

OBSERVED = "the run that is observed, with a copy after each step"


def compare_runs(proof: Proof, inputs: dict[str, Array], case: int) -> None:
    """Compare both runs of a case bit for bit, and search for the first differing step.

    Also search if an output is wrong but all kernels are right: the observed run's copies make the device wait, which
    can hide a race.
    """
    if not isinstance(proof.tensors, DeviceTensors):
        return
    try:
        results = proof.runs.results(inputs)
    except IndexRangeError:  # raised by a model with index checks; already recorded as a fault
        return
    if proof.options.mode == "isolated":  # this mode checks no outputs
        for row in empty_case(results, case, proof.options):
            proof.collected.keep(row)
    found = _differing(proof, inputs, results, case)
    for one in found:
        proof.collected.find(one)
    wrong = proof.collected.wrong()
    is_output_alone = proof.kernels is not None and bool(wrong) and all(row.op == "output" for row in wrong)
    program = proof.fused.program
    if program.has_control_flow or not (found or is_output_alone):
        return
    step = racing_step(program, [inputs[value.name] for value in program.inputs], proof.reference.nodes)
    if step is not None:
        proof.collected.find(Finding(RACE, step.node, str(step), step.number, case))
        if wrong:
            proof.collected.keep(proof.collected.at_fault(step, case))


def _differing(proof: Proof, inputs: dict[str, Array], results: dict[str, Array], case: int) -> list[Finding]:
    if proof.flow_kernels:
        return [*compared(results, proof.flow_kernels.outputs, OBSERVED, case), *proof.flow_kernels.differing(case)]
    kernels = proof.kernels
    outputs = kernels.outputs if kernels else None
    if outputs is None:
        outputs = proof.reference.texts(observed_outputs(proof.fused.program, inputs))
    return compared(results, outputs, OBSERVED, case)


def empty_case(results: Mapping[str, Array], case: int, options: Options) -> list[ValidationRow]:
    """Return a row for a case whose outputs are all empty, so that nothing was checked; [] otherwise."""
    if not results or any(np.size(array) for array in results.values()):
        return []
    name = f"case {case}"
    note = f"no output of case {case} has an element: nothing was checked"
    row = ValidationRow(name, CASE, name, "", (0,), case, None, None, note, unproved=(name,), program="outputs")
    return [row._replace(waived=all(options.allows(output) for output in results))]
