"""QUANTIZED_LSTM in all its forms, bit by bit against NumPy, and its errors."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

import pumice
from nnapi_fixed import logistic, mul, qm, rdp, sat, tanh, truncated
from nnapi_operations import Quantized, operands_of, run, wider

Array = np.ndarray[Any, Any]
FORMS = ["plain", "peephole", "norm", "coupled", "projection", "norm coupled projection", "norm peephole projection"]
single = np.float32


def operands(form: str, seed: int = 0, batch: int = 2, size: int = 5, units: int = 6, power: int = -11) -> list[Any]:
    """Operands of a form, from nearly closed gates to saturated ones."""
    random = np.random.default_rng(seed)
    has = lambda part: part in form.split()  # noqa: E731
    states = 4 if has("projection") else units
    gate = 2.0**-12 * (1 + seed % 3)

    def draw(dtype: str, scale: float, *shape: int, zero: int = 0) -> Quantized:
        info = np.iinfo(dtype)
        return Quantized(random.integers(info.min, info.max + 1, shape).astype(dtype), scale, zero)

    def maybe(part: bool, one: Any) -> Any:
        return one if part else None

    whole = not has("coupled")
    weights = [draw("int8", 0.002 * (i + 1), units, size) for i in range(4)]
    weights += [draw("int8", 0.001 * (i + 2), units, states) for i in range(4)]
    for i in (0, 4):
        weights[i] = maybe(whole, weights[i])
    peepholes = [draw("int16", 0.0001, units) for _ in range(3)]
    peepholes[0] = maybe(whole, peepholes[0])
    biases: list[Any] = [random.integers(-30000, 30000, units).astype("int32") for _ in range(4)]
    biases[0] = maybe(whole, biases[0])
    norms = [draw("int16", 2.0**-15 * 0.7 * (i + 1), units) for i in range(4)]
    norms[0] = maybe(whole, norms[0])
    projection = [draw("int8", 0.003, states, units), random.integers(-9000, 9000, states).astype("int32")]
    return [
        draw("int8", 0.007, batch, size, zero=3),
        *weights,
        *[maybe(has("peephole"), one) for one in peepholes],
        *biases,
        *[maybe(has("projection"), one) for one in projection],
        draw("int8", 0.007, batch, states, zero=-5),
        draw("int16", 2.0**power, batch, units),
        *[maybe(has("norm"), one) for one in norms],
        *[0.0, 0.0],  # clips
        *[gate, gate * 1.1, gate * 1.3, gate * 0.9],
        *[7, 0.006],
    ]


def inverse_root(v: int) -> tuple[int, int]:
    """Rule N3.6."""

    def high(a: int, b: int) -> int:
        exact = a * b
        n = 2**30 if exact >= 0 else 1 - 2**30
        return int(math.copysign(1, exact + n)) * (abs(exact + n) >> 31)

    def sat32(x: int) -> int:
        return max(-(2**31), min(2**31 - 1, x))

    if v <= 1:
        return 2**31 - 1, 0
    shift = 11
    while v >= 2**29:
        v, shift = v // 4, shift + 1
    p = (32 - v.bit_length() - 1) // 2 - 1
    shift, v = shift - p, v << 2 * p
    half, x = int(rdp(np.array(v >> 1), 1)), 2**28
    for _ in range(5):
        cube = sat32(high(high(x, x), x) << 6)
        x = sat32((high(3 * 2**27, x) - high(half, cube)) << 3)
    root = high(x, 1518500250)
    return (root << -shift, 0) if shift < 0 else (root, -shift)


def normalised(z: Array, weights: Quantized, bias: Array) -> Array:
    """Rule N3.5."""
    rows, n = [], z.shape[1]
    for v in z:
        mean = int(truncated(np.array(int(v.sum()) * 1024), n))
        variance = int(truncated(np.array(int((v * v).sum()) * (2**20 // n) - mean * mean), 2**20))
        if variance < 1:
            variance = min(1, int(10000 * single(weights.scale)))
        r = mul(1024 * v - mean, inverse_root(variance))
        t = (r * weights.array + bias).astype("int32").astype("int64")
        t4 = truncated(np.where(t > 0, t + 512, t - 512), 1024)
        mantissa, e = qm(float(single(weights.scale)))
        rows.append(sat(mul(t4, (mantissa, e + 12))))
    return np.array(rows)


def clip8(x: Array) -> Array:
    return np.clip(x, -128, 127)


def model(given: list[Any]) -> tuple[Array, Array]:
    """Rules N3.4 to N3.10: the hidden state and the cell state."""
    wide: list[Any] = [one.array.astype("int64") if isinstance(one, Quantized) else one for one in given]
    scale: list[Any] = [single(one.scale) if isinstance(one, Quantized) else None for one in given]
    power = round(math.log2(given[19].scale))

    def opened(g: int, c: Array) -> Array:
        unit = single(given[26 + g])
        z = np.zeros((len(wide[0]), wide[2].shape[0]), "int64")
        for w, x in ((1 + g, 0), (5 + g, 18)):
            total = (wide[x] - given[x].zero_point) @ wide[w].T
            z = sat(z + mul(total, qm(float(scale[w] * scale[x] / unit))))
        if given[11] is not None and g != 2:
            p = 9 + (2 if g == 3 else g)
            z = sat(z + mul(wide[p] * c, qm(float(single(2.0**power) * scale[p] / unit))))
        if given[21] is not None:
            z = normalised(z, given[20 + g], given[12 + g].astype("int64"))
        return tanh(z, 3) if g == 2 else logistic(z, 3)

    before = wide[19]
    f, g = opened(1, before), opened(2, before)
    i = 32767 - f if given[1] is None else opened(0, before)
    c = sat(rdp(f * before, 15) + rdp(i * g, 30 + power))
    if given[24] > 0:
        most = int(np.clip(given[24] / 2.0**power, -32768, 32767))
        c = np.clip(c, -most, most)
    m = opened(3, c) * tanh(c, 15 + power)
    zero = (given[30] + 128) % 256 - 128
    h = clip8(mul(m, qm(float(single(2.0**-30) / single(given[31])))) - zero)
    if given[16] is None:
        return h, c
    bias = given[17] if given[17] is not None else 0
    total = bias + zero * wide[16].sum(1) + h @ wide[16].T
    out = clip8(mul(total, qm(float(scale[16] * single(given[31]) / scale[18]))) + given[18].zero_point)
    if given[25] > 0:
        most = int(np.clip(single(given[25]) / scale[16], -128, 127))
        out = np.clip(out, -most, most)
    return out, c


def agrees(context: pumice.Context, given: list[Any]) -> None:
    state, cell, y = run(context, "QUANTIZED_LSTM", *given)
    expected, expected_cell = model(given)
    assert (state.dtype, cell.dtype, y.dtype) == (np.int8, np.int16, np.int8)
    np.testing.assert_array_equal(cell, expected_cell)
    np.testing.assert_array_equal(state, expected)
    np.testing.assert_array_equal(y, state)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(2))
def test_N3_4_to_N3_10_bit_by_bit(context: pumice.Context, form: str, seed: int) -> None:
    agrees(context, operands(form, seed))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(2, 8))
def test_N3_4_to_N3_10_on_many_shapes(context: pumice.Context, form: str, seed: int) -> None:
    batch, size, units = (int(one) for one in np.random.default_rng(seed).integers(1, 40, 3))
    agrees(context, operands(form, seed, batch, size, units, power=-9 - seed % 7))


@pytest.mark.parametrize("power", [-15, -13, -9])
def test_N3_3_scales_of_cells(context: pumice.Context, power: int) -> None:
    agrees(context, operands("plain", 1, power=power))


def test_N3_5_and_N3_6_from_equal_sums_to_the_widest(context: pumice.Context) -> None:
    """Variances from 0, which are replaced by a value that depends on the weight scale, to nearly 2^30."""
    for scale in (2.0**-16, 2.0**-10):
        for spread in (0, 1, 2, 5, 100, 20000):
            given = operands("norm", 0, batch=3, size=2, units=4)
            x = np.array([[127, 127], [3, 4], [-128, 3]], "int8")
            given[0] = Quantized(x, 1.0, 3)
            given[18] = given[18]._replace(array=np.full((3, 4), -5, "int8"))
            signs = np.array([[1, 1], [-1, -1], [1, -1], [-1, 1]], "int8")
            for g in range(4):
                given[1 + g] = Quantized(signs, spread / 128, 0) if spread else Quantized(0 * signs, 0.5, 0)
                given[20 + g] = given[20 + g]._replace(scale=scale)
                given[26 + g] = 1.0
            agrees(context, given)


def test_N3_7_biases_have_no_part_without_normalisation(context: pumice.Context) -> None:
    given = operands("plain")
    made = run(context, "QUANTIZED_LSTM", *given)
    given[12:16] = [np.zeros_like(one) for one in given[12:16]]
    for one, other in zip(made, run(context, "QUANTIZED_LSTM", *given), strict=True):
        np.testing.assert_array_equal(one, other)


def test_N3_8_and_N3_10_clips(context: pumice.Context) -> None:
    for cell, projection in ((0.5, 0.02), (100.0, 100.0), (1e-9, 1e-9)):
        given = operands("projection")
        given[24:26] = cell, projection
        agrees(context, given)


def test_N3_9_the_zero_point_is_a_byte(context: pumice.Context) -> None:
    for zero in (-128, 127, 200):
        given = operands("projection")
        given[30] = zero
        agrees(context, given)


def test_N3_10_a_projection_may_lack_its_bias(context: pumice.Context) -> None:
    given = operands("projection")
    given[17] = None
    agrees(context, given)
    given = operands("plain")
    given[17] = np.zeros(6, "int32")  # a bias without its weights is ignored
    agrees(context, given)


def expect_error(match: str, i: int, one: Any, form: str = "norm peephole projection", **declared: Any) -> None:
    given = operands(form)
    given[i] = one(given[i]) if callable(one) else one
    graph = pumice.Graph()
    with pytest.raises(pumice.GraphError, match=match):
        graph.add("nnapi::QUANTIZED_LSTM", *operands_of(graph, tuple(given), {}), **declared)


@pytest.mark.parametrize("i", range(24))
def test_N3_1_and_L7_shapes(i: int) -> None:
    given = operands("norm peephole projection")[i]
    array = given.array if isinstance(given, Quantized) else given
    for axis in range(array.ndim):
        expect_error("L7", i, partial(wider, axis=axis))
    expect_error("rank", i, given._replace(array=array[None]) if isinstance(given, Quantized) else array[None])


def test_L6_presence() -> None:
    for i in (1, 5, 9, 12, 20, 21, 22, 10):
        expect_error("L6", i, None)
    for i in (0, 2, 3, 4, 6, 7, 8, 13, 14, 15, 18, 19, *range(24, 32)):
        expect_error("G1|is required", i, None)
    expect_error("L6", 24, -1.0)
    expect_error("L6", 25, math.nan)
    expect_error("L1", 16, None, "projection")


def test_N3_1_zero_points_and_scales() -> None:
    for i in (*range(1, 12), 16, 19, *range(20, 24)):
        expect_error("N3.1", i, lambda one: one._replace(zero_point=1))
    for i in (26, 29, 31):
        expect_error("N3.1", i, 0.0)


def test_N3_2_the_result_has_the_scale_of_the_state() -> None:
    expect_error("scale", 24, 0.0, scale=0.5)


def test_N3_3_other_scales_are_rejected() -> None:
    for scale in (2.0**-8, 2.0**-16, 1.5 * 2.0**-12):
        expect_error("N3.3", 19, lambda one, scale=scale: one._replace(scale=scale))


def test_G2_no_elements_are_rejected(context: pumice.Context) -> None:
    with pytest.raises(pumice.GraphError, match="G2"):
        run(context, "QUANTIZED_LSTM", *operands("plain", batch=0))
