"""Makes the tables of the page: facts about the validation, matrix of devices and precisions, rows, and policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....base.printable_text import shorten_and_escape
from .charts import describe_fp16_overflow
from .graph_drawing import make_boxes_and_edges
from .html_markup import Markup, element, format_number

SIGNS = {"right": "\u2713", "wrong": "\u2717", "unproved": "?", "ill-conditioned": "\u2248"}
_COLOURS = {"right": "#2e8b57", "wrong": "#d9483b", "unproved": "#b0760a", "ill-conditioned": "#d9483b"}

Record = Mapping[str, Any]


def make_verdict_badge(verdict: str) -> Markup:
    """Return a badge that shows a verdict as a sign, a word and a colour."""
    style = f"color:{_COLOURS[verdict]};font-weight:bold"
    return element("span", f"{SIGNS[verdict]} {verdict}", class_=f"badge {verdict}", style=style)


def make_scroll_box(table: Markup, label: str) -> Markup:
    """Wrap a table in a box that scrolls horizontally and is accessible by keyboard."""
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label=label)


def _make_table(label: str, heads: Sequence[str], rows: Sequence[Markup], **attributes: object) -> Markup:
    head = element("tr", *(element("th", name, scope="col") for name in heads))
    table = element("table", element("thead", head), element("tbody", *rows), **attributes)
    return make_scroll_box(table, label)


def make_metadata_table(report: Record) -> Markup:
    """Return the table of a report's device, driver, options and inputs."""
    device, options = report["device"], report.get("options") or {}
    driver = " ".join(str(device[key]) for key in ("driver", "driver_info") if device.get(key))
    pairs: dict[str, str] = {"device": str(device["name"]) + (f" ({device['kind']})" if device.get("kind") else "")}
    if driver:
        pairs["driver"] = f"{driver}; Vulkan {device.get('api_version', '')}"
    pairs["precision"] = str(report["precision"])
    pairs["cases"] = str(report["cases"])
    counts = report["counts"]
    pairs["tensors"] = ", ".join(f"{counts[verdict]} {verdict}" for verdict in SIGNS if verdict in counts)
    if options:
        pairs["options"] = _format_options(options)
    pairs.update(
        {
            f"input '{shorten_and_escape(name, 60)}' generated": how
            for name, how in (report.get("generated") or {}).items()
        }
    )
    if report.get("made_up"):
        pairs["sizes made up"] = ", ".join(
            f"{shorten_and_escape(name, 60)} = {size}" for name, size in report["made_up"].items()
        )
    if report.get("data"):
        pairs["cases from"] = ", ".join(shorten_and_escape(name, 60) for name in report["data"])
    pairs["pumice"] = str(report["pumice"])
    lines = [element("tr", element("th", name, scope="row"), element("td", text)) for name, text in pairs.items()]
    return make_scroll_box(element("table", element("tbody", *lines), class_="facts"), "What was validated")


def _format_options(options: Record) -> str:
    parts_shown = []
    for name, value in options.items():
        if value is None:
            continue
        if isinstance(value, Mapping):
            value = ", ".join(f"{shorten_and_escape(key, 60)} = {item}" for key, item in value.items()) or "none"
        elif isinstance(value, (list, tuple)):
            value = ", ".join(shorten_and_escape(item, 60) for item in value) or "none"
        parts_shown.append(f"{name.replace('_', ' ')}: {value}")
    return "; ".join(parts_shown)


def make_report_matrix(reports: Sequence[Record]) -> Markup:
    """Return the matrix of models against devices and precisions; cells link to their reports."""
    columns = list(dict.fromkeys(_get_matrix_column(report) for report in reports))
    cells: dict[tuple[str, tuple[str, str]], list[int]] = {}
    for i, report in enumerate(reports):
        cells.setdefault((report["model"], _get_matrix_column(report)), []).append(i)
    rows = []
    for model in dict.fromkeys(report["model"] for report in reports):
        inside = [_make_matrix_cell(reports, cells.get((model, column), [])) for column in columns]
        rows.append(element("tr", element("th", shorten_and_escape(model), scope="row"), *inside))
    names = ["model", *(f"{device}, {precision}" for device, precision in columns)]
    return element(
        "section",
        element("h2", "Devices and precisions"),
        _make_table("Devices and precisions", names, rows, class_="matrix"),
    )


def _get_matrix_column(report: Record) -> tuple[str, str]:
    return report["device"]["name"], report["precision"]


def _make_matrix_cell(reports: Sequence[Record], indices: Sequence[int]) -> Markup:
    links = [
        element(
            "a",
            make_verdict_badge(reports[i]["verdict"]),
            f" {_format_worst_ratio(reports[i])}",
            href=f"#r{i}",
            class_="cell",
        )
        for i in indices
    ]
    return element("td", *links) if links else element("td", "\u2014", aria_label="not run")


def _format_worst_ratio(report: Record) -> str:
    compared = [row for row in report["rows"] if row["compared"] or row["fault"]]
    if any(row["ratio"] is None or row["fault"] for row in compared):
        return "beyond any bound"
    return (
        f"worst {format_number(max(row['ratio'] for row in compared))} of the bound" if compared else "nothing compared"
    )


