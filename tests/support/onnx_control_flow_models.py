"""Models with control flow, and comparisons of their results."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

import pumice
from onnx_models import node, subgraph, value

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Arrays = dict[str, np.ndarray[Any, Any]]


def loop_body(
    nodes: list[onnx.NodeProto],
    states: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    condition: str = "go_on",
    **constants: np.ndarray[Any, Any],
) -> onnx.GraphProto:
    """number, go_on, states -> condition, outputs; by default the condition stays `go_on`, forever."""
    if condition == "go_on":
        nodes = [*nodes, node("Identity", ["go_on"], ["still"])]
        condition = "still"
    inputs = [value("number", [], INT64), value("go_on", [], BOOL), *states]
    return subgraph(nodes, inputs, [value(condition, [], BOOL), *outputs], **constants)


def typed(proto: onnx.ModelProto, **types: int) -> onnx.ModelProto:
    """Return the model with element types of its outputs, which ONNX Runtime requires."""
    for output in proto.graph.output:
        output.type.tensor_type.elem_type = types.get(output.name, FLOAT)
    return proto


def by_runtime(proto: onnx.ModelProto, inputs: Arrays) -> list[np.ndarray[Any, Any]]:
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    session = runtime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def check(
    context: pumice.Context, proto: onnx.ModelProto, cases: list[Arrays], reference: bool = True, runtime: bool = True
) -> pumice.Model:
    """Compare every output with the reference and the runtime; flags exclude the one that fails on a case."""
    loaded = pumice.load(proto.SerializeToString(), context)
    for inputs in cases:
        results = loaded(**inputs)
        results = [results] if len(loaded.outputs) == 1 else list(results)
        oracles = [ReferenceEvaluator(proto).run(None, inputs)] if reference else []
        oracles += [by_runtime(proto, inputs)] if runtime else []
        for oracle in oracles:
            for result, expected in zip(results, oracle, strict=True):
                expected = np.asarray(expected)
                assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
                np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)
    return loaded


def scalar(number: int) -> np.ndarray[Any, Any]:
    return np.array(number, np.int64)


def loops_of(loaded: pumice.Model, **inputs: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    execution = loaded.program.execution()
    for name, array in inputs.items():
        execution.set(name, array)
    execution.compute()
    return list(execution.report["loops"])
