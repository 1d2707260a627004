"""Declared shapes of graph outputs: rejected if known to be wrong, used if the shape is unknown, and checked when a
program is bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice

Sizes = list[int | None] | None


def relu_of(given: Sizes, /, **declared: Any) -> tuple[pumice.Graph, pumice.Value]:
    graph = pumice.Graph()
    y = graph.add("Relu", graph.input("x", "float32", given))
    graph.output("y", y, **declared)
    return graph, y


def test_what_is_known_may_be_declared(context: pumice.Context) -> None:
    x = np.array([[1, -2, 3]], "float32")
    for declared in (
        {"shape": [1, 3]},
        {"shape": [0, None]},
        {"dtype": "float32"},
        {"shape": [1, 3], "dtype": np.float32},
    ):
        graph, y = relu_of([1, 3], **declared)
        assert graph.outputs["y"] == y  # nothing is left to check
        np.testing.assert_array_equal(graph.compile(context)({"x": x})["y"], [[1, 0, 3]])


@pytest.mark.parametrize("shape", [None, [None, None], [None, 3], [2, None]])
def test_sizes_that_are_not_known_are_reported(context: pumice.Context, shape: Sizes) -> None:
    graph, y = relu_of(shape, shape=[2, 3])
    assert graph.outputs["y"].shape == y.shape == (2, 3)
    x = np.random.default_rng(0).standard_normal((2, 3)).astype("float32")
    np.testing.assert_array_equal(graph.compile(context)({"x": x})["y"], np.maximum(x, 0))


def test_sizes_that_are_not_declared_stay_unknown(context: pumice.Context) -> None:
    graph, y = relu_of(None, shape=[None, 3])
    assert y.shape == (None, 3)
    program = graph.compile(context)
    for rows in (0, 1, 5):
        assert program({"x": np.ones((rows, 3), "float32")})["y"].shape == (rows, 3)


def test_nodes_behind_know_what_was_declared() -> None:
    graph, y = relu_of(None, shape=[2, 3])
    assert graph.add("MatMul", y, np.ones((3, 5), "float32")).shape == (2, 5)


@pytest.mark.parametrize(("shape", "given"), [(None, (4, 3)), ([None, 3], (4, 3)), (None, (2, 3, 1)), (None, (3,))])
def test_other_sizes_are_rejected_when_a_program_is_bound(
    context: pumice.Context, shape: Sizes, given: tuple[int, ...]
) -> None:
    program = relu_of(shape, shape=[2, 3])[0].compile(context)
    with pytest.raises(pumice.GraphError, match=r"'y': the output is declared with shape \[2, 3\]"):
        program({"x": np.ones(given, "float32")})
    assert program({"x": np.ones((2, 3), "float32")})["y"].shape == (2, 3)


def test_sizes_that_a_device_alone_knows(context: pumice.Context) -> None:
    graph = pumice.Graph()
    graph.output("y", graph.add("NonZero", graph.input("x", "float32", [4])), shape=[1, 2])
    program = graph.compile(context)
    assert program({"x": np.array([0, 1, 0, 1], "float32")})["y"].tolist() == [[1, 3]]
    with pytest.raises(pumice.GraphError, match="declared with shape"):
        program({"x": np.array([1, 1, 0, 1], "float32")})


@pytest.mark.parametrize("shape", [[2, 4], [3], [2, 3, 1], [], [1, None]])
def test_known_sizes_are_compared_at_once(shape: Sizes) -> None:
    with pytest.raises(pumice.GraphError, match="'y': the output is declared with shape"):
        relu_of([2, 3], shape=shape)


def test_types_are_compared_at_once() -> None:
    graph = pumice.Graph()
    x = graph.input("x", "uint8", [2], scale=0.5, zero_point=3)
    real = graph.input("r", "float32", [2])
    graph.output("same", x, dtype="uint8", scale=0.5, zero_point=3)
    for value, declared in (
        (x, {"dtype": "int8"}),
        (x, {"scale": 0.25, "zero_point": 3}),
        (x, {"scale": 0.5, "zero_point": 4}),
        (real, {"dtype": "float16"}),
        (real, {"scale": 0.5}),
        (real, {"scale": 0.5, "zero_point": 0}),
    ):
        with pytest.raises(pumice.GraphError, match="'other': the output is declared (as|with)"):
            graph.output("other", value, **declared)
    assert list(graph.outputs) == ["same"]


def test_outputs_of_a_loop_may_be_declared(context: pumice.Context) -> None:
    condition, body, graph = pumice.Graph("condition"), pumice.Graph("body"), pumice.Graph("main")
    condition.output("more", condition.add("Less", condition.input("i", "int32", [1]), np.array([3], "int32")))
    state = condition.input("x", "float32", None)
    assert state.shape is None
    i, x = body.input("i", "int32", [1]), body.input("x", "float32", None)
    body.output("i", body.add("Add", i, np.array([1], "int32")), shape=[1], dtype="int32")
    body.output("x", body.add("Add", x, x), shape=[2])
    carried = [graph.input("i", "int32", [1]), graph.input("x", "float32", [2])]
    last = graph.while_(condition, body, carried=carried)
    graph.output("y", last[1], shape=[2])
    made = graph.compile(context)({"i": np.zeros(1, "int32"), "x": np.array([1, 2], "float32")})
    assert made["y"].tolist() == [8, 16]
