"""Numbers in a shader's memory, with the gaps of std140 and std430 between them and without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.element_types import Array

if TYPE_CHECKING:
    from .kernel import Kernel


class Layout(NamedTuple):
    """The axes of arrays, matrices and vectors, the outermost first; an axis of any length is 0."""

    sizes: tuple[int, ...]  # as the shader declares them
    axes: tuple[int, ...]  # with gaps: an axis of `sizes` may be longer, and one more may follow
    members: dict[str, Layout]  # of a structure, which has no gaps between its elements

    @property
    def has_gaps(self) -> bool:
        """Whether gaps lie between the numbers."""
        return self.sizes != self.axes

    @property
    def element(self) -> Layout:
        """The layout of an element of an array."""
        return Layout(self.sizes[1:], self.axes[1:], self.members)


def layout_of(kernel: Kernel, name: str) -> Layout | None:
    """The layout of a buffer's element, or of a block, in the fp32 build; None where it has too many members to tell."""
    found = kernel._layout(name)
    return None if found is None else _layout(*found)


def _layout(sizes: tuple[int, ...], axes: tuple[int, ...], members: dict[str, Any]) -> Layout:
    return Layout(sizes, axes, {name: _layout(*member) for name, member in members.items()})


def without_gaps(array: Array, layout: Layout) -> Array:
    """The numbers of an array that has the shader's layout, as a view."""
    sizes = (slice(size or None) for size in layout.sizes)
    return array[(..., *sizes, *(0,) * (len(layout.axes) - len(layout.sizes)))]


def fits(shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether a shape is one of an array with these axes, behind those of the array itself."""
    return shape[len(shape) - len(axes) :] == axes and len(shape) >= len(axes)


def row_of(shape: tuple[int, ...], element: Layout) -> tuple[int, ...] | None:
    """The axes that an element has in an array of this shape: with the gaps, without, or None where neither fits."""
    # One axis more: an array of four numbers is no element of four, of which three are a gap.
    if element.has_gaps and fits(shape, element.axes) and len(shape) > len(element.axes):
        return element.axes
    return element.sizes if fits(shape, element.sizes) else None


def pairs(made: Array, given: Array, layout: Layout) -> Iterator[tuple[Array, Array]]:
    """The numbers of an array with the shader's layout, and those of an array of the host, with the gaps or without."""
    if layout.members:
        for name, member in layout.members.items():
            yield from pairs(made[name], given[name], member)
    else:
        yield (made if made.shape == given.shape else without_gaps(made, layout)), given


def copy_in(made: Array, given: Array, layout: Layout) -> None:
    """Copies an array of the host into one with the shader's layout."""
    for target, source in pairs(made, given, layout):
        target[...] = source.reshape(target.shape)


def copy_out(made: Array, given: Array, layout: Layout) -> None:
    """Copies an array with the shader's layout into one of the host."""
    for source, target in pairs(made, given, layout):
        target[...] = source.reshape(target.shape)


def _flat(dtype: Any) -> tuple[Any, tuple[int, ...]]:
    """The elements of a field and all its axes: the elements of an array may be arrays."""
    shape: tuple[int, ...] = ()
    while dtype.subdtype:
        dtype, inner = dtype.subdtype
        shape += inner
    return dtype, shape


def has_same_fields(given: Any, wanted: Any, layout: Layout) -> bool:
    """Whether two dtypes have fields of the same names and elements, at whatever offsets; fields of the first may lack the gaps."""
    element, shape = _flat(given)
    if not layout.members:
        return bool(element == wanted.base and shape in (layout.sizes, layout.axes))
    if element.names is None or set(element.names) != set(layout.members) or shape != wanted.shape:
        return False
    return all(has_same_fields(element[name], wanted.base[name], member) for name, member in layout.members.items())


def has_same_layout(given: Any, wanted: Any) -> bool:
    """Whether two dtypes with the same fields have them at the same offsets."""
    if given.itemsize != wanted.itemsize:
        return False
    return wanted.names is None or all(
        given.fields[name][1] == wanted.fields[name][1] and has_same_layout(_flat(given[name])[0], wanted[name].base)
        for name in wanted.names
    )
