"""Element types by NumPy name, and their representation in model files."""

from __future__ import annotations

from typing import Any

import numpy as np

# Equivalent to numpy.typing.NDArray[Any], without the slow import of numpy.typing.
Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]
Bytes = bytes | memoryview
Index = tuple[slice, ...]  # of a block of an array: a slice for each axis

PRECISIONS = ("fp32", "fp16", "bf16")  # accepted by models, graphs and operators

# Bits per element in a model file. Types below 8 bits are packed, low bits first.
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
    "float8_e4m3fn": 8,
    "float8_e4m3fnuz": 8,
    "float8_e5m2": 8,
    "float8_e5m2fnuz": 8,
    "float8_e8m0fnu": 8,
    "float4_e2m1fn": 4,
    "int2": 2,
    "uint2": 2,
}
# ONNX type codes (TensorProto.DataType) of numeric and boolean types, hard-coded so that a warm start does not import onnx.
ONNX_TYPE_CODES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "bfloat16": 16,
}
_NUMPY_NATIVE_TYPES = [name for name, bits in BITS.items() if bits >= 8 and not name.startswith(("bfloat", "float8"))]


def get_numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype with this name; ml_dtypes provides types that NumPy lacks."""
    if name in _NUMPY_NATIVE_TYPES:
        return np.dtype(name)
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype


def count_elements(shape: list[int]) -> int:
    """Return the number of elements in a tensor of this shape."""
    count = 1
    for size in shape:
        count *= size
    return count


def count_bytes(dtype: str, shape: list[int]) -> int:
    """Return the size in bytes of a tensor in a model file, where types below 8 bits are packed."""
    return (count_elements(shape) * BITS[dtype] + 7) // 8


def array_from_bytes(raw: Bytes, dtype: str, shape: list[int]) -> Array:
    """Return an array of this dtype and shape that views a file's bytes; types below 8 bits are unpacked to a copy."""
    if count_elements(shape) == 0:
        return np.zeros(shape, get_numpy_dtype(dtype))
    if BITS[dtype] < 8:
        return _unpack_array(np.frombuffer(raw, np.uint8), dtype, shape)
    return np.frombuffer(raw, get_numpy_dtype(dtype), count_elements(shape)).reshape(shape)


def _unpack_array(packed: Array, dtype: str, shape: list[int]) -> Array:
    codes = unpack_low_bit_codes(packed, BITS[dtype]).reshape(-1)[: count_elements(shape)]
    return codes.reshape(shape).view(get_numpy_dtype(dtype))


def unpack_low_bit_codes(packed: Array, bits: int) -> Array:
    """Unpack `bits`-bit codes along the last axis to one code per byte, low bits first."""
    codes = [packed >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
    return np.stack(codes, axis=-1).reshape(*packed.shape[:-1], -1)


def pack_low_bit_codes(codes: Array, bits: int) -> bytes:
    """Pack codes, one per byte, to `bits` bits each, low bits first. Bits above `bits` are ignored."""
    codes_per_byte = 8 // bits
    flat = np.concatenate([codes.reshape(-1), np.zeros(-codes.size % codes_per_byte, np.uint8)]).reshape(
        -1, codes_per_byte
    )
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return bytes(np.bitwise_or.reduce((flat & np.uint8((1 << bits) - 1)) << shifts, axis=1))
