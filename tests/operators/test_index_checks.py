"""Indices out of range: those that the host knows are refused, the others are reported where a program checks them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice
from small_programs import of_the_device

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


class Reader(NamedTuple):
    """A node with indices: `add` makes it of the indices and of the other operands, which it makes itself."""

    op: str
    input: int  # which input the indices are
    shape: Shape  # shape of the indices
    sizes: tuple[int, ...]  # sizes of the axes that the indices are of, one after the other along their last axis
    add: Callable[[Any, Any, bool], Any]
    from_end: bool = True
    dtype: str = "int64"


def float_input(graph: Any, name: str, *shape: int, known: bool = True) -> Any:
    return graph.input(name, "float32", list(shape) if known else [None] * len(shape))


def gather(graph: Any, indices: Any, known: bool) -> Any:
    return graph.add("Gather", float_input(graph, "x", 3, 5, 2, known=known), indices, axis=1, name="node")


def gather_elements(graph: Any, indices: Any, known: bool) -> Any:
    return graph.add("GatherElements", float_input(graph, "x", 3, 5, known=known), indices, axis=-1, name="node")


def gather_nd(graph: Any, indices: Any, known: bool) -> Any:
    x = float_input(graph, "x", 2, 3, 5, 4, known=known)
    return graph.add("GatherND", x, indices, batch_dims=1, name="node")


def scatter_elements(graph: Any, indices: Any, known: bool) -> Any:
    operands = float_input(graph, "x", 5, 3, known=known), indices, float_input(graph, "updates", 2, 3)
    return graph.add("ScatterElements", *operands, axis=0, reduction="add", name="node")


def scatter_nd(graph: Any, indices: Any, known: bool) -> Any:
    operands = float_input(graph, "x", 3, 5, 2, known=known), indices, float_input(graph, "updates", 4, 2)
    return graph.add("ScatterND", *operands, name="node")


def max_unpool(graph: Any, indices: Any, known: bool) -> Any:
    x = float_input(graph, "x", 1, 2, 3, known=known)
    return graph.add("MaxUnpool", x, indices, kernel_shape=[2], strides=[2], name="node")


def tensor_scatter(graph: Any, indices: Any, known: bool) -> Any:
    x = float_input(graph, "x", 2, 6, 3, known=known)
    return graph.add("TensorScatter", x, float_input(graph, "update", 2, 2, 3), indices, axis=1, name="node")


def rotary_embedding(graph: Any, indices: Any, known: bool) -> Any:
    x, tables = float_input(graph, "x", 2, 3, 4, 8), [float_input(graph, name, 7, 4, known=known) for name in "cs"]
    return graph.add("RotaryEmbedding", x, *tables, indices, name="node")


def roi_align(graph: Any, indices: Any, known: bool) -> Any:
    x, boxes = float_input(graph, "x", 3, 2, 6, 6, known=known), float_input(graph, "boxes", 4, 4)
    return graph.add("RoiAlign", x, boxes, indices, name="node")


def reverse_sequence(graph: Any, indices: Any, known: bool) -> Any:
    x = float_input(graph, "x", 5, 4, 2, known=known)
    return graph.add("ReverseSequence", x, indices, time_axis=0, batch_axis=1, name="node")


def rnn(graph: Any, indices: Any, known: bool) -> Any:
    x = float_input(graph, "x", 5, 4, 2, known=known)
    weights = [np.ones((1, 3, size), np.float32) for size in (2, 3)]
    return graph.add("RNN", x, *weights, None, indices, hidden_size=3, name="node")


def attention(graph: Any, indices: Any, known: bool) -> Any:
    q = float_input(graph, "q", 3, 2, 4, 8, known=known)
    k, v = (float_input(graph, name, 3, 2, 6, 8, known=known) for name in "kv")
    return graph.add("Attention", q, k, v, None, None, None, indices, name="node")


def max_roi_pool(graph: Any, indices: Any, known: bool) -> Any:
    x = float_input(graph, "x", 3, 2, 6, 6, known=known)
    return graph.add("MaxRoiPool", x, indices, pooled_shape=[2, 2], name="node")


def suppress_boxes(graph: Any, indices: Any, known: bool) -> Any:
    boxes, scores = float_input(graph, "boxes", 4, 3, 4), float_input(graph, "scores", 4, 3)
    return graph.add("pumice::SuppressBoxes", boxes, scores, indices, outputs=4, name="node")[0]


def nnapi_roi_pooling(graph: Any, indices: Any, known: bool) -> Any:
    x, boxes = float_input(graph, "x", 3, 6, 6, 2, known=known), float_input(graph, "boxes", 4, 4)
    return graph.add("nnapi::ROI_POOLING", x, boxes, indices, 2, 2, 1.0, 1.0, False, name="node")


def nnapi_roi_align(graph: Any, indices: Any, known: bool) -> Any:
    x, boxes = float_input(graph, "x", 3, 6, 6, 2, known=known), float_input(graph, "boxes", 4, 4)
    return graph.add("nnapi::ROI_ALIGN", x, boxes, indices, 2, 2, 1.0, 1.0, 2, 2, False, name="node")


def nnapi_box_transform(graph: Any, indices: Any, known: bool) -> Any:
    boxes, deltas = float_input(graph, "boxes", 4, 4), float_input(graph, "deltas", 4, 8)
    sizes = float_input(graph, "sizes", 3, 2, known=known)
    return graph.add("nnapi::AXIS_ALIGNED_BBOX_TRANSFORM", boxes, deltas, indices, sizes, name="node")


def nnapi_gather(graph: Any, indices: Any, known: bool) -> Any:
    return graph.add("nnapi::GATHER", float_input(graph, "x", 3, 5, 2, known=known), 1, indices, name="node")


def embedding_lookup(graph: Any, indices: Any, known: bool) -> Any:
    return graph.add("nnapi::EMBEDDING_LOOKUP", indices, float_input(graph, "x", 5, 3, known=known), name="node")


READERS = (
    Reader("Gather", 1, (2, 3), (5,), gather),
    Reader("Gather", 1, (), (5,), gather),
    Reader("Gather", 1, (4,), (5,), gather, dtype="int32"),
    Reader("GatherElements", 1, (3, 4), (5,), gather_elements),
    Reader("GatherND", 1, (2, 4, 2), (3, 5), gather_nd),
    Reader("ScatterElements", 1, (2, 3), (5,), scatter_elements),
    Reader("ScatterND", 1, (4, 2), (3, 5), scatter_nd, dtype="int32"),
    Reader("MaxUnpool", 1, (1, 2, 3), (12,), max_unpool, from_end=False),
    Reader("TensorScatter", 2, (2,), (5,), tensor_scatter, from_end=False),
    Reader("RotaryEmbedding", 3, (2, 4), (7,), rotary_embedding, from_end=False),
    Reader("RoiAlign", 2, (4,), (3,), roi_align, from_end=False),
    Reader("ReverseSequence", 1, (4,), (6,), reverse_sequence, from_end=False),
    Reader("RNN", 4, (4,), (6,), rnn, from_end=False, dtype="int32"),
    Reader("Attention", 6, (3,), (7,), attention, from_end=False),
    Reader("ROI_POOLING", 0, (4,), (3,), nnapi_roi_pooling, from_end=False, dtype="int32"),
    Reader("ROI_ALIGN", 2, (4,), (3,), nnapi_roi_align, from_end=False, dtype="int32"),
    Reader("BOX_TRANSFORM", 0, (4,), (3,), nnapi_box_transform, from_end=False, dtype="int32"),
    Reader("GATHER", 1, (4,), (5,), nnapi_gather, from_end=False, dtype="int32"),
    Reader("EMBEDDING_LOOKUP", 1, (4,), (5,), embedding_lookup, from_end=False, dtype="int32"),
)
IDS = [f"{one.op}{one.shape}".replace(" ", "") for one in READERS]


def indices_of(reader: Reader, seed: int, wrong: int) -> tuple[Array, list[int]]:
    """Random indices, `wrong` of them out of range, and the places of these in row-major order."""
    numbers = random.Random(seed)
    count = int(np.prod(reader.shape))
    places = sorted(numbers.sample(range(count), min(wrong, count)))
    flat = []
    for i in range(count):
        size = reader.sizes[i % len(reader.sizes)]
        least = -size if reader.from_end else 0
        beyond = [size, size + 1, least - 1, 2**31 - 1, -(2**31)]
        flat.append(numbers.choice(beyond) if i in places else numbers.randrange(least, size))
        if reader.dtype == "int64" and i in places and numbers.random() < 0.3:
            flat[-1] = numbers.choice([2**32, -(2**32), 2**32 + 1, 2**40])
    return np.array(flat, reader.dtype).reshape(reader.shape), places


def unchecked_reader(reader: Reader) -> Reader:
    """NNAPI counts no index from the end, but the node that it becomes does, where nothing checks that."""
    counting = (nnapi_gather, embedding_lookup, nnapi_box_transform)
    return reader._replace(from_end=True) if reader.add in counting else reader


OF_NNAPI = (nnapi_gather, embedding_lookup, nnapi_roi_pooling, nnapi_roi_align, nnapi_box_transform)


def told(reader: Reader, indices: Array, place: int, constant: bool = False) -> str:
    if constant and reader.add in OF_NNAPI:
        return r"indices (of images )?from 0 on.* expected.*; given -?\d+"
    size = reader.sizes[place % len(reader.sizes)]
    element = [int(i) for i in np.unravel_index(place, reader.shape)] if reader.shape else []
    expected = f"expected {-size if reader.from_end else 0} to {size - 1}"
    return re.escape(f"index {indices.reshape(-1)[place]} at {element}; {expected}")


def floats(graph: Any) -> dict[str, Array]:
    """For every float input of known sizes. Corners of boxes are in order, which NNAPI's operations ask for."""
    numbers = np.random.default_rng(0)
    inputs = [value for value in graph.inputs if value.dtype == "float32"]
    made = {one.name: numbers.random([size or 1 for size in one.shape]).astype(np.float32) for one in inputs}
    return {name: np.sort(array) if name == "boxes" else array for name, array in made.items()}


