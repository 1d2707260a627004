"""The command `pumice doctor`."""

from __future__ import annotations

import argparse
import json

from ...base.printable_text import LONG, plain
from .checks import examine
from .machine import Machine

_WRONG = 1


def add_doctor_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def doctor(arguments: argparse.Namespace) -> int:
    """Run the command; return exit status 1 if something is wrong."""
    return report(Machine(), arguments.json)


def report(machine: Machine, as_json: bool) -> int:
    """Print one line per finding about a machine, followed by the fix if something is wrong."""
    findings = examine(machine)
    count = sum(one.verdict == "wrong" for one in findings)
    if as_json:
        print(json.dumps({"wrong": count, "findings": [one._asdict() for one in findings]}, indent=2))
        return _WRONG if count else 0
    for one in findings:
        print(f"{one.verdict:5}  {one.subject:11}  {plain(one.text, LONG)}")
        if one.mend:
            print(f"       {'':11}  -> {plain(one.mend, LONG)}")
    things = "1 thing is" if count == 1 else f"{count} things are"
    print(f"\n{things} wrong." if count else "\nNothing is wrong.")
    return _WRONG if count else 0
