"""Helpers needed by two test files are defined once, in tests/support or a conftest.py."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
LINES = 3  # shorter functions are not worth sharing


def without_its_text(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    """Return the statements of a function without its docstring."""
    first = function.body[0]
    is_text = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return function.body[is_text:]


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines: the name's and the statements'."""
    body = without_its_text(function)
    return 1 + (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 1


def twins(texts: Iterable[tuple[str, str]]) -> list[str]:
    """Return functions with the same statements in two files, by location. texts: name and text of each file."""
    places: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for file, text in texts:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and length(node) >= LINES:
                body = ast.dump(ast.Module(without_its_text(node), []))
                places[body].append((file, f"{file}:{node.lineno} {node.name}"))
    same = (found for found in places.values() if len({file for file, _ in found}) > 1)
    return [", ".join(place for _, place in found) for found in same]


def test_no_function_stands_in_two_files() -> None:
    files = [(str(path.relative_to(TESTS)), path.read_text()) for path in sorted(TESTS.rglob("*.py"))]
    assert len(files) > 400
    assert not twins(files)


def test_the_same_statements_would_be_found() -> None:
    helper = 'def {}(x):\n    """{}"""\n    y = x + 1\n    return y\n'
    first, second = (
        helper.format("up", "One more."),
        "class A:\n" + "".join(f"    {line}\n" for line in helper.format("more", "The next.").splitlines()),
    )
    assert twins([("a.py", first), ("b.py", second)]) == ["a.py:1 up, b.py:2 more"]
    assert not twins([("a.py", first + first), ("b.py", "def up(x):\n    return x + 1\n")])


def test_test_files_have_names_of_their_own() -> None:
    """pytest imports them by name: it collects only one of two equal names, and a whole-suite run fails."""
    names = sorted(path.name for path in TESTS.rglob("test_*.py"))
    assert len(names) == len(set(names)), [name for name in names if names.count(name) > 1]
