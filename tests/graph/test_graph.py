"""Graphs: errors of add(), shapes it infers, names, and when a graph becomes immutable."""

from __future__ import annotations

import gc
import resource
import weakref

import numpy as np
import pytest

import pumice


def image_graph(batch: int | None = None) -> tuple[pumice.Graph, pumice.Value]:
    graph = pumice.Graph("image")
    return graph, graph.input("x", "float32", [batch, 3, 32, 32], ["N", "", "", ""])


def weight(*shape: int) -> np.ndarray:
    return np.zeros(shape, "float32")


def test_shapes_are_known_node_by_node() -> None:
    graph, x = image_graph(2)
    conv = graph.add("Conv", x, weight(8, 3, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2], name="conv")
    flat = graph.add("Flatten", conv)
    y = graph.add("Gemm", flat, weight(8 * 16 * 16, 10), name="head", output_names=["scores"])
    assert (conv.shape, flat.shape, y.shape) == ((2, 8, 16, 16), (2, 2048), (2, 10))
    assert (y.name, y.dtype) == ("scores", "float32")
    assert len(graph) == 3


def test_sizes_that_follow_from_an_unknown_one_are_unknown() -> None:
    graph, x = image_graph(None)
    conv = graph.add("Conv", x, weight(8, 3, 3, 3))
    shape = graph.add("Shape", conv)
    assert conv.shape == (None, 8, 30, 30)
    assert (shape.shape, shape.dtype) == ((4,), "int64")
    assert graph.add("Reshape", conv, np.array([0, -1], "int64")).shape == (None, 8 * 30 * 30)


def test_a_result_has_its_own_dtype_where_shapes_are_unknown() -> None:
    graph = pumice.Graph()
    a = graph.input("a", "float32", None)
    b = graph.input("b", "float32", [None, 7])
    less = graph.add("Less", a, b)
    assert less.dtype == "bool"
    assert graph.add("Where", less, a, b).dtype == "float32"
    assert graph.add("Cast", b, to=7).dtype == "int64"
    sizes = graph.input("sizes", "int64", [2])
    assert graph.add("ConstantOfShape", sizes, value=np.array([1], "int32")).dtype == "int32"
    assert graph.add("ConstantOfShape", sizes).dtype == "float32"


def test_several_outputs_come_as_a_tuple() -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float32", [6, 4])
    parts = graph.add("Split", x, np.array([1, 2, 3], "int64"), outputs=3, output_names=["a", "b", "c"], axis=0)
    assert [part.shape for part in parts] == [(1, 4), (2, 4), (3, 4)]
    assert [part.name for part in parts] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "text"),
    [
        ("Add", [(2, 3), (2, 4)], {}, r"\[2, 3\].*\[2, 4\]"),
        ("Conv", [(1, 3, 8, 8), (4, 2, 3, 3)], {}, "channels"),
        ("MatMul", [(2, 3), (4, 5)], {}, r"\[2, 3\].*\[4, 5\]|3.*4"),
        ("Relu", [(2, 3), (2, 3)], {}, "at most 1 input"),
        ("Add", [(2, 3)], {}, "needs input 1"),
        ("Transpose", [(2, 3)], {"perm": [0, 0]}, "axis 0"),
        ("Softmax", [(2, 3)], {"axis": 5}, "axis"),
        ("Softmax", [(2, 3)], {"axis": "last"}, "axis"),
        ("DepthToSpace", [(1, 4, 2, 2)], {}, "blocksize"),
        ("MaxPool", [(1, 4)], {"kernel_shape": [2, 2]}, "rank"),
    ],
)
def test_a_wrong_node_is_rejected_by_name(
    op: str, shapes: list[tuple[int, ...]], attributes: dict[str, object], text: str
) -> None:
    graph = pumice.Graph()
    inputs = [graph.input(f"x{i}", "float32", list(shape)) for i, shape in enumerate(shapes)]
    with pytest.raises(pumice.GraphError, match=text) as caught:
        graph.add(op, *inputs, name="culprit", **attributes)
    assert caught.value.node == "culprit"
    assert len(graph) == 0


def test_an_unknown_operator_and_an_unsupported_dtype_are_unsupported() -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float64", [2])
    with pytest.raises(pumice.UnsupportedError, match="Frobnicate") as caught:
        graph.add("Frobnicate", x, name="odd")
    assert "odd" in caught.value.items[0]
    with pytest.raises(pumice.UnsupportedError, match="float64") as caught:
        graph.add("Hardmax", x, name="wide")
    assert "wide" in caught.value.items[0]