def make_policy_section(report: Record) -> Markup | None:
    """Return the table of each node's precision; None without a policy."""
    policy: Mapping[str, Any] = report.get("policy") or {}
    if not policy:
        return None
    names = sorted(policy, key=lambda name: name != "default")
    rows = [
        element(
            "tr", element("th", shorten_and_escape(name), scope="row"), element("td", shorten_and_escape(policy[name]))
        )
        for name in names
    ]
    return element(
        "section", element("h3", "Precision by node"), _make_table("Precision by node", ["node", "precision"], rows)
    )


# ---- rows

_HEADS = ("node", "op", "tensor", "error", "bound", "error / bound", "accumulated", "result")


def make_rows_table(rows: Sequence[Record], prefix: str) -> Markup:
    """Return the table of all rows; the script adds a filter field."""
    lines = [_make_table_row(i, row, prefix) for i, row in enumerate(rows)]
    return element(
        "section", element("h3", "Tensors"), _make_table("Tensors", _HEADS, lines, class_="rows", data_prefix=prefix)
    )


def _make_table_row(index: int, row: Record, prefix: str) -> Markup:
    numbers = (row["error"], row["allowed"], row["ratio"])
    parts_shown = [format_number(v) if v is not None or not row["compared"] else "\u221e" for v in numbers]
    shape = "\u00d7".join(map(str, row["shape"]))
    return element(
        "tr",
        element(
            "th",
            element("a", _format_row_name(row), href=f"#{prefix}t{index}", data_row=index),
            scope="row",
            class_="name",
        ),
        element("td", _format_row_op(row)),
        element("td", f"{row['dtype']} {shape}".strip(), class_="tensor"),
        *(element("td", text, class_="number") for text in parts_shown),
        element("td", format_number(row["accumulated"]), class_="number"),
        element("td", make_verdict_badge(row["verdict"]), *_list_row_notes(row)),
        id=f"{prefix}t{index}",
        class_=row["verdict"],
    )


def _format_row_name(row: Record) -> str:
    if row["program"] == "outputs" or row["node"] == row["output"]:
        return shorten_and_escape(row["node"])
    return f"{shorten_and_escape(row['node'], 80)}: {shorten_and_escape(row['output'], 60)}"


def _format_row_op(row: Record) -> str:
    return (
        f"kernel {shorten_and_escape(row['kernel'], 60)}"
        if row["program"] == "kernels"
        else shorten_and_escape(row["op"], 60)
    )


def _list_row_notes(row: Record) -> list[str]:
    text = row["fault"] or row["note"] or row["kind"]
    allowed = " (allowed)" if row["waived"] and row["verdict"] in ("unproved", "ill-conditioned") else ""
    undecided = f" {row['undecided']} undecided" if row["undecided"] else ""
    return [f"{allowed}{': ' if text else ''}{shorten_and_escape(text, 400)}{undecided}"]


def make_row_details(report: Record) -> dict[str, Any]:
    """Return the data that the script shows for a selected node: escaped strings and histograms."""
    boxes, edges = make_boxes_and_edges(report.get("graph") or {})
    rows_of: dict[tuple[str, str], list[int]] = {}
    for i, row in enumerate(report["rows"]):
        kind = "output" if row["program"] in ("outputs", "stored") else "node"
        for name in dict.fromkeys([row["node"], *row["members"]]):
            rows_of.setdefault((kind, name), []).append(i)
    nodes = [rows_of.get((box.kind, box.name), []) for box in boxes]
    return {"nodes": nodes, "edges": edges, "rows": [_make_row_details_record(row) for row in report["rows"]]}


def _format_range(value_range: Mapping[str, Any]) -> str:
    if value_range["least"] is None:
        return "no finite number"
    smallest = (
        f"; smallest but 0: {format_number(value_range['smallest'])}" if value_range["smallest"] is not None else ""
    )
    return f"{format_number(value_range['least'], 6)} to {format_number(value_range['most'], 6)}{smallest}"


def _make_row_details_record(row: Record) -> dict[str, Any]:
    statistics_record = row["statistics"]
    facts = {"tensor": f"{shorten_and_escape(row['output'])}: {row['dtype']} {row['shape']}", "case": str(row["case"])}
    if row["compared"]:
        facts["at"] = str(row["index"])
        facts["given, expected"] = f"{shorten_and_escape(row['actual'], 40)}, {shorten_and_escape(row['expected'], 40)}"
    if row["members"]:
        facts["kernel"] = (
            f"{shorten_and_escape(row['kernel'])}: {', '.join(shorten_and_escape(item, 60) for item in row['members'])}"
        )
    if statistics_record:
        facts["range"] = _format_range(statistics_record)
        if statistics_record["reference"]:
            facts["in the reference"] = _format_range(statistics_record["reference"])
        facts["zeros, NaN, infinities"] = (
            f"{statistics_record['zeros']}, {statistics_record['nans']}, {statistics_record['infinities']}"
        )
        if beyond := describe_fp16_overflow(statistics_record):
            facts["in fp16"] = beyond
    return {
        "title": f"{SIGNS[row['verdict']]} {row['verdict']}: {_format_row_name(row)}",
        "said": "".join(_list_row_notes(row)).strip(": "),
        "facts": facts,
        "magnitudes": statistics_record["magnitudes"] if statistics_record else [],
        "ratios": row["ratios"],
    }
