"""DETECTION_POSTPROCESSING in both of its forms, against NumPy, and its errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import pumice
from nnapi_operations import operands_of, run

Array = np.ndarray[Any, Any]
FACTORS = [10.0, 8.0, 5.0, 4.0]


def operands(
    seed: int = 0,
    *,
    images: int = 2,
    anchors: int = 12,
    classes: int = 4,
    dtype: str = "float32",
    regular: bool = True,
    most: int = 6,
    most_classes: int = 2,
    most_of_class: int = 3,
    least: float = 0.25,
    overlap: float = 0.4,
    background: bool = False,
) -> list[Any]:
    """Scores are distinct, in fp16 too."""
    random = np.random.default_rng(seed)
    scores = random.permutation(images * anchors * classes).reshape(images, anchors, classes) / 1024 * 4
    codes = random.integers(-32, 33, (images, anchors, 5)) / 16
    grid = random.integers(0, 16, (anchors, 2)) / 4
    places = np.concatenate([grid, random.integers(4, 17, (anchors, 2)) / 4], 1)
    scores, codes, places = (one.astype(dtype) for one in (scores, codes, places))
    numbers = [regular, most, most_classes, most_of_class, least, overlap, background]
    return [scores, codes, places, *FACTORS, *numbers]


def decoded(codes: Array, anchors: Array, factors: list[float]) -> Array:
    """Rule N16.3."""
    y, x, h, w = (codes[..., i] / factors[i] for i in range(4))
    cy, cx = anchors[:, 0] + anchors[:, 2] * y, anchors[:, 1] + anchors[:, 3] * x
    half_h, half_w = anchors[:, 2] * np.exp(h) / 2, anchors[:, 3] * np.exp(w) / 2
    return np.stack([cy - half_h, cx - half_w, cy + half_h, cx + half_w], -1)


def overlap_of(a: Array, b: Array) -> float:
    """IoU by rule D2."""
    h, w = (max(min(a[i + 2], b[i + 2]) - max(a[i], b[i]), 0.0) for i in (0, 1))
    areas = [(one[2] - one[0]) * (one[3] - one[1]) for one in (a, b)]
    return float(h * w / (sum(areas) - h * w))


def kept(scores: Array, boxes: Array, least: float, overlap: float, most: int) -> list[int]:
    """NMS by rule D3, for distinct scores."""
    left = [i for i in np.argsort(-scores) if scores[i] > least]
    chosen: list[int] = []
    while left and len(chosen) < most:
        best = left.pop(0)
        chosen.append(int(best))
        left = [i for i in left if not overlap_of(boxes[best], boxes[i]) >= overlap]
    return chosen


def model(given: list[Any]) -> tuple[Array, Array, Array, Array]:
    scores, codes, anchors = (one.astype("float64") for one in given[:3])
    regular, most, most_classes, most_of_class, least, overlap, background = given[7:]
    boxes = decoded(codes, anchors, given[3:7])
    rows = most if regular else most * most_classes
    out = [np.zeros((len(scores), rows)), np.zeros((len(scores), rows, 4)), np.zeros((len(scores), rows), "int32")]
    counts = np.zeros(len(scores), "int32")
    for n, image in enumerate(scores):
        found: list[tuple[float, int, int]] = []
        if regular:  # N16.4
            for c in range(1, image.shape[1]):
                found += [(image[i, c], i, c) for i in kept(image[:, c], boxes[n], least, overlap, most_of_class)]
            found = sorted(found, key=lambda one: -one[0])[:most]
        else:  # N16.5
            for i in kept(image[:, 1:].max(1), boxes[n], least, overlap, most):
                order = np.argsort(-image[i, 1:])[: min(most_classes, image.shape[1] - 1)] + 1
                found += [(image[i, c], i, int(c)) for c in order]
        counts[n] = len(found)
        for row, (score, i, c) in enumerate(found):  # N16.6
            out[0][n, row], out[1][n, row], out[2][n, row] = score, boxes[n, i], c if background else c - 1
    return out[0], out[1], out[2], counts


def agrees(context: pumice.Context, given: list[Any]) -> Array:
    made, expected = run(context, "DETECTION_POSTPROCESSING", *given), model(given)
    dtype = given[0].dtype
    assert [one.dtype for one in made] == [dtype, dtype, np.int32, np.int32]
    np.testing.assert_array_equal(made[3], expected[3])
    np.testing.assert_array_equal(made[2], expected[2])
    np.testing.assert_array_equal(made[0], expected[0])
    least = 5 * 2.0**-10 if dtype == np.float16 else 1e-5
    np.testing.assert_allclose(made[1], expected[1], rtol=least, atol=least)
    return expected[3]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("regular", [True, False])
@pytest.mark.parametrize("background", [True, False])
def test_N16_3_to_N16_6(context: pumice.Context, dtype: str, regular: bool, background: bool) -> None:
    for seed in range(3):
        counts = agrees(context, operands(seed, dtype=dtype, regular=regular, background=background))
        assert counts.min() > 0


@pytest.mark.parametrize("regular", [True, False])
def test_N16_2_rows_that_stay_empty(context: pumice.Context, regular: bool) -> None:
    """More output rows than boxes and classes, and no boxes at all."""
    counts = agrees(context, operands(regular=regular, most=50, most_classes=7, most_of_class=40))
    assert 0 < counts.max() < 50
    assert agrees(context, operands(regular=regular, least=100.0)).max() == 0


def test_N16_4_limits(context: pumice.Context) -> None:
    for most, most_of_class in ((1, 1), (5, 1), (2, 30), (30, 2)):
        agrees(context, operands(3, most=most, most_of_class=most_of_class, least=0.0))
    agrees(context, operands(3, most_classes=-1))  # unused in this form


def test_N16_5_classes_below_the_threshold_come_too(context: pumice.Context) -> None:
    given = operands(1, regular=False, most_classes=3, least=0.3, most_of_class=-1)
    agrees(context, given)
    scores = run(context, "DETECTION_POSTPROCESSING", *given)[0]
    assert ((scores > 0) & (scores < 0.3)).any()


@pytest.mark.parametrize("regular", [True, False])
@pytest.mark.parametrize("overlap", [0.0, 0.1, 0.5, 1.0, 2.0])
def test_D3_overlaps(context: pumice.Context, overlap: float, regular: bool) -> None:
    agrees(context, operands(4, anchors=30, overlap=overlap, regular=regular, least=0.0, most=20, most_of_class=20))


def test_D3_an_overlap_of_just_the_threshold_is_too_much(context: pumice.Context) -> None:
    scores = np.array([[[0, 0.75], [0, 0.5]]], "float32")
    codes = np.zeros((1, 2, 4), "float32")
    anchors = np.array([[1, 1, 2, 2], [1, 0.5, 2, 1]], "float32")  # half the size of the other
    for overlap, count in ((0.5, 1), (float(np.nextafter(np.float32(0.5), np.float32(1))), 2)):
        given = [scores, codes, anchors, *FACTORS, True, 5, 1, 5, 0.0, overlap, False]
        assert agrees(context, given).tolist() == [count]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_N16_3_to_N16_6_on_many_shapes(context: pumice.Context, seed: int) -> None:
    random = np.random.default_rng(seed)
    draw = lambda least, most: int(random.integers(least, most))  # noqa: E731
    agrees(
        context,
        operands(
            seed,
            images=draw(1, 4),
            anchors=draw(1, 80),
            classes=draw(2, 12),
            regular=bool(seed % 2),
            most=draw(1, 40),
            most_classes=draw(1, 12),
            most_of_class=draw(1, 40),
            overlap=float(random.choice([0.2, 0.6])),
        ),
    )


def expect_error(match: str, i: int, one: Any, **form: Any) -> None:
    given = operands(**form)
    given[i] = one
    graph = pumice.Graph()
    with pytest.raises(pumice.GraphError, match=match):
        graph.add("nnapi::DETECTION_POSTPROCESSING", *operands_of(graph, tuple(given), {}))


def test_N16_1_shapes() -> None:
    zeros = lambda *shape: np.zeros(shape, "float32")  # noqa: E731
    for i, shape in ((0, (1, 12, 4)), (0, (2, 11, 4)), (0, (2, 12, 1)), (1, (2, 12, 3)), (1, (2, 11, 5)), (2, (11, 4))):
        expect_error("N16.1", i, zeros(*shape))
    expect_error("axis 1", 2, zeros(12, 5))
    expect_error("rank", 0, zeros(12, 4))
    expect_error("float32", 2, np.zeros((12, 4), "float16"))


def test_N16_1_numbers() -> None:
    for i in range(3, 7):
        for number in (0.0, -1.0, math.nan):
            expect_error("N16.1", i, number)
    expect_error("N16.1", 8, 0)
    expect_error("N16.1", 10, 0)
    expect_error("N16.1", 9, 0, regular=False)
    expect_error("N16.1", 11, -0.5)
    expect_error("N16.1", 12, -0.5)
    expect_error("is required", 13, None)


def test_G2_no_elements_are_rejected(context: pumice.Context) -> None:
    with pytest.raises(pumice.GraphError, match="G2"):
        run(context, "DETECTION_POSTPROCESSING", *operands(anchors=0))
