"""Products of a few rows with matrices in blocks of 4 and 8 bits, by the kernels of GPUs: sums of small integers, exact in any order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import pumice

ROWS, COLUMNS = (1, 2, 5, 8, 9, 16, 17), (1, 7, 33, 4097)


@pytest.fixture(scope="module")
def plain(pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """A device for which the kernels of CPU drivers are not taken."""
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", without=["subgroupShuffle"]) as made:
        yield made


Sizes = tuple[int, int, int, int, int]  # rows, columns, depth, block, bits


def parts_of(sizes: Sizes, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes, zero points and scales; kind: of the points."""
    rows, columns, depth, block, bits = sizes
    chance = np.random.default_rng(rows * 1000 + columns)
    codes = chance.integers(0, 1 << bits, (columns, depth)).astype(np.uint8)
    points = chance.integers(0, 1 << bits, (columns, depth // block)).astype(np.uint8)
    scales = (2.0 ** chance.integers(-1, 3, (columns, depth // block))).astype(np.float32)
    return codes, {"each": points, "same": np.full_like(points, 5), "none": np.zeros_like(points)}[kind], scales


def weights(graph: pumice.Graph, sizes: Sizes, points: str) -> pumice.Value:
    """The matrix [depth, columns] as it is dequantised in a graph."""
    codes, zeros, scales = parts_of(sizes, points)
    *_, block, bits = sizes

    def constant(values: np.ndarray, name: str) -> pumice.Value:
        flat = values.reshape(-1)
        if bits == 4:
            flat = np.append(flat, np.zeros(flat.size % 2, np.uint8))
            flat = flat[::2] | flat[1::2] << 4
        return graph.constant_bytes(flat.tobytes(), f"uint{bits}", list(values.shape), name)

    inputs = [constant(codes, "codes"), graph.constant(scales)] + (
        [] if points == "none" else [constant(zeros, "zeros")]
    )
    made = graph.add("DequantizeLinear", *inputs, axis=1, block_size=block)
    return graph.add("Transpose", made, perm=[1, 0])


def given_and_made(sizes: Sizes, points: str) -> tuple[np.ndarray, np.ndarray]:
    """x, and its product with the matrix."""
    rows, _, depth, block, _ = sizes
    x = np.random.default_rng(rows).integers(-3, 4, (rows, depth)).astype(np.float32)
    codes, zeros, scales = parts_of(sizes, points)
    floats = (codes.astype(np.float32) - zeros.repeat(block, 1)) * scales.repeat(block, 1)
    return x, x @ floats.T


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("points", ["each", "same", "none"])
@pytest.mark.parametrize(("bits", "depth", "block"), [(4, 96, 32), (4, 2176, 64), (8, 48, 16), (4, 48, 16)])
def test_products_are_exact(
    bits: int, depth: int, block: int, points: str, precision: str, plain: pumice.Context
) -> None:
    """In fp16 the result is rounded once."""
    tolerance = {"fp32": 0, "fp16": 2.0**-10}[precision]
    for rows in ROWS:
        sizes = rows, COLUMNS[rows % len(COLUMNS)], depth, block, bits
        x, expected = given_and_made(sizes, points)
        graph = pumice.Graph("blocks")
        given = graph.input("x", "float32", list(x.shape))
        graph.output("y", graph.add("MatMul", given, weights(graph, sizes, points)))
        program = graph.compile(plain, precision)
        made = program({"x": x})["y"]
        np.testing.assert_allclose(made, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())
        kernel = "".join(row["kernel"] for row in program.report())
        by_columns = rows <= 16 and block % (128 // bits) == 0
        assert ("block_columns" in kernel) == by_columns, kernel


@pytest.mark.parametrize("points", ["each", "same"])
@pytest.mark.parametrize("on_gpu", [True, False], ids=["GPU", "CPU"])
@pytest.mark.parametrize(("rows", "bits", "block"), [(1, 4, 32), (3, 4, 16), (8, 8, 16), (40, 4, 32), (200, 8, 32)])
def test_a_second_tensor_is_added_as_the_product_is_stored(
    rows: int, bits: int, block: int, on_gpu: bool, points: str, plain: pumice.Context, context: pumice.Context
) -> None:
    sizes = rows, 33, 96, block, bits
    x, expected = given_and_made(sizes, points)
    graph = pumice.Graph("sum")
    given, more = (graph.input(name, "float32", list(one.shape)) for name, one in (("x", x), ("more", expected)))
    graph.output("y", graph.add("Add", more, graph.add("MatMul", given, weights(graph, sizes, points))))
    beside = np.arange(expected.size, dtype=np.float32).reshape(expected.shape)
    program = graph.compile(plain if on_gpu else context)
    np.testing.assert_array_equal(program({"x": x, "more": beside})["y"], expected + beside)
    if rows <= 8 and points == "same":
        kernels = [row["kernel"] for row in program.report() if row["kernel"]]
        assert len(kernels) == 1, "the sum is a part of the product's kernel"
