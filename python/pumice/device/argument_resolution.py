"""Convert kernel arguments in convenience forms: threads= as an array's name, blocks by member, structures as dicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._pumice import Image, UnsupportedError
from ..base.errors import binding_error
from .block_arguments import BufferBlock, Writeback, build_block_array, convert_to_shader_layout, fill_structure
from .padded_layout import find_element_axes, find_padded_layout

if TYPE_CHECKING:
    from .kernel import Kernel


class ArgumentLayout(NamedTuple):
    """Properties of a kernel's arguments, precomputed from its interface to speed up calls."""

    blocks: dict[str, BufferBlock]  # blocks with several members, keyed by argument, instance and block names
    members: dict[str, str]  # unambiguous member name -> argument name of its block
    arrays: dict[str, list[str]]  # name of an array of blocks -> "b[0]", "b[1]", ...
    padded: frozenset[str]  # names of arrays with padding in their elements

    @property
    def names_to_resolve(self) -> frozenset[str]:
        """Return the names of arguments that have to pass through `resolve_arguments`."""
        return frozenset({*self.members, *self.arrays, *self.padded, *self.blocks})


def make_argument_layout(kernel: Kernel) -> ArgumentLayout:
    """Return the argument layout of a kernel's fp32 build."""
    interface = kernel.shader.interface
    blocks: dict[str, BufferBlock] = {}
    # member -> [(whether the block has no instance name, the block's argument name)]
    owners: dict[str, list[tuple[bool, str]]] = {}
    arrays: dict[str, list[str]] = {}
    padded: set[str] = set()
    for entry in interface["bindings"]:
        name = entry["name"]
        if name.startswith("pumice_"):
            continue  # the engine's buffer for printf or bounds checks
        is_element = "[" in name
        if is_element:
            arrays.setdefault(name.split("[")[0], []).append(name)
        if entry["members"]:
            blocks[name] = BufferBlock(name, tuple(entry["members"]), entry["access"], entry["unsized"])
            if not is_element:
                blocks[entry["block"]] = blocks[name]
                for member in entry["members"]:
                    owners.setdefault(member, []).append((not entry["member"], name))
        elif (layout := find_padded_layout(kernel, name)) and layout.has_padding:
            padded.update((name, *([f"{name}.{entry['member']}", entry["member"]] if entry["member"] else [])))
    used_names = {entry["name"] for section in ("bindings", "images", "push_constants") for entry in interface[section]}
    unambiguous = {
        key: owner for key, owner_list in owners.items() if (owner := _find_owning_block(owner_list)) is not None
    }
    members = {key: owner for key, owner in unambiguous.items() if key not in used_names or key == owner}
    return ArgumentLayout(blocks, members, arrays, frozenset(padded))


def _find_owning_block(blocks: list[tuple[bool, str]]) -> str | None:
    """Return the block of an unqualified member name; None if ambiguous. As in GLSL, blocks without an instance name take precedence."""
    without_instance = [name for is_bare, name in blocks if is_bare]
    candidates = without_instance or [name for _, name in blocks]
    return candidates[0] if len(candidates) == 1 else None


def needs_argument_resolution(
    names_to_resolve: frozenset[str], arguments_dict: Any, arguments: Mapping[str, Any]
) -> bool:
    """Return whether any argument has to pass through `resolve_arguments`.

    arguments_dict: a dict of the arguments, or an invalid value that the call rejects.
    """
    if type(arguments.get("threads")) is str or not names_to_resolve.isdisjoint(arguments):
        return True
    for value in arguments.values():
        if type(value) is list and value and isinstance(value[0], Mapping):
            return True
        if type(value) is np.ndarray and value.dtype.names:
            return True
    return (
        arguments_dict is not None
        and isinstance(arguments_dict, Mapping)
        and needs_argument_resolution(names_to_resolve, None, arguments_dict)
    )


def resolve_arguments(
    kernel: Kernel, arguments_dict: Mapping[str, Any] | None, arguments: Mapping[str, Any]
) -> tuple[dict[str, Any] | None, dict[str, Any], list[Writeback]]:
    """Merge arguments passed in a dict and by name. Replace threads="y" by y's element count, and lists, dicts and members by arrays.

    Also return the writebacks that copy temporary arrays to the caller's arrays. Raise BindingError if threads= names no array
    (K8), or for the reasons of `build_block_array`.
    """
    argument_layout, writebacks = kernel._argument_layout, list[Writeback]()
    all_arguments = {**arguments, **(arguments_dict or {})}
    by_name = _resolve_named_values(kernel, argument_layout, arguments, writebacks)
    in_dict = (
        None if arguments_dict is None else _resolve_named_values(kernel, argument_layout, arguments_dict, writebacks)
    )
    if isinstance(array_name := by_name.get("threads"), str):
        if getattr(all_arguments.get(array_name), "shape", None) is None:
            arrays = ", ".join(key for key, value in all_arguments.items() if hasattr(value, "shape")) or "none"
            expected = f"a number, or the name of an array of this call ({arrays})"
            raise binding_error("K8", "threads", expected, repr(array_name), kind="argument")
        by_name["threads"] = _count_elements(kernel, argument_layout, array_name, all_arguments[array_name])
    return in_dict, by_name, writebacks


