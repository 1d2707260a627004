"""Every operation is rounded separately: fused, unfused and host results have the same bits as NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import pumice
from features import need_features
from random_expressions import AT_ONCE, WAYS, wrong_expressions


@pytest.mark.parametrize("way", WAYS)
def test_expressions_have_the_bits_of_their_operations_one_by_one(context: pumice.Context, way: str) -> None:
    found = [one for seed in range(2) for one in wrong_expressions(context, seed, way)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_constants_that_compilers_know_the_algebra_of_are_operands_like_any_other(
    context: pumice.Context, dtype: str
) -> None:
    """x + 0 is not x for -0; x * 0 and x / 0 are not 0 for infinities and NaNs. Tested as a separate kernel and as an epilogue."""
    if dtype == "float64":
        need_features(context, "shaderFloat64")
    x = np.array([np.nan, np.inf, -np.inf, -1, 1, -0.0, 0, 3], dtype)
    functions = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
    expected = {}
    graph = pumice.Graph("constants")
    rows = graph.input("x", dtype, [x.size, 1])
    whole = graph.add("ReduceMax", rows, graph.constant(np.array([1])), keepdims=0)
    for number in (0.0, -0.0, 1.0, -1.0, np.inf):
        for op, function in functions.items():
            for order in (1, -1):
                for place, value in (("map", graph.add("Neg", rows)), ("reduction", whole)):
                    name = f"{op} of {'x and' if order > 0 else 'it and x:'} {number} behind a {place}"
                    constant = graph.constant(np.array(number, dtype))
                    graph.output(name, graph.add(op, *(value, constant)[::order]))
                    with np.errstate(all="ignore"):
                        known = -x[:, None] if place == "map" else x
                        expected[name] = function(*(known, np.asarray(number, dtype))[::order])
    results = graph.compile(context)({"x": x[:, None]})
    bits = f"u{x.itemsize}"
    wrong = [
        f"{name}: {results[name].ravel()}, not {one.ravel()}"
        for name, one in expected.items()
        if not ((results[name].view(bits) == one.view(bits)) | ((one != one) & (results[name] != results[name]))).all()
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(50))
def test_a_hundred_thousand_expressions_have_the_bits_of_their_operations(context: pumice.Context, part: int) -> None:
    ways = list(WAYS)
    for seed in range(part, 100_000 // AT_ONCE, 50):
        found = wrong_expressions(context, 1000 + seed, ways[seed % len(ways)])
        assert not found, f"seed {seed}:\n" + "\n".join(found)
