"""The HTML page of reports: its contents, escaped names and the graph layout. test_page_in_browser.py renders it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

import pumice
from onnx_models import gemm
from pumice.validation.report.html_page import make_notebook_view, make_page
from pumice.validation.report.view.charts import describe_fp16_overflow, draw_error_chart, draw_range_chart
from pumice.validation.report.view.graph_drawing import HEIGHT, WIDTH, compute_layout, draw_graph
from report_records import HOSTILE, long_record, overflowing, report_of

_EMPTY = {"meta"}


class Read(HTMLParser):
    """The page as a browser parses it: elements in order, their text, and the data of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.data: list[Any] = []
        self.undecided_values: list[str] = []
        self.feed(text)
        self.close()
        assert self.undecided_values == []

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))
        self.undecided_values.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.undecided_values.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.undecided_values and self.undecided_values[-1] == "script":
            if self.elements[-1][1].get("type") == "application/json":
                self.data.append(json.loads(data))
        elif self.undecided_values and self.undecided_values[-1] != "style":
            self.texts.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


@pytest.fixture
def record(context: pumice.Context) -> Any:
    made: dict[str, Any] = report_of(context, overflowing()).as_dict()
    return made


def test_a_page_says_all_that_a_record_does(record: Any) -> None:
    read = Read(make_page([record], "A trial"))
    text = " ".join(read.texts)
    assert text.index("Findings") < text.index("Error against bound") < text.index("Tensors")
    for row in record["rows"]:
        assert row["node"] in text
    for finding in record["findings"]:
        assert finding["text"] in text
    for shown in (record["summary"], record["device"]["driver_info"], record["pumice"], "A trial", "mode: both"):
        assert shown in text
    assert "Devices and precisions" not in text  # there is only one report
    assert ("title", {}) in read.elements


def test_a_page_asks_for_nothing(record: Any) -> None:
    read = Read(make_page([record], "t"))
    for tag, attributes in read.elements:
        assert tag not in ("img", "link", "iframe", "object", "base", "form")
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    policy = next(a["content"] for tag, a in read.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_ids_are_unique_and_links_lead_somewhere(record: Any) -> None:
    read = Read(make_page([record, record], "t"))
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for tag, attributes in read.elements if tag == "a"]
    assert links
    assert {str(link)[1:] for link in links} <= set(ids)


def test_hostile_names_stay_text(record: Any) -> None:
    plain_page, hostile = (Read(make_page([self_named(record, name)], name)) for name in ("a", HOSTILE))
    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in plain_page.elements]
    names = [sorted(attributes) for _, attributes in hostile.elements]
    assert names == [sorted(attributes) for _, attributes in plain_page.elements]
    for text in hostile.texts:
        assert not re.search("[\x00\x1b\u202e]", text)
        assert "n" * 1000 not in text
    assert "\\x1b[31m</script>" in " ".join(hostile.texts)
    assert "\x1b" not in json.dumps(hostile.data, ensure_ascii=False)


