"""Cases of the corpus: how to create a model, its inputs, and their sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Sizes = dict[str, int]
Dimension = int | str  # a size, or an expression of symbols with + - * //


@dataclass(frozen=True)
class Input:
    """An input: its element type, dimensions and kind of values.

    values: "normal", "uniform LOW HIGH", "integers LOW HIGH" (below HIGH), "lengths" (rows of ones, then zeros), "ends"
    (zeros, then ones), "range" (along the last axis), "falling" (down to 1 along it), "times SCALE" (normal, scaled).
    """

    dtype: str
    dimensions: tuple[Dimension, ...]
    values: str = "normal"

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(
            int(eval(one, {"__builtins__": {}}, dict(sizes))) if isinstance(one, str) else one
            for one in self.dimensions
        )

    def make(self, sizes: Sizes, random: np.random.Generator) -> np.ndarray[Any, Any]:
        shape = self.shape(sizes)
        kind, *numbers = self.values.split()
        if kind == "range":
            made: Any = np.broadcast_to(np.arange(shape[-1]), shape)
        elif kind == "falling":
            made = np.broadcast_to(np.arange(shape[-1], 0, -1), shape)
        elif kind in ("lengths", "ends"):
            rows = random.integers(min(1, shape[-1]), shape[-1] + 1, shape[:-1])
            made = (np.arange(shape[-1]) < rows[..., None]) == (kind == "lengths")
        elif kind == "integers":
            made = random.integers(int(numbers[0]), int(numbers[1]), shape)
        elif kind == "uniform":
            made = random.uniform(float(numbers[0]), float(numbers[1]), shape)
        else:
            made = random.standard_normal(shape) * (float(numbers[0]) if kind == "times" else 1)
        return np.ascontiguousarray(made).astype(self.dtype)


def floats(*dimensions: Dimension, values: str = "normal") -> Input:
    return Input("float32", dimensions, values)


def integers(high: int, *dimensions: Dimension) -> Input:
    return Input("int64", dimensions, f"integers 0 {high}")


def lengths(*dimensions: Dimension, dtype: str = "int64") -> Input:
    return Input(dtype, dimensions, "lengths")


@dataclass(frozen=True)
class Case:
    """A model to export. The first of `sizes` is the exporter's example input; all are run.

    exporters: "dynamo" and "script" are PyTorch's, "sklearn" is skl2onnx. variants: "fp16" (a half-precision copy),
    "dynamic_int8" and "qdq_int8" (quantised by ONNX Runtime), all from the first exporter's file.
    """

    name: str
    make: Callable[[], Any]
    inputs: dict[str, Input]
    outputs: Sequence[str]
    sizes: Sequence[Sizes] = ({},)
    exporters: Sequence[str] = ("dynamo", "script")
    variants: Sequence[str] = ()
    opset: int | None = None  # None: the exporter's default
    options: dict[str, Any] = field(default_factory=dict)  # exporter options

    @property
    def names(self) -> list[str]:
        """Return the names of the case's files."""
        made = [f"{self.name}.{exporter}" for exporter in self.exporters] if len(self.exporters) > 1 else [self.name]
        return made + [f"{self.name}.{variant}" for variant in self.variants]

    def example(self) -> dict[str, np.ndarray[Any, Any]]:
        return arrays(self.inputs, self.sizes[0])


def arrays(inputs: dict[str, Input], sizes: Sizes) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(7)
    return {name: one.make(sizes, random) for name, one in inputs.items()}
