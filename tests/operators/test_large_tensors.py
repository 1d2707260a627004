"""Weights and tensors larger than the maximum buffer range, on contexts with a small range."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pumice
from lesser_devices import SHORT_RANGE, results
from pumice.testing import assert_close

Array = npt.NDArray[Any]


def values(*shape: int) -> Array:
    return np.random.default_rng(len(shape) + sum(shape)).integers(-64, 64, shape).astype("float32") / 64


def run(
    context: pumice.Context, op: str, given: list[Array], constants: list[Array | None], expected: Array, **options: Any
) -> None:
    graph = pumice.Graph()
    inputs = [graph.input(f"i{k}", str(one.dtype), list(one.shape)) for k, one in enumerate(given)]
    weights = [None if one is None else graph.constant(one) for one in constants]
    graph.output("y", graph.add(op, *inputs, *weights, **options))
    precision = "fp16" if expected.dtype == "float16" else "fp32"
    (made,) = results(graph.compile(context, precision=precision), given, [expected])
    if expected.dtype.kind == "f":
        assert_close(made, expected, rtol=1e-4, atol=1e-3)
    else:
        np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("transposed", [0, 1])
def test_matmuls_with_weights_of_more_than_a_range_are_split(transposed: int, short: pumice.Context) -> None:
    x, weights, bias = values(3, 130), values(130, 1003), values(1003)
    assert weights.nbytes > 4 * SHORT_RANGE
    constant = weights.T.copy() if transposed else weights
    run(short, "Gemm", [x], [constant, bias], x @ weights + bias, transB=transposed)
    run(short, "MatMul", [x], [weights], x @ weights)


def test_matmuls_of_more_rows_than_a_range_has_are_split(short: pumice.Context) -> None:
    x, weights = values(5003, 20), values(20, 24)
    assert x.nbytes > 4 * SHORT_RANGE
    run(short, "MatMul", [x], [weights], x @ weights)
    batch, others = values(40, 30, 50), values(40, 50, 33)
    run(short, "MatMul", [batch, others], [], batch @ others)


def test_matmuls_of_integers_are_split(short: pumice.Context) -> None:
    x = (np.arange(9 * 130) * 37 % 256).astype("uint8").reshape(9, 130)
    weights = (np.arange(130 * 1003) * 31 % 251 - 125).astype("int8").reshape(130, 1003)
    zeros = (np.arange(1003) % 17 - 8).astype("int8")
    expected = ((x.astype("int32") - 9) @ (weights.astype("int32") - zeros)).astype("int32")
    run(short, "MatMulInteger", [x], [weights, np.array(9, "uint8"), zeros], expected)


def test_convolutions_with_weights_of_more_than_a_range_are_split(short: pumice.Context) -> None:
    x, weights, bias = values(1, 40, 5, 5), values(300, 40, 3, 3), values(300)
    assert weights.nbytes > 4 * SHORT_RANGE
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    expected = np.einsum("nchwij,dcij->ndhw", windows, weights, optimize=True) + bias[:, None, None]
    run(short, "Conv", [x], [weights, bias], expected.astype("float32"))
    up = values(40, 120, 2, 2)
    products = np.einsum("nchw,cdij->ndhiwj", x, up, optimize=True).reshape(1, 120, 10, 10)
    run(short, "ConvTranspose", [x], [up], products.astype("float32"), strides=[2, 2])


def test_convolutions_of_more_images_than_a_range_has_are_split(short: pumice.Context) -> None:
    x, weights = values(40, 4, 30, 31), values(6, 4, 1, 1)
    assert x.nbytes > 4 * SHORT_RANGE
    expected = np.einsum("nchw,dc->ndhw", x, weights[:, :, 0, 0], optimize=True).astype("float32")
    run(short, "Conv", [x], [weights], expected)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64"])
def test_gathers_of_tables_of_more_than_a_range_are_split(dtype: str, short: pumice.Context) -> None:
    random = np.random.default_rng(3)
    table = random.integers(-100, 100, (2003, 33)).astype(dtype)
    assert table.nbytes > SHORT_RANGE
    indices = random.integers(-2003, 2003, (7, 130))
    graph = pumice.Graph()
    given = graph.input("i", "int64", list(indices.shape))
    graph.output("rows", graph.add("Gather", graph.constant(table), given))
    wide = random.integers(-33, 33, (2003,))
    chosen = graph.input("w", "int64", [2003])
    graph.output("columns", graph.add("Gather", graph.constant(table), chosen, axis=1))
    places = random.integers(-2003, 2003, (190, 33))
    graph.output("elements", graph.add("GatherElements", graph.constant(table), graph.input("p", "int64", [190, 33])))
    expected = [table[indices], table[:, wide], np.take_along_axis(table, places % 2003, 0)]
    made = results(
        graph.compile(short, precision="fp16" if dtype == "float16" else "fp32"), [indices, wide, places], expected
    )
    for actual, wanted in zip(made, expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64"])
def test_copies_of_tensors_of_more_than_a_range_are_split(dtype: str, short: pumice.Context) -> None:
    x = np.random.default_rng(5).integers(-100, 100, (331, 1501)).astype(dtype)
    assert x.nbytes > 4 * SHORT_RANGE
    run(short, "Transpose", [x], [], x.T.copy(), perm=[1, 0])
    run(short, "Concat", [x, x[:, :7].copy()], [], np.concatenate([x, x[:, :7]], 1), axis=1)
    starts, ends, steps = np.array([300, 2]), np.array([1, 1400]), np.array([-3, 2])
    run(short, "Slice", [x], [starts, ends, np.array([0, 1]), steps], x[300:1:-3, 2:1400:2].copy())
    run(short, "Expand", [x[:3].copy()], [np.array([200, 3, 1501])], np.broadcast_to(x[:3], (200, 3, 1501)).copy())


def test_what_cannot_be_split_is_rejected_with_both_numbers(short: pumice.Context) -> None:
    x = values(1, 20_011)
    with pytest.raises(pumice.UnsupportedError, match=rf"bytes; this device binds at most {SHORT_RANGE} bytes"):
        run(short, "CumSum", [x], [np.array(1)], np.cumsum(x, 1))
