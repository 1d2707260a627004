"""Runs models of the corpus and compares them with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

import pumice
from exact_sessions import exact_session

from .case import arrays
from .store import Stored


def reference(model: onnx.ModelProto) -> Any:
    """Return an ONNX Runtime CPU session without graph optimisations."""
    return exact_session(model, optimize=False)


def error_of(actual: Any, expected: Any, share: float = 1.0) -> float:
    """Return the `share` quantile of the absolute errors, relative to the largest expected value; non-floats must be
    equal.

    Lists are compared item by item.
    """
    if isinstance(expected, list):
        assert isinstance(actual, list) and len(actual) == len(expected)
        return max((error_of(one, other, share) for one, other in zip(actual, expected, strict=True)), default=0.0)
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(actual, expected)
        return 0.0
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    np.testing.assert_array_equal(a[~finite], b[~finite])
    assert np.isfinite(a[finite]).all()
    if not finite.any():
        return 0.0
    difference = np.quantile(np.abs(a[finite] - b[finite]), share, method="higher")
    return float(difference / max(np.abs(b[finite]).max(), 1e-3))


def worst_error(stored: Stored, model: pumice.Model, runtime: Any) -> float:
    """Return the largest error over all sizes and outputs.

    In a quantised model a value between two steps may round either way: 1% of the elements are ignored.
    """
    share = 0.99 if stored.exporter.endswith("int8") else 1.0
    worst = 0.0
    for sizes in stored.sizes:
        given = arrays(stored.inputs, sizes)
        results = model(*(given[one.name] for one in model.inputs))
        results = [results] if len(model.outputs) == 1 else list(results)
        for value, actual, expected in zip(model.outputs, results, runtime.run(None, given), strict=True):
            try:
                worst = max(worst, error_of(actual, expected, share))
            except AssertionError as error:
                raise AssertionError(f"{stored.name}: output '{value.name}' with {sizes}: {error}") from None
    return worst


def depth(model: onnx.ModelProto) -> int:
    """Return the number of nodes on the longest path from an input to an output."""
    level: dict[str, int] = {}
    for node in model.graph.node:  # nodes are in topological order
        below = max((level.get(name, 0) for name in node.input), default=0)
        level.update(dict.fromkeys(node.output, below + 1))
    return max((level.get(value.name, 0) for value in model.graph.output), default=0)


def tolerance(stored: Stored, precision: str = "fp32") -> float:
    """Return the tolerance for a model's results, relative to the largest value.

    Each node on the longest path rounds, and such errors add up like random ones: 2 sqrt(depth) roundings to 11 bits in
    fp16, and 64 sqrt(depth) to 24 bits in fp32, where a node may sum many products. In int8 matmuls, sums between two
    of 127 steps may round either way, and so may later results: two such steps.
    """
    if stored.exporter.endswith("qdq_int8"):
        return 2 / 127
    half = precision == "fp16" or any(
        one.data_type == onnx.TensorProto.FLOAT16 for one in stored.model.graph.initializer
    )
    return float((2 * 2.0**-11 if half else 64 * 2.0**-24) * np.sqrt(depth(stored.model)))


def dispatches(model: pumice.Model, given: Sequence[Any]) -> int | None:
    """Return the number of dispatches of a call; None for a program with control flow or host sync points."""
    try:
        return len(model.program.profile(model.arguments(*given)))
    except pumice.UnsupportedError:
        return None
