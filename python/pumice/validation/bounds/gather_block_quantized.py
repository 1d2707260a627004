"""The rule of com.microsoft's GatherBlockQuantized: (code - zero point) * scale of the block."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.element_types import Array
from .bounded import Bounded
from .data_movement import indices_of
from .registry import Call, rule


def _elements(given: Bounded, bits: int, last: int | None = None) -> Array:
    """Unpack codes. A uint8 contains several, with the first in the low bits. `last`: size of the last axis."""
    if given.dtype != np.uint8:
        return np.asarray(given.value).astype(np.float64)
    lanes = given.value[..., None] >> np.arange(0, 8, bits, dtype=np.uint8) & np.uint8((1 << bits) - 1)
    return lanes.reshape(*given.shape[:-1], -1)[..., :last].astype(np.float64)


def _zero_points(call: Call, bits: int, shape: tuple[int, ...]) -> Array:
    """Return the zero points; by default half the range for uint8, and 0 for other types."""
    zeros = call.optional(3)
    if zeros is not None:
        return _elements(zeros, bits, shape[-1])
    return np.full(shape, float(1 << (bits - 1)) if call.input(0).dtype == np.uint8 else 0.0)


@rule("GatherBlockQuantized", domain="com.microsoft")
def _gather_block_quantized(call: Call) -> list[Any]:
    table, scales, bits = call.input(0), call.input(2), int(call.attribute("bits", 4))
    rank, packed = table.ndim, 8 // bits if table.dtype == np.uint8 else 1
    gather, along = (int(call.attribute(name, i)) % rank for i, name in enumerate(("gather_axis", "quantize_axis")))
    sizes = [*table.shape[:-1], table.shape[-1] * packed]
    block = int(call.attribute("block_size", 128)) or sizes[along]
    blocks = [-(-size // block) if axis == along else size for axis, size in enumerate(sizes)]
    points = _zero_points(call, bits, tuple(blocks))
    scales = scales.moved(lambda v: np.broadcast_to(v, blocks))
    at = indices_of(Bounded(call.exact(1)), sizes[gather])[0]

    def of_blocks(v: Array) -> Array:
        """Gather a per-block array and expand it to elements."""
        if along == gather:
            return np.take(v, at // block, gather)
        axis = along if along < gather else along + at.ndim - 1
        return np.take(np.repeat(np.take(v, at, gather), block, axis), np.arange(sizes[along]), axis)

    if gather == rank - 1:
        codes = np.take(_elements(table, bits), at, gather)
    else:
        codes = _elements(table.moved(lambda v: np.take(v, at, gather)), bits)
    m = call.arithmetic(scales.dtype)
    made = m.mul(m.of(codes - of_blocks(points)), scales.moved(of_blocks))
    return [Bounded(made.value, made.error, scales.dtype)]
