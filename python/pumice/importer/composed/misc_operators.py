"""Translate ONNX operators that expand to several engine nodes, in some or all of their forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.element_types import ONNX_NUMBERS
from ...base.errors import graph_error
from ..build.builder import Builder, Refused
from ..file.recipe import NodeRecipe, integers, number

if TYPE_CHECKING:
    from ..._pumice import Value

INT64 = 7  # TensorProto.DataType


def _one_hot(builder: Builder, node: NodeRecipe) -> None:
    """Translate OneHot: cast indices and depth of other dtypes to int64."""
    converted = list(node.inputs)
    for i, name in enumerate(node.inputs[:2]):
        value = builder.tensor(name)
        if value.dtype not in ("int64", "int32"):
            converted[i] = builder.free_name(f"{node.name}/{name} as int64")
            builder.values[converted[i]] = builder.helper(node, "Cast", value, to=INT64)
    builder.add_plain(node._replace(inputs=converted))


def _cast_like(builder: Builder, node: NodeRecipe) -> None:
    """Translate CastLike to Cast: the target type is known at import, and constants stay constants."""
    _, like = builder.operands(node, 2, 2)
    to = ONNX_NUMBERS.get(str(like.dtype))
    if to is None:
        builder.add_plain(node)
        return
    builder.add_plain(node._replace(op="Cast", inputs=node.inputs[:1], attributes={**node.attributes, "to": to}))


def _rank(builder: Builder, node: NodeRecipe, value: Value) -> int:
    if value.shape is None:
        raise builder.refuse(node, "a tensor of unknown rank")
    return len(value.shape)


def _batch_normalization(builder: Builder, node: NodeRecipe) -> None:
    """Translate BatchNormalization; in training mode it uses batch statistics, which also update the running
    statistics.
    """
    if node.attributes.get("training_mode", 0) == 0:
        builder.add_plain(node)
        return
    helper = builder.helper
    x, scale, bias, mean_before, variance_before = builder.operands(node, 5, 5)
    rank = _rank(builder, node, x)
    axes = np.array([axis for axis in range(rank) if axis != 1])
    per_channel = np.array([-1] + [1] * (rank - 2))
    momentum, epsilon = (number(node, name, v) for name, v in (("momentum", 0.9), ("epsilon", 1e-5)))

    def like(value: float, other: Value) -> Value:
        return helper(node, "CastLike", np.array(value, np.float32), other)

    mean = helper(node, "ReduceMean", x, axes, keepdims=1)
    centered = helper(node, "Sub", x, mean)
    variance = helper(node, "ReduceMean", helper(node, "Mul", centered, centered), axes, keepdims=1)
    deviation = helper(node, "Sqrt", helper(node, "Add", variance, like(epsilon, variance)))
    y = helper(node, "Div", centered, deviation)
    for op, operand in (("Mul", scale), ("Add", bias)):
        y = helper(node, op, y, helper(node, "Reshape", helper(node, "CastLike", operand, x), per_channel))
    results = [y]
    for before, now in ((mean_before, mean), (variance_before, variance)):
        flat = helper(node, "CastLike", helper(node, "Reshape", now, np.array([-1])), before)
        kept = helper(node, "Mul", before, like(momentum, before))
        results.append(helper(node, "Add", kept, helper(node, "Mul", flat, like(1 - momentum, before))))
    builder.keep_results(node, *results)


def _deform_conv(builder: Builder, node: NodeRecipe) -> None:
    """Translate DeformConv to a GEMM of the weights and the deformable im2col matrix (pumice::DeformColumns)."""
    helper = builder.helper
    inputs = [builder.tensor(name) if name else None for name in node.inputs[:5]] + [None] * (5 - len(node.inputs))
    x, w, offset, bias, mask = inputs
    if x is None or w is None or offset is None:
        raise graph_error("node", node.name, "expected x, weights and offsets, given fewer")
    sizes = [size for size in w.shape or () if size is not None]
    if len(sizes) != 4:
        why = "weights of another rank than 4, or of unknown sizes"
        builder.unsupported.append(f"node '{builder.path(node)}': operator DeformConv: {why}")
        raise Refused
    made, channels, *kernel = sizes
    group = node.attributes.get("group", 1)
    if not isinstance(group, int) or group < 1 or made % group:
        raise graph_error(
            "node", node.name, f"attribute 'group': expected a divisor of {made} channels, given {group!r}"
        )
    given: dict[str, Any] = {name: integers(node, name) for name in ("strides", "pads", "dilations")}
    given = {name: value for name, value in given.items() if value is not None}
    given["offset_group"] = node.attributes.get("offset_group", 1)
    operands = [x, offset] if mask is None else [x, offset, mask]
    columns = helper(
        node, "pumice::DeformColumns", *operands, kernel_shape=integers(node, "kernel_shape") or kernel, **given
    )
    places = helper(node, "Shape", columns, start=2)
    batch = helper(node, "Shape", columns, end=1)
    size = channels * int(np.prod(kernel))
    grouped = helper(node, "Concat", batch, np.array([group, size]), places, axis=0)
    weights = helper(node, "Reshape", w, np.array([group, made // group, size]))
    sums = helper(node, "MatMul", weights, helper(node, "Reshape", columns, grouped))
    shape = helper(node, "Concat", batch, np.array([made]), helper(node, "Shape", offset, start=2), axis=0)
    y = helper(node, "Reshape", sums, shape)
    if bias is not None:
        y = helper(node, "Add", y, helper(node, "Reshape", bias, np.array([-1, 1, 1])))
    builder.keep(node.outputs, (helper(node, "Identity", y, output=node.outputs[0]),))


FORM_NODES: dict[str, Callable[[Builder, NodeRecipe], None]] = {
    "CastLike": _cast_like,
    "BatchNormalization": _batch_normalization,
    "DeformConv": _deform_conv,
    "OneHot": _one_hot,
}
