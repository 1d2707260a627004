"""Transpose, Split and Reshape as strided views: no dispatch, and the right elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from tensor_arrays import numbers

Array = npt.NDArray[Any]


def compiled(context: pumice.Context, build: Callable[[pumice.Graph], None], precision: str = "fp32") -> pumice.Program:
    graph = pumice.Graph("views")
    build(graph)
    return graph.compile(context, precision)


def notes(program: pumice.Program) -> dict[str, str]:
    return {row["node"]: row["note"] for row in program.report()}


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


@pytest.mark.parametrize("batch", [1, 3])
def test_queries_keys_and_values_of_one_matmul_are_not_moved(context: pumice.Context, batch: int) -> None:
    rows, heads, size = 10, 2, 16
    w = numbers(24, 3 * heads * size) / np.float32(5)

    def build(graph: pumice.Graph) -> None:
        x = graph.input("x", "float32", [batch, rows, 24])
        qkv = graph.add("Reshape", graph.add("MatMul", x, w), np.array([batch, rows, 3, heads, size]))
        turned = graph.add("Transpose", qkv, name="turned", perm=[2, 0, 3, 1, 4])
        parts = graph.add("Split", turned, axis=0, outputs=3, name="split")
        q, k, v = (graph.add("Squeeze", part, np.array([0])) for part in parts)
        scores = graph.add("MatMul", q, graph.add("Transpose", k, perm=[0, 1, 3, 2]))
        mixed = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), v)
        graph.output("y", mixed)

    program = compiled(context, build)
    x = numbers(batch, rows, 24)
    q, k, v = np.transpose((x @ w).reshape(batch, rows, 3, heads, size), (2, 0, 3, 1, 4))
    np.testing.assert_allclose(program({"x": x})["y"], softmax(q @ np.swapaxes(k, 2, 3)) @ v, rtol=1e-4, atol=1e-5)
    assert notes(program)["turned"] == notes(program)["split"] == "view"
    assert program.arena([[batch, rows, 24]])["dispatches"] == 2


@pytest.mark.parametrize("batch", [1, 2])
def test_a_convolution_of_one_axis_gives_rows(context: pumice.Context, batch: int) -> None:
    w, v = numbers(16, 24, 1), numbers(16, 16, 1, seed=1)

    def build(graph: pumice.Graph) -> None:
        x = graph.input("x", "float32", [batch, 24, 11])
        made = graph.add("Relu", graph.add("Conv", graph.add("Conv", x, w), v))
        graph.output(
            "y",
            graph.add("LayerNormalization", graph.add("Transpose", made, name="t", perm=[0, 2, 1]), np.ones(16, "f4")),
        )

    program = compiled(context, build)
    x = numbers(batch, 24, 11)
    rows = np.maximum(np.einsum("bcw,dc,ed->bwe", x, w[..., 0], v[..., 0]), 0)
    normal = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(program({"x": x})["y"], normal, rtol=1e-3, atol=1e-4)
    assert notes(program)["t"] == "view"


def test_patches_become_rows(context: pumice.Context) -> None:
    w = numbers(16, 3, 4, 4)

    def build(graph: pumice.Graph) -> None:
        x = graph.input("x", "float32", [2, 3, 12, 8])
        flat = graph.add("Reshape", graph.add("Conv", x, w, strides=[4, 4]), np.array([2, 16, 6]), name="flat")
        graph.output("y", graph.add("Softmax", graph.add("Transpose", flat, name="t", perm=[0, 2, 1]), axis=-1))

    program = compiled(context, build)
    x = numbers(2, 3, 12, 8)
    rows = np.einsum("nchiwj,ocij->nhwo", x.reshape(2, 3, 3, 4, 2, 4), w).reshape(2, 6, 16)
    np.testing.assert_allclose(program({"x": x})["y"], softmax(rows), rtol=1e-4, atol=1e-5)
    assert notes(program)["t"] == notes(program)["flat"] == "view"


def test_channels_that_come_last_need_no_transposition(context: pumice.Context) -> None:
    w = numbers(8, 8, 3, 3)

    def build(graph: pumice.Graph) -> None:
        x = graph.add("Sqrt", graph.input("x", "float32", [1, 5, 6, 8]))
        made = graph.add("Conv", graph.add("Transpose", x, name="in", perm=[0, 3, 1, 2]), w, pads=[1, 1, 1, 1])
        graph.output("y", graph.add("Softmax", graph.add("Transpose", made, name="out", perm=[0, 2, 3, 1]), axis=-1))

    program = compiled(context, build)
    x = np.abs(numbers(1, 5, 6, 8))
    padded = np.pad(np.sqrt(x), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    np.testing.assert_allclose(
        program({"x": x})["y"], softmax(np.einsum("nhwcij,ocij->nhwo", windows, w)), rtol=1e-4, atol=1e-5
    )
    assert notes(program)["in"] == notes(program)["out"] == "view"


@pytest.mark.parametrize("batch", [1, 2])
def test_parts_of_a_split_in_a_concatenation_and_as_outputs(context: pumice.Context, batch: int) -> None:
    """A slice shares memory with the tensor it was split from, so it cannot also live in the memory of a Concat or an output."""

    def build(graph: pumice.Graph) -> None:
        x = graph.add("Relu", graph.input("x", "float32", [batch, 8, 4, 4]))
        first, second = graph.add("Split", x, axis=1, outputs=2)
        graph.output("whole", graph.add("Concat", second, first, axis=1))
        graph.output("first", first)
        graph.output("second", second)
        one, two = graph.add("Split", graph.add("Abs", x), axis=1, outputs=2)
        graph.output("one", one)
        graph.output("sum", graph.add("Add", one, graph.add("Sigmoid", two)))

    program = compiled(context, build)
    x = numbers(batch, 8, 4, 4)
    made, relu = program({"x": x}), np.maximum(x, 0)
    wanted = {
        "whole": np.concatenate([relu[:, 4:], relu[:, :4]], 1),
        "first": relu[:, :4],
        "second": relu[:, 4:],
        "one": relu[:, :4],
        "sum": relu[:, :4] + 1 / (1 + np.exp(-relu[:, 4:])),
    }
    for name, value in wanted.items():
        np.testing.assert_allclose(made[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_transpositions_that_move_no_element(context: pumice.Context) -> None:
    def build(graph: pumice.Graph) -> None:
        x = graph.add("Relu", graph.input("x", "float32", [1, 6, 1, 5]))
        graph.output("y", graph.add("Transpose", x, name="still", perm=[2, 1, 0, 3]))
        graph.output("z", graph.add("Transpose", x, name="moved", perm=[0, 3, 2, 1]))

    program = compiled(context, build)
    x = numbers(1, 6, 1, 5)
    made = program({"x": x})
    np.testing.assert_array_equal(made["y"], np.maximum(x, 0).transpose(2, 1, 0, 3))
    np.testing.assert_array_equal(made["z"], np.maximum(x, 0).transpose(0, 3, 2, 1))
    assert notes(program)["still"] == "view" and notes(program)["moved"] == ""


def test_no_elements(context: pumice.Context) -> None:
    def build(graph: pumice.Graph) -> None:
        x = graph.add("Relu", graph.input("x", "float32", [None, 4, 6]))
        first, second = graph.add("Split", graph.add("Transpose", x, perm=[0, 2, 1]), axis=1, outputs=2)
        graph.output("y", graph.add("Add", first, second))

    program = compiled(context, build)
    assert program({"x": numbers(0, 4, 6)})["y"].shape == (0, 3, 4)
    x = numbers(2, 4, 6)
    turned = np.maximum(x, 0).transpose(0, 2, 1)
    np.testing.assert_allclose(program({"x": x})["y"], turned[:, :3] + turned[:, 3:], rtol=1e-6)


def test_the_indices_of_a_pooling_are_part_of_a_concatenation_of_channels(context: pumice.Context) -> None:
    def build(graph: pumice.Graph) -> None:
        x = graph.input("x", "float32", [2, 4, 6, 6])
        made = [graph.add("MaxPool", x, kernel_shape=[size] * 2, strides=[2, 2], outputs=2) for size in (1, 2)]
        for i in range(2):
            graph.output(f"whole{i}", graph.add("Concat", *(pair[i] for pair in made), axis=1))

    x = numbers(2, 4, 6, 6)
    places = np.arange(x.size).reshape(x.shape)
    corner = places[:, :, ::2, ::2]
    windows = np.stack([places[:, :, i::2, j::2] for i in range(2) for j in range(2)], -1)
    largest = np.take_along_axis(windows, x.ravel()[windows].argmax(-1)[..., None], -1)[..., 0]
    whole = np.concatenate([corner, largest], 1)
    made = compiled(context, build)({"x": x})
    np.testing.assert_array_equal(made["whole1"], whole)
    np.testing.assert_array_equal(made["whole0"], x.ravel()[whole])
