"""A Recipe is what a model file says, free of the package that parsed it.

It is enough to make the engine's Graph, and can be kept on disk.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias, TypeVar

from ...base.element_types import Bytes
from ...base.errors import graph_error

Overridable: TypeAlias = "bool | Collection[str]"  # names of initializers; True for all, False for none
Sizes: TypeAlias = "list[int | None] | None"  # None for an unknown size; no list for an unknown rank


class NotExpressible(Exception):
    """Something of a model file that a Recipe cannot hold."""


try:  # as the module collections does
    from _collections import _tuplegetter  # type: ignore[import-not-found]
except ImportError:
    _tuplegetter = None

_Fields = TypeVar("_Fields", bound="Fields")


def field_at(place: int) -> Any:
    """A descriptor that reads one place of a tuple: as named tuples do where Python has that, which is twice as quick as a property."""
    return property(itemgetter(place)) if _tuplegetter is None else _tuplegetter(place, None)


class Fields(tuple[Any, ...]):
    """A tuple whose places have names. A NamedTuple compiles code for each of its classes, which takes 0.13 ms: every first load in a
    process would wait for five.
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()

    def _replace(self: _Fields, **changed: Any) -> _Fields:
        return type(self)(**{**dict(zip(self._fields, self, strict=True)), **changed})

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        named = (f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({', '.join(named)})"


class Place(Fields):
    """Where bytes lie: in the model file itself (file ""), or in one beside it."""

    __slots__ = ()
    _fields = ("file", "offset")
    file: str = field_at(0)
    offset: int = field_at(1)

    def __new__(
        cls,
        file: str,
        offset: int,
    ) -> Place:
        return tuple.__new__(cls, (file, offset))


class ConstantRecipe(Fields):
    """A tensor of the file, as its bytes."""

    __slots__ = ()
    _fields = ("name", "dtype", "shape", "raw", "place")
    name: str = field_at(0)
    dtype: str = field_at(1)
    shape: list[int] = field_at(2)
    raw: Bytes = field_at(3)
    place: Place | None = field_at(4)

    def __new__(
        cls,
        name: str,
        dtype: str,
        shape: list[int],
        raw: Bytes,
        place: Place | None = None,
    ) -> ConstantRecipe:
        return tuple.__new__(cls, (name, dtype, shape, raw, place))


Attribute: TypeAlias = "int | float | str | list[int] | list[float] | list[str] | ConstantRecipe | Recipe"


class InputRecipe(Fields):
    """An input, or an output as the file declares it; a subgraph's may have no dtype ("")."""

    __slots__ = ()
    _fields = ("name", "dtype", "shape", "dimension_names")
    name: str = field_at(0)
    dtype: str = field_at(1)
    shape: Sizes = field_at(2)
    dimension_names: list[str] = field_at(3)

    def __new__(
        cls,
        name: str,
        dtype: str,
        shape: Sizes,
        dimension_names: list[str],
    ) -> InputRecipe:
        return tuple.__new__(cls, (name, dtype, shape, dimension_names))


class NodeRecipe(Fields):
    """A node in the newest form of its operator; "" stands for optional inputs and outputs left out.

    `unsupported` says what of it a Recipe cannot hold.
    """

    __slots__ = ()
    _fields = ("op", "name", "inputs", "outputs", "attributes", "domain", "unsupported")
    op: str = field_at(0)
    name: str = field_at(1)
    inputs: list[str] = field_at(2)
    outputs: list[str] = field_at(3)
    attributes: dict[str, Attribute] = field_at(4)
    domain: str = field_at(5)
    unsupported: str = field_at(6)

    def __new__(
        cls,
        op: str,
        name: str,
        inputs: list[str],
        outputs: list[str],
        attributes: dict[str, Attribute],
        domain: str = "",
        unsupported: str = "",
    ) -> NodeRecipe:
        return tuple.__new__(cls, (op, name, inputs, outputs, attributes, domain, unsupported))

    @property
    def subgraphs(self) -> dict[str, Recipe]:
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


class Recipe(Fields):
    """A whole model or a subgraph. `nodes` are in an order in which they can run; `unsupported` is what it needs beside them and
    cannot have; `captured` are the values of graphs around it that a subgraph reads; `metadata` is what a file says of itself.

    `overridable` are the initializers that the file lists as inputs too; `defaults` are those of them that were asked for: inputs,
    behind the others, with what they hold where they are not given. `string_values` are the values, also of subgraphs, that are places in
    `strings`. `warnings`: what of the file is not taken as it stands. `plain`: every node is known to be a single one of the engine,
    so that nothing else need be imported.
    """

    __slots__ = ()
    _fields = (
        "name",
        "inputs",
        "constants",
        "nodes",
        "outputs",
        "unsupported",
        "captured",
        "metadata",
        "overridable",
        "defaults",
        "strings",
        "string_values",
        "plain",
        "warnings",
    )
    name: str = field_at(0)
    inputs: list[InputRecipe] = field_at(1)
    constants: dict[str, ConstantRecipe] = field_at(2)
    nodes: list[NodeRecipe] = field_at(3)
    outputs: list[InputRecipe] = field_at(4)
    unsupported: list[str] = field_at(5)
    captured: Sequence[str] = field_at(6)
    metadata: Mapping[str, str] = field_at(7)
    overridable: Sequence[str] = field_at(8)
    defaults: Mapping[str, ConstantRecipe] = field_at(9)
    strings: Sequence[str] = field_at(10)
    string_values: Sequence[str] = field_at(11)
    plain: bool = field_at(12)
    warnings: Sequence[str] = field_at(13)

    def __new__(
        cls,
        name: str,
        inputs: list[InputRecipe],
        constants: dict[str, ConstantRecipe],
        nodes: list[NodeRecipe],
        outputs: list[InputRecipe],
        unsupported: list[str],
        captured: Sequence[str] = (),
        metadata: Mapping[str, str] = MappingProxyType({}),
        overridable: Sequence[str] = (),
        defaults: Mapping[str, ConstantRecipe] = MappingProxyType({}),
        strings: Sequence[str] = (),
        string_values: Sequence[str] = (),
        plain: bool = False,
        warnings: Sequence[str] = (),
    ) -> Recipe:
        return tuple.__new__(
            cls,
            (
                name,
                inputs,
                constants,
                nodes,
                outputs,
                unsupported,
                captured,
                metadata,
                overridable,
                defaults,
                strings,
                string_values,
                plain,
                warnings,
            ),
        )

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
