"""The overhead of an active profile, and whether its times add up.

Calls with and without a profile alternate in small batches. The ratio is between the means of two neighbours; the row has the median ratio
of all pairs. Sums of nodes and barriers are compared with the executions that contain them, and these with the device time without a
profile.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import pumice

from .models import device_times
from .rows import Row, Table
from .session import Session
from .timing import Absent

MS = 1e3
TARGET = 1.03  # relative to a model's time, at node level
SUM = 0.05  # allowed difference between sums and the device time
PAIRS, CALLS = 21, 64  # pairs of samples, calls per sample
WARM = 34  # calls until all four recordings with timestamps exist
NAMES = ("squeezenet", "digits")


def seconds_of(call: Callable[[], Any], calls: int) -> list[float]:
    found = []
    for _ in range(calls):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return found


def pair(call: Callable[[], Any], level: str, calls: int, profiled_first: bool) -> tuple[float, float, pumice.Profile]:
    """Return the mean times without and with a profile, measured in sequence."""

    def plain() -> float:
        return statistics.fmean(seconds_of(call, calls))

    before = None if profiled_first else plain()
    with pumice.profile(level) as measured:
        seconds_of(call, WARM)
        profiled = statistics.fmean(seconds_of(call, calls))
    return plain() if before is None else before, profiled, measured


def overhead(session: Session, call: Callable[[], Any], level: str) -> tuple[Row, pumice.Profile]:
    """Return a row with the profiled call's times and its ratio to the plain one."""
    calls = session.effort.runs or CALLS
    pairs = 5 if session.effort.rounds == 1 else PAIRS
    seconds_of(call, 5)
    found = [pair(call, level, calls, i % 2 == 1) for i in range(pairs)]
    ratios = sorted(profiled / plain for plain, profiled, _ in found)
    ratio = statistics.median(ratios)
    quarters = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    plain = statistics.median(one for one, _, _ in found)
    profiled = statistics.median(one for _, one, _ in found)
    note = f"{plain * MS:.4f} ms without, {profiled * MS:.4f} with; quarters {quarters[0]:.3f} and {quarters[1]:.3f}"
    target = TARGET if level == "node" else None
    return Row(f"level {level}", median=ratio, target=target, note=note), found[-1][2]


def sums(model: pumice.Model, x: Any, measured: pumice.Profile) -> Iterator[Row]:
    """Yield the profile's nodes and barriers, and its node-level executions, relative to the device time without a profile.

    That time is measured with device tensors, so copies of arrays are excluded from the nodes here.
    """
    plain = statistics.fmean(device_times(model, x, 64))
    nodes = [row for row in measured.rows() if row.name != "copy"]
    inside = sum(row.seconds + row.barrier_seconds for row in nodes) / len(measured.executions)
    for name, seconds, limit in (
        ("nodes and barriers over the device's time", inside, SUM),
        ("executions stamped as a whole over that", _mean(measured, fine=False), math.inf),
        ("executions stamped by node over that", _mean(measured, fine=True), math.inf),
    ):
        ratio = seconds / plain
        note = f"{seconds * MS:.4f} ms with a profile, {plain * MS:.4f} without"
        yield Row(name, median=ratio, note=note, target=1 + SUM if limit == SUM else None, wrong=abs(ratio - 1) > limit)


def _mean(measured: pumice.Profile, fine: bool) -> float:
    return statistics.fmean(one.seconds for one in measured.executions if one.fine is fine and not one.cold)


def run(session: Session) -> Iterator[Table]:
    for case in session.cases():
        if case.name not in NAMES:
            continue
        table = Table(f"A profile of {case.name}, {session.context.info.name}", "ratio to a call without")
        try:
            x, _ = case.data()
        except Absent as reason:
            table.rows.append(Row("absent", absent=str(reason)))
            yield table
            continue
        with pumice.load(case.path, session.context) as model:
            for level in ("execution", "node", "dispatch"):
                row, measured = overhead(session, lambda model=model, x=x: np.asarray(model(x)), level)  # type: ignore[misc]
                table.rows.append(row)
                if level == "node":
                    table.rows += sums(model, x, measured)
        yield table
