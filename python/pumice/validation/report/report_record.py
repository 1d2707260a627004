"""Converts a report to plain values for JSON, following the schema in docs/validation_report.md."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..._pumice import __version__
from .deviation import ILL_CONDITIONED

if TYPE_CHECKING:
    from .accuracy import Inaccuracy
    from .deviation import Deviation
    from .report import ValidationReport
    from .report_rows import Finding, ValidationRow

# Increment this number if a field is removed or changes its meaning. New fields need no new number.
SCHEMA_VERSION = 1


def make_report_record(report: ValidationReport) -> dict[str, Any]:
    """Return the whole report as a record."""
    first = report.first_divergence
    verdicts = [row.verdict for row in report.rows]
    verdict_names = ["right", "wrong", "unproved", *(["ill-conditioned"] if ILL_CONDITIONED in verdicts else [])]
    return {
        "schema": SCHEMA_VERSION,
        "pumice": __version__,
        "model": report.model,
        "precision": report.precision,
        "reference": report.reference,
        "cases": report.cases,
        "ok": report.ok,
        "verdict": report.state,
        "counts": {verdict: verdicts.count(verdict) for verdict in verdict_names},
        "undecided": report.undecided,
        "unknown": report.unknown,
        "summary": report.summary,
        "first_divergence": None if first is None else first.node,
        "deterministic": report.deterministic,
        "repeats": [
            {**repeat.as_dict(), "waived": report.allows_differences and not repeat.deterministic}
            for repeat in report.repeats
        ],
        **report.facts.record(),
        "findings": [_make_finding_record(repeat) for repeat in report.findings],
        "rows": [_make_row_record(row) for row in (*report.rows, *report.kernels)],
    }


def _finite_or_none(value: float | None) -> float | None:
    """Return a finite number unchanged, else None, because JSON has no infinity or NaN."""
    return float(value) if value is not None and math.isfinite(value) else None


def _make_finding_record(finding: Finding) -> dict[str, Any]:
    return {**finding._asdict(), "number": _finite_or_none(finding.number)}


def _make_row_record(row: ValidationRow) -> dict[str, Any]:
    return {
        "node": row.node,
        "op": row.op,
        "output": row.output,
        "program": "outputs" if row.op == "output" else row.program,
        "kernel": row.kernel,
        "members": list(row.members),
        "dtype": row.dtype,
        "shape": list(row.shape),
        "case": row.case,
        "verdict": row.verdict,
        "waived": row.waived,
        "note": row.note,
        "fault": row.fault,
        "unproved": list(row.unproved),
        **_make_deviation_record(row.deviation),
        "accumulated": _finite_or_none(row.accumulated.error if row.accumulated else None),
        "inaccuracy": None if row.inaccuracy is None else _make_inaccuracy_record(row.inaccuracy),
        "statistics": None if row.statistics is None else row.statistics.record(),
    }


def _make_inaccuracy_record(inaccuracy: Inaccuracy) -> dict[str, Any]:
    """Return the record of the element that exceeds the accuracy limit most."""
    numbers = {name: _finite_or_none(getattr(inaccuracy, name)) for name in ("error", "limit", "scale")}
    return {
        **numbers,
        "index": list(inaccuracy.at),
        "actual": str(inaccuracy.actual),
        "expected": str(inaccuracy.expected),
        "elements": inaccuracy.elements,
    }


def _make_deviation_record(deviation: Deviation | None) -> dict[str, Any]:
    """Return the deviation that decides the verdict; `compared` distinguishes an infinite error from an unknown one."""
    if deviation is None:
        nothing = dict.fromkeys(("error", "allowed", "ratio", "index", "actual", "expected"))
        return {
            "compared": False,
            **nothing,
            "kind": "",
            "undecided": 0,
            "unknown": 0,
            "nans": 0,
            "infinities": 0,
            "ratios": [],
        }
    return {
        "compared": True,
        "error": _finite_or_none(deviation.error),
        "allowed": _finite_or_none(deviation.allowed),
        "ratio": _finite_or_none(deviation.severity),
        "index": list(deviation.at),
        "actual": None if deviation.actual is None else str(deviation.actual),
        "expected": None if deviation.expected is None else str(deviation.expected),
        "kind": deviation.kind,
        "undecided": deviation.undecided,
        "unknown": deviation.unknown,
        "nans": deviation.nans,
        "infinities": deviation.infinities,
        "ratios": list(deviation.ratios),
    }
