"""Operators of ai.onnx.ml, as nodes of the engine: what pipelines of scikit-learn are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .element_types import Array, array_of
from .errors import graph_error
from .graph_builder import Builder, Refused
from .ml_trees import Forest
from .recipe import ConstantRecipe, NodeRecipe

if TYPE_CHECKING:
    from ._pumice import Value

FLOAT, INT32, INT64, BOOL = 1, 6, 7, 9  # TensorProto.DataType
LAST = np.array([-1])


def _refuse(builder: Builder, node: NodeRecipe, why: str) -> Refused:
    builder.unsupported.append(f"node '{builder.path(node)}': operator {node.qualified_op}: {why}")
    return Refused()


def _numbers(node: NodeRecipe, name: str, dtype: Any = np.float32) -> Array:
    """An attribute of numbers; an empty array where it is absent."""
    value = node.attributes.get(name, [])
    if not isinstance(value, list) or any(isinstance(item, str) for item in value):
        raise graph_error("node", node.name, f"attribute '{name}': expected numbers, given {value!r}")
    return np.array(value, dtype)


def _text(node: NodeRecipe, name: str, default: str) -> str:
    return str(node.attributes.get(name, default))


def _integer(node: NodeRecipe, name: str, default: int = 0) -> int:
    value = node.attributes.get(name, default)
    if not isinstance(value, int):
        raise graph_error("node", node.name, f"attribute '{name}': expected an integer, given {value!r}")
    return value


def _floats(builder: Builder, node: NodeRecipe) -> Value:
    x = builder.tensor(node.inputs[0])
    return x if x.dtype == "float32" else builder.helper(node, "Cast", x, to=FLOAT)


def _rows(builder: Builder, node: NodeRecipe) -> Value:
    """The input as floats [rows, features]; a vector is one row."""
    return builder.helper(node, "Flatten", _floats(builder, node), axis=-1)


def _keep(builder: Builder, node: NodeRecipe, *results: Value) -> None:
    for name, value in zip(node.outputs, results, strict=False):
        if name:
            builder.keep([name], (builder.helper(node, "Identity", value, output=name),))


# ---- columns


def _array_feature_extractor(builder: Builder, node: NodeRecipe) -> None:
    x, places = (builder.tensor(name) for name in node.inputs[:2])
    found = builder.helper(node, "Gather", x, builder.helper(node, "Reshape", places, LAST), axis=-1)
    if x.shape is not None and len(x.shape) == 1:
        found = builder.helper(node, "Unsqueeze", found, np.array([0]))
    _keep(builder, node, found)


def _scaler(builder: Builder, node: NodeRecipe) -> None:
    moved = builder.helper(node, "Sub", _floats(builder, node), _numbers(node, "offset"))
    _keep(builder, node, builder.helper(node, "Mul", moved, _numbers(node, "scale")))


def _normalizer(builder: Builder, node: NodeRecipe) -> None:
    """Rows of zeros stay as they are."""
    x = _floats(builder, node)
    reductions = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}
    kind = _text(node, "norm", "MAX")
    if kind not in reductions:
        raise graph_error("node", node.name, f"attribute 'norm': expected MAX, L1 or L2, given {kind!r}")
    size = builder.helper(node, reductions[kind], x, LAST, keepdims=1)
    nothing = builder.helper(node, "Equal", size, np.array(0, np.float32))
    size = builder.helper(node, "Where", nothing, np.array(1, np.float32), size)
    _keep(builder, node, builder.helper(node, "Div", x, size))


def _binarizer(builder: Builder, node: NodeRecipe) -> None:
    x = builder.tensor(node.inputs[0])
    threshold = node.attributes.get("threshold", 0.0)
    above = builder.helper(node, "Greater", _floats(builder, node), np.array(threshold, np.float32))
    _keep(builder, node, builder.helper(node, "CastLike", above, x))


def _feature_vectorizer(builder: Builder, node: NodeRecipe) -> None:
    parts = [builder.tensor(name) for name in node.inputs]
    floats = [one if one.dtype == "float32" else builder.helper(node, "Cast", one, to=FLOAT) for one in parts]
    _keep(builder, node, builder.helper(node, "Concat", *floats, axis=1))


def _imputer(builder: Builder, node: NodeRecipe) -> None:
    x = builder.tensor(node.inputs[0])
    is_float = x.dtype.startswith("float")
    replaced = node.attributes.get(f"replaced_value_{'float' if is_float else 'int64'}", 0)
    values = _numbers(node, f"imputed_value_{'floats' if is_float else 'int64s'}", x.dtype)
    if is_float and isinstance(replaced, float) and np.isnan(replaced):
        missing = builder.helper(node, "IsNaN", x)
    else:
        missing = builder.helper(node, "Equal", x, np.array(replaced, x.dtype))
    _keep(builder, node, builder.helper(node, "Where", missing, values, x))


def _table(builder: Builder, node: NodeRecipe, role: str) -> Array:
    """The keys or values of a LabelEncoder, of whatever kind they are."""
    given = [name for name in node.attributes if name.startswith(role)]
    if len(given) != 1:
        raise graph_error("node", node.name, f"expected one attribute '{role}...', given {given}")
    value = node.attributes[given[0]]
    if isinstance(value, ConstantRecipe):
        return array_of(value.raw, value.dtype, value.shape)
    if given[0] == f"{role}_strings":
        raise _refuse(builder, node, f"{role} that are strings")
    return _numbers(node, given[0], np.int64 if given[0].endswith("int64s") else np.float32)


def _label_encoder(builder: Builder, node: NodeRecipe) -> None:
    """The value of the first key that is equal; a NaN is equal to the other."""
    x = builder.tensor(node.inputs[0])
    keys, values = _table(builder, node, "keys"), _table(builder, node, "values")
    if keys.shape != values.shape or keys.ndim != 1 or keys.dtype != x.dtype:
        raise graph_error(
            "node", node.name, f"keys {keys.dtype}{keys.shape} and values {values.dtype}{values.shape} for {x.dtype}"
        )
    given = node.attributes.get("default_tensor")
    if isinstance(given, ConstantRecipe):
        default = array_of(given.raw, given.dtype, given.shape).reshape(())
    else:
        kind, other = ("int64", -1) if values.dtype == np.int64 else ("float", -0.0)
        default = np.array(node.attributes.get(f"default_{kind}", other), values.dtype)
    column = builder.helper(node, "Unsqueeze", x, LAST)
    same = builder.helper(node, "Equal", column, keys)
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        same = builder.helper(
            node, "Or", same, builder.helper(node, "And", builder.helper(node, "IsNaN", column), np.isnan(keys))
        )
    same = builder.helper(node, "Cast", same, to=INT32)
    found = builder.helper(node, "Cast", builder.helper(node, "ReduceMax", same, LAST, keepdims=0), to=BOOL)
    value = builder.helper(node, "Gather", values, builder.helper(node, "ArgMax", same, axis=-1, keepdims=0))
    _keep(builder, node, builder.helper(node, "Where", found, value, default))


# ---- scores


def _transformed(builder: Builder, node: NodeRecipe, scores: Value) -> Value:
    """[rows, classes] after `post_transform`."""
    kind = _text(node, "post_transform", "NONE")
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return builder.helper(node, "Sigmoid", scores)
    if kind == "SOFTMAX":
        return builder.helper(node, "Softmax", scores, axis=-1)
    raise _refuse(builder, node, f"post_transform {kind}")


def _labels(builder: Builder, node: NodeRecipe, name: str) -> Array:
    if any(attribute.startswith("classlabels_s") and value for attribute, value in node.attributes.items()):
        raise _refuse(builder, node, "labels that are strings")
    return _numbers(node, name, np.int64)


def _best_label(builder: Builder, node: NodeRecipe, scores: Value, labels: Array) -> Value:
    best = builder.helper(node, "ArgMax", scores, axis=1, keepdims=0)
    return builder.helper(node, "Gather", labels, best)


def _linear(builder: Builder, node: NodeRecipe, targets: int) -> Value:
    weights = _numbers(node, "coefficients")
    if not targets or weights.size % targets:
        raise graph_error("node", node.name, f"{weights.size} coefficients for {targets} rows")
    intercepts = _numbers(node, "intercepts")
    made = builder.helper(node, "MatMul", _rows(builder, node), weights.reshape(targets, -1).T.copy())
    return builder.helper(node, "Add", made, intercepts) if intercepts.size else made


def _linear_regressor(builder: Builder, node: NodeRecipe) -> None:
    _keep(builder, node, _transformed(builder, node, _linear(builder, node, _integer(node, "targets", 1))))


def _linear_classifier(builder: Builder, node: NodeRecipe) -> None:
    labels = _labels(builder, node, "classlabels_ints")
    count = max(len(_numbers(node, "intercepts")), 1)
    if count != len(labels):
        raise _refuse(builder, node, f"{count} rows of coefficients for {len(labels)} labels")
    scores = _linear(builder, node, count)
    _keep(builder, node, _best_label(builder, node, scores, labels), _transformed(builder, node, scores))


def _zip_map(builder: Builder, node: NodeRecipe) -> None:
    raise _refuse(builder, node, "dictionaries; skl2onnx leaves arrays with the option zipmap=False")


# ---- support vectors


def _kernels(builder: Builder, node: NodeRecipe, x: Value, vectors: Array) -> Value:
    """[rows, vectors]."""
    kind = _text(node, "kernel_type", "LINEAR")
    gamma, shift, degree = (np.array(number, np.float32) for number in [*_numbers(node, "kernel_params"), 0, 0, 0][:3])
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


def _svm_regressor(builder: Builder, node: NodeRecipe) -> None:
    x, weights, rho = _rows(builder, node), _numbers(node, "coefficients"), _numbers(node, "rho")
    count = _integer(node, "n_supports")
    kernels = _kernels(builder, node, x, _numbers(node, "support_vectors").reshape(count, -1)) if count else x
    found = builder.helper(node, "Add", builder.helper(node, "MatMul", kernels, weights.reshape(-1, 1)), rho[:1])
    if _integer(node, "one_class"):
        inside = builder.helper(node, "Greater", found, np.array(0, np.float32))
        found = builder.helper(node, "Where", inside, np.array(1, np.float32), np.array(-1, np.float32))
    _keep(builder, node, _transformed(builder, node, found))


def _svm_classifier(builder: Builder, node: NodeRecipe) -> None:
    """Every two classes have a score, whose sign is a vote; the first class with the most votes is the label."""
    labels, sizes = _labels(builder, node, "classlabels_ints"), _numbers(node, "vectors_per_class", np.int64)
    if not sizes.size:
        raise _refuse(builder, node, "without support vectors")
    if _numbers(node, "prob_a").size:
        raise _refuse(builder, node, "probabilities (prob_a)")
    count = len(sizes)
    vectors = _numbers(node, "support_vectors").reshape(int(sizes.sum()), -1)
    given = _numbers(node, "coefficients").reshape(count - 1, -1)
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    weights, votes = np.zeros((len(vectors), len(pairs)), np.float32), np.zeros((2, len(pairs), count), np.float32)
    ends = np.cumsum(sizes)
    for k, (i, j) in enumerate(pairs):
        for one, row in ((i, j - 1), (j, i)):
            own = slice(ends[one] - sizes[one], ends[one])
            weights[own, k] = given[row, own]
        votes[0, k, i] = votes[1, k, j] = 1
    kernels = _kernels(builder, node, _rows(builder, node), vectors)
    scores = builder.helper(node, "Add", builder.helper(node, "MatMul", kernels, weights), _numbers(node, "rho"))
    wins = builder.helper(node, "Cast", builder.helper(node, "Greater", scores, np.array(0, np.float32)), to=FLOAT)
    if count == 2:  # the score is for the first one, and given for the second
        if _text(node, "post_transform", "NONE") != "NONE" or (given >= 0).all():
            raise _refuse(builder, node, "two classes with a post_transform, or coefficients that are all positive")
        label = builder.helper(node, "Gather", labels[::-1].copy(), builder.helper(node, "Cast", wins, to=INT64))
        both = builder.helper(node, "Concat", builder.helper(node, "Neg", scores), scores, axis=1)
        _keep(builder, node, builder.helper(node, "Reshape", label, LAST), both)
        return
    totals = builder.helper(node, "Add", builder.helper(node, "MatMul", wins, votes[0] - votes[1]), votes[1].sum(0))
    _keep(builder, node, _best_label(builder, node, totals, labels), _transformed(builder, node, scores))


# ---- trees


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
    x = _rows(builder, node)
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
        raise _refuse(builder, node, f"branches of several kinds: {', '.join(sorted(forest.modes))}")
    for mode in forest.modes:
        if mode not in comparisons:
            raise _refuse(builder, node, f"branches of the kind {mode}")
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
    kind = _text(node, "aggregate_function", "SUM")
    reductions = {"SUM": "ReduceSum", "AVERAGE": "ReduceSum", "MIN": "ReduceMin", "MAX": "ReduceMax"}
    if kind not in reductions:
        raise graph_error("node", node.name, f"attribute 'aggregate_function': given {kind!r}")
    each = builder.helper(node, "Gather", weights, _leaves(builder, node, forest))
    total = builder.helper(node, reductions[kind], each, np.array([1]), keepdims=0)
    if kind == "AVERAGE":
        total = builder.helper(node, "Div", total, np.array(len(forest.roots), np.float32))
    base = _numbers(node, "base_values")
    return builder.helper(node, "Add", total, base) if base.size else total


def _tree_regressor(builder: Builder, node: NodeRecipe) -> None:
    total = _totals(builder, node, "target", _integer(node, "n_targets", 1))
    _keep(builder, node, _transformed(builder, node, total))


def _tree_classifier(builder: Builder, node: NodeRecipe) -> None:
    """Where the leaves speak of the first class of two alone, that is the second one's score, and the first has what is left."""
    labels = _labels(builder, node, "classlabels_int64s")
    total = _totals(builder, node, "class", len(labels))
    spoken = np.unique(_numbers(node, "class_ids", np.int64))
    if len(labels) == 2 and spoken.tolist() == [1]:
        raise _refuse(builder, node, "two classes, of which the leaves speak of the second alone")
    if len(labels) != 2 or len(spoken) != 1:
        _keep(builder, node, _best_label(builder, node, total, labels), _transformed(builder, node, total))
        return
    kind = _text(node, "post_transform", "NONE")
    positive = bool((_numbers(node, "class_weights") >= 0).all())
    if kind == "SOFTMAX" or (kind == "NONE" and not positive):
        raise _refuse(builder, node, f"one class of two with post_transform {kind}")
    score = builder.helper(node, "Gather", total, spoken, axis=1)
    limit = np.array(0.5 if positive else 0, np.float32)
    label = builder.helper(node, "Where", builder.helper(node, "Greater", score, limit), labels[1:], labels[:1])
    score = _transformed(builder, node, score)
    rest = builder.helper(node, "Sub", np.array(1, np.float32), score)
    both = builder.helper(node, "Concat", rest, score, axis=1)
    _keep(builder, node, builder.helper(node, "Reshape", label, LAST), both)


ML_NODES: dict[str, Callable[[Builder, NodeRecipe], None]] = {
    f"ai.onnx.ml::{name}": add
    for name, add in {
        "ArrayFeatureExtractor": _array_feature_extractor,
        "Binarizer": _binarizer,
        "FeatureVectorizer": _feature_vectorizer,
        "Imputer": _imputer,
        "LabelEncoder": _label_encoder,
        "LinearClassifier": _linear_classifier,
        "LinearRegressor": _linear_regressor,
        "Normalizer": _normalizer,
        "SVMClassifier": _svm_classifier,
        "SVMRegressor": _svm_regressor,
        "Scaler": _scaler,
        "TreeEnsembleClassifier": _tree_classifier,
        "TreeEnsembleRegressor": _tree_regressor,
        "ZipMap": _zip_map,
    }.items()
}
