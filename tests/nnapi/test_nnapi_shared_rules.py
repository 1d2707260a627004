"""Rules shared by all operations (G), fixed-point rules (F), and operands that no other test covers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_nnapi_quantized_16bit_lstm import CELL, UNIT, model
from test_nnapi_unknown_shapes import CALLS

import pumice
from nnapi_cells import draw, near
from nnapi_fixed import exp, exp_quarter, m, mul, near_half, qm, rdp, sh
from nnapi_operations import Quantized, operands_of, quantize, random_quantized, run

Array = np.ndarray[Any, Any]
BOXES = np.array([[0, 0, 5, 4], [1, 2, 6, 7]], "float32")


def add(op: str, *given: Any, **declared: Any) -> Any:
    graph = pumice.Graph()
    return graph.add(f"nnapi::{op}", *operands_of(graph, given, {}), **declared)


def expect_error(match: str, op: str, *given: Any, **declared: Any) -> None:
    with pytest.raises(pumice.GraphError, match=match):
        add(op, *given, **declared)


# ---- general rules (G)


@pytest.mark.parametrize("op", CALLS)
def test_G1_counts_and_types_are_rejected_when_an_operation_is_added(op: str) -> None:
    given = CALLS[op][0]
    with pytest.raises(pumice.GraphError) as caught:
        add(op)
    assert caught.value.rule == "G1"
    graph = pumice.Graph()
    made = operands_of(graph, given.operands, {})
    first = next((i for i, one in enumerate(made) if isinstance(one, pumice.Value)), 0)
    shape = list(made[first].shape) if isinstance(made[first], pumice.Value) else [1]  # FILL accepts only lists
    made[first] = graph.input("wrong", "float64", shape)
    with pytest.raises(pumice.GraphError, match="expected; given float64"):
        graph.add(f"nnapi::{op}", *made, **given.declared)


def test_G3_what_an_output_is_declared_to_be() -> None:
    q = random_quantized((2, 3))
    reshaped = (q, [3, 2])
    expect_error(
        "scale 0.25 and .*; given scale 0.250000", "RESHAPE", *reshaped, scale=0.25000003, zero_point=q.zero_point
    )
    for keywords in ({"scale": 0.25000003}, {"zero_point": q.zero_point + 1}):
        expect_error("as operand 0, 'x'; given", "RESHAPE", *reshaped, **{"scale": q.scale, **keywords})
    assert add("RESHAPE", *reshaped, scale=q.scale, zero_point=q.zero_point).scale == q.scale
    graph = pumice.Graph()
    y = graph.add("nnapi::RESHAPE", *operands_of(graph, reshaped, {}))
    for wrong in ({"shape": [2, 3]}, {"dtype": "int8"}, {"scale": 0.5}, {"zero_point": 1}):
        with pytest.raises(pumice.GraphError):
            graph.output("y", y, **wrong)
    graph.output("y", y, shape=[0, 2], dtype="uint8", scale=q.scale, zero_point=q.zero_point)


def test_G4_float16_are_computed_in_float32_and_rounded_once(context: pumice.Context) -> None:
    random = np.random.default_rng(0)
    deltas = (random.standard_normal((2, 8)) / 4).astype("float16")
    images, index = np.array([[9, 8], [7, 9]], "float16"), np.array([1, 0], "int32")
    halves = [BOXES.astype("float16"), deltas, index, images]
    wide = [one.astype("float32") if one.dtype == np.float16 else one for one in halves]
    narrow, exact = (run(context, "AXIS_ALIGNED_BBOX_TRANSFORM", *one) for one in (halves, wide))
    np.testing.assert_array_equal(narrow, exact.astype("float16"))
    make = draw(3, "float16")
    x, w, r, b, h = make(3, 4), make(5, 4), make(5, 5), make(5), make(3, 5)
    steps = run(context, "RNN", x, w, r, b, h, 4)[1]
    assert steps.dtype == np.float16
    near(steps, np.tanh(*[sum((x @ w.T, h @ r.T, b.astype("float64")))]))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_G5_what_integers_stand_for(context: pumice.Context, dtype: str) -> None:
    info = np.iinfo(dtype)
    every = Quantized(np.arange(info.min, info.max + 1).astype(dtype), 0.3, info.min + 7)
    reals = run(context, "DEQUANTIZE", every)
    expected = (every.array.astype("float32") - np.float32(every.zero_point)) * np.float32(0.3)
    np.testing.assert_array_equal(reals, expected)
    back = run(context, "QUANTIZE", reals, scale=0.3, zero_point=every.zero_point, dtype=dtype)
    np.testing.assert_array_equal(back, every.array)
    beyond = np.array([-1e9, 1e9, -np.inf, np.inf, 0.0], "float32")
    held = run(context, "QUANTIZE", beyond, scale=0.3, zero_point=every.zero_point, dtype=dtype)
    assert held.tolist() == [info.min, info.max, info.min, info.max, every.zero_point]


def multiplied(x: int, d: float) -> int:
    """Rule G6 in Python integers, step by step as on the page."""
    if d == 0:
        return 0
    q, e = float(np.frexp(d)[0]), int(np.frexp(d)[1])
    mantissa = int(np.floor(q * 2**31 + 0.5))
    if mantissa == 2**31:
        mantissa, e = 2**30, e + 1
    if e < -31:
        return 0
    exact = x * 2 ** max(e, 0) * mantissa
    total = exact + (2**30 if exact >= 0 else 1 - 2**30)
    high, k = (abs(total) >> 31) * (1 if total >= 0 else -1), max(-e, 0)
    rest, mask = high & (2**k - 1), 2**k - 1
    return (high >> k) + (rest > (mask >> 1) + (high < 0))


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_G6_divisions_of_integers_round_down_or_to_the_nearest(
    context: pumice.Context, dtype: str, constant: bool
) -> None:
    """On the device, and for constants on the host. Ties round away from 0."""
    wide = 2**40 if dtype == "int64" else 2**30
    a = np.array([*range(-40, 41), wide, -wide, wide + 3, -wide - 3], dtype)
    for divisor in (1, 2, 3, 8, 2**15, 2**30):
        b = np.array(divisor, dtype)
        graph = pumice.Graph()
        x = graph.constant(a) if constant else graph.input("a", dtype, list(a.shape))
        moved = graph.add("Identity", x)
        graph.output("down", graph.add("pumice::FloorDivide", moved, b))
        graph.output("near", graph.add("pumice::RoundDivide", moved, b))
        made = graph.compile(context)({} if constant else {"a": a})
        np.testing.assert_array_equal(made["down"], a // b)
        np.testing.assert_array_equal(made["near"], np.sign(a) * ((np.abs(a) + b // 2) // b))


def test_G6_multipliers_of_integers() -> None:
    x = np.array([0, 1, -1, 3, -3, 100, -101, 32767, -32768, 2**24 + 1, -(2**24) - 1])
    for d in (0.0, 1.0, 0.5, 0.75, 1 / 3, 2.0, 3.99, 1 - 2.0**-40, 2.0**-20, 2.0**-31, 2.0**-33, 1e-20):
        found = mul(x, qm(d))
        assert found.tolist() == [multiplied(int(one), d) for one in x]
        assert np.abs(found - x * d).max() <= 1
    assert (qm(0), qm(2.0**-33), qm(1 - 2.0**-40)) == ((0, 0), (0, 0), (2**30, 1))
    assert rdp(np.array([5, -5, 6, -6, 7, -7, 2, -2]), 2).tolist() == [1, -1, 2, -2, 2, -2, 1, -1]


IMAGE, BYTES = draw(0, "float32")(2, 6, 4, 3), random_quantized((2, 6, 4, 3), scale=0.125)
BOX_INDEX = np.array([1, 0], "int32")
LAYOUTS: dict[str, tuple[Any, ...]] = {
    "AVERAGE_POOL_2D": (1, 0, 1, 0, 1, 2, 3, 2, 0),
    "MAX_POOL_2D": (1, 0, 1, 0, 1, 2, 3, 2, 0),
    "RESIZE_BILINEAR": (7, 5),
    "RESIZE_NEAREST_NEIGHBOR": (7, 5),
    "SPACE_TO_DEPTH": (2,),
    "SPACE_TO_BATCH_ND": ([2, 2], [[0, 0], [0, 0]]),
    "ROI_POOLING": (BOXES / 2, BOX_INDEX, 2, 3, 1.0, 1.0),
    "ROI_ALIGN": (BOXES / 2, BOX_INDEX, 2, 3, 1.0, 1.0, 0, 2),
}


@pytest.mark.parametrize("op", LAYOUTS)
@pytest.mark.parametrize("quantized", [False, True])
def test_G8_results_of_both_layouts_are_the_same_transposed(context: pumice.Context, op: str, quantized: bool) -> None:
    more = list(LAYOUTS[op])
    x: Any = BYTES if quantized else IMAGE
    if quantized and op.startswith("ROI"):
        more[0] = Quantized((BOXES * 4).astype("uint16"), 0.125, 0)
    declared = {"scale": 0.125, "zero_point": x.zero_point} if quantized and op == "ROI_ALIGN" else {}
    turned = np.ascontiguousarray((x.array if quantized else x).transpose(0, 3, 1, 2))
    planes = x._replace(array=turned) if quantized else turned
    image = run(context, op, x, *more, False, **declared)
    np.testing.assert_array_equal(run(context, op, planes, *more, True, **declared), image.transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("dtype", "atol", "rtol"), [("float32", 1e-5, 5 * 2.0**-23), ("float16", 5 * 2.0**-10, 5 * 2.0**-10)]
)
def test_G9_results_are_within_the_published_tolerances(
    context: pumice.Context, dtype: str, atol: float, rtol: float
) -> None:
    x = (np.random.default_rng(0).standard_normal((8, 33)) * 3).astype(dtype)
    wide = x.astype("float64")
    shares = np.exp(wide - wide.max(1, keepdims=True))
    for op, more, expected in (
        ("TANH", (), np.tanh(wide)),
        ("LOGISTIC", (), 1 / (1 + np.exp(-wide))),
        ("SIN", (), np.sin(wide)),
        ("SOFTMAX", (1.0,), shares / shares.sum(1, keepdims=True)),
        ("L2_NORMALIZATION", (), wide / np.sqrt((wide**2).sum(1, keepdims=True))),
    ):
        made = run(context, op, x, *more).astype("float64")
        assert np.all(np.abs(made - expected) <= atol + rtol * np.abs(expected)), op


def test_G10_what_is_no_number_fails_a_comparison(context: pumice.Context) -> None:
    """Boxes with a NaN are not boxes; a NaN score exceeds no threshold."""
    nan = BOXES.copy()
    nan[1, 2] = np.nan
    graph = pumice.Graph()
    with pytest.raises(pumice.GraphError, match="D1"):
        graph.add(
            "nnapi::AXIS_ALIGNED_BBOX_TRANSFORM",
            *operands_of(
                graph, (graph.constant(nan), np.zeros((2, 4), "float32"), BOX_INDEX, np.ones((2, 2), "float32")), {}
            ),
        )
    scores = np.array([[0, 0.5], [0, np.nan]], "float32")
    found = run(context, "BOX_WITH_NMS_LIMIT", scores, np.tile(BOXES, 2), BOX_INDEX * 0, 0.0, -1, 0, 0.5, 0.5, 0.0)
    assert found[0].tolist() == [0.5]
    _, points = run(context, "HEATMAP_MAX_KEYPOINT", np.full((2, 4, 4, 1), np.nan, "float32"), BOXES, False)
    assert points.shape == (2, 1, 2)


# ---- fixed-point rules (F)


def test_F1_products_of_16_bits() -> None:
    a = np.array([-32768, -32768, 32767, 181, -181, 0, 16384, -16384])
    b = np.array([-32768, 32767, 32767, 181, 181, -5, 1, 1])
    exact = a * b
    assert m(a, b).tolist() == [32767, -32767, 32766, 1, -1, 0, 1, 0]
    assert np.abs(m(a, b) - exact / 2**15).max() <= 1
    assert sh(np.array([20000, -20000, 5, -5, 6]), 1).tolist() == [32767, -32768, 10, -10, 12]
    assert sh(np.array([5, -5, 6, -6]), -2).tolist() == [1, -1, 2, -2]


def test_F2_exponentials_of_up_to_a_quarter() -> None:
    a = np.arange(-8192, 0)
    assert np.abs(exp_quarter(a) - 32768 * np.exp(a / 32768)).max() < 3


@pytest.mark.parametrize("k", [0, 1, 3, 4, 5, 6])
def test_F3_exponentials(k: int) -> None:
    a = np.arange(-32768, 1)
    found = exp(a, k)
    assert np.abs(found - 32768 * np.exp(a * 2.0 ** (k - 15))).max() < 12
    assert found[-1] == 32767
    if k > 5:
        assert not found[a < -(32 << 15 - k)].any()


def test_F4_two_by_one_and_a_number() -> None:
    a = np.arange(0, 32768)
    assert np.abs(near_half(a) / 2**13 - 2 / (1 + a / 32768)).max() < 1e-3


@pytest.mark.parametrize("code", range(4))
def test_F1_to_F6_on_gates_of_chosen_values(context: pumice.Context, code: int) -> None:
    """With x and h at 0 and a bias unit of 2^-12, each gate's input is its bias: covers the edges of every branch of F3."""
    edges = [base + by for base in (0, 1024, 2048, 4096, 8192, 16384, 24576, 32767) for by in (-1, 0, 1, 7)]
    values = np.clip(np.array([*edges, *(-one for one in edges)]), -32768, 32767).astype("int32")
    units = len(values)
    zeros = [Quantized(np.full((units, 1), 100, "uint8"), 2.0**-5, 100) for _ in range(4)]
    zeros += [Quantized(np.full((units, units), 100, "uint8"), 2.0**-5, 100) for _ in range(4)]
    biases = [np.roll(values, 5 * (gate != code) * (gate + 1)) for gate in range(4)]
    cell = Quantized(np.roll(values, 3)[None].astype("int16"), CELL, 0)
    rest = Quantized(np.full((1, units), 128, "uint8"), UNIT, 128)
    given = [Quantized(np.full((1, 1), 128, "uint8"), UNIT, 128), *zeros, *biases, cell, rest]
    made = run(context, "QUANTIZED_16BIT_LSTM", *given)
    for one, expected in zip(made, model(given), strict=True):
        np.testing.assert_array_equal(one, expected)


