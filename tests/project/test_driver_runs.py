"""`./dev test --drivers`: stored reports, resuming a run, and the summary table."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import drivers

KILLED = """
import os
import signal

def test_before():
    pass

def test_killed():
    if "MENDED" not in os.environ:
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> drivers.Driver:
    """A driver that runs the tests of KILLED."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_few.py").write_text(KILLED)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.setattr(drivers, "ROOT", tmp_path)
    monkeypatch.setattr(drivers, "FOLDER", tmp_path / "reports")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    return drivers.Driver(
        "A driver, of 4 lanes", Path(os.environ.get("VK_DRIVER_FILES", "")), {"PYTHONDONTWRITEBYTECODE": "1"}
    )


def test_a_killed_run_is_resumed(driver: drivers.Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    before, killed = ("tests.test_few", "test_before"), ("tests.test_few", "test_killed")
    assert drivers.run(driver, ["-n", "1"], is_rest=False) != 0
    assert drivers.outcome(driver.reports).results == {before: "passed"}
    with (driver.reports / "000.jsonl").open("a") as report:
        report.write('["tests.test_few", "test_ki')  # a line that the killed process did not finish
    monkeypatch.setenv("MENDED", "1")
    assert drivers.run(driver, [], is_rest=True) == 0
    assert drivers.outcome(driver.reports).results == {before: "passed", killed: "passed"}


def test_the_table_counts_what_did_not_run() -> None:
    results = {
        ("tests.a", "test_b"): "passed",
        ("tests.a", "test_c"): "failed",
        ("tests.a", "test_d"): "needs shaderInt64",
    }
    one = drivers.Outcome("A device", ("2026-01-02 abcdef0",), results)
    results[("tests.a", "test_deleted")] = "failed"  # the result of a deleted test
    tests = {*results, ("tests.a", "test_e")} - {("tests.a", "test_deleted")}
    text = drivers.section({"a driver": one}, tests, ["another: no package"])
    assert "| a driver | A device | 1 | 1 | 1 | 1 | 2026-01-02 abcdef0 |" in text
    assert "- 1 times: needs shaderInt64" in text
    assert "- another: no package" in text
    later = drivers.section({"a newer driver": one}, tests, [], drivers.page("# Drivers\n", text))
    assert later.index("| a newer driver |") < later.index(
        "| a driver | A device | 1 | 1 | 1 | 1 | 2026-01-02 abcdef0 |"
    )
    assert later.count("- 1 times: needs shaderInt64") == 2  # a driver without reports keeps its row and list
