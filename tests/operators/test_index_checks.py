"""Out-of-range indices: rejected if the host knows them, otherwise reported by programs that check them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice
from index_readers import IDS, READERS, Reader, floats, indices_of, max_roi_pool, soft_nms, told, unchecked_reader
from small_programs import of_the_device

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


@pytest.mark.parametrize("reader", READERS, ids=IDS)
def test_a_constant_index_out_of_range_is_rejected_when_the_node_is_added(reader: Reader) -> None:
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
    """No element outside the tensor is read. Indices from a call are checked for NNAPI operations, so these are computed on the device."""
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
    """The image index is a float, the first number of the row."""
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
        boxes[2, 0] = -2.5  # truncates to image 2
        program({"x": x, "boxes": boxes})


def test_a_constant_box_of_an_image_that_is_not_there_is_rejected() -> None:
    graph = pumice.Graph()
    with pytest.raises(pumice.GraphError, match=r"the index nan at \[0, 0\]; expected 0 to 2"):
        max_roi_pool(graph, graph.constant(np.array([[np.nan, 0, 0, 2, 2]], "float32")), True)


def test_images_of_boxes_below_0_are_reported(context: pumice.Context) -> None:
    """There is no upper limit: boxes of an image are consecutive, and its index is arbitrary."""
    graph = pumice.Graph()
    given = graph.input("images", "int32", [4])
    graph.output("y", soft_nms(graph, given, True))
    inputs = floats(graph)
    with graph.compile(context, check_indices=True) as program:
        program({**inputs, "images": np.array([0, 5, 2**31 - 1, 2], "int32")})
        with pytest.raises(pumice.IndexRangeError, match=r"index -1 at \[1\]; expected 0 or more; 2 of 4"):
            program({**inputs, "images": np.array([0, -1, 7, -(2**31)], "int32")})


# Integer inputs computed on the device that cannot be out of range, with the reason.
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
    "pumice::NMS.order": "an order that TopK made",
    "pumice::TreeEnsemble.nodes": "what the importer made of a tree",
    "pumice::TreeEnsemble.entries": "what the importer made of a tree",
    "pumice::TreeEnsemble.roots": "what the importer made of a tree",
    "pumice::TreeEnsemble64.nodes": "what the importer made of a tree",
    "pumice::TreeEnsemble64.entries": "what the importer made of a tree",
    "pumice::TreeEnsemble64.roots": "what the importer made of a tree",
}


def test_every_input_of_integers_is_one_of_indices_or_says_what_it_is() -> None:
    """A new operator with an integer input must declare its index range or be listed above."""
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
    """Directly, or as a part of an NNAPI operation."""
    own = {row.name for row in pumice.operators() if row.index_input}
    parts = {
        "pumice::Indices": "GATHER",
        "pumice::ClampedRoiAlign": "ROI_ALIGN",
        "pumice::SliceBegin": "SLICE, in tests/nnapi",
        "MaxRoiPool": "above, as its indices are floats",
        "pumice::SoftNMS": "above, as its indices have no limit",
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
    """Return a model that gathers rows of a table, then some of their columns."""
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
        for call in (model, lambda *given: model.run_async(*given).result(), plain):
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
    """A loop gathers rows of a table one by one; a branch gathers one row."""
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
