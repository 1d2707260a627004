"""The pytest plugin, as a project that uses pumice sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pumice

TEST = """
import pumice

def test_fixtures(pumice_context, pumice_device, pumice_precision):
    assert pumice_context is pumice.default_context()
    assert pumice_device.uuid == pumice_context.info.uuid
    print("uuid", pumice_device.uuid, "precision", pumice_precision)
"""
UNRELATED = "def test_nothing():\n    pass\n"


def run(folder: Path, *arguments: str, **environment: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-s", *_plugin(), *arguments]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PUMICE_DEVICE"))}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={**inherited, **environment}, check=False
    )
    return done.stdout + done.stderr


def _plugin() -> list[str]:
    """A development build has no entry point."""
    import importlib.metadata

    points = importlib.metadata.entry_points(group="pytest11")
    return [] if any(point.name == "pumice" for point in points) else ["-p", "pumice.pytest_plugin"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(TEST)
    return tmp_path


def software(info: pumice.DeviceInfo) -> str:
    return "SOFTWARE DRIVER: not a GPU" if info.kind == "software" else info.kind


def test_fixtures_and_a_line_that_names_the_device(project: Path, context: pumice.Context) -> None:
    text = run(project, "--pumice-device", f"uuid:{context.info.uuid}")
    assert "1 passed" in text
    assert f"uuid {context.info.uuid} precision fp32" in text
    assert f"{context.info.name} ({software(context.info)}), fp32" in text
    assert text.index(context.info.name) < text.index("collected")


def test_the_line_comes_without_options_too(project: Path) -> None:
    text = run(project)
    assert "1 passed" in text
    assert text.count(f"pumice {pumice.__version__}: ") == 1


def test_a_conftest_that_imports_pumice_gives_a_header(project: Path) -> None:
    (project / "conftest.py").write_text("import pumice\n")
    text = run(project)
    assert text.index(f"pumice {pumice.__version__}: ") < text.index("collected")
    assert text.count(f"pumice {pumice.__version__}: ") == 1


def test_the_precision_is_an_option(project: Path) -> None:
    assert "precision fp16" in run(project, "--pumice-precision", "fp16")
    assert "invalid choice" in run(project, "--pumice-precision", "fp8")


def test_an_unknown_device_is_an_error_not_a_skip(project: Path) -> None:
    text = run(project, "--pumice-device", "no such device")
    assert "1 error" in text
    assert "no Vulkan device matches 'no such device'" in text


def test_unrelated_projects_see_nothing(project: Path) -> None:
    (project / "test_it.py").write_text(UNRELATED)
    text = run(project)
    assert "1 passed" in text
    assert f"pumice {pumice.__version__}: " not in text
