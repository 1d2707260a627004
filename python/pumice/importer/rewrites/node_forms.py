"""Helpers for bringing a node into another form: the names and constants of its model, and the parts of a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ...base.element_types import Array, numpy_dtype
from ..file.recipe import Attribute, ConstantRecipe, NodeRecipe

Nodes: TypeAlias = "list[NodeRecipe]"


class Scope:
    """The values of one model: which are constant, what makes the others, which kinds of floats there are."""

    def __init__(
        self, constants: dict[str, ConstantRecipe], known: set[str], producers: dict[str, str], float_types: set[str]
    ) -> None:
        self.constants = constants
        self.taken = {*known, *producers}
        self.producers = producers  # value -> operator that makes it
        self.float_types = float_types

    def fresh(self, node: NodeRecipe, role: str) -> str:
        """A name that no value of the model has."""
        name = f"{node.name}/{role}"
        while name in self.taken:
            name += "'"
        self.taken.add(name)
        return name

    def constant(self, node: NodeRecipe, role: str, value: Array) -> str:
        """Adds a constant to the model, and gives its name."""
        name = self.fresh(node, role)
        self.constants[name] = ConstantRecipe(name, str(value.dtype), list(value.shape), value.tobytes())
        return name


Upgrade: TypeAlias = "Callable[[NodeRecipe, Scope], Nodes]"


def input_of(node: NodeRecipe, index: int) -> str:
    """The name of an input; "" where it is left out."""
    return node.inputs[index] if index < len(node.inputs) else ""


def padded(names: list[str], count: int) -> list[str]:
    """The names, with "" behind them up to `count`."""
    return names + [""] * (count - len(names))


def without(node: NodeRecipe, *names: str) -> dict[str, Attribute]:
    """The node's attributes but for these."""
    return {name: value for name, value in node.attributes.items() if name not in names}


def like_input(node: NodeRecipe, scope: Scope, role: str, value: float) -> tuple[Nodes, str]:
    """A scalar constant of input 0's element type; a node casts it where the model has floats of several kinds."""
    if len(scope.float_types) <= 1:
        dtype = next(iter(scope.float_types), "float32")
        return [], scope.constant(node, role, np.array(value, numpy_dtype(dtype)))
    scalar = scope.constant(node, f"{role}.float32", np.array(value, np.float32))
    name = scope.fresh(node, role)
    return [NodeRecipe("CastLike", name, [scalar, node.inputs[0]], [name], {})], name
