"""Run each cell in its own process, with reports sent through a pipe: a crash ends only that cell, not the run."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from .matrix_cells import MatrixCell
from .outcome_hooks import add_junit_properties
from .run_state import get_cell

_OPTION = "--pumice-cell-process"
_TAIL_LINES = 40  # lines of a crashed process's output in the report
_POLL_SECONDS = (
    0.2  # interval of liveness checks; end of file is not enough, because other processes may keep the pipe open
)
_EXIT_TIMEOUT_SECONDS = 60.0  # seconds allowed for a process to exit after its tests

_START, _REPORT, _FINISH = "start", "report", "finish"


def is_cell_process(config: pytest.Config) -> bool:
    """Return whether this process runs the tests of one cell for another process."""
    return bool(config.getoption(_OPTION))


def register_isolation_plugin(config: pytest.Config) -> None:
    """Register the plugin that sends reports in a cell process, or the one that starts cell processes with --pumice-isolate."""
    if is_cell_process(config):
        config.pluginmanager.register(ReportSender(config), "pumice-sender")
    elif config.getoption("--pumice-isolate"):
        if getattr(config.option, "numprocesses", None):
            raise pytest.UsageError(
                "--pumice-isolate: expected one process, given xdist's -n, whose workers are separate processes"
            )
        config.pluginmanager.register(CellIsolation(), "pumice-isolation")


# ---- code that runs in a cell's process


class ReportSender:
    """Runs the requested tests in order, and sends all their reports."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        job = json.loads(Path(config.getoption(_OPTION)).read_text())
        self.tests: dict[str, int] = {test: index for index, test in enumerate(job["tests"])}
        os.set_inheritable(job["pipe"], False)
        self.pipe = os.fdopen(job["pipe"], "w", encoding="utf-8")
        config.option.xmlpath = None  # the main process writes the JUnit XML report

    def _send(self, kind: str, test: str, report: Any = None) -> None:
        self.pipe.write(json.dumps([kind, test, report], default=str) + "\n")
        self.pipe.flush()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep only the tests of the cell."""
        deselected = [item for item in items if item.nodeid not in self.tests]
        items[:] = sorted(
            (item for item in items if item.nodeid in self.tests), key=lambda item: self.tests[item.nodeid]
        )
        if deselected:
            config.hook.pytest_deselected(items=deselected)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Send the start of a test."""
        self._send(_START, nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send the report of a test phase."""
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self._send(_REPORT, report.nodeid, data)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Send the end of a test."""
        self._send(_FINISH, nodeid)


# ---- code that runs in the main process


def _build_arguments(config: pytest.Config, cell: MatrixCell, folder: Path) -> list[str]:
    """Return a cell process's arguments: this process's arguments, with separate cache and temporary folders."""
    extra_arguments = [f"--rootdir={config.rootpath}", f"{_OPTION}={folder / 'tests.json'}"]
    if config.pluginmanager.has_plugin("cacheprovider"):
        extra_arguments += ["-o", f"cache_dir={folder / 'cache'}"]
    if config.getoption("basetemp", None):
        base = config.invocation_params.dir / config.getoption("basetemp")
        base.mkdir(parents=True, exist_ok=True)
        extra_arguments.append(f"--basetemp={base / cell.label}")
    return [*map(str, config.invocation_params.args), *extra_arguments]


class CellProcess:
    """The process of one cell."""

    def __init__(self, config: pytest.Config, cell: MatrixCell, tests: list[str]) -> None:
        self.cell = cell
        self._tests = tests
        self.current_test = ""  # the last test that started
        self.exit_reason = ""  # how the process ended; "" while it runs
        self._folder = tempfile.TemporaryDirectory(prefix="pumice-cell-")
        folder = Path(self._folder.name)
        self._pipe, write_fd = os.pipe()
        (folder / "tests.json").write_text(json.dumps({"pipe": write_fd, "tests": tests}))
        self._output_path = folder / "said.txt"
        command = [sys.executable, "-m", "pytest", *_build_arguments(config, cell, folder)]
        inherits_output = config.getoption("capture") == "no"
        with open(self._output_path, "wb") as output_file:
            self._process = subprocess.Popen(
                command,
                cwd=config.invocation_params.dir,
                pass_fds=[write_fd],
                stdin=subprocess.DEVNULL,
                stdout=None if inherits_output else output_file,
                stderr=None if inherits_output else output_file,
            )
        os.close(write_fd)
        self._pending = b""
        self._events: dict[str, list[Any]] = {}
        self._finished: set[str] = set()

    def wait_for_reports(self, test: str) -> list[Any]:
        """Wait until a test or the process ends, and return the test's reports."""
        while test not in self._finished and not self.exit_reason:
            self._read_events()
        return self._events.pop(test, [])

    def is_finished(self, test: str) -> bool:
        """Return whether the test finished before the process ended."""
        return test in self._finished

    def _read_events(self) -> None:
        ready, _, _ = select.select([self._pipe], [], [], _POLL_SECONDS)
        if not ready and self._process.poll() is None:
            return
        data = os.read(self._pipe, 1 << 16) if ready else b""
        if not data:
            self.exit_reason = self._wait_and_describe_exit()
            return
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            kind, test, report = json.loads(line)
            if kind == _START:
                self.current_test = test
            elif kind == _REPORT:
                self._events.setdefault(test, []).append(report)
            else:
                self._finished.add(test)

    def _wait_and_describe_exit(self) -> str:
        code = self._process.wait()
        with contextlib.suppress(ValueError):
            if code < 0:
                return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit status {code}"

    @property
    def output_tail(self) -> str:
        """The end of the process's output."""
        return "\n".join(self._output_path.read_text(errors="replace").splitlines()[-_TAIL_LINES:])

    def finish(self) -> None:
        """Wait for a process that has run all its tests, kill any other, and remove its files. Idempotent."""
        if self._pipe < 0:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._finished.issuperset(self._tests):
                self._process.wait(_EXIT_TIMEOUT_SECONDS)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._pipe)
        self._pipe = -1
        self._folder.cleanup()


