"""Types of the values that an ONNX loop carries, slices and collects."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..._pumice import Value
    from ..file.graph_recipe import InputRecipe

Shape = tuple["int | None", ...] | None


class ScanElementType(NamedTuple):
    """The dtype and shape of the element that each iteration appends to a scan output."""

    dtype: str
    shape: Shape

    @property
    def known_sizes(self) -> tuple[int, ...] | None:
        sizes = [size for size in self.shape or () if size is not None]
        return tuple(sizes) if self.shape is not None and len(sizes) == len(self.shape) else None


class SlicedValue(NamedTuple):
    """A tensor from which the loop reads one slice per iteration, or to which it writes one."""

    name: str
    axis: int = 0
    reverse: bool = False
    rank: int | None = None  # declared rank of a slice


class LoopStateType(NamedTuple):
    """The dtype and shape of a loop-carried value."""

    dtype: str
    shape: Shape

    def merge_with(self, other: Value) -> LoopStateType:
        """Return the common type of the state and a new value. Sizes that differ become None, and so does a shape of a different rank."""
        if self.shape is None or other.shape is None or len(self.shape) != len(other.shape):
            return self._replace(shape=None)
        return self._replace(shape=tuple(a if a == b else None for a, b in zip(self.shape, other.shape, strict=True)))


def get_shape_or_declared_rank(value: Value, declared: SlicedValue) -> Shape:
    """Return a value's shape. If it is unknown, return a shape of unknown sizes with the rank declared in the file."""
    return (None,) * declared.rank if value.shape is None and declared.rank is not None else value.shape


def get_declared_rank(output: InputRecipe) -> int | None:
    return None if output.shape is None else len(output.shape)
