"""Time a model: its calls, their device time, and the time from process start to the first result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ._pumice import Error, UnsupportedError
from .base.element_types import Array
from .model.model import Model

_WARM_UP_RUNS = 3


class ModelTiming(NamedTuple):
    """Times of a model's calls."""

    # Time of the first call, which binds shapes, creates kernels, and compiles them if the driver compiles at the first dispatch.
    cold_seconds: float
    min_seconds: float
    median_seconds: float
    p99_seconds: float
    mean_seconds: float
    device_seconds: float  # device time of one call
    runs: int


def measure(
    model: Model,
    arrays: Sequence[Array],
    runs: int,
    progress: Callable[[int, int], None] | None = None,
    warm_up: int = _WARM_UP_RUNS,
) -> ModelTiming:
    """Time a model that has not been called yet.

    arrays: its inputs in graph order. runs: measured calls. progress: called with the number of finished calls and `runs`. warm_up:
    unmeasured calls after the first.
    """
    first_call = model.warm_up(*arrays)
    for _ in range(warm_up):
        model(*arrays)
    times = []
    for run in range(runs):
        times.append(_time_call(lambda: model(*arrays)))
        if progress:
            progress(run + 1, runs)
    on_device = _measure_device_seconds(model, arrays)
    sorted_seconds = np.sort(times)
    p99 = float(np.quantile(sorted_seconds, 0.99, method="higher"))
    return ModelTiming(
        first_call,
        float(sorted_seconds[0]),
        float(np.median(sorted_seconds)),
        p99,
        float(sorted_seconds.mean()),
        on_device,
        runs,
    )


def _measure_device_seconds(model: Model, arrays: Sequence[Array]) -> float:
    """Return the device time of one call in seconds: the sum over its dispatches, or the whole execution if they cannot be timed."""
    program = model.program
    arrays = model.arguments(*arrays)
    try:
        return sum(dispatch.seconds for dispatch in program.profile(arrays))
    except UnsupportedError:
        execution = program.execution(measure=True)
    for value, array in zip(program.inputs, arrays, strict=True):
        execution.set(value.name, array)
    execution.compute(loop_timeout=None)
    return float(execution.timing["on_device"])


def _time_call(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


# Script for a fresh process. Arguments: the model, the precision, an .npz with the inputs in graph order, time.monotonic() at launch.
_FIRST_RESULT_SCRIPT = """
import time
marks = [("process start", time.monotonic())]
import numpy
marks.append(("import numpy", time.monotonic()))
import json, sys
path, precision, inputs, start = sys.argv[1:]
import pumice
from pumice import Model
marks.append(("import pumice", time.monotonic()))
context = pumice.Context()
marks.append(("context", time.monotonic()))
with numpy.load(inputs) as archive:
    arrays = [archive[name] for name in archive.files]
marks.append(("read inputs", time.monotonic()))
model = Model(path, context, precision)
marks.append(("load model", time.monotonic()))
model(*arrays)
marks.append(("first call", time.monotonic()))
phases, before = {}, float(start)
for name, at in marks:
    phases[name], before = at - before, at
onnx = "onnx" in sys.modules
print(json.dumps({"phase_seconds": phases, "total_seconds": before - float(start), "onnx": onnx}))
"""


class TimeToFirstResult(NamedTuple):
    """Seconds from process start to the first result, per phase and in total."""

    phase_seconds: dict[str, float]
    total_seconds: float
    onnx: bool  # whether the onnx package was imported


def measure_time_to_first_result(
    path: str, precision: str, inputs: Sequence[Array]
) -> tuple[TimeToFirstResult, TimeToFirstResult]:
    """Time two fresh processes: one with empty caches, then one that reuses the caches of the first. Raise Error if a process fails."""
    with tempfile.TemporaryDirectory() as folder:
        archive = os.path.join(folder, "inputs.npz")
        np.savez(archive, *inputs)
        caches = {
            "PUMICE_CACHE_DIR": os.path.join(folder, "pumice"),
            "MESA_SHADER_CACHE_DIR": os.path.join(folder, "mesa"),
            "__GL_SHADER_DISK_CACHE_PATH": folder,
        }
        arguments = (path, precision, archive)
        return _measure_in_fresh_process(arguments, caches), _measure_in_fresh_process(arguments, caches)


def _measure_in_fresh_process(arguments: tuple[str, ...], caches: dict[str, str]) -> TimeToFirstResult:
    environment = {**os.environ, **caches}
    environment.pop("PUMICE_NO_CACHE", None)
    command = [sys.executable, "-c", _FIRST_RESULT_SCRIPT, *arguments, repr(time.monotonic())]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise Error(f"a fresh process did not reach its first result:\n{process.stderr}")
    return TimeToFirstResult(**json.loads(process.stdout.splitlines()[-1]))