def test_a_rejected_node_leaves_the_graph_as_it_was(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float32", [4])
    with pytest.raises(pumice.GraphError):
        graph.add("Add", x, np.zeros(3, "float32"), name="sum", output_names=["y"])
    graph.output("y", graph.add("Add", x, np.ones(4, "float32"), name="sum", output_names=["y"]))
    y = graph.compile(context)({"x": np.arange(4, dtype="float32")})["y"]
    np.testing.assert_array_equal(y, [1, 2, 3, 4])


def test_names_are_unique() -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float32", [4])
    with pytest.raises(pumice.GraphError, match="'?x'?"):
        graph.input("x", "float32", [4])
    graph.add("Relu", x, name="relu", output_names=["y"])
    with pytest.raises(pumice.GraphError, match="relu"):
        graph.add("Relu", x, name="relu")
    with pytest.raises(pumice.GraphError, match="y"):
        graph.add("Relu", x, name="other", output_names=["y"])
    graph.output("out", x)
    with pytest.raises(pumice.GraphError, match="out"):
        graph.output("out", x)


def test_nodes_and_values_without_names_get_different_ones() -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float32", [4])
    values = [
        graph.add("Relu", x),
        graph.add("Relu", x),
        graph.constant(np.zeros(4, "float32")),
        graph.constant(np.zeros(4, "float32")),
    ]
    assert len({value.name for value in values}) == 4


def test_a_value_of_another_graph_is_rejected() -> None:
    graph, other = pumice.Graph("one"), pumice.Graph("two")
    x = other.input("x", "float32", [4])
    with pytest.raises(pumice.GraphError, match="another graph"):
        graph.add("Relu", x)
    with pytest.raises(pumice.GraphError, match="another graph"):
        graph.output("y", x)


def test_something_that_is_no_value_is_rejected() -> None:
    graph = pumice.Graph()
    with pytest.raises(pumice.GraphError, match="dict"):
        graph.add("Relu", {})


def test_a_finished_graph_does_not_change(context: pumice.Context) -> None:
    graph = pumice.Graph("done")
    x = graph.input("x", "float32", [4])
    graph.output("y", graph.add("Relu", x))
    assert not graph.finished
    graph.compile(context)
    assert graph.finished
    graph.finish()
    for change in (
        lambda: graph.input("z", "float32", [4]),
        lambda: graph.add("Relu", x),
        lambda: graph.constant(np.zeros(1, "float32")),
        lambda: graph.output("z", x),
    ):
        with pytest.raises(pumice.StateError, match="done"):
            change()


def test_a_graph_without_outputs_is_rejected(context: pumice.Context) -> None:
    graph = pumice.Graph("empty")
    graph.input("x", "float32", [4])
    with pytest.raises(pumice.GraphError, match="output"):
        graph.compile(context)


def test_inputs_and_outputs_are_listed() -> None:
    graph, x = image_graph()
    y = graph.add("Relu", x)
    graph.output("y", y)
    graph.output("again", y)
    assert graph.inputs == [x]
    assert graph.outputs == {"y": y, "again": y}
    assert hash(graph.inputs[0]) == hash(x)
    assert repr(x) == "<Value 'x' float32[?, 3, 32, 32]>"
    assert repr(graph) == "<Graph 'image': 1 inputs, 1 nodes, 2 outputs>"


def test_a_value_keeps_its_graph_alive() -> None:
    graph, x = image_graph()
    del graph
    gc.collect()
    assert x.graph.name == "image"


def test_a_constant_keeps_its_array_and_the_graph_lets_it_go() -> None:
    class Tracked(np.ndarray):
        pass

    array = np.ones(1000, "float32").view(Tracked)
    alive = weakref.ref(array)
    graph = pumice.Graph()
    graph.constant(array)
    del array
    gc.collect()
    assert alive() is not None
    del graph
    gc.collect()
    assert alive() is None


def test_a_bad_shape_of_an_input_is_rejected() -> None:
    graph = pumice.Graph()
    with pytest.raises(pumice.GraphError, match="rank 9"):
        graph.input("x", "float32", [1] * 9)
    with pytest.raises(pumice.GraphError, match="R8"):
        graph.input("x", "float32", [65536, 65536])
    assert graph.input("x", "float32", [2, 0, None]).shape == (2, None, None)  # 0 means an unknown size


def test_an_unknown_precision_is_unsupported(context: pumice.Context) -> None:
    graph = pumice.Graph()
    graph.output("y", graph.add("Relu", graph.input("x", "float32", [4])))
    with pytest.raises(pumice.UnsupportedError, match="fp13"):
        graph.compile(context, precision="fp13")


def test_nodes_can_be_looked_at() -> None:
    graph, x = image_graph(2)
    kernels = weight(8, 3, 3, 3) + 1
    y = graph.add("Conv", x, kernels, strides=[2, 2], name="conv")
    graph.output("z", graph.add("ConstantOfShape", graph.add("Shape", y), value=np.array([3], "int32")))
    conv, shape, fill = graph.nodes
    assert [node.op for node in graph.nodes] == ["Conv", "Shape", "ConstantOfShape"]
    assert (conv.name, conv.inputs[0], conv.outputs) == ("conv", x, [y])
    assert conv.attributes["strides"] == [2, 2] and len(conv.inputs) == 2
    (taken,) = (value for value in conv.inputs if value is not None and value.constant is not None)
    np.testing.assert_array_equal(taken.constant, kernels)
    assert x.constant is None and shape.inputs == [y] and repr(shape).startswith("<Node '")
    np.testing.assert_array_equal(fill.attributes["value"], np.array([3], "int32"))
    clip = pumice.Graph()
    clip.add("Clip", clip.input("x", "float32", [2]), None, np.array(6, "float32"))
    assert [None if value is None else value.name for value in clip.nodes[0].inputs][:2] == ["x", None]


@pytest.mark.parametrize("op", ["Pad", "Unsqueeze", "Tile", "Reshape", "ReduceSum"])
def test_inputs_whose_elements_are_read_are_not_guessed_where_they_are_many(op: str) -> None:
    """A model of a hundred bytes may declare any size: adding the node must not cost that much memory or time."""
    graph = pumice.Graph()
    x, many = graph.input("x", "float32", (2, 6, 4)), graph.input("many", "int64", (2**31,))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert graph.add(op, x, many).dtype == "float32"
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10 < 256  # MiB
