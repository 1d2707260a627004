"""Rules and kernels of the same formula, with random inputs and attributes: the device at each precision, and the rule in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.parser
import pytest

import pumice
from onnx_models import model, node, value
from pumice.validation.reference.reference_model import RuleRunner
from pumice.validation.rules.bounded_tensor import BoundedTensor
from pumice.validation.rules.float_types import ProgramTypes

Array = np.ndarray[Any, Any]
FLOAT = np.float32
SEEDS = 3


class Case(NamedTuple):
    """A single node: operator, attributes, inputs, constants, and its NumPy result in float64."""

    op: str
    inputs: list[Array]
    expected: Callable[..., Any]
    attributes: Mapping[str, Any] = MappingProxyType({})
    constants: Mapping[int, Array] = MappingProxyType({})
    domain: str = ""


def erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[float])(x)


def softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


def normal(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centred = x - x.mean(axes, keepdims=True)
    return np.asarray(centred / np.sqrt(np.square(centred).mean(axes, keepdims=True) + epsilon))


def attention(q: Array, k: Array, v: Array, heads: int, causal: bool) -> Array:
    def apart(x: Array) -> Array:
        return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(0, 2, 1, 3)

    q, k, v = map(apart, (q, k, v))
    scores = q @ np.swapaxes(k, 2, 3) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.arange(k.shape[2]) > np.arange(q.shape[2])[:, None], -np.inf, scores)
    y = softmax(scores, -1) @ v
    return np.asarray(y.transpose(0, 2, 1, 3).reshape(y.shape[0], y.shape[2], -1))


def cases(random: np.random.Generator) -> list[Case]:
    def draw(*shape: int, scale: float | None = None) -> Array:
        size = float(10 ** random.uniform(-1, 1.3)) if scale is None else scale
        return (size * random.standard_normal(shape)).astype(FLOAT)

    rows, width = (int(n) for n in random.integers(2, 40, 2))
    alpha = float(np.float32(random.uniform(0.1, 2)))
    axis = int(random.integers(0, 2))
    epsilon = float(np.float32(10 ** random.uniform(-6, -3)))
    wide = np.linspace(-13, 13, 301).astype(FLOAT)
    queries, keys = (int(n) for n in random.integers(1, 9, 2))
    integers = random.integers(-(2**63), 2**63 - 1, 50)
    integers[0] = -(2**63)
    divisor = random.integers(1, 1000, 50) * random.choice([-1, 1], 50)
    divisor[0] = 3
    steps = np.array(
        [
            int(a) // int(b) + (int(a) % int(b) != 0 and (a < 0) != (b < 0))
            for a, b in zip(integers, divisor, strict=True)
        ]
    )
    maps: dict[str, Callable[..., Any]] = {
        "Exp": np.exp,
        "Erf": erf,
        "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "Tanh": np.tanh,
        "Softplus": lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0),
        "Sin": np.sin,
        "Cos": np.cos,
        "Gelu": lambda x: x * np.vectorize(math.erfc, otypes=[float])(-x / math.sqrt(2)) / 2,
        "Softsign": lambda x: x / (1 + np.abs(x)),
    }
    found = [Case(op, [np.concatenate([draw(rows * width), wide])], run) for op, run in maps.items()]
    x = draw(rows, width, scale=float(random.choice([1, 5, 20, 60])))
    return [
        *found,
        Case("Softmax", [x], lambda v: softmax(v, axis), {"axis": axis}),
        Case("LogSoftmax", [x], lambda v: np.log(softmax(v, axis)), {"axis": axis}),
        Case(
            "ReduceLogSumExp",
            [x],
            lambda v: np.log(np.exp(v - v.max(1, keepdims=True)).sum(1, keepdims=True)) + v.max(1, keepdims=True),
            constants={1: np.array([1])},
        ),
        Case(
            "LayerNormalization",
            [draw(rows, width)],
            lambda v: normal(v, (1,), epsilon),
            {"epsilon": epsilon},
            {1: np.ones(width, FLOAT)},
        ),
        Case("Elu", [draw(rows, width)], lambda v: np.where(v > 0, v, alpha * np.expm1(v)), {"alpha": alpha}),
        Case("MatMul", [draw(rows, width), draw(width, 5)], np.matmul),
        Case("Div", [integers, divisor], lambda a, b: steps),
        *(
            Case(
                "MultiHeadAttention",
                [draw(2, queries, 8), draw(2, keys, 8), draw(2, keys, 8)],
                lambda q, k, v, causal=causal: attention(q, k, v, 2, bool(causal)),
                {"num_heads": 2, "unidirectional": causal},
                domain="com.microsoft",
            )
            for causal in (0, 1)
        ),
        Case("Resize", [draw(1, 2, 7, 9)], lambda v: None, crop(), resized(random)),
        Case(
            "Resize",
            [draw(1, 2, 7, 9)],
            lambda v: None,
            {"mode": str(random.choice(["linear", "cubic", "nearest"]))},
            resized(random),
        ),
    ]


def crop() -> dict[str, Any]:
    return {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 3.0}


def resized(random: np.random.Generator) -> dict[int, Array]:
    """Return the `roi` and `scales` inputs of a Resize, by input index."""
    region = np.concatenate([[0, 0], random.uniform(-0.2, 0.5, 2), [1, 1], random.uniform(0.6, 1.3, 2)])
    return {1: region.astype(FLOAT), 2: np.array([1, 1, *random.uniform(0.4, 2.7, 2)], FLOAT)}


def built(made: list[Case]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    nodes, inputs, constants, outputs = [], [], {}, []
    arrays: dict[str, Array] = {}
    for i, case in enumerate(made):
        names = []
        given = iter(case.inputs)
        for place in range(len(case.inputs) + len(case.constants)):
            name = f"i{i}_{place}"
            names.append(name)
            if place in case.constants:
                constants[name] = case.constants[place]
                continue
            arrays[name] = next(given)
            inputs.append(value(name, arrays[name].shape, onnx.helper.np_dtype_to_tensor_dtype(arrays[name].dtype)))
        nodes.append(node(case.op, names, [f"y{i}"], name=f"{case.op}_{i}", domain=case.domain, **case.attributes))
        outputs.append(f"y{i}")
    proto = model(nodes, inputs, outputs, constants, opset=20)
    proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return proto, arrays


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_kernel_is_called_wrong(seed: int, precision: str, context: pumice.Context) -> None:
    proto, arrays = built(cases(np.random.default_rng(seed)))
    report = pumice.validate(proto, [arrays], context=context, precision=precision)
    assert not [row for row in (*report.rows, *report.kernels) if row.verdict == "wrong"], report.summary
    assert len(report.kernels) > 0.8 * len(proto.graph.node)


@pytest.mark.parametrize("seed", range(20))
def test_values_of_rules_are_those_of_numpy(seed: int) -> None:
    proto, arrays = built(cases(np.random.default_rng(seed)))
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in proto.graph.initializer}
    runner = RuleRunner({"": 20, "com.microsoft": 1}, ProgramTypes("fp32"))
    for one, case in zip(proto.graph.node, cases(np.random.default_rng(seed)), strict=True):
        given = [BoundedTensor(arrays[name] if name in arrays else constants[name], None) for name in one.input]
        (made,) = runner.run_node(one, list(given), {})
        expected = case.expected(*(array.astype(float) if array.dtype == FLOAT else array for array in case.inputs))
        assert isinstance(made, BoundedTensor)
        if expected is None:  # for Resize, use ONNX's reference
            expected = onnx_reference(one, {**arrays, **constants})
            np.testing.assert_allclose(made.value, expected, rtol=1e-3, atol=1e-3)
        elif made.is_float:
            np.testing.assert_allclose(
                made.value, expected, rtol=1e-9, atol=1e-14 if case.op == "LogSoftmax" else 1e-300, err_msg=case.op
            )
        else:
            np.testing.assert_array_equal(made.value, expected)


def onnx_reference(one: onnx.NodeProto, arrays: dict[str, Array]) -> Array:
    from onnx.reference import ReferenceEvaluator

    inputs = [value(name, arrays[name].shape) for name in one.input]
    proto = model([one], inputs, list(one.output), opset=20)
    return np.asarray(ReferenceEvaluator(proto).run(None, {name: arrays[name] for name in one.input})[0])


# ---- kernels of several nodes


def small(
    nodes: list[onnx.NodeProto], x: Array, outputs: tuple[str, ...] = ("y",), **constants: Array
) -> onnx.ModelProto:
    return model(nodes, [value("x", x.shape)], outputs, constants)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_a_gelu_written_with_erf_is_right(precision: str, context: pumice.Context) -> None:
    """The kernel computes the normal CDF, whose error differs from that of 1 + erf(x)."""
    nodes = [
        node("Div", ["x", "s"], ["d"]),
        node("Erf", ["d"], ["e"]),
        node("Add", ["e", "o"], ["a"]),
        node("Mul", ["x", "a"], ["m"]),
        node("Mul", ["m", "h"]),
    ]
    x = np.random.default_rng(0).standard_normal((128, 768)).astype(FLOAT)
    constants = {"s": np.array(2**0.5, FLOAT), "o": np.array(1, FLOAT), "h": np.array(0.5, FLOAT)}
    report = pumice.validate(small(nodes, x, **constants), [x], context=context, precision=precision)
    assert report.ok and len(report.kernels) == 1, report.summary


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("seed", [0, 1])
def test_weights_that_are_rounded_once_they_are_folded_are_right(
    seed: int, precision: str, context: pumice.Context
) -> None:
    random = np.random.default_rng(seed)
    constants = {"w": 0.3 * random.standard_normal((64, 8, 1, 1)), "g": random.uniform(0.5, 2, 64)}
    constants |= {"b": random.standard_normal(64), "m": random.standard_normal(64), "v": random.uniform(0.2, 2, 64)}
    nodes = [node("Conv", ["x", "w"], ["c"]), node("BatchNormalization", ["c", "g", "b", "m", "v"])]
    x = random.standard_normal((1, 8, 60, 60)).astype(FLOAT)
    source = small(nodes, x, **{name: array.astype(FLOAT) for name, array in constants.items()})
    report = pumice.validate(source, [x], context=context, precision=precision)
    assert report.ok, report.summary


def test_squares_beyond_float32_are_infinite_inside_a_kernel_too(context: pumice.Context) -> None:
    nodes = [
        node("Mul", ["x", "x"], ["s"]),
        node("ReduceMean", ["s"], ["m"], axes=[-1]),
        node("Add", ["m", "e"], ["a"]),
        node("Sqrt", ["a"], ["q"]),
        node("Div", ["x", "q"], ["d"]),
        node("Mul", ["d", "w"]),
    ]
    x = (np.random.default_rng(0).standard_normal((4, 64)) * 1e20).astype(FLOAT)
    constants = {"e": np.array(1e-5, FLOAT), "w": np.full(64, 2, FLOAT)}
    with pumice.load(small(nodes, x, **constants), context) as loaded:
        assert not np.any(loaded(x))
        report = pumice.validate(loaded, [x])
    assert report.ok and "layer_norm" in report.kernels[-1].kernel, report.summary


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_whole_numbers_stay_exact_where_floats_count(precision: str, context: pumice.Context) -> None:
    nodes = [
        node("Add", ["x", "o"], ["a"]),
        node("Cast", ["a"], ["i"], to=onnx.TensorProto.INT64),
        node("Gather", ["t", "i"]),
    ]
    x = np.array([0, 3, 17], FLOAT)
    constants = {"o": np.array(1, FLOAT), "t": np.random.default_rng(0).standard_normal((20, 4)).astype(FLOAT)}
    report = pumice.validate(small(nodes, x, **constants), [x], context=context, precision=precision)
    assert report.ok and not report.undecided, report.summary


def test_a_loop_without_iterations_has_sizes_of_its_own(context: pumice.Context) -> None:
    body = onnx.parser.parse_graph(
        "b (int64 i, bool c, float[n] s) => (bool d, float[n] t, float[n] o) { d = Identity(c) t = Add(s, s) o = Mul(t, s) }"
    )
    x = np.ones(5, FLOAT)
    source = small([node("Loop", ["k", "", "x"], ["f", "y"], body=body)], x, ("f", "y"), k=np.array(0))
    pumice.validate(source, [x], context=context).raise_if_failed()
