"""ai.onnx.ml operators against ONNX Runtime, in forms that the corpus pipelines do not cover."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pumice

X = np.array([[0.5, -1.25, 2, 0], [3, 0.25, -0.5, 1], [0, 0, 0, 0], [-2, 1, 0.75, -4]], np.float32)
HOLES = np.where(X == 0, np.float32("nan"), X)


def model(op: str, outputs: int, dtype: int = TensorProto.FLOAT, **attributes: Any) -> onnx.ModelProto:
    names = ["y", "z"][:outputs]
    made = helper.make_node(op, ["x"], names, name="it", domain="ai.onnx.ml", **attributes)
    kinds = [TensorProto.INT64, TensorProto.FLOAT] if outputs == 2 else [dtype]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(names, kinds, strict=True)]
    given = helper.make_tensor_value_info("x", dtype, ["rows", None])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph([made], "g", [given], results), opset_imports=opsets, ir_version=8)


def check(context: pumice.Context, proto: onnx.ModelProto, x: np.ndarray[Any, Any] = X) -> None:
    runtime = pytest.importorskip("onnxruntime")
    expected = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )
    results = pumice.load(proto, context)(x)
    for actual, wanted in zip([results] if len(expected) == 1 else results, expected, strict=True):
        assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(context: pumice.Context, norm: str) -> None:
    check(context, model("Normalizer", 1, norm=norm), np.abs(X))


def test_columns_that_are_scaled_filled_and_cut(context: pumice.Context) -> None:
    check(context, model("Scaler", 1, offset=[1.0, 2, 3, 4], scale=[0.5, 1, 2, 4]))
    check(context, model("Scaler", 1, offset=[1.0], scale=[0.5]))
    check(context, model("Imputer", 1, imputed_value_floats=[1.0, 2, 3, 4], replaced_value_float=float("nan")), HOLES)
    check(context, model("Imputer", 1, imputed_value_floats=[9.0], replaced_value_float=0.5))
    check(context, model("Binarizer", 1, threshold=0.3))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_models(context: pumice.Context, transform: str) -> None:
    weights = [0.1 * k - 0.5 for k in range(12)]
    regressor = {"coefficients": weights, "targets": 3, "post_transform": transform}
    check(context, model("LinearRegressor", 1, intercepts=[0.5, -1.0, 2.0], **regressor))
    labels = {"classlabels_ints": [7, -2, 30], "post_transform": transform}
    check(context, model("LinearClassifier", 2, coefficients=weights, intercepts=[0.5, -1.0, 0.0], **labels))


@pytest.mark.parametrize(
    ("kernel", "parameters"),
    [("LINEAR", [0.0, 0.0, 0.0]), ("POLY", [0.5, 1.0, 2.0]), ("RBF", [0.3, 0.0, 0.0]), ("SIGMOID", [0.2, 0.1, 0.0])],
)
def test_support_vectors(context: pumice.Context, kernel: str, parameters: list[float]) -> None:
    vectors = [0.25 * (k % 7) - 0.5 for k in range(20)]
    options = {"kernel_type": kernel, "kernel_params": parameters, "support_vectors": vectors}
    own = {"coefficients": [1.0, -0.5, 0.25, -1.0, 0.75], "rho": [0.125], "n_supports": 5}
    check(context, model("SVMRegressor", 1, **options, **own))
    check(context, model("SVMRegressor", 1, one_class=1, **options, **own))
    classes = {"vectors_per_class": [2, 1, 2], "classlabels_ints": [4, 5, 6], "rho": [0.1, -0.2, 0.3]}
    weights = [1.0, 0.5, -1.0, -0.25, -0.25, 0.75, 0.5, 1.0, -1.0, -0.5]
    check(context, model("SVMClassifier", 2, coefficients=weights, **classes, **options))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("probabilities", [False, True])
def test_classes_by_support_vectors(context: pumice.Context, classes: int, transform: str, probabilities: bool) -> None:
    random = np.random.default_rng(classes)
    pairs = classes * (classes - 1) // 2
    proba = {"prob_a": random.uniform(-2, -0.5, pairs).tolist(), "prob_b": random.uniform(-0.3, 0.3, pairs).tolist()}
    proto = model(
        "SVMClassifier",
        2,
        kernel_type="RBF",
        kernel_params=[0.3, 0.0, 0.0],
        support_vectors=random.standard_normal(classes * 2 * 4).tolist(),
        vectors_per_class=[2] * classes,
        coefficients=random.standard_normal(classes * 2 * (classes - 1)).tolist(),
        rho=random.uniform(-0.2, 0.2, pairs).tolist(),
        classlabels_ints=list(range(10, 10 + classes)),
        post_transform=transform,
        **(proba if probabilities else {}),
    )
    check(context, proto, random.standard_normal((70, 4)).astype(np.float32))


def test_more_classes_than_a_workgroup_has_invocations(context: pumice.Context) -> None:
    random = np.random.default_rng(0)
    classes = 70
    pairs = classes * (classes - 1) // 2
    proto = model(
        "SVMClassifier",
        2,
        kernel_type="LINEAR",
        kernel_params=[0.0, 0.0, 0.0],
        support_vectors=random.standard_normal(classes * 4).tolist(),
        vectors_per_class=[1] * classes,
        coefficients=(0.1 * random.standard_normal(classes * (classes - 1))).tolist(),
        rho=[0.0] * pairs,
        prob_a=[-1.0] * pairs,
        prob_b=[0.0] * pairs,
        classlabels_ints=list(range(classes)),
    )
    check(context, proto)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("positive", [False, True])
def test_classes_by_linear_weights(context: pumice.Context, classes: int, positive: bool) -> None:
    weights = np.random.default_rng(1).standard_normal(classes * 4)
    weights = (np.abs(weights) if positive else weights).tolist()
    labels = {
        "classlabels_ints": [7, 8, 9][:classes],
        "rho": [0.125],
        "kernel_type": "LINEAR",
        "kernel_params": [0.0] * 3,
    }
    check(context, model("SVMClassifier", 2, coefficients=weights, **labels))


def trees(mode: str) -> dict[str, Any]:
    """Two trees of different depths."""
    return {
        "nodes_treeids": [0] * 5 + [1] * 3,
        "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
        "nodes_featureids": [0, 1, 0, 0, 0, 2, 0, 0],
        "nodes_values": [0.25, -0.5, 0.0, 0.0, 0.0, 0.75, 0.0, 0.0],
        "nodes_modes": [mode, mode, "LEAF", "LEAF", "LEAF", mode, "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 3, 0, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [2, 4, 0, 0, 0, 2, 0, 0],
        "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0, 1, 0, 0],
    }


LEAVES = ([0, 0, 0, 1, 1], [2, 3, 4, 1, 2], [0.5, 1.5, -2.0, 0.75, 3.0])


@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE", "BRANCH_EQ", "BRANCH_NEQ"])
def test_branches_of_trees_and_missing_values(context: pumice.Context, mode: str) -> None:
    numbers, nodes, weights = LEAVES
    leaves = {"target_treeids": numbers, "target_nodeids": nodes, "target_ids": [0] * 5, "target_weights": weights}
    leaves["n_targets"] = 1
    for x in (X, HOLES):
        check(context, model("TreeEnsembleRegressor", 1, **trees(mode), **leaves), x)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_what_leaves_add_up_to(context: pumice.Context, aggregate: str) -> None:
    numbers, nodes, weights = LEAVES
    leaves = {"target_treeids": numbers, "target_nodeids": nodes, "target_ids": [0] * 5, "target_weights": weights}
    options = {"n_targets": 1, "aggregate_function": aggregate, "base_values": [0.25]}
    check(context, model("TreeEnsembleRegressor", 1, **trees("BRANCH_LEQ"), **leaves, **options))


@pytest.mark.parametrize("kinds", [[0, 1, 2, 1, 0], [0] * 5])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_classes_of_trees(context: pumice.Context, kinds: list[int], transform: str) -> None:
    numbers, nodes, weights = LEAVES
    single = len(set(kinds)) == 1
    if single and transform == "NONE":
        weights = [0.1, 0.4, 0.3, 0.2, 0.5]
    labels = [5, 6, 7][: max(2, max(kinds) + 1)]
    leaves = {"class_treeids": numbers, "class_nodeids": nodes, "class_ids": kinds, "class_weights": weights}
    options = {"classlabels_int64s": labels, "post_transform": transform}
    check(context, model("TreeEnsembleClassifier", 2, **trees("BRANCH_LEQ"), **leaves, **options))


def test_labels_that_stand_for_numbers(context: pumice.Context) -> None:
    x = np.array([[3, 4], [5, -1]], np.int64)
    options = {"keys_int64s": [3, 5], "values_int64s": [30, 50], "default_int64": -7}
    check(context, model("LabelEncoder", 1, TensorProto.INT64, **options), x)


def test_what_is_not_there_is_rejected_by_name(context: pumice.Context) -> None:
    labels = {"coefficients": [1.0] * 8, "intercepts": [0.0, 0.0]}
    with pytest.raises(pumice.UnsupportedError, match="post_transform = 'PROBIT'"):
        pumice.load(model("LinearClassifier", 2, classlabels_ints=[0, 1], post_transform="PROBIT", **labels), context)
    wrong = {**trees("BRANCH_LEQ"), "nodes_truenodeids": [1, 0, 0, 0, 0, 1, 0, 0]}
    leaves = {"target_treeids": [0], "target_nodeids": [2], "target_ids": [0], "target_weights": [1.0]}
    with pytest.raises(pumice.GraphError, match="nodes in a cycle"):
        pumice.load(model("TreeEnsembleRegressor", 1, **wrong, **leaves), context)
    far = {**leaves, "target_nodeids": [9]}
    with pytest.raises(pumice.GraphError, match="expected nodes of the trees"):
        pumice.load(model("TreeEnsembleRegressor", 1, **trees("BRANCH_LEQ"), **far), context)
    short = {**trees("BRANCH_LEQ"), "nodes_values": [1.0]}
    with pytest.raises(pumice.GraphError, match="'nodes_values': expected 8 values"):
        pumice.load(model("TreeEnsembleRegressor", 1, **short, **leaves), context)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_probabilities_of_pairs_in_less_precision(context: pumice.Context, precision: str) -> None:
    x = np.random.default_rng(2).uniform(0.02, 0.98, (9, 6)).astype(np.float32)
    graph = pumice.Graph()
    graph.output("y", graph.add("pumice::PairwiseCoupling", graph.input("x", "float32", [None, 6]), classes=4))
    exact, coarse = (graph.compile(context, one)({"x": x})["y"] for one in ("fp32", precision))
    np.testing.assert_allclose(exact.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(coarse, exact, atol=0.02)


def test_support_vectors_that_do_not_fit_are_rejected(context: pumice.Context) -> None:
    own = {"kernel_type": "RBF", "kernel_params": [0.3, 0.0, 0.0], "rho": [0.5], "support_vectors": [0.5] * 8}
    regressor = {**own, "coefficients": [1.0, 2.0], "n_supports": 2}
    classifier = {**own, "vectors_per_class": [1, 1], "classlabels_ints": [4, 5], "coefficients": [1.0, -1.0]}
    wrong = [
        ("SVMRegressor", {**regressor, "coefficients": [1.0] * 3}, "'coefficients': expected as many .* 2, given 3"),
        ("SVMRegressor", {**regressor, "n_supports": -2}, "'n_supports': expected a non-negative number, given -2"),
        ("SVMRegressor", {**regressor, "support_vectors": [0.5] * 6}, "'support_vectors': .* of 4 numbers.*given 3"),
        ("SVMClassifier", {**classifier, "vectors_per_class": [3, -1]}, r"'vectors_per_class': .*given \[3, -1\]"),
        ("SVMClassifier", {**classifier, "vectors_per_class": [1, -1]}, r"'vectors_per_class': .*given \[1, -1\]"),
        ("SVMClassifier", {**classifier, "support_vectors": [0.5] * 6}, "'support_vectors': .* of 4 numbers.*given 3"),
    ]
    for op, attributes, reason in wrong:
        proto = model(op, 1 if op == "SVMRegressor" else 2, **attributes)
        proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 4
        with pytest.raises(pumice.GraphError, match=f"node 'it': attribute {reason}"):
            pumice.load(proto, context)