# ---- operands and outputs


def lstm_parts(dtype: str = "float32", coupled: bool = False) -> tuple[list[Any], list[Any]]:
    """Operands 1 to 17 for batch 2, input size 3 and 4 units, then the states."""
    make = draw(1, dtype)
    parts: list[Any] = [*(make(4, 3) for _ in range(4)), *(make(4, 4) for _ in range(4)), *[None] * 3]
    parts += [*(make(4) for _ in range(4)), None, None]
    if coupled:
        parts[0] = parts[4] = parts[11] = None
    return parts, [make(2, 4), make(2, 4)]


@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_N2_2_scratch_states_and_output(context: pumice.Context, dtype: str, coupled: bool) -> None:
    parts, states = lstm_parts(dtype, coupled)
    scratch, h, c, y = run(context, "LSTM", draw(2, dtype)(2, 3), *parts, *states, 4, 0.0, 0.0)
    assert scratch.shape == (2, 12 if coupled else 16)
    assert h.shape == c.shape == (2, 4)
    assert {one.dtype for one in (scratch, h, c, y)} == {np.dtype(dtype)}
    np.testing.assert_array_equal(h, y)
    assert h.any()


def test_N2_4_states_are_the_next_operands(context: pumice.Context) -> None:
    """Two steps equal a sequence of length two; x has rank 2."""
    parts, states = lstm_parts()
    x = draw(2, "float32")(2, 2, 3)
    _, h, c, _ = run(context, "LSTM", x[0], *parts, *states, 4, 0.0, 0.0)
    _, h, c, y = run(context, "LSTM", x[1], *parts, h, c, 4, 0.0, 0.0)
    sequence, last, cell = run(context, "UNIDIRECTIONAL_SEQUENCE_LSTM", x, *parts, *states, 4, 0.0, 0.0, True)
    for one, other in ((y, sequence[1]), (h, last), (c, cell)):
        near(one, other.astype("float64"))
    expect_error("rank of 2", "LSTM", x, *parts, *states, 4, 0.0, 0.0)


