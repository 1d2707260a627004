"""Translate com.microsoft::MatMulNBits, a GEMM with block-quantised weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...base.element_types import Array, Bytes, pack_low_bit_codes, unpack_low_bit_codes
from ...base.errors import graph_error
from ..build.builder import GraphBuilder
from ..file.graph_recipe import NodeRecipe
from .block_quantized_gather import translate_gather_block_quantized

if TYPE_CHECKING:
    from ..._pumice import Value


def _get_k_permutation(builder: GraphBuilder, node: NodeRecipe, sizes: tuple[int, int]) -> Array | None:
    """Return the permutation of K that makes each block contiguous; None if the blocks already are.

    It is computed from g_idx, the block index of each element of K. sizes: K and the block size. Raise GraphError for invalid
    block indices, NodeRejectedError if g_idx is not constant or the blocks differ in size.
    """
    k, quant_block_size = sizes
    groups = builder.get_constant_array(node.inputs[4])
    if groups is None:
        raise builder.reject(node, "g_idx that is not a constant")
    blocks = -(-k // quant_block_size)
    flat = groups.reshape(-1)[:k].astype(np.int64)
    expectation = f"{k} numbers of blocks from 0 to {blocks - 1}"
    if flat.size != k:
        raise graph_error("node", node.name, f"g_idx: expected {expectation}, given {flat.size}")
    if flat.min() < 0 or flat.max() >= blocks:
        raise graph_error(
            "node", node.name, f"g_idx: expected {expectation}, given numbers from {flat.min()} to {flat.max()}"
        )
    if np.array_equal(flat, np.arange(k) // quant_block_size):
        return None
    if k != blocks * quant_block_size or (np.bincount(flat, minlength=blocks) != quant_block_size).any():
        raise builder.reject(node, f"g_idx whose blocks are not of {quant_block_size} columns each")
    return np.argsort(flat, kind="stable")


@dataclass(frozen=True)
class _BlockQuantWeights:
    """Weights [N, K], quantised to `bits` in blocks along K. Each block has a scale and optionally a zero point.

    The kernels support 4 and 8 bits, so 2-bit codes are stored as 4 bits (`stored_bits`). k_permutation: see _get_k_permutation.
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
    def num_blocks(self) -> int:
        return -(-self.k // self.quant_block_size)

    @property
    def stored_bits(self) -> int:
        return max(self.bits, 4)

    @property
    def default_zero_point(self) -> int:
        """The default zero point: half of the code range."""
        return 1 << self.bits - 1

    def pack_matrix(self, raw: Bytes) -> Bytes:
        """Return the packed codes without the padding of the last block.

        raw: the file's bytes, returned without a copy if they already have this layout.
        """
        is_unpadded = self.k == self.num_blocks * self.quant_block_size and self.k * self.bits % 8 == 0
        if self.k_permutation is None and is_unpadded and self.bits == self.stored_bits:
            return raw
        codes = unpack_low_bit_codes(self.codes.view(np.uint8).reshape(self.n, -1), self.bits)[:, : self.k]
        return pack_low_bit_codes(
            codes if self.k_permutation is None else codes[:, self.k_permutation], self.stored_bits
        )

    def has_fractional_zero_points(self) -> bool:
        """Return whether any zero point is a fraction or outside the code range."""
        if self.zeros is None or self.zeros.dtype == np.uint8:
            return False
        zero_points = self.zeros.astype(np.float32)
        return bool(
            (zero_points != np.round(zero_points)).any() or zero_points.min() < 0 or zero_points.max() >= 1 << self.bits
        )

    def pack_zero_points(self) -> bytes:
        """Return the packed zero points; half of the code range if they are absent or fractional."""
        scale_shape = (self.n, self.num_blocks)
        if self.zeros is None or self.has_fractional_zero_points():
            return pack_low_bit_codes(np.full(scale_shape, self.default_zero_point, np.uint8), self.stored_bits)
        if self.zeros.dtype != np.uint8:
            return pack_low_bit_codes(self.zeros.astype(np.uint8).reshape(scale_shape), self.stored_bits)
        if self.zeros.size * 8 == self.n * self.num_blocks * self.bits and self.bits == self.stored_bits:
            return self.zeros.tobytes()
        codes = unpack_low_bit_codes(self.zeros.reshape(self.n, -1), self.bits)[:, : self.num_blocks]
        return pack_low_bit_codes(codes, self.stored_bits)

    def make_zero_point_offsets(self) -> Array:
        """Return the correction [blocks, N] for fractional zero points, to be multiplied by the block sums of the activations."""
        assert self.zeros is not None
        scales = self.scales.astype(np.float32).reshape(self.n, -1)
        zero_points = self.zeros.astype(np.float32).reshape(self.n, -1)
        return np.ascontiguousarray(((self.default_zero_point - zero_points) * scales).T.astype(self.scales.dtype))


def _get_positive_integer(node: NodeRecipe, name: str, default: int | None = None) -> int:
    value = node.attributes.get(name, default)
    if not isinstance(value, int) or value < 1:
        raise graph_error("node", node.name, f"attribute '{name}': expected a positive integer, given {value!r}")
    return value


def _parse_weights(builder: GraphBuilder, node: NodeRecipe, inputs: list[str]) -> _BlockQuantWeights:
    n, k, quant_block_size = (_get_positive_integer(node, name) for name in ("N", "K", "block_size"))
    bits = _get_positive_integer(node, "bits", 4)
    packed, scales, zeros = (builder.get_constant_array(name) if name else None for name in inputs[1:4])
    if packed is None or scales is None or (inputs[3] and zeros is None):
        raise builder.reject(node, "a matrix, scales or zero points that are not constants")
    if bits not in (2, 4, 8):
        raise builder.reject(node, f"bits = {bits}; supported: 2, 4, 8")
    if layout := node.attributes.get("weight_prepacked", 0):
        raise builder.reject(node, f"weight_prepacked = {layout}; supported: 0")
    k_permutation = _get_k_permutation(builder, node, (k, quant_block_size)) if inputs[4] else None
    if zeros is not None and zeros.dtype not in (np.uint8, scales.dtype):
        raise builder.reject(node, f"zero points of {zeros.dtype}; supported: uint8 and {scales.dtype}, as the scales")
    weights = _BlockQuantWeights(n, k, quant_block_size, bits, packed, scales, zeros, k_permutation)
    expected_bytes = n * weights.num_blocks * quant_block_size * bits // 8
    if packed.size != expected_bytes or scales.size != n * weights.num_blocks:
        received = f"{packed.size} bytes and {scales.size} scales"
        raise graph_error(
            "node", node.name, f"expected {expected_bytes} bytes and {n * weights.num_blocks} scales, given {received}"
        )
    expected = n * (
        weights.num_blocks if zeros is None or zeros.dtype != np.uint8 else -(-weights.num_blocks * bits // 8)
    )
    if zeros is not None and zeros.size != expected:
        raise graph_error("node", node.name, f"expected {expected} {zeros.dtype} of zero points, given {zeros.size}")
    return weights


def _sum_blocks(builder: GraphBuilder, node: NodeRecipe, a: Value, weights: _BlockQuantWeights) -> Value:
    """Return the sums of `a` over each block of K, [..., blocks]."""
    if padding := weights.num_blocks * weights.quant_block_size - weights.k:
        a = builder.add_helper(node, "Pad", a, np.array([0, padding]), None, np.array([-1]))
    rows = builder.add_helper(node, "Shape", a, end=-1)
    shape = builder.add_helper(node, "Concat", rows, np.array([weights.num_blocks, weights.quant_block_size]), axis=0)
    return builder.add_helper(
        node, "ReduceSum", builder.add_helper(node, "Reshape", a, shape), np.array([-1]), keepdims=0
    )


def _translate_matmul_n_bits(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Translate MatMulNBits, y = a b^T, with b [N, K] quantised in blocks along K.

    With g_idx the elements of a block may be scattered along K. Then b is permuted at import, and `a` at each run.
    """
    inputs = [*node.inputs, "", "", ""]
    weights = _parse_weights(builder, node, inputs)
    dtype, scale_shape = f"uint{weights.stored_bits}", [weights.n, weights.num_blocks]
    # Nodes that read the same matrix, such as tied embeddings, share one copy.
    stem = node.inputs[1] if weights.k_permutation is None else f"{node.inputs[1]} by {inputs[4]}"
    codes = builder.derive_constant(
        stem,
        dtype,
        [weights.n, weights.k],
        weights.quant_block_size,
        weights.bits,
        raw=lambda: weights.pack_matrix(builder.constants[node.inputs[1]].raw),
    )
    zero = builder.derive_constant(
        inputs[3] or f"{node.inputs[1]}, zero points", dtype, scale_shape, weights.bits, raw=weights.pack_zero_points
    )
    scale = builder.derive_constant(node.inputs[2], str(weights.scales.dtype), scale_shape, raw=weights.scales.tobytes)
    floats = builder.add_helper(
        node, "DequantizeLinear", codes, scale, zero, axis=1, block_size=weights.quant_block_size
    )
    transposed = builder.add_helper(node, "Transpose", floats, perm=[1, 0])
    a = builder.require_tensor(node.inputs[0])
    if weights.k_permutation is not None:
        a = builder.add_helper(node, "Gather", a, weights.k_permutation, axis=-1)
    addends = [builder.require_tensor(inputs[5])] if inputs[5] else []
    if weights.has_fractional_zero_points():
        offsets = builder.graph.constant(weights.make_zero_point_offsets())
        addends.append(builder.add_helper(node, "MatMul", _sum_blocks(builder, node, a, weights), offsets))
    result = builder.add_helper(node, "MatMul", a, transposed, output="" if addends else node.outputs[0])
    for num_remaining, term in zip(range(len(addends))[::-1], addends, strict=True):
        result = builder.add_helper(node, "Add", result, term, output="" if num_remaining else node.outputs[0])
    builder.set_values(node.outputs[:1], (result,))


BLOCK_NODES: dict[str, Callable[[GraphBuilder, NodeRecipe], None]] = {
    "com.microsoft::GatherBlockQuantized": translate_gather_block_quantized,
    "com.microsoft::MatMulNBits": _translate_matmul_n_bits,
}
