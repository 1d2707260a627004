"""Pytest hooks that add properties and expectations to test reports, and write the output at the end of the run."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .._pumice import DeviceLostError
from ..base.atomic_files import write_text_atomic
from ..base.printable_text import escape_unprintable
from . import expected_outcomes
from .baselines import merge_baseline_entries
from .matrix_cells import MatrixCell
from .options import get_path_option
from .run_state import TestFindings, get_cell, get_findings, get_matrix_run

_ONLY_KEYS = ("device", "driver", "precision")


class OutcomeHooks:
    """The plugin's hooks for test reports and the end of the run. Cell processes and xdist workers write nothing, because the main process
    receives their reports.
    """

    def __init__(self, config: pytest.Config, is_subprocess: bool) -> None:
        self.config = config
        self.is_subprocess = is_subprocess
        path = get_path_option(config, "expectations")
        self.expectations = expected_outcomes.read_expected_outcomes(path) if path else []
        self.strict = bool(config.getini("xfail_strict"))
        self.report_data: list[dict[str, Any]] = []  # the plugin's data from all reports, in test order
        self.lines: list[str] = []  # lines for the terminal summary
        if config.getoption("--pumice-update") and get_path_option(config, "baseline") is None:
            raise pytest.UsageError("--pumice-update: set --pumice-baseline DIR or the value pumice_baseline")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Report expectations that match no test, if all tests run."""
        option = self.config.option
        is_partial_run = self.config.args_source is pytest.Config.ArgsSource.ARGS or option.keyword or option.markexpr
        if self.is_subprocess or is_partial_run or not session.items:
            return
        for expectation in self.expectations:
            if not any(expectation.matches_name(item.nodeid) for item in session.items):
                self.lines.append(f"no test is named '{expectation.test}': {expectation.origin}")

    # ---- hooks for a single test

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Make the test's device the default; skip a test in cells that its markers exclude."""
        cell = get_cell(item)
        if cell is None:
            return
        run = get_matrix_run(item.config)
        if where := run.lost_devices.get(cell.label):
            pytest.fail(f"the device of {cell.label} was lost in {where}", pytrace=False)
        run.make_default(cell.device_under_test)
        try:
            expected_outcomes.get_marked_expected_outcomes(item)
        except pytest.UsageError as error:
            pytest.fail(str(error), pytrace=False)
        for mark in item.iter_markers("pumice_only"):
            _check_only_marker(mark, cell, item)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """Add properties and findings to the test's report, and apply the expectation."""
        cell = get_cell(item)
        if cell is not None:
            add_junit_properties(item, cell)
        report = yield
        if cell is not None:
            self.attach_report_data(item, cell, report, call.excinfo)
        return report

    def attach_report_data(
        self,
        item: pytest.Item,
        cell: MatrixCell,
        report: pytest.TestReport,
        error: pytest.ExceptionInfo[BaseException] | None,
    ) -> None:
        """Attach the plugin's data to a report. error: the exception of the test, if any."""
        run = get_matrix_run(item.config)
        if error is not None and _is_device_loss(error.value):
            run.mark_device_lost(cell, item.nodeid)
        failed = report.failed
        listed = list(self.expectations)
        with contextlib.suppress(
            pytest.UsageError
        ):  # an invalid marker has already failed the test in pytest_runtest_setup
            listed[:0] = expected_outcomes.get_marked_expected_outcomes(item)
        expected = expected_outcomes.find_expected_outcome(item, cell, run.get_info(cell.device_under_test), listed)
        state = expected_outcomes.apply_expected_outcome(report, expected, self.strict) if expected else ""
        if state:
            item.user_properties.append(("pumice_expectation", state))
        if report.when != "call" and not failed:
            return
        findings = get_findings(item) if report.when == "call" else TestFindings()
        reason = expected.reason or expected.origin if expected else ""
        summary = {"test": item.nodeid, "cell": cell.label, "outcome": report.outcome, "state": state, "reason": reason}
        # The data is JSON-compatible, because isolated cells and xdist send it to the main process.
        payload: Any = report
        payload.pumice = {
            **summary,
            "records": findings.records,
            "baselines": findings.baselines,
            "notes": findings.notes,
        }

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the plugin's data from a report."""
        if payload := getattr(report, "pumice", None):
            self.report_data.append(payload)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, Any] | None:
        """Report a failed flaky test as neither failure nor skip."""
        payload = getattr(report, "pumice", None)
        if payload and payload["state"] == "flaky failed":
            return "flaky", "f", ("FLAKY", {"yellow": True})
        return None

    # ---- hooks for the end of the run

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the page and the baselines, each atomically."""
        if self.is_subprocess:
            return
        try:
            self._write_page_and_baselines()
        except OSError as error:
            self.lines.append(f"error: {error.filename}: {error.strerror}")
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def _write_page_and_baselines(self) -> None:
        if path := self.config.getoption("--pumice-report"):
            records = [record for data in self.report_data for record in data["records"]]
            file = self.config.invocation_params.dir / path
            if records:
                from ..validation.report.html_page import make_page

                _write_file(file, make_page(records, f"pumice: {len(records)} validations"))
                self.lines.append(f"page of {len(records)} validations: {file}")
            else:
                self.lines.append(f"no page {file}: the run has no validation")
        if self.config.getoption("--pumice-update"):
            files = merge_baseline_entries(
                entry for data in self.report_data if data["outcome"] == "passed" for entry in data["baselines"]
            )
            for file, text in files.items():
                _write_file(file, text)
            self.lines.append(f"{len(files)} baselines written to {get_path_option(self.config, 'baseline')}")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a line per cell, and the notes that pytest's counts do not show."""
        lines = [
            *self._summarize_cells(),
            *self._list_unusual_states(),
            *(note for data in self.report_data for note in data["notes"]),
            *self.lines,
        ]
        if lines:
            terminalreporter.write_sep("=", "pumice")
            for line in lines:
                terminalreporter.write_line(escape_unprintable(line))

    def _summarize_cells(self) -> list[str]:
        labels = [cell.label for cell in get_matrix_run(self.config).cells]
        lines = []
        for label in labels:
            cell_data = [data for data in self.report_data if data["cell"] == label]
            verdicts = Counter(record["verdict"] for data in cell_data for record in data["records"])
            if not cell_data or (len(labels) == 1 and not verdicts):
                continue
            counts = Counter(data["state"] or data["outcome"] for data in cell_data)
            tests = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
            proofs = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
            lines.append(f"{label}: {tests}{f'; validations: {proofs}' if proofs else ''}")
        return lines

    def _list_unusual_states(self) -> list[str]:
        texts = {
            "xpassed": "expected to fail, but passed",
            "flaky failed": "flaky, failed this time",
            "flaky passed": "flaky, passed this time",
        }
        return [
            f"{texts[data['state']]}: {data['test']}: {data['reason']}"
            for data in self.report_data
            if data["state"] in texts
        ]


