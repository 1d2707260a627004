"""Translate operators of the ai.onnx.ml domain to engine nodes. Sums are accumulated in float32, as elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.element_types import Array, array_from_bytes
from ...base.errors import graph_error
from ..build.builder import GraphBuilder
from ..file.graph_recipe import ConstantRecipe, NodeRecipe, get_number_attr
from .ml_trees import parse_ensemble_attributes, parse_ensemble_tensors

if TYPE_CHECKING:
    from ..._pumice import Value
    from .ml_trees import TreeEnsembleArrays

FLOAT, INT64 = 1, 7  # TensorProto.DataType
_LAST, _AXIS_1 = np.array([-1]), np.array([1])
_MIN_NORM = np.array(1e-30, np.float32)  # lower bound of the norm, to avoid a division by zero


def get_numeric_attribute(node: NodeRecipe, name: str, dtype: str = "float32") -> Array:
    """Return the list attribute `name`, or the tensor attribute "<name>_as_tensor", as a vector; empty if absent.

    Raise GraphError if it is not numeric.
    """
    attribute_value = node.attributes.get(name, node.attributes.get(f"{name}_as_tensor", []))
    if isinstance(attribute_value, ConstantRecipe):
        return array_from_bytes(attribute_value.raw, attribute_value.dtype, attribute_value.shape).reshape(-1)
    if not isinstance(attribute_value, list) or not all(
        isinstance(element, int | float) for element in attribute_value
    ):
        raise graph_error("node", node.name, f"attribute '{name}': expected numbers, given {attribute_value!r}")
    return np.array(attribute_value, dtype)


def get_single_input(builder: GraphBuilder, node: NodeRecipe) -> Value:
    """Return the only input of a node. Raise GraphError if the node has no input or several."""
    return builder.require_tensors(node, 1, 1)[0]


def cast_to_float(builder: GraphBuilder, node: NodeRecipe, value: Value) -> Value:
    """Cast integers to float32 and return floats unchanged. Raise NodeRejectedError for float64."""
    if value.dtype == "float64":
        raise builder.reject(node, "float64")
    return value if "float" in value.dtype else builder.add_helper(node, "Cast", value, to=FLOAT)


def _translate_array_feature_extractor(builder: GraphBuilder, node: NodeRecipe) -> None:
    x, indices = builder.require_tensors(node, 2, 2)
    if x.shape is None:
        raise builder.reject(node, "an input of unknown rank")
    if len(x.shape) == 1:
        x = builder.add_helper(node, "Unsqueeze", x, np.array([0]))
    flat = builder.add_helper(node, "Reshape", indices, _LAST)
    builder.set_node_outputs(node, builder.add_helper(node, "Gather", x, flat, axis=-1))


def _translate_binarizer(builder: GraphBuilder, node: NodeRecipe) -> None:
    x = get_single_input(builder, node)
    limit = builder.add_helper(node, "CastLike", np.array(get_number_attr(node, "threshold", 0.0), np.float32), x)
    builder.set_node_outputs(
        node, builder.add_helper(node, "CastLike", builder.add_helper(node, "Greater", x, limit), x)
    )


def _translate_scaler(builder: GraphBuilder, node: NodeRecipe) -> None:
    y = cast_to_float(builder, node, get_single_input(builder, node))
    for name, op in (("offset", "Sub"), ("scale", "Mul")):
        if (coefficients_attribute := get_numeric_attribute(node, name)).size:
            y = builder.add_helper(node, op, y, builder.add_helper(node, "CastLike", coefficients_attribute, y))
    builder.set_node_outputs(node, y)


def _translate_normalizer(builder: GraphBuilder, node: NodeRecipe) -> None:
    reductions = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}
    norm = node.attributes.get("norm", "MAX")
    if norm not in reductions:
        raise graph_error(
            "node", node.name, f"attribute 'norm': expected one of {', '.join(reductions)}, given {norm!r}"
        )
    x = cast_to_float(builder, node, get_single_input(builder, node))
    magnitude = builder.add_helper(node, "Abs", x) if norm == "MAX" else x
    size = builder.add_helper(node, reductions[str(norm)], magnitude, _LAST, keepdims=1)
    min_norm = builder.add_helper(node, "CastLike", _MIN_NORM, size)
    builder.set_node_outputs(node, builder.add_helper(node, "Div", x, builder.add_helper(node, "Max", size, min_norm)))


def _translate_imputer(builder: GraphBuilder, node: NodeRecipe) -> None:
    x = get_single_input(builder, node)
    kind, dtype = ("floats", "float32") if "float" in x.dtype else ("int64s", "int64")
    values = get_numeric_attribute(node, f"imputed_value_{kind}", dtype)
    replaced_value = get_number_attr(node, f"replaced_value_{kind[:-1]}", 0)
    if not values.size:
        raise graph_error(
            "node", node.name, f"attribute 'imputed_value_{kind}': expected numbers for an input of {x.dtype}"
        )
    if isinstance(replaced_value, float) and np.isnan(replaced_value):
        is_replaced = builder.add_helper(node, "IsNaN", x)
    else:
        is_replaced = builder.add_helper(
            node, "Equal", x, builder.add_helper(node, "CastLike", np.array(replaced_value, dtype), x)
        )
    builder.set_node_outputs(
        node, builder.add_helper(node, "Where", is_replaced, builder.add_helper(node, "CastLike", values, x), x)
    )


def _translate_one_hot_encoder(builder: GraphBuilder, node: NodeRecipe) -> None:
    categories = get_numeric_attribute(node, "cats_int64s", "int64")
    if not categories.size:
        raise graph_error("node", node.name, "expected 'cats_int64s', given none")
    x = get_single_input(builder, node)
    unsqueezed = builder.add_helper(node, "Unsqueeze", x, _LAST)
    is_equal = builder.add_helper(node, "Equal", unsqueezed, builder.add_helper(node, "CastLike", categories, x))
    builder.set_node_outputs(node, builder.add_helper(node, "Cast", is_equal, to=FLOAT))


def _translate_feature_vectorizer(builder: GraphBuilder, node: NodeRecipe) -> None:
    widths = get_numeric_attribute(node, "inputdimensions", "int64")
    features = []
    feature_inputs = builder.require_tensors(node, 1, len(widths))
    for name, value, width in zip(node.inputs, feature_inputs, widths.tolist(), strict=False):
        x = cast_to_float(builder, node, value)
        if x.shape is None or len(x.shape) not in (1, 2) or (len(x.shape) == 2 and x.shape[1] != width):
            raise builder.reject(node, f"'{name}' of a width other than {width}, or of unknown width")
        features.append(builder.add_helper(node, "Unsqueeze", x, _AXIS_1) if len(x.shape) == 1 else x)
    if len(features) != len(node.inputs):
        raise graph_error("node", node.name, f"expected 'inputdimensions' of {len(node.inputs)} inputs, given {widths}")
    builder.set_node_outputs(node, builder.add_helper(node, "Concat", *features, axis=1))


def _translate_label_encoder(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Translate LabelEncoder and CategoryMapper: replace each element that equals a key by that key's value."""
    role_values = {}
    for role in ("keys", "values"):
        for kind, dtype in (("int64s", "int64"), ("floats", "float32"), ("tensor", "")):
            if f"{role}_{kind}" in node.attributes:
                role_values[role] = get_numeric_attribute(node, f"{role}_{kind}", dtype)
    keys, values = role_values.get("keys"), role_values.get("values")
    if keys is None or values is None or keys.shape != values.shape or not keys.size:
        raise graph_error("node", node.name, "expected as many keys as values of numbers")
    default = node.attributes.get("default_tensor")
    if isinstance(default, ConstantRecipe):
        missing = array_from_bytes(default.raw, default.dtype, default.shape).reshape(1)
    else:
        name, otherwise = ("default_int64", -1) if values.dtype == np.int64 else ("default_float", -0.0)
        missing = np.array([get_number_attr(node, name, otherwise)], values.dtype)
    x = get_single_input(builder, node)
    unsqueezed = builder.add_helper(node, "Unsqueeze", x, _LAST)
    is_equal = builder.add_helper(node, "Equal", unsqueezed, builder.add_helper(node, "CastLike", keys, x))
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        nan = builder.add_helper(node, "And", builder.add_helper(node, "IsNaN", unsqueezed), np.isnan(keys))
        is_equal = builder.add_helper(node, "Or", is_equal, nan)
    # The last column is always true and selects the default value: ArgMax returns the first true column.
    always_true = builder.add_helper(node, "Expand", np.array([True]), builder.add_helper(node, "Shape", unsqueezed))
    key_index = builder.add_helper(
        node,
        "ArgMax",
        builder.add_helper(node, "Cast", builder.add_helper(node, "Concat", is_equal, always_true, axis=-1), to=6),
        axis=-1,
        keepdims=0,
    )
    builder.set_node_outputs(node, builder.add_helper(node, "Gather", np.concatenate([values, missing]), key_index))


