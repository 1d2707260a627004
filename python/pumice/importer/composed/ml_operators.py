"""Translate operators of the ai.onnx.ml domain to engine nodes. Sums are float32, as for all other operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.element_types import Array, array_of
from ...base.errors import graph_error
from ..build.builder import Builder
from ..file.recipe import ConstantRecipe, NodeRecipe, number
from .ml_trees import ensemble_of_attributes, ensemble_of_tensors

if TYPE_CHECKING:
    from ..._pumice import Value
    from .ml_trees import Ensemble

FLOAT, INT64 = 1, 7  # TensorProto.DataType
_LAST, _ROWS = np.array([-1]), np.array([1])
_LEAST = np.array(1e-30, np.float32)  # lower bound of the norm, to avoid division by zero


def numbers(node: NodeRecipe, name: str, dtype: str = "float32") -> Array:
    """Return a numeric attribute, or its tensor "<name>_as_tensor", as a vector; empty if absent.

    Raise GraphError if it is anything else.
    """
    given = node.attributes.get(name, node.attributes.get(f"{name}_as_tensor", []))
    if isinstance(given, ConstantRecipe):
        return array_of(given.raw, given.dtype, given.shape).reshape(-1)
    if not isinstance(given, list) or not all(isinstance(one, int | float) for one in given):
        raise graph_error("node", node.name, f"attribute '{name}': expected numbers, given {given!r}")
    return np.array(given, dtype)


def only(builder: Builder, node: NodeRecipe) -> Value:
    """Return the single input of a node. Raise GraphError if it has another number of inputs."""
    return builder.operands(node, 1, 1)[0]


def real(builder: Builder, node: NodeRecipe, value: Value) -> Value:
    """Convert the value to a float type in which the engine computes. Raise Refused for float64."""
    if value.dtype == "float64":
        raise builder.refuse(node, "float64")
    return value if "float" in value.dtype else builder.helper(node, "Cast", value, to=FLOAT)


def _array_feature_extractor(builder: Builder, node: NodeRecipe) -> None:
    x, indices = builder.operands(node, 2, 2)
    if x.shape is None:
        raise builder.refuse(node, "an input of unknown rank")
    if len(x.shape) == 1:
        x = builder.helper(node, "Unsqueeze", x, np.array([0]))
    flat = builder.helper(node, "Reshape", indices, _LAST)
    builder.keep_results(node, builder.helper(node, "Gather", x, flat, axis=-1))


def _binarizer(builder: Builder, node: NodeRecipe) -> None:
    x = only(builder, node)
    limit = builder.helper(node, "CastLike", np.array(number(node, "threshold", 0.0), np.float32), x)
    builder.keep_results(node, builder.helper(node, "CastLike", builder.helper(node, "Greater", x, limit), x))


def _scaler(builder: Builder, node: NodeRecipe) -> None:
    y = real(builder, node, only(builder, node))
    for name, op in (("offset", "Sub"), ("scale", "Mul")):
        if (given := numbers(node, name)).size:
            y = builder.helper(node, op, y, builder.helper(node, "CastLike", given, y))
    builder.keep_results(node, y)


def _normalizer(builder: Builder, node: NodeRecipe) -> None:
    reductions = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}
    norm = node.attributes.get("norm", "MAX")
    if norm not in reductions:
        raise graph_error(
            "node", node.name, f"attribute 'norm': expected one of {', '.join(reductions)}, given {norm!r}"
        )
    x = real(builder, node, only(builder, node))
    magnitude = builder.helper(node, "Abs", x) if norm == "MAX" else x
    size = builder.helper(node, reductions[str(norm)], magnitude, _LAST, keepdims=1)
    least = builder.helper(node, "CastLike", _LEAST, size)
    builder.keep_results(node, builder.helper(node, "Div", x, builder.helper(node, "Max", size, least)))


def _imputer(builder: Builder, node: NodeRecipe) -> None:
    x = only(builder, node)
    kind, dtype = ("floats", "float32") if "float" in x.dtype else ("int64s", "int64")
    values = numbers(node, f"imputed_value_{kind}", dtype)
    replaced = number(node, f"replaced_value_{kind[:-1]}", 0)
    if not values.size:
        raise graph_error(
            "node", node.name, f"attribute 'imputed_value_{kind}': expected numbers for an input of {x.dtype}"
        )
    if isinstance(replaced, float) and np.isnan(replaced):
        found = builder.helper(node, "IsNaN", x)
    else:
        found = builder.helper(node, "Equal", x, builder.helper(node, "CastLike", np.array(replaced, dtype), x))
    builder.keep_results(node, builder.helper(node, "Where", found, builder.helper(node, "CastLike", values, x), x))


def _one_hot_encoder(builder: Builder, node: NodeRecipe) -> None:
    categories = numbers(node, "cats_int64s", "int64")
    if not categories.size:
        raise graph_error("node", node.name, "expected 'cats_int64s', given none")
    x = only(builder, node)
    apart = builder.helper(node, "Unsqueeze", x, _LAST)
    same = builder.helper(node, "Equal", apart, builder.helper(node, "CastLike", categories, x))
    builder.keep_results(node, builder.helper(node, "Cast", same, to=FLOAT))


def _feature_vectorizer(builder: Builder, node: NodeRecipe) -> None:
    widths = numbers(node, "inputdimensions", "int64")
    parts = []
    given = builder.operands(node, 1, len(widths))
    for name, value, width in zip(node.inputs, given, widths.tolist(), strict=False):
        x = real(builder, node, value)
        if x.shape is None or len(x.shape) not in (1, 2) or (len(x.shape) == 2 and x.shape[1] != width):
            raise builder.refuse(node, f"'{name}' of another width than {width}, or of one that is not known")
        parts.append(builder.helper(node, "Unsqueeze", x, _ROWS) if len(x.shape) == 1 else x)
    if len(parts) != len(node.inputs):
        raise graph_error("node", node.name, f"expected 'inputdimensions' of {len(node.inputs)} inputs, given {widths}")
    builder.keep_results(node, builder.helper(node, "Concat", *parts, axis=1))


def _label_encoder(builder: Builder, node: NodeRecipe) -> None:
    """Translate LabelEncoder and CategoryMapper: look up each element among the keys and return the matching value."""
    given = {}
    for role in ("keys", "values"):
        for kind, dtype in (("int64s", "int64"), ("floats", "float32"), ("tensor", "")):
            if f"{role}_{kind}" in node.attributes:
                given[role] = numbers(node, f"{role}_{kind}", dtype)
    keys, values = given.get("keys"), given.get("values")
    if keys is None or values is None or keys.shape != values.shape or not keys.size:
        raise graph_error("node", node.name, "expected as many keys as values of numbers")
    default = node.attributes.get("default_tensor")
    if isinstance(default, ConstantRecipe):
        missing = array_of(default.raw, default.dtype, default.shape).reshape(1)
    else:
        name, otherwise = ("default_int64", -1) if values.dtype == np.int64 else ("default_float", -0.0)
        missing = np.array([number(node, name, otherwise)], values.dtype)
    x = only(builder, node)
    apart = builder.helper(node, "Unsqueeze", x, _LAST)
    same = builder.helper(node, "Equal", apart, builder.helper(node, "CastLike", keys, x))
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        nan = builder.helper(node, "And", builder.helper(node, "IsNaN", apart), np.isnan(keys))
        same = builder.helper(node, "Or", same, nan)
    # A last, always true column catches unknown elements: ArgMax returns the first true column.
    none = builder.helper(node, "Expand", np.array([True]), _last_one(builder, node, apart))
    place = builder.helper(
        node,
        "ArgMax",
        builder.helper(node, "Cast", builder.helper(node, "Concat", same, none, axis=-1), to=6),
        axis=-1,
        keepdims=0,
    )
    builder.keep_results(node, builder.helper(node, "Gather", np.concatenate([values, missing]), place))


def _last_one(builder: Builder, node: NodeRecipe, apart: Value) -> Value:
    """Return the shape of `apart`, whose last size is 1."""
    return builder.helper(node, "Shape", apart)


# ---- scores


def transformed(builder: Builder, node: NodeRecipe, scores: Value) -> Value:
    """Apply the node's post_transform to the scores. Raise Refused if it is unsupported."""
    transform = node.attributes.get("post_transform", "NONE")
    if transform == "NONE":
        return scores
    if transform == "LOGISTIC":
        return builder.helper(node, "Sigmoid", scores)
    if transform == "SOFTMAX":
        return builder.helper(node, "Softmax", scores, axis=-1)
    raise builder.refuse(node, f"post_transform = '{transform}'; supported: NONE, LOGISTIC, SOFTMAX")


