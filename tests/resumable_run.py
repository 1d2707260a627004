"""A pytest plugin for runs that can be resumed (`-p resumable_run`).

It deselects the tests listed in the file named by PUMICE_TESTS_DONE, and appends the result of each other test to the file named by
PUMICE_TEST_RESULTS as soon as it is known: one JSON list of module, name and result per line. A later line overrides an earlier one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

Case = tuple[str, str]  # dotted module (and class) and test name, as in pytest's junit reports


def case_of(node_id: str) -> Case:
    """Return the case of the test `tests/a/test_b.py::test_c[d]`."""
    path, bracket, parameters = node_id.partition("[")
    module, *names = path.split("::")
    module = module.removesuffix(".py").replace("/", ".")
    if not names:
        return "", module  # a file that was skipped, or failed, when it was imported
    *classes, name = names
    return ".".join([module, *classes]), name + bracket + parameters


def result_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return "passed", "failed", or the reason of a skip."""
    if not report.skipped:
        return report.outcome
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail)
    return str(report.longrepr[2]).removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else "skipped"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    done = {tuple(case) for case in json.loads(Path(os.environ["PUMICE_TESTS_DONE"]).read_text())}
    items[:] = [item for item in items if case_of(item.nodeid) not in done]


class ResultWriter:
    """Appends the result of each test to a file."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("a", encoding="utf-8", buffering=1)

    def write(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        self.file.write(json.dumps([*case_of(report.nodeid), result_of(report)]) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self.write(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self.write(report)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # xdist's workers send their reports to the main process
        config.pluginmanager.register(ResultWriter(Path(os.environ["PUMICE_TEST_RESULTS"])))
