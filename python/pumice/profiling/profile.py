"""`pumice.profile()`: measure where a block of code spends its time, on the device and on the host."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .._pumice import StateError, _profile_event, _start_profile, _stop_profile
from ..base.atomic_files import Path, write_text_atomic
from ..base.deprecation import choose_renamed_argument
from ..base.errors import InputError
from ..base.printable_text import shorten_and_escape
from ..model import model_runs
from .profile_records import DeviceSpan, Execution, HostSpan, Row, parse_executions, parse_host_spans
from .span_weights import WeightedSpan, compute_span_weights, make_rows

if TYPE_CHECKING:
    from .comparison import Comparison
    from .device_peaks import Peaks
    from .memory import MemoryMap

LEVELS = ("execution", "node", "dispatch")
GROUPS = ("node", "kernel", "dispatch")
_DEFAULT_EVERY = 32  # reduces the cost of node timestamps to about 1/50
_HEADERS = ("", "count", "us", "barriers us", "share", "GB/s", "GFLOP/s", "of peak", "kernel")


def profile(level: str = "node", every: int | None = None) -> Profile:
    """Profile everything that runs in a `with` block: models, kernels, command lists, dv; on all contexts.

    level: "execution" stamps whole submissions, "node" wherever the next dispatch belongs to another node, "dispatch"
    every dispatch, which serialises dispatches that could overlap.
    every: for each recorded command list, stamp the first and then every n-th execution at this level, and the others as a whole; None: 32
    at level "node", where timestamps would cost a third of a small model's time on a GPU, and 1 at level "dispatch". An execution in which
    a kernel runs for the first time is always stamped at this level. While a profile is active, the host waits after each submission of a
    recording for the previous submission: loops that run entirely on the device are slower than without it.
    Raise InputError for an unknown level, and if `every` is not a positive integer or is given at level "execution";
    StateError on entry if another profile is active.
    """
    if level not in LEVELS:
        raise InputError(f"profile: level: expected one of {', '.join(LEVELS)}, given {level!r}")
    if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
        raise InputError(f"profile: every: expected a positive integer or None, given {every!r}")
    if every is not None and level == "execution":
        raise InputError(
            "profile: every: expected None at the level 'execution', which times each execution as a whole"
        )
    return Profile(level, every)


class Profile:
    """The result of a profile, complete when its block has ended.

    level, every: see `profile`. seconds: duration of the block on the host clock; all times are seconds since its
    start.
    executions: all submissions with their spans. host: host spans: calls, waits, transfers, bindings, compilations,
    cache hits. memory: a MemoryMap for up to 16 pairs of model and shapes called in the block, if the program is one
    list of dispatches. lost: number of executions without timestamps, because their context was closed in the block, their device
    was lost, or its queue has none. Host and device clocks are not read together: the device clock is aligned so that
    no execution starts before its submission; the offset includes the shortest launch latency.
    """

    def __init__(self, level: str, every: int | None) -> None:
        self.level = level
        self.every = every or (_DEFAULT_EVERY if level == "node" else 1)
        self.seconds = 0.0
        self._start = 0
        self.executions: tuple[Execution, ...] = ()
        self.host: tuple[HostSpan, ...] = ()
        self.lost = 0
        self.memory: tuple[MemoryMap, ...] = ()
        self._state = "new"

    def __enter__(self) -> Profile:
        if self._state != "new":
            raise StateError("a Profile covers one block; create another one with pumice.profile()")
        _start_profile(self.level, self.every)
        model_runs.start_recording_calls()
        self._state = "on"
        self._start = time.perf_counter_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = (time.perf_counter_ns() - self._start) * 1e-9
        self._state = "done"
        try:
            record = _stop_profile()
        finally:
            calls = model_runs.stop_recording_calls()
        self.executions = parse_executions(record["runs"], self._start)
        self.lost = len(record["runs"]) - len(self.executions)
        self.host = parse_host_spans(record["host"], self._start)
        if calls:
            from .memory import build_memory_maps

            self.memory = build_memory_maps(calls)

    def _require_complete(self) -> None:
        if self._state != "done":
            raise StateError("a profile can be read only after its block has ended")

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Record this block as a host span with this name and the kind "user"."""
        begin = time.perf_counter_ns()
        try:
            yield
        finally:
            _profile_event("user", name, begin, time.perf_counter_ns())

    @property
    def device_seconds(self) -> float:
        """Total device time of all executions, including barriers."""
        return sum(execution.seconds for execution in self.executions)

    @property
    def barrier_seconds(self) -> float:
        """Total time in the barriers between spans, over all executions."""
        return sum(weighted.weight * weighted.barrier_seconds for weighted in self._compute_weighted_spans())

    @property
    def gap_seconds(self) -> float:
        """Total time between executions during which the device is idle."""
        idle_seconds, last_ends = 0.0, dict[int, float]()
        for execution in self.executions:
            if (before := last_ends.get(execution.context)) is not None:
                idle_seconds += max(execution.begin - before, 0.0)
            last_ends[execution.context] = max(execution.end, before or execution.end)
        return idle_seconds

    @property
    def spans(self) -> list[DeviceSpan]:
        """The spans of the executions stamped at the profile's level, in order."""
        self._require_complete()
        return [span for execution in self.executions for span in execution.spans]

    @property
    def peaks(self) -> Peaks | None:
        """The peaks of the device with the longest execution; None if `pumice.calibrate` has not measured it."""
        from .device_peaks import read_cached_peaks

        names = [execution.device for execution in sorted(self.executions, key=lambda execution: execution.seconds)]
        return read_cached_peaks(names[-1]) if names else None

    def rows(self, by: str = "node") -> list[Row]:
        """Sum the spans by "node", "kernel", or each "dispatch" of a list; the longest first.

        Executions stamped as a whole are estimated from executions of the same list stamped at the profile's level: rows and
        barriers add up to `device_seconds`. The cost of timestamps between nodes is subtracted
        (`pumice.profiling.span_weights`). Raise InputError for another grouping.
        """
        if by not in GROUPS:
            raise InputError(f"Profile: by: expected one of {', '.join(GROUPS)}, given {by!r}")
        return make_rows(self._compute_weighted_spans(), by, self.device_seconds)

    def _compute_weighted_spans(self) -> list[WeightedSpan]:
        self._require_complete()
        return compute_span_weights(self.executions)

    def host_rows(self) -> list[tuple[str, int, float, int]]:
        """Return (kind, count, seconds, bytes) of the host spans; the longest first. Spans nest, so the rows do not sum to the total."""
        self._require_complete()
        kinds: dict[str, list[HostSpan]] = {}
        for span in self.host:
            kinds.setdefault(span.kind, []).append(span)
        rows = [
            (kind, len(spans), sum(span.seconds for span in spans), sum(span.bytes for span in spans))
            for kind, spans in kinds.items()
        ]
        return sorted(rows, key=lambda row: -row[2])

    def summary(self) -> str:
        """Return one sentence with the device time, barriers, gaps, and the block's host time."""
        self._require_complete()
        durations = (self.device_seconds, self.barrier_seconds, self.gap_seconds, self.seconds)
        device, barriers, idle_seconds, host = (f"{seconds * 1e6:,.1f} us" for seconds in durations)
        return (
            f"{self._count_executions()}: {device} on the device, {barriers} of it in barriers; "
            f"{idle_seconds} between executions; {host} on the host"
            + (f"; {self.lost} more executions have no stamps" if self.lost else "")
        )

    def _count_executions(self) -> str:
        fine = sum(execution.fine for execution in self.executions)
        by = f", {fine} of them stamped by {self.level}" if fine < len(self.executions) else ""
        return f"{len(self.executions)} executions{by}"

    def cells(self, by: str = "node") -> list[tuple[str, ...]]:
        """Return a table's rows as text, see `table`."""
        peaks = self.peaks
        return [_format_cells(row, peaks) for row in self.rows(by)]

    def table(self, by: str = "node", max_rows: int = 30, *, most: int | None = None) -> str:
        """Return a text table: rows by "node", "kernel" or "dispatch", at most `max_rows`, the longest first.

        `most` is the old name of `max_rows`.
        """
        max_rows = choose_renamed_argument("Profile.table(most)", most, max_rows, 30)
        cells = [_HEADERS, *self.cells(by)[:max_rows]]
        widths = [max(len(row[i]) for row in cells) for i in range(len(_HEADERS))]
        lines = [_format_line(row, widths) for row in cells]
        num_omitted = len(self.rows(by)) - max_rows
        return "\n".join([self.summary(), *lines, *([f"... and {num_omitted} more"] if num_omitted > 0 else [])])

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON-compatible values; times are seconds since the start of the block."""
        self._require_complete()
        executions = [
            {**execution._asdict(), "spans": [span._asdict() for span in execution.spans]}
            for execution in self.executions
        ]
        peaks = self.peaks
        return {
            "level": self.level,
            "every": self.every,
            "seconds": self.seconds,
            "device_seconds": self.device_seconds,
            "barrier_seconds": self.barrier_seconds,
            "gap_seconds": self.gap_seconds,
            "lost": self.lost,
            "peaks": peaks and peaks.as_dict(),
            "executions": executions,
            "host": [span._asdict() for span in self.host],
            "memory": [memory_map.as_dict() for memory_map in self.memory],
        }

    def save_json(self, path: Path) -> None:
        """Write as_dict() to a JSON file. Raise OSError if it cannot be written."""
        write_text_atomic(path, json.dumps(self.as_dict()))

    def save_trace(self, path: Path) -> None:
        """Write a trace in Chrome's JSON format, for ui.perfetto.dev or chrome://tracing. Raise OSError if it cannot be written."""
        from .trace import make_trace

        self._require_complete()
        write_text_atomic(path, json.dumps(make_trace(self)))

    def save_html(self, path: Path, title: str = "pumice profile") -> None:
        """Write one self-contained HTML page. Raise OSError if it cannot be written."""
        from .html_page import render_page

        write_text_atomic(path, render_page(self, title))

    def plot(self, kind: str = "timeline", axes: Any = None) -> Any:
        """Draw a "timeline", a "roofline", the top "kernels" or the "memory" with matplotlib, and return the axes.

        "memory" is the map in `memory` with the largest arena. axes: to draw into; None: new axes. Raise InputError for
        another kind, and for "memory" if no model was called; UnsupportedError without matplotlib.
        """
        from .plots import plot_profile

        self._require_complete()
        return plot_profile(self, kind, axes)

    def compare(self, other: Profile, by: str = "node") -> Comparison:
        """Compare this profile with another one row by row. Raise InputError like `rows`."""
        from .comparison import Comparison

        return Comparison(self.rows(by), other.rows(by), by)

    def __repr__(self) -> str:
        return self.table() if self._state == "done" else f"<Profile, {self._state}>"

    def _repr_html_(self) -> str:
        from ..base.html import render_table, render_titled_text

        if self._state != "done":
            return render_titled_text("Profile", f"its block is {self._state}")
        page_html = render_titled_text("Profile", self.summary()) + render_table(_HEADERS, self.cells())
        return page_html + "".join(memory_map._repr_html_() for memory_map in self.memory)


def _format_cells(row: Row, peaks: Peaks | None) -> tuple[str, ...]:
    return (
        shorten_and_escape(row.name),
        str(row.spans),
        f"{row.seconds * 1e6:,.1f}",
        f"{row.barrier_seconds * 1e6:,.1f}",
        f"{row.share:.1%}",
        f"{row.bytes_per_second * 1e-9:,.2f}",
        f"{row.flop_per_second * 1e-9:,.2f}" if row.flop else "",
        peaks.share_text(row) if peaks else "",
        shorten_and_escape(row.kernel),
    )


def _format_line(cells: tuple[str, ...], widths: list[int]) -> str:
    left_aligned = (0, len(cells) - 1)
    padded = [
        f"{cell:<{width}}" if i in left_aligned else f"{cell:>{width}}"
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()
