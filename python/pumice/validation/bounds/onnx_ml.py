"""Rules of ai.onnx.ml: linear models, scalers and trees."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, helper

from ...base.element_types import Array
from .alternatives import RankAlternatives, ValueAlternatives
from .bounded import Bounded, round_to_storage
from .float_types import ProgramTypes
from .gemm_conv import contract, sum_axes
from .math_functions import apply_function
from .ranking import find_largest
from .reductions import softmax
from .registry import Call, Undecided, Unproved, rule

DOMAIN = "ai.onnx.ml"


def _as_floats(x: Bounded) -> Bounded:
    if not x.exact and not x.is_float:
        raise Undecided("numbers that are undecided")
    return x if x.is_float else Bounded(x.value.astype(np.float64), None, np.float32)


def _round_intermediate(call: Call, x: Bounded) -> Bounded:
    """Return an intermediate as stored, because these operators run as several kernels."""
    return round_to_storage(_as_float32(Bounded(x.value, x.error, x.dtype)), call.types)


def _float_attribute(call: Call, name: str, default: Any = None) -> Array | None:
    values = call.attribute(name, default)
    return None if values is None else np.asarray(values, np.float64)


def _as_float32(x: Bounded) -> Bounded:
    return Bounded(x.value, x.error, np.float32, x.stored and x.dtype == np.float32)


@rule("Scaler", domain=DOMAIN)
def _scaler(call: Call) -> list[Any]:
    x, m = _as_floats(call.input(0)), call.arithmetic(np.float32)
    shifted = _round_intermediate(call, m.sub(x, _rounded_constant(call, _float_attribute(call, "offset", [0.0]))))
    result = m.mul(shifted, _rounded_constant(call, _float_attribute(call, "scale", [1.0])))
    return [_as_float32(result)]


def _rounded_constant(call: Call, values: Array | None) -> Bounded:
    """Return a constant that may be exact or rounded to storage."""
    assert values is not None
    rounded = call.types.storage_type(np.float32).rounded(values)
    return Bounded(values, np.abs(rounded - values), np.float32)


@rule("Imputer", domain=DOMAIN)
def _imputer(call: Call) -> list[Any]:
    x = call.input(0)
    is_float = x.is_float
    new = np.asarray(call.attribute("imputed_value_floats" if is_float else "imputed_value_int64s"))
    old = call.attribute("replaced_value_float" if is_float else "replaced_value_int64", 0)
    is_replaced = np.isnan(x.value) if is_float and np.isnan(old) else x.value == old
    if (
        not x.exact
        and (np.abs(x.value - old) <= call.types.expand_error(x.errors()))[~is_replaced & (x.errors() > 0)].any()
    ):
        raise Undecided("Imputer of numbers that may be those that are replaced")
    rounded = np.broadcast_to(new.astype(x.value.dtype), x.shape)
    value = np.where(is_replaced, rounded, x.value)
    if not is_float:
        return [Bounded(value, x.error, x.dtype)]
    moved = np.abs(call.types.storage_type(x.dtype).rounded(rounded) - rounded)
    return [Bounded(value, np.where(is_replaced, moved, x.errors()), x.dtype, x.stored)]


@rule("Normalizer", domain=DOMAIN)
def _normalizer(call: Call) -> list[Any]:
    x, m = _as_floats(call.input(0)), call.arithmetic(np.float32)
    norm = str(call.attribute("norm", "MAX"))
    axes = (x.ndim - 1,)
    if norm == "MAX":
        largest = np.max(x.value, axis=-1, keepdims=True)
        size = Bounded(largest, np.max(x.errors(), axis=-1, keepdims=True), np.float32)
    else:
        size = _round_intermediate(
            call, sum_axes(m.abs(x) if norm == "L1" else _round_intermediate(call, m.mul(x, x)), axes, call.types)
        )
        size = size if norm == "L1" else _round_intermediate(call, apply_function("sqrt", size, m))
    if (np.abs(size.value) <= size.errors()).any():
        raise Unproved("Normalizer of a row without a length")
    return [_as_float32(m.div(x, size))]


@rule("Binarizer", domain=DOMAIN)
def _binarizer(call: Call) -> list[Any]:
    x, threshold = call.input(0), float(call.attribute("threshold", 0.0))
    near = (np.abs(x.value - threshold) <= call.types.expand_error(x.errors())) & (x.errors() > 0)
    value = (x.value > threshold).astype(x.value.dtype)
    return [Bounded(value, near * 1.0 if near.any() else None, x.dtype)]


@rule("FeatureVectorizer", domain=DOMAIN)
def _feature_vectorizer(call: Call) -> list[Any]:
    sizes = call.attribute("inputdimensions")
    features = []
    for i, size in enumerate(sizes):
        x = _as_floats(call.input(i))
        x = x.rearrange(lambda v: v.reshape(v.shape[0] if v.ndim > 1 else 1, -1))
        missing = max(size - x.shape[1], 0)
        features.append(x.rearrange(lambda v, s=size, k=missing: np.pad(v[:, :s], [(0, 0), (0, k)])))  # type: ignore[misc]
    value = np.concatenate([feature.value for feature in features], axis=1)
    error = np.concatenate([feature.errors() for feature in features], axis=1)
    return [Bounded(value, error, np.float32, all(feature.stored for feature in features))]


def _post_transform(call: Call, scores: Bounded) -> Bounded:
    """Apply the node's post_transform."""
    post_transform = str(call.attribute("post_transform", "NONE"))
    scores = _round_intermediate(call, scores)
    m = call.arithmetic(np.float32)
    if post_transform == "NONE":
        return scores
    if post_transform == "LOGISTIC":
        return apply_function("sigmoid", scores, m)
    if post_transform == "SOFTMAX":
        return softmax(call, _as_float32(scores), -1)
    raise Unproved(f"post_transform={post_transform}")


