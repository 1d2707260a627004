"""Nodes of older opsets are converted to the newest form of their operators. Needs no device."""

from __future__ import annotations

import numpy as np
import pytest

import pumice
from onnx_models import constant, model, node, recipe, value
from pumice.importer.file.graph_recipe import GraphRecipe, NodeRecipe
from pumice.onnx import import_graph

FLOAT = np.float32


def only(made: GraphRecipe, op: str) -> NodeRecipe:
    (found,) = [n for n in made.nodes if n.op == op]
    return found


def test_attributes_that_became_inputs() -> None:
    nodes = [
        node("Slice", ["x"], ["a"], starts=[0], ends=[2], axes=[1]),
        node("Pad", ["a"], ["b"], pads=[0, 1, 0, 1], value=2.0),
        node("Clip", ["b"], ["c"], min=-1.0, max=1.0),
        node("Unsqueeze", ["c"], ["d"], axes=[0]),
        node("ReduceMean", ["d"], ["e"], axes=[1], keepdims=0),
        node("Split", ["e"], ["y", "z"], axis=1, split=[1, 3]),
    ]
    made = recipe(model(nodes, outputs=["y", "z"], opset=9))
    for op, role, expected in (
        ("Slice", 1, [0]),
        ("Slice", 2, [2]),
        ("Slice", 3, [1]),
        ("Pad", 1, [0, 1, 0, 1]),
        ("Pad", 2, 2.0),
        ("Clip", 1, -1.0),
        ("Clip", 2, 1.0),
        ("Unsqueeze", 1, [0]),
        ("ReduceMean", 1, [1]),
        ("Split", 1, [1, 3]),
    ):
        np.testing.assert_array_equal(constant(made, only(made, op).inputs[role]), expected)
    assert only(made, "ReduceMean").attributes == {"keepdims": 0}
    assert only(made, "Split").attributes == {"axis": 1}


def test_names_of_new_constants_do_not_hide_values_of_the_model() -> None:
    nodes = [node("Squeeze", ["x"], ["a"], name="s", axes=[0]), node("Add", ["a", "s/axes"])]
    made = recipe(model(nodes, constants={"s/axes": np.array([7.0], FLOAT)}, opset=12))
    np.testing.assert_array_equal(constant(made, "s/axes"), [7])
    np.testing.assert_array_equal(constant(made, only(made, "Squeeze").inputs[1]), [0])


def test_the_same_nodes_of_a_new_operator_set_stay_as_they_are() -> None:
    made = recipe(model([node("ReduceMean", keepdims=0)], opset=18))
    assert only(made, "ReduceMean").inputs == ["x"]


def test_upsample_is_a_resize() -> None:
    made = recipe(
        model([node("Upsample", ["x", "s"], mode="nearest")], constants={"s": np.array([1, 2], FLOAT)}, opset=9)
    )
    resize = only(made, "Resize")
    assert resize.inputs == ["x", "", "s"]
    expected = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    assert resize.attributes == expected


@pytest.mark.parametrize("opset", [11, 13])
def test_softmax_of_a_matrix_is_by_rows(opset: int) -> None:
    made = recipe(model([node("Flatten", ["x"], ["f"]), node("Softmax", ["f"], axis=1)], opset=opset))
    assert [n.op for n in made.nodes] == ["Flatten", "Softmax"]
    assert only(made, "Softmax").attributes["axis"] in (1, -1)


def test_an_old_softmax_takes_its_input_as_a_matrix() -> None:
    made = recipe(model([node("Softmax", axis=2)], [value("x", [2, 3, 4, 5])], opset=12))
    assert [n.op for n in made.nodes] == ["Shape", "Flatten", "Softmax", "Reshape"]
    assert only(made, "Flatten").attributes == {"axis": 2}
    assert only(made, "Reshape").outputs == ["y"]


def test_what_the_newest_form_cannot_say_is_unsupported() -> None:
    scale = {name: np.ones(4, FLOAT) for name in "sbmv"}
    proto = model([node("BatchNormalization", ["x", *"sbmv"], spatial=0)], constants=scale, opset=7)
    with pytest.raises(pumice.UnsupportedError, match=r"BatchNormalization.*spatial=0.*operator set 7"):
        import_graph(proto)


def test_an_operator_without_its_first_input_is_rejected() -> None:
    with pytest.raises(pumice.GraphError, match="first input"):
        import_graph(model([node("Clip", [])], opset=9))
