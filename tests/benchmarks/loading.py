"""Loading a transformer of 642 nodes and 506 MB: device and host memory, and a second process after the first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx

import pumice
from onnx_transformers import encoder

from .first_use import caches
from .rows import Row, Table
from .session import Session
from .timing import Absent

MB = 1e6
STAGING = 64 << 20  # bytes
BASE = 64 << 20  # bytes that loading any model needs: the importer, kernels

# Prints the resources of a load; the peak is relative to the process before it.
LOAD = """
import json, resource, sys, time
import numpy, pumice
def peak():  # getrusage's value begins with the peak of the process before this one
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
context = pumice.Context()
peak_before = peak()
before = resource.getrusage(resource.RUSAGE_SELF)
begin = time.perf_counter()
model = pumice.load(sys.argv[1], context=context, progress=False)
seconds = time.perf_counter() - begin
after = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "seconds": seconds, "host_bytes": peak() - peak_before,
    "cpu_seconds": sum(getattr(after, key) - getattr(before, key) for key in ("ru_utime", "ru_stime")),
    "device_bytes": context.memory.buffer_bytes, "software": context.info.kind == "software",
    "compiled": pumice.compile_counts().compiled,
}))
"""


def load(path: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Load a model in a new process. Raise Absent if it fails."""
    inherited = {name: value for name, value in os.environ.items() if name != "PUMICE_NO_CACHE"}
    command = [sys.executable, "-c", LOAD, str(path)]
    done = subprocess.run(command, env={**inherited, **environment}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Absent((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if facts["software"]:  # a software device's memory is host memory
        facts["host_bytes"] -= facts["device_bytes"]
    return facts


def run(session: Session) -> Iterator[Table]:
    proto = encoder(10, 1024, 16)
    weights = sum(len(tensor.raw_data) for tensor in proto.graph.initializer)
    for outside in (False, True):
        form = "weights in a file beside it" if outside else "in one file"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            onnx.save(proto, path, save_as_external_data=outside, location="weights.bin")
            if outside:
                proto = onnx.load(path)  # saving has emptied it
            title = (
                f"Load of {len(proto.graph.node)} nodes and {weights / MB:.0f} MB, {form}, {session.context.info.name}"
            )
            try:
                first, *later = measured(session, path, Path(folder))
            except (Absent, pumice.Error) as reason:
                yield Table(title, "", [Row("load", absent=str(reason))])
                continue
            yield Table(title, "", rows(first, later, weights))


def measured(session: Session, path: Path, folder: Path) -> Iterator[dict[str, Any]]:
    environment = {**caches(folder), "PUMICE_DEVICE": f"uuid:{session.context.info.uuid}"}
    for _ in range(1 + session.effort.processes):
        yield load(path, environment)


def rows(first: Mapping[str, Any], later: list[dict[str, Any]], weights: int) -> list[Row]:
    peak = max(facts["host_bytes"] for facts in (first, *later))
    best = min(later, key=lambda facts: facts["seconds"])
    note = (
        f"{best['compiled']} kernels compiled; processor {first['cpu_seconds']:.2f} s and {best['cpu_seconds']:.2f} s"
    )
    return [
        Row("device memory / weights", first["device_bytes"] / weights, target=1.1, judged="best"),
        Row("peak on the host beside it, MB", peak / MB, target=(STAGING + BASE) / MB, judged="best"),
        Row("first load, s", first["seconds"]),
        Row("second load, s", best["seconds"]),
        Row("second / first", best["seconds"] / first["seconds"], target=0.2, judged="best", note=note),
    ]
