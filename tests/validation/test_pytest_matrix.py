"""The matrix of devices and precisions, with and without a separate process per cell."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pumice
from plugin_project import VALIDATE, PluginProject
from pumice.plugin.matrix_cells import make_cells, select_devices, shorten_device_name

TESTS = """
import os
import pumice

def test_cell(pumice_context, pumice_precision):
    assert pumice.default_context() is pumice_context
    print("runs at", pumice_precision, "in", os.getpid())

def test_plain():
    pass

class TestMore:
    def test_device(self, pumice_device):
        assert pumice_device == pumice.default_context().info
"""
DEVICES = """
import os
import numpy as np
import pytest
import pumice

@pytest.fixture(scope="session")
def held(pumice_context):
    return pumice.tensor(np.ones(4, "float32"))

def test_place(pumice_device, pumice_precision, held):
    assert held.context is pumice.default_context()
    print(f"runs on {pumice_device.index} at {pumice_precision}")

def test_context(pumice_context):
    assert pumice_context is pumice.default_context() and os.environ["PUMICE_DEVICE"] == str(pumice_context.info.index)
    print(f"context {id(pumice_context)}{os.getpid()}")
"""
CRASH = """
import os
import signal

def test_before(pumice_context):
    pass

def test_crash(pumice_precision):
    if pumice_precision == "fp16":
        os.kill(os.getpid(), signal.SIGSEGV)

def test_behind(pumice_context):
    pass

def test_plain():
    pass
"""
LOST = """
import pumice

def test_lost(pumice_context, pumice_precision):
    if pumice_precision == "fp16":
        raise pumice.DeviceLostError("the device is gone")

def test_behind(pumice_context):
    assert not pumice_context.closed
"""


def info(index: int, name: str, kind: str) -> Any:
    return SimpleNamespace(index=index, name=name, kind=kind, uuid=f"{index:032x}", pci=f"0000:0{index}:00.0")


GPU, SECOND, SOFTWARE = (
    info(0, "NVIDIA H200", "discrete"),
    info(1, "NVIDIA H200", "discrete"),
    info(2, "llvmpipe (LLVM 15)", "software"),
)
HOST = [GPU, SECOND, SOFTWARE]


def named(asked: str, infos: Sequence[Any] = HOST, software: bool = False) -> list[int]:
    return [place.info.index for place in select_devices(asked, software, infos) if place.info]


@pytest.mark.parametrize(
    ("asked", "software", "found"),
    [
        ("all", False, [0, 1]),
        ("all", True, [0, 1, 2]),
        ("1", False, [1]),
        ("nvidia", False, [0]),
        ("software", False, [2]),
        ("llvmpipe,0", False, [2, 0]),
        ("0,nvidia,pci:0000:00:00.0", False, [0]),
        (f"uuid:{SECOND.uuid}", False, [1]),
        ("discrete", True, [0]),
    ],
)
def test_a_name_means_what_it_means_to_a_context(asked: str, software: bool, found: list[int]) -> None:
    assert named(asked, software=software) == found


@pytest.mark.parametrize("asked", ["all", "discrete", "integrated"])
def test_a_software_driver_has_to_be_allowed_where_a_gpu_was_asked_for(asked: str) -> None:
    with pytest.raises(pytest.UsageError, match="--pumice-allow-software"):
        select_devices(asked, False, [SOFTWARE])
    assert named(asked, [SOFTWARE], software=True) == [2]
    with pytest.raises(pytest.UsageError, match="there is no Vulkan device"):
        select_devices(asked, True, [])


def test_labels_name_devices_and_tell_equal_ones_apart() -> None:
    labels = [cell.label for cell in make_cells(select_devices("all", True, HOST), ["fp32", "fp16"])]
    assert labels[:3] == ["NVIDIA_H200.0-fp32", "NVIDIA_H200.0-fp16", "NVIDIA_H200.1-fp32"]
    assert labels[-1] == "llvmpipe-fp16"
    assert shorten_device_name("(odd)") == "device"


def test_tests_run_in_every_cell(plugin_project: PluginProject, context: pumice.Context) -> None:
    plugin_project.write("test_it.py", TESTS)
    label = shorten_device_name(context.info.name)
    result = plugin_project.run("-v", "-s", f"--pumice-device=uuid:{context.info.uuid}", "--pumice-precision=fp32,fp16")
    result.assert_outcomes(passed=5)
    result.stdout.fnmatch_lines([f"*{context.info.name}*, fp32, fp16*"])
    lines = [line.partition(" ")[0] for line in result.outlines if line.startswith("test_it.py::")]
    fp32, fp16 = f"[{label}-fp32]", f"[{label}-fp16]"
    names = [
        "test_plain",
        f"test_cell{fp32}",
        f"TestMore::test_device{fp32}",
        f"test_cell{fp16}",
        f"TestMore::test_device{fp16}",
    ]
    assert lines == [f"test_it.py::{name}" for name in names]
    assert "runs at fp16" in result.stdout.str()


def test_one_cell_keeps_the_ids(plugin_project: PluginProject) -> None:
    plugin_project.write("test_it.py", TESTS)
    result = plugin_project.run("-v", "--pumice-precision=fp16")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["test_it.py::test_cell PASSED*", "test_it.py::test_plain PASSED*"])


@pytest.fixture
def two_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """List the same driver twice: two devices with one UUID. A variable that lists UUIDs would leave one, so it is removed."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    file = os.environ.get("VK_DRIVER_FILES", "")
    if not file.endswith(".json") or os.pathsep in file or len(pumice.devices()) != 1:
        pytest.skip("VK_DRIVER_FILES does not name one driver")
    other = shutil.copy(file, tmp_path / "other.json")
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.setenv(name, f"{file}{os.pathsep}{other}")


