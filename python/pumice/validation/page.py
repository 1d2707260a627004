"""Renders reports as one self-contained HTML file that is readable without scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.printable_text import plain
from .view.charts import BLUE, GREY, ORANGE, RED, error_chart, legend, range_chart
from .view.document import document, file_text
from .view.findings import findings_section
from .view.graph_drawing import picture
from .view.markup import Markup, data_island, element, joined
from .view.tables import badge, facts_table, matrix, policy_section, row_details, rows_table

_ORDER = {"right": 0, "unproved": 1, "ill-conditioned": 2, "wrong": 3}

Record = Mapping[str, Any]


def page(reports: Sequence[Record], title: str) -> str:
    """Return an HTML document for records from `ValidationReport.as_dict()`.

    It shows the findings, a matrix of devices and precisions for several reports, then each report: error against bound
    and value ranges along the model, the graph (a selected node shows its rows and histograms), and a table of all
    rows. Names are escaped.
    """
    state = max((report["verdict"] for report in reports), key=_ORDER.__getitem__, default="right")
    said = [badge(state), f" {len(reports)} report{'s' if len(reports) > 1 else ''}"] if reports else ["no report"]
    opened = _opened(reports)
    body = [
        element("header", element("h1", plain(title)), element("p", *said)),
        element(
            "main",
            findings_section(reports),
            matrix(reports) if len(reports) > 1 else None,
            *(_report(i, report, i == opened or len(reports) == 1) for i, report in enumerate(reports)),
        ),
        element("script", Markup(file_text("script.js"))),
    ]
    return document(title, body)


def compact(report: Record) -> Markup:
    """Return a report's charts and graph for a notebook, without script and style sheet."""
    rows: Sequence[Any] = report["rows"]
    if not rows:
        return Markup()
    parts = [("Error against bound", error_chart(rows)), ("Ranges against the limits of fp16", range_chart(rows))]
    if (report.get("graph") or {}).get("nodes"):
        parts.append(("Graph", picture(report["graph"], _verdicts(rows))))
    boxes = [element("div", shown, style="overflow:auto;max-height:420px;max-width:960px") for _, shown in parts]
    titles = [element("summary", title) for title, _ in parts]
    return joined(element("details", *pair, open=i == 0) for i, pair in enumerate(zip(titles, boxes, strict=True)))


def _opened(reports: Sequence[Record]) -> int:
    """Return the report to open initially: the first that is not right."""
    return next((i for i, report in enumerate(reports) if report["verdict"] != "right"), 0)


def _report(index: int, report: Record, opened: bool) -> Markup:
    prefix = f"r{index}"
    rows: Sequence[Any] = report["rows"]
    device = report["device"]["name"]
    heading = element(
        "h2",
        badge(report["verdict"]),
        f" {plain(report['model'])} ",
        element("small", f"{device}, {report['precision']}"),
    )
    parts = [
        element("p", report["summary"], class_="summary"),
        facts_table(report),
        policy_section(report),
        _figure("Error against bound", error_chart(rows), _ERRORS) if rows else None,
        _graph(report, prefix),
        _figure("Ranges against the limits of fp16", range_chart(rows), _RANGES) if rows else None,
        rows_table(rows, prefix),
        data_island(f"{prefix}data", row_details(report)),
    ]
    inside = joined([element("summary", heading), *parts])
    return element("details", inside, id=prefix, class_="report", open=opened)


_ERRORS = (
    ("\u25cf", BLUE, "error within its bound"),
    ("\u2717", RED, "error beyond its bound"),
    ("\u2014", ORANGE, "bound"),
    ("\u2013", GREY, "error from the model's inputs on"),
    ("\u25cf", GREY, "not compared"),
)
_RANGES = (
    ("\u2503", BLUE, "smallest to largest magnitude, in the reference where it has the tensor"),
    ("\u25b2", RED, "beyond fp16's largest number"),
)


def _figure(title: str, chart: Markup, signs: Sequence[tuple[str, str, str]]) -> Markup:
    box = element("div", chart, class_="scroll", tabindex="0", role="region", aria_label=title)
    return element("section", element("h3", title), legend(signs), box)


def _graph(report: Record, prefix: str) -> Markup | None:
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
            element("div", picture(graph, _verdicts(report["rows"]), prefix), class_="scroll graph"),
            element("div", element("p", "No node is chosen."), class_="panel", role="status", aria_live="polite"),
            class_="walk",
        ),
    )


def _verdicts(rows: Sequence[Record]) -> dict[str, str]:
    """Return the worst verdict by node, including its kernels, and by output under the key "output NAME"."""
    verdicts: dict[str, str] = {}
    for row in rows:
        names = [row["node"], *row["members"]]
        if row["program"] in ("outputs", "stored"):
            names = [f"output {row['node']}"]
        for name in names:
            verdicts[name] = max(verdicts.get(name, "right"), row["verdict"], key=_ORDER.__getitem__)
    return verdicts