def self_named(record: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a record with `name` in every field that may come from a file or a driver."""
    rows = [
        {**row, **dict.fromkeys(("node", "op", "output", "note", "fault", "kernel"), name)} for row in record["rows"]
    ]
    rows = [{**row, "program": "kernels", "members": [name, "other"], "actual": name} for row in rows]
    findings = [{**one, "node": name, "text": name, "kind": name} for one in record["findings"]]
    nodes = [
        {"name": name, "op": name, "inputs": [name], "outputs": [name]},
        {**record["graph"]["nodes"][0], "inputs": [name]},
    ]
    return {
        **record,
        **dict.fromkeys(("model", "summary", "precision", "pumice"), name),
        "device": dict.fromkeys(record["device"], name),
        "options": {"mode": name, "tolerances": {name: 1.0}, "allow_unchecked": [name]},
        "generated": {name: name},
        "made_up": {name: 3},
        "data": [name],
        "policy": {"default": name, name: name},
        "findings": findings,
        "rows": rows,
        "graph": {"inputs": [name], "outputs": [name], "nodes": nodes},
    }


def test_several_reports_are_a_matrix(context: pumice.Context, record: Any) -> None:
    right = report_of(context, gemm(), "fp32").as_dict() | {"model": "products"}
    other = right | {"precision": "bf16", "device": {"name": "another device"}}
    read = Read(make_page([record, right, other], "t"))
    text = " ".join(read.texts)
    for name in (f"{record['device']['name']}, fp16", f"{record['device']['name']}, fp32", "another device, bf16"):
        assert name in text
    assert "beyond any bound" in text
    opened = [
        attributes for tag, attributes in read.elements if tag == "details" and attributes.get("class") == "report"
    ]
    assert ["open" in attributes for attributes in opened] == [True, False, False]
    assert " 3 reports" in read.texts


def test_a_page_without_reports_says_so() -> None:
    text = " ".join(Read(make_page([], "t")).texts)
    assert "no report" in text
    assert "right" not in text


def test_a_policy_is_shown(record: Any) -> None:
    read = Read(make_page([{**record, "policy": {"mul*": "fp32", "default": "fp16"}}], "t"))
    assert "Precision by node" in read.texts
    assert read.texts.index("default") < read.texts.index("mul*")
    assert "Precision by node" not in Read(make_page([record], "t")).texts


def test_a_kernel_is_shown_at_each_of_its_members(record: Any) -> None:
    rows = [
        *(row for row in record["rows"] if row["program"] != "kernels"),
        {**record["rows"][0], "program": "kernels", "members": ["squared", "add.y"], "kernel": "map"},
    ]
    read = Read(make_page([{**record, "rows": rows}], "t"))
    (data,) = read.data
    # Spots are x, four nodes and y; the kernel's row has index 5.
    assert data["nodes"] == [[], [0, 5], [1], [2], [3, 5], [4]]
    labels = [str(a["aria-label"]) for _, a in read.elements if str(a.get("class", "")).startswith("node ")]
    assert [label.rsplit(", ")[-1] for label in labels[1:]] == ["wrong", "right", "unproved", "wrong", "wrong"]


def test_a_notebook_shows_the_charts_without_a_script(context: pumice.Context) -> None:
    report = report_of(context, overflowing())
    read = Read(report._repr_html_())
    assert read.count("svg") == 3
    assert read.count("script") == read.count("style") == 0
    assert report.summary in " ".join(read.texts)
    assert make_notebook_view({**report.as_dict(), "rows": []}) == ""


# ---- the graph


def test_nodes_are_below_what_they_read_and_apart(record: Any) -> None:
    graph = long_record(record, 300)["graph"]
    placed = compute_layout(graph)
    assert len(placed.boxes) == 303
    for source, target in placed.edges:
        assert placed.boxes[source].y < placed.boxes[target].y
    rows: dict[float, list[float]] = {}
    for spot in placed.boxes:
        rows.setdefault(spot.y, []).append(spot.x)
        assert WIDTH / 2 <= spot.x <= placed.width - WIDTH / 2
        assert HEIGHT / 2 <= spot.y <= placed.height - HEIGHT / 2
    for xs in rows.values():
        assert all(b - a >= WIDTH for a, b in zip(sorted(xs), sorted(xs)[1:], strict=False))


def test_a_layer_is_as_deep_as_the_longest_path_to_it() -> None:
    def node(name: str, *inputs: str) -> dict[str, Any]:
        return {"name": name, "op": "Add", "inputs": list(inputs), "outputs": [name]}

    nodes = [node("a", "x"), node("b", "a"), node("c", "a", "b"), node("d", "late", "c")]
    placed = compute_layout({"inputs": ["x", "late", "unread"], "outputs": ["d"], "nodes": nodes})
    levels = sorted({spot.y for spot in placed.boxes})
    at = {spot.name: levels.index(spot.y) for spot in placed.boxes if spot.kind != "output"}
    assert at == {"x": 0, "a": 1, "b": 2, "c": 3, "late": 3, "d": 4}  # an input is directly above its reader


def test_no_edge_goes_through_a_node() -> None:
    """Every node of a chain is read by the next node and by the node three positions later."""
    names = [f"n{i}" for i in range(30)]
    nodes = [
        {
            "name": name,
            "op": "Add",
            "inputs": [names[i - 1], *names[max(i - 3, 0) : max(i - 2, 0)]] if i else ["x"],
            "outputs": [name],
        }
        for i, name in enumerate(names)
    ]
    graph = {"inputs": ["x"], "outputs": ["n29"], "nodes": nodes}
    placed = compute_layout(graph)
    ys = sorted({spot.y for spot in placed.boxes})
    shown = draw_graph(graph, {})
    straight = re.findall(r"[ ,](-?\d+) (\d+)V(\d+)", shown)
    assert len(straight) == 27
    for x, top, bottom in straight:
        for spot in placed.boxes:
            crossed = float(top) < spot.y < float(bottom)
            assert not crossed or abs(float(x) - spot.x) >= WIDTH / 2
    assert len(ys) == 32
    assert len(set(straight)) == 27  # no two edges share a line
    assert max(float(x) for x, _, _ in straight) < float(re.findall(r'width="(\d+)"', shown)[0])


def test_an_empty_graph_is_a_picture() -> None:
    assert draw_graph({}, {}).startswith("<svg")


def test_what_is_read_from_afar_is_named(record: Any) -> None:
    shown = draw_graph(long_record(record, 100)["graph"], {})
    assert len(re.findall(r'class="far"[^>]*>mask<', shown)) == 2  # two of the three readers are far away
    assert draw_graph(record["graph"], {}).count("far") == 1  # only the path, which is empty


# ---- charts


def test_every_tensor_is_on_the_chart(record: Any) -> None:
    rows = long_record(record, 2000)["rows"]
    chart = draw_error_chart(rows)
    assert "2000 tensors, 1 beyond it" in chart
    assert len(re.findall("h0", chart)) == 1999
    assert "nan" not in chart


def test_ranges_are_against_fp16(record: Any) -> None:
    chart = draw_range_chart(record["rows"])
    assert "65504" in chart
    # The node's tensor, and the same tensor as the optimised program's kernel stores it.
    assert [row["program"] for row in record["rows"] if describe_fp16_overflow(row["statistics"])] == [
        "nodes",
        "kernels",
    ]
    assert "2 are beyond its largest number" in chart
    big = next(row for row in record["rows"] if row["output"] == "big")
    assert big["statistics"]["infinities"] == 8
    assert describe_fp16_overflow(big["statistics"]) == "overflows"
    small = {"least": -1.0, "most": 1.0, "smallest": 1e-9, "reference": None}
    assert describe_fp16_overflow(small) == "loses small numbers"
    assert describe_fp16_overflow({**small, "smallest": 1e-6}) == describe_fp16_overflow(None) == ""
