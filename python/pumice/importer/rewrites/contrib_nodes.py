"""Rewrite fused operators that ONNX Runtime's optimizer emits (com.microsoft) as ONNX nodes."""

from __future__ import annotations

import numpy as np

from ..file.graph_recipe import Attribute, NodeRecipe, UnrepresentableError, get_number_attr, strip_trailing_empty
from .node_writer import NodeWriter
from .rewrite_helpers import NodeRewrite, Nodes, RewriteScope, get_input, make_constant_like_input


def _rewrite_gelu(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    return NodeWriter(node, scope).finish_with("Gelu", node.inputs[0])


def _rewrite_fast_gelu(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    writer = NodeWriter(node, scope)
    biased = writer.add("Add", *node.inputs) if get_input(node, 1) else node.inputs[0]
    return writer.finish_with("Gelu", biased, approximate="tanh")


def _rewrite_bias_gelu(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    writer = NodeWriter(node, scope)
    return writer.finish_with("Gelu", writer.add("Add", *node.inputs))


def _rewrite_quick_gelu(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    return NodeWriter(node, scope).finish_with("Swish", node.inputs[0], alpha=get_number_attr(node, "alpha", 1.702))


def _rewrite_fused_matmul(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    writer = NodeWriter(node, scope)
    writer.reject_attributes("transBatchA", "transBatchB")
    a = "...ji" if node.attributes.get("transA", 0) else "...ij"
    b = "...kj" if node.attributes.get("transB", 0) else "...jk"
    is_plain_matmul = (a, b) == ("...ij", "...jk")
    op, equation = ("MatMul", {}) if is_plain_matmul else ("Einsum", {"equation": f"{a},{b}->...ik"})
    alpha = get_number_attr(node, "alpha", 1.0)
    if alpha == 1.0:
        return writer.finish_with(op, *node.inputs, **equation)
    casts, scale = make_constant_like_input(node, scope, "alpha", alpha)
    writer.nodes += casts
    return writer.finish_with("Mul", writer.add(op, *node.inputs, **equation), scale)


def _finish_with_activation(writer: NodeWriter, value: str, parameters: list[float]) -> Nodes:
    """Finish with the node's activation, or with Identity if it has none. parameters: in ONNX Runtime's order.

    Raise UnrepresentableError if the activation is unsupported.
    """
    name = str(writer.node.attributes.get("activation", ""))
    if not name:
        return writer.finish_with("Identity", value)
    if name == "Clip":
        bounds = []
        for role, bound in zip(("least", "most"), parameters, strict=False):
            casts, bound_name = make_constant_like_input(writer.node, writer.scope, role, bound)
            writer.nodes += casts
            bounds.append(bound_name)
        return writer.finish_with("Clip", value, *bounds)
    names = {"LeakyRelu": ["alpha"], "HardSigmoid": ["alpha", "beta"], "Relu": [], "Sigmoid": [], "Tanh": []}.get(name)
    if names is None:
        raise UnrepresentableError(f"activation={name}")
    return writer.finish_with(name, value, **dict(zip(names, parameters, strict=False)))


def _drop_activation_attributes(node: NodeRecipe) -> dict[str, Attribute]:
    return {name: value for name, value in node.attributes.items() if not name.startswith("activation")}


def _rewrite_fused_conv(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    writer = NodeWriter(node, scope)
    activation_input = writer.add("Conv", *strip_trailing_empty(node.inputs[:3]), **_drop_activation_attributes(node))
    if residual := get_input(node, 3):
        activation_input = writer.add("Add", activation_input, residual)
    activation_parameters = node.attributes.get("activation_params", [])
    return _finish_with_activation(
        writer,
        activation_input,
        [float(parameter) for parameter in activation_parameters if isinstance(parameter, float)]
        if isinstance(activation_parameters, list)
        else [],
    )


def _rewrite_fused_gemm(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    writer = NodeWriter(node, scope)
    activation_input = writer.add("Gemm", *node.inputs, **_drop_activation_attributes(node))
    names = [f"activation_{name}" for name in ("alpha", "beta", "gamma")]
    return _finish_with_activation(
        writer, activation_input, [get_number_attr(node, name, 0.0) for name in names if name in node.attributes]
    )


def _rewrite_skip_layer_norm(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    writer = NodeWriter(node, scope)
    simplified = node.op == "SkipSimplifiedLayerNormalization"
    writer.reject_outputs(1, "mean", "inv_std_var")
    bias = get_input(node, 3 if simplified else 4)
    values = [*node.inputs[:2], bias] if bias else node.inputs[:2]
    total = writer.add_sum(values, node.outputs[3] if len(node.outputs) > 3 else "")
    epsilon = get_number_attr(node, "epsilon", 1e-12)
    if simplified:
        return writer.finish_with("RMSNormalization", total, node.inputs[2], axis=-1, epsilon=epsilon)
    beta = get_input(node, 3)
    return writer.finish_with("LayerNormalization", total, node.inputs[2], beta, axis=-1, epsilon=epsilon)


def _rewrite_simplified_layer_norm(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    writer = NodeWriter(node, scope)
    writer.reject_outputs(1, "inv_std_var")
    axis, epsilon = int(get_number_attr(node, "axis", -1)), get_number_attr(node, "epsilon", 1e-5)
    return writer.finish_with("RMSNormalization", *node.inputs, axis=axis, epsilon=epsilon)


def _rewrite_embed_layer_norm(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    writer = NodeWriter(node, scope)
    input_ids, segment_ids, word_embedding, position_embedding, segment_embedding, gamma, beta, mask, position_ids = (
        get_input(node, i) for i in range(9)
    )
    mask_index, embedding_sum = ([*node.outputs, "", ""])[1:3]
    if position_ids:
        position_vectors = writer.add("Gather", position_embedding, position_ids)
    else:
        zero, int_one = (scope.add_constant(node, f"constant.{value}", np.array(value, np.int64)) for value in (0, 1))
        count = writer.add("Gather", writer.add("Shape", input_ids), int_one)
        position_vectors = writer.add("Gather", position_embedding, writer.add("Range", zero, count, int_one))
    values = [writer.add("Gather", word_embedding, input_ids), position_vectors]
    if segment_ids:
        values.append(writer.add("Gather", segment_embedding, segment_ids))
    total = writer.add_sum(values, embedding_sum)
    if mask_index:
        if not mask or get_number_attr(node, "mask_index_type", 0) != 0:
            raise UnrepresentableError("the output 'mask_index' without a mask")
        axes = scope.add_constant(node, "axes", np.array([1], np.int64))
        writer.add_named(mask_index, "ReduceSum", mask, axes, keepdims=0)
    return writer.finish_with(
        "LayerNormalization", total, gamma, beta, axis=-1, epsilon=get_number_attr(node, "epsilon", 1e-12)
    )


FLOAT_NODES: dict[str, NodeRewrite] = {
    "BiasGelu": _rewrite_bias_gelu,
    "EmbedLayerNormalization": _rewrite_embed_layer_norm,
    "FastGelu": _rewrite_fast_gelu,
    "FusedConv": _rewrite_fused_conv,
    "FusedGemm": _rewrite_fused_gemm,
    "FusedMatMul": _rewrite_fused_matmul,
    "Gelu": _rewrite_gelu,
    "QuickGelu": _rewrite_quick_gelu,
    "SimplifiedLayerNormalization": _rewrite_simplified_layer_norm,
    "SkipLayerNormalization": _rewrite_skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _rewrite_skip_layer_norm,
}
