"""The dv interface: cost of exec and wait of a small list in C and Python, and networks compared with their fp16 ONNX path."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

import numpy as np

import pumice
from pumice import dv

from .contender import Array
from .launch import US, list_of
from .model_cases import ModelCase
from .models import device_times
from .rows import Row, Table, timed
from .session import Session
from .timing import Absent, Sampler, measure, sampler

RUNS = 2000
SLACK = 20.0  # microseconds allowed for exec and wait in C above the device's own submit and wait
MOST_RATIO = 1.1  # maximum time of a committed list relative to the ONNX path
MS = 1e3
OWN, IN_C, IN_PYTHON = "submit and wait in C++", "dv exec and wait in C", "dv exec and wait in Python"


def small_command(memory: dv.Memory | int) -> dv.Conv:
    """Return a command that doubles 64 pixels of 16 channels, in a memory or a raw command's handle."""
    run = dv.Run(pool_enable=dv.POOL_AVERAGE, pool_size=(1, 1), pool_avg_param=2.0, m=16)
    return dv.Conv(input_buf=(memory, 0), output_buf=(memory, 2048), w=64, h=1, c=16, run=[run])


def in_python(context: pumice.Context) -> Sampler:
    commands = dv.Context(context).command_list()
    commands.add(small_command(dv.Memory(dv.Context(context), 4096)))
    commands.commit()
    return sampler(commands.run)


class SmallList:
    """A single-command list in the C library, on the context's device."""

    def __init__(self, context: pumice.Context) -> None:
        os.environ["PUMICE_DEVICE"] = f"uuid:{context.info.uuid}"
        self.library = library = ctypes.CDLL(str(dv.library_path()))
        for name in ("context_create", "mem_alloc", "cmdlist_create"):
            getattr(library, f"dmp_dv_{name}").restype = ctypes.c_void_p
        for name in ("cmdlist_exec", "cmdlist_get_last_exec_time"):
            getattr(library, f"dmp_dv_{name}").restype = ctypes.c_int64
        library.dmp_dv_cmdlist_wait.argtypes = [ctypes.c_void_p, ctypes.c_int64]
        made = ctypes.c_void_p(library.dmp_dv_context_create())
        memory = library.dmp_dv_mem_alloc(made, ctypes.c_size_t(4096))
        self.commands = ctypes.c_void_p(library.dmp_dv_cmdlist_create(made))
        refused = library.dmp_dv_cmdlist_add_raw(
            self.commands, bytes(small_command(memory))
        ) or library.dmp_dv_cmdlist_commit(self.commands)
        assert not refused

    def run(self) -> None:
        self.library.dmp_dv_cmdlist_wait(self.commands, self.library.dmp_dv_cmdlist_exec(self.commands))


def launches(session: Session) -> Table:
    context = session.context
    small, plain = SmallList(context), list_of(1, context)
    samplers = {OWN: plain.time, IN_C: sampler(small.run), IN_PYTHON: in_python(context)}
    times = measure(samplers, session.effort, RUNS)
    limits = {IN_C: times[OWN].median * US + SLACK}
    rows = [timed(label, measured, US, limits.get(label)) for label, measured in times.items()]
    return Table(f"A small dv command list, {context.info.name}", "us", rows)


def network_samplers(context: pumice.Context, case: ModelCase, x: Array) -> dict[str, Sampler]:
    loaded = dv.from_graph(case.path, x.shape[1:]).load(dv.Context(context))
    loaded(x)
    commands = loaded.commands

    def sample(runs: int) -> list[float]:
        seconds = []
        for _ in range(runs):
            commands.run()
            seconds.append(commands.last_exec_time / US)
        return seconds

    model = pumice.load(case.path, context=context, precision="fp16")
    return {"ONNX, fp16": lambda runs: device_times(model, x, runs), "dv": sample}


def network(session: Session, case: ModelCase) -> Iterator[Row]:
    try:
        x, _ = case.data()
        samplers = network_samplers(session.context, case, x.astype(np.float32))
    except (Absent, pumice.UnsupportedError) as reason:
        yield Row(f"{case.name}: dv", absent=str(reason).split("\n")[0])
        return
    times = measure(samplers, session.effort, 20)
    first, second = times
    yield timed(f"{case.name}: {first}", times[first], MS)
    yield timed(f"{case.name}: {second}", times[second], MS, times[first].median * MS * MOST_RATIO)


def run(session: Session) -> Iterator[Table]:
    yield launches(session)
    rows = [row for case in session.cases() for row in network(session, case)]
    yield Table("Networks on the device, by the dv interface and by ONNX in fp16", "ms", rows)
