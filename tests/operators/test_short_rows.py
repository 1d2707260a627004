"""Row operators: the top elements match NumPy for every row length, and many short rows cost only what their elements need."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import pumice

Array = npt.NDArray[Any]

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
# Lengths at which a row is copied, ranked, sorted with others in one workgroup, sorted alone, or sorted in blocks.
LENGTHS = (1, 2, 3, 8, 31, 32, 33, 64, 255, 256, 257, 300, 512, 513, 1023, 1024, 1025, 2049, 3000)
SPECIAL = (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0**-14, 3.0, 3.0)


@pytest.fixture(scope="module", params=["lanes", "tiled"])
def device(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Iterator[pumice.Context]:
    """Devices with the CPU (SIMD) kernels, and with the GPU kernels that reduce in shared memory."""
    if request.param == "lanes":
        yield pumice_context
        return
    with pumice.Context(f"uuid:{pumice_context.info.uuid}", without=["subgroupShuffle"]) as made:
        yield made


def element_type(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def first_of(x: Array, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    """Return the top k and their indices: NaN is largest, zeros are equal, ties take the lowest index."""
    comparable = x.astype(np.float64) if x.dtype.kind not in "iub" else x
    ranks = np.unique(comparable, return_inverse=True, equal_nan=True)[1].reshape(x.shape)
    order = np.argsort(-ranks if largest else ranks, axis=axis, kind="stable")
    order = np.take(order, range(k), axis=axis)
    return np.take_along_axis(x, order, axis=axis), order


def elements(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Draw elements with few or many distinct values, over the whole range, and special values."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in INTEGERS:
        ends = np.iinfo(dtype)
        low, high = (ends.min, ends.max) if rng.random() < 0.5 else (max(ends.min, -3), 3)
        return rng.integers(low, high, shape, np.dtype(dtype), endpoint=True)
    few = rng.integers(-4, 4, shape) / 2
    x = few if rng.random() < 0.4 else rng.standard_normal(shape)
    if rng.random() < 0.6:
        x = np.where(rng.random(shape) < 0.3, rng.choice(SPECIAL, shape), x)
    return np.asarray(x).astype(element_type(dtype))


def compare_first(context: pumice.Context, rng: np.random.Generator) -> None:
    dtype = str(rng.choice([*FLOATS, *INTEGERS, "bool"]))
    length = int(rng.choice(LENGTHS)) if rng.random() < 0.5 else int(rng.integers(1, 80))
    rank = int(rng.integers(1, 4))
    axis = int(rng.integers(0, rank))
    shape = [int(size) for size in rng.integers(1, 9 if length < 300 else 4, rank)]
    shape[axis] = length
    k = int(rng.choice([1, min(2, length), int(rng.integers(0, length + 1)), length]))
    largest = bool(rng.integers(0, 2))
    x = elements(rng, tuple(shape), dtype)
    graph = pumice.Graph()
    operand = graph.input("x", dtype, shape)
    given_axis = axis - rank if rng.random() < 0.5 else axis
    values, indices = graph.add(
        "TopK", operand, np.array([k]), outputs=2, axis=given_axis, largest=int(largest), sorted=1
    )
    graph.output("values", values)
    graph.output("indices", indices)
    made = graph.compile(context)({"x": x})
    expected_values, expected_indices = first_of(x, k, axis, largest)
    note = f"the {'largest' if largest else 'smallest'} {k} of {dtype}{shape} along axis {axis}"
    assert np.array_equal(made["indices"], expected_indices), note
    bits = f"u{x.dtype.itemsize}" if dtype != "bool" else "u1"
    values = made["values"]
    if values.dtype.kind == "f":  # some devices have only one NaN
        assert np.array_equal(np.isnan(values), np.isnan(expected_values)), note
        values, expected_values = (np.where(np.isnan(one), one.dtype.type(0), one) for one in (values, expected_values))
    assert np.array_equal(values.view(bits), expected_values.view(bits)), note


def test_the_first_of_rows_of_any_length_and_type_are_numpys(context: pumice.Context) -> None:
    rng = np.random.default_rng(17)
    for _ in range(60):
        compare_first(context, rng)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_the_first_of_many_random_tensors_are_numpys(context: pumice.Context, seed: int) -> None:
    rng = np.random.default_rng([170, seed])
    for _ in range(100):
        compare_first(context, rng)


@pytest.mark.parametrize("length", [1, 2, 7, 256, 257, 1000])
def test_the_order_alone_and_the_values_alone_are_those_of_both(context: pumice.Context, length: int) -> None:
    x = elements(np.random.default_rng(length), (5, length), "float32")
    graph = pumice.Graph()
    operand = graph.input("x", "float32", [5, length])
    for name in ("values", "indices"):
        values, indices = graph.add("TopK", operand, np.array([(length + 1) // 2]), outputs=2)
        graph.output(name, values if name == "values" else indices)
    made = graph.compile(context)({"x": x})
    values, indices = first_of(x, (length + 1) // 2, 1, True)
    assert np.array_equal(made["values"].view("u4"), values.view("u4"))
    assert np.array_equal(made["indices"], indices)


@pytest.mark.parametrize("length", [1, 6, 300])
def test_the_first_of_a_strided_view_are_those_of_its_elements(context: pumice.Context, length: int) -> None:
    x = elements(np.random.default_rng(5), (length, 2, 7), "float32")
    graph = pumice.Graph()
    turned = graph.add("Transpose", graph.input("x", "float32", [length, 2, 7]), perm=[2, 1, 0])
    part = graph.add("Slice", turned, np.array([1]), np.array([6]), np.array([0]))
    values, indices = graph.add("TopK", part, np.array([length]), outputs=2, largest=0)
    graph.output("values", values)
    graph.output("indices", indices)
    made = graph.compile(context)({"x": x})
    expected_values, expected_indices = first_of(np.ascontiguousarray(x.transpose(2, 1, 0)[1:6]), length, 2, False)
    assert np.array_equal(made["values"].view("u4"), expected_values.view("u4"))
    assert np.array_equal(made["indices"], expected_indices)


# --- Cost of many short rows

ROWS = 8192
CUBES = (1, 2, 3, 8)  # matrix sizes of Det
ROW_OPERATORS: dict[str, dict[str, Any]] = {
    "TopK": {"outputs": 2},
    "ArgMax": {"axis": 1},
    "ArgMin": {"axis": 1, "select_last_index": 1},
    "ReduceSum": {"axes": 1},
    "ReduceMax": {"axes": 1},
    "ReduceLogSumExp": {"axes": 1},
    "CumSum": {"axes": 1},
    "Softmax": {"axis": 1},
    "LogSoftmax": {"axis": 1},
    "Hardmax": {"axis": 1},
    "LayerNormalization": {"scale": True},
    "RMSNormalization": {"scale": True},
    "LpNormalization": {"axis": 1},
    "Det": {},
}


def row_graph(op: str, length: int) -> pumice.Graph:
    how = dict(ROW_OPERATORS[op])
    graph = pumice.Graph(op)
    shape = [ROWS, length, length] if op == "Det" else [ROWS, length]
    operands: list[Any] = [graph.input("x", "float32", shape)]
    if op == "TopK":
        operands.append(np.array([(length + 1) // 2]))
    if how.pop("axes", None) is not None:
        operands.append(np.array(1) if op == "CumSum" else np.array([1]))
    if how.pop("scale", False):
        operands.append(np.ones(length, np.float32))
    made = graph.add(op, *operands, **how)
    for i, value in enumerate(made if isinstance(made, tuple) else (made,)):
        graph.output(f"y{i}", value)
    return graph


@pytest.mark.parametrize("op", ROW_OPERATORS)
def test_short_rows_share_workgroups(device: pumice.Context, op: str) -> None:
    """One workgroup per row would waste nearly all invocations on a few elements."""
    invocations = device.limit("maxComputeWorkGroupInvocations")
    for length in CUBES if op == "Det" else (1, 2, 3, 8, 31, 32):
        program = row_graph(op, length).compile(device)
        plan = program.plan([[int(size) for size in program.inputs[0].shape or ()]])
        program.close()
        widest = {"softmax.comp": 1, "layer_norm.comp": 1}  # their CPU (SIMD) workgroup is one subgroup of eight
        for step in plan:
            groups = math.prod(step["groups"])
            share = widest.get(step["kernel"], 8) if device.feature("subgroupShuffle") else min(8, invocations // 32)
            assert groups <= ROWS * max(1, length // 32) / share, (length, step["kernel"], groups)


def test_rows_of_a_few_dozen_elements_are_sorted_side_by_side(context: pumice.Context) -> None:
    """The final sort of a long row's candidates is a short-row sort in blocks of 2, 4, ... 512 pairs."""
    for k in (1, 3, 20, 100, 200):
        x = elements(np.random.default_rng(k), (7, 2500), "float32")
        graph = pumice.Graph()
        values, indices = graph.add("TopK", graph.input("x", "float32", [7, 2500]), np.array([k]), outputs=2)
        graph.output("values", values)
        graph.output("indices", indices)
        program = graph.compile(context)
        assert np.array_equal(program({"x": x})["indices"], first_of(x, k, 1, True)[1])
        sorts = [math.prod(step["groups"]) for step in program.plan([[7, 2500]]) if step["kernel"] == "sort.comp"]
        assert sorts == [21, math.ceil(7 / (1024 // 2 ** math.ceil(math.log2(3 * k))))], k


def test_routing_a_row_of_experts_costs_as_many_workgroups_as_its_elements_need(context: pumice.Context) -> None:
    """A million rows of eight: no workgroup has fewer than 64 elements."""
    graph = pumice.Graph()
    operand = graph.input("x", "float32", [1_000_000, 8])
    for i, value in enumerate(graph.add("TopK", operand, np.array([2]), outputs=2)):
        graph.output(f"y{i}", value)
    plan = graph.compile(context).plan([[1_000_000, 8]])
    assert all(math.prod(step["groups"]) <= 8_000_000 / 64 for step in plan)
