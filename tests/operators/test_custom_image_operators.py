"""Custom image operators: channels in groups of 8, and window sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from described_operators import Operand, executed

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng(3)


def grouped(array: Array) -> Operand:
    """Return (N, C, H, W) as [N, groups, 8, H, W], with the 8 channels of a pixel adjacent in memory."""
    n, c, h, w = array.shape
    strides = [c * h * w, 8 * h * w, 1, 8 * w, 8]
    return Operand(array.reshape(n, c // 8, 8, h, w), strides)


def whole(*shape: int, dtype: str) -> Array:
    return RANDOM.integers(-3, 4, shape).astype(dtype)


def convolved(x: Array, w: Array, b: Array, pads: tuple[int, int, int, int], step: int) -> Array:
    top, left, bottom, right = pads
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))[:, :, ::step, ::step]
    sums = np.einsum("nchwyx,ocyx->nohw", windows, w.astype(np.float64), optimize=True)
    return (sums + b[:, None, None]).astype(x.dtype)


@pytest.mark.parametrize("lacking", [(), ("subgroupShuffle",)], ids=["lanes", "tiled"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("c", "m"), [(16, 24), (72, 8), (3, 40), (8, 20), (5, 5)])
def test_convolutions_of_grouped_channels(
    context: pumice.Context, c: int, m: int, dtype: str, lacking: tuple[str, ...]
) -> None:
    x, w, b = whole(2, c, 7, 9, dtype=dtype), whole(m, c, 3, 2, dtype=dtype), whole(m, dtype=dtype)
    pads, step = (1, 0, 2, 1), 2
    expected = convolved(x, w, b, pads, step)
    source = grouped(x) if c % 8 == 0 else Operand(x)
    target = grouped(expected) if m % 8 == 0 else Operand(expected)
    with pumice.Context(f"uuid:{context.info.uuid}", without=list(lacking)) as other:
        (y,) = executed(
            other,
            "pumice::GroupedConv",
            [source, Operand(w), Operand(b)],
            [target],
            pads=list(pads),
            strides=[step, step],
        )
    np.testing.assert_array_equal(y.reshape(expected.shape), expected)


@pytest.mark.parametrize(
    ("shape", "weights", "message"),
    [
        ((1, 2, 4, 5, 5), (8, 8, 3, 3), "groups of 8 channels"),
        ((1, 2, 8, 5, 5), (8, 8, 3, 3), "16 channels and a weight of 8"),
        ((1, 2, 8, 5, 5), (8, 16, 7, 7), "window of at most"),
    ],
)
def test_wrong_shapes_of_grouped_convolutions(shape: tuple[int, ...], weights: tuple[int, ...], message: str) -> None:
    described = [pumice.TensorDesc("float32", shape), pumice.TensorDesc("float32", weights)]
    output = pumice.TensorDesc("float32", (1, 1, 8, 3, 3))
    with pytest.raises(pumice.GraphError, match=message):
        pumice.Operator("pumice::GroupedConv", described, [output])


def test_channels_of_a_group_lie_together(context: pumice.Context) -> None:
    x, w = pumice.TensorDesc("float32", (1, 2, 8, 5, 5)), pumice.TensorDesc("float32", (8, 16, 3, 3))
    operator = pumice.Operator("pumice::GroupedConv", [x, w], [pumice.TensorDesc("float32", (1, 1, 8, 3, 3))])
    with pytest.raises(pumice.UnsupportedError, match="are not contiguous"):
        operator.compile(context)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("c", [3, 8])
def test_sums_over_windows(context: pumice.Context, c: int, dtype: str) -> None:
    x = whole(2, c, 9, 7, dtype=dtype)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 0), (2, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 4), (2, 3))[:, :, ::2, ::1]
    expected = windows.sum((4, 5))
    channels_last = Operand(x, [c * 63, 1, c * 7, c])
    (y,) = executed(
        context,
        "pumice::SumPool",
        [channels_last],
        [Operand(expected)],
        kernel_shape=[3, 4],
        strides=[2, 1],
        pads=[1, 2, 0, 1],
    )
    np.testing.assert_array_equal(y, expected)
