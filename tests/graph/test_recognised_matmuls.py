"""Convolutions and matmuls recognised in larger patterns: on integers (QDQ), with block-quantised weights, with norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import pumice

FLOAT = TensorProto.FLOAT


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[int | str]],
    constants: dict[str, np.ndarray[Any, Any] | onnx.TensorProto],
    opset: int = 21,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [
            value if isinstance(value, onnx.TensorProto) else numpy_helper.from_array(value, name)
            for name, value in constants.items()
        ],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def expected(model: onnx.ModelProto, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(ReferenceEvaluator(model).run(None, {"x": x})[0])


def kernels(model: pumice.Model) -> dict[str, tuple[str, str]]:
    return {row["node"]: (row["kernel"], row["note"]) for row in model.program.report()}


# ---- QDQ


def quantised_conv(activation: str, per_channel: bool, bias: bool, zero: int = 7) -> onnx.ModelProto:
    random = np.random.default_rng(3)
    channels = 6
    w_scale = np.float32(0.02) * (np.arange(channels) % 3 + 1).astype("float32") if per_channel else np.float32(0.02)
    constants: dict[str, Any] = {
        "x_s": np.array(0.05, "float32"),
        "x_z": np.array(120, "uint8"),
        "w": random.integers(-127, 128, (channels, 5, 3, 3)).astype("int8"),
        "w_s": w_scale if per_channel else np.array(w_scale, "float32"),
        "w_z": np.zeros(channels if per_channel else (), "int8"),
        "y_s": np.array(0.2, "float32"),
        "y_z": np.array(zero, "uint8"),
    }
    inputs = ["xf", "wf"]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x_s", "x_z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "x_s", "x_z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "w_s", "w_z"], ["wf"], axis=0),
    ]
    if bias:
        constants["b"] = random.integers(-4000, 4000, channels).astype("int32")
        constants["b_s"] = (constants["x_s"] * constants["w_s"]).astype("float32")
        nodes.append(helper.make_node("DequantizeLinear", ["b", "b_s"], ["bf"], axis=0))
        inputs.append("bf")
    nodes.append(helper.make_node("Conv", inputs, ["c"], name="conv", pads=[1, 1, 1, 1], strides=[2, 1]))
    made = "c"
    if activation:
        nodes.append(helper.make_node(activation, ["c"], ["a"], name="activation"))
        made = "a"
    nodes += [
        helper.make_node("QuantizeLinear", [made, "y_s", "y_z"], ["yq"], name="quantise"),
        helper.make_node("DequantizeLinear", ["yq", "y_s", "y_z"], ["y"]),
    ]
    return model_of(nodes, {"x": ["N", 5, 9, 8]}, constants)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
def test_a_convolution_between_quantisations_runs_on_integers(per_channel: bool, bias: bool) -> None:
    proto = quantised_conv("", per_channel, bias)
    x = np.random.default_rng(0).uniform(-5, 6, (2, 5, 9, 8)).astype("float32")
    with pumice.Model(proto) as model:
        y = model(x)
        rows = kernels(model)
    assert rows["quantise"][1] == "fused into conv"
    assert np.abs(y - expected(proto, x)).max() <= 0.2 * 1.001  # one step, for a sum halfway between two
    assert np.mean(y != expected(proto, x)) < 0.01


def test_an_activation_that_the_integers_imply_is_left_out() -> None:
    x = np.random.default_rng(0).uniform(-5, 6, (1, 5, 9, 8)).astype("float32")
    for zero, note in ((0, "fused into conv"), (7, "")):
        proto = quantised_conv("Relu", False, True, zero)
        with pumice.Model(proto) as model:
            y = model(x)
            assert kernels(model)["quantise"][1] == note
        assert np.abs(y - expected(proto, x)).max() <= 0.2 * 1.001


@pytest.mark.parametrize("per_column", [False, True])
def test_a_matmul_between_quantisations_runs_on_integers(per_column: bool) -> None:
    random = np.random.default_rng(5)
    columns = 12
    constants: dict[str, Any] = {
        "x_s": np.array(0.04, "float32"),
        "x_z": np.array(-3, "int8"),
        "w": random.integers(-127, 128, (20, columns)).astype("int8"),
        "w_s": np.linspace(0.01, 0.03, columns, dtype="float32") if per_column else np.array(0.02, "float32"),
        "y_s": np.array(0.3, "float32"),
        "y_z": np.array(4, "int8"),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x_s", "x_z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "x_s", "x_z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "w_s"], ["wf"], axis=1),
        helper.make_node("MatMul", ["xf", "wf"], ["m"], name="product"),
        helper.make_node("QuantizeLinear", ["m", "y_s", "y_z"], ["yq"], name="quantise"),
        helper.make_node("DequantizeLinear", ["yq", "y_s", "y_z"], ["y"]),
    ]
    proto = model_of(nodes, {"x": ["N", 3, 20]}, constants)
    x = random.uniform(-5, 5, (2, 3, 20)).astype("float32")
    with pumice.Model(proto) as model:
        y = model(x)
        assert kernels(model)["quantise"][1] == "fused into product"
    assert np.abs(y - expected(proto, x)).max() <= 0.3 * 1.001


def test_a_bias_of_another_scale_stays_a_float() -> None:
    proto = quantised_conv("", False, True)
    scale = next(one for one in proto.graph.initializer if one.name == "b_s")
    scale.CopyFrom(numpy_helper.from_array(np.array(0.5, "float32"), "b_s"))
    x = np.random.default_rng(0).uniform(-5, 6, (1, 5, 9, 8)).astype("float32")
    with pumice.Model(proto) as model:
        y = model(x)
        assert kernels(model)["quantise"][1] == ""
    assert np.abs(y - expected(proto, x)).max() <= 0.2 * 1.001


# ---- block-quantised weights


def packed_nibbles(codes: np.ndarray[Any, Any], name: str, dtype: int) -> onnx.TensorProto:
    flat = codes.reshape(-1).astype("uint8") & 15
    flat = np.append(flat, np.zeros(flat.size % 2, "uint8"))
    return helper.make_tensor(name, dtype, codes.shape, (flat[::2] | flat[1::2] << 4).tobytes(), raw=True)


@pytest.mark.parametrize("rows", [1, 3, 9])
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("turned", [True, False])
def test_a_matrix_of_four_bits_in_blocks(turned: bool, signed: bool, rows: int) -> None:
    random = np.random.default_rng(7)
    depth, columns, block = 64, 24, 16
    low = -8 if signed else 0
    codes = random.integers(low, low + 16, (columns, depth) if turned else (depth, columns))
    along = (columns, depth // block) if turned else (depth // block, columns)
    scale = random.uniform(0.01, 0.1, along).astype("float32")
    zero = random.integers(low, low + 16, along)
    dtype = TensorProto.INT4 if signed else TensorProto.UINT4
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["wf"], axis=int(turned), block_size=block),
        *([helper.make_node("Transpose", ["wf"], ["wt"], perm=[1, 0])] if turned else []),
        helper.make_node("MatMul", ["x", "wt" if turned else "wf"], ["m"], name="product"),
        helper.make_node("Relu", ["m"], ["y"]),
    ]
    constants = {"w": packed_nibbles(codes, "w", dtype), "s": scale, "z": packed_nibbles(zero, "z", dtype)}
    proto = model_of(nodes, {"x": ["N", depth]}, constants)
    x = random.standard_normal((rows, depth)).astype("float32")
    with pumice.Model(proto) as model:
        y = model(x)
        notes = [row["note"] for row in model.program.report() if row["op"] == "DequantizeLinear"]
    assert notes == ["fused into product"]
    repeated = [np.repeat(one, block, axis=int(turned)) for one in (scale, zero)]
    matrix = (codes - repeated[1]) * repeated[0]
    wanted = np.maximum(x @ (matrix.T if turned else matrix), 0)
    np.testing.assert_allclose(y, wanted, atol=1e-4 * np.abs(wanted).max())


def test_weights_of_four_bits_stay_of_four_bits_on_the_device() -> None:
    depth = columns = 512
    codes = np.random.default_rng(0).integers(-8, 8, (depth, columns))
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["wf"], axis=0, block_size=128),
        helper.make_node("MatMul", ["x", "wf"], ["y"]),
    ]
    constants = {"w": packed_nibbles(codes, "w", TensorProto.INT4), "s": np.ones((4, columns), "float32")}
    with pumice.Model(model_of(nodes, {"x": [1, depth]}, constants)) as model:
        x = np.ones((1, depth), "float32")
        np.testing.assert_array_equal(model(x)[0], codes.sum(0))
        arena = model.program.arena([[1, depth]])
    assert arena["persistent_bytes"] < depth * columns // 2 + 64 * 1024


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [True, False])
def test_matmul_n_bits_is_that_of_onnxruntime(zeros: bool, bits: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    random = np.random.default_rng(11)
    depth, columns, block = 96, 20, 32
    blocks = depth // block
    constants: dict[str, Any] = {
        "b": random.integers(0, 256, (columns, blocks, block * bits // 8)).astype("uint8"),
        "s": random.uniform(0.01, 0.1, (columns, blocks)).astype("float32"),
    }
    inputs = ["x", "b", "s"]
    if zeros:
        constants["z"] = random.integers(0, 256, (columns, -(-blocks * bits // 8))).astype("uint8")
        inputs.append("z")
    node = helper.make_node(
        "MatMulNBits", inputs, ["y"], domain="com.microsoft", K=depth, N=columns, bits=bits, block_size=block
    )
    proto = model_of([node], {"x": ["N", depth]}, constants, domains=["com.microsoft"])
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with pumice.Model(proto) as model:
        for rows in (1, 2, 7):
            x = random.standard_normal((rows, depth)).astype("float32")
            wanted = session.run(None, {"x": x})[0]
            np.testing.assert_allclose(model(x), wanted, atol=2e-3 * np.abs(wanted).max())


def ordered_product(order: str, bits: int, zeros: bool) -> tuple[Any, np.ndarray]:
    """Return a MatMulNBits with the given order of g_idx, and the matrix [N, K] it represents."""
    random = np.random.default_rng(17)
    depth, columns, block = 96, 20, 32
    blocks = depth // block
    plain = np.repeat(np.arange(blocks), block).astype("int32")
    groups = {
        "plain": plain,
        "mixed": random.permutation(plain),
        "reversed": plain[::-1].copy(),
        "uneven": np.minimum(np.arange(depth) // 31, blocks - 1).astype("int32"),
        "outside": plain + 1,
    }[order]
    codes = random.integers(0, 1 << bits, (columns, depth)).astype("uint8")
    packed = codes if bits == 8 else codes[:, ::2] | codes[:, 1::2] << 4
    points = np.full((columns, blocks), 1 << (bits - 1), "uint8")
    constants: dict[str, Any] = {
        "b": packed.reshape(columns, blocks, -1),
        "s": random.uniform(0.01, 0.1, (columns, blocks)).astype("float32"),
        "g": groups,
    }
    if zeros:
        points = random.integers(0, 1 << bits, (columns, blocks)).astype("uint8")
        even = np.pad(points, ((0, 0), (0, blocks % 2)))
        constants["z"] = points if bits == 8 else even[:, ::2] | even[:, 1::2] << 4
    node = helper.make_node(
        "MatMulNBits",
        ["x", "b", "s", "z" if zeros else "", "g"],
        ["y"],
        domain="com.microsoft",
        K=depth,
        N=columns,
        bits=bits,
        block_size=block,
    )
    known = np.clip(groups, 0, blocks - 1)
    matrix = (codes.astype("float64") - points[:, known]) * constants["s"][:, known]
    return model_of([node], {"x": ["N", depth]}, constants, domains=["com.microsoft"]), matrix


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("order", ["plain", "mixed", "reversed"])
def test_columns_of_a_block_may_lie_anywhere(order: str, bits: int, zeros: bool) -> None:
    proto, matrix = ordered_product(order, bits, zeros)
    with pumice.Model(proto) as model:
        for rows in (1, 7):
            x = np.random.default_rng(rows).standard_normal((rows, matrix.shape[1])).astype("float32")
            wanted, size = x @ matrix.T, np.abs(x) @ np.abs(matrix).T
            assert (np.abs(model(x) - wanted) <= (matrix.shape[1] + 4) * 2.0**-23 * size).all()
        assert any("Gather" in row["op"] for row in model.program.report()) == (order != "plain")


@pytest.mark.parametrize(
    ("order", "error", "message"),
    [
        ("uneven", pumice.UnsupportedError, "g_idx whose blocks are not of 32 columns each"),
        (
            "outside",
            pumice.GraphError,
            "g_idx: expected 96 numbers of blocks from 0 to 2, given numbers from 1 to 3",
        ),
    ],
)
def test_other_orders_are_rejected(order: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pumice.Model(ordered_product(order, 4, False)[0])


# ---- norms


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_norm_after_a_convolution_becomes_part_of_its_weights(op: str, bias: bool, precision: str) -> None:
    random = np.random.default_rng(13)
    constants = {
        "w": random.standard_normal((5, 4, 3, 3) if op == "Conv" else (4, 5, 3, 3)).astype("float32"),
        "b": random.standard_normal(5).astype("float32"),
        "scale": random.uniform(0.5, 2, 5).astype("float32"),
        "shift": random.standard_normal(5).astype("float32"),
        "mean": random.standard_normal(5).astype("float32"),
        "variance": random.uniform(0.5, 2, 5).astype("float32"),
    }
    nodes = [
        helper.make_node(op, ["x", "w", "b"] if bias else ["x", "w"], ["c"], name="conv"),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["n"], name="norm"),
        helper.make_node("Relu", ["n"], ["y"], name="relu"),
    ]
    proto = model_of(nodes, {"x": ["N", 4, 7, 6]}, constants)
    x = random.standard_normal((2, 4, 7, 6)).astype("float32")
    with pumice.Model(proto, precision=precision) as model:
        y = model(x)
        rows = kernels(model)
        assert rows["norm"][1] == rows["relu"][1] == "fused into conv"
    wanted = expected(proto, x)
    tolerance = 1e-5 if precision == "fp32" else 4e-3
    np.testing.assert_allclose(y, wanted, atol=tolerance * np.abs(wanted).max())


def test_a_norm_stays_where_something_else_reads_the_convolution() -> None:
    random = np.random.default_rng(17)
    constants = {"w": random.standard_normal((3, 2, 1, 1)).astype("float32"), "ones": np.ones(3, "float32")}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("BatchNormalization", ["c", "ones", "ones", "ones", "ones"], ["n"], name="norm"),
        helper.make_node("Mul", ["c", "n"], ["y"]),
    ]
    proto = model_of(nodes, {"x": [1, 2, 4, 4]}, constants)
    x = random.standard_normal((1, 2, 4, 4)).astype("float32")
    with pumice.Model(proto) as model:
        np.testing.assert_allclose(model(x), expected(proto, x), atol=1e-5)
        assert "fused" not in kernels(model)["norm"][1]
