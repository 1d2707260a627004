"""Error-bound rules for ai.onnx.ml: linear models, scalers and trees."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, helper

from ...base.element_types import Array
from .alternative_values import EnumeratedAlternatives, RankAlternatives
from .bounded_tensor import BoundedTensor, OperatorCall, UndecidedError, UnprovedError, round_to_storage, rule
from .comparisons_and_casts import find_argmax
from .float_types import ProgramTypes
from .gemm_conv import evaluate_bilinear, sum_axes
from .math_functions import apply_function
from .program_values import run_onnx_reference
from .reductions import compute_softmax

DOMAIN = "ai.onnx.ml"


def _convert_to_floats(x: BoundedTensor) -> BoundedTensor:
    if not x.is_exact and not x.is_float:
        raise UndecidedError("integers that rounding may change")
    return x if x.is_float else BoundedTensor(x.value.astype(np.float64), None, np.float32)


def _round_intermediate(call: OperatorCall, x: BoundedTensor) -> BoundedTensor:
    """Return an intermediate rounded to storage, because these operators run as several kernels."""
    return round_to_storage(_with_float32_dtype(BoundedTensor(x.value, x.error, x.dtype)), call.types)


def _read_float_attribute(call: OperatorCall, name: str, default: Any = None) -> Array | None:
    values = call.attribute(name, default)
    return None if values is None else np.asarray(values, np.float64)


def _with_float32_dtype(x: BoundedTensor) -> BoundedTensor:
    return BoundedTensor(x.value, x.error, np.float32, x.stored and x.dtype == np.float32)


@rule("Scaler", domain=DOMAIN)
def _evaluate_scaler(call: OperatorCall) -> list[Any]:
    x, m = _convert_to_floats(call.input(0)), call.make_arithmetic(np.float32)
    shifted = _round_intermediate(call, m.sub(x, _round_constant(call, _read_float_attribute(call, "offset", [0.0]))))
    result = m.mul(shifted, _round_constant(call, _read_float_attribute(call, "scale", [1.0])))
    return [_with_float32_dtype(result)]


def _round_constant(call: OperatorCall, values: Array | None) -> BoundedTensor:
    """Return a constant whose bound covers rounding it to storage and leaving it exact."""
    assert values is not None
    rounded = call.types.get_storage_type(np.float32).round(values)
    return BoundedTensor(values, np.abs(rounded - values), np.float32)


@rule("Imputer", domain=DOMAIN)
def _evaluate_imputer(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    is_float = x.is_float
    new = np.asarray(call.attribute("imputed_value_floats" if is_float else "imputed_value_int64s"))
    old = call.attribute("replaced_value_float" if is_float else "replaced_value_int64", 0)
    is_replaced = np.isnan(x.value) if is_float and np.isnan(old) else x.value == old
    if (
        not x.is_exact
        and (np.abs(x.value - old) <= call.types.to_max_deviation(x.get_errors()))[
            ~is_replaced & (x.get_errors() > 0)
        ].any()
    ):
        raise UndecidedError("Imputer of numbers that may be the replaced value")
    rounded = np.broadcast_to(new.astype(x.value.dtype), x.shape)
    value = np.where(is_replaced, rounded, x.value)
    if not is_float:
        return [BoundedTensor(value, x.error, x.dtype)]
    moved = np.abs(call.types.get_storage_type(x.dtype).round(rounded) - rounded)
    return [BoundedTensor(value, np.where(is_replaced, moved, x.get_errors()), x.dtype, x.stored)]


@rule("Normalizer", domain=DOMAIN)
def _evaluate_normalizer(call: OperatorCall) -> list[Any]:
    x, m = _convert_to_floats(call.input(0)), call.make_arithmetic(np.float32)
    norm = str(call.attribute("norm", "MAX"))
    axes = (x.ndim - 1,)
    if norm == "MAX":
        largest = np.max(x.value, axis=-1, keepdims=True)
        size = BoundedTensor(largest, np.max(x.get_errors(), axis=-1, keepdims=True), np.float32)
    else:
        size = _round_intermediate(
            call, sum_axes(m.abs(x) if norm == "L1" else _round_intermediate(call, m.mul(x, x)), axes, call.types)
        )
        size = size if norm == "L1" else _round_intermediate(call, apply_function("sqrt", size, m))
    if (np.abs(size.value) <= size.get_errors()).any():
        raise UnprovedError("Normalizer of a row of length 0")
    return [_with_float32_dtype(m.div(x, size))]


@rule("Binarizer", domain=DOMAIN)
def _evaluate_binarizer(call: OperatorCall) -> list[Any]:
    x, threshold = call.input(0), float(call.attribute("threshold", 0.0))
    near = (np.abs(x.value - threshold) <= call.types.to_max_deviation(x.get_errors())) & (x.get_errors() > 0)
    value = (x.value > threshold).astype(x.value.dtype)
    return [BoundedTensor(value, near * 1.0 if near.any() else None, x.dtype)]


@rule("FeatureVectorizer", domain=DOMAIN)
def _evaluate_feature_vectorizer(call: OperatorCall) -> list[Any]:
    sizes = call.attribute("inputdimensions")
    features = []
    for i, size in enumerate(sizes):
        x = _convert_to_floats(call.input(i))
        x = x.rearrange(lambda v: v.reshape(v.shape[0] if v.ndim > 1 else 1, -1))
        missing = max(size - x.shape[1], 0)
        features.append(x.rearrange(lambda v, s=size, k=missing: np.pad(v[:, :s], [(0, 0), (0, k)])))  # type: ignore[misc]
    value = np.concatenate([feature.value for feature in features], axis=1)
    error = np.concatenate([feature.get_errors() for feature in features], axis=1)
    return [BoundedTensor(value, error, np.float32, all(feature.stored for feature in features))]


def _apply_post_transform(call: OperatorCall, scores: BoundedTensor) -> BoundedTensor:
    """Apply the node's post_transform."""
    post_transform = str(call.attribute("post_transform", "NONE"))
    scores = _round_intermediate(call, scores)
    m = call.make_arithmetic(np.float32)
    if post_transform == "NONE":
        return scores
    if post_transform == "LOGISTIC":
        return apply_function("sigmoid", scores, m)
    if post_transform == "SOFTMAX":
        return compute_softmax(call, _with_float32_dtype(scores), -1)
    raise UnprovedError(f"post_transform={post_transform}")


