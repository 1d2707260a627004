"""BOX_WITH_NMS_LIMIT (soft-NMS) in every type and form, against NumPy, and its errors."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import pumice
from nnapi_operations import Quantized, operands_of, run

Array = np.ndarray[Any, Any]
TYPES = ["float32", "float16", "uint8", "int8"]
HARD, LINEAR, GAUSSIAN = range(3)


def operands(
    seed: int = 0,
    *,
    dtype: str = "float32",
    images: tuple[int, ...] = (0,) * 7 + (1,) * 5,
    classes: int = 3,
    threshold: float = 0.1,
    most: int = -1,
    method: int = HARD,
    overlap: float = 0.4,
    sigma: float = 0.5,
    least: float = 0.2,
    levels: int = 16,
) -> list[Any]:
    """Scores are multiples of 1 / levels, so that many of them are equal."""
    random = np.random.default_rng(seed)
    rows = len(images)
    scores: Any = random.integers(0, levels + 1, (rows, classes))
    start = random.integers(0, 12, (rows, classes, 2)) / 2
    boxes: Any = np.concatenate([start, start + random.integers(1, 16, start.shape) / 2], 2).reshape(rows, 4 * classes)
    if dtype in ("uint8", "int8"):
        low = 0 if dtype == "uint8" else -128
        scores = Quantized((scores + low).astype(dtype), 1 / levels, low)
        boxes = Quantized((boxes * 8).astype("uint16"), 0.125, 0)
    else:
        scores, boxes = (scores / levels).astype(dtype), boxes.astype(dtype)
    return [scores, boxes, np.array(images, "int32"), threshold, most, method, overlap, sigma, least]


def real(one: Any) -> Array:
    return np.asarray(one.reals if isinstance(one, Quantized) else one, "float32")


def overlap_of(a: Array, b: Array) -> np.float32:
    """IoU by rule D2; 0 where it is undefined."""
    w, h = (np.float32(max(min(a[i + 2], b[i + 2]) - max(a[i], b[i]), 0)) for i in (0, 1))
    both = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - w * h
    return np.float32(w * h / both) if both > 0 else np.float32(0)


def factor(given: list[Any], common: np.float32) -> np.float32:
    _, _, _, _, _, method, overlap, sigma, _ = given
    if method == GAUSSIAN:
        return np.float32(math.exp(-common * common / np.float32(sigma)))
    if common < np.float32(overlap):
        return np.float32(1)
    return np.float32(0) if method == HARD else np.float32(1) - common


def of_class(given: list[Any], boxes: Array, scores: Array) -> list[tuple[int, np.float32]]:
    """Run soft-NMS by rules N14.3 and D3; return (row, score). Swaps list entries as the reference does."""
    threshold, most, least = np.float32(given[3]), given[4], np.float32(given[8])
    left = [i for i in range(len(scores)) if scores[i] > threshold]
    lowered, at = scores.copy(), 0
    while at < len(left) and (most < 0 or at < most):
        best = max(range(at, len(left)), key=lambda k: (lowered[left[k]], -k))
        left[at], left[best] = left[best], left[at]
        k = at + 1
        while k < len(left):
            lowered[left[k]] *= factor(given, overlap_of(boxes[left[at]], boxes[left[k]]))
            if lowered[left[k]] < least:
                left[k] = left[-1]
                left.pop()
                # The entry moved here from the end has not been rescored yet, so `k` stays.
            else:
                k += 1
        at += 1
    return [(i, lowered[i]) for i in left[:at]]


def model(given: list[Any]) -> tuple[list[float], list[tuple[int, int]], list[int], list[int]]:
    """Return scores, (row, class) of the boxes, classes and batch indices."""
    scores, boxes, images, most = real(given[0]), real(given[1]), given[2], given[4]
    rows, classes = scores.shape
    boxes = boxes.reshape(rows, classes, 4)
    edges = [i for i in range(rows) if i == 0 or images[i] != images[i - 1]] + [rows]
    found = []
    for first, end in itertools.pairwise(edges):
        of_image = [
            (c, score, first + i)
            for c in range(1, classes)
            for i, score in of_class(given, boxes[first:end, c], scores[first:end, c])
        ]
        if most >= 0:
            of_image = sorted(of_image, key=lambda one: -one[1])[:most]
        found += sorted(of_image, key=lambda one: (one[0], -one[1]))
    return (
        [float(one[1]) for one in found],
        [(one[2], one[0]) for one in found],
        [one[0] for one in found],
        [int(images[one[2]]) for one in found],
    )


def agrees(context: pumice.Context, given: list[Any]) -> int:
    scores, boxes, classes, images = run(context, "BOX_WITH_NMS_LIMIT", *given)
    expected = model(given)
    assert classes.tolist() == expected[2]
    assert images.tolist() == expected[3]
    all_boxes = given[1].array if isinstance(given[1], Quantized) else given[1]
    all_boxes = all_boxes.reshape(len(given[2]), -1, 4)
    assert boxes.shape == (len(expected[1]), 4)
    assert boxes.dtype == all_boxes.dtype
    for box, (row, label) in zip(boxes, expected[1], strict=True):
        np.testing.assert_array_equal(box, all_boxes[row, label])
    if isinstance(given[0], Quantized):
        steps = np.array(expected[0]) / given[0].scale + given[0].zero_point
        assert scores.dtype == given[0].array.dtype
        assert np.all(np.abs(scores.astype("float64") - steps) <= 0.5001)
    else:
        assert scores.dtype == given[0].dtype
        near = 1e-3 if scores.dtype == np.float16 else 1e-6
        np.testing.assert_allclose(scores.astype("float64"), expected[0], rtol=near, atol=near)
    return len(classes)


@pytest.mark.parametrize("method", [HARD, LINEAR, GAUSSIAN])
@pytest.mark.parametrize("dtype", TYPES)
def test_N14_3_every_method_in_every_type(context: pumice.Context, dtype: str, method: int) -> None:
    for seed in range(3):
        assert agrees(context, operands(seed, dtype=dtype, method=method)) > 3


@pytest.mark.parametrize("most", [0, 1, 2, 5, 1000])
def test_N14_5_the_best_of_an_image(context: pumice.Context, most: int) -> None:
    for method in (HARD, LINEAR):
        found = agrees(context, operands(4, most=most, method=method, classes=5))
        assert (found > 0) == (most > 0)


def test_N14_3_images_are_runs(context: pumice.Context) -> None:
    """The same batch index in two separate runs denotes two images."""
    given = operands(5, images=(2, 2, 0, 0, 0, 2, 7), threshold=-1.0, least=-1.0)
    assert agrees(context, given) == 14
    assert run(context, "BOX_WITH_NMS_LIMIT", *given)[3].tolist()[-4:] == [2, 2, 7, 7]


def test_N14_3_scores_have_to_exceed_the_threshold(context: pumice.Context) -> None:
    scores = np.array([[1, 0.5, 0.5], [1, 0.75, 0.25]], "float32")
    boxes = np.tile(np.array([[0, 0, 1, 1], [5, 5, 6, 6]], "float32"), 3)
    given = [scores, boxes, np.zeros(2, "int32"), 0.5, -1, HARD, 0.5, 0.5, 0.0]
    assert agrees(context, given) == 1


def test_N14_4_suppressed_boxes_come_back_where_nothing_is_dropped(context: pumice.Context) -> None:
    given = operands(6, least=0.0, overlap=0.01, threshold=0.0)
    assert agrees(context, given) > 10
    assert 0 in run(context, "BOX_WITH_NMS_LIMIT", *given)[0]


def test_N14_5_scores_below_zero_are_raised(context: pumice.Context) -> None:
    """Scaling raises negative scores, so a later box may beat an earlier one; the output is sorted nevertheless."""
    for method in (HARD, LINEAR):
        given = operands(7, threshold=-10.0, least=-10.0, method=method, overlap=0.1, images=(0,) * 6)
        given[0] = -given[0] - np.float32(0.25)
        assert agrees(context, given) == 12
        given[4] = 3
        assert agrees(context, given) == 3


def test_D3_equal_scores_as_lists_are_swapped(context: pumice.Context) -> None:
    """All scores are equal at first, so the order depends on the reference's swaps."""
    for seed in range(4):
        for method in (HARD, LINEAR, GAUSSIAN):
            given = operands(seed, levels=2, method=method, images=(0,) * 24, classes=2, least=0.3)
            assert agrees(context, given) > 1