@pytest.mark.parametrize("reader", READERS, ids=IDS)
def test_a_constant_index_out_of_range_is_refused_when_the_node_is_added(reader: Reader) -> None:
    for seed in range(8):
        indices, places = indices_of(reader, seed, 1 + seed % 3)
        graph = pumice.Graph()
        with pytest.raises(pumice.GraphError, match=told(reader, indices, places[0], True)) as caught:
            reader.add(graph, graph.constant(indices), True)
        assert "node" in caught.value.node


@pytest.mark.parametrize("reader", READERS, ids=IDS)
def test_a_constant_index_is_checked_when_the_sizes_become_known(context: pumice.Context, reader: Reader) -> None:
    right = pumice.Graph()
    reader.add(right, right.constant(indices_of(reader, 0, 0)[0]), True)
    inputs = floats(right)
    for seed in range(3):
        indices, places = indices_of(reader, seed, 1)
        graph = pumice.Graph()
        if reader.op in ("RNN", "TensorScatter") and seed:
            continue
        with pytest.raises(pumice.GraphError, match=told(reader, indices, places[0], True)):
            graph.output("y", reader.add(graph, graph.constant(indices), False))
            with graph.compile(context) as program:
                program(inputs)


@pytest.mark.parametrize("reader", READERS, ids=IDS)
def test_an_index_that_only_the_device_knows_is_reported_by_node_and_element(
    context: pumice.Context, reader: Reader
) -> None:
    graph = pumice.Graph()
    given = graph.input("indices", reader.dtype, list(reader.shape))
    graph.output("y", reader.add(graph, of_the_device(graph, given, "found"), True))
    inputs = floats(graph)
    with graph.compile(context) as plain, graph.compile(context, check_indices=True) as checking:
        assert checking.checks_indices and not plain.checks_indices
        assert len(checking.outputs) == 1
        for seed in range(6):
            indices, places = indices_of(reader, seed, seed % 4)
            result = plain({**inputs, "indices": indices})["y"]
            if not places:
                np.testing.assert_array_equal(checking({**inputs, "indices": indices})["y"], result)
                continue
            with pytest.raises(pumice.IndexRangeError, match=told(reader, indices, places[0])) as caught:
                checking({**inputs, "indices": indices})
            error = caught.value
            assert isinstance(error, IndexError)
            assert "node" in error.node and error.count == len(places)
            assert error.index == indices.reshape(-1)[places[0]]
            assert list(error.element) == [int(i) for i in np.unravel_index(places[0], reader.shape)][: indices.ndim]
            assert error.value == "found"


