"""Fused and quantised com.microsoft operators match ONNX Runtime, quantised ones within one step."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pumice
from contrib_nodes import DOMAIN, Array, random
from exact_sessions import exact_session

KINDS = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "float32": TensorProto.FLOAT}


def codes(dtype: str, *shape: int, seed: int = 0) -> Array:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max, shape, dtype, endpoint=True)


def scale(value: float) -> Array:
    return np.array(value, np.float32)


def run(
    context: pumice.Context, op: str, inputs: dict[str, Array | None], dtype: str, constants: int = 0, **attributes: Any
) -> tuple[Array, Array]:
    """Return our results and ONNX Runtime's. The last inputs are constants; inputs of None are omitted."""
    pytest.importorskip("onnxruntime")
    names = list(inputs)
    made = helper.make_node(
        op, [name if inputs[name] is not None else "" for name in names], ["y"], "it", domain=DOMAIN, **attributes
    )
    fixed = names[len(names) - constants :]
    given = {name: array for name, array in inputs.items() if array is not None and name not in fixed}
    graph = helper.make_graph(
        [made],
        "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in given.items()
        ],
        [helper.make_tensor_value_info("y", KINDS[dtype], None)],
        [onnx.numpy_helper.from_array(inputs[name], name) for name in fixed if inputs[name] is not None],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    expected = exact_session(proto).run(None, given)[0]
    result = pumice.load(proto, context)(**given)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    return result, expected


def check_codes(result: Array, expected: Array) -> None:
    apart = np.abs(result.astype(int) - expected.astype(int))
    assert apart.max() <= 1
    assert np.mean(apart > 0) < 0.05  # ties may round differently
    assert len(np.unique(expected)) > 3


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_two_quantised_tensors(context: pumice.Context, op: str, dtype: str) -> None:
    zero = np.array(3, dtype)
    inputs = {
        "a": codes(dtype, 8, 6, 9),
        "a_scale": scale(0.02),
        "a_zero": zero,
        "b": codes(dtype, 6, 1, seed=1),
        "b_scale": scale(0.03),
        "b_zero": np.array(9, dtype),
        "y_scale": scale(0.05),
        "y_zero": zero,
    }
    check_codes(*run(context, op, inputs, dtype))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("QLinearSigmoid", {}),
        ("QLinearLeakyRelu", {"alpha": 0.2}),
        ("QLinearGlobalAveragePool", {"channels_last": 0}),
        ("QLinearAveragePool", {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [0, 1, 0, 1]}),
        ("QLinearSoftmax", {"axis": -1, "opset": 13}),
    ],
)
def test_one_quantised_tensor(context: pumice.Context, op: str, attributes: dict[str, Any], dtype: str) -> None:
    step = {"QLinearSigmoid": 1 / 256, "QLinearSoftmax": 1 / 256, "QLinearGlobalAveragePool": 0.006}.get(op, 0.02)
    inputs = {
        "x": codes(dtype, 2, 3, 6, 7) // (1 if "Global" not in op else np.array(3, dtype)),
        "x_scale": scale(0.02),
        "x_zero": np.array(5, dtype),
        "y_scale": scale(step),
        "y_zero": np.array(0 if op != "QLinearLeakyRelu" else 2, dtype),
    }
    check_codes(*run(context, op, inputs, dtype, 4, **attributes))


def test_quantised_tensors_in_a_row_and_by_a_condition(context: pumice.Context) -> None:
    parts: dict[str, Array | None] = {"y_scale": scale(0.03), "y_zero": np.array(7, np.uint8)}
    for i, step in enumerate((0.02, 0.03, 0.05)):
        parts |= {
            f"x{i}": codes("uint8", 2, 3 + i, seed=i),
            f"s{i}": scale(step),
            f"z{i}": np.array(i, np.uint8),
        }
    check_codes(*run(context, "QLinearConcat", parts, "uint8", axis=1))
    chosen: dict[str, Array | None] = {"c": random(4, 6) > 0}
    for i, step in enumerate((0.02, 0.03)):
        chosen |= {f"x{i}": codes("uint8", 4, 6, seed=i), f"s{i}": scale(step), f"z{i}": np.array(i, np.uint8)}
    chosen |= {"y_scale": scale(0.03), "y_zero": np.array(7, np.uint8)}
    check_codes(*run(context, "QLinearWhere", chosen, "uint8"))


