"""Translate attention and rotary embedding of ONNX Runtime's com.microsoft domain to ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.element_types import Array
from ...base.errors import graph_error
from ..build.builder import Builder
from ..file.recipe import NodeRecipe, get_integers, get_number

if TYPE_CHECKING:
    from ..._pumice import Value

INT64 = 7  # TensorProto.DataType
STATIC_KV_CACHE = "pumice.fixed_room"  # attribute of GroupQueryAttention: see _get_cache_positions
INT8_CACHE = "pumice.int8_cache"  # attribute that accompanies STATIC_KV_CACHE for int8 caches: see _translate_int8_gqa
_ZERO, _ONE = np.array(0), np.array(1)
_ARRAY_0, _ARRAY_1, _ARRAY_MINUS_1 = np.array([0]), np.array([1]), np.array([-1])
_MERGED_SHAPE = np.array([0, 0, -1])  # the shape [batch, seq, heads * head_size]


class _AttentionTranslator:
    """A node being translated, and the builder that receives its nodes."""

    def __init__(self, builder: Builder, node: NodeRecipe) -> None:
        self.builder = builder
        self.node = node

    def add(self, op: str, *inputs: Value | Array | None, **attributes: Any) -> Value:
        return self.builder.add_helper(self.node, op, *inputs, **attributes)

    def reject(self, reason: str) -> Exception:
        return self.builder.reject(self.node, reason)

    def optional_input(self, index: int) -> Value | None:
        name = self.node.inputs[index] if index < len(self.node.inputs) else ""
        return self.builder.tensor(name) if name else None

    def required_input(self, index: int, label: str) -> Value:
        value = self.optional_input(index)
        if value is None:
            expected = f"expected {label} as input {index} of {self.node.op}"
            raise graph_error("node", self.node.name, f"{expected}, given none")
        return value

    def reject_inputs(self, **names: int) -> None:
        for name, index in names.items():
            if self.optional_input(index) is not None:
                raise self.reject(f"the input '{name}'")

    def reject_attributes(self, *names: str) -> None:
        for name in names:
            if self.node.attributes.get(name, 0) not in (0, "NONE"):
                raise self.reject(f"{name}={self.node.attributes[name]}")

    def reject_past_without_present(self, *past: Value | None) -> None:
        """Raise Refused for a past without both present outputs: ONNX Runtime then reads memory that it has not written."""
        if any(x is not None for x in past) and len([name for name in self.node.outputs[1:3] if name]) < 2:
            raise self.reject(
                "past_key and past_value without the outputs present_key and present_value; add both outputs"
            )

    def rank(self, value: Value, label: str) -> int:
        if value.shape is None:
            raise self.reject(f"{label} of unknown rank")
        return len(value.shape)

    def size(self, value: Value, axis: int, label: str) -> int:
        size = None if value.shape is None else value.shape[axis]
        if size is None:
            raise self.reject(f"{label} of unknown size")
        return size

    def heads(self, name: str) -> int:
        count = int(get_number(self.node, name, 0))
        if count < 1:
            raise graph_error("node", self.node.name, f"attribute '{name}': expected at least 1, given {count}")
        return count

    def length(self, value: Value, axis: int) -> Value:
        """Return the length of an axis as int64[1]."""
        return self.add("Gather", self.add("Shape", value), np.array([axis]))

    def split_heads(self, rows: Value, heads: int) -> Value:
        """Split heads: [batch, seq, heads * head_size] to [batch, heads, seq, head_size]."""
        return self.add("Transpose", self.add("Reshape", rows, np.array([0, 0, heads, -1])), perm=[0, 2, 1, 3])

    def merge_heads(self, heads: Value) -> Value:
        return self.add("Reshape", self.add("Transpose", heads, perm=[0, 2, 1, 3]), _MERGED_SHAPE)

    def extract_packed(self, packed: Value, index: int) -> Value:
        """Extract one part of [batch, seq, heads, parts, head_size] as [batch, seq, heads * head_size]."""
        return self.add("Reshape", self.add("Gather", packed, np.array(index), axis=3), _MERGED_SHAPE)

    def slice_axis(self, value: Value, begin: int, size: int, axis: int = -1) -> Value:
        return self.add("Slice", value, np.array([begin]), np.array([begin + size]), np.array([axis]))

    def positions(self, count: Value) -> Value:
        """Return 0, 1, ... as int64[count]."""
        return self.add("Range", _ZERO, self.add("Reshape", count, np.zeros(0, np.int64)), _ONE)

    def as_int64(self, value: Value) -> Value:
        flat = self.add("Reshape", value, _ARRAY_MINUS_1)
        return flat if flat.dtype == "int64" else self.add("Cast", flat, to=INT64)

    @property
    def scale(self) -> dict[str, float]:
        scale = get_number(self.node, "scale", 0.0)
        return {"scale": scale} if scale else {}

    # ---- masks

    def additive_mask(self, mask: Value, batch: Value, keys: Value, like: Value) -> Value:
        """Return the additive mask [batch, 1, 1 or seq, keys]: 0 for visible keys, else mask_filter_value.

        A mask of rank 1 holds lengths (see _mask_from_lengths); other masks are non-zero for visible keys.
        """
        rank = self.rank(mask, "a mask")
        if rank == 1:
            count, num_sequences = (mask.shape or [None])[0], (like.shape or [None])[0]
            if count is not None and num_sequences is not None and count not in (num_sequences, 2 * num_sequences):
                raise self.reject(f"a mask of {count} numbers for {num_sequences} images")
            is_visible = self._mask_from_lengths(mask, batch, keys)
        elif rank in (2, 3):
            visible_mask = mask if mask.dtype == "bool" else self.add("Cast", mask, to=9)
            is_visible = self.add("Unsqueeze", visible_mask, np.array([1, 2] if rank == 2 else [1]))
        else:
            raise self.reject(f"a mask of rank {rank}")
        filled = np.array(get_number(self.node, "mask_filter_value", -10000.0), np.float32)
        visible_value, hidden_value = (self.add("CastLike", value, like) for value in (np.array(0, np.float32), filled))
        return self.add("Where", is_visible, visible_value, hidden_value)

    def _mask_from_lengths(self, mask: Value, batch: Value, keys: Value) -> Value:
        """Return the mask of key lengths [batch], or of ends and starts [2 * batch].

        Masks of other lengths are rejected: here if the length is known, otherwise at bind time by nodes that are named after this check.
        """

        def add_checked(op: str, *inputs: Value | Array, **attributes: Any) -> Value:
            name = self.builder.make_helper_name(self.node, "a mask of 1 or 2 numbers for each image")
            value: Value = self.builder.graph.add(op, *inputs, name=name, **attributes)
            return value

        num_sequences = self.add("Max", batch, _ARRAY_1)  # 1 for an empty batch, for which Reshape could not infer -1
        ends = self.as_int64(mask)
        rows = add_checked("Reshape", ends, self.add("Concat", _ARRAY_MINUS_1, num_sequences, axis=0))
        # negative if there are more than two rows; ConstantOfShape then rejects it
        missing = self.add("Sub", np.array([2]), self.length(rows, 0))
        zeros = add_checked("ConstantOfShape", self.add("Concat", missing, num_sequences, axis=0), value=np.array([0]))
        begins = self.add("Gather", self.add("Concat", rows, zeros, axis=0), _ARRAY_1, axis=0)
        first = self.add("Slice", ends, _ARRAY_0, batch, _ARRAY_0)
        column = self.add("Concat", batch, np.array([1, 1, 1]), axis=0)
        key_positions = self.positions(keys)
        after = self.add("GreaterOrEqual", key_positions, self.add("Reshape", begins, np.array([-1, 1, 1, 1])))
        before = self.add("Less", key_positions, add_checked("Reshape", first, column, allowzero=1))
        return self.add("And", after, before)

    def mask(self, padding: Value | None, bias: Value | None, batch: Value, keys: Value, like: Value) -> Value | None:
        if padding is None:
            return bias
        additive_mask = self.additive_mask(padding, batch, keys, like)
        return additive_mask if bias is None else self.add("Add", bias, additive_mask)


def _add_attention(
    ctx: _AttentionTranslator, q: Value, k: Value, v: Value, *extra_inputs: Value | None, **attributes: Any
) -> list[Value]:
    """Add ONNX's Attention with as many outputs as the node has: y, present keys and values, scores."""
    count = max(i for i, name in enumerate(ctx.node.outputs) if name) + 1
    name = ctx.builder.make_helper_name(ctx.node, "Attention")
    outputs = ctx.builder.graph.add("Attention", q, k, v, *extra_inputs, outputs=count, name=name, **attributes)
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