def _linear(builder: Builder, node: NodeRecipe, rows: int) -> Value:
    x = real(builder, node, only(builder, node))
    coefficients, intercepts = numbers(node, "coefficients"), numbers(node, "intercepts")
    if rows < 1 or not coefficients.size or coefficients.size % rows or intercepts.size not in (0, 1, rows):
        given = f"{coefficients.size} coefficients and {intercepts.size} intercepts"
        raise graph_error("node", node.name, f"expected as many coefficients for each of {rows} results, given {given}")
    weights = np.ascontiguousarray(coefficients.reshape(rows, -1).T)
    scores = builder.helper(node, "MatMul", x, builder.helper(node, "CastLike", weights, x))
    if intercepts.size:
        scores = builder.helper(node, "Add", scores, builder.helper(node, "CastLike", intercepts, x))
    return scores


def _linear_regressor(builder: Builder, node: NodeRecipe) -> None:
    targets = node.attributes.get("targets", 1)
    scores = _linear(builder, node, targets if isinstance(targets, int) else 0)
    builder.keep_results(node, transformed(builder, node, scores))


def class_labels(builder: Builder, node: NodeRecipe, name: str) -> Array:
    """Return the integer labels of the classes. Raise Refused if there are fewer than two."""
    labels = numbers(node, name, "int64")
    if labels.size < 2:
        raise builder.refuse(node, f"{labels.size} class labels")
    return labels


