"""The dev script and its messages on machines with missing tools."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEV = ROOT / "dev"
TOOLS = ["sh", "dirname", "cat", "head", "grep", "sed", "find", "sort", "tr", "xargs", "cksum", "rm", "mkdir"]


def run(*command: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=120)


def test_help_lists_every_command(tmp_path: Path) -> None:
    shown = run(str(DEV), "help", cwd=tmp_path)
    assert shown.returncode == 0
    cases = DEV.read_text().rpartition("case $command in")[2]
    commands = {
        name for line in re.findall(r"^ +([a-z |]+(?:-[a-z]+)?)\) ", cases, re.MULTILINE) for name in line.split(" | ")
    }
    assert commands == {*re.findall(r"^\./dev ([\w-]+)", shown.stdout, re.MULTILINE)}


def test_unknown_command_is_rejected() -> None:
    refused = run(str(DEV), "frobnicate")
    assert refused.returncode == 1
    assert "no such command: frobnicate" in refused.stderr


def test_a_profile_needs_a_name() -> None:
    refused = run(str(DEV), "test", "--profile")
    assert refused.returncode == 1
    assert "--profile needs the name of a profile, or all" in refused.stderr


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A checkout on a machine with Python but no compiler, as a non-root user without sudo."""
    shutil.copy(DEV, tmp_path / "dev")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found, name
        (tools / name).symlink_to(found)
    script(tools / "python3", f'exec {sys.executable} "$@"')
    script(tools / "id", "echo 1000")
    return tmp_path


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def set_up(machine: Path) -> subprocess.CompletedProcess[str]:
    return run("sh", str(machine / "dev"), "demo", cwd=machine, PATH=str(machine / "bin"), HOME=str(machine), CXX="")


def test_without_rights_the_exact_line_is_printed(bare: Path) -> None:
    script(bare / "bin" / "apt-get", "echo must not run; exit 9")
    refused = set_up(bare)
    assert refused.returncode == 1
    assert re.search(
        r"as root run: .*apt-get install -y --no-install-recommends (.* )?g\+\+ .*libvulkan-dev", refused.stderr
    )
    assert "must not run" not in refused.stdout
    assert not (bare / ".venv").exists()


def test_without_apt_what_is_missing_is_named(bare: Path) -> None:
    refused = set_up(bare)
    assert refused.returncode == 1
    assert "no apt-get" in refused.stderr
    assert "g++" in refused.stderr


def test_a_failing_installation_stops_with_its_command(bare: Path) -> None:
    script(bare / "bin" / "id", "echo 0")
    script(bare / "bin" / "apt-get", "echo no network >&2; exit 100")
    refused = set_up(bare)
    assert refused.returncode == 1
    assert "no network" in refused.stderr
    assert "this failed: apt-get install" in refused.stderr
