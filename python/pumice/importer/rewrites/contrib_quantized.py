"""Rewrite quantised operators that ONNX Runtime's quantiser and optimizer emit (com.microsoft) as ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable

from ..file.graph_recipe import Attribute, NodeRecipe, UnrepresentableError, get_number_attr, strip_trailing_empty
from .dynamic_lstm import rewrite_dynamic_lstm
from .node_writer import NodeWriter
from .rewrite_helpers import NodeRewrite, Nodes, RewriteScope, get_input

FLOAT = 1  # TensorProto.DataType


def _add_dequantize(writer: NodeWriter, first: int) -> str:
    """Add a DequantizeLinear for inputs `first` to `first + 2`: data, scale and zero point."""
    dequantize_inputs = [get_input(writer.node, first + i) for i in range(3)]
    return writer.add("DequantizeLinear", *strip_trailing_empty(dequantize_inputs))


def _finish_with_quantize(writer: NodeWriter, value: str, first: int) -> Nodes:
    """Finish with a QuantizeLinear. Inputs `first` and `first + 1` are its scale and zero point."""
    return writer.finish_with("QuantizeLinear", value, get_input(writer.node, first), get_input(writer.node, first + 1))


def _make_binary_rewrite(op: str) -> NodeRewrite:
    def rewrite(node: NodeRecipe, scope: RewriteScope) -> Nodes:
        writer = NodeWriter(node, scope)
        return _finish_with_quantize(writer, writer.add(op, _add_dequantize(writer, 0), _add_dequantize(writer, 3)), 6)

    return rewrite


def _make_unary_rewrite(op: str, *kept_attributes: str, rejected: tuple[str, ...] = ()) -> NodeRewrite:
    def rewrite(node: NodeRecipe, scope: RewriteScope) -> Nodes:
        writer = NodeWriter(node, scope)
        writer.reject_attributes(*rejected)
        attributes: dict[str, Attribute] = {
            name: node.attributes[name] for name in kept_attributes if name in node.attributes
        }
        return _finish_with_quantize(writer, writer.add(op, _add_dequantize(writer, 0), **attributes), 3)

    return rewrite


def _rewrite_qlinear_concat(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    writer = NodeWriter(node, scope)
    float_inputs = [_add_dequantize(writer, first) for first in range(2, len(node.inputs), 3)]
    return _finish_with_quantize(
        writer, writer.add("Concat", *float_inputs, axis=int(get_number_attr(node, "axis", 0))), 0
    )


def _rewrite_qlinear_where(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    writer = NodeWriter(node, scope)
    return _finish_with_quantize(
        writer, writer.add("Where", node.inputs[0], _add_dequantize(writer, 1), _add_dequantize(writer, 4)), 7
    )


def _rewrite_qlinear_softmax(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Rewrite QLinearSoftmax.

    Raise UnrepresentableError for the semantics before opset 13, which flatten the input to 2D, unless axis is -1.
    """
    axis = int(get_number_attr(node, "axis", -1))
    if get_number_attr(node, "opset", 13) < 13 and axis != -1:
        raise UnrepresentableError(f"axis={axis} of operator set {node.attributes['opset']}")
    writer = NodeWriter(node, scope)
    return _finish_with_quantize(writer, writer.add("Softmax", _add_dequantize(writer, 0), axis=axis), 3)


def _rewrite_qgemm(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Rewrite QGemm. Input c is int32 with the product of both input scales as its scale. Without an output scale the result is float."""
    writer = NodeWriter(node, scope)
    gemm_result = writer.add("Gemm", _add_dequantize(writer, 0), _add_dequantize(writer, 3), **node.attributes)
    if bias := get_input(node, 6):
        scale = writer.add("Mul", get_input(node, 1), get_input(node, 4))
        gemm_result = writer.add("Add", gemm_result, writer.add("Mul", writer.add("Cast", bias, to=FLOAT), scale))
    return (
        _finish_with_quantize(writer, gemm_result, 7)
        if get_input(node, 7)
        else writer.finish_with("Identity", gemm_result)
    )


def _finish_with_integer_gemm(writer: NodeWriter, a: list[str], b: list[str], bias: str) -> Nodes:
    """Finish with the float product of two quantised matrices, plus a bias. a, b: names of data, scale and zero point."""
    zeros = strip_trailing_empty([a[2], b[2]])
    integer_result = writer.add("Cast", writer.add("MatMulInteger", a[0], b[0], *zeros), to=FLOAT)
    scale = writer.add("Mul", a[1], b[1])
    if not bias:
        return writer.finish_with("Mul", integer_result, scale)
    return writer.finish_with("Add", writer.add("Mul", integer_result, scale), bias)


def _rewrite_matmul_integer_to_float(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = (get_input(node, i) for i in range(7))
    return _finish_with_integer_gemm(NodeWriter(node, scope), [a, a_scale, a_zero], [b, b_scale, b_zero], bias)


def _rewrite_dynamic_quantize_matmul(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    writer = NodeWriter(node, scope)
    a, b, b_scale, b_zero, bias = (get_input(node, i) for i in range(5))
    quantized_names = [scope.make_name(node, role) for role in ("a", "a scale", "a zero")]
    writer.nodes.append(NodeRecipe("DynamicQuantizeLinear", quantized_names[0], [a], quantized_names, {}))
    return _finish_with_integer_gemm(writer, quantized_names, [b, b_scale, b_zero], bias)


def _move_to_onnx_domain(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Rewrite as the ONNX operator with the same name, which now supports the same element types."""
    return [node._replace(domain="")]


_POOL = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")

QUANTIZED_NODES: dict[str, Callable[[NodeRecipe, RewriteScope], Nodes]] = {
    "DequantizeLinear": _move_to_onnx_domain,
    "DynamicQuantizeLSTM": rewrite_dynamic_lstm,
    "DynamicQuantizeMatMul": _rewrite_dynamic_quantize_matmul,
    "MatMulIntegerToFloat": _rewrite_matmul_integer_to_float,
    "QGemm": _rewrite_qgemm,
    "QLinearAdd": _make_binary_rewrite("Add"),
    "QLinearAveragePool": _make_unary_rewrite("AveragePool", *_POOL, rejected=("channels_last",)),
    "QLinearConcat": _rewrite_qlinear_concat,
    "QLinearGlobalAveragePool": _make_unary_rewrite("GlobalAveragePool", rejected=("channels_last",)),
    "QLinearLeakyRelu": _make_unary_rewrite("LeakyRelu", "alpha"),
    "QLinearMul": _make_binary_rewrite("Mul"),
    "QLinearSigmoid": _make_unary_rewrite("Sigmoid"),
    "QLinearSoftmax": _rewrite_qlinear_softmax,
    "QLinearWhere": _rewrite_qlinear_where,
    "QuantizeLinear": _move_to_onnx_domain,
}
