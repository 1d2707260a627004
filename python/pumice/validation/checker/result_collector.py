"""Collects the rows, findings and faults of a validation; checking a case again replaces some of them."""

from __future__ import annotations

from ...base.element_types import Array
from ..reference.reference_model import ReferenceNode
from ..report.deviation import UNPROVED, WRONG
from ..report.report_rows import Finding, ValidationRow
from ..rules.float_types import dtype_name
from .race_search import RacingStep


class ResultCollector:
    """The worst row of each tensor over all cases, the findings, and the nodes' faults.

    A case may be rechecked with another error model. Rows and findings that do not depend on the error model (`fixed`)
    come from the first check.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, str], ValidationRow] = {}
        self.findings_by_key: dict[tuple[str, str], Finding] = {}
        self.faults: dict[str, tuple[int, str]] = {}  # maps a node to (first case with a fault, description)
        self._positions: dict[tuple[str, str, str], int] = {}  # maps a row's key to its position in the first check
        self._before_case = dict(self.rows), dict(self.findings_by_key)
        self._fixed_results: tuple[list[ValidationRow], list[Finding]] = ([], [])
        self._case_rows: list[ValidationRow] = []

    def begin_case(self) -> None:
        """Start the next case."""
        self._before_case = dict(self.rows), dict(self.findings_by_key)
        self._fixed_results, self._case_rows = ([], []), []

    def restart_case(self) -> None:
        """Restore the state before the case, plus the fixed results of its first check."""
        self.rows, self.findings_by_key = dict(self._before_case[0]), dict(self._before_case[1])
        rows, findings = self._fixed_results
        self._fixed_results, self._case_rows = ([], []), []
        for row in rows:
            self.add_row(row, fixed=True)
        for finding in findings:
            self.add_finding(finding, fixed=True)

    def add_finding(self, finding: Finding, fixed: bool = False) -> None:
        """Add a finding. For each kind and node, only the one of the first case is kept."""
        if fixed:
            self._fixed_results[1].append(finding)
        key = (finding.kind, finding.node)
        if key not in self.findings_by_key or finding.case < self.findings_by_key[key].case:
            self.findings_by_key[key] = finding

    def add_fault(self, node: str, case: int, text: str) -> None:
        """Add a fault of a node, which makes the node wrong regardless of its results."""
        if node not in self.faults or case < self.faults[node][0]:
            self.faults[node] = (case, text)

    def add_row(self, row: ValidationRow, fixed: bool = False) -> None:
        """Add a row. For each key, the row of the worst case is kept; ties go to the first."""
        if row.verdict == UNPROVED and not row.note:
            row = row._replace(note=row.deviation.missing if row.deviation else "the reference has no such value")
        if fixed:
            self._fixed_results[0].append(row)
        self._case_rows.append(row)
        key = (row.program + row.op, row.node, row.output)
        self._positions.setdefault(key, len(self._positions))
        if key not in self.rows or (row.severity, -row.case) > (self.rows[key].severity, -self.rows[key].case):
            self.rows[key] = row

    def get_ordered_rows(self) -> list[ValidationRow]:
        """Return the rows in graph order, with the optimised program's outputs last."""
        keys = sorted(self.rows, key=lambda key: (self.rows[key].op == "output", self._positions[key]))
        return [self.rows[key] for key in keys]

    def make_racing_row(self, step: RacingStep, case: int) -> ValidationRow:
        """Return the row of the tensor that a racing step stored, with the step as its fault."""
        name = step.tensor.rpartition(" as ")[0] or step.tensor
        candidates = (row for row in self._case_rows if row.program == "kernels" and row.output in (name, step.tensor))
        unchecked_row = ValidationRow(step.node, "kernel", step.tensor, "", (step.size,), case, None, None)
        unchecked_row = unchecked_row._replace(program="kernels", members=(step.node,), kernel=step.kernel)
        return next(candidates, unchecked_row)._replace(fault=str(step))

    def get_wrong_rows(self) -> list[ValidationRow]:
        """Return the wrong rows of the current case."""
        return [row for row in self._case_rows if row.verdict == WRONG]


def make_unchecked_row(node: ReferenceNode, output: str, array: Array, case: int) -> ValidationRow:
    """Return a row for a node's output that was not checked."""
    return ValidationRow(node.name, node.op, output, dtype_name(array.dtype), array.shape, case, None, None)


def describe_unproved_nodes(nodes: tuple[str, ...]) -> str:
    """Return the note for a tensor that is unproved because of these nodes."""
    return f"depends on node{'s' if len(nodes) > 1 else ''} {', '.join(map(repr, nodes[:4]))}" if nodes else ""
