"""Helpers for rewriting nodes: names and constants in the model, and access to a node's inputs and attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ...base.element_types import Array, numpy_dtype
from ..file.recipe import Attribute, ConstantRecipe, NodeRecipe

Nodes: TypeAlias = "list[NodeRecipe]"


class RewriteScope:
    """The values in one model: its constants, the producers of the other values, and its float types."""

    def __init__(
        self,
        constants: dict[str, ConstantRecipe],
        defined_names: set[str],
        producers: dict[str, str],
        float_types: set[str],
    ) -> None:
        self.constants = constants
        self.used_names = {*defined_names, *producers}
        self.producers = producers  # value -> operator of the node that produces it
        self.float_types = float_types

    def make_name(self, node: NodeRecipe, role: str) -> str:
        """Return a name that is unused in the model."""
        name = f"{node.name}/{role}"
        while name in self.used_names:
            name += "'"
        self.used_names.add(name)
        return name

    def constant(self, node: NodeRecipe, role: str, value: Array) -> str:
        """Add a constant to the model and return its name."""
        name = self.make_name(node, role)
        self.constants[name] = ConstantRecipe(name, str(value.dtype), list(value.shape), value.tobytes())
        return name


Upgrade: TypeAlias = "Callable[[NodeRecipe, RewriteScope], Nodes]"


def get_input(node: NodeRecipe, index: int) -> str:
    """Return the name of an input; "" if omitted."""
    return node.inputs[index] if index < len(node.inputs) else ""


def pad_names(names: list[str], count: int) -> list[str]:
    """Pad the names with "" to length `count`."""
    return names + [""] * (count - len(names))


def drop_attributes(node: NodeRecipe, *names: str) -> dict[str, Attribute]:
    """Return the node's attributes, except the ones with these names."""
    return {name: value for name, value in node.attributes.items() if name not in names}


def make_constant_like_input(node: NodeRecipe, scope: RewriteScope, role: str, value: float) -> tuple[Nodes, str]:
    """Return a scalar constant with input 0's dtype, with a CastLike node if the model has several float types."""
    if len(scope.float_types) <= 1:
        dtype = next(iter(scope.float_types), "float32")
        return [], scope.constant(node, role, np.array(value, numpy_dtype(dtype)))
    scalar = scope.constant(node, f"{role}.float32", np.array(value, np.float32))
    name = scope.make_name(node, role)
    return [NodeRecipe("CastLike", name, [scalar, node.inputs[0]], [name], {})], name
