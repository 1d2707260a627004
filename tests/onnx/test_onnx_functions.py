"""ONNX operators that expand to several nodes at import, by their ONNX function body or our own expansion."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import pumice
from pumice.importer.file.model_file import ModelFile
from pumice.importer.parse_onnx import make_recipe, parse_model
from pumice.importer.translators.operator_table import TRANSLATORS

Array = np.ndarray[Any, Any]


def ramp(*shape: int) -> Array:
    count = int(np.prod(shape))
    return np.sin(np.arange(count, dtype=np.float32)).reshape(shape)


def model(nodes: list[Any], inputs: dict[str, Array], outputs: list[str], **more: Any) -> onnx.ModelProto:
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "g", infos, results, **more)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])


def check(proto: onnx.ModelProto, inputs: dict[str, Array]) -> None:
    before = proto.SerializeToString()
    given = pumice.load(proto)(**inputs)
    assert proto.SerializeToString() == before
    wanted = ReferenceEvaluator(proto).run(None, inputs)
    for one, other in zip(given if isinstance(given, tuple) else [given], wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def operators(proto: onnx.ModelProto) -> list[str]:
    file = ModelFile(proto)
    return [node.op for node in make_recipe(parse_model(file), file).nodes]


def test_several_calls_with_names_of_their_bodies() -> None:
    """One with an omitted input, one on another's output, one on a weight; a model value shares a name with the body."""
    inner = [node.output[0] for node in parse_model(ModelFile(cropped())).graph.node]
    assert "Y" in inner
    taken = next(name for name in inner if name != "Y")
    nodes = [
        helper.make_node("CenterCropPad", [taken, "wide"], ["a"], axes=[0, 2]),
        helper.make_node("CenterCropPad", ["w", "sizes"], ["b"], axes=[1, 3]),
        helper.make_node("CenterCropPad", ["a", "sizes"], ["c"], axes=[1, 3]),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]
    sizes = {"w": ramp(2, 1, 6, 9), "sizes": np.array([2, 6]), "wide": np.array([1, 6])}
    weights = [numpy_helper.from_array(array, name) for name, array in sizes.items()]
    inputs = {taken: ramp(2, 3, 4, 8)}
    check(model(nodes, inputs, ["y"], initializer=weights), inputs)


def cropped() -> onnx.ModelProto:
    sizes = numpy_helper.from_array(np.array([2, 6]), "sizes")
    inputs = {"x": ramp(1, 2, 3, 4)}
    return model(
        [helper.make_node("CenterCropPad", ["x", "sizes"], ["Y"], axes=[1, 3])], inputs, ["Y"], initializer=[sizes]
    )


def test_functions_in_functions_and_in_subgraphs() -> None:
    loss = helper.make_node("SoftmaxCrossEntropyLoss", ["x", "labels"], ["loss"], reduction="sum")
    other = helper.make_node("NegativeLogLikelihoodLoss", ["x", "labels"], ["nll"], reduction="mean")
    branches = [
        helper.make_graph([node], "g", [], [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, [])])
        for node in (loss, other)
    ]
    node = helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    for condition in (True, False):
        inputs = {"c": np.array(condition), "x": ramp(3, 5), "labels": np.array([4, 0, 2])}
        check(model([node], inputs, ["y"]), inputs)


def test_what_a_body_needs_and_is_not_there_is_named_with_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    for op in ("Bernoulli", "RandomUniformLike"):
        monkeypatch.delitem(TRANSLATORS, op)  # type: ignore[arg-type]
    node = helper.make_node("Bernoulli", ["x"], ["y"], name="drawn")
    with pytest.raises(pumice.UnsupportedError, match=r"'drawn \(Bernoulli\)/RandomUniformLike_.*RandomUniformLike$"):
        pumice.load(model([node], {"x": ramp(3)}, ["y"]))


def test_a_function_whose_types_are_unknown_is_rejected() -> None:
    nodes = [
        helper.make_node("Wobble", ["x"], ["q"], domain="far"),
        helper.make_node("CenterCropPad", ["q", "sizes"], ["y"]),
    ]
    proto = model(nodes, {"x": ramp(2, 3, 4), "sizes": np.array([2, 2, 2])}, ["y"])
    proto.opset_import.append(helper.make_opsetid("far", 1))
    with pytest.raises(pumice.UnsupportedError) as caught:
        pumice.load(proto)
    assert [item.split("operator ")[1] for item in caught.value.items] == ["far::Wobble", "CenterCropPad"]


