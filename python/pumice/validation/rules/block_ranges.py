"""Splits large tensors into blocks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np

from ...base.element_types import Array, Index

BLOCK_ELEMENTS = 1 << 16  # elements per block; a float64 block fits into the CPU cache


def iter_blocks(shape: tuple[int, ...], axes: int | None = None, max_elements: int = 0) -> Iterator[Index]:
    """Split a tensor along its first `axes` axes into blocks of about `max_elements` elements (default BLOCK_ELEMENTS), in memory order."""
    max_elements = max_elements or BLOCK_ELEMENTS
    axes = len(shape) if axes is None else axes
    inner = [math.prod(shape[k + 1 :]) for k in range(axes)]
    along = next((k for k in range(axes) if inner[k] <= max_elements), axes - 1)
    if along < 0 or math.prod(shape) <= max_elements:
        yield tuple(slice(0, size) for size in shape)
        return
    step = max(1, max_elements // max(inner[along], 1))
    for outer in itertools.product(*(range(size) for size in shape[:along])):
        for start in range(0, shape[along], step):
            axis_slice = slice(start, min(start + step, shape[along]))
            yield (*(slice(i, i + 1) for i in outer), axis_slice, *(slice(0, size) for size in shape[along + 1 :]))


def broadcast_index(index: Index, shape: tuple[int, ...]) -> Index:
    """Return which elements of a tensor of `shape` broadcast to the block at `index`, as an index."""
    last_slices = index[len(index) - len(shape) :]
    return tuple(slice(None) if size == 1 else axis_slice for axis_slice, size in zip(last_slices, shape, strict=True))


def compute_in_blocks(shape: tuple[int, ...], make: Callable[[Index], Array | None]) -> Array | None:
    """Evaluate `make` for every block and join the results into a float64 array; None means all zeros."""
    result: Array | None = None
    for index in iter_blocks(shape):
        if (block := make(index)) is not None:
            result = np.zeros(shape) if result is None else result
            result[index] = block
    return result
