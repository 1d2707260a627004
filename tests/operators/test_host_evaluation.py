"""Values that the host computes at graph build time, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import pumice


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_a_range_is_rounded_as_on_a_device(pumice_context: pumice.Context, dtype: str) -> None:
    """Each product and each sum is rounded to the dtype."""
    kind = np.dtype(dtype)
    first, step = (kind.type(0.1), kind.type(0.3)) if kind.kind == "f" else (np.iinfo(kind).min // 4 * 3, 2**20 + 1)
    count = 1000
    limit = kind.type(first + step * (count - 0.5)) if kind.kind == "f" else first + step * count
    graph = pumice.Graph("range")
    made = graph.add("Range", *(np.array(value, kind) for value in (first, limit, step)))
    graph.output("y", graph.add("Add", made, np.zeros(1, kind)))
    program = graph.compile(pumice_context)
    (given,) = program.call(())
    places = np.arange(count).astype(kind)
    np.testing.assert_array_equal(given, kind.type(first) + places * kind.type(step))
