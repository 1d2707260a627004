"""Sequences and optional values of ONNX as tensors of the graph: what they are made of, and how they cross a graph's border.

A sequence whose tensors are known one by one is a list of values. Else it is packed: all elements in a row (`data`), all shapes in a
row (`dims`), and for each tensor its rank and its number of elements (`rows`). An optional value has a bool beside it.
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
    """The type of a value: as text "float32", "sequence(float32)", "optional(sequence(float32))"."""

    __slots__ = ()
    _fields = ("dtype", "sequence", "optional")
    dtype: str = field_at(0)
    sequence: bool = field_at(1)
    optional: bool = field_at(2)

    def __new__(cls, dtype: str, sequence: bool = False, optional: bool = False) -> Kind:
        return tuple.__new__(cls, (dtype, sequence, optional))

    @staticmethod
    def of(text: str) -> Kind:
        """The Kind that a text stands for, such as "sequence(float32)"."""
        optional = text.startswith("optional(")
        inner = text[len("optional(") : -1] if optional else text
        sequence = inner.startswith("sequence(")
        return Kind(inner[len("sequence(") : -1] if sequence else inner, sequence, optional)

    @property
    def compound(self) -> bool:
        """Whether a value of this kind is several tensors."""
        return self.sequence or self.optional

    @property
    def parts(self) -> list[tuple[str, str, list[int | None] | None]]:
        """Name, element type and shape of each tensor that such a value is packed as."""
        element: list[tuple[str, str, list[int | None] | None]] = [("element", self.dtype, None)]
        if self.sequence:
            element = [("data", self.dtype, [None]), ("dims", "int64", [None]), ("rows", "int64", [None, 2])]
        return [("has", "bool", [1]), *element] if self.optional else element

    def names(self, name: str) -> list[str]:
        """The names of the parts of a value called `name`."""
        return [f"{name}/{part}" if name else "" for part, _, _ in self.parts] if self.compound else [name]

    def joined(self, other: Kind) -> Kind:
        """This kind, which is optional where one of both is."""
        return self._replace(optional=self.optional or other.optional)

    def packed(self, parts: Iterator[Value]) -> Made:
        """The value that consists of these parts."""
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
    """The rank of a tensor; None where it is unknown."""
    return None if value.shape is None else len(value.shape)


def common_rank(values: list[Value]) -> int | None:
    """The rank that all tensors have; None where they differ or one is unknown."""
    ranks = {rank_of(value) for value in values}
    return ranks.pop() if len(ranks) == 1 else None


class SequenceValue:
    """A sequence of tensors of one element type: `items` where they are known one by one, else `packed`."""

    def __init__(
        self, dtype: str, items: list[Value] | None = None, packed: tuple[Value, Value, Value] | None = None
    ) -> None:
        self.dtype = dtype
        self.items = items
        self._packed = packed
        self.rank = common_rank(items) if items else None  # the rank of all its tensors, where it is known

    def packed(self, builder: Builder, node: NodeRecipe) -> tuple[Value, Value, Value]:
        """The tensors (data, dims, rows) of the packed sequence; nodes pack it at the first call."""
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
    """An optional value. `has`: whether it is there, as bool[1] where that is not known yet; `element`: None if it is
    not.
    """

    def __init__(self, kind: Kind, has: bool | Value, element: Value | SequenceValue | None) -> None:
        self.kind = kind
        self.has = has
        self.element = element


Made: TypeAlias = "Value | SequenceValue | OptionalValue"


def packed_item(builder: Builder, node: NodeRecipe, item: Value) -> tuple[Value, Value, Value]:
    """A tensor as a packed sequence of one."""
    helper = builder.helper
    dims = helper(node, "Shape", item)
    rank = helper(node, "Shape", dims)
    size = helper(node, "Reshape", helper(node, "Size", item), SINGLE)
    rows = helper(node, "Reshape", helper(node, "Concat", rank, size, axis=0), np.array([1, 2]))
    return helper(node, "Reshape", item, FLAT), dims, rows


def kind_of(value: Made) -> Kind:
    """The Kind of a value."""
    if isinstance(value, OptionalValue):
        return value.kind
    return Kind(value.dtype, isinstance(value, SequenceValue))


def leaves(value: Made) -> list[Value]:
    """The tensors that a value consists of in its present form."""
    if isinstance(value, SequenceValue):
        return value.items if value.items is not None else list(value._packed or ())
    if isinstance(value, OptionalValue):
        element = [] if value.element is None else leaves(value.element)
        return element if isinstance(value.has, bool) else [value.has, *element]
    return [value]


def replaced(value: Made, made: Iterator[Value]) -> Made:
    """A value of the same form that consists of other tensors."""
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
    """The parts (see Kind.parts) of a value that is passed as `kind`.

    Raises GraphError for a tensor in place of a sequence, or the reverse.
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
    """The parts of a sequence of arrays: all elements, all sizes, and (rank, size) of each."""
    data = [np.ascontiguousarray(array).reshape(-1) for array in arrays]
    dims = [size for array in arrays for size in array.shape]
    rows = [[array.ndim, array.size] for array in arrays]
    joined = np.concatenate(data) if data else np.zeros(0, dtype)
    return [joined, np.array(dims, np.int64), np.array(rows, np.int64).reshape(-1, 2)]


def unpacked_arrays(data: Array, dims: Array, rows: Array) -> list[Array]:
    """The arrays of a packed sequence, the reverse of packed_arrays()."""
    arrays = []
    first = place = 0
    for rank, size in rows.tolist():
        arrays.append(data[place : place + size].reshape(dims[first : first + rank]))
        first += rank
        place += size
    return arrays
