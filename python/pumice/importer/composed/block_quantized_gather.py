"""Lookup in a block-quantised table (com.microsoft::GatherBlockQuantized)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...base.element_types import BITS, Array, array_of, unpacked_codes
from ...base.errors import graph_error

if TYPE_CHECKING:
    from ..._pumice import Value
    from ..build.builder import Builder
    from ..file.recipe import NodeRecipe

INT64 = 7  # TensorProto.DataType
_CODES = ("uint8", "uint4", "int4")
# dtype of a float table -> its ONNX number. float16 represents all of them exactly.
_FLOATS = {"float8_e4m3fn": 17, "float8_e4m3fnuz": 18, "float8_e5m2": 19, "float8_e5m2fnuz": 20, "float4_e2m1fn": 23}


@dataclass(frozen=True)
class _Table:
    """A block-quantised table. shape: the shape of the codes. dtype: the dtype of the codes.

    Zero points are unsigned, one per byte; int4 zero points and codes are 8 larger than in the file. A float table has
    no zero points.
    """

    dtype: str
    bits: int
    shape: list[int]
    zeros: Array | None
    scales: Array
    gather_axis: int
    quantize_axis: int
    block: int


def _axis(node: NodeRecipe, name: str, default: int, rank: int) -> int:
    given = node.attributes.get(name, default)
    if not isinstance(given, int) or not -rank <= given < rank:
        raise graph_error("node", node.name, f"attribute '{name}': expected an axis of {rank}, given {given!r}")
    return given % rank


def _constant_codes(builder: Builder, node: NodeRecipe, index: int, bits: int, last: int | None = None) -> Array:
    """Return the codes of a constant input, one per byte. last: number of valid codes per uint8 row."""
    given = builder.constants.get(node.inputs[index])
    if given is None:
        raise builder.refuse(node, f"input {index} that is no constant")
    if given.dtype not in _CODES:
        raise builder.refuse(node, f"input {index} of {given.dtype}; supported: {', '.join(_CODES)}")
    codes = array_of(given.raw, given.dtype, given.shape)
    if given.dtype == "uint8":
        return unpacked_codes(codes, bits)[..., :last]
    codes = codes.view(np.uint8) & np.uint8(15)
    return codes ^ np.uint8(8) if given.dtype == "int4" else codes


def _zero_points(builder: Builder, node: NodeRecipe, bits: int, shape: list[int]) -> Array | None:
    """Return the zero points, or the dtype's default; None for a float table, which has none."""
    dtype, given = builder.constants[node.inputs[0]].dtype, len(node.inputs) > 3 and bool(node.inputs[3])
    if dtype in _FLOATS:
        if given:
            raise graph_error("node", node.name, f"expected no zero points of a table of {dtype}, given some")
        return None
    if not given:
        return np.full(shape, {"int4": 8, "uint4": 0}.get(dtype, 1 << bits - 1), np.uint8)
    zeros = _constant_codes(builder, node, 3, bits, shape[-1])
    if [*zeros.shape] != shape:
        raise graph_error("node", node.name, f"expected zero points of {shape}, given {[*zeros.shape]}")
    return zeros


