"""What a validation has found so far: rows, findings and faults, of which a case that is judged again replaces some of its own."""

from __future__ import annotations

from ..base.element_types import Array
from .bounds.types import name_of
from .judge import UNPROVED, WRONG
from .race import RacingStep
from .reference import ReferenceNode
from .rows import Finding, ValidationRow


class Collected:
    """The worst row of each tensor over all cases, the findings, and the faults of nodes.

    A case may be judged again by another model of errors from the model's inputs on. Rows and findings that do not depend on it (`fixed`)
    are those of the first judgement.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, str], ValidationRow] = {}
        self.found: dict[tuple[str, str], Finding] = {}
        self.faults: dict[str, tuple[int, str]] = {}  # by node: the first case, and what is wrong
        self._positions: dict[tuple[str, str, str], int] = {}  # by key of a row, in the order of the first judgement
        self._before = dict(self.rows), dict(self.found)
        self._fixed: tuple[list[ValidationRow], list[Finding]] = ([], [])
        self._own: list[ValidationRow] = []

    def begin(self) -> None:
        """Starts another case."""
        self._before = dict(self.rows), dict(self.found)
        self._fixed, self._own = ([], []), []

    def again(self) -> None:
        """Goes back to what was there before the case, with what the first judgement of it has fixed."""
        self.rows, self.found = dict(self._before[0]), dict(self._before[1])
        rows, findings = self._fixed
        self._fixed, self._own = ([], []), []
        for row in rows:
            self.keep(row, fixed=True)
        for finding in findings:
            self.find(finding, fixed=True)

    def find(self, finding: Finding, fixed: bool = False) -> None:
        """Adds a finding; of several of one kind and node the one of the first case stays."""
        if fixed:
            self._fixed[1].append(finding)
        key = (finding.kind, finding.node)
        if key not in self.found or finding.case < self.found[key].case:
            self.found[key] = finding

    def fault(self, node: str, case: int, text: str) -> None:
        """Adds what is wrong with a node whatever came of it."""
        if node not in self.faults or case < self.faults[node][0]:
            self.faults[node] = (case, text)

    def keep(self, row: ValidationRow, fixed: bool = False) -> None:
        """Adds a row; the worst case of each stays, and of several that are as bad the first."""
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
        """The rows in graph order, the outputs of the program as it ships last."""
        keys = sorted(self.rows, key=lambda key: (self.rows[key].op == "output", self._positions[key]))
        return [self.rows[key] for key in keys]

    def at_fault(self, step: RacingStep, case: int) -> ValidationRow:
        """The row of the tensor that a step has stored, with what is wrong with the step."""
        name = step.tensor.rpartition(" as ")[0] or step.tensor
        own = (row for row in self._own if row.program == "kernels" and row.output in (name, step.tensor))
        blank = ValidationRow(step.node, "kernel", step.tensor, "", (step.size,), case, None, None)
        blank = blank._replace(program="kernels", members=(step.node,), kernel=step.kernel)
        return next(own, blank)._replace(fault=str(step))

    def wrong(self) -> list[ValidationRow]:
        """The rows of the case at hand that are wrong."""
        return [row for row in self._own if row.verdict == WRONG]


def row_of(node: ReferenceNode, output: str, array: Array, case: int) -> ValidationRow:
    """Return a row of a node's output, not judged yet."""
    return ValidationRow(node.name, node.op, output, name_of(array.dtype), array.shape, case, None, None)


def rests_on(nodes: tuple[str, ...]) -> str:
    """Return the note of a tensor that these nodes leave without a proof."""
    return f"rests on node{'s' if len(nodes) > 1 else ''} {', '.join(map(repr, nodes[:4]))}" if nodes else ""
