"""Resolve indirect kernel arguments: a launch by an array's name, blocks by members, structures as dicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._pumice import Image, UnsupportedError
from ..base.errors import binding_error
from .block_arguments import Block, Filled, block_array, converted, fill
from .padded_layout import layout_of, row_of

if TYPE_CHECKING:
    from .kernel import Kernel


class Facts(NamedTuple):
    """Properties of a kernel's arguments, precomputed from its interface to speed up calls."""

    blocks: dict[str, Block]  # blocks with several members, keyed by argument, instance and block names
    members: dict[str, str]  # unambiguous member name -> argument name of its block
    arrays: dict[str, list[str]]  # name of an array of blocks -> "b[0]", "b[1]", ...
    padded: frozenset[str]  # names of arrays with padding between their values

    @property
    def special(self) -> frozenset[str]:
        """Return the names of arguments that have to pass through `resolved`."""
        return frozenset({*self.members, *self.arrays, *self.padded, *self.blocks})


def facts_of(kernel: Kernel) -> Facts:
    """Return the facts of a kernel's arguments, from its fp32 build."""
    interface = kernel.shader.interface
    blocks: dict[str, Block] = {}
    # member -> [(whether its block lacks an instance name, argument name)]
    owners: dict[str, list[tuple[bool, str]]] = {}
    arrays: dict[str, list[str]] = {}
    padded: set[str] = set()
    for one in interface["bindings"]:
        name = one["name"]
        if name.startswith("pumice_"):
            continue  # internal: printf and bounds checks
        is_element = "[" in name
        if is_element:
            arrays.setdefault(name.split("[")[0], []).append(name)
        if one["members"]:
            blocks[name] = Block(name, tuple(one["members"]), one["access"], one["unsized"])
            if not is_element:
                blocks[one["block"]] = blocks[name]
                for member in one["members"]:
                    owners.setdefault(member, []).append((not one["member"], name))
        elif (layout := layout_of(kernel, name)) and layout.has_gaps:
            padded.update((name, *([f"{name}.{one['member']}", one["member"]] if one["member"] else [])))
    taken = {one["name"] for part in ("bindings", "images", "push_constants") for one in interface[part]}
    named = {key: owner for key, every in owners.items() if (owner := _owner(every)) is not None}
    members = {key: owner for key, owner in named.items() if key not in taken or key == owner}
    return Facts(blocks, members, arrays, frozenset(padded))


def _owner(blocks: list[tuple[bool, str]]) -> str | None:
    """Return the block to which a bare member name refers: the only one, or the only one without an instance name, as in GLSL."""
    without_instance = [name for is_bare, name in blocks if is_bare]
    every = without_instance or [name for _, name in blocks]
    return every[0] if len(every) == 1 else None


def stand_for_others(special: frozenset[str], given: Any, arguments: Mapping[str, Any]) -> bool:
    """Return whether any argument has to pass through `resolved`. given: the arguments in a dict, or an invalid value, which the call
    rejects.
    """
    if type(arguments.get("threads")) is str or not special.isdisjoint(arguments):
        return True
    for value in arguments.values():
        if type(value) is list and value and isinstance(value[0], Mapping):
            return True
        if type(value) is np.ndarray and value.dtype.names:
            return True
    return given is not None and isinstance(given, Mapping) and stand_for_others(special, None, given)


def resolved(
    kernel: Kernel, given: Mapping[str, Any] | None, arguments: Mapping[str, Any]
) -> tuple[dict[str, Any] | None, dict[str, Any], list[Filled]]:
    """Merge the arguments in a dict and by name; replace threads="y" with the element count of y, and lists, dicts and members with arrays.

    Also return the temporary arrays that the kernel writes, for copying to the caller's. Raise BindingError if threads= names no array
    (K8), or for the reasons of `block_array`.
    """
    facts, filled = kernel._argument_facts, list[Filled]()
    every = {**arguments, **(given or {})}
    by_name = _resolved_values(kernel, facts, arguments, filled)
    in_dict = None if given is None else _resolved_values(kernel, facts, given, filled)
    if isinstance(named := by_name.get("threads"), str):
        if getattr(every.get(named), "shape", None) is None:
            arrays = ", ".join(key for key, value in every.items() if hasattr(value, "shape")) or "none"
            expected = f"a number, or the name of an array of this call ({arrays})"
            raise binding_error("K8", "threads", expected, repr(named), kind="argument")
        by_name["threads"] = _elements(kernel, facts, named, every[named])
    return in_dict, by_name, filled


