"""Coordinates exactly between two elements, or exactly on one, are resolved as in the ONNX specification."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import pumice
from onnx_models import model, node, value

Array = np.ndarray[Any, Any]
SCALES = [np.float32(0.5 + 0.05 * k) for k in range(51)]
FILL = -7.0
MODES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
REGION = (Fraction(1, 4), Fraction(7, 8))


# ---- Resize


def resized_length(size: int, scale: np.float32) -> int:
    """Return the size from ONNX's shape inference, in float32. onnx.reference returns 6 for 10 * 0.7."""
    return int(np.float32(size) * scale)


def coordinate(mode: str, y: int, size: int, scale: Fraction, length: int) -> Fraction:
    """Return the specification's coordinate, without rounding."""
    whole = scale * size
    if mode == "align_corners":
        return Fraction(0) if whole == 1 else y * (size - 1) / (whole - 1)
    if mode == "asymmetric":
        return y / scale
    if mode == "tf_crop_and_resize":
        start, end = REGION
        if whole == 1:
            return (end - start) * (size - 1) / 2 + start * (size - 1)
        return y * (end - start) * (size - 1) / (whole - 1) + start * (size - 1)
    if mode == "pytorch_half_pixel" and length == 1:
        return Fraction(0)
    half_pixel = (y + Fraction(1, 2)) / scale - Fraction(1, 2)
    return half_pixel + (Fraction(size, 2) * (1 - length / whole) if mode == "half_pixel_symmetric" else 0)


def chosen(at: Fraction, mode: str) -> int:
    half = at - floor(at) == Fraction(1, 2)
    if mode in ("floor", "ceil"):
        return floor(at) if mode == "floor" else ceil(at)
    return (floor(at) if mode == "round_prefer_floor" else ceil(at)) if half else floor(at + Fraction(1, 2))


def expected_row(x: Array, to: np.float32 | int, mode: str, nearest: str) -> Array:
    """Return the resized row. to: a scale (float32) or a size (int)."""
    size = len(x)
    length = to if isinstance(to, int) else resized_length(size, to)
    exact = Fraction(length, size) if isinstance(to, int) else Fraction(float(to))
    if length > exact * size:  # the scale was rounded down from a ratio of sizes
        exact = Fraction(length, size)
    row = []
    for y in range(length):
        at = coordinate(mode, y, size, exact, length)
        if mode == "tf_crop_and_resize" and not 0 <= at <= size - 1:
            row.append(FILL)
        else:
            row.append(x[min(max(chosen(at, nearest), 0), size - 1)])
    return np.array(row, x.dtype)


def resize(mode: str, nearest: str, size: int, to: np.float32 | int) -> Any:
    attributes: dict[str, Any] = {"mode": "nearest", "nearest_mode": nearest}
    attributes |= {"coordinate_transformation_mode": mode, "extrapolation_value": FILL}
    crops = mode == "tf_crop_and_resize"
    constants = {"to": np.array([to])}
    if crops:
        constants["roi"] = np.array([float(one) for one in REGION], "float32")
    names = ["x", "roi" if crops else "", *(["", "to"] if isinstance(to, int) else ["to"])]
    return model([node("Resize", names, **attributes)], [value("x", [size])], constants=constants, opset=19)


def by_reference(proto: Any, x: Array) -> Array:
    """Return onnx.reference's result."""
    proto.graph.output[0].type.tensor_type.elem_type = 1
    result: Array = ReferenceEvaluator(proto).run(None, {"x": x})[0]
    return result


@pytest.mark.parametrize("mode", MODES)
def test_nearest_elements_by_all_scales(context: pumice.Context, mode: str) -> None:
    """One size per pair of nearest mode and scale, in rotation; `-m slow` runs every size."""
    for i, scale in enumerate(SCALES):
        for j, nearest in enumerate(NEAREST):
            check(context, mode, nearest, 2 + (3 * i + 5 * j) % 11, scale)


@pytest.mark.slow
@pytest.mark.parametrize("nearest", NEAREST)
@pytest.mark.parametrize("mode", MODES)
def test_nearest_elements_by_all_scales_and_sizes(context: pumice.Context, mode: str, nearest: str) -> None:
    for scale in SCALES:
        for size in range(1, 21):
            check(context, mode, nearest, size, scale)


@pytest.mark.parametrize("mode", MODES)
def test_nearest_elements_by_sizes(context: pumice.Context, mode: str) -> None:
    """The scale is a quotient of two sizes, which float32 may not represent exactly."""
    for i in range(1, 41):
        size, length = 3 + i % 7 * 3, 2 + i * 7 % 23
        for nearest in NEAREST:
            proto, x = resize(mode, nearest, size, length), np.arange(size, dtype="float32")
            made = pumice.load(proto, context, progress=False)(x)
            np.testing.assert_array_equal(
                made, expected_row(x, length, mode, nearest), f"{nearest}, {size} to {length}"
            )


