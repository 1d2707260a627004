"""What a report says of the validation itself: the model's graph, the device and its driver, the options, where the inputs came from."""

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
    """`nodes`: name, op, inputs and outputs of each node of the model, in the order in which they run. `generated`: how inputs were made
    up, by the input's name; `made_up`: sizes of theirs that nobody gave; `data`: the names of cases that were read from files. `policy`:
    precision by node.
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
        """The record, for JSON, of a report. There is a policy only where the model has one."""
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
    """Name, kind, UUID and driver of a device."""
    return {name: getattr(device, name) for name in _DEVICE}


def facts_of(model: Model, nodes: Iterable[_Node], options: Mapping[str, Any]) -> Facts:
    """What is known of a model when it is validated; its seed is among the options."""
    made = ({"name": one.name, "op": one.op, "inputs": [*one.inputs], "outputs": [*one.outputs]} for one in nodes)
    return Facts(
        device_facts(model.device),
        tuple(value.name for value in model.inputs),
        tuple(value.name for value in model.outputs),
        tuple(made),
        {**options, "seed": model.seed},
    )


def option_facts(options: Options) -> dict[str, Any]:
    """The caller's options as JSON has them; those about the accuracy of outputs if they are given."""
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
