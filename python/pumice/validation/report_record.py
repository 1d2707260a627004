"""Converts a report to plain values for JSON, following the schema in docs/validation_report.md."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .._pumice import __version__
from .deviation import ILL

if TYPE_CHECKING:
    from .accuracy import Inaccuracy
    from .deviation import Deviation
    from .report import ValidationReport
    from .report_rows import Finding, ValidationRow

# Increment it if a field is removed or changes its meaning. Adding fields is always allowed.
SCHEMA = 1


def report_record(report: ValidationReport) -> dict[str, Any]:
    """Return the whole report as a record."""
    first = report.first_divergence
    verdicts = [row.verdict for row in report.rows]
    counted = ["right", "wrong", "unproved", *(["ill-conditioned"] if ILL in verdicts else [])]
    return {
        "schema": SCHEMA,
        "pumice": __version__,
        "model": report.model,
        "precision": report.precision,
        "reference": report.reference,
        "cases": report.cases,
        "ok": report.ok,
        "verdict": report.state,
        "counts": {verdict: verdicts.count(verdict) for verdict in counted},
        "undecided": report.undecided,
        "unknown": report.unknown,
        "summary": report.summary,
        "first_divergence": None if first is None else first.node,
        "deterministic": report.deterministic,
        "repeats": [
            {**one.as_dict(), "waived": report.allows_differences and not one.deterministic} for one in report.repeats
        ],
        **report.facts.record(),
        "findings": [_finding(one) for one in report.findings],
        "rows": [_row(row) for row in (*report.rows, *report.kernels)],
    }


def _number(value: float | None) -> float | None:
    """Return a finite number, else None: JSON has no infinity or NaN."""
    return float(value) if value is not None and math.isfinite(value) else None


def _finding(finding: Finding) -> dict[str, Any]:
    return {**finding._asdict(), "number": _number(finding.number)}


def _row(row: ValidationRow) -> dict[str, Any]:
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
        **_deviation(row.judged),
        "accumulated": _number(row.accumulated.error if row.accumulated else None),
        "inaccuracy": None if row.inaccuracy is None else _inaccuracy(row.inaccuracy),
        "statistics": None if row.statistics is None else row.statistics.record(),
    }


def _inaccuracy(one: Inaccuracy) -> dict[str, Any]:
    """Return the record of the element furthest above the accuracy limit."""
    numbers = {name: _number(getattr(one, name)) for name in ("error", "limit", "scale")}
    return {
        **numbers,
        "index": list(one.at),
        "actual": str(one.actual),
        "expected": str(one.expected),
        "elements": one.elements,
    }


def _deviation(judged: Deviation | None) -> dict[str, Any]:
    """Return the deviation that decides the verdict; `compared` distinguishes an infinite error from an unknown one."""
    if judged is None:
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
        "error": _number(judged.error),
        "allowed": _number(judged.allowed),
        "ratio": _number(judged.severity),
        "index": list(judged.at),
        "actual": None if judged.actual is None else str(judged.actual),
        "expected": None if judged.expected is None else str(judged.expected),
        "kind": judged.kind,
        "undecided": judged.undecided,
        "unknown": judged.unknown,
        "nans": judged.nans,
        "infinities": judged.infinities,
        "ratios": list(judged.ratios),
    }
