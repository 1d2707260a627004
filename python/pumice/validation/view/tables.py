"""Tables on the page: facts about the validation, the matrix of devices and precisions, rows, and policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...base.printable_text import plain
from .charts import beyond_fp16
from .graph_drawing import spots_and_edges
from .markup import Markup, element, number

SIGNS = {"right": "\u2713", "wrong": "\u2717", "unproved": "?", "ill-conditioned": "\u2248"}
_COLOURS = {"right": "#2e8b57", "wrong": "#d9483b", "unproved": "#b0760a", "ill-conditioned": "#d9483b"}

Record = Mapping[str, Any]


def badge(verdict: str) -> Markup:
    """Return a verdict as sign, word and colour."""
    style = f"color:{_COLOURS[verdict]};font-weight:bold"
    return element("span", f"{SIGNS[verdict]} {verdict}", class_=f"badge {verdict}", style=style)


def scrolled(table: Markup, label: str) -> Markup:
    """Wrap a table in a box that scrolls sideways, also by keyboard."""
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label=label)


def _table(label: str, heads: Sequence[str], rows: Sequence[Markup], **attributes: object) -> Markup:
    head = element("tr", *(element("th", name, scope="col") for name in heads))
    table = element("table", element("thead", head), element("tbody", *rows), **attributes)
    return scrolled(table, label)


def facts_table(report: Record) -> Markup:
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
        pairs["options"] = _options(options)
    pairs.update({f"input '{plain(name, 60)}' generated": how for name, how in (report.get("generated") or {}).items()})
    if report.get("made_up"):
        pairs["sizes made up"] = ", ".join(f"{plain(name, 60)} = {size}" for name, size in report["made_up"].items())
    if report.get("data"):
        pairs["cases from"] = ", ".join(plain(name, 60) for name in report["data"])
    pairs["pumice"] = str(report["pumice"])
    lines = [element("tr", element("th", name, scope="row"), element("td", text)) for name, text in pairs.items()]
    return scrolled(element("table", element("tbody", *lines), class_="facts"), "What was validated")


def _options(options: Record) -> str:
    shown = []
    for name, value in options.items():
        if value is None:
            continue
        if isinstance(value, Mapping):
            value = ", ".join(f"{plain(key, 60)} = {one}" for key, one in value.items()) or "none"
        elif isinstance(value, (list, tuple)):
            value = ", ".join(plain(one, 60) for one in value) or "none"
        shown.append(f"{name.replace('_', ' ')}: {value}")
    return "; ".join(shown)


def matrix(reports: Sequence[Record]) -> Markup:
    """Return the matrix of models against devices and precisions; cells link to their reports."""
    columns = list(dict.fromkeys(_column(report) for report in reports))
    cells: dict[tuple[str, tuple[str, str]], list[int]] = {}
    for i, report in enumerate(reports):
        cells.setdefault((report["model"], _column(report)), []).append(i)
    rows = []
    for model in dict.fromkeys(report["model"] for report in reports):
        inside = [_cell(reports, cells.get((model, column), [])) for column in columns]
        rows.append(element("tr", element("th", plain(model), scope="row"), *inside))
    names = ["model", *(f"{device}, {precision}" for device, precision in columns)]
    return element(
        "section",
        element("h2", "Devices and precisions"),
        _table("Devices and precisions", names, rows, class_="matrix"),
    )


def _column(report: Record) -> tuple[str, str]:
    return report["device"]["name"], report["precision"]


def _cell(reports: Sequence[Record], indices: Sequence[int]) -> Markup:
    links = [
        element("a", badge(reports[i]["verdict"]), f" {_worst(reports[i])}", href=f"#r{i}", class_="cell")
        for i in indices
    ]
    return element("td", *links) if links else element("td", "\u2014", aria_label="not run")


def _worst(report: Record) -> str:
    compared = [row for row in report["rows"] if row["compared"] or row["fault"]]
    if any(row["ratio"] is None or row["fault"] for row in compared):
        return "beyond any bound"
    return f"worst {number(max(row['ratio'] for row in compared))} of the bound" if compared else "nothing compared"


def policy_section(report: Record) -> Markup | None:
    """Return the table of the precision of each node; None without a policy."""
    policy: Mapping[str, Any] = report.get("policy") or {}
    if not policy:
        return None
    names = sorted(policy, key=lambda name: name != "default")
    rows = [
        element("tr", element("th", plain(name), scope="row"), element("td", plain(policy[name]))) for name in names
    ]
    return element(
        "section", element("h3", "Precision by node"), _table("Precision by node", ["node", "precision"], rows)
    )


# ---- rows

_HEADS = ("node", "op", "tensor", "error", "bound", "error / bound", "accumulated", "result")


def rows_table(rows: Sequence[Record], prefix: str) -> Markup:
    """Return the table of all rows; the script adds a filter field."""
    lines = [_row(i, row, prefix) for i, row in enumerate(rows)]
    return element(
        "section", element("h3", "Tensors"), _table("Tensors", _HEADS, lines, class_="rows", data_prefix=prefix)
    )


def _row(index: int, row: Record, prefix: str) -> Markup:
    numbers = (row["error"], row["allowed"], row["ratio"])
    shown = [number(v) if v is not None or not row["compared"] else "\u221e" for v in numbers]
    shape = "\u00d7".join(map(str, row["shape"]))
    return element(
        "tr",
        element("th", element("a", _name(row), href=f"#{prefix}t{index}", data_row=index), scope="row", class_="name"),
        element("td", _op(row)),
        element("td", f"{row['dtype']} {shape}".strip(), class_="tensor"),
        *(element("td", text, class_="number") for text in shown),
        element("td", number(row["accumulated"]), class_="number"),
        element("td", badge(row["verdict"]), *_said(row)),
        id=f"{prefix}t{index}",
        class_=row["verdict"],
    )


def _name(row: Record) -> str:
    if row["program"] == "outputs" or row["node"] == row["output"]:
        return plain(row["node"])
    return f"{plain(row['node'], 80)}: {plain(row['output'], 60)}"


def _op(row: Record) -> str:
    return f"kernel {plain(row['kernel'], 60)}" if row["program"] == "kernels" else plain(row["op"], 60)


def _said(row: Record) -> list[str]:
    text = row["fault"] or row["note"] or row["kind"]
    allowed = " (allowed)" if row["waived"] and row["verdict"] in ("unproved", "ill-conditioned") else ""
    undecided = f" {row['undecided']} undecided" if row["undecided"] else ""
    return [f"{allowed}{': ' if text else ''}{plain(text, 400)}{undecided}"]


def row_details(report: Record) -> dict[str, Any]:
    """Return the data that the script shows for a selected node: escaped strings and histograms."""
    spots, edges = spots_and_edges(report.get("graph") or {})
    rows_of: dict[tuple[str, str], list[int]] = {}
    for i, row in enumerate(report["rows"]):
        kind = "output" if row["program"] in ("outputs", "stored") else "node"
        for name in dict.fromkeys([row["node"], *row["members"]]):
            rows_of.setdefault((kind, name), []).append(i)
    nodes = [rows_of.get((spot.kind, spot.name), []) for spot in spots]
    return {"nodes": nodes, "edges": edges, "rows": [_details(row) for row in report["rows"]]}


def _range(of: Mapping[str, Any]) -> str:
    if of["least"] is None:
        return "no finite number"
    smallest = f"; smallest but 0: {number(of['smallest'])}" if of["smallest"] is not None else ""
    return f"{number(of['least'], 6)} to {number(of['most'], 6)}{smallest}"


def _details(row: Record) -> dict[str, Any]:
    like = row["statistics"]
    facts = {"tensor": f"{plain(row['output'])}: {row['dtype']} {row['shape']}", "case": str(row["case"])}
    if row["compared"]:
        facts["at"] = str(row["index"])
        facts["given, expected"] = f"{plain(row['actual'], 40)}, {plain(row['expected'], 40)}"
    if row["members"]:
        facts["kernel"] = f"{plain(row['kernel'])}: {', '.join(plain(one, 60) for one in row['members'])}"
    if like:
        facts["range"] = _range(like)
        if like["reference"]:
            facts["in the reference"] = _range(like["reference"])
        facts["zeros, NaN, infinities"] = f"{like['zeros']}, {like['nans']}, {like['infinities']}"
        if beyond := beyond_fp16(like):
            facts["in fp16"] = beyond
    return {
        "title": f"{SIGNS[row['verdict']]} {row['verdict']}: {_name(row)}",
        "said": "".join(_said(row)).strip(": "),
        "facts": facts,
        "magnitudes": like["magnitudes"] if like else [],
        "ratios": row["ratios"],
    }
