"""What the operators of ai.onnx.ml have in common: their attributes, their inputs as rows of floats, classes and scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .element_types import Array
from .errors import graph_error
from .graph_builder import Builder, Refused
from .recipe import NodeRecipe

if TYPE_CHECKING:
    from ._pumice import Value

FLOAT, INT32, INT64, BOOL = 1, 6, 7, 9  # TensorProto.DataType
LAST = np.array([-1])


def refuse(builder: Builder, node: NodeRecipe, why: str) -> Refused:
    builder.unsupported.append(f"node '{builder.path(node)}': operator {node.qualified_op}: {why}")
    return Refused()


def numbers_of(node: NodeRecipe, name: str, dtype: Any = np.float32) -> Array:
    """An attribute of numbers; an empty array where it is absent."""
    value = node.attributes.get(name, [])
    if not isinstance(value, list) or any(isinstance(item, str) for item in value):
        raise graph_error("node", node.name, f"attribute '{name}': expected numbers, given {value!r}")
    return np.array(value, dtype)


def text_of(node: NodeRecipe, name: str, default: str) -> str:
    return str(node.attributes.get(name, default))


def integer_of(node: NodeRecipe, name: str, default: int = 0) -> int:
    value = node.attributes.get(name, default)
    if not isinstance(value, int):
        raise graph_error("node", node.name, f"attribute '{name}': expected an integer, given {value!r}")
    return value


def input_floats(builder: Builder, node: NodeRecipe) -> Value:
    x = builder.tensor(node.inputs[0])
    return x if x.dtype == "float32" else builder.helper(node, "Cast", x, to=FLOAT)


def input_rows(builder: Builder, node: NodeRecipe) -> Value:
    """The input as floats [rows, features]; a vector is one row."""
    return builder.helper(node, "Flatten", input_floats(builder, node), axis=-1)


def keep(builder: Builder, node: NodeRecipe, *results: Value) -> None:
    for name, value in zip(node.outputs, results, strict=False):
        if name:
            builder.keep([name], (builder.helper(node, "Identity", value, output=name),))


def transformed(builder: Builder, node: NodeRecipe, scores: Value) -> Value:
    """[rows, classes] after `post_transform`."""
    kind = text_of(node, "post_transform", "NONE")
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return builder.helper(node, "Sigmoid", scores)
    if kind == "SOFTMAX":
        return builder.helper(node, "Softmax", scores, axis=-1)
    raise refuse(builder, node, f"post_transform {kind}")


def class_labels(builder: Builder, node: NodeRecipe, name: str) -> Array:
    if any(attribute.startswith("classlabels_s") and value for attribute, value in node.attributes.items()):
        raise refuse(builder, node, "labels that are strings")
    return numbers_of(node, name, np.int64)


def best_label(builder: Builder, node: NodeRecipe, scores: Value, labels: Array) -> Value:
    best = builder.helper(node, "ArgMax", scores, axis=1, keepdims=0)
    return builder.helper(node, "Gather", labels, best)
