"""Rewrite operators of ONNX Runtime's com.microsoft domain, as emitted by its optimizer, as ONNX nodes."""

from __future__ import annotations

import numpy as np

from ..file.recipe import Attribute, NodeRecipe, NotExpressible, number, without_trailing_gaps
from .node_writer import Writer
from .rewrite_helpers import Nodes, Scope, Upgrade, input_of, like_input


def _gelu(node: NodeRecipe, scope: Scope) -> Nodes:
    return Writer(node, scope).last("Gelu", node.inputs[0])


def _fast_gelu(node: NodeRecipe, scope: Scope) -> Nodes:
    writer = Writer(node, scope)
    biased = writer.add("Add", *node.inputs) if input_of(node, 1) else node.inputs[0]
    return writer.last("Gelu", biased, approximate="tanh")


def _bias_gelu(node: NodeRecipe, scope: Scope) -> Nodes:
    writer = Writer(node, scope)
    return writer.last("Gelu", writer.add("Add", *node.inputs))


def _quick_gelu(node: NodeRecipe, scope: Scope) -> Nodes:
    return Writer(node, scope).last("Swish", node.inputs[0], alpha=number(node, "alpha", 1.702))


def _fused_matmul(node: NodeRecipe, scope: Scope) -> Nodes:
    writer = Writer(node, scope)
    writer.refuse("transBatchA", "transBatchB")
    a = "...ji" if node.attributes.get("transA", 0) else "...ij"
    b = "...kj" if node.attributes.get("transB", 0) else "...jk"
    plain = (a, b) == ("...ij", "...jk")
    op, equation = ("MatMul", {}) if plain else ("Einsum", {"equation": f"{a},{b}->...ik"})
    alpha = number(node, "alpha", 1.0)
    if alpha == 1.0:
        return writer.last(op, *node.inputs, **equation)
    casts, scale = like_input(node, scope, "alpha", alpha)
    writer.nodes += casts
    return writer.last("Mul", writer.add(op, *node.inputs, **equation), scale)


def _activated(writer: Writer, value: str, parameters: list[float]) -> Nodes:
    """Append the node's activation, if any; `parameters` are in ONNX Runtime's order.

    Raise NotExpressible if it is unsupported.
    """
    name = str(writer.node.attributes.get("activation", ""))
    if not name:
        return writer.last("Identity", value)
    if name == "Clip":
        bounds = []
        for role, bound in zip(("least", "most"), parameters, strict=False):
            casts, made = like_input(writer.node, writer.scope, role, bound)
            writer.nodes += casts
            bounds.append(made)
        return writer.last("Clip", value, *bounds)
    names = {"LeakyRelu": ["alpha"], "HardSigmoid": ["alpha", "beta"], "Relu": [], "Sigmoid": [], "Tanh": []}.get(name)
    if names is None:
        raise NotExpressible(f"activation={name}")
    return writer.last(name, value, **dict(zip(names, parameters, strict=False)))


def _kept(node: NodeRecipe) -> dict[str, Attribute]:
    return {name: value for name, value in node.attributes.items() if not name.startswith("activation")}


def _fused_conv(node: NodeRecipe, scope: Scope) -> Nodes:
    writer = Writer(node, scope)
    made = writer.add("Conv", *without_trailing_gaps(node.inputs[:3]), **_kept(node))
    if more := input_of(node, 3):
        made = writer.add("Add", made, more)
    given = node.attributes.get("activation_params", [])
    return _activated(
        writer, made, [float(one) for one in given if isinstance(one, float)] if isinstance(given, list) else []
    )


def _fused_gemm(node: NodeRecipe, scope: Scope) -> Nodes:
    writer = Writer(node, scope)
    made = writer.add("Gemm", *node.inputs, **_kept(node))
    names = [f"activation_{name}" for name in ("alpha", "beta", "gamma")]
    return _activated(writer, made, [number(node, name, 0.0) for name in names if name in node.attributes])


def _skip_norm(node: NodeRecipe, scope: Scope) -> Nodes:
    writer = Writer(node, scope)
    simplified = node.op == "SkipSimplifiedLayerNormalization"
    writer.refuse_outputs(1, "mean", "inv_std_var")
    bias = input_of(node, 3 if simplified else 4)
    values = [*node.inputs[:2], bias] if bias else node.inputs[:2]
    total = writer.sum_of(values, node.outputs[3] if len(node.outputs) > 3 else "")
    epsilon = number(node, "epsilon", 1e-12)
    if simplified:
        return writer.last("RMSNormalization", total, node.inputs[2], axis=-1, epsilon=epsilon)
    beta = input_of(node, 3)
    return writer.last("LayerNormalization", total, node.inputs[2], beta, axis=-1, epsilon=epsilon)


def _simplified_norm(node: NodeRecipe, scope: Scope) -> Nodes:
    writer = Writer(node, scope)
    writer.refuse_outputs(1, "inv_std_var")
    axis, epsilon = int(number(node, "axis", -1)), number(node, "epsilon", 1e-5)
    return writer.last("RMSNormalization", *node.inputs, axis=axis, epsilon=epsilon)


def _embed_norm(node: NodeRecipe, scope: Scope) -> Nodes:
    writer = Writer(node, scope)
    ids, segments, words, places, segment_words, gamma, beta, mask, given = (input_of(node, i) for i in range(9))
    mask_index, whole = ([*node.outputs, "", ""])[1:3]
    if given:
        place = writer.add("Gather", places, given)
    else:
        zero, one = (scope.constant(node, f"constant.{value}", np.array(value, np.int64)) for value in (0, 1))
        count = writer.add("Gather", writer.add("Shape", ids), one)
        place = writer.add("Gather", places, writer.add("Range", zero, count, one))
    values = [writer.add("Gather", words, ids), place]
    if segments:
        values.append(writer.add("Gather", segment_words, segments))
    total = writer.sum_of(values, whole)
    if mask_index:
        if not mask or number(node, "mask_index_type", 0) != 0:
            raise NotExpressible("the output 'mask_index' without a mask")
        axes = scope.constant(node, "axes", np.array([1], np.int64))
        writer.make(mask_index, "ReduceSum", mask, axes, keepdims=0)
    return writer.last("LayerNormalization", total, gamma, beta, axis=-1, epsilon=number(node, "epsilon", 1e-12))


FLOAT_NODES: dict[str, Upgrade] = {
    "BiasGelu": _bias_gelu,
    "EmbedLayerNormalization": _embed_norm,
    "FastGelu": _fast_gelu,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "Gelu": _gelu,
    "QuickGelu": _quick_gelu,
    "SimplifiedLayerNormalization": _simplified_norm,
    "SkipLayerNormalization": _skip_norm,
    "SkipSimplifiedLayerNormalization": _skip_norm,
}
