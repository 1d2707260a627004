"""A network as a committed list of dv commands beside the same model in fp16, on the device and NumPy to NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

import pumice
from pumice import dv

from .cases import CASES
from .models import device_times
from .rows import Row, Table, timed
from .session import Session
from .timing import Absent, measure, sampler

MS = 1e3
NAME = "squeezenet"
MOST = 1.1  # times the model's


def list_times(commands: dv.CommandList, runs: int) -> Sequence[float]:
    """Seconds on the device."""
    seconds = []
    for _ in range(runs):
        commands.run()
        seconds.append(commands.last_exec_time * 1e-6)
    return seconds


def run(session: Session) -> Iterator[Table]:
    case = next(case for case in CASES if case.name == NAME)
    table = Table(f"{NAME} of dv commands, {session.context.info.name}", "ms")
    try:
        x, expected = case.data()
    except Absent as reason:
        table.rows.append(Row(NAME, absent=str(reason)))
        yield table
        return
    model = pumice.load(case.path, session.context, precision="fp16")
    with dv.Context(session.context) as context, dv.from_graph(case.path).load(context) as loaded:
        off, allowed = case.difference(np.asarray(loaded(x)[0]), expected), case.allowed["fp16"]
        times = measure(
            {
                "model in fp16, device": partial(device_times, model, x),
                "dv commands, device": partial(list_times, loaded.commands),
                "model in fp16": sampler(partial(model, x)),
                "dv commands": sampler(partial(loaded, x)),
            },
            session.effort,
        )
    table.rows = [timed(label, measured, MS) for label, measured in times.items()]
    table.rows[1].target, table.rows[1].judged = MOST * times["model in fp16, device"].best * MS, "best"
    table.rows[1].note, table.rows[1].wrong = f"off by {off:.1e}", off > allowed
    yield table
