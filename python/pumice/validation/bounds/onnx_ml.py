"""Rules of ai.onnx.ml: linear models, scalers and trees."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, helper

from ...base.element_types import Array
from .bounded import Bounded, stored
from .math_functions import apply
from .ranking import best_of
from .reductions import softmax
from .registry import Call, Undecided, Unproved, rule
from .alternatives import Options, Ranked
from .gemm_conv import contracted, summed
from .float_types import Types

DOMAIN = "ai.onnx.ml"


def _floats(x: Bounded) -> Bounded:
    if not x.exact and not x.is_float:
        raise Undecided("numbers that are undecided")
    return x if x.is_float else Bounded(x.value.astype(np.float64), None, np.float32)


def _kept(call: Call, x: Bounded) -> Bounded:
    """Return an intermediate as stored, because these operators run as several kernels."""
    return stored(_float32(Bounded(x.value, x.error, x.dtype)), call.types)


def _row(call: Call, name: str, default: Any = None) -> Array | None:
    given = call.attribute(name, default)
    return None if given is None else np.asarray(given, np.float64)


def _float32(x: Bounded) -> Bounded:
    return Bounded(x.value, x.error, np.float32, x.stored and x.dtype == np.float32)


@rule("Scaler", domain=DOMAIN)
def _scaler(call: Call) -> list[Any]:
    x, m = _floats(call.input(0)), call.arithmetic(np.float32)
    apart = _kept(call, m.sub(x, _constant(call, _row(call, "offset", [0.0]))))
    made = m.mul(apart, _constant(call, _row(call, "scale", [1.0])))
    return [_float32(made)]


def _constant(call: Call, values: Array | None) -> Bounded:
    """Return a constant that may be exact or rounded to storage."""
    assert values is not None
    held = call.types.storage(np.float32).rounded(values)
    return Bounded(values, np.abs(held - values), np.float32)


@rule("Imputer", domain=DOMAIN)
def _imputer(call: Call) -> list[Any]:
    x = call.input(0)
    is_float = x.is_float
    new = np.asarray(call.attribute("imputed_value_floats" if is_float else "imputed_value_int64s"))
    old = call.attribute("replaced_value_float" if is_float else "replaced_value_int64", 0)
    gone = np.isnan(x.value) if is_float and np.isnan(old) else x.value == old
    if not x.exact and (np.abs(x.value - old) <= call.types.reach(x.errors()))[~gone & (x.errors() > 0)].any():
        raise Undecided("Imputer of numbers that may be those that are replaced")
    held = np.broadcast_to(new.astype(x.value.dtype), x.shape)
    value = np.where(gone, held, x.value)
    if not is_float:
        return [Bounded(value, x.error, x.dtype)]
    moved = np.abs(call.types.storage(x.dtype).rounded(held) - held)
    return [Bounded(value, np.where(gone, moved, x.errors()), x.dtype, x.stored)]


@rule("Normalizer", domain=DOMAIN)
def _normalizer(call: Call) -> list[Any]:
    x, m = _floats(call.input(0)), call.arithmetic(np.float32)
    norm = str(call.attribute("norm", "MAX"))
    axes = (x.ndim - 1,)
    if norm == "MAX":
        largest = np.max(x.value, axis=-1, keepdims=True)
        size = Bounded(largest, np.max(x.errors(), axis=-1, keepdims=True), np.float32)
    else:
        size = _kept(call, summed(m.abs(x) if norm == "L1" else _kept(call, m.mul(x, x)), axes, call.types))
        size = size if norm == "L1" else _kept(call, apply("sqrt", size, m))
    if (np.abs(size.value) <= size.errors()).any():
        raise Unproved("Normalizer of a row without a length")
    return [_float32(m.div(x, size))]


@rule("Binarizer", domain=DOMAIN)
def _binarizer(call: Call) -> list[Any]:
    x, threshold = call.input(0), float(call.attribute("threshold", 0.0))
    near = (np.abs(x.value - threshold) <= call.types.reach(x.errors())) & (x.errors() > 0)
    value = (x.value > threshold).astype(x.value.dtype)
    return [Bounded(value, near * 1.0 if near.any() else None, x.dtype)]


@rule("FeatureVectorizer", domain=DOMAIN)
def _vectorizer(call: Call) -> list[Any]:
    sizes = call.attribute("inputdimensions")
    parts = []
    for i, size in enumerate(sizes):
        x = _floats(call.input(i))
        x = x.moved(lambda v: v.reshape(v.shape[0] if v.ndim > 1 else 1, -1))
        missing = max(size - x.shape[1], 0)
        parts.append(x.moved(lambda v, s=size, k=missing: np.pad(v[:, :s], [(0, 0), (0, k)])))  # type: ignore[misc]
    value = np.concatenate([one.value for one in parts], axis=1)
    error = np.concatenate([one.errors() for one in parts], axis=1)
    return [Bounded(value, error, np.float32, all(one.stored for one in parts))]


def _finished(call: Call, scores: Bounded) -> Bounded:
    """Apply the node's post_transform."""
    how = str(call.attribute("post_transform", "NONE"))
    scores = _kept(call, scores)
    m = call.arithmetic(np.float32)
    if how == "NONE":
        return scores
    if how == "LOGISTIC":
        return apply("sigmoid", scores, m)
    if how == "SOFTMAX":
        return softmax(call, _float32(scores), -1)
    raise Unproved(f"post_transform={how}")


