"""Operators of ai.onnx.ml, as nodes of the engine: what pipelines of scikit-learn are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from . import ml_columns, ml_vectors
from .element_types import Array
from .errors import graph_error
from .graph_builder import Builder
from .ml_parts import (
    LAST,
    best_label,
    class_labels,
    input_rows,
    integer_of,
    keep,
    numbers_of,
    refuse,
    text_of,
    transformed,
)
from .ml_trees import Forest
from .recipe import NodeRecipe

if TYPE_CHECKING:
    from ._pumice import Value


def _forest(node: NodeRecipe, role: str, targets: int) -> tuple[Forest, Array]:
    """And what each of its nodes adds to each target."""
    try:
        forest = Forest.of(node)
        return forest, forest.weights(node, role, targets)
    except ValueError as error:
        raise graph_error("node", node.name, str(error)) from None


def _leaves(builder: Builder, node: NodeRecipe, forest: Forest) -> Value:
    """[rows, trees]: the leaf that each row comes to in each tree."""
    helper = builder.helper
    x = input_rows(builder, node)
    shape = helper(node, "Concat", helper(node, "Shape", x, end=1), np.array([len(forest.roots)]), axis=0)
    place = helper(node, "Expand", forest.roots[None], shape)
    comparisons = {
        "BRANCH_LEQ": "LessOrEqual",
        "BRANCH_LT": "Less",
        "BRANCH_GTE": "GreaterOrEqual",
        "BRANCH_GT": "Greater",
        "BRANCH_EQ": "Equal",
        "BRANCH_NEQ": "Equal",
    }
    if len(forest.modes) > 1:
        raise refuse(builder, node, f"branches of several kinds: {', '.join(sorted(forest.modes))}")
    for mode in forest.modes:
        if mode not in comparisons:
            raise refuse(builder, node, f"branches of the kind {mode}")
        for _ in range(forest.depth):
            value = helper(node, "GatherElements", x, helper(node, "Gather", forest.features, place), axis=1)
            goes = helper(node, comparisons[mode], value, helper(node, "Gather", forest.values, place))
            goes = helper(node, "Not", goes) if mode == "BRANCH_NEQ" else goes
            if forest.missing.any():
                missing = helper(
                    node, "And", helper(node, "IsNaN", value), helper(node, "Gather", forest.missing, place)
                )
                goes = helper(node, "Or", goes, missing)
            both = (helper(node, "Gather", branch, place) for branch in (forest.true, forest.false))
            place = helper(node, "Where", goes, *both)
    return place


def _totals(builder: Builder, node: NodeRecipe, role: str, targets: int) -> Value:
    """[rows, targets]: what the leaves of all trees add up to."""
    forest, weights = _forest(node, role, targets)
    kind = text_of(node, "aggregate_function", "SUM")
    reductions = {"SUM": "ReduceSum", "AVERAGE": "ReduceSum", "MIN": "ReduceMin", "MAX": "ReduceMax"}
    if kind not in reductions:
        raise graph_error("node", node.name, f"attribute 'aggregate_function': given {kind!r}")
    each = builder.helper(node, "Gather", weights, _leaves(builder, node, forest))
    total = builder.helper(node, reductions[kind], each, np.array([1]), keepdims=0)
    if kind == "AVERAGE":
        total = builder.helper(node, "Div", total, np.array(len(forest.roots), np.float32))
    base = numbers_of(node, "base_values")
    return builder.helper(node, "Add", total, base) if base.size else total


def _tree_regressor(builder: Builder, node: NodeRecipe) -> None:
    total = _totals(builder, node, "target", integer_of(node, "n_targets", 1))
    keep(builder, node, transformed(builder, node, total))


def _tree_classifier(builder: Builder, node: NodeRecipe) -> None:
    """Where the leaves speak of the first class of two alone, that is the second one's score, and the first has what is left."""
    labels = class_labels(builder, node, "classlabels_int64s")
    total = _totals(builder, node, "class", len(labels))
    spoken = np.unique(numbers_of(node, "class_ids", np.int64))
    if len(labels) == 2 and spoken.tolist() == [1]:
        raise refuse(builder, node, "two classes, of which the leaves speak of the second alone")
    if len(labels) != 2 or len(spoken) != 1:
        keep(builder, node, best_label(builder, node, total, labels), transformed(builder, node, total))
        return
    kind = text_of(node, "post_transform", "NONE")
    positive = bool((numbers_of(node, "class_weights") >= 0).all())
    if kind == "SOFTMAX" or (kind == "NONE" and not positive):
        raise refuse(builder, node, f"one class of two with post_transform {kind}")
    score = builder.helper(node, "Gather", total, spoken, axis=1)
    limit = np.array(0.5 if positive else 0, np.float32)
    label = builder.helper(node, "Where", builder.helper(node, "Greater", score, limit), labels[1:], labels[:1])
    score = transformed(builder, node, score)
    rest = builder.helper(node, "Sub", np.array(1, np.float32), score)
    both = builder.helper(node, "Concat", rest, score, axis=1)
    keep(builder, node, builder.helper(node, "Reshape", label, LAST), both)


def _zip_map(builder: Builder, node: NodeRecipe) -> None:
    raise refuse(builder, node, "dictionaries; skl2onnx leaves arrays with the option zipmap=False")


ML_NODES: dict[str, Callable[[Builder, NodeRecipe], None]] = {
    f"ai.onnx.ml::{name}": add
    for name, add in {
        "ArrayFeatureExtractor": ml_columns.array_feature_extractor,
        "Binarizer": ml_columns.binarizer,
        "FeatureVectorizer": ml_columns.feature_vectorizer,
        "Imputer": ml_columns.imputer,
        "LabelEncoder": ml_columns.label_encoder,
        "LinearClassifier": ml_vectors.linear_classifier,
        "LinearRegressor": ml_vectors.linear_regressor,
        "Normalizer": ml_columns.normalizer,
        "SVMClassifier": ml_vectors.svm_classifier,
        "SVMRegressor": ml_vectors.svm_regressor,
        "Scaler": ml_columns.scaler,
        "TreeEnsembleClassifier": _tree_classifier,
        "TreeEnsembleRegressor": _tree_regressor,
        "ZipMap": _zip_map,
    }.items()
}
