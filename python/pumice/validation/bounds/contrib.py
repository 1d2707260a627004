"""Rules of ONNX Runtime's operators in com.microsoft, written from their documentation."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .attention import apart, attend, left_padded_cache, merged, rotated
from .bounded import Arithmetic, Bounded, stored
from .math_functions import apply
from .elementwise import gelu
from .data_movement import joined
from .normalization import inverse_deviation, normalised
from .registry import RULES, Call, Unproved, rule
from .registry import call as other
from .gemm_conv import contracted, integer_product, summed, without_zero

DOMAIN = "com.microsoft"


def _kept(call: Call, x: Bounded) -> Bounded:
    """Return an intermediate of the operator, which may be rounded to storage."""
    return stored(Bounded(x.value, x.error, x.dtype), call.types)


@rule("Gelu", "FastGelu", "BiasGelu", "QuickGelu", domain=DOMAIN)
def _gelus(call: Call) -> list[Any]:
    x, m = call.input(0), call.arithmetic()
    if call.op == "QuickGelu":
        return [m.mul(x, apply("sigmoid", m.mul(m.constant(call.attribute("alpha", 1.702)), x), m))]
    if call.optional(1) is not None:
        x = _kept(call, m.add(x, call.input(1)))
    return [gelu(x, m, "tanh" if call.op == "FastGelu" else "none")]


@rule("FusedMatMul", domain=DOMAIN)
def _fused_matmul(call: Call) -> list[Any]:
    a, b, m = call.input(0), call.input(1), call.arithmetic()
    if call.attribute("transBatchA", 0) or call.attribute("transBatchB", 0):
        raise Unproved("FusedMatMul with its batch transposed")
    if call.attribute("transA", 0):
        a = a.moved(lambda v: np.swapaxes(v, -1, -2) if v.ndim > 1 else v)
    if call.attribute("transB", 0):
        b = b.moved(lambda v: np.swapaxes(v, -1, -2) if v.ndim > 1 else v)
    made = contracted(np.matmul, a, b, a.shape[-1], call.types, a.dtype)
    alpha = call.attribute("alpha", 1.0)
    return [made if alpha == 1 else m.mul(_kept(call, made), m.constant(alpha))]


def _activated(call: Call, x: Bounded, parameters: list[float]) -> Bounded:
    name = str(call.attribute("activation", ""))
    if not name:
        return x
    x = _kept(call, x)
    if name == "Clip":
        ends = [call.arithmetic(x.dtype).constant(one) for one in parameters]
        return other("Clip", [x, *ends], like=call)[0]  # type: ignore[no-any-return]
    names = {"LeakyRelu": ["alpha"], "HardSigmoid": ["alpha", "beta"]}.get(name, [])
    if name not in ("LeakyRelu", "HardSigmoid", "Relu", "Sigmoid", "Tanh"):
        raise Unproved(f"the activation {name} of {call.op}")
    return other(name, [x], dict(zip(names, parameters, strict=False)), call)[0]  # type: ignore[no-any-return]


@rule("FusedConv", domain=DOMAIN)
def _fused_conv(call: Call) -> list[Any]:
    plain = {key: value for key, value in call.attributes.items() if not key.startswith("activation")}
    made = other("Conv", call.given[:3], plain, call)[0]
    if call.optional(3) is not None:
        made = call.arithmetic().add(_kept(call, made), call.input(3))
    return [_activated(call, made, [float(one) for one in call.attribute("activation_params") or []])]


@rule("FusedGemm", domain=DOMAIN)
def _fused_gemm(call: Call) -> list[Any]:
    plain = {key: value for key, value in call.attributes.items() if not key.startswith("activation")}
    made = other("Gemm", call.given, plain, call)[0]
    names = [f"activation_{name}" for name in ("alpha", "beta", "gamma")]
    return [_activated(call, made, [float(call.attribute(name)) for name in names if name in call.attributes])]


@rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=DOMAIN)
def _skip(call: Call) -> list[Any]:
    simplified = call.op == "SkipSimplifiedLayerNormalization"
    m = call.arithmetic()
    bias = call.optional(3 if simplified else 4)
    values = [call.input(0), call.input(1), *([bias] if bias is not None else [])]
    total = _kept(call, functools.reduce(lambda a, b: _kept(call, m.add(a, b)), values))
    made = [*_normalised(call, total, call.input(2), None if simplified else call.optional(3), simplified, 1e-12)]
    return [*made, total][: call.outputs]


def _normalised(
    call: Call, x: Bounded, scale: Bounded, bias: Bounded | None, simplified: bool, epsilon: float
) -> list[Bounded]:
    """Return y, the mean and 1 / deviation, along the last axis."""
    m = call.arithmetic(x.dtype)
    held = call.attribute("epsilon", epsilon)
    axes = (x.ndim - 1,)
    if simplified:
        squares = m.div(summed(m.mul(x, x), axes, call.types), m.of(float(x.shape[-1])))
        mean, inverse = m.of(np.zeros(squares.shape)), inverse_deviation(call, squares, held)
        y = m.mul(x, inverse)
    else:
        y, mean, inverse = normalised(call, x, axes, held)
    y = m.mul(y, scale)
    if bias is not None:
        y = m.add(y, bias)
    return [Bounded(y.value, y.error, x.dtype), mean, inverse]


@rule("SimplifiedLayerNormalization", domain=DOMAIN)
def _simplified(call: Call) -> list[Any]:
    return RULES["RMSNormalization"](call)


@rule("EmbedLayerNormalization", domain=DOMAIN)
def _embed(call: Call) -> list[Any]:
    ids, segments, words, places, of_segment, gamma, beta, mask, given = (call.optional(i) for i in range(9))
    rows = call.exact(0)
    at = call.exact(8) if given is not None else np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    m = call.arithmetic(words.dtype)
    parts = [words.moved(lambda v: v[rows]), places.moved(lambda v: v[at])]
    if segments is not None:
        kinds = call.exact(1)
        parts.append(of_segment.moved(lambda v: v[kinds]))
    total = functools.reduce(lambda a, b: _kept(call, m.add(a, b)), parts)
    y = _normalised(call, total, gamma, beta, False, 1e-12)[0]
    counts = np.zeros(ids.shape[0], np.int32) if mask is None else call.exact(7).sum(axis=1).astype(np.int32)
    return [y, Bounded(counts, None, np.int32), total][: max(call.outputs, 1)]


# ---- quantised operators


def _real(call: Call, first: int) -> Bounded:
    given = [call.optional(first + i) for i in range(3)]
    return _kept(call, other("DequantizeLinear", given, like=call)[0])


def _quantized(call: Call, value: Bounded, first: int) -> list[Any]:
    given = [_kept(call, value), call.input(first), call.optional(first + 1)]
    return [other("QuantizeLinear", given, like=call)[0]]


@rule("QLinearAdd", "QLinearMul", domain=DOMAIN)
def _qlinear_pair(call: Call) -> list[Any]:
    made = other(call.op.removeprefix("QLinear"), [_real(call, 0), _real(call, 3)], like=call)[0]
    return _quantized(call, made, 6)


@rule(
    "QLinearSigmoid",
    "QLinearLeakyRelu",
    "QLinearAveragePool",
    "QLinearGlobalAveragePool",
    "QLinearSoftmax",
    domain=DOMAIN,
)
def _qlinear_one(call: Call) -> list[Any]:
    if call.attribute("channels_last", 0):
        raise Unproved(f"{call.op} with channels last")
    kept = {key: value for key, value in call.attributes.items() if key not in ("channels_last", "opset")}
    inner = Call(call.op.removeprefix("QLinear"), [_real(call, 0)], kept, int(call.attribute("opset", 23)), call.types)
    return _quantized(call, RULES[inner.op](inner)[0], 3)


@rule("QLinearConcat", domain=DOMAIN)
def _qlinear_concat(call: Call) -> list[Any]:
    parts = [_real(call, first) for first in range(2, len(call), 3)]
    return _quantized(call, joined(parts, call.attribute("axis", 0)), 0)


@rule("QLinearWhere", domain=DOMAIN)
def _qlinear_where(call: Call) -> list[Any]:
    return _quantized(call, other("Where", [call.input(0), _real(call, 1), _real(call, 4)], like=call)[0], 7)


@rule("QGemm", domain=DOMAIN)
def _qgemm(call: Call) -> list[Any]:
    plain = {key: value for key, value in call.attributes.items() if key in ("alpha", "transA", "transB")}
    m = call.arithmetic(np.float32)
    made = other("Gemm", [_real(call, 0), _real(call, 3)], plain, call)[0]
    if (bias := call.optional(6)) is not None:
        scale = _kept(call, m.mul(call.input(1), call.input(4)))
        part = m.mul(_kept(call, Bounded(bias.value.astype(np.float64), None, np.float32)), scale)
        made = m.add(_kept(call, made), _kept(call, part))
    return _quantized(call, made, 7) if call.optional(7) is not None else [made]


def _product(call: Call, a: list[Any], b: list[Any], bias: Bounded | None) -> Bounded:
    """Return the product of quantised matrices, each with its scale and zero point."""
    m = call.arithmetic(np.float32)
    total = integer_product(np.matmul, without_zero(a[0], a[2]), without_zero(b[0], b[2]))
    whole = _kept(call, Bounded(total.value.astype(np.float64), total.error, np.float32))
    made = m.mul(whole, _kept(call, m.mul(a[1], b[1])))
    return made if bias is None else m.add(_kept(call, made), bias)


@rule("MatMulIntegerToFloat", domain=DOMAIN)
def _matmul_to_float(call: Call) -> list[Any]:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = (call.optional(i) for i in range(7))
    return [_product(call, [a, a_scale, a_zero], [b, b_scale, b_zero], bias)]


@rule("DynamicQuantizeMatMul", domain=DOMAIN)
def _dynamic_matmul(call: Call) -> list[Any]:
    a, b, b_scale, b_zero, bias = (call.optional(i) for i in range(5))
    y, scale, zero = other("DynamicQuantizeLinear", [a], like=call)
    return [_product(call, [y, _kept(call, scale), zero], [b, b_scale, b_zero], bias)]


def _codes(packed: Any, bits: int, rows: int) -> Any:
    """Unpack 4- or 8-bit elements; the first is in the low bits."""
    flat = packed.reshape(rows, -1)
    return flat if bits == 8 else np.stack([flat & 15, flat >> 4], -1).reshape(rows, -1)


@rule("MatMulNBits", domain=DOMAIN)
def _n_bits(call: Call) -> list[Any]:
    a, packed, scales, zeros = call.input(0), call.input(1), call.input(2), call.optional(3)
    n, k, block, bits = (int(call.attribute(name, 4)) for name in ("N", "K", "block_size", "bits"))
    if call.optional(4) is not None or bits not in (4, 8) or (zeros is not None and zeros.dtype != np.uint8):
        raise Unproved("this form of MatMulNBits")
    blocks = -(-k // block)
    codes = _codes(packed.value.view(np.uint8), bits, n)[:, :k].astype(np.float64)
    middle = np.full((n, blocks), float(1 << (bits - 1)))
    points = middle if zeros is None else _codes(zeros.value, bits, n)[:, :blocks].astype(np.float64)
    each = np.repeat(points, block, 1)[:, :k]
    m = call.arithmetic()
    factor = scales.moved(lambda v: np.repeat(v.reshape(n, blocks), block, 1)[:, :k])
    # A kernel may multiply by the scale in float32, or read a stored dequantised matrix.
    weights = _kept(call, m.mul(m.of(codes - each), factor))
    made = contracted(np.matmul, a, weights.moved(np.transpose), k, call.types, a.dtype)
    bias = call.optional(5)
    return [made if bias is None else m.add(_kept(call, made), bias)]


# ---- attention


@rule("RotaryEmbedding", domain=DOMAIN)
def _rotary(call: Call) -> list[Any]:
    x, places, cosines, sines = (call.input(i) for i in range(4))
    if call.attribute("scale", 1.0) != 1 or call.attribute("is_packed_batching", 0):
        raise Unproved("this form of RotaryEmbedding")
    heads, flat = call.attribute("num_heads", 0), x.ndim == 3
    if flat and not heads:
        heads = x.shape[2] // (2 * cosines.shape[1])
    rows = x.shape[1 if flat else 2]
    at = call.sure(places, "the positions").astype(np.int64)
    if at.ndim == 1:
        at = np.broadcast_to(at.reshape(-1, 1) + np.arange(rows), (x.shape[0], rows))
    turned = call.attribute("rotary_embedding_dim", 0) or 2 * cosines.shape[-1]
    return [rotated(call, x, (cosines, sines), Bounded(at, None, np.int64), heads, turned)]


def _hidden(call: Call, mask: Bounded, batch: int, keys: int, m: Arithmetic) -> Bounded:
    """Return the term added to the scores. A mask has lengths, ends and starts, or nonzero values at visible keys."""
    value = call.sure(mask, "the mask")
    if mask.ndim == 1:
        place = np.arange(keys)
        seen = place < value[:batch].reshape(-1, 1, 1, 1)
        if value.size == 2 * batch:
            seen = seen & (place >= value[batch:].reshape(-1, 1, 1, 1))
    elif mask.ndim in (2, 3):
        seen = (value != 0).reshape(value.shape[0], 1, *([1] if mask.ndim == 2 else []), *value.shape[1:])
    else:
        raise Unproved(f"a mask of rank {mask.ndim}")
    filled = m.constant(float(np.float32(call.attribute("mask_filter_value", -10000.0))))
    return Bounded(np.where(seen, 0.0, filled.value), None, np.float32)


@rule("MultiHeadAttention", domain=DOMAIN)
def _multi_head(call: Call) -> list[Any]:
    q, k, v, bias, padding, more, past_k, past_v = (call.optional(i) for i in range(8))
    if call.optional(8) is not None or call.optional(9) is not None:
        raise Unproved("MultiHeadAttention with a shared buffer")
    heads, m = call.attribute("num_heads"), call.arithmetic()
    if k is None:
        q, k, v = (_part(q, i) for i in range(3))
    elif v is None:
        k, v = _part(k, 0), _part(k, 1)
    in_heads = k.ndim == 4
    if bias is not None:
        width = q.shape[-1]
        q = _kept(call, m.add(q, bias.moved(lambda a: a[:width])))
        if not in_heads:
            k = _kept(call, m.add(k, bias.moved(lambda a: a[width : 2 * width])))
            v = _kept(call, m.add(v, bias.moved(lambda a: a[2 * width :])))
    q = apart(q, heads)
    if not in_heads:
        k, v = apart(k, heads), apart(v, heads)
    k, v = left_padded_cache(past_k, k), left_padded_cache(past_v, v)
    masks = _masks(call, q, k, 0 if past_k is None else past_k.shape[2], padding, more)
    y, scores = attend(call, (q, k, v), masks, call.attribute("scale"))
    return [merged(y), k, v, scores[1]][: call.outputs]


def _part(packed: Bounded, index: int) -> Bounded:
    """Return q, k or v of [batch, rows, heads, 3, size] as rows of all heads."""
    return packed.moved(lambda v: v[:, :, :, index].reshape(v.shape[0], v.shape[1], -1))


def _masks(call: Call, q: Bounded, k: Bounded, past: int, padding: Any, more: Any) -> list[Any]:
    m = call.arithmetic()
    rows, keys = q.shape[2], k.shape[2]
    masks: list[Any] = []
    total = more
    if padding is not None:
        hidden = _hidden(call, padding, q.shape[0], keys, m)
        total = hidden if more is None else _kept(call, m.add(more, hidden))
    if total is not None:
        masks.append(Bounded(total.value, total.error, q.dtype))
    if call.attribute("unidirectional", 0):
        masks.append(np.arange(keys) > np.arange(rows)[:, None] + past)
    return masks


@rule("Attention", domain=DOMAIN)
def _self_attention(call: Call) -> list[Any]:
    x, weights = call.input(0), call.input(1)
    bias, padding, past, more = (call.optional(i) for i in range(2, 6))
    if call.attribute("do_rotary", 0) or call.optional(6) is not None:
        raise Unproved("Attention with a rotation, or with a shared buffer")
    m, heads, width = call.arithmetic(), call.attribute("num_heads"), weights.shape[1]
    sizes = call.attribute("qkv_hidden_sizes") or [width // 3] * 3
    rows = _kept(call, contracted(np.matmul, x, weights, x.shape[-1], call.types, x.dtype))
    if bias is not None:
        rows = _kept(call, m.add(rows, bias))
    ends = np.cumsum([0, *sizes])
    q, k, v = (apart(rows.moved(lambda a, i=i: a[..., ends[i] : ends[i + 1]]), heads) for i in range(3))  # type: ignore[misc]
    if past is not None:
        k, v = (left_padded_cache(past.moved(lambda a, i=i: a[i]), one) for i, one in enumerate((k, v)))
    if padding is not None and padding.ndim == 4:
        first = k.shape[2] - q.shape[2]
        padding = padding.moved(lambda a: a[:, 0, first : k.shape[2], : k.shape[2]])
    y, _ = attend(call, (q, k, v), _masks(call, q, k, k.shape[2] - q.shape[2], padding, more), call.attribute("scale"))
    return [merged(y), joined([k, v], 0, new=True)][: call.outputs]


@rule("GroupQueryAttention", domain=DOMAIN)
def _grouped(call: Call) -> list[Any]:
    if any(call.optional(i) is not None for i in range(12, 16)):
        raise Unproved("this form of GroupQueryAttention")
    if call.outputs > 3:
        raise Unproved("GroupQueryAttention with its scores")
    heads, groups = call.attribute("num_heads"), call.attribute("kv_num_heads")
    q, k, v = call.input(0), call.optional(1), call.optional(2)
    if k is None:
        every = apart(q, heads + 2 * groups)
        q, k, v = (
            every.moved(lambda a, b=b, e=e: a[:, b:e])  # type: ignore[misc]
            for b, e in ((0, heads), (heads, heads + groups), (heads + groups, heads + 2 * groups))
        )
    else:
        q, k, v = apart(q, heads), apart(k, groups), apart(v, groups)
    lengths, total = call.exact(5).reshape(-1).astype(np.int64), int(call.exact(6).reshape(-1)[0])
    rows = q.shape[2]
    first = np.zeros_like(lengths) if total == rows else lengths + 1 - rows
    if call.attribute("do_rotary", 0):
        places = call.optional(9)
        at = call.exact(9) if places is not None else first[:, None] + np.arange(rows)
        where = Bounded(np.broadcast_to(at, (q.shape[0], rows)).astype(np.int64), None, np.int64)
        inner = Call("RotaryEmbedding", [q], {"interleaved": call.attribute("rotary_interleaved", 0)}, 23, call.types)
        size = 2 * call.input(7).shape[-1]
        q, k = (_kept(call, rotated(inner, one, (call.input(7), call.input(8)), where, 0, size)) for one in (q, k))
    keys, values = _cache(call.optional(3), k, total, first), _cache(call.optional(4), v, total, first)
    masks = _grouped_masks(call, first, rows, keys.shape[2])
    softcap, sink = call.attribute("softcap", 0.0), call.optional(11)
    if sink is None and call.attribute("smooth_softmax", 0) > 0:
        sink = Bounded(np.zeros(heads), None, q.dtype)
    y, _ = attend(call, (q, keys, values), masks, call.attribute("scale"), softcap, sink and _kept(call, sink))
    return [merged(y), keys, values][: call.outputs]


def _grouped_masks(call: Call, first: Any, rows: int, keys: int) -> list[Any]:
    place = (first.reshape(-1, 1, 1, 1) + np.arange(rows)[:, None]).astype(np.int64)
    masks: list[Any] = [np.arange(keys) >= first.reshape(-1, 1, 1, 1) + rows]
    if call.attribute("causal", 1):
        masks.append(np.arange(keys) > place)
    if (window := int(call.attribute("local_window_size", -1))) > 0:
        masks.append(np.arange(keys) <= place - window)
    if (bias := call.optional(10)) is not None:
        missing = keys - bias.shape[-1]
        masks.append(bias.moved(lambda a: np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, max(missing, 0))])))
    return masks


def _cache(past: Bounded | None, now: Bounded, total: int, first: Any) -> Bounded:
    """Return the KV cache with the new rows written at each sequence's length."""
    if past is None:
        return now
    missing = max(total - past.shape[2], 0)
    wide = past.moved(lambda a: np.pad(a, [(0, 0), (0, 0), (0, missing), (0, 0)]))
    value, error = np.array(wide.value), np.array(wide.errors())
    for image, begin in enumerate(first):
        value[image, :, begin : begin + now.shape[2]] = now.value[image]
        error[image, :, begin : begin + now.shape[2]] = now.errors()[image]
    return Bounded(value, error, now.dtype, past.stored and now.stored)
