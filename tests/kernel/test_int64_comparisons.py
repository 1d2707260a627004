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

COMPARISONS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "<": ("lessThan", operator.lt),
    ">": ("greaterThan", operator.gt),
    "<=": ("lessThanEqual", operator.le),
    ">=": ("greaterThanEqual", operator.ge),
    "==": ("equal", operator.eq),
    "!=": ("notEqual", operator.ne),
}
ONNX = {"Less": operator.lt, "LessOrEqual": operator.le, "Greater": operator.gt, "GreaterOrEqual": operator.ge}
CONSTANTS = [0, 1, -1, 5, -5, 100, -100, 2**31 - 1, 2**31, -(2**31), 2**32, -(2**32), 2**40, -(2**63) + 1]
VALUES = np.array([-1, -2, 0, 1, 5, -5, -100, 100, 2**31 - 1, -(2**31), 7, -7], "int32")
SOURCES = {"int8_t": "int8", "int16_t": "int16", "int": "int32", "uint": "uint32", "int64_t": "int64"}


def comparisons(kind: str, vectors: bool) -> list[tuple[str, Any]]:
    """Return GLSL conditions on y, and their expected results for VALUES."""
    y = VALUES.astype(SOURCES[kind]).astype("int64")
    listed = []
    for symbol, (function, compare) in COMPARISONS.items():
        form = f"all({function}(i64vec2({{}}), i64vec2({{}})))" if vectors else f"{{}} {symbol} {{}}"
        for constant in CONSTANTS:
            literal = f"{constant}L" if constant >= 0 else f"(-{-constant}L)"
            listed.append((form.format("y", literal), compare(y, constant)))
            listed.append((form.format(literal, "y"), compare(constant, y)))
    return listed


@pytest.mark.parametrize("vectors", [False, True], ids=["scalars", "vectors"])
@pytest.mark.parametrize("kind", SOURCES)
def test_constants_are_compared(kind: str, vectors: bool, context: pumice.Context) -> None:
    listed = comparisons(kind, vectors)
    lines = [f"z[i * {len(listed)}u + {i}u] = ({condition}) ? 1 : 0;" for i, (condition, _) in enumerate(listed)]
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


@pytest.mark.parametrize("op", ONNX)
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
        np.testing.assert_array_equal(pumice.load(model, pumice_context)(VALUES), ONNX[op](VALUES, constant))
