"""Translate ONNX Runtime's attention and rotary embedding operators (com.microsoft) to ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.element_types import Array
from ...base.errors import graph_error
from ..build.builder import GraphBuilder
from ..file.graph_recipe import NodeRecipe, get_ints_attr, get_number_attr

if TYPE_CHECKING:
    from ..._pumice import Value

INT64 = 7  # TensorProto.DataType
STATIC_KV_CACHE = "pumice.fixed_room"  # marks a GroupQueryAttention with a static KV cache; see _get_cache_positions
INT8_CACHE = "pumice.int8_cache"  # set together with STATIC_KV_CACHE for int8 caches; see _translate_int8_gqa
_ZERO, _ONE = np.array(0), np.array(1)
_ARRAY_0, _ARRAY_1, _ARRAY_MINUS_1 = np.array([0]), np.array([1]), np.array([-1])
_MERGED_SHAPE = np.array([0, 0, -1])  # the shape [batch, seq, heads * head_size]


class _AttentionTranslator:
    """Helpers for translating one attention node: input access, shape arithmetic and masks."""

    def __init__(self, builder: GraphBuilder, node: NodeRecipe) -> None:
        self.builder = builder
        self.node = node

    def add(self, op: str, *inputs: Value | Array | None, **attributes: Any) -> Value:
        return self.builder.add_helper(self.node, op, *inputs, **attributes)

    def reject(self, reason: str) -> Exception:
        return self.builder.reject(self.node, reason)

    def get_input(self, index: int) -> Value | None:
        name = self.node.inputs[index] if index < len(self.node.inputs) else ""
        return self.builder.require_tensor(name) if name else None

    def require_input(self, index: int, label: str) -> Value:
        value = self.get_input(index)
        if value is None:
            expected = f"expected {label} as input {index} of {self.node.op}"
            raise graph_error("node", self.node.name, f"{expected}, given none")
        return value

    def reject_inputs(self, **names: int) -> None:
        for name, index in names.items():
            if self.get_input(index) is not None:
                raise self.reject(f"the input '{name}'")

    def reject_attributes(self, *names: str) -> None:
        for name in names:
            if self.node.attributes.get(name, 0) not in (0, "NONE"):
                raise self.reject(f"{name}={self.node.attributes[name]}")

    def reject_past_without_present(self, *past: Value | None) -> None:
        """Raise NodeRejectedError for a past without both present outputs, for which ONNX Runtime reads uninitialised memory."""
        if any(x is not None for x in past) and len([name for name in self.node.outputs[1:3] if name]) < 2:
            raise self.reject(
                "past_key and past_value without the outputs present_key and present_value; add both outputs"
            )

    def require_rank(self, value: Value, label: str) -> int:
        if value.shape is None:
            raise self.reject(f"{label} of unknown rank")
        return len(value.shape)

    def require_size(self, value: Value, axis: int, label: str) -> int:
        size = None if value.shape is None else value.shape[axis]
        if size is None:
            raise self.reject(f"{label} of unknown size")
        return size

    def get_num_heads(self, name: str) -> int:
        count = int(get_number_attr(self.node, name, 0))
        if count < 1:
            raise graph_error("node", self.node.name, f"attribute '{name}': expected at least 1, given {count}")
        return count

    def get_length(self, value: Value, axis: int) -> Value:
        """Return the length of an axis as int64[1]."""
        return self.add("Gather", self.add("Shape", value), np.array([axis]))

    def split_heads(self, x: Value, heads: int) -> Value:
        """Split heads: [batch, seq, heads * head_size] to [batch, heads, seq, head_size]."""
        return self.add("Transpose", self.add("Reshape", x, np.array([0, 0, heads, -1])), perm=[0, 2, 1, 3])

    def merge_heads(self, x: Value) -> Value:
        return self.add("Reshape", self.add("Transpose", x, perm=[0, 2, 1, 3]), _MERGED_SHAPE)

    def unpack_qkv(self, packed: Value, index: int) -> Value:
        """Return Q, K or V (by index) of a packed [batch, seq, heads, parts, head_size] as [batch, seq, heads * head_size]."""
        return self.add("Reshape", self.add("Gather", packed, np.array(index), axis=3), _MERGED_SHAPE)

    def slice_axis(self, value: Value, begin: int, size: int, axis: int = -1) -> Value:
        return self.add("Slice", value, np.array([begin]), np.array([begin + size]), np.array([axis]))

    def make_positions(self, count: Value) -> Value:
        """Return the range 0, 1, ... as int64[count]."""
        return self.add("Range", _ZERO, self.add("Reshape", count, np.zeros(0, np.int64)), _ONE)

    def to_int64(self, value: Value) -> Value:
        flat = self.add("Reshape", value, _ARRAY_MINUS_1)
        return flat if flat.dtype == "int64" else self.add("Cast", flat, to=INT64)

    @property
    def scale_attribute(self) -> dict[str, float]:
        scale = get_number_attr(self.node, "scale", 0.0)
        return {"scale": scale} if scale else {}

    # ---- attention masks

    def make_additive_mask(self, mask: Value, batch: Value, keys: Value, like: Value) -> Value:
        """Return the additive mask [batch, 1, 1 or seq, keys]: 0 for visible keys, else mask_filter_value.

        A mask of rank 1 contains lengths (see _make_mask_from_lengths); other masks are non-zero for visible keys.
        """
        rank = self.require_rank(mask, "a mask")
        if rank == 1:
            count, num_sequences = (mask.shape or [None])[0], (like.shape or [None])[0]
            if count is not None and num_sequences is not None and count not in (num_sequences, 2 * num_sequences):
                raise self.reject(f"a mask of {count} numbers for {num_sequences} images")
            is_visible = self._make_mask_from_lengths(mask, batch, keys)
        elif rank in (2, 3):
            visible_mask = mask if mask.dtype == "bool" else self.add("Cast", mask, to=9)
            is_visible = self.add("Unsqueeze", visible_mask, np.array([1, 2] if rank == 2 else [1]))
        else:
            raise self.reject(f"a mask of rank {rank}")
        filled = np.array(get_number_attr(self.node, "mask_filter_value", -10000.0), np.float32)
        visible_value, hidden_value = (self.add("CastLike", value, like) for value in (np.array(0, np.float32), filled))
        return self.add("Where", is_visible, visible_value, hidden_value)

    def _make_mask_from_lengths(self, mask: Value, batch: Value, keys: Value) -> Value:
        """Return the boolean mask for key counts [batch], or for ends and starts [2 * batch].

        A mask of another length is rejected at import if its length is known; otherwise nodes named after this check fail at bind time.
        """

        def add_checked(op: str, *inputs: Value | Array, **attributes: Any) -> Value:
            name = self.builder.make_helper_name(self.node, "a mask of 1 or 2 numbers for each image")
            value: Value = self.builder.graph.add(op, *inputs, name=name, **attributes)
            return value

        num_sequences = self.add(
            "Max", batch, _ARRAY_1
        )  # at least 1, because Reshape cannot infer -1 for an empty batch
        ends = self.to_int64(mask)
        rows = add_checked("Reshape", ends, self.add("Concat", _ARRAY_MINUS_1, num_sequences, axis=0))
        # `missing` is negative if the mask has more than two rows, and ConstantOfShape then fails.
        missing = self.add("Sub", np.array([2]), self.get_length(rows, 0))
        zeros = add_checked("ConstantOfShape", self.add("Concat", missing, num_sequences, axis=0), value=np.array([0]))
        begins = self.add("Gather", self.add("Concat", rows, zeros, axis=0), _ARRAY_1, axis=0)
        first = self.add("Slice", ends, _ARRAY_0, batch, _ARRAY_0)
        column = self.add("Concat", batch, np.array([1, 1, 1]), axis=0)
        key_positions = self.make_positions(keys)
        after = self.add("GreaterOrEqual", key_positions, self.add("Reshape", begins, np.array([-1, 1, 1, 1])))
        before = self.add("Less", key_positions, add_checked("Reshape", first, column, allowzero=1))
        return self.add("And", after, before)

    def merge_masks(
        self, padding: Value | None, bias: Value | None, batch: Value, keys: Value, like: Value
    ) -> Value | None:
        if padding is None:
            return bias
        additive_mask = self.make_additive_mask(padding, batch, keys, like)
        return additive_mask if bias is None else self.add("Add", bias, additive_mask)


def _add_attention(ctx: _AttentionTranslator, count: int, *inputs: Value | None, **attributes: Any) -> list[Value]:
    """Add ONNX's Attention. Return its first `count` outputs: y, present keys, present values, scores."""
    name = ctx.builder.make_helper_name(ctx.node, "Attention")
    outputs = ctx.builder.graph.add("Attention", *inputs, outputs=count, name=name, **attributes)
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


