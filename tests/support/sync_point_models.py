"""Models with data-dependent shapes: inputs, comparison with onnx's reference, and the host sync points of their plans."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import pumice

Array = np.ndarray[Any, Any]


def sparse(count: int, *shape: int, dtype: str = "float32") -> Array:
    """Return an array with `count` ones at random positions, zeros elsewhere."""
    array = np.zeros(int(np.prod(shape)), dtype)
    array[np.random.default_rng(count).permutation(array.size)[:count]] = 1
    return array.reshape(shape)


def check(context: pumice.Context, proto: onnx.ModelProto, *cases: dict[str, Array]) -> pumice.Model:
    """Compare every output with onnx's reference, running each case twice."""
    loaded = pumice.load(proto.SerializeToString(), context)
    oracle = ReferenceEvaluator(proto)
    for inputs in [case for case in cases for _ in range(2)]:
        results = loaded(**inputs)
        results = [results] if len(loaded.outputs) == 1 else list(results)
        for result, expected in zip(results, oracle.run(None, inputs), strict=True):
            assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
            np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)
    return loaded


def read_backs(loaded: pumice.Model, **inputs: Array) -> int:
    counts = set()
    for measure in (False, True):
        execution = loaded.program.execution(measure=measure)
        for name, array in inputs.items():
            execution.set(name, array)
        execution.compute()
        assert execution.report["host_syncs"] == execution.report["read_backs"]
        counts.add(int(execution.report["read_backs"]))
    (count,) = counts
    return count


def cuts(loaded: pumice.Model) -> dict[str, str]:
    return {row["node"]: row["note"] for row in loaded.report() if row["op"] == "ReadBack"}
