"""Estimate a whole profile from the executions with timestamps at the profile's level.

A timestamp costs about 2 us on GPUs, because it waits for all earlier work: a list of 40 nodes takes 1.5 times as long with a timestamp
around each. At level "node" a profile therefore stamps the nodes only in the first and every 32nd execution of each recording. These are
called fine; the other executions are coarse, with timestamps only at begin and end. The difference between both is the cost of the
timestamps between nodes, which is subtracted from the nodes' times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

from .profile_records import DeviceSpan, Execution, Row


class WeightedSpan(NamedTuple):
    """A span that represents `weight` spans of its recording. seconds, barrier_seconds: times of one span, without timestamp cost."""

    span: DeviceSpan
    weight: float
    seconds: float
    barrier_seconds: float


def compute_span_weights(executions: Sequence[Execution]) -> list[WeightedSpan]:
    """Return the spans of the fine executions with their weights: the sum of weight * seconds is the time of all executions.

    A fine execution in which a kernel ran for the first time represents only itself, unless its recording has no other fine execution.
    """
    recordings: dict[int, list[Execution]] = {}
    for run in executions:
        recordings.setdefault(run.recording, []).append(run)
    return [
        span
        for recording_executions in recordings.values()
        for span in _compute_recording_span_weights(recording_executions)
    ]


def _compute_recording_span_weights(executions: Sequence[Execution]) -> Iterable[WeightedSpan]:
    only_themselves = [run for run in executions if run.fine and run.cold]
    represented = [run for run in executions if not (run.fine and run.cold)]
    stamped = [run for run in represented if run.fine]
    if not stamped:
        only_themselves, represented, stamped = [], list(executions), only_themselves
    if len(stamped) == len(represented):
        only_themselves, represented, stamped = [*only_themselves, *stamped], [], []
    single_spans = [
        WeightedSpan(span, 1.0, span.seconds, span.barrier_seconds) for run in only_themselves for span in run.spans
    ]
    stamp_cost = estimate_timestamp_cost(executions)
    spans = [
        (span, *_subtract_timestamp_cost(span, stamp_cost if i else 0.0))
        for run in stamped
        for i, span in enumerate(run.spans)
    ]
    stamped_seconds = sum(seconds + barrier for _, seconds, barrier in spans)
    weight = len(represented) / len(stamped) if stamped else 0.0
    # Part of a timestamp's cost overlaps with work, so distribute the remaining difference to the coarse executions over the nodes.
    scale = (
        sum(run.seconds for run in represented) / (weight * stamped_seconds) if weight * stamped_seconds > 0 else 1.0
    )
    return single_spans + [
        WeightedSpan(span, weight, seconds * scale, barrier * scale) for span, seconds, barrier in spans
    ]


def estimate_timestamp_cost(executions: Sequence[Execution]) -> float:
    """Return the cost in seconds of a timestamp between nodes: the extra time of fine executions, divided by their extra timestamps.

    The times are medians over executions without cold kernels. Return 0 unless there are fine and coarse executions, and fine ones take
    longer.
    """
    warm = [run for run in executions if not run.cold]
    fine, coarse = ([run for run in warm if run.fine is kind] for kind in (True, False))
    if not fine or not coarse:
        return 0.0
    extra_seconds = median(run.seconds for run in fine) - median(run.seconds for run in coarse)
    num_stamps = (
        sum(1 + (span.ready > span.before) for span in fine[0].spans) - 1
    )  # coarse executions have the last timestamp, too
    return max(extra_seconds, 0.0) / num_stamps if num_stamps > 0 else 0.0


def _subtract_timestamp_cost(span: DeviceSpan, stamp_cost: float) -> tuple[float, float]:
    """Return (seconds, barrier_seconds) without the cost of the preceding timestamps, which delay the span and its barrier."""
    return max(span.seconds - stamp_cost, 0.0), max(span.barrier_seconds - stamp_cost, 0.0)


def make_rows(spans: Iterable[WeightedSpan], by: str, total_seconds: float) -> list[Row]:
    """Sum spans by "node", by "kernel", or by "dispatch" of a list, and return the rows, longest first. total_seconds: for `share`."""
    groups: dict[Any, list[WeightedSpan]] = {}
    next_positions: dict[int, int] = {}
    for weighted_span in spans:
        span = weighted_span.span
        position = next_positions[span.execution] = next_positions.get(span.execution, -1) + 1
        key = {"node": span.node, "kernel": span.kernel, "dispatch": (position, span.node, span.kernel)}[by]
        groups.setdefault(key, []).append(weighted_span)
    rows = [_make_row(by, members, total_seconds) for members in groups.values()]
    return sorted(rows, key=lambda row: -row.seconds)


def _make_row(by: str, members: Sequence[WeightedSpan], total_seconds: float) -> Row:
    spans = [weighted_span.span for weighted_span in members]
    seconds = sum(weighted_span.weight * weighted_span.seconds for weighted_span in members)
    return Row(
        name=spans[0].kernel if by == "kernel" else spans[0].node or "(whole executions)",
        kernel=", ".join(dict.fromkeys(span.kernel for span in spans)),
        spans=round(sum(weighted_span.weight for weighted_span in members)),
        measured=len(members),
        seconds=seconds,
        barrier_seconds=sum(weighted_span.weight * weighted_span.barrier_seconds for weighted_span in members),
        share=seconds / total_seconds if total_seconds > 0 else 0.0,
        read_bytes=round(sum(weighted_span.weight * weighted_span.span.read_bytes for weighted_span in members)),
        written_bytes=round(sum(weighted_span.weight * weighted_span.span.written_bytes for weighted_span in members)),
        flop=round(sum(weighted_span.weight * weighted_span.span.flop for weighted_span in members)),
    )
