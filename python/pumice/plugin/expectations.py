"""Which tests are expected to pass, to fail or to be flaky, by driver: read from a file and from markers."""

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
    """What is expected of the tests whose ids match, on devices and drivers that match. Patterns are those of file names."""

    test: str
    expect: str
    driver: str = "*"
    version: str = "*"
    device: str = "*"
    precision: str = "*"
    reason: str = ""
    where: str = ""  # the file or the marker that says so

    def applies(self, test: str, cell: Cell, info: DeviceInfo | None) -> bool:
        """Whether it is about this test, by its id or a part of it: without folders, without the file, without parameters."""
        return self.names(test) and fits(self, cell, info)

    def names(self, test: str) -> bool:
        """Whether the pattern is of this test, in whichever cell."""
        return any(like(name, self.test) for text in (test, test.partition("[")[0]) for name in _names(text))


def _names(test: str) -> list[str]:
    path, _, inside = test.partition("::")
    return [test, f"{path.rpartition('/')[2]}::{inside}", inside, inside.rpartition("::")[2]]


def like(text: str, pattern: str) -> bool:
    """Whether a text is as a pattern says, in any case of letters; brackets stand for themselves, as in test ids."""
    return fnmatchcase(text.lower(), pattern.lower().replace("[", "[[]"))


def fits(given: Any, cell: Cell, info: DeviceInfo | None) -> bool:
    """Whether the patterns `device`, `driver`, `version` and `precision` are of this cell; no pattern but "*" is of an unknown device."""
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
    """The signs and numbers of text such as ">=22.3, <25"; nothing for a pattern. Raises UsageError."""
    if not wanted.strip().startswith(("<", ">", "=", "!")):
        return []
    found = [_COMPARISON.fullmatch(part.strip()) for part in wanted.split(",")]
    if not all(found):
        raise pytest.UsageError(f"version: expected comparisons as in '>=22.3, <25', given '{wanted}'")
    return [(one.group(1), _numbers(one.group(2))) for one in found if one]


def version_fits(info: DeviceInfo, wanted: str) -> bool:
    """Whether a driver fits a pattern of its own words, or comparisons with the first number in them, as in ">=22.3, <25"."""
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
    """The expectations of a file: {"expectations": [{"test": ..., "expect": ..., ...}]}. Raises UsageError."""
    try:
        given = _parsed(path)
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"expectations '{path}': {error}") from None
    entries = given.get("expectations") if isinstance(given, Mapping) and len(given) == 1 else None
    if not isinstance(entries, list):
        raise pytest.UsageError(f"expectations '{path}': expected one list by the name 'expectations'")
    return [_checked(entry, f"expectations '{path}', entry {i + 1}") for i, entry in enumerate(entries)]


def marked(item: pytest.Item) -> list[Expectation]:
    """What a test's markers expect, the nearest to it last. Raises UsageError."""
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
    """What is expected of a test: the last that applies."""
    applying = [one for one in listed if one.applies(item.nodeid, cell, info)]
    return applying[-1] if applying else None


def apply(report: pytest.TestReport, expectation: Expectation, strict: bool) -> str:
    """Turns a report into what it is by what was expected, and gives the state: "xfailed", "xpassed", "flaky failed", ... or "".

    An expected failure and the failure of a flaky test do not fail the run; an expected failure that passes does where pytest's
    xfail_strict is set, and is told at the end in any case.
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
