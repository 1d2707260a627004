"""Weights as indices into a table: the clustering is optimal."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import pumice
from pumice import dv


def least_error(weights: NDArray[np.float16], clusters: int) -> float:
    """Return the error of the optimal clusters, contiguous in the sorted weights, by dynamic programming over all splits."""
    values = np.sort(weights.astype("float64"))
    sums, squares = (np.concatenate([[0], np.cumsum(values**k)]) for k in (1, 2))
    begin, end = np.ogrid[: len(values) + 1, : len(values) + 1]
    with np.errstate(invalid="ignore", divide="ignore"):
        cost = (squares[end] - squares[begin]) - (sums[end] - sums[begin]) ** 2 / (end - begin)
    cost = np.where(end > begin, np.maximum(cost, 0), np.inf)
    best = cost[0].copy()
    for _ in range(clusters - 1):
        best = np.minimum(best, (best[:, None] + cost).min(axis=0))
    return float(best[-1])


def check_table(table: NDArray[np.float16], indices: NDArray[np.uint8], weights: NDArray[np.float16]) -> None:
    assert table.dtype == np.float16 and table.shape == (256,) and table[0] == 0
    used = np.unique(indices[weights != 0])
    assert (used > 0).all() and (indices[weights == 0] == 0).all()
    centres = table[1 : int(used.max()) + 1].astype("float64") if used.size else np.zeros(0)
    assert (np.diff(centres) > 0).all() and (table[len(centres) + 1 :] == 0).all()
    nonzero = weights[weights != 0].astype("float64")
    if nonzero.size:
        nearest = np.abs(nonzero[:, None] - centres).min(axis=1)
        assert (np.abs(nonzero - table[indices[weights != 0]]) == nearest).all()


@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 1000), count=st.integers(800, 1200), scale=st.sampled_from([1e-3, 0.1, 50.0]))
def test_the_clusters_are_the_best_ones(seed: int, count: int, scale: float) -> None:
    weights = (np.random.default_rng(seed).standard_normal(count) * scale).astype("float16")
    indices, table = dv.quantize_weights(weights)
    check_table(table, indices, weights)
    least = least_error(weights, 255)
    error = float(((table[indices].astype("float64") - weights) ** 2).sum())
    rounding = float(((np.spacing(np.abs(weights)).astype("float64") / 2) ** 2).sum())
    assert rounding < least / 20  # small enough to notice a worse clustering
    assert error <= least * (1 + 1e-9) + rounding


@settings(deadline=None)
@given(st.lists(st.floats(width=16, allow_nan=False, allow_infinity=False), max_size=255))
def test_at_most_255_distinct_values_stay_as_they_are(values: list[float]) -> None:
    weights = np.array(values, "float16")
    indices, table = dv.quantize_weights(weights)
    check_table(table, indices, weights)
    assert (table[indices] == weights).all()


def test_many_weights_keep_their_shape_and_give_the_same_table_again() -> None:
    weights = (np.random.default_rng(0).standard_normal((64, 32, 3, 3)) * 0.05).astype("float32")
    weights[0] = 0
    indices, table = dv.quantize_weights(weights)
    assert indices.shape == weights.shape and indices.dtype == np.uint8
    check_table(table, indices, weights.astype("float16"))
    again = dv.quantize_weights(np.asfortranarray(weights))
    assert (again[0] == indices).all() and again[1].tobytes() == table.tobytes()
    assert np.abs(table[indices] - weights).max() < 0.01
    packed = dv.pack_conv_weights(indices, table=table)
    assert (dv.unpack_conv_weights(packed, weights.shape, quantized=True).weights == table[indices]).all()


def test_what_float16_does_not_hold_is_rejected() -> None:
    for value, text in ((np.nan, "nan"), (np.inf, "inf"), (65520.0, "65520")):
        with pytest.raises(pumice.BindingError, match=rf"\[D7\] weights: .* given {text}.* at index 2"):
            dv.quantize_weights(np.array([1, 2, value], "float32"))
    with pytest.raises(pumice.BindingError, match=r"\[D3\] weights: expected float16 or float32; given float64"):
        dv.quantize_weights(np.zeros(3))
