"""Latency of the models at batch 1, NumPy to NumPy, and their device time, compared with ncnn, ONNX Runtime and PyTorch.

PyTorch's calls are eager; its device time is from a CUDA graph.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

import pumice

from . import on_device, peers
from .contender import Array, Contender, Local
from .conversion import converted
from .model_cases import ModelCase
from .rows import Row, Table
from .session import Session
from .timing import Absent, Effort, Times, measure

MS = 1e3
OURS = "pumice"
NCNN = "ncnn Vulkan"
DEVICE_RUNS = 30


def ours(session: Session, case: ModelCase, x: Array, precision: str) -> Contender:
    model = pumice.load(case.path, context=session.context, precision=precision)

    def call() -> Array:
        results = model(x)
        return np.asarray(results if len(model.outputs) == 1 else results[0])

    return Local(call, partial(device_times, model, x))


def device_times(model: pumice.Model, x: Array, runs: int) -> Sequence[float]:
    """Return seconds on the device from the first dispatch to the last, with arguments and results in device memory."""
    program, context = model.program, model.context
    compiled = program.compiled([list(x.shape)])
    results = program.call((x,))
    tensors = {model.inputs[0].name: pumice.tensor(x, context)}
    tensors |= {output.name: pumice.tensor(y, context) for output, y in zip(model.outputs, results, strict=True)}
    commands = pumice.CommandList(context)
    on_device.dispatch(commands, program, compiled, tensors)
    return on_device.sampler(commands)(runs)


def ncnn(session: Session, case: ModelCase, x: Array, precision: str) -> Contender:
    folder = converted(case.path, x.shape)
    return session.ncnn.make(peers.ncnn_model, folder, precision, [x], session.context.info.name)


def torch(session: Session, case: ModelCase, x: Array, precision: str) -> Contender:
    return session.torch.make(peers.torch_model, converted(case.path, x.shape), precision, x)


def onnxruntime(session: Session, case: ModelCase, x: Array, precision: str) -> Contender:
    return session.onnxruntime.make(peers.onnxruntime_model, case.path, x)


# The contenders: a label, a precision, and a function that creates the contender or raises Absent.
CONTENDERS: tuple[tuple[str, str, Callable[[Session, ModelCase, Array, str], Contender]], ...] = (
    (OURS, "fp32", ours),
    (OURS, "fp16", ours),
    (NCNN, "fp32", ncnn),
    (NCNN, "fp16", ncnn),
    ("torch CUDA", "fp32", torch),
    ("torch CUDA", "fp16", torch),
    ("onnxruntime CPU", "fp32", onnxruntime),
)


def run(session: Session) -> Iterator[Table]:
    for case in session.cases():
        table = Table(f"{case.name}, NumPy to NumPy, {session.context.info.name}", "ms")
        try:
            x, expected = case.data()
        except Absent as reason:
            table.rows.append(Row(f"{OURS} {case.name}", absent=str(reason)))
        else:
            table.title += f", input {'x'.join(map(str, x.shape))}"
            table.rows = compare(session, case, x, expected)
        yield table


def compare(session: Session, case: ModelCase, x: Array, expected: Array) -> list[Row]:
    """Check each contender's first result, then time its calls."""
    rows: dict[str, Row] = {}
    contenders: dict[str, Contender] = {}
    for engine, precision, make in CONTENDERS:
        label = f"{engine} {precision}"
        rows[label] = Row(label)
        try:
            contender = make(session, case, x, precision)
            begin = time.perf_counter()
            result = contender.call()
            rows[label].first = (time.perf_counter() - begin) * MS
        except (Absent, pumice.Error) as reason:
            rows[label].absent = str(reason)
            rows[label].wrong = engine == OURS
            continue
        contenders[label] = contender
        off, allowed = case.difference(result, expected), case.allowed[precision]
        rows[label].note = f"off by {off:.1e}" + ("" if off <= allowed else f", WRONG: {allowed:g} is allowed")
        rows[label].wrong = off > allowed and engine == OURS
    times = measure({label: contender.sample for label, contender in contenders.items()}, session.effort)
    for label, contender in contenders.items():
        fill(rows[label], times[label], contender, session.effort)
    set_targets(session, case, rows)
    return list(rows.values())


def fill(row: Row, times: Times, contender: Contender, effort: Effort) -> None:
    row.absent = times.absent
    if row.absent:
        return
    row.best, row.median = times.best * MS, times.median * MS
    try:
        seconds = contender.device(max(1, min(DEVICE_RUNS, int(effort.budget / times.best))))
    except Absent as reason:
        row.note += f"; device: {reason}"
    else:
        row.device = min(seconds) * MS if seconds else None


def set_targets(session: Session, case: ModelCase, rows: Mapping[str, Row]) -> None:
    if case.name != "squeezenet":
        return
    if session.h200:
        rows[f"{OURS} fp32"].target = rows[f"{OURS} fp16"].target = 0.8
    theirs = rows[f"{NCNN} fp32"].median
    if session.software and theirs is not None:
        rows[f"{OURS} fp32"].target = theirs / 2
