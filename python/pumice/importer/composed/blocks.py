"""Products with matrices of few bits, as ONNX Runtime's quantiser writes them (com.microsoft::MatMulNBits)."""

from __future__ import annotations

from collections.abc import Callable

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


def _matmul_n_bits(builder: Builder, node: NodeRecipe) -> None:
    """Translates MatMulNBits, y = a b^T.

    b is [N, K] in blocks along K, each with a scale and a zero point, which is half of the range where none is given. With g_idx
    the columns of a block lie anywhere: they are brought beside each other here, and so are those of a at each run.
    """

    def number(name: str, default: int | None = None) -> int:
        value = node.attributes.get(name, default)
        if not isinstance(value, int) or value < 1:
            raise graph_error("node", node.name, f"attribute '{name}': expected a positive integer, given {value!r}")
        return value

    columns, depth, block, bits = number("N"), number("K"), number("block_size"), number("bits", 4)
    inputs = [*node.inputs, "", "", ""]
    packed, scales, zeros = (builder.array(name) if name else None for name in inputs[1:4])
    if packed is None or scales is None or (inputs[3] and zeros is None):
        raise builder.refuse(node, "a matrix, scales or zero points that are no constants")
    if bits not in (4, 8):
        raise builder.refuse(node, f"bits = {bits}; supported: 4, 8")
    order = _order_of(builder, node, (depth, block)) if inputs[4] else None
    if zeros is not None and zeros.dtype != np.uint8:
        raise builder.refuse(node, f"zero points of {zeros.dtype}; supported: uint8")
    blocks = -(-depth // block)
    wanted = columns * blocks * block * bits // 8
    if packed.size != wanted or scales.size != columns * blocks:
        given = f"{packed.size} bytes and {scales.size} scales"
        raise graph_error("node", node.name, f"expected {wanted} bytes and {columns * blocks} scales, given {given}")
    dtype = f"uint{bits}"

    def matrix() -> Bytes:
        if order is not None:
            rows = packed.view(np.uint8).reshape(columns, -1)
            return _joined(_nibbles(rows, depth)[:, order]) if bits == 4 else rows[:, order].tobytes()
        if depth == blocks * block and depth * bits % 8 == 0:  # the file's own bytes, which need not be copied
            return builder.constants[node.inputs[1]].raw
        rows = packed.view(np.uint8).reshape(columns, -1)
        return _joined(_nibbles(rows, depth)) if bits == 4 else rows[:, :depth].tobytes()

    def points() -> bytes:
        if zeros is None:
            half = 0x88 if bits == 4 else 0x80
            return bytes([half]) * -(-columns * blocks * bits // 8)
        if zeros.size * 8 == columns * blocks * bits:
            return zeros.tobytes()
        return _joined(_nibbles(zeros.reshape(columns, -1), blocks))

    # One matrix serves all nodes that share it, as tied embeddings do.
    matrix_stem = node.inputs[1] if order is None else f"{node.inputs[1]} by {inputs[4]}"
    codes = builder.derived(matrix_stem, dtype, [columns, depth], block, raw=matrix)
    stem = inputs[3] or f"{node.inputs[1]}, zero points"
    zero = builder.derived(stem, dtype, [columns, blocks], raw=points)
    scale = builder.derived(node.inputs[2], str(scales.dtype), [columns, blocks], raw=scales.tobytes)
    floats = builder.helper(node, "DequantizeLinear", codes, scale, zero, axis=1, block_size=block)
    turned = builder.helper(node, "Transpose", floats, perm=[1, 0])
    a = builder.tensor(node.inputs[0])
    if order is not None:
        a = builder.helper(node, "Gather", a, order, axis=-1)
    product = builder.helper(node, "MatMul", a, turned, output="" if inputs[5] else node.outputs[0])
    if inputs[5]:
        product = builder.helper(node, "Add", product, builder.tensor(inputs[5]), output=node.outputs[0])
    builder.keep(node.outputs[:1], (product,))


BLOCK_NODES: dict[str, Callable[[Builder, NodeRecipe], None]] = {"com.microsoft::MatMulNBits": _matmul_n_bits}
