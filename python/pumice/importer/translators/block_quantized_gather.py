"""Translate com.microsoft::GatherBlockQuantized, a lookup in a block-quantised table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...base.element_types import BITS, Array, array_from_bytes, unpack_low_bit_codes
from ...base.errors import graph_error

if TYPE_CHECKING:
    from ..._pumice import Value
    from ..build.builder import GraphBuilder
    from ..file.graph_recipe import NodeRecipe

INT64 = 7  # TensorProto.DataType
_CODES = ("uint8", "uint4", "int4")
# dtype of a float table -> its ONNX type number. float16 represents all of these dtypes exactly.
_FLOATS = {"float8_e4m3fn": 17, "float8_e4m3fnuz": 18, "float8_e5m2": 19, "float8_e5m2fnuz": 20, "float4_e2m1fn": 23}


@dataclass(frozen=True)
class _QuantizedTable:
    """A block-quantised table. shape, dtype: shape and dtype of the codes.

    Zero points are stored one per byte, unsigned: int4 codes and zero points are 8 larger than in the file. A float table
    has no zero points.
    """

    dtype: str
    bits: int
    shape: list[int]
    zeros: Array | None
    scales: Array
    gather_axis: int
    quantize_axis: int
    quant_block_size: int


def _get_axis(node: NodeRecipe, name: str, default: int, rank: int) -> int:
    axis_value = node.attributes.get(name, default)
    if not isinstance(axis_value, int) or not -rank <= axis_value < rank:
        raise graph_error("node", node.name, f"attribute '{name}': expected an axis of {rank}, given {axis_value!r}")
    return axis_value % rank


def _unpack_constant_codes(
    builder: GraphBuilder, node: NodeRecipe, index: int, bits: int, last: int | None = None
) -> Array:
    """Return the codes of a constant input, one per byte. last: number of codes per row to keep, for packed uint8 inputs."""
    constant = builder.constants.get(node.inputs[index])
    if constant is None:
        raise builder.reject(node, f"input {index} that is not a constant")
    if constant.dtype not in _CODES:
        raise builder.reject(node, f"input {index} of {constant.dtype}; supported: {', '.join(_CODES)}")
    codes = array_from_bytes(constant.raw, constant.dtype, constant.shape)
    if constant.dtype == "uint8":
        return unpack_low_bit_codes(codes, bits)[..., :last]
    codes = codes.view(np.uint8) & np.uint8(15)
    return codes ^ np.uint8(8) if constant.dtype == "int4" else codes


def _get_zero_points(builder: GraphBuilder, node: NodeRecipe, bits: int, shape: list[int]) -> Array | None:
    """Return the zero points, or the dtype's default; None for a float table, which has none."""
    dtype, has_zero_points = builder.constants[node.inputs[0]].dtype, len(node.inputs) > 3 and bool(node.inputs[3])
    if dtype in _FLOATS:
        if has_zero_points:
            raise graph_error("node", node.name, f"expected no zero points for a table of {dtype}")
        return None
    if not has_zero_points:
        return np.full(shape, {"int4": 8, "uint4": 0}.get(dtype, 1 << bits - 1), np.uint8)
    zeros = _unpack_constant_codes(builder, node, 3, bits, shape[-1])
    if [*zeros.shape] != shape:
        raise graph_error("node", node.name, f"expected zero points of {shape}, given {[*zeros.shape]}")
    return zeros


