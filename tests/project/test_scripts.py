"""The files of tests/: scripts that write figures and pages can be imported, and test files have distinct names."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SCRIPTS = sorted(path.stem for path in TESTS.glob("*.py") if path.stem != "conftest")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_can_be_imported(name: str) -> None:
    importlib.import_module(name)


def test_the_functions_that_are_timed_exist() -> None:
    costs = importlib.import_module("validation_costs")
    assert [(owner, name) for _, owner, name in costs.MEASURED if not hasattr(owner, name)] == []


def test_test_files_have_names_of_their_own() -> None:
    """pytest imports them by name: it collects only one of two equal names, and a whole-suite run fails."""
    names = sorted(path.name for path in TESTS.rglob("test_*.py"))
    assert len(names) == len(set(names)), [name for name in names if names.count(name) > 1]
