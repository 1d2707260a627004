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


class Project:
    """A folder with tests, separate from pumice's own."""

    def __init__(self, folder: Path, plugin_arguments: list[str]) -> None:
        self.folder = folder
        self.command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-s", *plugin_arguments]
        self.write("pytest.ini", "[pytest]\n")
        self.write("test_it.py", TEST)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def run(self, *arguments: str) -> str:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "PUMICE_DEVICE"))}
        done = subprocess.run(
            [*self.command, *arguments], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path, plugin_arguments: list[str]) -> Project:
    return Project(tmp_path, plugin_arguments)


def software(info: pumice.DeviceInfo) -> str:
    return "SOFTWARE DRIVER: not a GPU" if info.kind == "software" else info.kind


def test_fixtures_and_a_line_that_names_the_device(project: Project, context: pumice.Context) -> None:
    text = project.run("--pumice-device", f"uuid:{context.info.uuid}")
    assert "1 passed" in text
    assert f"uuid {context.info.uuid} precision fp32" in text
    assert f"{context.info.name} ({software(context.info)}), fp32" in text
    assert text.index(context.info.name) < text.index("collected")


def test_the_line_comes_without_options_too(project: Project) -> None:
    text = project.run()
    assert "1 passed" in text
    assert text.count(f"pumice {pumice.__version__}: ") == 1


def test_a_conftest_that_imports_pumice_gives_a_header(project: Project) -> None:
    project.write("conftest.py", "import pumice\n")
    text = project.run()
    assert text.index(f"pumice {pumice.__version__}: ") < text.index("collected")
    assert text.count(f"pumice {pumice.__version__}: ") == 1


def test_the_precision_is_an_option(project: Project) -> None:
    assert "precision fp16" in project.run("--pumice-precision", "fp16")
    assert "invalid choice" in project.run("--pumice-precision", "fp8")


def test_an_unknown_device_is_an_error_not_a_skip(project: Project) -> None:
    text = project.run("--pumice-device", "no such device")
    assert "1 error" in text
    assert "no Vulkan device matches 'no such device'" in text


def test_unrelated_projects_see_nothing(project: Project) -> None:
    project.write("test_it.py", UNRELATED)
    text = project.run()
    assert "1 passed" in text
    assert f"pumice {pumice.__version__}: " not in text
