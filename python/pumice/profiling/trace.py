"""Convert a profile to a trace in Chrome's JSON format, for Perfetto (ui.perfetto.dev) and chrome://tracing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .records import DeviceSpan, Execution

if TYPE_CHECKING:
    from .profile import Profile

_HOST = 1  # process id of the host spans; devices follow
_UNIT = 1e6  # trace units per second: times in a trace are microseconds


def trace_of(profile: Profile) -> dict[str, Any]:
    """Return the trace as a JSON object: complete events ("ph": "X") on tracks for the host threads and each device."""
    events: list[dict[str, Any]] = [_named(_HOST, "host")]
    threads = {thread: i + 1 for i, thread in enumerate(dict.fromkeys(one.thread for one in profile.host))}
    for one in profile.host:
        arguments = {"bytes": one.bytes} if one.bytes else {}
        title = f"{one.kind} {one.name}".strip()
        events.append(_event((_HOST, threads[one.thread]), title, one.kind, (one.begin, one.end), arguments))
    contexts = {
        one.context: i + _HOST + 1 for i, one in enumerate({each.context: each for each in profile.executions}.values())
    }
    for context, process in contexts.items():
        own = [each for each in profile.executions if each.context == context]
        events.append(_named(process, own[0].device))
        for execution in own:
            events += _of_execution(process, execution)
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _of_execution(process: int, execution: Execution) -> list[dict[str, Any]]:
    about = {"cold": execution.cold}
    events = [_event((process, 1), "execution", "execution", (execution.begin, execution.end), about)]
    for span in execution.spans:
        title = span.node or "execution"
        events.append(_event((process, 2), title, "dispatch", (span.ready, span.end), _arguments(span)))
        if span.ready > span.before:
            events.append(_event((process, 2), "barrier", "barrier", (span.before, span.ready), {}))
    return events


def _arguments(span: DeviceSpan) -> dict[str, Any]:
    return {
        "kernel": span.kernel,
        "storage": span.storage,
        "groups": list(span.groups),
        "dispatches": span.dispatches,
        "read bytes": span.read_bytes,
        "written bytes": span.written_bytes,
        "flop": span.flop,
    }


def _event(
    track: tuple[int, int], name: str, kind: str, seconds: tuple[float, float], arguments: dict[str, Any]
) -> dict[str, Any]:
    """Return a complete event on a track (process, thread). seconds: its begin and end."""
    (process, thread), (first, last) = track, seconds
    times = {"ts": first * _UNIT, "dur": max(last - first, 0) * _UNIT}
    return {"ph": "X", "pid": process, "tid": thread, "name": name, "cat": kind, **times, "args": arguments}


def _named(process: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": 0, "name": "process_name", "args": {"name": name}}