def _table(builder: Builder, node: NodeRecipe) -> _Table:
    if not 3 <= len(node.inputs) <= 4 or "" in node.inputs[:3]:
        raise graph_error(
            "node", node.name, f"expected data, indices, scales and perhaps zero points, given {node.inputs}"
        )
    data, scales = builder.constants.get(node.inputs[0]), builder.array(node.inputs[2])
    if data is None or scales is None:
        raise builder.refuse(node, "a table or scales that are no constants")
    bits = node.attributes.get("bits", 4) if data.dtype == "uint8" else BITS[data.dtype]
    block = node.attributes.get("block_size", 128)
    is_float = data.dtype in _FLOATS
    if bits not in (2, 4, 8) or not isinstance(block, int) or block < (0 if is_float else 1):
        raise builder.refuse(
            node, f"bits = {bits}, block_size = {block}; supported: 2, 4 and 8 bits in blocks of at least 1"
        )
    shape = [*data.shape[:-1], data.shape[-1] * (8 // int(bits) if data.dtype == "uint8" else 1)] if data.shape else []
    gather, quantize = (_axis(node, name, i, len(shape)) for i, name in enumerate(("gather_axis", "quantize_axis")))
    expected, block = [*shape], block or max(shape[quantize], 1)  # 0: each row of a float table is a single block
    expected[quantize] = -(-expected[quantize] // block)
    if is_float and all(size in (1, other) for size, other in zip(scales.shape, expected, strict=False)):
        scales = np.broadcast_to(scales, expected)
    if [*scales.shape] != expected:
        raise graph_error("node", node.name, f"expected scales of {expected}, given {[*scales.shape]}")
    zeros = _zero_points(builder, node, int(bits), expected)
    return _Table(data.dtype, int(bits), shape, zeros, np.ascontiguousarray(scales), gather, quantize, block)


def gather_block_quantized(builder: Builder, node: NodeRecipe) -> None:
    """Gather codes, zero points and scales with the same indices, then dequantise.

    Raise GraphError if the node is invalid, Refused if it is unsupported.
    """
    table = _table(builder, node)
    indices, axis = builder.tensor(node.inputs[1]), table.gather_axis
    codes, of_blocks = _gathered_codes(builder, node, table, indices), indices
    if table.quantize_axis == axis:
        of_blocks = _blocks_of(builder, node, indices, table)
    scales = builder.helper(node, "Gather", table.scales, of_blocks, axis=axis)
    zeros = None if table.zeros is None else builder.helper(node, "Gather", table.zeros, of_blocks, axis=axis)
    if table.quantize_axis == axis:  # each element has its own scale and zero point
        result = builder.helper(node, "CastLike", codes, scales)
        if zeros is not None:
            result = builder.helper(node, "Sub", result, builder.helper(node, "CastLike", zeros, scales))
        result = builder.helper(node, "Mul", result, scales)
    else:  # count the axes after the gathered axis from the end, because the indices may have any rank
        along = table.quantize_axis - (len(table.shape) if table.quantize_axis > axis else 0)
        result = builder.helper(node, "DequantizeLinear", codes, scales, zeros, axis=along, block_size=table.block)
    builder.keep_results(node, result)


def _gathered_codes(builder: Builder, node: NodeRecipe, table: _Table, indices: Value) -> Value:
    """Gather packed bytes of whole rows and unpack them; otherwise gather from codes stored one per byte."""
    bits, count, given = table.bits, table.shape[-1], builder.constants[node.inputs[0]]
    if table.dtype in _FLOATS:
        wide = array_of(given.raw, given.dtype, given.shape).astype(np.float16)
        rows = builder.helper(node, "Gather", wide, indices, axis=table.gather_axis)
        return builder.helper(node, "Cast", rows, to=_FLOATS[table.dtype])
    if bits == 8 or table.gather_axis == len(table.shape) - 1 or count * bits % 8:
        codes = _constant_codes(builder, node, 0, bits)
        return builder.helper(node, "Gather", codes, indices, axis=table.gather_axis)
    packed = [*table.shape[:-1], count * bits // 8]
    sign = np.uint8(0x88 if given.dtype == "int4" else 0)
    rows = builder.derived(
        node.inputs[0], "uint8", packed, given.dtype, raw=lambda: (np.frombuffer(given.raw, np.uint8) ^ sign).tobytes()
    )
    rows = builder.helper(node, "Gather", rows, indices, axis=table.gather_axis)
    apart = builder.helper(node, "Unsqueeze", rows, np.array([-1]))
    moved = builder.helper(node, "BitShift", apart, np.arange(0, 8, bits, dtype=np.uint8), direction="RIGHT")
    lanes = builder.helper(node, "BitwiseAnd", moved, np.array((1 << bits) - 1, np.uint8))
    leading = builder.helper(node, "Shape", rows, end=-1)
    return builder.helper(
        node, "Reshape", lanes, builder.helper(node, "Concat", leading, np.array([count]), axis=0), allowzero=1
    )


def _blocks_of(builder: Builder, node: NodeRecipe, indices: Value, table: _Table) -> Value:
    """Return the block of each index; negative indices count from the end."""
    size = np.array(table.shape[table.gather_axis])
    wide = builder.helper(node, "Cast", indices, to=INT64)
    negative = builder.helper(node, "Less", wide, np.array(0))
    counted = builder.helper(node, "Where", negative, builder.helper(node, "Add", wide, size), wide)
    return builder.helper(node, "Div", counted, np.array(table.block))
