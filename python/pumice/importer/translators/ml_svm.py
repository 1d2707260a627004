"""Translate SVMClassifier and SVMRegressor of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.element_types import Array
from ...base.errors import graph_error
from ..build.builder import GraphBuilder
from ..file.graph_recipe import NodeRecipe
from .ml_operators import (
    FLOAT,
    apply_post_transform,
    cast_to_float,
    get_class_labels,
    get_numeric_attribute,
    get_single_input,
    select_best_label,
)

if TYPE_CHECKING:
    from ..._pumice import Value


def _translate_svm_regressor(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Translate SVMRegressor: y = sum over support vectors v of coefficient(v) * kernel(v, x), plus rho."""
    x = cast_to_float(builder, node, get_single_input(builder, node))
    coefficients, vectors, rho = (
        get_numeric_attribute(node, "coefficients"),
        get_numeric_attribute(node, "support_vectors"),
        get_numeric_attribute(node, "rho"),
    )
    count = node.attributes.get("n_supports", 0)
    if not isinstance(count, int) or count < 0:
        raise graph_error("node", node.name, f"attribute 'n_supports': expected a non-negative number, given {count!r}")
    if not coefficients.size or rho.size != 1 or (count and vectors.size % count):
        raise graph_error("node", node.name, "expected coefficients, one rho and 'support_vectors' of one length")
    if count:
        if coefficients.size != count:
            expected = f"as many as 'n_supports', {count}"
            raise graph_error(
                "node", node.name, f"attribute 'coefficients': expected {expected}, given {coefficients.size}"
            )
        kernel = _add_kernel_function(builder, node, x, vectors.reshape(count, -1))
        weights = coefficients.reshape(count, 1)
    else:
        kernel, weights = x, coefficients.reshape(-1, 1)
    scores = _add_affine_function(builder, node, kernel, weights, rho)
    if node.attributes.get("one_class", 0):
        ones = (builder.add_helper(node, "CastLike", np.array(v, np.float32), scores) for v in (1, -1))
        zero = builder.add_helper(node, "CastLike", np.array(0, np.float32), scores)
        scores = builder.add_helper(node, "Where", builder.add_helper(node, "Greater", scores, zero), *ones)
    builder.set_node_outputs(node, apply_post_transform(builder, node, scores))


def _add_affine_function(builder: GraphBuilder, node: NodeRecipe, x: Value, weights: Array, offset: Array) -> Value:
    """Return x @ weights + offset in the dtype of x."""
    product = builder.add_helper(node, "MatMul", x, builder.add_helper(node, "CastLike", weights, x))
    return builder.add_helper(node, "Add", product, builder.add_helper(node, "CastLike", offset, product))


def _add_kernel_function(builder: GraphBuilder, node: NodeRecipe, x: Value, vectors: Array) -> Value:
    """Return the kernel function of each row of x and each support vector, [rows, vectors].

    Raise GraphError for an unknown kernel type, or if x and the vectors have different lengths.
    """
    width = x.shape[-1] if x.shape else None
    if width is not None and width != vectors.shape[1]:
        expected = f"vectors of {width} numbers, as x has"
        raise graph_error(
            "node", node.name, f"attribute 'support_vectors': expected {expected}, given {vectors.shape[1]}"
        )
    parameters = np.concatenate([get_numeric_attribute(node, "kernel_params"), np.zeros(3, np.float32)])[:3]

    def add(op: str, *inputs: Any, **attributes: Any) -> Value:
        cast_inputs = [builder.add_helper(node, "CastLike", v, x) if isinstance(v, np.ndarray) else v for v in inputs]
        return builder.add_helper(node, op, *cast_inputs, **attributes)

    gamma, constant, degree = (np.array(v, np.float32) for v in parameters)
    kind = node.attributes.get("kernel_type", "LINEAR")
    if kind == "RBF":
        difference = add("Sub", builder.add_helper(node, "Unsqueeze", x, np.array([1])), vectors)
        squares = builder.add_helper(node, "ReduceSumSquare", difference, np.array([2]), keepdims=0)
        return add("Exp", add("Mul", squares, np.array(-gamma)))
    dot_product = add("MatMul", x, np.ascontiguousarray(vectors.T))
    if kind == "LINEAR":
        return dot_product
    if kind not in ("POLY", "SIGMOID"):
        raise graph_error(
            "node", node.name, f"attribute 'kernel_type': expected LINEAR, POLY, RBF or SIGMOID, given {kind!r}"
        )
    linear = add("Add", add("Mul", dot_product, gamma), constant)
    return add("Pow", linear, degree) if kind == "POLY" else add("Tanh", linear)


