"""Elementwise epilogues: every elementwise operator of one varying float operand, with constants on either side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

import pumice

Following = Callable[[pumice.Graph, Any], Any]

UNARY: dict[str, dict[str, Any]] = {
    "Abs": {},
    "Acos": {},
    "Acosh": {},
    "Asin": {},
    "Asinh": {},
    "Atan": {},
    "Atanh": {},
    "Ceil": {},
    "Celu": {"alpha": 0.75},
    "Cos": {},
    "Cosh": {},
    "Elu": {"alpha": 0.75},
    "Erf": {},
    "Exp": {},
    "Floor": {},
    "Gelu": {},
    "HardSigmoid": {"alpha": 0.25, "beta": 0.375},
    "HardSwish": {},
    "LeakyRelu": {"alpha": 0.125},
    "Log": {},
    "Mish": {},
    "Neg": {},
    "Reciprocal": {},
    "Relu": {},
    "Round": {},
    "Selu": {},
    "Shrink": {"lambd": 0.25, "bias": 0.125},
    "Sigmoid": {},
    "Sign": {},
    "Sin": {},
    "Sinh": {},
    "Softplus": {},
    "Softsign": {},
    "Sqrt": {},
    "Swish": {"alpha": 1.25},
    "Tan": {},
    "Tanh": {},
    "ThresholdedRelu": {"alpha": 0.5},
}
BINARY = ("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Max", "Min", "PRelu")
NUMBER = np.float32(1.75)


def unary(op: str, attributes: dict[str, Any]) -> Following:
    return lambda graph, x: graph.add(op, x, **attributes)


def binary(op: str, first: bool) -> Following:
    attributes = {"fmod": 1} if op == "Mod" else {}

    def add(graph: pumice.Graph, x: Any) -> Any:
        number = graph.constant(np.array(NUMBER))
        return graph.add(op, *((x, number) if first else (number, x)), **attributes)

    return add


def clip(graph: pumice.Graph, x: Any) -> Any:
    return graph.add("Clip", x, graph.constant(np.array(-0.5, "float32")), graph.constant(np.array(0.75, "float32")))


def chosen(graph: pumice.Graph, x: Any) -> Any:
    return graph.add("Where", graph.add("Less", x, graph.constant(np.array(NUMBER))), x, graph.add("Neg", x))


def whole(graph: pumice.Graph, x: Any) -> Any:
    return graph.add("Cast", graph.add("Cast", x, to=TensorProto.INT32), to=TensorProto.FLOAT)


def tanh_gelu(graph: pumice.Graph, x: Any) -> Any:
    return graph.add("Gelu", x, approximate="tanh")


def chain(graph: pumice.Graph, x: Any) -> Any:
    """Four operators in one epilogue."""
    number = graph.constant(np.array(NUMBER))
    return graph.add("Div", number, graph.add("Sub", number, graph.add("Add", graph.add("Neg", x), number)))


MAPS: dict[str, Following] = {
    **{op: unary(op, attributes) for op, attributes in UNARY.items()},
    **{f"{op} of x and a number": binary(op, True) for op in BINARY},
    **{f"{op} of a number and x": binary(op, False) for op in BINARY if op != "PRelu"},
    "Clip": clip,
    "Where": chosen,
    "Cast to int32 and back": whole,
    "Gelu by tanh": tanh_gelu,
    "a chain": chain,
}