# ---- MultiHeadAttention


def _get_qkv(ctx: _AttentionTranslator) -> tuple[Value, Value, Value]:
    """Return the queries, keys and values, unpacked if they share an input. Raise GraphError if one is missing but not packed."""
    q, k, v = ctx.required_input(0, "queries"), ctx.optional_input(1), ctx.optional_input(2)
    if k is None:
        if v is not None or ctx.rank(q, "queries") != 5:
            raise graph_error("node", ctx.node.name, "expected keys and values, or queries of rank 5 that hold them")
        return ctx.extract_packed(q, 0), ctx.extract_packed(q, 1), ctx.extract_packed(q, 2)
    if v is None:
        if ctx.rank(k, "keys") != 5:
            raise graph_error("node", ctx.node.name, "expected values, or keys of rank 5 that hold them")
        return q, ctx.extract_packed(k, 0), ctx.extract_packed(k, 1)
    return q, k, v


def _translate_mha(builder: Builder, node: NodeRecipe) -> None:
    """Translate MultiHeadAttention. Keys and values may also come with heads split, [batch, heads, seq, head_size]."""
    ctx = _AttentionTranslator(builder, node)
    ctx.reject_inputs(past_sequence_length=8, cache_indirection=9)
    heads = ctx.heads("num_heads")
    q, k, v = _get_qkv(ctx)
    bias, padding, attention_bias, past_k, past_v = (ctx.optional_input(i) for i in range(3, 8))
    ctx.reject_past_without_present(past_k, past_v)
    in_heads = k.shape is not None and len(k.shape) == 4
    if bias is not None:
        q_width = q.shape[-1] if q.shape is not None else None
        width = ctx.size(bias, 0, "a bias") // 3 if q_width is None else q_width
        q = ctx.add("Add", q, ctx.slice_axis(bias, 0, width))
        if not in_heads:  # keys and values with heads split already include their bias
            k = ctx.add("Add", k, ctx.slice_axis(bias, width, width))
            v = ctx.add("Add", v, ctx.add("Slice", bias, np.array([2 * width]), np.array([2**62]), _ARRAY_0))
    if in_heads:
        q = ctx.split_heads(q, heads)
    num_keys = ctx.length(k, 2 if in_heads else 1)
    if past_k is not None:
        num_keys = ctx.add("Add", num_keys, ctx.length(past_k, 2))
    mask = ctx.mask(padding, attention_bias, ctx.length(q, 0), num_keys, q)
    counts = {} if in_heads else {"q_num_heads": heads, "kv_num_heads": heads}
    extra = {"is_causal": int(get_number(node, "unidirectional", 0)), "qk_matmul_output_mode": 2}
    results = _add_attention(ctx, q, k, v, mask, past_k, past_v, **extra, **counts, **ctx.scale)
    if in_heads:
        results[0] = ctx.merge_heads(results[0])
    builder.set_results(node, *results)


