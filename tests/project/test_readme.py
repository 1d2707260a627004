"""The README's code blocks run unmodified."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

import pumice.demo
from features import reason_of_refusal
from process import python

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^pumice .*", README, re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the blocks name."""
    shutil.copytree(pumice.text.EXAMPLE, tmp_path / "story")
    return Path(shutil.copytree(pumice.demo.DATA, tmp_path / "digits"))


def run(folder: Path, *arguments: str) -> str:
    done = python(*arguments, cwd=folder)
    if done.returncode and (reason := reason_of_refusal(done.stderr, pumice.default_context())):
        pytest.skip(reason)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_scripts_run_in_order(folder: Path) -> None:
    scripts = [block for block in BLOCKS if not block.startswith("# test_")]
    assert len(scripts) >= 3
    (folder / "readme.py").write_text("\n".join(scripts))
    assert "digits" in run(folder, "readme.py")


def test_tests_pass(folder: Path, plugin_arguments: list[str]) -> None:
    tests = [block for block in BLOCKS if block.startswith("# test_")]
    assert tests
    for block in tests:
        (folder / block.split()[1]).write_text(block)
    shown = run(folder, "-m", "pytest", *plugin_arguments, "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    assert f"{len(tests)} passed" in shown


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[1])
def test_command_runs(folder: Path, command: str) -> None:
    assert run(folder, "-m", *shlex.split(command, comments=True))


def test_there_is_an_example_of_every_command() -> None:
    assert [command.split()[1] for command in COMMANDS] == ["info", "run", "validate", "bench", "generate", "operators"]


def test_kernel_is_the_demos() -> None:
    assert pumice.demo.KERNEL in README


def test_package_list_is_the_dev_scripts() -> None:
    line = re.search(r"^apt-get install (.*)$", README, re.MULTILINE)
    assert line
    dev = (Path(__file__).resolve().parents[2] / "dev").read_text()
    packages = {p for found in re.findall(r"printf '([^']*) '", dev) for p in found.split()}
    assert {*line[1].split()} == packages - {"python3", "vulkan-validationlayers"}
