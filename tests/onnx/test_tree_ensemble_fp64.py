"""Tree ensembles on float64 features compare and sum in float64, for all operators and forms of attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pumice

Array = np.ndarray[Any, Any]
ML = "ai.onnx.ml"
NEAR = 1 / 3  # thresholds that differ only in float64
LIMITS = [NEAR, NEAR + 1e-12, NEAR - 1e-12]
X = np.array([[NEAR, 0], [NEAR + 5e-13, 1], [NEAR - 5e-13, 2], [NEAR + 2e-12, 0], [NEAR - 2e-12, 1], [np.nan, 0]])


def model(op: str, outputs: dict[str, int], version: int, **attributes: Any) -> onnx.ModelProto:
    made = helper.make_node(op, ["x"], [*outputs], "trees", domain=ML, **attributes)
    graph = helper.make_graph(
        [made],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, ["n", 2])],
        [helper.make_tensor_value_info(name, dtype, None) for name, dtype in outputs.items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(ML, version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def by_runtime(proto: onnx.ModelProto) -> list[Array]:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    results: list[Array] = session.run(None, {"x": X})
    return results


SCORES = [1 / 7, 2 / 7, 3, 1e8 + 0.25, -1e8, 5]


def nodes(mode: str, weights: str, scores: list[float], **more: Any) -> dict[str, Any]:
    """Two trees: a chain of tests of feature 0, and one of feature 1. The thresholds are a float64 tensor."""
    tensor = lambda name, numbers: numpy_helper.from_array(np.array(numbers, np.float64), name)  # noqa: E731
    return {
        "nodes_treeids": [0] * 7 + [1] * 3,
        "nodes_nodeids": [*range(7), 0, 1, 2],
        "nodes_featureids": [0, 0, 0, 0, 0, 0, 0, 1, 0, 0],
        "nodes_modes": [mode, mode, mode, *["LEAF"] * 4, mode, "LEAF", "LEAF"],
        "nodes_values_as_tensor": tensor("nodes_values_as_tensor", [*LIMITS, 0, 0, 0, 0, 1, 0, 0]),
        "nodes_truenodeids": [1, 3, 5, 0, 0, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [2, 4, 6, 0, 0, 0, 0, 2, 0, 0],
        "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        f"{weights}_treeids": [0] * 4 + [1] * 2,
        f"{weights}_nodeids": [3, 4, 5, 6, 1, 2],
        f"{weights}_ids": [0, 0, 0, 0, 0, 0],
        f"{weights}_weights_as_tensor": tensor(f"{weights}_weights_as_tensor", scores),
        **more,
    }


@pytest.mark.parametrize("fold", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"])
def test_a_regressor(context: pumice.Context, mode: str, fold: str) -> None:
    proto = model(
        "TreeEnsembleRegressor",
        {"y": TensorProto.FLOAT},
        3,
        **nodes(mode, "target", SCORES),
        n_targets=1,
        aggregate_function=fold,
    )
    result, expected = pumice.load(proto, context)(X), by_runtime(proto)[0]
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_a_classifier(context: pumice.Context, transform: str) -> None:
    scores = SCORES if transform == "LOGISTIC" else [0.1, 0.3, 0.45, 0.65, 0.125, 0.25]
    given = nodes("BRANCH_LEQ", "class", scores, classlabels_int64s=[3, 7], post_transform=transform)
    proto = model("TreeEnsembleClassifier", {"label": TensorProto.INT64, "y": TensorProto.FLOAT}, 3, **given)
    for result, expected in zip(pumice.load(proto, context)(X), by_runtime(proto), strict=True):
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("mode", [0, 1, 2, 3, 4, 5])
def test_an_ensemble_of_tensors_gives_float64(context: pumice.Context, mode: int) -> None:
    tensor = lambda name, numbers: numpy_helper.from_array(np.array(numbers), name)  # noqa: E731
    proto = model(
        "TreeEnsemble",
        {"y": TensorProto.DOUBLE},
        5,
        n_targets=2,
        nodes_modes=numpy_helper.from_array(np.full(3, mode, np.uint8), "nodes_modes"),
        nodes_featureids=[0, 0, 1],
        nodes_splits=tensor("nodes_splits", [LIMITS[0], LIMITS[1], 0.5]),
        nodes_truenodeids=[1, 0, 2],
        nodes_trueleafs=[0, 1, 1],
        nodes_falsenodeids=[2, 1, 3],
        nodes_falseleafs=[0, 1, 1],
        leaf_targetids=[0, 1, 0, 1],
        leaf_weights=tensor("leaf_weights", [1 / 3, 1 + 1e-13, 1e300, -1 / 7]),
        tree_roots=[0],
    )
    result, expected = pumice.load(proto, context)(X), by_runtime(proto)[0]
    assert result.dtype == expected.dtype == np.float64
    np.testing.assert_array_equal(result, expected)
