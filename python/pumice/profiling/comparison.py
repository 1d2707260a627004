"""Compare two profiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..base.printable_text import plain
from .records import Row

_HEADS = ("", "us before", "us after", "after / before")


class Change(NamedTuple):
    """One row of two profiles. before, after: average seconds per span; None if the profile has no such row."""

    name: str
    before: float | None
    after: float | None

    @property
    def ratio(self) -> float | None:
        """after / before; above 1 is slower. None if either is missing, or before is 0."""
        return self.after / self.before if self.before and self.after is not None else None


class Comparison:
    """The rows of two profiles matched by name; changes: largest difference first.

    Values are averages per span, so profiles with different numbers of runs are comparable.
    """

    def __init__(self, before: Sequence[Row], after: Sequence[Row], by: str) -> None:
        self.by = by
        old, new = _averages(before), _averages(after)
        changes = [Change(name, old.get(name), new.get(name)) for name in dict.fromkeys([*old, *new])]
        self.changes = sorted(changes, key=lambda one: -abs((one.after or 0) - (one.before or 0)))

    @property
    def ratio(self) -> float | None:
        """Total after / total before over the rows that both profiles have; None if there are none."""
        both = [one for one in self.changes if one.before is not None and one.after is not None]
        before = sum(one.before or 0 for one in both)
        return sum(one.after or 0 for one in both) / before if before else None

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON-compatible values."""
        rows = [{**one._asdict(), "ratio": one.ratio} for one in self.changes]
        return {"by": self.by, "ratio": self.ratio, "changes": rows}

    def cells(self) -> list[tuple[str, str, str, str]]:
        """Return the table's rows as text."""
        return [
            (plain(one.name), _microseconds(one.before), _microseconds(one.after), _ratio(one.ratio))
            for one in self.changes
        ]

    def __repr__(self) -> str:
        cells = [_HEADS, *self.cells()]
        width = max(len(row[0]) for row in cells)
        lines = [f"{name:<{width}}  {before:>12}  {after:>12}  {ratio:>14}" for name, before, after, ratio in cells]
        return "\n".join([*lines, f"all that both have: {_ratio(self.ratio)}"])

    def _repr_html_(self) -> str:
        from ..base.html import table

        return table(_HEADS, self.cells())


def _averages(rows: Sequence[Row]) -> dict[str, float]:
    seconds: dict[str, list[float]] = {}
    for row in rows:
        total = seconds.setdefault(row.name, [0.0, 0])
        total[0] += row.seconds
        total[1] = max(total[1], row.spans)
    return {name: whole / count for name, (whole, count) in seconds.items()}


def _microseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:,.2f}"


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3f}"
