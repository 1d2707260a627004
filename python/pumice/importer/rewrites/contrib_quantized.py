"""Rewrite quantised operators emitted by ONNX Runtime's quantiser and optimizer as ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable

from ..file.recipe import Attribute, NodeRecipe, NotExpressible, get_number, strip_trailing_empty
from .dynamic_lstm import rewrite_dynamic_lstm
from .node_writer import NodeWriter
from .rewrite_helpers import Nodes, RewriteScope, Upgrade, get_input

FLOAT = 1  # TensorProto.DataType


def _dequantize(writer: NodeWriter, first: int) -> str:
    """Dequantise the tensor whose data, scale and zero point start at input `first`."""
    dequantize_inputs = [get_input(writer.node, first + i) for i in range(3)]
    return writer.add("DequantizeLinear", *strip_trailing_empty(dequantize_inputs))


def _quantize_last(writer: NodeWriter, value: str, first: int) -> Nodes:
    """Finish by quantising the value with the scale and zero point that start at input `first`."""
    return writer.finish_with("QuantizeLinear", value, get_input(writer.node, first), get_input(writer.node, first + 1))


def _make_binary_rewrite(op: str) -> Upgrade:
    def upgrade(node: NodeRecipe, scope: RewriteScope) -> Nodes:
        writer = NodeWriter(node, scope)
        return _quantize_last(writer, writer.add(op, _dequantize(writer, 0), _dequantize(writer, 3)), 6)

    return upgrade


def _make_unary_rewrite(op: str, *kept_attributes: str, rejected: tuple[str, ...] = ()) -> Upgrade:
    def upgrade(node: NodeRecipe, scope: RewriteScope) -> Nodes:
        writer = NodeWriter(node, scope)
        writer.reject_attributes(*rejected)
        attributes: dict[str, Attribute] = {
            name: node.attributes[name] for name in kept_attributes if name in node.attributes
        }
        return _quantize_last(writer, writer.add(op, _dequantize(writer, 0), **attributes), 3)

    return upgrade


def _concat(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    writer = NodeWriter(node, scope)
    float_inputs = [_dequantize(writer, first) for first in range(2, len(node.inputs), 3)]
    return _quantize_last(writer, writer.add("Concat", *float_inputs, axis=int(get_number(node, "axis", 0))), 0)


def _where(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    writer = NodeWriter(node, scope)
    return _quantize_last(
        writer, writer.add("Where", node.inputs[0], _dequantize(writer, 1), _dequantize(writer, 4)), 7
    )


def _softmax(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Rewrite QLinearSoftmax. Before opset 13 the input was flattened to 2D; then only the last axis is supported, else raise
    NotExpressible.
    """
    axis = int(get_number(node, "axis", -1))
    if get_number(node, "opset", 13) < 13 and axis != -1:
        raise NotExpressible(f"axis={axis} of operator set {node.attributes['opset']}")
    writer = NodeWriter(node, scope)
    return _quantize_last(writer, writer.add("Softmax", _dequantize(writer, 0), axis=axis), 3)


def _gemm(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Rewrite QGemm. c is int32, scaled by both input scales; without an output scale the result is float."""
    writer = NodeWriter(node, scope)
    gemm_result = writer.add("Gemm", _dequantize(writer, 0), _dequantize(writer, 3), **node.attributes)
    if bias := get_input(node, 6):
        scale = writer.add("Mul", get_input(node, 1), get_input(node, 4))
        gemm_result = writer.add("Add", gemm_result, writer.add("Mul", writer.add("Cast", bias, to=FLOAT), scale))
    return _quantize_last(writer, gemm_result, 7) if get_input(node, 7) else writer.finish_with("Identity", gemm_result)


def _integer_gemm(writer: NodeWriter, a: list[str], b: list[str], bias: str) -> Nodes:
    """Multiply two integer matrices, each with a scale and a zero point, into a float result."""
    zeros = strip_trailing_empty([a[2], b[2]])
    integer_result = writer.add("Cast", writer.add("MatMulInteger", a[0], b[0], *zeros), to=FLOAT)
    scale = writer.add("Mul", a[1], b[1])
    if not bias:
        return writer.finish_with("Mul", integer_result, scale)
    return writer.finish_with("Add", writer.add("Mul", integer_result, scale), bias)


def _matmul_integer_to_float(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = (get_input(node, i) for i in range(7))
    return _integer_gemm(NodeWriter(node, scope), [a, a_scale, a_zero], [b, b_scale, b_zero], bias)


def _dynamic_quantize_matmul(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    writer = NodeWriter(node, scope)
    a, b, b_scale, b_zero, bias = (get_input(node, i) for i in range(5))
    quantized_names = [scope.make_name(node, role) for role in ("a", "a scale", "a zero")]
    writer.nodes.append(NodeRecipe("DynamicQuantizeLinear", quantized_names[0], [a], quantized_names, {}))
    return _integer_gemm(writer, quantized_names, [b, b_scale, b_zero], bias)


def _keep_onnx_op(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Rewrite as the ONNX operator with the same name, which later adopted the contrib operator's element types."""
    return [node._replace(domain="")]


_POOL = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")

QUANTIZED_NODES: dict[str, Callable[[NodeRecipe, RewriteScope], Nodes]] = {
    "DequantizeLinear": _keep_onnx_op,
    "DynamicQuantizeLSTM": rewrite_dynamic_lstm,
    "DynamicQuantizeMatMul": _dynamic_quantize_matmul,
    "MatMulIntegerToFloat": _matmul_integer_to_float,
    "QGemm": _gemm,
    "QLinearAdd": _make_binary_rewrite("Add"),
    "QLinearAveragePool": _make_unary_rewrite("AveragePool", *_POOL, rejected=("channels_last",)),
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _make_unary_rewrite("GlobalAveragePool", rejected=("channels_last",)),
    "QLinearLeakyRelu": _make_unary_rewrite("LeakyRelu", "alpha"),
    "QLinearMul": _make_binary_rewrite("Mul"),
    "QLinearSigmoid": _make_unary_rewrite("Sigmoid"),
    "QLinearSoftmax": _softmax,
    "QLinearWhere": _where,
    "QuantizeLinear": _keep_onnx_op,
}
