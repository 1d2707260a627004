"""GPU GEMM for small M with 4- and 8-bit block-quantised weights: sums of small integers, exact in any order."""

from __future__ import annotations

import numpy as np
import pytest

import pumice
from features import need_limits

ROWS, COLUMNS = (1, 2, 5, 8, 9, 16, 17), (1, 7, 33, 4097)


Sizes = tuple[int, int, int, int, int]  # M, N, K, block size, bits


def parts_of(sizes: Sizes, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return codes, zero points and scales. kind: kind of zero points."""
    rows, columns, depth, block, bits = sizes
    chance = np.random.default_rng(rows * 1000 + columns)
    codes = chance.integers(0, 1 << bits, (columns, depth)).astype(np.uint8)
    points = chance.integers(0, 1 << bits, (columns, depth // block)).astype(np.uint8)
    scales = (2.0 ** chance.integers(-1, 3, (columns, depth // block))).astype(np.float32)
    return codes, {"each": points, "same": np.full_like(points, 5), "none": np.zeros_like(points)}[kind], scales


def weights(graph: pumice.Graph, sizes: Sizes, points: str, turned: bool = False) -> pumice.Value:
    """Add the dequantised weights [K, N] to the graph. turned: with reversed columns."""
    codes, zeros, scales = (part[:: -1 if turned else 1] for part in parts_of(sizes, points))
    *_, block, bits = sizes

    def constant(values: np.ndarray, name: str) -> pumice.Value:
        flat = values.reshape(-1)
        if bits == 4:
            flat = np.append(flat, np.zeros(flat.size % 2, np.uint8))
            flat = flat[::2] | flat[1::2] << 4
        name = f"{name} {block}{' turned' if turned else ''}"
        return graph.constant_bytes(flat.tobytes(), f"uint{bits}", list(values.shape), name)

    inputs = [constant(codes, "codes"), graph.constant(scales)] + (
        [] if points == "none" else [constant(zeros, "zeros")]
    )
    made = graph.add("DequantizeLinear", *inputs, axis=1, block_size=block)
    return graph.add("Transpose", made, perm=[1, 0])


def given_and_made(sizes: Sizes, points: str) -> tuple[np.ndarray, np.ndarray]:
    """Return x and its product with the weights."""
    rows, _, depth, block, _ = sizes
    x = np.random.default_rng(rows).integers(-3, 4, (rows, depth)).astype(np.float32)
    codes, zeros, scales = parts_of(sizes, points)
    floats = (codes.astype(np.float32) - zeros.repeat(block, 1)) * scales.repeat(block, 1)
    return x, x @ floats.T


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("points", ["each", "same", "none"])
@pytest.mark.parametrize(("bits", "depth", "block"), [(4, 96, 32), (4, 2176, 64), (8, 48, 16), (4, 48, 16)])
def test_matmuls_are_exact(
    bits: int, depth: int, block: int, points: str, precision: str, gpu_kernels: pumice.Context
) -> None:
    """fp16 results are rounded once."""
    tolerance = {"fp32": 0, "fp16": 2.0**-10}[precision]
    for rows in ROWS:
        sizes = rows, COLUMNS[rows % len(COLUMNS)], depth, block, bits
        x, expected = given_and_made(sizes, points)
        graph = pumice.Graph("blocks")
        given = graph.input("x", "float32", list(x.shape))
        graph.output("y", graph.add("MatMul", given, weights(graph, sizes, points)))
        program = graph.compile(gpu_kernels, precision)
        made = program({"x": x})["y"]
        np.testing.assert_allclose(made, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())
        kernel = "".join(row["kernel"] for row in program.report())
        by_columns = rows <= 16 and block % (128 // bits) == 0
        assert ("gemv_quant.comp" in kernel) == by_columns, kernel


@pytest.mark.parametrize("points", ["each", "same"])
@pytest.mark.parametrize("on_gpu", [True, False], ids=["GPU", "CPU"])
@pytest.mark.parametrize(("rows", "bits", "block"), [(1, 4, 32), (3, 4, 16), (8, 8, 16), (40, 4, 32), (200, 8, 32)])
def test_a_second_tensor_is_added_in_the_epilogue(
    rows: int, bits: int, block: int, on_gpu: bool, points: str, gpu_kernels: pumice.Context, context: pumice.Context
) -> None:
    sizes = rows, 33, 96, block, bits
    x, expected = given_and_made(sizes, points)
    graph = pumice.Graph("sum")
    given, more = (graph.input(name, "float32", list(one.shape)) for name, one in (("x", x), ("more", expected)))
    graph.output("y", graph.add("Add", more, graph.add("MatMul", given, weights(graph, sizes, points))))
    beside = np.arange(expected.size, dtype=np.float32).reshape(expected.shape)
    program = graph.compile(gpu_kernels if on_gpu else context)
    np.testing.assert_array_equal(program({"x": x, "more": beside})["y"], expected + beside)
    if rows <= 8 and points == "same":
        need_limits(context, maxPerStageDescriptorStorageBuffers=5)  # else the sum is not fused
        kernels = [row["kernel"] for row in program.report() if row["kernel"]]
        assert len(kernels) == 1, "the sum is a part of the product's kernel"


def halves(sizes: Sizes) -> np.ndarray:
    """Return rows of 1 and -1."""
    rows, _, depth, *_ = sizes
    return (np.random.default_rng(rows).integers(0, 2, (rows, depth)) * 2 - 1).astype(np.float32)


def gated(
    graph: pumice.Graph, sizes: Sizes, points: str, normed: bool, is_shared: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Add relu(x @ gate) * (x @ up), with gate the reversed columns of up. Return x and the result.

    normed: with RMSNormalization of x. All squares are 1, so epsilon 3 halves each element exactly.
    """
    x = halves(sizes)
    given = graph.input("x", "float32", list(x.shape))
    gain = (2.0 ** np.random.default_rng(1).integers(-1, 2, x.shape[1])).astype(np.float32)
    inner = graph.add("RMSNormalization", given, gain, axis=-1, epsilon=3.0) if normed else given
    gate = graph.add("Relu", graph.add("MatMul", inner, weights(graph, sizes, points, turned=True)))
    graph.output("y", graph.add("Mul", gate, graph.add("MatMul", inner, weights(graph, sizes, points))))
    if is_shared:
        graph.output("inner", inner)
    codes, zeros, scales = parts_of(sizes, points)
    block = sizes[3]
    floats = (codes.astype(np.float32) - zeros.repeat(block, 1)) * scales.repeat(block, 1)
    factors = x * gain / 2 if normed else x
    return x, np.maximum(factors @ floats[::-1].T, 0) * (factors @ floats.T)


@pytest.mark.parametrize("normed", [False, True], ids=["plain", "normed"])
@pytest.mark.parametrize("points", ["each", "same", "none"])
@pytest.mark.parametrize("on_gpu", [True, False], ids=["GPU", "CPU"])
@pytest.mark.parametrize(("columns", "bits", "depth", "block"), [(33, 4, 96, 32), (2049, 4, 192, 64), (7, 8, 48, 16)])
def test_gate_and_norm_are_fused_into_the_matmul(
    columns: int,
    bits: int,
    depth: int,
    block: int,
    on_gpu: bool,
    points: str,
    normed: bool,
    gpu_kernels: pumice.Context,
    context: pumice.Context,
) -> None:
    """Integers and powers of two: the same bits for any order of summation."""
    for rows in (1, 3, 9, 16, 17, 150):
        sizes = rows, columns, depth, block, bits
        graph = pumice.Graph("gated")
        x, expected = gated(graph, sizes, points, normed)
        program = graph.compile(gpu_kernels if on_gpu else context)
        np.testing.assert_array_equal(program({"x": x})["y"], expected)
        kernels = [row["kernel"] for row in program.report() if row["kernel"]]
        need_limits(context, maxPerStageDescriptorStorageBuffers=8)  # else the gate is not fused
        assert len(kernels) == 1, "all of it is one node"
        if on_gpu and rows <= 16:
            assert kernels == ["gemv_quant.comp"], "and one kernel"


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_gated_matmul_is_rounded_once(precision: str, gpu_kernels: pumice.Context) -> None:
    """A stored gate would be rounded as well; in the fused kernel only the result is."""
    sizes = 2, 65, 96, 32, 4
    graph = pumice.Graph("gated")
    x, expected = gated(graph, sizes, "each", False)
    scale = np.float32(2.0 ** -np.ceil(np.log2(np.abs(expected).max())))  # within the fp16 range
    given = x * np.sqrt(scale).astype(np.float32) if np.log2(scale) % 2 == 0 else x * np.sqrt(scale / 2)
    made = graph.compile(gpu_kernels, precision)({"x": given})["y"]
    wanted = expected * (scale if np.log2(scale) % 2 == 0 else scale / 2)
    step = {"fp16": 2.0**-11, "bf16": 2.0**-8}[precision]
    np.testing.assert_allclose(made, wanted, rtol=step, atol=2.0**-25)


def test_a_norm_that_others_read_stays_apart(gpu_kernels: pumice.Context) -> None:
    sizes = 2, 33, 96, 32, 4
    graph = pumice.Graph("gated")
    x, expected = gated(graph, sizes, "each", True, is_shared=True)
    program = graph.compile(gpu_kernels)
    made = program({"x": x})
    np.testing.assert_array_equal(made["y"], expected)
    assert np.abs(made["inner"]).max() > 0
    assert any(row["kernel"].startswith("layer_norm") for row in program.report())


def test_gates_of_another_form_stay_apart(gpu_kernels: pumice.Context) -> None:
    """One kernel reads both matrices with the same layout, so other block sizes are not fused."""
    graph = pumice.Graph("gated")
    x = halves((2, 33, 96, 32, 4))
    given = graph.input("x", "float32", [2, 96])
    one, other = ((2, 33, 96, block, 4) for block in (32, 96))
    gate = graph.add("Relu", graph.add("MatMul", given, weights(graph, other, "each")))
    graph.output("y", graph.add("Mul", gate, graph.add("MatMul", given, weights(graph, one, "each"))))
    program = graph.compile(gpu_kernels)
    factors = []
    for sizes in (other, one):
        codes, zeros, scales = parts_of(sizes, "each")
        factors.append((codes.astype(np.float32) - zeros.repeat(sizes[3], 1)) * scales.repeat(sizes[3], 1))
    np.testing.assert_array_equal(program({"x": x})["y"], np.maximum(x @ factors[0].T, 0) * (x @ factors[1].T))
    assert len([row for row in program.report() if row["kernel"]]) == 2
