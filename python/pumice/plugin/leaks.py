"""Detect device memory that a test leaves allocated."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from .._pumice import Context


class LeakError(AssertionError):
    """Raised if a test left device memory allocated."""


class _Counts(NamedTuple):
    buffers: int
    buffer_bytes: int
    images: int
    image_bytes: int


def _counts(context: Context) -> _Counts:
    gc.collect()
    memory = context.memory
    return _Counts(memory.buffers, memory.buffer_bytes, memory.images, memory.image_bytes)


@contextmanager
def watched(context: Context) -> Iterator[None]:
    """Raise LeakError if more buffers or images of the context are alive at the end than at the beginning.

    Garbage is collected first. Memory that the context holds in reserve is not a leak.
    """
    before = _counts(context)
    yield
    after = _counts(context)
    if all(now <= then for now, then in zip(after, before, strict=True)):
        return
    parts = [
        f"{name.replace('_', ' ')}: {then:,} before the test, {now:,} after it"
        for name, now, then in zip(_Counts._fields, after, before, strict=True)
        if now > then
    ]
    raise LeakError(f"device memory is left allocated on {context.info.name}: {'; '.join(parts)}")
