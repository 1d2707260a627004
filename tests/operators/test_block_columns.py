"""Products of a few rows with matrices in blocks of 4 and 8 bits, by the kernels of GPUs: sums of small integers, exact in any order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import pumice

ROWS, COLUMNS = (1, 2, 3, 5, 8, 9, 16, 17), (1, 7, 8, 33, 4097)


@pytest.fixture(scope="module")
def plain(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A device for which the kernels of CPU drivers are not taken."""
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", without=["subgroupShuffle"]) as made:
        yield made


def product(
    rows: int, columns: int, depth: int, block: int, bits: int, zero: bool
) -> tuple[pumice.Graph, np.ndarray, np.ndarray]:
    """The graph of the product, what it is given and what it makes."""
    chance = np.random.default_rng(rows * 1000 + columns)
    x = chance.integers(-3, 4, (rows, depth)).astype(np.float32)
    codes = chance.integers(0, 1 << bits, (columns, depth)).astype(np.uint8)
    points = chance.integers(0, 1 << bits, (columns, depth // block)).astype(np.uint8)
    scales = (2.0 ** chance.integers(-1, 3, (columns, depth // block))).astype(np.float32)
    if not zero:
        points[:] = 0
    floats = (codes.astype(np.float32) - points.repeat(block, 1)) * scales.repeat(block, 1)
    graph = pumice.Graph("blocks")
    given = graph.input("x", "float32", [rows, depth])

    def constant(values: np.ndarray, name: str) -> pumice.Value:
        flat = np.append(values.reshape(-1), np.zeros(values.size % 2, np.uint8)) if bits == 4 else values.reshape(-1)
        raw = (flat[::2] | flat[1::2] << 4) if bits == 4 else flat
        return graph.constant_bytes(raw.tobytes(), f"uint{bits}", list(values.shape), name)

    inputs = [constant(codes, "codes"), graph.constant(scales)] + ([constant(points, "points")] if zero else [])
    made = graph.add("DequantizeLinear", *inputs, axis=1, block_size=block)
    graph.output("y", graph.add("MatMul", given, graph.add("Transpose", made, perm=[1, 0])))
    return graph, x, x @ floats.T


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("zero", [True, False], ids=["points", "no points"])
@pytest.mark.parametrize(("bits", "depth", "block"), [(4, 96, 32), (4, 2176, 64), (8, 48, 16), (4, 48, 16)])
def test_products_are_exact(
    bits: int, depth: int, block: int, zero: bool, precision: str, plain: pumice.Context
) -> None:
    for rows in ROWS:
        columns = COLUMNS[rows % len(COLUMNS)]
        graph, x, expected = product(rows, columns, depth, block, bits, zero)
        program = graph.compile(plain, precision)
        made = program({"x": x})["y"]
        tolerance = {"fp32": 0, "fp16": 2.0**-10}[
            precision
        ]  # the result is rounded once; larger ones than float16's do not come
        np.testing.assert_allclose(made, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())
        kernel = "".join(row["kernel"] for row in program.report())
        by_columns = rows <= 16 and block % (128 // bits) == 0
        assert ("block_columns" in kernel) == by_columns, kernel
