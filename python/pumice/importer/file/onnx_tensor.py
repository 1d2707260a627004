"""Convert tensors in ONNX files to ConstantRecipes."""

from __future__ import annotations

import numpy as np
from onnx import SparseTensorProto, TensorProto

from ...base.element_types import BITS, Bytes, array_from_bytes, count_bytes, count_elements
from ...base.errors import graph_error
from .graph_recipe import STRING, ConstantRecipe, TensorLocation, UnrepresentableError, pack_strings
from .model_file import MODEL_FILE_LOCATION, ModelFile

_MAX_AXIS_SIZE = 1 << 40  # exclusive upper limit for the size of an axis
_MAX_DENSE_BYTES = 1 << 28  # size limit for a densified sparse tensor: a few bytes in a file can request any size
_MAX_RANK = 32  # maximum rank of a NumPy array
# dtype -> ONNX type name, if that is not simply the dtype in upper case.
_ONNX_TYPE_NAMES = {
    "float64": "DOUBLE",
    "float32": "FLOAT",
    "float8_e8m0fnu": "FLOAT8E8M0",
    "float4_e2m1fn": "FLOAT4E2M1",
}
# ONNX type number -> dtype.
DTYPES = {
    getattr(TensorProto, onnx_name): name
    for name, onnx_name in ((dtype, _ONNX_TYPE_NAMES.get(dtype, dtype.replace("_", "").upper())) for dtype in BITS)
    if hasattr(TensorProto, onnx_name)
}
DTYPES[TensorProto.STRING] = STRING
# dtype -> (TensorProto field that stores the elements if raw_data is unused, NumPy type of their bits).
_FIELDS = {
    "float32": ("float_data", "float32"),
    "float64": ("double_data", "float64"),
    "int64": ("int64_data", "int64"),
    "uint64": ("uint64_data", "uint64"),
    "uint32": ("uint64_data", "uint32"),
    "float16": ("int32_data", "uint16"),
    "bfloat16": ("int32_data", "uint16"),
    **{dtype: ("int32_data", "uint8") for dtype, bits in BITS.items() if bits < 8 or dtype.startswith("float8")},
    **{dtype: ("int32_data", dtype) for dtype in ("int32", "int16", "int8", "uint16", "uint8", "bool")},
}


def get_dtype_from_onnx_type(number: int) -> str:
    """Return the dtype for an ONNX type number. Raise UnrepresentableError if it is unsupported."""
    if number in DTYPES:
        return DTYPES[number]
    known_codes = TensorProto.DataType.values()
    raise UnrepresentableError(
        f"element type {TensorProto.DataType.Name(number).lower() if number in known_codes else number}"
    )


