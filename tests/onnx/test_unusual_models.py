"""Rare forms of models: outputs without names, scalars, functions of other opsets, names of options."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import pumice
import pumice.onnx.backend as backend
from onnx_models import model, node, value

Array = np.ndarray[Any, Any]
X = np.arange(12, dtype="float32").reshape(2, 6) - 5


# ---- unnamed outputs


@pytest.mark.parametrize("outputs", [["", "y", ""], ["y", "", ""], ["", "", "y"]])
@pytest.mark.parametrize("opset", [11, 13, 18])
def test_a_split_makes_the_parts_that_have_no_name_too(context: pumice.Context, opset: int, outputs: list[str]) -> None:
    attributes = {"num_outputs": 3} if opset >= 18 else {}
    proto = model([node("Split", outputs=outputs, axis=1, **attributes)], [value("x", [2, 6])], opset=opset)
    at = outputs.index("y")
    np.testing.assert_array_equal(pumice.load(proto, context)(X), X[:, 2 * at : 2 * at + 2])


# ---- NonZero


@pytest.mark.parametrize("shape", [(), (3,), (2, 6), (2, 1, 3)])
@pytest.mark.parametrize("constant", [True, False])
def test_non_zero_of_all_ranks(context: pumice.Context, constant: bool, shape: tuple[int, ...]) -> None:
    """For a scalar, ONNX defines the shape [0, count]; ONNX Runtime returns [1, count] with a warning."""
    for elements in (0.0, 2.0):
        x = np.full(shape, elements, "float32")
        proto = model(
            [node("NonZero", ["c" if constant else "x"])], [value("x", shape)], constants={"c": x} if constant else {}
        )
        made = pumice.load(proto, context)(x)
        expected = ReferenceEvaluator(typed(proto)).run(None, {"x": x})[0]
        assert (made.shape, made.dtype) == (expected.shape, np.dtype("int64"))
        np.testing.assert_array_equal(made, expected)


def typed(proto: onnx.ModelProto) -> onnx.ModelProto:
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    return proto


# ---- functions


def called(body: list[onnx.NodeProto], version: int, model_version: int) -> onnx.ModelProto:
    """x -> a function of these nodes, a to b, in another opset -> Relu -> y."""
    function = helper.make_function("own", "F", ["a"], ["b"], body, [helper.make_opsetid("", version)])
    nodes = [helper.make_node("F", ["x"], ["t"], domain="own"), node("Relu", ["t"])]
    proto = model(nodes, [value("x", [2, 6])], opset=model_version)
    proto.opset_import.append(helper.make_opsetid("own", 1))
    proto.functions.append(function)
    return proto


def vector(name: str, *numbers: float) -> onnx.NodeProto:
    dtype = "float32" if any(isinstance(one, float) for one in numbers) else "int64"
    return node("Constant", [], [name], value=numpy_helper.from_array(np.array(numbers, dtype)))


# Name -> the function's opset, its nodes, the model's opset, the result.
FUNCTIONS: dict[str, tuple[int, list[onnx.NodeProto], int, Array]] = {
    "Clip 9 in 18": (9, [node("Clip", ["a"], ["b"], min=-1.0, max=2.0)], 18, np.clip(X, -1, 2)),
    "Pad 9 in 18": (9, [node("Pad", ["a"], ["b"], pads=[0, 1, 0, 0])], 18, np.pad(X, [(0, 0), (1, 0)])),
    "ReduceSum 11 in 18": (11, [node("ReduceSum", ["a"], ["b"], axes=[1])], 18, X.sum(1, keepdims=True)),
    "ReduceMean 13 in 18": (13, [node("ReduceMean", ["a"], ["b"], axes=[0])], 18, X.mean(0, keepdims=True)),
    "Split 11 in 18": (
        11,
        [node("Split", ["a"], ["p", "q"], axis=1, split=[2, 4]), node("Concat", ["q", "p"], ["b"], axis=1)],
        18,
        np.concatenate([X[:, 2:], X[:, :2]], 1),
    ),
    "Squeeze 11 in 18": (
        11,
        [node("Unsqueeze", ["a"], ["u"], axes=[0]), node("Squeeze", ["u"], ["b"], axes=[0])],
        18,
        X,
    ),
    "Softmax 11 in 18, of a matrix": (
        11,
        [
            vector("s", 1, 2, 6),
            node("Reshape", ["a", "s"], ["r"]),
            node("Softmax", ["r"], ["b"], axis=1),
        ],
        18,
        (np.exp(X - X.max()) / np.exp(X - X.max()).sum())[None],
    ),
    "ReduceSum 18 in 11": (18, [vector("ax", 1), node("ReduceSum", ["a", "ax"], ["b"])], 11, X.sum(1, keepdims=True)),
    "Clip 18 in 9": (
        18,
        [vector("l", -1.0), node("Squeeze", ["l"], ["m"]), node("Clip", ["a", "m"], ["b"])],
        9,
        X.clip(-1),
    ),
    "Gelu 20 in 17": (20, [node("Gelu", ["a"], ["b"], approximate="tanh")], 17, np.array(0)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_imports_another_operator_set(context: pumice.Context, name: str) -> None:
    version, body, model_version, expected = FUNCTIONS[name]
    proto = called(body, version, model_version)
    before = proto.SerializeToString()
    made = pumice.load(proto, context)(X)
    assert proto.SerializeToString() == before
    if not expected.shape:
        whole = model(
            [node("Gelu", outputs=["g"], approximate="tanh"), node("Relu", ["g"])], [value("x", [2, 6])], opset=20
        )
        expected = ReferenceEvaluator(whole).run(None, {"x": X})[0]
    np.testing.assert_allclose(made, np.maximum(expected, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["Clip 9 in 18", "ReduceSum 18 in 11", "Softmax 11 in 18, of a matrix"])
def test_the_nodes_of_such_a_function_are_checked_by_its_own_set(context: pumice.Context, name: str) -> None:
    version, body, model_version, _ = FUNCTIONS[name]
    proto = called(body, version, model_version)
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    report = pumice.validate(pumice.load(proto, context), [X])
    assert report.ok, report.summary


def test_functions_of_two_operator_sets_call_each_other(context: pumice.Context) -> None:
    """The outer function uses the model's opset, calls one of another opset, and has the same operator in its own form."""
    inner = helper.make_function(
        "own", "Inner", ["a"], ["b"], [node("ReduceSum", ["a"], ["b"], axes=[1])], [helper.make_opsetid("", 11)]
    )
    outer = helper.make_function(
        "own",
        "F",
        ["a"],
        ["b"],
        [
            helper.make_node("Inner", ["a"], ["s"], domain="own"),
            vector("ax", 0),
            node("ReduceSum", ["s", "ax"], ["b"], keepdims=0),
        ],
        [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)],
    )
    proto = called([], 18, 18)
    del proto.functions[:]
    proto.functions.extend([outer, inner])
    np.testing.assert_allclose(pumice.load(proto, context)(X), [X.sum()], rtol=1e-6)


