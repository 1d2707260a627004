"""Estimate a whole profile from the executions that were stamped at the profile's level.

A timestamp costs about 2 us on GPUs, because it waits for all earlier work: a list of 40 nodes takes 1.5 times as long
with a timestamp around each. At level "node" a profile therefore stamps the nodes of the first and every 32nd execution
of each recording; the others have only two timestamps, around the whole execution. Comparing the two kinds gives the cost of the
timestamps between nodes, which is subtracted from the nodes' times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

from .records import DeviceSpan, Execution, Row


class Weighted(NamedTuple):
    """A span that represents `weight` spans of its recording. seconds, barrier_seconds: times of one such span, without timestamp cost."""

    span: DeviceSpan
    weight: float
    seconds: float
    barrier_seconds: float


def weighted(executions: Sequence[Execution]) -> list[Weighted]:
    """Return representative spans of each recording; the sum of weight * seconds is the time of all its executions.

    An execution in which a kernel ran for the first time represents only itself, unless no other one has fine
    timestamps.
    """
    recordings: dict[int, list[Execution]] = {}
    for one in executions:
        recordings.setdefault(one.recording, []).append(one)
    return [span for every in recordings.values() for span in _of_recording(every)]


def _of_recording(executions: Sequence[Execution]) -> Iterable[Weighted]:
    alone = [one for one in executions if one.fine and one.cold]
    others = [one for one in executions if not (one.fine and one.cold)]
    samples = [one for one in others if one.fine]
    if not samples:
        alone, others, samples = [], list(executions), alone
    if len(samples) == len(others):
        alone, others, samples = [*alone, *samples], [], []
    made = [Weighted(span, 1.0, span.seconds, span.barrier_seconds) for one in alone for span in one.spans]
    stamp = stamp_seconds(executions)
    spans = [(span, *_without_stamp(span, stamp if i else 0.0)) for one in samples for i, span in enumerate(one.spans)]
    inside = sum(seconds + barrier for _, seconds, barrier in spans)
    weight = len(others) / len(samples) if samples else 0.0
    # Part of a timestamp's cost overlaps with work, so the remaining difference between the two kinds is distributed over the nodes.
    scale = sum(one.seconds for one in others) / (weight * inside) if weight * inside > 0 else 1.0
    return made + [Weighted(span, weight, seconds * scale, barrier * scale) for span, seconds, barrier in spans]


def stamp_seconds(executions: Sequence[Execution]) -> float:
    """Return the cost of a timestamp between nodes: the extra time of finely stamped executions, per such timestamp.

    0.0 unless both kinds exist and the fine ones take longer. Uses medians over executions without cold kernels.
    """
    warm = [one for one in executions if not one.cold]
    fine, whole = ([one for one in warm if one.fine is kind] for kind in (True, False))
    if not fine or not whole:
        return 0.0
    more = median(one.seconds for one in fine) - median(one.seconds for one in whole)
    stamps = sum(1 + (span.ready > span.before) for span in fine[0].spans) - 1  # both kinds have the last timestamp
    return max(more, 0.0) / stamps if stamps > 0 else 0.0


def _without_stamp(span: DeviceSpan, stamp: float) -> tuple[float, float]:
    """Return (seconds, barrier_seconds) without timestamp cost: a timestamp waits for earlier work, delaying what follows."""
    return max(span.seconds - stamp, 0.0), max(span.barrier_seconds - stamp, 0.0)


def rows_of(spans: Iterable[Weighted], by: str, whole: float) -> list[Row]:
    """Return rows by "node", by "kernel", or one per "dispatch" of a list; the longest first. whole: total seconds."""
    groups: dict[Any, list[Weighted]] = {}
    places: dict[int, int] = {}
    for one in spans:
        span = one.span
        place = places[span.execution] = places.get(span.execution, -1) + 1
        key = {"node": span.node, "kernel": span.kernel, "dispatch": (place, span.node, span.kernel)}[by]
        groups.setdefault(key, []).append(one)
    rows = [_row(by, members, whole) for members in groups.values()]
    return sorted(rows, key=lambda row: -row.seconds)


def _row(by: str, members: Sequence[Weighted], whole: float) -> Row:
    spans = [one.span for one in members]
    seconds = sum(one.weight * one.seconds for one in members)
    return Row(
        name=spans[0].kernel if by == "kernel" else spans[0].node or "(whole executions)",
        kernel=", ".join(dict.fromkeys(one.kernel for one in spans)),
        spans=round(sum(one.weight for one in members)),
        measured=len(members),
        seconds=seconds,
        barrier_seconds=sum(one.weight * one.barrier_seconds for one in members),
        share=seconds / whole if whole > 0 else 0.0,
        read_bytes=round(sum(one.weight * one.span.read_bytes for one in members)),
        written_bytes=round(sum(one.weight * one.span.written_bytes for one in members)),
        flop=round(sum(one.weight * one.span.flop for one in members)),
    )