@pytest.mark.parametrize("quantised", [True, False])
def test_quantised_gemm(context: pumice.Context, quantised: bool) -> None:
    inputs = {
        "a": codes("uint8", 4, 6),
        "a_scale": scale(0.02),
        "a_zero": np.array(120, np.uint8),
        "b": codes("int8", 5, 6, seed=1),
        "b_scale": scale(0.03),
        "b_zero": np.array(0, np.int8),
        "c": np.arange(-200, 300, 100, dtype=np.int32),
        "y_scale": scale(0.2) if quantised else None,
        "y_zero": np.array(128, np.uint8) if quantised else None,
    }
    result, expected = run(context, "QGemm", inputs, "uint8" if quantised else "float32", 8, transB=1, alpha=1.0)
    if quantised:
        check_codes(result, expected)
    else:
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("columns", [True, False])
def test_matmuls_of_integers_as_floats(context: pumice.Context, bias: bool, columns: bool) -> None:
    b_scale = np.linspace(0.01, 0.05, 5, dtype=np.float32) if columns else scale(0.02)
    weights = {
        "b": codes("int8", 6, 5, seed=1),
        "b_scale": b_scale,
        "b_zero": np.zeros(5, np.int8) if columns else np.array(3, np.int8),
        "bias": random(5) if bias else None,
    }
    result, expected = run(context, "DynamicQuantizeMatMul", {"a": random(2, 4, 6), **weights}, "float32", 4)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-3)
    inputs = {
        "a": codes("uint8", 2, 4, 6),
        "b": weights["b"],
        "a_scale": scale(0.02),
        "b_scale": b_scale,
        "a_zero": np.array(100, np.uint8),
        "b_zero": weights["b_zero"],
        "bias": weights["bias"],
    }
    result, expected = run(context, "MatMulIntegerToFloat", inputs, "float32")
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


ACTIVATIONS: list[tuple[str, list[float]]] = [
    ("Relu", []),
    ("Tanh", []),
    ("Sigmoid", []),
    ("LeakyRelu", [0.1]),
    ("Clip", [-0.25, 0.5]),
    ("HardSigmoid", [0.3, 0.4]),
]


@pytest.mark.parametrize(("activation", "parameters"), ACTIVATIONS)
def test_convolutions_and_matmuls_with_an_activation(
    context: pumice.Context, activation: str, parameters: list[float]
) -> None:
    conv: dict[str, Array | None] = {"x": random(1, 3, 6, 5), "w": random(4, 3, 3, 3, seed=1), "b": random(4, seed=2)}
    options = {"activation": activation, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    if parameters:
        options["activation_params"] = parameters
    np.testing.assert_allclose(*run(context, "FusedConv", conv, "float32", **options), rtol=1e-5, atol=1e-5)
    if activation == "Relu":
        conv["z"] = random(1, 4, 6, 5, seed=3)
        np.testing.assert_allclose(*run(context, "FusedConv", conv, "float32", **options), rtol=1e-5, atol=1e-5)
    if activation in ("Clip", "HardSigmoid"):  # ONNX Runtime has no such fused matmul
        return
    gemm: dict[str, Array | None] = {"a": random(4, 6), "b": random(6, 5, seed=1), "c": random(5, seed=2)}
    more = dict(zip(("activation_alpha", "activation_beta"), parameters, strict=False))
    results = run(context, "FusedGemm", gemm, "float32", activation=activation, **more)
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)
