"""The GraphRecipe: an imported model, independent of the onnx package.

It contains everything needed to build the engine's Graph, and can be cached on disk.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from ...base.element_types import Bytes
from ...base.errors import graph_error

Overridable: TypeAlias = "bool | Collection[str]"  # names of initializers; True: all, False: none
Sizes: TypeAlias = "list[int | None] | None"  # None as a size: unknown size; None as the list: unknown rank


class UnrepresentableError(Exception):
    """Raised if a part of a model file cannot be represented in a GraphRecipe."""


class TensorLocation(NamedTuple):
    """The location of a tensor's bytes: an offset in the model file (file "") or in an external weights file."""

    file: str
    offset: int


class ConstantRecipe(NamedTuple):
    """A constant tensor of the model with its bytes, and with their location if they are stored in a file."""

    name: str
    dtype: str
    shape: list[int]
    raw: Bytes
    tensor_location: TensorLocation | None = None


Attribute: TypeAlias = "int | float | str | list[int] | list[float] | list[str] | ConstantRecipe | GraphRecipe"


class InputRecipe(NamedTuple):
    """An input, or an output as declared in the file. In a subgraph, the dtype may be missing ("")."""

    name: str
    dtype: str
    shape: Sizes
    dimension_names: list[str]


class NodeRecipe(NamedTuple):
    """A node, upgraded to the latest opset. "" marks omitted optional inputs and outputs.

    unsupported: why a GraphRecipe cannot represent the node; "" if it can.
    """

    op: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Attribute]
    domain: str = ""
    unsupported: str = ""

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


class GraphRecipe(NamedTuple):
    """An imported model or subgraph.

    nodes: topologically sorted. unsupported: unsupported features that are not a node's. captured: outer-scope values that a
    subgraph reads. metadata: the file's metadata_props. overridable: initializers that are also listed as inputs. defaults: default
    values of the initializers that are exposed as inputs; these follow the other inputs. string_values: values, also in subgraphs, that
    are indices into `strings`. warnings: declarations of the file that the importer ignores. plain: whether each node is known to become
    a single engine node, so that no translators need to be imported. Without nodes and constants, it describes a graph that was built from
    the cache.
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
