"""The tests of the quick and the default tier. --all runs every test.

The default tier leaves out tests that are marked as slow, and most cases of sweeps that are too long for two cores: see default_cases.py.
The quick tier is a part of the default tier: see quick_cases.py. Samples are chosen by a hash of the ids, so that every run and worker has
the same ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import pytest

from default_cases import CASES
from quick_cases import ALL, OPERATOR_TEST, OPERATORS, QUICK

OPERATOR_CASES = 7  # of an operator in the default tier
OPERATOR_MODES = ("fp32", "fp16")  # of an operator in the quick tier


def _path_and_function(item: pytest.Item) -> tuple[str, str]:
    path, _, name = item.nodeid.partition("[")[0].removeprefix("tests/").partition("::")
    return path, name


def _sample(items: Iterable[pytest.Item], seed: int = 0) -> list[pytest.Item]:
    """Return the items in the order of their hashes."""
    prefix = f"{seed} " if seed else ""
    return sorted(items, key=lambda item: hashlib.sha256((prefix + item.nodeid).encode()).digest())


def _operator_and_mode(item: Any) -> tuple[str, str]:
    return item.callspec.params["case"].op, item.callspec.params["mode"]


def _first_of_operators(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the first case of every operator in each of OPERATOR_MODES, in any mode if it has none."""
    first: dict[tuple[str, str], pytest.Item] = {}
    others: dict[str, pytest.Item] = {}
    for item in items:
        operator, mode = _operator_and_mode(item)
        if mode in OPERATOR_MODES:
            first.setdefault((operator, mode), item)
        else:
            others.setdefault(operator, item)
    found = {operator for operator, _ in first}
    return [*first.values(), *(item for operator, item in others.items() if operator not in found)]


def _operators_of_default(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the cases of the quick tier, and up to OPERATOR_CASES of every operator: one mode of each."""
    modes: dict[str, pytest.Item] = {}
    for item in _sample(items):
        modes.setdefault(item.name.rpartition("-")[0], item)
    counts: dict[str, int] = {}
    kept = _first_of_operators(items)
    for item in modes.values():
        operator, _ = _operator_and_mode(item)
        counts[operator] = counts.get(operator, 0) + 1
        if counts[operator] <= OPERATOR_CASES:
            kept.append(item)
    return kept


def _of_default(path: str, function: str, items: list[pytest.Item]) -> list[pytest.Item]:
    if (path, function) == (OPERATORS, OPERATOR_TEST):
        return _operators_of_default(items)
    entry = CASES.get(path, {}).get(function, ALL)
    count, seed = entry if isinstance(entry, tuple) else (entry, 0)
    return _sample(items, seed)[:count]


def _of_quick(path: str, function: str, items: list[pytest.Item]) -> list[pytest.Item]:
    if (path, function) == (OPERATORS, OPERATOR_TEST):
        return _first_of_operators(items)
    return items[: QUICK.get(path, {}).get(function, 0)]


def mark_tiers(items: Iterable[pytest.Item]) -> None:
    """Mark the cases that the default tier skips as slow, and those of the quick tier as quick."""
    functions: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow") is None:
            functions.setdefault(_path_and_function(item), []).append(item)
    for name, cases in functions.items():
        chosen = {id(item) for item in _of_default(*name, cases)}
        kept = [item for item in cases if id(item) in chosen]
        for item in cases:
            if id(item) not in chosen:
                item.add_marker(pytest.mark.slow)
        for item in _of_quick(*name, kept):
            item.add_marker(pytest.mark.quick)
