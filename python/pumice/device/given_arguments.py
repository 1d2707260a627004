"""Arguments of kernels that stand for others: a launch by the name of an array, structures as dicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .._pumice import UnsupportedError
from ..base.errors import binding_error

if TYPE_CHECKING:
    from .kernel import Kernel


def stand_for_others(given: Any, arguments: Mapping[str, Any]) -> bool:
    """Whether `resolved` has anything to do for one of them. given: the arguments in a dict, or what is none, which a call refuses."""
    if type(arguments.get("threads")) is str:
        return True
    for value in arguments.values():
        if type(value) is list and value and isinstance(value[0], Mapping):
            return True
    return given is not None and isinstance(given, Mapping) and stand_for_others(None, given)


def resolved(
    kernel: Kernel, given: Mapping[str, Any] | None, arguments: Mapping[str, Any]
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Arguments in a dict and by name, with threads="y" as the number of the elements of y, and lists of dicts as arrays.

    Raises BindingError (K8, K9, K4, K6).
    """
    in_dict = None if given is None else _with_structures(kernel, given)
    by_name = _with_structures(kernel, arguments)
    if isinstance(named := by_name.get("threads"), str):
        every = {**by_name, **(in_dict or {})}
        shape = getattr(every.get(named), "shape", None)
        if shape is None:
            arrays = ", ".join(key for key, value in every.items() if hasattr(value, "shape")) or "none"
            expected = f"a number, or the name of an array of this call ({arrays})"
            raise binding_error("K8", "threads", expected, repr(named), kind="argument")
        by_name["threads"] = math.prod(shape)
    return in_dict, by_name


def _with_structures(kernel: Kernel, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _structures(kernel, name, value)
        if isinstance(value, list) and value and isinstance(value[0], Mapping)
        else value
        for name, value in arguments.items()
    }


def _structures(kernel: Kernel, name: str, given: list[Any]) -> Any:
    bindings = {one["name"]: one for one in kernel.shader.interface["bindings"]}
    if name not in bindings:
        return given  # a push constant, which takes structures as they are
    if bindings[name]["access"] != "read":
        raise binding_error(
            "K9", name, f"an array of kernel.dtype('{name}'): the kernel writes it", "a list of dicts", kind="argument"
        )
    try:
        dtype = kernel.dtype(name)
    except UnsupportedError as error:
        raise binding_error("K4", name, "structures that a dtype is made of", str(error), kind="argument") from None
    array = np.zeros(len(given), dtype)
    for i, one in enumerate(given):
        _fill(array[i], one, f"{name}[{i}]")
    return array


def _check_held(value: Any, dtype: Any, where: str, given: Any) -> None:
    """Raises BindingError (K6) for numbers that an integer type does not hold."""
    if dtype.kind not in "iu":
        return
    limits = np.iinfo(dtype)
    if not all(one == one // 1 and limits.min <= one <= limits.max for one in value.ravel().tolist()):
        raise binding_error("K6", where, f"numbers that {dtype} can hold", repr(given), kind="argument")


def _fill(target: Any, given: Any, where: str) -> None:
    """Writes a dict into a structure of an array, member by member."""
    names = target.dtype.names
    if names is None or not isinstance(given, Mapping) or set(given) != set(names):
        expected = f"a dict of {', '.join(names)}" if names else "numbers"
        told = f"one of {', '.join(map(str, given))}" if isinstance(given, Mapping) else type(given).__name__
        raise binding_error("K4", where, expected, told, kind="argument")
    for name in names:
        part = target[name]
        if isinstance(part, np.void) and part.dtype.names:
            _fill(part, given[name], f"{where}.{name}")
            continue
        value = np.asarray(given[name])
        shape = np.shape(part)
        # In an array, a vector of three numbers has a gap behind it, which is a fourth one here; alone it has three.
        if len(shape) > 1 and value.shape == (*shape[:-1], shape[-1] - 1) and shape[-1] == 4:
            value = np.concatenate([value, np.zeros((*value.shape[:-1], 1), value.dtype)], -1)
        if value.shape == shape and value.dtype.kind in "biuf":
            _check_held(value, target.dtype[name].base, f"{where}.{name}", given[name])
        try:
            if value.shape != shape or value.dtype.kind not in "biuf":
                raise ValueError
            target[name] = value
        except (TypeError, ValueError):
            expected = f"numbers of shape {shape}" if shape else "a number"
            raise binding_error("K4", f"{where}.{name}", expected, repr(given[name]), kind="argument") from None
