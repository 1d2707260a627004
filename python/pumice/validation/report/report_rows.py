"""Rows (one per checked tensor) and findings (a sentence about a node) in a report."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...base.deprecation import warn_renamed
from ...base.printable_text import shorten_and_escape
from .accuracy import Inaccuracy
from .deviation import ILL_CONDITIONED, RIGHT, UNPROVED, WRONG, Deviation
from .findings import RACE, Finding
from .tensor_statistics import TensorStatistics


class ValidationRow(NamedTuple):
    """An output of a node in its worst case, or an output of the fused program (op "output").

    local: on the device's inputs. accumulated: from the model's inputs on. Nodes are checked by `local`, program
    outputs by `accumulated`. note: why the row is unproved; unproved: the nodes responsible. fault: reason why the row
    is wrong whatever the values, such as an index out of range. waived: the caller allows an unproved row.
    program: "nodes", a tensor of the unfused program; "kernels", a tensor stored by a kernel of the optimised program,
    which contains the nodes `members`; "outputs", an output of the optimised program; "stored", an output stored with a
    case.
    statistics: statistics of the device's values in that case. has_tolerance: whether the bound is the caller's tolerance.
    inaccuracy: the element of an output furthest above the accuracy limit; `waived` covers it too.
    """

    node: str
    op: str
    output: str
    dtype: str
    shape: tuple[int, ...]
    case: int
    local: Deviation | None
    accumulated: Deviation | None
    note: str = ""
    fault: str = ""
    unproved: tuple[str, ...] = ()
    waived: bool = False
    program: str = "nodes"
    members: tuple[str, ...] = ()
    kernel: str = ""
    statistics: TensorStatistics | None = None
    has_tolerance: bool = False
    inaccuracy: Inaccuracy | None = None

    def with_accuracy(self, inaccuracy: Inaccuracy | None, allowed: bool) -> ValidationRow:
        """Return the row with the element that exceeds the accuracy limit. allowed: whether the caller allows that."""
        row = self._replace(inaccuracy=inaccuracy)
        return (
            row
            if inaccuracy is None or row.verdict != ILL_CONDITIONED
            else row._replace(note=inaccuracy.text, waived=allowed)
        )

    @property
    def deviation(self) -> Deviation | None:
        """The deviation that decides the verdict; None if nothing was compared."""
        if self.op == "output":
            return self.accumulated
        return self.local if self.local is not None else self.accumulated

    @property
    def judged(self) -> Deviation | None:
        """The old name of `deviation`."""
        warn_renamed("ValidationRow.judged")
        return self.deviation

    @property
    def verdict(self) -> str:
        """ "right", "wrong", "unproved", or "ill-conditioned": within its bound, but above the accuracy limit."""
        deviation = self.deviation
        if self.fault or (deviation is not None and not deviation.ok):
            return WRONG
        verdict = UNPROVED if deviation is None or self.unproved else deviation.verdict
        return ILL_CONDITIONED if verdict == RIGHT and self.inaccuracy else verdict

    @property
    def ok(self) -> bool:
        """Whether the row is right, or is allowed to be unproved or ill-conditioned."""
        return self.verdict == RIGHT or (self.verdict in (UNPROVED, ILL_CONDITIONED) and self.waived)

    @property
    def checked(self) -> bool:
        """Whether the row is not unproved."""
        return self.verdict != UNPROVED

    @property
    def elements(self) -> int:
        """Number of elements of the tensor."""
        return math.prod(self.shape)

    @property
    def severity(self) -> float:
        """Error over bound; 1 for unproved rows, just above 1 for ill-conditioned ones, infinity for a fault."""
        if self.fault:
            return math.inf
        severity = self.deviation.severity if self.deviation else 0.0
        lower_bound = {UNPROVED: 1.0, ILL_CONDITIONED: math.nextafter(1.0, 2.0)}.get(self.verdict, severity)
        return max(severity, lower_bound)


def select_deciding_rows(rows: list[ValidationRow]) -> list[ValidationRow]:
    """Return all rows except those of nodes that are wrong only in the unfused program, which no caller runs.

    If the caller set a tolerance for a node and no kernel stores its result, the unfused row is the only check of the
    node and is kept.
    """
    right_nodes: set[str] = set()
    wrong_nodes: set[str] = set()
    stored: set[str] = set()
    for row in rows:
        if row.program == "kernels":
            (right_nodes if row.verdict == RIGHT else wrong_nodes).update(row.members)
            stored.add(row.node)
    overruled = right_nodes - wrong_nodes
    overruled -= {row.node for row in rows if row.has_tolerance and row.node not in stored}
    return [
        row for row in rows if row.program != "nodes" or row.verdict != WRONG or row.fault or row.node not in overruled
    ]


def make_findings(rows: list[ValidationRow]) -> list[Finding]:
    """Return the findings that follow from the rows' verdicts."""
    findings = []
    unproved = {(row.node, row.output) for row in rows if row.program == "nodes" and not row.checked}
    deciding = set(map(id, select_deciding_rows(rows)))
    for row in rows:
        deviation, tensor = row.deviation, describe_tensor(row)
        if row.fault:
            fault_kind = "reference apart" if "one of them is wrong" in row.fault else "wrong index"
            kind = "overflow" if "overflow" in row.fault else RACE if row.fault.startswith(RACE) else fault_kind
            findings.append(Finding(kind, row.node, row.fault, case=row.case))
        elif row.verdict == WRONG and deviation is not None:
            text = f"{tensor}: {deviation.actual} instead of {deviation.expected} at {list(deviation.at)}"
            text += f" ({_describe_not_finite(deviation)})" if deviation.not_finite else ""
            if id(row) not in deciding:
                text += ", in the program of single nodes alone: all kernels of the program as it ships are right there"
            findings.append(Finding(deviation.kind or "wrong value", row.node, text, deviation.severity, row.case))
        elif row.verdict == ILL_CONDITIONED and row.inaccuracy is not None:
            relative_error = row.inaccuracy.error / row.inaccuracy.scale if row.inaccuracy.scale else math.inf
            findings.append(
                Finding(
                    ILL_CONDITIONED, row.node, f"output {tensor} is {row.inaccuracy.text}", relative_error, row.case
                )
            )
        elif not row.checked and (row.program != "kernels" or (row.node, row.output) not in unproved):
            findings.append(Finding("unproved", row.node, f"{tensor}: {row.note}", row.elements, row.case))
        is_named = row.verdict == WRONG or (row.program == "kernels" and (row.node, row.output) in unproved)
        if deviation is not None and deviation.not_finite and not is_named:
            kind = "NaN made" if deviation.nans else "infinity made"
            findings.append(
                Finding(kind, row.node, f"{tensor}: {_describe_not_finite(deviation)}", deviation.not_finite, row.case)
            )
        if deviation is not None and deviation.undecided and row.program != "kernels":
            text = f"{deviation.undecided} of {deviation.elements} elements of {tensor} depend on a choice that rounding may flip"
            findings.append(Finding("undecided decisions", row.node, text, deviation.undecided, row.case))
    return findings


def _describe_not_finite(deviation: Deviation) -> str:
    counts = ((deviation.nans, "NaN"), (deviation.infinities, "infinite"))
    counts_text = " and ".join(
        f"{count} of {deviation.elements} elements are {kind}" for count, kind in counts if count
    )
    return f"{counts_text} where the reference is finite"


def describe_tensor(row: ValidationRow) -> str:
    """Return a phrase that names the tensor of a row; if a kernel stored it, also the kernel and its nodes."""
    if row.program != "kernels" or not row.kernel:
        return f"'{shorten_and_escape(row.output)}'"
    members = ", ".join(f"'{shorten_and_escape(member)}'" for member in row.members[:6])
    rest = f" and {len(row.members) - 6} more" if len(row.members) > 6 else ""
    return f"'{shorten_and_escape(row.output)}' of {shorten_and_escape(row.kernel)} ({members}{rest})"
