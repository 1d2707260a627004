"""A row of a report is one tensor that was judged, and a finding is a sentence on a node: what the parts of a validation make."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..base.plain_text import plain
from .accuracy import Inaccuracy
from .judge import ILL, RIGHT, UNPROVED, WRONG, Deviation
from .statistics import Statistics

DIFFERS = "not deterministic"  # the kind of findings of bits that differ between runs
CASE = "case"  # in place of an operator, of the row of a whole case
RACE = "race"  # the kind of findings of steps that go wrong where no copies after each step make the device wait


class Finding(NamedTuple):
    """Something that a validation tells of a node: its kind, a sentence, and the number in it.

    Kinds: "wrong value", "wrong shape or dtype", "wrong index", "NaN made", "infinity made", "overflow", "underflow",
    "flushed denormals", "saturated integers", "clamped constant", "wide constant", "vanished constant", "rounded weights dominate",
    "ill-conditioned", "amplified", "undecided decisions", "not deterministic", "reference apart", "bisected", "stored output", "unproved",
    "kernels not judged", "race". Those of wrong and unproved rows decide the verdict, and "not deterministic".
    """

    kind: str
    node: str
    text: str
    number: float = math.nan
    case: int = 0


class ValidationRow(NamedTuple):
    """One output of one node, in the case where it was worst; or an output of the fused program (op "output").

    `local`: from the inputs that the device made. `accumulated`: from the model's inputs on. A node is judged by `local`, an
    output of the program by `accumulated`. `note` says why there is no proof, where there is none, and `unproved` names the nodes that it
    is missing of. A `fault` is wrong whatever came of it: an index out of range. `waived`: the caller allows that there is no proof.
    `program`: "nodes", a tensor of the program of single nodes; "kernels", one that a kernel of the program as it ships has stored, made
    of what that kernel reads by `members`, the model's nodes in it; "outputs", an output of the program as it ships;
    "stored", an output that somebody stored beside the inputs of a case.
    `statistics`: what the device's numbers are like in that case. `given`: the bound of a node is the caller's.
    `inaccuracy`: the element of an output that is furthest above the accuracy limit; `waived` then covers it too.
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
        """Return the row with what is above the accuracy limit; allowed: whether the caller allows that."""
        row = self._replace(inaccuracy=found)
        return row if found is None or row.verdict != ILL else row._replace(note=found.text, waived=allowed)

    @property
    def judged(self) -> Deviation | None:
        """The deviation that decides the verdict; None where nothing was compared."""
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
        """Whether it is right; unproved and ill-conditioned rows are not, unless the caller allowed them."""
        return self.verdict == RIGHT or (self.verdict in (UNPROVED, ILL) and self.waived)

    @property
    def checked(self) -> bool:
        """Whether the row is right or wrong."""
        return self.verdict != UNPROVED

    @property
    def elements(self) -> int:
        """The number of elements of the tensor."""
        return math.prod(self.shape)

    @property
    def severity(self) -> float:
        """Error over bound; 1 for what is unproved, just above 1 for ill-conditioned outputs, infinity for a fault."""
        if self.fault:
            return math.inf
        severity = self.judged.severity if self.judged else 0.0
        least = {UNPROVED: 1.0, ILL: math.nextafter(1.0, 2.0)}.get(self.verdict, severity)
        return max(severity, least)


def deciding_rows(rows: list[ValidationRow]) -> list[ValidationRow]:
    """All rows but those of nodes that are wrong in a program that nobody runs.

    A tolerance of the caller's for a node that is fused away, so that no kernel stores what it makes, has no other row to be held to.
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
    """The findings that follow from the verdicts of rows."""
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
    """The row's tensor as text, for a kernel's with the kernel and the nodes in it."""
    if row.program != "kernels" or not row.kernel:
        return f"'{plain(row.output)}'"
    members = ", ".join(f"'{plain(one)}'" for one in row.members[:6])
    rest = f" and {len(row.members) - 6} more" if len(row.members) > 6 else ""
    return f"'{plain(row.output)}' of {plain(row.kernel)} ({members}{rest})"