def _get_raw_bytes(
    tensor: TensorProto, dtype: str, shape: list[int], file: ModelFile
) -> tuple[Bytes, TensorLocation | None]:
    if tensor.data_location == TensorProto.EXTERNAL:
        return _get_external_bytes(tensor, count_bytes(dtype, shape), file)
    if tensor.HasField("raw_data"):
        return tensor.raw_data, None
    field, bits = _FIELDS[dtype]
    elements_per_entry = max(8 // BITS[dtype], 1)  # the field packs several sub-byte elements into an entry
    expected = -(-count_elements(shape) // elements_per_entry)
    values = getattr(tensor, field)
    if len(values) != expected:
        raise graph_error("tensor", tensor.name, f"expected {expected} elements in {field}, given {len(values)}")
    entry_values = np.array(
        values, "float64" if bits.startswith("float") else "uint64" if "uint64" in field else "int64"
    )
    return entry_values.astype(bits).tobytes(), None


def _get_external_bytes(tensor: TensorProto, expected: int, file: ModelFile) -> tuple[Bytes, TensorLocation]:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    is_in_model_file = location == MODEL_FILE_LOCATION and file.data is not None
    data = file.data or b"" if is_in_model_file else file.read_external(location, tensor.name)
    try:
        offset, length = (int(entries.get(key, default)) for key, default in (("offset", 0), ("length", expected)))
    except ValueError:
        raise graph_error("tensor", tensor.name, f"expected integers as offset and length, given {entries}") from None
    if offset < 0 or length < 0 or offset + length > len(data):
        received = f"a file of {len(data)} bytes"
        raise graph_error(
            "tensor", tensor.name, f"expected {length} bytes at offset {offset} of '{location}', given {received}"
        )
    return memoryview(data)[offset : offset + length], TensorLocation("" if is_in_model_file else location, offset)


def _pack_tensor_strings(tensor: TensorProto, shape: list[int]) -> bytes:
    received = tensor.string_data
    if len(received) != count_elements(shape):
        raise graph_error(
            "tensor", tensor.name, f"expected {count_elements(shape)} elements in string_data, given {len(received)}"
        )
    try:
        return pack_strings([text.decode() for text in received])
    except UnicodeDecodeError:
        raise graph_error("tensor", tensor.name, "expected UTF-8 strings, given other bytes") from None


def make_sparse_constant(sparse: SparseTensorProto, name: str, file: ModelFile) -> ConstantRecipe:
    """Convert a sparse tensor to a dense constant. Its indices are flat, or have one row per value.

    Raise GraphError for invalid shapes or indices, UnrepresentableError for strings, sub-byte types and tensors that are too large.
    """
    values, indices = make_constant(sparse.values, name, file), make_constant(sparse.indices, f"{name} (indices)", file)
    file.is_cacheable &= (
        values.tensor_location is None and indices.tensor_location is None
    )  # the cache key does not cover data in files, which the dense tensor copies
    shape, count = list(sparse.dims), count_elements(values.shape)
    if any(not 0 <= size < _MAX_AXIS_SIZE for size in shape) or len(values.shape) != 1:
        raise graph_error(
            "tensor", name, f"expected sizes from 0 to 2**40 and a row of values, given {shape}, {values.shape}"
        )
    if values.dtype == STRING or BITS[values.dtype] < 8 or count_bytes(values.dtype, shape) > _MAX_DENSE_BYTES:
        raise UnrepresentableError(f"a sparse tensor of {values.dtype}{shape}")
    if indices.dtype != "int64" or indices.shape not in ([count], [count, len(shape)]):
        expected = f"int64[{count}] or int64[{count}, {len(shape)}]"
        raise graph_error("tensor", name, f"expected indices of {expected}, given {indices.dtype}{indices.shape}")
    index_rows = array_from_bytes(indices.raw, "int64", indices.shape).reshape(count, -1)
    index_limits = np.array(shape if len(indices.shape) == 2 else [count_elements(shape)], np.int64)
    if ((index_rows < 0) | (index_rows >= index_limits)).any():
        raise graph_error(
            "tensor", name, f"expected indices from 0 to below {index_limits.tolist()}, given indices out of range"
        )
    dense = np.zeros(count_elements(shape), np.dtype(f"V{BITS[values.dtype] // 8}"))
    flat_indices = (
        index_rows[:, 0] if len(indices.shape) == 1 else np.ravel_multi_index(tuple(index_rows.T), tuple(shape))
    )
    dense[flat_indices] = np.frombuffer(values.raw, dense.dtype, count)
    return ConstantRecipe(name, values.dtype, shape, dense.tobytes())


def make_constant(tensor: TensorProto, name: str, file: ModelFile) -> ConstantRecipe:
    """Convert a TensorProto to a ConstantRecipe. Data in a file is memory-mapped, not copied.

    Raise GraphError if the tensor is invalid, UnrepresentableError if its type or rank is unsupported, or if it is segmented.
    """
    dtype, shape = get_dtype_from_onnx_type(tensor.data_type), list(tensor.dims)
    if tensor.HasField("segment"):
        raise UnrepresentableError("a tensor in segments")
    if any(not 0 <= size < _MAX_AXIS_SIZE for size in shape):
        raise graph_error("tensor", name, f"expected sizes from 0 to 2**40, given {shape}")
    if len(shape) > _MAX_RANK:
        raise UnrepresentableError(f"a tensor of rank {len(shape)}")
    if dtype == STRING:
        return ConstantRecipe(name, dtype, shape, _pack_tensor_strings(tensor, shape))
    raw, tensor_location = _get_raw_bytes(tensor, dtype, shape, file)
    if len(raw) != count_bytes(dtype, shape):
        expected = f"{count_bytes(dtype, shape)} bytes for {dtype}{shape}"
        raise graph_error("tensor", name, f"expected {expected}, given {len(raw)}")
    return ConstantRecipe(name, dtype, shape, raw, tensor_location)
