"""Element types by their NumPy names, and the bytes that model files keep them in."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Bytes = bytes | memoryview

PRECISIONS = ("fp32", "fp16", "bf16")  # of models, graphs and operators

# Bits of an element in a file. int4 and uint4 are packed two to a byte, the first in the low half.
BITS = {
    "float64": 64,
    "float32": 32,
    "float16": 16,
    "bfloat16": 16,
    "int64": 64,
    "uint64": 64,
    "int32": 32,
    "uint32": 32,
    "int16": 16,
    "uint16": 16,
    "int8": 8,
    "uint8": 8,
    "int4": 4,
    "uint4": 4,
    "bool": 8,
}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype, or that of ml_dtypes."""
    if name not in ("bfloat16", "int4", "uint4"):
        return np.dtype(name)
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype


def element_count(shape: list[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def byte_count(dtype: str, shape: list[int]) -> int:
    return (element_count(shape) * BITS[dtype] + 7) // 8


def array_of(raw: Bytes, dtype: str, shape: list[int]) -> Array:
    """The elements of a file's bytes, without a copy except for 4-bit types. The array keeps the bytes alive."""
    if element_count(shape) == 0:
        return np.zeros(shape, numpy_dtype(dtype))
    if BITS[dtype] == 4:
        return _unpacked(np.frombuffer(raw, np.uint8), dtype, shape)
    return np.frombuffer(raw, numpy_dtype(dtype), element_count(shape)).reshape(shape)


def _unpacked(packed: Array, dtype: str, shape: list[int]) -> Array:
    halves = np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1)[: element_count(shape)]
    if dtype == "int4":
        halves = ((halves ^ 8).astype(np.int8)) - 8
    return halves.reshape(shape).astype(numpy_dtype(dtype))
