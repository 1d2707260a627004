"""Operators decomposed into primitives are fused into one dispatch with the same results."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import pumice
from pumice.testing import assert_close

Array = np.ndarray[Any, Any]
Build = Callable[[pumice.Graph, pumice.Value, pumice.Value, pumice.Value], pumice.Value]

BATCH, HEADS, ROWS, KEYS, SIZE = 2, 3, 19, 21, 16
CAST_HALF, CAST_FLOAT = 10, 1


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype("float32")


def number(value: float) -> Array:
    return np.array(value, "float32")


def mask(*shape: int) -> Array:
    return np.random.default_rng(1).random(shape) > 0.4


HIDDEN = np.where(mask(ROWS, KEYS), 0, -np.inf).astype("float32")
EMPTY_ROWS = mask(BATCH, 1, ROWS, KEYS) & (np.arange(ROWS)[:, None] % 5 > 0)


def transposed(graph: pumice.Graph, k: pumice.Value) -> pumice.Value:
    return graph.add("Transpose", k, perm=[0, 1, 3, 2])


def attend(graph: pumice.Graph, scores: pumice.Value, v: pumice.Value) -> pumice.Value:
    return graph.add("MatMul", graph.add("Softmax", scores, name="softmax"), v, name="mixed")


def scaled_after(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    scores = graph.add("Div", graph.add("MatMul", q, transposed(graph, k)), number(4), name="scaled")
    return attend(graph, graph.add("Add", scores, HIDDEN), v)


def scaled_before(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    keys = graph.add("Mul", transposed(graph, k), number(0.5))
    scores = graph.add("MatMul", graph.add("Mul", q, number(0.5)), keys)
    return attend(graph, scores, v)


def scaled_by_its_size(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    """Attention scaled by head_dim, which exporters read from the shape if other sizes are symbolic."""
    last = graph.add("Slice", graph.add("Shape", q), np.array([-1]), np.array([2**31]))
    root = graph.add("Sqrt", graph.add("Cast", last, to=CAST_FLOAT))
    each = graph.add("Sqrt", graph.add("Div", number([1]), root))
    keys = graph.add("Mul", transposed(graph, k), each)
    return attend(graph, graph.add("MatMul", graph.add("Mul", q, each), keys), v)


def transposed_in_rows(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    """Attention with K transposed after flattening batch and heads, as torch.export writes it for symbolic sizes."""
    shape = graph.add("Shape", k)

    def part(first: int, last: int) -> pumice.Value:
        return graph.add("Slice", shape, np.array([first]), np.array([last]))

    flat = graph.add("Reshape", k, graph.add("Concat", np.array([-1]), part(2, 3), part(3, 4), axis=0))
    turned = graph.add("Transpose", flat, perm=[0, 2, 1])
    sizes = graph.add("Concat", part(0, 2), part(3, 4), part(2, 3), axis=0)
    return attend(graph, graph.add("MatMul", q, graph.add("Reshape", turned, sizes)), v)


def transposed_by_numbers(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    """The same, with each size as a scalar that Reshape turns into a vector."""
    shape = graph.add("Shape", k)
    batch, heads, rows, size = (
        graph.add("Reshape", graph.add("Gather", shape, np.array(axis)), np.array([-1])) for axis in range(4)
    )
    flat = graph.add("Reshape", k, graph.add("Concat", np.array([-1]), rows, size, axis=0))
    turned = graph.add("Transpose", flat, perm=[0, 2, 1])
    sizes = graph.add("Concat", batch, heads, size, rows, axis=0)
    return attend(graph, graph.add("MatMul", q, graph.add("Reshape", turned, sizes)), v)


def guarded(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    bias = graph.add("Where", EMPTY_ROWS, number(0), number(-np.inf))
    scores = graph.add("Add", graph.add("MatMul", q, transposed(graph, k)), bias)
    shares = graph.add("Softmax", scores)
    whole = graph.add("Where", graph.add("IsNaN", shares), number(0), shares)
    return graph.add("MatMul", whole, v)


def masked(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    """A fully masked row attends to all keys equally."""
    scores = graph.add("MatMul", q, transposed(graph, k))
    return attend(graph, graph.add("Where", EMPTY_ROWS, scores, number(-10000)), v)


def hidden(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    scores = graph.add("MatMul", q, transposed(graph, k))
    return attend(graph, graph.add("Where", mask(1, HEADS, 1, KEYS), number(-np.inf), scores), v)


def widened(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    scores = graph.add("Mul", graph.add("MatMul", q, transposed(graph, k)), number(0.25))
    wide = graph.add("Softmax", graph.add("Cast", scores, to=CAST_FLOAT))
    dropped = graph.add("Dropout", graph.add("Cast", wide, to=CAST_FLOAT))
    return graph.add("MatMul", graph.add("Identity", dropped), v)


def by_rows(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    """Transpose between [batch, seq, heads, head_dim] and heads-first layout, before and after."""
    q, k, v = (graph.add("Transpose", graph.add("Relu", x), perm=[0, 2, 1, 3]) for x in (q, k, v))
    q, v = (graph.add("Transpose", x, perm=[0, 2, 1, 3]) for x in (q, v))
    mixed = attend(graph, graph.add("MatMul", q, graph.add("Transpose", k, perm=[0, 2, 3, 1])), v)
    return graph.add("Transpose", mixed, perm=[0, 2, 1, 3])


def broadcast(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    one = graph.add("Slice", transposed(graph, k), np.array([0]), np.array([1]), np.array([1]))
    last = graph.add("Slice", v, np.array([1]), np.array([2]), np.array([0]))
    return attend(graph, graph.add("MatMul", q, one), last)


def whole(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    """ONNX's Attention with grouped heads, after Transposes and before one."""
    q, k, v = (
        graph.add("Transpose", graph.add("Transpose", x, perm=[0, 2, 1, 3]), perm=[0, 2, 1, 3]) for x in (q, k, v)
    )
    k, v = (graph.add("Slice", x, np.array([1]), np.array([2]), np.array([1])) for x in (k, v))
    mixed = graph.add("Attention", q, k, v, mask(ROWS, KEYS), is_causal=1, softcap=3.0, right_window_size=9)
    return graph.add("Transpose", mixed, perm=[0, 2, 1, 3])


