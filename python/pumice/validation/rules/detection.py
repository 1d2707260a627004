"""Error-bound rules for NMS, ROI pooling and deformable convolution."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.element_types import Array
from .bounded_tensor import BoundedTensor, OperatorCall, UndecidedError, rule
from .float_types import FLOAT32
from .gemm_conv import evaluate_bilinear, replace_nan_with_infinity

_TOLERANCE = 1e-5  # relative error of float32 areas and their quotients


def _compute_corners(boxes: Array, centred: bool) -> Array:
    """Return the lower and upper corner of each box, as an array [boxes, 4]."""
    if centred:
        x, y, w, h = boxes.T
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], -1)
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    return np.concatenate([low, high], -1)


class _BoxCorners:
    """Boxes of one batch item: corners, coordinate errors, and which boxes have exact float32 corners, sides and areas."""

    def __init__(self, value: Array, errors: Array, centred: bool) -> None:
        self.corners = _compute_corners(value, centred)
        self.position_error = np.max(errors, axis=-1, initial=0.0) * (1.5 if centred else 1.0)
        self.side_lengths = self.corners[:, 2:] - self.corners[:, :2]
        self.areas = self.side_lengths[:, 0] * self.side_lengths[:, 1]
        is_exact = [_compute_exact_float32_mask(array).all(-1) for array in (self.corners, self.side_lengths)]
        self.is_exact = (self.position_error == 0) & is_exact[0] & is_exact[1] & _compute_exact_float32_mask(self.areas)

    def compute_iou_range(self, box: int, others: list[int]) -> tuple[Array, Array]:
        """Return the smallest and largest IoU that a kernel may compute between a box and each of `others`."""
        corners, other_corners = self.corners[box], self.corners[others]
        overlap_sides = np.minimum(corners[2:], other_corners[:, 2:]) - np.maximum(corners[:2], other_corners[:, :2])
        position_error = self.position_error[box] + self.position_error[others]
        iou_bounds = []
        with np.errstate(all="ignore"):
            for sign in (-1.0, 1.0):
                intersection = np.prod(np.maximum(overlap_sides + sign * position_error[:, None], 0), axis=-1)
                areas = [
                    np.prod(
                        np.maximum(self.side_lengths[i] - sign * 2 * _as_column(self.position_error[i]), 0), axis=-1
                    )
                    for i in (box, others)
                ]
                union = areas[0] + areas[1] - intersection
                is_positive = (intersection > 0) & (union > 0) & (areas[0] > 0) & (areas[1] > 0)
                # If an area may be zero, the IoU has no upper bound.
                iou_bounds.append(
                    np.where(
                        is_positive, intersection / union, 0.0 if sign < 0 else np.where(intersection > 0, np.inf, 0.0)
                    )
                )
        union = self.areas[box] + self.areas[others] - intersection
        exact = (
            self.is_exact[box]
            & self.is_exact[others]
            & _compute_exact_float32_mask(overlap_sides).all(-1)
            & _compute_exact_float32_mask(intersection)
        )
        exact = (
            exact
            & _compute_exact_float32_mask(self.areas[box] + self.areas[others])
            & _compute_exact_float32_mask(union)
        )
        # pm_divide rounds correctly, so the result for exact operands is the rounded quotient.
        low, high = (np.where(exact, FLOAT32.round(bound), bound) for bound in iou_bounds)
        return low - np.where(exact, 0.0, _TOLERANCE), high + np.where(exact, 0.0, _TOLERANCE)


def _as_column(position_error: Array) -> Array:
    return np.asarray(position_error)[..., None]


def _compute_exact_float32_mask(value: Array) -> Array:
    """Return a mask of the values that float32 represents exactly."""
    return np.asarray(FLOAT32.round(value) == value)


@rule("NonMaxSuppression")
def _evaluate_non_max_suppression(call: OperatorCall) -> list[Any]:
    """Run NMS per class. Raise UndecidedError if rounding may change the selection."""
    boxes, scores = call.input(0), call.input(1)
    max_boxes, iou_threshold, score_threshold = (
        int(call.get_scalar(2, 0)[0]),
        call.get_scalar(3, 0.0),
        call.get_scalar(4, -np.inf),
    )
    reach, centred = call.types.to_max_deviation, bool(call.attribute("center_point_box", 0))
    boxes_per_batch = [
        _BoxCorners(boxes.value[i], reach(boxes.get_errors()[i]), centred) for i in range(boxes.shape[0])
    ]
    selected: list[list[int]] = []
    for batch, class_index in np.ndindex(*scores.shape[:2]):
        row, error = scores.value[batch, class_index], reach(scores.get_errors()[batch, class_index])
        selected_boxes: list[int] = []
        for box in _sort_candidates(row, error, *score_threshold) if max_boxes > 0 else []:
            if len(selected_boxes) >= max_boxes:
                break
            low, high = boxes_per_batch[batch].compute_iou_range(box, selected_boxes)
            if (low > iou_threshold[0] + iou_threshold[1]).any():
                continue
            if (high > iou_threshold[0] - iou_threshold[1]).any():
                raise UndecidedError("NonMaxSuppression of boxes whose overlap is about the threshold")
            selected_boxes.append(box)
        selected += [[int(batch), int(class_index), box] for box in selected_boxes]
    return [BoundedTensor(np.array(selected, np.int64).reshape(-1, 3), None, np.int64)]


def _sort_candidates(row: Array, error: Array, threshold: float, threshold_error: float) -> list[int]:
    """Return the indices of boxes above the score threshold, by descending score.

    Raise UndecidedError if rounding may change the selection or the order.
    """
    may_pass = row + error > threshold - threshold_error
    if threshold == -np.inf:
        may_pass = np.ones(row.shape, bool)
    elif (may_pass & ~(row - error > threshold + threshold_error)).any():
        raise UndecidedError("NonMaxSuppression of scores that are too close to distinguish")
    order = np.argsort(-row, kind="stable")
    order = order[may_pass[order]]
    gaps, widths = -np.diff(row[order]), error[order][1:] + error[order][:-1]
    if ((gaps <= widths) & (widths > 0)).any():
        raise UndecidedError("NonMaxSuppression of scores that are too close to distinguish")
    return [int(box) for box in order]


# ---- ROI pooling and deformable convolution


def _find_bilinear_neighbours(size: int, positions: Array) -> tuple[Array, Array, Array, Array]:
    """Return the clamped lower and upper neighbours on an axis, the upper one's weight, and a mask of inside positions."""
    clamped = np.maximum(positions, 0)
    low = np.minimum(clamped.astype(int), size - 1)
    high = np.minimum(low + 1, size - 1)
    upper_weight = np.where(low >= size - 1, 0.0, clamped - low)
    return low, high, upper_weight, (positions >= -1.0) & (positions <= size)