def test_N5_1_layouts_and_ranks_of_a_sequence(context: pumice.Context) -> None:
    parts, states = lstm_parts()
    x = draw(3, "float32")(5, 2, 3)
    major = run(context, "UNIDIRECTIONAL_SEQUENCE_LSTM", x, *parts, *states, 4, 0.0, 0.0, True)
    minor = run(context, "UNIDIRECTIONAL_SEQUENCE_LSTM", x.swapaxes(0, 1).copy(), *parts, *states, 4, 0.0, 0.0, False)
    assert [one.shape for one in major] == [(5, 2, 4), (2, 4), (2, 4)]
    np.testing.assert_array_equal(minor[0], major[0].swapaxes(0, 1))
    for one, other in zip(minor[1:], major[1:], strict=True):
        np.testing.assert_array_equal(one, other)
    for wrong in (x[0], x[None]):
        expect_error("rank of 3", "UNIDIRECTIONAL_SEQUENCE_LSTM", wrong, *parts, *states, 4, 0.0, 0.0, True)


def test_N9_1_operands_of_both_directions() -> None:
    make = draw(4, "float32")
    forward = [make(5, 3), make(5, 5), make(5), make(2, 5)]
    backward = [make(6, 3), make(6, 6), make(6), make(2, 6)]

    def given(i: int | None = None, one: Any = None) -> list[Any]:
        all_of = [make(4, 2, 3), *forward, *backward, None, None, None, 4, True, False]
        if i is not None:
            all_of[i] = one
        return all_of

    assert [one.shape for one in add("BIDIRECTIONAL_SEQUENCE_RNN", *given())][:2] == [(4, 2, 5), (4, 2, 6)]
    for i, one in (
        (1, make(5, 4)),
        (2, make(5, 4)),
        (3, make(6)),
        (4, make(3, 5)),
        (5, make(6, 2)),
        (6, make(5, 5)),
        (7, make(5)),
        (8, make(2, 5)),
        (0, make(2, 3)),
    ):
        expect_error("elements expected|rank of", "BIDIRECTIONAL_SEQUENCE_RNN", *given(i, one))
    for i in (1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 14):
        expect_error("is required", "BIDIRECTIONAL_SEQUENCE_RNN", *given(i))


