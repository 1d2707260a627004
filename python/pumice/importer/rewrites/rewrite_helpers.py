"""Helpers for rewriting nodes: new names and constants, and access to inputs and attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ...base.element_types import Array, get_numpy_dtype
from ..file.graph_recipe import Attribute, ConstantRecipe, NodeRecipe

Nodes: TypeAlias = "list[NodeRecipe]"


class RewriteScope:
    """The graph in which nodes are rewritten: its constants, used names, producers of values, and float types in use."""

    def __init__(
        self,
        constants: dict[str, ConstantRecipe],
        defined_names: set[str],
        producers: dict[str, str],
        float_types: set[str],
    ) -> None:
        self.constants = constants
        self.used_names = {*defined_names, *producers}
        self.producers = producers  # value -> operator of its producer
        self.float_types = float_types

    def make_name(self, node: NodeRecipe, role: str) -> str:
        """Return an unused name, derived from the node's name and the value's role."""
        name = f"{node.name}/{role}"
        while name in self.used_names:
            name += "'"
        self.used_names.add(name)
        return name

    def add_constant(self, node: NodeRecipe, role: str, value: Array) -> str:
        """Add a constant to the graph and return its name."""
        name = self.make_name(node, role)
        self.constants[name] = ConstantRecipe(name, str(value.dtype), list(value.shape), value.tobytes())
        return name


NodeRewrite: TypeAlias = "Callable[[NodeRecipe, RewriteScope], Nodes]"


def get_input(node: NodeRecipe, index: int) -> str:
    """Return the name of an input; "" if omitted."""
    return node.inputs[index] if index < len(node.inputs) else ""


def pad_names(names: list[str], count: int) -> list[str]:
    """Pad the names with "" to length `count`."""
    return names + [""] * (count - len(names))


def drop_attributes(node: NodeRecipe, *names: str) -> dict[str, Attribute]:
    """Return the node's attributes except the named ones."""
    return {name: value for name, value in node.attributes.items() if name not in names}


def make_constant_like_input(node: NodeRecipe, scope: RewriteScope, role: str, value: float) -> tuple[Nodes, str]:
    """Add a scalar constant with the float type of input 0. Return its name, and a CastLike node if that type is not known here."""
    if len(scope.float_types) <= 1:
        dtype = next(iter(scope.float_types), "float32")
        return [], scope.add_constant(node, role, np.array(value, get_numpy_dtype(dtype)))
    scalar = scope.add_constant(node, f"{role}.float32", np.array(value, np.float32))
    name = scope.make_name(node, role)
    return [NodeRecipe("CastLike", name, [scalar, node.inputs[0]], [name], {})], name
