"""Error-bound rule for com.microsoft's GatherBlockQuantized: (code - zero_point) * scale, both per block."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.element_types import Array
from .bounded_tensor import BoundedTensor
from .data_movement import normalize_indices
from .rule_registry import OperatorCall, rule


def _unpack_codes(codes: BoundedTensor, bits: int, last: int | None = None) -> Array:
    """Unpack quantised elements. A uint8 contains several, with the first in the low bits. last: size of the last axis."""
    if codes.dtype != np.uint8:
        return np.asarray(codes.value).astype(np.float64)
    unpacked = codes.value[..., None] >> np.arange(0, 8, bits, dtype=np.uint8) & np.uint8((1 << bits) - 1)
    return unpacked.reshape(*codes.shape[:-1], -1)[..., :last].astype(np.float64)


def _read_zero_points(call: OperatorCall, bits: int, shape: tuple[int, ...]) -> Array:
    """Return the zero points; they default to half the range for uint8 and to 0 for other types."""
    zeros = call.optional_input(3)
    if zeros is not None:
        return _unpack_codes(zeros, bits, shape[-1])
    return np.full(shape, float(1 << (bits - 1)) if call.input(0).dtype == np.uint8 else 0.0)


@rule("GatherBlockQuantized", domain="com.microsoft")
def _evaluate_gather_block_quantized(call: OperatorCall) -> list[Any]:
    table, scales, bits = call.input(0), call.input(2), int(call.attribute("bits", 4))
    rank, codes_per_byte = table.ndim, 8 // bits if table.dtype == np.uint8 else 1
    gather_axis, quantize_axis = (
        int(call.attribute(name, i)) % rank for i, name in enumerate(("gather_axis", "quantize_axis"))
    )
    sizes = [*table.shape[:-1], table.shape[-1] * codes_per_byte]
    block = int(call.attribute("block_size", 128)) or sizes[quantize_axis]
    blocks = [-(-size // block) if axis == quantize_axis else size for axis, size in enumerate(sizes)]
    points = _read_zero_points(call, bits, tuple(blocks))
    scales = scales.rearrange(lambda v: np.broadcast_to(v, blocks))
    indices = normalize_indices(BoundedTensor(call.get_decided_input(1)), sizes[gather_axis])[0]

    def expand_blocks(v: Array) -> Array:
        """Gather an array with one value per block, and repeat each value for the elements of its block."""
        if quantize_axis == gather_axis:
            return np.take(v, indices // block, gather_axis)
        axis = quantize_axis if quantize_axis < gather_axis else quantize_axis + indices.ndim - 1
        return np.take(np.repeat(np.take(v, indices, gather_axis), block, axis), np.arange(sizes[quantize_axis]), axis)

    if gather_axis == rank - 1:
        codes = np.take(_unpack_codes(table, bits), indices, gather_axis)
    else:
        codes = _unpack_codes(table.rearrange(lambda v: np.take(v, indices, gather_axis)), bits)
    m = call.make_arithmetic(scales.dtype)
    result = m.mul(m.wrap(codes - expand_blocks(points)), scales.rearrange(expand_blocks))
    return [BoundedTensor(result.value, result.error, scales.dtype)]
