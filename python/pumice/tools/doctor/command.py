"""The command `pumice doctor`."""

from __future__ import annotations

import argparse
import json

from ...base.printable_text import MAX_SENTENCE_CHARS, shorten_and_escape
from .checks import run_checks
from .machine import Machine

_EXIT_WRONG = 1


def add_doctor_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pumice doctor`."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run_doctor_command(arguments: argparse.Namespace) -> int:
    """Run `pumice doctor`; return exit status 1 if something is wrong."""
    return print_findings(Machine(), arguments.json)


def print_findings(machine: Machine, as_json: bool) -> int:
    """Print one line per finding, with the fix below it if something is wrong. Return the exit status."""
    findings = run_checks(machine)
    count = sum(finding.verdict == "wrong" for finding in findings)
    if as_json:
        print(json.dumps({"wrong": count, "findings": [finding._asdict() for finding in findings]}, indent=2))
        return _EXIT_WRONG if count else 0
    for finding in findings:
        print(f"{finding.verdict:5}  {finding.subject:11}  {shorten_and_escape(finding.text, MAX_SENTENCE_CHARS)}")
        if finding.mend:
            print(f"       {'':11}  -> {shorten_and_escape(finding.mend, MAX_SENTENCE_CHARS)}")
    things = "1 thing is" if count == 1 else f"{count} things are"
    print(f"\n{things} wrong." if count else "\nNothing is wrong.")
    print("Once the setup is right, `pumice selftest` checks the results of your device.")
    return _EXIT_WRONG if count else 0