def _line(call: Call, x: Bounded, targets: int) -> Bounded:
    m = call.arithmetic(np.float32)
    weights = np.asarray(call.attribute("coefficients"), np.float64).reshape(targets, -1)
    held = Bounded(weights, np.abs(call.types.storage(np.float32).rounded(weights) - weights), np.float32, True)
    made = contracted(np.matmul, x, held.moved(np.transpose), x.shape[-1], call.types, np.float32)
    intercepts = _row(call, "intercepts")
    return made if intercepts is None else m.add(_kept(call, made), _constant(call, intercepts))


def _rows(call: Call) -> Bounded:
    x = _floats(call.input(0))
    return x.moved(lambda v: v.reshape(1, -1)) if x.ndim == 1 else x


@rule("LinearRegressor", domain=DOMAIN)
def _regressor(call: Call) -> list[Any]:
    made = _line(call, _rows(call), int(call.attribute("targets", 1)))
    return [_float32(_finished(call, made))]


@rule("LinearClassifier", domain=DOMAIN)
def _classifier(call: Call) -> list[Any]:
    labels = _labels(call, "classlabels_ints")
    rows = _rows(call)
    count = len(np.asarray(call.attribute("coefficients"))) // rows.shape[-1]
    scores = _line(call, rows, count)
    return _labelled(call, scores, labels)


def _labels(call: Call, integers: str) -> Array:
    """Return a classifier's labels, integers or strings."""
    texts = call.attribute("classlabels_strings")
    return np.asarray(call.attribute(integers), np.int64) if texts is None else np.array(list(texts), object)


def _labelled(call: Call, scores: Bounded, labels: Array) -> list[Any]:
    """Return the label of the largest score, and the scores after post_transform. A single score is for label 1."""
    if scores.shape[1] == 1:
        if str(call.attribute("post_transform", "NONE")) == "SOFTMAX":
            raise Unproved("softmax of one score")
        made = _kept(call, _finished(call, scores))
        edge = 0.5 if str(call.attribute("post_transform", "NONE")) == "LOGISTIC" else 0.0
        best = (made.value[:, 0] > edge).astype(int)
        near = np.abs(made.value[:, 0] - edge) <= call.types.reach(made.errors()[:, 0])
        may = near[:, None] | (np.arange(2) == best[:, None])
        rest = made.moved(lambda v: 1 - v) if edge else made.moved(np.negative)
        value = np.concatenate([rest.value, made.value], 1)
        error = np.concatenate([made.errors(), made.errors()], 1) + 2.0**-23
        finished = Bounded(value, error, np.float32)
    else:
        best = np.argmax(scores.value, axis=1)
        may = _largest(scores, best, call.types)
        finished = _finished(call, scores)
    return [_label(labels[best], may, labels), _float32(finished)][: call.outputs]


