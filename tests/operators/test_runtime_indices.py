"""Indices passed to a call as an array: the host checks them, and the error names input, index and range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import pumice
from index_readers import IDS, READERS, Reader, floats, indices_of, told

NUMBERS = {"int32": TensorProto.INT32, "int64": TensorProto.INT64}


def handed_over(graph: Any, reader: Reader, between: str) -> Any:
    """Return the indices as an input of the graph, directly or through a node that preserves their values."""
    if between == "Reshape":
        given = graph.input("indices", reader.dtype, [1, *reader.shape])
        return graph.add("Reshape", given, np.array(reader.shape, np.int64))
    given = graph.input("indices", given_dtype(reader, between), list(reader.shape))
    return given if between == "nothing" else graph.add("Cast", given, to=NUMBERS[reader.dtype])


def given_dtype(reader: Reader, between: str) -> str:
    return "int32" if between == "Cast" else reader.dtype


@pytest.mark.parametrize("between", ["nothing", "Cast", "Reshape"])
@pytest.mark.parametrize("reader", READERS, ids=IDS)
def test_an_index_out_of_range_is_reported(context: pumice.Context, reader: Reader, between: str) -> None:
    graph = pumice.Graph()
    graph.output("y", reader.add(graph, handed_over(graph, reader, between), True))
    inputs = floats(graph)
    with graph.compile(context) as program:
        assert not program.checks_indices
        for seed in range(4):
            indices, places = indices_of(reader._replace(dtype=given_dtype(reader, between)), seed, seed % 4)
            given = {**inputs, "indices": indices[None] if between == "Reshape" else indices}
            if not places:
                program(given)
                continue
            with pytest.raises(pumice.IndexRangeError, match=told(reader, indices, places[0])) as caught:
                program(given)
            assert caught.value.count == len(places)
            assert between != "nothing" or caught.value.value == "indices"


@pytest.mark.parametrize("count", [1, 5000, 70_000])
def test_many_indices_are_looked_at(context: pumice.Context, count: int) -> None:
    graph = pumice.Graph()
    given = graph.input("ids", "int32", [None])
    x = graph.input("x", "float32", [None, 2])
    graph.output("y", graph.add("Gather", x, graph.add("Cast", given, to=NUMBERS["int64"])))
    ids, table = np.full(count, -3, "int32"), np.ones((3, 2), "float32")
    with graph.compile(context) as program:
        assert program({"ids": ids, "x": table})["y"].shape == (count, 2)
        ids[-1] = 3
        with pytest.raises(
            pumice.IndexRangeError, match=rf"index 3 at \[{count - 1}\]; expected -3 to 2; 1 of {count}"
        ):
            program({"ids": ids, "x": table})


def test_an_index_of_one_hot_beyond_its_depth_is_nowhere(context: pumice.Context) -> None:
    """As in ONNX, this is no error."""
    graph = pumice.Graph()
    given = graph.input("ids", "int64", [3])
    graph.output("y", graph.add("OneHot", given, np.array(2), np.array([0, 1], "float32")))
    with graph.compile(context) as program:
        np.testing.assert_array_equal(program({"ids": np.array([0, 7, -1])})["y"], [[1, 0], [0, 0], [0, 1]])
