"""The command `pumice selftest`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..._pumice import Context
from ...base.atomic_files import write_text_atomic
from ...base.errors import InputError
from ...base.printable_text import MAX_SENTENCE_CHARS, escape_unprintable, shorten_and_escape
from ..cli_options import DEVICE_HELP
from ..version_info import collect_versions, make_device_record

if TYPE_CHECKING:
    from .areas import AreaFunction
    from .results import AreaResult, CaseResult

_EXIT_FAILED = 1
_TO_STDOUT = "-"
_SCHEMA_VERSION = 1
_MAX_LISTED = 12  # failed cases listed for each area; the JSON record has all
_NAME_WIDTH = 14


def add_selftest_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pumice selftest`."""
    parser.add_argument("--device", "-d", metavar="D", help=DEVICE_HELP)
    text = "run these areas only, with commas between (default: all)"
    parser.add_argument("--areas", metavar="A[,A]", help=text)
    text = "a record of all cases, for a bug report; without F it is printed"
    parser.add_argument("--json", nargs="?", const=_TO_STDOUT, metavar="F", help=text)


def run_selftest_command(arguments: argparse.Namespace) -> int:
    """Run `pumice selftest`; return exit status 1 if an area failed."""
    from .areas import AREAS

    return run_selftest(arguments, AREAS)


def run_selftest(arguments: argparse.Namespace, areas: Mapping[str, AreaFunction]) -> int:
    """Run the requested areas, print a line for each, and write the record. Return the exit status."""
    from .areas import run_areas

    names = _parse_areas(arguments.areas, areas)
    _check_record_path(arguments.json)
    is_quiet = arguments.json == _TO_STDOUT
    context = Context(arguments.device or "")
    record = _make_record_head(context)
    if not is_quiet:
        software = " (SOFTWARE DRIVER: not a GPU)" if context.info.kind == "software" else ""
        driver = f"{context.info.driver} {context.info.driver_info}".strip()
        print(escape_unprintable(f"{context.info.name}{software}; {driver}; pumice {record['versions']['pumice']}"))
    results = []
    for result in run_areas(context, names, areas):
        results.append(result)
        if not is_quiet:
            print("\n".join(_format_area(result)), flush=True)
    has_passed = _has_passed(results)
    record.update(ok=has_passed, areas=[result.as_dict() for result in results])
    _write_record(record, arguments.json)
    if not is_quiet:
        print(_format_conclusion(results, arguments.json))
    return 0 if has_passed else _EXIT_FAILED


def _has_passed(results: Sequence[AreaResult]) -> bool:
    """Return whether no area failed and at least one was checked."""
    verdicts = {result.verdict for result in results}
    return "FAILED" not in verdicts and "ok" in verdicts


def _parse_areas(text: str | None, areas: Mapping[str, AreaFunction]) -> list[str]:
    """Return the names of the requested areas, in the order in which they run."""
    if text is None:
        return list(areas)
    names = text.split(",")
    for name in names:
        if name not in areas or names.count(name) > 1:
            raise InputError(f"selftest: --areas: expected {', '.join(areas)}, each once, given '{text}'")
    return [name for name in areas if name in names]


def _check_record_path(path: str | None) -> None:
    """Raise InputError if the record cannot be written, before a minute is spent on it."""
    if path not in (None, _TO_STDOUT) and (not os.path.isdir(os.path.dirname(path) or ".") or os.path.isdir(path)):
        raise InputError(f"'{path}': expected a file in an existing folder")


# ---- the JSON record


def _make_record_head(context: Context) -> dict[str, Any]:
    """Return what identifies the software and the device. Values of variables may name folders of the user, so only names are listed."""
    variables = sorted(name for name in os.environ if name.startswith(("PUMICE_", "VK_", "MESA_")))
    return {
        "schema": _SCHEMA_VERSION,
        "ok": False,
        "versions": collect_versions(),
        "choice": context.choice,
        "device": make_device_record(context.info),
        "variables": variables,
    }


def _write_record(record: dict[str, Any], path: str | None) -> None:
    text = json.dumps(record, indent=2) + "\n"
    if path == _TO_STDOUT:
        print(text, end="")
    elif path is not None:
        write_text_atomic(path, text)


# ---- printed lines


def _format_area(result: AreaResult) -> list[str]:
    """Return the line of an area, and a line for each note, error and failed case."""
    lines = [f"{result.name:{_NAME_WIDTH}} {result.verdict:7}  {result.counts:44} {result.seconds:6.1f} s"]
    details = [f"{shorten_and_escape(note, MAX_SENTENCE_CHARS)}" for note in result.notes]
    if result.error:
        details.append(f"error: {shorten_and_escape(result.error, MAX_SENTENCE_CHARS)}")
    details += [_format_case(case) for case in result.failed_cases[:_MAX_LISTED]]
    if len(result.failed_cases) > _MAX_LISTED:
        details.append(f"and {len(result.failed_cases) - _MAX_LISTED} more cases")
    return [*lines, *(f"{'':{_NAME_WIDTH}} {detail}" for detail in details)]


def _format_case(case: CaseResult) -> str:
    precision = f" at {case.precision}" if case.precision else ""
    numbers = ""
    if case.error is not None and case.allowed is not None:
        numbers = f"; error {case.error:.3g}, allowed {case.allowed:.3g}"
    return f"'{case.name}'{precision} {case.verdict}: {shorten_and_escape(case.text, MAX_SENTENCE_CHARS)}{numbers}"


def _format_conclusion(results: Sequence[AreaResult], path: str | None) -> str:
    failed = [result.name for result in results if result.verdict == "FAILED"]
    seconds = sum(result.seconds for result in results)
    if _has_passed(results):
        return f"\nAll areas are ok, in {seconds:.0f} s."
    if not failed:
        return "\nNothing was checked: all areas were skipped."
    record = f"'{path}'" if path else "the file that `pumice selftest --json FILE` writes"
    return (
        f"\n{len(failed)} of {len(results)} areas FAILED: {', '.join(failed)}. Results on this device may be wrong.\n"
        f"Report this with {escape_unprintable(record)}. `pumice validate MODEL` checks whether your model is affected."
    )
