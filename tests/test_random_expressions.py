"""Every operation is rounded by itself: what is fused, what is not and what the host computes have NumPy's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from random_expressions import Maker, Term

AT_ONCE = 16  # expressions of a graph


def behind_maximum(maker: Maker, x: Term) -> Term:
    """A reduction that is exact, so that the chain is applied by its kernel."""
    whole = maker.node("Unsqueeze", x.array, x, Term(maker.graph.constant(np.array([1])), np.array([1]), "1"))
    return maker.node(
        "ReduceMax", x.array, whole, Term(maker.graph.constant(np.array([1])), np.array([1]), "1"), keepdims=0
    )


def behind_pooling(maker: Maker, x: Term) -> Term:
    shape = Term(maker.graph.constant(np.array([1, 1, 1, -1])), np.array([1, 1, 1, -1]), "[1, 1, 1, -1]")
    image = maker.node("Reshape", x.array.reshape(1, 1, 1, -1), x, shape)
    return maker.node("MaxPool", image.array, image, kernel_shape=[1, 1])


WAYS: dict[str, Any] = {
    "one after the other": {},
    "folded by the host": {"fold": True},
    "behind a reduction": {"behind": behind_maximum},
    "behind a pooling": {"behind": behind_pooling},
}


def wrong_expressions(context: pumice.Context, seed: int, way: str, count: int = AT_ONCE) -> list[str]:
    options = WAYS[way]
    doubles = bool(context.info.features.get("shaderFloat64"))
    maker = Maker(np.random.default_rng(seed), fold=options.get("fold", False), doubles=doubles)
    for k in range(count):
        maker.expression(f"y{k}", options.get("behind"))
    return [
        f"{way}, {'fused' if fuse else 'not fused'}: {one}"
        for fuse in (True, False)
        for one in maker.wrong(context, fuse)
    ]


@pytest.mark.parametrize("way", WAYS)
def test_expressions_have_the_bits_of_their_operations_one_by_one(context: pumice.Context, way: str) -> None:
    found = [one for seed in range(3) for one in wrong_expressions(context, seed, way)]
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_a_hundred_thousand_expressions_have_the_bits_of_their_operations(context: pumice.Context) -> None:
    ways = list(WAYS)
    for seed in range(100_000 // AT_ONCE):
        found = wrong_expressions(context, 1000 + seed, ways[seed % len(ways)])
        assert not found, f"seed {seed}:\n" + "\n".join(found)
