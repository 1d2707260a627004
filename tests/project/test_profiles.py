"""The profiles of real devices, and `./dev test --profile`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pumice
from device_profiles import PROFILES, Profile, find_profiles, restrict
from features import reason_of_failure, reason_of_refusal

ROOT = Path(__file__).resolve().parents[2]


def test_a_profile_is_found_by_a_part_of_its_name() -> None:
    assert [profile.name for profile in find_profiles("pi-5")] == ["Raspberry Pi 5"]
    assert [profile.name for profile in find_profiles("intel hd")] == ["Intel HD 620"]
    assert find_profiles("all") == list(PROFILES)
    for name in ("", "-", "Voodoo"):
        with pytest.raises(ValueError, match="there are: all, Raspberry Pi 5, "):
            find_profiles(name)


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_a_profile_restricts_the_device_to_its_values(
    profile: Profile, context: pumice.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert profile.sources
    for variable in ("PUMICE_LIMITS", "PUMICE_WITHOUT"):
        monkeypatch.delenv(variable, raising=False)
    device = f"uuid:{context.info.uuid}"
    with pumice.Context(device) as whole:
        restriction = restrict(profile, whole.info)
        known = {*whole.info.features, *whole.info.extensions}
        assert not [name for name in profile.lacks if name not in known and not name.startswith("VK_")]
    for variable, value in restriction.variables.items():
        monkeypatch.setenv(variable, value)
    with pumice.Context(device) as lesser:
        assert not [name for name in profile.lacks if lesser.info.features.get(name) or name in lesser.info.extensions]
        for name, value in profile.limits.items():
            limit = lesser.info.limits.get(name, lesser.info.limits.get(f"{name}_0", 0))
            assert limit >= value if name.startswith("min") else limit <= value, name
        assert restrict(profile, lesser.info).variables == {"PUMICE_LIMITS": "", "PUMICE_WITHOUT": ""}


def refusal(kernel: str, quantity: str, limit: str, context: pumice.Context) -> str:
    value = context.limit(limit)
    return f"kernel '{kernel}' has {value + 1} {quantity}; '{context.info.name}' takes {value} ({limit})"


def test_a_refusal_is_the_devices_only_for_buffers_and_kernels_of_users(context: pumice.Context) -> None:
    buffers = refusal("gemv.comp", "storage buffers", "maxPerStageDescriptorStorageBuffers", context)
    mine = refusal("mine", "invocations per workgroup", "maxComputeWorkGroupInvocations", context)
    engine = refusal("gemv.comp", "bytes of shared memory", "maxComputeSharedMemorySize", context)
    for text in (buffers, mine, f"not supported (2):\n  {buffers}\n  {mine}"):
        assert reason_of_refusal(text, context).startswith("the device lacks ")
    for text in (engine, f"not supported (2):\n  {buffers}\n  {engine}", "not supported: another reason"):
        assert reason_of_refusal(text, context) == ""
    with pumice.Context(f"uuid:{context.info.uuid}", limits={"maxPerStageDescriptorStorageBuffers": 2}) as lesser:
        assert (
            reason_of_refusal(
                refusal("mine", "storage buffers", "maxPerStageDescriptorStorageBuffers", lesser), context
            )
            == ""
        )


def test_a_refusal_is_found_behind_the_failure_of_an_assertion(context: pumice.Context) -> None:
    text = refusal("gemv.comp", "storage buffers", "maxPerStageDescriptorStorageBuffers", context)
    with pytest.raises(AssertionError) as raised, pytest.raises(pumice.UnsupportedError, match="another message"):
        raise pumice.UnsupportedError(text)
    assert reason_of_failure(raised.value, context) == reason_of_refusal(text, context) != ""
    assert reason_of_failure(AssertionError(text), context) == ""


def test_the_page_lists_every_profile() -> None:
    page = (ROOT / "docs" / "drivers.md").read_text()
    assert not [profile.name for profile in PROFILES if f"| {profile.name} |" not in page]


def test_an_unknown_profile_is_rejected() -> None:
    path = os.pathsep.join([str(ROOT / "tests"), str(ROOT / "tests" / "support"), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "profiles.py"), "--profile", "Voodoo"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert "no profile 'Voodoo'; there are: all, Raspberry Pi 5" in run.stderr