def _compute_linear_scores(call: OperatorCall, x: BoundedTensor, targets: int) -> BoundedTensor:
    m = call.make_arithmetic(np.float32)
    weights = np.asarray(call.attribute("coefficients"), np.float64).reshape(targets, -1)
    rounded = BoundedTensor(
        weights, np.abs(call.types.get_storage_type(np.float32).round(weights) - weights), np.float32, True
    )
    result = evaluate_bilinear(np.matmul, x, rounded.rearrange(np.transpose), x.shape[-1], call.types, np.float32)
    intercepts = _read_float_attribute(call, "intercepts")
    return result if intercepts is None else m.add(_round_intermediate(call, result), _round_constant(call, intercepts))


def _read_feature_rows(call: OperatorCall) -> BoundedTensor:
    x = _convert_to_floats(call.input(0))
    return x.rearrange(lambda v: v.reshape(1, -1)) if x.ndim == 1 else x


@rule("LinearRegressor", domain=DOMAIN)
def _evaluate_linear_regressor(call: OperatorCall) -> list[Any]:
    result = _compute_linear_scores(call, _read_feature_rows(call), int(call.attribute("targets", 1)))
    return [_with_float32_dtype(_apply_post_transform(call, result))]


@rule("LinearClassifier", domain=DOMAIN)
def _evaluate_linear_classifier(call: OperatorCall) -> list[Any]:
    labels = _read_class_labels(call, "classlabels_ints")
    rows = _read_feature_rows(call)
    count = len(np.asarray(call.attribute("coefficients"))) // rows.shape[-1]
    scores = _compute_linear_scores(call, rows, count)
    return _select_class(call, scores, labels)


def _read_class_labels(call: OperatorCall, integers: str) -> Array:
    """Return the class labels of a classifier: integers or strings."""
    string_labels = call.attribute("classlabels_strings")
    return (
        np.asarray(call.attribute(integers), np.int64)
        if string_labels is None
        else np.array(list(string_labels), object)
    )


def _select_class(call: OperatorCall, scores: BoundedTensor, labels: Array) -> list[Any]:
    """Return the label with the largest score, and the scores after post_transform. A single score belongs to label 1."""
    if scores.shape[1] == 1:
        if str(call.attribute("post_transform", "NONE")) == "SOFTMAX":
            raise UnprovedError("softmax of one score")
        result = _round_intermediate(call, _apply_post_transform(call, scores))
        edge = 0.5 if str(call.attribute("post_transform", "NONE")) == "LOGISTIC" else 0.0
        best = (result.value[:, 0] > edge).astype(int)
        near = np.abs(result.value[:, 0] - edge) <= call.types.to_max_deviation(result.get_errors()[:, 0])
        may_win = near[:, None] | (np.arange(2) == best[:, None])
        rest = result.rearrange(lambda v: 1 - v) if edge else result.rearrange(np.negative)
        value = np.concatenate([rest.value, result.value], 1)
        error = np.concatenate([result.get_errors(), result.get_errors()], 1) + 2.0**-23
        finished = BoundedTensor(value, error, np.float32)
    else:
        best = np.argmax(scores.value, axis=1)
        may_win = _compute_possible_max_mask(scores, best, call.types)
        finished = _apply_post_transform(call, scores)
    return [_make_labels(labels[best], may_win, labels), _with_float32_dtype(finished)][: call.outputs]