# ---- linear models and their scores


def apply_post_transform(builder: GraphBuilder, node: NodeRecipe, scores: Value) -> Value:
    """Return the scores after the node's post_transform. Raise NodeRejectedError if that is unsupported."""
    transform = node.attributes.get("post_transform", "NONE")
    if transform == "NONE":
        return scores
    if transform == "LOGISTIC":
        return builder.add_helper(node, "Sigmoid", scores)
    if transform == "SOFTMAX":
        return builder.add_helper(node, "Softmax", scores, axis=-1)
    raise builder.reject(node, f"post_transform = '{transform}'; supported: NONE, LOGISTIC, SOFTMAX")


def _compute_linear_scores(builder: GraphBuilder, node: NodeRecipe, rows: int) -> Value:
    x = cast_to_float(builder, node, get_single_input(builder, node))
    coefficients, intercepts = get_numeric_attribute(node, "coefficients"), get_numeric_attribute(node, "intercepts")
    if rows < 1 or not coefficients.size or coefficients.size % rows or intercepts.size not in (0, 1, rows):
        sizes_text = f"{coefficients.size} coefficients and {intercepts.size} intercepts"
        raise graph_error(
            "node", node.name, f"expected as many coefficients for each of {rows} results, given {sizes_text}"
        )
    weights = np.ascontiguousarray(coefficients.reshape(rows, -1).T)
    scores = builder.add_helper(node, "MatMul", x, builder.add_helper(node, "CastLike", weights, x))
    if intercepts.size:
        scores = builder.add_helper(node, "Add", scores, builder.add_helper(node, "CastLike", intercepts, x))
    return scores