@rule("RoiAlign")
def _evaluate_roi_align(call: OperatorCall) -> list[Any]:
    x, rois, batch_indices = call.input(0), call.input(1), call.get_decided_input(2)
    out_height, out_width = call.attribute("output_height", 1), call.attribute("output_width", 1)
    scale, ratio = call.attribute("spatial_scale", 1.0), call.attribute("sampling_ratio", 0)
    mode = str(
        call.attribute("coordinate_transformation_mode", "half_pixel" if call.opset >= 16 else "output_half_pixel")
    )
    is_half_pixel = mode == "half_pixel"
    shape = (rois.shape[0], x.shape[1], out_height, out_width)
    value, error = np.zeros(shape), np.zeros(shape)
    height, width = x.shape[2:]
    unit = call.types.get_accumulation_type(x.dtype).unit
    for n in range(rois.shape[0]):
        x0, y0, x1, y1 = rois.value[n] * scale - (0.5 if is_half_pixel else 0.0)
        spans = [y1 - y0, x1 - x0] if is_half_pixel else [max(y1 - y0, 1.0), max(x1 - x0, 1.0)]
        steps = [span / count for span, count in zip(spans, (out_height, out_width), strict=True)]
        counts = [int(ratio) if ratio > 0 else int(np.ceil(step - _TOLERANCE)) for step in steps]
        if ratio <= 0 and any(abs(step - round(step)) < _TOLERANCE * max(abs(step), 1) for step in steps):
            raise UndecidedError("RoiAlign with a number of samples that rounding may flip")
        positions = [
            begin + step * (np.arange(size)[:, None] + (np.arange(count) + 0.5) / max(count, 1))
            for begin, step, size, count in zip((y0, x0), steps, (out_height, out_width), counts, strict=True)
        ]
        position_error = 2 * float(np.max(rois.get_errors()[n], initial=0.0)) * scale + 16 * unit * (
            abs(y1) + abs(x1) + height + width
        )
        result = _pool_samples(call, x, int(batch_indices[n]), positions[0], positions[1], position_error)
        value[n], error[n] = result
    return [BoundedTensor(value, replace_nan_with_infinity(error), x.dtype)]


