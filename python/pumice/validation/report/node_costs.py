"""Cost of a model's nodes: floating-point operations and bytes, counted as in a profile."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..._pumice import Program, StateError, _start_profile, _stop_profile
from ...base.element_types import Array


class NodeCost(NamedTuple):
    """Floating-point operations of a node, and the bytes that its kernels read and write."""

    flop: int
    num_bytes: int


def measure_node_costs(
    program: Program, inputs: Mapping[str, Array], loop_timeout: float | None
) -> dict[str, NodeCost]:
    """Return the cost of each node by name, measured in another run under the profiler.

    Return {} if the program has control flow, which cannot be counted, or if the caller is already profiling.
    """
    if program.has_control_flow:
        return {}
    try:
        _start_profile("dispatch", 1)
    except StateError:
        return {}
    try:
        program(dict(inputs), loop_timeout=loop_timeout)
    finally:
        record = _stop_profile()
    work_by_node: dict[str, NodeCost] = {}
    for dispatch in record["runs"][0]["dispatches"] if record["runs"] else ():
        num_bytes = dispatch["read_bytes"] + dispatch["written_bytes"]
        previous = work_by_node.get(dispatch["node"], NodeCost(0, 0))
        # Each dispatch of a node reports the operations of the whole node, so do not add them up.
        work_by_node[dispatch["node"]] = NodeCost(dispatch["flop"], previous.num_bytes + num_bytes)
    return work_by_node


def describe_cost_share(nodes: Collection[str], known: Collection[str], work: Mapping[str, NodeCost]) -> str:
    """Return a phrase with these nodes' share of the model's work; "" if it is unknown.

    known: all nodes of the model. A node may have been expanded into several, whose names have a suffix after a slash.
    """
    selected = [node_work for name, node_work in work.items() if _find_original_node(name, known) in nodes]
    flop, total_bytes = (
        sum(node_work.flop for node_work in work.values()),
        sum(node_work.num_bytes for node_work in work.values()),
    )
    if not total_bytes:
        return ""
    bytes_text = f"{format_percent(sum(node_work.num_bytes for node_work in selected) / total_bytes)} of the bytes that are moved"
    return (
        f"{format_percent(sum(node_work.flop for node_work in selected) / flop)} of the operations and {bytes_text}"
        if flop
        else bytes_text
    )


def _find_original_node(name: str, known: Collection[str]) -> str:
    while name and name not in known:
        name = name.rpartition("/")[0]
    return name


def format_percent(fraction: float) -> str:
    """Format a share as a percentage. A small nonzero share is not shown as 0%."""
    return "under 1%" if 0 < fraction < 0.005 else f"{fraction:.0%}"
