"""Axes, windows and regions with more elements than some drivers allow loop iterations: 65,535, then they stop silently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from features import need_limits
from pumice.testing import assert_close

Array = npt.NDArray[Any]

LONG = 200_003
# Rows, and columns reduced separately or as neighbours.
SHAPES = [((2, LONG), 1), ((LONG, 3), 0), ((70_001, 16), 0), ((2, LONG, 2), 1)]


def numbers(*shape: int) -> Array:
    """Return multiples of 1/64 that grow along the first axis, so that skipped iterations at the end are detected."""
    random = np.random.default_rng(sum(shape)).integers(-32, 33, shape) / 64
    return np.asarray(random + np.linspace(0, 0.5, shape[0]).reshape(-1, *[1] * (len(shape) - 1)), "float32")


def run(context: pumice.Context, op: str, *inputs: Array | None, constants: int = 0, **attributes: Any) -> list[Array]:
    """Run one operator. The last `constants` inputs are constants of the graph."""
    graph, given = pumice.Graph(), {}
    outputs = attributes.pop("outputs", 1)
    deterministic = attributes.pop("deterministic", False)
    values: list[pumice.Value | None] = []
    for k, array in enumerate(inputs):
        if array is None or k >= len(inputs) - constants:
            values.append(None if array is None else graph.constant(array))
            continue
        given[f"i{k}"] = array
        values.append(graph.input(f"i{k}", str(array.dtype), list(array.shape)))
    made = graph.add(op, *values, outputs=outputs, **attributes)
    for k, value in enumerate(made if isinstance(made, tuple) else (made,)):
        graph.output(f"o{k}", value)
    return list(graph.compile(context, deterministic=deterministic)(given).values())


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize(
    ("op", "fold"), [("ReduceSum", np.sum), ("ReduceMax", np.max), ("ReduceMin", np.min), ("ReduceMean", np.mean)]
)
def test_reductions_fold_all_of_a_long_axis(
    op: str, fold: Callable[..., Array], shape: tuple[int, ...], axis: int, context: pumice.Context
) -> None:
    x = numbers(*shape)
    (made,) = run(context, op, x, np.array([axis]), constants=1)
    assert_close(made, fold(x.astype("float64"), axis=axis, keepdims=True), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_positions_scans_and_exponentials_reach_the_end_of_a_long_axis(
    shape: tuple[int, ...], axis: int, context: pumice.Context
) -> None:
    x = numbers(*shape)
    x[tuple(-1 if i == axis else slice(None) for i in range(x.ndim))] = 3.0
    wide = x.astype("float64")
    exponentials = np.exp(wide - 3)
    sums = exponentials.sum(axis, keepdims=True)
    np.testing.assert_array_equal(run(context, "ArgMax", x, axis=axis)[0], np.argmax(x, axis, keepdims=True))
    assert_close(run(context, "Softmax", x, axis=axis)[0] * LONG, exponentials / sums * LONG, rtol=1e-3, atol=1e-4)
    assert_close(run(context, "LogSoftmax", x, axis=axis)[0], wide - 3 - np.log(sums), rtol=1e-4, atol=1e-4)
    made = run(context, "CumSum", x, np.array(axis), constants=1)[0]
    assert_close(made, np.cumsum(wide, axis), rtol=1e-4, atol=1e-2)
    if x.ndim == 2 and axis == 1:
        places = run(context, "TopK", x, np.array([1]), constants=1, axis=axis, outputs=2)[1]
        np.testing.assert_array_equal(places, np.argmax(x, axis, keepdims=True))


def test_normalisations_walk_long_rows(context: pumice.Context) -> None:
    x, scale = numbers(2, LONG), numbers(LONG) + 1
    wide = x.astype("float64")
    centred = wide - wide.mean(1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    made = run(context, "LayerNormalization", x, scale, constants=1, axis=1, epsilon=1e-5)[0]
    assert_close(made, centred / deviation * scale, rtol=1e-4, atol=1e-4)
    made = run(context, "RMSNormalization", x, scale, constants=1, axis=1, epsilon=1e-5)[0]
    assert_close(made, wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5) * scale, rtol=1e-4, atol=1e-4)
    made = run(context, "LpNormalization", x, axis=1)[0] * 100
    assert_close(made, wide / np.sqrt((wide**2).sum(1, keepdims=True)) * 100, rtol=1e-4, atol=1e-4)
    one, zero = np.ones(2, "float32"), np.zeros(2, "float32")
    plane = x[None]
    for op, more in (("InstanceNormalization", {}), ("GroupNormalization", {"num_groups": 2})):
        made = run(context, op, plane, one, zero, constants=2, epsilon=1e-5, **more)[0]
        assert_close(made, (centred / deviation)[None], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sizes", [(1, 1), (3, 3), (1, 64), (17, 17), (40, 2)])
def test_matmuls_sum_over_long_rows(sizes: tuple[int, int], context: pumice.Context) -> None:
    if any(quirk.name == "loop_limit" for quirk in context.driver_quirks):
        need_limits(context, maxComputeSharedMemorySize=18432)  # for split 8, with less than 65,535 iterations
    a, b = numbers(sizes[0], LONG), numbers(LONG, sizes[1])
    expected = a.astype("float64") @ b.astype("float64")
    for constants in (0, 1):
        assert_close(run(context, "MatMul", a, b, constants=constants)[0], expected, rtol=1e-4, atol=1e-2)
    left, right = (a * 64).astype("uint8"), (b * 64).astype("int8")
    integers = (left.astype("int64") @ right.astype("int64")).astype("int32")
    for constants in (0, 1):
        made = run(context, "MatMulInteger", left, right, constants=constants)[0]
        np.testing.assert_array_equal(made, integers)


def test_convolutions_sum_over_many_channels(context: pumice.Context) -> None:
    x, w = numbers(1, 100_003, 3, 3), numbers(2, 100_003, 1, 1)
    expected = np.einsum("nchw,oc->nohw", x.astype("float64"), w[:, :, 0, 0].astype("float64"))
    assert_close(run(context, "Conv", x, w, constants=1)[0], expected, rtol=1e-4, atol=1e-2)


def windows(x: Array, *sizes: int) -> Array:
    return np.lib.stride_tricks.sliding_window_view(x, sizes, tuple(range(2, 2 + len(sizes))))


def box_sums(x: Array, rows: int, columns: int) -> Array:
    sums = np.pad(x.astype("float64"), ((0, 0), (0, 0), (1, 0), (1, 0))).cumsum(2).cumsum(3)
    down = sums[:, :, rows:] - sums[:, :, :-rows]
    return np.asarray(down[..., columns:] - down[..., :-columns])


@pytest.mark.parametrize("channels", [1, 4])
def test_windows_of_many_elements_are_pooled_axis_by_axis(channels: int, context: pumice.Context) -> None:
    x, size = numbers(1, channels, 300, 303), 290
    x[..., -1] += 2  # large values at the end of the loop
    shape = {"kernel_shape": [size, size]}
    sums = box_sums(x, size, size)
    assert_close(run(context, "AveragePool", x, **shape)[0], sums / size**2, rtol=1e-4, atol=1e-5)
    squares = np.sqrt(box_sums(x.astype("float64") ** 2, size, size))
    assert_close(run(context, "LpPool", x, **shape)[0], squares, rtol=1e-4, atol=1e-3)
    maxima = windows(x, size, size).max((-2, -1))
    np.testing.assert_array_equal(run(context, "MaxPool", x, **shape)[0], maxima)
    whole = (x * 32).astype("int8")
    np.testing.assert_array_equal(run(context, "MaxPool", whole, **shape)[0], windows(whole, size, size).max((-2, -1)))
    wide, every = numbers(1, channels, 570, 572), {"kernel_shape": [280, 280], "dilations": [2, 2]}
    dilated = windows(wide, 559, 559)[..., ::2, ::2].max((-2, -1))
    np.testing.assert_array_equal(run(context, "MaxPool", wide, **every)[0], dilated)


def test_padding_that_counts_divides_windows_of_many_elements(context: pumice.Context) -> None:
    x, pads = numbers(1, 2, 300, 301), [171, 170, 169, 168]
    around = ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3]))
    options = {"kernel_shape": [640, 638], "pads": pads}
    expected = box_sums(np.pad(x, around), 640, 638)
    inside = box_sums(np.pad(np.ones_like(x), around), 640, 638)
    made = run(context, "AveragePool", x, count_include_pad=1, **options)[0]
    assert_close(made * 100, expected / (640 * 638) * 100, rtol=1e-4, atol=1e-5)
    assert_close(run(context, "AveragePool", x, **options)[0] * 100, expected / inside * 100, rtol=1e-4, atol=1e-4)
    # With ceil_mode the last window exceeds the padded input, and the excess is not counted.
    more = {"kernel_shape": [299, 299], "strides": [299, 299], "ceil_mode": 1, "count_include_pad": 1}
    made = run(context, "AveragePool", x, **more)[0]
    assert made.shape == (1, 2, 2, 2)
    assert_close(made[..., 0, 0], x[..., :299, :299].mean((2, 3), dtype="float64"), rtol=1e-4, atol=1e-5)
    assert_close(made[..., 1, 1], x[..., 299:, 299:].mean((2, 3), dtype="float64"), rtol=1e-4, atol=1e-5)
    assert_close(made[..., 0, 1], x[..., :299, 299:].mean((2, 3), dtype="float64"), rtol=1e-4, atol=1e-5)


def test_windows_over_three_axes_are_pooled_axis_by_axis(context: pumice.Context) -> None:
    x = numbers(1, 1, 50, 60, 70)
    x[..., -1] += 2
    shape = [48, 58, 68]
    expected = windows(windows(windows(x, 48).max(-1), 1, 58).max((-2, -1)), 1, 1, 68).max((-3, -2, -1))
    np.testing.assert_array_equal(run(context, "MaxPool", x, kernel_shape=shape)[0], expected)
    wide = x.astype("float64")
    expected = windows(windows(windows(wide, 48).mean(-1), 1, 58).mean((-2, -1)), 1, 1, 68).mean((-3, -2, -1))
    assert_close(run(context, "AveragePool", x, kernel_shape=shape)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [200, 270, 700])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_of_many_samples_are_whole(size: int, mode: str, context: pumice.Context) -> None:
    """The number of samples equals the number of elements: 270 x 270 in one cell were cut off silently."""
    x = numbers(1, 2, size, size)
    x[:, :, -3:] += 4
    boxes = np.array([[0, 0, size - 1, size - 1], [-9, -5, size + 20, size + 31]], "float32")
    cells = {"output_height": 1, "output_width": 1, "sampling_ratio": 0, "mode": mode}
    cells["coordinate_transformation_mode"] = "output_half_pixel"
    made = run(context, "RoiAlign", x, boxes, np.zeros(2, "int64"), constants=2, **cells)[0]
    for box, result in zip(boxes, made, strict=True):
        weights = []
        for first, last in ((box[1], box[3]), (box[0], box[2])):
            count = int(np.ceil(last - first))
            at = first + (np.arange(count) + 0.5) * (last - first) / count
            inside = (at >= -1) & (at <= size)
            low = np.minimum(np.maximum(at, 0).astype(int), size - 1)
            high = np.minimum(low + 1, size - 1)
            part = np.where(low == high, 0, np.maximum(at, 0) - low)
            weights.append((low, high, part, inside))
        (top, bottom, fy, in_y), (left, right, fx, in_x) = weights
        corners = []
        for rows, wy in ((top, 1 - fy), (bottom, fy)):
            for columns, wx in ((left, 1 - fx), (right, fx)):
                weight = np.outer(wy * in_y, wx * in_x)
                corners.append(x[0].astype("float64")[:, rows][:, :, columns] * weight)
        expected = sum(corners).mean((1, 2)) if mode == "avg" else np.max(corners, axis=(0, 2, 3))
        assert_close(result[:, 0, 0], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("size", [200, 300, 700])
def test_cells_of_many_elements_are_whole(size: int, context: pumice.Context) -> None:
    """MaxRoiPool used to skip elements after the first 65,535 of a cell."""
    x = np.arange(2 * size * size, dtype="float32").reshape(1, 2, size, size)
    boxes = np.array([[0, 0, 0, size - 1, size - 1], [0, 2 * size, 0, 3 * size, 9]], "float32")
    made = run(context, "MaxRoiPool", x, boxes, constants=1, pooled_shape=[1, 1])[0]
    np.testing.assert_array_equal(made[0, :, 0, 0], x.max((2, 3))[0])
    np.testing.assert_array_equal(made[1], 0)  # empty cell


@pytest.mark.parametrize("deterministic", [False, True])
def test_updates_of_one_element_are_all_made(deterministic: bool, context: pumice.Context) -> None:
    updates, x = np.rint(numbers(LONG) * 64).astype("float32"), np.zeros(3, "float32")
    indices = np.ones(LONG, "int64")
    made = run(context, "ScatterElements", x, indices, updates, reduction="add", deterministic=deterministic)[0]
    np.testing.assert_array_equal(made, [0, updates.astype("float64").sum(), 0])


def test_keys_of_long_sequences_are_all_seen(context: pumice.Context) -> None:
    random = np.random.default_rng(4)
    q, k, v = [random.standard_normal((1, 1, rows, 8)).astype("float32") for rows in (2, 100_003, 100_003)]
    scores = q[0, 0].astype("float64") @ k[0, 0].T / np.sqrt(8)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    expected = (weights / weights.sum(1, keepdims=True)) @ v[0, 0]
    assert_close(run(context, "Attention", q, k, v)[0][0, 0], expected, rtol=1e-4, atol=1e-4)


REFUSED: list[tuple[str, list[Array | None], dict[str, Any]]] = [
    ("Hardmax", [numbers(2, LONG)], {}),
    ("MatMul", [numbers(2, LONG).astype("float64"), numbers(LONG, 2).astype("float64")], {}),
    ("MatMul", [np.ones((2, LONG), "int32"), np.ones((LONG, 2), "int32")], {}),
    ("Conv", [numbers(1, 1, 302, 302), numbers(1, 1, 300, 300)], {}),
    ("Conv", [numbers(1, 4, 302, 302), numbers(4, 1, 300, 300)], {"group": 4}),
    ("ConvTranspose", [numbers(1, 1, 3, 3), numbers(1, 1, 300, 300)], {}),
    ("MaxPool", [numbers(1, 1, 300, 300)], {"kernel_shape": [290, 290], "outputs": 2}),
    ("AveragePool", [numbers(1, 1, LONG)], {"kernel_shape": [100_001]}),
    ("LRN", [numbers(1, LONG, 1)], {"size": 150_001}),
    ("DFT", [numbers(1, 70_001, 1)], {}),
    ("Det", [numbers(300, 300)], {}),
]


@pytest.mark.parametrize(("op", "inputs", "attributes"), REFUSED, ids=[one[0] for one in REFUSED])
def test_loops_that_are_not_split_are_rejected_by_name(
    op: str, inputs: list[Array | None], attributes: dict[str, Any], context: pumice.Context
) -> None:
    """Such loops are rejected if the driver ends long loops; otherwise they run.

    Subgroups of 16 or more share the sum of a convolution. With subgroups of 4, tiles are so small that K is split. Neither case has a
    long loop, so the convolution runs and is correct.
    """
    shares = context.info.limits["subgroupSize"] != 8
    if op == "ConvTranspose" and shares:
        pytest.skip("the taps are shared here: no loop is long, and 8 billion products take minutes")
    if op == "Conv" and shares:
        x, weights = (np.asarray(one, "float64") for one in inputs)
        windows = np.lib.stride_tricks.sliding_window_view(x, weights.shape[2:], (2, 3))
        expected = np.einsum("nchwij,cij->nchw", windows, weights[:, 0])
        assert_close(run(context, op, *inputs, **attributes)[0], expected, rtol=1e-4, atol=1e-2)
        return
    if "loop_limit" not in {quirk.name for quirk in context.driver_quirks}:
        pytest.skip("this driver runs loops of any length")
    with pytest.raises(pumice.UnsupportedError, match=r"would loop \d+ times; this driver ends loops after \d+"):
        run(context, op, *inputs, **attributes)


def test_more_samples_than_anybody_means_are_rejected(context: pumice.Context) -> None:
    """32,768 per axis are 10^9 samples per cell, which would take hours."""
    x, rois, images = numbers(1, 1, 8, 8), np.array([[0, 0, 7, 7]], "float32"), np.array([0])
    with pytest.raises(pumice.UnsupportedError, match="a sampling_ratio of 32768; at most 4096 samples"):
        run(context, "RoiAlign", x, rois, images, output_height=2, output_width=2, sampling_ratio=32768)
