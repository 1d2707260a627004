"""Makes the table of the reports' findings, worst kinds first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....base.printable_text import shorten_and_escape
from .html_markup import MAX_TEXT, Markup, element
from .tables import make_scroll_box

# Order of the kinds; kinds in neither list come between _FIRST_KINDS and _LAST_KINDS.
_FIRST_KINDS = (
    "wrong value",
    "wrong shape or dtype",
    "wrong index",
    "wrong sign of zero",
    "NaN made",
    "infinity made",
    "overflow",
)
_LAST_KINDS = ("unproved", "undecided decisions")
_MAX_SHOWN = 100  # number of findings shown initially; the rest are collapsed


def make_findings_section(reports: Sequence[Mapping[str, Any]]) -> Markup:
    """Return the section with the findings of all reports."""
    entries = []
    for i, report in enumerate(reports):
        unique = {
            (finding["kind"], finding["node"], finding["text"]): finding for finding in reversed(report["findings"])
        }
        entries += [(_rank_kind(finding["kind"]), i, finding) for finding in reversed(unique.values())]
    entries.sort(key=lambda entry: entry[:2])
    has_several_reports = len(reports) > 1
    rows = [_make_row(reports[i], i, finding, has_several_reports) for _, i, finding in entries]
    heading = element("h2", "Findings")
    if not rows:
        return element("section", heading, element("p", "Nothing was found."), class_="findings")
    more = (
        element(
            "details",
            element("summary", f"{len(rows) - _MAX_SHOWN} more"),
            _make_table(rows[_MAX_SHOWN:], has_several_reports),
        )
        if rows[_MAX_SHOWN:]
        else None
    )
    return element("section", heading, _make_table(rows[:_MAX_SHOWN], has_several_reports), more, class_="findings")


def _rank_kind(kind: str) -> int:
    if kind in _FIRST_KINDS:
        return _FIRST_KINDS.index(kind)
    return len(_FIRST_KINDS) + 1 + _LAST_KINDS.index(kind) if kind in _LAST_KINDS else len(_FIRST_KINDS)


def _make_table(rows: Sequence[Markup], has_several_reports: bool) -> Markup:
    heads = ["kind", "node", "what was found", "case", *(["report"] if has_several_reports else [])]
    # On narrow screens, CSS stacks the cells of a row; the roles keep the table semantics for screen readers.
    head = element("tr", *(element("th", name, scope="col", role="columnheader") for name in heads), role="row")
    sections = element("thead", head, role="rowgroup"), element("tbody", *rows, role="rowgroup")
    return make_scroll_box(element("table", *sections, role="table"), "Findings")


def _make_row(report: Mapping[str, Any], index: int, finding: Mapping[str, Any], has_several_reports: bool) -> Markup:
    name = shorten_and_escape(finding["node"])
    row_indices = {row["node"]: i for i, row in reversed([*enumerate(report["rows"])])}
    row_index = row_indices.get(finding["node"])
    link = name if row_index is None else element("a", name, href=f"#r{index}t{row_index}")
    where = f"{report['model']}, {report['device']['name']}, {report['precision']}"
    return element(
        "tr",
        element(
            "th", finding["kind"], scope="row", role="rowheader", class_=f"kind k{min(_rank_kind(finding['kind']), 9)}"
        ),
        element("td", link, class_="name", role="cell"),
        element("td", shorten_and_escape(finding["text"], MAX_TEXT), class_="text", role="cell"),
        element("td", finding["case"], class_="case", role="cell"),
        element("td", element("a", where, href=f"#r{index}"), class_="report", role="cell")
        if has_several_reports
        else None,
        role="row",
    )
