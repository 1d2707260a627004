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
from .cells import Cell

STATES = ("pass", "fail", "flaky")
_KEYS = ("test", "expect", "driver", "version", "device", "precision", "reason")
_COMPARISON = re.compile(r"(>=|<=|==|!=|<|>)\s*(\d+(?:\.\d+)*)")


class Expectation(NamedTuple):
    """The expected outcome of matching tests on matching devices and drivers. Patterns use file name globbing."""

    test: str
    expect: str
    driver: str = "*"
    version: str = "*"
    device: str = "*"
    precision: str = "*"
    reason: str = ""
    where: str = ""  # the file or marker that defines the expectation

    def applies(self, test: str, cell: Cell, info: DeviceInfo | None) -> bool:
        """Return whether the expectation applies to this test. Patterns match the full id, or one without folders, file or parameters."""
        return self.names(test) and fits(self, cell, info)

    def names(self, test: str) -> bool:
        """Return whether the pattern matches this test, in any cell."""
        return any(like(name, self.test) for text in (test, test.partition("[")[0]) for name in _names(text))


def _names(test: str) -> list[str]:
    path, _, inside = test.partition("::")
    return [test, f"{path.rpartition('/')[2]}::{inside}", inside, inside.rpartition("::")[2]]


def like(text: str, pattern: str) -> bool:
    """Match text against a pattern, ignoring case; brackets are literal, as in test ids."""
    return fnmatchcase(text.lower(), pattern.lower().replace("[", "[[]"))


def fits(given: Any, cell: Cell, info: DeviceInfo | None) -> bool:
    """Return whether the device, driver, version and precision patterns match this cell; an unknown device matches only "*"."""
    if not like(cell.precision, given.precision):
        return False
    patterns = (given.device, given.driver, given.version)
    if info is None:
        return all(pattern == "*" for pattern in patterns)
    return like(info.name, given.device) and like(info.driver, given.driver) and version_fits(info, given.version)


def _numbers(text: str) -> tuple[int, ...]:
    found = re.search(r"\d+(?:\.\d+)*", text)
    numbers = [int(part) for part in found.group().split(".")] if found else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _comparisons(wanted: str) -> list[tuple[str, tuple[int, ...]]]:
    """Parse text such as ">=22.3, <25" into operators and numbers; empty for a pattern. Raise UsageError for malformed comparisons."""
    if not wanted.strip().startswith(("<", ">", "=", "!")):
        return []
    found = [_COMPARISON.fullmatch(part.strip()) for part in wanted.split(",")]
    if not all(found):
        raise pytest.UsageError(f"version: expected comparisons as in '>=22.3, <25', given '{wanted}'")
    return [(one.group(1), _numbers(one.group(2))) for one in found if one]


def version_fits(info: DeviceInfo, wanted: str) -> bool:
    """Return whether a driver matches a pattern on its info text, or comparisons with its first version number (">=22.3, <25")."""
    here = _numbers(info.driver_info)
    for sign, limit in (comparisons := _comparisons(wanted)):
        holds = {">=": here >= limit, "<=": here <= limit, "<": here < limit, ">": here > limit}
        if not (holds | {"==": here == limit, "!=": here != limit})[sign]:
            return False
    return bool(comparisons) or like(info.driver_info, wanted)


def _checked(record: Any, where: str) -> Expectation:
    if not isinstance(record, Mapping) or not all(isinstance(value, str) for value in record.values()):
        raise pytest.UsageError(f"{where}: expected a table of texts, given {record!r}")
    unknown = [key for key in record if key not in _KEYS]
    if unknown:
        raise pytest.UsageError(f"{where}: expected the keys {', '.join(_KEYS)}, given '{unknown[0]}'")
    if missing := [key for key in ("test", "expect") if key not in record]:
        raise pytest.UsageError(f"{where}: expected the key '{missing[0]}', given {', '.join(record) or 'none'}")
    if record["expect"] not in STATES:
        raise pytest.UsageError(f"{where}: expect: expected one of {', '.join(STATES)}, given '{record['expect']}'")
    try:
        _comparisons(record.get("version", "*"))
    except pytest.UsageError as error:
        raise pytest.UsageError(f"{where}: {error}") from None
    return Expectation(**record, where=where)


def _parsed(path: Path) -> Any:
    text = path.read_text()
    if path.suffix != ".toml":
        return json.loads(text)
    for name in ("tomllib", "tomli"):  # Python 3.10 has no tomllib
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(name).loads(text)
    raise pytest.UsageError(f"'{path}': TOML needs Python 3.11 or the package tomli; JSON needs neither")


def read(path: Path) -> list[Expectation]:
    """Read the expectations of a file: {"expectations": [{"test": ..., "expect": ..., ...}]}. Raise UsageError if it is invalid."""
    try:
        given = _parsed(path)
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"expectations '{path}': {error}") from None
    entries = given.get("expectations") if isinstance(given, Mapping) and len(given) == 1 else None
    if not isinstance(entries, list):
        raise pytest.UsageError(f"expectations '{path}': expected one list by the name 'expectations'")
    return [_checked(entry, f"expectations '{path}', entry {i + 1}") for i, entry in enumerate(entries)]


def marked(item: pytest.Item) -> list[Expectation]:
    """Return the expectations from a test's markers, the closest marker last. Raise UsageError for an invalid marker."""
    found = []
    for mark in reversed(list(item.iter_markers("pumice_expect"))):
        where = f"{item.nodeid}: marker pumice_expect"
        if len(mark.args) != 1:
            raise pytest.UsageError(f"{where}: expected one state of {', '.join(STATES)}, given {mark.args!r}")
        found.append(_checked({"test": "*", "expect": mark.args[0], **mark.kwargs}, where))
    return found


def expected(
    item: pytest.Item, cell: Cell, info: DeviceInfo | None, listed: Sequence[Expectation]
) -> Expectation | None:
    """Return the expectation for a test: the last one that applies."""
    applying = [one for one in listed if one.applies(item.nodeid, cell, info)]
    return applying[-1] if applying else None


def apply(report: pytest.TestReport, expectation: Expectation, strict: bool) -> str:
    """Adjust a report to the expectation and return the state: "xfailed", "xpassed", "flaky failed", ... or "".

    Expected failures and failures of flaky tests do not fail the run. An unexpected pass fails it if pytest's
    xfail_strict is set, and is reported at the end in any case.
    """
    if report.skipped or expectation.expect == "pass" or report.when == "teardown":
        return ""
    reason = expectation.reason or f"expected by {expectation.where}"
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
