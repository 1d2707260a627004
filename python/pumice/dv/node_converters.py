"""Convert the nodes of a Graph to layers of the dv interface, by operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from .._pumice import Graph, Node
from . import commands
from .commands import Run
from .conv_pool_converters import (
    convert_batch_normalization,
    convert_convolution,
    convert_depth_to_space,
    convert_pool,
    convert_resize,
    has_post_op,
)
from .graph_converter import GraphConverter, require_convertible
from .layers import Layer, LayerWeights

_MAX_VECTOR_LENGTH = 65535  # limit of the 16-bit size fields of a fully connected command
_ACTIVATION_CODES = {  # actfunc in (convolution, fully connected) commands; None if the latter lack the activation
    "Tanh": (commands.ACT_TANH, 2),
    "Relu": (commands.ACT_LEAKY_RELU, 1),
    "LeakyRelu": (commands.ACT_LEAKY_RELU, 3),
    "Sigmoid": (commands.ACT_SIGMOID, 4),
    "PRelu": (commands.ACT_PRELU, None),
    "Elu": (commands.ACT_ELU, None),
    "Clip": (commands.ACT_RELU6, None),
}
_LRN = 0x503  # value of the lrn field: enabled, with the power function, scaled down by 2^5
_LRN_ATTRIBUTES = {"size": 5, "alpha": 1e-4, "beta": 0.75, "bias": 1.0}


def _make_copy_run(channels: int) -> Run:
    """Return a run that copies its input: a 1 x 1 average pooling."""
    return Run(m=channels, pool_enable=commands.POOL_AVERAGE, pool_size=(1, 1), pool_avg_param=1.0)


def _get_activation_slope(converter: GraphConverter, node: Node, layer: Layer | None) -> float:
    """Return the slope of LeakyRelu, 0 for others; store PRelu slopes in the layer. Raise NotConvertibleError for other parameters."""
    attributes = node.attributes
    if node.op == "LeakyRelu":
        return float(attributes.get("alpha", 0.01))
    if node.op == "Elu":
        require_convertible(attributes.get("alpha", 1.0) == 1, f"alpha {attributes.get('alpha')}, not 1")
    if node.op == "Clip":
        bounds = [
            float(converter.get_constant(node, i, "ends")) if converter.has_input(node, i) else None for i in (1, 2)
        ]
        require_convertible(bounds == [0, 6], f"from {bounds[0]} to {bounds[1]}, not from 0 to 6")
    if node.op == "PRelu":
        require_convertible(
            layer is not None and layer.weights, "it does not follow a convolution, whose weights would hold the slopes"
        )
        assert layer is not None and layer.weights is not None
        slopes, kernels = converter.get_constant(node, 1, "slopes"), layer.run.m
        has_valid_shape = slopes.size in (1, kernels) and slopes.shape[-3:] in (
            (1,),
            (1, 1),
            (1, 1, 1),
            (kernels, 1, 1),
        )
        require_convertible(has_valid_shape, f"slopes of shape {slopes.shape}, not one for each channel")
        layer.weights.slopes = np.broadcast_to(slopes.ravel(), (kernels,))
    return 0.0


def _convert_activation(converter: GraphConverter, node: Node) -> None:
    layer = converter.find_fusable_layer(node)
    if layer is not None and (layer.run.actfunc or layer.run.rectifi_en or layer.run.lrn):
        layer = None
    conv_code, fc_code = _ACTIVATION_CODES[node.op]
    if layer is not None and layer.is_fully_connected and fc_code is None:
        layer = None
    if layer is None or (node.op == "PRelu" and not layer.run.conv_enable):
        slope = _get_activation_slope(converter, node, None)
        source = converter.get_input_activations(node)
        converter.add_layer(node, source, source.shape, Run(m=source.shape[0], actfunc=conv_code, actfunc_param=slope))
        return
    layer.run.actfunc_param = _get_activation_slope(converter, node, layer)
    layer.run.actfunc = fc_code if layer.is_fully_connected and fc_code is not None else conv_code
    converter.fuse_node(node, layer)


def _convert_abs(converter: GraphConverter, node: Node) -> None:
    layer = converter.find_fusable_layer(node)
    if layer is None or layer.is_fully_connected or layer.run.lrn:
        source = converter.get_input_activations(node)
        layer = converter.add_layer(node, source, source.shape, _make_copy_run(source.shape[0]))
        layer.run.rectifi_en = 1
        return
    layer.run.rectifi_en = 1
    converter.fuse_node(node, layer)


def _convert_lrn(converter: GraphConverter, node: Node) -> None:
    lrn_attributes = {name: node.attributes.get(name, value) for name, value in _LRN_ATTRIBUTES.items()}
    require_convertible(
        all(math.isclose(lrn_attributes[name], value, rel_tol=1e-6) for name, value in _LRN_ATTRIBUTES.items()),
        f"{lrn_attributes}",
    )
    source = converter.get_input_activations(node)
    converter.add_layer(node, source, source.shape, Run(m=source.shape[0], lrn=_LRN))


def _fuse_bias(converter: GraphConverter, node: Node) -> bool:
    """Fuse the addition of a constant into the bias of the preceding GEMM. Return False if the node is not such an addition."""
    value = node.inputs[0]
    layer = None if value is None or value.constant is not None else converter.find_fusable_layer(node)
    if layer is None or not layer.is_fully_connected or layer.run.actfunc or layer.weights is None:
        return False
    bias = converter.get_constant(node, 1, "values added to a vector")
    require_convertible(bias.size == layer.run.m, f"values of shape {bias.shape}, not one for each output")
    layer.weights.bias = layer.weights.bias + bias.ravel()
    converter.fuse_node(node, layer)
    return True


def _convert_add(converter: GraphConverter, node: Node) -> None:
    require_convertible(len(node.inputs) == 2, f"{len(node.inputs)} inputs, not 2")
    if _fuse_bias(converter, node):
        return
    sources = [converter.get_input_activations(node, i) for i in range(2)]
    require_convertible(
        sources[0].shape == sources[1].shape, f"{sources[0].shape} and {sources[1].shape}, which differ"
    )
    for i in range(2):
        fused_layer, other = converter.find_fusable_layer(node, i), sources[1 - i]
        if fused_layer is None or fused_layer.is_fully_connected or fused_layer.addend or has_post_op(fused_layer):
            continue
        accumulates = fused_layer.run.conv_enable or fused_layer.run.pool_enable == commands.POOL_AVERAGE
        if accumulates and converter.find_producer_index(other) < converter.find_producer_index(sources[i]):
            fused_layer.addend = other
            converter.fuse_node(node, fused_layer)
            return
    layer = converter.add_layer(node, sources[0], sources[0].shape, _make_copy_run(sources[0].shape[0]))
    layer.addend = sources[1]


def _convert_concat(converter: GraphConverter, node: Node) -> None:
    concat_inputs = [converter.get_input_activations(node, i) for i in range(len(node.inputs))]
    axis = node.attributes["axis"]
    require_convertible(axis in (1, -3), f"axis {axis}, not the channels")
    spatial_shapes = {concat_input.shape[1:] for concat_input in concat_inputs}
    require_convertible(len(spatial_shapes) == 1, f"images of {', '.join(map(str, sorted(spatial_shapes)))}")
    uneven = [concat_input.shape[0] for concat_input in concat_inputs[:-1] if concat_input.shape[0] % 8]
    require_convertible(not uneven, f"{uneven} channels before others, which are not groups of 8")
    for i, concat_input in enumerate(concat_inputs):
        if not converter.can_concatenate(concat_input) or concat_input in concat_inputs[:i]:
            copy = converter.add_layer(node, concat_input, concat_input.shape, _make_copy_run(concat_input.shape[0]))
            concat_inputs[i] = copy.target
    converter.concatenate(node, concat_inputs)


def _convert_gemm(converter: GraphConverter, node: Node) -> None:
    source, matrix, attributes = (
        converter.get_input_activations(node),
        converter.get_constant(node, 1, "weights"),
        node.attributes,
    )
    is_plain_gemm = (
        not attributes.get("transA") and attributes.get("alpha", 1.0) == 1 and attributes.get("beta", 1.0) == 1
    )
    require_convertible(is_plain_gemm and matrix.ndim == 2, f"a product of {matrix.ndim} axes with {attributes}")
    values = matrix if attributes.get("transB") else matrix.T
    outputs, inputs = values.shape
    require_convertible(inputs == source.elements, f"weights for {inputs} of {source.elements} inputs")
    require_convertible(
        max(outputs, inputs) <= _MAX_VECTOR_LENGTH,
        f"{inputs} inputs and {outputs} outputs; vectors have at most {_MAX_VECTOR_LENGTH}",
    )
    bias = converter.get_constant(node, 2, "biases") if converter.has_input(node, 2) else np.zeros(1, np.float32)
    weights = LayerWeights(values.reshape(outputs, *source.shape), np.broadcast_to(bias.ravel(), (outputs,)))
    converter.add_layer(node, source, (outputs, 1, 1), Run(m=outputs), weights).is_fully_connected = True


def _convert_identity(converter: GraphConverter, node: Node) -> None:
    require_convertible(len(node.outputs) == 1, "a mask as a second output")
    converter.make_alias(node)


def _convert_reshape(converter: GraphConverter, node: Node) -> None:
    source, shape = converter.get_input_activations(node), node.outputs[0].shape
    is_flattening = shape is not None and len(shape) == 2 and shape[1] in (None, source.elements)
    if node.op == "Reshape":
        first_size = int(converter.get_constant(node, 1, "sizes")[0])
        is_flattening = is_flattening and first_size in (0, -1, converter.images)
    require_convertible(
        is_flattening and node.attributes.get("axis", 1) == 1,
        f"a shape of {shape} that is not (images, {source.elements})",
    )
    converter.make_alias(node)


def _convert_softmax(converter: GraphConverter, node: Node) -> None:
    require_convertible(converter.is_final_output(node), "not at the end, where the host computes it")
    converter.softmax_axes[node.outputs[0]] = node.attributes.get("axis", -1)
    converter.make_alias(node)


_CONVERTERS: Mapping[str, Callable[[GraphConverter, Node], None]] = {
    "Conv": convert_convolution,
    "ConvTranspose": convert_convolution,
    "DepthToSpace": convert_depth_to_space,
    "BatchNormalization": convert_batch_normalization,
    "MaxPool": convert_pool,
    "AveragePool": convert_pool,
    "GlobalMaxPool": convert_pool,
    "GlobalAveragePool": convert_pool,
    "Resize": convert_resize,
    "LRN": _convert_lrn,
    "Abs": _convert_abs,
    "Add": _convert_add,
    "Sum": _convert_add,
    "Concat": _convert_concat,
    "Gemm": _convert_gemm,
    "MatMul": _convert_gemm,
    "Identity": _convert_identity,
    "Dropout": _convert_identity,
    "Flatten": _convert_reshape,
    "Reshape": _convert_reshape,
    "Squeeze": _convert_reshape,
    "Softmax": _convert_softmax,
    **dict.fromkeys(_ACTIVATION_CODES, _convert_activation),
}


def convert_graph(graph: Graph, input_shape: Sequence[int] | None, images: int) -> GraphConverter:
    """Return the layers of a graph. Raise UnsupportedError listing every node that cannot be converted."""
    return GraphConverter(graph, input_shape, images, _CONVERTERS)
