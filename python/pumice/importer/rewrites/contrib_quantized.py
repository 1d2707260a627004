"""Rewrite quantised operators emitted by ONNX Runtime's quantiser and optimizer as ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable

from ..file.recipe import Attribute, NodeRecipe, NotExpressible, number, without_trailing_gaps
from .node_writer import Writer
from .dynamic_lstm import dynamic_lstm
from .rewrite_helpers import Nodes, Scope, Upgrade, input_of

FLOAT = 1  # TensorProto.DataType


def _real(writer: Writer, first: int) -> str:
    """Dequantise the tensor whose data, scale and zero point start at input `first`."""
    given = [input_of(writer.node, first + i) for i in range(3)]
    return writer.add("DequantizeLinear", *without_trailing_gaps(given))


def _quantized(writer: Writer, value: str, first: int) -> Nodes:
    """Finish by quantising the value with the scale and zero point that start at input `first`."""
    return writer.last("QuantizeLinear", value, input_of(writer.node, first), input_of(writer.node, first + 1))


def _of_two(op: str) -> Upgrade:
    def upgrade(node: NodeRecipe, scope: Scope) -> Nodes:
        writer = Writer(node, scope)
        return _quantized(writer, writer.add(op, _real(writer, 0), _real(writer, 3)), 6)

    return upgrade


def _of_one(op: str, *kept: str, refused: tuple[str, ...] = ()) -> Upgrade:
    def upgrade(node: NodeRecipe, scope: Scope) -> Nodes:
        writer = Writer(node, scope)
        writer.refuse(*refused)
        attributes: dict[str, Attribute] = {name: node.attributes[name] for name in kept if name in node.attributes}
        return _quantized(writer, writer.add(op, _real(writer, 0), **attributes), 3)

    return upgrade


def _concat(node: NodeRecipe, scope: Scope) -> Nodes:
    writer = Writer(node, scope)
    parts = [_real(writer, first) for first in range(2, len(node.inputs), 3)]
    return _quantized(writer, writer.add("Concat", *parts, axis=int(number(node, "axis", 0))), 0)


def _where(node: NodeRecipe, scope: Scope) -> Nodes:
    writer = Writer(node, scope)
    return _quantized(writer, writer.add("Where", node.inputs[0], _real(writer, 1), _real(writer, 4)), 7)


def _softmax(node: NodeRecipe, scope: Scope) -> Nodes:
    """Rewrite QLinearSoftmax. Before opset 13 the input was flattened to 2D; then only the last axis is supported, else raise
    NotExpressible.
    """
    axis = int(number(node, "axis", -1))
    if number(node, "opset", 13) < 13 and axis != -1:
        raise NotExpressible(f"axis={axis} of operator set {node.attributes['opset']}")
    writer = Writer(node, scope)
    return _quantized(writer, writer.add("Softmax", _real(writer, 0), axis=axis), 3)


def _gemm(node: NodeRecipe, scope: Scope) -> Nodes:
    """Rewrite QGemm. c is int32, scaled by both input scales; without an output scale the result is float."""
    writer = Writer(node, scope)
    product = writer.add("Gemm", _real(writer, 0), _real(writer, 3), **node.attributes)
    if bias := input_of(node, 6):
        scale = writer.add("Mul", input_of(node, 1), input_of(node, 4))
        product = writer.add("Add", product, writer.add("Mul", writer.add("Cast", bias, to=FLOAT), scale))
    return _quantized(writer, product, 7) if input_of(node, 7) else writer.last("Identity", product)


def _product(writer: Writer, a: list[str], b: list[str], bias: str) -> Nodes:
    """Multiply two integer matrices, each with a scale and a zero point, into a float result."""
    zeros = without_trailing_gaps([a[2], b[2]])
    whole = writer.add("Cast", writer.add("MatMulInteger", a[0], b[0], *zeros), to=FLOAT)
    scale = writer.add("Mul", a[1], b[1])
    if not bias:
        return writer.last("Mul", whole, scale)
    return writer.last("Add", writer.add("Mul", whole, scale), bias)


def _integers_to_float(node: NodeRecipe, scope: Scope) -> Nodes:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = (input_of(node, i) for i in range(7))
    return _product(Writer(node, scope), [a, a_scale, a_zero], [b, b_scale, b_zero], bias)


def _dynamic_product(node: NodeRecipe, scope: Scope) -> Nodes:
    writer = Writer(node, scope)
    a, b, b_scale, b_zero, bias = (input_of(node, i) for i in range(5))
    parts = [scope.fresh(node, role) for role in ("a", "a scale", "a zero")]
    writer.nodes.append(NodeRecipe("DynamicQuantizeLinear", parts[0], [a], parts, {}))
    return _product(writer, parts, [b, b_scale, b_zero], bias)


def _of_onnx(node: NodeRecipe, scope: Scope) -> Nodes:
    """Rewrite as the ONNX operator with the same name, which later adopted the contrib operator's element types."""
    return [node._replace(domain="")]


_POOL = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")

QUANTIZED_NODES: dict[str, Callable[[NodeRecipe, Scope], Nodes]] = {
    "DequantizeLinear": _of_onnx,
    "DynamicQuantizeLSTM": dynamic_lstm,
    "DynamicQuantizeMatMul": _dynamic_product,
    "MatMulIntegerToFloat": _integers_to_float,
    "QGemm": _gemm,
    "QLinearAdd": _of_two("Add"),
    "QLinearAveragePool": _of_one("AveragePool", *_POOL, refused=("channels_last",)),
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _of_one("GlobalAveragePool", refused=("channels_last",)),
    "QLinearLeakyRelu": _of_one("LeakyRelu", "alpha"),
    "QLinearMul": _of_two("Mul"),
    "QLinearSigmoid": _of_one("Sigmoid"),
    "QLinearSoftmax": _softmax,
    "QLinearWhere": _where,
    "QuantizeLinear": _of_onnx,
}
