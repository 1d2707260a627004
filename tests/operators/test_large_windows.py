"""Pools with a window far larger than the input, as some exporters write global pooling."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from pumice.testing import assert_close

Array = npt.NDArray[Any]


def pooled(context: pumice.Context, op: str, x: Array, outputs: int = 1, **attributes: Any) -> list[Array]:
    graph = pumice.Graph()
    made = graph.add(op, graph.input("x", str(x.dtype), list(x.shape)), outputs=outputs, **attributes)
    for k, value in enumerate(made if isinstance(made, tuple) else (made,)):
        graph.output(f"y{k}", value)
    return list(graph.compile(context)({"x": x}).values())


def image(*shape: int) -> Array:
    return np.random.default_rng(7).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("size", [(7, 7), (5, 9), (1, 1), (300, 301)])
@pytest.mark.parametrize("channels", [3, 8])
def test_a_window_of_640_by_640_is_clipped_to_its_input(
    size: tuple[int, int], channels: int, context: pumice.Context
) -> None:
    x, whole = image(2, channels, *size), {"kernel_shape": [640, 640], "strides": [640, 640], "ceil_mode": 1}
    axes = (2, 3)
    assert_close(pooled(context, "AveragePool", x, **whole)[0], x.mean(axes, keepdims=True), rtol=1e-4, atol=1e-5)
    counted = pooled(context, "AveragePool", x, count_include_pad=1, **whole)[0]
    assert_close(counted, x.mean(axes, keepdims=True), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(pooled(context, "MaxPool", x, **whole)[0], x.max(axes, keepdims=True))


def test_the_pools_of_three_axes_of_powers_and_of_indices_are_clipped_too(context: pumice.Context) -> None:
    x, whole = image(2, 3, 5, 6, 7), {"kernel_shape": [400] * 3, "strides": [400] * 3, "ceil_mode": 1}
    axes = (2, 3, 4)
    assert_close(pooled(context, "AveragePool", x, **whole)[0], x.mean(axes, keepdims=True), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(pooled(context, "MaxPool", x, **whole)[0], x.max(axes, keepdims=True))
    powers = pooled(context, "LpPool", x, p=2, **whole)[0]
    assert_close(powers, np.sqrt((x**2).sum(axes, keepdims=True)), rtol=1e-4, atol=1e-5)
    flat, large = image(2, 3, 6, 7), {"kernel_shape": [500, 600], "strides": [500, 600], "ceil_mode": 1}
    values, places = pooled(context, "MaxPool", flat, outputs=2, **large)
    np.testing.assert_array_equal(values, flat.max((2, 3), keepdims=True))
    np.testing.assert_array_equal(flat.ravel()[places], values)


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool", "LpPool"])
def test_padding_counts_as_it_does_for_small_windows(op: str, context: pumice.Context) -> None:
    """A window of 99 over 5 elements and their padding, against sums over the padded input."""
    x, kernel, pads = image(2, 3, 5, 6), (99, 97), [50, 51, 52, 53]
    padded = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    ones = np.pad(np.ones_like(x), ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    lowest = np.where(ones > 0, padded, -np.inf)

    def windows(values: Array) -> Array:
        return np.lib.stride_tricks.sliding_window_view(values, kernel, (2, 3))

    attributes: dict[str, Any] = {"kernel_shape": list(kernel), "pads": pads}
    if op == "MaxPool":
        np.testing.assert_array_equal(pooled(context, op, x, **attributes)[0], windows(lowest).max((-2, -1)))
    elif op == "LpPool":
        expected = np.sqrt((windows(padded) ** 2).sum((-2, -1)))
        assert_close(pooled(context, op, x, **attributes)[0], expected, rtol=1e-4, atol=1e-5)
    else:
        sums = windows(padded).sum((-2, -1))
        inside = sums / windows(ones).sum((-2, -1))
        assert_close(pooled(context, op, x, **attributes)[0], inside, rtol=1e-4, atol=1e-5)
        counted = pooled(context, op, x, count_include_pad=1, **attributes)[0]
        assert_close(counted, sums / (kernel[0] * kernel[1]), rtol=1e-4, atol=1e-5)
