"""Random graphs with unknown sizes: legal sizes match the oracles, others raise one of the engine's errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import pumice

pytest.importorskip("onnxruntime", reason="random sizes are compared with ONNX Runtime, which is not installed")

from onnx_models import model, node, value
from random_nodes.oracle import diagonal_refusal, window_refusal
from random_sizes import Result, run_seed, writes_twice

SAMPLE = 16
WHOLE, PARTS = 20_000, 100  # parts of a minute, to distribute over workers


def run(context: pumice.Context, seeds: range) -> list[Result]:
    return [run_seed(seed, context) for seed in seeds]


def failures(results: list[Result]) -> list[str]:
    return [f"seed {one.seed}: {text}" for one in results for text in one.failures]


def test_legal_sizes_are_right_and_others_are_rejected(context: pumice.Context) -> None:
    results = run(context, range(SAMPLE))
    assert not failures(results), "\n".join(failures(results))
    assert sum(one.legal for one in results) > SAMPLE and sum(one.illegal for one in results) > SAMPLE


# Graphs for which an oracle was wrong or stricter than ONNX, or the engine too lenient.
FOUND = {
    2763: "the rank of what Unique compares is told by no trial",
    2790: "a MaxPool that rounds up has no window",
    4223: "an AveragePool that rounds up has no window",
    3708: "a kernel without elements",
    2207: "a Loop whose trips give rows without elements",
    11380: "a Loop whose rows an oracle joins end to end",
    15296: "a Loop without a trip, of rows of a rank that no trial tells",
    20454: "a diagonal of axes of 0 and 1",
    6250: "two updates of one element",
}


@pytest.mark.parametrize("seed", FOUND, ids=str)
def test_graphs_of_which_an_oracle_was_wrong(context: pumice.Context, seed: int) -> None:
    result = run_seed(seed, context)
    assert not result.failures, FOUND[seed]
    if result.lacking:
        pytest.skip(result.lacking)


@pytest.mark.parametrize(
    ("op", "attributes", "shape", "indices", "twice"),
    [
        ("ScatterElements", {"axis": 1}, [2, 3], [[0, 2], [2, 0]], False),
        ("ScatterElements", {"axis": 1}, [2, 3], [[0, 2], [2, -1]], True),
        ("ScatterElements", {}, [2, 3], [[0, 0, 1], [1, 0, 0]], True),
        ("ScatterElements", {}, [2, 3], [[0, 0, 1], [1, 1, 0]], False),
        ("ScatterElements", {}, [2, 3], [[7, 7], [7, 7]], False),
        ("ScatterElements", {}, [2, 3], [0, 0], False),
        ("ScatterND", {}, [2, 3], [[1, 2], [0, 0]], False),
        ("ScatterND", {}, [2, 3], [[1, 2], [-1, -1]], True),
        ("ScatterND", {}, [2, 3], [[1], [1]], True),
        ("ScatterND", {}, [2, 3], [[1, 2, 0], [1, 2, 0]], False),
        ("ScatterND", {}, [2, 3], [[], []], True),
    ],
)
def test_two_updates_of_one_element_are_noticed(
    op: str, attributes: dict[str, int], shape: list[int], indices: Any, twice: bool
) -> None:
    scatter = helper.make_node(op, ["x", "i", "u"], ["y"], **attributes)
    assert writes_twice(scatter, np.zeros(shape), np.asarray(indices, np.int64)) is twice


@pytest.mark.parametrize(
    ("attributes", "refused"),
    [
        ({"kernel_shape": [5]}, True),
        ({"kernel_shape": [5], "ceil_mode": 1}, True),
        ({"kernel_shape": [5], "ceil_mode": 1, "strides": [2]}, False),
        ({"kernel_shape": [6], "ceil_mode": 1, "strides": [2]}, True),
        ({"kernel_shape": [3], "ceil_mode": 1, "dilations": [2]}, True),
        ({"kernel_shape": [6], "ceil_mode": 1, "pads": [1, 1]}, False),
        ({"kernel_shape": [5], "ceil_mode": 1, "strides": [2], "auto_pad": "VALID"}, True),
    ],
)
def test_a_pool_without_a_window_is_rejected_by_oracle_and_engine(
    context: pumice.Context, attributes: dict[str, Any], refused: bool
) -> None:
    pool = node("MaxPool", **attributes)
    assert bool(window_refusal(pool, [(1, 1, 4)])) is refused
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
    with pumice.load(model([pool], [value("x", [None] * 3)], opset=21), context, progress=False) as loaded:
        if refused:
            with pytest.raises(pumice.GraphError, match="a window of at most the padded size of spatial axis 0"):
                loaded(x)
        else:
            np.testing.assert_array_equal(loaded(x), [[[3.0]]])


@pytest.mark.parametrize(
    ("equation", "inputs", "shapes", "refused"),
    [
        ("ii->i", ["x"], [(0, 1)], True),
        ("ii->i", ["x"], [(1, 1)], False),
        ("...ii->...i", ["x"], [(4, 1, 0)], True),
        ("i...i->...i", ["x"], [(2, 3, 2)], False),
        ("ij,ij->ij", ["x", "x"], [(1, 3)], False),
        ("ij,jk->ik", ["x", "y"], [(2, 0), (1, 2)], False),
        ("ij,jj->i", ["x", "y"], [(2, 3), (3, 1)], True),
    ],
)
def test_only_a_diagonal_needs_axes_of_one_size(
    equation: str, inputs: list[str], shapes: list[tuple[int, ...]], refused: bool
) -> None:
    assert bool(diagonal_refusal(node("Einsum", inputs, equation=equation), shapes)) is refused


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_many_legal_sizes_are_right_and_others_are_rejected(context: pumice.Context, part: int) -> None:
    each = WHOLE // PARTS
    found = failures(run(context, range(1000 + part * each, 1000 + (part + 1) * each)))
    assert not found, "\n".join(found[:40])
