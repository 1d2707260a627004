"""Layouts of values in shader memory, with and without the padding of std140 and std430."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.element_types import Array

if TYPE_CHECKING:
    from .kernel import Kernel


class PaddedLayout(NamedTuple):
    """The array, matrix and vector axes of a value in shader memory, outermost first; size 0 means a runtime length."""

    shape: tuple[int, ...]  # as declared in the shader
    padded_shape: tuple[int, ...]  # with padding: an axis may be longer than in `shape`, and there may be one more axis
    members: dict[str, PaddedLayout]  # members of a structure; arrays of structures have no padding between elements

    @property
    def has_padding(self) -> bool:
        """Return whether the elements have padding."""
        return self.shape != self.padded_shape

    @property
    def element_layout(self) -> PaddedLayout:
        """Return the layout of an array element."""
        return PaddedLayout(self.shape[1:], self.padded_shape[1:], self.members)


def find_padded_layout(kernel: Kernel, name: str) -> PaddedLayout | None:
    """Return the layout of a buffer's element or of a block in the fp32 build; None if it has too many members."""
    record = kernel._layout(name)
    return None if record is None else _make_layout(*record)


def _make_layout(shape: tuple[int, ...], padded_shape: tuple[int, ...], members: dict[str, Any]) -> PaddedLayout:
    return PaddedLayout(shape, padded_shape, {name: _make_layout(*member) for name, member in members.items()})


def view_without_padding(array: Array, layout: PaddedLayout) -> Array:
    """Return a view of the values of an array in the shader's layout, without padding."""
    slices = (slice(size or None) for size in layout.shape)
    return array[(..., *slices, *(0,) * (len(layout.padded_shape) - len(layout.shape)))]


def shape_ends_with(shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Return whether a shape ends with these axes."""
    return shape[len(shape) - len(axes) :] == axes and len(shape) >= len(axes)


def find_element_axes(shape: tuple[int, ...], element: PaddedLayout) -> tuple[int, ...] | None:
    """Return the trailing axes of an array that form one element, with or without padding; None if neither fits the shape."""
    # The padded form requires an additional axis: an array of four numbers is not one vec3 with padding.
    if element.has_padding and shape_ends_with(shape, element.padded_shape) and len(shape) > len(element.padded_shape):
        return element.padded_shape
    return element.shape if shape_ends_with(shape, element.shape) else None


def iterate_leaf_pairs(shader_array: Array, host_array: Array, layout: PaddedLayout) -> Iterator[tuple[Array, Array]]:
    """Yield (shader, host) pairs of matching member arrays from an array in the shader's layout and a host array, padded or not."""
    if layout.members:
        for name, member in layout.members.items():
            yield from iterate_leaf_pairs(shader_array[name], host_array[name], member)
    else:
        yield (
            (shader_array if shader_array.shape == host_array.shape else view_without_padding(shader_array, layout)),
            host_array,
        )


def copy_to_shader_layout(shader_array: Array, host_array: Array, layout: PaddedLayout) -> None:
    """Copy a host array to an array in the shader's layout."""
    for target, source in iterate_leaf_pairs(shader_array, host_array, layout):
        target[...] = source.reshape(target.shape)


def copy_from_shader_layout(shader_array: Array, host_array: Array, layout: PaddedLayout) -> None:
    """Copy an array in the shader's layout to a host array."""
    for source, target in iterate_leaf_pairs(shader_array, host_array, layout):
        target[...] = source.reshape(target.shape)


def _get_element_dtype_and_shape(dtype: Any) -> tuple[Any, tuple[int, ...]]:
    """Return the element dtype and the shape of a field; unlike dtype.subdtype, resolve arrays of arrays."""
    shape: tuple[int, ...] = ()
    while dtype.subdtype:
        dtype, inner = dtype.subdtype
        shape += inner
    return dtype, shape


def have_same_fields(dtype_a: Any, dtype_b: Any, layout: PaddedLayout) -> bool:
    """Return whether two dtypes have fields with the same names and elements, at any offsets; the first may be unpadded."""
    element, shape = _get_element_dtype_and_shape(dtype_a)
    if not layout.members:
        return bool(element == dtype_b.base and shape in (layout.shape, layout.padded_shape))
    if element.names is None or set(element.names) != set(layout.members) or shape != dtype_b.shape:
        return False
    return all(have_same_fields(element[name], dtype_b.base[name], member) for name, member in layout.members.items())


def have_same_offsets(dtype_a: Any, dtype_b: Any) -> bool:
    """Return whether two dtypes with the same fields have them at the same offsets."""
    if dtype_a.itemsize != dtype_b.itemsize:
        return False
    return dtype_b.names is None or all(
        dtype_a.fields[name][1] == dtype_b.fields[name][1]
        and have_same_offsets(_get_element_dtype_and_shape(dtype_a[name])[0], dtype_b[name].base)
        for name in dtype_b.names
    )
