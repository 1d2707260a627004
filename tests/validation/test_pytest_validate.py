"""Validation in tests: the fixture, the HTML page, recorded properties, leaks, expectations."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest

import pumice
from onnx_models import model, node
from plugin_project import VALIDATE, PluginProject
from pumice.plugin import expected_outcomes
from pumice.plugin.matrix_cells import shorten_device_name

OVERFLOW = """
import numpy as np

def test_overflow(pumice_validate):
    pumice_validate("large.onnx", [np.float32([[300.0, 1.0, 2.0, 3.0]])])
"""
STATES = """
import pytest

def test_wrong(pumice_context):
    assert False, "as ever"

def test_right(pumice_context):
    pass

def test_sometimes(pumice_precision):
    assert pumice_precision == "fp32"
"""
LEAK = """
import numpy as np
import pytest
import pumice

kept = []

def test_clean(pumice_context):
    pumice.tensor(np.ones(1000, "float32"))

@pytest.fixture
def held(pumice_context):
    return pumice.tensor(np.ones(10, "float32"))

def test_of_a_fixture(held):
    assert held.shape == (10,)

@pytest.mark.pumice_leaks
def test_leak(pumice_context):
    kept.append(pumice.tensor(np.ones(1000, "float32")))
"""


def large_project(project: PluginProject) -> None:
    """Return a project with two MatMuls; the tensor between them exceeds fp16's range."""
    weights = {"up": np.full((4, 4), 300, "float32"), "down": np.full((4, 4), 1 / 300, "float32")}
    nodes = [node("MatMul", ["x", "up"], ["large"]), node("MatMul", ["large", "down"])]
    project.model("large.onnx", model(nodes, constants=weights))
    project.write("test_it.py", OVERFLOW)


def test_a_test_validates_in_its_cell(plugin_project: PluginProject, context: pumice.Context) -> None:
    plugin_project.model()
    plugin_project.write("test_it.py", VALIDATE)
    result = plugin_project.run("--pumice-precision=fp32,fp16", f"--pumice-device=uuid:{context.info.uuid}")
    result.assert_outcomes(passed=2)
    label = shorten_device_name(context.info.name)
    result.stdout.fnmatch_lines([f"{label}-{one}: 1 passed; validations: 1 right" for one in ("fp32", "fp16")])


@pytest.mark.parametrize("isolated", [False, True])
def test_what_is_not_proved_right_fails(plugin_project: PluginProject, isolated: bool) -> None:
    large_project(plugin_project)
    arguments = ["--pumice-precision=fp32,fp16", *(["--pumice-isolate"] if isolated else [])]
    result = plugin_project.run(*arguments)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*ValidationError:*wrong*", "default-fp16: 1 failed; validations: 1 wrong"])
    found = plugin_project.properties(*arguments)
    assert {name: one["pumice_verdict"] for name, one in found.items()} == {
        "test_overflow[default-fp32]": "right",
        "test_overflow[default-fp16]": "wrong",
    }


def test_the_cell_is_not_an_option(plugin_project: PluginProject) -> None:
    plugin_project.model()
    plugin_project.write("test_it.py", VALIDATE.replace("[(X,)]", "[(X,)], precision='fp16'"))
    result = plugin_project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*pumice_validate: precision: it is set by the cell*"])


@pytest.mark.skipif(importlib.util.find_spec("pumice.validation.report.html_page") is None, reason="there are no pages")
@pytest.mark.parametrize("isolated", [False, True])
def test_a_page_shows_all_cells(plugin_project: PluginProject, isolated: bool) -> None:
    large_project(plugin_project)
    arguments = ["--pumice-precision=fp32,fp16", *(["--pumice-isolate"] if isolated else [])]
    result = plugin_project.run("--pumice-report=out/page.html", *arguments)
    result.stdout.fnmatch_lines(["page of 2 validations: *page.html"])
    page = (plugin_project.path / "out" / "page.html").read_text()
    assert "fp16 overflow" in page
    assert page.lower().startswith("<!doctype html>")
    assert [path.name for path in (plugin_project.path / "out").iterdir()] == ["page.html"]


