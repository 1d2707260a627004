"""Small test programs: functions that build their graphs, and expected convolution results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import pumice

Build = Callable[[pumice.Graph], None]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def compiled(context: pumice.Context, build: Build, **options: object) -> pumice.Program:
    graph = pumice.Graph("test")
    build(graph)
    return graph.compile(context, **options)


def add_one(graph: pumice.Graph) -> None:
    graph.output("y", graph.add("Add", graph.input("x", "float32", [None]), np.ones(1, "float32")))


def conv2d(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compute a 3x3 convolution with padding 1."""
    padded = np.pad(x.astype("float64"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w.astype("float64")) + b.reshape(1, -1, 1, 1)


WEIGHT, BIAS = random(8, 4, 3, 3, seed=1), random(8, seed=2)


def conv_relu(graph: pumice.Graph) -> None:
    x = graph.input("x", "float32", [None, 4, None, None])
    conv = graph.add("Conv", x, WEIGHT, BIAS, pads=[1, 1, 1, 1], name="conv")
    graph.output("y", graph.add("Relu", conv, name="relu"))


def deep(graph: pumice.Graph) -> None:
    x = graph.input("x", "float32", [None, 4, 8, 8])
    y = graph.add("Relu", graph.add("Conv", x, WEIGHT, BIAS, pads=[1, 1, 1, 1]))
    y = graph.add("GlobalAveragePool", y)
    y = graph.add("Gemm", graph.add("Flatten", y), random(8, 5, seed=5), random(5, seed=6))
    graph.output("logits", y)
    graph.output("probabilities", graph.add("Softmax", y, axis=-1))


def of_the_device(graph: pumice.Graph, value: pumice.Value, name: str) -> pumice.Value:
    """Return the same values as a slice of a larger value that only the device computes, of known shape."""
    shape = [size for size in value.shape or () if size is not None]
    size = int(np.prod(shape))
    flat = graph.add("Reshape", value, np.array([size]))
    many = graph.add("Concat", flat, graph.constant(np.zeros(5000, value.dtype)), axis=0)
    part = graph.add("Slice", many, np.array([0]), np.array([size]))
    result: pumice.Value = graph.add("Reshape", part, np.array(shape, "int64"), output_names=[name])
    return result
