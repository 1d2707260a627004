"""How long a model takes: its calls, the device's part of them, and everything from process start to the first result."""

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
from .element_types import Array
from .model import Model

_WARM_UP_RUNS = 3


class Timing(NamedTuple):
    """Milliseconds."""

    cold: float  # the first call: shapes are bound, kernels made
    min: float
    median: float
    p99: float
    mean: float
    device: float  # of the dispatches of one call, one after the other
    runs: int


def measure(
    model: Model, arrays: Sequence[Array], runs: int, progress: Callable[[int, int], None] | None = None
) -> Timing:
    """`arrays` in graph order, for a model that has not been called yet."""
    cold = _milliseconds(lambda: model(*arrays))
    for _ in range(_WARM_UP_RUNS):
        model(*arrays)
    times = []
    for run in range(runs):
        times.append(_milliseconds(lambda: model(*arrays)))
        if progress:
            progress(run + 1, runs)
    device = _device_milliseconds(model, arrays)
    ordered = np.sort(times)
    p99 = float(np.quantile(ordered, 0.99, method="higher"))
    return Timing(cold, float(ordered[0]), float(np.median(ordered)), p99, float(ordered.mean()), device, runs)


def _device_milliseconds(model: Model, arrays: Sequence[Array]) -> float:
    """Of one call; one dispatch after the other where the program is one list of them."""
    program = model.program
    arrays = model.arguments(*arrays)
    try:
        return sum(nanoseconds for _, nanoseconds in program.profile(arrays)) * 1e-6
    except UnsupportedError:
        execution = program.execution(measure=True)
    for value, array in zip(program.inputs, arrays, strict=True):
        execution.set(value.name, array)
    execution.compute(loop_timeout=None)
    return float(execution.timing["on_device"]) * 1e3


def _milliseconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e3


# A process of its own: argv holds the model, the precision, an .npz of the inputs in graph order, the parent's clock.
_FIRST_RESULT = """
import time
marks = [("process start", time.monotonic())]
import numpy
marks.append(("import numpy", time.monotonic()))
import json, sys
path, precision, inputs, start = sys.argv[1:]
import pumice
from pumice.model import Model
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
    phases[name], before = (at - before) * 1e3, at
onnx = "onnx" in sys.modules
print(json.dumps({"phases": phases, "total": (before - float(start)) * 1e3, "onnx": onnx}))
"""


class FirstResult(NamedTuple):
    """Milliseconds from the start of a process to its first result."""

    phases: dict[str, float]
    total: float
    onnx: bool  # whether the onnx package was imported


def first_results(path: str, precision: str, inputs: Sequence[Array]) -> tuple[FirstResult, FirstResult]:
    """In fresh processes: with empty caches, and again with what the first one left there."""
    with tempfile.TemporaryDirectory() as folder:
        archive = os.path.join(folder, "inputs.npz")
        np.savez(archive, *inputs)
        caches = {
            "PUMICE_CACHE_DIR": os.path.join(folder, "pumice"),
            "MESA_SHADER_CACHE_DIR": os.path.join(folder, "mesa"),
            "__GL_SHADER_DISK_CACHE_PATH": folder,
        }
        arguments = (path, precision, archive)
        return _first_result(arguments, caches), _first_result(arguments, caches)


def _first_result(arguments: tuple[str, ...], caches: dict[str, str]) -> FirstResult:
    environment = {**os.environ, **caches}
    environment.pop("PUMICE_NO_CACHE", None)
    command = [sys.executable, "-c", _FIRST_RESULT, *arguments, repr(time.monotonic())]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Error(f"a fresh process did not reach its first result:\n{done.stderr}")
    return FirstResult(**json.loads(done.stdout.splitlines()[-1]))