def test_a_run_without_validations_has_no_page(plugin_project: PluginProject) -> None:
    plugin_project.write("test_it.py", STATES)
    result = plugin_project.run("--pumice-report=page.html")
    result.stdout.fnmatch_lines(["no page *page.html: the run has no validation"])
    assert not (plugin_project.path / "page.html").exists()


def test_a_file_that_cannot_be_written_is_an_error(plugin_project: PluginProject) -> None:
    plugin_project.model()
    plugin_project.write("test_it.py", VALIDATE)
    plugin_project.write("golden", "a file, no folder")
    result = plugin_project.run("--pumice-update", "--pumice-baseline=golden")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["error: *golden*"])


# ---- leaks


def test_leaks_fail_on_request(plugin_project: PluginProject) -> None:
    plugin_project.write("test_it.py", LEAK)
    result = plugin_project.run()
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*LeakError: device memory is left allocated*buffers: 0 before the test, 1 after it*"])
    plugin_project.write("test_it.py", LEAK.replace("@pytest.mark.pumice_leaks\n", ""))
    plugin_project.run().assert_outcomes(passed=3)
    plugin_project.run("--pumice-leaks").assert_outcomes(passed=2, failed=1)


# ---- expectations


def expect(project: PluginProject, *entries: dict[str, str], name: str = "expect.json") -> str:
    project.write(name, json.dumps({"expectations": entries}))
    return f"--pumice-expectations={name}"


def test_states_are_expected_by_driver(plugin_project: PluginProject, context: pumice.Context) -> None:
    plugin_project.write("test_it.py", STATES)
    given = expect(
        plugin_project,
        {"test": "test_wrong", "expect": "fail", "driver": context.info.driver, "reason": "ticket 7"},
        {"test": "test_it.py::test_right", "expect": "fail", "driver": "*", "reason": "ticket 8"},
        {"test": "test_some*", "expect": "flaky", "precision": "fp16", "reason": "ticket 9"},
        {"test": "*", "expect": "fail", "driver": "another one"},
    )
    device = f"--pumice-device=uuid:{context.info.uuid}"
    result = plugin_project.run("-v", device, "--pumice-precision=fp32,fp16", given)
    assert result.ret == 0
    result.assert_outcomes(passed=1, xfailed=2, xpassed=2)
    text = result.stdout.str()
    for line in (
        "FLAKY",
        "expected to fail, but passed: test_it.py::test_right",
        "flaky, failed this time: test_it.py::test_some",
        "1 flaky",
    ):
        assert line in text
    found = plugin_project.properties(device, "--pumice-precision=fp16", given)
    assert {name: one["pumice_expectation"] for name, one in found.items()} == {
        "test_wrong": "xfailed",
        "test_right": "xpassed",
        "test_sometimes": "flaky failed",
    }


def test_a_flaky_test_that_passes_is_reported(plugin_project: PluginProject) -> None:
    plugin_project.write("test_it.py", STATES)
    given = expect(plugin_project, {"test": "test_right", "expect": "flaky"})
    result = plugin_project.run(given)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["flaky, passed this time: test_it.py::test_right: *expect.json', entry 1"])


def test_a_passing_failure_fails_where_pytest_is_strict(plugin_project: PluginProject) -> None:
    plugin_project.write("test_it.py", STATES)
    given = expect(plugin_project, {"test": "test_right", "expect": "fail"})
    result = plugin_project.run("-o", "xfail_strict=true", given)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*XPASS(strict)*"])


