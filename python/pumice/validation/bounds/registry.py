"""Which rule computes what an operator makes: the table that modules of rules fill, and what a rule is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from ...base.element_types import Array
from .bounded import Arithmetic, Bounded
from .types import Types

Value: TypeAlias = "Bounded | list[Any] | None"  # a tensor, a sequence, an empty optional value


class Unproved(Exception):
    """No rule covers the operator, or this form of it; its text says which and why."""


class Undecided(Unproved):
    """The operator does what a choice says that rounding may turn: what follows goes on from the device's."""


class Call:
    """One node as a rule sees it: operator, inputs, attributes, operator set and the program's types.

    `op`: the operator's name behind its domain ("com.microsoft::Gelu"), which ONNX's own have none of.
    """

    def __init__(
        self,
        op: str,
        inputs: list[Any],
        attributes: Mapping[str, Any] | None = None,
        opset: int = 23,
        types: Types | None = None,
        outputs: int = 1,
    ) -> None:
        self.domain, _, self.op = op.rpartition("::")
        self.given = list(inputs)
        self.attributes = dict(attributes or {})
        self.opset = opset
        self.types = types or Types()
        self.outputs = outputs
        self.node: Any = None  # the NodeProto, where there is one
        self.opsets: Any = None
        self.run_graph: Any = None  # of control flow: (GraphProto, inputs, outer values) -> outputs
        self.outer: Any = None
        # The results that the device has stored, by output, where that is known and the node's own kernels read it back.
        self.stored: list[Bounded | None] = []

    def __len__(self) -> int:
        return len(self.given)

    def optional(self, index: int) -> Any:
        """An input as it is; None where it is left out."""
        return self.given[index] if index < len(self.given) else None

    def input(self, index: int) -> Bounded:
        """Raises Unproved where it is left out or is no tensor."""
        value = self.optional(index)
        if not isinstance(value, Bounded):
            raise Unproved(f"input {index} of {self.op} is no tensor")
        return value

    def integers(self, index: int) -> list[int] | None:
        """The values of an input of integers; None where it is left out. Raises Unproved where its values are undecided."""
        value = self.optional(index)
        if value is None:
            return None
        if value.error is not None and np.any(value.error > 0):
            raise Undecided(f"input {index} of {self.op} is undecided")
        return [int(one) for one in value.value.reshape(-1)]

    def exact(self, index: int) -> Array:
        """An input of integers as they are. Raises Unproved where they are undecided."""
        return self.sure(self.input(index), f"input {index}")

    def sure(self, value: Bounded, what: str) -> Array:
        """Integers or booleans that the operator goes by, as they are. Raises Undecided where they may be others."""
        if value.error is not None and np.any(value.error > 0):
            raise Undecided(f"{what} of {self.op} depends on an undecided choice")
        return value.value

    def number(self, index: int, default: float) -> tuple[float, float]:
        """A number that the operator goes by, and how far the kernel's may be off; constants are those of the host, in float32."""
        value = self.optional(index)
        if value is None or not value.size:
            return default, 0.0
        number = float(value.value.reshape(-1)[0])
        if value.constant and self.types.constants == "rounded":  # the value at hand is rounded
            return number, abs(number) * self.types.constant(value.dtype).unit
        return number, 0.0 if value.constant else float(np.max(self.types.reach(value.errors())))

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute of the node, or the default."""
        return self.attributes.get(name, default)

    def axes(self, index: int = 1) -> list[int] | None:
        """The axes, which are an input or, in older sets, an attribute."""
        given = self.attribute("axes")
        return list(given) if given is not None else self.integers(index)

    def arithmetic(self, dtype: Any = None) -> Arithmetic:
        """The arithmetic in which a kernel computes floats of that type, by default that of the first input."""
        return Arithmetic(self.types, self.input(0).dtype if dtype is None else dtype)


Rule: TypeAlias = Callable[[Call], "list[Any]"]
RULES: dict[str, Rule] = {}


def rule(*names: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Enters a function into the table, for operators of a domain."""

    def add(function: Rule) -> Rule:
        for name in names:
            RULES[f"{domain}::{name}" if domain else name] = function
        return function

    return add


def rule_of(op: str, domain: str = "") -> Rule | None:
    """The rule of an operator; None where no rule is known."""
    known = "" if domain in ("", "ai.onnx") else domain
    return RULES.get(f"{known}::{op}" if known else op)


def call(
    op: str, inputs: Iterable[Any], attributes: Mapping[str, Any] | None = None, like: Call | None = None
) -> list[Any]:
    """What another operator makes, for rules that are made of others; of the newest operator set. Raises Unproved."""
    found = RULES.get(op)
    if found is None:
        raise Unproved(f"no rule for {op}")
    return found(Call(op, list(inputs), attributes, 23, like.types if like else None, 1))
