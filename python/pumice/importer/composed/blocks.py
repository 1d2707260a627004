"""Products with matrices of few bits, as ONNX Runtime's quantiser writes them (com.microsoft::MatMulNBits)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...base.element_types import Array, Bytes
from ...base.errors import graph_error
from ..build.builder import Builder
from ..file.recipe import NodeRecipe


def _nibbles(rows: Array, count: int) -> Array:
    """The first `count` elements of 4 bits of each row of [rows, bytes], one to a byte."""
    return np.stack([rows & 15, rows >> 4], axis=-1).reshape(len(rows), -1)[:, :count]


def _joined(codes: Array) -> bytes:
    """Elements of 4 bits as bytes of two, the first in the low bits."""
    flat = np.append(codes.reshape(-1), np.zeros(codes.size % 2, np.uint8))
    return bytes(flat[::2] | flat[1::2] << 4)


def _order_of(builder: Builder, node: NodeRecipe, sizes: tuple[int, int]) -> Array | None:
    """The order of the depth in which the columns of each block lie beside each other, by the input g_idx: each column's block.

    sizes: the depth, and columns of a block. None where they lie so already. Raises GraphError for numbers of no blocks, and
    UnsupportedError where the blocks are not of as many columns each.
    """
    depth, block = sizes
    groups = builder.array(node.inputs[4])
    if groups is None:
        raise builder.refuse(node, "g_idx that is no constant")
    blocks = -(-depth // block)
    flat = groups.reshape(-1)[:depth].astype(np.int64)
    wanted = f"{depth} numbers of blocks from 0 to {blocks - 1}"
    if flat.size != depth:
        raise graph_error("node", node.name, f"g_idx: expected {wanted}, given {flat.size}")
    if flat.min() < 0 or flat.max() >= blocks:
        raise graph_error("node", node.name, f"g_idx: expected {wanted}, given such from {flat.min()} to {flat.max()}")
    if np.array_equal(flat, np.arange(depth) // block):
        return None
    if depth != blocks * block or (np.bincount(flat, minlength=blocks) != block).any():
        raise builder.refuse(node, f"g_idx whose blocks are not of {block} columns each")
    return np.argsort(flat, kind="stable")


@dataclass(frozen=True)
class _Blocks:
    """A matrix [columns, depth] of `bits` in blocks along the depth, each with a scale and perhaps a zero point; order: see _order_of."""

    columns: int
    depth: int
    block: int
    bits: int
    codes: Array
    scales: Array
    zeros: Array | None
    order: Array | None

    @property
    def blocks(self) -> int:
        return -(-self.depth // self.block)

    def matrix(self, raw: Bytes) -> Bytes:
        """The codes without what fills up the last block. raw: the file's own bytes, which need not be copied where that is nothing."""
        rows = self.codes.view(np.uint8).reshape(self.columns, -1)
        if self.order is not None:
            return (
                _joined(_nibbles(rows, self.depth)[:, self.order]) if self.bits == 4 else rows[:, self.order].tobytes()
            )
        if self.depth == self.blocks * self.block and self.depth * self.bits % 8 == 0:
            return raw
        return _joined(_nibbles(rows, self.depth)) if self.bits == 4 else rows[:, : self.depth].tobytes()

    def points(self) -> bytes:
        """The zero points: half of the range where none are given."""
        count = self.columns * self.blocks
        if self.zeros is None:
            return bytes([0x88 if self.bits == 4 else 0x80]) * -(-count * self.bits // 8)
        if self.zeros.size * 8 == count * self.bits:
            return self.zeros.tobytes()
        return _joined(_nibbles(self.zeros.reshape(self.columns, -1), self.blocks))


def _positive(node: NodeRecipe, name: str, default: int | None = None) -> int:
    value = node.attributes.get(name, default)
    if not isinstance(value, int) or value < 1:
        raise graph_error("node", node.name, f"attribute '{name}': expected a positive integer, given {value!r}")
    return value


def _blocks_of(builder: Builder, node: NodeRecipe, inputs: list[str]) -> _Blocks:
    columns, depth, block = (_positive(node, name) for name in ("N", "K", "block_size"))
    bits = _positive(node, "bits", 4)
    packed, scales, zeros = (builder.array(name) if name else None for name in inputs[1:4])
    if packed is None or scales is None or (inputs[3] and zeros is None):
        raise builder.refuse(node, "a matrix, scales or zero points that are no constants")
    if bits not in (4, 8):
        raise builder.refuse(node, f"bits = {bits}; supported: 4, 8")
    order = _order_of(builder, node, (depth, block)) if inputs[4] else None
    if zeros is not None and zeros.dtype != np.uint8:
        raise builder.refuse(node, f"zero points of {zeros.dtype}; supported: uint8")
    made = _Blocks(columns, depth, block, bits, packed, scales, zeros, order)
    wanted = columns * made.blocks * block * bits // 8
    if packed.size != wanted or scales.size != columns * made.blocks:
        given = f"{packed.size} bytes and {scales.size} scales"
        raise graph_error(
            "node", node.name, f"expected {wanted} bytes and {columns * made.blocks} scales, given {given}"
        )
    return made


def _matmul_n_bits(builder: Builder, node: NodeRecipe) -> None:
    """Translates MatMulNBits, y = a b^T.

    b is [N, K] in blocks along K, each with a scale and a zero point, which is half of the range where none is given. With g_idx
    the columns of a block lie anywhere: they are brought beside each other here, and so are those of a at each run.
    """
    inputs = [*node.inputs, "", "", ""]
    blocks = _blocks_of(builder, node, inputs)
    dtype, terms = f"uint{blocks.bits}", [blocks.columns, blocks.blocks]
    # One matrix serves all nodes that share it, as tied embeddings do.
    stem = node.inputs[1] if blocks.order is None else f"{node.inputs[1]} by {inputs[4]}"
    codes = builder.derived(
        stem,
        dtype,
        [blocks.columns, blocks.depth],
        blocks.block,
        raw=lambda: blocks.matrix(builder.constants[node.inputs[1]].raw),
    )
    zero = builder.derived(inputs[3] or f"{node.inputs[1]}, zero points", dtype, terms, raw=blocks.points)
    scale = builder.derived(node.inputs[2], str(blocks.scales.dtype), terms, raw=blocks.scales.tobytes)
    floats = builder.helper(node, "DequantizeLinear", codes, scale, zero, axis=1, block_size=blocks.block)
    turned = builder.helper(node, "Transpose", floats, perm=[1, 0])
    a = builder.tensor(node.inputs[0])
    if blocks.order is not None:
        a = builder.helper(node, "Gather", a, blocks.order, axis=-1)
    product = builder.helper(node, "MatMul", a, turned, output="" if inputs[5] else node.outputs[0])
    if inputs[5]:
        product = builder.helper(node, "Add", product, builder.tensor(inputs[5]), output=node.outputs[0])
    builder.keep(node.outputs[:1], (product,))


BLOCK_NODES: dict[str, Callable[[Builder, NodeRecipe], None]] = {"com.microsoft::MatMulNBits": _matmul_n_bits}
