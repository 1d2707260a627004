"""Splits large tensors into blocks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np

from ...base.element_types import Array

BLOCK = 1 << 16  # elements of a block; its float64 arrays fit into the CPU cache

Index = tuple[slice, ...]


def blocks(shape: tuple[int, ...], axes: int | None = None, most: int = 0) -> Iterator[Index]:
    """Split a tensor along its first `axes` axes into blocks of about `most` elements (default BLOCK), in memory order."""
    most = most or BLOCK
    axes = len(shape) if axes is None else axes
    inner = [math.prod(shape[k + 1 :]) for k in range(axes)]
    along = next((k for k in range(axes) if inner[k] <= most), axes - 1)
    if along < 0 or math.prod(shape) <= most:
        yield tuple(slice(0, size) for size in shape)
        return
    step = max(1, most // max(inner[along], 1))
    for outer in itertools.product(*(range(size) for size in shape[:along])):
        for start in range(0, shape[along], step):
            here = slice(start, min(start + step, shape[along]))
            yield (*(slice(i, i + 1) for i in outer), here, *(slice(0, size) for size in shape[along + 1 :]))


def cut(index: Index, shape: tuple[int, ...]) -> Index:
    """Return the index into a tensor of that shape that broadcasts to the indexed block."""
    own = index[len(index) - len(shape) :]
    return tuple(slice(None) if size == 1 else one for one, size in zip(own, shape, strict=True))


def by_blocks(shape: tuple[int, ...], make: Callable[[Index], Array | None]) -> Array | None:
    """Concatenate the results of all blocks in float64. None means all zeros, in a block and in the result."""
    joined: Array | None = None
    for index in blocks(shape):
        if (block := make(index)) is not None:
            joined = np.zeros(shape) if joined is None else joined
            joined[index] = block
    return joined