def best(builder: Builder, node: NodeRecipe, scores: Value, labels: Array) -> Value:
    """Return the label of each row's highest score."""
    place = builder.helper(node, "ArgMax", scores, axis=1, keepdims=0)
    return builder.helper(node, "Gather", labels, place)


def _keep_class(builder: Builder, node: NodeRecipe, scores: Value, labels: Array) -> None:
    """Output the label of the highest score, and all scores."""
    scores = transformed(builder, node, scores)
    builder.keep_results(node, best(builder, node, scores, labels), scores)


def _linear_classifier(builder: Builder, node: NodeRecipe) -> None:
    labels = class_labels(builder, node, "classlabels_ints")
    intercepts = numbers(node, "intercepts")
    one_row = labels.size == 2 and intercepts.size == 1
    scores = _linear(builder, node, 1 if one_row else labels.size)
    if one_row:
        scores = builder.helper(node, "Concat", builder.helper(node, "Neg", scores), scores, axis=1)
    _keep_class(builder, node, scores, labels)


# ---- trees


def _tree_dtype(builder: Builder, node: NodeRecipe) -> str:
    """Return the dtype of thresholds and weights: float64 for float64 features."""
    return "float64" if only(builder, node).dtype == "float64" else "float32"


def _trees(builder: Builder, node: NodeRecipe, ensemble: Ensemble, targets: int, **attributes: Any) -> Value:
    x = only(builder, node)
    op = "pumice::TreeEnsemble64" if x.dtype == "float64" else "pumice::TreeEnsemble"
    x = x if x.dtype == "float64" else real(builder, node, x)
    arrays = (ensemble.nodes, ensemble.entries, ensemble.roots)
    return builder.helper(node, op, x, *arrays, depth=ensemble.depth, targets=targets, **attributes)


def _as_float(builder: Builder, node: NodeRecipe, scores: Value) -> Value:
    """Cast the scores for float64 features to float32, the output type in the first three opsets."""
    return builder.helper(node, "Cast", scores, to=FLOAT) if scores.dtype == "float64" else scores


