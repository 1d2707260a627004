"""GEMM with small M, at the tile edges and for all layouts of the matrix.

All values are small integers, so every sum is exact in any order; results are rounded once to the tensor type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice
from conv_reference import convolved
from lesser_devices import MIN_LIMITS, SMALL, lesser

Array = np.ndarray[Any, Any]

# M, K, N: each edge case is combined with several others.
SHAPES = [
    *((1, 1, 1), (1, 7, 9), (1, 8, 1009), (1, 127, 8), (1, 128, 2049), (1, 1009, 7), (1, 1024, 48)),
    *((2, 1, 8), (2, 128, 7), (3, 1009, 9), (3, 128, 1009), (4, 7, 1), (4, 127, 2049), (4, 8, 8)),
    *((5, 64, 33), (7, 33, 16), (8, 128, 40), (8, 1009, 1), (9, 36, 17), (24, 40, 24), (25, 9, 20)),
]
TOLERANCES = {"fp32": 0.0, "fp16": 1e-3, "bf16": 8e-3}


def integers(shape: tuple[int, ...], seed: int) -> Array:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype("float32")


def agree(made: Array, wanted: Array, precision: str) -> None:
    tolerance = TOLERANCES[precision]
    np.testing.assert_allclose(made, wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max(initial=1))


def outputs(graph: pumice.Graph, context: pumice.Context, precision: str, *inputs: Array) -> list[Array]:
    return list(graph.compile(context, precision=precision).call(inputs))


def id_of(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("shape", SHAPES, ids=id_of)
def test_small_m_matmuls_in_every_matrix_layout(
    shape: tuple[int, int, int], precision: str, context: pumice.Context
) -> None:
    rows, depth, columns = shape
    a, b = integers((rows, depth), 1), integers((depth, columns), 2)
    row, matrix, residual = integers((columns,), 3), integers((rows, 1), 4), integers((rows, columns), 5)
    turned = np.ascontiguousarray(b.T)
    graph = pumice.Graph("products")
    x, given = graph.input("x", "float32", [rows, depth]), graph.input("b", "float32", [depth, columns])
    given_turned = graph.input("turned", "float32", [columns, depth])
    product = a @ b
    made: list[tuple[pumice.Value, Array]] = [
        (graph.add("MatMul", x, b), product),
        (graph.add("MatMul", x, given), product),
        (graph.add("Relu", graph.add("Gemm", x, turned, row, transB=1)), np.maximum(product + row, 0)),
        (graph.add("Relu", graph.add("Gemm", x, given_turned, row, transB=1)), np.maximum(product + row, 0)),
        (graph.add("Gemm", x, given, matrix, beta=2.0), product + 2 * matrix),
        (graph.add("Gemm", x, given, alpha=0.5), product / 2),
        (graph.add("Add", graph.add("MatMul", x, b), residual), product + residual),
    ]
    for i, (value, _) in enumerate(made):
        graph.output(f"y{i}", value)
    for result, (_, wanted) in zip(outputs(graph, context, precision, a, b, turned), made, strict=True):
        agree(result, wanted, precision)


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize(("depth", "columns"), [(7, 5), (36, 16), (33, 40)])
def test_a_matrix_that_begins_anywhere(depth: int, columns: int, precision: str, context: pumice.Context) -> None:
    """Slices of one tensor; only the first is aligned."""
    a, b = integers((3, depth), 1), integers((3 * depth, columns), 2)
    graph = pumice.Graph("parts")
    x, both = graph.input("x", "float32", [3, depth]), graph.input("b", "float32", [3 * depth, columns])
    turned = graph.input("turned", "float32", [3 * columns, depth])
    parts = graph.add("Split", graph.add("Neg", both), outputs=3, axis=0)
    columns_of = graph.add("Split", turned, outputs=3, axis=0)
    for i in range(3):
        graph.output(f"y{i}", graph.add("MatMul", x, parts[i]))
        graph.output(f"z{i}", graph.add("Gemm", x, columns_of[i], transB=1))
    c = integers((3 * columns, depth), 3)
    made = outputs(graph, context, precision, a, b, c)
    for i in range(3):
        agree(made[2 * i], -a @ b[i * depth : (i + 1) * depth], precision)
        agree(made[2 * i + 1], a @ c[i * columns : (i + 1) * columns].T, precision)


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("batch", [((3,), (3,)), ((1,), (4,)), ((2, 3), (3,)), ((2, 1), (2, 3))], ids=str)
def test_batched_small_m_matmuls(
    batch: tuple[tuple[int, ...], tuple[int, ...]], precision: str, context: pumice.Context
) -> None:
    a, b = integers((*batch[0], 2, 37), 1), integers((*batch[1], 37, 19), 2)
    graph = pumice.Graph("batch")
    x, given = graph.input("x", "float32", list(a.shape)), graph.input("b", "float32", list(b.shape))
    graph.output("y", graph.add("MatMul", x, given))
    graph.output("z", graph.add("MatMul", x, b))
    for made in outputs(graph, context, precision, a, b):
        agree(made, a @ b, precision)


@pytest.mark.parametrize("depth", [1, 5, 9, 33, 37])
def test_infinities_stay_in_their_column(depth: int, context: pumice.Context) -> None:
    """Lanes past the end of K add nothing, not even infinity times zero."""
    a, b = np.ones((2, depth), "float32"), np.ones((depth, 21), "float32")
    b[-1, 3] = np.inf
    a[1, -1] = -np.inf
    graph = pumice.Graph("infinities")
    x, given = graph.input("x", "float32", [2, depth]), graph.input("b", "float32", [depth, 21])
    turned = graph.input("turned", "float32", [21, depth])
    graph.output("y", graph.add("MatMul", x, b))
    graph.output("z", graph.add("MatMul", x, given))
    graph.output("t", graph.add("Gemm", x, turned, transB=1))
    with np.errstate(invalid="ignore"):  # NumPy warns on some processors
        expected = a @ b
    for made in outputs(graph, context, "fp32", a, b, np.ascontiguousarray(b.T)):
        np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize(
    ("image", "weights", "options"),
    [
        ((1, 40, 3, 3), (20, 40, 3, 3), {}),
        ((2, 36, 3, 4), (17, 36, 3, 3), {}),
        ((1, 70, 2, 2), (16, 70, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((2, 3, 3, 3), (9, 3, 2, 2), {}),
        ((1, 12, 2, 2), (10, 6, 1, 1), {"group": 2}),
        ((5, 33, 1, 1), (19, 33, 1, 1), {}),
        ((1, 32, 3, 5), (24, 32, 3, 3), {"dilations": [1, 2], "strides": [1, 1]}),
    ],
    ids=str,
)
def test_convolutions_of_a_few_pixels(
    image: tuple[int, ...], weights: tuple[int, ...], options: dict[str, Any], precision: str, context: pumice.Context
) -> None:
    x, w, bias = integers(image, 1), integers(weights, 2), integers(weights[:1], 3)
    graph = pumice.Graph("pixels")
    graph.output(
        "y", graph.add("Relu", graph.add("Conv", graph.input("x", "float32", list(image)), w, bias, **options))
    )
    wanted = np.maximum(convolved(x, w, **options) + bias[:, None, None], 0)
    agree(outputs(graph, context, precision, x)[0], wanted, precision)


@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("depth", [5, 33, 64])
@pytest.mark.parametrize("points", [False, True])
def test_small_m_integer_matmuls(rows: int, depth: int, points: bool, context: pumice.Context) -> None:
    random = np.random.default_rng(rows * depth)
    a = random.integers(0, 256, (rows, depth)).astype("uint8")
    b = random.integers(-128, 128, (depth, 21)).astype("int8")
    zeros = [np.array(7, "uint8"), random.integers(-9, 9, 21).astype("int8")] if points else []
    graph = pumice.Graph("integers")
    graph.output("y", graph.add("MatMulInteger", graph.input("x", "uint8", [rows, depth]), b, *zeros))
    left, right = (
        array.astype("int32") - (zeros[i].astype("int32") if points else 0) for i, array in enumerate((a, b))
    )
    np.testing.assert_array_equal(outputs(graph, context, "fp32", a)[0], left @ right)


# ---- quantised weights


@pytest.fixture(
    scope="module", params={"own": (), "lanes": (), "tiled": ("subgroupShuffle",)}.items(), ids=lambda one: one[0]
)
def device(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """The device itself, and with 64 workgroups per axis for each kernel family of a software device."""
    name, lacking = request.param
    if name == "own":
        yield pumice_context
        return
    with lesser(pumice_context, SMALL, lacking) as made:
        yield made


def paired(codes: Array) -> Array:
    """Pack rows of 4-bit elements, two to a byte."""
    return codes[:, 0::2] | codes[:, 1::2] << 4


def quantised(depth: int, columns: int, block: int, bits: int, points: bool) -> tuple[dict[str, Array], Array]:
    """Return the constants of a MatMulNBits, and the dequantised matrix [N, K]. Scales are powers of two."""
    random = np.random.default_rng(depth + columns + block)
    blocks = -(-depth // block)
    codes = random.integers(0, 1 << bits, (columns, blocks * block)).astype("uint8")
    zeros = random.integers(0, 1 << bits, (columns, blocks)).astype("uint8")
    scales = 2.0 ** random.integers(-3, 1, (columns, blocks))
    constants = {
        "b": (paired(codes) if bits == 4 else codes).reshape(columns, blocks, -1),
        "s": scales.astype("float32").reshape(-1),
    }
    if points:
        constants["z"] = (paired(np.pad(zeros, [(0, 0), (0, blocks % 2)])) if bits == 4 else zeros).reshape(-1)
    least = zeros.astype("float64") if points else np.full((columns, blocks), 1 << bits - 1)
    matrix = (codes - np.repeat(least, block, 1)) * np.repeat(scales, block, 1)
    return constants, matrix[:, :depth]


BLOCKS = [
    *((1, 128, 1009, 32), (1, 128, 7, 128), (2, 128, 8, 16), (3, 1024, 9, 128), (4, 48, 33, 16), (4, 1008, 8, 16)),
    *((1, 1000, 17, 128), (1, 16, 1, 16), (2, 40, 5, 32), (1, 1009, 3, 32), (9, 96, 20, 32), (129, 64, 12, 32)),
    # K beyond one iteration of a workgroup, with remainders.
    *((1, 4128, 5, 32), (1, 8192, 3, 64), (2, 2080, 6, 32), (3, 512, 9, 256), (4, 4096, 4, 128)),
]


def check_blocks(
    device: pumice.Context, shape: tuple[int, int, int, int], bits: int, points: bool, precision: str
) -> None:
    rows, depth, columns, block = shape
    constants, matrix = quantised(depth, columns, block, bits, points)
    a = integers((rows, depth), 1)
    nodes = [
        helper.make_node(
            "MatMulNBits",
            ["x", *constants],
            ["p"],
            domain="com.microsoft",
            K=depth,
            N=columns,
            bits=bits,
            block_size=block,
        ),
        helper.make_node("Relu", ["p"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "blocks",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, depth])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    with pumice.Model(
        helper.make_model(graph, opset_imports=sets, ir_version=10), device, precision=precision
    ) as model:
        agree(model(a), np.maximum(a @ matrix.T, 0).astype("float32"), precision)


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize(("bits", "points"), [(4, False), (4, True), (8, True)])
@pytest.mark.parametrize("shape", BLOCKS, ids=id_of)
def test_matmuls_with_low_bit_weights(
    shape: tuple[int, int, int, int], bits: int, points: bool, precision: str, device: pumice.Context
) -> None:
    check_blocks(device, shape, bits, points, precision)


def test_more_columns_of_few_bits_than_an_axis_has_workgroups(pumice_context: pumice.Context) -> None:
    with lesser(pumice_context, MIN_LIMITS, ("subgroupShuffle",)) as device:
        check_blocks(device, (1, 16, 65539, 16), 4, False, "fp32")
