"""The GraphRecipe: an imported model, independent of the onnx package.

It contains everything needed to build the engine's Graph, and can be cached on disk.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias, TypeVar

from ...base.element_types import Bytes
from ...base.errors import graph_error

Overridable: TypeAlias = "bool | Collection[str]"  # names of initializers; True: all, False: none
Sizes: TypeAlias = "list[int | None] | None"  # None as a size: unknown size; None as the list: unknown rank


class UnrepresentableError(Exception):
    """Raised if a part of a model file cannot be represented in a GraphRecipe."""


try:  # as in the module collections
    from _collections import _tuplegetter  # type: ignore[import-not-found]
except ImportError:
    _tuplegetter = None

_LightNamedTuple = TypeVar("_LightNamedTuple", bound="LightNamedTuple")


def make_tuple_field(index: int) -> Any:
    """Return a descriptor for a tuple index: that of namedtuple if available, which is twice as fast as a property."""
    return property(itemgetter(index)) if _tuplegetter is None else _tuplegetter(index, None)


class LightNamedTuple(tuple[Any, ...]):
    """A base class for named tuples that is faster to subclass than NamedTuple.

    NamedTuple compiles code for each class, which takes 0.13 ms and would delay the first load in every process by five classes.
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()

    def _replace(self: _LightNamedTuple, **changed: Any) -> _LightNamedTuple:
        return type(self)(**{**dict(zip(self._fields, self, strict=True)), **changed})

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        named = (f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({', '.join(named)})"


class TensorLocation(LightNamedTuple):
    """The location of a tensor's bytes: an offset in the model file (file "") or in an external weights file."""

    __slots__ = ()
    _fields = ("file", "offset")
    file: str = make_tuple_field(0)
    offset: int = make_tuple_field(1)

    def __new__(
        cls,
        file: str,
        offset: int,
    ) -> TensorLocation:
        return tuple.__new__(cls, (file, offset))


class ConstantRecipe(LightNamedTuple):
    """A constant tensor of the model with its bytes, and with their location if they are stored in a file."""

    __slots__ = ()
    _fields = ("name", "dtype", "shape", "raw", "tensor_location")
    name: str = make_tuple_field(0)
    dtype: str = make_tuple_field(1)
    shape: list[int] = make_tuple_field(2)
    raw: Bytes = make_tuple_field(3)
    tensor_location: TensorLocation | None = make_tuple_field(4)

    def __new__(
        cls,
        name: str,
        dtype: str,
        shape: list[int],
        raw: Bytes,
        tensor_location: TensorLocation | None = None,
    ) -> ConstantRecipe:
        return tuple.__new__(cls, (name, dtype, shape, raw, tensor_location))


Attribute: TypeAlias = "int | float | str | list[int] | list[float] | list[str] | ConstantRecipe | GraphRecipe"


class InputRecipe(LightNamedTuple):
    """An input, or an output as declared in the file. In a subgraph, the dtype may be missing ("")."""

    __slots__ = ()
    _fields = ("name", "dtype", "shape", "dimension_names")
    name: str = make_tuple_field(0)
    dtype: str = make_tuple_field(1)
    shape: Sizes = make_tuple_field(2)
    dimension_names: list[str] = make_tuple_field(3)

    def __new__(
        cls,
        name: str,
        dtype: str,
        shape: Sizes,
        dimension_names: list[str],
    ) -> InputRecipe:
        return tuple.__new__(cls, (name, dtype, shape, dimension_names))


class NodeRecipe(LightNamedTuple):
    """A node, upgraded to the latest opset. "" marks omitted optional inputs and outputs.

    unsupported: why a GraphRecipe cannot represent the node; "" if it can.
    """

    __slots__ = ()
    _fields = ("op", "name", "inputs", "outputs", "attributes", "domain", "unsupported")
    op: str = make_tuple_field(0)
    name: str = make_tuple_field(1)
    inputs: list[str] = make_tuple_field(2)
    outputs: list[str] = make_tuple_field(3)
    attributes: dict[str, Attribute] = make_tuple_field(4)
    domain: str = make_tuple_field(5)
    unsupported: str = make_tuple_field(6)

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
    def subgraphs(self) -> dict[str, GraphRecipe]:
        """The graph attributes, by name."""
        return {name: value for name, value in self.attributes.items() if isinstance(value, GraphRecipe)}

    @property
    def reads(self) -> list[str]:
        """Names of the values that the node reads: its inputs, and outer-scope values that its subgraphs read."""
        return [*self.inputs, *(name for graph in self.subgraphs.values() for name in graph.captured)]

    @property
    def qualified_op(self) -> str:
        """The operator name, prefixed with "<domain>::" unless the domain is ONNX's own."""
        return f"{self.domain}::{self.op}" if self.domain else self.op


class GraphRecipe(LightNamedTuple):
    """An imported model or subgraph.

    nodes: topologically sorted. unsupported: unsupported features that are not a node's. captured: outer-scope values that a
    subgraph reads. metadata: the file's metadata_props. overridable: initializers that are also listed as inputs. defaults: default
    values of the initializers that are exposed as inputs; these follow the other inputs. string_values: values, also in subgraphs, that
    are indices into `strings`. warnings: declarations of the file that the importer ignores. plain: whether each node is known to become
    a single engine node, so that no translators need to be imported.
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
    name: str = make_tuple_field(0)
    inputs: list[InputRecipe] = make_tuple_field(1)
    constants: dict[str, ConstantRecipe] = make_tuple_field(2)
    nodes: list[NodeRecipe] = make_tuple_field(3)
    outputs: list[InputRecipe] = make_tuple_field(4)
    unsupported: list[str] = make_tuple_field(5)
    captured: Sequence[str] = make_tuple_field(6)
    metadata: Mapping[str, str] = make_tuple_field(7)
    overridable: Sequence[str] = make_tuple_field(8)
    defaults: Mapping[str, ConstantRecipe] = make_tuple_field(9)
    strings: Sequence[str] = make_tuple_field(10)
    string_values: Sequence[str] = make_tuple_field(11)
    plain: bool = make_tuple_field(12)
    warnings: Sequence[str] = make_tuple_field(13)

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
    ) -> GraphRecipe:
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

    def estimate_device_bytes(self, precision: str) -> int:
        """Return the approximate size in bytes of the constants on the device, without subgraphs' constants."""
        float32 = 1 if precision == "fp32" else 2
        sizes = ((len(constant.raw), constant.dtype) for constant in self.constants.values())
        return sum(size // float32 if dtype == "float32" else size for size, dtype in sizes)

    @property
    def is_complete(self) -> bool:
        """Whether the GraphRecipe represents the whole model, without unsupported features."""
        return not self.unsupported and all(
            not node.unsupported and all(graph.is_complete for graph in node.subgraphs.values()) for node in self.nodes
        )


def get_number_attr(node: NodeRecipe, name: str, default: float) -> float:
    """Return a numeric attribute. Raise GraphError if it is not a number."""
    value = node.attributes.get(name, default)
    if not isinstance(value, int | float):
        raise graph_error("node", node.name, f"attribute '{name}': expected a number, given {value!r}")
    return value


def get_ints_attr(node: NodeRecipe, name: str) -> list[int] | None:
    """Return an integer list attribute; None if absent. Raise GraphError if it is not a list of integers."""
    value = node.attributes.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
        raise graph_error("node", node.name, f"attribute '{name}': expected integers, given {value!r}")
    return [int(item) for item in value]


def strip_trailing_empty(names: list[str]) -> list[str]:
    """Return the names without trailing empty ones."""
    end = len(names)
    while end and not names[end - 1]:
        end -= 1
    return names[:end]


RANDOM_STATE = "pumice.random_state"  # uint32[4] input that the importer adds if nodes generate random numbers
STRING = "string"  # dtype of string tensors


def pack_strings(strings_to_pack: Sequence[str]) -> bytes:
    """Encode strings as the bytes of a ConstantRecipe."""
    import json

    return json.dumps(list(strings_to_pack)).encode()
