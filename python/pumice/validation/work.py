"""Work of a model's nodes in floating-point operations and bytes, counted as in a profile."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from .._pumice import Program, StateError, _start_profile, _stop_profile
from ..base.element_types import Array


class NodeWork(NamedTuple):
    """Floating-point operations of a node, and the bytes that its kernels read and write."""

    flop: int
    num_bytes: int


def measure_work(program: Program, inputs: Mapping[str, Array], loop_timeout: float | None) -> dict[str, NodeWork]:
    """Return the work of each node, from another run under a profile.

    Return {} if the program has control flow, which is not counted, or the caller is already profiling.
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
    work_by_node: dict[str, NodeWork] = {}
    for dispatch in record["runs"][0]["dispatches"] if record["runs"] else ():
        num_bytes = dispatch["read_bytes"] + dispatch["written_bytes"]
        previous = work_by_node.get(dispatch["node"], NodeWork(0, 0))
        # Each dispatch reports the operations of the whole node, so they are not added up.
        work_by_node[dispatch["node"]] = NodeWork(dispatch["flop"], previous.num_bytes + num_bytes)
    return work_by_node


def describe_work_share(nodes: Collection[str], known: Collection[str], work: Mapping[str, NodeWork]) -> str:
    """Return a phrase with these nodes' share of the work; "" if it is unknown.

    known: all nodes of the model. A node may have been expanded into several, named with a slash suffix.
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
    """Return a share as a percentage; a small nonzero share is not shown as 0%."""
    return "under 1%" if 0 < fraction < 0.005 else f"{fraction:.0%}"
