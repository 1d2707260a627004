"""Build the memory of buffer blocks in the shader's layout from members, dicts and unpadded arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._pumice import BindingError, UnsupportedError
from ..base.element_types import Array
from ..base.errors import binding_error
from .padded_layout import Layout, copy_in, copy_out, has_same_fields, has_same_layout, layout_of, row_of, without_gaps

if TYPE_CHECKING:
    from .kernel import Kernel


class Block(NamedTuple):
    """A buffer block with several members, or with a single member that is not an array."""

    name: str  # the block's argument name
    members: tuple[str, ...]
    access: str
    unsized: bool  # whether the last member is a runtime array


class Filled(NamedTuple):
    """An array that the kernel writes, and the caller's array that receives its contents."""

    made: Array
    given: Array
    layout: Layout

    def copy_back(self) -> None:
        """Copy the results to the caller's array."""
        copy_out(self.made, self.given, self.layout)


def block_array(kernel: Kernel, block: Block, values: Mapping[str, Any], filled: list[Filled]) -> Array:
    """Return a structure array for a block with these member values.

    Raise BindingError for missing (K3), unknown (K4), out-of-range (K6) and read-only (K9) members.
    """
    missing = [name for name in block.members if name not in values]
    unknown = [str(name) for name in values if name not in block.members]
    if missing or unknown:
        told = f"no {', '.join(missing)}" if missing else ", ".join(unknown)
        raise binding_error(
            "K3" if missing else "K4", block.name, f"its members {', '.join(block.members)}", told, kind="argument"
        )
    array = np.zeros((), _block_dtype(kernel, block, values[block.members[-1]]))
    layout = layout_of(kernel, block.name)
    assert layout is not None  # kernel.dtype() has succeeded
    for name in block.members:
        _fill_member(array, name, values[name], f"{block.name}.{name}", layout.members[name])
        if block.access == "read":
            continue
        if not isinstance(values[name], np.ndarray) or not values[name].flags.writeable:
            given = type(values[name]).__name__
            raise binding_error(
                "K9", f"{block.name}.{name}", "a writable array, which gets the result", given, kind="argument"
            )
        filled.append(Filled(array[name], values[name], layout.members[name]))
    return array


def _block_dtype(kernel: Kernel, block: Block, last: Any) -> Any:
    if not block.unsized:
        return kernel.dtype(block.name)
    if np.ndim(last) == 0:
        expected = "an array: the block ends with one of any length"
        raise binding_error("K4", f"{block.name}.{block.members[-1]}", expected, repr(last), kind="argument")
    return kernel.dtype(block.name, len(last))


def converted(kernel: Kernel, name: str, given: Array, filled: list[Filled]) -> Array:
    """Return the array in the shader's layout; unchanged if it has that layout, or if it is invalid for other reasons than its offsets."""
    try:
        wanted = kernel.dtype(name)
    except (BindingError, UnsupportedError):
        return given
    layout = layout_of(kernel, name)
    assert layout is not None  # kernel.dtype() has succeeded
    if layout.members:
        if not has_same_fields(given.dtype, wanted, layout) or has_same_layout(given.dtype, wanted):
            return given
        return _filled_from(kernel, name, np.zeros(given.shape, wanted), given, (layout, filled))
    # An array with another dtype than in the fp32 build has different padding.
    if given.dtype != wanted.base or row_of(given.shape, layout) != layout.sizes:
        return given
    made: Array = np.zeros((*given.shape[: given.ndim - len(layout.sizes)], *layout.axes), given.dtype)
    return _filled_from(kernel, name, made, given, (layout, filled))


def _filled_from(kernel: Kernel, name: str, made: Array, given: Array, back: tuple[Layout, list[Filled]]) -> Array:
    layout, filled = back
    copy_in(made, given, layout)
    access = next((one["access"] for one in kernel.shader.interface["bindings"] if name in names_of(one)), "read")
    if access != "read":
        if not given.flags.writeable:
            raise binding_error(
                "K9", name, "a writable array: the kernel writes it", "a read-only one", kind="argument"
            )
        filled.append(Filled(made, given, layout))
    return made


def names_of(binding: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names by which a call may pass a buffer; a member's name may also belong to another argument."""
    own, member = binding["name"], binding["member"]
    return (own, *([member, f"{own}.{member}"] if member else []), *binding["aliases"])


def _check_held(value: Array, dtype: Any, where: str, given: Any) -> None:
    """Raise BindingError (K6) for values outside the range of an integer type."""
    if dtype.kind not in "iu":
        return
    limits = np.iinfo(dtype)
    if not all(one == one // 1 and limits.min <= one <= limits.max for one in value.ravel().tolist()):
        raise binding_error("K6", where, f"numbers that {dtype} can hold", repr(given), kind="argument")


def fill(target: Array, given: Any, where: str, layout: Layout) -> None:
    """Write a dict into an array of one structure, member by member."""
    names = layout.members
    if not names or not isinstance(given, Mapping) or set(given) != set(names):
        expected = f"a dict of {', '.join(names)}" if names else "numbers"
        told = f"one of {', '.join(map(str, given))}" if isinstance(given, Mapping) else type(given).__name__
        raise binding_error("K4", where, expected, told, kind="argument")
    for name, member in names.items():
        _fill_member(target, name, given[name], f"{where}.{name}", member)


def _fill_member(target: Array, name: str, given: Any, where: str, layout: Layout) -> None:
    part = target[name]
    if layout.members:
        return _fill_structures(part, given, where, layout)
    value = np.asarray(given)
    numbers = without_gaps(part, layout)
    if value.shape == (1,) and numbers.shape == ():
        value = value[0]
    if value.shape not in (numbers.shape, part.shape) or value.dtype.kind not in "biuf":
        expected = f"numbers of shape {numbers.shape}" if numbers.shape else "a number"
        raise binding_error("K4", where, expected, repr(given), kind="argument")
    _check_held(np.asarray(value), part.dtype, where, given)
    (numbers if value.shape == numbers.shape else part)[...] = value
    return None


def _fill_structures(part: Array, given: Any, where: str, layout: Layout) -> None:
    if isinstance(given, (np.ndarray, np.void)) and given.dtype.names:
        if not has_same_fields(given.dtype, part.dtype, layout) or given.shape != part.shape:
            expected = f"structures of {', '.join(layout.members)} and shape {part.shape}"
            raise binding_error("K4", where, expected, f"{given.dtype} of shape {given.shape}", kind="argument")
        copy_in(part, np.asarray(given), layout)
    elif part.shape == ():
        fill(part, given, where, layout)
    else:
        if not isinstance(given, (list, tuple)) or len(given) != len(part):
            raise binding_error("K4", where, f"{len(part)} dicts", type(given).__name__, kind="argument")
        for i, one in enumerate(given):
            _fill_structures(part[i, ...], one, f"{where}[{i}]", layout)
