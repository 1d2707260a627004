"""Operands of the self-test's operator cases: inputs with generated elements, and constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...base.element_types import PRECISIONS, Array


class Operand(NamedTuple):
    """An operand of a case. Its elements are `values`, or are drawn from `low` to `high`, or from a normal distribution of `scale`."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    constant: bool = False  # an initializer of the model, else an input of the model
    scale: float = 0.0
    low: float = 0.0
    high: float = 0.0
    values: Array | None = None

    def generate(self, random: np.random.Generator) -> Array:
        """Return the elements."""
        if self.values is not None:
            return self.values
        if self.dtype == "bool":
            return random.random(self.shape) < 0.5
        if self.scale:
            return (random.standard_normal(self.shape) * self.scale).astype(self.dtype)
        if self.dtype == "float32":
            return random.uniform(self.low, self.high, self.shape).astype(self.dtype)
        return random.integers(int(self.low), int(self.high), self.shape).astype(self.dtype)


def x(*shape: int) -> Operand:
    """Return an input with normally distributed elements."""
    return Operand(shape, scale=1.0)


def uniform(low: float, high: float, *shape: int) -> Operand:
    """Return a float input with elements from low to high."""
    return Operand(shape, low=low, high=high)


def given(values: npt.ArrayLike) -> Operand:
    """Return a float input with these elements."""
    array = np.asarray(values, np.float32)
    return Operand(array.shape, values=array)


def integers(dtype: str, low: int, high: int, *shape: int) -> Operand:
    """Return an integer input with elements from low to high - 1."""
    return Operand(shape, dtype, low=low, high=high)


def flags(*shape: int) -> Operand:
    """Return a boolean input."""
    return Operand(shape, "bool")


def w(*shape: int) -> Operand:
    """Return constant weights, scaled by the number of products that an output element adds."""
    return Operand(shape, constant=True, scale=1.0 / math.sqrt(max(math.prod(shape[1:]), 1)))


def gain(*shape: int) -> Operand:
    """Return positive constants from 0.5 to 1.5, such as the scale or variance of a normalisation."""
    return Operand(shape, constant=True, low=0.5, high=1.5)


def weights(dtype: str, low: int, high: int, *shape: int) -> Operand:
    """Return constant integers from low to high - 1."""
    return Operand(shape, dtype, constant=True, low=low, high=high)


def const(values: npt.ArrayLike, dtype: str = "int64") -> Operand:
    """Return a constant with these elements, by default int64: axes, sizes and indices."""
    array = np.asarray(values, dtype)
    return Operand(array.shape, dtype, constant=True, values=array)


class Case(NamedTuple):
    """A node of a self-test model. operands: None is an omitted input; a string is the first output of the case with this name."""

    name: str  # the operator, and what is special about the case
    op: str
    operands: Sequence[Operand | str | None]
    attributes: dict[str, Any]
    outputs: int = 1
    domain: str = ""
    precisions: Sequence[str] = PRECISIONS


def case(
    label: str,
    op: str,
    *operands: Operand | str | None,
    outputs: int = 1,
    precisions: Sequence[str] = PRECISIONS,
    **attributes: Any,
) -> Case:
    """Return a case named after its operator and `label`. op: "Name", or "domain::Name"."""
    domain, _, name = op.rpartition("::")
    return Case(f"{name} {label}".strip(), name, operands, attributes, outputs, domain, precisions)
