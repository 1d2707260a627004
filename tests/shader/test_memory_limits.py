"""Processes with little address space, and programs called with more shapes than they cache. Each runs in a subprocess."""

from __future__ import annotations

import sys

import pytest

from process import output_of

needs_limits = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

COMPILES = """
import resource
import pumice

def used():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmSize"))

def compiled(text, room):
    resource.setrlimit(resource.RLIMIT_AS, (used() + room * 2**20, resource.RLIM_INFINITY))
    try:
        pumice.compile(text)
        return "compiled"
    except pumice.OutOfMemoryError as error:
        assert isinstance(error, MemoryError) and "shader compiler" in str(error), error
        return "out of memory"
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

def text(depth, number):
    value = "(" * depth + "float(i)" + " + 1.0)" * depth
    return f'''layout(binding = 0) buffer X {{ float x[]; }};
    void main() {{ uint i = gl_GlobalInvocationID.x; x[i] = {value} * {number}.0; }}'''
"""


def lines(program: str) -> list[str]:
    return output_of("-c", COMPILES + program, PUMICE_NO_CACHE="1", PUMICE_VALIDATION="0").splitlines()


@needs_limits
def test_a_compiler_without_memory_raises_and_compiles_later() -> None:
    """Available memory grows from nothing, past too little for the library and its stack, to enough."""
    made = lines(
        "for room in (0, 4, 16, 24, 32): print(compiled(text(3, room), room))\nprint(compiled(text(3, 99), 100))\n"
    )
    assert made == ["out of memory"] * 5 + ["compiled"]


@needs_limits
def test_only_deep_sources_ask_for_a_large_stack() -> None:
    """The stack was 256 MiB for every source."""
    begin = "print(compiled(text(1, 1), 400))\n"
    flat = lines(begin + "for depth in (1, 10, 40): print(compiled(text(depth, depth), 64))\n")
    assert flat == ["compiled"] * 4
    deep = lines(begin + "print(compiled(text(4000, 2), 250))\nprint(compiled(text(4000, 3), 600))\n")
    assert deep == ["compiled", "out of memory", "compiled"]


SHAPES = """
import ctypes
import random

import numpy as np
import pumice

def resident():
    ctypes.CDLL(None).malloc_trim(0)
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

graph = pumice.Graph()
y = graph.input("x", "float32", [None, None, None])
for _ in range(4):
    y = graph.add("Add", graph.add("Softmax", y), graph.add("Transpose", y, perm=[0, 1, 2]))
graph.output("y", y)
program = graph.compile(pumice.Context())
shapes = [(a, b, 3 + (a + b) % 5) for a in range(1, 51) for b in range(1, 51)]
random.Random(0).shuffle(shapes)
kept = [resident()]
for k, shape in enumerate(shapes):
    program({"x": np.ones(shape, "float32")})
    if k % 125 == 124:
        kept.append(resident())
half = [(b - a) / 125 for a, b in zip(kept, kept[1:])][len(kept) // 2:]
print(sorted(half)[len(half) // 2])
"""


@needs_limits
def test_shapes_that_a_program_has_forgotten_keep_no_memory() -> None:
    """A program caches its last 16 shape bindings; it used to leak 7 kB for each of the others.

    The shapes are shuffled, since large shapes at the end would allocate memory of their own. The cost of a shape is the median over the
    second half of the run, because drivers allocate memory for code and caches in steps of megabytes.
    """
    kilobytes = float(output_of("-c", SHAPES, PUMICE_VALIDATION="0"))
    assert kilobytes < 1
