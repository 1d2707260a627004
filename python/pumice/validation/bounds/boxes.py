"""Rules of NMS, ROI pooling and deformable convolution."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.element_types import Array
from .bounded import Bounded
from .registry import Call, Undecided, rule
from .gemm_conv import contracted, known
from .float_types import FLOAT32

_NEAR = 1e-5  # areas and their quotients are computed in float32


def _corners(boxes: Array, centred: bool) -> Array:
    """Return the lower and upper corners, [boxes, 4]."""
    if centred:
        x, y, w, h = boxes.T
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], -1)
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    return np.concatenate([low, high], -1)


class _Boxes:
    """Box corners in one batch item, the error of each box, and whether its sides and area are exact in float32."""

    def __init__(self, value: Array, reach: Array, centred: bool) -> None:
        self.corners = _corners(value, centred)
        self.off = np.max(reach, axis=-1, initial=0.0) * (1.5 if centred else 1.0)
        self.sides = self.corners[:, 2:] - self.corners[:, :2]
        self.areas = self.sides[:, 0] * self.sides[:, 1]
        held = [_is_held(one).all(-1) for one in (self.corners, self.sides)]
        self.exact = (self.off == 0) & held[0] & held[1] & _is_held(self.areas)

    def overlaps(self, box: int, others: list[int]) -> tuple[Array, Array]:
        """Return the smallest and largest IoU that a kernel may compute for a box and others."""
        here, there = self.corners[box], self.corners[others]
        shared = np.minimum(here[2:], there[:, 2:]) - np.maximum(here[:2], there[:, :2])
        off = self.off[box] + self.off[others]
        ends = []
        with np.errstate(all="ignore"):
            for sign in (-1.0, 1.0):
                common = np.prod(np.maximum(shared + sign * off[:, None], 0), axis=-1)
                areas = [
                    np.prod(np.maximum(self.sides[i] - sign * 2 * _column(self.off[i]), 0), axis=-1)
                    for i in (box, others)
                ]
                both = areas[0] + areas[1] - common
                found = (common > 0) & (both > 0) & (areas[0] > 0) & (areas[1] > 0)
                # An area that may be 0 gives no upper bound.
                ends.append(np.where(found, common / both, 0.0 if sign < 0 else np.where(common > 0, np.inf, 0.0)))
        both = self.areas[box] + self.areas[others] - common
        exact = self.exact[box] & self.exact[others] & _is_held(shared).all(-1) & _is_held(common)
        exact = exact & _is_held(self.areas[box] + self.areas[others]) & _is_held(both)
        low, high = (np.where(exact, FLOAT32.rounded(one), one) for one in ends)  # pm_divide rounds correctly
        return low - np.where(exact, 0.0, _NEAR), high + np.where(exact, 0.0, _NEAR)


def _column(off: Array) -> Array:
    return np.asarray(off)[..., None]


def _is_held(value: Array) -> Array:
    """Return a mask of the numbers that float32 represents exactly."""
    return np.asarray(FLOAT32.rounded(value) == value)


@rule("NonMaxSuppression")
def _suppression(call: Call) -> list[Any]:
    """Run NMS per class; raise Undecided if rounding may change the selection."""
    boxes, scores = call.input(0), call.input(1)
    most, overlap, least = int(call.number(2, 0)[0]), call.number(3, 0.0), call.number(4, -np.inf)
    reach, centred = call.types.reach, bool(call.attribute("center_point_box", 0))
    images = [_Boxes(boxes.value[i], reach(boxes.errors()[i]), centred) for i in range(boxes.shape[0])]
    found: list[list[int]] = []
    for image, of_class in np.ndindex(*scores.shape[:2]):
        row, error = scores.value[image, of_class], reach(scores.errors()[image, of_class])
        kept: list[int] = []
        for box in _candidates(row, error, *least) if most > 0 else []:
            if len(kept) >= most:
                break
            low, high = images[image].overlaps(box, kept)
            if (low > overlap[0] + overlap[1]).any():
                continue
            if (high > overlap[0] - overlap[1]).any():
                raise Undecided("NonMaxSuppression of boxes that overlap about as much as they may")
            kept.append(box)
        found += [[int(image), int(of_class), box] for box in kept]
    return [Bounded(np.array(found, np.int64).reshape(-1, 3), None, np.int64)]


def _candidates(row: Array, error: Array, least: float, off: float) -> list[int]:
    """Return the boxes above the score threshold, by descending score. Raise Undecided if rounding may change the set
    or order.
    """
    may = row + error > least - off
    if least == -np.inf:
        may = np.ones(row.shape, bool)
    elif (may & ~(row - error > least + off)).any():
        raise Undecided("NonMaxSuppression of scores that are too close to be told apart")
    order = np.argsort(-row, kind="stable")
    order = order[may[order]]
    gaps, widths = -np.diff(row[order]), error[order][1:] + error[order][:-1]
    if ((gaps <= widths) & (widths > 0)).any():
        raise Undecided("NonMaxSuppression of scores that are too close to be told apart")
    return [int(box) for box in order]


# ---- sampling


def _bilinear(size: int, at: Array) -> tuple[Array, Array, Array, Array]:
    """Return both neighbours along an axis, the upper one's weight, and whether the position is inside. Borders clamp."""
    held = np.maximum(at, 0)
    low = np.minimum(held.astype(int), size - 1)
    high = np.minimum(low + 1, size - 1)
    share = np.where(low >= size - 1, 0.0, held - low)
    return low, high, share, (at >= -1.0) & (at <= size)


