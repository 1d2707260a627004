"""Operator(..., activation=...): the epilogue equals the operator of that name, or is rejected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from binding_tables import execute, initialise
from pumice import TensorDesc

UNARY: list[Any] = [
    "Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "HardSwish", "Mish", "Abs", "Neg", "Exp", "Sqrt", "Erf",
    ("LeakyRelu", {"alpha": 0.3}), ("Elu", {"alpha": 2.0}), ("HardSigmoid", {"alpha": 0.5, "beta": 0.25}), "HardSigmoid",
    ("ThresholdedRelu", {"alpha": 0.25}), ("Gelu", {"approximate": "tanh"}), "Gelu", ("Swish", {"alpha": 2.0}),
    ("Celu", {"alpha": 0.5}), "Selu", ("Shrink", {"bias": 0.1, "lambd": 0.2}),
]  # fmt: skip


def desc(*shape: int, dtype: str = "float32", strides: list[int] | None = None) -> TensorDesc:
    return TensorDesc(dtype, shape, strides)


OPERATORS: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "Conv": ("Conv", [desc(1, 4, 7, 7), desc(8, 4, 3, 3), desc(8)], {"pads": [1, 1, 1, 1]}),
    "depthwise": ("Conv", [desc(1, 8, 7, 7), desc(8, 1, 3, 3), desc(8)], {"group": 8}),
    "ConvTranspose": ("ConvTranspose", [desc(1, 4, 5, 5), desc(4, 4, 3, 3), None], {}),
    "MatMul": ("MatMul", [desc(5, 12), desc(12, 7)], {}),
    "Gemm": ("Gemm", [desc(5, 12), desc(12, 8), desc(8)], {"alpha": 0.5}),
    "Add": ("Add", [desc(3, 5), desc(5)], {}),
    "strided": ("Add", [desc(4, 6, strides=[1, 4]), desc(4, 6)], {}),
    "MaxPool": ("MaxPool", [desc(1, 3, 8, 8)], {"kernel_shape": [2, 2]}),
    "AveragePool": ("AveragePool", [desc(1, 4, 8, 8)], {"kernel_shape": [3, 3]}),
    "GlobalAveragePool": ("GlobalAveragePool", [desc(1, 4, 8, 8)], {}),
    "BatchNormalization": ("BatchNormalization", [desc(1, 4, 3, 3), *[desc(4)] * 4], {}),
    "NHWC": (
        "Conv",
        [desc(1, 4, 6, 6, strides=[144, 1, 24, 4]), desc(4, 4, 3, 3), None],
        {},
    ),
}


def run(context: pumice.Context, described: pumice.Operator, inputs: list[Any], outputs: list[TensorDesc]) -> Any:
    compiled = described.compile(context)
    initialise(context, compiled)
    rng = np.random.default_rng(5)
    given = []
    for one in inputs:
        if one is None:
            given.append(None)
            continue
        tensor = pumice.Tensor(one, pumice.Buffer(context, one.bytes))
        tensor.upload(np.abs(rng.standard_normal(one.shape)).astype(one.dtype) - (0.4 if one.rank > 1 else 0))
        given.append(tensor)
    made = [pumice.Tensor(one, pumice.Buffer(context, one.bytes)) for one in outputs]
    execute(context, compiled, given, made)
    return made[0]


def applied(context: pumice.Context, x: pumice.Tensor, activation: Any) -> np.ndarray:
    name, attributes = (activation, {}) if isinstance(activation, str) else activation
    graph = pumice.Graph()
    graph.output("y", graph.add(name, graph.input("x", str(x.dtype), x.shape), **attributes))
    return graph.compile(context)({"x": x.numpy()})["y"]


@pytest.mark.parametrize("kind", OPERATORS)
def test_an_activation_is_the_operator_of_its_name(context: pumice.Context, kind: str) -> None:
    name, inputs, attributes = OPERATORS[kind]
    outputs = [one for one in pumice.output_descs(name, inputs, **attributes) if one is not None]
    plain = run(context, pumice.Operator(name, inputs, outputs, **attributes), inputs, outputs)
    few = np.random.default_rng(len(kind)).permutation(len(UNARY))[:4]
    chosen = UNARY if kind in ("MatMul", "Add", "depthwise") else [UNARY[i] for i in few]
    for activation in chosen:
        described = pumice.Operator(name, inputs, outputs, activation=activation, **attributes)
        fused = run(context, described, inputs, outputs)
        np.testing.assert_allclose(
            fused.numpy(), applied(context, plain, activation), rtol=2e-6, atol=2e-6, err_msg=str(activation)
        )


def test_half_floats_are_rounded_once(context: pumice.Context) -> None:
    """The activation is applied to the fp32 sum, as in a fused node of a model."""
    inputs, output = [desc(4, 64, dtype="float16"), desc(64, 4, dtype="float16")], desc(4, 4, dtype="float16")
    described = pumice.Operator("MatMul", inputs, [output], activation=("LeakyRelu", {"alpha": 0.1}))
    plain = run(context, pumice.Operator("MatMul", inputs, [output]), inputs, [output]).numpy().astype("float32")
    fused = run(context, described, inputs, [output]).numpy().astype("float32")
    np.testing.assert_allclose(fused, np.where(plain < 0, 0.1 * plain, plain), rtol=2e-3)


def test_what_is_no_activation_is_rejected_by_name(context: pumice.Context) -> None:
    square = desc(4, 4)
    for wrong in ("Softmax", "Add", "Nothing", "Cast", "Not", "Clip"):
        with pytest.raises(pumice.UnsupportedError, match=f"activation '{wrong}'; supported: .*Relu.*Sigmoid"):
            pumice.Operator("Relu", [square], [square], activation=wrong)
    with pytest.raises(pumice.GraphError, match="gamma"):
        pumice.Operator("Relu", [square], [square], activation=("LeakyRelu", {"gamma": 1.0}))
    for given in (5, ("Relu",), ("Relu", {}, {}), ("Relu", 3)):
        with pytest.raises(TypeError):
            pumice.Operator("Relu", [square], [square], activation=given)  # type: ignore[arg-type]
    integers = desc(4, dtype="int32")
    with pytest.raises(pumice.UnsupportedError, match="does not have a single float output"):
        pumice.Operator("Add", [integers, integers], [integers], activation="Abs")
    values, indices = desc(4, 2), desc(4, 2, dtype="int64")
    with pytest.raises(pumice.UnsupportedError, match="does not have a single float output"):
        pumice.Operator("TopK", [square, np.array([2])], [values, indices], activation="Relu")


def test_an_operator_whose_kernels_apply_none_is_rejected_by_name(context: pumice.Context) -> None:
    refused, taken = [], []
    cases: dict[str, tuple[list[Any], dict[str, Any]]] = {
        "Softmax": ([desc(4, 6)], {}),
        "Transpose": ([desc(4, 6)], {"perm": [1, 0]}),
        "Gather": ([desc(4, 6), desc(2, dtype="int64")], {}),
        "CumSum": ([desc(4, 6), np.array(1)], {}),
        "Relu": ([desc(4, 6)], {}),
        "ReduceMax": ([desc(4, 6), np.array([1])], {}),
        "Add64": ([desc(4, 6, dtype="float64"), desc(4, 6, dtype="float64")], {}),
    }
    if not context.feature("shaderFloat64"):
        del cases["Add64"]
    for name, (inputs, attributes) in cases.items():
        op = name.rstrip("64")
        outputs = pumice.output_descs(op, inputs, **attributes)
        described = pumice.Operator(op, inputs, outputs, activation="Neg", **attributes)
        try:
            described.compile(context)
            taken.append(name)
        except pumice.UnsupportedError as error:
            assert f"operator {op} with an activation" in str(error)
            refused.append(name)
    assert {"Relu", "ReduceMax"} <= set(taken)
    assert {"Transpose", "Add64"} & set(cases) <= set(refused)


def test_the_descriptions_of_outputs_are_public() -> None:
    (output,) = pumice.output_descs("Conv", [desc(1, 3, 8, 8), desc(5, 3, 3, 3), None], strides=[2, 2])
    assert output == desc(1, 5, 3, 3)
    first, second = pumice.output_descs("TopK", [desc(4, 9), np.array([3])], 2)
    assert first is not None
    assert second is not None
    assert (first.dtype, second.dtype, first.shape, second.shape) == ("float32", "int64", (4, 3), (4, 3))
    (reshaped,) = pumice.output_descs("Reshape", [desc(2, 6), np.array([3, -1])])
    assert reshaped == desc(3, 4)
    with pytest.raises(pumice.GraphError) as caught:
        pumice.output_descs("Add", [desc(2)])
    assert caught.value.rule == "G1"
    pumice.Operator("Conv", [desc(1, 3, 8, 8), desc(5, 3, 3, 3), None], [output], strides=[2, 2])
