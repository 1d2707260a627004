"""Invalid operands of NNAPI operations, and the expected errors."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

import pumice
from nnapi_operations import operands_of

Array = np.ndarray[Any, Any]


class Constant(NamedTuple):
    """A constant of the graph, with the scale of its integers."""

    array: Array
    scale: float | list[float] | None = None
    zero_point: int | None = None
    channel_axis: int | None = None


class Input(NamedTuple):
    """An input of the graph, with unknown elements; shape None: also unknown rank."""

    dtype: str
    shape: list[int] | None


class Case(NamedTuple):
    """An operation with invalid operands. `text`: the message after the operation's name; the rule precedes the expectation."""

    op: str
    operands: tuple[Any, ...]
    declared: dict[str, Any]
    text: str


def rule_and_message(case: Case) -> tuple[str, str]:
    """Split a case's text into the rule id and the text without it."""
    found = re.search(r"(N[DGL]?\d+(?:\.\d+)?): ", case.text)
    if found:
        return found[1], case.text.replace(found[0], "")
    return "R8" if "highest rank" in case.text else "", case.text


def error_of_case(case: Case) -> pumice.Error | None:
    """Return the error of an operation; None if it is accepted."""
    graph = pumice.Graph()
    plain = operands_of(
        graph, tuple(None if isinstance(each, Constant | Input) else each for each in case.operands), {}
    )
    for i, each in enumerate(case.operands):
        if isinstance(each, Input):
            plain[i] = graph.input(f"x{i}", each.dtype, each.shape)
        elif isinstance(each, Constant):
            keywords = {name: value for name, value in each._asdict().items() if value is not None}
            plain[i] = graph.constant(**keywords)
    try:
        graph.add(f"nnapi::{case.op}", *plain, name="it", **case.declared)
    except (pumice.GraphError, pumice.UnsupportedError) as error:
        return error
    return None
