"""Expected test outcomes (pass, fail, flaky) by driver, read from a file and from markers."""

from __future__ import annotations

import contextlib
import importlib
import json
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .._pumice import DeviceInfo
from .matrix_cells import MatrixCell

STATES = ("pass", "fail", "flaky")
_KEYS = ("test", "expect", "driver", "version", "device", "precision", "reason")
_COMPARISON = re.compile(r"(>=|<=|==|!=|<|>)\s*(\d+(?:\.\d+)*)")


class ExpectedOutcome(NamedTuple):
    """The expected outcome of matching tests on matching devices and drivers. Patterns use file name globbing."""

    test: str
    expect: str
    driver: str = "*"
    version: str = "*"
    device: str = "*"
    precision: str = "*"
    reason: str = ""
    origin: str = ""  # file or marker that defines the expectation

    def applies_to(self, test: str, cell: MatrixCell, info: DeviceInfo | None) -> bool:
        """Return whether the expectation applies to this test. Patterns match the full id, or that without folders, file or parameters."""
        return self.matches_name(test) and matches_cell(self, cell, info)

    def matches_name(self, test: str) -> bool:
        """Return whether the pattern matches this test, in any cell."""
        return any(
            matches_pattern(name, self.test)
            for text in (test, test.partition("[")[0])
            for name in _get_test_name_variants(text)
        )


def _get_test_name_variants(test: str) -> list[str]:
    path, _, test_path = test.partition("::")
    return [test, f"{path.rpartition('/')[2]}::{test_path}", test_path, test_path.rpartition("::")[2]]


def matches_pattern(text: str, pattern: str) -> bool:
    """Return whether a glob pattern matches the text, ignoring case. Brackets are literal, because test ids contain them."""
    return fnmatchcase(text.lower(), pattern.lower().replace("[", "[[]"))


def matches_cell(expectation: Any, cell: MatrixCell, info: DeviceInfo | None) -> bool:
    """Return whether the device, driver, version and precision patterns match this cell; an unknown device matches only "*"."""
    if not matches_pattern(cell.precision, expectation.precision):
        return False
    patterns = (expectation.device, expectation.driver, expectation.version)
    if info is None:
        return all(pattern == "*" for pattern in patterns)
    return (
        matches_pattern(info.name, expectation.device)
        and matches_pattern(info.driver, expectation.driver)
        and matches_version(info, expectation.version)
    )


def _parse_version(text: str) -> tuple[int, ...]:
    matched = re.search(r"\d+(?:\.\d+)*", text)
    numbers = [int(component) for component in matched.group().split(".")] if matched else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _parse_comparisons(version_spec: str) -> list[tuple[str, tuple[int, ...]]]:
    """Parse text such as ">=22.3, <25" to (operator, version) pairs; none for a glob pattern. Raise UsageError if it is malformed."""
    if not version_spec.strip().startswith(("<", ">", "=", "!")):
        return []
    matched = [_COMPARISON.fullmatch(component.strip()) for component in version_spec.split(",")]
    if not all(matched):
        raise pytest.UsageError(f"version: expected comparisons as in '>=22.3, <25', given '{version_spec}'")
    return [(comparison.group(1), _parse_version(comparison.group(2))) for comparison in matched if comparison]


def matches_version(info: DeviceInfo, version_spec: str) -> bool:
    """Return whether the driver matches: a glob pattern for its info text, or comparisons with its version such as ">=22.3, <25"."""
    driver_version = _parse_version(info.driver_info)
    for sign, limit in (comparisons := _parse_comparisons(version_spec)):
        outcomes = {
            ">=": driver_version >= limit,
            "<=": driver_version <= limit,
            "<": driver_version < limit,
            ">": driver_version > limit,
        }
        if not (outcomes | {"==": driver_version == limit, "!=": driver_version != limit})[sign]:
            return False
    return bool(comparisons) or matches_pattern(info.driver_info, version_spec)


