"""Converters for the operators of a Graph that the dv interface supports."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from .._pumice import Graph, Node
from . import commands
from .commands import Run
from .conversion import Conversion, require
from .conversion_conv_pool import batch_normalization, convolution, depth_to_space, has_end, pool, upsample
from .layers import Layer, Weights

_MOST_VECTOR = 65535  # maximum vector length, because a fully connected command has 16-bit fields
_ACTIVATIONS = {  # codes in convolution and in fully connected commands; None if the latter have no such activation
    "Tanh": (commands.ACT_TANH, 2),
    "Relu": (commands.ACT_LEAKY_RELU, 1),
    "LeakyRelu": (commands.ACT_LEAKY_RELU, 3),
    "Sigmoid": (commands.ACT_SIGMOID, 4),
    "PRelu": (commands.ACT_PRELU, None),
    "Elu": (commands.ACT_ELU, None),
    "Clip": (commands.ACT_RELU6, None),
}
_LRN = 0x503  # normalization on, with the power function, down-scaled by 2^5
_LRN_ATTRIBUTES = {"size": 5, "alpha": 1e-4, "beta": 0.75, "bias": 1.0}


def _copying(channels: int) -> Run:
    """Return a run that copies its input: a 1 x 1 average pooling."""
    return Run(m=channels, pool_enable=commands.POOL_AVERAGE, pool_size=(1, 1), pool_avg_param=1.0)


def _slope(conversion: Conversion, node: Node, layer: Layer | None) -> float:
    """Return the slope of the node's activation; PRelu's slopes go to the layer's weights. Raise NoForm for unsupported parameters."""
    attributes = node.attributes
    if node.op == "LeakyRelu":
        return float(attributes.get("alpha", 0.01))
    if node.op == "Elu":
        require(attributes.get("alpha", 1.0) == 1, f"alpha {attributes.get('alpha')}, not 1")
    if node.op == "Clip":
        ends = [float(conversion.constant(node, i, "ends")) if conversion.has_input(node, i) else None for i in (1, 2)]
        require(ends == [0, 6], f"from {ends[0]} to {ends[1]}, not from 0 to 6")
    if node.op == "PRelu":
        require(layer is not None and layer.weights, "it follows no convolution, whose weights have the slopes")
        assert layer is not None and layer.weights is not None
        slopes, kernels = conversion.constant(node, 1, "slopes"), layer.run.m
        fits = slopes.size in (1, kernels) and slopes.shape[-3:] in ((1,), (1, 1), (1, 1, 1), (kernels, 1, 1))
        require(fits, f"slopes of shape {slopes.shape}, not one for each channel")
        layer.weights.slopes = np.broadcast_to(slopes.ravel(), (kernels,))
    return 0.0


def _activation(conversion: Conversion, node: Node) -> None:
    layer = conversion.open(node)
    if layer is not None and (layer.run.actfunc or layer.run.rectifi_en or layer.run.lrn):
        layer = None
    of_conv, of_full = _ACTIVATIONS[node.op]
    if layer is not None and layer.is_full and of_full is None:
        layer = None
    if layer is None or (node.op == "PRelu" and not layer.run.conv_enable):
        slope = _slope(conversion, node, None)
        source = conversion.source(node)
        conversion.add(node, source, source.shape, Run(m=source.shape[0], actfunc=of_conv, actfunc_param=slope))
        return
    layer.run.actfunc_param = _slope(conversion, node, layer)
    layer.run.actfunc = of_full if layer.is_full and of_full is not None else of_conv
    conversion.extend(node, layer)


def _absolute(conversion: Conversion, node: Node) -> None:
    layer = conversion.open(node)
    if layer is None or layer.is_full or layer.run.lrn:
        source = conversion.source(node)
        layer = conversion.add(node, source, source.shape, _copying(source.shape[0]))
        layer.run.rectifi_en = 1
        return
    layer.run.rectifi_en = 1
    conversion.extend(node, layer)


def _normalization(conversion: Conversion, node: Node) -> None:
    given = {name: node.attributes.get(name, value) for name, value in _LRN_ATTRIBUTES.items()}
    require(all(math.isclose(given[name], value, rel_tol=1e-6) for name, value in _LRN_ATTRIBUTES.items()), f"{given}")
    source = conversion.source(node)
    conversion.add(node, source, source.shape, Run(m=source.shape[0], lrn=_LRN))


def _bias(conversion: Conversion, node: Node) -> bool:
    """Fuse the addition of a constant into the bias of the preceding GEMM; return False if the node is anything else."""
    value = node.inputs[0]
    layer = None if value is None or value.constant is not None else conversion.open(node)
    if layer is None or not layer.is_full or layer.run.actfunc or layer.weights is None:
        return False
    bias = conversion.constant(node, 1, "values added to a vector")
    require(bias.size == layer.run.m, f"values of shape {bias.shape}, not one for each output")
    layer.weights.bias = layer.weights.bias + bias.ravel()
    conversion.extend(node, layer)
    return True


