"""Constants beyond float16's range in fp16 programs: they and their readers stay float32, and the report lists them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice

Array = np.ndarray[Any, Any]
NODES: dict[str, Callable[[Any, Any, Any], Any]] = {}


def reader(make: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    NODES[make.__name__] = make
    return make


# Each function takes x [2, 4, 6, 6] and `constant`, which makes a constant of any shape with one number beyond float16's range.
@reader
def multiplied(graph: Any, x: Any, constant: Any) -> Any:
    return graph.add("Mul", x, constant(1), name="node")


@reader
def added_and_divided(graph: Any, x: Any, constant: Any) -> Any:
    large = constant(4, 1, 1)
    return graph.add("Div", graph.add("Add", x, large, name="node"), large)


@reader
def product(graph: Any, x: Any, constant: Any) -> Any:
    return graph.add("MatMul", x, constant(6, 5), name="node")


@reader
def product_with_more(graph: Any, x: Any, constant: Any) -> Any:
    made = graph.add("MatMul", x, constant(6, 5), name="node")
    return graph.add(
        "Relu", graph.add("Mul", graph.add("Add", made, np.ones(5, np.float32)), np.array(0.5, np.float32))
    )


@reader
def convolution(graph: Any, x: Any, constant: Any) -> Any:
    bias = np.ones(3, np.float32)
    return graph.add("Conv", x, constant(3, 4, 3, 3), bias, pads=[1, 1, 1, 1], name="node")


@reader
def bias(graph: Any, x: Any, constant: Any) -> Any:
    weights = np.ones((3, 4, 1, 1), np.float32) / 8
    return graph.add("Conv", x, weights, constant(3), name="node")


@reader
def normalization(graph: Any, x: Any, constant: Any) -> Any:
    ones = np.ones(4, np.float32)
    return graph.add("BatchNormalization", x, ones, constant(4), ones / 4, ones, name="node")


@reader
def rows(graph: Any, x: Any, constant: Any) -> Any:
    return graph.add("LayerNormalization", x, constant(6), name="node")


@reader
def joined(graph: Any, x: Any, constant: Any) -> Any:
    return graph.add("Concat", x, constant(2, 4, 6, 1), axis=3, name="node")


@reader
def padded(graph: Any, x: Any, constant: Any) -> Any:
    return graph.add("Pad", x, np.array([0, 0, 1, 1, 0, 0, 0, 0]), constant(), name="node")


@reader
def gathered(graph: Any, x: Any, constant: Any) -> Any:
    index = graph.add("Cast", graph.add("ReduceSum", graph.add("Sub", x, x), keepdims=0), to=7)
    taken = graph.add("Gather", constant(3, 6), index, name="node")
    return graph.add("Add", x, taken)


@reader
def chosen(graph: Any, x: Any, constant: Any) -> Any:
    return graph.add("Where", graph.add("Greater", x, np.array(0, np.float32)), x, constant(1), name="node")


@reader
def shared(graph: Any, x: Any, constant: Any) -> Any:
    """Share a constant between a node that keeps it in float32 and one that does not."""
    large = constant(6)
    scaled = graph.add("Mul", x, large, name="node")
    return graph.add(
        "Add", graph.add("LayerNormalization", x, large), graph.add("Mul", scaled, np.array(1e-5, np.float32))
    )


@reader
def recurrence(graph: Any, x: Any, constant: Any) -> Any:
    flat = graph.add("Reshape", x, np.array([8, 6, 6]))
    weights = np.full((1, 3, 6), 0.125, np.float32), np.zeros((1, 3, 3), np.float32)
    return graph.add("RNN", flat, *weights, constant(1, 6), hidden_size=3, activations=["Relu"], name="node")


def built(make: Callable[[Any, Any, Any], Any], number: float) -> tuple[pumice.Graph, dict[str, Array]]:
    random = np.random.default_rng(0)

    def constant(*shape: int) -> Any:
        array = random.integers(1, 5, shape).astype(np.float32)
        array.reshape(-1)[-1] = number
        return graph.constant(array, f"large{len(graph)}")

    graph = pumice.Graph()
    x = graph.input("x", "float32", [2, 4, 6, 6])
    graph.output("y", make(graph, x, constant))
    return graph, {"x": (random.integers(1, 64, (2, 4, 6, 6)) / 65536).astype(np.float32)}


@pytest.mark.parametrize("number", [1e5, -3e38, 65520.0], ids=str)
@pytest.mark.parametrize("name", NODES)
def test_a_constant_beyond_float16_stays_float32_with_what_reads_it(
    context: pumice.Context, name: str, number: float, caplog: pytest.LogCaptureFixture
) -> None:
    graph, inputs = built(NODES[name], number)
    with graph.compile(context) as exact:
        wanted = exact(inputs)["y"]
    with caplog.at_level(logging.WARNING, "pumice"), graph.compile(context, precision="fp16") as program:
        made = program(inputs)["y"]
        pumice._pumice.forward_log()
        report = {row["node"]: row for row in program.report()}
    finite = np.isfinite(wanted)
    scale = np.maximum(np.abs(wanted[finite]).astype(np.float64), 1e-2)
    error = np.abs(made[finite].astype(np.float64) - wanted[finite]) / scale
    assert error.max() < 4e-3, f"{name}: {error.max()}"
    np.testing.assert_array_equal(made[~finite], wanted[~finite])
    told = [record.getMessage() for record in caplog.records if "computes in float32" in record.getMessage()]
    assert told, "nothing is silent"
    for text in told:
        match = re.fullmatch(
            r"node '(.*)' computes in float32: '(large.*)' holds (.*), which float16 cannot represent \(.*\)", text
        )
        assert match and match[3] == f"{number:g}", text
        row = report[match[1]]
        assert row["precision"] == "fp32" and f"float32: '{match[2]}' holds {match[3]}" in row["note"]


@pytest.mark.parametrize("number", [65504.0, -65504.0, 65519.0, float("inf"), float("-inf"), 0.0])
def test_a_constant_that_float16_holds_changes_nothing(
    context: pumice.Context, number: float, caplog: pytest.LogCaptureFixture
) -> None:
    graph, _ = built(multiplied, number)
    with caplog.at_level(logging.WARNING, "pumice"), graph.compile(context, precision="fp16") as program:
        pumice._pumice.forward_log()
        assert {row["node"]: row for row in program.report()}["node"]["precision"].startswith("fp16")
    assert not [record for record in caplog.records if "float16" in record.getMessage()]


def test_what_is_filled_with_a_number_beyond_float16_stays_float32(context: pumice.Context) -> None:
    """The number is an attribute."""
    graph = pumice.Graph()
    x = graph.input("x", "float32", [None])
    large = graph.add("ConstantOfShape", graph.add("Shape", x), value=np.array([1e5], np.float32), name="fill")
    graph.output("y", graph.add("Mul", x, large))
    with graph.compile(context, precision="fp16") as program:
        np.testing.assert_allclose(program({"x": np.full(3, 1e-3, np.float32)})["y"], np.full(3, 100), rtol=1e-3)
        note = {row["node"]: row["note"] for row in program.report()}["fill"]
    assert note.endswith("float32: its 'value' holds 100000, which float16 cannot represent")


@pytest.mark.parametrize("alpha", [70000.0, -3e6, 1e-6, 0.5], ids=str)
@pytest.mark.parametrize("is_constant", [True, False], ids=["constant", "given"])
def test_a_matrix_that_is_scaled_beyond_float16_stays_float32(
    context: pumice.Context, alpha: float, is_constant: bool
) -> None:
    """The product of alpha and the matrix is stored."""
    random = np.random.default_rng(0)
    a = (random.uniform(-1, 1, (3, 24)) * 2 / abs(alpha)).clip(-100, 100).astype(np.float16).astype(np.float32)
    b = random.uniform(-1, 1, (24, 5)).astype(np.float16).astype(np.float32)
    graph = pumice.Graph()
    x = graph.input("x", "float32", [3, 24])
    right = graph.constant(b, "b") if is_constant else graph.input("b", "float32", [24, 5])
    graph.output("y", graph.add("Gemm", x, right, alpha=alpha, name="gemm"))
    inputs = {"x": a} | ({} if is_constant else {"b": b})
    with graph.compile(context, precision="fp16") as program:
        made = program(inputs)["y"]
        row = {row["node"]: row for row in program.report()}["gemm"]
    np.testing.assert_allclose(
        made, alpha * (a.astype(np.float64) @ b), rtol=4e-3, atol=4e-3 * abs(alpha) * np.abs(a).max()
    )
    assert (row["precision"] == "fp32") == (alpha != 0.5)
    assert ("float32: its 'alpha' times 'b' holds " in row["note"]) == (alpha != 0.5)


def test_a_lone_number_that_would_become_zero_stays_float32(context: pumice.Context) -> None:
    """A small constant, such as the epsilon of a decomposed norm, keeps its value."""
    graph = pumice.Graph()
    x = graph.input("x", "float32", [4])
    graph.output("y", graph.add("Div", np.array(1e-12, np.float32), graph.add("Add", x, np.array(1e-12, np.float32))))
    with graph.compile(context, precision="fp16") as program:
        np.testing.assert_allclose(program({"x": np.zeros(4, np.float32)})["y"], np.ones(4))


def test_a_bound_beyond_float16_does_not_widen_a_clip(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float32", [4])
    most = np.array(np.finfo(np.float32).max, np.float32)
    graph.output("y", graph.add("Clip", x, np.array(0, np.float32), most, name="clip"))
    wide = graph.add("Mul", x, np.array(1e5, np.float32), name="wide")
    graph.output("z", graph.add("Clip", wide, np.array(-most), np.array(2e5, np.float32), name="wide_clip"))
    values = np.array([-1, 0.5, 3, 60000], np.float32)
    with graph.compile(context, precision="fp16", fuse=False) as program:
        made = program({"x": values})
        report = {row["node"]: row["precision"] for row in program.report()}
    assert report["clip"].startswith("fp16") and report["wide_clip"] == "fp32"
    np.testing.assert_array_equal(made["y"], np.maximum(values, 0))
    np.testing.assert_allclose(made["z"], np.minimum(values * np.array(1e5, np.float32), 2e5), rtol=1e-3)


def test_bfloat16_has_such_numbers(context: pumice.Context) -> None:
    graph, inputs = built(multiplied, 1e5)
    with graph.compile(context, precision="bf16") as program:
        np.testing.assert_allclose(program(inputs)["y"], inputs["x"] * 1e5, rtol=2e-2)


def loop(initial: float) -> onnx.ModelProto:
    body = helper.make_graph(
        [
            helper.make_node("Min", ["least", "x"], ["smaller"], "min"),
            helper.make_node("Identity", ["go"], ["goes"], "on"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("least", TensorProto.FLOAT, [3]),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("smaller", TensorProto.FLOAT, [3]),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["count", "", "begin"], ["y"], "loop", body=body)],
        "loops",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
        [
            numpy_helper.from_array(np.array(3), "count"),
            numpy_helper.from_array(np.full(3, initial, np.float32), "begin"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_a_loop_that_begins_beyond_float16_is_rejected_in_fp16() -> None:
    x = np.array([1, 2, 70000], np.float32)
    with pumice.load(loop(1e9)) as model:
        np.testing.assert_array_equal(model(x), x)
    with pumice.load(loop(1000.0), precision="fp16") as model:
        np.testing.assert_array_equal(model(np.array([1, 2, 3], np.float32)), [1, 2, 3])
    with pytest.raises(
        pumice.UnsupportedError, match=r"'loop': While of 'begin', which holds 1e\+09, not representable in float16"
    ):
        pumice.load(loop(1e9), precision="fp16")