def _parse_table(builder: GraphBuilder, node: NodeRecipe) -> _QuantizedTable:
    if not 3 <= len(node.inputs) <= 4 or "" in node.inputs[:3]:
        raise graph_error(
            "node", node.name, f"expected data, indices, scales and perhaps zero points, given {node.inputs}"
        )
    data, scales = builder.constants.get(node.inputs[0]), builder.get_constant_array(node.inputs[2])
    if data is None or scales is None:
        raise builder.reject(node, "a table or scales that are not constants")
    bits = node.attributes.get("bits", 4) if data.dtype == "uint8" else BITS[data.dtype]
    quant_block_size = node.attributes.get("block_size", 128)
    is_float = data.dtype in _FLOATS
    if bits not in (2, 4, 8) or not isinstance(quant_block_size, int) or quant_block_size < (0 if is_float else 1):
        raise builder.reject(
            node, f"bits = {bits}, block_size = {quant_block_size}; supported: 2, 4 and 8 bits in blocks of at least 1"
        )
    shape = [*data.shape[:-1], data.shape[-1] * (8 // int(bits) if data.dtype == "uint8" else 1)] if data.shape else []
    gather, quantize = (_get_axis(node, name, i, len(shape)) for i, name in enumerate(("gather_axis", "quantize_axis")))
    expected, quant_block_size = (
        [*shape],
        quant_block_size or max(shape[quantize], 1),
    )  # block_size = 0: each row of a float table is a single block
    expected[quantize] = -(-expected[quantize] // quant_block_size)
    if is_float and all(size in (1, other) for size, other in zip(scales.shape, expected, strict=False)):
        scales = np.broadcast_to(scales, expected)
    if [*scales.shape] != expected:
        raise graph_error("node", node.name, f"expected scales of {expected}, given {[*scales.shape]}")
    zeros = _get_zero_points(builder, node, int(bits), expected)
    return _QuantizedTable(
        data.dtype, int(bits), shape, zeros, np.ascontiguousarray(scales), gather, quantize, quant_block_size
    )


def translate_gather_block_quantized(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Gather codes, zero points and scales with the same indices, then dequantise.

    Raise GraphError if the node is invalid, NodeRejectedError if it is unsupported.
    """
    table = _parse_table(builder, node)
    indices, axis = builder.require_tensor(node.inputs[1]), table.gather_axis
    codes, block_indices = _gather_codes(builder, node, table, indices), indices
    if table.quantize_axis == axis:
        block_indices = _get_block_indices(builder, node, indices, table)
    scales = builder.add_helper(node, "Gather", table.scales, block_indices, axis=axis)
    zeros = None if table.zeros is None else builder.add_helper(node, "Gather", table.zeros, block_indices, axis=axis)
    if table.quantize_axis == axis:  # each element has its own scale and zero point
        result = builder.add_helper(node, "CastLike", codes, scales)
        if zeros is not None:
            result = builder.add_helper(node, "Sub", result, builder.add_helper(node, "CastLike", zeros, scales))
        result = builder.add_helper(node, "Mul", result, scales)
    else:  # axes after gather_axis are counted from the end, because the indices may have any rank
        quantize_axis_from_end = table.quantize_axis - (len(table.shape) if table.quantize_axis > axis else 0)
        result = builder.add_helper(
            node,
            "DequantizeLinear",
            codes,
            scales,
            zeros,
            axis=quantize_axis_from_end,
            block_size=table.quant_block_size,
        )
    builder.set_node_outputs(node, result)


def _gather_codes(builder: GraphBuilder, node: NodeRecipe, table: _QuantizedTable, indices: Value) -> Value:
    """Gather codes: as packed bytes that are then unpacked if rows are whole bytes, else from codes stored one per byte."""
    bits, count, table_constant = table.bits, table.shape[-1], builder.constants[node.inputs[0]]
    if table.dtype in _FLOATS:
        wide_values = array_from_bytes(table_constant.raw, table_constant.dtype, table_constant.shape).astype(
            np.float16
        )
        rows = builder.add_helper(node, "Gather", wide_values, indices, axis=table.gather_axis)
        return builder.add_helper(node, "Cast", rows, to=_FLOATS[table.dtype])
    if bits == 8 or table.gather_axis == len(table.shape) - 1 or count * bits % 8:
        codes = _unpack_constant_codes(builder, node, 0, bits)
        return builder.add_helper(node, "Gather", codes, indices, axis=table.gather_axis)
    packed = [*table.shape[:-1], count * bits // 8]
    sign = np.uint8(0x88 if table_constant.dtype == "int4" else 0)
    rows = builder.derive_constant(
        node.inputs[0],
        "uint8",
        packed,
        table_constant.dtype,
        raw=lambda: (np.frombuffer(table_constant.raw, np.uint8) ^ sign).tobytes(),
    )
    rows = builder.add_helper(node, "Gather", rows, indices, axis=table.gather_axis)
    unsqueezed = builder.add_helper(node, "Unsqueeze", rows, np.array([-1]))
    shifted = builder.add_helper(node, "BitShift", unsqueezed, np.arange(0, 8, bits, dtype=np.uint8), direction="RIGHT")
    unpacked = builder.add_helper(node, "BitwiseAnd", shifted, np.array((1 << bits) - 1, np.uint8))
    leading = builder.add_helper(node, "Shape", rows, end=-1)
    return builder.add_helper(
        node, "Reshape", unpacked, builder.add_helper(node, "Concat", leading, np.array([count]), axis=0), allowzero=1
    )


def _get_block_indices(builder: GraphBuilder, node: NodeRecipe, indices: Value, table: _QuantizedTable) -> Value:
    """Return the index of the quantisation block that contains each gathered index. Negative indices count from the end."""
    size = np.array(table.shape[table.gather_axis])
    wide_values = builder.add_helper(node, "Cast", indices, to=INT64)
    negative = builder.add_helper(node, "Less", wide_values, np.array(0))
    wrapped = builder.add_helper(
        node, "Where", negative, builder.add_helper(node, "Add", wide_values, size), wide_values
    )
    return builder.add_helper(node, "Div", wrapped, np.array(table.quant_block_size))
