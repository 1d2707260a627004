"""Compares outputs stored with a model with the reference, within its bounds plus the rounding of the stored values."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...base.element_types import Array
from ...base.printable_text import MAX_SENTENCE_CHARS, shorten_and_escape
from ...model.datasets import Dataset
from ...model.model import Model
from ..reference.loop_timeouts import get_loop_timeout
from ..reference.reference_model import ReferenceModel
from ..report.deviation import RIGHT, UNPROVED, WRONG, Deviation, compare_tensor
from ..report.findings import Finding
from ..report.report import ValidationReport
from ..report.report_rows import ValidationRow
from ..rules.alternative_values import AlternativeValues, EnumeratedAlternatives, list_alternatives
from ..rules.bounded_tensor import BoundedTensor, UndecidedError, UnprovedError, Value
from ..rules.float_types import COVERAGE_FACTOR, ProgramTypes, is_float
from .live_values import LiveValues, round_folded_constant

_WRONG_SHAPE = "wrong shape or dtype"
Waivers = bool | Collection[str]


STORED_OUTPUT = "stored output"  # kind of findings about stored outputs that differ from the reference


class StoredOutputRow(NamedTuple):
    """A stored output: its deviation from the reference, and the device's value at the worst element."""

    output: str
    deviation: Deviation | None  # None if nothing was compared; see `note`
    device: Any = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """ "right", "wrong" or "unproved"."""
        return self.deviation.verdict if self.deviation else UNPROVED

    def __str__(self) -> str:
        if self.deviation is None or self.verdict == UNPROVED:
            reason = shorten_and_escape(self.note, MAX_SENTENCE_CHARS) or "more than half of the elements have no bound"
            return f"output '{shorten_and_escape(self.output)}': unproved: {reason}"
        deviation = self.deviation
        if deviation.kind == _WRONG_SHAPE:
            return f"output '{shorten_and_escape(self.output)}': {deviation.actual} is stored, the model produces {deviation.expected}"
        values = f"{deviation.actual} is stored at {list(deviation.at)}, the reference has {deviation.expected}"
        difference = f"apart by {deviation.error:.3g}, allowed {deviation.allowed:.3g}"
        return f"output '{shorten_and_escape(self.output)}': {values}: {difference}; the device has {self.device}"

    def as_dict(self) -> dict[str, Any]:
        """Return a record for JSON; infinity and missing comparisons become null."""
        numbers = (self.deviation.error, self.deviation.allowed) if self.deviation else (None, None)
        error, allowed = (number if number is not None and math.isfinite(number) else None for number in numbers)
        return {"output": self.output, "error": error, "allowed": allowed, "verdict": self.verdict, "note": self.note}


def check_stored_outputs(
    report: ValidationReport, model: Model, sets: Iterable[Dataset], tolerances: Mapping[str, float], allowed: Waivers
) -> None:
    """Add the comparison of stored outputs to a report. sets: the cases of the report, in order."""
    rows, findings = [], []
    for case, data in enumerate(sets):
        for stored_row in compare_stored_outputs(model, data.inputs, data.outputs, tolerances) if data.outputs else ():
            array = np.asarray(data.outputs[stored_row.output]) if stored_row.deviation else np.zeros(())
            waived = allowed if isinstance(allowed, bool) else stored_row.output in allowed
            missing = (stored_row.output,) if stored_row.verdict == UNPROVED else ()
            name, dtype = stored_row.output, str(array.dtype)
            row = ValidationRow(
                name, "stored output", name, dtype, array.shape, case, None, stored_row.deviation, stored_row.note
            )
            row = row._replace(unproved=missing, waived=waived, program="stored")
            rows.append(row)
            if row.verdict != RIGHT:
                kind = "unproved" if row.verdict == UNPROVED else STORED_OUTPUT
                findings.append(Finding(kind, name, f"{data.name}: {stored_row}", row.severity, case))
    report.add_stored(rows, findings)


