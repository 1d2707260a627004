"""QUANTIZED_16BIT_LSTM, bit by bit against NumPy, and its errors."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import pumice
from nnapi_fixed import logistic, m, mul, qm, rdp, sat, sh, tanh
from nnapi_operations import Quantized, run, wider

Array = np.ndarray[Any, Any]
BATCH, SIZE, UNITS = 3, 5, 4
UNIT, CELL = 1 / 128, 2.0**-11


def test_F5_and_F6_are_near_the_functions() -> None:
    """The NumPy model is within 12 and 7 units of 2^-15 of the exact functions."""
    a = np.arange(-32768, 32768)
    for k in (3, 4):
        x = a * 2.0 ** (k - 15)
        assert np.abs(tanh(a, k) - 32768 * np.tanh(x)).max() < 12
        assert np.abs(logistic(a, k) - 32768 / (1 + np.exp(-x))).max() < 7


def operands(seed: int, scale: float, zero: int, batch: int = BATCH, size: int = SIZE, units: int = UNITS) -> list[Any]:
    random = np.random.default_rng(seed)
    draw = lambda *shape: random.integers(0, 256, shape).astype("uint8")  # noqa: E731
    weights = [Quantized(draw(units, size), scale, zero) for _ in range(4)]
    weights += [Quantized(draw(units, units), scale, zero) for _ in range(4)]
    biases = [random.integers(-20000, 20000, units).astype("int32") for _ in range(4)]
    cell = Quantized(random.integers(-32768, 32768, (batch, units)).astype("int16"), CELL, 0)
    return [Quantized(draw(batch, size), UNIT, 128), *weights, *biases, cell, Quantized(draw(batch, units), UNIT, 128)]


def model(given: list[Any]) -> tuple[Array, Array]:
    """Rules N4.3 and N4.4."""
    wide = [(one.array if isinstance(one, Quantized) else one).astype("int64") for one in given]
    x, w, r, b, c, h = wide[0], wide[1:5], wide[5:9], wide[9:13], wide[13], wide[14]
    scale = np.float32(given[1].scale) / np.float32(128)
    v = np.concatenate([x, h], 1) - 128
    gates = []
    for gate in range(4):
        row = np.concatenate([r[gate], w[gate]], 1) - given[1].zero_point
        gates.append(sat(mul(v @ row.T + b[gate], qm(4096.0 * float(scale)))))
    i, f, g, o = logistic(gates[0], 3), logistic(gates[1], 3), tanh(gates[2], 3), logistic(gates[3], 3)
    new = sat(rdp(m(i, g), 4) + m(f, c))
    state = 128 + np.clip(rdp(m(o, tanh(sh(new, 1), 3)), 8), -128, 127)
    return new.astype("int16"), state.astype("uint8")


@pytest.mark.parametrize("scale", [0.0001, 0.005, 0.03125, 0.5])
@pytest.mark.parametrize("zero", [0, 100, 255])
def test_N4_3_and_N4_4_bit_by_bit(context: pumice.Context, scale: float, zero: int) -> None:
    """From nearly closed gates to saturated ones."""
    for seed in range(3):
        given = operands(seed, scale, zero)
        cell, state = run(context, "QUANTIZED_16BIT_LSTM", *given)
        expected = model(given)
        np.testing.assert_array_equal(cell, expected[0])
        np.testing.assert_array_equal(state, expected[1])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_N4_4_on_many_shapes(context: pumice.Context, seed: int) -> None:
    random = np.random.default_rng(seed)
    batch, size, units = (int(one) for one in random.integers(1, 70, 3))
    given = operands(seed, float(random.choice([0.001, 0.004, 0.02])), int(random.integers(0, 256)), batch, size, units)
    made = run(context, "QUANTIZED_16BIT_LSTM", *given)
    for one, expected in zip(made, model(given), strict=True):
        np.testing.assert_array_equal(one, expected)


def test_N4_2_states_go_on_as_the_next_operands() -> None:
    graph = pumice.Graph()
    inputs = [
        graph.input(f"x{i}", one.array.dtype, one.array.shape, scale=one.scale, zero_point=one.zero_point)
        if isinstance(one, Quantized)
        else one
        for i, one in enumerate(operands(0, 0.01, 128))
    ]
    cell, state = graph.add("nnapi::QUANTIZED_16BIT_LSTM", *inputs)
    assert (cell.scale, cell.zero_point, state.scale, state.zero_point) == (CELL, 0, UNIT, 128)
    graph.add("nnapi::QUANTIZED_16BIT_LSTM", *inputs[:13], cell, state)


def expect_error(match: str, i: int, one: Any) -> None:
    given = operands(0, 0.01, 100)
    given[i] = one(given[i]) if callable(one) else one
    graph = pumice.Graph()
    inputs = [
        graph.input(f"x{k}", each.array.dtype, each.array.shape, scale=each.scale, zero_point=each.zero_point)
        if isinstance(each, Quantized)
        else each
        for k, each in enumerate(given)
    ]
    with pytest.raises(pumice.GraphError, match=match):
        graph.add("nnapi::QUANTIZED_16BIT_LSTM", *inputs)


@pytest.mark.parametrize("i", range(15))
def test_N4_1_shapes(i: int) -> None:
    for axis in range(1 if 9 <= i < 13 else 2):
        expect_error("N4.1", i, partial(wider, axis=axis))
    expect_error("is required", i, None)


def test_N4_1_scales() -> None:
    for i in (0, 14):
        expect_error("N4.1", i, lambda one: one._replace(scale=1 / 127))
        expect_error("N4.1", i, lambda one: one._replace(zero_point=127))
    for i in range(2, 9):
        expect_error("N4.1", i, lambda one: one._replace(scale=0.02))
        expect_error("N4.1", i, lambda one: one._replace(zero_point=101))
    expect_error("N4.1", 13, lambda one: one._replace(scale=2.0**-12))


def test_G2_no_elements_are_rejected(context: pumice.Context) -> None:
    with pytest.raises(pumice.GraphError, match="G2"):
        run(context, "QUANTIZED_16BIT_LSTM", *operands(0, 0.01, 100, batch=0))