# ---- Attention


def _translate_attention(builder: Builder, node: NodeRecipe) -> None:
    """Translate Attention, which projects its input to queries, keys and values with one matrix."""
    ctx = _AttentionTranslator(builder, node)
    ctx.reject_attributes("do_rotary", "past_present_share_buffer")
    ctx.reject_inputs(past_sequence_length=6)
    x, weights = ctx.required_input(0, "rows"), ctx.required_input(1, "weights")
    bias, padding, past, attention_bias = (ctx.optional_input(i) for i in range(2, 6))
    heads, width = ctx.heads("num_heads"), ctx.size(weights, 1, "weights")
    sizes = get_integers(node, "qkv_hidden_sizes") or [width // 3] * 3
    if len(sizes) != 3 or sum(sizes) != width or sizes[0] != sizes[1]:
        raise graph_error("node", node.name, f"expected three sizes of {width} in all, given {sizes}")
    rows = ctx.add("MatMul", x, weights)
    if bias is not None:
        rows = ctx.add("Add", rows, bias)
    begins = np.cumsum([0, *sizes]).tolist()
    q, k, v = (ctx.slice_axis(rows, begin, size) for begin, size in zip(begins, sizes, strict=False))
    num_keys = ctx.length(x, 1)
    past_k = past_v = None
    if past is not None:
        past_k, past_v = (ctx.add("Gather", past, idx, axis=0) for idx in (_ZERO, _ONE))
        num_keys = ctx.add("Add", num_keys, ctx.length(past_k, 2))
    if padding is not None and ctx.rank(padding, "a mask") == 4:
        padding = _slice_mask(ctx, padding, ctx.length(x, 1), num_keys)
    mask = ctx.mask(padding, attention_bias, ctx.length(x, 0), num_keys, x)
    counts = {"q_num_heads": heads, "kv_num_heads": heads, "is_causal": int(get_number(node, "unidirectional", 0))}
    wants_present = len(node.outputs) > 1
    renamed = node._replace(outputs=[node.outputs[0], "k", "v"]) if wants_present else node
    renamed_ctx = _AttentionTranslator(builder, renamed)
    results = _add_attention(renamed_ctx, q, k, v, mask, past_k, past_v, **counts, **ctx.scale)
    if wants_present:
        results[1:] = [ctx.add("Concat", *(ctx.add("Unsqueeze", x, _ARRAY_0) for x in results[1:]), axis=0)]
    builder.set_results(node, *results)


def _slice_mask(ctx: _AttentionTranslator, mask: Value, rows: Value, keys: Value) -> Value:
    """Slice a mask [batch, 1, max, max] to [batch, rows, keys]: the last `rows` of the first `keys` queries, the first `keys` keys."""
    begins = ctx.add("Concat", ctx.add("Sub", keys, rows), _ARRAY_0, axis=0)
    ends = ctx.add("Concat", keys, keys, axis=0)
    return ctx.add("Squeeze", ctx.add("Slice", mask, begins, ends, np.array([2, 3])), _ARRAY_1)


# ---- RotaryEmbedding


def _apply_rope(
    ctx: _AttentionTranslator,
    x: Value,
    positions: Value,
    cos_cache: Value,
    sin_cache: Value,
    attributes: dict[str, int],
) -> Value:
    """Apply ONNX's RotaryEmbedding to x, [batch, heads, seq, head_size] or [batch, seq, hidden]; positions are [batch, seq]."""
    size = None if cos_cache.shape is None else cos_cache.shape[-1]
    rotary_attributes = {"rotary_embedding_dim": 2 * size} if size else {}
    return ctx.add("RotaryEmbedding", x, cos_cache, sin_cache, positions, **{**rotary_attributes, **attributes})


def _translate_rotary(builder: Builder, node: NodeRecipe) -> None:
    """Translate RotaryEmbedding, whose position_ids may hold only the position of the first token."""
    ctx = _AttentionTranslator(builder, node)
    ctx.reject_attributes("is_packed_batching")
    if get_number(node, "scale", 1.0) != 1.0:
        raise ctx.reject(f"scale={node.attributes['scale']}")
    x, positions, cos_cache, sin_cache = builder.require_tensors(node, 4, 4)
    heads, rotary_dim = (int(get_number(node, name, 0)) for name in ("num_heads", "rotary_embedding_dim"))
    flat = ctx.rank(x, "rows") == 3
    if flat and not heads:
        heads = ctx.size(x, 2, "rows") // (2 * ctx.size(cos_cache, 1, "cos_cache"))
    if ctx.rank(positions, "position_ids") == 1:
        positions = _count_positions_from(ctx, positions, ctx.length(x, 0), ctx.length(x, 1 if flat else 2))
    rotary_attributes = {"interleaved": int(get_number(node, "interleaved", 0)), "num_heads": heads if flat else 0}
    if rotary_dim:
        rotary_attributes["rotary_embedding_dim"] = rotary_dim
    builder.set_results(node, _apply_rope(ctx, x, positions, cos_cache, sin_cache, rotary_attributes))


def _count_positions_from(ctx: _AttentionTranslator, first: Value, batch: Value, rows: Value) -> Value:
    """Return positions [batch, seq] that count up from the first token's position, which all sequences may share."""
    position_rows = ctx.add("Add", ctx.add("Reshape", first, np.array([-1, 1])), ctx.positions(rows))
    return ctx.add("Expand", position_rows, ctx.add("Concat", batch, rows, axis=0))


# ---- GroupQueryAttention


def _get_grouped_qkv(ctx: _AttentionTranslator, heads: int, groups: int) -> tuple[Value, Value, Value]:
    """Return queries, keys and values as [batch, heads, seq, head_size]."""
    q, k, v = ctx.required_input(0, "queries"), ctx.optional_input(1), ctx.optional_input(2)
    if (k is None) != (v is None):
        raise graph_error("node", ctx.node.name, "expected both keys and values, or none of them")
    if k is not None and v is not None:
        return ctx.split_heads(q, heads), ctx.split_heads(k, groups), ctx.split_heads(v, groups)
    packed_heads = ctx.split_heads(q, heads + 2 * groups)
    name = ctx.builder.make_helper_name(ctx.node, "Split")
    sizes = np.array([heads, groups, groups])
    qkv: tuple[Value, Value, Value] = ctx.builder.graph.add("Split", packed_heads, sizes, outputs=3, name=name, axis=1)
    return qkv


def _update_cache(
    ctx: _AttentionTranslator, past: Value | None, new_rows: Value, total: Value | None, first: Value
) -> Value:
    """Return the updated KV cache: `new_rows` is written into `past` at position `first` of each sequence.

    The result is extended to at least `total` positions; without a total the cache keeps its capacity.
    """
    if past is None:
        return new_rows
    if total is None:
        return ctx.add("TensorScatter", past, new_rows, first, axis=2)
    shape, rows = ctx.add("Shape", past), ctx.length(past, 2)
    missing = ctx.add("Max", ctx.add("Sub", total, rows), _ARRAY_0)
    padded_shape = ctx.add("ScatterND", shape, np.array([[2]]), missing)
    zeros = ctx.add("CastLike", ctx.add("ConstantOfShape", padded_shape, value=np.zeros(1, np.float32)), past)
    return ctx.add("TensorScatter", ctx.add("Concat", past, zeros, axis=2), new_rows, first, axis=2)


def _get_cache_positions(ctx: _AttentionTranslator, rows: Value) -> tuple[Value, Value | None]:
    """Return the cache position of each sequence's first new token, and the required cache length.

    If pumice.text has added STATIC_KV_CACHE to the node, the positions are input 5 and the cache capacity is fixed;
    input 6 is then each sequence's length including the new tokens.
    """
    if get_number(ctx.node, STATIC_KV_CACHE, 0):
        return ctx.as_int64(ctx.required_input(5, "rows in the cache")), None
    lengths = ctx.as_int64(ctx.required_input(5, "seqlens_k"))
    total = ctx.as_int64(ctx.required_input(6, "total_sequence_length"))
    # The first prompt starts at position 0 in all sequences, including shorter ones.
    starts = ctx.add("Sub", ctx.add("Add", lengths, _ARRAY_1), rows)
    return ctx.add("Where", ctx.add("Equal", total, rows), ctx.add("Sub", starts, starts), starts), total


def _get_attention_sink(ctx: _AttentionTranslator, heads: int) -> Value | Array | None:
    """Return the score of the attention sink, which is an extra key with a zero value, as [1, heads, 1, 1]; None without a sink."""
    optional_input = ctx.optional_input(11)
    shape = np.array([1, heads, 1, 1])
    if optional_input is not None:
        return ctx.add("Reshape", optional_input, shape)
    return np.zeros(shape, np.float32) if get_number(ctx.node, "smooth_softmax", 0) > 0 else None


def _translate_gqa(builder: Builder, node: NodeRecipe) -> None:
    """Translate GroupQueryAttention.

    Each sequence has its own length in the cache: seqlens_k + 1 including the new tokens, which come last.
    """
    ctx = _AttentionTranslator(builder, node)
    if get_number(node, INT8_CACHE, 0):
        _translate_int8_gqa(ctx)
        return
    ctx.reject_inputs(k_scale=12, v_scale=13, q_norm_weight=14, k_norm_weight=15)
    ctx.reject_attributes("qk_output", "sliding_window_cache", "k_quant_type", "v_quant_type")
    heads, groups = ctx.heads("num_heads"), ctx.heads("kv_num_heads")
    q, k, v = _get_grouped_qkv(ctx, heads, groups)
    past_k, past_v = ctx.optional_input(3), ctx.optional_input(4)
    batch, rows = ctx.length(q, 0), ctx.length(q, 2)
    first, total = _get_cache_positions(ctx, rows)
    if get_number(node, "do_rotary", 0):
        positions = ctx.optional_input(9)
        tables = ctx.required_input(7, "cos_cache"), ctx.required_input(8, "sin_cache")
        positions = _count_positions_from(ctx, first, batch, rows) if positions is None else positions
        rotary = {"interleaved": int(get_number(node, "rotary_interleaved", 0))}
        q, k = (_apply_rope(ctx, x, positions, *tables, rotary) for x in (q, k))
    keys, values = _update_cache(ctx, past_k, k, total, first), _update_cache(ctx, past_v, v, total, first)
    present = keys, values
    attributes = _get_gqa_attributes(node)
    window = int(get_number(node, "local_window_size", -1))
    lengths = ctx.add("Add", first, rows) if total is not None else ctx.required_input(6, "rows with those of now")
    mask, sink = ctx.optional_input(10), _get_attention_sink(ctx, heads)
    if sink is not None:
        mask = _prepend_sink_column(ctx, sink, mask, _make_window_mask(ctx, q, keys, first, rows, window))
        keys, values = (_prepend_zero_row(ctx, x) for x in (keys, values))
        lengths = ctx.add("Add", lengths, _ARRAY_1)
    elif window > 0:  # local_window_size includes the token's own key, left_window_size does not
        attributes["left_window_size"] = window - 1
    y = ctx.add("Attention", q, keys, values, mask, None, None, lengths, **attributes, **ctx.scale)
    builder.set_results(node, ctx.merge_heads(y), *present)


def _get_gqa_attributes(node: NodeRecipe) -> dict[str, Any]:
    """Return the attributes of ONNX's Attention for a GroupQueryAttention without a window."""
    return {"softcap": get_number(node, "softcap", 0.0), "is_causal": int(get_number(node, "causal", 1))}


def _translate_int8_gqa(ctx: _AttentionTranslator) -> None:
    """Translate a node to which pumice.text has added int8 caches (inputs 3, 4) and their scales (inputs 12, 13).

    The scales are per token. Outputs 3 and 4 are the scales including the new tokens. See _get_cache_positions for inputs 5 and 6.
    """
    ctx.reject_inputs(q_norm_weight=14, k_norm_weight=15)
    ctx.reject_attributes("qk_output", "sliding_window_cache", "k_quant_type", "v_quant_type")
    heads, groups = ctx.heads("num_heads"), ctx.heads("kv_num_heads")
    q, k, v = _get_grouped_qkv(ctx, heads, groups)
    first = ctx.as_int64(ctx.required_input(5, "rows in the cache"))
    lengths = ctx.required_input(6, "rows with those of now")
    caches = [ctx.required_input(i, "a cache of int8") for i in (3, 4)]
    caches += [ctx.required_input(i, "scales") for i in (12, 13)]
    tables: list[Value] = []
    if get_number(ctx.node, "do_rotary", 0):
        tables = [ctx.required_input(i, name) for i, name in ((7, "cos_cache"), (8, "sin_cache"), (9, "position_ids"))]
    rotary: dict[str, Any] = {"interleaved": int(get_number(ctx.node, "rotary_interleaved", 0))}
    if tables and tables[0].shape is not None and tables[0].shape[-1]:
        rotary["rotary_embedding_dim"] = 2 * tables[0].shape[-1]
    op = "pumice::QuantizedCaches"
    name = ctx.builder.make_helper_name(ctx.node, op)
    q, *present = ctx.builder.graph.add(op, q, k, v, *caches, first, *tables, outputs=5, name=name, **rotary)
    window, sink = int(get_number(ctx.node, "local_window_size", -1)), _get_attention_sink(ctx, heads)
    attributes = _get_gqa_attributes(ctx.node)
    if sink is None:
        if window > 0:
            attributes["left_window_size"] = window - 1
        y = ctx.add("pumice::QuantizedAttention", q, *present, lengths, **attributes, **ctx.scale)
    else:
        keys, values = (_dequantize_cache(ctx, *pair, q) for pair in zip(present[:2], present[2:], strict=True))
        mask = _prepend_sink_column(ctx, sink, None, _make_window_mask(ctx, q, keys, first, ctx.length(q, 2), window))
        keys, values = _prepend_zero_row(ctx, keys), _prepend_zero_row(ctx, values)
        lengths = ctx.add("Add", lengths, _ARRAY_1)
        y = ctx.add("Attention", q, keys, values, mask, None, None, lengths, **attributes, **ctx.scale)
    ctx.builder.set_results(ctx.node, ctx.merge_heads(y), *present)


def _dequantize_cache(ctx: _AttentionTranslator, int8_values: Value, scales: Value, like: Value) -> Value:
    """Dequantise an int8 cache."""
    scales_column = ctx.add("Unsqueeze", ctx.add("CastLike", scales, like), _ARRAY_MINUS_1)
    return ctx.add("Mul", ctx.add("CastLike", int8_values, like), scales_column)


def _make_window_mask(
    ctx: _AttentionTranslator, q: Value, keys: Value, first: Value, rows: Value, window: int
) -> Value:
    """Return the additive sliding-window mask [batch, 1, seq, keys]: -inf for keys before the window.

    Without a window it is zeros of shape [1, 1, 1, keys].
    """
    count = ctx.length(keys, 2)
    visible_value, hidden_value = (ctx.add("CastLike", np.array(value, np.float32), q) for value in (0, -np.inf))
    if window <= 0:
        return ctx.add("Expand", visible_value, ctx.add("Concat", np.array([1, 1, 1]), count, axis=0))
    starts = ctx.add("Reshape", first, np.array([-1, 1, 1, 1]))
    positions = ctx.add("Add", starts, ctx.add("Unsqueeze", ctx.positions(rows), _ARRAY_1))
    begin = ctx.add("Sub", positions, np.array([window - 1]))
    return ctx.add("Where", ctx.add("Less", ctx.positions(count), begin), hidden_value, visible_value)


def _prepend_sink_column(
    ctx: _AttentionTranslator, sink: Value | Array, bias: Value | None, additive_mask: Value
) -> Value:
    """Return the additive mask [batch, heads, seq, 1 + keys], with the sink's score in the first column."""
    if bias is not None:
        visible = ctx.add("Slice", additive_mask, _ARRAY_0, ctx.length(bias, 3), np.array([3]))
        additive_mask = ctx.add("Add", visible, bias)
    shape = ctx.add("Shape", ctx.add("Add", additive_mask, ctx.add("CastLike", sink, additive_mask)))
    column = ctx.add("ScatterND", shape, np.array([[3]]), _ARRAY_1)
    parts = ctx.add("Expand", ctx.add("CastLike", sink, additive_mask), column), ctx.add("Expand", additive_mask, shape)
    return ctx.add("Concat", *parts, axis=3)


def _prepend_zero_row(ctx: _AttentionTranslator, keys: Value) -> Value:
    """Prepend a zero row to keys or values."""
    shape = ctx.add("ScatterND", ctx.add("Shape", keys), np.array([[2]]), _ARRAY_1)
    zeros = ctx.add("CastLike", ctx.add("ConstantOfShape", shape, value=np.zeros(1, np.float32)), keys)
    return ctx.add("Concat", zeros, keys, axis=2)


ATTENTION_NODES: dict[str, Callable[[Builder, NodeRecipe], None]] = {
    "com.microsoft::Attention": _translate_attention,
    "com.microsoft::GroupQueryAttention": _translate_gqa,
    "com.microsoft::MultiHeadAttention": _translate_mha,
    "com.microsoft::RotaryEmbedding": _translate_rotary,
}