def test_a_function_of_a_set_that_is_not_known_is_rejected(context: pumice.Context) -> None:
    proto = called([node("Clip", ["a"], ["b"])], 99, 18)
    with pytest.raises(pumice.UnsupportedError, match="operator Clip: of a function that imports an unknown set"):
        pumice.load(proto, context)


# ---- names of inputs

NAMES = ("self", "out", "loop_timeout", "runs", "again", "progress", "arrays", "by_name", "model", "inputs")


@pytest.mark.parametrize("name", NAMES)
def test_an_input_has_the_name_of_an_option(context: pumice.Context, name: str) -> None:
    """Every method that accepts inputs by name accepts this one."""
    proto = model([node("Add", [name, "x"])], [value(name, [2, 6]), value("x", [2, 6])])
    given = {name: X + 1, "x": X}
    loaded = pumice.load(proto, context)
    np.testing.assert_array_equal(loaded(**given), 2 * X + 1)
    np.testing.assert_array_equal(loaded(X + 1, x=X), 2 * X + 1)
    np.testing.assert_array_equal(loaded.run_async(**given).result(), 2 * X + 1)
    assert loaded.warm_up(**given) > 0
    for result in loaded.map([given, given]):
        np.testing.assert_array_equal(result, 2 * X + 1)
    np.testing.assert_array_equal(loaded.named(**given)[name], X + 1)
    assert pumice.memory_map(loaded, **given)
    np.testing.assert_array_equal(backend.prepare(proto).run(given)[0], 2 * X + 1)
    if name not in ("out", "loop_timeout"):
        loaded(**given, loop_timeout=1.0, out=(y := np.empty_like(X)))
        np.testing.assert_array_equal(y, 2 * X + 1)


def test_an_option_that_no_input_has_the_name_of_stays_one(context: pumice.Context) -> None:
    loaded = pumice.load(model([node("Relu")], [value("x", [2, 6])]), context)
    y = np.empty_like(X)
    loaded(X, out=y, loop_timeout=None)
    np.testing.assert_array_equal(y, np.maximum(X, 0))
    with pytest.raises(pumice.BindingError, match="K4"):
        loaded(X, self=X)