def _translate_linear_regressor(builder: GraphBuilder, node: NodeRecipe) -> None:
    targets = node.attributes.get("targets", 1)
    scores = _compute_linear_scores(builder, node, targets if isinstance(targets, int) else 0)
    builder.set_node_outputs(node, apply_post_transform(builder, node, scores))


def get_class_labels(builder: GraphBuilder, node: NodeRecipe, name: str) -> Array:
    """Return the integer labels of the classes. Raise NodeRejectedError if there are fewer than two."""
    labels = get_numeric_attribute(node, name, "int64")
    if labels.size < 2:
        raise builder.reject(node, f"{labels.size} class labels")
    return labels


def select_best_label(builder: GraphBuilder, node: NodeRecipe, scores: Value, labels: Array) -> Value:
    """Return the label of each row's highest score."""
    key_index = builder.add_helper(node, "ArgMax", scores, axis=1, keepdims=0)
    return builder.add_helper(node, "Gather", labels, key_index)


def _set_classifier_outputs(builder: GraphBuilder, node: NodeRecipe, scores: Value, labels: Array) -> None:
    """Set the node's outputs: the label of the highest score, and all scores after post_transform."""
    scores = apply_post_transform(builder, node, scores)
    builder.set_node_outputs(node, select_best_label(builder, node, scores, labels), scores)


def _translate_linear_classifier(builder: GraphBuilder, node: NodeRecipe) -> None:
    labels = get_class_labels(builder, node, "classlabels_ints")
    intercepts = get_numeric_attribute(node, "intercepts")
    has_one_row = labels.size == 2 and intercepts.size == 1
    scores = _compute_linear_scores(builder, node, 1 if has_one_row else labels.size)
    if has_one_row:
        scores = builder.add_helper(node, "Concat", builder.add_helper(node, "Neg", scores), scores, axis=1)
    _set_classifier_outputs(builder, node, scores, labels)


# ---- tree ensembles


def _get_tree_dtype(builder: GraphBuilder, node: NodeRecipe) -> str:
    """Return the dtype of thresholds and weights: float64 for float64 features."""
    return "float64" if get_single_input(builder, node).dtype == "float64" else "float32"


def _add_tree_ensemble(
    builder: GraphBuilder, node: NodeRecipe, ensemble: TreeEnsembleArrays, targets: int, **attributes: Any
) -> Value:
    x = get_single_input(builder, node)
    op = "pumice::TreeEnsemble64" if x.dtype == "float64" else "pumice::TreeEnsemble"
    x = x if x.dtype == "float64" else cast_to_float(builder, node, x)
    arrays = (ensemble.nodes, ensemble.entries, ensemble.roots)
    return builder.add_helper(node, op, x, *arrays, depth=ensemble.depth, targets=targets, **attributes)


def _cast_float64_to_float32(builder: GraphBuilder, node: NodeRecipe, scores: Value) -> Value:
    """Cast float64 scores to float32, the output type in opsets 1 to 3 of ai.onnx.ml."""
    return builder.add_helper(node, "Cast", scores, to=FLOAT) if scores.dtype == "float64" else scores


