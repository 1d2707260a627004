"""AXIS_ALIGNED_BBOX_TRANSFORM and HEATMAP_MAX_KEYPOINT in every type and layout, against NumPy, and their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from nnapi_operations import Quantized, real, run

Array = np.ndarray[Any, Any]
TYPES = ["float32", "float16", "uint8", "int8"]


def boxed(reals: Array, dtype: str) -> Any:
    """Return boxes in this type: quantized in steps of 1/8 for 8-bit types."""
    if dtype in ("uint8", "int8"):
        return Quantized(np.clip(np.round(reals * 8), 0, 65535).astype("uint16"), 0.125, 0)
    return reals.astype(dtype)


def near(actual: Array, expected: Array, dtype: str, unit: float = 0) -> None:
    """Compare by rule G9, with one more unit if quantized."""
    least = {"float32": 2e-5, "float16": 5 * 2.0**-10}.get(dtype, 1e-5)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=least, atol=max(least, unit))


def draw_boxes(random: np.random.Generator, count: int, size: float = 60) -> Array:
    start, extent = random.integers(0, 2 * size, (count, 2)) / 4, random.integers(0, 2 * size, (count, 2)) / 4
    return np.concatenate([start, start + extent], 1)


# ---- AXIS_ALIGNED_BBOX_TRANSFORM


def transformed(boxes: Array, deltas: Array, batch: Array, sizes: Array) -> Array:
    """Rule D5 for every box and class."""
    y = np.zeros_like(deltas)
    for r, box in enumerate(boxes):
        height, width = sizes[batch[r]]
        for k in range(deltas.shape[1] // 4):
            dx, dy, dw, dh = deltas[r, 4 * k : 4 * k + 4]
            w, h = box[2] - box[0], box[3] - box[1]
            cx, cy = (box[0] + box[2]) / 2 + dx * w, (box[1] + box[3]) / 2 + dy * h
            w, h = w * np.exp(dw), h * np.exp(dh)
            corners = np.array([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2])
            y[r, 4 * k : 4 * k + 4] = np.clip(corners, 0, [width, height, width, height])
    return y


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("boxes", "classes"), [(1, 1), (7, 3), (0, 2)])
def test_N13_2_and_D5_boxes_and_classes(context: pumice.Context, boxes: int, classes: int, dtype: str) -> None:
    random = np.random.default_rng(boxes)
    rois = boxed(draw_boxes(random, boxes), dtype)
    deltas: Any = random.integers(-16, 17, (boxes, 4 * classes)) / 16
    if dtype in ("uint8", "int8"):
        array = random.integers(0, 256, deltas.shape) if dtype == "uint8" else random.integers(-128, 128, deltas.shape)
        deltas = Quantized(array.astype(dtype), 0.0078125, 100)
    else:
        deltas = deltas.astype(dtype)
    batch, sizes = random.integers(0, 2, boxes).astype("int32"), boxed(np.array([[40.5, 50], [70, 30.25]]), dtype)
    y = run(context, "AXIS_ALIGNED_BBOX_TRANSFORM", rois, deltas, batch, sizes)
    expected = transformed(real(rois), real(deltas), batch, real(sizes))
    if isinstance(rois, Quantized):
        assert y.dtype == np.uint16
        near(y * 0.125, np.round(expected * 8) / 8, dtype, 0.125)
        return
    assert y.dtype == np.dtype(dtype)
    near(y, expected, dtype, 0.03 if dtype == "float16" else 0)


def test_N13_2_a_box_may_outgrow_its_image(context: pumice.Context) -> None:
    rois, deltas = np.array([[1, 2, 3, 4]], "float32"), np.array([[0, 0, 1000, 1000]], "float32")
    y = run(context, "AXIS_ALIGNED_BBOX_TRANSFORM", rois, deltas, np.zeros(1, "int32"), np.array([[20, 10]], "float32"))
    np.testing.assert_array_equal(y, [[0, 0, 10, 20]])


def test_N13_1_and_D1_what_is_rejected() -> None:
    def refused(match: str, **changed: Any) -> None:
        given: dict[str, Any] = {
            "rois": np.array([[1, 2, 3, 4]], "float32"),
            "deltas": np.zeros((1, 8), "float32"),
            "batch": np.zeros(1, "int32"),
            "sizes": np.ones((2, 2), "float32"),
        } | changed
        graph = pumice.Graph()
        made = [
            graph.constant(one.array, scale=one.scale, zero_point=one.zero_point)
            if isinstance(one, Quantized)
            else graph.constant(one)
            for one in given.values()
        ]
        with pytest.raises(pumice.GraphError, match=match):
            graph.add("nnapi::AXIS_ALIGNED_BBOX_TRANSFORM", *made)

    refused("N13.1", deltas=np.zeros((1, 6), "float32"))
    refused("N13.1", deltas=np.zeros((2, 8), "float32"))
    refused("N13.1", batch=np.zeros(2, "int32"))
    refused("N13.1", deltas=np.zeros((1, 8), "float16"))
    refused("axis 1", sizes=np.ones((2, 3), "float32"))
    refused("axis 1", rois=np.zeros((1, 5), "float32"))
    refused("N13.2", batch=np.array([2], "int32"))
    refused("N13.2", batch=np.array([-1], "int32"))
    refused("D1", rois=np.array([[3, 2, 1, 4]], "float32"))
    refused("D1", rois=np.array([[1, np.nan, 3, 4]], "float32"))
    bytes_ = Quantized(np.zeros((1, 8), "uint8"), 0.5, 0)
    refused("N13.1", deltas=bytes_)
    eighths = {
        "rois": Quantized(np.zeros((1, 4), "uint16"), 0.25, 0),
        "sizes": Quantized(np.ones((2, 2), "uint16"), 0.125, 0),
    }
    refused("D1", deltas=bytes_, **eighths)


# ---- HEATMAP_MAX_KEYPOINT


def keypoint(heat: Array, box: Array, tolerance: float) -> tuple[float, float, float]:
    """Rules N17.2 to N17.4 for one map [size, size]."""
    size = len(heat)
    y, x = divmod(int(np.argmax(heat)), size)
    mirror = lambda at: 1 if at == -1 else size - 2 if at == size else at  # noqa: E731
    g = np.array([[heat[mirror(y + j), mirror(x + i)] for i in (-1, 0, 1)] for j in (-1, 0, 1)])
    b = -np.array([(g[1, 2] - g[1, 0]) / 2, (g[2, 1] - g[0, 1]) / 2])
    xx, yy = g[1, 0] - 2 * g[1, 1] + g[1, 2], g[0, 1] - 2 * g[1, 1] + g[2, 1]
    xy = (g[2, 2] - g[2, 0] - g[0, 2] + g[0, 0]) / 4
    a = np.array([[xx, xy], [xy, yy]])
    delta, score = np.zeros(2), g[1, 1]
    if abs(xx * yy - xy * xy) >= tolerance + tolerance * xx * yy:
        delta = np.linalg.inv(a) @ b
        if np.abs(delta).max() > 1.5:
            delta *= 1.5 / np.abs(delta).max()
        score = g[1, 1] - b @ delta + delta @ a @ delta / 2
    px, py = ((np.array([x, y]) + delta + 0.5) / size) * (box[2:] - box[:2]) + box[:2]
    return float(score), float(px), float(py)


@pytest.mark.parametrize("planes", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("boxes", "size", "points"), [(3, 5, 4), (2, 2, 3), (1, 9, 1)])
def test_N17_2_to_N17_4_peaks(
    context: pumice.Context, boxes: int, size: int, points: int, dtype: str, planes: bool
) -> None:
    random = np.random.default_rng(size)
    heat: Any = random.permutation(boxes * points * size * size).reshape(boxes, points, size, size) / 64.0
    heat[0, 0] = 0.5  # zero curvature
    if dtype in ("uint8", "int8"):
        low = 0 if dtype == "uint8" else -128
        heat = Quantized(np.clip(np.round(heat * 8) + low, low, low + 255).astype(dtype), 0.125, low)
    else:
        heat = heat.astype(dtype)
    rois = boxed(draw_boxes(random, boxes), dtype)
    reals = real(heat)
    turned = (lambda one: one) if planes else (lambda one: np.ascontiguousarray(one.transpose(0, 2, 3, 1)))
    given = heat._replace(array=turned(heat.array)) if isinstance(heat, Quantized) else turned(heat)
    declared = {"scale": 0.25, "zero_point": 3} if isinstance(heat, Quantized) else {}
    scores, keypoints = run(context, "HEATMAP_MAX_KEYPOINT", given, rois, planes, **declared)
    tolerance = 1e-3 if dtype == "float16" else 1e-5
    expected = np.array(
        [[keypoint(reals[r, p], real(rois)[r], tolerance) for p in range(points)] for r in range(boxes)]
    )
    if isinstance(heat, Quantized):
        info = np.iinfo(dtype)
        held = (np.clip(np.round(expected[..., 0] / 0.25) + 3, info.min, info.max) - 3) * 0.25
        near((scores.astype("float64") - 3) * 0.25, held, dtype, 0.25)
        near(keypoints * 0.125, expected[..., 1:], dtype, 0.125)
        return
    near(scores, expected[..., 0], dtype, 0.03 if dtype == "float16" else 1e-4)
    near(keypoints, expected[..., 1:], dtype, 0.06 if dtype == "float16" else 1e-3)


def test_N17_1_what_is_rejected(context: pumice.Context) -> None:
    def refused(match: str, heat: Any, boxes: Any, dtype: str = "float32", planes: bool = False) -> None:
        graph = pumice.Graph()
        with pytest.raises(pumice.GraphError, match=match):
            graph.add(
                "nnapi::HEATMAP_MAX_KEYPOINT", graph.input("h", "float32", heat), graph.input("b", dtype, boxes), planes
            )

    refused("N17.1", [2, 5, 4, 3], [2, 4])
    refused("N17.1", [2, 5, 5, 3], [3, 4])
    refused("N17.1", [2, 1, 1, 3], [2, 4])
    refused("axis 1", [2, 5, 5, 3], [2, 3])
    refused("N17.1", [2, 5, 5, 3], [2, 4], "float16")
    refused("N17.1", [2, 5, 5, 3], [2, 4], planes=True)
    with pytest.raises(pumice.GraphError, match="G2"):
        run(context, "HEATMAP_MAX_KEYPOINT", np.zeros((0, 5, 5, 3), "float32"), np.zeros((0, 4), "float32"), False)
