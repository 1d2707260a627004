"""Registry of error-bound rules by operator, and the call object that a rule receives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from ...base.element_types import Array
from .bounded_tensor import BoundedArithmetic, BoundedTensor
from .float_types import ProgramTypes

Value: TypeAlias = "BoundedTensor | list[Any] | None"  # tensor, sequence, or empty optional


class UnprovedError(Exception):
    """Raised if no rule covers the operator, or this use of it; the message gives the reason."""


class UndecidedError(UnprovedError):
    """Raised if the result depends on a choice that rounding may change; later nodes then use the device's result."""


class OperatorCall:
    """Arguments of a rule for one node: operator, inputs, attributes, opset and the program's types.

    `op` includes a domain other than ONNX's, as in "com.microsoft::Gelu".
    """

    def __init__(
        self,
        op: str,
        inputs: list[Any],
        attributes: Mapping[str, Any] | None = None,
        opset: int = 23,
        types: ProgramTypes | None = None,
        outputs: int = 1,
    ) -> None:
        self.domain, _, self.op = op.rpartition("::")
        self.inputs = list(inputs)
        self.attributes = dict(attributes or {})
        self.opset = opset
        self.types = types or ProgramTypes()
        self.outputs = outputs
        self.node: Any = None  # the NodeProto; None if a rule evaluates another operator
        self.opsets: Any = None
        self.run_graph: Any = None  # runs a subgraph: (GraphProto, inputs, outer values) -> outputs
        self.outer: Any = None
        # The device's stored result for each output, if the node's kernels read back their own results.
        self.stored: list[BoundedTensor | None] = []

    def __len__(self) -> int:
        return len(self.inputs)

    def optional_input(self, index: int) -> Any:
        """Return an input, or None if it is omitted."""
        return self.inputs[index] if index < len(self.inputs) else None

    def input(self, index: int) -> BoundedTensor:
        """Return an input tensor. Raise UnprovedError if it is omitted or not a tensor."""
        value = self.optional_input(index)
        if not isinstance(value, BoundedTensor):
            raise UnprovedError(f"input {index} of {self.op} is not a tensor")
        return value

    def get_integer_list(self, index: int) -> list[int] | None:
        """Return the values of an integer input, or None if it is omitted. Raise UndecidedError if a value is undecided."""
        value = self.optional_input(index)
        if value is None:
            return None
        if value.error is not None and np.any(value.error > 0):
            raise UndecidedError(f"input {index} of {self.op} is undecided")
        return [int(element) for element in value.value.reshape(-1)]

    def get_decided_input(self, index: int) -> Array:
        """Return an integer input as an array. Raise UndecidedError if a value is undecided."""
        return self.require_decided(self.input(index), f"input {index}")

    def require_decided(self, value: BoundedTensor, description: str) -> Array:
        """Return a tensor that controls the operator as an array. Raise UndecidedError if a value is undecided."""
        if value.error is not None and np.any(value.error > 0):
            raise UndecidedError(f"{description} of {self.op} depends on an undecided choice")
        return value.value

    def get_scalar(self, index: int, default: float) -> tuple[float, float]:
        """Return a scalar parameter and the error of the kernel's copy. The host passes constants in float32."""
        value = self.optional_input(index)
        if value is None or not value.size:
            return default, 0.0
        number = float(value.value.reshape(-1)[0])
        if value.constant and self.types.constant_rounding == "rounded":  # the constant is already rounded
            return number, abs(number) * self.types.get_constant_type(value.dtype).unit
        return number, 0.0 if value.constant else float(np.max(self.types.to_max_deviation(value.get_errors())))

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute of the node, or the default if it is not set."""
        return self.attributes.get(name, default)

    def get_axes(self, index: int = 1) -> list[int] | None:
        """Return the axes from an input, or from an attribute in older opsets."""
        axes_attribute = self.attribute("axes")
        return list(axes_attribute) if axes_attribute is not None else self.get_integer_list(index)

    def make_arithmetic(self, dtype: Any = None) -> BoundedArithmetic:
        """Return the arithmetic for a float type, by default the first input's."""
        return BoundedArithmetic(self.types, self.input(0).dtype if dtype is None else dtype)


Rule: TypeAlias = Callable[[OperatorCall], "list[Any]"]
RULES: dict[str, Rule] = {}


def rule(*names: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Register a function as the rule of operators in a domain."""

    def add(function: Rule) -> Rule:
        for name in names:
            RULES[f"{domain}::{name}" if domain else name] = function
        return function

    return add


def find_rule(op: str, domain: str = "") -> Rule | None:
    """Return the rule of an operator, or None."""
    normalized_domain = "" if domain in ("", "ai.onnx") else domain
    return RULES.get(f"{normalized_domain}::{op}" if normalized_domain else op)


def evaluate_operator(
    op: str, inputs: Iterable[Any], attributes: Mapping[str, Any] | None = None, like: OperatorCall | None = None
) -> list[Any]:
    """Evaluate another operator at the latest opset as part of a rule. Raise UnprovedError if it has no rule."""
    registered = RULES.get(op)
    if registered is None:
        raise UnprovedError(f"no rule for {op}")
    return registered(OperatorCall(op, list(inputs), attributes, 23, like.types if like else None, 1))
