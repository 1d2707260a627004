"""Renders reports as one self-contained HTML file that is readable without scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...base.printable_text import shorten_and_escape
from .view.charts import BLUE, GREY, ORANGE, RED, draw_error_chart, draw_range_chart, make_legend
from .view.findings import make_findings_section
from .view.graph_drawing import draw_graph
from .view.html_document import make_document, read_view_file
from .view.html_markup import Markup, concat_markup, element, make_data_island
from .view.tables import (
    make_metadata_table,
    make_policy_section,
    make_report_matrix,
    make_row_details,
    make_rows_table,
    make_verdict_badge,
)

_VERDICT_ORDER = {"right": 0, "unproved": 1, "ill-conditioned": 2, "wrong": 3}

Record = Mapping[str, Any]


def make_page(reports: Sequence[Record], title: str) -> str:
    """Return an HTML document for records from `ValidationReport.as_dict()`.

    The page shows the findings, for several reports a matrix of devices and precisions, and then each report: charts of
    errors, bounds and value ranges, the graph (select a node to see its rows and histograms), and a table of all rows.
    Names are escaped.
    """
    state = max((report["verdict"] for report in reports), key=_VERDICT_ORDER.__getitem__, default="right")
    summary = (
        [make_verdict_badge(state), f" {len(reports)} report{'s' if len(reports) > 1 else ''}"]
        if reports
        else ["no report"]
    )
    opened = _find_initial_report(reports)
    body = [
        element("header", element("h1", shorten_and_escape(title)), element("p", *summary)),
        element(
            "main",
            make_findings_section(reports),
            make_report_matrix(reports) if len(reports) > 1 else None,
            *(_make_report_section(i, report, i == opened or len(reports) == 1) for i, report in enumerate(reports)),
        ),
        element("script", Markup(read_view_file("script.js"))),
    ]
    return make_document(title, body)


def make_notebook_view(report: Record) -> Markup:
    """Return a report's charts and graph for a notebook, without scripts or a style sheet."""
    rows: Sequence[Any] = report["rows"]
    if not rows:
        return Markup()
    charts = [
        ("Error against bound", draw_error_chart(rows)),
        ("Ranges against the limits of fp16", draw_range_chart(rows)),
    ]
    if (report.get("graph") or {}).get("nodes"):
        charts.append(("Graph", draw_graph(report["graph"], _collect_verdicts(rows))))
    boxes = [element("div", content, style="overflow:auto;max-height:420px;max-width:960px") for _, content in charts]
    titles = [element("summary", title) for title, _ in charts]
    return concat_markup(
        element("details", *pair, open=i == 0) for i, pair in enumerate(zip(titles, boxes, strict=True))
    )


def _find_initial_report(reports: Sequence[Record]) -> int:
    """Return the index of the report to open initially: the first one that is not right."""
    return next((i for i, report in enumerate(reports) if report["verdict"] != "right"), 0)


def _make_report_section(index: int, report: Record, opened: bool) -> Markup:
    prefix = f"r{index}"
    rows: Sequence[Any] = report["rows"]
    device = report["device"]["name"]
    heading = element(
        "h2",
        make_verdict_badge(report["verdict"]),
        f" {shorten_and_escape(report['model'])} ",
        element("small", f"{device}, {report['precision']}"),
    )
    sections = [
        element("p", report["summary"], class_="summary"),
        make_metadata_table(report),
        make_policy_section(report),
        _make_chart_section("Error against bound", draw_error_chart(rows), _ERROR_LEGEND) if rows else None,
        _make_graph_section(report, prefix),
        _make_chart_section("Ranges against the limits of fp16", draw_range_chart(rows), _RANGE_LEGEND)
        if rows
        else None,
        make_rows_table(rows, prefix),
        make_data_island(f"{prefix}data", make_row_details(report)),
    ]
    inside = concat_markup([element("summary", heading), *sections])
    return element("details", inside, id=prefix, class_="report", open=opened)


_ERROR_LEGEND = (
    ("\u25cf", BLUE, "error within its bound"),
    ("\u2717", RED, "error beyond its bound"),
    ("\u2014", ORANGE, "bound"),
    ("\u2013", GREY, "error from the model's inputs on"),
    ("\u25cf", GREY, "not compared"),
)
_RANGE_LEGEND = (
    ("\u2503", BLUE, "smallest to largest magnitude, in the reference where it has the tensor"),
    ("\u25b2", RED, "beyond fp16's largest number"),
)


def _make_chart_section(title: str, chart: Markup, signs: Sequence[tuple[str, str, str]]) -> Markup:
    box = element("div", chart, class_="scroll", tabindex="0", role="region", aria_label=title)
    return element("section", element("h3", title), make_legend(signs), box)


def _make_graph_section(report: Record, prefix: str) -> Markup | None:
    graph = report.get("graph") or {}
    if not graph.get("nodes"):
        return None
    hint = "Choose a node to see its rows and histograms. The arrow keys walk along the edges."
    return element(
        "section",
        element("h3", "Graph"),
        element("p", hint, class_="hint"),
        element(
            "div",
            element("div", draw_graph(graph, _collect_verdicts(report["rows"]), prefix), class_="scroll graph"),
            element("div", element("p", "No node is chosen."), class_="panel", role="status", aria_live="polite"),
            class_="walk",
        ),
    )


def _collect_verdicts(rows: Sequence[Record]) -> dict[str, str]:
    """Return the worst verdict of each node, including its kernels, and of each output under the key "output NAME"."""
    verdicts: dict[str, str] = {}
    for row in rows:
        names = [row["node"], *row["members"]]
        if row["program"] in ("outputs", "stored"):
            names = [f"output {row['node']}"]
        for name in names:
            verdicts[name] = max(verdicts.get(name, "right"), row["verdict"], key=_VERDICT_ORDER.__getitem__)
    return verdicts
