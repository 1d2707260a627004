"""Normalizations in float64: ONNX defines the variance as E[x^2] - E[x]^2, which may cancel completely in float32.

MeanVarianceNormalization is excluded: with an epsilon of 1e-9 it has no correct digit for nearly equal elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, helper

Array = np.ndarray[Any, Any]


def _mean(x: Array, axes: tuple[int, ...]) -> Array:
    """Return the mean along axes, with keepdims; NaN without a warning if they are empty."""
    total = np.add.reduce(x, axis=axes, keepdims=True)
    return np.asarray(total / np.float64(x.size / total.size if total.size else 1))


def _group_normalization(node: NodeProto, x: Array, rest: list[Array], opset: int) -> Array:
    given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    groups = given["num_groups"]
    parts = x.reshape(x.shape[0], groups, -1)
    parts = parts - _mean(parts, (-1,))
    parts = parts / np.sqrt(_mean(parts * parts, (-1,)) + given.get("epsilon", 1e-5))
    # Before opset 21 there is one value per group, since then one per channel.
    channels = [one if opset >= 21 else np.repeat(one, x.shape[1] // groups) for one in rest]
    scale, bias = (one.reshape(-1, *[1] * (x.ndim - 2)) for one in channels)
    return np.asarray(parts.reshape(x.shape) * scale + bias)


NORMALIZED: dict[str, Callable[[NodeProto, Array, list[Array], int], Array]] = {
    "GroupNormalization": _group_normalization,
}


def normalized(node: NodeProto, data: Mapping[str, Array], opset: int) -> Array:
    """Return the result of a NORMALIZED node, rounded once to its type. Operands must be accepted by an oracle."""
    x, *rest = (data[name].astype(np.float64) for name in node.input)
    with np.errstate(all="ignore"):
        return NORMALIZED[node.op_type](node, x, rest, opset).astype(data[node.input[0]].dtype)
