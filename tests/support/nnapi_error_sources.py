"""The errors of NNAPI operations, parsed from the sources: location, affected operations, and message as patterns.

A conditional text yields one pattern per alternative.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).resolve().parents[2] / "cpp" / "graph" / "nnapi"
ANY = ".*"
# Calls that fail with their own text. UnknownShapeError is not an error of the operation: its expansion is deferred. A plain Error
# indicates a defect of the engine.
_FAILING = re.compile(r"\b(?:(?:[oe]|rules_)\.)?(fail|reject)\(|throw (GraphError|UnsupportedError)\(")
# Calls that reject unexpected operands with the text of the called function.
_EXPECTING = re.compile(
    r"\b(?:o\.)?(expect_rank|expect_ranks|expect_min_rank|expect_size|expect_length|expect_equal_sizes|reject_empty)\("
)
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')


class OperationError(NamedTuple):
    """One error site in the sources. `operations`: its file's; empty if any operation can reach it. Patterns begin with the rule's
    id in brackets if the called function puts it before its text.
    """

    place: str
    operations: frozenset[str]
    patterns: tuple[str, ...]


def operation_errors() -> list[OperationError]:
    """Return all error sites, file by file. Sites that forward another's text are excluded."""
    found = []
    for path in sorted(SOURCES.glob("*.cpp")):
        text = re.sub(r"//[^\n]*", "", path.read_text())
        operations = frozenset(re.findall(r'"nnapi::(\w+)"', text))
        for at, name, arguments in _calls(text):
            location = f"{path.name}:{text.count(chr(10), 0, at) + 1}"
            found.append(OperationError(location, operations, tuple(_patterns_of(name, arguments))))
    return [match for match in found if match.patterns]


def _calls(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield each call's offset, function name and arguments. Definitions, which have types before their parameters, are skipped."""
    for pattern in (_FAILING, _EXPECTING):
        for found in pattern.finditer(text):
            name = next(group for group in found.groups() if group)
            arguments = _split(text[found.end() : _closed(text, found.end() - 1) - 1], ",")
            is_definition = any(re.match(r"(?:const |size_t |Operands& )", argument) for argument in arguments)
            if name.endswith("Error") or not is_definition:
                yield found.start(), name, arguments


def _behind_string(text: str, at: int) -> int:
    found = _STRING.match(text, at)
    assert found
    return found.end()


def _closed(text: str, at: int) -> int:
    """Return the offset after the bracket that closes the one at `at`."""
    depth = 0
    while True:
        if text[at] == '"':
            at = _behind_string(text, at)
            continue
        depth += (text[at] in "({[") - (text[at] in ")}]")
        at += 1
        if depth == 0:
            return at


def _split(text: str, separator: str) -> list[str]:
    """Split at separators outside brackets and strings."""
    parts, start, at = [], 0, 0
    while at < len(text):
        if text[at] == '"':
            at = _behind_string(text, at)
        elif text[at] in "({[":
            at = _closed(text, at)
        elif text.startswith(separator, at):
            parts.append(text[start:at].strip())
            at = start = at + len(separator)
        else:
            at += 1
    return [*parts, text[start:].strip()]


def texts(expression: str) -> list[str]:
    """Return the values of a string expression as patterns: literals verbatim, anything else as a wildcard."""
    expression = re.sub(r"\s+", " ", expression.strip())
    condition, *sides = _split(expression, " ? ")
    if sides:
        first, *rest = _split(" ? ".join(sides), " : ")
        return [*texts(first), *texts(" : ".join(rest))]
    parts = _split(condition, " + ")
    if len(parts) > 1:
        result = [""]
        for part in parts:
            result = [before + item for before in result for item in texts(part)]
        return [re.sub(r"(?:\.\*)+", ANY, value) for value in result]
    if wrapped := re.fullmatch(r"(?:std::string)?\((.*)\)", condition):
        return texts(wrapped[1])
    if re.fullmatch(r'(?:"(?:\\.|[^"\\])*"\s*)+', condition):
        return [re.escape("".join(text[1:-1] for text in _STRING.findall(condition)))]
    return [ANY]


def _patterns_of(name: str, arguments: list[str]) -> list[str]:
    if name in ("fail", "reject") or name.endswith("Error"):
        patterns = [pattern for argument in arguments for pattern in texts(argument)]
        return [pattern for pattern in patterns if re.search(r"[a-z]{2}", pattern)]
    *_, last = texts(arguments[2] if name == "expect_length" else arguments[-1])
    if name == "expect_equal_sizes":
        return [rf"\[{last}\] \d+ elements expected on axis \d+, as operand"]
    if name == "reject_empty":
        return [rf"\[{last}\] positive sizes expected"]
    operand = r"\d+" if name == "expect_ranks" else _number(arguments[0])
    start = rf"operand {operand}, '\w+': "
    if name in ("expect_rank", "expect_ranks"):
        return [start + f"a rank of {_number(arguments[-1])} expected"]
    if name == "expect_min_rank":
        return [start + f"a rank of at least {_number(arguments[1])} expected"]
    if name == "expect_size":
        return [start + f"{_number(arguments[2])} elements expected on axis {_number(arguments[1])}"]
    return [start + rf"{_number(arguments[1])} {last}"]


def _number(argument: str) -> str:
    return argument if argument.isdigit() else r"\d+"
