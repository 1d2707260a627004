"""Translate TfIdfVectorizer on integers: count the n-grams of a pool in each row by comparisons and sums."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from ...base.element_types import Array
from ...base.errors import graph_error
from ..build.builder import GraphBuilder
from ..file.graph_recipe import NodeRecipe

if TYPE_CHECKING:
    from ..._pumice import Value

FLOAT, INT32 = 1, 6  # TensorProto.DataType


def _get_integer_list(node: NodeRecipe, name: str) -> list[int]:
    attribute_value = node.attributes.get(name)
    if (
        not isinstance(attribute_value, list)
        or not attribute_value
        or not all(isinstance(element, int) and element >= 0 for element in attribute_value)
    ):
        raise graph_error(
            "node", node.name, f"attribute '{name}': expected non-negative integers, given {attribute_value!r}"
        )
    return [int(element) for element in attribute_value]


def _get_integer(node: NodeRecipe, name: str, minimum: int) -> int:
    attribute_value = node.attributes.get(name)
    if not isinstance(attribute_value, int) or attribute_value < minimum:
        raise graph_error(
            "node",
            node.name,
            f"attribute '{name}': expected an integer of at least {minimum}, given {attribute_value!r}",
        )
    return attribute_value


def _get_ngram_pool(node: NodeRecipe) -> list[Array]:
    """Return the n-grams of the pool as one array [n-grams, n] for each n, from 1 on.

    Raise GraphError if the pool is not numeric or `ngram_counts` does not match it.
    """
    pool = node.attributes.get("pool_int64s")
    starts = _get_integer_list(node, "ngram_counts")
    if not isinstance(pool, list) or not all(isinstance(element, int) for element in pool):
        raise graph_error("node", node.name, f"attribute 'pool_int64s': expected integers, given {pool!r}")
    ends = [*starts[1:], len(pool)]
    lengths = [end - start for start, end in zip(starts, ends, strict=True)]
    if starts[0] != 0 or any(size < 0 or size % (n + 1) for n, size in enumerate(lengths)):
        raise graph_error(
            "node", node.name, f"attribute 'ngram_counts': {starts} does not divide a pool of {len(pool)}"
        )
    return [np.array(pool[starts[n] : ends[n]], np.int64).reshape(-1, n + 1) for n in range(len(starts))]


def _count_ngrams(
    builder: GraphBuilder, node: NodeRecipe, x: Value, width: int, grams: Array, skips: int
) -> Value | None:
    """Count each n-gram in the rows of x, with 0 to `skips` elements skipped between neighbours. width: length of a row.

    Return int32 [..., n-grams]; None if no n-gram fits into a row.
    """
    add_helper = builder.add_helper
    count = grams.shape[1]
    total: Value | None = None
    for stride in range(1, (skips if count > 1 else 0) + 2):
        num_positions = width - (count - 1) * stride
        if num_positions <= 0 or not len(grams):
            break
        is_equal = []
        for j in range(count):
            shifted = add_helper(
                node, "Slice", x, np.array([j * stride]), np.array([j * stride + num_positions]), np.array([-1])
            )
            column = add_helper(node, "CastLike", np.ascontiguousarray(grams[:, j]), x)
            is_equal.append(add_helper(node, "Equal", add_helper(node, "Unsqueeze", shifted, np.array([-1])), column))
        is_match = functools.reduce(lambda a, b: add_helper(node, "And", a, b), is_equal)
        sums = add_helper(node, "ReduceSum", add_helper(node, "Cast", is_match, to=INT32), np.array([-2]), keepdims=0)
        total = sums if total is None else add_helper(node, "Add", total, sums)
    return total


def add_tfidf_vectorizer(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Add TfIdfVectorizer: n-gram counts (TF), weights of the n-grams that occur (IDF), or counts times weights (TFIDF)."""
    (x,) = builder.require_tensors(node, 1, 1)
    width = x.shape[-1] if x.shape else None
    if width is None or x.shape is None or len(x.shape) not in (1, 2):
        raise builder.reject(node, "rows of unknown length")
    mode = node.attributes.get("mode")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise graph_error("node", node.name, f"attribute 'mode': expected TF, IDF or TFIDF, given {mode!r}")
    min_length, max_length = _get_integer(node, "min_gram_length", 1), _get_integer(node, "max_gram_length", 1)
    skips = _get_integer(node, "max_skip_count", 0)
    pool, indices = _get_ngram_pool(node), _get_integer_list(node, "ngram_indexes")
    weights_attribute = node.attributes.get("weights")
    weights = weights_attribute if isinstance(weights_attribute, list) and weights_attribute else [1.0] * len(indices)
    if sum(map(len, pool)) != len(indices) or len(set(indices)) != len(indices) or len(weights) != len(indices):
        expected = "expected an index of its own, and a weight, for each sequence of the pool"
        raise graph_error("node", node.name, expected)
    add = builder.add_helper
    count_columns: list[Value] = []
    # columns[i]: column of `counts` for output i; -1 if its n-gram is not counted.
    columns = np.full(max(indices) + 1, -1)
    factors = np.ones(max(indices) + 1, np.float32)
    factors[indices] = np.array(weights, np.float32)
    first = num_columns = 0
    for length, grams in enumerate(pool, 1):
        counts = _count_ngrams(builder, node, x, width, grams, skips) if min_length <= length <= max_length else None
        if counts is not None:
            count_columns.append(counts)
            columns[indices[first : first + len(grams)]] = num_columns + np.arange(len(grams))
            num_columns += len(grams)
        first += len(grams)
    # Append a zero column for n-grams that are not counted. It is computed from x, to get the right number of rows.
    none = add(node, "Slice", x, np.array([0]), np.array([0]), np.array([-1]))
    empty = add(node, "ReduceSum", add(node, "Cast", none, to=INT32), np.array([-1]), keepdims=1)
    counts = add(node, "Concat", *count_columns, empty, axis=-1)
    columns = np.where(columns < 0, num_columns, columns)
    y = add(node, "Cast", add(node, "Gather", counts, columns, axis=-1), to=FLOAT)
    if mode != "TF":
        clipped = add(node, "Min", y, np.array(1, np.float32)) if mode == "IDF" else y
        y = add(node, "Mul", clipped, factors)
    builder.set_values(node.outputs, (add(node, "Identity", y, output=node.outputs[0]),))
