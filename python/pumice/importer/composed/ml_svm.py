"""Translate the support vector machines of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.element_types import Array
from ...base.errors import graph_error
from ..build.builder import Builder
from ..file.recipe import NodeRecipe
from .ml_operators import FLOAT, best, class_labels, numbers, only, real, transformed

if TYPE_CHECKING:
    from ..._pumice import Value


def _regressor(builder: Builder, node: NodeRecipe) -> None:
    """Translate SVMRegressor: sum over support vectors of coefficient * kernel(vector, x), plus rho."""
    x = real(builder, node, only(builder, node))
    coefficients, vectors, rho = numbers(node, "coefficients"), numbers(node, "support_vectors"), numbers(node, "rho")
    count = node.attributes.get("n_supports", 0)
    if not isinstance(count, int) or count < 0:
        raise graph_error("node", node.name, f"attribute 'n_supports': expected a number from 0 up, given {count!r}")
    if not coefficients.size or rho.size != 1 or (count and vectors.size % count):
        raise graph_error("node", node.name, "expected coefficients, one rho and 'support_vectors' of one length")
    if count:
        if coefficients.size != count:
            expected = f"as many as 'n_supports', {count}"
            raise graph_error(
                "node", node.name, f"attribute 'coefficients': expected {expected}, given {coefficients.size}"
            )
        kernel = _kernel(builder, node, x, vectors.reshape(count, -1))
        weights = coefficients.reshape(count, 1)
    else:
        kernel, weights = x, coefficients.reshape(-1, 1)
    sums = builder.helper(node, "MatMul", kernel, builder.helper(node, "CastLike", weights, kernel))
    scores = builder.helper(node, "Add", sums, builder.helper(node, "CastLike", rho, sums))
    if node.attributes.get("one_class", 0):
        ones = (builder.helper(node, "CastLike", np.array(v, np.float32), scores) for v in (1, -1))
        zero = builder.helper(node, "CastLike", np.array(0, np.float32), scores)
        scores = builder.helper(node, "Where", builder.helper(node, "Greater", scores, zero), *ones)
    builder.keep_results(node, transformed(builder, node, scores))


def _kernel(builder: Builder, node: NodeRecipe, x: Value, vectors: Array) -> Value:
    """Return the kernel function of each row and each support vector, [rows, vectors].

    Raise GraphError for an unknown kernel or wrong size.
    """
    width = x.shape[-1] if x.shape else None
    if width is not None and width != vectors.shape[1]:
        expected = f"vectors of {width} numbers, as x has"
        raise graph_error(
            "node", node.name, f"attribute 'support_vectors': expected {expected}, given {vectors.shape[1]}"
        )
    parameters = np.concatenate([numbers(node, "kernel_params"), np.zeros(3, np.float32)])[:3]

    def helper(op: str, *inputs: Any, **attributes: Any) -> Value:
        like = [builder.helper(node, "CastLike", v, x) if isinstance(v, np.ndarray) else v for v in inputs]
        return builder.helper(node, op, *like, **attributes)

    gamma, constant, degree = (np.array(v, np.float32) for v in parameters)
    kind = node.attributes.get("kernel_type", "LINEAR")
    if kind == "RBF":
        apart = helper("Sub", builder.helper(node, "Unsqueeze", x, np.array([1])), vectors)
        squares = builder.helper(node, "ReduceSumSquare", apart, np.array([2]), keepdims=0)
        return helper("Exp", helper("Mul", squares, np.array(-gamma)))
    product = helper("MatMul", x, np.ascontiguousarray(vectors.T))
    if kind == "LINEAR":
        return product
    if kind not in ("POLY", "SIGMOID"):
        raise graph_error(
            "node", node.name, f"attribute 'kernel_type': expected LINEAR, POLY, RBF or SIGMOID, given {kind!r}"
        )
    linear = helper("Add", helper("Mul", product, gamma), constant)
    return helper("Pow", linear, degree) if kind == "POLY" else helper("Tanh", linear)


def _linear(builder: Builder, node: NodeRecipe, x: Value, labels: Array) -> None:
    """Translate SVMClassifier without support vectors: one score per class.

    With two classes, the second is chosen if the highest score is above 0, or at least 0.5 if no coefficient is
    negative; otherwise the class with the highest score.
    """
    helper = builder.helper
    coefficients, rho = numbers(node, "coefficients"), numbers(node, "rho")
    if coefficients.size % labels.size or not rho.size:
        raise graph_error("node", node.name, f"expected rho and as many coefficients for each of {labels.size} classes")
    weights = np.ascontiguousarray(coefficients.reshape(labels.size, -1).T)
    product = helper(node, "MatMul", x, helper(node, "CastLike", weights, x))
    scores = helper(node, "Add", product, helper(node, "CastLike", rho[:1], product))
    label = best(builder, node, scores, labels)
    if labels.size == 2:
        most = helper(node, "ReduceMax", scores, np.array([1]), keepdims=0)
        limit = np.array(0.5 if (coefficients >= 0).all() else 0, np.float32)
        op = "GreaterOrEqual" if limit else "Greater"
        label = helper(node, "Where", helper(node, op, most, helper(node, "CastLike", limit, most)), labels[1:], label)
    builder.keep_results(node, label, transformed(builder, node, scores))


def _classifier(builder: Builder, node: NodeRecipe) -> None:
    """Translate SVMClassifier, one-vs-one: each pair of classes gets a score from both classes' support vectors; the
    class with most wins is chosen.
    """
    helper = builder.helper
    x = real(builder, node, only(builder, node))
    labels, counts = class_labels(builder, node, "classlabels_ints"), numbers(node, "vectors_per_class", "int64")
    if (counts < 0).any():
        raise graph_error(
            "node", node.name, f"attribute 'vectors_per_class': expected numbers from 0 up, given {counts.tolist()}"
        )
    if not counts.sum():
        _linear(builder, node, x, labels)
        return
    scores = _scores(builder, node, x, labels.size, counts)
    wins, losses = (
        np.array([[one == pair[side] for one in range(labels.size)] for pair in _pairs(labels.size)], np.float32)
        for side in (0, 1)
    )
    won = helper(
        node,
        "Cast",
        helper(node, "Greater", scores, helper(node, "CastLike", np.zeros(1, np.float32), scores)),
        to=FLOAT,
    )
    votes = helper(node, "Add", helper(node, "MatMul", won, wins - losses), losses.sum(0))
    label = best(builder, node, votes, labels)
    factors, offsets = numbers(node, "prob_a"), numbers(node, "prob_b")
    if factors.size:
        if not factors.size == offsets.size == len(_pairs(labels.size)):
            raise graph_error("node", node.name, f"expected 'prob_a' and 'prob_b' of {len(_pairs(labels.size))} pairs")
        scores = _probabilities(builder, node, scores, factors, offsets, labels.size)
    elif labels.size == 2 and node.attributes.get("post_transform", "NONE") == "SOFTMAX":
        one = helper(node, "CastLike", np.ones(1, np.float32), scores)
        builder.keep_results(node, label, helper(node, "Concat", helper(node, "Sub", one, scores), scores, axis=1))
        return
    elif labels.size == 2:
        scores = helper(node, "Concat", helper(node, "Neg", scores), scores, axis=1)
    builder.keep_results(node, label, transformed(builder, node, scores))


def _pairs(classes: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(classes) for j in range(i + 1, classes)]


def _scores(builder: Builder, node: NodeRecipe, x: Value, classes: int, counts: Array) -> Value:
    """Return the pairwise scores, [rows, pairs]: above 0 for the first class of a pair.

    Raise GraphError if the attributes' sizes do not match.
    """
    vectors, rho, coefficients = (numbers(node, name) for name in ("support_vectors", "rho", "coefficients"))
    total, pairs = int(counts.sum()), _pairs(classes)
    fits = classes == counts.size and vectors.size % total == 0 and rho.size == len(pairs)
    if not fits or coefficients.size != total * (classes - 1):
        raise graph_error(
            "node", node.name, "expected support vectors, coefficients and rho of all classes, given others"
        )
    ends = np.cumsum(counts)
    weights = np.zeros((total, len(pairs)), np.float32)
    rows = coefficients.reshape(-1, total)
    for k, (i, j) in enumerate(pairs):
        for one, other in ((i, j - 1), (j, i)):
            own = slice(ends[one] - counts[one], ends[one])
            weights[own, k] = rows[other, own]
    kernel = _kernel(builder, node, x, vectors.reshape(total, -1))
    sums = builder.helper(node, "MatMul", kernel, builder.helper(node, "CastLike", weights, kernel))
    return builder.helper(node, "Add", sums, builder.helper(node, "CastLike", rho, sums))


def _probabilities(
    builder: Builder, node: NodeRecipe, scores: Value, factors: Array, offsets: Array, classes: int
) -> Value:
    """Return class probabilities by Platt scaling and pairwise coupling."""
    scaled = builder.helper(node, "Mul", scores, builder.helper(node, "CastLike", -factors, scores))
    moved = builder.helper(node, "Sub", scaled, builder.helper(node, "CastLike", offsets, scores))
    return builder.helper(node, "pumice::PairwiseCoupling", builder.helper(node, "Sigmoid", moved), classes=classes)


SVM_NODES: dict[str, Callable[[Builder, NodeRecipe], None]] = {
    "ai.onnx.ml::SVMClassifier": _classifier,
    "ai.onnx.ml::SVMRegressor": _regressor,
}
