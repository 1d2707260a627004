"""float32_nodes: nodes that the caller keeps in float32, in programs of 16-bit floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pumice
from cases import CASES, Case, values_in

Array = np.ndarray[Any, Any]
PRECISIONS_16_BIT = ("fp16", "bf16")
HALVES = ("fp16", "fp16_packed")  # fp16_packed: the device cannot store single 16-bit elements


def rows_of(program: pumice.Program) -> dict[str, dict[str, str]]:
    return {row["node"]: row for row in program.report()}


def run(
    graph: pumice.Graph, context: pumice.Context, precision: str, float32: list[str], x: Array, fuse: bool = True
) -> tuple[Array, dict[str, dict[str, str]]]:
    program = graph.compile(context, precision, fuse=fuse, float32_nodes=float32)
    try:
        return program({graph.inputs[0].name: x}, loop_timeout=None)["y"], rows_of(program)
    finally:
        program.close()


def overflowing(apart: bool) -> pumice.Graph:
    """(x * x) / 1000 @ w, which overflows float16 for x = 300; `apart`: with a node in between that cannot be fused."""
    graph = pumice.Graph("overflowing")
    x = graph.input("x", "float32", [1, 2, 4, 8])
    made = graph.add("Mul", x, x, name="square")
    if apart:
        made = graph.add("MaxPool", made, kernel_shape=[1, 1], name="between")
    made = graph.add("Div", made, np.array(1000, np.float32), name="scaled")
    graph.output("y", graph.add("MatMul", made, np.eye(8, dtype=np.float32), name="product"))
    return graph


@pytest.mark.parametrize("fuse", [True, False])
def test_an_overflow_is_mended_by_the_node_and_its_reader(context: pumice.Context, fuse: bool) -> None:
    x = np.full((1, 2, 4, 8), 300, np.float32)
    graph = overflowing(True)
    broken, _ = run(graph, context, "fp16", [], x, fuse)
    assert not np.isfinite(broken).all()
    half, _ = run(graph, context, "fp16", ["square"], x, fuse)  # MaxPool stores float16
    assert not np.isfinite(half).all()
    mended, report = run(graph, context, "fp16", ["square", "between"], x, fuse)
    np.testing.assert_allclose(mended, 90, rtol=1e-3)
    assert [report[name]["precision"] for name in ("square", "between")] == ["fp32", "fp32"]
    assert report["product"]["precision"] in HALVES
    assert "float32: by the policy" in report["square"]["note"]
    assert "policy" not in report["product"]["note"]


@pytest.mark.parametrize("fuse", [True, False])
def test_a_16_bit_reader_of_elements_reads_them_unchanged(context: pumice.Context, fuse: bool) -> None:
    x = np.full((1, 2, 4, 8), 300, np.float32)
    mended, report = run(overflowing(False), context, "fp16", ["square"], x, fuse)
    np.testing.assert_allclose(mended, 90, rtol=1e-3)
    assert report["scaled"]["precision"] in HALVES


def chain(graph: pumice.Graph, x: Any) -> Any:
    return graph.add("Sigmoid", graph.add("Mul", graph.add("Add", x, np.array(0.1, np.float32)), x))


def product(graph: pumice.Graph, x: Any) -> Any:
    weights = np.random.default_rng(1).standard_normal((6, 5)).astype(np.float32)
    return graph.add("Relu", graph.add("Add", graph.add("MatMul", x, weights), np.full(5, 0.3, np.float32)))


def convolution(graph: pumice.Graph, x: Any) -> Any:
    draw = np.random.default_rng(2)
    weights, bias = draw.standard_normal((8, 4, 3, 3)).astype(np.float32), draw.standard_normal(8).astype(np.float32)
    made = graph.add("Conv", x, weights, bias, pads=[1, 1, 1, 1])
    return graph.add("Mul", graph.add("Add", made, np.array(0.7, np.float32)), np.array(1e6, np.float32))


def normalization(graph: pumice.Graph, x: Any) -> Any:
    scale, bias = np.linspace(0.1, 1.3, 6, dtype=np.float32), np.linspace(-2, 1, 6, dtype=np.float32)
    return graph.add("Softmax", graph.add("LayerNormalization", x, scale, bias))


def moved(graph: pumice.Graph, x: Any) -> Any:
    made = graph.add("Transpose", x, perm=[0, 2, 3, 1])
    made = graph.add("Slice", made, np.array([1]), np.array([5]), np.array([1]))
    return graph.add("Concat", made, graph.add("Reshape", made, np.array([2, 4, 6, 4])), axis=1)


def reduced(graph: pumice.Graph, x: Any) -> Any:
    mean = graph.add("ReduceMean", x, np.array([3]))
    apart = graph.add("Sub", x, mean)
    variance = graph.add("ReduceMean", graph.add("Mul", apart, apart), np.array([3]))
    return graph.add("Div", apart, graph.add("Sqrt", graph.add("Add", variance, np.array(1e-7, np.float32))))


def pooled(graph: pumice.Graph, x: Any) -> Any:
    made = graph.add("AveragePool", x, kernel_shape=[2, 2])
    return graph.add("Resize", made, None, np.array([1, 1, 2, 2], np.float32), mode="linear")


@pytest.mark.parametrize("precision", PRECISIONS_16_BIT)
@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("make", [chain, product, convolution, normalization, moved, reduced, pooled])
def test_all_nodes_in_float32_are_the_program_in_float32(
    context: pumice.Context, make: Callable[[pumice.Graph, Any], Any], fuse: bool, precision: str
) -> None:
    graph = pumice.Graph(make.__name__)
    graph.output("y", make(graph, graph.input("x", "float32", [2, 4, 6, 6])))
    x = np.random.default_rng(3).standard_normal((2, 4, 6, 6)).astype(np.float32) * 1.7
    names = graph.node_names(0)
    expected, _ = run(graph, context, "fp32", [], x, fuse)
    narrow, _ = run(graph, context, precision, [], x, fuse)
    wide, report = run(graph, context, precision, names, x, fuse)
    np.testing.assert_array_equal(wide, expected)
    assert not np.array_equal(narrow, expected)
    assert {report[name]["precision"] for name in names} <= {"fp32", ""}


FIRST = {case.op: case for case in reversed(CASES) if case.has_floats}


@pytest.mark.parametrize("op", FIRST)
def test_every_operator_in_float32_is_that_of_a_program_in_float32(context: pumice.Context, op: str) -> None:
    case: Case = FIRST[op]
    graph = pumice.Graph()
    values, given = values_in(graph, case, case.arrays())
    made = graph.add(case.op, *values, outputs=case.outputs, **case.attributes)
    for k, value in enumerate(made if isinstance(made, tuple) else (made,)):
        graph.output(f"o{k}", value)
    expected = graph.compile(context)(given)
    for precision in PRECISIONS_16_BIT:
        results = graph.compile(context, precision, float32_nodes=graph.node_names(0))(given)
        for name, array in expected.items():
            assert results[name].tobytes() == array.tobytes(), (precision, name)


@pytest.mark.parametrize("precision", PRECISIONS_16_BIT)
def test_weights_are_shared_by_nodes_of_either_size(context: pumice.Context, precision: str) -> None:
    graph = pumice.Graph("shared")
    x = graph.input("x", "float32", [3, 6])
    weights = graph.constant(np.random.default_rng(4).standard_normal((6, 6)).astype(np.float32), "weights")
    wide = graph.add("MatMul", x, weights, name="wide")
    graph.output("y", wide)
    graph.output("z", graph.add("MatMul", x, weights, name="narrow"))
    array = np.random.default_rng(5).standard_normal((3, 6)).astype(np.float32)
    expected = graph.compile(context)({"x": array}, loop_timeout=None)
    program = graph.compile(context, precision, float32_nodes=["wide"])
    made = program({"x": array}, loop_timeout=None)
    np.testing.assert_array_equal(made["y"], expected["y"])
    assert not np.array_equal(made["z"], expected["z"])
    assert rows_of(program)["wide"]["precision"] == "fp32"
    assert rows_of(program)["narrow"]["precision"].startswith(precision)  # "bf16_packed" without the extension


@pytest.mark.parametrize("precision", PRECISIONS_16_BIT)
def test_constants_that_are_too_large_or_too_fine(context: pumice.Context, precision: str) -> None:
    graph = pumice.Graph("constants")
    x = graph.input("x", "float32", [4])
    large = graph.add("Mul", x, np.full(4, 1e5 + 1, np.float32), name="large")
    graph.output("y", graph.add("Sub", large, np.full(4, 1e5, np.float32), name="apart"))
    ones = np.ones(4, np.float32)
    made, _ = run(graph, context, precision, ["large", "apart"], ones)
    np.testing.assert_array_equal(made, ones)


def test_inputs_are_read_as_they_are(context: pumice.Context) -> None:
    graph = pumice.Graph("input")
    x = graph.input("x", "float32", [4, 4])
    tiny = np.eye(4, dtype=np.float32) / 1024
    graph.output("y", graph.add("MatMul", x, tiny, name="wide"))
    graph.output("z", graph.add("MatMul", x, tiny, name="narrow"))
    program = graph.compile(context, "fp16", float32_nodes=["wide"])
    made = program({"x": np.full((4, 4), 2e5, np.float32)}, loop_timeout=None)
    np.testing.assert_array_equal(made["y"], np.float32(2e5 / 1024))
    assert not np.isfinite(made["z"]).any()


def scores(graph: pumice.Graph, x: Any) -> None:
    """Decomposed attention: q k / 8, Softmax, v."""
    keys = graph.add("Transpose", x, perm=[0, 1, 3, 2], name="keys")
    made = graph.add("Mul", graph.add("MatMul", x, keys, name="scores"), np.array(0.125, np.float32), name="scale")
    graph.output("y", graph.add("MatMul", graph.add("Softmax", made, name="softmax"), x, name="values"))


@pytest.mark.parametrize("precision", PRECISIONS_16_BIT)
@pytest.mark.parametrize("name", ["scores", "softmax", "values"])
def test_a_fused_node_has_the_widest_precision_of_its_members(
    context: pumice.Context, precision: str, name: str
) -> None:
    graph = pumice.Graph("attention")
    scores(graph, graph.input("x", "float32", [1, 2, 16, 8]))
    x = np.random.default_rng(6).standard_normal((1, 2, 16, 8)).astype(np.float32) * 3
    expected, _ = run(graph, context, "fp32", [], x)
    wide, report = run(graph, context, precision, [name], x)
    assert any(row["fusion"] == "attention" for row in report.values())
    np.testing.assert_array_equal(wide, expected)


def test_functions_are_those_of_float32_in_kernels_that_store_less(context: pumice.Context) -> None:
    """1 - tanh(x) in one kernel; a kernel that is float16 throughout may use a shorter tanh."""
    graph = pumice.Graph("near one")
    x = graph.input("x", "float32", [1, 1, 64, 64])
    apart = graph.add("Sub", np.array(1, np.float32), graph.add("Tanh", x, name="near"), name="apart")
    graph.output("y", graph.add("MaxPool", apart, kernel_shape=[1, 1]))
    array = np.linspace(2, 8, 4096, dtype=np.float32).reshape(1, 1, 64, 64)
    exact, _ = run(graph, context, "fp32", [], array)
    made, report = run(graph, context, "fp16", ["near"], array)
    assert report["near"]["fusion"] == "elementwise"
    np.testing.assert_array_equal(made, exact.astype(np.float16))


def looping() -> pumice.Graph:
    """Double x ten times in a loop, and divide it afterwards."""
    body, condition = pumice.Graph("body"), pumice.Graph("condition")
    count, value = body.input("i", "int32", [1]), body.input("v", "float32", [4, 4])
    body.output("next", body.add("Add", count, np.ones(1, np.int32), name="count"))
    body.output("doubled", body.add("MatMul", value, 2 * np.eye(4, dtype=np.float32), name="double"))
    count = condition.input("i", "int32", [1])
    condition.input("v", "float32", [4, 4])
    condition.output("more", condition.add("Less", count, np.full(1, 10, np.int32)))
    graph = pumice.Graph("looping")
    x = graph.input("x", "float32", [4, 4])
    _, made = graph.while_(condition, body, [np.zeros(1, np.int32), x], name="loop")
    graph.output("y", graph.add("Div", made, np.array(1024, np.float32), name="halved"))
    return graph


@pytest.mark.parametrize("names", [["loop", "halved"], ["body/double", "halved"]])
def test_bodies_of_loops(context: pumice.Context, names: list[str]) -> None:
    x = np.full((4, 4), 1000.123, np.float32)
    broken, _ = run(looping(), context, "fp16", [], x)
    assert not np.isfinite(broken).any()
    made, report = run(looping(), context, "fp16", names, x)
    np.testing.assert_array_equal(made, x)
    assert report["body/double"]["precision"] == "fp32"


def test_names_that_no_node_has_are_rejected(context: pumice.Context) -> None:
    for precision in ("fp32", "fp16"):
        with pytest.raises(pumice.GraphError, match="'wobble'.*no node of this name"):
            overflowing(False).compile(context, precision, float32_nodes=["square", "wobble"])
