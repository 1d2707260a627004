"""How much later a process has its first result where its kernel is tuned and the store knows all variants: it measures none.

A process that is told nothing runs the kernel as its text is; one that tunes asks for twelve variants and runs the best one. They take
turns.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from .rows import Row, Table
from .session import Session

MS = 1e3
TARGET = 5.0  # milliseconds
PROCESSES = 21

# Seconds from the context on, those of the main thread's processor, and how many variants were measured.
PROGRAM = """
import json, sys, time
import numpy as np
import pumice

TEXT = '''
layout(constant_id = 0) const uint TILE = 4u;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
void main() {
  const uint first = gl_GlobalInvocationID.x * TILE;
  for (uint i = first; i < min(first + TILE, uint(x.length())); ++i) y[i] = SCALE * x[i];
}
'''
context = pumice.Context()
x = np.ones(1 << 16, "float32")
begin, busy = time.perf_counter(), time.thread_time()
kernel = pumice.Kernel(TEXT, context, macros={"SCALE": "2.0"}, name="scale")
tile, measured = 4, 0
if sys.argv[1] == "tuned":
    y = np.zeros_like(x)
    arguments = lambda one: {"x": x, "y": y, "threads": x.size // one["TILE"]}
    grid = {"TILE": [1, 2, 4, 8], "local_size": [64, 128, 256]}
    found = kernel.tune(grid, arguments, check=lambda x, y: 2 * x, runs=int(sys.argv[2]), progress=False)
    kernel, tile, measured = found.kernel, found.best["TILE"], found.measured
y = np.zeros_like(x)
kernel(x=x, y=y, threads=x.size // tile)
assert (y == 2).all()
print(json.dumps([time.perf_counter() - begin, time.thread_time() - busy, measured]))
"""


def process(kind: str, cache: str, device: str) -> tuple[float, float, int]:
    environment = {**os.environ, "PUMICE_CACHE_DIR": cache, "PUMICE_DEVICE": device}
    for name in ("PUMICE_NO_CACHE", "PYTHONDONTWRITEBYTECODE"):  # without bytecode Python compiles what it imports
        environment.pop(name, None)
    command = [sys.executable, "-c", PROGRAM, kind, "5"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seconds, busy, measured = json.loads(done.stdout)
    return seconds, busy, measured


def run(session: Session) -> Iterator[Table]:
    device = f"uuid:{session.context.info.uuid}"
    count = 5 if session.effort.rounds == 1 else PROCESSES
    with tempfile.TemporaryDirectory() as cache:
        first = process("tuned", cache, device)
        process("plain", cache, device)
        pairs = [(process("plain", cache, device), process("tuned", cache, device)) for _ in range(count)]
    plain, tuned = zip(*pairs, strict=True)
    later = [one[0] - other[0] for other, one in pairs]
    busier = [one[1] - other[1] for other, one in pairs]
    measured = max(one[2] for one in tuned)
    rows = [
        Row("first process, which measures", median=first[0] * MS, note=f"{first[2]} variants measured"),
        Row("a later one, untuned", min(plain)[0] * MS, statistics.median(one[0] for one in plain) * MS),
        Row(
            "a later one, tuned",
            min(tuned)[0] * MS,
            statistics.median(one[0] for one in tuned) * MS,
            note=f"{measured} variants measured",
        ),
        Row("tuned later than untuned", median=statistics.median(later) * MS, target=TARGET, wrong=measured > 0),
        Row("the same of the main thread's processor", min(busier) * MS, statistics.median(busier) * MS),
    ]
    yield Table(f"First result of a tuned kernel, {session.context.info.name}", "ms", rows)