def _linear_scores(call: Call, x: Bounded, targets: int) -> Bounded:
    m = call.arithmetic(np.float32)
    weights = np.asarray(call.attribute("coefficients"), np.float64).reshape(targets, -1)
    rounded = Bounded(weights, np.abs(call.types.storage_type(np.float32).rounded(weights) - weights), np.float32, True)
    result = contract(np.matmul, x, rounded.rearrange(np.transpose), x.shape[-1], call.types, np.float32)
    intercepts = _float_attribute(call, "intercepts")
    return (
        result if intercepts is None else m.add(_round_intermediate(call, result), _rounded_constant(call, intercepts))
    )


def _feature_rows(call: Call) -> Bounded:
    x = _as_floats(call.input(0))
    return x.rearrange(lambda v: v.reshape(1, -1)) if x.ndim == 1 else x


@rule("LinearRegressor", domain=DOMAIN)
def _linear_regressor(call: Call) -> list[Any]:
    result = _linear_scores(call, _feature_rows(call), int(call.attribute("targets", 1)))
    return [_as_float32(_post_transform(call, result))]


@rule("LinearClassifier", domain=DOMAIN)
def _linear_classifier(call: Call) -> list[Any]:
    labels = _class_labels(call, "classlabels_ints")
    rows = _feature_rows(call)
    count = len(np.asarray(call.attribute("coefficients"))) // rows.shape[-1]
    scores = _linear_scores(call, rows, count)
    return _select_class(call, scores, labels)


def _class_labels(call: Call, integers: str) -> Array:
    """Return a classifier's labels, integers or strings."""
    string_labels = call.attribute("classlabels_strings")
    return (
        np.asarray(call.attribute(integers), np.int64)
        if string_labels is None
        else np.array(list(string_labels), object)
    )


def _select_class(call: Call, scores: Bounded, labels: Array) -> list[Any]:
    """Return the label of the largest score, and the scores after post_transform. A single score is for label 1."""
    if scores.shape[1] == 1:
        if str(call.attribute("post_transform", "NONE")) == "SOFTMAX":
            raise Unproved("softmax of one score")
        result = _round_intermediate(call, _post_transform(call, scores))
        edge = 0.5 if str(call.attribute("post_transform", "NONE")) == "LOGISTIC" else 0.0
        best = (result.value[:, 0] > edge).astype(int)
        near = np.abs(result.value[:, 0] - edge) <= call.types.expand_error(result.errors()[:, 0])
        may_win = near[:, None] | (np.arange(2) == best[:, None])
        rest = result.rearrange(lambda v: 1 - v) if edge else result.rearrange(np.negative)
        value = np.concatenate([rest.value, result.value], 1)
        error = np.concatenate([result.errors(), result.errors()], 1) + 2.0**-23
        finished = Bounded(value, error, np.float32)
    else:
        best = np.argmax(scores.value, axis=1)
        may_win = _may_be_largest(scores, best, call.types)
        finished = _post_transform(call, scores)
    return [_make_label(labels[best], may_win, labels), _as_float32(finished)][: call.outputs]


