"""Convert convolution and pooling nodes to layers of the dv interface."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._pumice import Node
from . import commands
from .commands import Run
from .graph_converter import GraphConverter, NotConvertibleError, require_convertible
from .layers import Layer, LayerWeights, compute_output_size, to_dv_padding

_MAX_KERNEL_SIZE, _MAX_FIELD, _MAX_PAD_BEFORE = 7, 255, 127


def _compute_pads(node: Node, sizes: Sequence[int], window: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Return a node's padding (top, left, bottom, right); for auto_pad SAME_UPPER and SAME_LOWER compute it from the sizes."""
    mode = node.attributes.get("auto_pad", "NOTSET")
    if not mode.startswith("SAME"):
        return list((node.attributes.get("pads") if mode == "NOTSET" else None) or [0] * 4)
    total = [max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in zip(sizes, window, strides, strict=True)]
    smaller, larger = [n // 2 for n in total], [n - n // 2 for n in total]
    return smaller + larger if mode == "SAME_UPPER" else larger + smaller


def _check_field_limits(pads: Sequence[int], max_before: int, sizes: Sequence[int]) -> None:
    fits = min(pads) >= 0 and max(pads[:2]) <= max_before and max(*pads[2:], *sizes) <= _MAX_FIELD
    limits = f"at most {max_before} before and {_MAX_FIELD} after, and {_MAX_FIELD} for all else"
    require_convertible(fits, f"padding {list(pads)} for sizes {list(sizes)}; the limits are {limits}")


def convert_convolution(converter: GraphConverter, node: Node) -> None:
    source, values = converter.get_input_activations(node), converter.get_constant(node, 1, "weights")
    require_convertible(values.ndim == 4, f"weights of {values.ndim} axes, not 4")
    attributes, transposed = node.attributes, node.op == "ConvTranspose"
    group, channels, (ky, kx) = attributes.get("group", 1), source.shape[0], values.shape[2:]
    strides, dilations = attributes.get("strides") or [1, 1], attributes.get("dilations") or [1, 1]
    require_convertible(max(kx, ky) <= _MAX_KERNEL_SIZE, f"a kernel of {kx} x {ky}; packed weights have at most 7 x 7")
    kernels = values.shape[1] * group if transposed else values.shape[0]
    depthwise = group > 1
    grouping = (
        f"{group} groups of {channels} channels and {kernels} kernels; depthwise convolutions need as many of each"
    )
    require_convertible(not depthwise or group == channels == kernels, grouping)
    window = ((ky - 1) * dilations[0] + 1, (kx - 1) * dilations[1] + 1)
    sizes, effective_strides = source.shape[1:], strides
    if transposed:
        is_supported = not attributes.get("output_shape") and attributes.get("auto_pad", "NOTSET") == "NOTSET"
        require_convertible(is_supported, "an output shape in place of padding")
        values = (values if depthwise else values.transpose(1, 0, 2, 3))[:, :, ::-1, ::-1]
        onnx_pads, output_padding = attributes.get("pads") or [0] * 4, attributes.get("output_padding") or [0, 0]
        pads = [window[i % 2] - 1 - onnx_pads[i] + (output_padding[i - 2] if i >= 2 else 0) for i in range(4)]
        sizes, effective_strides = ((sizes[0] - 1) * strides[0] + 1, (sizes[1] - 1) * strides[1] + 1), [1, 1]
    else:
        pads = _compute_pads(node, sizes, window, strides)
    _check_field_limits(pads, _MAX_PAD_BEFORE, [*strides, *dilations])
    height, width = (
        compute_output_size(sizes[i], pads[i], pads[i + 2], window[i], effective_strides[i]) for i in range(2)
    )
    bias = converter.get_constant(node, 2, "biases") if converter.has_input(node, 2) else np.zeros(kernels, np.float32)
    run = Run(
        m=kernels,
        conv_enable=1 | depthwise << 1 | transposed << 2,
        p=(kx, ky),
        conv_pad=to_dv_padding(pads),
        conv_stride=(strides[1], strides[0]),
        conv_dilation=(dilations[1], dilations[0]),
    )
    converter.add_layer(node, source, (kernels, height, width), run, LayerWeights(values, bias))


def convert_depth_to_space(converter: GraphConverter, node: Node) -> None:
    """Convert DepthToSpace to a deconvolution whose 0/1 weights move each channel to its pixel position."""
    source, attributes = converter.get_input_activations(node), node.attributes
    channels, height, width = source.shape
    block_size = attributes["blocksize"]
    require_convertible(
        block_size <= _MAX_KERNEL_SIZE, f"blocks of {block_size} x {block_size}; packed weights have at most 7 x 7"
    )
    out_channels = channels // (block_size * block_size)
    source_channels = np.arange(channels).reshape(
        (out_channels, block_size, block_size)
        if attributes.get("mode") == "CRD"
        else (block_size, block_size, out_channels)
    )
    if attributes.get("mode") != "CRD":
        source_channels = source_channels.transpose(2, 0, 1)
    values = (source_channels[:, None] == np.arange(channels)[:, None, None]).astype(np.float32)
    run = Run(
        m=out_channels,
        conv_enable=commands.DECONVOLUTION,
        p=(block_size, block_size),
        conv_pad=(block_size - 1,) * 4,
        conv_stride=(block_size, block_size),
    )
    weights = LayerWeights(values[:, :, ::-1, ::-1], np.zeros(out_channels, np.float32))
    converter.add_layer(node, source, (out_channels, height * block_size, width * block_size), run, weights)


def has_post_op(layer: Layer) -> bool:
    """Return whether the layer's run has a stage after accumulation: max pooling, upsampling, an activation, Abs or LRN."""
    run = layer.run
    return bool(run.pool_enable in (commands.POOL_MAX, commands.UPSAMPLE) or run.actfunc or run.rectifi_en or run.lrn)


def convert_batch_normalization(converter: GraphConverter, node: Node) -> None:
    layer = converter.find_fusable_layer(node)
    if layer is None or not layer.run.conv_enable or layer.weights is None or layer.addend or has_post_op(layer):
        raise NotConvertibleError("it does not follow a convolution that it can be fused into")
    scale, shift, mean, variance = (converter.get_constant(node, i, "statistics") for i in range(1, 5))
    factor = scale / np.sqrt(variance + np.float32(node.attributes.get("epsilon", 1e-5)))
    layer.weights.values = layer.weights.values * factor[:, None, None, None]
    layer.weights.bias = (layer.weights.bias - mean) * factor + shift
    converter.fuse_node(node, layer)


def _is_monotonic(layer: Layer) -> bool:
    """Return whether the layer's activation is monotonically increasing, so that it commutes with max pooling."""
    slopes = layer.weights.slopes if layer.weights else None
    return bool(slopes is None or (slopes >= 0).all()) and layer.run.actfunc_param >= 0


def convert_pool(converter: GraphConverter, node: Node) -> None:
    source, attributes = converter.get_input_activations(node), node.attributes
    require_convertible(len(node.outputs) == 1, "indices as a second output")
    average, (channels, *sizes) = "Average" in node.op, source.shape
    kernel = list(sizes) if node.op.startswith("Global") else attributes["kernel_shape"]
    strides, dilations = attributes.get("strides") or [1, 1], attributes.get("dilations") or [1, 1]
    require_convertible(len(kernel) == 2 and dilations == [1, 1], f"a window of {kernel} with dilations {dilations}")
    pads = _compute_pads(node, sizes, kernel, strides)
    counts_padding = not average or not any(pads) or attributes.get("count_include_pad", 0) == 1
    require_convertible(counts_padding, "an average that excludes the padding")
    shape = [compute_output_size(sizes[i], pads[i], pads[i + 2], kernel[i], strides[i]) for i in range(2)]
    for i in range(2 if attributes.get("ceil_mode", 0) else 0):
        begin = shape[i] * strides[i]  # start of the last window, which ceil_mode may add
        if begin - strides[i] + kernel[i] < sizes[i] + pads[i] + pads[i + 2] and begin < sizes[i] + pads[i]:
            require_convertible(not average, "an average beyond the end (ceil_mode)")
            pads[i + 2] = begin + kernel[i] - sizes[i] - pads[i]
            shape[i] += 1
    _check_field_limits(pads, _MAX_FIELD, [*kernel, *strides])
    run = Run(
        m=channels,
        pool_enable=commands.POOL_AVERAGE if average else commands.POOL_MAX,
        pool_size=(kernel[1], kernel[0]),
        pool_stride=(strides[1], strides[0]),
        pool_pad=to_dv_padding(pads),
        pool_avg_param=1 / (kernel[0] * kernel[1]) if average else 0.0,
    )
    _add_or_fuse_pool(converter, node, run, (shape[0], shape[1]), can_fuse=not average)


def _add_or_fuse_pool(converter: GraphConverter, node: Node, run: Run, shape: tuple[int, int], can_fuse: bool) -> None:
    """Fuse a pooling or upsampling into the run of the preceding convolution if possible, else add a layer."""
    source, layer = converter.get_input_activations(node), converter.find_fusable_layer(node)
    output_shape = (source.shape[0], *shape)
    accepts_pooling = (
        layer is not None and layer.run.conv_enable and not layer.run.pool_enable and not layer.run.rectifi_en
    )
    if layer is None or not can_fuse or not accepts_pooling or not _is_monotonic(layer):
        converter.add_layer(node, source, output_shape, run)
        return
    for name in ("pool_enable", "pool_size", "pool_stride", "pool_pad"):
        setattr(layer.run, name, getattr(run, name))
    converter.fuse_node(node, layer, output_shape)


def convert_resize(converter: GraphConverter, node: Node) -> None:
    source, attributes = converter.get_input_activations(node), node.attributes
    nearest = attributes.get("mode", "nearest") == "nearest"
    modes = (
        attributes.get("coordinate_transformation_mode", "half_pixel"),
        attributes.get("nearest_mode", "round_prefer_floor"),
    )
    supported_modes = [
        ("asymmetric", "floor"),
        ("asymmetric", "round_prefer_floor"),
        ("half_pixel", "round_prefer_floor"),
    ]
    require_convertible(nearest and modes in supported_modes, f"other than repeating each pixel twice: {attributes}")
    channels, height, width = source.shape
    has_sizes = converter.has_input(node, 3)
    requested = converter.get_constant(node, 3 if has_sizes else 2, "sizes").tolist()
    expected = [channels, 2 * height, 2 * width] if has_sizes else [1, 2, 2]
    require_convertible(
        requested[1:] == expected and (has_sizes or requested[0] == 1),
        f"{'sizes' if has_sizes else 'scales'} {requested} in place of {expected}",
    )
    _add_or_fuse_pool(
        converter, node, Run(m=channels, pool_enable=commands.UPSAMPLE), (2 * height, 2 * width), can_fuse=True
    )
