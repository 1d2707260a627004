"""Converters for the convolutions and poolings in a Graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._pumice import Node
from . import commands
from .commands import Run
from .conversion import Conversion, NoForm, require
from .layers import Layer, Weights, extent, sides

_MOST_KERNEL, _MOST_FIELD, _MOST_BEFORE = 7, 255, 127


def _pads(node: Node, sizes: Sequence[int], reach: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Return the padding (top, left, bottom, right), which is computed from the sizes for auto_pad SAME_UPPER and SAME_LOWER."""
    mode = node.attributes.get("auto_pad", "NOTSET")
    if not mode.startswith("SAME"):
        return list((node.attributes.get("pads") if mode == "NOTSET" else None) or [0] * 4)
    total = [max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in zip(sizes, reach, strides, strict=True)]
    less, more = [n // 2 for n in total], [n - n // 2 for n in total]
    return less + more if mode == "SAME_UPPER" else more + less


def _check_fields(pads: Sequence[int], most_before: int, others: Sequence[int]) -> None:
    fits = min(pads) >= 0 and max(pads[:2]) <= most_before and max(*pads[2:], *others) <= _MOST_FIELD
    limits = f"at most {most_before} before and {_MOST_FIELD} after, and {_MOST_FIELD} for all else"
    require(fits, f"padding {list(pads)} beside sizes {list(others)}; there are {limits}")


def convolution(conversion: Conversion, node: Node) -> None:
    source, values = conversion.source(node), conversion.constant(node, 1, "weights")
    require(values.ndim == 4, f"weights of {values.ndim} axes, not 4")
    attributes, transposed = node.attributes, node.op == "ConvTranspose"
    group, channels, (ky, kx) = attributes.get("group", 1), source.shape[0], values.shape[2:]
    strides, dilations = attributes.get("strides") or [1, 1], attributes.get("dilations") or [1, 1]
    require(max(kx, ky) <= _MOST_KERNEL, f"a kernel of {kx} x {ky}; packed weights have at most 7 x 7")
    kernels = values.shape[1] * group if transposed else values.shape[0]
    depthwise = group > 1
    grouping = (
        f"{group} groups of {channels} channels and {kernels} kernels; there are depthwise ones of as many of all"
    )
    require(not depthwise or group == channels == kernels, grouping)
    reach = ((ky - 1) * dilations[0] + 1, (kx - 1) * dilations[1] + 1)
    sizes, steps = source.shape[1:], strides
    if transposed:
        settled = not attributes.get("output_shape") and attributes.get("auto_pad", "NOTSET") == "NOTSET"
        require(settled, "an output shape in place of padding")
        values = (values if depthwise else values.transpose(1, 0, 2, 3))[:, :, ::-1, ::-1]
        own, extra = attributes.get("pads") or [0] * 4, attributes.get("output_padding") or [0, 0]
        pads = [reach[i % 2] - 1 - own[i] + (extra[i - 2] if i >= 2 else 0) for i in range(4)]
        sizes, steps = ((sizes[0] - 1) * strides[0] + 1, (sizes[1] - 1) * strides[1] + 1), [1, 1]
    else:
        pads = _pads(node, sizes, reach, strides)
    _check_fields(pads, _MOST_BEFORE, [*strides, *dilations])
    height, width = (extent(sizes[i], pads[i], pads[i + 2], reach[i], steps[i]) for i in range(2))
    bias = conversion.constant(node, 2, "biases") if conversion.has_input(node, 2) else np.zeros(kernels, np.float32)
    run = Run(
        m=kernels,
        conv_enable=1 | depthwise << 1 | transposed << 2,
        p=(kx, ky),
        conv_pad=sides(pads),
        conv_stride=(strides[1], strides[0]),
        conv_dilation=(dilations[1], dilations[0]),
    )
    conversion.add(node, source, (kernels, height, width), run, Weights(values, bias))


def depth_to_space(conversion: Conversion, node: Node) -> None:
    """Add a deconvolution with 0/1 weights that moves each channel to its pixel position."""
    source, attributes = conversion.source(node), node.attributes
    channels, height, width = source.shape
    side = attributes["blocksize"]
    require(side <= _MOST_KERNEL, f"blocks of {side} x {side}; packed weights have at most 7 x 7")
    made = channels // (side * side)
    places = np.arange(channels).reshape((made, side, side) if attributes.get("mode") == "CRD" else (side, side, made))
    if attributes.get("mode") != "CRD":
        places = places.transpose(2, 0, 1)
    values = (places[:, None] == np.arange(channels)[:, None, None]).astype(np.float32)
    run = Run(
        m=made,
        conv_enable=commands.DECONVOLUTION,
        p=(side, side),
        conv_pad=(side - 1,) * 4,
        conv_stride=(side, side),
    )
    weights = Weights(values[:, :, ::-1, ::-1], np.zeros(made, np.float32))
    conversion.add(node, source, (made, height * side, width * side), run, weights)


def has_end(layer: Layer) -> bool:
    """Return whether the layer's run has a stage after accumulation: max pooling, upsampling, an activation, Abs or LRN."""
    run = layer.run
    return bool(run.pool_enable in (commands.POOL_MAX, commands.UPSAMPLE) or run.actfunc or run.rectifi_en or run.lrn)


def batch_normalization(conversion: Conversion, node: Node) -> None:
    layer = conversion.open(node)
    if layer is None or not layer.run.conv_enable or layer.weights is None or layer.added or has_end(layer):
        raise NoForm("it follows no convolution that it can become part of")
    scale, shift, mean, variance = (conversion.constant(node, i, "statistics") for i in range(1, 5))
    factor = scale / np.sqrt(variance + np.float32(node.attributes.get("epsilon", 1e-5)))
    layer.weights.values = layer.weights.values * factor[:, None, None, None]
    layer.weights.bias = (layer.weights.bias - mean) * factor + shift
    conversion.extend(node, layer)


def _rises(layer: Layer) -> bool:
    """Return whether the layer's activation is monotonically increasing, so that it commutes with max pooling."""
    slopes = layer.weights.slopes if layer.weights else None
    return bool(slopes is None or (slopes >= 0).all()) and layer.run.actfunc_param >= 0


def pool(conversion: Conversion, node: Node) -> None:
    source, attributes = conversion.source(node), node.attributes
    require(len(node.outputs) == 1, "indices as a second output")
    average, (channels, *sizes) = "Average" in node.op, source.shape
    kernel = list(sizes) if node.op.startswith("Global") else attributes["kernel_shape"]
    strides, dilations = attributes.get("strides") or [1, 1], attributes.get("dilations") or [1, 1]
    require(len(kernel) == 2 and dilations == [1, 1], f"a window of {kernel} with dilations {dilations}")
    pads = _pads(node, sizes, kernel, strides)
    counted = not average or not any(pads) or attributes.get("count_include_pad", 0) == 1
    require(counted, "an average without the padding that it covers")
    shape = [extent(sizes[i], pads[i], pads[i + 2], kernel[i], strides[i]) for i in range(2)]
    for i in range(2 if attributes.get("ceil_mode", 0) else 0):
        begin = shape[i] * strides[i]  # start of the additional window that ceil_mode may add
        if begin - strides[i] + kernel[i] < sizes[i] + pads[i] + pads[i + 2] and begin < sizes[i] + pads[i]:
            require(not average, "an average that passes the end (ceil_mode)")
            pads[i + 2] = begin + kernel[i] - sizes[i] - pads[i]
            shape[i] += 1
    _check_fields(pads, _MOST_FIELD, [*kernel, *strides])
    run = Run(
        m=channels,
        pool_enable=commands.POOL_AVERAGE if average else commands.POOL_MAX,
        pool_size=(kernel[1], kernel[0]),
        pool_stride=(strides[1], strides[0]),
        pool_pad=sides(pads),
        pool_avg_param=1 / (kernel[0] * kernel[1]) if average else 0.0,
    )
    _move(conversion, node, run, (shape[0], shape[1]), joins=not average)


def _move(conversion: Conversion, node: Node, run: Run, shape: tuple[int, int], joins: bool) -> None:
    """Add a pooling or upsampling: fuse it into the preceding convolution's run if possible, else add a layer."""
    source, layer = conversion.source(node), conversion.open(node)
    made = (source.shape[0], *shape)
    takes = layer is not None and layer.run.conv_enable and not layer.run.pool_enable and not layer.run.rectifi_en
    if layer is None or not joins or not takes or not _rises(layer):
        conversion.add(node, source, made, run)
        return
    for name in ("pool_enable", "pool_size", "pool_stride", "pool_pad"):
        setattr(layer.run, name, getattr(run, name))
    conversion.extend(node, layer, made)


def upsample(conversion: Conversion, node: Node) -> None:
    source, attributes = conversion.source(node), node.attributes
    nearest = attributes.get("mode", "nearest") == "nearest"
    places = (
        attributes.get("coordinate_transformation_mode", "half_pixel"),
        attributes.get("nearest_mode", "round_prefer_floor"),
    )
    known = [("asymmetric", "floor"), ("asymmetric", "round_prefer_floor"), ("half_pixel", "round_prefer_floor")]
    require(nearest and places in known, f"other than each pixel twice: {attributes}")
    channels, height, width = source.shape
    sized = conversion.has_input(node, 3)
    given = conversion.constant(node, 3 if sized else 2, "sizes").tolist()
    wanted = [channels, 2 * height, 2 * width] if sized else [1, 2, 2]
    require(
        given[1:] == wanted and (sized or given[0] == 1),
        f"{'sizes' if sized else 'scales'} {given} in place of {wanted}",
    )
    _move(conversion, node, Run(m=channels, pool_enable=commands.UPSAMPLE), (2 * height, 2 * width), joins=True)
