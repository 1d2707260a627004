"""Facts about a validation for its report: graph, device, driver, options, and origin of the inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from ..._pumice import DeviceInfo
from ...model.model import Model
from ..checker.options import ValidationOptions

_DEVICE = ("name", "kind", "uuid", "driver", "driver_info", "driver_version", "api_version")


class _GraphNode(Protocol):
    name: str
    op: str
    inputs: list[str]
    outputs: list[str]


class ReportMetadata(NamedTuple):
    """Facts about a validation.

    nodes: name, op, inputs and outputs of each node, in execution order. generated: how each input was generated.
    made_up: sizes that were chosen automatically. data: names of the cases that came from files. policy: precision of
    each node.
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
        record = {
            "device": dict(self.device),
            "options": dict(self.options),
            "generated": dict(self.generated),
            "made_up": dict(self.made_up),
            "data": list(self.data),
            "graph": {"inputs": list(self.inputs), "outputs": list(self.outputs), "nodes": [*map(dict, self.nodes)]},
        }
        return {**record, "policy": dict(self.policy)} if self.policy else record


def get_device_metadata(device: DeviceInfo) -> dict[str, Any]:
    """Return the name, kind, UUID and driver of a device."""
    return {name: getattr(device, name) for name in _DEVICE}


def collect_model_metadata(model: Model, nodes: Iterable[_GraphNode], options: Mapping[str, Any]) -> ReportMetadata:
    """Return the facts about a model and the options, to which the model's seed is added."""
    nodes_record = (
        {"name": node.name, "op": node.op, "inputs": [*node.inputs], "outputs": [*node.outputs]} for node in nodes
    )
    return ReportMetadata(
        get_device_metadata(model.device),
        tuple(value.name for value in model.inputs),
        tuple(value.name for value in model.outputs),
        tuple(nodes_record),
        {**options, "seed": model.seed},
    )


def collect_option_metadata(options: ValidationOptions) -> dict[str, Any]:
    """Return the caller's options for JSON. Accuracy options appear only if the caller set them."""
    record: dict[str, Any] = {
        "mode": options.mode,
        "inputs": options.inputs,
        "tolerances": dict(options.tolerances),
        "allow_unchecked": _list_names(options.allowed),
    }
    if options.accuracy is not None:
        record["accuracy"] = dict(options.accuracy) if isinstance(options.accuracy, Mapping) else options.accuracy
    return (
        {**record, "allow_ill_conditioned": _list_names(options.allowed_ill_conditioned)}
        if options.allowed_ill_conditioned
        else record
    )


def _list_names(allowed: bool | Collection[str]) -> bool | list[str]:
    return allowed if isinstance(allowed, bool) else sorted(allowed)
