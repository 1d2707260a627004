"""Error-bound rules for ONNX Runtime's com.microsoft operators, written from their documentation."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .attention import (
    allow_intermediate_rounding,
    append_to_cache,
    apply_rope,
    compute_attention,
    merge_heads,
    split_heads,
)
from .bounded_tensor import (
    RULES,
    BoundedArithmetic,
    BoundedTensor,
    OperatorCall,
    UnprovedError,
    evaluate_operator,
    rule,
)
from .data_movement import concat_values
from .elementwise import gelu
from .gemm_conv import evaluate_bilinear, evaluate_integer_bilinear, subtract_zero_point, sum_axes
from .math_functions import apply_function
from .normalization import compute_inverse_std, normalize

DOMAIN = "com.microsoft"


@rule("Gelu", "FastGelu", "BiasGelu", "QuickGelu", domain=DOMAIN)
def _evaluate_gelu_variant(call: OperatorCall) -> list[Any]:
    x, m = call.input(0), call.make_arithmetic()
    if call.op == "QuickGelu":
        return [m.mul(x, apply_function("sigmoid", m.mul(m.make_constant(call.attribute("alpha", 1.702)), x), m))]
    if call.optional_input(1) is not None:
        x = allow_intermediate_rounding(call, m.add(x, call.input(1)))
    return [gelu(x, m, "tanh" if call.op == "FastGelu" else "none")]


@rule("FusedMatMul", domain=DOMAIN)
def _evaluate_fused_matmul(call: OperatorCall) -> list[Any]:
    a, b, m = call.input(0), call.input(1), call.make_arithmetic()
    if call.attribute("transBatchA", 0) or call.attribute("transBatchB", 0):
        raise UnprovedError("FusedMatMul with its batch transposed")
    if call.attribute("transA", 0):
        a = a.rearrange(lambda v: np.swapaxes(v, -1, -2) if v.ndim > 1 else v)
    if call.attribute("transB", 0):
        b = b.rearrange(lambda v: np.swapaxes(v, -1, -2) if v.ndim > 1 else v)
    result = evaluate_bilinear(np.matmul, a, b, a.shape[-1], call.types, a.dtype)
    alpha = call.attribute("alpha", 1.0)
    return [result if alpha == 1 else m.mul(allow_intermediate_rounding(call, result), m.make_constant(alpha))]


def _apply_activation(call: OperatorCall, x: BoundedTensor, parameters: list[float]) -> BoundedTensor:
    name = str(call.attribute("activation", ""))
    if not name:
        return x
    x = allow_intermediate_rounding(call, x)
    if name == "Clip":
        m = call.make_arithmetic(x.dtype)
        ends = [m.make_constant(limit) for limit in parameters]
        return evaluate_operator("Clip", [x, *ends], like=call)[0]  # type: ignore[no-any-return]
    names = {"LeakyRelu": ["alpha"], "HardSigmoid": ["alpha", "beta"]}.get(name, [])
    if name not in ("LeakyRelu", "HardSigmoid", "Relu", "Sigmoid", "Tanh"):
        raise UnprovedError(f"the activation {name} of {call.op}")
    return evaluate_operator(name, [x], dict(zip(names, parameters, strict=False)), call)[0]  # type: ignore[no-any-return]


@rule("FusedConv", domain=DOMAIN)
def _evaluate_fused_conv(call: OperatorCall) -> list[Any]:
    plain = {key: value for key, value in call.attributes.items() if not key.startswith("activation")}
    result = evaluate_operator("Conv", call.inputs[:3], plain, call)[0]
    if call.optional_input(3) is not None:
        result = call.make_arithmetic().add(allow_intermediate_rounding(call, result), call.input(3))
    return [_apply_activation(call, result, [float(x) for x in call.attribute("activation_params") or []])]


@rule("FusedGemm", domain=DOMAIN)
def _evaluate_fused_gemm(call: OperatorCall) -> list[Any]:
    plain = {key: value for key, value in call.attributes.items() if not key.startswith("activation")}
    result = evaluate_operator("Gemm", call.inputs, plain, call)[0]
    names = [f"activation_{name}" for name in ("alpha", "beta", "gamma")]
    return [_apply_activation(call, result, [float(call.attribute(name)) for name in names if name in call.attributes])]


@rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=DOMAIN)
def _evaluate_skip_layer_norm(call: OperatorCall) -> list[Any]:
    simplified = call.op == "SkipSimplifiedLayerNormalization"
    m = call.make_arithmetic()
    bias = call.optional_input(3 if simplified else 4)
    values = [call.input(0), call.input(1), *([bias] if bias is not None else [])]
    total = allow_intermediate_rounding(
        call, functools.reduce(lambda a, b: allow_intermediate_rounding(call, m.add(a, b)), values)
    )
    result = [
        *_normalize(call, total, call.input(2), None if simplified else call.optional_input(3), simplified, 1e-12)
    ]
    return [*result, total][: call.outputs]


def _normalize(
    call: OperatorCall,
    x: BoundedTensor,
    scale: BoundedTensor,
    bias: BoundedTensor | None,
    simplified: bool,
    epsilon: float,
) -> list[BoundedTensor]:
    """Return the normalised tensor, the mean and 1 / standard deviation, along the last axis."""
    m = call.make_arithmetic(x.dtype)
    node_epsilon = call.attribute("epsilon", epsilon)
    axes = (x.ndim - 1,)
    if simplified:
        squares = m.div(sum_axes(m.mul(x, x), axes, call.types), m.wrap(float(x.shape[-1])))
        mean, inverse = m.wrap(np.zeros(squares.shape)), compute_inverse_std(call, squares, node_epsilon)
        y = m.mul(x, inverse)
    else:
        y, mean, inverse = normalize(call, x, axes, node_epsilon)
    y = m.mul(y, scale)
    if bias is not None:
        y = m.add(y, bias)
    return [BoundedTensor(y.value, y.error, x.dtype), mean, inverse]


@rule("SimplifiedLayerNormalization", domain=DOMAIN)
def _evaluate_simplified_layer_norm(call: OperatorCall) -> list[Any]:
    return RULES["RMSNormalization"](call)


@rule("EmbedLayerNormalization", domain=DOMAIN)
def _evaluate_embed_layer_norm(call: OperatorCall) -> list[Any]:
    ids, segments, word_embeddings, position_embeddings, segment_embeddings, gamma, beta, mask, position_ids = (
        call.optional_input(i) for i in range(9)
    )
    word_ids = call.get_decided_input(0)
    positions = (
        call.get_decided_input(8) if position_ids is not None else np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    )
    m = call.make_arithmetic(word_embeddings.dtype)
    embeddings = [
        word_embeddings.rearrange(lambda v: v[word_ids]),
        position_embeddings.rearrange(lambda v: v[positions]),
    ]
    if segments is not None:
        segment_ids = call.get_decided_input(1)
        embeddings.append(segment_embeddings.rearrange(lambda v: v[segment_ids]))
    total = functools.reduce(lambda a, b: allow_intermediate_rounding(call, m.add(a, b)), embeddings)
    y = _normalize(call, total, gamma, beta, False, 1e-12)[0]
    counts = (
        np.zeros(ids.shape[0], np.int32) if mask is None else call.get_decided_input(7).sum(axis=1).astype(np.int32)
    )
    return [y, BoundedTensor(counts, None, np.int32), total][: max(call.outputs, 1)]


# ---- quantised operators


def _dequantize_input(call: OperatorCall, first: int) -> BoundedTensor:
    inputs = [call.optional_input(first + i) for i in range(3)]
    return allow_intermediate_rounding(call, evaluate_operator("DequantizeLinear", inputs, like=call)[0])


def _quantize_output(call: OperatorCall, value: BoundedTensor, first: int) -> list[Any]:
    inputs = [allow_intermediate_rounding(call, value), call.input(first), call.optional_input(first + 1)]
    return [evaluate_operator("QuantizeLinear", inputs, like=call)[0]]


@rule("QLinearAdd", "QLinearMul", domain=DOMAIN)
def _evaluate_qlinear_binary(call: OperatorCall) -> list[Any]:
    result = evaluate_operator(
        call.op.removeprefix("QLinear"), [_dequantize_input(call, 0), _dequantize_input(call, 3)], like=call
    )[0]
    return _quantize_output(call, result, 6)


@rule(
    "QLinearSigmoid",
    "QLinearLeakyRelu",
    "QLinearAveragePool",
    "QLinearGlobalAveragePool",
    "QLinearSoftmax",
    domain=DOMAIN,
)
def _evaluate_qlinear_unary(call: OperatorCall) -> list[Any]:
    if call.attribute("channels_last", 0):
        raise UnprovedError(f"{call.op} with channels last")
    plain_attributes = {key: value for key, value in call.attributes.items() if key not in ("channels_last", "opset")}
    inner = OperatorCall(
        call.op.removeprefix("QLinear"),
        [_dequantize_input(call, 0)],
        plain_attributes,
        int(call.attribute("opset", 23)),
        call.types,
    )
    return _quantize_output(call, RULES[inner.op](inner)[0], 3)


@rule("QLinearConcat", domain=DOMAIN)
def _evaluate_qlinear_concat(call: OperatorCall) -> list[Any]:
    operands = [_dequantize_input(call, first) for first in range(2, len(call), 3)]
    return _quantize_output(call, concat_values(operands, call.attribute("axis", 0)), 0)


@rule("QLinearWhere", domain=DOMAIN)
def _evaluate_qlinear_where(call: OperatorCall) -> list[Any]:
    return _quantize_output(
        call,
        evaluate_operator("Where", [call.input(0), _dequantize_input(call, 1), _dequantize_input(call, 4)], like=call)[
            0
        ],
        7,
    )


@rule("QGemm", domain=DOMAIN)
def _evaluate_qgemm(call: OperatorCall) -> list[Any]:
    plain = {key: value for key, value in call.attributes.items() if key in ("alpha", "transA", "transB")}
    m = call.make_arithmetic(np.float32)
    result = evaluate_operator("Gemm", [_dequantize_input(call, 0), _dequantize_input(call, 3)], plain, call)[0]
    if (bias := call.optional_input(6)) is not None:
        scale = allow_intermediate_rounding(call, m.mul(call.input(1), call.input(4)))
        bias_value = m.mul(
            allow_intermediate_rounding(call, BoundedTensor(bias.value.astype(np.float64), None, np.float32)), scale
        )
        result = m.add(allow_intermediate_rounding(call, result), allow_intermediate_rounding(call, bias_value))
    return _quantize_output(call, result, 7) if call.optional_input(7) is not None else [result]


def _multiply_quantized(call: OperatorCall, a: list[Any], b: list[Any], bias: BoundedTensor | None) -> BoundedTensor:
    """Return the product of two quantised matrices, each given with its scale and zero point."""
    m = call.make_arithmetic(np.float32)
    total = evaluate_integer_bilinear(np.matmul, subtract_zero_point(a[0], a[2]), subtract_zero_point(b[0], b[2]))
    whole = allow_intermediate_rounding(call, BoundedTensor(total.value.astype(np.float64), total.error, np.float32))
    result = m.mul(whole, allow_intermediate_rounding(call, m.mul(a[1], b[1])))
    return result if bias is None else m.add(allow_intermediate_rounding(call, result), bias)


@rule("MatMulIntegerToFloat", domain=DOMAIN)
def _evaluate_matmul_integer_to_float(call: OperatorCall) -> list[Any]:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = (call.optional_input(i) for i in range(7))
    return [_multiply_quantized(call, [a, a_scale, a_zero], [b, b_scale, b_zero], bias)]


@rule("DynamicQuantizeMatMul", domain=DOMAIN)
def _evaluate_dynamic_quantize_matmul(call: OperatorCall) -> list[Any]:
    a, b, b_scale, b_zero, bias = (call.optional_input(i) for i in range(5))
    y, scale, zero = evaluate_operator("DynamicQuantizeLinear", [a], like=call)
    return [_multiply_quantized(call, [y, allow_intermediate_rounding(call, scale), zero], [b, b_scale, b_zero], bias)]


def _unpack_quantized(packed: Any, bits: int, num_rows: int) -> Any:
    """Unpack 4- or 8-bit elements; the first element is in the low bits."""
    flat = packed.reshape(num_rows, -1)
    return flat if bits == 8 else np.stack([flat & 15, flat >> 4], -1).reshape(num_rows, -1)


@rule("MatMulNBits", domain=DOMAIN)
def _evaluate_matmul_n_bits(call: OperatorCall) -> list[Any]:
    a, packed, scales, zeros = call.input(0), call.input(1), call.input(2), call.optional_input(3)
    n, k, block, bits = (int(call.attribute(name, 4)) for name in ("N", "K", "block_size", "bits"))
    if call.optional_input(4) is not None or bits not in (4, 8) or (zeros is not None and zeros.dtype != np.uint8):
        raise UnprovedError("this form of MatMulNBits")
    blocks = -(-k // block)
    codes = _unpack_quantized(packed.value.view(np.uint8), bits, n)[:, :k].astype(np.float64)
    middle = np.full((n, blocks), float(1 << (bits - 1)))
    points = middle if zeros is None else _unpack_quantized(zeros.value, bits, n)[:, :blocks].astype(np.float64)
    point_per_element = np.repeat(points, block, 1)[:, :k]
    m = call.make_arithmetic()
    factor = scales.rearrange(lambda v: np.repeat(v.reshape(n, blocks), block, 1)[:, :k])
    # A kernel may dequantise in float32 on the fly, or read a dequantised matrix from storage.
    weights = allow_intermediate_rounding(call, m.mul(m.wrap(codes - point_per_element), factor))
    result = evaluate_bilinear(np.matmul, a, weights.rearrange(np.transpose), k, call.types, a.dtype)
    bias = call.optional_input(5)
    return [result if bias is None else m.add(allow_intermediate_rounding(call, result), bias)]


# ---- attention


@rule("RotaryEmbedding", domain=DOMAIN)
def _evaluate_rotary_embedding(call: OperatorCall) -> list[Any]:
    x, position_ids, cosines, sines = (call.input(i) for i in range(4))
    if call.attribute("scale", 1.0) != 1 or call.attribute("is_packed_batching", 0):
        raise UnprovedError("this form of RotaryEmbedding")
    heads, flat = call.attribute("num_heads", 0), x.ndim == 3
    if flat and not heads:
        heads = x.shape[2] // (2 * cosines.shape[1])
    num_tokens = x.shape[1 if flat else 2]
    ids = call.require_decided(position_ids, "the positions").astype(np.int64)
    if ids.ndim == 1:
        ids = np.broadcast_to(ids.reshape(-1, 1) + np.arange(num_tokens), (x.shape[0], num_tokens))
    rotary_dim = call.attribute("rotary_embedding_dim", 0) or 2 * cosines.shape[-1]
    return [apply_rope(call, x, (cosines, sines), BoundedTensor(ids, None, np.int64), heads, rotary_dim)]


def _make_padding_bias(
    call: OperatorCall, mask: BoundedTensor, batch: int, keys: int, m: BoundedArithmetic
) -> BoundedTensor:
    """Return the bias that hides padding keys. mask: sequence lengths, end and start positions, or a nonzero value for each visible key."""
    value = call.require_decided(mask, "the mask")
    if mask.ndim == 1:
        positions = np.arange(keys)
        is_visible = positions < value[:batch].reshape(-1, 1, 1, 1)
        if value.size == 2 * batch:
            is_visible = is_visible & (positions >= value[batch:].reshape(-1, 1, 1, 1))
    elif mask.ndim in (2, 3):
        is_visible = (value != 0).reshape(value.shape[0], 1, *([1] if mask.ndim == 2 else []), *value.shape[1:])
    else:
        raise UnprovedError(f"a mask of rank {mask.ndim}")
    filled = m.make_constant(float(np.float32(call.attribute("mask_filter_value", -10000.0))))
    return BoundedTensor(np.where(is_visible, 0.0, filled.value), None, np.float32)


@rule("MultiHeadAttention", domain=DOMAIN)
def _evaluate_multi_head_attention(call: OperatorCall) -> list[Any]:
    q, k, v, bias, padding, more, past_k, past_v = (call.optional_input(i) for i in range(8))
    if call.optional_input(8) is not None or call.optional_input(9) is not None:
        raise UnprovedError("MultiHeadAttention with a shared buffer")
    heads, m = call.attribute("num_heads"), call.make_arithmetic()
    if k is None:
        q, k, v = (_split_packed_qkv(q, i) for i in range(3))
    elif v is None:
        k, v = _split_packed_qkv(k, 0), _split_packed_qkv(k, 1)
    in_heads = k.ndim == 4
    if bias is not None:
        width = q.shape[-1]
        q = allow_intermediate_rounding(call, m.add(q, bias.rearrange(lambda a: a[:width])))
        if not in_heads:
            k = allow_intermediate_rounding(call, m.add(k, bias.rearrange(lambda a: a[width : 2 * width])))
            v = allow_intermediate_rounding(call, m.add(v, bias.rearrange(lambda a: a[2 * width :])))
    q = split_heads(q, heads)
    if not in_heads:
        k, v = split_heads(k, heads), split_heads(v, heads)
    k, v = append_to_cache(past_k, k), append_to_cache(past_v, v)
    masks = _make_attention_masks(call, q, k, 0 if past_k is None else past_k.shape[2], padding, more)
    y, scores = compute_attention(call, (q, k, v), masks, call.attribute("scale"))
    return [merge_heads(y), k, v, scores[2]][: call.outputs]


def _split_packed_qkv(packed: BoundedTensor, index: int) -> BoundedTensor:
    """Return q, k or v (index 0, 1, 2) of a packed [batch, tokens, heads, 3, size] as [batch, tokens, heads * size]."""
    return packed.rearrange(lambda v: v[:, :, :, index].reshape(v.shape[0], v.shape[1], -1))


def _make_attention_masks(
    call: OperatorCall, q: BoundedTensor, k: BoundedTensor, past: int, padding: Any, more: Any
) -> list[Any]:
    m = call.make_arithmetic()
    queries, keys = q.shape[2], k.shape[2]
    masks: list[Any] = []
    total = more
    if padding is not None:
        hidden = _make_padding_bias(call, padding, q.shape[0], keys, m)
        total = hidden if more is None else allow_intermediate_rounding(call, m.add(more, hidden))
    if total is not None:
        masks.append(BoundedTensor(total.value, total.error, q.dtype))
    if call.attribute("unidirectional", 0):
        masks.append(np.arange(keys) > np.arange(queries)[:, None] + past)
    return masks


@rule("Attention", domain=DOMAIN)
def _evaluate_packed_attention(call: OperatorCall) -> list[Any]:
    x, weights = call.input(0), call.input(1)
    bias, padding, past, more = (call.optional_input(i) for i in range(2, 6))
    if call.attribute("do_rotary", 0) or call.optional_input(6) is not None:
        raise UnprovedError("Attention with a rotation, or with a shared buffer")
    m, heads, width = call.make_arithmetic(), call.attribute("num_heads"), weights.shape[1]
    sizes = call.attribute("qkv_hidden_sizes") or [width // 3] * 3
    qkv = allow_intermediate_rounding(call, evaluate_bilinear(np.matmul, x, weights, x.shape[-1], call.types, x.dtype))
    if bias is not None:
        qkv = allow_intermediate_rounding(call, m.add(qkv, bias))
    ends = np.cumsum([0, *sizes])
    q, k, v = (split_heads(qkv.rearrange(lambda a, i=i: a[..., ends[i] : ends[i + 1]]), heads) for i in range(3))  # type: ignore[misc]
    if past is not None:
        k, v = (append_to_cache(past.rearrange(lambda a, i=i: a[i]), tensor) for i, tensor in enumerate((k, v)))
    if padding is not None and padding.ndim == 4:
        first = k.shape[2] - q.shape[2]
        padding = padding.rearrange(lambda a: a[:, 0, first : k.shape[2], : k.shape[2]])
    y, _ = compute_attention(
        call,
        (q, k, v),
        _make_attention_masks(call, q, k, k.shape[2] - q.shape[2], padding, more),
        call.attribute("scale"),
    )
    return [merge_heads(y), concat_values([k, v], 0, new_axis=True)][: call.outputs]


@rule("GroupQueryAttention", domain=DOMAIN)
def _evaluate_group_query_attention(call: OperatorCall) -> list[Any]:
    if any(call.optional_input(i) is not None for i in range(12, 16)):
        raise UnprovedError("this form of GroupQueryAttention")
    if call.outputs > 3:
        raise UnprovedError("GroupQueryAttention with its scores")
    heads = call.attribute("num_heads")
    q, k, v = _split_group_query_heads(call, heads, call.attribute("kv_num_heads"))
    lengths = call.get_decided_input(5).reshape(-1).astype(np.int64)
    total = int(call.get_decided_input(6).reshape(-1)[0])
    num_tokens = q.shape[2]
    first = np.zeros_like(lengths) if total == num_tokens else lengths + 1 - num_tokens
    if call.attribute("do_rotary", 0):
        q, k = (_apply_group_query_rope(call, tensor, first) for tensor in (q, k))
    keys = _update_kv_cache(call.optional_input(3), k, total, first)
    values = _update_kv_cache(call.optional_input(4), v, total, first)
    masks = _make_group_query_masks(call, first, num_tokens, keys.shape[2])
    softcap, sink = call.attribute("softcap", 0.0), call.optional_input(11)
    if sink is None and call.attribute("smooth_softmax", 0) > 0:
        sink = BoundedTensor(np.zeros(heads), None, q.dtype)
    sink = sink and allow_intermediate_rounding(call, sink)
    y, _ = compute_attention(call, (q, keys, values), masks, call.attribute("scale"), softcap, sink)
    return [merge_heads(y), keys, values][: call.outputs]


def _split_group_query_heads(call: OperatorCall, heads: int, kv_heads: int) -> list[BoundedTensor]:
    """Return q, k and v as [batch, heads, tokens, head_size]; they may be packed in input 0."""
    q, k, v = call.input(0), call.optional_input(1), call.optional_input(2)
    if k is not None:
        return [split_heads(q, heads), split_heads(k, kv_heads), split_heads(v, kv_heads)]
    packed = split_heads(q, heads + 2 * kv_heads)
    ends = np.cumsum([0, heads, kv_heads, kv_heads])
    return [packed.rearrange(lambda a, i=i: a[:, ends[i] : ends[i + 1]]) for i in range(3)]  # type: ignore[misc]


def _apply_group_query_rope(call: OperatorCall, x: BoundedTensor, first: Any) -> BoundedTensor:
    """Apply RoPE to q or k. first: position of the first token of each sequence."""
    tokens = x.shape[2]
    ids = first[:, None] + np.arange(tokens)
    if call.optional_input(9) is not None:
        ids = call.get_decided_input(9)
    position_ids = BoundedTensor(np.broadcast_to(ids, (x.shape[0], tokens)).astype(np.int64), None, np.int64)
    inner = OperatorCall(
        "RotaryEmbedding", [x], {"interleaved": call.attribute("rotary_interleaved", 0)}, 23, call.types
    )
    cosines, sines = call.input(7), call.input(8)
    rotated = apply_rope(inner, x, (cosines, sines), position_ids, 0, 2 * cosines.shape[-1])
    return allow_intermediate_rounding(call, rotated)


def _make_group_query_masks(call: OperatorCall, first: Any, queries: int, keys: int) -> list[Any]:
    positions = (first.reshape(-1, 1, 1, 1) + np.arange(queries)[:, None]).astype(np.int64)
    masks: list[Any] = [np.arange(keys) >= first.reshape(-1, 1, 1, 1) + queries]
    if call.attribute("causal", 1):
        masks.append(np.arange(keys) > positions)
    if (window := int(call.attribute("local_window_size", -1))) > 0:
        masks.append(np.arange(keys) <= positions - window)
    if (bias := call.optional_input(10)) is not None:
        missing = keys - bias.shape[-1]
        masks.append(bias.rearrange(lambda a: np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, max(missing, 0))])))
    return masks


def _update_kv_cache(past: BoundedTensor | None, new: BoundedTensor, total: int, first: Any) -> BoundedTensor:
    """Return the KV cache with the new tokens written after each sequence's cached tokens."""
    if past is None:
        return new
    missing = max(total - past.shape[2], 0)
    padded = past.rearrange(lambda a: np.pad(a, [(0, 0), (0, 0), (0, missing), (0, 0)]))
    value, error = np.array(padded.value), np.array(padded.get_errors())
    for batch, begin in enumerate(first):
        value[batch, :, begin : begin + new.shape[2]] = new.value[batch]
        error[batch, :, begin : begin + new.shape[2]] = new.get_errors()[batch]
    return BoundedTensor(value, error, new.dtype, past.stored and new.stored)