def repeated(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    """Grouped-query attention, with the repeated heads written out."""
    shape = graph.add("Shape", q)
    images = graph.add("Slice", shape, np.array([0]), np.array([1]))
    keys = graph.add("Slice", graph.add("Shape", k), np.array([2]), np.array([3]))

    def heads(x: pumice.Value) -> pumice.Value:
        one = graph.add("Slice", x, np.array([0]), np.array([1]), np.array([1]))
        sizes = graph.add("Concat", images, np.array([1, HEADS]), keys, np.array([SIZE]), axis=0)
        wide = graph.add("Expand", graph.add("Unsqueeze", one, np.array([2])), sizes)
        return graph.add(
            "Reshape", wide, graph.add("Concat", images, np.array([HEADS]), keys, np.array([SIZE]), axis=0)
        )

    k, v = heads(k), heads(v)
    return attend(graph, graph.add("MatMul", q, transposed(graph, k)), v)


def one_after_another(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    """The second attention reads the first one's result through two Transposes; the first has fused one of them."""
    for _ in range(2):
        shares = graph.add("Softmax", graph.add("MatMul", q, transposed(graph, k)))
        rows = graph.add("Transpose", graph.add("MatMul", shares, v), perm=[0, 2, 1, 3])
        q = graph.add("Transpose", rows, perm=[0, 2, 1, 3])
    return q


# The number of dispatches that remain of each graph.
RECOGNISED: dict[Build, int] = {
    scaled_after: 1,
    scaled_before: 1,
    scaled_by_its_size: 1,
    transposed_in_rows: 1,
    transposed_by_numbers: 1,
    guarded: 1,
    masked: 1,
    hidden: 1,
    widened: 1,
    by_rows: 4,
    broadcast: 5,
    whole: 7,
    repeated: 3,
    one_after_another: 3,
}
SYMBOLIC = (
    scaled_by_its_size,
    transposed_in_rows,
    transposed_by_numbers,
    repeated,
)  # the others have masks of fixed size


def compiled(build: Build, context: pumice.Context, precision: str, fuse: bool = True) -> pumice.Program:
    graph = pumice.Graph()
    values = [
        graph.input(name, "float32", [None, HEADS, None, SIZE] if build in SYMBOLIC else list(array.shape))
        for name, array in inputs().items()
    ]
    graph.output("y", build(graph, *values))
    return graph.compile(context, precision=precision, fuse=fuse)


def inputs() -> dict[str, Array]:
    sizes = {"q": ROWS, "k": KEYS, "v": KEYS}
    return {name: random(BATCH, HEADS, rows, SIZE, seed=ord(name)) for name, rows in sizes.items()}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("build", RECOGNISED, ids=lambda build: build.__name__)
def test_attention_becomes_one_dispatch(build: Build, precision: str, context: pumice.Context) -> None:
    given = inputs()
    shapes = [list(array.shape) for array in given.values()]
    fused, plain = (compiled(build, context, precision, fuse) for fuse in (True, False))
    if precision == "fp32":  # other precisions add casts of inputs and outputs
        assert fused.arena(shapes)["dispatches"] == RECOGNISED[build]
    assert fused.arena(shapes)["dispatches"] < plain.arena(shapes)["dispatches"]
    tolerance = 1e-5 if precision == "fp32" else 8e-3
    exact = compiled(build, context, "fp32", fuse=False)(given)["y"]
    assert_close(fused(given)["y"], exact, rtol=tolerance, atol=tolerance)


def repeated_in_one_image(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    """All keys belong to a single batch item."""

    def heads(x: pumice.Value) -> pumice.Value:
        wide = graph.add("Expand", graph.add("Unsqueeze", x, np.array([2])), np.array([1, 1, 1, 1, 1]))
        return graph.add("Reshape", wide, np.array([1, HEADS, -1, SIZE]))

    k, v = heads(k), heads(v)
    return attend(graph, graph.add("MatMul", q, transposed(graph, k)), v)


def test_heads_that_change_places_with_images_are_kept(context: pumice.Context) -> None:
    fused, plain = (compiled(repeated_in_one_image, context, "fp32", fuse)(inputs())["y"] for fuse in (True, False))
    assert_close(fused, plain, rtol=1e-5, atol=1e-5)


def test_the_report_lists_what_was_fused_into_attention(context: pumice.Context) -> None:
    rows = {row["node"]: row for row in compiled(scaled_after, context, "fp32").report()}
    assert [rows[name]["note"] for name in ("scaled", "softmax")] == ["fused into mixed"] * 2
    assert rows["mixed"]["kernel"].startswith("attention_")


def test_rows_that_see_nothing_are_not_a_number_unless_they_are_guarded(context: pumice.Context) -> None:
    def build(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
        scores = graph.add("MatMul", q, transposed(graph, k))
        return attend(graph, graph.add("Where", EMPTY_ROWS, scores, number(-np.inf)), v)

    y = compiled(build, context, "fp32")(inputs())["y"]
    np.testing.assert_array_equal(np.isnan(y), np.broadcast_to(np.arange(ROWS)[:, None] % 5 == 0, y.shape))
    assert not np.isnan(compiled(guarded, context, "fp32")(inputs())["y"]).any()


def shares_are_read(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    shares = graph.add("Softmax", graph.add("MatMul", q, transposed(graph, k)))
    graph.output("shares", shares)
    return graph.add("MatMul", shares, v)


def scaled_after_the_mask(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    scores = graph.add("Add", graph.add("MatMul", q, transposed(graph, k)), random(ROWS, KEYS))
    return attend(graph, graph.add("Mul", scores, number(0.25)), v)


def two_masks(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    scores = graph.add("Add", graph.add("MatMul", q, transposed(graph, k)), random(ROWS, KEYS))
    return attend(graph, graph.add("Where", mask(ROWS, KEYS), scores, number(-10000)), v)


def another_axis(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    shares = graph.add("Softmax", graph.add("MatMul", q, transposed(graph, k)), axis=2)
    return graph.add("MatMul", shares, v)


def scaled_by_each(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    scores = graph.add("Mul", graph.add("MatMul", q, transposed(graph, k)), random(ROWS, 1))
    return attend(graph, scores, v)


@pytest.mark.parametrize(
    "build", [shares_are_read, scaled_after_the_mask, two_masks, another_axis, scaled_by_each], ids=lambda b: b.__name__
)
def test_what_is_no_attention_stays(build: Build, context: pumice.Context) -> None:
    fused, plain = (compiled(build, context, "fp32", fuse) for fuse in (True, False))
    assert not any("attention" in row["kernel"] for row in fused.report())
    for name, expected in plain(inputs()).items():
        assert_close(fused(inputs())[name], expected, rtol=1e-5, atol=1e-5)


# ---- other operators


WIDTH = 24


def bell(graph: pumice.Graph, x: pumice.Value) -> pumice.Value:
    return graph.add("Add", graph.add("Erf", graph.add("Div", x, number(2**0.5))), number(1))


def gelu(graph: pumice.Graph, x: pumice.Value) -> pumice.Value:
    return graph.add("Mul", graph.add("Mul", x, bell(graph, x)), number(0.5))


def gelu_halved_first(graph: pumice.Graph, x: pumice.Value) -> pumice.Value:
    half = graph.add("Erf", graph.add("Mul", number(0.5**0.5), x))
    return graph.add("Mul", graph.add("Mul", number(0.5), x), graph.add("Add", number(1), half))


def gelu_by_tanh(graph: pumice.Graph, x: pumice.Value) -> pumice.Value:
    cube = graph.add("Mul", graph.add("Pow", x, number(3)), number(0.044715))
    inner = graph.add("Tanh", graph.add("Mul", graph.add("Add", x, cube), number((2 / np.pi) ** 0.5)))
    return graph.add("Mul", x, graph.add("Mul", number(0.5), graph.add("Add", inner, number(1))))


def swish(graph: pumice.Graph, x: pumice.Value) -> pumice.Value:
    return graph.add("Mul", graph.add("Sigmoid", graph.add("Mul", x, number(1.5))), x)


def mean(graph: pumice.Graph, x: pumice.Value) -> pumice.Value:
    return graph.add("ReduceMean", x, np.array([-1]))


def deviation(graph: pumice.Graph, x: pumice.Value) -> pumice.Value:
    return graph.add("Sqrt", graph.add("Add", mean(graph, graph.add("Pow", x, number(2))), number(1e-3)))


def layer_norm(graph: pumice.Graph, x: pumice.Value) -> pumice.Value:
    centred = graph.add("Sub", x, mean(graph, x))
    normal = graph.add("Div", centred, deviation(graph, centred))
    return graph.add("Add", graph.add("Mul", normal, random(WIDTH, seed=1)), random(WIDTH, seed=2))


def layer_norm_without_bias(graph: pumice.Graph, x: pumice.Value) -> pumice.Value:
    centred = graph.add("Sub", x, mean(graph, x))
    return graph.add("Mul", random(WIDTH, seed=1), graph.add("Div", centred, deviation(graph, centred)))


def layer_norm_as_a_factor(graph: pumice.Graph, x: pumice.Value) -> pumice.Value:
    """LayerNormalization as TensorFlow writes it: x times a factor, plus a remainder."""
    middle = mean(graph, x)
    centred = graph.add("Sub", x, middle)
    variance = graph.add("Add", mean(graph, graph.add("Mul", centred, centred)), number(1e-3))
    factor = graph.add("Mul", graph.add("Reciprocal", graph.add("Sqrt", variance)), random(WIDTH, seed=1))
    rest = graph.add("Sub", random(WIDTH, seed=2), graph.add("Mul", middle, factor))
    return graph.add("Add", graph.add("Mul", x, factor), rest)


def rms_norm(graph: pumice.Graph, x: pumice.Value) -> pumice.Value:
    wide = graph.add("Cast", x, to=CAST_FLOAT)
    share = graph.add("Reciprocal", deviation(graph, wide))
    return graph.add("Mul", random(WIDTH, seed=1), graph.add("Cast", graph.add("Mul", wide, share), to=CAST_FLOAT))


def linear_gelu(graph: pumice.Graph, x: pumice.Value) -> pumice.Value:
    return gelu(graph, graph.add("Add", random(20, seed=3), graph.add("MatMul", x, random(WIDTH, 20, seed=4))))


WRITTEN_OUT = {
    gelu: "Gelu",
    gelu_halved_first: "Gelu",
    gelu_by_tanh: "Gelu",
    swish: "Swish",
    layer_norm: "layer_norm",
    layer_norm_without_bias: "layer_norm",
    layer_norm_as_a_factor: "layer_norm",
    rms_norm: "layer_norm",
    linear_gelu: "conv_",
}


def one_input(build: Any, context: pumice.Context, precision: str, fuse: bool = True) -> pumice.Program:
    graph = pumice.Graph()
    x = graph.input("x", "float32", [None, None, WIDTH])
    graph.output("y", build(graph, x))
    return graph.compile(context, precision=precision, fuse=fuse)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("build", WRITTEN_OUT, ids=lambda build: build.__name__)
def test_what_is_written_out_becomes_one_dispatch(build: Any, precision: str, context: pumice.Context) -> None:
    x = random(3, 5, WIDTH)
    fused, plain = (one_input(build, context, precision, fuse) for fuse in (True, False))
    before, after = (program.arena([list(x.shape)])["dispatches"] for program in (plain, fused))
    # other precisions add casts of inputs and outputs
    assert after == 1 < before if precision == "fp32" else after <= 3 < before
    tolerance = 2e-5 if precision == "fp32" else 1e-2
    exact = one_input(build, context, "fp32", fuse=False)({"x": x})["y"]
    assert_close(fused({"x": x})["y"], exact, rtol=tolerance, atol=tolerance)


def test_parameters_of_another_shape_are_no_normalisation(context: pumice.Context) -> None:
    def build(graph: pumice.Graph, x: pumice.Value) -> pumice.Value:
        centred = graph.add("Sub", x, mean(graph, x))
        return graph.add("Mul", graph.add("Div", centred, deviation(graph, centred)), random(5, WIDTH))

    x = random(3, 5, WIDTH)
    fused, plain = (one_input(build, context, "fp32", fuse) for fuse in (True, False))
    assert not any("layer_norm" in row["kernel"] for row in fused.report())
    assert_close(fused({"x": x})["y"], plain({"x": x})["y"], rtol=1e-5, atol=1e-5)


def test_a_matmul_read_elsewhere_keeps_its_bias_separate(context: pumice.Context) -> None:
    def build(graph: pumice.Graph, x: pumice.Value) -> pumice.Value:
        product = graph.add("MatMul", x, random(WIDTH, 20, seed=4), name="product")
        graph.output("product", product)
        return graph.add("Add", product, random(20, seed=3))

    x = random(3, 5, WIDTH)
    results = one_input(build, context, "fp32")({"x": x})
    assert_close(results["product"], x @ random(WIDTH, 20, seed=4), rtol=1e-5, atol=1e-5)
    assert_close(results["y"], results["product"] + random(20, seed=3), rtol=1e-5, atol=1e-5)


def test_the_report_lists_what_was_recognised(context: pumice.Context) -> None:
    program = one_input(linear_gelu, context, "fp32")
    program({"x": random(3, 5, WIDTH)})
    rows = program.report()
    (left,) = (row for row in rows if row["kernel"])
    assert all(row["note"].startswith("fused into") for row in rows if row is not left)


@pytest.mark.parametrize("shape", [(2, 4, 3, 4), (1, 2, 5, 8)])
def test_every_transposition_behind_attention_is_that_of_its_result(
    context: pumice.Context, shape: tuple[int, ...]
) -> None:
    """Only Transposes that keep the last axis may be fused: the kernels write whole rows along it."""
    random = np.random.default_rng(0)
    given = {name: random.standard_normal(shape).astype("float32") for name in "qkv"}
    perms = list(itertools.permutations(range(4)))
    info = onnx.helper.make_tensor_value_info
    nodes = []
    for i, perm in enumerate(perms):
        nodes.append(onnx.helper.make_node("Attention", ["q", "k", "v"], [f"a{i}"]))
        nodes.append(onnx.helper.make_node("Transpose", [f"a{i}"], [f"y{i}"], perm=perm))
    graph = onnx.helper.make_graph(
        [*nodes, onnx.helper.make_node("Attention", ["q", "k", "v"], ["plain"])],
        "transposed",
        [info(name, onnx.TensorProto.FLOAT, shape) for name in given],
        [info(name, onnx.TensorProto.FLOAT, None) for name in [*(f"y{i}" for i in range(len(perms))), "plain"]],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=10)
    *made, plain = pumice.load(model, context)(**given)
    for perm, one in zip(perms, made, strict=True):
        np.testing.assert_allclose(one, plain.transpose(perm), rtol=1e-5, atol=1e-6, err_msg=str(perm))


def test_what_asks_for_the_type_of_a_result_alone_is_not_made_from_it(context: pumice.Context) -> None:
    """CastLike takes shape and elements from its first input; only the dtype depends on the second."""
    info = onnx.helper.make_tensor_value_info
    nodes = [
        onnx.helper.make_node("ReduceMax", ["x"], ["like"], keepdims=1),
        onnx.helper.make_node("CastLike", ["half", "like"], ["y"]),
        onnx.helper.make_node("Elu", ["x"], ["other"]),
        onnx.helper.make_node("CastLike", ["half", "other"], ["z"]),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "like",
        [info("x", onnx.TensorProto.FLOAT, [1, 3, 2])],
        [info(name, onnx.TensorProto.FLOAT, None) for name in "yz"],
        [onnx.helper.make_tensor("half", onnx.TensorProto.FLOAT, [], [0.5])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    for made in pumice.load(model, context)(np.full((1, 3, 2), 7, "float32")):
        assert made.shape == ()
        assert made == 0.5