# ---- MultiHeadAttention


def _get_qkv(ctx: _AttentionTranslator) -> tuple[Value, Value, Value]:
    """Return Q, K and V, unpacked if they share an input. Raise GraphError if one is missing."""
    q, k, v = ctx.require_input(0, "queries"), ctx.get_input(1), ctx.get_input(2)
    if k is None:
        if v is not None or ctx.require_rank(q, "queries") != 5:
            raise graph_error("node", ctx.node.name, "expected keys and values, or queries of rank 5 that hold them")
        return ctx.unpack_qkv(q, 0), ctx.unpack_qkv(q, 1), ctx.unpack_qkv(q, 2)
    if v is None:
        if ctx.require_rank(k, "keys") != 5:
            raise graph_error("node", ctx.node.name, "expected values, or keys of rank 5 that hold them")
        return q, ctx.unpack_qkv(k, 0), ctx.unpack_qkv(k, 1)
    return q, k, v


def _translate_mha(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Translate MultiHeadAttention. K and V are [batch, seq, hidden], or [batch, heads, seq, head_size] with heads already split."""
    ctx = _AttentionTranslator(builder, node)
    ctx.reject_inputs(past_sequence_length=8, cache_indirection=9)
    heads = ctx.get_num_heads("num_heads")
    q, k, v = _get_qkv(ctx)
    bias, padding, attention_bias, past_k, past_v = (ctx.get_input(i) for i in range(3, 8))
    ctx.reject_past_without_present(past_k, past_v)
    in_heads = k.shape is not None and len(k.shape) == 4
    if bias is not None:
        q_width = q.shape[-1] if q.shape is not None else None
        width = ctx.require_size(bias, 0, "a bias") // 3 if q_width is None else q_width
        q = ctx.add("Add", q, ctx.slice_axis(bias, 0, width))
        if not in_heads:  # K and V with split heads already include their bias
            k = ctx.add("Add", k, ctx.slice_axis(bias, width, width))
            v = ctx.add("Add", v, ctx.add("Slice", bias, np.array([2 * width]), np.array([2**62]), _ARRAY_0))
    if in_heads:
        q = ctx.split_heads(q, heads)
    num_keys = ctx.get_length(k, 2 if in_heads else 1)
    if past_k is not None:
        num_keys = ctx.add("Add", num_keys, ctx.get_length(past_k, 2))
    mask = ctx.merge_masks(padding, attention_bias, ctx.get_length(q, 0), num_keys, q)
    counts = {} if in_heads else {"q_num_heads": heads, "kv_num_heads": heads}
    extra = {"is_causal": int(get_number_attr(node, "unidirectional", 0)), "qk_matmul_output_mode": 2}
    count = max(i for i, name in enumerate(node.outputs) if name) + 1
    results = _add_attention(ctx, count, q, k, v, mask, past_k, past_v, **extra, **counts, **ctx.scale_attribute)
    if in_heads:
        results[0] = ctx.merge_heads(results[0])
    builder.set_node_outputs(node, *results)


# ---- Attention


def _translate_attention(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Translate Attention, which projects its input to Q, K and V with one matrix."""
    ctx = _AttentionTranslator(builder, node)
    ctx.reject_attributes("do_rotary", "past_present_share_buffer")
    ctx.reject_inputs(past_sequence_length=6)
    x, weights = ctx.require_input(0, "rows"), ctx.require_input(1, "weights")
    bias, padding, past, attention_bias = (ctx.get_input(i) for i in range(2, 6))
    heads, width = ctx.get_num_heads("num_heads"), ctx.require_size(weights, 1, "weights")
    sizes = get_ints_attr(node, "qkv_hidden_sizes") or [width // 3] * 3
    if len(sizes) != 3 or sum(sizes) != width or sizes[0] != sizes[1]:
        raise graph_error("node", node.name, f"expected three sizes of {width} in all, given {sizes}")
    qkv = ctx.add("MatMul", x, weights)
    if bias is not None:
        qkv = ctx.add("Add", qkv, bias)
    begins = np.cumsum([0, *sizes]).tolist()
    q, k, v = (ctx.slice_axis(qkv, begin, size) for begin, size in zip(begins, sizes, strict=False))
    num_keys = ctx.get_length(x, 1)
    past_k = past_v = None
    if past is not None:
        past_k, past_v = (ctx.add("Gather", past, index, axis=0) for index in (_ZERO, _ONE))
        num_keys = ctx.add("Add", num_keys, ctx.get_length(past_k, 2))
    if padding is not None and ctx.require_rank(padding, "a mask") == 4:
        padding = _slice_mask(ctx, padding, ctx.get_length(x, 1), num_keys)
    mask = ctx.merge_masks(padding, attention_bias, ctx.get_length(x, 0), num_keys, x)
    counts = {"q_num_heads": heads, "kv_num_heads": heads}
    extra = {"is_causal": int(get_number_attr(node, "unidirectional", 0))}
    wants_present = len(node.outputs) > 1
    count = 3 if wants_present else 1
    results = _add_attention(ctx, count, q, k, v, mask, past_k, past_v, **extra, **counts, **ctx.scale_attribute)
    if wants_present:
        results[1:] = [ctx.add("Concat", *(ctx.add("Unsqueeze", x, _ARRAY_0) for x in results[1:]), axis=0)]
    builder.set_node_outputs(node, *results)


def _slice_mask(ctx: _AttentionTranslator, mask: Value, queries: Value, keys: Value) -> Value:
    """Slice a mask [batch, 1, max, max] to [batch, queries, keys]: rows `keys - queries` to `keys`, and the first `keys` columns."""
    begins = ctx.add("Concat", ctx.add("Sub", keys, queries), _ARRAY_0, axis=0)
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
    """Apply ONNX's RotaryEmbedding to x, [batch, heads, seq, head_size] or [batch, seq, hidden]. positions: [batch, seq]."""
    size = None if cos_cache.shape is None else cos_cache.shape[-1]
    rotary_attributes = {"rotary_embedding_dim": 2 * size} if size else {}
    return ctx.add("RotaryEmbedding", x, cos_cache, sin_cache, positions, **{**rotary_attributes, **attributes})


def _translate_rotary_embedding(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Translate RotaryEmbedding. Its position_ids may contain only the position of the first token."""
    ctx = _AttentionTranslator(builder, node)
    ctx.reject_attributes("is_packed_batching")
    if get_number_attr(node, "scale", 1.0) != 1.0:
        raise ctx.reject(f"scale={node.attributes['scale']}")
    x, positions, cos_cache, sin_cache = builder.require_tensors(node, 4, 4)
    heads, rotary_dim = (int(get_number_attr(node, name, 0)) for name in ("num_heads", "rotary_embedding_dim"))
    flat = ctx.require_rank(x, "rows") == 3
    if flat and not heads:
        heads = ctx.require_size(x, 2, "rows") // (2 * ctx.require_size(cos_cache, 1, "cos_cache"))
    if ctx.require_rank(positions, "position_ids") == 1:
        positions = _make_positions_from(ctx, positions, ctx.get_length(x, 0), ctx.get_length(x, 1 if flat else 2))
    rotary_attributes = {"interleaved": int(get_number_attr(node, "interleaved", 0)), "num_heads": heads if flat else 0}
    if rotary_dim:
        rotary_attributes["rotary_embedding_dim"] = rotary_dim
    builder.set_node_outputs(node, _apply_rope(ctx, x, positions, cos_cache, sin_cache, rotary_attributes))


def _make_positions_from(ctx: _AttentionTranslator, first: Value, batch: Value, seq_len: Value) -> Value:
    """Return positions [batch, seq] that count up from `first`, the first token's position (one per sequence, or one for all)."""
    position_rows = ctx.add("Add", ctx.add("Reshape", first, np.array([-1, 1])), ctx.make_positions(seq_len))
    return ctx.add("Expand", position_rows, ctx.add("Concat", batch, seq_len, axis=0))


# ---- GroupQueryAttention


def _get_grouped_qkv(ctx: _AttentionTranslator, heads: int, groups: int) -> tuple[Value, Value, Value]:
    """Return Q, K and V as [batch, heads, seq, head_size]."""
    q, k, v = ctx.require_input(0, "queries"), ctx.get_input(1), ctx.get_input(2)
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
    """Write `new_rows` into the KV cache `past` at position `first` of each sequence, and return the updated cache.

    The cache grows to at least `total` positions; if `total` is None it keeps its capacity.
    """
    if past is None:
        return new_rows
    if total is None:
        return ctx.add("TensorScatter", past, new_rows, first, axis=2)
    shape, capacity = ctx.add("Shape", past), ctx.get_length(past, 2)
    missing = ctx.add("Max", ctx.add("Sub", total, capacity), _ARRAY_0)
    padded_shape = ctx.add("ScatterND", shape, np.array([[2]]), missing)
    zeros = ctx.add("CastLike", ctx.add("ConstantOfShape", padded_shape, value=np.zeros(1, np.float32)), past)
    return ctx.add("TensorScatter", ctx.add("Concat", past, zeros, axis=2), new_rows, first, axis=2)


def _get_cache_positions(ctx: _AttentionTranslator, seq_len: Value) -> tuple[Value, Value | None]:
    """Return the cache position of each sequence's first new token, and the required cache length (None for a static cache).

    With STATIC_KV_CACHE, set by pumice.text, input 5 holds these positions, and input 6 each sequence's length with the new tokens.
    """
    if get_number_attr(ctx.node, STATIC_KV_CACHE, 0):
        return ctx.to_int64(ctx.require_input(5, "rows in the cache")), None
    lengths = ctx.to_int64(ctx.require_input(5, "seqlens_k"))
    total = ctx.to_int64(ctx.require_input(6, "total_sequence_length"))
    # In the first prompt all sequences start at position 0, even if they are shorter than the longest one.
    starts = ctx.add("Sub", ctx.add("Add", lengths, _ARRAY_1), seq_len)
    return ctx.add("Where", ctx.add("Equal", total, seq_len), ctx.add("Sub", starts, starts), starts), total


def _make_attention_sink(ctx: _AttentionTranslator, heads: int) -> Value | Array | None:
    """Return the attention sink's score, [1, heads, 1, 1]; None without a sink. The sink is an extra key with a zero value."""
    sink = ctx.get_input(11)
    shape = np.array([1, heads, 1, 1])
    if sink is not None:
        return ctx.add("Reshape", sink, shape)
    return np.zeros(shape, np.float32) if get_number_attr(ctx.node, "smooth_softmax", 0) > 0 else None


def _translate_gqa(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Translate GroupQueryAttention. Each sequence has its own cache length: seqlens_k + 1, including the new tokens at the end."""
    ctx = _AttentionTranslator(builder, node)
    if get_number_attr(node, INT8_CACHE, 0):
        _translate_int8_gqa(ctx)
        return
    ctx.reject_inputs(k_scale=12, v_scale=13, q_norm_weight=14, k_norm_weight=15)
    ctx.reject_attributes("qk_output", "sliding_window_cache", "k_quant_type", "v_quant_type")
    heads, groups = ctx.get_num_heads("num_heads"), ctx.get_num_heads("kv_num_heads")
    q, k, v = _get_grouped_qkv(ctx, heads, groups)
    past_k, past_v = ctx.get_input(3), ctx.get_input(4)
    batch, seq_len = ctx.get_length(q, 0), ctx.get_length(q, 2)
    first, total = _get_cache_positions(ctx, seq_len)
    if get_number_attr(node, "do_rotary", 0):
        positions = ctx.get_input(9)
        tables = ctx.require_input(7, "cos_cache"), ctx.require_input(8, "sin_cache")
        positions = _make_positions_from(ctx, first, batch, seq_len) if positions is None else positions
        rotary = {"interleaved": int(get_number_attr(node, "rotary_interleaved", 0))}
        q, k = (_apply_rope(ctx, x, positions, *tables, rotary) for x in (q, k))
    keys, values = _update_cache(ctx, past_k, k, total, first), _update_cache(ctx, past_v, v, total, first)
    present = keys, values
    attributes = _get_gqa_attributes(node)
    window = int(get_number_attr(node, "local_window_size", -1))
    lengths = ctx.add("Add", first, seq_len) if total is not None else ctx.require_input(6, "rows with those of now")
    mask, sink = ctx.get_input(10), _make_attention_sink(ctx, heads)
    if sink is not None:
        mask = _prepend_sink_column(ctx, sink, mask, _make_window_mask(ctx, q, keys, first, seq_len, window))
        keys, values = (_prepend_zero_row(ctx, x) for x in (keys, values))
        lengths = ctx.add("Add", lengths, _ARRAY_1)
    elif window > 0:  # local_window_size counts the token's own key, left_window_size does not
        attributes["left_window_size"] = window - 1
    y = ctx.add("Attention", q, keys, values, mask, None, None, lengths, **attributes, **ctx.scale_attribute)
    builder.set_node_outputs(node, ctx.merge_heads(y), *present)


def _get_gqa_attributes(node: NodeRecipe) -> dict[str, Any]:
    """Return the attributes of ONNX's Attention for a GroupQueryAttention, except for its window."""
    return {"softcap": get_number_attr(node, "softcap", 0.0), "is_causal": int(get_number_attr(node, "causal", 1))}


def _translate_int8_gqa(ctx: _AttentionTranslator) -> None:
    """Translate a GroupQueryAttention with int8 caches (inputs 3, 4) and per-token scales (inputs 12, 13) added by pumice.text.

    Outputs 3 and 4 are the scales including the new tokens. See _get_cache_positions for inputs 5 and 6.
    """
    ctx.reject_inputs(q_norm_weight=14, k_norm_weight=15)
    ctx.reject_attributes("qk_output", "sliding_window_cache", "k_quant_type", "v_quant_type")
    heads, groups = ctx.get_num_heads("num_heads"), ctx.get_num_heads("kv_num_heads")
    q, k, v = _get_grouped_qkv(ctx, heads, groups)
    first = ctx.to_int64(ctx.require_input(5, "rows in the cache"))
    lengths = ctx.require_input(6, "rows with those of now")
    caches = [ctx.require_input(i, "a cache of int8") for i in (3, 4)]
    caches += [ctx.require_input(i, "scales") for i in (12, 13)]
    tables: list[Value] = []
    if get_number_attr(ctx.node, "do_rotary", 0):
        tables = [ctx.require_input(i, name) for i, name in ((7, "cos_cache"), (8, "sin_cache"), (9, "position_ids"))]
    rotary: dict[str, Any] = {"interleaved": int(get_number_attr(ctx.node, "rotary_interleaved", 0))}
    if tables and tables[0].shape is not None and tables[0].shape[-1]:
        rotary["rotary_embedding_dim"] = 2 * tables[0].shape[-1]
    op = "pumice::QuantizedCaches"
    name = ctx.builder.make_helper_name(ctx.node, op)
    q, *present = ctx.builder.graph.add(op, q, k, v, *caches, first, *tables, outputs=5, name=name, **rotary)
    window, sink = int(get_number_attr(ctx.node, "local_window_size", -1)), _make_attention_sink(ctx, heads)
    attributes = _get_gqa_attributes(ctx.node)
    if sink is None:
        if window > 0:
            attributes["left_window_size"] = window - 1
        y = ctx.add("pumice::QuantizedAttention", q, *present, lengths, **attributes, **ctx.scale_attribute)
    else:
        keys, values = (_dequantize_cache(ctx, *pair, q) for pair in zip(present[:2], present[2:], strict=True))
        mask = _prepend_sink_column(
            ctx, sink, None, _make_window_mask(ctx, q, keys, first, ctx.get_length(q, 2), window)
        )
        keys, values = _prepend_zero_row(ctx, keys), _prepend_zero_row(ctx, values)
        lengths = ctx.add("Add", lengths, _ARRAY_1)
        y = ctx.add("Attention", q, keys, values, mask, None, None, lengths, **attributes, **ctx.scale_attribute)
    ctx.builder.set_node_outputs(ctx.node, ctx.merge_heads(y), *present)


def _dequantize_cache(ctx: _AttentionTranslator, int8_values: Value, scales: Value, like: Value) -> Value:
    """Dequantise an int8 cache to the dtype of `like`."""
    scales_column = ctx.add("Unsqueeze", ctx.add("CastLike", scales, like), _ARRAY_MINUS_1)
    return ctx.add("Mul", ctx.add("CastLike", int8_values, like), scales_column)


def _make_window_mask(
    ctx: _AttentionTranslator, q: Value, keys: Value, first: Value, seq_len: Value, window: int
) -> Value:
    """Return the additive sliding-window mask [batch, 1, seq, keys]: -inf before the window. Without a window: zeros [1, 1, 1, keys]."""
    count = ctx.get_length(keys, 2)
    visible_value, hidden_value = (ctx.add("CastLike", np.array(value, np.float32), q) for value in (0, -np.inf))
    if window <= 0:
        return ctx.add("Expand", visible_value, ctx.add("Concat", np.array([1, 1, 1]), count, axis=0))
    starts = ctx.add("Reshape", first, np.array([-1, 1, 1, 1]))
    positions = ctx.add("Add", starts, ctx.add("Unsqueeze", ctx.make_positions(seq_len), _ARRAY_1))
    begin = ctx.add("Sub", positions, np.array([window - 1]))
    return ctx.add("Where", ctx.add("Less", ctx.make_positions(count), begin), hidden_value, visible_value)


def _prepend_sink_column(
    ctx: _AttentionTranslator, sink: Value | Array, bias: Value | None, additive_mask: Value
) -> Value:
    """Prepend a column with the sink's score to an additive mask, which becomes [batch, heads, seq, 1 + keys]."""
    if bias is not None:
        visible = ctx.add("Slice", additive_mask, _ARRAY_0, ctx.get_length(bias, 3), np.array([3]))
        additive_mask = ctx.add("Add", visible, bias)
    shape = ctx.add("Shape", ctx.add("Add", additive_mask, ctx.add("CastLike", sink, additive_mask)))
    column = ctx.add("ScatterND", shape, np.array([[3]]), _ARRAY_1)
    parts = ctx.add("Expand", ctx.add("CastLike", sink, additive_mask), column), ctx.add("Expand", additive_mask, shape)
    return ctx.add("Concat", *parts, axis=3)


def _prepend_zero_row(ctx: _AttentionTranslator, keys: Value) -> Value:
    """Prepend a zero row to K or V."""
    shape = ctx.add("ScatterND", ctx.add("Shape", keys), np.array([[2]]), _ARRAY_1)
    zeros = ctx.add("CastLike", ctx.add("ConstantOfShape", shape, value=np.zeros(1, np.float32)), keys)
    return ctx.add("Concat", zeros, keys, axis=2)


ATTENTION_NODES: dict[str, Callable[[GraphBuilder, NodeRecipe], None]] = {
    "com.microsoft::Attention": _translate_attention,
    "com.microsoft::GroupQueryAttention": _translate_gqa,
    "com.microsoft::MultiHeadAttention": _translate_mha,
    "com.microsoft::RotaryEmbedding": _translate_rotary_embedding,
}
