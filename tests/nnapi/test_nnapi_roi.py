"""ROI_ALIGN and ROI_POOLING in every type, layout and ratio, against NumPy, and their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from nnapi_operations import Quantized, run

Array = np.ndarray[Any, Any]
TYPES = ["float32", "float16", "uint8", "int8"]
STRIDES = (2.0, 4.0)  # of height and width
F = np.float32


def aligned(x: Array, rois: Array, batch: Array, cells: tuple[int, int], ratios: tuple[int, int], levels: int) -> Array:
    """Rules N11.3 to N11.5, for features [N, H, W, C]; bilinear weights are multiples of 1 / `levels`, or exact if 0."""
    y = np.zeros((len(rois), *cells, x.shape[3]))
    for r, roi in enumerate(rois):
        x0, x1 = (F(one) * (F(1) / F(STRIDES[1])) for one in roi[[0, 2]])
        y0, y1 = (F(one) * (F(1) / F(STRIDES[0])) for one in roi[[1, 3]])
        steps = F(max(y1 - y0, 1)) / F(cells[0]), F(max(x1 - x0, 1)) / F(cells[1])
        counts = [ratio or int(np.ceil(step)) for ratio, step in zip(ratios, steps, strict=True)]
        for i in range(cells[0]):
            for j in range(cells[1]):
                total = np.zeros(x.shape[3])
                for k in range(counts[0]):
                    for m in range(counts[1]):
                        at_y = float(y0) + i * float(steps[0]) + float(steps[0]) / counts[0] * (k + 0.5)
                        at_x = float(x0) + j * float(steps[1]) + float(steps[1]) / counts[1] * (m + 0.5)
                        total += sample(x[batch[r]], at_y, at_x, levels)
                y[r, i, j] = total / (counts[0] * counts[1])
    return y


def sample(image: Array, y: float, x: float, levels: int) -> Array:
    """Rule N11.4: bilinear interpolation, clamped to the image border."""
    places = []
    for at, size in ((y, image.shape[0]), (x, image.shape[1])):
        low = int(np.floor(at))
        places.append((size - 1, size - 1, 0.0) if low >= size - 1 else (low, low + 1, at - low))
    (top, bottom, dy), (left, right, dx) = places
    result = np.zeros(image.shape[2])
    for row, wy in ((top, 1 - dy), (bottom, dy)):
        for column, wx in ((left, 1 - dx), (right, dx)):
            weight = np.floor(wy * wx * levels + 0.5) / levels if levels else wy * wx
            result += weight * image[row, column]
    return result


def pooled(x: Array, rois: Array, batch: Array, cells: tuple[int, int]) -> Array:
    """Rule N12.2: the maximum of each bin; 0 for an empty bin."""
    y = np.zeros((len(rois), *cells, x.shape[3]))
    for r, roi in enumerate(rois):
        bins = []
        for axis, size in ((1, x.shape[1]), (0, x.shape[2])):
            start, end = (
                int(np.floor(F(one) * (F(1) / F(STRIDES[1 - axis])) + F(0.5))) for one in roi[[axis, axis + 2]]
            )
            step = F(max(end - start + 1, 1)) / F(cells[1 - axis])
            edges = [
                (start + int(np.floor(F(j) * step)), start + int(np.ceil(F(j + 1) * step)))
                for j in range(cells[1 - axis])
            ]
            bins.append([(min(low, size), min(high, size)) for low, high in edges])
        for i, (top, bottom) in enumerate(bins[0]):
            for j, (left, right) in enumerate(bins[1]):
                part = x[batch[r], top:bottom, left:right].reshape(-1, x.shape[3])
                y[r, i, j] = part.max(0) if len(part) else 0
    return y


class Case:
    """Features, boxes on the image (the last is empty, at its far corner) and their batch indices."""

    def __init__(self, dtype: str, boxes: int = 5) -> None:
        random = np.random.default_rng(boxes)
        shape = (2, 5, 6, 3)
        if dtype in ("uint8", "int8"):
            low = 0 if dtype == "uint8" else -128
            self.x: Any = Quantized(random.integers(low, low + 256, shape).astype(dtype), 0.5, low + 100)
            self.centred = self.x.array.astype("int64") - self.x.zero_point
        else:
            self.x = (random.integers(-64, 64, shape) / 8).astype(dtype)
            self.centred = self.x.astype("float64")
        corners = np.sort(random.integers(0, 81, (boxes, 2, 2)) / 8, 1).reshape(boxes, 4) * np.array([2, 1, 2, 1])
        if boxes:
            corners[-1] = [24, 10, 24, 10]
        self.rois: Any = (
            Quantized((corners * 8).astype("uint16"), 0.125, 0) if low_bits(dtype) else corners.astype(dtype)
        )
        self.corners = corners
        self.batch = random.integers(0, 2, boxes).astype("int32")

    def features(self, planes: bool) -> Any:
        turn = (lambda one: np.ascontiguousarray(one.transpose(0, 3, 1, 2))) if planes else (lambda one: one)
        return self.x._replace(array=turn(self.x.array)) if isinstance(self.x, Quantized) else turn(self.x)


def low_bits(dtype: str) -> bool:
    return dtype in ("uint8", "int8")


def as_rows(y: Array, planes: bool) -> Array:
    return y.transpose(0, 2, 3, 1) if planes else y


@pytest.mark.parametrize("planes", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("ratios", [(2, 2), (0, 0), (3, 1), (0, 2), (1, 0)])
def test_N11_3_to_N11_5_means_of_samples(
    context: pumice.Context, ratios: tuple[int, int], dtype: str, planes: bool
) -> None:
    case, cells = Case(dtype), (2, 3)
    declared = {"scale": 0.375, "zero_point": 7} if low_bits(dtype) else {}
    operands = [case.features(planes), case.rois, case.batch, *cells, *STRIDES, *ratios, planes]
    y = as_rows(run(context, "ROI_ALIGN", *operands, **declared), planes)
    if low_bits(dtype):
        info = np.iinfo(dtype)
        reals = aligned(case.centred, case.corners, case.batch, cells, ratios, 255) * 0.5 / 0.375 + 7
        expected = np.clip(np.floor(reals + 0.5), info.min, info.max)
        halfway = np.abs(reals - np.floor(reals) - 0.5) < 1e-3
        np.testing.assert_array_equal(y[~halfway], expected[~halfway])
        assert np.abs(y - expected).max() <= 1
        return
    expected = aligned(case.centred, case.corners, case.batch, cells, ratios, 0)
    least = 1e-5 if dtype == "float32" else 5 * 2.0**-10
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=least, atol=least)


@pytest.mark.parametrize("planes", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("cells", [(2, 3), (7, 1), (1, 1)])
def test_N12_2_the_largest_of_a_bin(context: pumice.Context, cells: tuple[int, int], dtype: str, planes: bool) -> None:
    case = Case(dtype)
    y = as_rows(
        run(context, "ROI_POOLING", case.features(planes), case.rois, case.batch, *cells, *STRIDES, planes), planes
    )
    expected = pooled(case.centred, case.corners, case.batch, cells)
    if isinstance(case.x, Quantized):
        expected = expected + case.x.zero_point
    np.testing.assert_array_equal(y, expected.astype(dtype))


def test_G2_no_boxes(context: pumice.Context) -> None:
    """With no boxes, ROI_ALIGN returns no rows; ROI_POOLING raises an error."""
    case = Case("float32", 0)
    assert run(context, "ROI_ALIGN", case.x, case.rois, case.batch, 2, 3, *STRIDES, 0, 0, False).shape == (0, 2, 3, 3)
    with pytest.raises(pumice.GraphError, match="G2"):
        run(context, "ROI_POOLING", case.x, case.rois, case.batch, 2, 3, *STRIDES, False)
    with pytest.raises(pumice.GraphError, match="N11.1"):
        run(context, "ROI_ALIGN", np.zeros((1, 0, 2, 3), "float32"), case.rois, case.batch, 2, 3, *STRIDES, 0, 0, False)


NUMBERS = [2, 3, *STRIDES, 0, 0, False]


WRONG = [(0, 0), (1, -1), (2, 0.0), (3, -1.0), (4, -1), (5, -2)]


@pytest.mark.parametrize(("i", "given"), WRONG)
def test_N11_1_numbers(i: int, given: Any) -> None:
    graph, case = pumice.Graph(), Case("float32")
    x = graph.input("x", "float32", case.x.shape)
    with pytest.raises(pumice.GraphError, match="N11.1"):
        graph.add("nnapi::ROI_ALIGN", x, case.rois, case.batch, *NUMBERS[:i], given, *NUMBERS[i + 1 :])


@pytest.mark.parametrize("op", ["ROI_ALIGN", "ROI_POOLING"])
def test_N11_2_boxes_that_are_known_lie_on_their_image(op: str) -> None:
    def refused(match: str, rois: Any, batch: Any = (0,), dtype: str = "float32") -> None:
        graph = pumice.Graph()
        x = graph.input("x", "float32", [2, 5, 6, 3])
        numbers = NUMBERS if op == "ROI_ALIGN" else [*NUMBERS[:4], False]
        with pytest.raises(pumice.GraphError, match=match):
            graph.add(f"nnapi::{op}", x, np.array(rois, dtype), np.array(batch, "int32"), *numbers)

    refused("N11.2", [[0, 0, 1, 1]], [2])
    refused("N11.2", [[0, 0, 1, 1]], [-1])
    refused("N11.2", [[-1, 0, 1, 1]])
    refused("N11.2", [[0, 0, 24.5, 1]])
    refused("N11.2", [[0, 0, 24, 10.5]])
    refused("D1", [[2, 0, 1, 1]])
    refused("N11.1", [[0, 0, 1, 1]], [0, 1])
    refused("N11.1", [[0, 0, 1, 1]], dtype="float16")
    refused("axis 1", [[0, 0, 1]])
