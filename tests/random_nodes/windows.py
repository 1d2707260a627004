"""Operators with windows and sampling: convolution, pooling, resizing, grid sampling."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from random_nodes.maker import Array, Data, Maker, Size, SkipError, Value
from random_nodes.numerics import REAL
from random_nodes.oracle import OneNode
from random_nodes.table import makes


def image(
    m: Maker, axes: int, channels: int | None = None, least: int = 1, dtypes: Any = REAL, **options: Any
) -> Value:
    """Return [batch, channels, ...] with that many spatial axes."""

    def fits(v: Value) -> bool:
        return (
            v.least > 0
            and all(min(size) >= least for size in v.sizes[2:])
            and (channels is None or set(v.sizes[1]) == {channels})
        )

    if m.chance(0.6):
        return m.pick(dtypes, 2 + axes, 2 + axes, test=fits, low=-60, high=60, **options)
    sizes: list[Size] = [m.size(), *m.fixed(channels or m.one([1, 2, 3, 4, 8]))]
    sizes += [m.size() if least == 1 else m.fixed(m.one([4, 5, 8]))[0] for _ in range(axes)]
    return m.pick(dtypes, sizes=sizes, nonempty=True, low=-60, high=60, test=fits, **options)


def window(m: Maker, x: Value, dilated: bool = True, padded: bool = True, pools: bool = False) -> dict[str, Any]:
    axes = x.rank - 2
    given: dict[str, Any] = {"kernel_shape": [], "pads": None, "strides": None, "dilations": None}
    strides = [m.one([1, 1, 2, 3]) for _ in range(axes)]
    dilations = [m.one([1, 1, 1, 2]) if dilated else 1 for _ in range(axes)]
    begins, ends = [], []
    for k in range(axes):
        least = min(x.sizes[2 + k])
        size = m.one([one for one in (1, 2, 3, 3, 5) if (one - 1) * dilations[k] + 1 <= least + 1] or [1])
        given["kernel_shape"].append(size)
        most = min(size - 1, 2) if padded else 0
        begins.append(m.whole(0, most))
        ends.append(m.whole(0, most))
        if (size - 1) * dilations[k] + 1 > least + begins[k] + ends[k]:
            raise SkipError("a kernel larger than its input")
    if any(strides[k] > 1 for k in range(axes)):
        given["strides"] = strides
    if any(one > 1 for one in dilations):
        given["dilations"] = dilations
    # If the stride exceeds the window, SAME_UPPER padding is negative by its formula, and implementations of pooling
    # differ.
    narrow = not pools or all(stride <= size for stride, size in zip(strides, given["kernel_shape"], strict=True))
    if m.chance(0.15) and padded and given["dilations"] is None and narrow:
        given["auto_pad"] = m.one(["SAME_UPPER", "SAME_LOWER", "VALID"])
        if given["auto_pad"] == "VALID" and any(s > min(x.sizes[2 + k]) for k, s in enumerate(given["kernel_shape"])):
            raise SkipError("a kernel larger than its input")
    elif any(begins) or any(ends):
        given["pads"] = [*begins, *ends]
    return given


def filters(m: Maker, dtype: str, sizes: list[int], **options: Any) -> Value:
    """Return filters: mostly constant, else an input or computed."""
    kind = m.random.random()
    if kind < 0.6:
        return m.leaf(dtype, m.fixed(*sizes), -2, 2, constant=True, **options)
    if kind < 0.8:
        return m.leaf(dtype, m.fixed(*sizes), -2, 2, constant=False, **options)
    order = [int(k) for k in m.random.permutation(len(sizes))]
    turned = m.leaf(dtype, m.fixed(*[sizes[k] for k in order]), -2, 2, constant=False, **options)
    back = [order.index(k) for k in range(len(sizes))]
    return m.node("Transpose", turned, perm=back)[0]


@makes("Conv")
def convolution(m: Maker, op: str) -> None:
    x = image(m, m.one([1, 2, 2, 2, 3]))
    if len(set(x.sizes[1])) > 1:
        raise SkipError("channels that differ from call to call")
    channels = x.sizes[1][0]
    groups = m.one([one for one in (1, 1, 1, 2, channels) if channels % one == 0])
    outputs = groups * m.one([1, 2, 3, 4])
    given = window(m, x)
    w = filters(m, x.dtype, [outputs, channels // groups, *given["kernel_shape"]])
    b = m.leaf(x.dtype, m.fixed(outputs)) if m.chance(0.5) else None
    if m.chance(0.2):
        given["kernel_shape"] = None
    m.node(op, x, w, b, group=groups if groups > 1 else None, **given)


@makes("ConvTranspose")
def transposed(m: Maker, op: str) -> None:
    x = image(m, m.one([1, 2, 2]), dtypes=("float32", "float32", "float16"))
    if len(set(x.sizes[1])) > 1:
        raise SkipError("channels that differ from call to call")
    channels, axes = x.sizes[1][0], x.rank - 2
    groups = m.one([one for one in (1, 1, 2, channels) if channels % one == 0])
    outputs = m.one([1, 2, 4])
    kernel = [m.one([1, 2, 3]) for _ in range(axes)]
    strides = [m.one([1, 2, 3]) for _ in range(axes)]
    given: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
    if m.chance(0.4):
        given["pads"] = [m.whole(0, min(1, size - 1)) for size in (*kernel, *kernel)]
    if m.chance(0.3):
        given["output_padding"] = [m.whole(0, stride - 1) for stride in strides]
    if m.chance(0.2):
        given["dilations"] = [m.one([1, 2]) for _ in range(axes)]
    w = filters(m, x.dtype, [channels, outputs, *kernel])
    b = m.leaf(x.dtype, m.fixed(outputs * groups)) if m.chance(0.5) else None
    m.node(op, x, w, b, group=groups if groups > 1 else None, **given)


@makes("MaxPool AveragePool LpPool")
def pooling(m: Maker, op: str) -> None:
    x = image(m, m.one([1, 2, 2, 3]), exact=op == "MaxPool")
    given = window(m, x, dilated=op == "MaxPool" or m.opset >= 19, pools=True)
    if m.chance(0.3) and "auto_pad" not in given and op != "LpPool":
        given["ceil_mode"] = 1
    if op == "AveragePool" and m.chance(0.4):
        given["count_include_pad"] = 1
    if op == "LpPool":
        given["p"] = m.one([1, 2, 3])
    outputs = 2 if op == "MaxPool" and m.chance(0.3) else 1
    m.node(op, x, outputs=outputs, exact=True if op == "MaxPool" else None, **given)


@makes("GlobalAveragePool GlobalMaxPool GlobalLpPool")
def whole_pooling(m: Maker, op: str) -> None:
    x = image(m, m.one([1, 2, 3]))
    m.node(op, x, p=m.one([None, 1, 3]) if op == "GlobalLpPool" else None)


@makes("MaxUnpool")
def unpooling(m: Maker, op: str) -> None:
    x = image(m, 2, least=2, dtypes=("float32",), exact=True)
    if any(size % 2 for sizes in x.sizes[2:] for size in sizes):
        raise SkipError("odd sizes")
    values, places = m.node("MaxPool", x, outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    m.node(op, values, places, kernel_shape=[2, 2], strides=[2, 2])


@makes("Col2Im")
def columns(m: Maker, op: str) -> None:
    high, wide, kernel = m.one([3, 4, 5]), m.one([3, 4]), [m.one([1, 2, 3]), m.one([1, 2])]
    channels = m.one([1, 2])
    blocks = (high - kernel[0] + 1) * (wide - kernel[1] + 1)
    x = m.pick(("float32", "float16"), sizes=[m.size(), *m.fixed(channels * kernel[0] * kernel[1], blocks)])
    m.node(op, x, m.constant(np.array([high, wide])), m.constant(np.array(kernel)))


@makes("Resize")
def resize(m: Maker, op: str) -> None:
    mode = m.one(["nearest", "linear", "linear", "cubic"])
    x = image(m, 2, dtypes=("float32", "float32", "float16", "uint8") if mode == "nearest" else ("float32",))
    given: dict[str, Any] = {"mode": mode}
    given["coordinate_transformation_mode"] = m.one(
        [None, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
    )
    if mode == "nearest":
        given["nearest_mode"] = m.one([None, "floor", "ceil", "round_prefer_ceil"])
    if mode == "cubic" and m.chance(0.4):
        given.update(cubic_coeff_a=-0.5, exclude_outside=m.one([None, 1]))
    if mode != "nearest" and m.chance(0.2):
        given["antialias"] = 1
    axes = None
    if m.chance(0.4):
        axes = m.one([[2, 3], [3, 2], [3, 2]])
        given["axes"] = axes
    if m.chance(0.5):
        scales = [m.one([0.5, 1.0, 2.0, 1.5, 3.0]) for _ in range(2)]
        inputs = [m.constant(np.array(scales if axes else [1.0, 1.0, *scales], np.float32))]
        m.node(op, x, None, *inputs, **given)
    else:
        sizes = [m.one([1, 2, 3, 4, 7]) for _ in range(2)]
        rows = [sizes if axes else [*x.data[k].shape[:2], *sizes] for k in range(m.calls)]
        m.node(op, x, None, None, m.lists_of(rows), **given)


@makes("GridSample")
def grid_sample(m: Maker, op: str) -> None:
    x = image(m, 2, dtypes=("float32",))
    grid = m.leaf("float32", [x.sizes[0], m.size(), m.size(), *m.fixed(2)], -1.3, 1.3, exact=False)
    mode = (
        m.one([None, "linear", "nearest", "cubic"])
        if m.opset >= 20
        else m.one([None, "bilinear", "nearest", "bicubic"])
    )
    m.node(op, x, grid, mode=mode, padding_mode=m.one([None, "border", "reflection"]), align_corners=m.one([None, 1]))


@makes("AffineGrid")
def affine_grid(m: Maker, op: str) -> None:
    batch = m.whole(1, 3)
    theta = m.pick("float32", sizes=m.fixed(batch, 2, 3), low=-6, high=6)
    size = m.constant(np.array([batch, 2, m.one([2, 3]), m.one([2, 4])]))
    m.node(op, theta, size, align_corners=m.one([None, 1]))


@makes("RoiAlign MaxRoiPool")
def regions(m: Maker, op: str) -> None:
    x = image(m, 2, least=4, dtypes=("float32",), exact=op == "MaxRoiPool")
    count = m.one([1, 2, 3])
    corners = m.array("float32", [count, 2], 0, 2, True)
    rois = np.concatenate([corners, corners + m.array("float32", [count, 2], 1, 2, True)], axis=1)
    images = min(x.sizes[0])
    if op == "RoiAlign":
        batch = m.constant(m.random.integers(0, images, count))
        m.node(
            op, x, m.constant(rois), batch,
            output_height=m.one([1, 2]), output_width=m.one([1, 3]), sampling_ratio=m.one([1, 2]),
            mode=m.one([None, "avg"]), coordinate_transformation_mode=m.one([None, "output_half_pixel"]),
        )  # fmt: skip
    else:
        whole = np.concatenate([m.random.integers(0, images, (count, 1)), np.round(rois)], axis=1).astype(np.float32)
        m.node(op, x, m.constant(whole), pooled_shape=m.one([[1, 1], [2, 2]]))


# ---- quantised


def small(m: Maker, dtype: str, sizes: list[Any] | None = None, low_rank: int = 2, high_rank: int = 4) -> Value:
    return m.pick(dtype, low_rank, high_rank, sizes=sizes)


def zero_point(m: Maker, dtype: str, optional: bool = True) -> Value | None:
    if optional and m.chance(0.3):
        return None
    return m.constant(np.array(m.whole(0, 4) if dtype == "uint8" else m.whole(-3, 3), dtype))


@makes("MatMulInteger")
def matmul_integer(m: Maker, op: str) -> None:
    a = small(m, m.one(["uint8", "int8"]), None, 2, 3)
    b = small(m, m.one(["uint8", "int8"]), [a.sizes[-1], m.size()])
    za = zero_point(m, a.dtype)
    zb = zero_point(m, b.dtype) if za else None

    def expected(given: dict[str, Data], _: list[Data]) -> list[Data]:
        x = given[a.name].astype(np.int64) - (given[za.name] if za else 0)
        y = given[b.name].astype(np.int64) - (given[zb.name] if zb else 0)
        return [np.matmul(x, y).astype(np.int32)]

    m.node(op, a, b, za, zb, expected=expected)


def whole_convolution(
    m: Maker, x: Value, w: Value, attributes: dict[str, Any], zx: Value | None, zw: Value | None
) -> Any:
    """Return an oracle of an integer convolution through float32, in which integers of this size are exact."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], **{k: v for k, v in attributes.items() if v is not None})
    by: list[OneNode] = []

    def expected(given: dict[str, Data]) -> Array:
        one = given[x.name].astype(np.float32) - (given[zx.name].astype(np.float32) if zx else 0)
        other = given[w.name].astype(np.float32) - (given[zw.name].astype(np.float32) if zw else 0)
        if not by:
            by.append(OneNode(node, ["x", "w"], [one, other], m.opset))
        return by[0]([one, other])[0].astype(np.int64)

    return expected


