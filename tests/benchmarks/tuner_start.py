"""The delay of a process's first result from a tuned kernel whose variants are all in the store, so none is measured.

An untuned process runs the kernel as written; a tuned one looks up twelve variants and runs the best. They alternate, and the tuned one
goes first in every second pair, to cancel effects of one process on the next. The difference of the bests is the cost of tuning on a quiet
machine; the median of the pairs' differences includes the machine's noise.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

from .rows import Row, Table
from .session import Session

MS = 1e3
TARGET = 5.0  # milliseconds
PAIRS = 31

# Seconds since the context, main thread processor seconds, and the number of measured variants.
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


Figures = tuple[float, float, int]  # seconds, main thread processor seconds, measured variants


def process(kind: str, cache: str, device: str) -> Figures:
    environment = {**os.environ, "PUMICE_CACHE_DIR": cache, "PUMICE_DEVICE": device}
    for name in ("PUMICE_NO_CACHE", "PYTHONDONTWRITEBYTECODE"):  # without bytecode Python compiles what it imports
        environment.pop(name, None)
    command = [sys.executable, "-c", PROGRAM, kind, "5"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seconds, busy, measured = json.loads(done.stdout)
    return seconds, busy, measured


def pair(cache: str, device: str, tuned_first: bool) -> tuple[Figures, Figures]:
    """Return the figures of an untuned and a tuned process, run in sequence."""
    kinds = ("tuned", "plain") if tuned_first else ("plain", "tuned")
    found = {kind: process(kind, cache, device) for kind in kinds}
    return found["plain"], found["tuned"]


def difference(
    what: str,
    plain: Sequence[Figures],
    tuned: Sequence[Figures],
    place: int,
    target: float | None = None,
    wrong: bool = False,
) -> Row:
    """Return a row: best is the difference of the bests, median that of the differences within pairs."""
    before, after = ([one[place] for one in each] for each in (plain, tuned))
    within = statistics.median(late - early for early, late in zip(before, after, strict=True))
    return Row(what, (min(after) - min(before)) * MS, within * MS, target=target, wrong=wrong)


def run(session: Session) -> Iterator[Table]:
    device = f"uuid:{session.context.info.uuid}"
    count = 5 if session.effort.rounds == 1 else PAIRS
    with tempfile.TemporaryDirectory() as cache:
        first = process("tuned", cache, device)
        process("plain", cache, device)
        pairs = [pair(cache, device, tuned_first=i % 2 == 1) for i in range(count)]
    plain, tuned = zip(*pairs, strict=True)
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
        difference("tuned later than untuned", plain, tuned, 0, TARGET, wrong=measured > 0),
        difference("the same of the main thread's processor", plain, tuned, 1),
    ]
    yield Table(f"First result of a tuned kernel, {session.context.info.name}", "ms", rows)
