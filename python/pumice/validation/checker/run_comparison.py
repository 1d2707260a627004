"""Compares the outputs of a plain run and an observed run of the optimised program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..._pumice import IndexRangeError
from ...base.element_types import Array
from ..reference.tensor_sources import DeviceTensors
from ..report.report_rows import CASE_OP, RACE, Finding, ValidationRow
from .case_result_cache import compare_output_bits, get_observed_outputs
from .options import ValidationOptions
from .race_search import find_racing_step

if TYPE_CHECKING:
    from .model_validation import ModelValidation

OBSERVED_RUN = "the run that is observed, with a copy after each step"


def compare_runs(validation: ModelValidation, inputs: dict[str, Array], case: int) -> None:
    """Compare a plain and an observed run of a case bit for bit. If they differ, search for the first differing step.

    Also search if an output is wrong but all kernels are right: the observed run's copies make the device wait, which
    can hide a race.
    """
    if not isinstance(validation.tensors, DeviceTensors):
        return
    try:
        results = validation.runs.compute_outputs(inputs)
    except IndexRangeError:  # raised by a model with index checks; already recorded as a fault
        return
    if validation.options.mode == "isolated":  # this mode checks no outputs
        for row in make_empty_case_rows(results, case, validation.options):
            validation.collected.add_row(row)
    differing = _find_differing_outputs(validation, inputs, results, case)
    for finding in differing:
        validation.collected.add_finding(finding)
    wrong = validation.collected.get_wrong_rows()
    only_outputs_wrong = validation.kernels is not None and bool(wrong) and all(row.op == "output" for row in wrong)
    program = validation.fused.program
    if program.has_control_flow or not (differing or only_outputs_wrong):
        return
    step = find_racing_step(program, [inputs[value.name] for value in program.inputs], validation.reference.nodes)
    if step is not None:
        validation.collected.add_finding(Finding(RACE, step.node, str(step), step.number, case))
        if wrong:
            validation.collected.add_row(validation.collected.make_racing_row(step, case))


def _find_differing_outputs(
    validation: ModelValidation, inputs: dict[str, Array], results: dict[str, Array], case: int
) -> list[Finding]:
    if validation.flow_kernels:
        return [
            *compare_output_bits(results, validation.flow_kernels.outputs, OBSERVED_RUN, case),
            *validation.flow_kernels.make_difference_findings(case),
        ]
    kernels = validation.kernels
    outputs = kernels.outputs if kernels else None
    if outputs is None:
        outputs = validation.reference.decode_strings(get_observed_outputs(validation.fused.program, inputs))
    return compare_output_bits(results, outputs, OBSERVED_RUN, case)


def make_empty_case_rows(results: Mapping[str, Array], case: int, options: ValidationOptions) -> list[ValidationRow]:
    """Return a row for the case if all outputs are empty, so that nothing was checked; else []."""
    if not results or any(np.size(array) for array in results.values()):
        return []
    name = f"case {case}"
    note = f"no output of case {case} has elements: nothing was checked"
    row = ValidationRow(name, CASE_OP, name, "", (0,), case, None, None, note, unproved=(name,), program="outputs")
    return [row._replace(waived=all(options.allows_unproved(output) for output in results))]
