"""Operators outside graphs: inputs read by the host are passed by value, all others are described and bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pumice
from binding_tables import F64, execute, expect_error, initialise, operator
from cases import CASES, Case
from described_operators import OF_THE_HOST, Array, Operand, executed, spread
from operator_references import reference
from pumice import BindingTable, TensorDesc, _pumice
from pumice.testing import assert_close

HOST_INPUTS = {row.name: row.host_inputs for row in pumice.operators()}


def cases() -> Iterator[Any]:
    """Yield all cases of operators with host inputs, one of every other operator; the rest are slow."""
    seen = set(OF_THE_HOST)
    for case in CASES:
        if case.op in OF_THE_HOST:
            continue
        slow = case.large or (case.op in seen and not HOST_INPUTS[case.op])
        seen.add(case.op)
        yield pytest.param(case, id=str(case), marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize("case", list(cases()))
def test_every_operator_can_be_described(case: Case, context: pumice.Context) -> None:
    names = [role.name for role in pumice.operators(case.op).inputs]
    inputs: list[Operand | Array | None] = [
        array if array is None or (k < len(names) and names[k] in HOST_INPUTS[case.op]) else Operand(array)
        for k, array in enumerate(case.arrays())
    ]
    given = [one.desc if isinstance(one, Operand) else one for one in inputs]
    described = _pumice.output_descs(case.op, given, case.outputs, **case.attributes)
    expected = reference(case)
    outputs = [
        Operand(np.empty(desc.shape, wanted.dtype)) for desc, wanted in zip(described, expected, strict=True) if desc
    ]
    results = executed(context, case.op, inputs, outputs, **case.attributes)
    for actual, wanted in zip(results, expected, strict=True):
        assert actual.shape == wanted.shape
        if wanted.dtype.kind == "f":
            assert_close(actual, wanted, rtol=case.fp32[0], atol=case.fp32[1])
        else:
            np.testing.assert_array_equal(actual, wanted)


def first_cases() -> Iterator[Case]:
    """Yield the first case of every operator that is bound to a rank-2 tensor."""
    seen: set[str] = set()
    for case in CASES:
        given = case.inputs[0] if case.inputs else None
        if (
            case.op in (*OF_THE_HOST, *seen)
            or given is None
            or len(given.shape) < 2
            or given.dtype in ("int4", "uint4")
        ):
            continue
        seen.add(case.op)
        yield case


@pytest.mark.parametrize("case", list(first_cases()), ids=str)
def test_every_operator_takes_strided_tensors(case: Case, context: pumice.Context) -> None:
    names = [role.name for role in pumice.operators(case.op).inputs]
    inputs: list[Operand | Array | None] = [
        array
        if array is None or (k < len(names) and names[k] in pumice.operators(case.op).host_inputs)
        else Operand(array, spread(array.shape))
        for k, array in enumerate(case.arrays())
    ]
    expected = reference(case)
    outputs = [Operand(wanted, spread(wanted.shape)) for wanted in expected]
    results = executed(context, case.op, inputs, outputs, **case.attributes)
    for actual, wanted in zip(results, expected, strict=True):
        if wanted.dtype.kind == "f":
            assert_close(actual, wanted, rtol=case.fp32[0], atol=case.fp32[1])
        else:
            np.testing.assert_array_equal(actual, wanted)


@pytest.mark.parametrize("name", OF_THE_HOST)
def test_what_the_host_computes_is_no_operator(name: str) -> None:
    with pytest.raises(pumice.UnsupportedError, match="computed on the host"):
        pumice.Operator(name, [F64], [TensorDesc("int64", [1])])


def test_nothing_is_bound_to_the_slot_of_a_constant(context: pumice.Context) -> None:
    compiled = operator(context, "Reshape", [F64, np.array([8, 8])], [TensorDesc("float32", [8, 8])])
    assert [(slot.name, slot.desc is None) for slot in compiled.inputs] == [("x", False), ("shape", True)]
    x, shape = pumice.tensor(np.arange(64, dtype="float32"), context), pumice.tensor(np.array([8, 8]), context)
    table = BindingTable(compiled)
    assert expect_error("C4", table.bind_inputs, [x, shape]).slot == "inputs[1]"
    expect_error("C1", table.bind_inputs, [x])
    table.bind_inputs([x, None])
    initializer = BindingTable(pumice.Initializer(context, [compiled]))
    expect_error("O3", initializer.bind_inputs, [[None, shape]])
    initializer.bind_inputs([[None, None]])


def test_values_are_those_of_the_description(context: pumice.Context) -> None:
    starts, ends = np.array([2]), np.array([5])
    described = pumice.Operator("Slice", (TensorDesc("int32", [8]), starts, ends), [TensorDesc("int32", [3])])
    starts[0], ends[0] = 4, 7
    compiled = described.compile(context)
    initialise(context, compiled)
    x, y = pumice.tensor(np.arange(8, dtype="int32"), context), pumice.empty(3, "int32", context)
    execute(context, compiled, [x, None, None], [y])
    assert y.numpy().tolist() == [2, 3, 4]


@pytest.mark.parametrize(
    ("name", "inputs", "output", "attributes"),
    [
        ("Reshape", [F64, [4, -1]], [4, 16], {}),
        ("Reshape", [F64, (8, 8)], [8, 8], {}),
        ("Unsqueeze", [F64, [0, 2]], [1, 64, 1], {}),
        ("TopK", [F64, np.array([5])], [5], {}),
        ("Tile", [F64, [2]], [128], {}),
        ("Resize", [TensorDesc("float32", [1, 1, 4, 4]), None, [1.0, 1.0, 2.0, 2.0]], [1, 1, 8, 8], {}),
        ("Trilu", [TensorDesc("float32", [8, 8]), 1], [8, 8], {}),
        ("CumSum", [F64, np.int64(0)], [64], {}),
        ("Range", [0.0, 2.5, 0.5], [5], {}),
    ],
)
def test_lists_and_numbers_are_values(
    name: str, inputs: list[Any], output: list[int], attributes: dict[str, Any]
) -> None:
    outputs = [TensorDesc("float32", output)]
    if name == "TopK":
        outputs.append(TensorDesc("int64", output))
    assert pumice.Operator(name, inputs, outputs, **attributes).name == name


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("Reshape", [F64, TensorDesc("int64", [2])], "'shape' is read on the host.*int64"),
        ("Reshape", [np.zeros(64, "float32"), [8, 8]], "'x' is read on the device.*float32"),
        ("Reshape", [F64, [9, 9]], "reshaped"),
        ("Reshape", [F64], "needs input 1, 'shape'"),
        ("Relu", [[1.0, 2.0]], "'x' is read on the device"),
    ],
)
def test_host_values_that_must_be_bound_are_rejected(name: str, inputs: list[Any], message: str) -> None:
    with pytest.raises(pumice.GraphError, match=message):
        pumice.Operator(name, inputs, [TensorDesc("float32", [8, 8])])


@pytest.mark.parametrize("shape", [np.array([8, 8], "int32"), [8.0, 8.0]], ids=["int32", "floats"])
def test_values_of_the_wrong_dtype_are_rejected(shape: Any) -> None:
    with pytest.raises(pumice.UnsupportedError, match="'shape'.*int64"):
        pumice.Operator("Reshape", [F64, shape], [TensorDesc("float32", [8, 8])])


@pytest.mark.parametrize("name", ["Sum", "Mean", "Max", "Min"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("count", [9, 16, 23])
def test_many_inputs_are_folded_in_several_passes(context: pumice.Context, name: str, dtype: str, count: int) -> None:
    random = np.random.default_rng(count)
    shapes = [(3, 5), (5,), (3, 1), (1, 1), ()]
    arrays = [(random.integers(-64, 64, shapes[k % 5]) / 8).astype(dtype) for k in range(count)]
    arrays[-1] = arrays[-1].copy()
    arrays[-1].flat[0] = np.nan
    inputs = [Operand(array, offset=16 * (k % 3)) for k, array in enumerate(arrays)]
    all_of_them = np.stack(np.broadcast_arrays(*arrays))
    expected = {"Sum": np.sum, "Mean": np.mean, "Max": np.max, "Min": np.min}[name](
        all_of_them.astype("float64"), axis=0
    )
    (made,) = executed(context, name, inputs, [Operand(expected.astype(dtype), [1, 3])])
    rtol = 1e-3 if dtype == "float16" else 1e-6
    np.testing.assert_allclose(made.astype("float64"), expected, rtol=rtol, atol=rtol)
    assert made.dtype == dtype

    graph = pumice.Graph()
    values = [graph.input(f"x{k}", dtype, array.shape) for k, array in enumerate(arrays)]
    graph.output("y", graph.add("Neg", graph.add(name, *values)))
    (negated,) = graph.compile(context)({f"x{k}": array for k, array in enumerate(arrays)}).values()
    np.testing.assert_allclose(negated.astype("float64"), -expected, rtol=rtol, atol=rtol)


def test_a_hundred_tensors_are_concatenated(context: pumice.Context) -> None:
    arrays = [np.full((2, k % 4), k, "uint8") for k in range(100)]
    expected = np.concatenate(arrays, 1)
    (made,) = executed(context, "Concat", [Operand(one) for one in arrays], [Operand(expected)], axis=1)
    np.testing.assert_array_equal(made, expected)
    graph = pumice.Graph()
    values = [graph.input(f"x{k}", "uint8", array.shape) for k, array in enumerate(arrays)]
    graph.output("y", graph.add("Concat", *values, axis=1))
    given = {f"x{k}": array for k, array in enumerate(arrays)}
    np.testing.assert_array_equal(graph.compile(context)(given)["y"], expected)


@pytest.mark.parametrize("name", ["ReduceSum", "ArgMax", "Pad"])
def test_axes_that_do_not_merge(context: pumice.Context, name: str) -> None:
    """Eight axes with gaps, in a different order than in the result."""
    x = np.arange(2**8, dtype="float32").reshape((2,) * 8) % 37
    source = Operand(x, [1, 3, 7, 15, 31, 63, 127, 255])
    if name == "Pad":
        pads = np.array([1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0])
        y = np.pad(x, pads.reshape(2, 8).T)
        inputs: list[Operand | Array | None] = [source, pads]
        attributes = {}
    elif name == "ReduceSum":
        y, inputs, attributes = x.sum(axis=(1, 6)), [source, np.array([1, -2])], {"keepdims": 0}
    else:
        y, inputs, attributes = x.argmax(3), [source], {"axis": 3, "keepdims": 0}
    strides = [3 * stride for stride in pumice.TensorDesc("float32", y.shape).strides]
    (made,) = executed(context, name, inputs, [Operand(y, strides)], **attributes)
    np.testing.assert_array_equal(made, y)


def test_views_are_copies_between_any_strides(context: pumice.Context) -> None:
    x = np.arange(60, dtype="float32").reshape(3, 4, 5)
    source = Operand(x, [1, 3, 12])  # permuted strides
    for name, values, shape, attributes in (
        ("Reshape", np.array([5, 12]), (5, 12), {}),
        ("Flatten", None, (3, 20), {"axis": 1}),
        ("Unsqueeze", np.array([1]), (3, 1, 4, 5), {}),
        ("Identity", None, (3, 4, 5), {}),
    ):
        y = x.reshape(shape)
        padded = [*pumice.TensorDesc("float32", shape).pad_rows(16).strides]
        inputs: list[Operand | Array | None] = [source] if values is None else [source, values]
        (made,) = executed(context, name, inputs, [Operand(y, padded)], **attributes)
        np.testing.assert_array_equal(made, y)


@pytest.mark.parametrize("columns", [36, 601])
def test_two_halves_of_a_strided_operand(context: pumice.Context, columns: int) -> None:
    """Enough columns for several vec4s per invocation."""
    rows = 48
    values = np.random.default_rng(0).integers(-99, 99, (columns, rows)).astype("float16")
    x = Operand(values.T, [1, rows])
    y = Operand(np.empty((rows, columns), "float16"))
    (result,) = executed(context, "Neg", [x], [y])
    np.testing.assert_array_equal(result, -values.T)