def _pool_samples(
    call: OperatorCall, x: BoundedTensor, batch: int, ys: Array, xs: Array, position_error: float
) -> tuple[Array, Array]:
    """Pool the samples at ys [rows, count] and xs [columns, count]. Return the pooled values and their errors.

    Average pooling takes the mean of the samples; maximum pooling takes the largest weighted neighbour.
    """
    height, width = x.shape[2:]
    top, bottom, dy, in_y = _find_bilinear_neighbours(height, ys)
    left, right, dx, in_x = _find_bilinear_neighbours(width, xs)
    inside = (in_y[:, :, None, None] & in_x[None, None]).astype(float)
    weighted, magnitudes, propagated = [], [], []
    for y_at, wy in ((top, 1 - dy), (bottom, dy)):
        for x_at, wx in ((left, 1 - dx), (right, dx)):
            weight = wy[:, :, None, None] * wx[None, None] * inside
            pick = (slice(None), y_at[:, :, None, None], x_at[None, None])
            weighted.append(x.value[batch][pick] * weight)
            magnitudes.append(np.abs(x.value[batch][pick]))
            propagated.append(x.get_errors()[batch][pick] * weight)
    count = ys.shape[1] * xs.shape[1]
    spread = sum(magnitudes) * position_error
    unit = call.types.compute_sum_error_factor(4 * count + 8, x.dtype)
    if str(call.attribute("mode", "avg")) == "max":
        stacked = np.max(weighted, axis=0)
        worst = spread + np.max(propagated, axis=0) + np.max(np.abs(weighted), axis=0) * unit
        return np.max(stacked, axis=(2, 4)), np.max(worst, axis=(2, 4))
    own_error = sum(np.abs(weighted_sample) for weighted_sample in weighted) * unit + spread + sum(propagated)
    return np.sum(sum(weighted), axis=(2, 4)) / max(count, 1), np.sum(own_error, axis=(2, 4)) / max(count, 1)


@rule("MaxRoiPool")
def _evaluate_max_roi_pool(call: OperatorCall) -> list[Any]:
    x, rois = call.input(0), call.input(1)
    out_height, out_width = call.attribute("pooled_shape")
    scale = call.attribute("spatial_scale", 1.0)
    ends = rois.value[:, 1:] * scale
    reach = call.types.to_max_deviation(rois.get_errors()[:, 1:]) * abs(scale)
    near = np.where(reach > 0, reach, 0.0) + (_TOLERANCE if scale != 1.0 else 0.0)
    if ((np.abs(ends - np.floor(ends) - 0.5) <= near) & (near > 0)).any():
        raise UndecidedError("MaxRoiPool of a region whose border is between two elements")
    value = np.zeros((rois.shape[0], x.shape[1], out_height, out_width))
    for n in range(rois.shape[0]):
        batch = int(rois.value[n, 0])
        x0, y0, x1, y1 = (int(v) for v in np.floor(ends[n] + 0.5))
        height, width = max(y1 - y0 + 1, 1), max(x1 - x0 + 1, 1)
        for i, j in np.ndindex(out_height, out_width):
            a, b = y0 + (i * height) // out_height, y0 + -(-(i + 1) * height // out_height)
            c, d = x0 + (j * width) // out_width, x0 + -(-(j + 1) * width // out_width)
            region = x.value[batch, :, max(a, 0) : max(min(b, x.shape[2]), 0), max(c, 0) : max(min(d, x.shape[3]), 0)]
            value[n, :, i, j] = region.max(axis=(1, 2)) if region.size else 0.0
    worst = float(np.max(x.get_errors(), initial=0.0))
    return [BoundedTensor(value, np.full(value.shape, worst) if worst else None, x.dtype, x.stored)]


