"""Compares outputs stored with a model with the reference: within its bounds plus the rounding of the stored values."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..base.element_types import Array
from ..base.printable_text import LONG, plain
from ..model.data_sets import DataSet
from ..model.model import Model
from .bounds.bounded import Bounded
from .bounds.registry import Undecided, Unproved, Value
from .bounds.alternatives import Options, Sides, as_options
from .bounds.float_types import SPREAD, Types, is_float
from .live_values import Carried, computed_beforehand
from .deviation import RIGHT, UNPROVED, WRONG, Deviation, judged
from .loop_limits import loop_timeout
from .reference import Reference
from .report import ValidationReport
from .report_rows import Finding, ValidationRow

_SHAPE = "wrong shape or dtype"
Allowed = bool | Collection[str]


STORED = "stored output"  # kind of findings about stored outputs that differ from the reference


class StoredRow(NamedTuple):
    """One output: the stored value's deviation from the reference, and the device's value at the worst element."""

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
            return f"output '{plain(self.output)}': unproved: {plain(self.note, LONG) or 'more than half of the elements have no bound'}"
        one = self.deviation
        if one.kind == _SHAPE:
            return f"output '{plain(self.output)}': {one.actual} is stored, the model makes {one.expected}"
        values = f"{one.actual} is stored at {list(one.at)}, the reference has {one.expected}"
        apart = f"apart by {one.error:.3g}, allowed {one.allowed:.3g}"
        return f"output '{plain(self.output)}': {values}: {apart}; the device has {self.device}"

    def as_dict(self) -> dict[str, Any]:
        """Return a record for JSON; infinity and missing comparisons become null."""
        numbers = (self.deviation.error, self.deviation.allowed) if self.deviation else (None, None)
        error, allowed = (one if one is not None and math.isfinite(one) else None for one in numbers)
        return {"output": self.output, "error": error, "allowed": allowed, "verdict": self.verdict, "note": self.note}


def judge_stored(
    report: ValidationReport, model: Model, sets: Iterable[DataSet], tolerances: Mapping[str, float], allowed: Allowed
) -> None:
    """Add the comparison of stored outputs to a report; `sets` are the report's cases, in order."""
    rows, findings = [], []
    for case, data in enumerate(sets):
        for one in compared(model, data.inputs, data.outputs, tolerances) if data.outputs else ():
            array = np.asarray(data.outputs[one.output]) if one.deviation else np.zeros(())
            waived = allowed if isinstance(allowed, bool) else one.output in allowed
            missing = (one.output,) if one.verdict == UNPROVED else ()
            name, dtype = one.output, str(array.dtype)
            row = ValidationRow(name, "stored output", name, dtype, array.shape, case, None, one.deviation, one.note)
            row = row._replace(unproved=missing, waived=waived, program="stored")
            rows.append(row)
            if row.verdict != RIGHT:
                kind = "unproved" if row.verdict == UNPROVED else STORED
                findings.append(Finding(kind, name, f"{data.name}: {one}", row.severity, case))
    report.add_stored(rows, findings)


def compared(
    model: Model, inputs: Mapping[str, Any], stored: Mapping[str, Any], tolerances: Mapping[str, float] | None = None
) -> list[StoredRow]:
    """Compare stored outputs of a case with the reference, which also checks the device's outputs.

    A stored element may differ from the float64 reference by the model's own bound at its precision, from the model's
    inputs on, plus one rounding to the stored type: |stored - reference| <= bound + u |stored|. Integers and booleans
    are equal except for undecided choices. An output without a bound is unproved. If the device's results are proved
    right, both are within the same bound of the same numbers, which is all that comparing them directly could show.

    inputs, stored: by name; outputs that are not stored are skipped. tolerances: absolute errors by output, replacing
    the bound. Raise whatever calling the model raises.
    """
    results = model(*model.named(**inputs).values(), loop_timeout=loop_timeout(model.source, model.folder))
    names = [value.name for value in model.outputs]
    made = dict(zip(names, [results] if len(names) == 1 else results, strict=True))
    reference = Reference(model.source, model.folder, model.precision, model.kernel_table)

    def rows(sampled: bool) -> list[StoredRow]:
        values, notes = _reference_values(reference, model.named(**inputs), sampled)
        types = reference.chained.types
        allowed = tolerances or {}
        return [
            StoredRow(name, None, None, notes[name])
            if name in notes
            else _row(name, made[name], stored[name], values.get(name), types, allowed.get(name))
            for name in names
            if name in stored
        ]

    found = rows(sampled=False)
    return rows(sampled=True) if any(row.verdict == WRONG for row in found) else found


def _reference_values(
    reference: Reference, given: Mapping[str, Any], sampled: bool
) -> tuple[dict[str, Value], dict[str, str]]:
    """Return all values computed from the inputs, and by name why a value is missing."""
    values = Carried(reference, reference.chained.with_types(reference.chained.types.of_stored()), given, sampled)
    notes: dict[str, str] = {}
    for node in reference.nodes:
        if missing := next((notes[name] for name in node.inputs if name in notes), ""):
            notes.update(dict.fromkeys(node.outputs, missing))
            continue
        try:
            made = values.run(node)
        except (Undecided, Unproved, IndexError, KeyError, MemoryError) as error:
            notes.update(dict.fromkeys(node.outputs, f"node '{node.name}': {error}"))
            continue
        for name, one in made.items():
            if node.folded and isinstance(one, Bounded):
                one = computed_beforehand(one, values.runner.types.at(node.precision))
            values.held[name] = one
    return {**{name: values[name] for name in reference.constants if name in reference.outputs}, **values.held}, notes


def _row(name: str, actual: Any, stored: Any, expected: Value, types: Types, tolerance: float | None) -> StoredRow:
    if not isinstance(actual, np.ndarray) or not isinstance(stored, np.ndarray) or not isinstance(expected, Bounded):
        return StoredRow(name, None, None, "sequences and optional values are not compared with stored ones")
    stored = stored.astype(object) if stored.dtype.kind in "UT" else stored  # strings
    allowed = Bounded(expected.value, _allowance(stored, expected, types), actual.dtype)
    if expected.sides is not None and expected.shape == stored.shape:
        allowed.with_sides(_sides(stored, expected, types))
    deviation = judged(stored, allowed, types, tolerance)
    shown = actual[deviation.at] if len(deviation.at) == actual.ndim else None
    return StoredRow(name, deviation, shown)


def _sides(stored: Array, expected: Bounded, types: Types) -> Sides | None:
    """Return the alternatives of undecided elements, with the rounding added. Intervals with many integers get no
    rounding.
    """
    sides = as_options(expected)
    own = _allowance(stored, Bounded(expected.value, None, expected.dtype), types)
    if sides is None or own is None:
        return expected.sides
    return Options(sides.mask, sides.values, [error + own for error in sides.errors], sides.group)


def _allowance(stored: Array, expected: Bounded, types: Types) -> Array | None:
    """Return the reference's bound plus the rounding of the stored values. `judged` multiplies independent errors by
    SPREAD.
    """
    if expected.shape != stored.shape:
        return expected.error  # elsewhere reported as a shape mismatch
    if not is_float(stored.dtype):
        return expected.error
    kept = types.read_back(stored.dtype)
    with np.errstate(all="ignore"):
        own = np.abs(np.asarray(stored, np.float64)) * kept.unit + kept.step
        own = np.where(np.isfinite(own), own, 0.0) / (SPREAD if types.independent else 1.0)
    return np.asarray(expected.errors() + own)
