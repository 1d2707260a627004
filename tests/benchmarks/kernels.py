"""Kernels in the GLSL extension: the cost of compiling and calling one, and its bandwidth relative to a copy."""

from __future__ import annotations

import functools
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

import pumice

from . import on_device
from .rows import Row, Table, timed
from .session import Session
from .timing import Sampler, Times, measure, sampler

MS, US = 1e3, 1e6
ELEMENTS = 1024
MANY = 1 << 28  # bytes of an array in the bandwidth table
MANY_ON_SOFTWARE = 1 << 26

_LINES = "\n".join(f"  v = v * 0.5 + LOAD(x, (i + {k}u) % n); if (v.x > {k}.0) v.y += v.z;" for k in range(40))
SIXTY = f"""
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X {{ VEC4 x[]; }};
layout(binding = 1) writeonly buffer Y {{ VEC4 y[]; }};
layout(binding = 2) buffer Z {{ SCALAR z[]; }};
layout(push_constant) uniform parameter {{
  uint n;
}} p;
void main() {{
  const uint i = gl_GlobalInvocationID.x;
  const uint n = p.n;
  if (i >= n)
    return;
  vec4 v = vec4(0.0);
{_LINES}
  STORE4
  STORE1
}}
"""
PLAIN = {
    "VEC4": "vec4",
    "SCALAR": "float",
    "STORE4": "y[i] = v;",
    "STORE1": "z[i] = v.x;",
    "LOAD(x, ": "(x[",
    " % n)": " % n])",
}
EXTENDED = {
    "VEC4": "sfpvec4",
    "SCALAR": "sfp",
    "STORE4": "buffer_st4(y, i, v);",
    "STORE1": "buffer_st1(z, i, v.x);",
    "LOAD(": "buffer_ld4(",
}

AXPY = """
layout(binding = 0) readonly buffer X { sfp x[]; };
layout(binding = 1) readonly buffer Y { sfp y[]; };
layout(binding = 2) writeonly buffer Z { sfp z[]; };
layout(push_constant) uniform parameter { float a; } p;
void main() {
  uint i = gl_GlobalInvocationID.x;
  buffer_st1(z, i, afp(p.a) * buffer_ld1(x, i) + buffer_ld1(y, i));
}
"""

COPY = """
layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer X { vec4 x[]; };
layout(binding = 1) writeonly buffer Y { vec4 y[]; };
layout(push_constant) uniform parameter { uint count; } p;
void main() {
  uint i = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * 256u + gl_LocalInvocationID.x;
  if (i < p.count) y[i] = x[i];
}
"""
FUSED = """
layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer X { sfpvec4 x[]; };
layout(binding = 1) writeonly buffer Y { sfpvec4 y[]; };
layout(push_constant) uniform parameter { uint count; float scale; float shift; } p;
void main() {
  uint first = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * 512u + gl_LocalInvocationID.x;
  for (uint k = 0u; k < 2u; ++k) {
    uint i = first + 256u * k;
    if (i >= p.count) return;
    afpvec4 v = buffer_ld4(x, i) * afp(p.scale) + afp(p.shift);
    buffer_st4(y, i, v / (afp(1) + abs(v)));
  }
}
"""


def spelled(words: dict[str, str]) -> str:
    return functools.reduce(lambda text, pair: text.replace(*pair), words.items(), SIXTY)


def compiles(source: str, options: pumice.ShaderOptions) -> Sampler:
    """Return a sampler of compiles; each compiles a new source to miss all caches."""
    counter = itertools.count()

    def compile_once() -> None:
        pumice.compile(f"{source}// {next(counter)} {time.time_ns()}\n", options)

    return sampler(compile_once)


def compile_table(session: Session) -> Table:
    folder = os.environ.get("PUMICE_CACHE_DIR")
    with tempfile.TemporaryDirectory() as empty:
        os.environ["PUMICE_CACHE_DIR"] = empty
        try:
            times = measure(
                {
                    "plain GLSL": compiles(spelled(PLAIN), pumice.ShaderOptions()),
                    "the extension, fp16_packed": compiles(
                        spelled(EXTENDED), pumice.ShaderOptions(storage="fp16_packed")
                    ),
                },
                session.effort,
                100,
            )
        finally:
            os.environ.pop("PUMICE_CACHE_DIR")
            if folder is not None:
                os.environ["PUMICE_CACHE_DIR"] = folder
    plain, extended = times.values()
    rows = [timed(label, one, MS) for label, one in times.items()]
    rows.append(Row("what the extension adds", (extended.best - plain.best) * MS, target=3.0, judged="best"))
    return Table("Uncached compile of a kernel of 60 lines", "ms", rows)


