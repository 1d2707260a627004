"""Reports as a dict, JSON, JUnit XML and terminal output; files are written completely or not at all."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from onnx_models import gemm, model, node, value
from pumice.base import atomic_files
from pumice.base.printable_text import shorten_and_escape
from pumice.validation.report.junit import make_junit_xml
from pumice.validation.report.tensor_statistics import (
    NUM_MAGNITUDE_BINS,
    NUM_RATIO_BINS,
    compute_statistics,
    count_ratios,
)
from pumice.validation.rules.bounded_tensor import BoundedTensor
from report_records import HOSTILE, overflowing, report_of
from schema_check import faults

SCHEMA = json.loads((Path(pumice.__file__).parent / "validation" / "report" / "report.schema.json").read_text())


def schema_faults(record: Any) -> list[str]:
    return list(faults(json.loads(json.dumps(record, allow_nan=False)), SCHEMA, SCHEMA))


# ---- the dict


def test_a_record_is_as_the_schema_says(context: pumice.Context) -> None:
    random = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)
    right = pumice.validate(gemm(), [(random,)], context=context)
    for record in (right.as_dict(), report_of(context, overflowing()).as_dict()):
        assert schema_faults(record) == []
    right.facts = right.facts._replace(
        policy={"default": "fp16"}, data=("a",), made_up={"N": 1}, generated={"x": "ones"}
    )
    assert schema_faults(right.as_dict()) == []
    assert right.as_dict()["counts"] == {"right": 4, "wrong": 0, "unproved": 0}


def test_a_record_that_is_not_as_the_schema_says_is_found(context: pumice.Context) -> None:
    record = report_of(context, overflowing()).as_dict()
    assert schema_faults({**record, "schema": 2}) == ["$.schema: 2 is not 1"]
    assert schema_faults({**record, "cases": True}) == ["$.cases: True is no integer"]
    assert schema_faults({**record, "more": 1}) == ["$: 'more' is not in the schema"]
    assert schema_faults({key: one for key, one in record.items() if key != "rows"}) == ["$: 'rows' is missing"]


def test_every_field_is_on_the_page_about_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "validation_report.md").read_text()
    parts = [SCHEMA, SCHEMA["properties"]["graph"], SCHEMA["properties"]["device"], SCHEMA["properties"]["options"]]
    parts += [part for part in SCHEMA["$defs"].values() if "properties" in part]
    fields = {name for part in parts for name in part["properties"]}
    assert len(fields) > 60
    assert not [name for name in sorted(fields) if f"`{name}`" not in page]


def test_a_record_says_what_was_validated_and_how(context: pumice.Context) -> None:
    x = np.ones((5, 4), np.float32)
    options = {"tolerances": {"gemm.sum": 0.5}, "allow_unchecked": ["Relu"], "mode": "isolated"}
    record = pumice.validate(gemm(), [(x,)], context=context, **options).as_dict()
    assert record["device"]["driver"] == context.info.driver
    assert record["device"]["driver_version"] == context.info.driver_version
    assert record["options"] == {**options, "inputs": "device", "seed": None}
    assert (record["pumice"], record["schema"]) == (pumice.__version__, 1)
    assert record["graph"]["inputs"] == ["x"]
    assert record["graph"]["nodes"] == [
        {"name": "gemm.sum", "op": "Gemm", "inputs": ["x", "w", "b"], "outputs": ["sum"]},
        {"name": "relu.y", "op": "Relu", "inputs": ["sum"], "outputs": ["y"]},
    ]


def test_rows_name_their_program(context: pumice.Context) -> None:
    rows = pumice.validate(gemm(), [(np.ones((5, 4), np.float32),)], context=context).as_dict()["rows"]
    outputs = [row["output"] for row in rows if row["program"] == "outputs"]
    assert outputs == ["y", "sum"]
    assert {row["node"] for row in rows if row["program"] == "nodes"} == {"gemm.sum", "relu.y"}


def test_an_infinite_error_differs_from_none(context: pumice.Context, spoil: Callable[..., None]) -> None:
    def change(results: dict[str, Any]) -> None:
        results["y"][1, 0] = np.nan

    spoil(change)
    rows = pumice.validate(gemm(), [(np.ones((5, 4), np.float32),)], context=context).as_dict()["rows"]
    wrong = next(row for row in rows if row["node"] == "relu.y")
    assert (wrong["compared"], wrong["error"], wrong["kind"], wrong["actual"]) == (True, None, "NaN made", "nan")
    assert wrong["statistics"]["nans"] == 1


# ---- statistics


def test_statistics_of_a_tensor() -> None:
    x = np.array([0, -0.0, 1, -3, 2.0**-24, 70000, np.inf, -np.inf, np.nan], np.float32)
    expected = BoundedTensor(np.array([0.0, 0, 1, -3, 2.0**-24, 70000, 1e6, -1, 5]))
    found = compute_statistics(x, expected)
    assert found is not None
    assert (found.zeros, found.nans, found.infinities) == (2, 1, 2)
    assert found.range == (-3.0, 70000.0, 2.0**-24)
    assert found.reference == (-3.0, 1e6, 2.0**-24)
    assert len(found.magnitudes) == NUM_MAGNITUDE_BINS
    # Bins of two octaves from 2^-40: 2^-24 is the first in bin 8, 1 and 3 are in bin 20, 70000 is beyond 2^16.
    assert {i: count for i, count in enumerate(found.magnitudes) if count} == {8: 1, 20: 2, 28: 1}


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.uint64, np.bool_])
def test_statistics_of_other_types(dtype: Any) -> None:
    found = compute_statistics(np.array([0, 1, 1], dtype))
    assert found is not None
    assert (found.zeros, found.range.most, found.magnitudes[20], found.reference) == (1, 1.0, 2, None)


def test_statistics_of_nothing() -> None:
    found = compute_statistics(np.zeros((0, 3), np.float32))
    assert found is not None
    assert found.range == (None, None, None)
    assert sum(found.magnitudes) == 0
    assert compute_statistics(np.array(["text"])) is None


def test_errors_over_bounds_are_counted() -> None:
    errors = np.array([0.0, 0.5, 1.0, 1.0 + 1e-9, 100.0, 1.0, 0.0, 1e-9, np.inf, 7.0])
    bounds = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, np.inf])
    counts = count_ratios(errors, bounds)
    assert len(counts) == NUM_RATIO_BINS
    # Zero twice; 1e-9 in the first octave; (1/4, 1/2]; (1/2, 1], within the bound; (1, 2]; the last bin has 100, 1/0 and infinity.
    assert {i: count for i, count in enumerate(counts) if count} == {0: 2, 1: 1, 10: 1, 11: 1, 12: 1, 15: 3}


# ---- hostile names


def test_text_of_others_is_made_plain() -> None:
    assert shorten_and_escape("a node") == "a node"
    assert shorten_and_escape("\x1b[31mred\n\u202e\ud800\u00e9") == "\\x1b[31mred\\n\\u202e\\ud800\u00e9"
    cut = shorten_and_escape("start" + "n" * 10_000 + "end")
    assert len(cut) < 160
    assert cut.startswith("start") and cut.endswith("nend") and "more)" in cut


def hostile_report(context: pumice.Context) -> Any:
    """Return a report with a hostile name for its model, nodes, tensors and findings."""
    nodes = [node("Mul", ["x", "x"], [HOSTILE], name=HOSTILE), node("LpNormalization", [HOSTILE], ["y"], p=1)]
    return report_of(context, model(nodes, [value("x", [2, 4])]))


def test_hostile_names_do_a_terminal_no_harm(context: pumice.Context) -> None:
    report = hostile_report(context)
    report.model = HOSTILE
    shown = [str(report), report.summary, repr(report), *report.finding_lines()]
    with pytest.raises(pumice.ValidationError) as caught:
        report.raise_if_failed()
    for text in [*shown, str(caught.value)]:
        assert not any(ord(c) < 32 and c != "\n" for c in text)
        assert "\u202e" not in text
        assert "n" * 4000 not in text
    assert all("\n" not in text for text in shown[1:])
    assert "overflow" in report.summary


def test_hostile_names_are_text_in_junit(context: pumice.Context) -> None:
    report = hostile_report(context)
    report.model = HOSTILE
    root = ElementTree.fromstring(make_junit_xml([report.as_dict()]).encode())
    assert [case.get("classname", "")[:4] for case in root.iter("testcase")] == ["\\x1b"] * 5
    assert not list(root.iter("script"))


# ---- JUnit


def test_junit_has_a_case_for_each_row(context: pumice.Context) -> None:
    report = report_of(context, overflowing())
    root = ElementTree.fromstring(make_junit_xml([report.as_dict()]).encode())
    (suite,) = root.findall("testsuite")
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["9", "4", "0", "0"]
    cases = {case.get("name"): case.find("failure") for case in suite.findall("testcase")}
    told = {name: one for name, one in cases.items() if name and " in " not in name}
    assert len(cases) - len(told) == 4  # kernels
    assert list(told) == [
        "squared: big",
        "lpnormalization.parts: parts",
        "randomuniformlike.noise: noise",
        "add.y: y",
        "y",
    ]
    assert told["lpnormalization.parts: parts"] is None
    kinds = {name: one.get("type") for name, one in told.items() if one is not None}
    assert kinds == {"squared: big": "wrong", "randomuniformlike.noise: noise": "unproved", "y": "wrong"}
    assert "90,000" in str(told["squared: big"].get("message"))
    properties = {one.get("name"): one.get("value") for one in suite.findall("properties/property")}
    assert properties["device.name"] == context.info.name
    assert properties["precision"] == "fp16"
    assert "fp16 overflow" in str(properties["finding.overflow"])


def test_what_was_allowed_is_skipped_in_junit(context: pumice.Context) -> None:
    noise = model([node("RandomUniformLike", ["x"], ["y"])], [value("x", [2, 4])])
    report = pumice.validate(noise, [(np.zeros((2, 4), np.float32),)], context=context, allow_unchecked=True)
    assert not report.ok  # nothing was checked
    (suite,) = ElementTree.fromstring(make_junit_xml([report.as_dict()]).encode())
    assert [suite.get(name) for name in ("tests", "failures", "skipped")] == ["4", "1", "3"]


# ---- files


@pytest.fixture
def report(context: pumice.Context) -> Any:
    return report_of(context, overflowing())


def test_files_of_a_report(report: Any, tmp_path: Path) -> None:
    report.to_json(tmp_path / "report.json")
    report.to_junit(str(tmp_path / "report.xml"))
    report.to_html(tmp_path / "report.html")
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads(json.dumps(report.as_dict()))
    assert ElementTree.parse(tmp_path / "report.xml").getroot().tag == "testsuites"
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert sorted(os.listdir(tmp_path)) == ["report.html", "report.json", "report.xml"]
    with pytest.raises(OSError, match="no such folder"):
        report.to_json(tmp_path / "no such folder" / "report.json")


@pytest.mark.parametrize("write", ["to_json", "to_junit", "to_html"])
def test_an_interruption_leaves_the_file_as_it_was(
    report: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    path = tmp_path / "report"
    path.write_text("what was there")

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic_files.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        getattr(report, write)(path)
    assert os.listdir(tmp_path) == ["report"]
    assert path.read_text() == "what was there"
