"""Table of the findings of reports, worst kinds first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...base.printable_text import plain
from .markup import TEXT, Markup, element
from .tables import scrolled

# Order of the kinds; all others come between _FIRST and _LAST.
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
_MOST = 100  # maximum number of findings shown initially; the others are folded


def findings_section(reports: Sequence[Mapping[str, Any]]) -> Markup:
    """Return the section with the findings of all reports."""
    found = []
    for i, report in enumerate(reports):
        different = {(one["kind"], one["node"], one["text"]): one for one in reversed(report["findings"])}
        found += [(_rank(one["kind"]), i, one) for one in reversed(different.values())]
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
    # On narrow screens, CSS stacks the cells of a row; the roles keep the table semantics for screen readers.
    head = element("tr", *(element("th", name, scope="col", role="columnheader") for name in heads), role="row")
    parts = element("thead", head, role="rowgroup"), element("tbody", *rows, role="rowgroup")
    return scrolled(element("table", *parts, role="table"), "Findings")


def _row(report: Mapping[str, Any], index: int, finding: Mapping[str, Any], several: bool) -> Markup:
    name = plain(finding["node"])
    places = {row["node"]: i for i, row in reversed([*enumerate(report["rows"])])}
    place = places.get(finding["node"])
    link = name if place is None else element("a", name, href=f"#r{index}t{place}")
    where = f"{report['model']}, {report['device']['name']}, {report['precision']}"
    return element(
        "tr",
        element("th", finding["kind"], scope="row", role="rowheader", class_=f"kind k{min(_rank(finding['kind']), 9)}"),
        element("td", link, class_="name", role="cell"),
        element("td", plain(finding["text"], TEXT), class_="text", role="cell"),
        element("td", finding["case"], class_="case", role="cell"),
        element("td", element("a", where, href=f"#r{index}"), class_="report", role="cell") if several else None,
        role="row",
    )
