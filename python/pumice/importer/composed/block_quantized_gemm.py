"""GEMM with block-quantised weights from ONNX Runtime's quantiser (com.microsoft::MatMulNBits)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...base.element_types import Array, Bytes, pack_codes, unpack_codes
from ...base.errors import graph_error
from ..build.builder import Builder
from ..file.recipe import NodeRecipe
from .block_quantized_gather import gather_block_quantized

if TYPE_CHECKING:
    from ..._pumice import Value


def _get_k_permutation(builder: Builder, node: NodeRecipe, sizes: tuple[int, int]) -> Array | None:
    """Return the permutation of K that makes each block contiguous, from g_idx, the block index of each element of K.

    sizes: K and the block size. None if the blocks are already contiguous. Raise GraphError for invalid block indices,
    and UnsupportedError if the blocks differ in size.
    """
    k, quant_block_size = sizes
    groups = builder.array(node.inputs[4])
    if groups is None:
        raise builder.reject(node, "g_idx that is no constant")
    blocks = -(-k // quant_block_size)
    flat = groups.reshape(-1)[:k].astype(np.int64)
    expectation = f"{k} numbers of blocks from 0 to {blocks - 1}"
    if flat.size != k:
        raise graph_error("node", node.name, f"g_idx: expected {expectation}, given {flat.size}")
    if flat.min() < 0 or flat.max() >= blocks:
        raise graph_error(
            "node", node.name, f"g_idx: expected {expectation}, given such from {flat.min()} to {flat.max()}"
        )
    if np.array_equal(flat, np.arange(k) // quant_block_size):
        return None
    if k != blocks * quant_block_size or (np.bincount(flat, minlength=blocks) != quant_block_size).any():
        raise builder.reject(node, f"g_idx whose blocks are not of {quant_block_size} columns each")
    return np.argsort(flat, kind="stable")


@dataclass(frozen=True)
class _BlockQuantWeights:
    """Weights [N, K] of `bits`, quantised in blocks along K with a scale and an optional zero point each. order: see _get_k_permutation.

    The engine's matrix has `stored_bits`: its kernels support 4 and 8, so 2-bit codes are widened to 4.
    """

    n: int
    k: int
    quant_block_size: int
    bits: int
    codes: Array
    scales: Array
    zeros: Array | None
    k_permutation: Array | None

    @property
    def blocks(self) -> int:
        return -(-self.k // self.quant_block_size)

    @property
    def stored_bits(self) -> int:
        return max(self.bits, 4)

    @property
    def default_zero_point(self) -> int:
        """The default zero point, half of the code range."""
        return 1 << self.bits - 1

    def pack_matrix(self, raw: Bytes) -> Bytes:
        """Return the codes without the padding of the last block. raw: the file's bytes, returned uncopied if unchanged."""
        is_unpadded = self.k == self.blocks * self.quant_block_size and self.k * self.bits % 8 == 0
        if self.k_permutation is None and is_unpadded and self.bits == self.stored_bits:
            return raw
        codes = unpack_codes(self.codes.view(np.uint8).reshape(self.n, -1), self.bits)[:, : self.k]
        return pack_codes(codes if self.k_permutation is None else codes[:, self.k_permutation], self.stored_bits)

    def has_fractions(self) -> bool:
        """Return whether any zero point is a float that is not a valid code."""
        if self.zeros is None or self.zeros.dtype == np.uint8:
            return False
        zero_points = self.zeros.astype(np.float32)
        return bool(
            (zero_points != np.round(zero_points)).any() or zero_points.min() < 0 or zero_points.max() >= 1 << self.bits
        )

    def pack_zero_points(self) -> bytes:
        """Return the zero points as codes; half of the code range if they are absent or fractional."""
        scale_shape = (self.n, self.blocks)
        if self.zeros is None or self.has_fractions():
            return pack_codes(np.full(scale_shape, self.default_zero_point, np.uint8), self.stored_bits)
        if self.zeros.dtype != np.uint8:
            return pack_codes(self.zeros.astype(np.uint8).reshape(scale_shape), self.stored_bits)
        if self.zeros.size * 8 == self.n * self.blocks * self.bits and self.bits == self.stored_bits:
            return self.zeros.tobytes()
        codes = unpack_codes(self.zeros.reshape(self.n, -1), self.bits)[:, : self.blocks]
        return pack_codes(codes, self.stored_bits)

    def make_zero_point_offsets(self) -> Array:
        """Return the correction for fractional zero points that is added to each element of a block, [blocks, N]."""
        assert self.zeros is not None
        scales = self.scales.astype(np.float32).reshape(self.n, -1)
        zero_points = self.zeros.astype(np.float32).reshape(self.n, -1)
        return np.ascontiguousarray(((self.default_zero_point - zero_points) * scales).T.astype(self.scales.dtype))


def _get_positive(node: NodeRecipe, name: str, default: int | None = None) -> int:
    value = node.attributes.get(name, default)
    if not isinstance(value, int) or value < 1:
        raise graph_error("node", node.name, f"attribute '{name}': expected a positive integer, given {value!r}")
    return value


