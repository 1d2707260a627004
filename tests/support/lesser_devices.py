"""Contexts restricted to the limits of smaller devices, and cases run on them in garbage-filled memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import pumice
from binding_tables import execute
from described_operators import GUARD, Array, is_packed_bits, laid_out, placed
from pumice import Buffer, TensorDesc

# Minimum limits from Vulkan's table of required limits.
MIN_LIMITS = {
    "maxComputeWorkGroupCount": 65535,
    "maxComputeWorkGroupInvocations": 128,
    "maxComputeWorkGroupSize_0": 128,
    "maxComputeWorkGroupSize_1": 128,
    "maxComputeWorkGroupSize_2": 64,
    "maxComputeSharedMemorySize": 16384,
    "maxPushConstantsSize": 128,
    "maxStorageBufferRange": 2**27,
    "minStorageBufferOffsetAlignment": 256,
}
# Grid limits that nearly every case of the operators' test table exceeds on one or two axes.
SMALL_GRID = {**MIN_LIMITS, "maxComputeWorkGroupCount": 2, "maxComputeWorkGroupCount_2": 65535}
# Grid limits that any kernel family exceeds with little work.
SMALL = {"maxComputeWorkGroupCount": 64}
SHORT_RANGE = 1 << 16  # binding size in bytes of a device with short ranges


@contextmanager
def lesser(context: pumice.Context, limits: dict[str, int], lacking: Sequence[str] = ()) -> Iterator[pumice.Context]:
    """Yield a context on the same device with these limits; limits that the device does not reach stay unchanged."""
    kept = {name: value for name, value in limits.items() if is_stricter(context, name, value)}
    with pumice.Context(f"uuid:{context.info.uuid}", without=list(lacking), limits=kept) as other_context:
        yield other_context


def is_stricter(context: pumice.Context, name: str, value: int) -> bool:
    limit = context.info.limits.get(name, context.info.limits.get(f"{name}_0", 0))
    return value >= limit if name.startswith("min") else value <= limit


def garbage(context: pumice.Context, size: int) -> Buffer:
    """Return bytes that are NaN as floats of any width, and large as integers."""
    return pumice.tensor(np.full(max(size, 4), 0xFF, "uint8"), context).buffer


def results(program: pumice.Program, inputs: Sequence[Array], expected: Sequence[Array]) -> list[Array]:
    """Return the outputs of a program whose scratch and output memory held garbage. Fail if a byte outside an output is written."""
    context, shapes = program.context, [list(array.shape) for array in inputs]
    compiled = program.compiled(shapes)
    descs = [TensorDesc(str(array.dtype), array.shape) for array in expected]
    sources: list[pumice.BufferRange | None] = [
        placed(context, TensorDesc(str(array.dtype), array.shape), 0, array) for array in inputs
    ]
    sources += [None] * (len(compiled.inputs) - len(sources))  # weights, already initialised
    targets = [placed(context, desc, 0) for desc in descs]
    persistent = program.persistent if compiled.binding_properties.persistent_bytes else None
    temporary = garbage(context, compiled.binding_properties.temporary_bytes)
    execute(context, compiled, sources, targets, persistent, temporary)
    return [taken(target, desc, array) for target, desc, array in zip(targets, descs, expected, strict=True)]


def taken(target: pumice.BufferRange, desc: TensorDesc, like: Array) -> Array:
    memory = pumice.Tensor(TensorDesc("uint8", [target.buffer.bytes]), target.buffer).numpy()
    begin, end = target.offset, target.offset + desc.bytes
    assert (memory[:begin] == GUARD).all(), "something was written before the output"
    assert (memory[end:] == GUARD).all(), "something was written past the output"
    if is_packed_bits(desc):
        return pumice.Tensor(desc, target.buffer, 2 * begin).numpy()
    return laid_out(memory, desc, like.dtype, begin).copy()


def folded(program: pumice.Program, inputs: Sequence[Array]) -> dict[str, Any]:
    """Return by kernel whether a dispatch was folded from a larger grid of workgroups."""
    kernels: dict[str, bool] = {}
    for step in program.plan([list(array.shape) for array in inputs]):
        kernels[step["kernel"]] = kernels.get(step["kernel"], False) or step["folded"]
    return kernels
