"""Linear models and support vectors of ai.onnx.ml."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .element_types import Array
from .errors import graph_error
from .graph_builder import Builder
from .ml_parts import (
    FLOAT,
    INT64,
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
from .recipe import NodeRecipe

if TYPE_CHECKING:
    from ._pumice import Value


def _linear(builder: Builder, node: NodeRecipe, targets: int) -> Value:
    weights = numbers_of(node, "coefficients")
    if not targets or weights.size % targets:
        raise graph_error("node", node.name, f"{weights.size} coefficients for {targets} rows")
    intercepts = numbers_of(node, "intercepts")
    made = builder.helper(node, "MatMul", input_rows(builder, node), weights.reshape(targets, -1).T.copy())
    return builder.helper(node, "Add", made, intercepts) if intercepts.size else made


def linear_regressor(builder: Builder, node: NodeRecipe) -> None:
    keep(builder, node, transformed(builder, node, _linear(builder, node, integer_of(node, "targets", 1))))


def linear_classifier(builder: Builder, node: NodeRecipe) -> None:
    labels = class_labels(builder, node, "classlabels_ints")
    count = max(len(numbers_of(node, "intercepts")), 1)
    if count != len(labels):
        raise refuse(builder, node, f"{count} rows of coefficients for {len(labels)} labels")
    scores = _linear(builder, node, count)
    keep(builder, node, best_label(builder, node, scores, labels), transformed(builder, node, scores))


def _kernels(builder: Builder, node: NodeRecipe, x: Value, vectors: Array) -> Value:
    """[rows, vectors]."""
    kind = text_of(node, "kernel_type", "LINEAR")
    gamma, shift, degree = (
        np.array(number, np.float32) for number in [*numbers_of(node, "kernel_params"), 0, 0, 0][:3]
    )
    helper = builder.helper
    products = helper(node, "MatMul", x, vectors.T.copy())
    if kind == "RBF":
        own = helper(node, "ReduceSumSquare", x, np.array([1]), keepdims=1)
        twice = helper(node, "Mul", products, np.array(-2, np.float32))
        apart = helper(node, "Add", helper(node, "Add", own, np.square(vectors).sum(1)), twice)
        return helper(node, "Exp", helper(node, "Mul", apart, np.array(-gamma)))
    if kind in ("POLY", "SIGMOID"):
        inner = helper(node, "Add", helper(node, "Mul", products, gamma), shift)
        return helper(node, "Pow", inner, degree) if kind == "POLY" else helper(node, "Tanh", inner)
    if kind != "LINEAR":
        raise graph_error("node", node.name, f"attribute 'kernel_type': given {kind!r}")
    return products


def svm_regressor(builder: Builder, node: NodeRecipe) -> None:
    x, weights, rho = input_rows(builder, node), numbers_of(node, "coefficients"), numbers_of(node, "rho")
    count = integer_of(node, "n_supports")
    kernels = _kernels(builder, node, x, numbers_of(node, "support_vectors").reshape(count, -1)) if count else x
    found = builder.helper(node, "Add", builder.helper(node, "MatMul", kernels, weights.reshape(-1, 1)), rho[:1])
    if integer_of(node, "one_class"):
        inside = builder.helper(node, "Greater", found, np.array(0, np.float32))
        found = builder.helper(node, "Where", inside, np.array(1, np.float32), np.array(-1, np.float32))
    keep(builder, node, transformed(builder, node, found))


def svm_classifier(builder: Builder, node: NodeRecipe) -> None:
    """Every two classes have a score, whose sign is a vote; the first class with the most votes is the label."""
    labels, sizes = class_labels(builder, node, "classlabels_ints"), numbers_of(node, "vectors_per_class", np.int64)
    if not sizes.size:
        raise refuse(builder, node, "without support vectors")
    if numbers_of(node, "prob_a").size:
        raise refuse(builder, node, "probabilities (prob_a)")
    count = len(sizes)
    vectors = numbers_of(node, "support_vectors").reshape(int(sizes.sum()), -1)
    given = numbers_of(node, "coefficients").reshape(count - 1, -1)
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    weights, votes = np.zeros((len(vectors), len(pairs)), np.float32), np.zeros((2, len(pairs), count), np.float32)
    ends = np.cumsum(sizes)
    for k, (i, j) in enumerate(pairs):
        for one, row in ((i, j - 1), (j, i)):
            own = slice(ends[one] - sizes[one], ends[one])
            weights[own, k] = given[row, own]
        votes[0, k, i] = votes[1, k, j] = 1
    kernels = _kernels(builder, node, input_rows(builder, node), vectors)
    scores = builder.helper(node, "Add", builder.helper(node, "MatMul", kernels, weights), numbers_of(node, "rho"))
    wins = builder.helper(node, "Cast", builder.helper(node, "Greater", scores, np.array(0, np.float32)), to=FLOAT)
    if count == 2:  # the score is for the first one, and given for the second
        if text_of(node, "post_transform", "NONE") != "NONE" or (given >= 0).all():
            raise refuse(builder, node, "two classes with a post_transform, or coefficients that are all positive")
        label = builder.helper(node, "Gather", labels[::-1].copy(), builder.helper(node, "Cast", wins, to=INT64))
        both = builder.helper(node, "Concat", builder.helper(node, "Neg", scores), scores, axis=1)
        keep(builder, node, builder.helper(node, "Reshape", label, LAST), both)
        return
    totals = builder.helper(node, "Add", builder.helper(node, "MatMul", wins, votes[0] - votes[1]), votes[1].sum(0))
    keep(builder, node, best_label(builder, node, totals, labels), transformed(builder, node, scores))
