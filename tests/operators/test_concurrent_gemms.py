"""Concurrent GEMMs that read the same rows share the device, so their tile is chosen for the sum of their columns."""

from __future__ import annotations

import numpy as np

import pumice

ROWS, DEPTH, COLUMNS = 1024, 768, 768


def tiles_of(context: pumice.Context, count: int, columns: int, waits: bool = False) -> list[str]:
    """Return the variants of `count` GEMMs of one tensor. waits: each adds the result of the previous GEMM."""
    random = np.random.default_rng(0)
    graph = pumice.Graph("products")
    x = graph.input("x", "float16", [ROWS, DEPTH])
    made = None
    for i in range(count):
        weights = (random.standard_normal((DEPTH, columns)) / DEPTH).astype(np.float16)
        own = graph.add("MatMul", x, weights, name=f"product{i}")
        made = own if made is None or not waits else graph.add("Add", own, made, name=f"sum{i}")
        graph.output(f"y{i}", made)
    program = graph.compile(context, "fp16", list_variants=True)
    return [step["choice"]["own"] for step in program.plan([[ROWS, DEPTH]]) if "choice" in step]


def test_concurrent_matmuls_choose_the_tile_for_all_columns(units: pumice.Context) -> None:
    (whole,) = tiles_of(units, 1, 3 * COLUMNS)
    assert tiles_of(units, 3, COLUMNS) == [whole] * 3


def test_dependent_matmuls_choose_their_own_tiles(units: pumice.Context) -> None:
    (alone,) = tiles_of(units, 1, COLUMNS)
    assert tiles_of(units, 3, COLUMNS, waits=True)[1:] == [alone] * 2
