"""Image networks at batch 1 and 64: time on the device, by node and kernel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import pumice

from .model_cases import MODEL_CASES, ModelCase
from .models import device_times
from .rows import Row, Table
from .session import Session
from .timing import Absent

US = 1e6
NAMES = ("candy", "mnist", "superres", "squeezenet")
BATCHES = (1, 64)
RUNS, PROFILED, MOST_ROWS = 30, 40, 16


def model_rows(case: ModelCase, precision: str, batch: int, session: Session) -> Iterator[Row]:
    one, _ = case.data()
    x = np.ascontiguousarray(np.repeat(one[:1], batch, axis=0))
    model = pumice.load(case.path, context=session.context, precision=precision)
    times = sorted(device_times(model, x, 3 if session.software else RUNS))
    steps = model.program.plan([list(x.shape)])
    note = f"{len(steps)} dispatches, {sum(step['barrier'] for step in steps)} barriers"
    yield Row("  on the device", times[0] * US, times[len(times) // 2] * US, note=note)
    calls = 2 if session.software else PROFILED
    with pumice.profile("dispatch") as told:
        for _ in range(calls):
            model(x)
    shared = told.barrier_seconds / calls * US
    yield Row("    in barriers", shared, shared)
    for by, most in (("kernel", None), ("dispatch", MOST_ROWS)):
        for row in told.rows(by)[:most]:
            each = row.seconds / calls * US
            yield Row(f"    {by} {row.name}", each, each, note=f"{row.kernel}, {row.spans // calls} of them")


def table(case: ModelCase, precision: str, batch: int, session: Session) -> Table:
    made = Table(f"{case.name}, {precision}, batch {batch}", "us")
    try:
        for row in model_rows(case, precision, batch, session):
            made.rows.append(row)
    except (Absent, pumice.Error) as error:
        made.rows.append(Row("  on the device", absent=str(error)))
    return made


def run(session: Session) -> Iterator[Table]:
    wanted = [case for case in MODEL_CASES if case.name in (session.only or NAMES)]
    for case in wanted:
        for batch in (1,) if session.software else BATCHES:
            for precision in ("fp32", "fp16"):
                yield table(case, precision, batch, session)