@pytest.mark.slow
def test_a_crash_can_be_expected(plugin_project: PluginProject, context: pumice.Context) -> None:
    plugin_project.write("test_it.py", "import os\ndef test_crash(pumice_context):\n    os.abort()\n")
    given = expect(plugin_project, {"test": "test_crash", "expect": "fail", "driver": context.info.driver})
    device = f"--pumice-device=uuid:{context.info.uuid}"
    plugin_project.run("--pumice-isolate", device, given).assert_outcomes(xfailed=1)
    marked = 'import pytest\n@pytest.mark.pumice_expect("fail")\n'
    plugin_project.write("test_it.py", f"import os\n{marked}def test_crash(pumice_context):\n    os.abort()\n")
    plugin_project.run("--pumice-isolate", device).assert_outcomes(xfailed=1)


def test_markers_expect_too_and_the_file_decides(plugin_project: PluginProject) -> None:
    plugin_project.write(
        "test_it.py",
        """
import pytest

@pytest.mark.pumice_expect("fail", version="*", reason="known")
def test_one(pumice_context):
    assert False

@pytest.mark.pumice_expect("fails")
def test_two(pumice_context):
    pass
""",
    )
    plugin_project.run().assert_outcomes(xfailed=1, errors=1)
    given = expect(plugin_project, {"test": "test_one", "expect": "pass"})
    result = plugin_project.run(given)
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(["*expect: expected one of pass, fail, flaky, given 'fails'*"])


@pytest.mark.slow
def test_expectations_of_no_test_are_reported(plugin_project: PluginProject) -> None:
    plugin_project.write("test_it.py", STATES)
    given = expect(plugin_project, {"test": "test_wrong", "expect": "fail"}, {"test": "test_wrnog", "expect": "fail"})
    result = plugin_project.run(given)
    result.stdout.fnmatch_lines(["no test is named 'test_wrnog': expectations *expect.json', entry 2"])
    plugin_project.run(given, "test_it.py").stdout.no_fnmatch_line("no test is named*")


def test_the_configuration_names_the_file(plugin_project: PluginProject) -> None:
    plugin_project.write("tests/test_it.py", STATES)
    plugin_project.write("known.toml", '[[expectations]]\ntest = "test_wrong"\nexpect = "fail"\n')
    plugin_project.pytester.makeini("[pytest]\npumice_expectations = known.toml\n")
    plugin_project.run("tests").assert_outcomes(passed=2, xfailed=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting property name"),
        ("[]", "expected one list named 'expectations'"),
        ('{"expectations": [{"test": "a"}]}', "entry 1: expected the key 'expect'"),
        ('{"expectations": [{"test": "a", "expect": "never"}]}', "expected one of pass, fail, flaky, given 'never'"),
        ('{"expectations": [{"test": "a", "expect": "fail", "gpu": "b"}]}', "given 'gpu'"),
        ('{"expectations": [{"test": "a", "expect": "fail", "version": ">=x"}]}', "version: expected comparisons"),
        ('{"expectations": [{"test": "a", "expect": 3}]}', "expected a table of strings"),
    ],
)
def test_a_file_that_says_something_else_is_rejected(plugin_project: PluginProject, text: str, message: str) -> None:
    with pytest.raises(pytest.UsageError, match=message):
        expected_outcomes.read_expected_outcomes(plugin_project.write("expect.json", text))
    with pytest.raises(pytest.UsageError, match="No such file"):
        expected_outcomes.read_expected_outcomes(plugin_project.path / "missing.json")


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ("*", True),
        ("mesa 22.3*", True),
        ("Mesa 23*", False),
        (">=22.3", True),
        (">=22.3, <22.4", True),
        ("<22.3.6", False),
        ("<=22.3.6", True),
        (">22.10", False),
        ("==22.3.6.0", True),
        ("!=22.3.6", False),
    ],
)
def test_versions_are_patterns_or_comparisons(wanted: str, fits: bool) -> None:
    class Info:
        driver_info = "Mesa 22.3.6 (LLVM 15.0.6)"

    assert expected_outcomes.matches_version(Info(), wanted) is fits  # type: ignore[arg-type]
