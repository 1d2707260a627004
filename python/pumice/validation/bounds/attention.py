"""Rules of attention (GEMM and softmax, V4 and V6) and of RoPE."""

from __future__ import annotations

from typing import Any

import numpy as np

from .bounded import Arithmetic, Bounded, stored
from .math_functions import apply
from .reductions import softmax
from .registry import Call, Unproved, rule
from .gemm_conv import contracted
from .float_types import is_float


def apart(x: Bounded, heads: int) -> Bounded:
    """Split heads: [batch, rows, heads * size] -> [batch, heads, rows, size]."""
    n, rows = x.shape[:2]
    return x.moved(lambda v: v.reshape(n, rows, heads, -1).transpose(0, 2, 1, 3))


def merged(x: Bounded) -> Bounded:
    """Merge heads: [batch, heads, rows, size] -> [batch, rows, heads * size]."""
    return x.moved(lambda v: v.transpose(0, 2, 1, 3).reshape(v.shape[0], v.shape[2], -1))


def left_padded_cache(before: Bounded | None, now: Bounded) -> Bounded:
    """Append new keys or values to the cached ones."""
    from .data_movement import joined

    return now if before is None else joined([before, now], 2)


class Masked:
    """Attention scores with masks: with -inf for hidden keys, whatever their score."""

    def __init__(self, call: Call, m: Arithmetic, scores: Bounded) -> None:
        self.call, self.m, self.scores = call, Arithmetic(m.types.with_masks(), m.dtype), scores
        self.hidden = np.zeros(scores.shape, bool)

    def add(self, mask: Bounded) -> None:
        """Add a float mask to the scores, or hide the keys where a boolean mask is false."""
        if not is_float(mask.dtype):
            self.hide(~np.broadcast_to(self.call.sure(mask, "the mask").astype(bool), self.scores.shape))
            return
        below = np.isneginf(mask.value)
        self.hidden = self.hidden | np.broadcast_to(below, self.scores.shape)
        plain = Bounded(
            np.where(below, 0.0, mask.value), None if mask.error is None else np.where(below, 0.0, mask.error)
        )
        self.scores = self.m.add(self.scores, plain)

    def hide(self, where: Any) -> None:
        """Hide keys where the array is true."""
        self.hidden = self.hidden | where

    def result(self) -> Bounded:
        """Return the scores, -inf for hidden keys."""
        error = None if self.scores.error is None else np.where(self.hidden, 0.0, self.scores.error)
        return Bounded(np.where(self.hidden, -np.inf, self.scores.value), error, self.scores.dtype)


def attend(
    call: Call,
    given: tuple[Bounded, Bounded, Bounded],
    masks: list[Any],
    scale: float | None,
    softcap: float = 0.0,
    sink: Bounded | None = None,
) -> tuple[Bounded, list[Bounded]]:
    """Compute attention of given = (q, k, v), each [batch, heads, rows, size].

    masks: tensors to add, or boolean arrays that are true for hidden keys. sink: per head, the score of an extra key
    with value zero.
    Return y and the scores, indexed by ONNX's qk_matmul_output_mode: q k^T, masked, soft-capped, after softmax.
    """
    q, k, v = given
    types, dtype = call.types, q.dtype
    m = Arithmetic(types, dtype)
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = (one.moved(lambda a: np.repeat(a, groups, axis=1)) for one in (k, v))
    factor = scale or 1 / np.sqrt(q.shape[-1])
    product = contracted(np.matmul, q, k.moved(lambda a: np.swapaxes(a, 2, 3)), q.shape[-1], types, dtype)
    product = m.mul(m.mul(product, m.constant(float(np.sqrt(factor)))), m.constant(float(np.sqrt(factor))))
    product = shaken(call, product)
    kept = [product]
    capped = product
    if softcap:
        cap = m.constant(softcap)
        capped = m.mul(cap, apply("tanh", m.div(product, cap), m))
    kept.append(capped)
    masked = Masked(call, m, capped)
    for mask in masks:
        masked.add(mask) if isinstance(mask, Bounded) else masked.hide(mask)
    scores = masked.result()
    scores.dtype = np.dtype(dtype)
    kept.append(scores)
    shares = _shares(call, scores, sink)
    kept.append(shares)
    y = contracted(np.matmul, shaken(call, shares), v, v.shape[2], types, dtype)
    return Bounded(y.value, y.error, dtype), kept


def _shares(call: Call, scores: Bounded, sink: Bounded | None) -> Bounded:
    """Return the softmax of the scores, 0 in rows whose keys are all hidden."""
    all_hidden = np.all(np.isneginf(scores.value), axis=-1, keepdims=True)
    shares = softmax(call, scores if sink is None else _with_sink(scores, sink), -1, factors=2)
    shares = shares if sink is None else shares.moved(lambda a: a[..., :-1])
    return Bounded(np.where(all_hidden, 0.0, shares.value), np.where(all_hidden, 0.0, shares.errors()), scores.dtype)


