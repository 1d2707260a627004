"""Fusions by name: each alone, and all but one, match the unfused program; what `residual` reads; the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper

import pumice
from features import need_limits
from tensor_arrays import numbers

Array = npt.NDArray[Any]
Build = Callable[[pumice.Graph], list[Array]]  # returns the inputs in the graph's order


RESIDUAL = {"maxPerStageDescriptorStorageBuffers": 5}  # input, weights, bias, residual and result


def compiled(
    build: Build, context: pumice.Context, precision: str = "fp32", fuse: bool | list[str] = True
) -> tuple[pumice.Program, list[Array]]:
    graph = pumice.Graph("residual")
    given = build(graph)
    return graph.compile(context, precision, fuse=fuse), given


def run(program: pumice.Program, given: list[Array]) -> dict[str, Array]:
    return dict(program(dict(zip((value.name for value in program.inputs), given, strict=True))))


def rows_of(program: pumice.Program) -> dict[str, tuple[str, str]]:
    return {row["node"]: (row["note"], row["fusion"]) for row in program.report()}


def convolution(
    name: str, x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any], free: bool = False
) -> Build:
    """relu(conv(x) + r)"""

    def build(graph: pumice.Graph) -> list[Array]:
        value = graph.input("x", "float32", [None, x[1], None, None] if free else list(x))
        made = graph.add("Conv", value, numbers(*w), numbers(w[0]), name="conv", **attributes)
        steps, pads = attributes.get("strides", [1] * (len(x) - 2)), attributes.get("pads", [0] * 2 * (len(x) - 2))
        spatial = [(x[i + 2] + 2 * pads[i] - w[i + 2]) // steps[i] + 1 for i in range(len(x) - 2)]
        shape = (x[0], w[0], *spatial)
        beside = graph.input("r", "float32", [None, w[0], None, None] if free else list(shape))
        graph.output("y", graph.add("Relu", graph.add("Add", made, beside, name="add"), name="relu"))
        return [numbers(*x), numbers(*shape, seed=9)]

    build.__name__ = name
    return build


def product(
    name: str, a: tuple[int, ...], w: tuple[int, ...], bias: bool = True, free: bool = False, op: str = "Add"
) -> Build:
    def build(graph: pumice.Graph) -> list[Array]:
        value = graph.input("x", "float32", [*([None] * (len(a) - 1) if free else a[:-1]), a[-1]])
        beside = graph.input("r", "float32", [*([None] * (len(a) - 1) if free else a[:-1]), w[-1]])
        made = graph.add("MatMul", value, numbers(*w), name="product")
        if bias:
            made = graph.add("Add", made, numbers(w[-1]), name="bias")
        graph.output("y", graph.add(op, beside, made, name="add"))
        return [numbers(*a), numbers(*a[:-1], w[-1], seed=5)]

    build.__name__ = name
    return build


def gemm(graph: pumice.Graph) -> list[Array]:
    x = graph.input("x", "float32", [9, 12])
    made = graph.add("Gemm", x, numbers(20, 12), numbers(9, 1), name="gemm", transB=1, alpha=0.5, beta=2.0)
    graph.output("y", graph.add("Mul", graph.add("Tanh", made), graph.input("r", "float32", [9, 20]), name="add"))
    return [numbers(9, 12), numbers(9, 20)]


def constant_beside(graph: pumice.Graph) -> list[Array]:
    x = graph.input("x", "float32", [2, 6, 16])
    made = graph.add("MatMul", x, numbers(16, 24), name="product")
    graph.output("y", graph.add("Add", made, numbers(2, 6, 24, seed=3), name="add"))
    return [numbers(2, 6, 16)]


def two_products(graph: pumice.Graph) -> list[Array]:
    """The later convolution reads the earlier one's result."""
    x = graph.input("x", "float32", [2, 8, 10, 10])
    short = graph.add("Conv", x, numbers(16, 8, 1, 1), name="short", strides=[2, 2])
    inner = graph.add(
        "Relu", graph.add("Conv", x, numbers(8, 8, 3, 3), name="inner", pads=[1, 1, 1, 1], strides=[2, 2])
    )
    outer = graph.add("Conv", inner, numbers(16, 8, 1, 1), name="outer")
    graph.output("y", graph.add("Relu", graph.add("Add", outer, short, name="add"), name="relu"))
    return [numbers(2, 8, 10, 10)]