def _with_base(builder: Builder, node: NodeRecipe, scores: Value) -> Value:
    base = numbers(node, "base_values")
    return builder.helper(node, "Add", scores, builder.helper(node, "CastLike", base, scores)) if base.size else scores


def _tree_ensemble_regressor(builder: Builder, node: NodeRecipe) -> None:
    targets = node.attributes.get("n_targets", 1)
    ensemble = ensemble_of_attributes(node, "target", _tree_dtype(builder, node))
    fold = node.attributes.get("aggregate_function", "SUM")
    scores = _trees(builder, node, ensemble, targets if isinstance(targets, int) else 0, aggregate_function=fold)
    scores = _as_float(builder, node, _with_base(builder, node, scores))
    builder.keep_results(node, transformed(builder, node, scores))


def _tree_ensemble_classifier(builder: Builder, node: NodeRecipe) -> None:
    """Translate TreeEnsembleClassifier: if all weights belong to one of two classes, they are the second class's
    scores.
    """
    labels = class_labels(builder, node, "classlabels_int64s")
    ensemble = ensemble_of_attributes(node, "class", _tree_dtype(builder, node))
    binary = labels.size == 2 and len(np.unique(ensemble.entries[:, 0])) == 1
    if binary:
        ensemble.entries[:, 0] = 0
    scores = _trees(builder, node, ensemble, 1 if binary else labels.size)
    scores = _as_float(builder, node, _with_base(builder, node, scores))
    if binary:
        of_first = builder.helper(node, "Neg", scores)
        if node.attributes.get("post_transform", "NONE") == "NONE":
            one = builder.helper(node, "CastLike", np.array(1, np.float32), scores)
            of_first = builder.helper(node, "Add", one, of_first)
        scores = builder.helper(node, "Concat", of_first, scores, axis=1)
    _keep_class(builder, node, scores, labels)


_FOLDS = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def _tree_ensemble(builder: Builder, node: NodeRecipe) -> None:
    chosen = {}
    for name, choices, fallback in (("aggregate_function", _FOLDS, 1), ("post_transform", _TRANSFORMS, 0)):
        index = node.attributes.get(name, fallback)
        if not isinstance(index, int) or not 0 <= index < len(choices):
            raise graph_error(
                "node", node.name, f"attribute '{name}': expected 0 to {len(choices) - 1}, given {index!r}"
            )
        chosen[name] = choices[index]
    targets = node.attributes.get("n_targets", 1)
    ensemble = ensemble_of_tensors(node, _tree_dtype(builder, node))
    fold = chosen["aggregate_function"]
    scores = _trees(builder, node, ensemble, targets if isinstance(targets, int) else 0, aggregate_function=fold)
    transform = node._replace(attributes={"post_transform": chosen["post_transform"]})
    builder.keep_results(node, transformed(builder, transform, scores))


def _refused(why: str) -> Callable[[Builder, NodeRecipe], None]:
    def add(builder: Builder, node: NodeRecipe) -> None:
        raise builder.refuse(node, why)

    return add


REFUSED = ("ai.onnx.ml::ZipMap",)  # operators rejected with advice
ML_NODES: dict[str, Callable[[Builder, NodeRecipe], None]] = {
    f"ai.onnx.ml::{name}": add
    for name, add in (
        ("ArrayFeatureExtractor", _array_feature_extractor),
        ("Binarizer", _binarizer),
        ("CategoryMapper", _label_encoder),
        ("FeatureVectorizer", _feature_vectorizer),
        ("Imputer", _imputer),
        ("LabelEncoder", _label_encoder),
        ("LinearClassifier", _linear_classifier),
        ("LinearRegressor", _linear_regressor),
        ("Normalizer", _normalizer),
        ("OneHotEncoder", _one_hot_encoder),
        ("Scaler", _scaler),
        ("TreeEnsemble", _tree_ensemble),
        ("TreeEnsembleClassifier", _tree_ensemble_classifier),
        ("TreeEnsembleRegressor", _tree_ensemble_regressor),
        ("ZipMap", _refused("dictionaries in a sequence; exported with zipmap=False the scores are a tensor")),
    )
}