COUNTED_AS_0 = (
    *("Gather", "GatherElements", "GatherND", "RotaryEmbedding", "RoiAlign"),
    *("GATHER", "EMBEDDING_LOOKUP", "ROI_ALIGN", "ROI_POOLING", "BOX_TRANSFORM"),
)


@pytest.mark.parametrize("reader", [one for one in READERS if one.op in COUNTED_AS_0], ids=lambda one: str(one.op))
def test_an_index_out_of_range_that_is_not_checked_counts_as_0(context: pumice.Context, reader: Reader) -> None:
    """No element beside the tensor is read. NNAPI's operations look at indices that a call hands over, so these are made by the device."""
    graph = pumice.Graph()
    given = graph.input("indices", reader.dtype, list(reader.shape))
    graph.output("y", reader.add(graph, of_the_device(graph, given, "found"), True))
    inputs = floats(graph)
    with graph.compile(context) as program:
        for seed in range(6):
            indices, places = indices_of(unchecked_reader(reader), seed, 1 + seed % 3)
            zeroed = indices.copy()
            zeroed.reshape(-1)[places] = 0
            made, wanted = (program({**inputs, "indices": one})["y"] for one in (indices, zeroed))
            np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("image", [3.0, -1.0, 1e9, float("nan")])
def test_a_box_of_an_image_that_is_not_there_is_one_of_the_first(context: pumice.Context, image: float) -> None:
    graph = pumice.Graph()
    x, boxes = graph.input("x", "float32", [3, 2, 6, 6]), graph.input("boxes", "float32", [1, 5])
    graph.output("y", graph.add("MaxRoiPool", x, boxes, pooled_shape=[2, 2]))
    numbers = np.random.default_rng(0).random((3, 2, 6, 6)).astype(np.float32)
    with graph.compile(context) as program:
        made = [
            program({"x": numbers, "boxes": np.array([[one, 0, 0, 4, 4]], np.float32)})["y"] for one in (image, 0.0)
        ]
    np.testing.assert_array_equal(*made)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("image", [3.0, -1.0, -0.5, 1e4, float("inf"), float("nan")])