def test_N14_2_nothing_is_left(context: pumice.Context) -> None:
    given = operands(8, threshold=2.0)
    outputs = run(context, "BOX_WITH_NMS_LIMIT", *given)
    assert [one.shape for one in outputs] == [(0,), (0, 4), (0,), (0,)]


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_G2_no_rows(context: pumice.Context, dtype: str) -> None:
    for most in (-1, 4):
        outputs = run(context, "BOX_WITH_NMS_LIMIT", *operands(images=(), dtype=dtype, most=most))
        assert [one.shape for one in outputs] == [(0,), (0, 4), (0,), (0,)]


def test_N14_3_more_boxes_than_a_workgroup_has_invocations(context: pumice.Context) -> None:
    given = operands(9, images=(0,) * 150 + (1,) * 70, classes=3, method=LINEAR, least=0.3, most=40, levels=4)
    assert agrees(context, given) == 80


def test_D2_boxes_without_an_area_overlap_nothing(context: pumice.Context) -> None:
    scores = np.array([[0, 0.5], [0, 0.75]], "float32")
    boxes = np.tile(np.array([3, 3, 3, 3], "float32"), (2, 2))
    for method in (HARD, LINEAR, GAUSSIAN):
        assert agrees(context, [scores, boxes, np.zeros(2, "int32"), 0.0, -1, method, 0.5, 0.5, 0.25]) == 2


