"""The Recipe: the content of a model file, independent of the parser's package.

It contains everything needed to build the engine's Graph, and can be cached on disk.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias, TypeVar

from ...base.element_types import Bytes
from ...base.errors import graph_error

Overridable: TypeAlias = "bool | Collection[str]"  # names of initializers; True for all, False for none
Sizes: TypeAlias = "list[int | None] | None"  # a size is None if unknown; None in place of the list: unknown rank


class NotExpressible(Exception):
    """Raised if a part of a model file cannot be represented in a Recipe."""


try:  # like the module collections
    from _collections import _tuplegetter  # type: ignore[import-not-found]
except ImportError:
    _tuplegetter = None

_Fields = TypeVar("_Fields", bound="Fields")


def make_field(index: int) -> Any:
    """Return a descriptor for one tuple index: namedtuple's if available, which is twice as fast as a property."""
    return property(itemgetter(index)) if _tuplegetter is None else _tuplegetter(index, None)


class Fields(tuple[Any, ...]):
    """A tuple with named fields. Each NamedTuple class compiles code, which takes 0.13 ms; the first load in every
    process would pay for five.
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


class TensorLocation(Fields):
    """The location of a tensor's bytes: offset in the model file (file "") or in an external file."""

    __slots__ = ()
    _fields = ("file", "offset")
    file: str = make_field(0)
    offset: int = make_field(1)

    def __new__(
        cls,
        file: str,
        offset: int,
    ) -> TensorLocation:
        return tuple.__new__(cls, (file, offset))


class ConstantRecipe(Fields):
    """A constant tensor in the file, with its bytes."""

    __slots__ = ()
    _fields = ("name", "dtype", "shape", "raw", "tensor_location")
    name: str = make_field(0)
    dtype: str = make_field(1)
    shape: list[int] = make_field(2)
    raw: Bytes = make_field(3)
    tensor_location: TensorLocation | None = make_field(4)

    def __new__(
        cls,
        name: str,
        dtype: str,
        shape: list[int],
        raw: Bytes,
        tensor_location: TensorLocation | None = None,
    ) -> ConstantRecipe:
        return tuple.__new__(cls, (name, dtype, shape, raw, tensor_location))


Attribute: TypeAlias = "int | float | str | list[int] | list[float] | list[str] | ConstantRecipe | Recipe"


class InputRecipe(Fields):
    """An input, or an output as declared in the file. In a subgraph, the dtype may be missing ("")."""

    __slots__ = ()
    _fields = ("name", "dtype", "shape", "dimension_names")
    name: str = make_field(0)
    dtype: str = make_field(1)
    shape: Sizes = make_field(2)
    dimension_names: list[str] = make_field(3)

    def __new__(
        cls,
        name: str,
        dtype: str,
        shape: Sizes,
        dimension_names: list[str],
    ) -> InputRecipe:
        return tuple.__new__(cls, (name, dtype, shape, dimension_names))


class NodeRecipe(Fields):
    """A node in the form of the latest opset; "" marks omitted optional inputs and outputs.

    `unsupported` is the reason why a Recipe cannot represent the node.
    """

    __slots__ = ()
    _fields = ("op", "name", "inputs", "outputs", "attributes", "domain", "unsupported")
    op: str = make_field(0)
    name: str = make_field(1)
    inputs: list[str] = make_field(2)
    outputs: list[str] = make_field(3)
    attributes: dict[str, Attribute] = make_field(4)
    domain: str = make_field(5)
    unsupported: str = make_field(6)

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
        """The graph attributes, by name."""
        return {name: value for name, value in self.attributes.items() if isinstance(value, Recipe)}

    @property
    def reads(self) -> list[str]:
        """The values that the node reads: its inputs and the outer-scope values used by its subgraphs."""
        return [*self.inputs, *(name for graph in self.subgraphs.values() for name in graph.captured)]

    @property
    def qualified_op(self) -> str:
        """The operator, prefixed with its domain unless that is ONNX's own."""
        return f"{self.domain}::{self.op}" if self.domain else self.op


class Recipe(Fields):
    """A whole model or a subgraph. `nodes` are topologically sorted; `unsupported` lists unsupported features, except those of nodes;
    `captured` are the outer-scope values that a subgraph reads; `metadata` is the file's metadata.

    `overridable` are the initializers that are also listed as inputs. `defaults` are the initializers that the caller asked to expose as
    inputs: they follow the other inputs, with their default values. `string_values` are the values, also in subgraphs, that are
    indices into `strings`. `warnings`: declarations in the file that are not followed as written. `plain`: every node
    is known to be a single engine node, so the builders of composed operators need not be imported.
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
    name: str = make_field(0)
    inputs: list[InputRecipe] = make_field(1)
    constants: dict[str, ConstantRecipe] = make_field(2)
    nodes: list[NodeRecipe] = make_field(3)
    outputs: list[InputRecipe] = make_field(4)
    unsupported: list[str] = make_field(5)
    captured: Sequence[str] = make_field(6)
    metadata: Mapping[str, str] = make_field(7)
    overridable: Sequence[str] = make_field(8)
    defaults: Mapping[str, ConstantRecipe] = make_field(9)
    strings: Sequence[str] = make_field(10)
    string_values: Sequence[str] = make_field(11)
    plain: bool = make_field(12)
    warnings: Sequence[str] = make_field(13)

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
        """Return the approximate size in bytes of the constants on the device at a precision, without subgraphs."""
        float32 = 1 if precision == "fp32" else 2
        sizes = ((len(constant.raw), constant.dtype) for constant in self.constants.values())
        return sum(size // float32 if dtype == "float32" else size for size, dtype in sizes)

    @property
    def is_complete(self) -> bool:
        """Whether the Recipe represents the entire model."""
        return not self.unsupported and all(
            not node.unsupported and all(graph.is_complete for graph in node.subgraphs.values()) for node in self.nodes
        )


def get_number(node: NodeRecipe, name: str, default: float) -> float:
    """Return a numeric attribute. Raise GraphError if it is anything else."""
    value = node.attributes.get(name, default)
    if not isinstance(value, int | float):
        raise graph_error("node", node.name, f"attribute '{name}': expected a number, given {value!r}")
    return value


def get_integers(node: NodeRecipe, name: str) -> list[int] | None:
    """Return an attribute that is a list of integers; None if absent. Raise GraphError if it is anything else."""
    value = node.attributes.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
        raise graph_error("node", node.name, f"attribute '{name}': expected integers, given {value!r}")
    return [int(item) for item in value]


def strip_trailing_empty(names: list[str]) -> list[str]:
    """Drop trailing "" names."""
    end = len(names)
    while end and not names[end - 1]:
        end -= 1
    return names[:end]


RANDOM_STATE = "pumice.random_state"  # uint32[4] input that the importer adds if nodes generate random numbers
STRING = "string"  # dtype of a ConstantRecipe that contains strings


def pack_strings(strings_to_pack: Sequence[str]) -> bytes:
    """Encode strings as the bytes of a ConstantRecipe."""
    import json

    return json.dumps(list(strings_to_pack)).encode()