def test_a_box_of_an_image_that_is_not_there_is_reported(context: pumice.Context, image: float, precision: str) -> None:
    """Its image is a float, the first number of its row."""
    graph = pumice.Graph()
    given = graph.input("boxes", "float32", [4, 5])
    graph.output("y", max_roi_pool(graph, graph.add("Neg", given, output_names=["found"]), True))
    boxes = -np.array([[2, 0, 0, 4, 4], [0, 900, 900, 1000, 1000], [image, 0, 0, 2, 2], [1, 0, 0, 1, 1]], "float32")
    x = floats(graph)["x"]
    with graph.compile(context, precision=precision, check_indices=True) as program:
        with pytest.raises(
            pumice.IndexRangeError, match=r"the index .* at \[2, 0\]; expected 0 to 2; 1 of 20"
        ) as caught:
            program({"x": x, "boxes": boxes})
        error = caught.value
        assert "node" in error.node and error.value == "found" and error.count == 1 and error.element == (2, 0)
        if np.isfinite(image):
            assert error.index == int(image)
        boxes[2, 0] = -2.5  # of the third image
        program({"x": x, "boxes": boxes})


def test_a_constant_box_of_an_image_that_is_not_there_is_refused() -> None:
    graph = pumice.Graph()
    with pytest.raises(pumice.GraphError, match=r"the index nan at \[0, 0\]; expected 0 to 2"):
        max_roi_pool(graph, graph.constant(np.array([[np.nan, 0, 0, 2, 2]], "float32")), True)


def test_images_of_boxes_below_0_are_reported(context: pumice.Context) -> None:
    """They have no upper limit: rows of one image follow each other, whatever its number is."""
    graph = pumice.Graph()
    given = graph.input("images", "int32", [4])
    graph.output("y", suppress_boxes(graph, given, True))
    inputs = floats(graph)
    with graph.compile(context, check_indices=True) as program:
        program({**inputs, "images": np.array([0, 5, 2**31 - 1, 2], "int32")})
        with pytest.raises(pumice.IndexRangeError, match=r"index -1 at \[1\]; expected 0 or more; 2 of 4"):
            program({**inputs, "images": np.array([0, -1, 7, -(2**31)], "int32")})


