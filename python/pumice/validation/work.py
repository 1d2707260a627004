"""The work of a model's nodes in floating-point operations and bytes, counted like a profile."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from .._pumice import Program, StateError, _start_profile, _stop_profile
from ..base.element_types import Array


class Work(NamedTuple):
    """Floating-point operations of a node, and the bytes that its kernels read and write."""

    flop: int
    moved: int


def work_of(program: Program, inputs: Mapping[str, Array], loop_timeout: float | None) -> dict[str, Work]:
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
    made: dict[str, Work] = {}
    for one in record["runs"][0]["dispatches"] if record["runs"] else ():
        moved = one["read_bytes"] + one["written_bytes"]
        before = made.get(one["node"], Work(0, 0))
        # Each dispatch of a node has the node's total operations.
        made[one["node"]] = Work(one["flop"], before.moved + moved)
    return made


def share_of(nodes: Collection[str], known: Collection[str], work: Mapping[str, Work]) -> str:
    """Return a phrase with these nodes' share of the work; "" if it is unknown.

    known: all nodes of the model. A node may have been expanded into several, named with a slash suffix.
    """
    own = [one for name, one in work.items() if _owner(name, known) in nodes]
    flop, moved = sum(one.flop for one in work.values()), sum(one.moved for one in work.values())
    if not moved:
        return ""
    share = f"{percent(sum(one.moved for one in own) / moved)} of the bytes that are moved"
    return f"{percent(sum(one.flop for one in own) / flop)} of the operations and {share}" if flop else share


def _owner(name: str, known: Collection[str]) -> str:
    while name and name not in known:
        name = name.rpartition("/")[0]
    return name


def percent(share: float) -> str:
    """Return a share as a percentage; a small nonzero share is not shown as 0%."""
    return "under 1%" if 0 < share < 0.005 else f"{share:.0%}"
