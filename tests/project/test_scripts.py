"""The scripts of tests/ that write figures and pages: each can be imported, and what they patch exists."""

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