def _elements(kernel: Kernel, facts: Facts, name: str, value: Any) -> int:
    """Return the number of elements in an array as the shader declares them: a vector, structure or texel is one element."""
    shape = tuple(value.shape)
    if isinstance(value, Image):
        return math.prod(shape[: value.dimensions])
    block = facts.blocks.get(name)
    is_member = name in facts.members and not _is_whole(name, value, block)
    layout = layout_of(kernel, facts.members[name] if is_member else name)
    if is_member and layout:
        layout = layout.members[name].element
    elif block:
        return math.prod(shape)
    if getattr(value.dtype, "names", None) or layout is None:
        return math.prod(shape)
    row = row_of(shape, layout)
    return int(math.prod(shape) // math.prod(layout.axes if row is None else row))


def _resolved_values(
    kernel: Kernel, facts: Facts, arguments: Mapping[str, Any], filled: list[Filled]
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    members: dict[str, dict[str, Any]] = {}  # block -> values of its members, for blocks passed by member
    for name, value in arguments.items():
        block = facts.blocks.get(name)
        if block and isinstance(value, Mapping):
            made[block.name] = block_array(kernel, block, value, filled)
        elif name in facts.members and not _is_whole(name, value, block):
            members.setdefault(facts.members[name], {})[name] = value
        elif name in facts.arrays and isinstance(value, (list, tuple)):
            elements = _array_of_blocks(name, value, facts.arrays[name])
            made.update(_resolved_values(kernel, facts, elements, filled))
        else:
            made[name] = _resolved_value(kernel, facts, name, value, filled)
    for name, values in members.items():
        # If the block and a member share the name, a lone array is the whole block in its memory layout.
        is_whole = (
            set(values) == {name} and isinstance(values[name], np.ndarray) and len(facts.blocks[name].members) > 1
        )
        made[name] = values[name] if is_whole else block_array(kernel, facts.blocks[name], values, filled)
    return made


def _is_whole(name: str, value: Any, block: Block | None) -> bool:
    """Return whether the value passed under a name shared by a block and its member is the whole block."""
    if block is None:
        return False
    if value is None or not isinstance(value, np.ndarray):
        return value is None or hasattr(value, "shape")
    return bool(value.dtype.names) or value.dtype == np.uint8


def _array_of_blocks(name: str, values: Any, names: list[str]) -> dict[str, Any]:
    if len(values) != len(names):
        raise binding_error("K4", name, f"{len(names)} arrays, one for each block", str(len(values)), kind="argument")
    return dict(zip(names, values, strict=True))


def _resolved_value(kernel: Kernel, facts: Facts, name: str, value: Any, filled: list[Filled]) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return _structures(kernel, name, value)
    if isinstance(value, np.ndarray) and (value.dtype.names or name in facts.padded):
        return converted(kernel, name, value, filled)
    return value


def _structures(kernel: Kernel, name: str, given: list[Any]) -> Any:
    bindings = {one["name"]: one for one in kernel.shader.interface["bindings"]}
    if name not in bindings:
        return given  # push constants accept structures directly
    if bindings[name]["access"] != "read":
        raise binding_error(
            "K9", name, f"an array of kernel.dtype('{name}'): the kernel writes it", "a list of dicts", kind="argument"
        )
    try:
        dtype = kernel.dtype(name)
    except UnsupportedError as error:
        raise binding_error("K4", name, "structures that a dtype is made of", str(error), kind="argument") from None
    layout = layout_of(kernel, name)
    assert layout is not None  # kernel.dtype() has succeeded
    array = np.zeros(len(given), dtype)
    for i, one in enumerate(given):
        fill(array[i, ...], one, f"{name}[{i}]", layout)
    return array
