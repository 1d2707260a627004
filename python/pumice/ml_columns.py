"""Operators of ai.onnx.ml that prepare columns: scale, fill, cut, choose and translate them."""

from __future__ import annotations

import numpy as np

from .element_types import Array, array_of
from .errors import graph_error
from .graph_builder import Builder
from .ml_parts import BOOL, FLOAT, INT32, LAST, input_floats, keep, numbers_of, refuse, text_of
from .recipe import ConstantRecipe, NodeRecipe


def array_feature_extractor(builder: Builder, node: NodeRecipe) -> None:
    x, places = (builder.tensor(name) for name in node.inputs[:2])
    found = builder.helper(node, "Gather", x, builder.helper(node, "Reshape", places, LAST), axis=-1)
    if x.shape is not None and len(x.shape) == 1:
        found = builder.helper(node, "Unsqueeze", found, np.array([0]))
    keep(builder, node, found)


def scaler(builder: Builder, node: NodeRecipe) -> None:
    moved = builder.helper(node, "Sub", input_floats(builder, node), numbers_of(node, "offset"))
    keep(builder, node, builder.helper(node, "Mul", moved, numbers_of(node, "scale")))


def normalizer(builder: Builder, node: NodeRecipe) -> None:
    """Rows of zeros stay as they are."""
    x = input_floats(builder, node)
    reductions = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}
    kind = text_of(node, "norm", "MAX")
    if kind not in reductions:
        raise graph_error("node", node.name, f"attribute 'norm': expected MAX, L1 or L2, given {kind!r}")
    size = builder.helper(node, reductions[kind], x, LAST, keepdims=1)
    nothing = builder.helper(node, "Equal", size, np.array(0, np.float32))
    size = builder.helper(node, "Where", nothing, np.array(1, np.float32), size)
    keep(builder, node, builder.helper(node, "Div", x, size))


def binarizer(builder: Builder, node: NodeRecipe) -> None:
    x = builder.tensor(node.inputs[0])
    threshold = node.attributes.get("threshold", 0.0)
    above = builder.helper(node, "Greater", input_floats(builder, node), np.array(threshold, np.float32))
    keep(builder, node, builder.helper(node, "CastLike", above, x))


def feature_vectorizer(builder: Builder, node: NodeRecipe) -> None:
    parts = [builder.tensor(name) for name in node.inputs]
    floats = [one if one.dtype == "float32" else builder.helper(node, "Cast", one, to=FLOAT) for one in parts]
    keep(builder, node, builder.helper(node, "Concat", *floats, axis=1))


def imputer(builder: Builder, node: NodeRecipe) -> None:
    x = builder.tensor(node.inputs[0])
    is_float = x.dtype.startswith("float")
    replaced = node.attributes.get(f"replaced_value_{'float' if is_float else 'int64'}", 0)
    values = numbers_of(node, f"imputed_value_{'floats' if is_float else 'int64s'}", x.dtype)
    if is_float and isinstance(replaced, float) and np.isnan(replaced):
        missing = builder.helper(node, "IsNaN", x)
    else:
        missing = builder.helper(node, "Equal", x, np.array(replaced, x.dtype))
    keep(builder, node, builder.helper(node, "Where", missing, values, x))


def _table(builder: Builder, node: NodeRecipe, role: str) -> Array:
    """The keys or values of a LabelEncoder, of whatever kind they are."""
    given = [name for name in node.attributes if name.startswith(role)]
    if len(given) != 1:
        raise graph_error("node", node.name, f"expected one attribute '{role}...', given {given}")
    value = node.attributes[given[0]]
    if isinstance(value, ConstantRecipe):
        return array_of(value.raw, value.dtype, value.shape)
    if given[0] == f"{role}_strings":
        raise refuse(builder, node, f"{role} that are strings")
    return numbers_of(node, given[0], np.int64 if given[0].endswith("int64s") else np.float32)


def label_encoder(builder: Builder, node: NodeRecipe) -> None:
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
    keep(builder, node, builder.helper(node, "Where", found, value, default))
