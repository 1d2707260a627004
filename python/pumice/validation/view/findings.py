"""Findings of reports as a table, the worst kinds first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...base.plain_text import plain
from .markup import Markup, element

# In this order; kinds that are not named here come between the first and the last ones.
_FIRST = (
    "wrong value",
    "wrong shape or dtype",
    "wrong index",
    "wrong sign of zero",
    "NaN made",
    "infinity made",
    "overflow",
)
_LAST = ("unproved", "undecided decisions")
_MOST = 100  # findings that are shown at once; the others are below them, folded


def findings_section(reports: Sequence[Mapping[str, Any]]) -> Markup:
    """Findings of all reports."""
    found = [(_rank(one["kind"]), i, one) for i, report in enumerate(reports) for one in report["findings"]]
    found.sort(key=lambda entry: entry[:2])
    several = len(reports) > 1
    rows = [_row(reports[i], i, one, several) for _, i, one in found]
    heading = element("h2", "Findings")
    if not rows:
        return element("section", heading, element("p", "Nothing was found."), class_="findings")
    more = (
        element("details", element("summary", f"{len(rows) - _MOST} more"), _table(rows[_MOST:], several))
        if rows[_MOST:]
        else None
    )
    return element("section", heading, _table(rows[:_MOST], several), more, class_="findings")


def _rank(kind: str) -> int:
    if kind in _FIRST:
        return _FIRST.index(kind)
    return len(_FIRST) + 1 + _LAST.index(kind) if kind in _LAST else len(_FIRST)


def _table(rows: Sequence[Markup], several: bool) -> Markup:
    heads = ["kind", "node", "what was found", "case", *(["report"] if several else [])]
    head = element("tr", *(element("th", name, scope="col") for name in heads))
    return element("div", element("table", element("thead", head), element("tbody", *rows)), class_="scroll")


def _row(report: Mapping[str, Any], index: int, finding: Mapping[str, Any], several: bool) -> Markup:
    name = plain(finding["node"])
    places = {row["node"]: i for i, row in reversed([*enumerate(report["rows"])])}
    place = places.get(finding["node"])
    link = name if place is None else element("a", name, href=f"#r{index}t{place}")
    where = f"{report['model']}, {report['device']['name']}, {report['precision']}"
    return element(
        "tr",
        element("th", finding["kind"], scope="row", class_=f"kind k{min(_rank(finding['kind']), 9)}"),
        element("td", link, class_="name"),
        element("td", finding["text"], class_="text"),
        element("td", finding["case"]),
        element("td", element("a", where, href=f"#r{index}")) if several else None,
    )