def _may_be_largest(scores: Bounded, best: Array, types: ProgramTypes) -> Array:
    """Return mask[row, class]: whether the class may have the largest score."""
    ranking = find_largest(scores, 1, Bounded(best, None, np.int64), types)
    is_best = np.arange(scores.shape[1]) == best[:, None]
    return (
        np.asarray(is_best | ranking.alternatives.possible_indices())
        if isinstance(ranking.alternatives, RankAlternatives)
        else is_best
    )


def _make_label(chosen: Array, may_win: Array, labels: Array) -> Bounded:
    """Return a label per row, undecided if several classes are possible."""
    unsure = may_win.sum(axis=1) > 1
    if not unsure.any():
        return Bounded(chosen, None, labels.dtype)
    if labels.dtype == object:
        raise Undecided("a label between several with equal scores")
    values = [np.where(may_win[:, i], label, chosen).astype(np.int64) for i, label in enumerate(labels)]
    sides = ValueAlternatives(unsure, values, [np.zeros(chosen.shape)] * len(values))
    return Bounded(chosen.astype(np.int64), np.where(unsure, np.inf, 0.0), np.int64).with_alternatives(sides)


@rule("TreeEnsembleRegressor", domain=DOMAIN)
def _tree_regressor(call: Call) -> list[Any]:
    """Sum the leaf weights in float32. The reached leaves are exact for exact inputs."""
    value, error = _sum_leaf_weights(call, "target", 0)
    return [Bounded(value, np.full(value.shape, error), np.float32)]


def _sum_leaf_weights(call: Call, prefix: str, output: int) -> tuple[Array, float]:
    """Return an output and its error from rounded sums of leaf weights; every post_transform has a slope of at most 1."""
    x = _feature_rows(call)
    if call.types.storage_type(np.float32).is_16_bit or not x.exact:
        raise Undecided("trees of numbers that are not exact")
    post_transform = str(call.attribute("post_transform", "NONE"))
    if post_transform not in ("NONE", "LOGISTIC", "SOFTMAX"):
        raise Unproved(f"trees with post_transform={post_transform}")
    from .rule_runner import run_onnx_reference

    node = _with_integer_labels(call.node) if call.attribute("classlabels_strings") else call.node
    value = run_onnx_reference(node, [x.value.astype(np.float32)], call.opsets)[output]
    ids, weights = (np.asarray(call.attribute(f"{prefix}_{name}")) for name in ("treeids", "weights"))
    base = np.abs(np.asarray(call.attribute("base_values") or [0.0])).max()
    trees = np.unique(ids)
    largest = sum(float(np.abs(weights[ids == tree]).max()) for tree in trees) + float(base)
    error = 2 * call.types.sum_error_factor(len(trees) + 2, np.float32) * largest + (
        0.0 if post_transform == "NONE" else 16 * 2.0**-24
    )
    return np.asarray(value, np.float64) if output or prefix == "target" else value, error


def _with_integer_labels(node: NodeProto) -> NodeProto:
    """Replace string labels with integers, because onnx's reference returns integers for them."""
    result = NodeProto()
    result.CopyFrom(node)
    (labels,) = (attribute for attribute in result.attribute if attribute.name == "classlabels_strings")
    count = len(labels.strings)
    result.attribute.remove(labels)
    result.attribute.append(helper.make_attribute("classlabels_int64s", list(range(count))))
    return result


@rule("TreeEnsembleClassifier", domain=DOMAIN)
def _tree_classifier(call: Call) -> list[Any]:
    scores, error = _sum_leaf_weights(call, "class", 1)
    labels, _ = _sum_leaf_weights(call, "class", 0)
    class_labels = _class_labels(call, "classlabels_int64s")
    labels = class_labels[labels] if class_labels.dtype == object else labels
    if scores.shape[1] == len(class_labels) > 1:
        best = np.searchsorted(class_labels, labels, sorter=np.argsort(class_labels))
        best = np.argsort(class_labels)[np.clip(best, 0, len(class_labels) - 1)]
        may_win = _may_be_largest(
            Bounded(scores, np.full(scores.shape, call.types.unexpand_error(np.asarray(error)))), best, call.types
        )
    else:
        may_win = np.ones((len(scores), len(class_labels)), bool)
    return [
        _make_label(np.asarray(labels), may_win, class_labels),
        Bounded(scores, np.full(scores.shape, error), np.float32),
    ][: call.outputs]