@rule("RoiAlign")
def _roi_align(call: Call) -> list[Any]:
    x, rois, images = call.input(0), call.input(1), call.exact(2)
    rows, columns = call.attribute("output_height", 1), call.attribute("output_width", 1)
    scale, ratio = call.attribute("spatial_scale", 1.0), call.attribute("sampling_ratio", 0)
    mode = str(
        call.attribute("coordinate_transformation_mode", "half_pixel" if call.opset >= 16 else "output_half_pixel")
    )
    half = mode == "half_pixel"
    shape = (rois.shape[0], x.shape[1], rows, columns)
    value, error = np.zeros(shape), np.zeros(shape)
    height, width = x.shape[2:]
    unit = call.types.accumulation(x.dtype).unit
    for n in range(rois.shape[0]):
        x0, y0, x1, y1 = rois.value[n] * scale - (0.5 if half else 0.0)
        spans = [y1 - y0, x1 - x0] if half else [max(y1 - y0, 1.0), max(x1 - x0, 1.0)]
        steps = [span / count for span, count in zip(spans, (rows, columns), strict=True)]
        counts = [int(ratio) if ratio > 0 else int(np.ceil(step - _NEAR)) for step in steps]
        if ratio <= 0 and any(abs(step - round(step)) < _NEAR * max(abs(step), 1) for step in steps):
            raise Undecided("RoiAlign with a number of samples that rounding may turn")
        at = [
            begin + step * (np.arange(size)[:, None] + (np.arange(count) + 0.5) / max(count, 1))
            for begin, step, size, count in zip((y0, x0), steps, (rows, columns), counts, strict=True)
        ]
        shaken = 2 * float(np.max(rois.errors()[n], initial=0.0)) * scale + 16 * unit * (
            abs(y1) + abs(x1) + height + width
        )
        made = _pooled(call, x, int(images[n]), at[0], at[1], shaken)
        value[n], error[n] = made
    return [Bounded(value, known(error), x.dtype)]


def _pooled(call: Call, x: Bounded, image: int, ys: Array, xs: Array, shaken: float) -> tuple[Array, Array]:
    """Return the mean of the samples at ys [rows, count] and xs [columns, count], or their largest weighted neighbour."""
    height, width = x.shape[2:]
    top, bottom, dy, in_y = _bilinear(height, ys)
    left, right, dx, in_x = _bilinear(width, xs)
    inside = (in_y[:, :, None, None] & in_x[None, None]).astype(float)
    parts, sizes, moved = [], [], []
    for y_at, wy in ((top, 1 - dy), (bottom, dy)):
        for x_at, wx in ((left, 1 - dx), (right, dx)):
            weight = wy[:, :, None, None] * wx[None, None] * inside
            pick = (slice(None), y_at[:, :, None, None], x_at[None, None])
            parts.append(x.value[image][pick] * weight)
            sizes.append(np.abs(x.value[image][pick]))
            moved.append(x.errors()[image][pick] * weight)
    count = ys.shape[1] * xs.shape[1]
    spread = sum(sizes) * shaken
    unit = call.types.sum_factor(4 * count + 8, x.dtype)
    if str(call.attribute("mode", "avg")) == "max":
        stacked = np.max(parts, axis=0)
        worst = spread + np.max(moved, axis=0) + np.max(np.abs(parts), axis=0) * unit
        return np.max(stacked, axis=(2, 4)), np.max(worst, axis=(2, 4))
    own = sum(np.abs(part) for part in parts) * unit + spread + sum(moved)
    return np.sum(sum(parts), axis=(2, 4)) / max(count, 1), np.sum(own, axis=(2, 4)) / max(count, 1)