def _count_elements(kernel: Kernel, argument_layout: ArgumentLayout, name: str, value: Any) -> int:
    """Return the number of elements of an array or image; a vector, structure or texel in the shader's declaration is one element."""
    shape = tuple(value.shape)
    if isinstance(value, Image):
        return math.prod(shape[: value.dimensions])
    block = argument_layout.blocks.get(name)
    is_member = name in argument_layout.members and not _is_whole_block(name, value, block)
    layout = find_padded_layout(kernel, argument_layout.members[name] if is_member else name)
    if is_member and layout:
        layout = layout.members[name].element_layout
    elif block:
        return math.prod(shape)
    if getattr(value.dtype, "names", None) or layout is None:
        return math.prod(shape)
    element_axes = find_element_axes(shape, layout)
    return int(math.prod(shape) // math.prod(layout.padded_shape if element_axes is None else element_axes))


def _resolve_named_values(
    kernel: Kernel, argument_layout: ArgumentLayout, arguments: Mapping[str, Any], writebacks: list[Writeback]
) -> dict[str, Any]:
    resolved_values: dict[str, Any] = {}
    members: dict[str, dict[str, Any]] = {}  # block name -> member values, for blocks passed by member
    for name, value in arguments.items():
        block = argument_layout.blocks.get(name)
        if block and isinstance(value, Mapping):
            resolved_values[block.name] = build_block_array(kernel, block, value, writebacks)
        elif name in argument_layout.members and not _is_whole_block(name, value, block):
            members.setdefault(argument_layout.members[name], {})[name] = value
        elif name in argument_layout.arrays and isinstance(value, (list, tuple)):
            elements = _split_block_array(name, value, argument_layout.arrays[name])
            resolved_values.update(_resolve_named_values(kernel, argument_layout, elements, writebacks))
        else:
            resolved_values[name] = _resolve_value(kernel, argument_layout, name, value, writebacks)
    for name, values in members.items():
        # If a block and its member have the same name, a single array is taken as the whole block in its memory layout.
        is_whole = (
            set(values) == {name}
            and isinstance(values[name], np.ndarray)
            and len(argument_layout.blocks[name].members) > 1
        )
        resolved_values[name] = (
            values[name] if is_whole else build_block_array(kernel, argument_layout.blocks[name], values, writebacks)
        )
    return resolved_values


def _is_whole_block(name: str, value: Any, block: BufferBlock | None) -> bool:
    """Return whether a value is the whole block rather than the member of the same name."""
    if block is None:
        return False
    if value is None or not isinstance(value, np.ndarray):
        return value is None or hasattr(value, "shape")
    return bool(value.dtype.names) or value.dtype == np.uint8


def _split_block_array(name: str, values: Any, names: list[str]) -> dict[str, Any]:
    if len(values) != len(names):
        raise binding_error("K4", name, f"{len(names)} arrays, one for each block", str(len(values)), kind="argument")
    return dict(zip(names, values, strict=True))


def _resolve_value(
    kernel: Kernel, argument_layout: ArgumentLayout, name: str, value: Any, writebacks: list[Writeback]
) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return _make_structures(kernel, name, value)
    if isinstance(value, np.ndarray) and (value.dtype.names or name in argument_layout.padded):
        return convert_to_shader_layout(kernel, name, value, writebacks)
    return value


def _make_structures(kernel: Kernel, name: str, structures: list[Any]) -> Any:
    bindings = {entry["name"]: entry for entry in kernel.shader.interface["bindings"]}
    if name not in bindings:
        return structures  # push constants accept structures directly
    if bindings[name]["access"] != "read":
        raise binding_error(
            "K9", name, f"an array of kernel.dtype('{name}'): the kernel writes it", "a list of dicts", kind="argument"
        )
    try:
        dtype = kernel.dtype(name)
    except UnsupportedError as error:
        raise binding_error("K4", name, "structures that a dtype can describe", str(error), kind="argument") from None
    layout = find_padded_layout(kernel, name)
    assert layout is not None  # never None, because kernel.dtype() has succeeded
    array = np.zeros(len(structures), dtype)
    for i, entry in enumerate(structures):
        fill_structure(array[i, ...], entry, f"{name}[{i}]", layout)
    return array
