"""Error-bound rules for attention (GEMM and softmax, V4 and V6) and RoPE."""

from __future__ import annotations

from typing import Any

import numpy as np

from .bounded_tensor import BoundedArithmetic, BoundedTensor, OperatorCall, UnprovedError, round_to_storage, rule
from .data_movement import concat_values
from .float_types import is_float
from .gemm_conv import evaluate_bilinear
from .math_functions import apply_function
from .reductions import compute_softmax


def split_heads(x: BoundedTensor, heads: int) -> BoundedTensor:
    """Split heads: [batch, tokens, heads * head_size] -> [batch, heads, tokens, head_size]."""
    batch, tokens = x.shape[:2]
    return x.rearrange(lambda v: v.reshape(batch, tokens, heads, -1).transpose(0, 2, 1, 3))


def merge_heads(x: BoundedTensor) -> BoundedTensor:
    """Merge heads: [batch, heads, tokens, head_size] -> [batch, tokens, heads * head_size]."""
    return x.rearrange(lambda v: v.transpose(0, 2, 1, 3).reshape(v.shape[0], v.shape[2], -1))


def append_to_cache(past: BoundedTensor | None, new: BoundedTensor) -> BoundedTensor:
    """Append new keys or values to the cached ones."""
    return new if past is None else concat_values([past, new], 2)


class MaskedAttentionScores:
    """Attention scores to which masks are added; masked-out keys get -inf."""

    def __init__(self, call: OperatorCall, m: BoundedArithmetic, scores: BoundedTensor) -> None:
        self.call, self.m, self.scores = call, BoundedArithmetic(m.types.with_attention_masks(), m.dtype), scores
        self.hidden = np.zeros(scores.shape, bool)

    def add_mask(self, mask: BoundedTensor) -> None:
        """Add a float mask to the scores, or mask out the keys for which a boolean mask is false."""
        if not is_float(mask.dtype):
            self.hide_keys(
                ~np.broadcast_to(self.call.require_decided(mask, "the mask").astype(bool), self.scores.shape)
            )
            return
        below = np.isneginf(mask.value)
        self.hidden = self.hidden | np.broadcast_to(below, self.scores.shape)
        finite_mask = BoundedTensor(
            np.where(below, 0.0, mask.value), None if mask.error is None else np.where(below, 0.0, mask.error)
        )
        self.scores = self.m.add(self.scores, finite_mask)

    def hide_keys(self, where: Any) -> None:
        """Mask out the keys for which the array is true."""
        self.hidden = self.hidden | where

    def compute_masked_scores(self) -> BoundedTensor:
        """Return the scores, with -inf for masked-out keys."""
        error = None if self.scores.error is None else np.where(self.hidden, 0.0, self.scores.error)
        return BoundedTensor(np.where(self.hidden, -np.inf, self.scores.value), error, self.scores.dtype)


def compute_attention(
    call: OperatorCall,
    qkv: tuple[BoundedTensor, BoundedTensor, BoundedTensor],
    masks: list[Any],
    scale: float | None,
    softcap: float = 0.0,
    sink: BoundedTensor | None = None,
) -> tuple[BoundedTensor, list[BoundedTensor]]:
    """Compute attention of qkv = (q, k, v), each [batch, heads, tokens, head_size].

    masks: tensors to add to the scores, or boolean arrays that are true for masked-out keys. sink: attention sink, one
    score per head for an extra key whose value vector is zero.
    Return y, and the scores at each stage in the order of ONNX's qk_matmul_output_mode.
    """
    q, k, v = qkv
    types, dtype = call.types, q.dtype
    m = BoundedArithmetic(types, dtype)
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = (tensor.rearrange(lambda a: np.repeat(a, groups, axis=1)) for tensor in (k, v))
    root_scale = m.make_constant(float(np.sqrt(scale or 1 / np.sqrt(q.shape[-1]))))
    raw_scores = evaluate_bilinear(np.matmul, q, k.rearrange(lambda a: np.swapaxes(a, 2, 3)), q.shape[-1], types, dtype)
    raw_scores = m.mul(m.mul(raw_scores, root_scale), root_scale)
    raw_scores = allow_intermediate_rounding(call, raw_scores)
    score_stages = [raw_scores]
    capped = raw_scores
    if softcap:
        cap = m.make_constant(softcap)
        capped = m.mul(cap, apply_function("tanh", m.div(raw_scores, cap), m))
    score_stages.append(capped)
    masked = MaskedAttentionScores(call, m, capped)
    for mask in masks:
        masked.add_mask(mask) if isinstance(mask, BoundedTensor) else masked.hide_keys(mask)
    scores = masked.compute_masked_scores()
    scores.dtype = np.dtype(dtype)
    score_stages.append(scores)
    probabilities = _compute_masked_softmax(call, scores, sink)
    score_stages.append(probabilities)
    y = evaluate_bilinear(np.matmul, allow_intermediate_rounding(call, probabilities), v, v.shape[2], types, dtype)
    return BoundedTensor(y.value, y.error, dtype), score_stages


def _compute_masked_softmax(call: OperatorCall, scores: BoundedTensor, sink: BoundedTensor | None) -> BoundedTensor:
    """Return the softmax of the scores, with zeros for queries whose keys are all masked out."""
    all_hidden = np.all(np.isneginf(scores.value), axis=-1, keepdims=True)
    probabilities = compute_softmax(call, scores if sink is None else _append_sink(scores, sink), -1, factors=2)
    probabilities = probabilities if sink is None else probabilities.rearrange(lambda a: a[..., :-1])
    return BoundedTensor(
        np.where(all_hidden, 0.0, probabilities.value),
        np.where(all_hidden, 0.0, probabilities.get_errors()),
        scores.dtype,
    )


