"""Full-size exported architectures with seeded random weights, in fp16: NumPy to NumPy and on the device.

Peers: PyTorch (eager calls; device time from a CUDA graph), ONNX Runtime's WebGPU provider, ncnn and, for reference, ONNX Runtime's CPU
provider. Software devices also run fp32, which is faster there.
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

from . import exporting, on_device, peers
from .contender import Array, Contender, Local
from .conversion import FILES, convert
from .models import MS, NCNN, OURS, fill
from .rows import Row, Table
from .session import Session
from .timing import Absent, measure

EAGER = "torch CUDA fp16"
WEBGPU = "onnxruntime WebGPU fp16"
CPU = "onnxruntime CPU fp32"
# Largest difference from PyTorch's fp32, relative to its largest value.
ALLOWED = {"fp32": 1e-3, "fp16": 2e-2}


@dataclass(frozen=True)
class Architecture:
    name: str  # name in exporting.MODULES
    batch: int


ARCHITECTURES = (
    Architecture("bert_base", 1),
    Architecture("bert_base", 8),
    Architecture("vit_b", 1),
    Architecture("resnet50", 1),
    Architecture("whisper_tiny_encoder", 1),
)


def device_times(model: pumice.Model, inputs: Sequence[Array], runs: int) -> Sequence[float]:
    """Return seconds on the device from the first dispatch to the last, with arguments and results in device memory."""
    program, context = model.program, model.context
    compiled = program.compiled([list(x.shape) for x in inputs])
    results = program.call(tuple(inputs))
    tensors = {given.name: pumice.tensor(x, context) for given, x in zip(model.inputs, inputs, strict=True)}
    tensors |= {output.name: pumice.tensor(y, context) for output, y in zip(model.outputs, results, strict=True)}
    commands = pumice.CommandList(context)
    on_device.dispatch(commands, program, compiled, tensors)
    return on_device.sampler(commands)(runs)


def ours(session: Session, folder: Path, inputs: Sequence[Array], precision: str) -> Contender:
    model = pumice.load(folder / exporting.FP32, context=session.context, precision=precision)

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


def ncnn(session: Session, folder: Path, inputs: Sequence[Array], one: Architecture, precision: str) -> Contender:
    given = exporting.ncnn_inputs(one.name, inputs)
    files = [name for name in FILES if "ncnn" in name]
    if not all((folder / name).is_file() for name in files):
        convert(folder / (exporting.TRACED if one.name in exporting.NCNN_INPUTS else exporting.FP32), given, files)
    return session.ncnn.make(peers.ncnn_model, folder, precision, given, session.context.info.name)


def onnxruntime_cpu(session: Session, folder: Path, inputs: Sequence[Array]) -> Contender:
    return session.onnxruntime.make(exporting.onnxruntime_contender, folder / exporting.FP32, inputs, "cpu")


def compare(session: Session, one: Architecture, folder: Path, inputs: Sequence[Array], expected: Array) -> list[Row]:
    """Check each contender's first result; time the calls of the correct ones."""
    precisions = ("fp32", "fp16") if session.software else ("fp16",)
    makers: Mapping[str, Callable[[], Contender]] = {
        **{f"{OURS} {kind}": partial(ours, session, folder, inputs, kind) for kind in precisions},
        **{f"{NCNN} {kind}": partial(ncnn, session, folder, inputs, one, kind) for kind in precisions},
        EAGER: partial(torch, session, folder, inputs, one),
        WEBGPU: partial(webgpu, session, folder, inputs),
        CPU: partial(onnxruntime_cpu, session, folder, inputs),
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
            row.wrong = label.startswith(OURS)
            continue
        off, allowed = difference(result, expected), ALLOWED[label.rsplit(maxsplit=1)[-1]]
        row.note = f"off by {off:.1e}"
        if off <= allowed:
            contenders[label] = contender
        else:
            row.note += f", WRONG: {allowed:g} is allowed"
            row.wrong = label.startswith(OURS)
    times = measure({label: contender.sample for label, contender in contenders.items()}, session.effort)
    for label, contender in contenders.items():
        fill(rows[label], times[label], contender, session.effort)
    judge(rows)
    return list(rows.values())


def difference(result: Array, expected: Array) -> float:
    """Return the relative difference; infinity for different shapes."""
    if result.shape not in (expected.shape, expected.shape[1:]):
        return float("inf")
    return float(np.abs(result.reshape(expected.shape).astype("float32") - expected).max() / np.abs(expected).max())


def judge(rows: Mapping[str, Row]) -> None:
    """Set the target: faster than the peers' calls at the same precision. CUDA graphs and ONNX Runtime's CPU are only reported."""
    for kind in ALLOWED:
        mine = rows.get(f"{OURS} {kind}")
        if mine is None or mine.median is None:
            continue
        theirs = [
            row.median
            for label in (f"{NCNN} {kind}", EAGER, WEBGPU)
            if label.endswith(kind) and (row := rows[label]).median
        ]
        mine.target = min(theirs, default=None)
        if mine.device and (graph := rows[EAGER].device):
            mine.note += f"; on the device {mine.device / graph:.2f} times a CUDA graph"
        if cpu := rows[CPU].median:
            mine.note += f"; {mine.median / cpu:.2g} times {CPU}"


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
