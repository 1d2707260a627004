"""GENERATE_PROPOSALS in every type and layout, against NumPy, and its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from nnapi_operations import Quantized, operands_of, real, run

Array = np.ndarray[Any, Any]
TYPES = ["float32", "float16", "uint8", "int8"]


def eighths(reals: Array, dtype: str) -> Quantized:
    return Quantized(np.round(reals * 8).astype(dtype), 0.125, 0)


def operands(
    seed: int = 0,
    *,
    dtype: str = "float32",
    images: int = 2,
    sizes: tuple[int, int] = (3, 4),
    anchors: int = 3,
    before: int = 20,
    after: int = 8,
    overlap: float = 0.45,
    least: float = 2.0,
    planes: bool = False,
) -> list[Any]:
    """Scores within an image are distinct."""
    random = np.random.default_rng(seed)
    shape = (images, *sizes, anchors)
    count = int(np.prod(shape[1:]))
    scores: Any = np.array([random.permutation(count) for _ in range(images)]).reshape(shape)
    deltas: Any = random.integers(-16, 17, (images, *sizes, 4 * anchors))
    start = random.integers(-8, 9, (anchors, 2)) / 4
    boxes: Any = np.concatenate([start, start + random.integers(4, 40, (anchors, 2)) / 4], 1)
    extents: Any = random.integers(80, 120, (images, 2)) / 8
    if dtype in ("uint8", "int8"):
        low = 0 if dtype == "uint8" else -128
        scores, deltas = (Quantized((one + low).astype(dtype), 0.0625, low) for one in (scores, deltas + 16))
        deltas = deltas._replace(zero_point=low + 16)
        boxes, extents = eighths(boxes, "int16"), eighths(extents, "uint16")
    else:
        scores, deltas = (scores / 64).astype(dtype), (deltas / 16).astype(dtype)
        boxes, extents = boxes.astype(dtype), extents.astype(dtype)
    if planes:
        scores, deltas = (turned(one) for one in (scores, deltas))
    return [scores, deltas, boxes, extents, 4.0, 3.0, before, after, overlap, least, planes]


def turned(one: Any) -> Any:
    array = one.array if isinstance(one, Quantized) else one
    moved = np.ascontiguousarray(array.transpose(0, 3, 1, 2))
    return one._replace(array=moved) if isinstance(one, Quantized) else moved


def decoded(given: list[Any], n: int) -> Array:
    """Rule D5 at every position, in the order of N15.3: [height, width, anchors, 4]."""
    scores, deltas, anchors, images = (real(one) for one in given[:4])
    if given[10]:
        scores, deltas = scores.transpose(0, 2, 3, 1), deltas.transpose(0, 2, 3, 1)
    out = np.zeros((*scores.shape[1:], 4))
    for h, w, a in np.ndindex(*scores.shape[1:]):
        box = anchors[a] + np.array([w * given[5], h * given[4]] * 2)
        dx, dy, dw, dh = deltas[n, h, w, 4 * a : 4 * a + 4]
        width, height = box[2] - box[0], box[3] - box[1]
        cx, cy = (box[0] + box[2]) / 2 + dx * width, (box[1] + box[3]) / 2 + dy * height
        width, height = width * np.exp(dw), height * np.exp(dh)
        corners = [cx - width / 2, cy - height / 2, cx + width / 2, cy + height / 2]
        out[h, w, a] = np.clip(corners, 0, [images[n, 1], images[n, 0]] * 2)
    return out


def overlap_of(a: Array, b: Array) -> float:
    """IoU by rule D2."""
    w, h = (max(min(a[i + 2], b[i + 2]) - max(a[i], b[i]), 0.0) for i in (0, 1))
    areas = [(one[2] - one[0]) * (one[3] - one[1]) for one in (a, b)]
    return float(w * h / (sum(areas) - w * h))


def model(given: list[Any]) -> tuple[list[float], Array, list[int]]:
    scores, images = real(given[0]), real(given[3])
    scores = scores.transpose(0, 2, 3, 1) if given[10] else scores
    before, after, overlap, least = given[6:10]
    found: list[tuple[float, Array, int]] = []
    for n, image in enumerate(scores):
        boxes, flat = decoded(given, n).reshape(-1, 4), image.reshape(-1)
        order = list(np.argsort(-flat, kind="stable"))[: before if before > 0 else None]
        height, width = images[n]
        left = []
        for i in order:
            x1, y1, x2, y2 = boxes[i]
            w, h = x2 - x1, y2 - y1
            if w > least and h > least and x1 + w / 2 < width and y1 + h / 2 < height:
                left.append(i)
        kept = 0
        while left and (after < 0 or kept < after):
            best = left.pop(0)
            found.append((float(flat[best]), boxes[best], n))
            kept += 1
            left = [i for i in left if not overlap_of(boxes[best], boxes[i]) >= overlap]
    return [one[0] for one in found], np.array([one[1] for one in found]).reshape(-1, 4), [one[2] for one in found]


def agrees(context: pumice.Context, given: list[Any]) -> int:
    scores, boxes, images = run(context, "GENERATE_PROPOSALS", *given)
    expected = model(given)
    dtype = given[0].array.dtype if isinstance(given[0], Quantized) else given[0].dtype
    assert (scores.dtype, images.dtype) == (dtype, np.int32)
    assert images.tolist() == expected[2]
    quantized = isinstance(given[0], Quantized)
    np.testing.assert_array_equal(
        (scores.astype("float64") - given[0].zero_point) * given[0].scale if quantized else scores, expected[0]
    )
    assert boxes.dtype == (np.uint16 if quantized else dtype)
    near = 0.0626 if quantized else 5 * 2.0**-10 if dtype == np.float16 else 1e-5
    assert boxes.shape == expected[1].shape
    np.testing.assert_allclose(boxes * (0.125 if quantized else 1), expected[1], rtol=near, atol=near)
    return len(expected[2])


@pytest.mark.parametrize("planes", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_N15_3_in_every_type_and_layout(context: pumice.Context, dtype: str, planes: bool) -> None:
    for seed in range(2):
        assert agrees(context, operands(seed, dtype=dtype, planes=planes)) > 2


def test_N15_3_and_N15_4_limits(context: pumice.Context) -> None:
    for before, after in ((0, -1), (-3, 4), (1, 5), (36, 36), (1000, 1000), (20, 1)):
        assert agrees(context, operands(1, before=before, after=after)) > 0
    assert agrees(context, operands(1, after=0)) == 0


def test_D4_equal_scores_are_taken_in_their_order(context: pumice.Context) -> None:
    """Ties in the top-k take the lowest positions, then the lowest anchors."""
    for levels in (1, 3):
        given = operands(4, before=15, after=-1, overlap=2.0, least=0.0)
        given[0] = np.floor(given[0] * 64 % levels).astype("float32")
        assert agrees(context, given) > 4


@pytest.mark.parametrize("dtype", TYPES)
def test_N15_2_outputs(dtype: str) -> None:
    """The number of remaining boxes is unknown until run time."""
    given, graph = operands(dtype=dtype), pumice.Graph()
    scores, boxes, images = graph.add("nnapi::GENERATE_PROPOSALS", *operands_of(graph, tuple(given), {}))
    quantized = isinstance(given[0], Quantized)
    assert (scores.dtype, boxes.dtype, images.dtype) == (dtype, "uint16" if quantized else dtype, "int32")
    assert (scores.shape, boxes.shape, images.shape) == ((None,), (None, 4), (None,))
    assert (boxes.scale, boxes.zero_point) == ((0.125, 0) if quantized else (None, None))
    expected = (given[0].scale, given[0].zero_point) if quantized else (None, None)
    assert (scores.scale, scores.zero_point) == expected


def test_N15_3_sizes_and_positions_that_are_omitted(context: pumice.Context) -> None:
    assert agrees(context, operands(2, least=1000.0)) == 0
    counts = [agrees(context, operands(2, least=least, overlap=2.0, after=-1)) for least in (0.0, 3.0, 6.0)]
    assert counts[0] > counts[1] > counts[2]


@pytest.mark.parametrize("overlap", [0.0, 0.1, 0.7, 1.5])
def test_D3_overlaps(context: pumice.Context, overlap: float) -> None:
    agrees(context, operands(3, overlap=overlap, least=0.0, after=-1))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_N15_3_on_many_shapes(context: pumice.Context, seed: int) -> None:
    random = np.random.default_rng(seed)
    images, height, width, anchors = (int(one) for one in random.integers(1, 6, 4))
    dtype = TYPES[seed % 2]
    agrees(context, operands(seed, dtype=dtype, images=images, sizes=(height, width), anchors=anchors))


def expect_error(match: str, i: int, one: Any, dtype: str = "float32", **form: Any) -> None:
    given = operands(dtype=dtype, **form)
    given[i] = one(given[i]) if callable(one) else one
    graph = pumice.Graph()
    with pytest.raises(pumice.GraphError, match=match):
        graph.add("nnapi::GENERATE_PROPOSALS", *operands_of(graph, tuple(given), {}))


def test_N15_1_shapes() -> None:
    zeros = lambda *shape: np.zeros(shape, "float32")  # noqa: E731
    for i, shape in (
        (0, (1, 3, 4, 3)),
        (0, (2, 3, 4, 2)),
        (1, (2, 3, 5, 12)),
        (1, (2, 2, 4, 12)),
        (1, (2, 3, 4, 11)),
        (2, (2, 4)),
        (3, (1, 2)),
    ):
        expect_error("N15.1", i, zeros(*shape))
    expect_error("axis 1", 2, zeros(3, 5))
    expect_error("axis 1", 3, zeros(2, 3))
    expect_error("rank", 0, zeros(3, 4, 3))
    expect_error("N15.1", 0, zeros(2, 3, 4, 3), planes=True)


def test_N15_1_types_and_scales() -> None:
    expect_error("N15.1", 2, np.zeros((3, 4), "float16"))
    expect_error("N15.1", 3, Quantized(np.ones((2, 2), "uint16"), 0.125, 0))
    for dtype in ("uint8", "int8"):
        for i in (2, 3):
            expect_error("N15.1", i, lambda one: one._replace(scale=0.25), dtype)
            expect_error("N15.1", i, lambda one: one._replace(zero_point=1), dtype)


def test_D1_anchors_that_are_none() -> None:
    given = operands()
    graph = pumice.Graph()
    made = operands_of(graph, tuple(given), {})
    made[2] = graph.constant(np.array([[2, 0, 1, 1]] * 3, "float32"))
    with pytest.raises(pumice.GraphError, match="D1"):
        graph.add("nnapi::GENERATE_PROPOSALS", *made)


def test_G2_no_elements_are_rejected(context: pumice.Context) -> None:
    with pytest.raises(pumice.GraphError, match="G2"):
        run(context, "GENERATE_PROPOSALS", *operands(images=0)[:3], np.zeros((0, 2), "float32"), *operands()[4:])


@pytest.mark.parametrize("planes", [False, True])
@pytest.mark.parametrize("unknown", [(0,), (0, 1, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("ranks", [True, False])
def test_sizes_that_are_not_known(context: pumice.Context, ranks: bool, unknown: tuple[int, ...], planes: bool) -> None:
    """One program for maps of several sizes, and for several images."""
    graph, first = pumice.Graph(), operands(planes=planes)
    made = operands_of(graph, tuple(first), {})
    graph = pumice.Graph()
    for i in range(4):
        shape = ([None] * first[i].ndim if ranks else None) if i in unknown else list(first[i].shape)
        made[i] = graph.input(f"x{i}", "float32", shape)
    for k, value in enumerate(graph.add("nnapi::GENERATE_PROPOSALS", *made)):
        graph.output(f"y{k}", value)
    program = graph.compile(context)
    forms: list[dict[str, Any]] = [{}]
    if len(unknown) == 4:
        forms += [{"images": 3, "sizes": (2, 5), "anchors": 1}, {"images": 1, "sizes": (1, 1), "anchors": 2}]
    for form in forms:
        given = operands(planes=planes, **form)
        scores, boxes, images = program({f"x{i}": given[i] for i in range(4)}).values()
        expected = model(given)
        np.testing.assert_array_equal(scores, expected[0])
        np.testing.assert_allclose(boxes, expected[1], rtol=1e-5, atol=1e-5)
        assert images.tolist() == expected[2]
