"""Gather along axes of size 1: a view if the result has the same elements in the same order, otherwise a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice


def gathered(op: str, x: Any, indices: Any, **attributes: int) -> Any:
    if op == "Gather":
        return np.take(x, indices, attributes["axis"])
    if op == "GatherElements":
        axis = attributes["axis"]
        rest = tuple(slice(0, size) for size in indices.shape)
        places = [*np.indices(indices.shape)]
        places[axis] = indices
        assert len(rest) == x.ndim
        return x[tuple(places)]
    batch = attributes["batch_dims"]
    if batch:
        return np.stack([gathered(op, a, b, batch_dims=batch - 1) for a, b in zip(x, indices, strict=True)])
    return x[tuple(np.moveaxis(indices, -1, 0))]


CASES = [
    ("Gather", (4, 1, 3), (1,), {"axis": 1}, True),
    ("Gather", (4, 1, 3), (), {"axis": 1}, True),
    ("Gather", (4, 1, 3), (2,), {"axis": 1}, False),
    ("Gather", (1, 3), (1, 1), {"axis": -2}, True),
    ("GatherElements", (4, 1), (4, 1), {"axis": 1}, True),
    ("GatherElements", (4, 1), (2, 2), {"axis": 1}, False),
    ("GatherElements", (1, 3), (3, 1), {"axis": 0}, False),
    ("GatherElements", (4, 1), (3, 1), {"axis": 1}, False),
    ("GatherND", (2, 1, 5), (2, 1, 1), {"batch_dims": 1}, True),
    ("GatherND", (2, 1, 5), (2, 3, 1), {"batch_dims": 1}, False),
    ("GatherND", (1, 1, 6), (1, 2), {"batch_dims": 0}, True),
    ("GatherND", (1, 1, 6), (6, 3), {"batch_dims": 0}, False),
]


@pytest.mark.parametrize(("op", "shape", "places", "attributes", "is_view"), CASES)
def test_a_gather_along_one_element(
    op: str,
    shape: tuple[int, ...],
    places: tuple[int, ...],
    attributes: dict[str, int],
    is_view: bool,
    context: pumice.Context,
) -> None:
    """The indices are known only on the device; the producer and the consumer run as separate kernels."""
    graph = pumice.Graph()
    x, indices = graph.input("x", "float32", list(shape)), graph.input("indices", "int64", list(places))
    made = graph.add(op, graph.add("Softmax", x, axis=-1), indices, **attributes)
    graph.output("y", graph.add("CumSum", made, np.array(0, "int64")))
    given = np.random.default_rng(1).normal(size=shape).astype("float32")
    zeros = np.zeros(places, "int64")
    if op == "GatherND" and not is_view and zeros.shape[-1] == 3:
        zeros[:, 2] = np.arange(len(zeros))[::-1]
    program = graph.compile(context)
    exponentials = np.exp(given - given.max(-1, keepdims=True))
    softmax = exponentials / exponentials.sum(-1, keepdims=True)
    expected = np.cumsum(gathered(op, softmax, zeros, **attributes), 0)
    np.testing.assert_allclose(program({"x": given, "indices": zeros})["y"], expected, rtol=1e-5, atol=1e-6)
    (row,) = [row for row in program.report() if row["op"] == op]
    assert ("view" in (row["kernel"], row["note"])) == is_view, row
