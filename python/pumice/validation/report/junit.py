"""Converts report records to JUnit XML for CI services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ...base.printable_text import MAX_SENTENCE_CHARS, shorten_and_escape

Record = Mapping[str, Any]


def make_junit_xml(reports: Sequence[Record]) -> str:
    """Return a test suite per record, with a test case per row.

    Each output of repeated runs also has a test case, which fails with "not deterministic" if runs differ. A report that
    is not ok for another reason gets a failing test case too. Wrong rows are failures of type "wrong". Unproved and
    ill-conditioned rows are failures of these types, or skipped if the caller allows them. The properties of a suite
    describe the validation (device, driver, precision, options, findings); a test case's are its error and bound.
    """
    root = Element("testsuites", name="pumice validate")
    for report in reports:
        _add_suite(root, report)
    indent(root)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{tostring(root, encoding='unicode')}\n"


def _add_suite(root: Element, report: Record) -> None:
    device = report["device"]
    rows: Sequence[Record] = report["rows"]
    skipped = sum(_is_waived(row) for row in rows)
    failed = sum(row["verdict"] != "right" for row in rows) - skipped
    name = shorten_and_escape(f"{report['model']}, {device['name']}, {report['precision']}")
    repeats: Sequence[Record] = report.get("repeats", ())
    failed += sum(not repeat["deterministic"] and not repeat["waived"] for repeat in repeats)
    has_report_failure = not report["ok"] and not failed
    failed += has_report_failure
    skipped += sum(repeat["waived"] for repeat in repeats)
    counts = {
        "tests": len(rows) + len(repeats) + has_report_failure,
        "failures": failed,
        "errors": 0,
        "skipped": skipped,
    }
    suite = SubElement(root, "testsuite", {"name": name, **{key: str(count) for key, count in counts.items()}})
    properties = {f"device.{key}": value for key, value in device.items()}
    properties.update({key: report[key] for key in ("pumice", "precision", "cases", "verdict", "summary")})
    properties.update({f"option.{key}": value for key, value in report["options"].items()})
    properties.update({f"generated.{key}": value for key, value in report["generated"].items()})
    _add_properties(suite, properties)
    for finding in report["findings"]:
        _add_properties(suite, {f"finding.{finding['kind']}": finding["text"]})
    for row in rows:
        _add_case(suite, report, row)
    for repeat in repeats:
        _add_repeat_case(suite, report, repeat)
    if has_report_failure:
        case = SubElement(
            suite,
            "testcase",
            classname=shorten_and_escape(f"{report['model']}.report"),
            name=shorten_and_escape(report["model"]),
        )
        SubElement(
            case, "failure", type=report["verdict"], message=shorten_and_escape(report["summary"], MAX_SENTENCE_CHARS)
        )


def _add_repeat_case(suite: Element, report: Record, repeat: Record) -> None:
    """Add a test case for an output of repeated runs."""
    case = SubElement(
        suite,
        "testcase",
        classname=shorten_and_escape(f"{report['model']}.repeats"),
        name=shorten_and_escape(repeat["output"]),
    )
    _add_properties(case, {"case": repeat["case"], "runs": sum(repeat["runs"].values()), "results": repeat["results"]})
    message = shorten_and_escape(repeat["text"], MAX_SENTENCE_CHARS)
    if repeat["waived"]:
        SubElement(case, "skipped", message=message)
    elif not repeat["deterministic"]:
        SubElement(case, "failure", type="not deterministic", message=message).text = shorten_and_escape(
            report["summary"], MAX_SENTENCE_CHARS
        )


def _add_properties(parent: Element, pairs: Mapping[str, Any]) -> None:
    inside = parent.find("properties")
    if inside is None:
        inside = SubElement(parent, "properties")
    for name, value in pairs.items():
        SubElement(
            inside, "property", name=shorten_and_escape(name), value=shorten_and_escape(value, MAX_SENTENCE_CHARS)
        )


def _add_case(suite: Element, report: Record, row: Record) -> None:
    name = (
        shorten_and_escape(row["node"])
        if row["node"] == row["output"]
        else f"{shorten_and_escape(row['node'])}: {shorten_and_escape(row['output'])}"
    )
    if row["program"] == "kernels":
        name += f" in {shorten_and_escape(row['kernel'])}"
    case = SubElement(suite, "testcase", classname=shorten_and_escape(f"{report['model']}.{row['program']}"), name=name)
    numbers = {key: row[key] for key in ("error", "allowed", "ratio", "accumulated") if row[key] is not None}
    _add_properties(
        case, {"op": row["op"], "dtype": row["dtype"], "shape": row["shape"], "case": row["case"], **numbers}
    )
    if row["verdict"] == "right":
        return
    message = shorten_and_escape(row["fault"] or row["note"] or _describe_difference(row), MAX_SENTENCE_CHARS)
    if _is_waived(row):
        SubElement(case, "skipped", message=message)
    else:
        SubElement(case, "failure", type=row["verdict"], message=message).text = shorten_and_escape(
            report["summary"], MAX_SENTENCE_CHARS
        )


def _is_waived(row: Record) -> bool:
    return bool(row["verdict"] in ("unproved", "ill-conditioned") and row["waived"])


def _describe_difference(row: Record) -> str:
    kind = f"{row['kind']}: " if row["kind"] else ""
    return f"{kind}{row['actual']} instead of {row['expected']} at {row['index']}, allowed {row['allowed']}"
