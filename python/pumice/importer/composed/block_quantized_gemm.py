"""GEMM with block-quantised weights from ONNX Runtime's quantiser (com.microsoft::MatMulNBits)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...base.element_types import Array, Bytes, packed_codes, unpacked_codes
from ...base.errors import graph_error
from ..build.builder import Builder
from ..file.recipe import NodeRecipe
from .block_quantized_gather import gather_block_quantized

if TYPE_CHECKING:
    from ..._pumice import Value


def _order_of(builder: Builder, node: NodeRecipe, sizes: tuple[int, int]) -> Array | None:
    """Return the permutation of K that makes each block contiguous, from g_idx, the block index of each element of K.

    sizes: K and the block size. None if the blocks are already contiguous. Raise GraphError for invalid block indices,
    and UnsupportedError if the blocks differ in size.
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
    """Weights [N, K] of `bits`, quantised in blocks along K with a scale and an optional zero point each. order: see _order_of.

    The engine's matrix has `stored_bits`: its kernels support 4 and 8, so 2-bit codes are widened to 4.
    """

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

    @property
    def stored_bits(self) -> int:
        return max(self.bits, 4)

    @property
    def middle(self) -> int:
        """The default zero point, half of the code range."""
        return 1 << self.bits - 1

    def matrix(self, raw: Bytes) -> Bytes:
        """Return the codes without the padding of the last block. raw: the file's bytes, returned uncopied if unchanged."""
        whole = self.depth == self.blocks * self.block and self.depth * self.bits % 8 == 0
        if self.order is None and whole and self.bits == self.stored_bits:
            return raw
        codes = unpacked_codes(self.codes.view(np.uint8).reshape(self.columns, -1), self.bits)[:, : self.depth]
        return packed_codes(codes if self.order is None else codes[:, self.order], self.stored_bits)

    def has_fractions(self) -> bool:
        """Return whether any zero point is a float that is not a valid code."""
        if self.zeros is None or self.zeros.dtype == np.uint8:
            return False
        points = self.zeros.astype(np.float32)
        return bool((points != np.round(points)).any() or points.min() < 0 or points.max() >= 1 << self.bits)

    def points(self) -> bytes:
        """Return the zero points as codes; half of the code range if they are absent or fractional."""
        terms = (self.columns, self.blocks)
        if self.zeros is None or self.has_fractions():
            return packed_codes(np.full(terms, self.middle, np.uint8), self.stored_bits)
        if self.zeros.dtype != np.uint8:
            return packed_codes(self.zeros.astype(np.uint8).reshape(terms), self.stored_bits)
        if self.zeros.size * 8 == self.columns * self.blocks * self.bits and self.bits == self.stored_bits:
            return self.zeros.tobytes()
        codes = unpacked_codes(self.zeros.reshape(self.columns, -1), self.bits)[:, : self.blocks]
        return packed_codes(codes, self.stored_bits)

    def offsets(self) -> Array:
        """Return the correction for fractional zero points that is added to each element of a block, [blocks, N]."""
        assert self.zeros is not None
        scales = self.scales.astype(np.float32).reshape(self.columns, -1)
        points = self.zeros.astype(np.float32).reshape(self.columns, -1)
        return np.ascontiguousarray(((self.middle - points) * scales).T.astype(self.scales.dtype))


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
    if bits not in (2, 4, 8):
        raise builder.refuse(node, f"bits = {bits}; supported: 2, 4, 8")
    if layout := node.attributes.get("weight_prepacked", 0):
        raise builder.refuse(node, f"weight_prepacked = {layout}; supported: 0")
    order = _order_of(builder, node, (depth, block)) if inputs[4] else None
    if zeros is not None and zeros.dtype not in (np.uint8, scales.dtype):
        raise builder.refuse(node, f"zero points of {zeros.dtype}; supported: uint8 and {scales.dtype}, as the scales")
    made = _Blocks(columns, depth, block, bits, packed, scales, zeros, order)
    wanted = columns * made.blocks * block * bits // 8
    if packed.size != wanted or scales.size != columns * made.blocks:
        given = f"{packed.size} bytes and {scales.size} scales"
        raise graph_error(
            "node", node.name, f"expected {wanted} bytes and {columns * made.blocks} scales, given {given}"
        )
    expected = columns * (made.blocks if zeros is None or zeros.dtype != np.uint8 else -(-made.blocks * bits // 8))
    if zeros is not None and zeros.size != expected:
        raise graph_error("node", node.name, f"expected {expected} {zeros.dtype} of zero points, given {zeros.size}")
    return made


def _sums_of_blocks(builder: Builder, node: NodeRecipe, a: Value, blocks: _Blocks) -> Value:
    """Return the sum of a's elements in each block, [.., blocks]."""
    if filling := blocks.blocks * blocks.block - blocks.depth:
        a = builder.helper(node, "Pad", a, np.array([0, filling]), None, np.array([-1]))
    rows = builder.helper(node, "Shape", a, end=-1)
    shape = builder.helper(node, "Concat", rows, np.array([blocks.blocks, blocks.block]), axis=0)
    return builder.helper(node, "ReduceSum", builder.helper(node, "Reshape", a, shape), np.array([-1]), keepdims=0)


def _matmul_n_bits(builder: Builder, node: NodeRecipe) -> None:
    """Translate MatMulNBits, y = a b^T.

    b is [N, K] in blocks along K, each with a scale and a zero point, which defaults to half of the range. With g_idx a
    block's elements may be scattered along K: b is permuted here, and a at each run.
    """
    inputs = [*node.inputs, "", "", ""]
    blocks = _blocks_of(builder, node, inputs)
    dtype, terms = f"uint{blocks.stored_bits}", [blocks.columns, blocks.blocks]
    # Nodes that share a matrix, such as tied embeddings, use one copy.
    stem = node.inputs[1] if blocks.order is None else f"{node.inputs[1]} by {inputs[4]}"
    codes = builder.derived(
        stem,
        dtype,
        [blocks.columns, blocks.depth],
        blocks.block,
        blocks.bits,
        raw=lambda: blocks.matrix(builder.constants[node.inputs[1]].raw),
    )
    zero = builder.derived(inputs[3] or f"{node.inputs[1]}, zero points", dtype, terms, blocks.bits, raw=blocks.points)
    scale = builder.derived(node.inputs[2], str(blocks.scales.dtype), terms, raw=blocks.scales.tobytes)
    floats = builder.helper(node, "DequantizeLinear", codes, scale, zero, axis=1, block_size=blocks.block)
    turned = builder.helper(node, "Transpose", floats, perm=[1, 0])
    a = builder.tensor(node.inputs[0])
    if blocks.order is not None:
        a = builder.helper(node, "Gather", a, blocks.order, axis=-1)
    added = [builder.tensor(inputs[5])] if inputs[5] else []
    if blocks.has_fractions():
        offsets = builder.graph.constant(blocks.offsets())
        added.append(builder.helper(node, "MatMul", _sums_of_blocks(builder, node, a, blocks), offsets))
    product = builder.helper(node, "MatMul", a, turned, output="" if added else node.outputs[0])
    for left, term in zip(range(len(added))[::-1], added, strict=True):
        product = builder.helper(node, "Add", product, term, output="" if left else node.outputs[0])
    builder.keep(node.outputs[:1], (product,))


BLOCK_NODES: dict[str, Callable[[Builder, NodeRecipe], None]] = {
    "com.microsoft::GatherBlockQuantized": gather_block_quantized,
    "com.microsoft::MatMulNBits": _matmul_n_bits,
}
