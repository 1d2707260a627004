"""What a model file says, free of the package that parsed it: enough to make the engine's Graph, and to be kept on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from . import _pumice
from ._pumice import Graph, GraphError, UnsupportedError
from .element_types import Bytes, array_of
from .errors import graph_error, unsupported_error

if TYPE_CHECKING:
    from ._pumice import Value

Sizes: TypeAlias = "list[int | None] | None"  # None for unknown sizes; no list: unknown rank


class NotExpressible(Exception):
    """Something of a model file that a Recipe cannot hold."""


class Place(NamedTuple):
    """Where bytes lie: in the model file itself (file ""), or in one beside it."""

    file: str
    offset: int


class ConstantRecipe(NamedTuple):
    """A tensor of the file, as its bytes."""

    name: str
    dtype: str
    shape: list[int]
    raw: Bytes
    place: Place | None = None


Attribute: TypeAlias = "int | float | str | list[int] | list[float] | list[str] | ConstantRecipe"


class InputRecipe(NamedTuple):
    """An input, or an output as the file declares it."""

    name: str
    dtype: str
    shape: Sizes
    dimension_names: list[str]


class NodeRecipe(NamedTuple):
    """A node in the newest form of its operator; "" stands for optional inputs and outputs left out.

    `unsupported` says what of it a Recipe cannot hold.
    """

    op: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Attribute]
    domain: str = ""
    unsupported: str = ""

    @property
    def qualified_op(self) -> str:
        return f"{self.domain}::{self.op}" if self.domain else self.op


class Recipe(NamedTuple):
    """A whole model. `nodes` are in an order in which they can run; `unsupported` is what it needs beside them and cannot have."""

    name: str
    inputs: list[InputRecipe]
    constants: dict[str, ConstantRecipe]
    nodes: list[NodeRecipe]
    outputs: list[InputRecipe]
    unsupported: list[str]

    @property
    def complete(self) -> bool:
        """Whether it holds all of the model."""
        return not self.unsupported and not any(node.unsupported for node in self.nodes)


def without_trailing_gaps(names: list[str]) -> list[str]:
    end = len(names)
    while end and not names[end - 1]:
        end -= 1
    return names[:end]


class _Builder:
    """Makes the engine's values by name; goes on after a refused node, so that all that is unsupported is found."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.graph = Graph(recipe.name)
        self.values: dict[str, Value] = {}
        self.unsupported = list(recipe.unsupported)
        self.first_error: GraphError | None = None

    def add_input(self, value: InputRecipe) -> None:
        try:
            self.values[value.name] = self.graph.input(value.name, value.dtype, value.shape, value.dimension_names)
        except UnsupportedError as error:
            self.unsupported.extend(error.items)

    def value(self, name: str) -> Value | None:
        """None for a value that could not be made."""
        constant = self.recipe.constants.get(name)
        if name not in self.values and constant:
            self.values[name] = self.graph.constant(array_of(constant.raw, constant.dtype, constant.shape), name)
        return self.values.get(name)

    def add_node(self, node: NodeRecipe) -> None:
        if node.unsupported or not _pumice.has_operator(node.op, node.domain):
            reason = f": {node.unsupported}" if node.unsupported else ""
            self.unsupported.append(f"node '{node.name}': operator {node.qualified_op}{reason}")
            return
        inputs = [self.value(name) if name else None for name in node.inputs]
        if any(name and value is None for name, value in zip(node.inputs, inputs, strict=True)):
            return  # what makes it was refused, and said so
        attributes = {
            name: array_of(value.raw, value.dtype, value.shape) if isinstance(value, ConstantRecipe) else value
            for name, value in node.attributes.items()
        }
        names = without_trailing_gaps(node.outputs)
        try:
            made = self.graph.add(
                node.qualified_op, *inputs, outputs=len(names), name=node.name, output_names=names, **attributes
            )
        except UnsupportedError as error:
            self.unsupported.extend(error.items)
        except GraphError as error:
            self.first_error = self.first_error or error
        else:
            self.values.update(zip(names, made if isinstance(made, tuple) else (made,), strict=True))

    def finish(self) -> Graph:
        if self.unsupported:
            raise unsupported_error(f"model '{self.recipe.name}'", self.unsupported)
        if self.first_error:
            raise self.first_error
        for output in self.recipe.outputs:
            value = self.value(output.name)
            if value is None:
                raise graph_error("output", output.name, "nothing makes it")
            self.graph.output(output.name, value)
        self.graph.finish()
        return self.graph


def build(recipe: Recipe) -> Graph:
    """The engine's Graph. Raises UnsupportedError with all that is not supported, GraphError."""
    builder = _Builder(recipe)
    for value in recipe.inputs:
        builder.add_input(value)
    for node in recipe.nodes:
        builder.add_node(node)
    return builder.finish()