def integer_image(m: Maker, dtype: str) -> tuple[Value, Value, dict[str, Any]]:
    x = image(m, 2, dtypes=(dtype,))
    if len(set(x.sizes[1])) > 1:
        raise SkipError("channels that differ from call to call")
    channels = x.sizes[1][0]
    given = window(m, x)
    groups = m.one([one for one in (1, 1, channels) if channels % one == 0])
    given["group"] = groups if groups > 1 else None
    w = filters(m, m.one(["uint8", "int8"]), [groups * m.one([1, 2, 4]), channels // groups, *given["kernel_shape"]])
    return x, w, given


@makes("ConvInteger")
def convolution_integer(m: Maker, op: str) -> None:
    x, w, given = integer_image(m, m.one(["uint8", "int8"]))
    zx = zero_point(m, x.dtype)
    zw = zero_point(m, w.dtype) if zx else None
    product = whole_convolution(m, x, w, given, zx, zw)
    m.node(op, x, w, zx, zw, expected=lambda data, _: [product(data).astype(np.int32)], **given)


def scale(m: Maker) -> Value:
    return m.constant(np.array(m.one([0.25, 0.5, 1.0, 0.125]), np.float32))


def requantised(product: Array, scales: list[Array], zero: Array) -> Array:
    a, b, y = (float(one) for one in scales)
    ends = np.iinfo(zero.dtype)
    return np.clip(np.rint(product * (a * b / y)) + int(zero), ends.min, ends.max).astype(zero.dtype)


@makes("QLinearMatMul")
def qlinear_matmul(m: Maker, op: str) -> None:
    a = small(m, m.one(["uint8", "int8"]), None, 2, 3)
    b = small(m, m.one(["uint8", "int8"]), [a.sizes[-1], m.size()])
    y_dtype = a.dtype
    scales = [scale(m) for _ in range(3)]
    za, zb, zy = (zero_point(m, kind, False) for kind in (a.dtype, b.dtype, y_dtype))
    assert za and zb and zy

    def expected(given: dict[str, Data], _: list[Data]) -> list[Data]:
        x = given[a.name].astype(np.int64) - int(za.data[0])
        y = given[b.name].astype(np.int64) - int(zb.data[0])
        return [requantised(np.matmul(x, y), [one.data[0] for one in scales], zy.data[0])]

    m.node(op, a, scales[0], za, b, scales[1], zb, scales[2], zy, expected=expected)


@makes("QLinearConv")
def qlinear_convolution(m: Maker, op: str) -> None:
    x, w, given = integer_image(m, m.one(["uint8", "int8"]))
    scales = [scale(m) for _ in range(3)]
    zx, zw, zy = (zero_point(m, kind, False) for kind in (x.dtype, w.dtype, x.dtype))
    b = m.leaf("int32", [w.sizes[0]], constant=True) if m.chance(0.5) else None
    product = whole_convolution(m, x, w, given, zx, zw)
    assert zx and zw and zy

    def expected(data: dict[str, Data], _: list[Data]) -> list[Data]:
        total = product(data) + (data[b.name].reshape(1, -1, 1, 1) if b else 0)
        return [requantised(total, [one.data[0] for one in scales], zy.data[0])]

    m.node(op, x, scales[0], zx, w, scales[1], zw, scales[2], zy, b, expected=expected, **given)


@makes("QuantizeLinear DequantizeLinear")
def linear(m: Maker, op: str) -> None:
    kind = m.one(["uint8", "int8", "int8", "uint16", "int16"] if m.opset >= 21 else ["uint8", "int8"])
    down = op == "QuantizeLinear"
    x = m.pick("float32" if down else kind, 1, 4, exact=True)
    attributes: dict[str, Any] = {}
    sizes: list[Size] = []
    if m.chance(0.5) and x.rank > 1:
        axis = m.whole(0, x.rank - 1)
        attributes["axis"] = axis - x.rank if m.chance(0.3) else axis
        sizes = [x.sizes[axis]]
    numbers = [
        np.asarray(m.random.choice([0.25, 0.5, 1.0, 0.1], [size[k] for size in sizes]), np.float32)
        for k in range(m.calls)
    ]
    scales = m.constant(numbers[0]) if len({s.shape for s in numbers}) == 1 and m.chance(0.7) else m.input(numbers)
    zero = (
        m.pick(kind, sizes=sizes, low=-4 if kind[0] == "i" else 0, high=4)
        if m.chance(0.7) or (down and kind != "uint8")
        else None
    )
    m.node(op, x, scales, zero, exact=True, **attributes)


@makes("DynamicQuantizeLinear")
def dynamic(m: Maker, op: str) -> None:
    x = m.pick("float32", 1, 3, exact=True, nonempty=True)
    if any(not one.any() for one in x.data):
        raise SkipError("zeros, whose scale is 0 by ONNX's text and another one by each executor")
    m.node(op, x, outputs=3, exact=False)