# Inputs of integers that only the device knows, and that are no indices which could be out of range, with what they are.
NO_INDICES = {
    "OneHot.indices": "one that is beyond the depth is nowhere, as ONNX has it",
    "QLinearConv.b": "a bias",
    "pumice::Compress.starts": "counts that pumice::CountNonZero made",
    "pumice::FloorDivide.a": "numbers",
    "pumice::FloorDivide.b": "numbers",
    "pumice::JoinedRows.past": "how many rows are in use, of which more than there are mean all",
    "pumice::NonZero.starts": "counts that pumice::CountNonZero made",
    "pumice::QuantizedAttention.counts": "what the importer made of the rows in use, where nothing is checked",
    "pumice::QuantizedCaches.position_ids": "those of the RotaryEmbedding in it, where nothing is checked",
    "pumice::QuantizedCaches.write_indices": "as those of a TensorScatter, where nothing is checked",
    "pumice::RandomState.number": "the number of a run",
    "pumice::RoundDivide.a": "numbers",
    "pumice::RoundDivide.b": "numbers",
    "pumice::RotaryCaches.position_ids": "those of the RotaryEmbedding that it is made of, where nothing is checked",
    "pumice::RotaryCaches.write_indices": "those of the TensorScatter that it is made of, where nothing is checked",
    "pumice::SelectBoxes.order": "an order that TopK made",
    "pumice::TreeEnsemble.nodes": "what the importer made of a tree",
    "pumice::TreeEnsemble.entries": "what the importer made of a tree",
    "pumice::TreeEnsemble.roots": "what the importer made of a tree",
}


def test_every_input_of_integers_is_one_of_indices_or_says_what_it_is() -> None:
    """A new operator with an input of integers either declares which are in range, or stands in the table above."""
    integers = {"int32", "int64"}
    found = set()
    for row in pumice.operators():
        if row.domain == "nnapi" or row.skeleton == "composed":
            continue
        for role in row.inputs:
            is_whole = bool(role.dtypes) and set(role.dtypes) <= integers
            if is_whole and role.name not in row.host_inputs and role.name != row.index_input:
                found.add(f"{row.name}.{role.name}")
    assert found == set(NO_INDICES)


def test_every_operator_with_indices_is_tested_here() -> None:
    """By its own name, or as a part of what an operation of NNAPI becomes."""
    own = {row.name for row in pumice.operators() if row.index_input}
    parts = {
        "pumice::Indices": "GATHER",
        "pumice::ClampedRoiAlign": "ROI_ALIGN",
        "pumice::SliceBegin": "SLICE, in tests/nnapi",
        "MaxRoiPool": "above, as its indices are floats",
        "pumice::SuppressBoxes": "above, as its indices have no limit",
        "LSTM": "RNN",
        "GRU": "RNN",
    }
    assert own == {one.op for one in READERS if one.op in own} | set(parts)


def model_of(nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, list[Any]]], **constants: Array) -> Any:
    graph = helper.make_graph(
        nodes,
        "indices",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def lookup() -> onnx.ModelProto:
    """Rows of a table, and of these some columns."""
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["rows"], "embedding"),
        helper.make_node("Relu", ["rows"], ["floor"], "relu"),
        helper.make_node("GatherElements", ["floor", "columns"], ["y"], "columns", axis=1),
    ]
    table = np.arange(30, dtype=np.float32).reshape(6, 5)
    inputs = {"tokens": (TensorProto.INT64, ["N"]), "columns": (TensorProto.INT64, ["N", 2])}
    return model_of(nodes, inputs, table=table)


