"""Rows (one per checked tensor) and findings (a sentence about a node) in a report."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..base.printable_text import plain
from .accuracy import Inaccuracy
from .deviation import ILL, RIGHT, UNPROVED, WRONG, Deviation
from .tensor_statistics import Statistics

DIFFERS = "not deterministic"  # kind of findings about bits that differ between runs
CASE = "case"  # replaces the operator name in the row of a whole case
# Kind of findings about steps that go wrong without the copies after each step, which make the device wait.
RACE = "race"


class Finding(NamedTuple):
    """A finding about a node: its kind, a sentence, and the number in it.

    Kinds: "wrong value", "wrong shape or dtype", "wrong index", "NaN made", "infinity made", "overflow", "underflow",
    "flushed denormals", "saturated integers", "clamped constant", "wide constant", "vanished constant", "rounded
    weights dominate", "ill-conditioned", "amplified", "undecided decisions", "not deterministic", "reference apart",
    "bisected", "stored output", "unproved", "kernels not judged", "race". Findings about wrong and unproved rows
    count towards the verdict, and so does "not deterministic".
    """

    kind: str
    node: str
    text: str
    number: float = math.nan
    case: int = 0


class ValidationRow(NamedTuple):
    """An output of a node in its worst case, or an output of the fused program (op "output").

    local: on the device's inputs. accumulated: from the model's inputs on. Nodes are checked by `local`, program
    outputs by `accumulated`. note: why the row is unproved; unproved: the nodes responsible. fault: reason why the row
    is wrong whatever the values, such as an index out of range. waived: the caller allows an unproved row.
    program: "nodes", a tensor of the unfused program; "kernels", a tensor stored by a kernel of the optimised program,
    which contains the nodes `members`; "outputs", an output of the optimised program; "stored", an output stored with a
    case.
    statistics: statistics of the device's values in that case. given: whether the bound is the caller's tolerance.
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
    statistics: Statistics | None = None
    given: bool = False
    inaccuracy: Inaccuracy | None = None

    def with_accuracy(self, found: Inaccuracy | None, allowed: bool) -> ValidationRow:
        """Return the row with its inaccuracy. allowed: whether the caller allows it."""
        row = self._replace(inaccuracy=found)
        return row if found is None or row.verdict != ILL else row._replace(note=found.text, waived=allowed)

    @property
    def judged(self) -> Deviation | None:
        """The deviation that decides the verdict; None if nothing was compared."""
        if self.op == "output":
            return self.accumulated
        return self.local if self.local is not None else self.accumulated

    @property
    def verdict(self) -> str:
        """ "right", "wrong", "unproved", or "ill-conditioned": within its bound, but above the accuracy limit."""
        judged = self.judged
        if self.fault or (judged is not None and not judged.ok):
            return WRONG
        verdict = UNPROVED if judged is None or self.unproved else judged.verdict
        return ILL if verdict == RIGHT and self.inaccuracy else verdict

    @property
    def ok(self) -> bool:
        """Whether the row is right, or is allowed to be unproved or ill-conditioned."""
        return self.verdict == RIGHT or (self.verdict in (UNPROVED, ILL) and self.waived)

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
        severity = self.judged.severity if self.judged else 0.0
        least = {UNPROVED: 1.0, ILL: math.nextafter(1.0, 2.0)}.get(self.verdict, severity)
        return max(severity, least)


def deciding_rows(rows: list[ValidationRow]) -> list[ValidationRow]:
    """Return all rows except nodes that are wrong only in the unfused program, which no caller runs.

    If the caller set a tolerance for a node and no kernel stores its result, the unfused row is the only check of the
    node and is kept.
    """
    good: set[str] = set()
    bad: set[str] = set()
    stored: set[str] = set()
    for row in rows:
        if row.program == "kernels":
            (good if row.verdict == RIGHT else bad).update(row.members)
            stored.add(row.node)
    cleared = good - bad
    cleared -= {row.node for row in rows if row.given and row.node not in stored}
    return [
        row for row in rows if row.program != "nodes" or row.verdict != WRONG or row.fault or row.node not in cleared
    ]


def findings_of(rows: list[ValidationRow]) -> list[Finding]:
    """Return the findings that follow from the rows' verdicts."""
    found = []
    unproved = {(row.node, row.output) for row in rows if row.program == "nodes" and not row.checked}
    deciding = set(map(id, deciding_rows(rows)))
    for row in rows:
        deviation, tensor = row.judged, tensor_of(row)
        if row.fault:
            apart = "reference apart" if "one of them is wrong" in row.fault else "wrong index"
            kind = "overflow" if "overflow" in row.fault else RACE if row.fault.startswith(RACE) else apart
            found.append(Finding(kind, row.node, row.fault, case=row.case))
        elif row.verdict == WRONG and deviation is not None:
            text = f"{tensor}: {deviation.actual} instead of {deviation.expected} at {list(deviation.at)}"
            text += f" ({_not_finite(deviation)})" if deviation.not_finite else ""
            if id(row) not in deciding:
                text += ", in the program of single nodes alone: all kernels of the program as it ships are right there"
            found.append(Finding(deviation.kind or "wrong value", row.node, text, deviation.severity, row.case))
        elif row.verdict == ILL and row.inaccuracy is not None:
            share = row.inaccuracy.error / row.inaccuracy.scale if row.inaccuracy.scale else math.inf
            found.append(Finding(ILL, row.node, f"output {tensor} is {row.inaccuracy.text}", share, row.case))
        elif not row.checked and (row.program != "kernels" or (row.node, row.output) not in unproved):
            found.append(Finding("unproved", row.node, f"{tensor}: {row.note}", row.elements, row.case))
        is_named = row.verdict == WRONG or (row.program == "kernels" and (row.node, row.output) in unproved)
        if deviation is not None and deviation.not_finite and not is_named:
            kind = "NaN made" if deviation.nans else "infinity made"
            found.append(Finding(kind, row.node, f"{tensor}: {_not_finite(deviation)}", deviation.not_finite, row.case))
        if deviation is not None and deviation.undecided and row.program != "kernels":
            text = f"{deviation.undecided} of {deviation.elements} elements of {tensor} rest on a choice that rounding may turn"
            found.append(Finding("undecided decisions", row.node, text, deviation.undecided, row.case))
    return found


def _not_finite(one: Deviation) -> str:
    counts = ((one.nans, "NaN"), (one.infinities, "infinite"))
    said = " and ".join(f"{count} of {one.elements} elements are {what}" for count, what in counts if count)
    return f"{said} where the reference is finite"


def tensor_of(row: ValidationRow) -> str:
    """Return a phrase that names the row's tensor, and for a kernel's tensor also the kernel and its nodes."""
    if row.program != "kernels" or not row.kernel:
        return f"'{plain(row.output)}'"
    members = ", ".join(f"'{plain(one)}'" for one in row.members[:6])
    rest = f" and {len(row.members) - 6} more" if len(row.members) > 6 else ""
    return f"'{plain(row.output)}' of {plain(row.kernel)} ({members}{rest})"
