"""Rows of the operators' test table.

A row is `case(OP, NOTE, *inputs, **attributes)`. Inputs are arrays given at the call (`x`), constants of the graph
(`w`, and explicit values with `fixed`) or None for an omitted optional input. Random floats are multiples of 1/64
between -2 and 2, which are exact in fp16, so the fp16 tolerance covers only the arithmetic. Sizes are odd primes, one,
zero, just past a workgroup, just past a tile.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes  # noqa: F401 - registers its dtypes with NumPy
import numpy as np
import numpy.typing as npt

import pumice

Array = npt.NDArray[Any]

OPSET = 26


@dataclass(frozen=True)
class Given:
    """One input of a case."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    constant: bool = False
    low: float = -2.0
    high: float = 2.0
    written: Array | None = field(default=None, compare=False)

    def array(self, random: np.random.Generator) -> Array:
        if self.written is not None:
            return self.written
        if self.dtype == "bool":
            return random.integers(0, 2, self.shape).astype(bool)
        if self.dtype.startswith("float"):
            steps = random.integers(round(self.low * 64), round(self.high * 64), self.shape, endpoint=True)
            return (steps / 64).astype(self.dtype)
        return random.integers(int(self.low), int(self.high), self.shape, endpoint=True).astype(self.dtype)


def x(*shape: int, dtype: str = "float32", low: float = -2.0, high: float = 2.0) -> Given:
    """Random elements, given at the call."""
    return Given(shape, dtype, False, low, high)


def w(*shape: int, dtype: str = "float32", low: float = -2.0, high: float = 2.0) -> Given:
    """Random elements, a constant of the graph."""
    return Given(shape, dtype, True, low, high)


def fixed(values: Any, dtype: str = "int64") -> Given:
    """A constant of the graph with these elements."""
    array = np.array(values, dtype)
    return Given(array.shape, dtype, True, written=array)


def given(values: Any, dtype: str = "float32") -> Given:
    """An input of these elements, given at the call."""
    array = np.array(values, dtype)
    return Given(array.shape, dtype, False, written=array)


@dataclass(frozen=True)
class Case:
    """An operator with its inputs. Tolerances are relative and absolute; integers and booleans must be equal."""

    op: str
    note: str
    inputs: tuple[Given | None, ...]
    attributes: dict[str, Any]
    outputs: int
    fp32: tuple[float, float]
    fp16: tuple[float, float]
    large: bool  # for the --all tier
    torch: str = ""  # equivalent PyTorch expression over the call inputs a, b, c, ...: makes this a benchmark row
    reads: int = 1  # number of times it reads its inputs if they are too long to keep in registers

    def __str__(self) -> str:
        return f"{self.op}: {self.note}"

    @property
    def has_floats(self) -> bool:
        return any(one is not None and one.dtype == "float32" for one in self.inputs)

    @property
    def has_wide_integers(self) -> bool:
        """Return whether the device reads an input of 64-bit integers."""
        return any(one is not None and not one.constant and one.dtype in ("int64", "uint64") for one in self.inputs)

    def tolerance(self, precision: str) -> tuple[float, float]:
        """Return the tolerance; bfloat16 has three bits of mantissa less than float16."""
        if precision == "bf16":
            return 8 * self.fp16[0], 8 * self.fp16[1]
        return self.fp32 if precision == "fp32" else self.fp16

    def arrays(self) -> list[Array | None]:
        """Return the input elements, always the same for a row."""
        random = np.random.default_rng(zlib.crc32(str(self).encode()))
        return [one.array(random) if one else None for one in self.inputs]


def values_in(
    graph: pumice.Graph, case: Case, arrays: Sequence[Array | None]
) -> tuple[list[pumice.Value | None], dict[str, Array]]:
    """Return the case's operands in a graph, with non-constants as inputs, and the elements of these inputs by name."""
    values: list[pumice.Value | None] = []
    given: dict[str, Array] = {}
    for k, (one, array) in enumerate(zip(case.inputs, arrays, strict=True)):
        if one is None or array is None:
            values.append(None)
        elif one.constant:
            values.append(graph.constant(array))
        else:
            given[f"i{k}"] = array
            values.append(graph.input(f"i{k}", str(array.dtype), list(array.shape)))
    return values, given


def case(
    op: str,
    note: str,
    *inputs: Given | None,
    outputs: int = 1,
    fp32: tuple[float, float] = (1e-5, 1e-5),
    fp16: tuple[float, float] = (1e-3, 1e-3),
    large: bool = False,
    torch: str = "",
    reads: int = 1,
    **attributes: Any,
) -> Case:
    return Case(op, note, inputs, attributes, outputs, fp32, fp16, large, torch, reads)


EXACT = {"fp32": (0.0, 0.0), "fp16": (0.0, 0.0)}
LOOSE = {"fp32": (2e-5, 1e-4), "fp16": (2e-3, 2e-2)}  # sums of hundreds of products
SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 2.0**-14, 65504.0, -65504.0, 0.5]