def test_what_the_engine_has_is_not_expanded() -> None:
    nodes = [helper.make_node("Gelu", ["x"], ["g"]), helper.make_node("Softmax", ["g"], ["y"])]
    assert operators(model(nodes, {"x": ramp(3, 4)}, ["y"])) == ["Gelu", "Softmax"]
    assert "CenterCropPad" not in operators(cropped())


def test_one_hot_takes_any_numbers() -> None:
    values = numpy_helper.from_array(np.array([2, 5], np.float32), "values")
    for dtype in ("float32", "float16", "uint8", "int8", "int32", "int64"):
        inputs = {"x": np.array([[2, 0], [1, 7]], dtype), "depth": np.array(3, dtype)}
        proto = model(
            [helper.make_node("OneHot", ["x", "depth", "values"], ["y"])], inputs, ["y"], initializer=[values]
        )
        check(proto, inputs)


def test_the_mask_of_a_dropout_outside_training() -> None:
    nodes = [helper.make_node("Dropout", ["x"], ["z", "mask"]), helper.make_node("Where", ["mask", "z", "x"], ["y"])]
    proto = model(nodes, {"x": ramp(3, 4)}, ["y"])
    proto.graph.output.append(helper.make_tensor_value_info("mask", TensorProto.BOOL, None))
    y, mask = pumice.load(proto)(ramp(3, 4))
    np.testing.assert_array_equal(y, ramp(3, 4))
    assert mask.dtype == bool and mask.shape == (3, 4) and mask.all()
    proto.opset_import[0].version = 7  # in which the mask was float
    with pytest.raises(pumice.UnsupportedError, match="mask"):
        pumice.load(proto)


DOUBLE = np.float64
HEADS = {
    name: ramp(2, 4, rows, 8).astype(DOUBLE) * scale for name, rows, scale in (("q", 3, 1), ("k", 5, 0.5), ("v", 5, 2))
}
MASK = np.where(ramp(3, 5) > 0.5, -1e3, ramp(3, 5)).astype(DOUBLE)
WIDE = {
    "Attention": (HEADS, ["q", "k", "v"], {}),
    "Attention, mask, causal": ({**HEADS, "m": MASK}, ["q", "k", "v", "m"], {"is_causal": 1, "scale": 0.3}),
    "Attention, groups": (
        {**HEADS, "k": HEADS["k"][:, :2], "v": HEADS["v"][:, :2]},
        ["q", "k", "v"],
        {"softcap": 2.0},
    ),
    "LayerNormalization": ({"x": ramp(3, 8).astype(DOUBLE), "g": ramp(8).astype(DOUBLE)}, ["x", "g"], {}),
    "RMSNormalization": ({"x": ramp(3, 8).astype(DOUBLE), "g": ramp(8).astype(DOUBLE)}, ["x", "g"], {}),
}


@pytest.mark.parametrize("what", WIDE)
def test_float64_where_only_the_function_of_an_operator_has_it(what: str) -> None:
    inputs, order, attributes = WIDE[what]
    proto = model([helper.make_node(what.split(",")[0], order, ["y"], **attributes)], inputs, ["y"])
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    wanted = ReferenceEvaluator(proto).run(None, inputs)[0]
    given = pumice.load(proto)(**inputs)
    assert given.dtype == DOUBLE
    np.testing.assert_allclose(given, wanted, rtol=1e-6, atol=1e-6)
    narrow = {name: array.astype(np.float32) for name, array in inputs.items()}
    assert len(operators(model(list(proto.graph.node), narrow, ["y"]))) == 1


def test_float64_in_a_branch_and_by_a_cast() -> None:
    then = helper.make_graph(
        [
            helper.make_node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE),
            helper.make_node("Attention", ["d", "d", "d"], ["a"]),
            helper.make_node("Cast", ["a"], ["t"], to=TensorProto.FLOAT),
        ],
        "then",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)],
    )
    orelse = helper.make_graph(
        [helper.make_node("Attention", ["x", "x", "x"], ["e"])],
        "else",
        [],
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, None)],
    )
    inputs = {"x": ramp(1, 2, 3, 4), "c": np.array(True)}
    proto = model([helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=orelse)], inputs, ["y"])
    check(proto, inputs)
    check(proto, {**inputs, "c": np.array(False)})
