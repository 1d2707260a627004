"""Translate OneHot, CastLike, BatchNormalization and DeformConv, for which some or all nodes need several engine nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.element_types import ONNX_TYPE_CODES
from ...base.errors import graph_error
from ..build.builder import GraphBuilder, NodeRejectedError
from ..file.graph_recipe import NodeRecipe, get_ints_attr, get_number_attr

if TYPE_CHECKING:
    from ..._pumice import Value

INT64 = 7  # TensorProto.DataType


def _translate_one_hot(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Translate OneHot, casting indices and depth to int64 unless they are int64 or int32."""
    cast_inputs = list(node.inputs)
    for i, name in enumerate(node.inputs[:2]):
        value = builder.require_tensor(name)
        if value.dtype not in ("int64", "int32"):
            cast_inputs[i] = builder.make_unique_name(f"{node.name}/{name} as int64")
            builder.values[cast_inputs[i]] = builder.add_helper(node, "Cast", value, to=INT64)
    builder.add_single_node(node._replace(inputs=cast_inputs))


def _translate_cast_like(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Translate CastLike to Cast, because the target dtype is known at import and a Cast of a constant stays constant."""
    _, like = builder.require_tensors(node, 2, 2)
    to = ONNX_TYPE_CODES.get(str(like.dtype))
    if to is None:
        builder.add_single_node(node)
        return
    builder.add_single_node(node._replace(op="Cast", inputs=node.inputs[:1], attributes={**node.attributes, "to": to}))


def _require_rank(builder: GraphBuilder, node: NodeRecipe, value: Value) -> int:
    if value.shape is None:
        raise builder.reject(node, "a tensor of unknown rank")
    return len(value.shape)


def _translate_batch_normalization(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Translate BatchNormalization. Training mode normalises with batch statistics and outputs updated running statistics."""
    if node.attributes.get("training_mode", 0) == 0:
        builder.add_single_node(node)
        return
    add_helper = builder.add_helper
    x, scale, bias, running_mean, running_variance = builder.require_tensors(node, 5, 5)
    rank = _require_rank(builder, node, x)
    axes = np.array([axis for axis in range(rank) if axis != 1])
    per_channel = np.array([-1] + [1] * (rank - 2))
    momentum, epsilon = (get_number_attr(node, name, v) for name, v in (("momentum", 0.9), ("epsilon", 1e-5)))

    def cast_like(value: float, other: Value) -> Value:
        return add_helper(node, "CastLike", np.array(value, np.float32), other)

    mean = add_helper(node, "ReduceMean", x, axes, keepdims=1)
    centered_x = add_helper(node, "Sub", x, mean)
    variance = add_helper(node, "ReduceMean", add_helper(node, "Mul", centered_x, centered_x), axes, keepdims=1)
    deviation = add_helper(node, "Sqrt", add_helper(node, "Add", variance, cast_like(epsilon, variance)))
    y = add_helper(node, "Div", centered_x, deviation)
    for op, operand in (("Mul", scale), ("Add", bias)):
        y = add_helper(node, op, y, add_helper(node, "Reshape", add_helper(node, "CastLike", operand, x), per_channel))
    results = [y]
    for running_value, batch_value in ((running_mean, mean), (running_variance, variance)):
        flat = add_helper(node, "CastLike", add_helper(node, "Reshape", batch_value, np.array([-1])), running_value)
        decayed = add_helper(node, "Mul", running_value, cast_like(momentum, running_value))
        results.append(
            add_helper(node, "Add", decayed, add_helper(node, "Mul", flat, cast_like(1 - momentum, running_value)))
        )
    builder.set_node_outputs(node, *results)


def _translate_deform_conv(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Translate DeformConv to deformable im2col (pumice::DeformColumns) and a GEMM with the weights."""
    add = builder.add_helper
    inputs = [builder.require_tensor(name) if name else None for name in node.inputs[:5]] + [None] * (
        5 - len(node.inputs)
    )
    x, w, offset, bias, mask = inputs
    if x is None or w is None or offset is None:
        raise graph_error("node", node.name, "expected x, weights and offsets, given fewer")
    sizes = [size for size in w.shape or () if size is not None]
    if len(sizes) != 4:
        reason = "weights of a rank other than 4, or of unknown sizes"
        builder.unsupported.append(f"node '{builder.get_node_path(node)}': operator DeformConv: {reason}")
        raise NodeRejectedError
    out_channels, channels, *kernel = sizes
    group = node.attributes.get("group", 1)
    if not isinstance(group, int) or group < 1 or out_channels % group:
        expected = f"attribute 'group': expected a divisor of {out_channels} channels"
        raise graph_error("node", node.name, f"{expected}, given {group!r}")
    conv_attributes: dict[str, Any] = {name: get_ints_attr(node, name) for name in ("strides", "pads", "dilations")}
    conv_attributes = {name: value for name, value in conv_attributes.items() if value is not None}
    conv_attributes["offset_group"] = node.attributes.get("offset_group", 1)
    operands = [x, offset] if mask is None else [x, offset, mask]
    kernel_shape = get_ints_attr(node, "kernel_shape") or kernel
    columns = add(node, "pumice::DeformColumns", *operands, kernel_shape=kernel_shape, **conv_attributes)
    spatial_sizes = add(node, "Shape", columns, start=2)
    batch = add(node, "Shape", columns, end=1)
    size = channels * int(np.prod(kernel))
    grouped = add(node, "Concat", batch, np.array([group, size]), spatial_sizes, axis=0)
    weights = add(node, "Reshape", w, np.array([group, out_channels // group, size]))
    sums = add(node, "MatMul", weights, add(node, "Reshape", columns, grouped))
    shape = add(node, "Concat", batch, np.array([out_channels]), add(node, "Shape", offset, start=2), axis=0)
    y = add(node, "Reshape", sums, shape)
    if bias is not None:
        y = add(node, "Add", y, add(node, "Reshape", bias, np.array([-1, 1, 1])))
    builder.set_values(node.outputs, (add(node, "Identity", y, output=node.outputs[0]),))


MISC_NODES: dict[str, Callable[[GraphBuilder, NodeRecipe], None]] = {
    "CastLike": _translate_cast_like,
    "BatchNormalization": _translate_batch_normalization,
    "DeformConv": _translate_deform_conv,
    "OneHot": _translate_one_hot,
}
