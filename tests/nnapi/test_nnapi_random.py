"""RANDOM_MULTINOMIAL against a NumPy Philox written from the docs page, and its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from nnapi_operations import run

Array = np.ndarray[Any, Any]
WORD = 0xFFFFFFFF


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Rule N20.3: ten rounds."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [q >> 32 ^ c[1] ^ k[0], q & WORD, p >> 32 ^ c[3] ^ k[1], p & WORD]
        k = [(k[0] + 0x9E3779B9) & WORD, (k[1] + 0xBB67AE85) & WORD]
    return c


def uniform(count: int, seeds: tuple[int, int]) -> Array:
    words: list[int] = []
    halves = [[one & WORD, one >> 32 & WORD] for one in seeds]
    block = 0
    while len(words) < 2 * count:
        words += philox([block & WORD, block >> 32, *halves[1]], halves[0])
        block += 1
    return np.array([((words[2 * q] & 0xFFFFF) * 2**32 + words[2 * q + 1]) * 2.0**-52 for q in range(count)])


def test_N20_3_the_model_gives_the_published_uint32() -> None:
    assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("seeds", [(1, 2), (-5, 0), (0, -7), (2**31 - 1, -(2**31))])
def test_N20_3_and_N20_4_samples_of_a_row(context: pumice.Context, seeds: tuple[int, int], dtype: str) -> None:
    """Skips samples within 1e-5 of a cumulative sum, because the device sums in float32."""
    logits = np.random.default_rng(0).integers(-12, 13, (3, 7)).astype(dtype) / np.array(4, dtype)
    logits[0, 2], logits[1, 0], logits[1, 6] = -np.inf, np.nan, np.inf
    count = 200
    y = run(context, "RANDOM_MULTINOMIAL", logits, count, list(seeds))
    assert y.shape == (3, count)
    wide = logits.astype("float64")
    shares = np.where(np.isfinite(wide), np.exp(np.where(np.isfinite(wide), wide, 0)), 0)
    sums = np.cumsum(shares, 1) / shares.sum(1, keepdims=True)
    parts = uniform(3 * count, seeds).reshape(3, count)
    clear = np.abs(sums[:, None] - parts[..., None]).min(2) > 1e-5
    expected = (sums[:, None] <= parts[..., None]).sum(2)
    assert clear.mean() > 0.99
    np.testing.assert_array_equal(y[clear], expected[clear])


def test_N20_2_frequencies_follow_the_softmax(context: pumice.Context) -> None:
    """With seeds of 0 the seed is random: 20,000 samples stay within 6 standard deviations, and two programs differ."""
    logits = np.log(np.array([[1, 2, 3, 4]], "float32") / 10)
    first, second = (run(context, "RANDOM_MULTINOMIAL", logits, 20000, [0, 0]) for _ in range(2))
    shares = np.bincount(first[0], minlength=4) / 20000
    assert np.abs(shares - [0.1, 0.2, 0.3, 0.4]).max() < 6 * 0.5 / np.sqrt(20000)
    assert not np.array_equal(first, second)


def test_N20_4_a_row_without_finite_numbers_gives_class_0(context: pumice.Context) -> None:
    logits = np.array([[np.nan, np.inf, -np.inf]], "float32")
    assert run(context, "RANDOM_MULTINOMIAL", logits, 5, [1, 1]).tolist() == [[0] * 5]


def test_N20_1_and_G2_what_is_rejected(context: pumice.Context) -> None:
    graph = pumice.Graph()
    x = graph.input("x", "float32", [2, 3])
    for more in ((0, [1, 2]), (-1, [1, 2]), (5, [1, 2, 3]), (5, [1])):
        with pytest.raises(pumice.GraphError, match="N20.1"):
            graph.add("nnapi::RANDOM_MULTINOMIAL", x, *more)
    with pytest.raises(pumice.GraphError, match="rank"):
        graph.add("nnapi::RANDOM_MULTINOMIAL", graph.input("v", "float32", [3]), 5, [1, 2])
    with pytest.raises(pumice.GraphError, match="G2"):
        run(context, "RANDOM_MULTINOMIAL", np.zeros((0, 3), "float32"), 5, [1, 2])
