"""Facts about a validation for its report: the graph, the device and driver, the options, and the origin of the
inputs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from .._pumice import DeviceInfo
from ..model.model import Model
from .options import Options

_DEVICE = ("name", "kind", "uuid", "driver", "driver_info", "driver_version", "api_version")


class _Node(Protocol):
    name: str
    op: str
    inputs: list[str]
    outputs: list[str]


class Facts(NamedTuple):
    """Facts about a validation.

    nodes: name, op, inputs and outputs of each node, in execution order. generated: how each input was generated.
    made_up: sizes that were chosen automatically. data: names of cases from files. policy: precision by node.
    """

    device: Mapping[str, Any]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    nodes: tuple[Mapping[str, Any], ...] = ()
    options: Mapping[str, Any] = {}
    generated: Mapping[str, str] = {}
    policy: Mapping[str, str] = {}
    made_up: Mapping[str, int] = {}
    data: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return the facts for JSON; `policy` only if the model has one."""
        made = {
            "device": dict(self.device),
            "options": dict(self.options),
            "generated": dict(self.generated),
            "made_up": dict(self.made_up),
            "data": list(self.data),
            "graph": {"inputs": list(self.inputs), "outputs": list(self.outputs), "nodes": [*map(dict, self.nodes)]},
        }
        return {**made, "policy": dict(self.policy)} if self.policy else made


def device_facts(device: DeviceInfo) -> dict[str, Any]:
    """Return name, kind, UUID and driver of a device."""
    return {name: getattr(device, name) for name in _DEVICE}


def facts_of(model: Model, nodes: Iterable[_Node], options: Mapping[str, Any]) -> Facts:
    """Return the facts of a model; its seed is added to the options."""
    made = ({"name": one.name, "op": one.op, "inputs": [*one.inputs], "outputs": [*one.outputs]} for one in nodes)
    return Facts(
        device_facts(model.device),
        tuple(value.name for value in model.inputs),
        tuple(value.name for value in model.outputs),
        tuple(made),
        {**options, "seed": model.seed},
    )


def option_facts(options: Options) -> dict[str, Any]:
    """Return the caller's options for JSON; accuracy options only if the caller set them."""
    made: dict[str, Any] = {
        "mode": options.mode,
        "inputs": options.inputs,
        "tolerances": dict(options.tolerances),
        "allow_unchecked": _names(options.allowed),
    }
    if options.accuracy is not None:
        made["accuracy"] = dict(options.accuracy) if isinstance(options.accuracy, Mapping) else options.accuracy
    return {**made, "allow_ill_conditioned": _names(options.allowed_ill)} if options.allowed_ill else made


def _names(allowed: bool | Collection[str]) -> bool | list[str]:
    return allowed if isinstance(allowed, bool) else sorted(allowed)