@pytest.mark.usefixtures("two_drivers")
@pytest.mark.parametrize("more", [[], ["--pumice-isolate"]])
def test_devices_take_turns_as_the_default_one(plugin_project: PluginProject, more: list[str]) -> None:
    plugin_project.write("test_it.py", DEVICES)
    result = plugin_project.run(
        "-rA", "--pumice-device=all", "--pumice-allow-software", "--pumice-precision=fp32,fp16", *more
    )
    result.assert_outcomes(passed=8)
    text = result.stdout.str()
    assert [text.count(f"runs on {index} at {precision}") for index in (0, 1) for precision in ("fp32", "fp16")] == [
        1
    ] * 4
    assert len(set(re.findall(r"context (\d+)", text))) == (4 if more else 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pumice-precision=fp32,fp8"], "invalid choice: 'fp8'"),
        (["--pumice-precision=fp32,fp32"], "expected different comma-separated names"),
        (["--pumice-device=0,no such device"], "no Vulkan device matches 'no such device'"),
        (["--pumice-device=0,,1"], "expected comma-separated names"),
        (["--pumice-isolate", "-n2", "-p", "xdist"], "expected one process"),
    ],
)
def test_what_cannot_be_is_rejected(plugin_project: PluginProject, arguments: list[str], message: str) -> None:
    plugin_project.write("test_it.py", TESTS)
    result = plugin_project.run(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()


def test_the_table_of_options_is_complete(plugin_project: PluginProject) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "validation_ci.md").read_text()
    told = set(re.findall(r"^\| `(--pumice-[a-z-]+)", page, re.MULTILINE))
    assert set(re.findall(r"--pumice-[a-z-]+", plugin_project.run("--help").stdout.str())) == told
    marked = set(re.findall(r"^\| `(pumice_[a-z]+)", page, re.MULTILINE))
    assert set(re.findall(r"@pytest.mark.(pumice_[a-z]+)", plugin_project.run("--markers").stdout.str())) == marked


@pytest.mark.slow
def test_gpus_are_asked_for_in_vain(plugin_project: PluginProject) -> None:
    if any(device.kind != "software" for device in pumice.devices()):
        pytest.skip("the host has a GPU")
    plugin_project.write("test_it.py", TESTS)
    for asked in ("all", "discrete"):
        result = plugin_project.run("--pumice-device", asked)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert "--pumice-allow-software" in result.stderr.str()
    result = plugin_project.run("--pumice-device=discrete", "--pumice-allow-software")
    result.assert_outcomes(passed=3)
    assert "in place of a device of kind 'discrete'" in result.stdout.str()


def test_a_marker_names_the_cells_of_a_test(plugin_project: PluginProject) -> None:
    plugin_project.write(
        "test_it.py",
        """
import pytest

@pytest.mark.pumice_only(precision="fp16")
def test_one(pumice_context): pass

@pytest.mark.pumice_only(driver="no such driver")
def test_none(pumice_context): pass

@pytest.mark.pumice_only(planet="earth")
def test_wrong(pumice_context): pass
""",
    )
    result = plugin_project.run("--pumice-precision=fp32,fp16", "-rs", "--strict-markers")
    result.assert_outcomes(passed=1, skipped=3, errors=2)
    result.stdout.fnmatch_lines(["*expected patterns by the names*", "*for precision 'fp16' only, this is 'fp32'*"])


def test_isolated_cells_have_processes_of_their_own(plugin_project: PluginProject) -> None:
    plugin_project.write(
        "test_it.py", TESTS.replace("def test_plain():\n    pass", "def test_plain():\n    print('main', os.getpid())")
    )
    result = plugin_project.run("-rA", "--pumice-precision=fp32,fp16", "--pumice-isolate")
    result.assert_outcomes(passed=5)
    words = [line.split() for line in result.outlines]
    processes = {line[-1] for line in words if line[:2] == ["runs", "at"] or line[:1] == ["main"]}
    assert len(processes) == 3


