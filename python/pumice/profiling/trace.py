"""Convert a profile to a trace in Chrome's JSON format, for Perfetto (ui.perfetto.dev) and chrome://tracing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .profile_records import DeviceSpan, Execution

if TYPE_CHECKING:
    from .profile import Profile

_HOST_PROCESS = 1  # process id of the host spans; the devices have the following ids
_UNITS_PER_SECOND = 1e6  # times in a trace are microseconds


def make_trace(profile: Profile) -> dict[str, Any]:
    """Return the trace as a JSON object: complete events ("ph": "X") on tracks for the host threads and each device."""
    events: list[dict[str, Any]] = [_make_process_name_event(_HOST_PROCESS, "host")]
    threads = {thread: i + 1 for i, thread in enumerate(dict.fromkeys(host_span.thread for host_span in profile.host))}
    for host_span in profile.host:
        arguments = {"bytes": host_span.bytes} if host_span.bytes else {}
        title = f"{host_span.kind} {host_span.name}".strip()
        events.append(
            _make_event(
                (_HOST_PROCESS, threads[host_span.thread]),
                title,
                host_span.kind,
                (host_span.begin, host_span.end),
                arguments,
            )
        )
    contexts = dict.fromkeys(execution.context for execution in profile.executions)
    for process, context in enumerate(contexts, _HOST_PROCESS + 1):
        device_executions = [execution for execution in profile.executions if execution.context == context]
        events.append(_make_process_name_event(process, device_executions[0].device))
        for execution in device_executions:
            events += _make_execution_events(process, execution)
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _make_execution_events(process: int, execution: Execution) -> list[dict[str, Any]]:
    metadata = {"cold": execution.cold}
    events = [_make_event((process, 1), "execution", "execution", (execution.begin, execution.end), metadata)]
    for span in execution.spans:
        title = span.node or "execution"
        events.append(_make_event((process, 2), title, "dispatch", (span.ready, span.end), _make_event_arguments(span)))
        if span.ready > span.before:
            events.append(_make_event((process, 2), "barrier", "barrier", (span.before, span.ready), {}))
    return events


def _make_event_arguments(span: DeviceSpan) -> dict[str, Any]:
    return {
        "kernel": span.kernel,
        "storage": span.storage,
        "groups": list(span.groups),
        "dispatches": span.dispatches,
        "read bytes": span.read_bytes,
        "written bytes": span.written_bytes,
        "flop": span.flop,
    }


def _make_event(
    track: tuple[int, int], name: str, kind: str, seconds: tuple[float, float], arguments: dict[str, Any]
) -> dict[str, Any]:
    """Return a complete event ("ph": "X") on a track (process, thread). seconds: begin and end."""
    (process, thread), (first, last) = track, seconds
    times = {"ts": first * _UNITS_PER_SECOND, "dur": max(last - first, 0) * _UNITS_PER_SECOND}
    return {"ph": "X", "pid": process, "tid": thread, "name": name, "cat": kind, **times, "args": arguments}


def _make_process_name_event(process: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": 0, "name": "process_name", "args": {"name": name}}