@rule("MaxRoiPool")
def _max_roi_pool(call: Call) -> list[Any]:
    x, rois = call.input(0), call.input(1)
    rows, columns = call.attribute("pooled_shape")
    scale = call.attribute("spatial_scale", 1.0)
    ends = rois.value[:, 1:] * scale
    reach = call.types.reach(rois.errors()[:, 1:]) * abs(scale)
    near = np.where(reach > 0, reach, 0.0) + (_NEAR if scale != 1.0 else 0.0)
    if ((np.abs(ends - np.floor(ends) - 0.5) <= near) & (near > 0)).any():
        raise Undecided("MaxRoiPool of a region whose border is between two elements")
    value = np.zeros((rois.shape[0], x.shape[1], rows, columns))
    for n in range(rois.shape[0]):
        image = int(rois.value[n, 0])
        x0, y0, x1, y1 = (int(v) for v in np.floor(ends[n] + 0.5))
        height, width = max(y1 - y0 + 1, 1), max(x1 - x0 + 1, 1)
        for i, j in np.ndindex(rows, columns):
            a, b = y0 + (i * height) // rows, y0 + -(-(i + 1) * height // rows)
            c, d = x0 + (j * width) // columns, x0 + -(-(j + 1) * width // columns)
            part = x.value[image, :, max(a, 0) : max(min(b, x.shape[2]), 0), max(c, 0) : max(min(d, x.shape[3]), 0)]
            value[n, :, i, j] = part.max(axis=(1, 2)) if part.size else 0.0
    worst = float(np.max(x.errors(), initial=0.0))
    return [Bounded(value, np.full(value.shape, worst) if worst else None, x.dtype, x.stored)]


@rule("DeformConv")
def _deform(call: Call) -> list[Any]:
    """Sample bilinearly, with zeros outside, then multiply by the weights."""
    x, w, offset, bias, mask = call.input(0), call.input(1), call.input(2), call.optional(3), call.optional(4)
    groups, shifts = call.attribute("group", 1), call.attribute("offset_group", 1)
    kernel = w.shape[2:]
    strides, dilations = (list(call.attribute(name) or [1, 1]) for name in ("strides", "dilations"))
    pads = list(call.attribute("pads") or [0, 0, 0, 0])
    n, c = x.shape[:2]
    out = offset.shape[2:]
    taps = kernel[0] * kernel[1]
    moves, moved = (v.reshape(n, shifts, *kernel, 2, *out) for v in (offset.value, offset.errors()))
    grids = [
        (np.arange(out[i]) * strides[i] - pads[i]).reshape([-1 if j == i else 1 for j in range(2)])
        + (np.arange(kernel[i]) * dilations[i]).reshape([-1 if j == i else 1 for j in range(2)] + [1, 1])
        for i in range(2)
    ]
    at = [grid + moves[:, :, :, :, i] for i, grid in enumerate(grids)]  # [n, shifts, kh, kw, oh, ow]
    unit = call.types.accumulation(x.dtype).unit
    shaken = sum(moved[:, :, :, :, i] + 4 * unit * (np.abs(one) + 1) for i, one in enumerate(at))
    sampled = _samples(x, at, np.asarray(shaken), shifts)
    if mask is not None:
        weights = mask.moved(lambda v: np.repeat(v.reshape(n, shifts, *kernel, *out), c // shifts, axis=1))
        sampled = call.arithmetic(x.dtype).mul(sampled, weights)
    columns = sampled.moved(lambda v: v.reshape(n, groups, c // groups * taps, int(np.prod(out))))
    kept = call.types.storage(x.dtype)  # the columns may be stored
    columns = Bounded(columns.value, columns.errors() + kept.unit * np.abs(columns.value), x.dtype)
    rows = w.moved(lambda v: v.reshape(groups, v.shape[0] // groups, -1))
    made = contracted(lambda a, b: np.matmul(a, b), rows, columns, columns.shape[2], call.types, x.dtype)
    made = made.moved(lambda v: v.reshape(n, w.shape[0], *out))
    if bias is None:
        return [made]
    return [call.arithmetic(x.dtype).add(made, bias.moved(lambda v: v.reshape(-1, 1, 1)))]


def _samples(x: Bounded, at: list[Array], shaken: Array, shifts: int) -> Bounded:
    """Sample x bilinearly, with zeros outside -> [n, c, kh, kw, oh, ow]."""
    n, c, height, width = x.shape
    value, error = (np.zeros((n, c, *at[0].shape[2:])) for _ in range(2))
    base = [np.floor(one) for one in at]
    images = np.arange(n).reshape(-1, *[1] * (at[0].ndim - 1))
    for i in range(-1, 3):
        for j in range(-1, 3):
            y, z = base[0] + i, base[1] + j
            inside = (y >= 0) & (y < height) & (z >= 0) & (z < width)
            weight = np.maximum(0, 1 - np.abs(y - at[0])) * np.maximum(0, 1 - np.abs(z - at[1])) * inside
            pick = (images, slice(None), np.clip(y, 0, height - 1).astype(int), np.clip(z, 0, width - 1).astype(int))
            for source, into, factor in (
                (x.value, value, weight),
                (x.errors(), error, weight),
                (np.abs(x.value), error, shaken * inside),
            ):
                picked = np.moveaxis(source[pick], -1, 1)  # [n, c, shifts, kh, kw, oh, ow]
                each = picked.reshape(n, shifts, c // shifts, *picked.shape[2:])
                of_group = np.stack([each[:, g, :, g] for g in range(shifts)], 1)  # [n, shifts, c / shifts, kh, ..]
                into += (of_group * factor[:, :, None]).reshape(value.shape)
    far = np.repeat(shaken > 0.5, c // shifts, axis=1)
    return Bounded(value, np.where(far, np.inf, error), x.dtype)
