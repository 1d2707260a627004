"""Data movement operators on 2-, 4- and 8-bit elements, constant or computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import pumice
from onnx_models import model, node, value

Array = np.ndarray[Any, Any]
TYPES = {
    "int8": (TensorProto.INT8, 8),
    "uint8": (TensorProto.UINT8, 8),
    "int4": (TensorProto.INT4, 4),
    "uint4": (TensorProto.UINT4, 4),
    "int2": (getattr(TensorProto, "INT2", 26), 2),
    "uint2": (getattr(TensorProto, "UINT2", 25), 2),
    "float8_e4m3fn": (TensorProto.FLOAT8E4M3FN, 8),
    "float8_e5m2": (TensorProto.FLOAT8E5M2, 8),
    "float4_e2m1fn": (getattr(TensorProto, "FLOAT4E2M1", 23), 4),
}
# Operator -> inputs after the first, attributes, NumPy equivalent.
MOVES: dict[str, tuple[dict[str, Array], dict[str, Any], Callable[[Array], Array]]] = {
    "Transpose": ({}, {"perm": [1, 0]}, np.transpose),
    "Reshape": ({"shape": np.array([5, 3])}, {}, lambda x: x.reshape(5, 3)),
    "Gather": ({"at": np.array([[2, 0], [1, -1]])}, {"axis": 0}, lambda x: x[[[2, 0], [1, -1]]]),
    "Squeeze": ({}, {}, lambda x: x),
    "Unsqueeze": ({"axes": np.array([1])}, {}, lambda x: x[:, None]),
    "Flatten": ({}, {"axis": 0}, lambda x: x.reshape(1, 15)),
    "Slice": ({"a": np.array([1]), "b": np.array([3]), "c": np.array([1])}, {}, lambda x: x[:, 1:3]),
    "Expand": ({"shape": np.array([2, 3, 5])}, {}, lambda x: np.stack([x, x])),
    "Identity": ({}, {}, lambda x: x),
    "Pad": ({"pads": np.array([0, 1, 0, 0])}, {}, lambda x: np.pad(x, [(0, 0), (1, 0)])),
    "GatherElements": (
        {"at": np.array([[4, 0], [1, 1]])},
        {"axis": 1},
        lambda x: x[[[0, 0], [1, 1]], [[4, 0], [1, 1]]],
    ),
    "GatherND": ({"at": np.array([[2, 1], [0, 3]])}, {}, lambda x: x[[2, 0], [1, 3]]),
    "Tile": ({"times": np.array([2, 1])}, {}, lambda x: np.tile(x, (2, 1))),
}


def drawn(dtype: str) -> Array:
    """Return random elements of that type, shape [3, 5]."""
    bits = TYPES[dtype][1]
    codes = np.random.default_rng(0).integers(0, 1 << bits, (3, 5)).astype("uint8")
    if dtype.startswith("float8"):
        codes &= 0xBF if dtype == "float8_e4m3fn" else 0xB7  # no NaN, no infinity
    return codes.view("uint8" if dtype == "uint8" else "int8" if dtype == "int8" else getattr(ml_dtypes, dtype))


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("op", MOVES)
@pytest.mark.parametrize("dtype", TYPES)
def test_elements_are_moved(context: pumice.Context, dtype: str, op: str, constant: bool) -> None:
    """The elements are a constant or quantized on the device, and are dequantized after the move."""
    more, attributes, move = MOVES[op]
    number, bits = TYPES[dtype]
    elements = drawn(dtype)
    real = elements.astype("float32")
    one = np.array(1, "float32")
    weights: dict[str, Array] = {**more, "one": one}
    nodes = [] if constant else [node("QuantizeLinear", ["x", "one"], ["codes"], output_dtype=number)]
    nodes += [
        node(op, ["codes", *more], ["moved"], **attributes),
        node("DequantizeLinear", ["moved", "one"], ["y0"]),
        node("Add", ["y0", "nothing"], ["y"]),
    ]
    weights["nothing"] = np.array(0, "float32")
    proto = model(nodes, [value("x", [3, 5])], constants=weights, opset=25)
    if constant:
        lanes = elements.view("uint8").reshape(-1)
        padded = np.append(lanes, np.zeros(-lanes.size % (8 // bits), "uint8")).reshape(-1, 8 // bits)
        raw = np.bitwise_or.reduce((padded & (1 << bits) - 1) << np.arange(0, 8, bits, dtype="uint8"), axis=1)
        proto.graph.initializer.append(
            helper.make_tensor("codes", number, [3, 5], raw.astype("uint8").tobytes(), raw=True)
        )
        del proto.graph.input[:]
        proto.graph.input.append(value("nothing2", [1]))
        np.testing.assert_array_equal(pumice.load(proto, context)(np.zeros(1, "float32")), move(real))
        return
    for precision in ("fp32", "fp16") if op == "Gather" else ("fp32",):
        np.testing.assert_array_equal(pumice.load(proto, context, precision)(real), move(real))


def test_two_4_bit_tensors_are_concatenated_and_split(context: pumice.Context) -> None:
    nodes = [
        node("Cast", ["x"], ["a"], to=TensorProto.INT4),
        node("Concat", ["a", "a"], ["b"], axis=1),
        node("Split", ["b"], ["c", "d"], axis=0, num_outputs=2),
        node("Shape", ["c"], ["shape"]),
        node("Cast", ["d"], ["y"], to=TensorProto.FLOAT),
    ]
    proto = model(nodes, [value("x", [2, 3])], ["y", "shape"], opset=25)
    x = np.array([[1, -8, 7], [3, -1, 0]], "float32")
    y, shape = pumice.load(proto, context)(x)
    np.testing.assert_array_equal(y, np.concatenate([x, x], 1)[1:])
    assert shape.tolist() == [1, 6]


def test_a_transposed_constant_of_4_bits_keeps_its_kernel(context: pumice.Context) -> None:
    """Block-quantised [K, N] codes with a transpose run as one matmul, like [N, K] codes."""
    draw = np.random.default_rng(0)
    codes, scales = draw.integers(0, 16, (64, 8)), draw.uniform(0.1, 1, (8, 2)).astype("float32")
    nodes = [
        node("Transpose", ["codes"], ["turned"], perm=[1, 0]),
        node("DequantizeLinear", ["turned", "scales"], ["w"], axis=1, block_size=32),
        node("Transpose", ["w"], ["t"], perm=[1, 0]),
        node("MatMul", ["x", "t"]),
    ]
    proto = model(nodes, [value("x", [1, 64])], constants={"scales": scales}, opset=25)
    raw = codes.reshape(-1, 2).astype("uint8")
    proto.graph.initializer.append(
        helper.make_tensor("codes", TensorProto.UINT4, [64, 8], (raw[:, 0] | raw[:, 1] << 4).tobytes(), raw=True)
    )
    made = pumice.load(proto, context)
    x = draw.uniform(-1, 1, (1, 64)).astype("float32")
    expected = x @ (codes.T * np.repeat(scales, 32, 1)).T
    np.testing.assert_allclose(made(x), expected, rtol=1e-4, atol=1e-3)
    assert [row["op"] for row in made.program.report()].count("Cast") == 0