def _largest(scores: Bounded, best: Array, types: Types) -> Array:
    """Return mask[row, class]: whether the class may have the largest score."""
    found = best_of(scores, 1, Bounded(best, None, np.int64), types)
    own = np.arange(scores.shape[1]) == best[:, None]
    return np.asarray(own | found.sides.may()) if isinstance(found.sides, Ranked) else own


def _label(chosen: Array, may: Array, labels: Array) -> Bounded:
    """Return a label per row, undecided if several classes are possible."""
    unsure = may.sum(axis=1) > 1
    if not unsure.any():
        return Bounded(chosen, None, labels.dtype)
    if labels.dtype == object:
        raise Undecided("a label between several with equal scores")
    values = [np.where(may[:, i], one, chosen).astype(np.int64) for i, one in enumerate(labels)]
    sides = Options(unsure, values, [np.zeros(chosen.shape)] * len(values))
    return Bounded(chosen.astype(np.int64), np.where(unsure, np.inf, 0.0), np.int64).with_sides(sides)


@rule("TreeEnsembleRegressor", domain=DOMAIN)
def _trees(call: Call) -> list[Any]:
    """Sum the leaf weights in float32. The reached leaves are exact for exact inputs."""
    value, error = _by_leaves(call, "target", 0)
    return [Bounded(value, np.full(value.shape, error), np.float32)]


def _by_leaves(call: Call, of: str, output: int) -> tuple[Array, float]:
    """Return an output and its error from rounded sums of leaf weights; every post_transform has a slope of at most 1."""
    x = _rows(call)
    if call.types.storage(np.float32).is_half or not x.exact:
        raise Undecided("trees of numbers that are not exact")
    how = str(call.attribute("post_transform", "NONE"))
    if how not in ("NONE", "LOGISTIC", "SOFTMAX"):
        raise Unproved(f"trees with post_transform={how}")
    from .rule_runner import run_by_onnx

    node = _with_numbers(call.node) if call.attribute("classlabels_strings") else call.node
    value = run_by_onnx(node, [x.value.astype(np.float32)], call.opsets)[output]
    ids, weights = (np.asarray(call.attribute(f"{of}_{name}")) for name in ("treeids", "weights"))
    base = np.abs(np.asarray(call.attribute("base_values") or [0.0])).max()
    trees = np.unique(ids)
    largest = sum(float(np.abs(weights[ids == tree]).max()) for tree in trees) + float(base)
    error = 2 * call.types.sum_factor(len(trees) + 2, np.float32) * largest + (0.0 if how == "NONE" else 16 * 2.0**-24)
    return np.asarray(value, np.float64) if output or of == "target" else value, error


def _with_numbers(node: NodeProto) -> NodeProto:
    """Replace string labels with integers, because onnx's reference returns integers for them."""
    made = NodeProto()
    made.CopyFrom(node)
    (labels,) = (one for one in made.attribute if one.name == "classlabels_strings")
    count = len(labels.strings)
    made.attribute.remove(labels)
    made.attribute.append(helper.make_attribute("classlabels_int64s", list(range(count))))
    return made


@rule("TreeEnsembleClassifier", domain=DOMAIN)
def _tree_classes(call: Call) -> list[Any]:
    scores, error = _by_leaves(call, "class", 1)
    labels, _ = _by_leaves(call, "class", 0)
    known = _labels(call, "classlabels_int64s")
    labels = known[labels] if known.dtype == object else labels
    if scores.shape[1] == len(known) > 1:
        best = np.searchsorted(known, labels, sorter=np.argsort(known))
        best = np.argsort(known)[np.clip(best, 0, len(known) - 1)]
        may = _largest(Bounded(scores, np.full(scores.shape, call.types.share(np.asarray(error)))), best, call.types)
    else:
        may = np.ones((len(scores), len(known)), bool)
    return [
        _label(np.asarray(labels), may, known),
        Bounded(scores, np.full(scores.shape, error), np.float32),
    ][: call.outputs]
