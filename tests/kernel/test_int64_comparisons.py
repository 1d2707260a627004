"""Comparisons of 64-bit integers with constants: Mesa 22's lavapipe miscompiles them for converted int32 (quirk int64_comparison)."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pumice

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
CONSTANTS = [0, 1, -1, 5, -5, 100, -100, 2**31 - 1, 2**31, -(2**31), 2**32, -(2**32), 2**40, -(2**63) + 1]
VALUES = np.array([-1, -2, 0, 1, 5, -5, -100, 100, 2**31 - 1, -(2**31), 7, -7], "int32")
SOURCES = {"int8_t": "int8", "int16_t": "int16", "int": "int32", "uint": "uint32", "int64_t": "int64"}


def comparisons(kind: str) -> list[tuple[str, Any]]:
    """Return GLSL conditions on y, and their expected results for VALUES."""
    y = VALUES.astype(SOURCES[kind]).astype("int64")
    listed = []
    for symbol, compare in COMPARISONS.items():
        for constant in CONSTANTS:
            literal = f"{constant}L" if constant >= 0 else f"(-{-constant}L)"
            listed.append((f"y {symbol} {literal}", compare(y, constant)))
            listed.append((f"{literal} {symbol} y", compare(constant, y)))
    return listed


@pytest.mark.parametrize("vectors", [False, True], ids=["scalars", "vectors"])
@pytest.mark.parametrize("kind", SOURCES)
def test_constants_are_compared(kind: str, vectors: bool, context: pumice.Context) -> None:
    listed = comparisons(kind)
    lines = []
    for i, (condition, _) in enumerate(listed):
        if vectors:
            for symbol, name in zip(
                ("<=", ">=", "==", "!=", "<", ">"),
                ("lessThanEqual", "greaterThanEqual", "equal", "notEqual", "lessThan", "greaterThan"),
                strict=True,
            ):
                if f" {symbol} " in condition:
                    left, right = condition.split(f" {symbol} ")
                    condition = f"all({name}(i64vec2({left}), i64vec2({right})))"
                    break
        lines.append(f"z[i * {len(listed)}u + {i}u] = ({condition}) ? 1 : 0;")
    source = f"""
layout(binding = 0) readonly buffer X {{ {kind} x[]; }};
layout(binding = 1) writeonly buffer Z {{ int z[]; }};
void main() {{
  uint i = gl_GlobalInvocationID.x;
  int64_t y = int64_t(x[i]);
  {" ".join(lines)}
}}
"""
    z = np.full(len(VALUES) * len(listed), -1, "int32")
    try:
        pumice.Kernel(source, context)(x=VALUES.astype(SOURCES[kind]), z=z, threads=len(VALUES))
    except pumice.UnsupportedError as error:
        pytest.skip(str(error))
    results = z.reshape(len(VALUES), -1).T
    wrong = [
        condition
        for (condition, expected), got in zip(listed, results, strict=True)
        if not np.array_equal(got, expected)
    ]
    assert not wrong


@pytest.mark.parametrize("op", ["Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
def test_a_model_compares_what_it_converts(op: str, pumice_context: pumice.Context) -> None:
    """The cast to int64 and the comparison are fused into one kernel."""
    nodes = [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT64), helper.make_node(op, ["y", "c"], ["z"])]
    for constant in (0, 5, -5):
        graph = helper.make_graph(
            nodes,
            "compared",
            [helper.make_tensor_value_info("x", TensorProto.INT32, [len(VALUES)])],
            [helper.make_tensor_value_info("z", TensorProto.BOOL, [len(VALUES)])],
            [onnx.numpy_helper.from_array(np.array(constant, "int64"), "c")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        expected = {
            "Less": np.less,
            "LessOrEqual": np.less_equal,
            "Greater": np.greater,
            "GreaterOrEqual": np.greater_equal,
        }
        np.testing.assert_array_equal(pumice.load(model, pumice_context)(VALUES), expected[op](VALUES, constant))
