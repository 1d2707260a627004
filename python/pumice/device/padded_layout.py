"""Layouts of values in shader memory, with and without the padding of std140 and std430."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.element_types import Array

if TYPE_CHECKING:
    from .kernel import Kernel


class Layout(NamedTuple):
    """The axes of a value with arrays, matrices and vectors, outermost first; 0 is a runtime length."""

    sizes: tuple[int, ...]  # sizes as declared in the shader
    axes: tuple[int, ...]  # sizes with padding: an axis may be longer than in `sizes`, and there may be one more axis
    members: dict[str, Layout]  # a structure's members; its arrays have no padding between elements

    @property
    def has_gaps(self) -> bool:
        """Return whether there is padding between the values."""
        return self.sizes != self.axes

    @property
    def element(self) -> Layout:
        """Return the layout of an array element."""
        return Layout(self.sizes[1:], self.axes[1:], self.members)


def layout_of(kernel: Kernel, name: str) -> Layout | None:
    """Return the layout of a buffer's element, or of a block, in the fp32 build; None if it has too many members."""
    found = kernel._layout(name)
    return None if found is None else _layout(*found)


def _layout(sizes: tuple[int, ...], axes: tuple[int, ...], members: dict[str, Any]) -> Layout:
    return Layout(sizes, axes, {name: _layout(*member) for name, member in members.items()})


def without_gaps(array: Array, layout: Layout) -> Array:
    """Return a view of the values of an array in the shader's layout, without padding."""
    sizes = (slice(size or None) for size in layout.sizes)
    return array[(..., *sizes, *(0,) * (len(layout.axes) - len(layout.sizes)))]


def fits(shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Return whether a shape ends with these axes."""
    return shape[len(shape) - len(axes) :] == axes and len(shape) >= len(axes)


def row_of(shape: tuple[int, ...], element: Layout) -> tuple[int, ...] | None:
    """Return the trailing axes of an array that form one element, with or without padding; None if neither fits the shape."""
    # The padded form requires an additional axis: an array of four numbers is not one vec3 with padding.
    if element.has_gaps and fits(shape, element.axes) and len(shape) > len(element.axes):
        return element.axes
    return element.sizes if fits(shape, element.sizes) else None


def pairs(made: Array, given: Array, layout: Layout) -> Iterator[tuple[Array, Array]]:
    """Yield pairs of matching leaf arrays from an array in the shader's layout and a host array, padded or not."""
    if layout.members:
        for name, member in layout.members.items():
            yield from pairs(made[name], given[name], member)
    else:
        yield (made if made.shape == given.shape else without_gaps(made, layout)), given


def copy_in(made: Array, given: Array, layout: Layout) -> None:
    """Copy a host array to an array in the shader's layout."""
    for target, source in pairs(made, given, layout):
        target[...] = source.reshape(target.shape)


def copy_out(made: Array, given: Array, layout: Layout) -> None:
    """Copy an array in the shader's layout to a host array."""
    for source, target in pairs(made, given, layout):
        target[...] = source.reshape(target.shape)


def _flat(dtype: Any) -> tuple[Any, tuple[int, ...]]:
    """Return a field's innermost element dtype and all its axes, because elements may themselves be arrays."""
    shape: tuple[int, ...] = ()
    while dtype.subdtype:
        dtype, inner = dtype.subdtype
        shape += inner
    return dtype, shape


def has_same_fields(given: Any, wanted: Any, layout: Layout) -> bool:
    """Return whether two dtypes have fields with the same names and elements, at any offsets; the first may be unpadded."""
    element, shape = _flat(given)
    if not layout.members:
        return bool(element == wanted.base and shape in (layout.sizes, layout.axes))
    if element.names is None or set(element.names) != set(layout.members) or shape != wanted.shape:
        return False
    return all(has_same_fields(element[name], wanted.base[name], member) for name, member in layout.members.items())


def has_same_layout(given: Any, wanted: Any) -> bool:
    """Return whether two dtypes with the same fields have them at the same offsets."""
    if given.itemsize != wanted.itemsize:
        return False
    return wanted.names is None or all(
        given.fields[name][1] == wanted.fields[name][1] and has_same_layout(_flat(given[name])[0], wanted[name].base)
        for name in wanted.names
    )
