"""The self-test of control flow: Loop with and without a trip count and If, with exact results in int32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..._pumice import Context, UnsupportedError
from ...base.element_types import Array
from ...model.model import Model
from .models import make_value_info
from .results import AreaResult

_INT32, _INT64, _BOOL = TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL
_NUM_TRIPS = 50
_LIMIT = 100_000


class _ControlFlowCase(NamedTuple):
    """A model with inputs and constants, and the expected outputs y0, y1, ..."""

    name: str
    nodes: Sequence[onnx.NodeProto]
    inputs: dict[str, Array]
    constants: dict[str, Array]
    expected: Sequence[Array]


def run_control_flow_area(context: Context, result: AreaResult) -> None:
    """Run loops and branches, and compare their results with NumPy's."""
    x = np.random.default_rng(20).integers(-1000, 1000, (3, 35)).astype(np.int32)
    for case in (_make_counted_loop(x), _make_while_loop(x), *_make_branches(x)):
        graph = helper.make_graph(
            list(case.nodes),
            "control flow",
            [make_value_info(name, array) for name, array in case.inputs.items()],
            [make_value_info(f"y{i}", array) for i, array in enumerate(case.expected)],
            [numpy_helper.from_array(array, name) for name, array in case.constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        try:
            with Model(model.SerializeToString(), context) as loaded:
                outputs = loaded(*case.inputs.values())
        except UnsupportedError as error:
            result.skip(case.name, str(error))
            result.notes.append(f"'{case.name}' skipped: {error}")
            continue
        for i, array in enumerate(case.expected):
            result.compare(f"{case.name}, output {i}", outputs[i] if len(case.expected) > 1 else outputs, array)


def _value(name: str, dtype: int, shape: Sequence[int] = ()) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def _make_counted_loop(x: Array) -> _ControlFlowCase:
    """Return a loop over s = 3 s + number, which also stacks the sums of s."""
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["s", "three"], ["product"]),
            helper.make_node("Cast", ["number"], ["number32"], to=_INT32),
            helper.make_node("Add", ["product", "number32"], ["next_s"]),
            helper.make_node("ReduceSum", ["next_s"], ["total"], keepdims=0),
            helper.make_node("Identity", ["go_on"], ["still"]),
        ],
        "body",
        [_value("number", _INT64), _value("go_on", _BOOL), _value("s", _INT32, x.shape)],
        [_value("still", _BOOL), _value("next_s", _INT32, x.shape), _value("total", _INT32)],
    )
    node = helper.make_node("Loop", ["trips", "", "x"], ["y0", "y1"], name="Loop counted", body=body)
    s, totals = x, []
    for number in range(_NUM_TRIPS):
        s = s * np.int32(3) + np.int32(number)
        totals.append(s.sum(dtype=np.int32))
    constants: dict[str, Array] = {"trips": np.array(_NUM_TRIPS, np.int64), "three": np.array(3, np.int32)}
    expected = [s, np.array(totals, np.int32)]
    return _ControlFlowCase(f"Loop of {_NUM_TRIPS} trips", [node], {"x": x}, constants, expected)


def _make_while_loop(x: Array) -> _ControlFlowCase:
    """Return a loop that doubles s and counts, while the largest element of s is below a limit."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "s"], ["next_s"]),
            helper.make_node("Add", ["count", "one"], ["next_count"]),
            helper.make_node("ReduceMax", ["next_s"], ["largest"], keepdims=0),
            helper.make_node("Less", ["largest", "limit"], ["still"]),
        ],
        "body",
        [_value("number", _INT64), _value("go_on", _BOOL), _value("s", _INT32, x.shape), _value("count", _INT32)],
        [_value("still", _BOOL), _value("next_s", _INT32, x.shape), _value("next_count", _INT32)],
    )
    node = helper.make_node("Loop", ["", "go", "x", "zero"], ["y0", "y1"], name="Loop while", body=body)
    s, count = x, 0
    while not count or s.max() < _LIMIT:
        s, count = s + s, count + 1
    numbers = {"zero": 0, "one": 1, "limit": _LIMIT}
    constants: dict[str, Array] = {name: np.array(number, np.int32) for name, number in numbers.items()}
    constants["go"] = np.array(True)
    expected = [s, np.array(count, np.int32)]
    return _ControlFlowCase("Loop with a condition", [node], {"x": x}, constants, expected)


def _make_branches(x: Array) -> Iterator[_ControlFlowCase]:
    """Return an If whose condition is an input, and one whose condition the device computes, for both branches."""
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, ["x", "seven"], [f"{name}_y"])], name, [], [_value(f"{name}_y", _INT32, x.shape)]
        )
        for name, op in (("then", "Add"), ("else", "Mul"))
    }
    constants = {"seven": np.array(7, np.int32)}
    computed = [
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Less", ["total", "zero"], ["flag"]),
    ]
    node = helper.make_node("If", ["flag"], ["y0"], name="If", **branches)
    for flag in (True, False):
        expected = [x + np.int32(7) if flag else x * np.int32(7)]
        inputs = {"x": x, "flag": np.array(flag)}
        yield _ControlFlowCase(f"If {flag}", [node], inputs, constants, expected)
        signed = -np.abs(x) if flag else np.abs(x)
        expected = [signed + np.int32(7) if flag else signed * np.int32(7)]
        more = {**constants, "zero": np.array(0, np.int32)}
        yield _ControlFlowCase(f"If {flag} on the device", [*computed, node], {"x": signed}, more, expected)
