"""Exported architectures of full size with seeded random weights, in half precision: NumPy to NumPy and on the device.

Beside PyTorch (eager calls; its time on the device is that of a CUDA graph), ONNX Runtime's WebGPU provider and its CPU one.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

import pumice

from . import exporting, on_device
from .contender import Array, Contender, Local
from .models import MS, fill
from .rows import Row, Table
from .session import Session
from .timing import Absent, measure

OURS = "pumice fp16"
EAGER = "torch CUDA fp16"
WEBGPU = "onnxruntime WebGPU fp16"


@dataclass(frozen=True)
class Architecture:
    name: str  # of exporting.MODULES
    batch: int
    allowed: float  # of the largest difference from PyTorch's fp32, relative to its largest value


ARCHITECTURES = (
    Architecture("bert_base", 1, 2e-2),
    Architecture("bert_base", 8, 2e-2),
    Architecture("vit_b", 1, 2e-2),
    Architecture("resnet50", 1, 2e-2),
    Architecture("whisper_tiny_encoder", 1, 2e-2),
)


def device_times(model: pumice.Model, inputs: Sequence[Array], runs: int) -> Sequence[float]:
    """Seconds on the device from the first dispatch to the last, arguments and results in device memory."""
    program, context = model.program, model.context
    compiled = program.compiled([list(x.shape) for x in inputs])
    results = program.call(tuple(inputs))
    tensors = {given.name: pumice.tensor(x, context) for given, x in zip(model.inputs, inputs, strict=True)}
    tensors |= {output.name: pumice.tensor(y, context) for output, y in zip(model.outputs, results, strict=True)}
    commands = pumice.CommandList(context)
    on_device.dispatch(commands, program, compiled, tensors)
    return on_device.sampler(commands)(runs)


def ours(session: Session, folder: Path, inputs: Sequence[Array]) -> Contender:
    model = pumice.load(folder / exporting.FP32, context=session.context, precision="fp16")

    def call() -> Array:
        results = model(*inputs)
        return np.asarray(results if len(model.outputs) == 1 else results[0])

    return Local(call, partial(device_times, model, inputs))


def torch(session: Session, folder: Path, inputs: Sequence[Array], one: Architecture) -> Contender:
    return session.torch.make(exporting.torch_contender, one.name, inputs)


def webgpu(session: Session, folder: Path, inputs: Sequence[Array]) -> Contender:
    if session.software:
        raise Absent("it is meant for GPUs")
    return session.onnxruntime.make(exporting.onnxruntime_contender, folder / exporting.FP16, inputs, "webgpu")


def onnxruntime_cpu(session: Session, folder: Path, inputs: Sequence[Array]) -> Contender:
    return session.onnxruntime.make(exporting.onnxruntime_contender, folder / exporting.FP32, inputs, "cpu")


def compare(session: Session, one: Architecture, folder: Path, inputs: Sequence[Array], expected: Array) -> list[Row]:
    """Each contender's first result is checked before its calls are timed."""
    makers: Mapping[str, Callable[[], Contender]] = {
        OURS: partial(ours, session, folder, inputs),
        EAGER: partial(torch, session, folder, inputs, one),
        WEBGPU: partial(webgpu, session, folder, inputs),
        "onnxruntime CPU fp32": partial(onnxruntime_cpu, session, folder, inputs),
    }
    rows: dict[str, Row] = {}
    contenders: dict[str, Contender] = {}
    for label, make in makers.items():
        row = rows[label] = Row(label)
        try:
            contender = make()
            begin = time.perf_counter()
            result = contender.call()
            row.first = (time.perf_counter() - begin) * MS
        except (Absent, pumice.Error) as reason:
            row.absent = str(reason)
            row.wrong = label == OURS
            continue
        contenders[label] = contender
        off = float(np.abs(result.astype("float32") - expected).max() / np.abs(expected).max())
        row.note = f"off by {off:.1e}" + ("" if off <= one.allowed else f", WRONG: {one.allowed:g} is allowed")
        row.wrong = label == OURS and not off <= one.allowed
    times = measure({label: contender.sample for label, contender in contenders.items()}, session.effort)
    for label, contender in contenders.items():
        fill(rows[label], times[label], contender, session.effort)
    judge(rows)
    return list(rows.values())


def judge(rows: Mapping[str, Row]) -> None:
    """Quicker than the peers' calls; the time on the device beside that of a CUDA graph is reported."""
    peers = [figure for label in (EAGER, WEBGPU) if (figure := rows[label].median) is not None]
    if peers:
        rows[OURS].target = min(peers)
    mine, graph = rows[OURS].device, rows[EAGER].device
    if mine and graph:
        rows[OURS].note += f"; on the device {mine / graph:.2f} times a CUDA graph"


def run(session: Session) -> Iterator[Table]:
    for one in ARCHITECTURES:
        table = Table(f"{one.name}, batch {one.batch}, NumPy to NumPy, {session.context.info.name}", "ms")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            try:
                made = session.torch.make(exporting.export, one.name, one.batch, folder)
                inputs, expected = session.torch.ask(made.index, "call")
            except Absent as reason:
                table.rows.append(Row(OURS, absent=str(reason)))
            else:
                table.rows = compare(session, one, folder, inputs, expected)
        yield table