def _with_sink(scores: Bounded, sink: Bounded) -> Bounded:
    """Append the sink's score to each row."""
    from .data_movement import joined

    column = (*scores.shape[:-1], 1)
    return joined([scores, sink.moved(lambda a: np.broadcast_to(a.reshape(1, -1, 1, 1), column))], -1)


def shaken(call: Call, x: Bounded) -> Bounded:
    """Return an intermediate between two GEMMs, which may be rounded to storage or stay in float32."""
    return stored(Bounded(x.value, x.error, x.dtype), call.types)


@rule("Attention")
def _attention(call: Call) -> list[Any]:
    q, k, v = (call.input(i) for i in range(3))
    mask, past_k, past_v, lengths = (call.optional(i) for i in range(3, 7))
    is_flat = q.ndim == 3
    if is_flat:
        q = apart(q, call.attribute("q_num_heads"))
        k, v = (apart(one, call.attribute("kv_num_heads")) for one in (k, v))
    if call.attribute("softmax_precision") == 11:
        raise Unproved("Attention with a softmax in double")
    k, v = left_padded_cache(past_k, k), left_padded_cache(past_v, v)
    rows, keys = q.shape[2], k.shape[2]
    masks: list[Any] = []
    behind = 0 if past_k is None else past_k.shape[2]
    place = np.arange(rows)[:, None] + behind
    if lengths is not None:
        count = call.sure(lengths, "the lengths").reshape(-1, 1, 1, 1)
        masks.append(np.broadcast_to(np.arange(keys) >= count, (q.shape[0], q.shape[1], rows, keys)))
        if call.attribute("is_causal", 0) or call.attribute("left_window_size", -1) >= 0:
            place = np.arange(rows)[:, None] + (count - rows)
    if call.attribute("is_causal", 0):
        masks.append(np.broadcast_to(np.arange(keys) > place, (q.shape[0], q.shape[1], rows, keys)))
    for name, side in (("left_window_size", -1), ("right_window_size", 1)):
        width = call.attribute(name, -1)
        if width >= 0:
            far = np.arange(keys) < place - width if side < 0 else np.arange(keys) > place + width
            masks.append(np.broadcast_to(far, (q.shape[0], q.shape[1], rows, keys)))
    if mask is not None:
        missing = keys - mask.shape[-1]
        if missing > 0:  # hide the keys beyond the mask
            masks.append(np.arange(keys) >= mask.shape[-1])
            width = [(0, 0)] * (mask.ndim - 1) + [(0, missing)]
            mask = mask.moved(lambda a: np.pad(a, width))
        masks.append(mask)
    y, scores = attend(call, (q, k, v), masks, call.attribute("scale"), call.attribute("softcap", 0.0))
    mode = call.attribute("qk_matmul_output_mode", 0)
    return [merged(y) if is_flat else y, k, v, scores[mode]][: call.outputs]


@rule("RotaryEmbedding")
def _rotary(call: Call) -> list[Any]:
    x, cosines, sines, places = call.input(0), call.input(1), call.input(2), call.optional(3)
    return [
        rotated(
            call, x, (cosines, sines), places, call.attribute("num_heads", 0), call.attribute("rotary_embedding_dim", 0)
        )
    ]


def rotated(
    call: Call, x: Bounded, waves: tuple[Bounded, Bounded], places: Bounded | None, heads: int, turned: int
) -> Bounded:
    """Apply RoPE to x [batch, heads, rows, size] or [batch, rows, heads * size]. waves: the cos and sin tables."""
    cosines, sines = waves
    m = call.arithmetic(x.dtype)
    flat = x.ndim == 3
    rows = apart(x, heads) if flat else x
    size = rows.shape[-1]
    turned = turned or size
    if places is not None:
        at = call.sure(places, "the positions").astype(np.int64)
        cosines, sines = (one.moved(lambda v: v[at]) for one in (cosines, sines))
    half = turned // 2
    cosines, sines = (one.moved(lambda v: v[:, None, :, :half]) for one in (cosines, sines))
    if call.attribute("interleaved", 0):
        first, second = (rows.moved(lambda v, i=i: v[..., i:turned:2]) for i in (0, 1))  # type: ignore[misc]
    else:
        first, second = rows.moved(lambda v: v[..., :half]), rows.moved(lambda v: v[..., half:turned])
    a = m.sub(m.mul(cosines, first), m.mul(sines, second))
    b = m.add(m.mul(sines, first), m.mul(cosines, second))
    value, error = np.array(rows.value), np.array(rows.errors())
    for made, which in ((a, 0), (b, 1)):
        cut: Any = (
            slice(which, turned, 2) if call.attribute("interleaved", 0) else slice(which * half, (which + 1) * half)
        )
        value[..., cut], error[..., cut] = made.value, made.errors()
    result = Bounded(value, error, x.dtype)
    return merged(result) if flat else result