SKIPS = """
import pytest

def test_skips(pumice_precision):
    pytest.skip("not today")

@pytest.mark.xfail(reason="known")
def test_fails(pumice_precision):
    assert False

@pytest.mark.pumice_only(precision="fp16")
def test_of_one_cell(pumice_precision):
    pass

def test_behind(pumice_precision):
    pass
"""


@pytest.mark.slow
def test_skips_of_isolated_cells_are_reported_as_any(plugin_project: PluginProject) -> None:
    plugin_project.write("test_it.py", SKIPS)
    result = plugin_project.run("-rsx", "--pumice-precision=fp32,fp16", "--pumice-isolate", "--junitxml=junit.xml")
    result.assert_outcomes(passed=3, skipped=3, xfailed=2)
    result.stdout.fnmatch_lines(["SKIPPED *test_it.py:5: not today", "XFAIL *test_fails* - known"])
    text = (plugin_project.path / "junit.xml").read_text()
    assert text.count("<testcase ") == 8 and text.count('message="not today"') == 2


@pytest.mark.slow
def test_a_crash_fails_its_cell_and_not_the_run(plugin_project: PluginProject) -> None:
    plugin_project.write("test_it.py", CRASH)
    result = plugin_project.run("-v", "--pumice-precision=fp16,fp32", "--pumice-isolate", "--junitxml=junit.xml")
    result.assert_outcomes(passed=5, failed=2)
    result.stdout.fnmatch_lines(
        [
            "test_it.py::test_before*fp16* PASSED*",
            "test_it.py::test_crash*fp16* FAILED*",
            "test_it.py::test_behind*fp16* FAILED*",
            "test_it.py::test_behind*fp32* PASSED*",
            "the process of *fp16 was ended by SIGSEGV during this test",
            "*Segmentation fault*",
            "not run: the process of *fp16 was ended by SIGSEGV in test_it.py::test_crash*",
        ]
    )
    assert (plugin_project.path / "junit.xml").read_text().count("<testcase ") == 7


def test_a_process_that_ends_before_its_tests_fails_them(plugin_project: PluginProject) -> None:
    plugin_project.write("test_it.py", TESTS)
    plugin_project.write(
        "conftest.py", "import os, sys\nif any('cell-process' in one for one in sys.argv):\n    os._exit(7)\n"
    )
    result = plugin_project.run("--pumice-isolate")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*ended with exit status 7 before its first test*"])


@pytest.mark.parametrize("isolated", [False, True])
def test_a_lost_device_fails_its_cell_and_not_the_run(plugin_project: PluginProject, isolated: bool) -> None:
    plugin_project.write("test_it.py", LOST)
    result = plugin_project.run("--pumice-precision=fp16,fp32", *(["--pumice-isolate"] if isolated else []))
    result.assert_outcomes(passed=2, failed=1, errors=1)
    result.stdout.fnmatch_lines(["*the device of *fp16 was lost in test_it.py::test_lost*"])


def test_the_run_stops_with_the_first_failure(plugin_project: PluginProject) -> None:
    plugin_project.write("test_it.py", CRASH)
    result = plugin_project.run("-x", "--pumice-precision=fp16,fp32", "--pumice-isolate")
    result.assert_outcomes(passed=2, failed=1)


@pytest.mark.slow
def test_no_process_outlives_an_interrupted_run(plugin_project: PluginProject) -> None:
    # A shell makes its background programs, and so their children, ignore SIGINT.
    handler = "import signal\n\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    plugin_project.write("conftest.py", handler)
    plugin_project.write(
        "test_it.py",
        """
import os, signal, time

def test_interrupted(pumice_context):
    open("process", "w").write(str(os.getpid()))
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(30)
""",
    )
    result = plugin_project.run("--pumice-isolate")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert result.duration < 20
    with pytest.raises(ProcessLookupError):
        os.kill(int((plugin_project.path / "process").read_text()), 0)


@pytest.mark.slow
def test_workers_of_xdist_run_cells(plugin_project: PluginProject) -> None:
    pytest.importorskip("xdist")
    plugin_project.model()
    plugin_project.write("test_it.py", VALIDATE)
    result = plugin_project.run("-p", "xdist", "-n2", "--pumice-precision=fp32,fp16")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["default-fp32: 1 passed; validations: 1 right"])


@pytest.mark.slow
def test_junit_names_device_driver_and_precision(plugin_project: PluginProject, context: pumice.Context) -> None:
    plugin_project.write("test_it.py", TESTS)
    for more in ([], ["--pumice-isolate"]):
        found = plugin_project.properties(f"--pumice-device=uuid:{context.info.uuid}", *more)
        assert found["test_plain"] == {}
        assert found["test_cell"] == {
            "pumice_device": context.info.name,
            "pumice_driver": f"{context.info.driver} {context.info.driver_info}".strip(),  # driver_info may be empty
            "pumice_precision": "fp32",
        }