def _parse_expected_outcome(record: Any, origin: str) -> ExpectedOutcome:
    if not isinstance(record, Mapping) or not all(isinstance(value, str) for value in record.values()):
        raise pytest.UsageError(f"{origin}: expected a table of strings, given {record!r}")
    unknown = [key for key in record if key not in _KEYS]
    if unknown:
        raise pytest.UsageError(f"{origin}: expected the keys {', '.join(_KEYS)}, given '{unknown[0]}'")
    if missing := [key for key in ("test", "expect") if key not in record]:
        raise pytest.UsageError(f"{origin}: expected the key '{missing[0]}', given {', '.join(record) or 'none'}")
    if record["expect"] not in STATES:
        raise pytest.UsageError(f"{origin}: expect: expected one of {', '.join(STATES)}, given '{record['expect']}'")
    try:
        _parse_comparisons(record.get("version", "*"))
    except pytest.UsageError as error:
        raise pytest.UsageError(f"{origin}: {error}") from None
    return ExpectedOutcome(**record, origin=origin)


def _load_document(path: Path) -> Any:
    text = path.read_text()
    if path.suffix != ".toml":
        return json.loads(text)
    for name in ("tomllib", "tomli"):  # Python 3.10 has no tomllib
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(name).loads(text)
    raise pytest.UsageError(f"'{path}': TOML needs Python 3.11 or the package tomli; JSON needs neither")


def read_expected_outcomes(path: Path) -> list[ExpectedOutcome]:
    """Read the expectations of a file: {"expectations": [{"test": ..., "expect": ..., ...}]}. Raise UsageError if it is invalid."""
    try:
        document = _load_document(path)
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"expectations '{path}': {error}") from None
    entries = document.get("expectations") if isinstance(document, Mapping) and len(document) == 1 else None
    if not isinstance(entries, list):
        raise pytest.UsageError(f"expectations '{path}': expected one list named 'expectations'")
    return [_parse_expected_outcome(entry, f"expectations '{path}', entry {i + 1}") for i, entry in enumerate(entries)]


def get_marked_expected_outcomes(item: pytest.Item) -> list[ExpectedOutcome]:
    """Return the expectations from a test's markers, the closest marker last. Raise UsageError for an invalid marker."""
    expectations = []
    for mark in reversed(list(item.iter_markers("pumice_expect"))):
        origin = f"{item.nodeid}: marker pumice_expect"
        if len(mark.args) != 1:
            raise pytest.UsageError(f"{origin}: expected one state of {', '.join(STATES)}, given {mark.args!r}")
        expectations.append(_parse_expected_outcome({"test": "*", "expect": mark.args[0], **mark.kwargs}, origin))
    return expectations


def find_expected_outcome(
    item: pytest.Item, cell: MatrixCell, info: DeviceInfo | None, listed: Sequence[ExpectedOutcome]
) -> ExpectedOutcome | None:
    """Return the last expectation that applies to a test; None if there is none."""
    applicable = [candidate for candidate in listed if candidate.applies_to(item.nodeid, cell, info)]
    return applicable[-1] if applicable else None


def apply_expected_outcome(report: pytest.TestReport, expectation: ExpectedOutcome, strict: bool) -> str:
    """Adjust a report to the expectation and return the state: "xfailed", "xpassed", "flaky failed", ... or "".

    Expected failures and failures of flaky tests do not fail the run. An unexpected pass fails it if pytest's
    xfail_strict is set, and is reported at the end in any case.
    """
    if report.skipped or expectation.expect == "pass" or report.when == "teardown":
        return ""
    reason = expectation.reason or f"expected by {expectation.origin}"
    if report.failed:
        report.outcome = "skipped"
        report.wasxfail = reason if expectation.expect == "fail" else f"flaky: {reason}"
        return "xfailed" if expectation.expect == "fail" else "flaky failed"
    if report.when != "call":
        return ""
    if expectation.expect == "flaky":
        return "flaky passed"
    if strict:
        report.outcome = "failed"
        report.longrepr = f"[XPASS(strict)] {reason}"
    else:
        report.wasxfail = reason
    return "xpassed"