def test_rows_that_another_operation_finds(context: pumice.Context) -> None:
    """Sizes that are unknown until run time propagate."""
    given = operands(10)
    graph, fed = pumice.Graph(), dict[str, np.ndarray]()
    made = operands_of(graph, (None, None, None, *given[3:]), fed)
    for i, shape in enumerate(([None, 3], [None, 12], [None])):
        made[i] = graph.input(f"x{i}", given[i].dtype, shape)
        fed[f"x{i}"] = given[i]
    for i, value in enumerate(graph.add("nnapi::BOX_WITH_NMS_LIMIT", *made)):
        graph.output(f"y{i}", value)
    program = graph.compile(context)
    expected = model(given)
    assert program(fed)["y2"].tolist() == expected[2]
    assert program({key: value[:0] for key, value in fed.items()})["y1"].shape == (0, 4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_N14_on_many_shapes(context: pumice.Context, seed: int) -> None:
    random = np.random.default_rng(seed)
    images = tuple(np.sort(random.integers(0, 3, int(random.integers(1, 90)))).tolist())
    given = operands(
        seed,
        images=images,
        classes=int(random.integers(2, 6)),
        dtype=TYPES[seed % 4],
        method=seed % 3,
        most=int(random.integers(-1, 12)),
        overlap=float(random.random()),
        sigma=float(random.random() + 0.1),
        least=float(random.random() * 0.4),
        threshold=float(random.random() * 0.3),
        levels=int(random.choice([2, 8, 64])),
    )
    agrees(context, given)


def expect_error(match: str, i: int, one: Any, dtype: str = "float32", **form: Any) -> None:
    given = operands(dtype=dtype, **form)
    given[i] = one(given[i]) if callable(one) else one
    graph = pumice.Graph()
    with pytest.raises(pumice.GraphError, match=match):
        graph.add("nnapi::BOX_WITH_NMS_LIMIT", *operands_of(graph, tuple(given), {}))


def test_N14_1_shapes_methods_and_types() -> None:
    zeros = lambda *shape: np.zeros(shape, "float32")  # noqa: E731
    for i, one in (
        (0, zeros(11, 3)),
        (0, zeros(12, 1)),
        (1, zeros(12, 13)),
        (1, zeros(13, 12)),
        (2, np.zeros(11, "int32")),
        (5, 3),
        (5, -1),
        (1, np.zeros((12, 12), "float16")),
    ):
        expect_error("N14.1", i, one)
    expect_error("rank", 0, zeros(12, 3, 1))
    expect_error("N14.1", 7, 0.0, method=GAUSSIAN)
    expect_error("D1", 1, lambda one: one._replace(scale=0.25), "uint8")
    expect_error("N14.1", 1, zeros(12, 12), "int8")


def test_N14_3_and_N14_6_output_sizes_from_constants() -> None:
    for i, one, rule in ((2, np.full(12, -1, "int32"), "N14.3"), (1, np.tile([1, 0, 0, 1], (12, 3)), "D1")):
        graph = pumice.Graph()
        made = operands_of(graph, tuple(operands()), {})
        made[i] = graph.constant(one.astype("float32" if i == 1 else "int32"))
        with pytest.raises(pumice.GraphError, match=rule):
            graph.add("nnapi::BOX_WITH_NMS_LIMIT", *made)
