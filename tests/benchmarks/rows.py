"""The rows reported by benchmarks: figures, some with a target, in titled tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pumice

from .timing import Absent, Sampler, Times


@dataclass
class Row:
    """One line of a table, in the table's unit; without figures if `absent` has the reason."""

    what: str
    best: float | None = None
    median: float | None = None
    first: float | None = None
    device: float | None = None
    target: float | None = None  # maximum of the judged figure
    judged: str = "median"  # or "best"
    note: str = ""
    absent: str = ""
    wrong: bool = False  # the result was checked and is incorrect
    points: list[tuple[float, float]] = field(default_factory=list)  # measurements by size, if the row is their slope

    @property
    def met(self) -> bool | None:
        figure = self.best if self.judged == "best" or self.median is None else self.median
        return None if self.target is None or figure is None else figure <= self.target

    def cells(self) -> list[str]:
        figures = [figure(value) for value in (self.first, self.best, self.median, self.device)]
        verdict = {True: "met", False: "MISSED", None: ""}[self.met]
        target = "" if self.target is None else f"<= {figure(self.target)} {verdict}".rstrip()
        note = f"absent: {self.absent}" if self.absent else self.note
        return [self.what, *figures, target, note]


@dataclass
class Table:
    title: str
    unit: str
    rows: list[Row] = field(default_factory=list)
    axis: str = ""  # what the sizes of the rows' points count

    def __str__(self) -> str:
        cells = [["", "first", "best", "median", "device", "target", ""], *(row.cells() for row in self.rows)]
        used = [i for i in range(len(cells[0])) if any(line[i] for line in cells[1:])]
        widths = {i: max(len(line[i]) for line in cells) for i in used}
        lines = []
        for line in cells:
            texts = [line[i].rjust(widths[i]) if 0 < i < 5 else line[i].ljust(widths[i]) for i in used]
            lines.append("  " + "  ".join(texts).rstrip())
        return "\n".join([f"{self.title} [{self.unit}]", *(line for line in lines if line.strip())])


def figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def timed(what: str, times: Times, scale: float, target: float | None = None) -> Row:
    """Return a row of measured times; scale: table units per second."""
    if times.absent:
        return Row(what, absent=times.absent)
    return Row(what, times.best * scale, times.median * scale, target=target)


def summary(tables: Sequence[Table]) -> str:
    judged = [(table, row) for table in tables for row in table.rows if row.met is not None]
    missed = [f"{table.title}: {row.what}" for table, row in judged if not row.met]
    wrong = [f"{table.title}: {row.what}" for table in tables for row in table.rows if row.wrong]
    lines = [f"{len(judged) - len(missed)} of {len(judged)} targets met"]
    lines += [f"  missed: {text}" for text in missed]
    lines += [f"  wrong result: {text}" for text in wrong]
    return "\n".join(lines)


def sampled(make: Callable[[], Sampler], row: Row) -> Sampler | None:
    """Return the sampler of `make`; None if it fails, with the reason in the row."""
    try:
        return make()
    except (Absent, pumice.Error) as reason:
        row.absent = str(reason)
        return None