def _append_sink(scores: BoundedTensor, sink: BoundedTensor) -> BoundedTensor:
    """Append the attention sink's score to the scores of each query."""
    column = (*scores.shape[:-1], 1)
    return concat_values([scores, sink.rearrange(lambda a: np.broadcast_to(a.reshape(1, -1, 1, 1), column))], -1)


def allow_intermediate_rounding(call: OperatorCall, x: BoundedTensor) -> BoundedTensor:
    """Return an intermediate result whose bound covers both rounding it to storage and keeping it in float32."""
    return round_to_storage(BoundedTensor(x.value, x.error, x.dtype), call.types)


@rule("Attention")
def _evaluate_attention(call: OperatorCall) -> list[Any]:
    q, k, v = (call.input(i) for i in range(3))
    mask, past_k, past_v, lengths = (call.optional_input(i) for i in range(3, 7))
    is_flat = q.ndim == 3
    if is_flat:
        q = split_heads(q, call.attribute("q_num_heads"))
        k, v = (split_heads(tensor, call.attribute("kv_num_heads")) for tensor in (k, v))
    if call.attribute("softmax_precision") == 11:
        raise UnprovedError("Attention with a softmax in double")
    k, v = append_to_cache(past_k, k), append_to_cache(past_v, v)
    queries, keys = q.shape[2], k.shape[2]
    scores_shape = (q.shape[0], q.shape[1], queries, keys)
    masks: list[Any] = []
    num_cached = 0 if past_k is None else past_k.shape[2]
    positions = np.arange(queries)[:, None] + num_cached
    if lengths is not None:
        count = call.require_decided(lengths, "the lengths").reshape(-1, 1, 1, 1)
        masks.append(np.broadcast_to(np.arange(keys) >= count, scores_shape))
        if call.attribute("is_causal", 0) or call.attribute("left_window_size", -1) >= 0:
            positions = np.arange(queries)[:, None] + (count - queries)
    if call.attribute("is_causal", 0):
        masks.append(np.broadcast_to(np.arange(keys) > positions, scores_shape))
    for name, side in (("left_window_size", -1), ("right_window_size", 1)):
        width = call.attribute(name, -1)
        if width >= 0:
            outside_window = np.arange(keys) < positions - width if side < 0 else np.arange(keys) > positions + width
            masks.append(np.broadcast_to(outside_window, scores_shape))
    if mask is not None:
        missing = keys - mask.shape[-1]
        if missing > 0:  # keys beyond the end of the mask are masked out
            masks.append(np.arange(keys) >= mask.shape[-1])
            width = [(0, 0)] * (mask.ndim - 1) + [(0, missing)]
            mask = mask.rearrange(lambda a: np.pad(a, width))
        masks.append(mask)
    y, scores = compute_attention(call, (q, k, v), masks, call.attribute("scale"), call.attribute("softcap", 0.0))
    mode = call.attribute("qk_matmul_output_mode", 0)
    return [merge_heads(y) if is_flat else y, k, v, scores[mode]][: call.outputs]


@rule("RotaryEmbedding")
def _evaluate_rotary_embedding(call: OperatorCall) -> list[Any]:
    x, cosines, sines, position_ids = call.input(0), call.input(1), call.input(2), call.optional_input(3)
    return [
        apply_rope(
            call,
            x,
            (cosines, sines),
            position_ids,
            call.attribute("num_heads", 0),
            call.attribute("rotary_embedding_dim", 0),
        )
    ]


def apply_rope(
    call: OperatorCall,
    x: BoundedTensor,
    cos_sin: tuple[BoundedTensor, BoundedTensor],
    position_ids: BoundedTensor | None,
    heads: int,
    rotary_dim: int,
) -> BoundedTensor:
    """Apply RoPE to x [batch, heads, tokens, head_size] or [batch, tokens, heads * head_size]. cos_sin: the two tables."""
    cosines, sines = cos_sin
    m = call.make_arithmetic(x.dtype)
    flat = x.ndim == 3
    vectors = split_heads(x, heads) if flat else x
    rotary_dim = rotary_dim or vectors.shape[-1]
    if position_ids is not None:
        ids = call.require_decided(position_ids, "the positions").astype(np.int64)
        cosines, sines = (table.rearrange(lambda v: v[ids]) for table in (cosines, sines))
    half = rotary_dim // 2
    cosines, sines = (table.rearrange(lambda v: v[:, None, :, :half]) for table in (cosines, sines))
    if call.attribute("interleaved", 0):
        first, second = (vectors.rearrange(lambda v, i=i: v[..., i:rotary_dim:2]) for i in (0, 1))  # type: ignore[misc]
    else:
        first = vectors.rearrange(lambda v: v[..., :half])
        second = vectors.rearrange(lambda v: v[..., half:rotary_dim])
    a = m.sub(m.mul(cosines, first), m.mul(sines, second))
    b = m.add(m.mul(sines, first), m.mul(cosines, second))
    value, error = np.array(vectors.value), np.array(vectors.get_errors())
    for rotated_half, half_index in ((a, 0), (b, 1)):
        target: Any = (
            slice(half_index, rotary_dim, 2)
            if call.attribute("interleaved", 0)
            else slice(half_index * half, (half_index + 1) * half)
        )
        value[..., target], error[..., target] = rotated_half.value, rotated_half.get_errors()
    result = BoundedTensor(value, error, x.dtype)
    return merge_heads(result) if flat else result
