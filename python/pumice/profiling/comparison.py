"""Compare two profiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..base.printable_text import shorten_and_escape
from .profile_records import Row

_HEADERS = ("", "us before", "us after", "after / before")


class RowChange(NamedTuple):
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
        old, new = _get_average_seconds(before), _get_average_seconds(after)
        changes = [RowChange(name, old.get(name), new.get(name)) for name in dict.fromkeys([*old, *new])]
        self.changes = sorted(changes, key=lambda change: -abs((change.after or 0) - (change.before or 0)))

    @property
    def ratio(self) -> float | None:
        """Total after / total before over the rows that both profiles have; None if there are none."""
        common_changes = [change for change in self.changes if change.before is not None and change.after is not None]
        before = sum(change.before or 0 for change in common_changes)
        return sum(change.after or 0 for change in common_changes) / before if before else None

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON-compatible values."""
        rows = [{**change._asdict(), "ratio": change.ratio} for change in self.changes]
        return {"by": self.by, "ratio": self.ratio, "changes": rows}

    def cells(self) -> list[tuple[str, str, str, str]]:
        """Return the table's rows as text."""
        return [
            (
                shorten_and_escape(change.name),
                _format_microseconds(change.before),
                _format_microseconds(change.after),
                _format_ratio(change.ratio),
            )
            for change in self.changes
        ]

    def __repr__(self) -> str:
        cells = [_HEADERS, *self.cells()]
        width = max(len(row[0]) for row in cells)
        lines = [f"{name:<{width}}  {before:>12}  {after:>12}  {ratio:>14}" for name, before, after, ratio in cells]
        return "\n".join([*lines, f"all that both have: {_format_ratio(self.ratio)}"])

    def _repr_html_(self) -> str:
        from ..base.html import render_table

        return render_table(_HEADERS, self.cells())


def _get_average_seconds(rows: Sequence[Row]) -> dict[str, float]:
    seconds: dict[str, list[float]] = {}
    for row in rows:
        total = seconds.setdefault(row.name, [0.0, 0])  # seconds, number of spans
        total[0] += row.seconds
        total[1] = max(total[1], row.spans)
    return {name: total_seconds / count for name, (total_seconds, count) in seconds.items()}


def _format_microseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:,.2f}"


def _format_ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3f}"
