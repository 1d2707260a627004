"""HASHTABLE_LOOKUP and DENSIFY in every type, against NumPy, and their errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import pumice
from nnapi_operations import Quantized, operands_of, run

Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 2, 3)])
def test_N19_2_hits_and_misses(context: pumice.Context, dtype: str, shape: tuple[int, ...]) -> None:
    keys = np.array([-(2**31), -3, 0, 7, 2**31 - 1], "int32")
    lookups = np.array([7, 8, -(2**31), 2**31 - 1, 0, -3, 1, 7], "int32")
    values = np.random.default_rng(0).integers(1, 200, shape).astype(dtype)
    given: Any = Quantized(values, 0.5, 9) if dtype == "uint8" else values
    y, hits = run(context, "HASHTABLE_LOOKUP", lookups, keys, given)
    places = {int(key): k for k, key in enumerate(keys)}
    expected = np.stack(
        [values[places[int(one)]] if int(one) in places else np.zeros(shape[1:], dtype) for one in lookups]
    )
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(hits, np.array([int(one) in places for one in lookups], "uint8"))


def test_N19_1_parameters_of_the_results() -> None:
    graph = pumice.Graph()
    values = graph.input("v", "uint8", [2, 3], scale=0.5, zero_point=9)
    y, hits = graph.add("nnapi::HASHTABLE_LOOKUP", np.zeros(4, "int32"), np.array([0, 1], "int32"), values)
    assert (y.scale, y.zero_point, hits.dtype, hits.scale, hits.zero_point) == (0.5, 9, "uint8", 1, 0)


def test_N19_2_as_many_keys_as_values() -> None:
    graph = pumice.Graph()
    values = graph.input("v", "float32", [3, 3])
    with pytest.raises(pumice.GraphError, match="N19.2"):
        graph.add("nnapi::HASHTABLE_LOOKUP", np.zeros(4, "int32"), np.array([0, 1], "int32"), values)


def test_G2_lookups_of_nothing_are_rejected(context: pumice.Context) -> None:
    with pytest.raises(pumice.GraphError, match="G2"):
        run(context, "HASHTABLE_LOOKUP", np.zeros(0, "int32"), np.zeros(2, "int32"), np.zeros((2, 3), "float32"))


# ---- DENSIFY

TYPES = ["float32", "float16", "int32", "bool", "uint8", "int8", "uint16", "int16"]


def densified(
    values: Array, order: Any, block_map: Any, formats: Any, sizes: Any, levels: list[Any], fill: Any
) -> Array:
    """Rules N21.2 to N21.4, level by level."""
    k = len(block_map or [])
    n = len(order) - k
    shape, block = [0] * n, [sizes[order[n + a]] for a in range(k)]
    for p in range(n):
        shape[order[p]] = sizes[p]
    for p in range(n, n + k):
        shape[block_map[order[p] - n]] *= sizes[p]
    y = np.full(shape, fill, values.dtype)

    def walk(p: int, position: int, coordinates: list[int]) -> None:
        if p == len(order):
            place = [0] * n
            for q in range(n):
                place[order[q]] = coordinates[q]
            for q in range(n, n + k):
                a = order[q] - n
                place[block_map[a]] = place[block_map[a]] * block[a] + coordinates[q]
            y[tuple(place)] = values[position]
        elif formats[p] == 0:
            for i in range(sizes[p]):
                walk(p + 1, position * sizes[p] + i, [*coordinates, i])
        else:
            segments, indices = levels[2 * p], levels[2 * p + 1]
            for j in range(segments[position], segments[position + 1]):
                walk(p + 1, j, [*coordinates, indices[j]])

    walk(0, 0, [])
    return y


def draw_levels(
    random: np.random.Generator, order: list[int], sizes: list[int], formats: list[int]
) -> tuple[int, list[Any]]:
    """Return random segments and indices of the sparse levels, and the number of values."""
    positions, levels = 1, []
    for size, sparse in zip(sizes, formats, strict=True):
        if not sparse:
            positions, levels = positions * size, [*levels, None, None]
            continue
        rows = [sorted(random.choice(size, int(random.integers(0, size + 1)), replace=False)) for _ in range(positions)]
        segments = np.cumsum([0, *map(len, rows)]).astype("int32")
        indices = np.array(list(itertools.chain(*rows)), "int32")
        if len(indices) == 0:
            segments[-1:], indices = 1, np.zeros(1, "int32")
        positions, levels = len(indices), [*levels, segments, indices]
    return positions, levels


FORMS = [
    ([0, 1], [], [2, 3], [0, 1]),
    ([1, 0], [], [4, 3], [1, 1]),
    ([2, 0, 1], [], [2, 3, 4], [1, 0, 1]),
    ([0, 1, 2, 3], [0, 1], [2, 3, 2, 2], [0, 1, 0, 0]),
    ([1, 0, 2], [1], [3, 2, 4], [0, 1, 0]),
    ([0, 1, 2], [0], [3, 2, 4], [1, 1, 1]),
    ([0], [], [5], [0]),
    ([0, 1, 3, 2], [0, 1], [2, 3, 2, 4], [0, 1, 0, 0]),
    ([2, 1, 0, 5, 4, 3], [0, 1, 2], [2, 1, 2, 3, 2, 4], [1, 0, 0, 0, 0, 1]),
]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_N21_3_values(context: pumice.Context, form: tuple[list[int], ...], dtype: str) -> None:
    """The lists are constants, and for two types also inputs."""
    order, block_map, sizes, formats = form
    random = np.random.default_rng(FORMS.index(form))
    count, levels = draw_levels(random, order, sizes, formats)
    values = random.integers(0 if dtype == "bool" else 1, 2 if dtype == "bool" else 100, count).astype(dtype)
    zero = 9 if dtype in ("uint8", "int8", "uint16") else 0
    given: Any = Quantized(values, 0.5, zero) if dtype in ("uint8", "int8", "uint16", "int16") else values
    if not isinstance(given, Quantized):
        zero = 0
    lists = [order, block_map or None, formats, sizes, *(None if one is None else one.tolist() for one in levels)]
    expected = densified(values, order, block_map, formats, sizes, levels, zero)
    np.testing.assert_array_equal(run(context, "DENSIFY", given, *lists), expected)
    if dtype in ("float32", "uint8"):
        fed: dict[str, Array] = {}
        graph = pumice.Graph()
        handed_over = [None if one is None else np.array(one, "int32") for one in lists]
        graph.output("y", graph.add("nnapi::DENSIFY", *operands_of(graph, (given, *handed_over), fed)))
        np.testing.assert_array_equal(graph.compile(context)(fed)["y"], expected)


SPARSE: list[Any] = [[0, 1], None, [0, 1], [2, 3], None, None, [0, 1, 2], [2, 0]]
WRONG: list[tuple[str, int, Any]] = [
    ("N21.2", 0, [0, 2]),
    ("N21.2", 0, [0, 0]),
    ("N21.2", 0, [1, 1]),
    ("N21.1", 0, [0]),
    ("N21.1", 1, [0, 1]),
    ("N21.1", 2, [0, 2]),
    ("N21.1", 2, [0]),
    ("N21.4", 3, [2, 0]),
    ("N21.1", 3, [2, 3, 4]),
    ("N21.1", 6, None),
    ("N21.4", 6, [1, 1, 2]),
    ("N21.4", 6, [0, 2, 1]),
    ("N21.4", 6, [0, 2]),
    ("N21.4", 6, [0, 1, 3]),
    ("N21.4", 7, [2, 3]),
    ("N21.4", 7, [-1, 0]),
]


@pytest.mark.parametrize(("rule", "i", "given"), WRONG)
def test_N21_1_to_N21_4_what_is_rejected(rule: str, i: int, given: Any) -> None:
    operands = [*SPARSE[:i], given, *SPARSE[i + 1 :]]
    graph = pumice.Graph()
    with pytest.raises(pumice.GraphError, match=rule):
        graph.add("nnapi::DENSIFY", np.zeros(2, "float32"), *operands)


def test_N21_4_values_for_all_positions() -> None:
    graph = pumice.Graph()
    with pytest.raises(pumice.GraphError, match="N21.4"):
        graph.add("nnapi::DENSIFY", np.zeros(1, "float32"), *SPARSE)


def test_N21_4_lists_of_a_call_are_looked_at(context: pumice.Context) -> None:
    graph = pumice.Graph()
    lists = [None if one is None else graph.input(f"l{i}", "int32", [len(one)]) for i, one in enumerate(SPARSE)]
    graph.output("y", graph.add("nnapi::DENSIFY", np.ones(2, "float32"), *lists, name="it"))
    program = graph.compile(context)
    given = {f"l{i}": np.array(one, "int32") for i, one in enumerate(SPARSE) if one is not None}
    assert program(given)["y"].shape == (2, 3)
    with pytest.raises(pumice.GraphError, match=r"N21.4.*indices from 0 to 2 expected; given 3"):
        program({**given, "l7": np.array([2, 3], "int32")})
