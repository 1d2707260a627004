"""The data of a profile: executions with their device spans, host spans, and rows that sum device spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_TICK_SECONDS = 1e-9  # seconds per tick of the engine's clocks


class HostSpan(NamedTuple):
    """A span of host time.

    kind: "model", "kernel", "wait", "copy in", "copy out", "upload", "download", "bind", "plan" (inside "bind"),
    "compile", "shader from memory", "shader from disk", "pipeline", "record", "submit", or "user" (from `Profile.span`). begin, end:
    seconds since the start of the block. bytes: number of bytes transferred.
    """

    kind: str
    name: str
    begin: float
    end: float
    bytes: int
    thread: int

    @property
    def seconds(self) -> float:
        """Duration of the span."""
        return self.end - self.begin


class DeviceSpan(NamedTuple):
    """Consecutive dispatches of one execution between two timestamps.

    node: the name of the node or kernel; "" for a whole execution. kernel: names of the kernels. dispatches: number of dispatches. before:
    the preceding timestamp; ready: the time after the preceding barrier, if any; end: the time at which all dispatches are done; all in
    seconds since the start of the block, see `Profile`. read_bytes, written_bytes: sizes of the bound ranges, each counted once. flop:
    floating-point operations of the node, credited to its longest span; 0 if unknown. execution: index of the execution in the profile.
    """

    node: str
    kernel: str
    dispatches: int
    before: float
    ready: float
    end: float
    read_bytes: int
    written_bytes: int
    flop: int
    groups: tuple[int, int, int]
    storage: str
    execution: int

    @property
    def seconds(self) -> float:
        """Time of the dispatches, without the preceding barrier."""
        return self.end - self.ready

    @property
    def barrier_seconds(self) -> float:
        """Time of the barrier before the dispatches."""
        return self.ready - self.before


class Execution(NamedTuple):
    """One submission.

    device: the device's name. context: id of the context. submitted, begin, end: seconds since the start of the block. cold: whether a
    kernel ran for the first time. recording: id of the executed command list. fine: whether `spans` has the profile's level; an execution
    with timestamps only at its begin and end has no spans, see `profile`.
    """

    device: str
    context: int
    submitted: float
    begin: float
    end: float
    cold: bool
    recording: int
    fine: bool
    spans: tuple[DeviceSpan, ...]

    @property
    def seconds(self) -> float:
        """Device time of the execution."""
        return self.end - self.begin


class Row(NamedTuple):
    """The spans of one node, kernel or dispatch, summed over all executions.

    spans: number of spans; measured: the number of them with timestamps, from which the others are estimated. seconds: device time
    without barrier_seconds. share: fraction of the total device time.
    """

    name: str
    kernel: str
    spans: int
    measured: int
    seconds: float
    barrier_seconds: float
    share: float
    read_bytes: int
    written_bytes: int
    flop: int

    @property
    def bytes_per_second(self) -> float:
        """Bandwidth, assuming that each bound range is moved once."""
        return (self.read_bytes + self.written_bytes) / self.seconds if self.seconds > 0 else 0.0

    @property
    def flop_per_second(self) -> float:
        """Floating-point operations per second."""
        return self.flop / self.seconds if self.seconds > 0 else 0.0

    @property
    def intensity(self) -> float:
        """Floating-point operations per byte."""
        total_bytes = self.read_bytes + self.written_bytes
        return self.flop / total_bytes if total_bytes else 0.0


def parse_host_spans(events: Sequence[Mapping[str, Any]], start: int) -> tuple[HostSpan, ...]:
    """Return host spans by start time, outer spans first. start: the engine's clock at the start of the block."""
    times = [
        {**event, "begin": (event["begin"] - start) * _TICK_SECONDS, "end": (event["end"] - start) * _TICK_SECONDS}
        for event in events
    ]
    return tuple(sorted((HostSpan(**event) for event in times), key=lambda span: (span.begin, -span.end)))


def parse_executions(runs: Sequence[Mapping[str, Any]], start: int) -> tuple[Execution, ...]:
    """Return the executions that have timestamps, in host time. start: the engine's clock at the start of the block.

    Host and device clocks are not read together. Because no execution starts before its submission, the device clock is aligned at the
    execution with the smallest delay between submission and start.
    """
    stamped = [run for run in runs if run["spans"] or run["end"] > run["begin"]]
    offsets: dict[int, float] = {}
    for run in stamped:
        clock_offset = run["submitted"] - start - run["begin"]
        offsets[run["context"]] = max(offsets.get(run["context"], clock_offset), clock_offset)
    return tuple(_make_execution(i, run, offsets[run["context"]], start) for i, run in enumerate(stamped))


def _make_execution(index: int, run: Mapping[str, Any], offset: float, start: int) -> Execution:
    spans_with_flops = _assign_flops(run) if run["fine"] else []
    spans = tuple(_make_span(index, run["dispatches"], span, flop, offset) for span, flop in spans_with_flops)
    begin, end = (run["begin"] + offset) * _TICK_SECONDS, (run["end"] + offset) * _TICK_SECONDS
    submitted = (run["submitted"] - start) * _TICK_SECONDS
    return Execution(
        run["device"], run["context"], submitted, begin, end, run["cold"], run["recording"], run["fine"], spans
    )


def _assign_flops(run: Mapping[str, Any]) -> list[tuple[Sequence[float], int]]:
    """Return (span, floating-point operations) of each span; a node's operations are credited to its longest span."""
    dispatches = run["dispatches"]
    longest: dict[str, tuple[float, int]] = {}
    flops: dict[int, int] = {}
    for i, (first, last, _, ready, end) in enumerate(run["spans"]):
        nodes = {dispatches[k]["node"]: dispatches[k]["flop"] for k in range(first, last + 1)}
        if len(nodes) > 1:  # the span is the whole execution
            flops[i] = sum(nodes.values())
            continue
        (node,) = nodes
        if end - ready >= longest.get(node, (-1.0, 0))[0]:
            longest[node] = (end - ready, i)
    for node, (_, i) in longest.items():
        flops[i] = next(dispatch["flop"] for dispatch in dispatches if dispatch["node"] == node)
    return [(span, flops.get(i, 0)) for i, span in enumerate(run["spans"])]


def _make_span(
    index: int, dispatches: Sequence[Mapping[str, Any]], span: Sequence[float], flop: int, offset: float
) -> DeviceSpan:
    first, last, before, ready, end = span
    span_dispatches = dispatches[int(first) : int(last) + 1]
    nodes = {dispatch["node"] for dispatch in span_dispatches}
    return DeviceSpan(
        nodes.pop() if len(nodes) == 1 else "",
        ", ".join(dict.fromkeys(dispatch["kernel"] for dispatch in span_dispatches)),
        len(span_dispatches),
        (before + offset) * _TICK_SECONDS,
        (ready + offset) * _TICK_SECONDS,
        (end + offset) * _TICK_SECONDS,
        sum(dispatch["read_bytes"] for dispatch in span_dispatches),
        sum(dispatch["written_bytes"] for dispatch in span_dispatches),
        flop,
        tuple(span_dispatches[0]["groups"]),
        span_dispatches[0]["storage"],
        index,
    )
