"""Minimum times of a device, independent of the engine: nearly empty dispatches, read-only kernels, products of zeros."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import pumice

from . import gemm_variants
from .launch import add_one, list_of
from .on_device import sampler
from .rows import Row, Table, timed
from .session import Session
from .timing import Sampler, measure

US = 1e6
MANY = 100
# Bytes of a matrix, and copies used in turn: more than a cache holds.
MATRICES = ((32 << 20, 16), (64 << 20, 8))
ON_SOFTWARE = ((16 << 20, 2),)
# Invocations per workgroup, loads of each in flight, and workgroups.
WAYS = ((256, 4, 1024), (512, 4, 256), (512, 8, 512), (1024, 4, 256))

# Each workgroup reads its share of the matrix. It stores nothing unless the sum has a value that never occurs.
ONLY_READS = """
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = INVOCATIONS) in;
layout(binding = 0) readonly buffer W { uvec4 w[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
void main() {
  const uint share = VECTORS / gl_NumWorkGroups.x, begin = gl_WorkGroupID.x * share;
  uvec4 all = uvec4(0);
  for (uint at = 0u; at < share; at += INVOCATIONS * AT_ONCE) {
    uvec4 held[AT_ONCE];
    [[unroll]] for (uint i = 0u; i < AT_ONCE; ++i) held[i] = w[begin + at + i * INVOCATIONS + gl_LocalInvocationIndex];
    [[unroll]] for (uint i = 0u; i < AT_ONCE; ++i) all ^= held[i];
  }
  if ((all.x ^ all.y ^ all.z ^ all.w) == 0x9e3779b9u) y[gl_WorkGroupID.x] = all.x;
  if (gl_LocalInvocationIndex == 0u) y[gl_WorkGroupID.x] = gl_WorkGroupID.x;
}
"""


def apart(context: pumice.Context) -> pumice.CommandList:
    """Return a list of independent dispatches."""
    kernel, x = add_one(context), pumice.tensor(np.zeros(1024, "float32"), context)
    commands = pumice.CommandList(context)
    for _ in range(MANY):
        commands.dispatch(kernel.bind(x=x, y=pumice.empty([1024], "float32", context), groups=16))
    commands.commit()
    return commands


def dispatches(session: Session) -> Table:
    lists = {
        "a list of one dispatch": list_of(1, session.context),
        f"a list of {MANY}, each of which waits": list_of(MANY, session.context),
        f"a list of {MANY}, none of which waits": apart(session.context),
    }
    times = measure({name: one.time for name, one in lists.items()}, session.effort, 1000)
    rows = [timed(f"{name}: submit and wait", measured, US) for name, measured in times.items()]
    return Table(f"Dispatches of 16 workgroups, {session.context.info.name}", "us", rows)


def reading(
    context: pumice.Context, matrices: list[pumice.Tensor], way: tuple[int, int, int], waits: bool
) -> pumice.CommandList:
    invocations, at_once, groups = way
    macros = {"INVOCATIONS": f"{invocations}u", "AT_ONCE": f"{at_once}u", "VECTORS": f"{matrices[0].nbytes // 16}u"}
    kernel = pumice.Kernel(ONLY_READS, context, "only_reads", macros)
    results = [pumice.empty([groups], "uint32", context) for _ in (matrices[:1] if waits else matrices)]
    commands = pumice.CommandList(context)
    for i, matrix in enumerate(matrices):
        commands.dispatch(kernel.bind(w=matrix, y=results[i % len(results)], groups=groups))
    return commands


def bytes_read(session: Session) -> Iterator[Row]:
    """Measure reading matrices from memory; the best of several configurations."""
    for size, copies in ON_SOFTWARE if session.software else MATRICES:
        numbers = np.random.default_rng(0).integers(0, 1 << 32, size // 4, "uint32")
        matrices = [pumice.tensor(np.roll(numbers, i), session.context) for i in range(copies)]
        for waits in (True, False):
            samplers: dict[str, Sampler] = {}
            for way in WAYS:
                if size // 16 % (way[0] * way[1] * way[2]) == 0:
                    samplers[str(way)] = sampler(reading(session.context, matrices, way, waits), copies)
            best = min(measure(samplers, session.effort, 20).values(), key=lambda times: times.best)
            row = timed(f"{size >> 20} MB, each {'waits' if waits else 'by itself'}", best, US)
            row.note = f"{size / best.best * 1e-12:.3g} TB/s"
            yield row


def products(session: Session) -> Iterator[Row]:
    """Measure products of zeros and of random numbers, whose higher power may lower the clocks."""
    size = 64 if session.software else 4096
    dtype = "float32" if session.software else "float16"
    for what in ("random numbers", "zeros"):
        random = np.random.default_rng(0).standard_normal((2, size, size))
        numbers = (np.zeros_like(random) if what == "zeros" else random).astype(dtype)
        graph = pumice.Graph(what)
        x = graph.input("x", dtype, [size, size])
        graph.output("y", graph.add("MatMul", x, numbers[1]))
        program = graph.compile(session.context, "fp32" if session.software else "fp16")
        one, _ = gemm_variants.sampled(program, [numbers[0]])
        times = measure({what: one}, session.effort, 20)[what]
        row = timed(f"product of {size}, {what}", times, US)
        row.note = f"{2e-12 * size**3 / times.median:,.4g} TFLOP/s"
        yield row


def run(session: Session) -> Iterator[Table]:
    yield dispatches(session)
    yield Table("Kernels that only read, of matrices from memory", "us", list(bytes_read(session)))
    yield Table("Products of zeros and of numbers", "us", list(products(session)))