def part_of_a_whole(graph: pumice.Graph) -> list[Array]:
    """The sum is written directly into a Concat; the residual is not."""
    x = graph.input("x", "float32", [1, 8, 6, 6])
    first = graph.add("Relu", graph.add("Conv", x, numbers(8, 8, 1, 1)))
    second = graph.add("Add", graph.add("Conv", first, numbers(8, 8, 1, 1, seed=2), name="conv"), first, name="add")
    other = graph.add("Conv", x, numbers(8, 8, 1, 1, seed=4))
    graph.output("y", graph.add("Concat", second, other, axis=1))
    return [numbers(1, 8, 6, 6)]


BUILDS: list[Build] = [
    convolution("conv_1d", (2, 6, 15), (10, 6, 3), {"pads": [1, 1]}),
    convolution("conv_2d", (2, 8, 9, 7), (12, 8, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    convolution("conv_of_odd_channels", (1, 3, 9, 7), (5, 3, 1, 1), {}),
    convolution("conv_of_any_size", (2, 8, 9, 7), (12, 8, 1, 1), {}, free=True),
    product("one_row", (1, 64), (64, 40)),
    product("gemm_small_m", (3, 64), (64, 40), bias=False),
    product("rows", (2, 70, 64), (64, 96)),
    product("rows_of_any_number", (2, 17, 64), (64, 96), free=True),
    product("odd_rows", (5, 7, 13), (13, 9)),
    product("difference", (2, 9, 32), (32, 24), op="Sub"),
    gemm,
    constant_beside,
    two_products,
    part_of_a_whole,
]


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)
def test_a_second_tensor_is_read_as_the_result_is_stored(context: pumice.Context, build: Build, precision: str) -> None:
    program, given = compiled(build, context, precision)
    plain, _ = compiled(build, context, precision, False)
    exact, _ = compiled(build, context, fuse=False)
    wanted = run(exact, given)["y"]
    tolerance = {"fp32": 2e-6, "fp16": 2e-3, "bf16": 2e-2}[precision] * np.abs(wanted).max()
    np.testing.assert_allclose(run(program, given)["y"], wanted, rtol=0, atol=tolerance)
    np.testing.assert_allclose(run(plain, given)["y"], wanted, rtol=0, atol=tolerance)
    need_limits(context, **RESIDUAL)
    note, fusion = rows_of(program)["add"]
    assert note.startswith("fused into") and fusion == "residual"


def test_the_later_of_two_matmuls_reads_the_earlier(context: pumice.Context) -> None:
    program, _ = compiled(two_products, context)
    assert rows_of(program)["add"] == ("fused into outer", "residual")
    assert rows_of(program)["relu"] == ("fused into outer", "epilogue")


def test_sizes_that_broadcast_at_a_call_only(context: pumice.Context) -> None:
    """The tensors have the same rank and unknown sizes; whether these are equal is known when the program is bound."""
    program, _ = compiled(product("any", (2, 5, 8), (8, 6), free=True), context)
    x, w, b = numbers(2, 5, 8), numbers(8, 6), numbers(6)
    for own, beside in (((2, 5), (2, 5)), ((2, 5), (1, 5)), ((1, 5), (2, 5)), ((2, 1), (1, 5)), ((1, 1), (3, 2))):
        given = [x[: own[0], : own[1]], numbers(*beside, 6, seed=5)]
        np.testing.assert_allclose(run(program, given)["y"], given[0] @ w + b + given[1], rtol=1e-5, atol=1e-5)


def test_sizes_that_do_not_fit_name_the_node(context: pumice.Context) -> None:
    need_limits(context, **RESIDUAL)
    program, _ = compiled(product("any", (2, 5, 8), (8, 6), free=True), context)
    with pytest.raises(pumice.GraphError, match=r"'bias': its result \[2, 5, 6\] and 'r' \[3, 5, 6\]"):
        run(program, [numbers(2, 5, 8), numbers(3, 5, 6)])


@pytest.mark.parametrize("groups", [2, 8])
def test_convolutions_in_groups_add_apart(context: pumice.Context, groups: int) -> None:
    def build(graph: pumice.Graph) -> list[Array]:
        x = graph.input("x", "float32", [1, 8, 6, 6])
        made = graph.add("Conv", x, numbers(8, 8 // groups, 3, 3), pads=[1, 1, 1, 1], group=groups)
        graph.output("y", graph.add("Add", made, x, name="add"))
        return [numbers(1, 8, 6, 6)]

    program, given = compiled(build, context)
    plain, _ = compiled(build, context, fuse=False)
    assert rows_of(program)["add"] == ("", "")
    np.testing.assert_allclose(run(program, given)["y"], run(plain, given)["y"], rtol=1e-5, atol=1e-5)


def test_what_comes_later_is_waited_for_and_what_broadcasts_is_not_read(context: pumice.Context) -> None:
    def build(graph: pumice.Graph) -> list[Array]:
        x = graph.input("x", "float32", [2, 4, 8])
        row = graph.input("row", "float32", [1, 4, 6])
        made = graph.add("MatMul", x, numbers(8, 6), name="product")
        graph.output("y", graph.add("Add", made, row, name="broadcast"))
        other = graph.add("MatMul", x, numbers(8, 8), name="other")
        graph.output("z", graph.add("Add", other, graph.add("Softmax", x, name="later"), name="sum"))
        alone = graph.add("MatMul", x, numbers(8, 8, seed=1), name="alone")
        graph.output("u", graph.add("Add", alone, graph.add("Sqrt", graph.add("Abs", x)), name="map"))
        return [numbers(2, 4, 8), numbers(1, 4, 6)]

    program, given = compiled(build, context)
    plain, _ = compiled(build, context, fuse=False)
    rows = rows_of(program)
    assert rows["broadcast"] == ("", "")
    assert rows["sum"] == ("fused into other", "residual")
    assert rows["map"] == ("", "")  # fuses the node before it
    for name, value in run(plain, given).items():
        np.testing.assert_allclose(run(program, given)[name], value, rtol=1e-5, atol=1e-5)


# ---- each by its name


def everything(graph: pumice.Graph) -> list[Array]:
    """Add an example of each fusion to one graph."""
    x = graph.input("x", "float32", [1, 8, 16])
    scale, zero = np.array(0.05, "float32"), np.array(3, "uint8")

    def mul(a: Any, b: Any) -> Any:
        return graph.add("Mul", a, b)

    def add(a: Any, b: Any) -> Any:
        return graph.add("Add", a, b)

    def f(value: float) -> Array:
        return np.array(value, "float32")

    # layer_normalization, rms_normalization
    centred = graph.add("Sub", x, graph.add("ReduceMean", x, np.array([-1]), keepdims=1))
    variance = graph.add("ReduceMean", mul(centred, centred), np.array([-1]), keepdims=1)
    normal = graph.add("Div", centred, graph.add("Sqrt", add(variance, f(1e-5))))
    normal = add(mul(normal, numbers(16)), numbers(16, seed=1))
    square = graph.add("ReduceMean", mul(normal, normal), np.array([-1]), keepdims=1)
    normal = mul(graph.add("Div", normal, graph.add("Sqrt", add(square, f(1e-5)))), numbers(16, seed=2))
    # bias, attention, residual
    q, k, v = (add(graph.add("MatMul", normal, numbers(16, 16, seed=i)), numbers(16, seed=i)) for i in (3, 4, 5))
    q, k, v = (
        graph.add("Transpose", graph.add("Reshape", value, np.array([1, 8, 2, 8])), perm=[0, 2, 1, 3])
        for value in (q, k, v)
    )
    scores = mul(graph.add("MatMul", q, graph.add("Transpose", k, perm=[0, 1, 3, 2])), f(0.35))
    mixed = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), v)
    mixed = graph.add("Reshape", graph.add("Transpose", mixed, perm=[0, 2, 1, 3]), np.array([1, 8, 16]))
    x2 = add(graph.add("MatMul", mixed, numbers(16, 16, seed=6)), x)
    # recurrent
    rows = graph.add("Transpose", x2, perm=[1, 0, 2])
    turned, _ = graph.add(
        "RNN", rows, numbers(2, 8, 16) / 4, numbers(2, 8, 8) / 8, direction="bidirectional", outputs=2
    )
    turned = graph.add("Transpose", turned, perm=[0, 2, 1, 3])
    x2 = add(x2, graph.add("Transpose", graph.add("Reshape", turned, np.array([8, 1, 16])), perm=[1, 0, 2]))
    # gelu, swish
    bell = add(graph.add("Erf", graph.add("Div", x2, f(2**0.5))), f(1))
    x3 = mul(mul(x2, bell), f(0.5))
    x3 = mul(x3, graph.add("Sigmoid", x3))
    # block_quant
    wide = graph.constant(np.arange(16 * 16, dtype="int8").reshape(16, 16) % 11 - 5)
    matrix = graph.add("DequantizeLinear", wide, numbers(1, 16) * np.float32(0.1), axis=0, block_size=16)
    x4 = graph.add("MatMul", x3, matrix)
    # crop
    image = graph.add("Reshape", x4, np.array([1, 8, 4, 4]))
    image = graph.add("ConvTranspose", image, numbers(8, 8, 3, 3) / 8)
    image = graph.add("Slice", image, np.array([1, 1]), np.array([-1, -1]), np.array([2, 3]))
    # pooling
    image = graph.add("Conv", image, numbers(8, 8, 3, 3) / 8, pads=[2, 2, 2, 2])
    image = graph.add("MaxPool", image, kernel_shape=[1, 2], strides=[1, 2])
    # softmax
    rows = graph.add("MatMul", graph.add("Reshape", image, np.array([-1, 4])), numbers(4, 4))
    image = add(image, graph.add("Reshape", graph.add("Softmax", rows), np.array([1, 8, 6, 3])))
    # batch_normalization, epilogue, qlinear
    made = graph.add("Conv", image, numbers(8, 8, 1, 1))
    ones = np.ones(8, "float32")
    made = graph.add("BatchNormalization", made, numbers(8), numbers(8), numbers(8), ones)
    made = graph.add("Relu", graph.add("Tanh", made))
    quantized = graph.add("QuantizeLinear", made, scale, zero)
    read = graph.add("DequantizeLinear", quantized, scale, zero)
    weights = graph.add(
        "DequantizeLinear", np.arange(64, dtype="int8").reshape(8, 8, 1, 1) % 7, f(0.02), np.array(0, "int8")
    )
    product = graph.add("QuantizeLinear", graph.add("Conv", read, weights), f(0.1), zero)
    y = graph.add("DequantizeLinear", product, f(0.1), zero)
    # elementwise
    graph.output("y", add(y, mul(y, graph.add("Softmax", y))))
    return [numbers(1, 8, 16)]


@pytest.fixture
def unfused(context: pumice.Context) -> Array:
    program, given = compiled(everything, context, fuse=False)
    assert not any(row["fusion"] for row in program.report())
    return run(program, given)["y"]


def close(found: Array, wanted: Array) -> None:
    """Allow a difference of one quantisation step in a few values."""
    np.testing.assert_allclose(found, wanted, rtol=0, atol=0.25)
    assert np.mean(np.abs(found - wanted) > 1e-4) < 0.05


@pytest.mark.parametrize("name", sorted(pumice.fusions()))
def test_each_fusion_alone(context: pumice.Context, unfused: Array, name: str) -> None:
    program, given = compiled(everything, context, fuse=[name])
    close(run(program, given)["y"], unfused)
    assert {row["fusion"] for row in program.report()} == {"", name}


@pytest.mark.parametrize("name", sorted(pumice.fusions()))
def test_each_fusion_left_out(context: pumice.Context, unfused: Array, name: str) -> None:
    program, given = compiled(everything, context, fuse=[other for other in pumice.fusions() if other != name])
    close(run(program, given)["y"], unfused)
    assert name not in {row["fusion"] for row in program.report()}


def test_the_report_counts_nodes_before_and_after() -> None:
    w, b = numbers(8, 6), numbers(6)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        helper.make_node("Neg", ["b"], ["c"], name="known"),
        helper.make_node("Add", ["m", "c"], ["a"], name="bias"),
        helper.make_node("Add", ["a", "r"], ["s"], name="sum"),
        helper.make_node("Relu", ["s"], ["t"], name="relu"),
        helper.make_node("Reshape", ["t", "shape"], ["y"], name="flat"),
    ]
    values = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", [4, 8]), ("r", [4, 6]))]
    constants = [onnx.numpy_helper.from_array(v, n) for n, v in (("w", w), ("b", b), ("shape", np.array([-1])))]
    graph = helper.make_graph(nodes, "g", values, [helper.make_tensor_value_info("y", 1, None)], constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x, r = numbers(4, 8), numbers(4, 6, seed=1)
    with pumice.load(proto) as model:
        y = model(x, r)
        report = model.report()
    need_limits(pumice.default_context(), **RESIDUAL)
    assert (report.before, report.after) == (6, 2)
    assert report.fused == {"bias": 1, "residual": 1, "epilogue": 1}
    wanted = "6 nodes before, 2 after: 3 fused (bias 1, residual 1, epilogue 1), 1 folded or not needed, 1 views or on the host"
    assert report.summary == wanted
    assert wanted in str(report) and wanted in report._repr_html_()
    np.testing.assert_allclose(y, np.maximum(x @ w - b + r, 0).ravel(), rtol=1e-5, atol=1e-5)
    with pumice.load(proto, fuse=["bias"]) as model:
        np.testing.assert_allclose(model(x, r), y, rtol=1e-5, atol=1e-5)
        assert model.report().fused == {"bias": 1}
    with pumice.load(proto, fuse=False) as model:
        np.testing.assert_allclose(model(x, r), y, rtol=1e-5, atol=1e-5)
        assert "none fused" in model.report().summary
    with pytest.raises(pumice.Error, match="fuse: expected the names of fusions"):
        pumice.load(proto, fuse=["biases"])


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_nodes_that_were_added_do_not_count(precision: str) -> None:
    value = [helper.make_tensor_value_info(name, 1, [4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Tanh", ["x"], ["y"])], "g", value[:1], value[1:])
    with pumice.load(helper.make_model(graph, ir_version=10), precision=precision) as model:
        model(numbers(4))
        assert model.report().before == 1


@pytest.mark.parametrize("fuse", [None, 2, "attention"])
def test_what_is_neither_a_bool_nor_names(context: pumice.Context, fuse: object) -> None:
    graph = pumice.Graph("g")
    gemm(graph)
    with pytest.raises(TypeError):
        graph.compile(context, fuse=fuse)


def test_a_name_that_is_no_fusion(context: pumice.Context) -> None:
    with pytest.raises(pumice.Error, match="fuse: expected the names of fusions, .*attention.*; given 'atention'"):
        compiled(gemm, context, fuse=["atention"])


def test_every_fusion_says_what_it_does() -> None:
    assert all(summary.endswith(".") for summary in pumice.fusions().values())
