"""Error-bound rules for resampling (weighted sums along one axis at a time) and other linear operators."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from ...base.element_types import Array
from .alternative_values import reserve_choice_labels
from .bounded_tensor import BoundedTensor, OperatorCall, UnprovedError, rule
from .gemm_conv import replace_nan_with_infinity
from .undecided_choices import make_value_with_two_alternatives

# A float64 coordinate this close to a tie may round either way, unless it is an exact tie.
_TIE_TOLERANCE = 1e-9
_FLOAT_TOLERANCE = 1e-6  # the same for float32 coordinates


class _InterpolationWeights:
    """Interpolation along one axis: a weight matrix [out, size], and a mask of the outputs that lie outside the input."""

    def __init__(self, size: int, out: int) -> None:
        self.weights = np.zeros((out, size))
        self.outside = np.zeros(out, bool)
        self.position_error = np.zeros(out)  # error of each output's float32 source coordinate
        self.candidates = np.zeros((out, size), bool)  # [output, input]: whether rounding may pick this input at a tie


def _compute_source_coordinates(
    call: OperatorCall, size: int, out: int, scale: float, roi: tuple[float, float]
) -> Array:
    (start, end), output_size = roi, scale * size
    x = np.arange(out, dtype=np.float64)
    mode = str(call.attribute("coordinate_transformation_mode", "half_pixel"))
    if call.opset < 11:
        mode = "asymmetric"
    if mode == "align_corners":
        return x * ((size - 1) / (output_size - 1)) if output_size != 1 else np.zeros(out)
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_crop_and_resize":
        step = (end - start) * (size - 1)
        if output_size == 1:
            return np.full(out, 0.5 * (start + end) * (size - 1))
        # The output size is not rounded, as in onnx.reference.
        return start * (size - 1) + x * step / (output_size - 1)
    if mode == "pytorch_half_pixel" and out == 1:  # for every scale, as in ONNX Runtime
        return np.zeros(out) - 0.0
    if mode == "half_pixel_symmetric":
        adjustment = out / output_size
        return (size / 2) * (1 - adjustment) + (x + 0.5) / scale - 0.5
    return (x + 0.5) / scale - 0.5


def _find_nearest_candidates(call: OperatorCall, coordinates: Array) -> tuple[Array, Array]:
    """Return the index of the nearest element, and the other candidate if the coordinate is close to a tie."""
    mode = str(call.attribute("nearest_mode", "round_prefer_floor"))
    mode = "floor" if call.opset < 11 else mode

    def round_coordinate(x: Array) -> Array:
        if mode == "floor":
            return np.floor(x)
        if mode == "ceil":
            return np.ceil(x)
        half = x - np.floor(x) == 0.5
        return np.where(half, np.floor(x) if mode == "round_prefer_floor" else np.ceil(x), np.floor(x + 0.5))

    chosen, near = round_coordinate(coordinates), _TIE_TOLERANCE * (1 + np.abs(coordinates))
    is_tie = 2 * coordinates == np.round(2 * coordinates)
    candidate = np.where(
        round_coordinate(coordinates - near) != chosen,
        round_coordinate(coordinates - near),
        round_coordinate(coordinates + near),
    )
    return chosen, np.where(is_tie, chosen, candidate)


def _compute_cubic_weights(distance: Array, a: float) -> Array:
    d = np.abs(distance)
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _compute_axis_weights(
    call: OperatorCall, size: int, out: int, scale: float, roi: tuple[float, float]
) -> _InterpolationWeights:
    result = _InterpolationWeights(size, out)
    mode = "linear" if call.attribute("mode", "nearest") == "bilinear" else str(call.attribute("mode", "nearest"))
    coordinates = _compute_source_coordinates(call, size, out, scale, roi)
    if str(call.attribute("coordinate_transformation_mode", "")) == "tf_crop_and_resize":
        result.outside = (coordinates < 0) | (coordinates > size - 1)
    rows = np.arange(out)
    if mode == "nearest":
        low, high = (
            np.clip(candidate_index, 0, size - 1).astype(int)
            for candidate_index in _find_nearest_candidates(call, coordinates)
        )
        result.weights[rows, low] = 1.0
        result.candidates[rows, low] = result.candidates[rows, high] = low != high
        return result
    filter_scale = min(scale, 1.0) if call.attribute("antialias", 0) else 1.0
    reach = (1.0 if mode == "linear" else 2.0) / filter_scale
    taps = np.arange(-int(np.ceil(reach)) - 1, int(np.ceil(reach)) + 2)
    positions = np.floor(coordinates)[:, None] + taps
    distance = (positions - coordinates[:, None]) * filter_scale
    a = float(call.attribute("cubic_coeff_a", -0.75))
    weights = np.maximum(0.0, 1 - np.abs(distance)) if mode == "linear" else _compute_cubic_weights(distance, a)
    inside = (positions >= 0) & (positions < size)
    if call.attribute("exclude_outside", 0):
        weights = np.where(inside, weights, 0.0)
    total = weights.sum(axis=1, keepdims=True)
    if call.attribute("antialias", 0) or call.attribute("exclude_outside", 0):
        weights = weights / np.where(total == 0, 1.0, total)
    np.add.at(
        result.weights,
        (np.repeat(rows, len(taps)), np.clip(positions, 0, size - 1).astype(int).ravel()),
        weights.ravel(),
    )
    result.position_error = np.full(out, 4 * 2.0**-24 * (np.abs(coordinates) + 2))
    return result


def _resample_axis(axis: int, result: _InterpolationWeights, x: BoundedTensor, call: OperatorCall) -> BoundedTensor:
    taps = int((result.weights != 0).sum(axis=1).max(initial=1)) + 1
    nearest = str(call.attribute("mode", "nearest")) == "nearest"

    def multiply_along_axis(matrix: Array, v: Array) -> Array:
        return np.moveaxis(np.tensordot(matrix, v, axes=(1, axis)), 0, axis)

    with np.errstate(all="ignore"):
        if nearest:
            first = result.weights.argmax(axis=1)
            nearest_value = x.rearrange(lambda v: np.take(v, first, axis))
            tied = result.candidates.any(axis=1)
            if not tied.any():
                return nearest_value
            second = np.where(tied, _get_other_candidate(result.candidates, first), first)
            shape = [1] * x.ndim
            shape[axis] = -1
            undecided = np.broadcast_to(tied.reshape(shape), nearest_value.shape)
            # All elements at the same position of this axis share one choice.
            group = np.broadcast_to(reserve_choice_labels() + np.arange(tied.size).reshape(shape), nearest_value.shape)
            return make_value_with_two_alternatives(
                undecided, nearest_value, x.rearrange(lambda v: np.take(v, second, axis)), group
            )
        value = multiply_along_axis(result.weights, x.value)
        sizes = multiply_along_axis(np.abs(result.weights), x.max_magnitude())
        shape = [1] * x.ndim
        shape[axis] = -1
        spread = multiply_along_axis((result.weights != 0) * 1.0, x.max_magnitude()) * result.position_error.reshape(
            shape
        )
        error = sizes * call.types.compute_sum_error_factor(taps, x.dtype) + spread
        if x.error is not None:
            error = error + multiply_along_axis(np.abs(result.weights), x.error)
    return BoundedTensor(value, replace_nan_with_infinity(error), x.dtype)


def _get_other_candidate(candidates: Array, first: Array) -> Array:
    """Return, for each output, the candidate other than `first`."""
    remaining = candidates.copy()
    remaining[np.arange(len(first)), first] = False
    return np.asarray(remaining.argmax(axis=1))


@rule("Resize", "Upsample")
def _evaluate_resize(call: OperatorCall) -> list[Any]:
    input_value = call.input(0)
    x = (
        input_value
        if input_value.is_float
        else BoundedTensor(input_value.value.astype(np.float64), input_value.error, input_value.dtype, True)
    )
    if not input_value.is_float and str(call.attribute("mode", "nearest")) != "nearest":
        raise UnprovedError("Resize of integers by sums")
    scales: list[float] | None = None
    sizes = roi = None
    if call.op == "Upsample" or call.opset < 11:
        scales_attribute = call.attribute("scales")
        scales = [
            float(v) for v in (scales_attribute if scales_attribute is not None else call.input(1).value.reshape(-1))
        ]
    else:
        if call.optional_input(2) is not None and call.input(2).size:
            scales = [float(v) for v in call.input(2).value.reshape(-1)]
        sizes, roi = call.get_integer_list(3), call.optional_input(1)
    axes = [axis % x.ndim for axis in call.attribute("axes") or range(x.ndim)]
    outs, factors = _compute_output_sizes(call, x.shape, axes, scales, sizes)
    mode = str(call.attribute("coordinate_transformation_mode", "half_pixel"))
    corners = roi.value.reshape(2, -1) if mode == "tf_crop_and_resize" and roi is not None and roi.size else None
    result = _resize_axes(call, x, axes, outs, factors, corners)
    if input_value.is_float:
        return [result]
    return [BoundedTensor(result.value.astype(input_value.value.dtype), result.error, input_value.dtype)]


def _resize_axes(
    call: OperatorCall, x: BoundedTensor, axes: list[int], outs: list[int], factors: list[float], corners: Array | None
) -> BoundedTensor:
    """Resize one axis at a time; positions outside the ROI get extrapolation_value."""
    result, outside = x, None
    for i, axis in enumerate(axes):
        if outs[axis] == x.shape[axis] and factors[axis] == 1 and corners is None:
            continue
        region = (0.0, 1.0) if corners is None else (float(corners[0, i]), float(corners[1, i]))
        axis_weights = _compute_axis_weights(call, x.shape[axis], outs[axis], factors[axis], region)
        result = _resample_axis(axis, axis_weights, result, call)
        if axis_weights.outside.any():
            shape = [1] * x.ndim
            shape[axis] = -1
            outside = (
                axis_weights.outside.reshape(shape)
                if outside is None
                else outside | axis_weights.outside.reshape(shape)
            )
    if outside is None:
        return result
    fill = float(call.attribute("extrapolation_value", 0.0))
    mask = np.broadcast_to(outside, result.shape)
    return BoundedTensor(
        np.where(mask, fill, result.value), np.where(mask, abs(fill) * 2.0**-24, result.get_errors()), result.dtype
    )


def _compute_output_sizes(
    call: OperatorCall, shape: tuple[int, ...], axes: list[int], scales: list[float] | None, sizes: list[int] | None
) -> tuple[list[int], list[float]]:
    outs, factors = list(shape), [1.0] * len(shape)
    if sizes is None:
        for axis, scale in zip(axes, scales or [], strict=True):
            # ONNX Runtime computes the size in float32.
            outs[axis] = int(np.floor(np.float32(shape[axis]) * np.float32(scale)))
            # The effective scale is at least the ratio of output size to input size.
            factors[axis] = max(scale, outs[axis] / shape[axis]) if shape[axis] else scale
        return outs, factors
    policy = str(call.attribute("keep_aspect_ratio_policy", "stretch"))
    ratios = [size / shape[axis] for axis, size in zip(axes, sizes, strict=True)]
    if policy != "stretch":
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        ratios = [ratio] * len(axes)
        sizes = [int(np.floor(ratio * shape[axis] + 0.5)) for axis in axes]
    for axis, size, ratio in zip(axes, sizes, ratios, strict=True):
        outs[axis], factors[axis] = size, ratio
    return outs, factors


@rule("AffineGrid")
def _evaluate_affine_grid(call: OperatorCall) -> list[Any]:
    theta, size = call.input(0), call.get_integer_list(1) or []
    axes = []
    for length in size[2:]:
        steps = np.arange(length, dtype=np.float64)
        if call.attribute("align_corners", 0):
            axes.append(steps * 2 / (length - 1) - 1 if length > 1 else np.zeros(1))
        else:
            axes.append((2 * steps + 1) / length - 1)
    grids = np.meshgrid(*axes, indexing="ij")
    points = np.stack([*grids[::-1], np.ones(grids[0].shape)], -1)  # coordinates in the order x, y, ...

    def transform_points(t: Array, p: Array) -> Array:
        return np.asarray(np.einsum("nij,...j->n...i", t, p))

    value = transform_points(theta.value, points)
    sizes = transform_points(theta.max_magnitude(), np.abs(points) + 2.0**-22)
    unit = call.types.get_storage_type(theta.dtype).unit + 8 * call.types.get_accumulation_type(theta.dtype).unit
    error = sizes * unit * 2
    if theta.error is not None:
        error = error + transform_points(theta.error, np.abs(points))
    return [BoundedTensor(value, error, theta.dtype)]


# ---- sampling at computed positions


def _reflect_coordinates(coordinates: Array, low: float, high: float) -> Array:
    span = high - low
    if span <= 0:
        return np.zeros_like(coordinates)
    folded = np.mod(coordinates - low, 2 * span)
    return np.where(folded > span, 2 * span - folded, folded) + low


def _pad_coordinates(coordinates: Array, size: int, padding: str, aligned: bool) -> Array:
    """Map coordinates outside the image into the image, as the padding mode specifies."""
    if padding == "border":
        return np.clip(coordinates, 0, size - 1)
    if padding == "reflection":
        return (
            _reflect_coordinates(coordinates, 0.0, size - 1.0)
            if aligned
            else _reflect_coordinates(coordinates, -0.5, size - 0.5)
        )
    return coordinates


@rule("GridSample")
def _evaluate_grid_sample(call: OperatorCall) -> list[Any]:
    x, grid = call.input(0), call.input(1)
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(
        str(call.attribute("mode", "linear")), str(call.attribute("mode", "linear"))
    )
    padding, aligned = str(call.attribute("padding_mode", "zeros")), bool(call.attribute("align_corners", 0))
    spatial = x.shape[2:]
    coordinates, position_errors = [], []
    for i, size in enumerate(spatial):
        normalized = grid.value[..., len(spatial) - 1 - i]
        coordinate_error = grid.get_errors()[..., len(spatial) - 1 - i] * (size / 2)
        exact = (normalized + 1) / 2 * (size - 1) if aligned else ((normalized + 1) * size - 1) / 2
        unit = call.types.get_accumulation_type(x.dtype).unit
        position_errors.append(coordinate_error + 6 * unit * (np.abs(exact) + size))
        if padding == "reflection" or (padding == "border" and mode != "cubic"):
            exact = _pad_coordinates(
                exact, size, padding, aligned
            )  # in cubic mode, each neighbour is clamped separately instead
        coordinates.append(exact)
    if mode == "nearest":
        return [_sample_nearest(x, coordinates, position_errors, spatial)]
    return [_sample_weighted(call, x, coordinates, position_errors, _SamplingAttributes(mode, padding, aligned))]


def _gather_elements_at(
    v: Array, positions: list[Array], spatial: tuple[int, ...], padding: str, aligned: bool
) -> Array:
    """Return the elements of v [N, C, ...] at integer positions [N, ...], and 0 for positions outside."""
    inside = np.ones(positions[0].shape, bool)
    index = []
    for position, size in zip(positions, spatial, strict=True):
        if padding != "zeros":
            position = np.clip(np.rint(_pad_coordinates(position, size, padding, aligned)), 0, size - 1)
        inside &= (position >= 0) & (position < size)
        index.append(np.clip(np.nan_to_num(position), 0, size - 1).astype(int))
    images = np.arange(v.shape[0]).reshape(-1, *[1] * (positions[0].ndim - 1))
    picked = v[(images, slice(None), *index)]  # [N, ..., C]
    return np.asarray(np.moveaxis(np.where(inside[..., None], picked, 0.0), -1, 1))


def _sample_nearest(
    x: BoundedTensor, coordinates: list[Array], position_errors: list[Array], spatial: tuple[int, ...]
) -> BoundedTensor:
    positions = [np.rint(coordinate) for coordinate in coordinates]
    result = _gather_nearest(x, positions, spatial)
    label_grid = reserve_choice_labels() + np.arange(positions[0].size).reshape(positions[0].shape)
    group = np.broadcast_to(label_grid[:, None], result.shape)  # all channels share the choice
    for signs in itertools.product((-1, 1), repeat=len(coordinates)):
        candidate = [
            np.rint(coordinate + sign * (e + _FLOAT_TOLERANCE))
            for coordinate, e, sign in zip(coordinates, position_errors, signs, strict=True)
        ]
        is_near = np.any(
            [coordinate != nearest_position for coordinate, nearest_position in zip(candidate, positions, strict=True)],
            axis=0,
        )
        if is_near.any():
            result = make_value_with_two_alternatives(
                np.broadcast_to(is_near[:, None], result.shape), result, _gather_nearest(x, candidate, spatial), group
            )
    return result


def _gather_nearest(x: BoundedTensor, positions: list[Array], spatial: tuple[int, ...]) -> BoundedTensor:
    error = None if x.error is None else _gather_elements_at(x.get_errors(), positions, spatial, "zeros", False)
    return BoundedTensor(_gather_elements_at(x.value, positions, spatial, "zeros", False), error, x.dtype, x.stored)


class _SamplingAttributes(NamedTuple):
    """Sampling attributes of a GridSample node."""

    mode: str
    padding: str
    aligned: bool


def _sample_weighted(
    call: OperatorCall,
    x: BoundedTensor,
    coordinates: list[Array],
    position_errors: list[Array],
    sampling: _SamplingAttributes,
) -> BoundedTensor:
    mode, padding, aligned = sampling
    spatial = x.shape[2:]
    reach = range(2) if mode == "linear" else range(-1, 3)
    shape = (x.shape[0], x.shape[1], *coordinates[0].shape[1:])
    value, sizes, propagated, spread = (np.zeros(shape) for _ in range(4))
    tap_range = range(reach.start - 1, reach.stop + 1)  # a coordinate error may move the sample to the next cell
    base = [np.floor(coordinate) for coordinate in coordinates]
    factors = 0
    for taps in itertools.product(tap_range, repeat=len(coordinates)):
        positions = [b + t for b, t in zip(base, taps, strict=True)]
        weights, slopes = [], []
        for coordinate, position in zip(coordinates, positions, strict=True):
            distance = position - coordinate
            weights.append(
                np.maximum(0.0, 1 - np.abs(distance)) if mode == "linear" else _compute_cubic_weights(distance, -0.75)
            )
            slopes.append(1.0 if mode == "linear" else 1.75)
        weight = np.prod(weights, axis=0)[:, None]
        coordinate_error = sum(s * e for s, e in zip(slopes, position_errors, strict=True))
        picked = _gather_elements_at(x.value, positions, spatial, padding, aligned)
        value += weight * picked
        sizes += np.abs(weight) * np.abs(picked)
        spread += np.asarray(coordinate_error)[:, None] * np.abs(picked)
        if any(tap not in reach for tap in taps):
            continue
        propagated += np.abs(weight) * _gather_elements_at(x.get_errors(), positions, spatial, padding, aligned)
        factors += 1
    is_unknown = np.max(position_errors, axis=0)[:, None] > 0.5  # the coordinate error exceeds half a pixel
    rounding = sizes * call.types.compute_sum_error_factor(factors + 8, x.dtype)
    error = rounding + np.where(is_unknown, np.inf, spread) + propagated
    return BoundedTensor(value, replace_nan_with_infinity(error), x.dtype)


# ---- other linear operators


@rule("Col2Im")
def _evaluate_col2im(call: OperatorCall) -> list[Any]:
    x = call.input(0)
    image_size, block = call.get_integer_list(1) or [], call.get_integer_list(2) or []
    rank = len(image_size)
    strides = list(call.attribute("strides") or [1] * rank)
    dilations = list(call.attribute("dilations") or [1] * rank)
    pads = list(call.attribute("pads") or [0] * 2 * rank)
    n, channels = x.shape[0], x.shape[1] // int(np.prod(block))
    out = [
        (size + pads[i] + pads[i + rank] - (b - 1) * d - 1) // s + 1
        for i, (size, b, d, s) in enumerate(zip(image_size, block, dilations, strides, strict=True))
    ]

    def add_columns_to_image(v: Array) -> Array:
        cells = v.reshape(n, channels, *block, *out)
        padded = np.zeros((n, channels, *[size + pads[i] + pads[i + rank] for i, size in enumerate(image_size)]))
        for tap in np.ndindex(*block):
            tap_slices = tuple(
                slice(t * d, t * d + (o - 1) * s + 1, s)
                for t, d, o, s in zip(tap, dilations, out, strides, strict=True)
            )
            padded[(slice(None), slice(None), *tap_slices)] += cells[(slice(None), slice(None), *tap)]
        return padded[
            (slice(None), slice(None), *[slice(pads[i], pads[i] + size) for i, size in enumerate(image_size)])
        ]

    error = add_columns_to_image(x.max_magnitude()) * call.types.compute_sum_error_factor(int(np.prod(block)), x.dtype)
    return [
        BoundedTensor(
            add_columns_to_image(x.value), error if x.error is None else error + add_columns_to_image(x.error), x.dtype
        )
    ]
