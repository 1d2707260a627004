"""Represent ONNX sequences and optional values as tensors, also across graph boundaries.

A sequence is a list of values if its length is known. Otherwise it is packed into three tensors: `data` (all elements,
concatenated), `dims` (all shapes, concatenated) and `rows` (rank and element count of each tensor). An optional value adds
a bool.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ...base.element_types import Array, get_numpy_dtype
from ...base.errors import graph_error

if TYPE_CHECKING:
    from ..._pumice import Value
    from ..file.graph_recipe import NodeRecipe
    from .builder import GraphBuilder

ARRAY_MINUS_1, ARRAY_0, ARRAY_1 = np.array([-1]), np.array([0]), np.array([1])
PACKED = ("data", "dims", "rows")


class ValueKind(NamedTuple):
    """The type of a value, such as "float32", "sequence(float32)" or "optional(sequence(float32))"."""

    dtype: str
    sequence: bool = False
    optional: bool = False

    @staticmethod
    def parse(text: str) -> ValueKind:
        """Parse a type such as "sequence(float32)"."""
        optional = text.startswith("optional(")
        inner = text[len("optional(") : -1] if optional else text
        sequence = inner.startswith("sequence(")
        return ValueKind(inner[len("sequence(") : -1] if sequence else inner, sequence, optional)

    @property
    def is_non_tensor(self) -> bool:
        """Whether a value of this kind consists of several tensors."""
        return self.sequence or self.optional

    @property
    def tensor_specs(self) -> list[tuple[str, str, list[int | None] | None]]:
        """(name, dtype, shape) of each tensor that represents a value of this kind."""
        element: list[tuple[str, str, list[int | None] | None]] = [("element", self.dtype, None)]
        if self.sequence:
            element = [("data", self.dtype, [None]), ("dims", "int64", [None]), ("rows", "int64", [None, 2])]
        return [("has", "bool", [1]), *element] if self.optional else element

    def get_tensor_names(self, name: str) -> list[str]:
        """Return the names of the tensors that represent a value called `name`."""
        return (
            [f"{name}/{part_name}" if name else "" for part_name, _, _ in self.tensor_specs]
            if self.is_non_tensor
            else [name]
        )

    def with_optional(self, other: ValueKind) -> ValueKind:
        """Return this kind, made optional if either kind is optional."""
        return self._replace(optional=self.optional or other.optional)

    def make_value(self, tensors: Iterator[Value]) -> BuiltValue:
        """Build a value of this kind from its tensors."""
        has = next(tensors) if self.optional else True
        if not self.sequence:
            element: Value | SequenceValue = next(tensors)
        else:
            element = SequenceValue(self.dtype, None, (next(tensors), next(tensors), next(tensors)))
        return OptionalValue(self, has, element) if self.optional else element

    def __str__(self) -> str:
        text = f"sequence({self.dtype})" if self.sequence else self.dtype
        return f"optional({text})" if self.optional else text


def get_rank(value: Value) -> int | None:
    """Return the rank of a tensor; None if unknown."""
    return None if value.shape is None else len(value.shape)


def get_common_rank(values: list[Value]) -> int | None:
    """Return the rank common to all tensors; None if they differ or one is unknown."""
    ranks = {get_rank(value) for value in values}
    return ranks.pop() if len(ranks) == 1 else None


class SequenceValue:
    """A sequence of tensors with one dtype, stored as `items` (one value per tensor) or packed."""

    def __init__(
        self, dtype: str, items: list[Value] | None = None, packed: tuple[Value, Value, Value] | None = None
    ) -> None:
        self.dtype = dtype
        self.items = items
        self._packed = packed
        self.rank = get_common_rank(items) if items else None  # rank of all items; None if unknown or different

    def get_packed(self, builder: GraphBuilder, node: NodeRecipe) -> tuple[Value, Value, Value]:
        """Return the packed sequence as (data, dims, rows). The first call adds the packing nodes."""
        if self._packed is None:
            packed_items = [pack_tensor(builder, node, item) for item in self.items or ()]
            if not packed_items:
                empty = (np.zeros(0, get_numpy_dtype(self.dtype)), np.zeros(0, np.int64), np.zeros((0, 2), np.int64))
                self._packed = tuple(builder.graph.constant(array) for array in empty)  # type: ignore[assignment]
            else:
                self._packed = tuple(  # type: ignore[assignment]
                    builder.add_helper(node, "Concat", *parts, axis=0) for parts in zip(*packed_items, strict=True)
                )
        assert self._packed is not None
        return self._packed


class OptionalValue:
    """An optional value. `is_present`: a bool, or a bool[1] tensor if known only at run time. `element`: None if absent."""

    def __init__(self, kind: ValueKind, is_present: bool | Value, element: Value | SequenceValue | None) -> None:
        self.kind = kind
        self.is_present = is_present
        self.element = element


BuiltValue: TypeAlias = "Value | SequenceValue | OptionalValue"


def pack_tensor(builder: GraphBuilder, node: NodeRecipe, item: Value) -> tuple[Value, Value, Value]:
    """Return a tensor as a packed sequence of length 1."""
    add_helper = builder.add_helper
    dims = add_helper(node, "Shape", item)
    rank = add_helper(node, "Shape", dims)
    size = add_helper(node, "Reshape", add_helper(node, "Size", item), ARRAY_1)
    rows = add_helper(node, "Reshape", add_helper(node, "Concat", rank, size, axis=0), np.array([1, 2]))
    return add_helper(node, "Reshape", item, ARRAY_MINUS_1), dims, rows


def get_value_kind(value: BuiltValue) -> ValueKind:
    """Return the kind of a value."""
    if isinstance(value, OptionalValue):
        return value.kind
    return ValueKind(value.dtype, isinstance(value, SequenceValue))


def get_tensors(value: BuiltValue) -> list[Value]:
    """Return the tensors that currently represent a value, without adding nodes."""
    if isinstance(value, SequenceValue):
        return value.items if value.items is not None else list(value._packed or ())
    if isinstance(value, OptionalValue):
        element = [] if value.element is None else get_tensors(value.element)
        return element if isinstance(value.is_present, bool) else [value.is_present, *element]
    return [value]


def replace_tensors(value: BuiltValue, new_tensors: Iterator[Value]) -> BuiltValue:
    """Return a copy of a value with other tensors in place of get_tensors(value)."""
    if isinstance(value, SequenceValue):
        if value.items is not None:
            return SequenceValue(value.dtype, [next(new_tensors) for _ in value.items])
        other = SequenceValue(value.dtype, None, (next(new_tensors), next(new_tensors), next(new_tensors)))
        other.rank = value.rank
        return other
    if isinstance(value, OptionalValue):
        is_present = value.is_present if isinstance(value.is_present, bool) else next(new_tensors)
        element: Any = None if value.element is None else replace_tensors(value.element, new_tensors)
        return OptionalValue(value.kind, is_present, element)
    return next(new_tensors)


def to_tensors(builder: GraphBuilder, node: NodeRecipe, value: BuiltValue, kind: ValueKind) -> list[Value]:
    """Return a value as the tensors of `kind` (see ValueKind.tensor_specs), adding nodes as needed.

    Raise GraphError if one of `value` and `kind` is a sequence and the other is not.
    """
    is_present: bool | Value = True
    element: Any = value
    if isinstance(value, OptionalValue):
        is_present, element = value.is_present, value.element
    if element is not None and isinstance(element, SequenceValue) != kind.sequence:
        raise graph_error("node", node.name, f"expected {kind}, given {get_value_kind(value)}")
    parts: list[Value] = []
    if kind.optional:
        parts.append(builder.graph.constant(np.array([is_present])) if isinstance(is_present, bool) else is_present)
    if kind.sequence:
        element = SequenceValue(kind.dtype, []) if element is None else element
        return parts + list(element.get_packed(builder, node))
    if element is None:
        element = builder.graph.constant(np.zeros(0, get_numpy_dtype(kind.dtype)))
    return [*parts, element]


# ---- packing of array sequences


def pack_arrays(arrays: list[Array], dtype: np.dtype[Any]) -> list[Array]:
    """Pack a sequence of arrays into [data, dims, rows]; see the module docstring."""
    data = [np.ascontiguousarray(array).reshape(-1) for array in arrays]
    dims = [size for array in arrays for size in array.shape]
    rows = [[array.ndim, array.size] for array in arrays]
    all_elements = np.concatenate(data) if data else np.zeros(0, dtype)
    return [all_elements, np.array(dims, np.int64), np.array(rows, np.int64).reshape(-1, 2)]


def unpack_arrays(data: Array, dims: Array, rows: Array) -> list[Array]:
    """Unpack a packed sequence; the inverse of pack_arrays()."""
    arrays = []
    dims_offset = data_offset = 0
    for rank, size in rows.tolist():
        arrays.append(data[data_offset : data_offset + size].reshape(dims[dims_offset : dims_offset + rank]))
        dims_offset += rank
        data_offset += size
    return arrays
