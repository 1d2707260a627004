"""NonMaxSuppression and Unique: output sizes determined on the device."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import pumice
from onnx_models import model, node, results_of, value
from pumice.bench import measure

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Array = np.ndarray[Any, Any]

# NonMaxSuppression


def overlap(a: Array, b: Array) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    common = np.prod(np.maximum(high - low, 0))
    return float(common / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - common))


def chosen(boxes: Array, scores: Array, most: int, threshold: float, least: float | None) -> Array:
    rows = []
    for image, of_image in enumerate(scores):
        for kind, of_kind in enumerate(of_image):
            kept: list[int] = []
            for i in np.argsort(-of_kind, kind="stable"):
                if len(kept) == most or (least is not None and of_kind[i] <= least):
                    break
                if all(overlap(boxes[image, i], boxes[image, other]) <= threshold for other in kept):
                    kept.append(i)
            rows += [[image, kind, i] for i in kept]
    return np.array(rows, np.int64).reshape(-1, 3)


def suppression(limits: list[str], constants: dict[str, Array], **attributes: int) -> Any:
    inputs = [value("boxes", ["N", "M", 4]), value("scores", ["N", "C", "M"])]
    return model([node("NonMaxSuppression", ["boxes", "scores", *limits], **attributes)], inputs, constants=constants)


def corners(random: np.random.Generator, images: int, count: int) -> Array:
    low = random.random((images, count, 2))
    return np.concatenate([low, low + 0.02 + 0.3 * random.random((images, count, 2))], -1).astype(np.float32)


@pytest.mark.parametrize(("most", "least"), [(3, 0.5), (1000, None), (200, 0.0), (0, None)])
def test_boxes_of_several_images_and_classes(context: pumice.Context, most: int, least: float | None) -> None:
    constants = {"most": np.array([most]), "overlap": np.array([0.3], np.float32)}
    if least is not None:
        constants["least"] = np.array([least], np.float32)
    loaded = pumice.load(suppression(list(constants), constants), context)
    random = np.random.default_rng(most)
    for images, kinds, count in ((1, 1, 1), (2, 3, 70), (1, 2, 400), (1, 1, 0)):
        boxes, scores = corners(random, images, count), random.random((images, kinds, count)).astype(np.float32)
        expected = chosen(boxes, scores, most, 0.3, least)
        np.testing.assert_array_equal(loaded(boxes, scores), expected)


def test_limits_that_are_inputs(context: pumice.Context) -> None:
    proto = suppression(["most", "overlap"], {})
    proto.graph.input.extend([value("most", [1], INT64), value("overlap", [1])])
    loaded = pumice.load(proto, context)
    random = np.random.default_rng(1)
    boxes, scores = corners(random, 1, 50), random.random((1, 2, 50)).astype(np.float32)
    for most, threshold in ((2, 0.1), (50, 0.9), (0, 0.5)):
        result = loaded(boxes, scores, np.array([most]), np.array([threshold], np.float32))
        np.testing.assert_array_equal(result, chosen(boxes, scores, most, threshold, None))
    assert pumice.load(suppression([], {}), context)(boxes, scores).shape == (0, 3)


def test_more_boxes_than_one_dispatch_may_walk(context: pumice.Context) -> None:
    """Software devices limit the loop count of a dispatch."""
    count = 4000
    places = np.arange(count, dtype=np.float32)
    boxes = np.stack([places, 0 * places, places + 0.5, 0 * places + 1], -1)[None]
    scores = np.random.default_rng(0).permutation(count).astype(np.float32)[None, None]
    constants = {"most": np.array([count]), "overlap": np.array([0.5], np.float32)}
    loaded = pumice.load(suppression(["most", "overlap"], constants), context)
    result = loaded(boxes, scores)
    np.testing.assert_array_equal(result[:, 2], np.argsort(-scores[0, 0]))
    assert measure(loaded, [boxes, scores], 1).device_seconds > 0


def test_boxes_and_scores_that_do_not_fit_are_rejected(context: pumice.Context) -> None:
    proto = suppression([], {})
    proto.graph.input[1].CopyFrom(value("scores", ["N", "C", "K"]))
    loaded = pumice.load(proto, context)
    with pytest.raises(pumice.GraphError, match=r"nonmaxsuppression.y/NMS.*scores of shape \[1, 2, 5\]"):
        loaded(np.zeros((1, 4, 4), np.float32), np.zeros((1, 2, 5), np.float32))


# Unique


def unique(x: Array, axis: int | None, in_order: int) -> list[Array]:
    y, indices, inverse, counts = np.unique(x, True, True, True, axis=axis)
    if not in_order:
        order = np.argsort(indices)
        y, indices, counts = np.take(y, order, axis or 0), indices[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return [y, indices, inverse.reshape(-1), counts]


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "int32"])
@pytest.mark.parametrize("in_order", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_unique(context: pumice.Context, dtype: str, in_order: int, axis: int | None) -> None:
    kind = {"float32": FLOAT, "int64": INT64, "uint8": TensorProto.UINT8, "int32": TensorProto.INT32}[dtype]
    attributes = {"sorted": in_order, **({} if axis is None else {"axis": axis})}
    names = ["y", "indices", "inverse", "counts"]
    proto = model([node("Unique", ["x"], names, **attributes)], [value("x", ["A", "B", "C"], kind)], names)
    loaded = pumice.load(proto, context)
    random = np.random.default_rng(3)
    for shape in ((4, 5, 3), (1, 1, 1), (70, 2, 2), (2, 90, 1)):
        x = random.integers(0, 2, shape).astype(dtype)
        for result, expected in zip(loaded(x), unique(x, axis, in_order), strict=True):
            assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
            np.testing.assert_array_equal(result, expected)


def test_unique_takes_nan_for_one_value(context: pumice.Context) -> None:
    proto = model([node("Unique", ["x"], ["y", "", "", "n"])], [value("x", ["N"])], ["y", "n"])
    y, n = pumice.load(proto, context)(np.array([np.nan, 1, np.nan, -0.0, 0.0], np.float32))
    np.testing.assert_array_equal(y, np.array([0, 1, np.nan], np.float32))
    np.testing.assert_array_equal(n, [2, 1, 2])
    assert pumice.load(proto, context)(np.zeros(0, np.float32))["y"].shape == (0,)


def test_unique_along_an_axis_needs_a_rank(context: pumice.Context) -> None:
    with pytest.raises(pumice.UnsupportedError, match="Unique: along an axis of a tensor of unknown rank"):
        pumice.load(model([node("Unique", axis=0)], [value("x", None)]), context)
    with pytest.raises(pumice.GraphError, match="expected an axis of 2, given 2"):
        pumice.load(model([node("Unique", axis=2)]), context)


# ONNX's own tests of these operators


def standard_cases() -> list[Any]:
    from onnx.backend.test.case import node as cases

    for module in ("nonmaxsuppression", "unique"):
        importlib.import_module(f"{cases.__name__}.{module}")
    names = ("test_nonmaxsuppression", "test_unique")
    return [pytest.param(case, id=case.name) for case in cases._NodeTestCases if case.name.startswith(names)]


@pytest.mark.parametrize("case", standard_cases())
def test_the_tests_of_the_standard(context: pumice.Context, case: Any) -> None:
    for result, expected in results_of(case, context):
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(result, expected)