def _compute_possible_max_mask(scores: BoundedTensor, best: Array, types: ProgramTypes) -> Array:
    """Return mask[row, class]: whether the class may have the largest score."""
    ranking = find_argmax(scores, 1, BoundedTensor(best, None, np.int64), types)
    is_best = np.arange(scores.shape[1]) == best[:, None]
    return (
        np.asarray(is_best | ranking.alternatives.find_possible_indices())
        if isinstance(ranking.alternatives, RankAlternatives)
        else is_best
    )


def _make_labels(chosen: Array, may_win: Array, labels: Array) -> BoundedTensor:
    """Return the label of each row; it is undecided if several classes may win."""
    undecided = may_win.sum(axis=1) > 1
    if not undecided.any():
        return BoundedTensor(chosen, None, labels.dtype)
    if labels.dtype == object:
        raise UndecidedError("a label between several with equal scores")
    values = [np.where(may_win[:, i], label, chosen).astype(np.int64) for i, label in enumerate(labels)]
    alternatives = EnumeratedAlternatives(undecided, values, [np.zeros(chosen.shape)] * len(values))
    return BoundedTensor(chosen.astype(np.int64), np.where(undecided, np.inf, 0.0), np.int64).set_alternatives(
        alternatives
    )


@rule("TreeEnsembleRegressor", domain=DOMAIN)
def _evaluate_tree_regressor(call: OperatorCall) -> list[Any]:
    """Sum the leaf weights in float32. For exact inputs, there is no doubt which leaves are reached."""
    value, error = _sum_leaf_weights(call, "target", 0)
    return [BoundedTensor(value, np.full(value.shape, error), np.float32)]


def _sum_leaf_weights(call: OperatorCall, prefix: str, output: int) -> tuple[Array, float]:
    """Return an output, with the rounding error of its sums of leaf weights. No post_transform amplifies this error."""
    x = _read_feature_rows(call)
    if call.types.get_storage_type(np.float32).is_16_bit or not x.is_exact:
        raise UndecidedError("trees of numbers that are not exact")
    if np.isnan(x.value).any() and "BRANCH_NEQ" in map(str, call.attribute("nodes_modes") or ()):
        raise UnprovedError(
            "trees with BRANCH_NEQ of NaN, for which onnx.reference and ONNX Runtime take different branches"
        )
    post_transform = str(call.attribute("post_transform", "NONE"))
    if post_transform not in ("NONE", "LOGISTIC", "SOFTMAX"):
        raise UnprovedError(f"trees with post_transform={post_transform}")
    node = _replace_string_labels(call.node) if call.attribute("classlabels_strings") else call.node
    value = run_onnx_reference(node, [x.value.astype(np.float32)], call.opsets)[output]
    ids, weights = (np.asarray(call.attribute(f"{prefix}_{name}")) for name in ("treeids", "weights"))
    base = np.abs(np.asarray(call.attribute("base_values") or [0.0])).max()
    trees = np.unique(ids)
    largest = sum(float(np.abs(weights[ids == tree]).max()) for tree in trees) + float(base)
    error = 2 * call.types.compute_sum_error_factor(len(trees) + 2, np.float32) * largest + (
        0.0 if post_transform == "NONE" else 16 * 2.0**-24
    )
    return np.asarray(value, np.float64) if output or prefix == "target" else value, error


def _replace_string_labels(node: NodeProto) -> NodeProto:
    """Replace string labels with integers, because onnx.reference returns integers even for string labels."""
    result = NodeProto()
    result.CopyFrom(node)
    (labels,) = (attribute for attribute in result.attribute if attribute.name == "classlabels_strings")
    count = len(labels.strings)
    result.attribute.remove(labels)
    result.attribute.append(helper.make_attribute("classlabels_int64s", list(range(count))))
    return result


@rule("TreeEnsembleClassifier", domain=DOMAIN)
def _evaluate_tree_classifier(call: OperatorCall) -> list[Any]:
    scores, error = _sum_leaf_weights(call, "class", 1)
    labels, _ = _sum_leaf_weights(call, "class", 0)
    class_labels = _read_class_labels(call, "classlabels_int64s")
    labels = class_labels[labels] if class_labels.dtype == object else labels
    if scores.shape[1] == len(class_labels) > 1:
        best = np.searchsorted(class_labels, labels, sorter=np.argsort(class_labels))
        best = np.argsort(class_labels)[np.clip(best, 0, len(class_labels) - 1)]
        may_win = _compute_possible_max_mask(
            BoundedTensor(scores, np.full(scores.shape, call.types.from_max_deviation(np.asarray(error)))),
            best,
            call.types,
        )
    else:
        may_win = np.ones((len(scores), len(class_labels)), bool)
    return [
        _make_labels(np.asarray(labels), may_win, class_labels),
        BoundedTensor(scores, np.full(scores.shape, error), np.float32),
    ][: call.outputs]
