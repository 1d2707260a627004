"""Changes every operand of every NNAPI operation, one at a time: an invalid one raises an error with the operation's
name. The checks are collected from the sources, and each is triggered here or in the table of
test_nnapi_errors.py."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from test_nnapi_errors import CASES
from test_nnapi_rules import REFUSED
from test_nnapi_unknown_shapes import CALLS

import pumice
from nnapi_error_sources import ANY, SOURCES, OperationError, operation_errors, texts
from nnapi_invalid_cases import Array, Case, Constant, Input, error_of_case
from nnapi_operations import Quantized


def changed_arrays(array: Array) -> Iterator[Array]:
    """Yield the array with one axis more and fewer, and each axis with one element more and with none."""
    yield array[None]
    if array.ndim:
        yield array[0]
    for axis in range(array.ndim):
        yield np.concatenate([array, array.take([0], axis)], axis)
        yield array.take([], axis)


def changed_integers(values: Array) -> Iterator[list[Any]]:
    for i in range(values.size):
        for other in (-9, -1, 0, 99):
            made = values.copy()
            made.flat[i] = other
            yield made.tolist()


def changes(one: Any) -> Iterator[Any]:
    """Yield replacements of an operand, most of them invalid. Only constants get axes of size 0; sizes of inputs are unknown."""
    if isinstance(one, Quantized):
        yield from (one._replace(zero_point=one.zero_point + 1), one._replace(scale=one.scale * 2), one.array)
        for array in changed_arrays(one.array):
            yield one._replace(array=array) if array.size else Constant(array, one.scale, one.zero_point)
    elif isinstance(one, np.ndarray):
        yield one.astype("float64")
        yield from (array if array.size else Constant(array) for array in changed_arrays(one))
    elif isinstance(one, bool):
        yield from (not one, int(one), np.array([one]), Input("bool", []))
    elif isinstance(one, int):
        yield from (-1, 0, 99, 1.0, [one], Input("int32", []))
    elif isinstance(one, float):
        yield from (-1.0, 0.0, float("nan"), 1, Input("float32", []))
    elif isinstance(one, list):
        yield from changed_integers(np.array(one, "int32"))
        yield from (
            one[:-1],
            [*one, *one[-1:]],
            [one],
            Input("int32", list(np.shape(one))),
            Input("int32", [9]),
        )
    if one is not None:
        yield None


@cache
def met(op: str) -> list[pumice.Error]:
    """Return the errors that changes of an operation's operands trigger."""
    found = []
    for call in CALLS[op]:
        for i, one in enumerate(call.operands):
            for other in changes(one):
                operands = (*call.operands[:i], other, *call.operands[i + 1 :])
                error = error_of_case(Case(op, operands, call.declared, ""))
                if error is not None:
                    found.append(error)
    return found


@pytest.mark.parametrize("op", CALLS)
def test_an_operand_that_does_not_fit_is_rejected_by_name(op: str) -> None:
    """error_of_case raises no other kind of error."""
    assert met(op)
    for error in met(op):
        assert f"'it': nnapi::{op}" in str(error)
        if isinstance(error, pumice.GraphError):
            assert error.node == "it"


@cache
def messages() -> list[tuple[str, str]]:
    """Return all messages triggered by the tables and the changes, with their operation."""
    tables = [*CASES, *(Case(op, operands, declared, "") for op, operands, declared, _ in REFUSED)]
    found = [(one.op, error_of_case(one)) for one in tables]
    found += [(op, error) for op in CALLS for error in met(op)]
    return [(op, str(error)) for op, error in found]


def met_when_bound(context: pumice.Context) -> tuple[str, str]:
    """A list whose rank was unknown at graph construction turns out to be a matrix."""
    graph = pumice.Graph()
    given = graph.input("multiples", "int32", None)
    graph.output("y", graph.add("nnapi::TILE", graph.input("x", "float32", [2, 3]), given, name="it"))
    with (
        graph.compile(context) as program,
        pytest.raises(pumice.GraphError, match=r"'it': .*a rank of 1 expected; given \[1, 2\]") as caught,
    ):
        program({"x": np.zeros((2, 3), "float32"), "multiples": np.ones((1, 2), "int32")})
    return "TILE", str(caught.value)


def meeting(operation_error: OperationError, pattern: str, met: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return (operation, message) pairs that match a check; pairs differ in operand or size, to tell apart equal messages."""
    rule, text_alone = re.fullmatch(r"(\\\[.*?\\\] )?(.*)", pattern, re.DOTALL).groups(default="")  # type: ignore[union-attr]
    anchored = re.compile(rf"^{rule}.*(?:: |, |with ){text_alone}" if rule else rf"(?:: |, |with ){pattern}", re.DOTALL)
    return {
        (op, text.split("; given")[0])
        for op, text in met
        if (not operation_error.operations or op in operation_error.operations) and anchored.search(text)
    }


def test_every_error_in_the_sources_is_triggered(context: pumice.Context) -> None:
    """Checks with the same message in a file must be triggered by at least as many different operands."""
    all_met = [*messages(), met_when_bound(context)]
    places = defaultdict(list)
    for operation_error in operation_errors():
        for pattern in operation_error.patterns:
            places[(operation_error.place.split(":")[0], pattern)].append(operation_error)
    missing = []
    for (_, pattern), alike in places.items():
        found = len(meeting(alike[0], pattern, all_met))
        if found < len(alike):
            missing.append(f"{', '.join(one.place for one in alike)}: met {found} times: {pattern}")
    assert not missing, "\n".join(missing)


def test_errors_are_parsed_from_the_sources() -> None:
    every = operation_errors()
    assert len(every) > 250
    assert {one.place.split(":")[0] for one in every} <= {path.name for path in SOURCES.glob("*.cpp")}
    calls = sum(len(re.findall(r"\b[oe]\.(?:fail|refuse)\(", path.read_text())) for path in SOURCES.glob("*.cpp"))
    assert sum(bool(re.search(r"[a-z]{2}", "".join(one.patterns))) for one in every) >= calls


def test_messages_of_expressions() -> None:
    assert texts('"a " + name(x) + "; b"') == [rf"a\ {ANY};\ b"]
    assert texts('std::string(rule) + ": " + (known ? "all, " : std::string("none")) + to_string(f("c"))') == [
        rf"{ANY}:\ all,\ {ANY}",
        rf"{ANY}:\ none{ANY}",
    ]
    assert texts('size ? std::to_string(*size) : "the size of " "axis"') == [ANY, r"the\ size\ of\ axis"]
