"""A Recipe is what a model file says, free of the package that parsed it.

It is enough to make the engine's Graph, and can be kept on disk.
"""

# Without the annotations of __future__: a NamedTuple would compile each of them, which every first load in a process waits for.

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from ...base.element_types import Bytes
from ...base.errors import graph_error

Overridable: TypeAlias = "bool | Collection[str]"  # names of initializers; True for all, False for none
Sizes: TypeAlias = list[int | None] | None  # None for an unknown size; no list for an unknown rank


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


Attribute: TypeAlias = "int | float | str | list[int] | list[float] | list[str] | ConstantRecipe | Recipe"


class InputRecipe(NamedTuple):
    """An input, or an output as the file declares it; a subgraph's may have no dtype ("")."""

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
    def subgraphs(self) -> "dict[str, Recipe]":
        """The attributes that are graphs, by name."""
        return {name: value for name, value in self.attributes.items() if isinstance(value, Recipe)}

    @property
    def reads(self) -> list[str]:
        """The values that the node reads: its inputs, and those that subgraphs take from outside."""
        return [*self.inputs, *(name for graph in self.subgraphs.values() for name in graph.captured)]

    @property
    def qualified_op(self) -> str:
        """The operator, behind its domain where that is not ONNX's own."""
        return f"{self.domain}::{self.op}" if self.domain else self.op


class Recipe(NamedTuple):
    """A whole model or a subgraph. `nodes` are in an order in which they can run; `unsupported` is what it needs beside them and
    cannot have; `captured` are the values of graphs around it that a subgraph reads; `metadata` is what a file says of itself.

    `overridable` are the initializers that the file lists as inputs too; `defaults` are those of them that were asked for: inputs,
    behind the others, with what they hold where they are not given. `string_values` are the inputs and outputs that are places in
    `strings`. `warnings`: what of the file is not taken as it stands. `plain`: every node is known to be a single one of the engine,
    so that nothing else need be imported.
    """

    name: str
    inputs: list[InputRecipe]
    constants: dict[str, ConstantRecipe]
    nodes: list[NodeRecipe]
    outputs: list[InputRecipe]
    unsupported: list[str]
    captured: Sequence[str] = ()
    metadata: Mapping[str, str] = MappingProxyType({})
    overridable: Sequence[str] = ()
    defaults: Mapping[str, ConstantRecipe] = MappingProxyType({})
    strings: Sequence[str] = ()
    string_values: Sequence[str] = ()
    plain: bool = False
    warnings: Sequence[str] = ()

    def stored_bytes(self, precision: str) -> int:
        """About how many bytes the constants take on a device at that precision, without those of subgraphs."""
        float32 = 1 if precision == "fp32" else 2
        sizes = ((len(constant.raw), constant.dtype) for constant in self.constants.values())
        return sum(size // float32 if dtype == "float32" else size for size, dtype in sizes)

    @property
    def complete(self) -> bool:
        """Whether the Recipe holds all of the model."""
        return not self.unsupported and all(
            not node.unsupported and all(graph.complete for graph in node.subgraphs.values()) for node in self.nodes
        )


def number(node: NodeRecipe, name: str, default: float) -> float:
    """A number among the attributes. Raises GraphError for anything else."""
    value = node.attributes.get(name, default)
    if not isinstance(value, int | float):
        raise graph_error("node", node.name, f"attribute '{name}': expected a number, given {value!r}")
    return value


def integers(node: NodeRecipe, name: str) -> list[int] | None:
    """A list of integers among the attributes; None where it is absent. Raises GraphError for anything else."""
    value = node.attributes.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
        raise graph_error("node", node.name, f"attribute '{name}': expected integers, given {value!r}")
    return [int(item) for item in value]


def without_trailing_gaps(names: list[str]) -> list[str]:
    """The names up to the last that is not ""."""
    end = len(names)
    while end and not names[end - 1]:
        end -= 1
    return names[:end]


RANDOM_STATE = "pumice.random_state"  # the input that importing adds where nodes make random numbers, uint32[4]
STRING = "string"  # the dtype of a ConstantRecipe of strings


def packed(texts: Sequence[str]) -> bytes:
    """The bytes of a ConstantRecipe of strings."""
    import json

    return json.dumps(list(texts)).encode()
