"""Every rule of the page on the 21 recurrent, detection and lookup operations has tests named after it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pumice
from nnapi_error_sources import SOURCES

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "shared" / "spec" / "nnapi_operations.md"
# Number of rules in each section of the page; several operations share "D", "F", "G" and "L".
SECTIONS = {"D": 5, "F": 6, "G": 10, "L": 7}
NUMBERED = [7, 4, 10, 4, 2, 5, 2, 1, 3, 3, 5, 2, 2, 6, 4, 6, 4, 6, 2, 4, 4]  # N1 to N21
RULES = [f"{section}{i}" for section, count in SECTIONS.items() for i in range(1, count + 1)]
RULES += [f"N{n}.{i}" for n, count in enumerate(NUMBERED, 1) for i in range(1, count + 1)]

_RULE = r"(?:N\d+_\d+|[DFGL]\d+)"


def rules_of(test: str) -> set[str]:
    """Return the rules in a test name: "test_N2_3_and_L2_to_L5_a_step" has N2.3 and L2 to L5, "test_N14_on_many_shapes" none."""
    found = set()
    for first, last in re.findall(rf"(?<=_)({_RULE})(?:_to_({_RULE}))?(?=_|$)", test):
        found |= set(between(first, last or first))
    return found


def between(first: str, last: str) -> list[str]:
    begin, end = (RULES.index(one.replace("_", ".")) for one in (first, last))
    return RULES[begin : end + 1]


def named_tests() -> dict[str, list[str]]:
    """Return the tests by rule."""
    found: dict[str, list[str]] = {rule: [] for rule in RULES}
    for path in sorted(HERE.glob("test_*.py")):
        for test in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE):
            for rule in rules_of(test):
                found[rule].append(f"{path.name}::{test}")
    return found


def test_every_rule_of_the_page_has_a_test_named_after_it() -> None:
    assert not [rule for rule, tests in named_tests().items() if not tests]


def test_the_names_of_rules_are_read_from_names_of_tests() -> None:
    assert rules_of("test_N2_3_and_L2_to_L5_a_step") == {"N2.3", "L2", "L3", "L4", "L5"}
    assert rules_of("test_N6_2_to_N6_4_both_directions") == {"N6.2", "N6.3", "N6.4"}
    assert rules_of("test_the_rest_of_N1") == set()


def test_the_rules_are_those_of_the_page() -> None:
    if not PAGE.is_file():
        pytest.skip("the page is not beside this tree")
    assert re.findall(r"^- \*\*([A-Z]\d+(?:\.\d+)?)\b", PAGE.read_text(), re.MULTILINE) == ordered()


def ordered() -> list[str]:
    """Return the rules in the order of the page: D comes before N11."""
    place = {"G": 0, "F": 1, "L": 2, "N": 3, "D": 13.5}

    def key(rule: str) -> tuple[float, int]:
        section, _, number = rule[1:].partition(".")
        return (3 + int(section), int(number)) if rule[0] == "N" else (place[rule[0]], int(section))

    return sorted(RULES, key=key)


def test_every_rule_of_the_table_is_one_that_an_operation_names() -> None:
    """test_nnapi_changed_operands.py checks that each use of a rule is triggered."""
    sources = "".join(path.read_text() for path in SOURCES.glob("*.cpp"))
    rules = pumice.nnapi_rules()
    assert set(re.findall(r'"(N[DGL]?\d+(?:\.\d+)?)"', sources)) == set(rules)
    assert all(len(text) > 15 and not text.endswith(".") for text in rules.values())