@rule("DeformConv")
def _evaluate_deform_conv(call: OperatorCall) -> list[Any]:
    """Sample the input bilinearly, with zeros outside, and multiply the samples by the weights."""
    x, w, offset, bias, mask = (
        call.input(0),
        call.input(1),
        call.input(2),
        call.optional_input(3),
        call.optional_input(4),
    )
    groups, shifts = call.attribute("group", 1), call.attribute("offset_group", 1)
    kernel = w.shape[2:]
    strides, dilations = (list(call.attribute(name) or [1, 1]) for name in ("strides", "dilations"))
    pads = list(call.attribute("pads") or [0, 0, 0, 0])
    n, c = x.shape[:2]
    out = offset.shape[2:]
    taps = kernel[0] * kernel[1]
    offsets, offset_errors = (v.reshape(n, shifts, *kernel, 2, *out) for v in (offset.value, offset.get_errors()))
    grids = [
        (np.arange(out[i]) * strides[i] - pads[i]).reshape([-1 if j == i else 1 for j in range(2)])
        + (np.arange(kernel[i]) * dilations[i]).reshape([-1 if j == i else 1 for j in range(2)] + [1, 1])
        for i in range(2)
    ]
    positions = [grid + offsets[:, :, :, :, i] for i, grid in enumerate(grids)]  # [n, shifts, kh, kw, oh, ow]
    unit = call.types.get_accumulation_type(x.dtype).unit
    position_error = sum(
        offset_errors[:, :, :, :, i] + 4 * unit * (np.abs(array) + 1) for i, array in enumerate(positions)
    )
    samples = _sample_bilinear(x, positions, np.asarray(position_error), shifts)
    if mask is not None:
        weights = mask.rearrange(lambda v: np.repeat(v.reshape(n, shifts, *kernel, *out), c // shifts, axis=1))
        samples = call.make_arithmetic(x.dtype).mul(samples, weights)
    im2col = samples.rearrange(lambda v: v.reshape(n, groups, c // groups * taps, int(np.prod(out))))
    storage = call.types.get_storage_type(x.dtype)  # kernels may round the im2col matrix to storage
    im2col = BoundedTensor(im2col.value, im2col.get_errors() + storage.unit * np.abs(im2col.value), x.dtype)
    weight_rows = w.rearrange(lambda v: v.reshape(groups, v.shape[0] // groups, -1))
    result = evaluate_bilinear(lambda a, b: np.matmul(a, b), weight_rows, im2col, im2col.shape[2], call.types, x.dtype)
    result = result.rearrange(lambda v: v.reshape(n, w.shape[0], *out))
    if bias is None:
        return [result]
    return [call.make_arithmetic(x.dtype).add(result, bias.rearrange(lambda v: v.reshape(-1, 1, 1)))]


def _sample_bilinear(x: BoundedTensor, positions: list[Array], position_error: Array, num_groups: int) -> BoundedTensor:
    """Sample x bilinearly, with zeros outside -> [n, c, kh, kw, oh, ow]."""
    n, c, height, width = x.shape
    value, error = (np.zeros((n, c, *positions[0].shape[2:])) for _ in range(2))
    base = [np.floor(array) for array in positions]
    batch_indices = np.arange(n).reshape(-1, *[1] * (positions[0].ndim - 1))
    for i in range(-1, 3):
        for j in range(-1, 3):
            y, z = base[0] + i, base[1] + j
            inside = (y >= 0) & (y < height) & (z >= 0) & (z < width)
            weight = np.maximum(0, 1 - np.abs(y - positions[0])) * np.maximum(0, 1 - np.abs(z - positions[1])) * inside
            pick = (
                batch_indices,
                slice(None),
                np.clip(y, 0, height - 1).astype(int),
                np.clip(z, 0, width - 1).astype(int),
            )
            for source, total, factor in (
                (x.value, value, weight),
                (x.get_errors(), error, weight),
                (np.abs(x.value), error, position_error * inside),
            ):
                picked = np.moveaxis(source[pick], -1, 1)  # [n, c, groups, kh, kw, oh, ow]
                grouped = picked.reshape(n, num_groups, c // num_groups, *picked.shape[2:])
                # [n, groups, c / groups, kh, kw, oh, ow]
                of_group = np.stack([grouped[:, g, :, g] for g in range(num_groups)], 1)
                total += (of_group * factor[:, :, None]).reshape(value.shape)
    is_unknown = np.repeat(position_error > 0.5, c // num_groups, axis=1)
    return BoundedTensor(value, np.where(is_unknown, np.inf, error), x.dtype)
