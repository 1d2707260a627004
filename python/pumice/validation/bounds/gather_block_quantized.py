"""The rule of com.microsoft's GatherBlockQuantized: (code - zero point) * scale of the block."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.element_types import Array
from .bounded import Bounded
from .data_movement import normalize_indices
from .registry import Call, rule


def _unpack_elements(codes: Bounded, bits: int, last: int | None = None) -> Array:
    """Unpack codes. A uint8 contains several, with the first in the low bits. `last`: size of the last axis."""
    if codes.dtype != np.uint8:
        return np.asarray(codes.value).astype(np.float64)
    unpacked = codes.value[..., None] >> np.arange(0, 8, bits, dtype=np.uint8) & np.uint8((1 << bits) - 1)
    return unpacked.reshape(*codes.shape[:-1], -1)[..., :last].astype(np.float64)


def _zero_points(call: Call, bits: int, shape: tuple[int, ...]) -> Array:
    """Return the zero points; by default half the range for uint8, and 0 for other types."""
    zeros = call.optional_input(3)
    if zeros is not None:
        return _unpack_elements(zeros, bits, shape[-1])
    return np.full(shape, float(1 << (bits - 1)) if call.input(0).dtype == np.uint8 else 0.0)


@rule("GatherBlockQuantized", domain="com.microsoft")
def _gather_block_quantized(call: Call) -> list[Any]:
    table, scales, bits = call.input(0), call.input(2), int(call.attribute("bits", 4))
    rank, codes_per_byte = table.ndim, 8 // bits if table.dtype == np.uint8 else 1
    gather_axis, quantize_axis = (
        int(call.attribute(name, i)) % rank for i, name in enumerate(("gather_axis", "quantize_axis"))
    )
    sizes = [*table.shape[:-1], table.shape[-1] * codes_per_byte]
    block = int(call.attribute("block_size", 128)) or sizes[quantize_axis]
    blocks = [-(-size // block) if axis == quantize_axis else size for axis, size in enumerate(sizes)]
    points = _zero_points(call, bits, tuple(blocks))
    scales = scales.rearrange(lambda v: np.broadcast_to(v, blocks))
    at = normalize_indices(Bounded(call.decided_input(1)), sizes[gather_axis])[0]

    def expand_blocks(v: Array) -> Array:
        """Gather a per-block array and expand it to elements."""
        if quantize_axis == gather_axis:
            return np.take(v, at // block, gather_axis)
        axis = quantize_axis if quantize_axis < gather_axis else quantize_axis + at.ndim - 1
        return np.take(np.repeat(np.take(v, at, gather_axis), block, axis), np.arange(sizes[quantize_axis]), axis)

    if gather_axis == rank - 1:
        codes = np.take(_unpack_elements(table, bits), at, gather_axis)
    else:
        codes = _unpack_elements(table.rearrange(lambda v: np.take(v, at, gather_axis)), bits)
    m = call.arithmetic(scales.dtype)
    result = m.mul(m.wrap(codes - expand_blocks(points)), scales.rearrange(expand_blocks))
    return [Bounded(result.value, result.error, scales.dtype)]
