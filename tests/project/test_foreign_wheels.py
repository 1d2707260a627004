"""Wheels for another architecture: obtaining its Python and lavapipe, and the errors if they are unavailable."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

import pumice
from wheels import __main__ as builder
from wheels import audit, foreign
from wheels.build import Target
from wheels.interpreters import Interpreter

WHEEL = Path("pumice-0.1.0-cp311-cp311-manylinux_2_28_aarch64.whl")
PYTHON = Interpreter("3.11", Path("python3.11"), Path("include"))


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target("aarch64", tmp_path, "x86_64")


def chosen(*, no_check: bool = False) -> argparse.Namespace:
    return argparse.Namespace(no_check=no_check)


def test_a_wheel_that_cannot_be_run_is_said_to_be_so(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    said = builder.checked(WHEEL, target, PYTHON, chosen())
    assert said == f"{WHEEL.name} was not run: no apt-get here, which brings the other architecture's packages and qemu"
    assert builder.checked(WHEEL, target, PYTHON, chosen(no_check=True)) == f"{WHEEL.name} was not run: --no-check"


def test_a_wheel_that_fails_under_emulation_fails_the_build(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> str:
        raise audit.Failed("this failed: an import")

    monkeypatch.setattr(foreign, "check", failing)
    with pytest.raises(audit.Failed, match="an import"):
        builder.checked(WHEEL, target, PYTHON, chosen())


def test_packages_of_another_architecture_have_lists_and_a_state_of_their_own(tmp_path: Path) -> None:
    """apt-get must not change this machine."""
    options = foreign.apt_options("arm64", tmp_path)
    assert {*options[::2]} == {"-o"}
    settings = dict(text.split("=", 1) for text in options[1::2])
    assert settings["APT::Architectures"] == settings["APT::Architecture"] == "arm64"
    for name in ("Dir::State::Lists", "Dir::State::status", "Dir::Cache::archives"):
        assert settings[name].startswith(str(tmp_path))
    assert (tmp_path / "status").read_text() == ""


def test_packages_are_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools, calls = tmp_path / "bin", tmp_path / "calls"
    tools.mkdir()
    for name in ("apt-get", "dpkg-deb"):
        (tools / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {calls}\n')
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    folder = tmp_path / "system"
    (folder / "archives").mkdir(parents=True)
    (folder / "archives" / "one.deb").touch()
    for _ in range(2):
        assert foreign.unpacked(("python3.11", "libvulkan1"), "arm64", folder) == folder / "root"
    update, install, unpack = calls.read_text().splitlines()
    assert update.endswith("update")
    assert install.endswith("--download-only install python3.11 libvulkan1")
    assert unpack == f"dpkg-deb -x {folder / 'archives' / 'one.deb'} {folder / 'root'}"


def test_what_is_emulated_runs_here_too(tmp_path: Path) -> None:
    """On this machine's own architecture and driver."""
    environment = {"PYTHONPATH": str(Path(pumice.__file__).parents[1])}
    said = foreign.run(sys.executable, "-c", foreign.CALL, environment=environment)
    assert "of 16 images right and a kernel compiled on" in said
    with pytest.raises(audit.Failed, match="this failed"):
        foreign.run(sys.executable, "-c", "raise SystemExit(3)")


def test_a_program_that_does_not_end_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "SECONDS", 0.01)
    with pytest.raises(audit.Failed, match="this took over"):
        foreign.run("sleep", "5")
