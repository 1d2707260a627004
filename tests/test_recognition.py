"""Operators written out in primitives become one dispatch, which gives what they give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
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
    """As exporters ask for the size of a head, where other sizes are symbolic."""
    last = graph.add("Slice", graph.add("Shape", q), np.array([-1]), np.array([2**31]))
    root = graph.add("Sqrt", graph.add("Cast", last, to=CAST_FLOAT))
    each = graph.add("Sqrt", graph.add("Div", number([1]), root))
    keys = graph.add("Mul", transposed(graph, k), each)
    return attend(graph, graph.add("MatMul", graph.add("Mul", q, each), keys), v)


def transposed_in_rows(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    """As the exporter of torch.export writes it for symbolic sizes."""
    shape = graph.add("Shape", k)

    def part(first: int, last: int) -> pumice.Value:
        return graph.add("Slice", shape, np.array([first]), np.array([last]))

    flat = graph.add("Reshape", k, graph.add("Concat", np.array([-1]), part(2, 3), part(3, 4), axis=0))
    turned = graph.add("Transpose", flat, perm=[0, 2, 1])
    sizes = graph.add("Concat", part(0, 2), part(3, 4), part(2, 3), axis=0)
    return attend(graph, graph.add("MatMul", q, graph.add("Reshape", turned, sizes)), v)


def guarded(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    bias = graph.add("Where", EMPTY_ROWS, number(0), number(-np.inf))
    scores = graph.add("Add", graph.add("MatMul", q, transposed(graph, k)), bias)
    shares = graph.add("Softmax", scores)
    whole = graph.add("Where", graph.add("IsNaN", shares), number(0), shares)
    return graph.add("MatMul", whole, v)


def masked(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    """A row of which nothing is seen sees all alike."""
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
    """Heads behind rows on the way in and on the way out."""
    q, k, v = (graph.add("Transpose", graph.add("Relu", x), perm=[0, 2, 1, 3]) for x in (q, k, v))
    q, v = (graph.add("Transpose", x, perm=[0, 2, 1, 3]) for x in (q, v))
    mixed = attend(graph, graph.add("MatMul", q, graph.add("Transpose", k, perm=[0, 2, 3, 1])), v)
    return graph.add("Transpose", mixed, perm=[0, 2, 1, 3])


def broadcast(graph: pumice.Graph, q: pumice.Value, k: pumice.Value, v: pumice.Value) -> pumice.Value:
    one = graph.add("Slice", transposed(graph, k), np.array([0]), np.array([1]), np.array([1]))
    last = graph.add("Slice", v, np.array([1]), np.array([2]), np.array([0]))
    return attend(graph, graph.add("MatMul", q, one), last)


RECOGNISED: dict[Build, int] = {  # and how many dispatches are left
    scaled_after: 1,
    scaled_before: 1,
    scaled_by_its_size: 1,
    transposed_in_rows: 1,
    guarded: 1,
    masked: 1,
    hidden: 1,
    widened: 1,
    by_rows: 4,
    broadcast: 5,
}
SYMBOLIC = (scaled_by_its_size, transposed_in_rows)  # the others meet masks of fixed sizes


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
    if precision == "fp32":  # else there are casts at the border too
        assert fused.arena(shapes)["dispatches"] == RECOGNISED[build]
    assert fused.arena(shapes)["dispatches"] < plain.arena(shapes)["dispatches"]
    tolerance = 1e-5 if precision == "fp32" else 8e-3
    exact = compiled(build, context, "fp32", fuse=False)(given)["y"]
    assert_close(fused(given)["y"], exact, rtol=tolerance, atol=tolerance)


def test_the_report_tells_what_attention_has_taken_up(context: pumice.Context) -> None:
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
