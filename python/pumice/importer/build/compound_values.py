"""Represent ONNX sequences and optional values as tensors, also across graph boundaries.

A sequence whose tensors are known individually is a list of values. Otherwise it is packed: all elements concatenated
(`data`), all shapes concatenated (`dims`), and rank and element count of each tensor (`rows`). An optional value adds a
bool.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...base.element_types import Array, numpy_dtype
from ...base.errors import graph_error
from ..file.recipe import Fields, field_at

if TYPE_CHECKING:
    from ..._pumice import Value
    from ..file.recipe import NodeRecipe
    from .builder import Builder

FLAT, FIRST, SINGLE = np.array([-1]), np.array([0]), np.array([1])
PACKED = ("data", "dims", "rows")


class Kind(Fields):
    """The type of a value; written as "float32", "sequence(float32)", "optional(sequence(float32))"."""

    __slots__ = ()
    _fields = ("dtype", "sequence", "optional")
    dtype: str = field_at(0)
    sequence: bool = field_at(1)
    optional: bool = field_at(2)

    def __new__(cls, dtype: str, sequence: bool = False, optional: bool = False) -> Kind:
        return tuple.__new__(cls, (dtype, sequence, optional))

    @staticmethod
    def of(text: str) -> Kind:
        """Parse a type such as "sequence(float32)"."""
        optional = text.startswith("optional(")
        inner = text[len("optional(") : -1] if optional else text
        sequence = inner.startswith("sequence(")
        return Kind(inner[len("sequence(") : -1] if sequence else inner, sequence, optional)

    @property
    def compound(self) -> bool:
        """Whether a value of this kind is represented by several tensors."""
        return self.sequence or self.optional

    @property
    def parts(self) -> list[tuple[str, str, list[int | None] | None]]:
        """(name, dtype, shape) of each tensor in the packed value."""
        element: list[tuple[str, str, list[int | None] | None]] = [("element", self.dtype, None)]
        if self.sequence:
            element = [("data", self.dtype, [None]), ("dims", "int64", [None]), ("rows", "int64", [None, 2])]
        return [("has", "bool", [1]), *element] if self.optional else element

    def names(self, name: str) -> list[str]:
        """Return the names of the parts of a value called `name`."""
        return [f"{name}/{part}" if name else "" for part, _, _ in self.parts] if self.compound else [name]

    def joined(self, other: Kind) -> Kind:
        """Return this kind, made optional if either kind is optional."""
        return self._replace(optional=self.optional or other.optional)

    def packed(self, parts: Iterator[Value]) -> Made:
        """Build the value from its parts."""
        has = next(parts) if self.optional else True
        if not self.sequence:
            element: Value | SequenceValue = next(parts)
        else:
            element = SequenceValue(self.dtype, None, (next(parts), next(parts), next(parts)))
        return OptionalValue(self, has, element) if self.optional else element

    def __str__(self) -> str:
        text = f"sequence({self.dtype})" if self.sequence else self.dtype
        return f"optional({text})" if self.optional else text


def rank_of(value: Value) -> int | None:
    """Return the rank of a tensor; None if unknown."""
    return None if value.shape is None else len(value.shape)


def common_rank(values: list[Value]) -> int | None:
    """Return the rank common to all tensors; None if they differ or one is unknown."""
    ranks = {rank_of(value) for value in values}
    return ranks.pop() if len(ranks) == 1 else None


class SequenceValue:
    """A sequence of tensors of one dtype: `items` if they are known individually, else `packed`."""

    def __init__(
        self, dtype: str, items: list[Value] | None = None, packed: tuple[Value, Value, Value] | None = None
    ) -> None:
        self.dtype = dtype
        self.items = items
        self._packed = packed
        self.rank = common_rank(items) if items else None  # common rank of the items, if known

    def packed(self, builder: Builder, node: NodeRecipe) -> tuple[Value, Value, Value]:
        """Return the packed sequence as (data, dims, rows). The first call adds the nodes that pack it."""
        if self._packed is None:
            made = [packed_item(builder, node, item) for item in self.items or ()]
            if not made:
                empty = (np.zeros(0, numpy_dtype(self.dtype)), np.zeros(0, np.int64), np.zeros((0, 2), np.int64))
                self._packed = tuple(builder.graph.constant(array) for array in empty)  # type: ignore[assignment]
            else:
                self._packed = tuple(  # type: ignore[assignment]
                    builder.helper(node, "Concat", *parts, axis=0) for parts in zip(*made, strict=True)
                )
        assert self._packed is not None
        return self._packed


class OptionalValue:
    """An optional value. `has`: whether it is present, a bool[1] tensor if known only at run time; `element`: None if absent."""

    def __init__(self, kind: Kind, has: bool | Value, element: Value | SequenceValue | None) -> None:
        self.kind = kind
        self.has = has
        self.element = element


Made: TypeAlias = "Value | SequenceValue | OptionalValue"


def packed_item(builder: Builder, node: NodeRecipe, item: Value) -> tuple[Value, Value, Value]:
    """Return a tensor as a packed sequence of length 1."""
    helper = builder.helper
    dims = helper(node, "Shape", item)
    rank = helper(node, "Shape", dims)
    size = helper(node, "Reshape", helper(node, "Size", item), SINGLE)
    rows = helper(node, "Reshape", helper(node, "Concat", rank, size, axis=0), np.array([1, 2]))
    return helper(node, "Reshape", item, FLAT), dims, rows


def kind_of(value: Made) -> Kind:
    """Return the Kind of a value."""
    if isinstance(value, OptionalValue):
        return value.kind
    return Kind(value.dtype, isinstance(value, SequenceValue))


def leaves(value: Made) -> list[Value]:
    """Return the tensors of a value in its current representation."""
    if isinstance(value, SequenceValue):
        return value.items if value.items is not None else list(value._packed or ())
    if isinstance(value, OptionalValue):
        element = [] if value.element is None else leaves(value.element)
        return element if isinstance(value.has, bool) else [value.has, *element]
    return [value]


def replaced(value: Made, made: Iterator[Value]) -> Made:
    """Return a value of the same structure with other tensors."""
    if isinstance(value, SequenceValue):
        if value.items is not None:
            return SequenceValue(value.dtype, [next(made) for _ in value.items])
        other = SequenceValue(value.dtype, None, (next(made), next(made), next(made)))
        other.rank = value.rank
        return other
    if isinstance(value, OptionalValue):
        has = value.has if isinstance(value.has, bool) else next(made)
        element: Any = None if value.element is None else replaced(value.element, made)
        return OptionalValue(value.kind, has, element)
    return next(made)


def parts_of(builder: Builder, node: NodeRecipe, value: Made, kind: Kind) -> list[Value]:
    """Return the parts (see Kind.parts) of a value passed as `kind`.

    Raise GraphError for a tensor in place of a sequence, or vice versa.
    """
    has: bool | Value = True
    element: Any = value
    if isinstance(value, OptionalValue):
        has, element = value.has, value.element
    if element is not None and isinstance(element, SequenceValue) != kind.sequence:
        raise graph_error("node", node.name, f"expected {kind}, given {kind_of(value)}")
    parts: list[Value] = []
    if kind.optional:
        parts.append(builder.graph.constant(np.array([has])) if isinstance(has, bool) else has)
    if kind.sequence:
        element = SequenceValue(kind.dtype, []) if element is None else element
        return parts + list(element.packed(builder, node))
    if element is None:
        element = builder.graph.constant(np.zeros(0, numpy_dtype(kind.dtype)))
    return [*parts, element]


# ---- as arrays


def packed_arrays(arrays: list[Array], dtype: np.dtype[Any]) -> list[Array]:
    """Pack a sequence of arrays: all elements, all sizes, and each array's rank and element count."""
    data = [np.ascontiguousarray(array).reshape(-1) for array in arrays]
    dims = [size for array in arrays for size in array.shape]
    rows = [[array.ndim, array.size] for array in arrays]
    joined = np.concatenate(data) if data else np.zeros(0, dtype)
    return [joined, np.array(dims, np.int64), np.array(rows, np.int64).reshape(-1, 2)]


def unpacked_arrays(data: Array, dims: Array, rows: Array) -> list[Array]:
    """Unpack a packed sequence; the inverse of packed_arrays()."""
    arrays = []
    first = place = 0
    for rank, size in rows.tolist():
        arrays.append(data[place : place + size].reshape(dims[first : first + rank]))
        first += rank
        place += size
    return arrays
