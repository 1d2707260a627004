"""Convert block members, dicts and unpadded arrays to arrays in the shader's memory layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._pumice import BindingError, UnsupportedError
from ..base.element_types import Array
from ..base.errors import binding_error
from .padded_layout import (
    PaddedLayout,
    copy_from_shader_layout,
    copy_to_shader_layout,
    find_element_axes,
    find_padded_layout,
    have_same_fields,
    have_same_offsets,
    view_without_padding,
)

if TYPE_CHECKING:
    from .kernel import Kernel


class BufferBlock(NamedTuple):
    """A buffer block with several members, or with a single member that is not an array."""

    name: str  # the block's argument name
    members: tuple[str, ...]
    access: str
    unsized: bool  # whether the last member is an array of runtime length


class Writeback(NamedTuple):
    """An array that the kernel writes, and the caller's array that receives its contents."""

    shader_array: Array
    caller_array: Array
    layout: PaddedLayout

    def copy_back(self) -> None:
        """Copy the results to the caller's array."""
        copy_from_shader_layout(self.shader_array, self.caller_array, self.layout)


def build_block_array(
    kernel: Kernel, block: BufferBlock, values: Mapping[str, Any], writebacks: list[Writeback]
) -> Array:
    """Return a structure array for a block with these member values.

    Raise BindingError for missing (K3), unknown (K4), out-of-range (K6) and read-only (K9) members.
    """
    missing = [name for name in block.members if name not in values]
    unknown = [str(name) for name in values if name not in block.members]
    if missing or unknown:
        received = f"no {', '.join(missing)}" if missing else ", ".join(unknown)
        raise binding_error(
            "K3" if missing else "K4", block.name, f"its members {', '.join(block.members)}", received, kind="argument"
        )
    array = np.zeros((), _get_block_dtype(kernel, block, values[block.members[-1]]))
    layout = find_padded_layout(kernel, block.name)
    assert layout is not None  # never None, because kernel.dtype() has succeeded
    for name in block.members:
        _fill_member(array, name, values[name], f"{block.name}.{name}", layout.members[name])
        if block.access == "read":
            continue
        if not isinstance(values[name], np.ndarray) or not values[name].flags.writeable:
            argument = type(values[name]).__name__
            raise binding_error(
                "K9", f"{block.name}.{name}", "a writable array, which gets the result", argument, kind="argument"
            )
        writebacks.append(Writeback(array[name], values[name], layout.members[name]))
    return array


def _get_block_dtype(kernel: Kernel, block: BufferBlock, last_member: Any) -> Any:
    if not block.unsized:
        return kernel.dtype(block.name)
    if np.ndim(last_member) == 0:
        expected = "an array: the block ends with an array of any length"
        raise binding_error("K4", f"{block.name}.{block.members[-1]}", expected, repr(last_member), kind="argument")
    return kernel.dtype(block.name, len(last_member))


def convert_to_shader_layout(kernel: Kernel, name: str, caller_array: Array, writebacks: list[Writeback]) -> Array:
    """Return the array in the shader's layout. Return it unchanged if it already has this layout, or if its fields are invalid."""
    try:
        shader_dtype = kernel.dtype(name)
    except (BindingError, UnsupportedError):
        return caller_array
    layout = find_padded_layout(kernel, name)
    assert layout is not None  # never None, because kernel.dtype() has succeeded
    if layout.members:
        if not have_same_fields(caller_array.dtype, shader_dtype, layout) or have_same_offsets(
            caller_array.dtype, shader_dtype
        ):
            return caller_array
        return _convert_with_writeback(
            kernel, name, np.zeros(caller_array.shape, shader_dtype), caller_array, (layout, writebacks)
        )
    # The layout is that of the fp32 build; an array of another dtype has different padding.
    if caller_array.dtype != shader_dtype.base or find_element_axes(caller_array.shape, layout) != layout.shape:
        return caller_array
    shader_array: Array = np.zeros(
        (*caller_array.shape[: caller_array.ndim - len(layout.shape)], *layout.padded_shape), caller_array.dtype
    )
    return _convert_with_writeback(kernel, name, shader_array, caller_array, (layout, writebacks))