def _parse_weights(builder: Builder, node: NodeRecipe, inputs: list[str]) -> _BlockQuantWeights:
    n, k, quant_block_size = (_get_positive(node, name) for name in ("N", "K", "block_size"))
    bits = _get_positive(node, "bits", 4)
    packed, scales, zeros = (builder.array(name) if name else None for name in inputs[1:4])
    if packed is None or scales is None or (inputs[3] and zeros is None):
        raise builder.reject(node, "a matrix, scales or zero points that are no constants")
    if bits not in (2, 4, 8):
        raise builder.reject(node, f"bits = {bits}; supported: 2, 4, 8")
    if layout := node.attributes.get("weight_prepacked", 0):
        raise builder.reject(node, f"weight_prepacked = {layout}; supported: 0")
    k_permutation = _get_k_permutation(builder, node, (k, quant_block_size)) if inputs[4] else None
    if zeros is not None and zeros.dtype not in (np.uint8, scales.dtype):
        raise builder.reject(node, f"zero points of {zeros.dtype}; supported: uint8 and {scales.dtype}, as the scales")
    weights = _BlockQuantWeights(n, k, quant_block_size, bits, packed, scales, zeros, k_permutation)
    expected_bytes = n * weights.blocks * quant_block_size * bits // 8
    if packed.size != expected_bytes or scales.size != n * weights.blocks:
        received = f"{packed.size} bytes and {scales.size} scales"
        raise graph_error(
            "node", node.name, f"expected {expected_bytes} bytes and {n * weights.blocks} scales, given {received}"
        )
    expected = n * (weights.blocks if zeros is None or zeros.dtype != np.uint8 else -(-weights.blocks * bits // 8))
    if zeros is not None and zeros.size != expected:
        raise graph_error("node", node.name, f"expected {expected} {zeros.dtype} of zero points, given {zeros.size}")
    return weights


def _sum_blocks(builder: Builder, node: NodeRecipe, a: Value, blocks: _BlockQuantWeights) -> Value:
    """Return the sum of a's elements in each block, [.., blocks]."""
    if padding := blocks.blocks * blocks.quant_block_size - blocks.k:
        a = builder.add_helper(node, "Pad", a, np.array([0, padding]), None, np.array([-1]))
    rows = builder.add_helper(node, "Shape", a, end=-1)
    shape = builder.add_helper(node, "Concat", rows, np.array([blocks.blocks, blocks.quant_block_size]), axis=0)
    return builder.add_helper(
        node, "ReduceSum", builder.add_helper(node, "Reshape", a, shape), np.array([-1]), keepdims=0
    )


def _matmul_n_bits(builder: Builder, node: NodeRecipe) -> None:
    """Translate MatMulNBits, y = a b^T.

    b is [N, K] in blocks along K, each with a scale and a zero point, which defaults to half of the range. With g_idx a
    block's elements may be scattered along K: b is permuted here, and a at each run.
    """
    inputs = [*node.inputs, "", "", ""]
    blocks = _parse_weights(builder, node, inputs)
    dtype, scale_shape = f"uint{blocks.stored_bits}", [blocks.n, blocks.blocks]
    # Nodes that share a matrix, such as tied embeddings, use one copy.
    stem = node.inputs[1] if blocks.k_permutation is None else f"{node.inputs[1]} by {inputs[4]}"
    codes = builder.derive_constant(
        stem,
        dtype,
        [blocks.n, blocks.k],
        blocks.quant_block_size,
        blocks.bits,
        raw=lambda: blocks.pack_matrix(builder.constants[node.inputs[1]].raw),
    )
    zero = builder.derive_constant(
        inputs[3] or f"{node.inputs[1]}, zero points", dtype, scale_shape, blocks.bits, raw=blocks.pack_zero_points
    )
    scale = builder.derive_constant(node.inputs[2], str(blocks.scales.dtype), scale_shape, raw=blocks.scales.tobytes)
    floats = builder.add_helper(
        node, "DequantizeLinear", codes, scale, zero, axis=1, block_size=blocks.quant_block_size
    )
    transposed = builder.add_helper(node, "Transpose", floats, perm=[1, 0])
    a = builder.tensor(node.inputs[0])
    if blocks.k_permutation is not None:
        a = builder.add_helper(node, "Gather", a, blocks.k_permutation, axis=-1)
    addends = [builder.tensor(inputs[5])] if inputs[5] else []
    if blocks.has_fractions():
        offsets = builder.graph.constant(blocks.make_zero_point_offsets())
        addends.append(builder.add_helper(node, "MatMul", _sum_blocks(builder, node, a, blocks), offsets))
    result = builder.add_helper(node, "MatMul", a, transposed, output="" if addends else node.outputs[0])
    for num_remaining, term in zip(range(len(addends))[::-1], addends, strict=True):
        result = builder.add_helper(node, "Add", result, term, output="" if num_remaining else node.outputs[0])
    builder.set_values(node.outputs[:1], (result,))


BLOCK_NODES: dict[str, Callable[[Builder, NodeRecipe], None]] = {
    "com.microsoft::GatherBlockQuantized": gather_block_quantized,
    "com.microsoft::MatMulNBits": _matmul_n_bits,
}