class CellIsolation:
    """Runs the tests of each cell in a separate process, and relays their reports."""

    def __init__(self) -> None:
        self.process: CellProcess | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Run a test in the process of its cell."""
        cell = get_cell(item)
        if cell is None:
            return None
        process = self._get_cell_process(item, cell)
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for data in process.wait_for_reports(item.nodeid):
            item.ihook.pytest_runtest_logreport(report=_restore_report(item.config, data))
        if not process.is_finished(item.nodeid):
            for report in _make_crash_reports(item, process):
                item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _get_cell_process(self, item: pytest.Item, cell: MatrixCell) -> CellProcess:
        if self.process is None or self.process.cell is not cell:
            if self.process is not None:
                self.process.finish()
            tests = [session_item.nodeid for session_item in item.session.items if get_cell(session_item) is cell]
            self.process = CellProcess(item.config, cell, tests)
        return self.process

    def pytest_sessionfinish(self) -> None:
        """Stop the process at the end of the session."""
        if self.process is not None:
            self.process.finish()


def _restore_report(config: pytest.Config, data: dict[str, Any]) -> pytest.TestReport:
    """Restore a report from JSON, and convert the lists of skip reasons, locations and properties back to tuples."""
    report: pytest.TestReport = config.hook.pytest_report_from_serializable(config=config, data=data)
    if isinstance(report.longrepr, list):
        path, line, reason = report.longrepr
        report.longrepr = (path, line, reason)
    path, line, name = report.location
    report.location = (path, line, name)
    report.user_properties = [(name, value) for name, value in report.user_properties]
    report.sections = [(name, text) for name, text in report.sections]
    return report


def _make_crash_reports(item: pytest.Item, process: CellProcess) -> list[pytest.TestReport]:
    """Return failure reports for the test during which the process died, and for each test that did not run."""
    label = process.cell.label
    if process.current_test == item.nodeid:
        text = f"the process of {label} {process.exit_reason} during this test\n{process.output_tail}"
    elif process.current_test:
        text = f"not run: the process of {label} {process.exit_reason} in {process.current_test}"
    else:
        text = f"not run: the process of {label} {process.exit_reason} before its first test\n{process.output_tail}"
    add_junit_properties(item, process.cell)
    outcomes = item.config.pluginmanager.get_plugin("pumice-outcomes")
    crash_reports = []
    for when, outcome, longrepr_text in (("call", "failed", text), ("teardown", "passed", None)):
        report = pytest.TestReport(
            item.nodeid,
            item.location,
            dict.fromkeys(item.keywords, 1),
            outcome,  # type: ignore[arg-type]
            longrepr_text,
            when,  # type: ignore[arg-type]
            user_properties=item.user_properties,
        )
        if outcomes is not None:
            outcomes.attach_report_data(item, process.cell, report, None)
        crash_reports.append(report)
    return crash_reports
