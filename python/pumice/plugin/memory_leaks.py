"""Detect device memory that a test leaves allocated."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from .._pumice import Context


class LeakError(AssertionError):
    """Raised if a test left device memory allocated."""


class _AllocationCounts(NamedTuple):
    buffers: int
    buffer_bytes: int
    images: int
    image_bytes: int


def _count_allocations(context: Context) -> _AllocationCounts:
    gc.collect()
    memory = context.memory
    return _AllocationCounts(memory.buffers, memory.buffer_bytes, memory.images, memory.image_bytes)


@contextmanager
def check_leaks(context: Context) -> Iterator[None]:
    """Raise LeakError if more buffers or images of the context are alive at the end than at the beginning.

    Garbage is collected before counting. Memory that the context keeps for reuse is not a leak.
    """
    before = _count_allocations(context)
    yield
    after = _count_allocations(context)
    if all(now <= then for now, then in zip(after, before, strict=True)):
        return
    leak_descriptions = [
        f"{name.replace('_', ' ')}: {then:,} before the test, {now:,} after it"
        for name, now, then in zip(_AllocationCounts._fields, after, before, strict=True)
        if now > then
    ]
    raise LeakError(f"device memory is left allocated on {context.info.name}: {'; '.join(leak_descriptions)}")