def _addition(conversion: Conversion, node: Node) -> None:
    require(len(node.inputs) == 2, f"{len(node.inputs)} inputs, not 2")
    if _bias(conversion, node):
        return
    sources = [conversion.source(node, i) for i in range(2)]
    require(sources[0].shape == sources[1].shape, f"{sources[0].shape} and {sources[1].shape}, which differ")
    for i in range(2):
        host, other = conversion.open(node, i), sources[1 - i]
        if host is None or host.is_full or host.added or has_end(host):
            continue
        sums = host.run.conv_enable or host.run.pool_enable == commands.POOL_AVERAGE
        if sums and conversion.made_by(other) < conversion.made_by(sources[i]):
            host.added = other
            conversion.extend(node, host)
            return
    layer = conversion.add(node, sources[0], sources[0].shape, _copying(sources[0].shape[0]))
    layer.added = sources[1]


def _concatenation(conversion: Conversion, node: Node) -> None:
    parts = [conversion.source(node, i) for i in range(len(node.inputs))]
    axis = node.attributes["axis"]
    require(axis in (1, -3), f"axis {axis}, not the channels")
    sides = {part.shape[1:] for part in parts}
    require(len(sides) == 1, f"images of {', '.join(map(str, sorted(sides)))}")
    uneven = [part.shape[0] for part in parts[:-1] if part.shape[0] % 8]
    require(not uneven, f"{uneven} channels before others, which are no groups of 8")
    for i, part in enumerate(parts):
        if not conversion.may_join(part) or part in parts[:i]:
            copy = conversion.add(node, part, part.shape, _copying(part.shape[0]))
            parts[i] = copy.target
    conversion.join(node, parts)


def _full(conversion: Conversion, node: Node) -> None:
    source, matrix, attributes = conversion.source(node), conversion.constant(node, 1, "weights"), node.attributes
    plain = not attributes.get("transA") and attributes.get("alpha", 1.0) == 1 and attributes.get("beta", 1.0) == 1
    require(plain and matrix.ndim == 2, f"a product of {matrix.ndim} axes with {attributes}")
    values = matrix if attributes.get("transB") else matrix.T
    outputs, inputs = values.shape
    require(inputs == source.elements, f"weights for {inputs} of {source.elements} inputs")
    require(
        max(outputs, inputs) <= _MOST_VECTOR,
        f"{inputs} inputs and {outputs} outputs; vectors have at most {_MOST_VECTOR}",
    )
    bias = conversion.constant(node, 2, "biases") if conversion.has_input(node, 2) else np.zeros(1, np.float32)
    weights = Weights(values.reshape(outputs, *source.shape), np.broadcast_to(bias.ravel(), (outputs,)))
    conversion.add(node, source, (outputs, 1, 1), Run(m=outputs), weights).is_full = True


def _same(conversion: Conversion, node: Node) -> None:
    require(len(node.outputs) == 1, "a mask as a second output")
    conversion.alias(node)


def _flat(conversion: Conversion, node: Node) -> None:
    source, shape = conversion.source(node), node.outputs[0].shape
    flat = shape is not None and len(shape) == 2 and shape[1] in (None, source.elements)
    if node.op == "Reshape":
        first = int(conversion.constant(node, 1, "sizes")[0])
        flat = flat and first in (0, -1, conversion.images)
    require(flat and node.attributes.get("axis", 1) == 1, f"a shape of {shape} that is not (images, {source.elements})")
    conversion.alias(node)


def _softmax(conversion: Conversion, node: Node) -> None:
    require(conversion.is_last(node), "elsewhere than at the end, where the host computes it")
    conversion.softmax_axes[node.outputs[0]] = node.attributes.get("axis", -1)
    conversion.alias(node)


_HANDLERS: Mapping[str, Callable[[Conversion, Node], None]] = {
    "Conv": convolution,
    "ConvTranspose": convolution,
    "DepthToSpace": depth_to_space,
    "BatchNormalization": batch_normalization,
    "MaxPool": pool,
    "AveragePool": pool,
    "GlobalMaxPool": pool,
    "GlobalAveragePool": pool,
    "Resize": upsample,
    "LRN": _normalization,
    "Abs": _absolute,
    "Add": _addition,
    "Sum": _addition,
    "Concat": _concatenation,
    "Gemm": _full,
    "MatMul": _full,
    "Identity": _same,
    "Dropout": _same,
    "Flatten": _flat,
    "Reshape": _flat,
    "Squeeze": _flat,
    "Softmax": _softmax,
    **dict.fromkeys(_ACTIVATIONS, _activation),
}


def converted(graph: Graph, input_shape: Sequence[int] | None, images: int) -> Conversion:
    """Return the layers of a graph. Raise UnsupportedError listing every node that cannot be converted."""
    return Conversion(graph, input_shape, images, _HANDLERS)
