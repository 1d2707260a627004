"""Arrays of every element type for tensor tests."""

from __future__ import annotations

import mmap
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

NUMPY_DTYPES = (
    "float64",
    "float32",
    "float16",
    "int64",
    "uint64",
    "int32",
    "uint32",
    "int16",
    "uint16",
    "int8",
    "uint8",
    "bool",
)
DTYPES = [*NUMPY_DTYPES, ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.uint4]
WHOLE_BYTES = DTYPES[:-2]


def counted(shape: Any, dtype: Any = "float32") -> Array:
    """Return elements that differ from their neighbours in every dtype."""
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 7).astype(dtype)


def page_aligned(shape: Any, dtype: Any = "float32") -> Array:
    count = int(np.prod(shape))
    memory = mmap.mmap(-1, max(count * np.dtype(dtype).itemsize, 1))
    return np.frombuffer(memory, dtype, count).reshape(shape)


def ramp(*shape: int) -> Array:
    """Return multiples of a quarter, counting up from -1."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 4 - 1


def waves(*shape: int) -> Array:
    """Return the sines of 1, 2, 3 and so on."""
    return np.sin(np.arange(np.prod(shape), dtype=np.float32) + 1).reshape(shape)


def numbers(*shape: int, seed: int = 0) -> Array:
    """Return normal numbers that depend on the seed and the sum of the sizes."""
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype("float32")