def _write_file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomic(path, text)


def _is_device_loss(error: BaseException | None) -> bool:
    """Return whether the error, or one of its causes, is a lost device."""
    while error is not None:
        if isinstance(error, DeviceLostError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _check_only_marker(mark: pytest.Mark, cell: MatrixCell, item: pytest.Item) -> None:
    where = f"{item.nodeid}: marker pumice_only"
    if mark.args or not mark.kwargs or not set(mark.kwargs) <= set(_ONLY_KEYS):
        pytest.fail(f"{where}: expected patterns by the names {', '.join(_ONLY_KEYS)}, given {mark!r}", pytrace=False)
    run = get_matrix_run(item.config)
    info = run.get_info(cell.device_under_test) or run.get_context(cell.device_under_test).info
    values = {"device": info.name, "driver": info.driver, "precision": cell.precision}
    for name, pattern in mark.kwargs.items():
        if not expected_outcomes.matches_pattern(values[name], pattern):
            pytest.skip(f"for {name} '{pattern}' only, this is '{values[name]}'")


def add_junit_properties(item: pytest.Item, cell: MatrixCell) -> None:
    """Add the test properties for the JUnit XML report."""
    existing_names = {name for name, _ in item.user_properties}
    info = get_matrix_run(item.config).get_info(cell.device_under_test)
    new_properties = {"pumice_precision": cell.precision}
    if info is not None:
        new_properties |= {"pumice_device": info.name, "pumice_driver": f"{info.driver} {info.driver_info}".strip()}
    item.user_properties.extend(
        (name, value) for name, value in sorted(new_properties.items()) if name not in existing_names
    )
    if records := get_findings(item).records:
        verdicts = [record["verdict"] for record in records]
        worst = next(verdict for verdict in ("wrong", "ill-conditioned", "unproved", "right") if verdict in verdicts)
        item.user_properties[:] = [pair for pair in item.user_properties if pair[0] != "pumice_verdict"]
        item.user_properties.append(("pumice_verdict", worst))
