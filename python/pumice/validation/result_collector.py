"""Rows, findings and faults of a validation; checking a case again replaces some of them."""

from __future__ import annotations

from ..base.element_types import Array
from .bounds.float_types import name_of
from .deviation import UNPROVED, WRONG
from .race import RacingStep
from .reference import ReferenceNode
from .report_rows import Finding, ValidationRow


class Collected:
    """The worst row of each tensor over all cases, the findings, and the nodes' faults.

    A case may be checked again with another error model from the inputs on. Rows and findings that do not depend on it
    (`fixed`) come from the first check.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, str], ValidationRow] = {}
        self.found: dict[tuple[str, str], Finding] = {}
        self.faults: dict[str, tuple[int, str]] = {}  # node -> (first case, description of the fault)
        self._positions: dict[tuple[str, str, str], int] = {}  # row key -> position in the first check
        self._before = dict(self.rows), dict(self.found)
        self._fixed: tuple[list[ValidationRow], list[Finding]] = ([], [])
        self._own: list[ValidationRow] = []

    def begin(self) -> None:
        """Start another case."""
        self._before = dict(self.rows), dict(self.found)
        self._fixed, self._own = ([], []), []

    def again(self) -> None:
        """Restore the state before the case, plus the fixed results of its first check."""
        self.rows, self.found = dict(self._before[0]), dict(self._before[1])
        rows, findings = self._fixed
        self._fixed, self._own = ([], []), []
        for row in rows:
            self.keep(row, fixed=True)
        for finding in findings:
            self.find(finding, fixed=True)

    def find(self, finding: Finding, fixed: bool = False) -> None:
        """Add a finding; for each kind and node, the first case is kept."""
        if fixed:
            self._fixed[1].append(finding)
        key = (finding.kind, finding.node)
        if key not in self.found or finding.case < self.found[key].case:
            self.found[key] = finding

    def fault(self, node: str, case: int, text: str) -> None:
        """Add a fault of a node, which makes it wrong whatever its results are."""
        if node not in self.faults or case < self.faults[node][0]:
            self.faults[node] = (case, text)

    def keep(self, row: ValidationRow, fixed: bool = False) -> None:
        """Add a row; for each key, the worst case is kept, or the first of equal ones."""
        if row.verdict == UNPROVED and not row.note:
            row = row._replace(note=row.judged.missing if row.judged else "the reference has no such value")
        if fixed:
            self._fixed[0].append(row)
        self._own.append(row)
        key = (row.program + row.op, row.node, row.output)
        self._positions.setdefault(key, len(self._positions))
        if key not in self.rows or (row.severity, -row.case) > (self.rows[key].severity, -self.rows[key].case):
            self.rows[key] = row

    def in_order(self) -> list[ValidationRow]:
        """Return the rows in graph order, with the optimised program's outputs last."""
        keys = sorted(self.rows, key=lambda key: (self.rows[key].op == "output", self._positions[key]))
        return [self.rows[key] for key in keys]

    def at_fault(self, step: RacingStep, case: int) -> ValidationRow:
        """Return the row of the tensor that a racing step stored, with the step as its fault."""
        name = step.tensor.rpartition(" as ")[0] or step.tensor
        own = (row for row in self._own if row.program == "kernels" and row.output in (name, step.tensor))
        blank = ValidationRow(step.node, "kernel", step.tensor, "", (step.size,), case, None, None)
        blank = blank._replace(program="kernels", members=(step.node,), kernel=step.kernel)
        return next(own, blank)._replace(fault=str(step))

    def wrong(self) -> list[ValidationRow]:
        """Return the wrong rows of the current case."""
        return [row for row in self._own if row.verdict == WRONG]


def row_of(node: ReferenceNode, output: str, array: Array, case: int) -> ValidationRow:
    """Return an unchecked row of a node's output."""
    return ValidationRow(node.name, node.op, output, name_of(array.dtype), array.shape, case, None, None)


def rests_on(nodes: tuple[str, ...]) -> str:
    """Return the note of a tensor that is unproved because of these nodes."""
    return f"rests on node{'s' if len(nodes) > 1 else ''} {', '.join(map(repr, nodes[:4]))}" if nodes else ""
