"""PUMICE_LIMITS and PUMICE_WITHOUT: less capable devices for a whole process and its subprocesses."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pumice
from features import need_features
from pumice.device.tuning_store import get_device_model_name

FEATURE, SHARED, INVOCATIONS = (
    "shaderImageGatherExtended",
    "maxComputeSharedMemorySize",
    "maxComputeWorkGroupInvocations",
)
MIN_SHARED, MIN_INVOCATIONS = 16384, 128  # Vulkan's minimum, which every device and profile has


@pytest.fixture
def name(context: pumice.Context) -> str:
    return f"uuid:{context.info.uuid}"


@pytest.fixture(autouse=True)
def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start without the variables, also when the tests run with a profile."""
    monkeypatch.delenv("PUMICE_LIMITS", raising=False)
    monkeypatch.delenv("PUMICE_WITHOUT", raising=False)


def reduce(monkeypatch: pytest.MonkeyPatch, limits: str = "", without: str = "") -> None:
    monkeypatch.setenv("PUMICE_LIMITS", limits)
    monkeypatch.setenv("PUMICE_WITHOUT", without)


def test_every_device_and_context_is_reduced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = f" {SHARED} = {MIN_SHARED}, maxComputeWorkGroupCount=4096 , maxComputeWorkGroupCount_1=7"
    reduce(monkeypatch, limits, f"{FEATURE}, VK_KHR_maintenance1")
    with pumice.Context(name) as context:
        for info in (context.info, *pumice.devices()):
            assert info.limits[SHARED] == MIN_SHARED
            assert [info.limits[f"maxComputeWorkGroupCount_{axis}"] for axis in range(3)] == [4096, 7, 4096]
            assert not info.features[FEATURE]
            assert "VK_KHR_maintenance1" not in info.extensions
        assert pumice.device_macros(context)["ncnn_maxComputeWorkGroupCount_1"].rstrip("ul") == "7"


def test_the_variables_are_read_when_a_context_opens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pumice.Context(name) as whole:
        need_features(whole, FEATURE)
        assert whole.info.restrictions == ""
        reduce(monkeypatch, without=FEATURE)
        assert whole.feature(FEATURE)
        with pumice.Context(name) as lesser:
            assert not lesser.feature(FEATURE)
            assert lesser.info.restrictions == f"without {FEATURE}"


def test_arguments_restrict_further(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reduce(monkeypatch, f"{INVOCATIONS}={MIN_INVOCATIONS}", FEATURE)
    with pumice.Context(name, limits={INVOCATIONS: 64}, without=["shaderFloat64"]) as lesser:
        assert lesser.limit(INVOCATIONS) == 64
        assert not lesser.feature(FEATURE)
        assert not lesser.feature("shaderFloat64")
    with pytest.raises(
        pumice.UnsupportedError, match=rf"limits '{INVOCATIONS}': 256 .*reduced to .*{INVOCATIONS} is 128"
    ):
        pumice.Context(name, limits={INVOCATIONS: 256})


def test_staging_without_unified_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reduce(monkeypatch, without="unifiedMemory")
    x = np.arange(1000, dtype="float32")
    with pumice.Context(name) as lesser:
        tensor = pumice.tensor(x, lesser)
        assert not lesser.feature("unifiedMemory")
        assert not tensor.buffer.mapped
        np.testing.assert_array_equal(tensor.numpy(), x)


def test_subprocesses_inherit_the_device(name: str) -> None:
    program = (
        "import json, pumice\n"
        "from pumice import dv\n"
        f"with pumice.Context({name!r}) as context, dv.Context(context) as other:\n"
        f"    print(json.dumps([context.limit({SHARED!r}), context.feature({FEATURE!r})]))"
    )
    variables = {"PUMICE_LIMITS": f"{SHARED}={MIN_SHARED}", "PUMICE_WITHOUT": FEATURE}
    run = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **variables}, capture_output=True, text=True, check=True
    )
    assert json.loads(run.stdout) == [MIN_SHARED, False]


@pytest.mark.parametrize(
    ("limits", "without", "error", "message"),
    [
        ("maxComputeWorkGroupCounts=4", "", pumice.UnsupportedError, "PUMICE_LIMITS 'maxComputeWorkGroupCounts': not a limit"),
        ("maxStorageBufferRange=0", "", pumice.UnsupportedError, "PUMICE_LIMITS 'maxStorageBufferRange': 0 is below 1"),
        (f"{SHARED}={2**40}", "", pumice.UnsupportedError, f"PUMICE_LIMITS '{SHARED}': {2**40} is more than"),
        ("minStorageBufferOffsetAlignment=48", "", pumice.UnsupportedError, "PUMICE_LIMITS .*48 is not a power of two"),
        (SHARED, "", pumice.DeviceError, f"PUMICE_LIMITS: expected NAME=INTEGER.*given '{SHARED}'"),
        (f"{SHARED}=16k", "", pumice.DeviceError, "PUMICE_LIMITS: expected NAME=INTEGER.*16k"),
        (f"{SHARED}={2**70}", "", pumice.DeviceError, "PUMICE_LIMITS: expected NAME=INTEGER"),
        (f"{SHARED}=16384,,", "", pumice.DeviceError, "PUMICE_LIMITS: expected names separated by commas"),
        (f"{SHARED}=16384,", "", pumice.DeviceError, "PUMICE_LIMITS: nothing follows the last comma"),
        (f"{SHARED}=16384,{SHARED}=8192", "", pumice.DeviceError, f"PUMICE_LIMITS: '{SHARED}' occurs twice"),
        ("", "shaderInt46", pumice.UnsupportedError, "PUMICE_WITHOUT 'shaderInt46': not a feature"),
        ("", "timelineSemaphore", pumice.UnsupportedError, "PUMICE_WITHOUT 'timelineSemaphore': the engine needs it"),
        ("", f"{FEATURE} {FEATURE}", pumice.UnsupportedError, "PUMICE_WITHOUT '.* .*': not a feature"),
        ("", f"{FEATURE},{FEATURE}", pumice.DeviceError, f"PUMICE_WITHOUT: '{FEATURE}' occurs twice"),
        ("", ",", pumice.DeviceError, "PUMICE_WITHOUT: expected names separated by commas"),
    ],
)  # fmt: skip
def test_wrong_values_are_rejected_by_the_variable(
    name: str, limits: str, without: str, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reduce(monkeypatch, limits, without)
    with pytest.raises(error, match=message):
        pumice.Context(name)
    with pytest.raises(error, match=message):
        pumice.devices()


def test_measurements_of_a_reduced_device_have_their_own_keys(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def model() -> str:
        with pumice.Context(name) as context:
            assert pickle.loads(pickle.dumps(context.info)) == context.info
            return get_device_model_name(context.info)

    models = {model()}
    reduce(monkeypatch, limits=f"{SHARED}={MIN_SHARED}")
    models.add(model())
    reduce(monkeypatch, without=FEATURE)
    models.add(model())
    reduce(monkeypatch)
    assert model() in models
    assert len(models) == 3


def test_the_driver_trial_of_a_reduced_device_has_its_own_entry(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PUMICE_NO_CACHE", raising=False)
    monkeypatch.setenv("PUMICE_CACHE_DIR", str(tmp_path))

    def count() -> int:
        with pumice.Context(name) as context:
            assert isinstance(context.driver_quirks, list)
        return sum(path.is_file() for path in (tmp_path / "pumice" / "trials").rglob("*"))

    assert [count(), count()] == [2, 2]  # of features, and of rounding
    reduce(monkeypatch, without="storageBuffer8BitAccess")
    assert [count(), count()] == [4, 4]