def _translate_linear_classifier(builder: GraphBuilder, node: NodeRecipe, x: Value, labels: Array) -> None:
    """Translate an SVMClassifier without support vectors, which computes a linear score per class.

    The class with the highest score is chosen. With two classes, the second is chosen instead if the highest score is above 0,
    or at least 0.5 if no coefficient is negative.
    """
    add = builder.add_helper
    coefficients, rho = get_numeric_attribute(node, "coefficients"), get_numeric_attribute(node, "rho")
    if coefficients.size % labels.size or not rho.size:
        raise graph_error("node", node.name, f"expected rho and as many coefficients for each of {labels.size} classes")
    weights = np.ascontiguousarray(coefficients.reshape(labels.size, -1).T)
    scores = _add_affine_function(builder, node, x, weights, rho[:1])
    label = select_best_label(builder, node, scores, labels)
    if labels.size == 2:
        max_score = add(node, "ReduceMax", scores, np.array([1]), keepdims=0)
        limit = np.array(0.5 if (coefficients >= 0).all() else 0, np.float32)
        op = "GreaterOrEqual" if limit else "Greater"
        label = add(
            node,
            "Where",
            add(node, op, max_score, add(node, "CastLike", limit, max_score)),
            labels[1:],
            label,
        )
    builder.set_node_outputs(node, label, apply_post_transform(builder, node, scores))


def _translate_svm_classifier(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Translate SVMClassifier (one-vs-one): score each pair of classes, and choose the class that wins most pairs."""
    add = builder.add_helper
    x = cast_to_float(builder, node, get_single_input(builder, node))
    labels = get_class_labels(builder, node, "classlabels_ints")
    counts = get_numeric_attribute(node, "vectors_per_class", "int64")
    if (counts < 0).any():
        expected = "attribute 'vectors_per_class': expected non-negative numbers"
        raise graph_error("node", node.name, f"{expected}, given {counts.tolist()}")
    if not counts.sum():
        _translate_linear_classifier(builder, node, x, labels)
        return
    scores = _compute_pairwise_scores(builder, node, x, labels.size, counts)
    pairs = _get_class_pairs(labels.size)
    wins, losses = (
        np.array([[i == pair[side] for i in range(labels.size)] for pair in pairs], np.float32) for side in (0, 1)
    )
    zero = add(node, "CastLike", np.zeros(1, np.float32), scores)
    is_win = add(node, "Cast", add(node, "Greater", scores, zero), to=FLOAT)
    votes = add(node, "Add", add(node, "MatMul", is_win, wins - losses), losses.sum(0))
    label = select_best_label(builder, node, votes, labels)
    factors, offsets = get_numeric_attribute(node, "prob_a"), get_numeric_attribute(node, "prob_b")
    if factors.size:
        if not factors.size == offsets.size == len(pairs):
            raise graph_error("node", node.name, f"expected 'prob_a' and 'prob_b' of {len(pairs)} pairs")
        scores = _compute_probabilities(builder, node, scores, factors, offsets, labels.size)
    elif labels.size == 2 and node.attributes.get("post_transform", "NONE") == "SOFTMAX":
        first = add(node, "Sub", add(node, "CastLike", np.ones(1, np.float32), scores), scores)
        builder.set_node_outputs(node, label, add(node, "Concat", first, scores, axis=1))
        return
    elif labels.size == 2:
        scores = add(node, "Concat", add(node, "Neg", scores), scores, axis=1)
    builder.set_node_outputs(node, label, apply_post_transform(builder, node, scores))


def _get_class_pairs(classes: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(classes) for j in range(i + 1, classes)]


def _compute_pairwise_scores(builder: GraphBuilder, node: NodeRecipe, x: Value, classes: int, counts: Array) -> Value:
    """Return the scores of all pairs of classes, [rows, pairs]; a positive score favours the first class.

    Raise GraphError if the sizes of the attributes do not match.
    """
    vectors, rho, coefficients = (
        get_numeric_attribute(node, name) for name in ("support_vectors", "rho", "coefficients")
    )
    total, pairs = int(counts.sum()), _get_class_pairs(classes)
    sizes_match = classes == counts.size and vectors.size % total == 0 and rho.size == len(pairs)
    if not sizes_match or coefficients.size != total * (classes - 1):
        raise graph_error(
            "node", node.name, "the sizes of support_vectors, coefficients and rho do not match the number of classes"
        )
    ends = np.cumsum(counts)
    weights = np.zeros((total, len(pairs)), np.float32)
    rows = coefficients.reshape(-1, total)
    for k, (i, j) in enumerate(pairs):
        for class_a, class_b in ((i, j - 1), (j, i)):
            class_rows = slice(ends[class_a] - counts[class_a], ends[class_a])
            weights[class_rows, k] = rows[class_b, class_rows]
    kernel = _add_kernel_function(builder, node, x, vectors.reshape(total, -1))
    return _add_affine_function(builder, node, kernel, weights, rho)


def _compute_probabilities(
    builder: GraphBuilder, node: NodeRecipe, scores: Value, factors: Array, offsets: Array, classes: int
) -> Value:
    """Return class probabilities [rows, classes], computed by Platt scaling and pairwise coupling."""
    scaled = builder.add_helper(node, "Mul", scores, builder.add_helper(node, "CastLike", -factors, scores))
    shifted = builder.add_helper(node, "Sub", scaled, builder.add_helper(node, "CastLike", offsets, scores))
    return builder.add_helper(
        node, "pumice::PairwiseCoupling", builder.add_helper(node, "Sigmoid", shifted), classes=classes
    )


SVM_NODES: dict[str, Callable[[GraphBuilder, NodeRecipe], None]] = {
    "ai.onnx.ml::SVMClassifier": _translate_svm_classifier,
    "ai.onnx.ml::SVMRegressor": _translate_svm_regressor,
}