def call_samplers(context: pumice.Context) -> dict[str, Sampler]:
    kernel = pumice.Kernel(AXPY, context=context, name="axpy")
    x = np.ones(ELEMENTS, "float32")
    z = np.empty_like(x)
    seen = {name: pumice.tensor(x, context) for name in "xyz"}
    fresh = ({name: pumice.empty(ELEMENTS, "float32", context) for name in "xyz"} for _ in itertools.count())
    waiting: list[dict[str, pumice.Tensor]] = []

    def with_new(runs: int) -> list[float]:
        waiting.extend(itertools.islice(fresh, runs))
        seconds = []
        for tensors in waiting:
            begin = time.perf_counter()
            kernel(**tensors, a=2.0, threads=ELEMENTS)
            seconds.append(time.perf_counter() - begin)
        waiting.clear()
        return seconds

    commands = pumice.CommandList(context)
    commands.dispatch(kernel.bind(**seen, a=2.0, threads=ELEMENTS))
    commands.commit()
    kernel(x=x, y=x, z=z, a=2.0, threads=ELEMENTS)
    assert (z == 3.0).all()
    return {
        "submit and wait in C++": commands.time,
        "tensors seen before": sampler(partial(kernel, **seen, a=2.0, threads=ELEMENTS)),
        "new tensors": with_new,
        "NumPy arrays": sampler(partial(kernel, x=x, y=x, z=z, a=2.0, threads=ELEMENTS)),
    }


# A dispatch and its wait, medians in microseconds, y = x + 1 on 1,024 floats: measured on 2026-11-21, not in this run.
ON_RECORD = {
    "slangpy 0.43.1": {"H200": 51.0, "llvmpipe": 68.0},
    "vkdispatch 0.1.0": {"H200": 197.0, "llvmpipe": 355.0},
}


def on_record(device: str) -> Iterator[Row]:
    for engine, figures in ON_RECORD.items():
        for part, median in figures.items():
            if part in device:
                yield Row(engine, median=median, note="on record, not of this run")


def call_table(session: Session) -> Table:
    times = measure(call_samplers(session.context), session.effort, 1000)
    own = times["submit and wait in C++"]
    rows = [timed(label, one, US) for label, one in times.items()]
    targets = {"tensors seen before": 15.0, "new tensors": 25.0}
    for label, one in list(times.items())[1:]:
        best, median = (one.best - own.best) * US, (one.median - own.median) * US
        rows.append(Row(f"{label}, above submit and wait", best, median, target=targets.get(label)))
    rows += on_record(session.context.info.name)
    return Table(f"Call of a compiled kernel with four arguments, {session.context.info.name}", "us", rows)


def kernel_sampler(kernel: pumice.Kernel, groups: tuple[int, int], **arguments: object) -> Sampler:
    """Return a sampler of device seconds, excluding the host."""
    commands = pumice.CommandList(arguments["x"].context)  # type: ignore[attr-defined]
    commands.dispatch(kernel.bind(**arguments, groups=groups))
    return on_device.sampler(commands)


def grid(quads: int, each: int) -> tuple[int, int]:
    groups = -(-quads // each)
    rows = -(-groups // 65535)
    return -(-groups // rows), rows


def copy_sampler(context: pumice.Context, size: int) -> Sampler:
    """Return a sampler of a `size`-byte copy by a kernel, the device's limit."""
    source, target = (pumice.empty(size // 4, "float32", context) for _ in range(2))
    copy = pumice.Kernel(COPY, context=context, name="copy")
    return kernel_sampler(copy, grid(size // 16, 256), x=source, y=target, count=size // 16)


def bandwidth_samplers(context: pumice.Context, size: int) -> dict[str, Sampler]:
    samplers: dict[str, Sampler] = {"copy, vec4": copy_sampler(context, size)}
    fused = pumice.Kernel(FUSED, context=context, name="fused")
    for dtype in ("float32", "float16"):
        quads = size // (4 * np.dtype(dtype).itemsize)
        x, y = (pumice.empty(4 * quads, dtype, context) for _ in range(2))
        samplers[f"x / (1 + |x|) of a x + b, {dtype}"] = kernel_sampler(
            fused, grid(quads, 512), x=x, y=y, count=quads, scale=0.5, shift=0.25
        )
    return samplers


def bandwidth_table(session: Session) -> Table:
    size = MANY_ON_SOFTWARE if session.software else MANY
    times = measure(bandwidth_samplers(session.context, size), session.effort, 50)
    copy = next(iter(times.values()))

    def row(label: str, one: Times) -> Row:
        made = timed(label, one, US)
        made.note = f"{2 * size / one.median / 1e9:,.0f} GB/s, {copy.median / one.median:.0%} of the copy"
        if session.h200 and one is not copy:
            made.target = copy.median * US / 0.9
        return made

    rows = [row(label, one) for label, one in times.items()]
    return Table(f"Elementwise over {size >> 20} MiB in and as much out, {session.context.info.name}", "us", rows)


TABLES: tuple[Callable[[Session], Table], ...] = (compile_table, call_table, bandwidth_table)


def run(session: Session) -> Iterator[Table]:
    for table in TABLES:
        yield table(session)
