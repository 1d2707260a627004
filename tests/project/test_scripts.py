"""The scripts of tests/ can be imported, what they patch exists, and no two files of tests have one name."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

SCRIPTS = sorted(path.stem for path in Path(__file__).resolve().parents[1].glob("*.py") if path.stem != "conftest")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_can_be_imported(name: str) -> None:
    importlib.import_module(name)


def test_the_functions_that_are_timed_exist() -> None:
    costs = importlib.import_module("validation_costs")
    assert [(owner, name) for _, owner, name in costs.MEASURED if not hasattr(owner, name)] == []


def test_test_files_have_names_of_their_own() -> None:
    """pytest imports them by name: it collects only one of two equal names, and a whole-suite run fails."""
    names = [path.name for path in Path(__file__).resolve().parents[1].rglob("test_*.py")]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)
