"""The refusals of NNAPI's operations as the sources have them: where each stands, which operations can meet it, and what it says, as
patterns of the messages. A text with a choice in it is one pattern for each side of the choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).resolve().parents[2] / "cpp" / "graph" / "nnapi"
ANY = ".*"
# Calls that refuse by a text of their own. UnknownShapeError is no refusal: a node that is expanded later stands for the operation
# then. Nor is a plain Error, which tells of a defect of the engine's own.
_FAILING = re.compile(r"\b(?:(?:[oe]|rules_)\.)?(fail|refuse)\(|throw (GraphError|UnsupportedError)\(")
# Calls that refuse what is not expected, by the text of the function that they call.
_EXPECTING = re.compile(
    r"\b(?:o\.)?(expect_rank|expect_ranks|expect_least_rank|expect_size|expect_length|expect_one_size|refuse_empty)\("
)
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')


class Refusal(NamedTuple):
    """One place in the sources. `operations`: those of its file; empty where any can meet it. Patterns begin with the rule's id in
    brackets where the function that is called puts it before a text of its own.
    """

    place: str
    operations: frozenset[str]
    patterns: tuple[str, ...]


def refusals() -> list[Refusal]:
    """All, file by file. What passes on the text of another is none."""
    found = []
    for path in sorted(SOURCES.glob("*.cpp")):
        text = re.sub(r"//[^\n]*", "", path.read_text())
        operations = frozenset(re.findall(r'"nnapi::(\w+)"', text))
        for at, name, arguments in _calls(text):
            place = f"{path.name}:{text.count(chr(10), 0, at) + 1}"
            found.append(Refusal(place, operations, tuple(_patterns_of(name, arguments))))
    return [one for one in found if one.patterns]


def _calls(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Each call's place, the function's name and its arguments. A definition has types before its parameters and is passed over."""
    for pattern in (_FAILING, _EXPECTING):
        for found in pattern.finditer(text):
            name = next(one for one in found.groups() if one)
            arguments = _split(text[found.end() : _closed(text, found.end() - 1) - 1], ",")
            is_definition = any(re.match(r"(?:const |size_t |Operands& )", one) for one in arguments)
            if name.endswith("Error") or not is_definition:
                yield found.start(), name, arguments


def _behind_string(text: str, at: int) -> int:
    found = _STRING.match(text, at)
    assert found
    return found.end()


def _closed(text: str, at: int) -> int:
    """The place behind the bracket that closes the one at this place."""
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
    """The parts between separators that stand outside of brackets and strings."""
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
    """What an expression of strings gives, as patterns: literals as they are, all else as anything."""
    expression = re.sub(r"\s+", " ", expression.strip())
    condition, *sides = _split(expression, " ? ")
    if sides:
        first, *rest = _split(" ? ".join(sides), " : ")
        return [*texts(first), *texts(" : ".join(rest))]
    parts = _split(condition, " + ")
    if len(parts) > 1:
        made = [""]
        for part in parts:
            made = [before + one for before in made for one in texts(part)]
        return [re.sub(r"(?:\.\*)+", ANY, one) for one in made]
    if wrapped := re.fullmatch(r"(?:std::string)?\((.*)\)", condition):
        return texts(wrapped[1])
    if re.fullmatch(r'(?:"(?:\\.|[^"\\])*"\s*)+', condition):
        return [re.escape("".join(one[1:-1] for one in _STRING.findall(condition)))]
    return [ANY]


def _patterns_of(name: str, arguments: list[str]) -> list[str]:
    if name in ("fail", "refuse") or name.endswith("Error"):
        patterns = [pattern for argument in arguments for pattern in texts(argument)]
        return [pattern for pattern in patterns if re.search(r"[a-z]{2}", pattern)]
    *_, last = texts(arguments[2] if name == "expect_length" else arguments[-1])
    if name == "expect_one_size":
        return [rf"\[{last}\] \d+ elements expected on axis \d+, as operand"]
    if name == "refuse_empty":
        return [rf"\[{last}\] sizes above 0 expected"]
    operand = r"\d+" if name == "expect_ranks" else _number(arguments[0])
    start = rf"operand {operand}, '\w+': "
    if name in ("expect_rank", "expect_ranks"):
        return [start + f"a rank of {_number(arguments[-1])} expected"]
    if name == "expect_least_rank":
        return [start + f"a rank of at least {_number(arguments[1])} expected"]
    if name == "expect_size":
        return [start + f"{_number(arguments[2])} elements expected on axis {_number(arguments[1])}"]
    return [start + rf"{_number(arguments[1])} {last}"]


def _number(argument: str) -> str:
    return argument if argument.isdigit() else r"\d+"