def test_N10_1_the_state_of_SVDF_has_a_memory_of_each_filter(context: pumice.Context) -> None:
    make = draw(5, "float32")
    x, feature, time = make(2, 3), make(8, 3), make(8, 4)
    state, y = run(context, "SVDF", x, feature, time, None, make(2, 32), 2, 0)
    assert (state.shape, y.shape) == ((2, 32), (2, 4))
    for wrong in (make(2, 24), make(2, 8), make(3, 32)):
        expect_error("N10|elements expected", "SVDF", x, feature, time, None, wrong, 2, 0)


def test_N12_1_operands_of_ROI_POOLING(context: pumice.Context) -> None:
    image, boxes, index = draw(6, "float32")(2, 6, 4, 3), BOXES / 2, np.array([1, 0], "int32")

    def given(i: int, one: Any) -> list[Any]:
        all_of: list[Any] = [image, boxes, index, 2, 3, 1.0, 1.0, False]
        all_of[i] = one
        return all_of

    assert add("ROI_POOLING", *given(0, image)).shape == (2, 2, 3, 3)
    for i, one in ((3, 0), (4, -1), (5, 0.0), (6, -1.0), (1, boxes[:, :3]), (2, index[:1]), (0, image[0])):
        expect_error("expected", "ROI_POOLING", *given(i, one))
    quantized = random_quantized((2, 6, 4, 3))
    eighths = Quantized(quantize(boxes, 0.125, 0, "uint16"), 0.125, 0)
    y = add("ROI_POOLING", quantized, eighths, *given(0, image)[2:])
    assert (y.scale, y.zero_point) == (quantized.scale, quantized.zero_point)
    expect_error("as operand 0", "ROI_POOLING", quantized, eighths, *given(0, image)[2:], scale=2 * quantized.scale)
    with pytest.raises(pumice.GraphError, match="G2"):
        run(context, "ROI_POOLING", image, boxes[:0], index[:0], 2, 3, 1.0, 1.0, False)
