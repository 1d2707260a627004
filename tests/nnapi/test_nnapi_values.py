"""Quantized values of a graph: the parameters that inputs and constants carry."""

from __future__ import annotations

import numpy as np
import pytest

import pumice


def test_a_quantized_input_carries_its_scale_and_zero_point() -> None:
    graph = pumice.Graph()
    x = graph.input("x", "uint8", [2, 3], scale=0.5, zero_point=128)
    assert (x.scale, x.zero_point, x.channel_axis) == (0.5, 128, None)
    assert graph.input("y", "int8", None, scale=0.25).zero_point == 0
    plain = graph.input("z", "uint8", [2])
    assert (plain.scale, plain.zero_point) == (None, None)


def test_a_constant_carries_scales_of_channels() -> None:
    graph = pumice.Graph()
    w = graph.constant(np.zeros((3, 2), "int8"), scale=[1, 2, 4], channel_axis=-2)
    assert (w.scale, w.zero_point, w.channel_axis) == ((1, 2, 4), 0, 0)
    assert graph.constant(np.zeros(2, "int32"), scale=0.125).scale == 0.125


@pytest.mark.parametrize(
    ("dtype", "given", "text"),
    [
        ("float32", {"scale": 0.5}, "elements of float32; given scale 0.5"),
        ("bool", {"scale": 0.5}, "elements of bool"),
        ("uint8", {"zero_point": 3}, "without a scale"),
        ("uint8", {"scale": 0.5, "zero_point": -1}, "no uint8; given scale 0.5 and zero point -1"),
        ("uint8", {"scale": 0.5, "zero_point": 256}, "no uint8; given .* 256"),
        ("int8", {"scale": 0.5, "zero_point": 128}, "no int8; given .* 128"),
        ("uint8", {"scale": 0.0}, "greater than 0"),
        ("uint8", {"scale": [1, 2], "channel_axis": 0}, "each of the 3 channels"),
        ("uint8", {"scale": [1, 2]}, "expected one where no channel_axis is given; given 2"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(dtype: str, given: dict[str, object], text: str) -> None:
    graph = pumice.Graph()
    with pytest.raises(pumice.GraphError, match=text):
        graph.input("x", dtype, [3, 2], **given)
    with pytest.raises(pumice.GraphError, match=text):
        graph.constant(np.zeros((3, 2), dtype), **given)
    assert graph.input("x", dtype, [3, 2]).scale is None