def _convert_with_writeback(
    kernel: Kernel,
    name: str,
    shader_array: Array,
    caller_array: Array,
    layout_and_writebacks: tuple[PaddedLayout, list[Writeback]],
) -> Array:
    layout, writebacks = layout_and_writebacks
    copy_to_shader_layout(shader_array, caller_array, layout)
    access = next(
        (entry["access"] for entry in kernel.shader.interface["bindings"] if name in get_binding_names(entry)), "read"
    )
    if access != "read":
        if not caller_array.flags.writeable:
            raise binding_error(
                "K9", name, "a writable array: the kernel writes it", "a read-only one", kind="argument"
            )
        writebacks.append(Writeback(shader_array, caller_array, layout))
    return shader_array


def get_binding_names(binding: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names by which a call may pass a buffer: its own, its member's, "block.member" and aliases."""
    block_name, member = binding["name"], binding["member"]
    return (block_name, *([member, f"{block_name}.{member}"] if member else []), *binding["aliases"])


def _check_integer_range(value: Array, dtype: Any, member_path: str, argument: Any) -> None:
    """Raise BindingError (K6) for values outside the range of an integer type."""
    if dtype.kind not in "iu":
        return
    limits = np.iinfo(dtype)
    if not all(number == number // 1 and limits.min <= number <= limits.max for number in value.ravel().tolist()):
        raise binding_error("K6", member_path, f"numbers that {dtype} can hold", repr(argument), kind="argument")


def fill_structure(target: Array, argument: Any, member_path: str, layout: PaddedLayout) -> None:
    """Write a dict into a structure array of shape (), member by member."""
    names = layout.members
    if not names or not isinstance(argument, Mapping) or set(argument) != set(names):
        expected = f"a dict of {', '.join(names)}" if names else "numbers"
        received = (
            f"one of {', '.join(map(str, argument))}" if isinstance(argument, Mapping) else type(argument).__name__
        )
        raise binding_error("K4", member_path, expected, received, kind="argument")
    for name, member in names.items():
        _fill_member(target, name, argument[name], f"{member_path}.{name}", member)


def _fill_member(target: Array, name: str, argument: Any, member_path: str, layout: PaddedLayout) -> None:
    field = target[name]
    if layout.members:
        return _fill_structures(field, argument, member_path, layout)
    value = np.asarray(argument)
    numbers = view_without_padding(field, layout)
    if value.shape == (1,) and numbers.shape == ():
        value = value[0]
    if value.shape not in (numbers.shape, field.shape) or value.dtype.kind not in "biuf":
        expected = f"numbers of shape {numbers.shape}" if numbers.shape else "a number"
        raise binding_error("K4", member_path, expected, repr(argument), kind="argument")
    _check_integer_range(np.asarray(value), field.dtype, member_path, argument)
    (numbers if value.shape == numbers.shape else field)[...] = value
    return None


def _fill_structures(field: Array, argument: Any, member_path: str, layout: PaddedLayout) -> None:
    if isinstance(argument, (np.ndarray, np.void)) and argument.dtype.names:
        if not have_same_fields(argument.dtype, field.dtype, layout) or argument.shape != field.shape:
            expected = f"structures of {', '.join(layout.members)} and shape {field.shape}"
            raise binding_error(
                "K4", member_path, expected, f"{argument.dtype} of shape {argument.shape}", kind="argument"
            )
        copy_to_shader_layout(field, np.asarray(argument), layout)
    elif field.shape == ():
        fill_structure(field, argument, member_path, layout)
    else:
        if not isinstance(argument, (list, tuple)) or len(argument) != len(field):
            raise binding_error("K4", member_path, f"{len(field)} dicts", type(argument).__name__, kind="argument")
        for i, element in enumerate(argument):
            _fill_structures(field[i, ...], element, f"{member_path}[{i}]", layout)
