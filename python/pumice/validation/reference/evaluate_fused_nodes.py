"""Evaluates the nodes of a kernel (its members) in another runtime, with bounds from the rules for that runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...base.element_types import Array
from ..rules.bounded_tensor import BoundedTensor, UndecidedError, UnprovedError, Value
from ..rules.rule_runner import RuleRunner
from .oracle import drop_error_bound, to_declared_array
from .reference_model import ReferenceNode


class FusedNodeResults(NamedTuple):
    """Results by name: the runtime's arrays, and the rules' values with error bounds for the runtime's types."""

    values: Mapping[str, Any]
    bounded: Mapping[str, Value]


def evaluate_fused_nodes(
    members: Sequence[ReferenceNode],
    read: Callable[[str], Value],
    runner: RuleRunner,
    evaluate: Callable[[ReferenceNode, Mapping[str, Array | None]], Mapping[str, Any]],
) -> FusedNodeResults:
    """Evaluate the members in order. read: function that returns a kernel input by name.

    Raise UnprovedError with the reason if the runtime fails, or if a result depends on a choice that the runtime may
    have made differently.
    """
    values: dict[str, Any] = {}
    bounded: dict[str, Value] = {}
    for member in members:
        for name in member.inputs:
            if name not in bounded:
                bounded[name], values[name] = _read_exact_input(name, read)
        try:
            results = evaluate(member, {name: values[name] for name in member.inputs})
        except Exception as error:  # the runtime may raise any exception
            raise UnprovedError(f"it fails on node '{member.name}': {get_first_line(error)}") from None
        try:
            bounds = member.run(bounded, runner)
        except UndecidedError:
            raise UnprovedError(f"node '{member.name}' depends on a choice that rounding may flip") from None
        except (IndexError, KeyError, MemoryError) as error:
            raise UnprovedError(f"no bound of its own at node '{member.name}': {get_first_line(error)}") from None
        for name in member.outputs:
            values[name], bounded[name] = results.get(name), bounds.get(name)
            if member is not members[-1] and _is_undecided(bounded[name]):
                raise UnprovedError(f"node '{member.name}' depends on a choice that rounding may flip")
    return FusedNodeResults(values, bounded)


def _read_exact_input(name: str, read: Callable[[str], Value]) -> tuple[Value, Array | None]:
    try:
        value = drop_error_bound(read(name))
    except KeyError as error:
        raise UnprovedError(f"nothing is known of {error}") from None
    array = None if value is None else to_declared_array(value)
    if array is None and value is not None:
        raise UnprovedError(f"'{name}' is not a tensor, or has a number that its type cannot hold")
    return value, array


def _is_undecided(value: Value) -> bool:
    return isinstance(value, BoundedTensor) and not value.is_float and bool(np.any(value.get_errors() > 0))


def get_first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if it is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
