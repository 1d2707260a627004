"""Translate TfIdfVectorizer on numbers: count the occurrences of a pool's n-grams in each row, with comparisons and
sums.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from ...base.element_types import Array
from ...base.errors import graph_error
from ..build.builder import Builder
from ..file.recipe import NodeRecipe

if TYPE_CHECKING:
    from ..._pumice import Value

FLOAT, INT32 = 1, 6  # TensorProto.DataType


def _integers(node: NodeRecipe, name: str) -> list[int]:
    given = node.attributes.get(name)
    if not isinstance(given, list) or not given or not all(isinstance(one, int) and one >= 0 for one in given):
        raise graph_error("node", node.name, f"attribute '{name}': expected integers from 0 on, given {given!r}")
    return [int(one) for one in given]


def _integer(node: NodeRecipe, name: str, least: int) -> int:
    given = node.attributes.get(name)
    if not isinstance(given, int) or given < least:
        raise graph_error(
            "node", node.name, f"attribute '{name}': expected an integer from {least} on, given {given!r}"
        )
    return given


def _pool(node: NodeRecipe) -> list[Array]:
    """Return the pool's n-grams for each n from 1 on, [grams, n].

    Raise GraphError if the pool is not numeric or its counts do not fit.
    """
    pool = node.attributes.get("pool_int64s")
    starts = _integers(node, "ngram_counts")
    if not isinstance(pool, list) or not all(isinstance(one, int) for one in pool):
        raise graph_error("node", node.name, f"attribute 'pool_int64s': expected integers, given {pool!r}")
    ends = [*starts[1:], len(pool)]
    lengths = [end - start for start, end in zip(starts, ends, strict=True)]
    if starts[0] != 0 or any(size < 0 or size % (n + 1) for n, size in enumerate(lengths)):
        raise graph_error(
            "node", node.name, f"attribute 'ngram_counts': {starts} does not divide a pool of {len(pool)}"
        )
    return [np.array(pool[starts[n] : ends[n]], np.int64).reshape(-1, n + 1) for n in range(len(starts))]


def _counts(builder: Builder, node: NodeRecipe, x: Value, width: int, grams: Array, skips: int) -> Value | None:
    """Count each gram in x, [.., grams], with 0 to `skips` elements skipped between neighbours.

    Return None if no gram fits into a row.
    """
    helper = builder.helper
    count = grams.shape[1]
    total: Value | None = None
    for stride in range(1, (skips if count > 1 else 0) + 2):
        places = width - (count - 1) * stride
        if places <= 0 or not len(grams):
            break
        same = []
        for j in range(count):
            part = helper(node, "Slice", x, np.array([j * stride]), np.array([j * stride + places]), np.array([-1]))
            column = helper(node, "CastLike", np.ascontiguousarray(grams[:, j]), x)
            same.append(helper(node, "Equal", helper(node, "Unsqueeze", part, np.array([-1])), column))
        found = functools.reduce(lambda a, b: helper(node, "And", a, b), same)
        sums = helper(node, "ReduceSum", helper(node, "Cast", found, to=INT32), np.array([-2]), keepdims=0)
        total = sums if total is None else helper(node, "Add", total, sums)
    return total


def add_tf_idf(builder: Builder, node: NodeRecipe) -> None:
    """Add TfIdfVectorizer: counts (TF), the weights of grams that occur (IDF), or counts times weights (TFIDF)."""
    (x,) = builder.operands(node, 1, 1)
    width = x.shape[-1] if x.shape else None
    if width is None or x.shape is None or len(x.shape) not in (1, 2):
        raise builder.refuse(node, "rows of unknown length")
    mode = node.attributes.get("mode")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise graph_error("node", node.name, f"attribute 'mode': expected TF, IDF or TFIDF, given {mode!r}")
    least, most = _integer(node, "min_gram_length", 1), _integer(node, "max_gram_length", 1)
    skips = _integer(node, "max_skip_count", 0)
    pool, indices = _pool(node), _integers(node, "ngram_indexes")
    given = node.attributes.get("weights")
    weights = given if isinstance(given, list) and given else [1.0] * len(indices)
    if sum(map(len, pool)) != len(indices) or len(set(indices)) != len(indices) or len(weights) != len(indices):
        raise graph_error(
            "node", node.name, "expected an index of its own, and a weight, for each sequence of the pool"
        )
    helper = builder.helper
    parts: list[Value] = []
    places = np.full(max(indices) + 1, -1)  # column of each result among the counts; -1 if its gram is not counted
    factors = np.ones(max(indices) + 1, np.float32)
    factors[indices] = np.array(weights, np.float32)
    first = made = 0
    for length, grams in enumerate(pool, 1):
        counts = None
        if least <= length <= most:
            counts = _counts(builder, node, x, width, grams, skips)
        if counts is not None:
            parts.append(counts)
            places[indices[first : first + len(grams)]] = made + np.arange(len(grams))
            made += len(grams)
        first += len(grams)
    # Append a column of zeros for grams that are not counted, computed from x so that it has x's number of rows.
    none = helper(node, "Slice", x, np.array([0]), np.array([0]), np.array([-1]))
    empty = helper(node, "ReduceSum", helper(node, "Cast", none, to=INT32), np.array([-1]), keepdims=1)
    counts = helper(node, "Concat", *parts, empty, axis=-1)
    y = helper(node, "Cast", helper(node, "Gather", counts, np.where(places < 0, made, places), axis=-1), to=FLOAT)
    if mode != "TF":
        known = helper(node, "Min", y, np.array(1, np.float32)) if mode == "IDF" else y
        y = helper(node, "Mul", known, factors)
    builder.keep(node.outputs, (helper(node, "Identity", y, output=node.outputs[0]),))