def test_a_loaded_model_reports_indices_out_of_range_where_it_is_asked_to() -> None:
    tokens, columns = np.array([0, 5, -6]), np.array([[0, 4], [1, 1], [-5, 2]])
    wrong = np.array([0, 6, 7])
    with pumice.load(lookup(), check_indices=True) as model, pumice.load(lookup()) as plain:
        assert model.check_indices and not plain.check_indices
        np.testing.assert_array_equal(model(tokens, columns), plain(tokens, columns))
        np.testing.assert_array_equal(plain(wrong, columns)[1:], plain(np.array([0, 0, 0]), columns)[1:])
        for call in (model, lambda *given: model.run_async(*given).result()):
            with pytest.raises(
                pumice.IndexRangeError, match=r"'embedding'.*'tokens', has the index 6 at \[1\]"
            ) as caught:
                call(wrong, columns)
            assert (caught.value.node, caught.value.value, caught.value.index) == ("embedding", "tokens", 6)
            assert caught.value.element == (1,) and caught.value.count == 2
        with pytest.raises(pumice.IndexRangeError, match=r"'columns'.*index 5 at \[2, 0\]; expected -5 to 4; 1 of 6"):
            model(tokens, np.array([[0, 4], [1, 1], [5, 2]]))
        np.testing.assert_array_equal(
            model(tokens, columns), plain(tokens, columns), err_msg="it is as usable as before"
        )
        with pytest.raises(pumice.UnsupportedError, match="checks its indices"):
            model.program.compiled([[3], [3, 2]])


def test_validation_reports_indices_out_of_range() -> None:
    report = pumice.validate(lookup(), [(np.array([0, 6]), np.array([[0, 4], [1, 5]]))])
    assert not report.ok
    (row,) = [row for row in report.rows if row.node == "embedding"]
    assert "index 6 at [1]; expected -6 to 5" in row.fault
    assert pumice.validate(lookup(), [(np.array([0, 5]), np.array([[0, 4], [1, 4]]))]).ok


@pytest.mark.parametrize("decided_on", ["device", "host"])
def test_an_index_out_of_range_in_a_loop_or_a_branch_is_reported(decided_on: str) -> None:
    """Rows of a table one by one, where a body has the node; a branch takes one row."""
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["tokens", "i"], ["token"], "which"),
            helper.make_node("Gather", ["table", "token"], ["row"], "take"),
            helper.make_node("Identity", ["go"], ["goes"], "on"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("row", TensorProto.FLOAT, [3]),
        ],
    )
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node("Gather", [source, "last"], [f"{name}_y"], f"{name}_take", axis=1)],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)],
        )
        for name, source in (("then", "rows"), ("else", "rows"))
    }
    nodes = [
        helper.make_node("Shape", ["tokens"], ["count"], "shape"),
        helper.make_node("Loop", ["count" if decided_on == "device" else "trips", ""], ["rows"], "loop", body=body),
        helper.make_node("If", ["which"], ["y"], "if", **branches),
    ]
    inputs = {
        "tokens": (TensorProto.INT64, ["N"]),
        "trips": (TensorProto.INT64, []),
        "last": (TensorProto.INT64, [1]),
        "which": (TensorProto.BOOL, []),
    }
    proto = model_of(nodes, inputs, table=table)
    tokens, trips, last, which = np.array([0, 3, 1]), np.array(3), np.array([2]), np.array(True)
    with pumice.load(proto, check_indices=True) as model:
        np.testing.assert_array_equal(model(tokens, trips, last, which), table[tokens][:, last])
        with pytest.raises(pumice.IndexRangeError, match=r"take'.*index 4 at \[\]; expected -4 to 3"):
            model(np.array([0, 3, 4]), trips, last, which)
        with pytest.raises(pumice.IndexRangeError, match=r"else_take'.*index 3 at \[0\]; expected -3 to 2"):
            model(tokens, trips, np.array([3]), np.array(False))
        np.testing.assert_array_equal(model(tokens, trips, last, which), table[tokens][:, last])


@pytest.mark.slow
def test_random_indices_are_reported_as_numpy_finds_them(context: pumice.Context) -> None:
    for reader in READERS:
        graph = pumice.Graph()
        given = graph.input("indices", reader.dtype, list(reader.shape))
        graph.output("y", reader.add(graph, given, True))
        inputs = floats(graph)
        with graph.compile(context, check_indices=True) as checking:
            for seed in range(200):
                indices, places = indices_of(reader, seed, seed % 7)
                try:
                    checking({**inputs, "indices": indices})
                    assert not places
                except pumice.IndexRangeError as error:
                    assert error.count == len(places)
                    assert re.search(told(reader, indices, places[0]), str(error))
