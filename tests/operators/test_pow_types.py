"""Pow over all pairs of types: integer powers of integers are exact, whatever the exponent's type."""

from __future__ import annotations

import numpy as np
import pytest

import pumice

BASES = ["int32", "int64", "float32"]
EXPONENTS = ["float32", "int32", "int64", "uint32"]


def powers(a: np.ndarray, b: np.ndarray, context: pumice.Context) -> np.ndarray:
    graph = pumice.Graph("powers")
    x, y = graph.input("a", str(a.dtype), list(a.shape)), graph.input("b", str(b.dtype), list(b.shape))
    graph.output("y", graph.add("Pow", x, y))
    try:
        return np.asarray(graph.compile(context)({"a": a, "b": b})["y"])
    except pumice.UnsupportedError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("base", BASES)
def test_whole_powers(base: str, exponent: str, context: pumice.Context) -> None:
    pairs = [(x, n) for x in (0, 1, 2, 3, 7, 29, 1000, 46341) for n in range(32)]
    a, b = (np.array(column) for column in zip(*pairs, strict=True))
    a, b = np.concatenate([a, -a]), np.concatenate([b, b])
    if exponent != "uint32":
        a, b = np.concatenate([a, a[a != 0]]), np.concatenate([b, -b[a != 0]])
    got = powers(a.astype(base), b.astype(exponent), context)
    if base == "float32":
        expected = np.power(a.astype("float64"), b.astype("float64"))
        finite = np.abs(expected) < float(np.finfo(base).max)
        np.testing.assert_allclose(got[finite], expected[finite], rtol=1e-6, atol=1e-37)
        return
    exact = [
        pow(int(x), int(n)) if n >= 0 else (int(x) ** (int(n) % 2) if abs(x) == 1 else 0)
        for x, n in zip(a, b, strict=True)
    ]
    bits = np.dtype(base).itemsize * 8
    np.testing.assert_array_equal(got, np.array([value % 2**bits for value in exact], f"uint{bits}").astype(base))


@pytest.mark.parametrize("base", [name for name in BASES if "int" in name])
def test_other_powers_of_integers_are_truncated(base: str, context: pumice.Context) -> None:
    a = np.array([2, 2, 10, 100, 1000, 3, 7], base)
    b = np.array([0.5, 1.5, 0.3, 0.75, 3.3, 100.5, -0.5], "float32")
    exact = np.trunc(np.power(a.astype("float64"), b))
    largest = np.iinfo(base).max
    expected = [largest if value > largest else int(value) for value in exact]
    np.testing.assert_array_equal(powers(a, b, context)[exact < 1e6], np.array(expected, base)[exact < 1e6])
    assert powers(a, b, context)[5] == largest
