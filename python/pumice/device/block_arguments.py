"""Memory of blocks as the shader lays it out, from members, dicts and arrays without its padding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._pumice import BindingError, UnsupportedError
from ..base.element_types import Array
from ..base.errors import binding_error

if TYPE_CHECKING:
    from .kernel import Kernel


class Block(NamedTuple):
    """A block of several members, or of one that is no array."""

    name: str  # of the argument
    members: tuple[str, ...]
    access: str
    unsized: bool  # its last member is an array of any length


class Filled(NamedTuple):
    """An array that the kernel writes, and the one that was given for it."""

    made: Array
    given: Array

    def copy_back(self) -> None:
        """Copies the results into the given array."""
        _copy(self.given, self.made)


def block_array(kernel: Kernel, block: Block, values: Mapping[str, Any], filled: list[Filled]) -> Array:
    """The structure of a block whose members have these values. Raises BindingError (K3, K4, K6, K9)."""
    missing = [name for name in block.members if name not in values]
    unknown = [str(name) for name in values if name not in block.members]
    if missing or unknown:
        told = f"no {', '.join(missing)}" if missing else ", ".join(unknown)
        raise binding_error(
            "K3" if missing else "K4", block.name, f"its members {', '.join(block.members)}", told, kind="argument"
        )
    array = np.zeros((), _block_dtype(kernel, block, values[block.members[-1]]))
    for name in block.members:
        _fill_member(array, name, values[name], f"{block.name}.{name}")
        if block.access == "read":
            continue
        if not isinstance(values[name], np.ndarray) or not values[name].flags.writeable:
            given = type(values[name]).__name__
            raise binding_error(
                "K9", f"{block.name}.{name}", "a writable array, which gets the result", given, kind="argument"
            )
        filled.append(Filled(array[name], values[name]))
    return array


def _block_dtype(kernel: Kernel, block: Block, last: Any) -> Any:
    if not block.unsized:
        return kernel.dtype(block.name)
    if np.ndim(last) == 0:
        expected = "an array: the block ends with one of any length"
        raise binding_error("K4", f"{block.name}.{block.members[-1]}", expected, repr(last), kind="argument")
    return kernel.dtype(block.name, len(last))


def converted(kernel: Kernel, name: str, given: Array, filled: list[Filled]) -> Array:
    """The array in the shader's layout; the given one where it has it, or is refused for more than its offsets."""
    try:
        wanted = kernel.dtype(name)
    except (BindingError, UnsupportedError):
        return given
    if wanted.names is None:
        return _padded(kernel, name, given, wanted, filled)
    if not _has_same_fields(given.dtype, wanted) or _has_same_layout(given.dtype, wanted):
        return given
    made: Array = np.zeros(given.shape, wanted)
    return _filled_from(kernel, name, made, given, filled)


def _padded(kernel: Kernel, name: str, given: Array, wanted: Any, filled: list[Filled]) -> Array:
    """Rows of three numbers with the gap that the shader has behind them."""
    axes = len(wanted.shape)
    rows = (*wanted.shape[:-1], wanted.shape[-1] - 1) if axes else ()
    components = next((one["components"] for one in kernel.shader.interface["bindings"] if _is_named(name, one)), 0)
    if (
        not axes
        or given.dtype.names
        or given.ndim < axes
        or given.shape[-axes:] != rows
        or math.prod(rows) != components
    ):
        return given
    made: Array = np.zeros((*given.shape[:-1], wanted.shape[-1]), given.dtype)
    return _filled_from(kernel, name, made, given, filled)


def _filled_from(kernel: Kernel, name: str, made: Array, given: Array, filled: list[Filled]) -> Array:
    _copy(made, given)
    access = next((one["access"] for one in kernel.shader.interface["bindings"] if _is_named(name, one)), "read")
    if access != "read":
        if not given.flags.writeable:
            raise binding_error(
                "K9", name, "a writable array: the kernel writes it", "a read-only one", kind="argument"
            )
        filled.append(Filled(made, given))
    return made


def _is_named(name: str, binding: Mapping[str, Any]) -> bool:
    own = binding["name"]
    return name in (own, binding["member"], f"{own}.{binding['member']}", *binding["aliases"])


