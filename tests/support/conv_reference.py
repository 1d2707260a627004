"""Convolutions in NumPy, tap by tap, for any number of spatial axes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def _sides(axes: int, strides: Sequence[int], dilations: Sequence[int], pads: Sequence[int]) -> tuple[Any, Any, Any]:
    return list(strides) or [1] * axes, list(dilations) or [1] * axes, list(pads) or [0] * 2 * axes


def _cut(
    tap: Sequence[int], sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[slice, ...]:
    """Return the slices of the `sizes` elements that a kernel tap reads."""
    sides = zip(tap, sizes, strides, dilations, strict=True)
    return tuple(slice(at * apart, at * apart + (size - 1) * step + 1, step) for at, size, step, apart in sides)


def convolved(
    x: Array,
    w: Array,
    group: int = 1,
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    pads: Sequence[int] = (),
) -> Array:
    """Return Conv of x [N, C, ...] with w [M, C / group, ...]."""
    axes = x.ndim - 2
    strides, dilations, pads = _sides(axes, strides, dilations, pads)
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:axes], pads[axes:], strict=True)])
    sizes = [(padded.shape[2 + i] - dilations[i] * (w.shape[2 + i] - 1) - 1) // strides[i] + 1 for i in range(axes)]
    out_channels, per_group = w.shape[0] // group, w.shape[1]
    y = np.zeros((x.shape[0], w.shape[0], *sizes), x.dtype)
    for tap in itertools.product(*map(range, w.shape[2:])):
        cut = _cut(tap, sizes, strides, dilations)
        for g in range(group):
            taken = padded[(slice(None), slice(g * per_group, (g + 1) * per_group), *cut)]
            weights = w[(slice(g * out_channels, (g + 1) * out_channels), slice(None), *tap)]
            y[:, g * out_channels : (g + 1) * out_channels] += np.einsum("nc...,mc->nm...", taken, weights)
    return y


def transposed_convolved(
    x: Array,
    w: Array,
    group: int = 1,
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    pads: Sequence[int] = (),
) -> Array:
    """Return ConvTranspose of x [N, C, ...] with w [C, M / group, ...]."""
    axes = x.ndim - 2
    strides, dilations, pads = _sides(axes, strides, dilations, pads)
    sizes = [(x.shape[2 + i] - 1) * strides[i] + dilations[i] * (w.shape[2 + i] - 1) + 1 for i in range(axes)]
    per_group, out_channels = w.shape[0] // group, w.shape[1]
    y = np.zeros((x.shape[0], out_channels * group, *sizes), x.dtype)
    for tap in itertools.product(*map(range, w.shape[2:])):
        cut = _cut(tap, x.shape[2:], strides, dilations)
        for g in range(group):
            taken = x[:, g * per_group : (g + 1) * per_group]
            weights = w[(slice(g * per_group, (g + 1) * per_group), slice(None), *tap)]
            y[(slice(None), slice(g * out_channels, (g + 1) * out_channels), *cut)] += np.einsum(
                "nc...,cm->nm...", taken, weights
            )
    ends = [y.shape[2 + i] - pads[axes + i] for i in range(axes)]
    return y[(slice(None), slice(None), *(slice(pads[i], ends[i]) for i in range(axes)))]
