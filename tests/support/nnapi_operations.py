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


def operands_of(graph: pumice.Graph, arguments: tuple[Any, ...], fed: dict[str, np.ndarray]) -> list[Any]:
    """Add arrays and quantised arrays as inputs of the graph; leave other operands unchanged."""
    operands = []
    for i, item in enumerate(arguments):
        if isinstance(item, Quantized):
            fed[f"x{i}"] = item.array
            operands.append(
                graph.input(
                    f"x{i}", item.array.dtype, list(item.array.shape), scale=item.scale, zero_point=item.zero_point
                )
            )
        elif isinstance(item, np.ndarray) and item.dtype.kind != "O" and item.ndim:
            fed[f"x{i}"] = item
            operands.append(graph.input(f"x{i}", item.dtype, list(item.shape)))
        else:
            operands.append(item)
    return operands


def run(context: pumice.Context, op: str, *arguments: Any, **declared: Any) -> Any:
    """Return the outputs of one operation, a tuple if there are several."""
    graph = pumice.Graph(op)
    fed: dict[str, np.ndarray] = {}
    result = graph.add(f"nnapi::{op}", *operands_of(graph, arguments, fed), name="it", **declared)
    values = result if isinstance(result, tuple) else (result,)
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


def wider(item: Any, axis: int) -> Any:
    """Return an operand with the first slice of an axis repeated at its end."""
    array = item.array if isinstance(item, Quantized) else item
    more = np.concatenate([array, np.take(array, [0], axis)], axis)
    return item._replace(array=more) if isinstance(item, Quantized) else more


def real(item: Any) -> np.ndarray[Any, Any]:
    """Return the operand's values in float64, dequantised if necessary."""
    return np.asarray(item.reals if isinstance(item, Quantized) else item).astype("float64")


def quarters(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return small multiples of 1/4: sums of some hundred products are exact in float32."""
    return (np.random.default_rng(seed).integers(-8, 9, shape) / 4).astype(dtype)
