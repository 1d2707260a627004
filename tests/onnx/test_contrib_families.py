"""All variants of com.microsoft operators: bit widths, zero points, directions, optional inputs; against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice
from contrib_nodes import DOMAIN, Array, random
from exact_sessions import exact_session

FLOAT = TensorProto.FLOAT


def packed(codes: Array, bits: int) -> Array:
    """Pack codes along the last axis into bytes, low bits first."""
    lanes = 8 // bits
    padded = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, -codes.shape[-1] % lanes)])
    parts = padded.reshape(*padded.shape[:-1], -1, lanes).astype("uint8") << np.arange(0, 8, bits, dtype="uint8")
    return np.bitwise_or.reduce(parts, axis=-1)


def single(
    op: str,
    inputs: dict[str, Array],
    constants: dict[str, Any],
    outputs: int = 1,
    dtype: int = FLOAT,
    **attributes: Any,
) -> onnx.ModelProto:
    """A one-node model. Constants of None are omitted; a TensorProto is used for types that NumPy lacks."""
    order = [name if inputs.get(name, constants.get(name)) is not None else "" for name in [*inputs, *constants]]
    while order[-1] == "":
        order.pop()
    names = [f"y{i}" for i in range(outputs)]
    made = helper.make_node(op, order, names, "it", domain=DOMAIN, **attributes)
    weights = [
        one if isinstance(one, TensorProto) else numpy_helper.from_array(one, name)
        for name, one in constants.items()
        if one is not None
    ]
    graph = helper.make_graph(
        [made],
        "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(one.dtype), [None] * one.ndim)
            for name, one in inputs.items()
        ],
        [helper.make_tensor_value_info(name, dtype, None) for name in names],
        weights,
    )
    sets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def expected_of(proto: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    pytest.importorskip("onnxruntime")
    results: list[Array] = exact_session(proto).run(None, inputs)
    return results


# ---- MatMulNBits

ZEROS = ("none", "codes", "whole floats", "fractions")


@pytest.mark.parametrize("zeros", ZEROS)
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_matmuls_with_codes_of_all_bits_and_zero_points(context: pumice.Context, bits: int, zeros: str) -> None:
    """K that does and does not fill the last block, with and without a bias; compared with the dequantized matmul."""
    draw = np.random.default_rng(bits)
    for depth, columns, has_bias in ((64, 5, False), (72, 8, True)):
        block, blocks = 16, -(-depth // 16)
        codes = draw.integers(0, 1 << bits, (columns, blocks * block))
        scales = draw.uniform(0.1, 1, (columns, blocks)).astype("float32")
        points = draw.integers(0, 1 << bits, (columns, blocks)).astype("float32")
        points += 0.375 if zeros == "fractions" else 0
        given = {"none": None, "codes": packed(points.astype("uint8"), bits).reshape(-1)}.get(zeros, points)
        wide = np.repeat(points if zeros != "none" else np.full_like(points, 1 << bits - 1), block, 1)
        matrix = ((codes - wide) * np.repeat(scales, block, 1))[:, :depth]
        bias = random(columns) if has_bias else None
        constants = {
            "b": packed(codes.reshape(columns, blocks, block), bits),
            "scales": scales.reshape(-1),
            "zeros": given,
            "order": None,
            "bias": bias,
        }
        x = random(3, 2, depth)
        proto = single("MatMulNBits", {"x": x}, constants, N=columns, K=depth, block_size=block, bits=bits)
        expected = x.astype("float64") @ matrix.T + (0 if bias is None else bias)
        np.testing.assert_allclose(pumice.load(proto, context)(x), expected, rtol=1e-4, atol=1e-3 * (1 << bits))


def test_a_form_that_is_not_known_is_named(context: pumice.Context) -> None:
    constants = {"b": np.zeros((2, 1, 12), "uint8"), "scales": np.ones(2, "float32")}
    proto = single("MatMulNBits", {"x": random(1, 32)}, constants, N=2, K=32, block_size=32, bits=3)
    with pytest.raises(pumice.UnsupportedError, match="bits = 3; supported: 2, 4, 8"):
        pumice.load(proto, context)
    constants = {"b": np.zeros((2, 1, 16), "uint8"), "scales": np.ones(2, "float32")}
    constants["zeros"] = np.zeros(2, "float16")
    proto = single("MatMulNBits", {"x": random(1, 32)}, constants, N=2, K=32, block_size=32)
    with pytest.raises(pumice.UnsupportedError, match="zero points of float16; supported: uint8 and float32"):
        pumice.load(proto, context)


# ---- GatherBlockQuantized


def table(name: str, codes: Array, dtype: str, bits: int) -> TensorProto:
    """Return the codes as a constant of that type, packed if a byte holds several."""
    shape = [*codes.shape]
    if dtype == "uint8":
        shape[-1] = -(-shape[-1] * bits // 8)
    number = {"uint8": TensorProto.UINT8, "uint4": TensorProto.UINT4, "int4": TensorProto.INT4}[dtype]
    lanes = codes.reshape(-1) if dtype != "uint8" else codes
    return helper.make_tensor(name, number, shape, packed(lanes & (1 << bits) - 1, bits).tobytes(), raw=True)


TABLES = {
    "uint4": ("uint4", 4, 0, 1),
    "int4": ("int4", 4, 0, 1),
    "uint4, the first axis in blocks": ("uint4", 4, 1, 0),
    "int4, one axis for both": ("int4", 4, 1, 1),
    "bytes of 4 bits": ("uint8", 4, 0, 1),
    "bytes of 8 bits": ("uint8", 8, 0, 1),
    "bytes of 2 bits": ("uint8", 2, 0, 1),
}


@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("form", TABLES)
def test_rows_of_a_table_in_blocks(context: pumice.Context, form: str, has_zeros: bool) -> None:
    dtype, bits, gather, quantize = TABLES[form]
    draw, block = np.random.default_rng(1), 16
    shape = (6, 32) if quantize == 1 else (32, 6)
    low = -8 if dtype == "int4" else 0
    codes = draw.integers(low, low + (1 << bits), shape)
    blocks = tuple(-(-size // block) if axis == quantize else size for axis, size in enumerate(shape))
    scales = draw.uniform(0.1, 1, blocks).astype("float32")
    middle = 1 << bits - 1 if dtype == "uint8" else 0
    points = draw.integers(low, low + (1 << bits), blocks) if has_zeros else np.full(blocks, middle)
    constants: dict[str, Any] = {"table": table("table", codes, dtype, bits), "indices": None, "scales": scales}
    constants["zeros"] = table("zeros", points, dtype, bits) if has_zeros else None
    indices = np.array([[0, 5, 3], [2, 1, -1]])
    proto = single("GatherBlockQuantized", {}, constants, gather_axis=gather, quantize_axis=quantize, block_size=block)
    node = proto.graph.node[0]
    node.input[1] = "indices"
    node.attribute.append(helper.make_attribute("bits", bits))
    proto.graph.input.append(helper.make_tensor_value_info("indices", TensorProto.INT64, [None, None]))
    wide = [np.repeat(one, block, quantize) for one in (points, scales)]
    expected = np.take((codes - wide[0]) * wide[1], indices, gather)
    np.testing.assert_allclose(pumice.load(proto, context)(indices), expected, rtol=1e-5, atol=1e-5)
    if form != "bytes of 2 bits":
        np.testing.assert_allclose(expected_of(proto, {"indices": indices})[0], expected, rtol=1e-5, atol=1e-5)


FLOATS = {
    "float8_e4m3fn": TensorProto.FLOAT8E4M3FN,
    "float8_e5m2": TensorProto.FLOAT8E5M2,
    "float4_e2m1fn": getattr(TensorProto, "FLOAT4E2M1", 23),
}


@pytest.mark.parametrize("form", ["blocks", "one block", "one scale", "one axis for both"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_rows_of_a_table_of_floats(context: pumice.Context, dtype: str, form: str) -> None:
    """Float tables have scales but no zero points. Scales may be one block along an axis and are broadcast along others."""
    draw, block, gather = np.random.default_rng(1), 16, 1 if form == "one axis for both" else 0
    elements = draw.uniform(-4, 4, (6, 32)).astype(getattr(ml_dtypes, dtype))
    sizes = {"one block": (6, 1), "one scale": (1, 1)}.get(form, (6, 2))
    scales = draw.uniform(0.1, 1, sizes).astype("float32")
    raw = packed(elements.view("uint8").reshape(-1), 4 if dtype.startswith("float4") else 8).tobytes()
    data = helper.make_tensor("table", FLOATS[dtype], [6, 32], raw, raw=True)
    attributes = {"gather_axis": gather, "quantize_axis": 1, "block_size": 0 if sizes[1] == 1 else block}
    proto = single("GatherBlockQuantized", {}, {"table": data, "indices": None, "scales": scales}, **attributes)
    proto.graph.node[0].input[1] = "indices"
    proto.graph.input.append(helper.make_tensor_value_info("indices", TensorProto.INT64, [None, None]))
    indices = np.array([[0, 5, 3], [2, 1, -1]])
    wide = np.broadcast_to(np.repeat(scales, 32 // sizes[1], 1), (6, 32))
    expected = np.take(elements.astype("float32") * wide, indices, gather)
    np.testing.assert_allclose(pumice.load(proto, context)(indices), expected, rtol=1e-5)


# ---- QuantizeLinear and DequantizeLinear


@pytest.mark.parametrize("per_axis", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
def test_codes_of_8_and_16_bits(context: pumice.Context, dtype: str, per_axis: bool) -> None:
    scale = np.array([0.01, 0.02, 0.5, 1], "float32") if per_axis else np.array(0.01, "float32")
    zero = np.array([3, 100, 0, 7], dtype) if per_axis else np.array(100, dtype)
    x = random(5, 4) * 400
    attributes = {"axis": 1} if per_axis else {}
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    proto = single("QuantizeLinear", {"x": x}, {"scale": scale, "zero": zero}, dtype=number, **attributes)
    codes = pumice.load(proto, context)(x)
    expected = expected_of(proto, {"x": x})[0]
    assert codes.dtype == expected.dtype
    np.testing.assert_array_equal(codes, expected)
    proto = single("DequantizeLinear", {"x": expected}, {"scale": scale, "zero": zero}, **attributes)
    real = pumice.load(proto, context)(expected)
    np.testing.assert_allclose(real, expected_of(proto, {"x": expected})[0], rtol=1e-6, atol=1e-6)


# ---- DynamicQuantizeLSTM

STEPS, BATCH, SIZE, HIDDEN = 4, 3, 5, 4
OPTIONS = ("", "B", "B lengths", "B h c", "B lengths h c P")


@pytest.mark.parametrize("given", OPTIONS)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_a_dynamically_quantized_lstm(context: pumice.Context, direction: str, given: str) -> None:
    """Weights are signed per tensor or unsigned per column. Few cells differ by a code between the two runtimes.

    Weights have 7 bits: without VNNI, ONNX Runtime's AVX2 kernels add pairs of 8-bit products in int16, which saturates.
    """
    names, count = given.split(), 2 if direction == "bidirectional" else 1
    x = random(STEPS, BATCH, SIZE)
    draw = np.random.default_rng(2)
    for dtype, columns in (("int8", 1), ("uint8", 4 * HIDDEN)):
        zero = 0 if dtype == "int8" else 128
        codes = [(zero + draw.integers(-64, 65, (count, rows, 4 * HIDDEN))).astype(dtype) for rows in (SIZE, HIDDEN)]
        terms = [count] if columns == 1 else [count, columns]
        scales = [draw.uniform(0.005, 0.01, terms).astype("float32") for _ in range(2)]
        zeros = [np.full(terms, zero, dtype) for _ in range(2)]
        constants = {
            "W": codes[0],
            "R": codes[1],
            "B": random(count, 8 * HIDDEN) if "B" in names else None,
            "lengths": np.array([4, 2, 3], "int32") if "lengths" in names else None,
            "h": random(count, BATCH, HIDDEN, seed=3) if "h" in names else None,
            "c": random(count, BATCH, HIDDEN, seed=4) if "c" in names else None,
            "P": random(count, 3 * HIDDEN, seed=5) if "P" in names else None,
            "W_scale": scales[0],
            "W_zero": zeros[0],
            "R_scale": scales[1],
            "R_zero": zeros[1],
        }
        attributes = {"hidden_size": HIDDEN, "direction": direction}
        proto = single("DynamicQuantizeLSTM", {"x": x}, constants, outputs=3, **attributes)
        results = pumice.load(proto, context)(x)
        for one, expected in zip(results, expected_of(proto, {"x": x}), strict=True):
            assert one.shape == expected.shape
            np.testing.assert_allclose(one, expected, atol=0.01)


def test_an_lstm_with_other_activations_is_rejected_by_name(context: pumice.Context) -> None:
    constants = {"W": np.zeros((1, SIZE, 16), "int8"), "R": np.zeros((1, HIDDEN, 16), "int8")}
    constants |= dict.fromkeys(("B", "lengths", "h", "c", "P"))
    constants |= {"W_scale": np.ones(1, "float32"), "W_zero": np.zeros(1, "int8")}
    constants |= {"R_scale": np.ones(1, "float32"), "R_zero": np.zeros(1, "int8")}
    for more, text in (({"activations": ["Relu", "Tanh", "Tanh"]}, "activations="), ({"clip": 1.0}, "clip=1.0")):
        attributes: dict[str, Any] = {"hidden_size": HIDDEN, **more}
        proto = single("DynamicQuantizeLSTM", {"x": random(2, 1, SIZE)}, constants, **attributes)
        with pytest.raises(pumice.UnsupportedError, match=text):
            pumice.load(proto, context)
