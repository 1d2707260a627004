"""User-defined elementwise operators given as an expression: in models, next to built-in ones, and validated."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

import pumice

X = np.linspace(-3, 9, 12, dtype="float32").reshape(4, 3)


def model(nodes: list[Any], inputs: str = "x", dtype: int = TensorProto.FLOAT, opset: int = 17) -> ModelProto:
    """A model of these nodes with inputs of (n, 3) and the output y."""
    value = helper.make_tensor_value_info
    given = [value(name, dtype, ["n", 3]) for name in inputs]
    graph = helper.make_graph(nodes, "custom", given, [value("y", dtype, ["n", 3])])
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("my.domain", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


def softcap(name: str = "cap_it", **attributes: Any) -> Any:
    return helper.make_node("Softcap", ["x"], ["y"], name, domain="my.domain", **attributes)


SOFTCAP = pumice.operator("my.domain::Softcap", "cap * tanh(x / cap)", ["x"], {"cap": 2})


def loaded(context: pumice.Context, given: ModelProto, *operators: Any) -> pumice.Model:
    return pumice.load(given, context, operators=operators or (SOFTCAP,))


@pytest.mark.parametrize(("attributes", "cap"), [({}, 2.0), ({"cap": 5.0}, 5.0)])
def test_a_node_computes_its_expression(context: pumice.Context, attributes: dict[str, float], cap: float) -> None:
    with pytest.raises(pumice.UnsupportedError, match="my.domain::Softcap"):
        pumice.load(model([softcap()]), context)
    one = loaded(context, model([softcap(**attributes)]))
    np.testing.assert_allclose(one(X), cap * np.tanh(X / cap), rtol=1e-5)
    expected = onnxruntime.InferenceSession(one.source, providers=["CPUExecutionProvider"]).run(None, {"x": X})[0]
    np.testing.assert_allclose(one(X), expected, rtol=1e-5)


def test_it_is_fused_around_and_every_node_is_validated(context: pumice.Context) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Softcap", ["r"], ["s"], domain="my.domain"),
        helper.make_node("Exp", ["s"], ["y"]),
    ]
    one = loaded(context, model(nodes))
    report = str(one.report())
    assert "7 nodes before, 1 after" in report
    assert "Softcap/Tanh" in report
    told = pumice.validate(one, [X], progress=None)
    assert told.ok
    for op in ("Tanh", "Div", "Mul"):
        assert f"Softcap/{op}" in str(told)


def test_the_model_is_pickled_and_kept_with_its_operators(
    context: pumice.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PUMICE_NO_CACHE", raising=False)
    monkeypatch.setenv("PUMICE_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "model.onnx"
    onnx.save(model([softcap()]), path)
    kept = path.read_bytes()
    one = pumice.load(path, context, operators=[SOFTCAP])
    expected = one(X)
    assert (pickle.loads(pickle.dumps(one))(X) == expected).all()
    assert (pumice.load(path, context, operators=[SOFTCAP])(X) == expected).all()
    other = pumice.operator("my.domain::Softcap", "x + cap", ["x"], {"cap": 2})
    assert (pumice.load(path, context, operators=[other])(X) == X + 2).all(), "what was kept is not taken for another"
    assert path.read_bytes() == kept


def test_weights_beside_the_file_are_found(context: pumice.Context, tmp_path: Path) -> None:
    given = model(
        [helper.make_node("Add", ["x", "w"], ["z"]), helper.make_node("Twice", ["z"], ["y"], domain="my.domain")]
    )
    weights = np.arange(3, dtype="float32")
    given.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(given, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    twice = pumice.operator("Twice", "2 * x")
    assert (pumice.load(tmp_path / "m.onnx", context, operators=[twice])(X) == 2 * (X + weights)).all()


EXPRESSIONS: dict[str, Any] = {
    "x - y * 2 + 1 / (y + 20)": lambda x, y: x - y * 2 + 1 / (y + 20),
    "-x ** 2 + y": lambda x, y: -(x**2) + y,
    "x if x < y and not x == 0 or y >= 8 else y": lambda x, y: np.where(((x < y) & (x != 0)) | (y >= 8), x, y),
    "where(x != y, min(x, y, 3), max(x, 1))": lambda x, y: np.where(
        x != y, np.minimum(np.minimum(x, y), 3), np.maximum(x, 1)
    ),
    "pow(abs(x), 1.5) + sqrt(abs(y))": lambda x, y: np.abs(x) ** 1.5 + np.sqrt(np.abs(y)),
    "floor(x) + ceil(y) + round(x) + sign(y)": lambda x, y: np.floor(x) + np.ceil(y) + np.round(x) + np.sign(y),
    "sin(x) + cos(y) + tan(x / 9) + atan(x) + asinh(y)": lambda x, y: (
        np.sin(x) + np.cos(y) + np.tan(x / 9) + np.arctan(x) + np.arcsinh(y)
    ),
    "exp(-abs(x)) + log(abs(y) + 1) + relu(x) + reciprocal(y + 20)": lambda x, y: (
        np.exp(-np.abs(x)) + np.log(np.abs(y) + 1) + np.maximum(x, 0) + 1 / (y + 20)
    ),
    "sigmoid(x) + softplus(y) + 0 * erf(x)": lambda x, y: 1 / (1 + np.exp(-x)) + np.log1p(np.exp(y)),
    "0 * y + x": lambda x, y: x,
}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_have_their_value(context: pumice.Context, expression: str) -> None:
    node = helper.make_node("Custom", ["x", "z"], ["y"], domain="my.domain")
    custom = pumice.operator("my.domain::Custom", expression, ["x", "y"])
    y = np.flip(X).copy()
    result = loaded(context, model([node], "xz"), custom)(X, y)
    np.testing.assert_allclose(result, EXPRESSIONS[expression](X.astype("float64"), y), rtol=2e-5, atol=2e-5)


def test_one_operator_in_several_domains_and_in_a_branch(context: pumice.Context) -> None:
    value = helper.make_tensor_value_info
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node("Grow", ["x"], [f"{name}_y"], domain=f"{name}.domain")],
            name,
            [],
            [value(f"{name}_y", TensorProto.FLOAT, ["n", 3])],
        )
        for name in ("then", "else")
    }
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Greater", ["m", "m"], ["c"]),
        helper.make_node("If", ["c"], ["y"], **branches),
    ]
    given = model(nodes)
    given.opset_import.extend([helper.make_opsetid("then.domain", 1), helper.make_opsetid("else.domain", 1)])
    assert (loaded(context, given, pumice.operator("Grow", "x + 1"))(X) == X + 1).all()


def test_other_types_of_numbers(context: pumice.Context) -> None:
    half = loaded(context, model([softcap()], dtype=TensorProto.FLOAT16))(X.astype("float16"))
    assert half.dtype == np.float16
    np.testing.assert_allclose(half.astype("float32"), 2 * np.tanh(X / 2), atol=4e-3)
    node = helper.make_node("Next", ["x"], ["y"], domain="my.domain")
    whole = loaded(context, model([node], dtype=TensorProto.INT32), pumice.operator("Next", "3 * x + 1"))
    assert (whole(X.astype("int32")) == 3 * X.astype("int32") + 1).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ai.onnx::Softcap", "x"), "a domain other than ONNX's own"),
        (("my domain", "x"), "name: expected an operator"),
        (("A", "x +"), "expected an expression, given 'x \\+'"),
        (("A", "x @ x"), "'x @ x' is not supported"),
        (("A", "x.y"), "'x.y' is not supported"),
        (("A", "'text' + x"), "''text'' is not supported"),
        (("A", "True + x"), "'True' is not supported"),
        (("A", "1 < x < 2"), "'1 < x < 2' is not supported"),
        (("A", "open(x)"), "expected one of abs, .*given 'open'"),
        (("A", "tanh(x, x)"), "tanh takes 1 arguments; given 2"),
        (("A", "min(x)"), "min takes 2 arguments; given 1"),
        (("A", "3"), "inputs: expected at least one name, all different"),
        (("A", "x + y", ["x"]), "'y' is neither an input nor an attribute"),
        (("A", "x", ["x", "y"]), "expected only names of the expression, x; given 'y'"),
        (("A", "x + a", ["x", "a"], {"a": 1}), "none of an attribute"),
        (("A", "x + pm_0"), "names that begin with pm_"),
        (("A", "x * 1" + 400 * "0"), "expected float32 numbers"),
        (("A", "x * 1e39"), "expected float32 numbers"),
        (("A", "-" * 200 + "x"), "at most 100 levels"),
    ],
)
def test_what_is_no_operator_is_rejected(arguments: Any, message: str) -> None:
    with pytest.raises(pumice.Error, match=message):
        pumice.operator(*arguments)


def test_models_that_do_not_fit_are_rejected(context: pumice.Context) -> None:
    def refused(given: ModelProto, message: str, *operators: Any) -> None:
        with pytest.raises(pumice.Error, match=message):
            loaded(context, given, *operators)

    refused(model([helper.make_node("Relu", ["x"], ["y"])]), "no node of 'model' is of this operator")
    refused(model([softcap()]), "or it is given twice", SOFTCAP, SOFTCAP)
    refused(model([softcap()]), "expected the result of pumice.operator", "Softcap")
    refused(model([softcap(cap=3)]), "attribute 'cap': expected float attributes of my.domain::Softcap: cap")
    refused(model([softcap(wide=3.0)]), "attribute 'wide'")
    refused(model([softcap()], opset=14), "operator set 15 or more; given 14")
    two = helper.make_node("Softcap", ["x", "x"], ["y"], "both", domain="my.domain")
    refused(model([two]), "node 'both': expected x and one output, as my.domain::Softcap has; given 2 inputs")
    needed = pumice.operator("Softcap", "cap * tanh(x / cap)", ["x"], {"cap": None})
    refused(model([softcap()]), "attribute 'cap' is missing, and Softcap has no default for it", needed)
    assert loaded(context, model([softcap(cap=1.0)]), needed)(X).max() <= 1
