"""Operators outside of graphs: inputs that the host reads are given by their values, all others are described and bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pumice
from binding_tables import F64, operator, refused
from described_operators import Array, Operand, executed
from operator_cases import CASES, Case
from pumice import BindingTable, TensorDesc, _pumice
from pumice.testing import assert_close
from test_operators import reference

HOST_INPUTS = {row.name: row.host_inputs for row in pumice.operators()}
OF_THE_HOST = ("Constant", "NonZero", "Shape", "Size")


def cases() -> Iterator[Any]:
    """All of the operators that read inputs on the host, one of every other; the rest are slow."""
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


@pytest.mark.parametrize("name", OF_THE_HOST)
def test_what_the_host_computes_is_no_operator(name: str) -> None:
    with pytest.raises(pumice.UnsupportedError, match="the host's"):
        pumice.Operator(name, [F64], [TensorDesc("int64", [1])])


def test_nothing_is_bound_to_the_slot_of_a_constant(context: pumice.Context) -> None:
    compiled = operator(context, "Reshape", [F64, np.array([8, 8])], [TensorDesc("float32", [8, 8])])
    assert [(slot.name, slot.desc is None) for slot in compiled.inputs] == [("x", False), ("shape", True)]
    x, shape = pumice.tensor(np.arange(64, dtype="float32"), context), pumice.tensor(np.array([8, 8]), context)
    table = BindingTable(compiled)
    assert refused("C4", table.bind_inputs, [x, shape]).slot == "inputs[1]"
    refused("C1", table.bind_inputs, [x])
    table.bind_inputs([x, None])
    initializer = BindingTable(pumice.Initializer(context, [compiled]))
    refused("O3", initializer.bind_inputs, [[None, shape]])
    initializer.bind_inputs([[None, None]])


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
def test_values_in_the_wrong_place_are_refused(name: str, inputs: list[Any], message: str) -> None:
    with pytest.raises(pumice.GraphError, match=message):
        pumice.Operator(name, inputs, [TensorDesc("float32", [8, 8])])


@pytest.mark.parametrize("shape", [np.array([8, 8], "int32"), [8.0, 8.0]], ids=["int32", "floats"])
def test_values_of_the_wrong_dtype_are_refused(shape: Any) -> None:
    with pytest.raises(pumice.UnsupportedError, match="'shape'.*int64"):
        pumice.Operator("Reshape", [F64, shape], [TensorDesc("float32", [8, 8])])


def test_views_are_copies_between_any_strides(context: pumice.Context) -> None:
    x = np.arange(60, dtype="float32").reshape(3, 4, 5)
    source = Operand(x, [1, 3, 12])  # the axes the other way round
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