def check(context: pumice.Context, mode: str, nearest: str, size: int, scale: np.float32) -> None:
    """Compare with the specification, and with onnx.reference except for ties that it rounds (half_pixel_symmetric), single elements, and
    sizes.
    """
    proto, x = resize(mode, nearest, size, scale), np.arange(size, dtype="float32")
    made, expected = pumice.load(proto, context, progress=False)(x), expected_row(x, scale, mode, nearest)
    np.testing.assert_array_equal(made, expected, f"{mode}, {nearest}, {size} by {scale}")
    by_others = by_reference(proto, x)
    known = mode != "half_pixel_symmetric" and not (mode == "pytorch_half_pixel" and len(made) == 1)
    if known and by_others.shape == made.shape:
        np.testing.assert_array_equal(made, by_others)


# ---- GridSample


@pytest.mark.parametrize("aligned", [0, 1])
def test_a_grid_near_a_tie(context: pumice.Context, aligned: int) -> None:
    """Grids a few ulps of float32 around each tie, and points for which 1 + x rounds to a tie in float32."""
    for size in (1, 2, 3, 4, 5, 7, 8, 12):
        ties = (
            [Fraction(2 * (2 * k + 1) / 2 + 1 - aligned) / (size - aligned) - 1 for k in range(-1, size)]
            if size > aligned
            else []
        )
        grid = np.array([float(one) for one in ties] + [0.0], "float32")
        near = [grid, *(np.nextafter(grid, np.float32(end)) for end in (-9, 9))]
        near += [near[1] - np.float32(1e-9), grid + np.float32(1e-9), grid - np.float32(1e-9)]
        points = np.concatenate(near).astype("float32")
        points = points[(points == 0) | (np.abs(points) >= np.finfo("float32").tiny)]  # a device may flush denormals
        x = np.arange(size, dtype="float32").reshape(1, 1, size)
        proto = model(
            [node("GridSample", ["x", "grid"], mode="nearest", padding_mode="border", align_corners=aligned)],
            [value("x", x.shape), value("grid", [1, len(points), 1])],
            opset=20,
        )
        made = pumice.load(proto, context, progress=False)(x, points.reshape(1, -1, 1))[0, 0]
        expected = []
        for point in points:
            at = ((Fraction(float(point)) + 1) * (size - aligned) - (1 - aligned)) / 2
            expected.append(min(max(round(at), 0), size - 1))
        np.testing.assert_array_equal(made, expected, f"{size} elements")


# ---- regions of interest


def test_cells_of_a_pooled_region_end_exactly_on_elements(context: pumice.Context) -> None:
    """A cell spans floor(index * length / count) to ceil((index + 1) * length / count), in integers."""
    size = 41
    x = np.arange(size, dtype="float32").reshape(1, 1, 1, size)
    for count in (3, 5, 7, 10, 11, 13):
        boxes = np.array([[0, 0, 0, end, 0] for end in range(size)], "float32")
        proto = model(
            [node("MaxRoiPool", ["x", "boxes"], pooled_shape=[1, count])],
            [value("x", x.shape), value("boxes", boxes.shape)],
        )
        made = pumice.load(proto, context, progress=False)(x, boxes)[:, 0, 0]
        expected = [[-(-(k + 1) * length // count) - 1 for k in range(count)] for length in range(1, size + 1)]
        np.testing.assert_array_equal(made, expected)


def test_samples_of_a_cell_of_a_whole_length(context: pumice.Context) -> None:
    """With sampling_ratio 0 a cell of integer length has exactly that many samples, wherever the region begins."""
    x = np.square(np.arange(40, dtype="float32")).reshape(1, 1, 1, 40)
    for count in (1, 2, 3, 5):
        starts = np.arange(0.125, 12, 0.75)
        boxes = np.array([[begin, 0, begin + 2 * count, 1] for begin in starts], "float32")
        proto = model(
            [node("RoiAlign", ["x", "boxes", "at"], output_height=1, output_width=count, mode="avg")],
            [value("x", x.shape), value("boxes", boxes.shape)],
            constants={"at": np.zeros(len(boxes), "int64")},
            opset=16,
        )
        made = pumice.load(proto, context, progress=False)(x, boxes)[:, 0, 0]
        at = starts[:, None, None] - 0.5 + 2 * np.arange(count)[:, None] + np.array([0.5, 1.5])
        expected = np.interp(np.clip(at, 0, 39), np.arange(40), np.square(np.arange(40.0))).mean(-1)
        np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-4)
