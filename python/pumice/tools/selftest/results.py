"""Results of the self-test: a verdict for each case and each area."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ...base.element_types import Array
from ...validation.report.deviation import RIGHT, UNPROVED, WRONG

OK, FAILED, SKIPPED = "ok", "FAILED", "skipped"


class CaseResult(NamedTuple):
    """The verdict of one case: "right", "wrong", "unproved" or "skipped". precision: "" if the case has none."""

    name: str
    verdict: str
    precision: str = ""
    text: str = ""  # what is wrong, or why the case was skipped or is unproved
    error: float | None = None  # absolute error of the element nearest to its bound
    allowed: float | None = None  # bound of that element

    def as_dict(self) -> dict[str, Any]:
        """Return the case for JSON, which has no infinity or NaN: these are None."""
        numbers = {
            name: float(number) if number is not None and math.isfinite(number) else None
            for name, number in (("error", self.error), ("allowed", self.allowed))
        }
        return {**self._asdict(), **numbers}


@dataclass
class AreaResult:
    """The cases of an area so far. error: the message of the exception that ended the area."""

    name: str
    cases: list[CaseResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    summary: str = ""  # replaces the counts in the printed line
    error: str = ""
    seconds: float = 0.0

    @property
    def failed_cases(self) -> list[CaseResult]:
        """The cases that are wrong or unproved."""
        return [case for case in self.cases if case.verdict in (WRONG, UNPROVED)]

    @property
    def verdict(self) -> str:
        """ "ok", "FAILED", or "skipped" if no case was checked."""
        if self.error or self.failed_cases:
            return FAILED
        return OK if self.count(RIGHT) else SKIPPED

    def count(self, verdict: str) -> int:
        """Return the number of cases with this verdict."""
        return sum(case.verdict == verdict for case in self.cases)

    def compare(self, name: str, actual: Array, expected: Array) -> None:
        """Add a case whose result must have the dtype, the shape and the bits of `expected`."""
        text = describe_difference(np.asarray(actual), np.asarray(expected))
        self.cases.append(CaseResult(name, WRONG if text else RIGHT, text=text))

    def skip(self, name: str, reason: str, precision: str = "") -> None:
        """Add a skipped case."""
        self.cases.append(CaseResult(name, SKIPPED, precision, reason))

    @property
    def counts(self) -> str:
        """The summary, or a phrase with the number of cases of each verdict."""
        if self.summary or not self.cases:
            return self.summary or "no case"
        parts = [f"{self.count(RIGHT)} of {len(self.cases)} right"]
        parts += [f"{count} {verdict}" for verdict in (WRONG, UNPROVED, SKIPPED) if (count := self.count(verdict))]
        return ", ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """Return the area and its cases for JSON."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "seconds": round(self.seconds, 3),
            "error": self.error,
            "notes": self.notes,
            "counts": {verdict: self.count(verdict) for verdict in (RIGHT, WRONG, UNPROVED, SKIPPED)},
            "cases": [case.as_dict() for case in self.cases],
        }


def describe_difference(actual: Array, expected: Array) -> str:
    """Return a phrase about the elements whose bits differ; "" if there are none."""
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"{actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}"
    actual_bytes, expected_bytes = (
        np.frombuffer(array.tobytes(), np.uint8).reshape(array.size, -1) if array.size else np.zeros((0, 1), np.uint8)
        for array in (actual, expected)
    )
    differs = (actual_bytes != expected_bytes).any(axis=1)
    if not differs.any():
        return ""
    at = np.unravel_index(int(np.argmax(differs)), expected.shape) if expected.ndim else ()
    index = tuple(int(i) for i in at)
    where = f" at {list(index)}" if index else ""
    return f"{int(differs.sum())} of {differs.size} elements differ, first {actual[index]} instead of {expected[index]}{where}"