def _add_base_values(builder: GraphBuilder, node: NodeRecipe, scores: Value) -> Value:
    base = get_numeric_attribute(node, "base_values")
    return (
        builder.add_helper(node, "Add", scores, builder.add_helper(node, "CastLike", base, scores))
        if base.size
        else scores
    )


def _translate_tree_ensemble_regressor(builder: GraphBuilder, node: NodeRecipe) -> None:
    targets = node.attributes.get("n_targets", 1)
    ensemble = parse_ensemble_attributes(node, "target", _get_tree_dtype(builder, node))
    aggregation = node.attributes.get("aggregate_function", "SUM")
    scores = _add_tree_ensemble(
        builder, node, ensemble, targets if isinstance(targets, int) else 0, aggregate_function=aggregation
    )
    scores = _cast_float64_to_float32(builder, node, _add_base_values(builder, node, scores))
    builder.set_node_outputs(node, apply_post_transform(builder, node, scores))


def _translate_tree_ensemble_classifier(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Translate TreeEnsembleClassifier. If only one of two classes has weights, they are the scores of the second class."""
    labels = get_class_labels(builder, node, "classlabels_int64s")
    ensemble = parse_ensemble_attributes(node, "class", _get_tree_dtype(builder, node))
    binary = labels.size == 2 and len(np.unique(ensemble.entries[:, 0])) == 1
    if binary:
        ensemble.entries[:, 0] = 0
    scores = _add_tree_ensemble(builder, node, ensemble, 1 if binary else labels.size)
    scores = _cast_float64_to_float32(builder, node, _add_base_values(builder, node, scores))
    if binary:
        first_scores = builder.add_helper(node, "Neg", scores)
        if node.attributes.get("post_transform", "NONE") == "NONE":
            float_one = builder.add_helper(node, "CastLike", np.array(1, np.float32), scores)
            first_scores = builder.add_helper(node, "Add", float_one, first_scores)
        scores = builder.add_helper(node, "Concat", first_scores, scores, axis=1)
    _set_classifier_outputs(builder, node, scores, labels)


_AGGREGATIONS = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def _translate_tree_ensemble(builder: GraphBuilder, node: NodeRecipe) -> None:
    chosen_names = {}
    for name, choices, fallback in (("aggregate_function", _AGGREGATIONS, 1), ("post_transform", _TRANSFORMS, 0)):
        index = node.attributes.get(name, fallback)
        if not isinstance(index, int) or not 0 <= index < len(choices):
            raise graph_error(
                "node", node.name, f"attribute '{name}': expected 0 to {len(choices) - 1}, given {index!r}"
            )
        chosen_names[name] = choices[index]
    targets = node.attributes.get("n_targets", 1)
    ensemble = parse_ensemble_tensors(node, _get_tree_dtype(builder, node))
    aggregation = chosen_names["aggregate_function"]
    scores = _add_tree_ensemble(
        builder, node, ensemble, targets if isinstance(targets, int) else 0, aggregate_function=aggregation
    )
    transform = node._replace(attributes={"post_transform": chosen_names["post_transform"]})
    builder.set_node_outputs(node, apply_post_transform(builder, transform, scores))


def _make_rejecting_translator(reason: str) -> Callable[[GraphBuilder, NodeRecipe], None]:
    def reject_node(builder: GraphBuilder, node: NodeRecipe) -> None:
        raise builder.reject(node, reason)

    return reject_node


REJECTED_OPERATORS = ("ai.onnx.ml::ZipMap",)  # operators that are rejected with a hint in the message
ML_NODES: dict[str, Callable[[GraphBuilder, NodeRecipe], None]] = {
    f"ai.onnx.ml::{name}": translate
    for name, translate in (
        ("ArrayFeatureExtractor", _translate_array_feature_extractor),
        ("Binarizer", _translate_binarizer),
        ("CategoryMapper", _translate_label_encoder),
        ("FeatureVectorizer", _translate_feature_vectorizer),
        ("Imputer", _translate_imputer),
        ("LabelEncoder", _translate_label_encoder),
        ("LinearClassifier", _translate_linear_classifier),
        ("LinearRegressor", _translate_linear_regressor),
        ("Normalizer", _translate_normalizer),
        ("OneHotEncoder", _translate_one_hot_encoder),
        ("Scaler", _translate_scaler),
        ("TreeEnsemble", _translate_tree_ensemble),
        ("TreeEnsembleClassifier", _translate_tree_ensemble_classifier),
        ("TreeEnsembleRegressor", _translate_tree_ensemble_regressor),
        (
            "ZipMap",
            _make_rejecting_translator(
                "dictionaries in a sequence; exported with zipmap=False the scores are a tensor"
            ),
        ),
    )
}
