"""Random ONNX models: node generators, and the oracles that their nodes are compared with."""

from random_nodes import indexed, maps, movement, numerics, recurrent, windows
from random_nodes.maker import Made, Maker, SkipError, Value
from random_nodes.table import OPERATORS

__all__ = [
    "OPERATORS",
    "Made",
    "Maker",
    "SkipError",
    "Value",
    "indexed",
    "maps",
    "movement",
    "numerics",
    "recurrent",
    "windows",
]
