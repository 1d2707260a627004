"""Converts report records to JUnit XML for CI services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ..base.printable_text import LONG, plain

Record = Mapping[str, Any]


def junit(reports: Sequence[Record]) -> str:
    """Return a test suite per record, with a test case per row.

    Outputs of repeated runs also have a test case, which fails with "not deterministic"; so does a report that is not
    ok for another reason. Wrong rows are failures of type "wrong"; unproved and ill-conditioned rows are failures of
    these types, or skipped if allowed. The properties of a suite describe the validation (device, driver,
    precision, options, findings), and those of a case its error and bound.
    """
    root = Element("testsuites", name="pumice validate")
    for report in reports:
        _suite(root, report)
    indent(root)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{tostring(root, encoding='unicode')}\n"


def _suite(root: Element, report: Record) -> None:
    device = report["device"]
    rows: Sequence[Record] = report["rows"]
    skipped = sum(_is_allowed(row) for row in rows)
    failed = sum(row["verdict"] != "right" for row in rows) - skipped
    name = plain(f"{report['model']}, {device['name']}, {report['precision']}")
    repeats: Sequence[Record] = report.get("repeats", ())
    failed += sum(not one["deterministic"] and not one["waived"] for one in repeats)
    is_failed_alone = not report["ok"] and not failed
    failed += is_failed_alone
    skipped += sum(one["waived"] for one in repeats)
    counts = {"tests": len(rows) + len(repeats) + is_failed_alone, "failures": failed, "errors": 0, "skipped": skipped}
    suite = SubElement(root, "testsuite", {"name": name, **{key: str(count) for key, count in counts.items()}})
    properties = {f"device.{key}": value for key, value in device.items()}
    properties.update({key: report[key] for key in ("pumice", "precision", "cases", "verdict", "summary")})
    properties.update({f"option.{key}": value for key, value in report["options"].items()})
    properties.update({f"generated.{key}": value for key, value in report["generated"].items()})
    _properties(suite, properties)
    for finding in report["findings"]:
        _properties(suite, {f"finding.{finding['kind']}": finding["text"]})
    for row in rows:
        _case(suite, report, row)
    for one in repeats:
        _repeat(suite, report, one)
    if is_failed_alone:
        case = SubElement(suite, "testcase", classname=plain(f"{report['model']}.report"), name=plain(report["model"]))
        SubElement(case, "failure", type=report["verdict"], message=plain(report["summary"], LONG))


def _repeat(suite: Element, report: Record, one: Record) -> None:
    """Add the test case of an output of repeated runs."""
    case = SubElement(suite, "testcase", classname=plain(f"{report['model']}.repeats"), name=plain(one["output"]))
    _properties(case, {"case": one["case"], "runs": sum(one["runs"].values()), "results": one["results"]})
    message = plain(one["text"], LONG)
    if one["waived"]:
        SubElement(case, "skipped", message=message)
    elif not one["deterministic"]:
        SubElement(case, "failure", type="not deterministic", message=message).text = plain(report["summary"], LONG)


def _properties(parent: Element, pairs: Mapping[str, Any]) -> None:
    inside = parent.find("properties")
    if inside is None:
        inside = SubElement(parent, "properties")
    for name, value in pairs.items():
        SubElement(inside, "property", name=plain(name), value=plain(value, LONG))


def _case(suite: Element, report: Record, row: Record) -> None:
    name = plain(row["node"]) if row["node"] == row["output"] else f"{plain(row['node'])}: {plain(row['output'])}"
    if row["program"] == "kernels":
        name += f" in {plain(row['kernel'])}"
    case = SubElement(suite, "testcase", classname=plain(f"{report['model']}.{row['program']}"), name=name)
    numbers = {key: row[key] for key in ("error", "allowed", "ratio", "accumulated") if row[key] is not None}
    _properties(case, {"op": row["op"], "dtype": row["dtype"], "shape": row["shape"], "case": row["case"], **numbers})
    if row["verdict"] == "right":
        return
    message = plain(row["fault"] or row["note"] or _difference(row), LONG)
    if _is_allowed(row):
        SubElement(case, "skipped", message=message)
    else:
        SubElement(case, "failure", type=row["verdict"], message=message).text = plain(report["summary"], LONG)


def _is_allowed(row: Record) -> bool:
    return bool(row["verdict"] in ("unproved", "ill-conditioned") and row["waived"])


def _difference(row: Record) -> str:
    kind = f"{row['kind']}: " if row["kind"] else ""
    return f"{kind}{row['actual']} instead of {row['expected']} at {row['index']}, allowed {row['allowed']}"