def compare_stored_outputs(
    model: Model, inputs: Mapping[str, Any], stored: Mapping[str, Any], tolerances: Mapping[str, float] | None = None
) -> list[StoredOutputRow]:
    """Compare stored outputs of a case with the reference, which also checks the device's outputs.

    A stored element may differ from the float64 reference by the model's own bound at its precision, from the model's
    inputs on, plus one rounding to the stored type: |stored - reference| <= bound + u |stored|. Integers and booleans
    must be equal except for undecided choices. An output without a bound is unproved. If the device's results are proved
    right too, comparing them with the stored ones would show nothing more.

    inputs, stored: by name; outputs that are not stored are skipped. tolerances: absolute errors by output, replacing
    the bound. Raise whatever calling the model raises.
    """
    results = model(*model.named(**inputs).values(), loop_timeout=get_loop_timeout(model.source, model.folder))
    names = [value.name for value in model.outputs]
    device_outputs = dict(zip(names, [results] if len(names) == 1 else results, strict=True))
    reference = ReferenceModel(model.source, model.folder, model.precision, model.kernel_table)

    def compare_outputs(sampled: bool) -> list[StoredOutputRow]:
        values, notes = _compute_reference_values(reference, model.named(**inputs), sampled)
        types = reference.chained.types
        allowed = tolerances or {}
        return [
            StoredOutputRow(name, None, None, notes[name])
            if name in notes
            else _compare_output(name, device_outputs[name], stored[name], values.get(name), types, allowed.get(name))
            for name in names
            if name in stored
        ]

    stored_rows = compare_outputs(sampled=False)
    return compare_outputs(sampled=True) if any(row.verdict == WRONG for row in stored_rows) else stored_rows


def _compute_reference_values(
    reference: ReferenceModel, case_inputs: Mapping[str, Any], sampled: bool
) -> tuple[dict[str, Value], dict[str, str]]:
    """Return all values computed from the inputs by name, and the reasons for missing ones by name."""
    values = LiveValues(
        reference, reference.chained.with_types(reference.chained.types.for_stored_results()), case_inputs, sampled
    )
    notes: dict[str, str] = {}
    for node in reference.nodes:
        if missing := next((notes[name] for name in node.inputs if name in notes), ""):
            notes.update(dict.fromkeys(node.outputs, missing))
            continue
        try:
            results = values.run(node)
        except (UndecidedError, UnprovedError, IndexError, KeyError, MemoryError) as error:
            notes.update(dict.fromkeys(node.outputs, f"node '{node.name}': {error}"))
            continue
        for name, value in results.items():
            if node.is_folded and isinstance(value, BoundedTensor):
                value = round_folded_constant(value, values.runner.types.at_precision(node.precision))
            values.values[name] = value
    return {**{name: values[name] for name in reference.constants if name in reference.outputs}, **values.values}, notes


def _compare_output(
    name: str, actual: Any, stored: Any, expected: Value, types: ProgramTypes, tolerance: float | None
) -> StoredOutputRow:
    if (
        not isinstance(actual, np.ndarray)
        or not isinstance(stored, np.ndarray)
        or not isinstance(expected, BoundedTensor)
    ):
        return StoredOutputRow(name, None, None, "sequences and optional values are not compared with stored ones")
    stored = stored.astype(object) if stored.dtype.kind in "UT" else stored  # convert NumPy strings to objects
    allowed = BoundedTensor(expected.value, _add_stored_rounding(stored, expected, types), actual.dtype)
    if expected.alternatives is not None and expected.shape == stored.shape:
        allowed.set_alternatives(_widen_alternatives(stored, expected, types))
    deviation = compare_tensor(stored, allowed, types, tolerance)
    device_value = actual[deviation.at] if len(deviation.at) == actual.ndim else None
    return StoredOutputRow(name, deviation, device_value)


def _widen_alternatives(stored: Array, expected: BoundedTensor, types: ProgramTypes) -> AlternativeValues | None:
    """Return the values that each undecided element may have, with errors widened by the rounding of the stored values.

    If an element may have too many values to list, they are returned unchanged.
    """
    alternatives = list_alternatives(expected)
    rounding = _add_stored_rounding(stored, BoundedTensor(expected.value, None, expected.dtype), types)
    if alternatives is None or rounding is None:
        return expected.alternatives
    return EnumeratedAlternatives(
        alternatives.mask, alternatives.values, [error + rounding for error in alternatives.errors], alternatives.group
    )


def _add_stored_rounding(stored: Array, expected: BoundedTensor, types: ProgramTypes) -> Array | None:
    """Return the reference's error plus the rounding error of the stored values.

    `compare_tensor` multiplies independent errors by COVERAGE_FACTOR.
    """
    if expected.shape != stored.shape:
        return expected.error  # the shape mismatch is reported elsewhere
    if not is_float(stored.dtype):
        return expected.error
    stored_type = types.get_read_back_type(stored.dtype)
    with np.errstate(all="ignore"):
        rounding = np.abs(np.asarray(stored, np.float64)) * stored_type.unit + stored_type.step
        rounding = np.where(np.isfinite(rounding), rounding, 0.0) / (
            COVERAGE_FACTOR if types.independent_errors else 1.0
        )
    return np.asarray(expected.get_errors() + rounding)