def _copy(target: Array, source: Array) -> None:
    """Copies elements by field, and as many of a row as both have."""
    if target.dtype.names:
        for name in target.dtype.names:
            _copy(target[name], source[name])
    elif target.ndim and source.ndim and target.shape[-1] != source.shape[-1]:
        both = min(target.shape[-1], source.shape[-1])
        target[..., :both] = source[..., :both]
    else:
        target[...] = source.reshape(target.shape)


def _has_same_fields(given: Any, wanted: Any) -> bool:
    """Whether two dtypes have fields of the same names and elements, at whatever offsets."""
    if given.names is None or wanted.names is None:
        return bool(
            given.names is wanted.names and given.base == wanted.base and _without_gap(given) == _without_gap(wanted)
        )
    return set(given.names) == set(wanted.names) and all(
        _has_same_fields(given[name].base, wanted[name].base)
        and _without_gap(given[name]) in (wanted[name].shape, _without_gap(wanted[name]))
        for name in wanted.names
    )


def _without_gap(dtype: Any) -> tuple[int, ...]:
    """The shape of a field whose rows of four may be three numbers and a gap."""
    shape: tuple[int, ...] = dtype.shape
    return (*shape[:-1], 3) if len(shape) > 1 and shape[-1] == 4 else shape


def _has_same_layout(given: Any, wanted: Any) -> bool:
    if given.itemsize != wanted.itemsize:
        return False
    return wanted.names is None or all(
        given.fields[name][1] == wanted.fields[name][1] and _has_same_layout(given[name].base, wanted[name].base)
        for name in wanted.names
    )


def _check_held(value: Any, dtype: Any, where: str, given: Any) -> None:
    """Raises BindingError (K6) for numbers that an integer type does not hold."""
    if dtype.kind not in "iu":
        return
    limits = np.iinfo(dtype)
    if not all(one == one // 1 and limits.min <= one <= limits.max for one in value.ravel().tolist()):
        raise binding_error("K6", where, f"numbers that {dtype} can hold", repr(given), kind="argument")


def fill(target: Any, given: Any, where: str) -> None:
    """Writes a dict into a structure of an array, member by member."""
    names = target.dtype.names
    if names is None or not isinstance(given, Mapping) or set(given) != set(names):
        expected = f"a dict of {', '.join(names)}" if names else "numbers"
        told = f"one of {', '.join(map(str, given))}" if isinstance(given, Mapping) else type(given).__name__
        raise binding_error("K4", where, expected, told, kind="argument")
    for name in names:
        _fill_member(target, name, given[name], f"{where}.{name}")


def _fill_member(target: Any, name: str, given: Any, where: str) -> None:
    part = target[name]
    if part.dtype.names:
        return _fill_structures(part, given, where)
    value = np.asarray(given)
    shape = np.shape(part)
    # In an array, a vector of three numbers has a gap behind it, which is a fourth one here; alone it has three.
    if len(shape) > 1 and value.shape == (*shape[:-1], shape[-1] - 1) and shape[-1] == 4:
        value = np.concatenate([value, np.zeros((*value.shape[:-1], 1), value.dtype)], -1)
    if value.shape == (1,) and shape == ():
        value = value[0]
    if value.shape == shape and value.dtype.kind in "biuf":
        _check_held(np.asarray(value), target.dtype[name].base, where, given)
    try:
        if value.shape != shape or value.dtype.kind not in "biuf":
            raise ValueError
        target[name] = value
    except (TypeError, ValueError):
        expected = f"numbers of shape {shape}" if shape else "a number"
        raise binding_error("K4", where, expected, repr(given), kind="argument") from None
    return None


def _fill_structures(part: Any, given: Any, where: str) -> None:
    if isinstance(given, np.ndarray) and given.dtype.names:
        if not _has_same_fields(given.dtype, part.dtype) or given.shape != np.shape(part):
            expected = f"structures of {', '.join(part.dtype.names)} and shape {np.shape(part)}"
            raise binding_error("K4", where, expected, f"{given.dtype} of shape {given.shape}", kind="argument")
        _copy(part, given)
    elif np.shape(part) == ():
        fill(part, given, where)
    else:
        if not isinstance(given, (list, tuple)) or len(given) != len(part):
            raise binding_error("K4", where, f"{len(part)} dicts", type(given).__name__, kind="argument")
        for i, one in enumerate(given):
            fill(part[i], one, f"{where}[{i}]")
