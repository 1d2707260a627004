"""Test helpers for NNAPI operations: one operation as a program, quantised arrays, and comparisons."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import pumice


class Quantized(NamedTuple):
    """Integers representing (integer - zero_point) * scale."""

    array: np.ndarray
    scale: float
    zero_point: int

    @property
    def reals(self) -> np.ndarray:
        return (self.array.astype("float32") - np.float32(self.zero_point)) * np.float32(self.scale)


def random_quantized(shape: tuple[int, ...], dtype: str = "uint8", scale: float = 0.25, seed: int = 0) -> Quantized:
    low, high = (0, 256) if dtype == "uint8" else (-128, 128)
    array = np.random.default_rng(seed).integers(low, high, shape).astype(dtype)
    return Quantized(array, scale, low + 128 + seed)


def quantize(reals: np.ndarray, scale: float, zero_point: int, dtype: str = "uint8") -> np.ndarray:
    """Quantise, rounding half to even and saturating."""
    info = np.iinfo(dtype)
    places = np.round(reals.astype("float32") / np.float32(scale)) + zero_point
    return np.clip(places, info.min, info.max).astype(dtype)


def operands_of(graph: pumice.Graph, given: tuple[Any, ...], fed: dict[str, np.ndarray]) -> list[Any]:
    """Add arrays and quantised arrays as inputs of the graph; leave other operands unchanged."""
    operands = []
    for i, one in enumerate(given):
        if isinstance(one, Quantized):
            fed[f"x{i}"] = one.array
            operands.append(
                graph.input(f"x{i}", one.array.dtype, list(one.array.shape), scale=one.scale, zero_point=one.zero_point)
            )
        elif isinstance(one, np.ndarray) and one.dtype.kind != "O" and one.ndim:
            fed[f"x{i}"] = one
            operands.append(graph.input(f"x{i}", one.dtype, list(one.shape)))
        else:
            operands.append(one)
    return operands


def run(context: pumice.Context, op: str, *given: Any, **declared: Any) -> Any:
    """Return the outputs of one operation, a tuple if there are several."""
    graph = pumice.Graph(op)
    fed: dict[str, np.ndarray] = {}
    made = graph.add(f"nnapi::{op}", *operands_of(graph, given, fed), name="it", **declared)
    values = made if isinstance(made, tuple) else (made,)
    for i, value in enumerate(values):
        graph.output(f"y{i}", value)
    outputs = graph.compile(context)(fed)
    arrays = tuple(outputs[f"y{i}"] for i in range(len(values)))
    for array, value in zip(arrays, values, strict=True):
        assert array.dtype == value.dtype
        assert value.shape is not None
        assert all(known in (None, size) for known, size in zip(value.shape, array.shape, strict=True))
    return arrays if len(arrays) > 1 else arrays[0]


def assert_near(actual: np.ndarray, expected: np.ndarray, *, ulp: float = 4) -> None:
    """Check that integers and bools are equal, and floats within `ulp`."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if actual.dtype.kind == "f":
        tolerance = ulp * float(np.finfo(actual.dtype).eps)
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(actual, expected)


def wider(one: Any, axis: int) -> Any:
    """Return an operand with the first slice of an axis repeated at its end."""
    array = one.array if isinstance(one, Quantized) else one
    more = np.concatenate([array, np.take(array, [0], axis)], axis)
    return one._replace(array=more) if isinstance(one, Quantized) else more


def real(one: Any) -> np.ndarray[Any, Any]:
    """Return the operand's values in float64, dequantised if necessary."""
    return np.asarray(one.reals if isinstance(one, Quantized) else one).astype("float64")


def quarters(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return small multiples of 1/4: sums of some hundred products are exact in float32."""
    return (np.random.default_rng(seed).integers(-8, 9, shape) / 4).astype(dtype)
