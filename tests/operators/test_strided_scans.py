"""Cumulative sums of tensors whose axes cannot be merged to the number that the kernel supports."""

from __future__ import annotations

import numpy as np
import pytest

import pumice


@pytest.mark.parametrize("axis", [0, 3, 5])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_turned_tensor_of_six_axes_is_scanned(axis: int, reverse: bool, pumice_context: pumice.Context) -> None:
    shape = (2, 3, 4, 3, 2, 3)
    graph = pumice.Graph("scan")
    turned = graph.add("Transpose", graph.input("x", "float32", list(shape)), perm=[5, 4, 3, 2, 1, 0])
    graph.output("y", graph.add("CumSum", turned, np.array(axis, np.int64), reverse=int(reverse)))
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    wanted = x.transpose()
    wanted = np.flip(np.flip(wanted, axis).cumsum(axis), axis) if reverse else wanted.cumsum(axis)
    np.testing.assert_array_equal(graph.compile(pumice_context)({"x": x})["y"], wanted)
