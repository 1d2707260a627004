"""How much of a model's work nodes do, as a profile counts it: floating-point operations, and bytes that are read and written."""

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
    """The work of each node, for which the program runs once more under a profile.

    Nothing where the program has control flow, whose runs nobody has counted, and where the caller profiles already.
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
        made[one["node"]] = Work(
            one["flop"], before.moved + moved
        )  # the operations of a node stand at each of its dispatches
    return made


def share_of(nodes: Collection[str], known: Collection[str], work: Mapping[str, Work]) -> str:
    """The share of the work that nodes do, in words; "" where nothing is known of it.

    known: all nodes of the model, of which one may have become several that have names of their own behind a slash.
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
    """A share as text; one that is not zero is not called so."""
    return "under 1%" if 0 < share < 0.005 else f"{share:.0%}"
