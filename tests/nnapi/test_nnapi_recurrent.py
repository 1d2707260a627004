"""RNN, its two sequence operations and SVDF in every type and option, against NumPy, and their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pumice
from nnapi_cells import CODES, FLOATS, draw, near, rnn, svdf
from nnapi_operations import operands_of, run

Array = np.ndarray[Any, Any]


def wide(*arrays: Array) -> list[Array]:
    return [one.astype("float64") for one in arrays]


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_N7_1_a_step(context: pumice.Context, dtype: str, code: int) -> None:
    make = draw(code, dtype)
    x, w, r, b, h = make(3, 4), make(5, 4), make(5, 5), make(5), make(3, 5)
    state, y = run(context, "RNN", x, w, r, b, h, code)
    expected = rnn(*wide(x[None], w, r, b, h), code)[1]
    near(y, expected)
    np.testing.assert_array_equal(state, y)


@pytest.mark.parametrize("major", [0, 1])
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_N8_1_a_sequence(context: pumice.Context, dtype: str, code: int, major: int) -> None:
    make = draw(code, dtype)
    x, w, r, b, h = make(6, 3, 4), make(5, 4), make(5, 5), make(5), make(3, 5)
    given = x if major else np.ascontiguousarray(x.swapaxes(0, 1))
    y, state = run(context, "UNIDIRECTIONAL_SEQUENCE_RNN", given, w, r, b, h, code, major)
    expected, last = rnn(*wide(x, w, r, b, h), code)
    near(y, expected if major else expected.swapaxes(0, 1))
    near(state, last)


@pytest.mark.parametrize("linking", ["none", "parallel", "cross"])
@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("major", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
def test_N9_2_and_N9_3_both_directions(
    context: pumice.Context, dtype: str, major: bool, merge: bool, linking: str
) -> None:
    """The numbers of units differ; so do the input sizes if the backward cell reads only the second input."""
    make = draw(len(linking), dtype)
    batch, time, size, forward, backward = 2, 4, 3, 5, 6
    wide_aux = 7 if linking == "parallel" else size
    x, aux = make(time, batch, size), make(time, batch, wide_aux)
    fw = [make(forward, size), make(forward, forward), make(forward), make(batch, forward)]
    bw = [make(backward, wide_aux), make(backward, backward), make(backward), make(batch, backward)]
    cross: list[Any] = [make(forward, size), make(backward, size)] if linking == "cross" else [None, None]
    turned = (lambda one: one) if major else (lambda one: np.ascontiguousarray(one.swapaxes(0, 1)))
    more = [None if linking == "none" else turned(aux), *cross]
    results = run(context, "BIDIRECTIONAL_SEQUENCE_RNN", turned(x), *fw, *bw, *more, 4, major, merge)
    x, aux, *parts = wide(x, aux, *fw, *bw)
    xf, xb = (x, aux if linking == "parallel" else x)
    if linking == "cross":
        xf = xb = np.concatenate([x, aux], 2)
        parts[0] = np.concatenate([parts[0], cross[0].astype("float64")], 1)
        parts[4] = np.concatenate([parts[4], cross[1].astype("float64")], 1)
    yf, hf = rnn(xf, *parts[:4], 4)
    yb, hb = rnn(xb, *parts[4:], 4, backward=True)
    expected = [turned(np.concatenate([yf, yb], 2))] if merge else [turned(yf), turned(yb)]
    expected += [hf, hb]
    assert len(results) == len(expected)
    for actual, one in zip(results, expected, strict=True):
        near(actual, one)


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("major", [False, True])
@pytest.mark.parametrize(("time", "units"), [(1, 5), (17, 131)])
def test_N9_2_both_directions_of_as_many_units_are_one_node(
    context: pumice.Context, time: int, units: int, major: bool, merge: bool, cross: bool
) -> None:
    make, (batch, size) = draw(3, "float32"), (2, 3)
    x, aux = make(time, batch, size), make(time, batch, size)
    fw, bw = ([make(units, size), make(units, units) / 16, make(units), make(batch, units)] for _ in range(2))
    linked = [make(units, size), make(units, size)] if cross else [None, None]
    turned = (lambda one: one) if major else (lambda one: np.ascontiguousarray(one.swapaxes(0, 1)))
    graph, fed = pumice.Graph(), dict[str, Array]()
    operands = (turned(x), *fw, *bw, turned(aux) if cross else None, *linked, 4, major, merge)
    made = graph.add("nnapi::BIDIRECTIONAL_SEQUENCE_RNN", *operands_of(graph, operands, fed))
    assert [node.op for node in graph.nodes].count("RNN") == 1
    for i, value in enumerate(made):
        graph.output(f"y{i}", value)
    results = list(graph.compile(context)(fed).values())
    x, aux, *parts = wide(x, aux, *fw, *bw)
    if cross:
        x = np.concatenate([x, aux], 2)
        for k in (0, 1):
            parts[4 * k] = np.concatenate([parts[4 * k], linked[k].astype("float64")], 1)
    yf, hf = rnn(x, *parts[:4], 4)
    yb, hb = rnn(x, *parts[4:], 4, backward=True)
    expected = [turned(np.concatenate([yf, yb], 2))] if merge else [turned(yf), turned(yb)]
    for actual, one in zip(results, [*expected, hf, hb], strict=True):
        near(actual, one)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("memory", [1, 4])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
def test_N10_3_filters_of_features_and_time(
    context: pumice.Context, dtype: str, has_bias: bool, memory: int, rank: int
) -> None:
    make = draw(rank, dtype)
    batch, size, units = 2, 3, 4
    filters = units * rank
    x, feature, time = make(batch, size), make(filters, size), make(filters, memory)
    bias = make(units) if has_bias else None
    state = make(batch, memory * filters)
    state.reshape(batch, filters, memory)[:, :, -1] = np.nan  # the last column's old value does not matter
    code = [0, 2, 4][rank - 1]
    after, y = run(context, "SVDF", x, feature, time, bias, state, rank, code)
    x, feature, time, state = wide(x, feature, time, state)
    expected = svdf(x, feature, time, None if bias is None else bias.astype("float64"), state, rank, code)
    near(after, expected[0])
    near(y, expected[1])


# ---- errors


def expect_error(op: str, match: str, shapes: dict[int, Any], numbers: list[Any]) -> None:
    """Add `op` with inputs of these shapes (None: omitted), then the numbers; expect an error."""
    graph = pumice.Graph()
    operands: list[Any] = [
        None if shape is None else graph.input(f"x{i}", "float32", shape) for i, shape in shapes.items()
    ]
    with pytest.raises(pumice.GraphError, match=match):
        graph.add(f"nnapi::{op}", *operands, *numbers)


RNN: dict[int, Any] = {0: [3, 4], 1: [5, 4], 2: [5, 5], 3: [5], 4: [3, 5]}


@pytest.mark.parametrize("i", range(5))
def test_N7_2_sizes_belong_together(i: int) -> None:
    for axis in range(len(RNN[i])):
        shape = list(RNN[i])
        shape[axis] += 1
        expect_error("RNN", "N7.2", RNN | {i: shape}, [4])
    expect_error("RNN", "rank", RNN | {i: [*RNN[i], 1]}, [4])


@pytest.mark.parametrize("code", [-1, 2, 5, 7])
def test_G7_activations_of_a_cell(code: int) -> None:
    expect_error("RNN", "G7", RNN, [code])
    expect_error("UNIDIRECTIONAL_SEQUENCE_RNN", "G7", RNN | {0: [3, 2, 4]}, [code, 0])


def test_N8_1_time_major_is_0_or_1() -> None:
    expect_error("UNIDIRECTIONAL_SEQUENCE_RNN", "N8.1", RNN | {0: [3, 2, 4]}, [4, 2])
    expect_error("UNIDIRECTIONAL_SEQUENCE_RNN", "N8.1", RNN | {0: [3, 2, 4]}, [4, 1])  # wrong batch axis
    expect_error("UNIDIRECTIONAL_SEQUENCE_RNN", "N8.1", RNN | {0: [3, 2, 5]}, [4, 0])


BOTH: dict[int, Any] = {
    0: [3, 2, 4], 1: [5, 4], 2: [5, 5], 3: [5], 4: [3, 5], 5: [6, 4], 6: [6, 6], 7: [6], 8: [3, 6], 9: None, 10: None, 11: None
}  # fmt: skip


def test_N9_3_what_links_two_inputs() -> None:
    op, numbers = "BIDIRECTIONAL_SEQUENCE_RNN", [4, False, True]
    expect_error(op, "N9.3", BOTH | {9: [3, 2, 4], 10: [5, 4]}, numbers)
    expect_error(op, "N9.3", BOTH | {10: [5, 4], 11: [6, 4]}, numbers)
    expect_error(op, "N9.3", BOTH | {9: [3, 2, 7]}, numbers)
    expect_error(op, "N9.3", BOTH | {9: [3, 3, 4]}, numbers)
    expect_error(op, "N9.3", BOTH | {9: [3, 2, 7], 10: [5, 7], 11: [6, 7]}, numbers)
    expect_error(op, "N9.1", BOTH | {5: [6, 3]}, numbers)


SVDF: dict[int, Any] = {0: [2, 3], 1: [8, 3], 2: [8, 4], 3: [4], 4: [2, 32]}


def test_N10_2_sizes_and_rank() -> None:
    expect_error("SVDF", "N10.2", SVDF, [0, 0])
    expect_error("SVDF", "N10.2", SVDF, [3, 0])
    expect_error("SVDF", "N10.2", SVDF | {1: [8, 2]}, [2, 0])
    expect_error("SVDF", "N10.2", SVDF | {2: [7, 4]}, [2, 0])
    expect_error("SVDF", "4 elements", SVDF | {3: [5]}, [2, 0])
    expect_error("SVDF", "32 elements", SVDF | {4: [2, 24]}, [2, 0])
    expect_error("SVDF", "N10.1", SVDF | {4: [3, 32]}, [2, 0])
    expect_error("SVDF", "N10.3", SVDF, [2, 5])


@pytest.mark.parametrize("op", ["RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN", "SVDF"])
def test_G2_no_elements_are_rejected(context: pumice.Context, op: str) -> None:
    shapes, numbers = {
        "RNN": (RNN | {0: [0, 4], 4: [0, 5]}, [4]),
        "UNIDIRECTIONAL_SEQUENCE_RNN": (RNN | {0: [3, 0, 4]}, [4, 0]),
        "BIDIRECTIONAL_SEQUENCE_RNN": (BOTH | {0: [3, 0, 4]}, [4, False, True]),
        "SVDF": (SVDF | {0: [0, 3], 4: [0, 32]}, [2, 0]),
    }[op]
    with pytest.raises(pumice.GraphError, match="G2"):
        run(context, op, *(None if one is None else np.zeros(one, "float32") for one in shapes.values()), *numbers)


def test_a_sequence_of_unknown_sizes(context: pumice.Context) -> None:
    make = draw(1, "float32")
    w, r, b, h = make(5, 4), make(5, 5), make(5), make(3, 5)
    graph = pumice.Graph()
    x = graph.input("x", "float32", [None, None, None])
    for i, y in enumerate(graph.add("nnapi::UNIDIRECTIONAL_SEQUENCE_RNN", x, w, r, b, h, 4, 1)):
        graph.output(f"y{i}", y)
    program = graph.compile(context)
    for time in (1, 5):
        given = make(time, 3, 4)
        expected, last = rnn(*wide(given, w, r, b, h), 4)
        results = program({"x": given})
        near(results["y0"], expected)
        near(results["y1"], last)
    with pytest.raises(pumice.GraphError, match="N8.1"):
        program({"x": make(2, 2, 4)})
