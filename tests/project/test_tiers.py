"""The tables of the tiers name existing tests, and the quick tier has every operator and every page."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tiers
from cases import CASES
from quick_cases import ALL, OPERATOR_TEST, OPERATORS, QUICK
from tiers import mark_tiers

TESTS = Path(__file__).resolve().parents[1]


class Item(SimpleNamespace):
    """A test as mark_tiers() sees it."""

    def __init__(self, nodeid: str, *marks: str, **params: Any) -> None:
        super().__init__(nodeid=nodeid, name=nodeid.partition("::")[2], marks=list(marks))
        self.callspec = SimpleNamespace(params=params)

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.name)


def operator_items() -> list[Any]:
    """Return cases as those of tests/operators/test_operators.py that are not slow."""
    return [
        Item(f"tests/{OPERATORS}::{OPERATOR_TEST}[{case}-{mode}]", case=case, mode=mode)
        for case in CASES
        for mode in (["fp32", "fp16", "bf16_packed"] if case.has_floats else ["fp32"])
        if not case.large
    ]


@pytest.mark.parametrize("table", ["CASES", "QUICK"])
def test_every_entry_is_a_test(table: str) -> None:
    for path, functions in getattr(tiers, table).items():
        text = (TESTS / path).read_text()
        missing = [name for name in functions if not re.search(rf"^def {name}\(", text, re.MULTILINE)]
        assert not missing, f"{path} has no such tests"


def test_every_operator_is_in_the_quick_tier() -> None:
    items = operator_items()
    mark_tiers(items)
    quick = {item.callspec.params["case"].op for item in items if "quick" in item.marks}
    assert quick == {case.op for case in CASES}
    assert not [item.nodeid for item in items if {"quick", "slow"} <= set(item.marks)]


def test_every_page_with_a_script_is_in_the_quick_tier() -> None:
    assert QUICK["project/test_documents.py"]["test_the_first_script_of_a_page_runs"] == ALL
