"""Casts between an input and an output that have no effect inside: all but one are removed."""

from __future__ import annotations

import numpy as np
import pytest

import pumice


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("dtypes", [("float32", "float16", "float32"), ("float16", "float32", "float16")])
@pytest.mark.parametrize("readers", ["none", "of the input", "of the result", "of both"])
def test_casts_behind_each_other_that_change_nothing_leave_one(
    context: pumice.Context, precision: str, dtypes: tuple[str, str, str], readers: str
) -> None:
    """Both casts are between an input and an output, and inside all floats have one type."""
    graph = pumice.Graph("casts")
    x = graph.input("x", dtypes[0], [2, 3])
    numbers = {"float32": 1, "float16": 10}
    between = graph.add("Cast", x, to=numbers[dtypes[1]])
    result = graph.add("Cast", between, to=numbers[dtypes[2]])
    graph.output("y", result)
    if readers in ("of the input", "of both"):
        graph.output("from input", graph.add("Relu", x))
    if readers in ("of the result", "of both"):
        graph.output("from result", graph.add("Relu", result))
    given = np.arange(6).reshape(2, 3).astype(dtypes[0])
    made = graph.compile(context, precision)({"x": given})
    for array in made.values():
        np.testing.assert_array_equal(array, given)
    assert made["y"].dtype == dtypes[2]
