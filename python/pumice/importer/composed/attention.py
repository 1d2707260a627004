"""Translate attention and rotary embedding of ONNX Runtime's com.microsoft domain to ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.element_types import Array
from ...base.errors import graph_error
from ..build.builder import Builder
from ..file.recipe import NodeRecipe, integers, number

if TYPE_CHECKING:
    from ..._pumice import Value

INT64 = 7  # TensorProto.DataType
FIXED_ROOM = "pumice.fixed_room"  # attribute of GroupQueryAttention for a static KV cache: see _begin
INT8_CACHE = "pumice.int8_cache"  # attribute that accompanies FIXED_ROOM for int8 caches: see _grouped_in_int8
_ZERO, _ONE = np.array(0), np.array(1)
_FIRST, _SECOND, _LAST = np.array([0]), np.array([1]), np.array([-1])
_MERGED = np.array([0, 0, -1])  # the shape [batch, seq, heads * head_size]


class _Attention:
    """A node being translated, and the builder that receives its nodes."""

    def __init__(self, builder: Builder, node: NodeRecipe) -> None:
        self.builder = builder
        self.node = node

    def add(self, op: str, *inputs: Value | Array | None, **attributes: Any) -> Value:
        return self.builder.helper(self.node, op, *inputs, **attributes)

    def refuse(self, why: str) -> Exception:
        return self.builder.refuse(self.node, why)

    def given(self, index: int) -> Value | None:
        name = self.node.inputs[index] if index < len(self.node.inputs) else ""
        return self.builder.tensor(name) if name else None

    def needed(self, index: int, what: str) -> Value:
        value = self.given(index)
        if value is None:
            raise graph_error("node", self.node.name, f"expected {what} as input {index} of {self.node.op}, given none")
        return value

    def refuse_inputs(self, **names: int) -> None:
        for name, index in names.items():
            if self.given(index) is not None:
                raise self.refuse(f"the input '{name}'")

    def refuse_attributes(self, *names: str) -> None:
        for name in names:
            if self.node.attributes.get(name, 0) not in (0, "NONE"):
                raise self.refuse(f"{name}={self.node.attributes[name]}")

    def refuse_past_alone(self, *past: Value | None) -> None:
        """Raise Refused for a past without both present outputs: ONNX Runtime then reads memory that it has not written."""
        if any(one is not None for one in past) and len([name for name in self.node.outputs[1:3] if name]) < 2:
            raise self.refuse(
                "past_key and past_value without the outputs present_key and present_value; add both outputs"
            )

    def rank(self, value: Value, what: str) -> int:
        if value.shape is None:
            raise self.refuse(f"{what} of unknown rank")
        return len(value.shape)

    def size(self, value: Value, axis: int, what: str) -> int:
        size = None if value.shape is None else value.shape[axis]
        if size is None:
            raise self.refuse(f"{what} of unknown size")
        return size

    def heads(self, name: str) -> int:
        count = int(number(self.node, name, 0))
        if count < 1:
            raise graph_error("node", self.node.name, f"attribute '{name}': expected at least 1, given {count}")
        return count

    def length(self, value: Value, axis: int) -> Value:
        """Return the length of an axis as int64[1]."""
        return self.add("Gather", self.add("Shape", value), np.array([axis]))

    def apart(self, rows: Value, heads: int) -> Value:
        """Split heads: [batch, seq, heads * head_size] to [batch, heads, seq, head_size]."""
        return self.add("Transpose", self.add("Reshape", rows, np.array([0, 0, heads, -1])), perm=[0, 2, 1, 3])

    def merged(self, heads: Value) -> Value:
        return self.add("Reshape", self.add("Transpose", heads, perm=[0, 2, 1, 3]), _MERGED)

    def part(self, packed: Value, index: int) -> Value:
        """Extract one part of [batch, seq, heads, parts, head_size] as [batch, seq, heads * head_size]."""
        return self.add("Reshape", self.add("Gather", packed, np.array(index), axis=3), _MERGED)

    def cut(self, value: Value, begin: int, size: int, axis: int = -1) -> Value:
        return self.add("Slice", value, np.array([begin]), np.array([begin + size]), np.array([axis]))

    def places(self, count: Value) -> Value:
        """Return 0, 1, ... as int64[count]."""
        return self.add("Range", _ZERO, self.add("Reshape", count, np.zeros(0, np.int64)), _ONE)

    def as_int64(self, value: Value) -> Value:
        flat = self.add("Reshape", value, _LAST)
        return flat if flat.dtype == "int64" else self.add("Cast", flat, to=INT64)

    @property
    def scale(self) -> dict[str, float]:
        scale = number(self.node, "scale", 0.0)
        return {"scale": scale} if scale else {}

    # ---- masks

    def hidden(self, mask: Value, batch: Value, keys: Value, like: Value) -> Value:
        """Return the additive mask [batch, 1, 1 or seq, keys]: 0 for visible keys, else mask_filter_value.

        A mask of rank 1 holds lengths (see _within); other masks are non-zero for visible keys.
        """
        rank = self.rank(mask, "a mask")
        if rank == 1:
            count, images = (mask.shape or [None])[0], (like.shape or [None])[0]
            if count is not None and images is not None and count not in (images, 2 * images):
                raise self.refuse(f"a mask of {count} numbers for {images} images")
            shown = self._within(mask, batch, keys)
        elif rank in (2, 3):
            seen = mask if mask.dtype == "bool" else self.add("Cast", mask, to=9)
            shown = self.add("Unsqueeze", seen, np.array([1, 2] if rank == 2 else [1]))
        else:
            raise self.refuse(f"a mask of rank {rank}")
        filled = np.array(number(self.node, "mask_filter_value", -10000.0), np.float32)
        none, hidden = (self.add("CastLike", value, like) for value in (np.array(0, np.float32), filled))
        return self.add("Where", shown, none, hidden)

    def _within(self, mask: Value, batch: Value, keys: Value) -> Value:
        """Return the mask of key lengths [batch], or of ends and starts [2 * batch].

        Masks of other lengths are rejected: here if the length is known, otherwise at bind time by nodes that are named after this check.
        """

        def checked(op: str, *inputs: Value | Array, **attributes: Any) -> Value:
            name = self.builder.helper_name(self.node, "a mask of 1 or 2 numbers for each image")
            value: Value = self.builder.graph.add(op, *inputs, name=name, **attributes)
            return value

        images = self.add("Max", batch, _SECOND)  # 1 for an empty batch, for which Reshape could not infer -1
        ends = self.as_int64(mask)
        rows = checked("Reshape", ends, self.add("Concat", _LAST, images, axis=0))
        # negative if there are more than two rows; ConstantOfShape then rejects it
        missing = self.add("Sub", np.array([2]), self.length(rows, 0))
        zeros = checked("ConstantOfShape", self.add("Concat", missing, images, axis=0), value=np.array([0]))
        begins = self.add("Gather", self.add("Concat", rows, zeros, axis=0), _SECOND, axis=0)
        first = self.add("Slice", ends, _FIRST, batch, _FIRST)
        column = self.add("Concat", batch, np.array([1, 1, 1]), axis=0)
        place = self.places(keys)
        after = self.add("GreaterOrEqual", place, self.add("Reshape", begins, np.array([-1, 1, 1, 1])))
        return self.add("And", after, self.add("Less", place, checked("Reshape", first, column, allowzero=1)))

    def mask(self, padding: Value | None, bias: Value | None, batch: Value, keys: Value, like: Value) -> Value | None:
        if padding is None:
            return bias
        hidden = self.hidden(padding, batch, keys, like)
        return hidden if bias is None else self.add("Add", bias, hidden)


def _attention(it: _Attention, q: Value, k: Value, v: Value, *more: Value | None, **attributes: Any) -> list[Value]:
    """Add ONNX's Attention with as many outputs as the node has: y, present keys and values, scores."""
    count = max(i for i, name in enumerate(it.node.outputs) if name) + 1
    made = it.builder.graph.add(
        "Attention", q, k, v, *more, outputs=count, name=it.builder.helper_name(it.node, "Attention"), **attributes
    )
    return list(made) if isinstance(made, tuple) else [made]


# ---- MultiHeadAttention


def _rows(it: _Attention) -> tuple[Value, Value, Value]:
    """Return the queries, keys and values, unpacking them if they share an input.

    Raise GraphError if an input is missing but not packed.
    """
    q, k, v = it.needed(0, "queries"), it.given(1), it.given(2)
    if k is None:
        if v is not None or it.rank(q, "queries") != 5:
            raise graph_error("node", it.node.name, "expected keys and values, or queries of rank 5 that hold them")
        return it.part(q, 0), it.part(q, 1), it.part(q, 2)
    if v is None:
        if it.rank(k, "keys") != 5:
            raise graph_error("node", it.node.name, "expected values, or keys of rank 5 that hold them")
        return q, it.part(k, 0), it.part(k, 1)
    return q, k, v


def _multi_head(builder: Builder, node: NodeRecipe) -> None:
    """Translate MultiHeadAttention. Keys and values may also come with heads split, [batch, heads, seq, head_size]."""
    it = _Attention(builder, node)
    it.refuse_inputs(past_sequence_length=8, cache_indirection=9)
    heads = it.heads("num_heads")
    q, k, v = _rows(it)
    bias, padding, more, past_k, past_v = (it.given(i) for i in range(3, 8))
    it.refuse_past_alone(past_k, past_v)
    in_heads = k.shape is not None and len(k.shape) == 4
    if bias is not None:
        known = q.shape[-1] if q.shape is not None else None
        width = it.size(bias, 0, "a bias") // 3 if known is None else known
        q = it.add("Add", q, it.cut(bias, 0, width))
        if not in_heads:  # keys and values with heads split already include their bias
            k = it.add("Add", k, it.cut(bias, width, width))
            v = it.add("Add", v, it.add("Slice", bias, np.array([2 * width]), np.array([2**62]), _FIRST))
    if in_heads:
        q = it.apart(q, heads)
    keys = it.length(k, 2 if in_heads else 1)
    if past_k is not None:
        keys = it.add("Add", keys, it.length(past_k, 2))
    mask = it.mask(padding, more, it.length(q, 0), keys, q)
    counts = {} if in_heads else {"q_num_heads": heads, "kv_num_heads": heads}
    causal = int(number(node, "unidirectional", 0))
    results = _attention(
        it, q, k, v, mask, past_k, past_v, is_causal=causal, qk_matmul_output_mode=2, **counts, **it.scale
    )
    if in_heads:
        results[0] = it.merged(results[0])
    builder.keep_results(node, *results)


# ---- Attention


def _self_attention(builder: Builder, node: NodeRecipe) -> None:
    """Translate Attention, which projects its input to queries, keys and values with one matrix."""
    it = _Attention(builder, node)
    it.refuse_attributes("do_rotary", "past_present_share_buffer")
    it.refuse_inputs(past_sequence_length=6)
    x, weights = it.needed(0, "rows"), it.needed(1, "weights")
    bias, padding, past, more = (it.given(i) for i in range(2, 6))
    heads, width = it.heads("num_heads"), it.size(weights, 1, "weights")
    sizes = integers(node, "qkv_hidden_sizes") or [width // 3] * 3
    if len(sizes) != 3 or sum(sizes) != width or sizes[0] != sizes[1]:
        raise graph_error("node", node.name, f"expected three sizes of {width} in all, given {sizes}")
    rows = it.add("MatMul", x, weights)
    if bias is not None:
        rows = it.add("Add", rows, bias)
    begins = np.cumsum([0, *sizes]).tolist()
    q, k, v = (it.cut(rows, begin, size) for begin, size in zip(begins, sizes, strict=False))
    keys = it.length(x, 1)
    past_k = past_v = None
    if past is not None:
        past_k, past_v = (it.add("Gather", past, place, axis=0) for place in (_ZERO, _ONE))
        keys = it.add("Add", keys, it.length(past_k, 2))
    if padding is not None and it.rank(padding, "a mask") == 4:
        padding = _window(it, padding, it.length(x, 1), keys)
    mask = it.mask(padding, more, it.length(x, 0), keys, x)
    causal = int(number(node, "unidirectional", 0))
    counts = {"q_num_heads": heads, "kv_num_heads": heads, "is_causal": causal}
    wants_present = len(node.outputs) > 1
    apart = node._replace(outputs=[node.outputs[0], "k", "v"]) if wants_present else node
    results = _attention(_Attention(builder, apart), q, k, v, mask, past_k, past_v, **counts, **it.scale)
    if wants_present:
        results[1:] = [it.add("Concat", *(it.add("Unsqueeze", one, _FIRST) for one in results[1:]), axis=0)]
    builder.keep_results(node, *results)


def _window(it: _Attention, mask: Value, rows: Value, keys: Value) -> Value:
    """Slice a mask [batch, 1, max_seq, max_seq] to [batch, rows, keys]: the last `rows` of the first `keys` queries, and the first `keys`
    keys.
    """
    begins = it.add("Concat", it.add("Sub", keys, rows), _FIRST, axis=0)
    ends = it.add("Concat", keys, keys, axis=0)
    return it.add("Squeeze", it.add("Slice", mask, begins, ends, np.array([2, 3])), _SECOND)


# ---- RotaryEmbedding


def _turned(it: _Attention, x: Value, places: Value, cosines: Value, sines: Value, attributes: dict[str, int]) -> Value:
    """Apply ONNX's RotaryEmbedding to x, [batch, heads, seq, head_size] or [batch, seq, hidden]; positions are [batch, seq]."""
    size = None if cosines.shape is None else cosines.shape[-1]
    turned = {"rotary_embedding_dim": 2 * size} if size else {}
    return it.add("RotaryEmbedding", x, cosines, sines, places, **{**turned, **attributes})


def _rotary(builder: Builder, node: NodeRecipe) -> None:
    """Translate RotaryEmbedding, whose position_ids may hold only the position of the first token."""
    it = _Attention(builder, node)
    it.refuse_attributes("is_packed_batching")
    if number(node, "scale", 1.0) != 1.0:
        raise it.refuse(f"scale={node.attributes['scale']}")
    x, places, cosines, sines = builder.operands(node, 4, 4)
    heads, turned = (int(number(node, name, 0)) for name in ("num_heads", "rotary_embedding_dim"))
    flat = it.rank(x, "rows") == 3
    if flat and not heads:
        heads = it.size(x, 2, "rows") // (2 * it.size(cosines, 1, "cos_cache"))
    if it.rank(places, "position_ids") == 1:
        places = _from(it, places, it.length(x, 0), it.length(x, 1 if flat else 2))
    kept = {"interleaved": int(number(node, "interleaved", 0)), "num_heads": heads if flat else 0}
    if turned:
        kept["rotary_embedding_dim"] = turned
    builder.keep_results(node, _turned(it, x, places, cosines, sines, kept))


def _from(it: _Attention, first: Value, batch: Value, rows: Value) -> Value:
    """Return positions [batch, seq] that count up from the first token's position, which all sequences may share."""
    counted = it.add("Add", it.add("Reshape", first, np.array([-1, 1])), it.places(rows))
    return it.add("Expand", counted, it.add("Concat", batch, rows, axis=0))


# ---- GroupQueryAttention


def _grouped_rows(it: _Attention, heads: int, groups: int) -> tuple[Value, Value, Value]:
    """Return queries, keys and values as [batch, heads, seq, head_size]."""
    q, k, v = it.needed(0, "queries"), it.given(1), it.given(2)
    if (k is None) != (v is None):
        raise graph_error("node", it.node.name, "expected both keys and values, or none of them")
    if k is not None and v is not None:
        return it.apart(q, heads), it.apart(k, groups), it.apart(v, groups)
    every = it.apart(q, heads + 2 * groups)
    name = it.builder.helper_name(it.node, "Split")
    made: tuple[Value, Value, Value] = it.builder.graph.add(
        "Split", every, np.array([heads, groups, groups]), outputs=3, name=name, axis=1
    )
    return made


def _cache(it: _Attention, past: Value | None, now: Value, total: Value | None, first: Value) -> Value:
    """Return the updated KV cache: `now` is written into `past` at position `first` of each sequence.

    The result is extended to at least `total` positions; without a total the cache keeps its capacity.
    """
    if past is None:
        return now
    if total is None:
        return it.add("TensorScatter", past, now, first, axis=2)
    shape, rows = it.add("Shape", past), it.length(past, 2)
    missing = it.add("Max", it.add("Sub", total, rows), _FIRST)
    room = it.add("ScatterND", shape, np.array([[2]]), missing)
    zeros = it.add("CastLike", it.add("ConstantOfShape", room, value=np.zeros(1, np.float32)), past)
    return it.add("TensorScatter", it.add("Concat", past, zeros, axis=2), now, first, axis=2)


def _begin(it: _Attention, rows: Value) -> tuple[Value, Value | None]:
    """Return the cache position of each sequence's first new token, and the required cache length.

    If pumice.text has added FIXED_ROOM to the node, the positions are input 5 and the cache capacity is fixed;
    input 6 is then each sequence's length including the new tokens.
    """
    if number(it.node, FIXED_ROOM, 0):
        return it.as_int64(it.needed(5, "rows in the cache")), None
    lengths, total = (it.as_int64(it.needed(i, name)) for i, name in ((5, "seqlens_k"), (6, "total_sequence_length")))
    # The first prompt starts at position 0 in all sequences, including shorter ones.
    behind = it.add("Sub", it.add("Add", lengths, _SECOND), rows)
    return it.add("Where", it.add("Equal", total, rows), it.add("Sub", behind, behind), behind), total


def _sink(it: _Attention, heads: int) -> Value | Array | None:
    """Return the score of the attention sink, which is an extra key with a zero value, as [1, heads, 1, 1]; None without a sink."""
    given = it.given(11)
    shape = np.array([1, heads, 1, 1])
    if given is not None:
        return it.add("Reshape", given, shape)
    return np.zeros(shape, np.float32) if number(it.node, "smooth_softmax", 0) > 0 else None


def _grouped(builder: Builder, node: NodeRecipe) -> None:
    """Translate GroupQueryAttention.

    Each sequence has its own length in the cache: seqlens_k + 1 including the new tokens, which come last.
    """
    it = _Attention(builder, node)
    if number(node, INT8_CACHE, 0):
        _grouped_in_int8(it)
        return
    it.refuse_inputs(k_scale=12, v_scale=13, q_norm_weight=14, k_norm_weight=15)
    it.refuse_attributes("qk_output", "sliding_window_cache", "k_quant_type", "v_quant_type")
    heads, groups = it.heads("num_heads"), it.heads("kv_num_heads")
    q, k, v = _grouped_rows(it, heads, groups)
    past_k, past_v = it.given(3), it.given(4)
    batch, rows = it.length(q, 0), it.length(q, 2)
    first, total = _begin(it, rows)
    if number(node, "do_rotary", 0):
        places, tables = it.given(9), (it.needed(7, "cos_cache"), it.needed(8, "sin_cache"))
        places = _from(it, first, batch, rows) if places is None else places
        turn = {"interleaved": int(number(node, "rotary_interleaved", 0))}
        q, k = (_turned(it, one, places, *tables, turn) for one in (q, k))
    keys, values = _cache(it, past_k, k, total, first), _cache(it, past_v, v, total, first)
    present = keys, values
    more: dict[str, Any] = {"softcap": number(node, "softcap", 0.0), "is_causal": int(number(node, "causal", 1))}
    window = int(number(node, "local_window_size", -1))
    seen = it.add("Add", first, rows) if total is not None else it.needed(6, "rows with those of now")
    mask, sink = it.given(10), _sink(it, heads)
    if sink is not None:
        mask = _behind_sink(it, sink, mask, _hidden_before(it, q, keys, first, rows, window))
        keys, values = (_with_zeros(it, one) for one in (keys, values))
        seen = it.add("Add", seen, _SECOND)
    elif window > 0:  # local_window_size includes the token's own key, left_window_size does not
        more["left_window_size"] = window - 1
    y = it.add("Attention", q, keys, values, mask, None, None, seen, **more, **it.scale)
    builder.keep_results(node, it.merged(y), *present)


def _grouped_in_int8(it: _Attention) -> None:
    """Translate a node to which pumice.text has added int8 caches (inputs 3, 4) and their per-token scales (inputs 12,
    13).

    Outputs 3 and 4 are the scales including the new tokens. See _begin for inputs 5 and 6.
    """
    it.refuse_inputs(q_norm_weight=14, k_norm_weight=15)
    it.refuse_attributes("qk_output", "sliding_window_cache", "k_quant_type", "v_quant_type")
    heads, groups = it.heads("num_heads"), it.heads("kv_num_heads")
    q, k, v = _grouped_rows(it, heads, groups)
    first, seen = it.as_int64(it.needed(5, "rows in the cache")), it.needed(6, "rows with those of now")
    caches = [it.needed(i, "a cache of int8") for i in (3, 4)] + [it.needed(i, "scales") for i in (12, 13)]
    tables: list[Value] = []
    if number(it.node, "do_rotary", 0):
        tables = [it.needed(i, name) for i, name in ((7, "cos_cache"), (8, "sin_cache"), (9, "position_ids"))]
    turn: dict[str, Any] = {"interleaved": int(number(it.node, "rotary_interleaved", 0))}
    if tables and tables[0].shape is not None and tables[0].shape[-1]:
        turn["rotary_embedding_dim"] = 2 * tables[0].shape[-1]
    name = it.builder.helper_name(it.node, "pumice::QuantizedCaches")
    q, *present = it.builder.graph.add(
        "pumice::QuantizedCaches", q, k, v, *caches, first, *tables, outputs=5, name=name, **turn
    )
    window, sink = int(number(it.node, "local_window_size", -1)), _sink(it, heads)
    more: dict[str, Any] = {"softcap": number(it.node, "softcap", 0.0), "is_causal": int(number(it.node, "causal", 1))}
    if sink is None:
        if window > 0:
            more["left_window_size"] = window - 1
        y = it.add("pumice::QuantizedAttention", q, *present, seen, **more, **it.scale)
    else:
        keys, values = (_unpacked(it, *one, q) for one in zip(present[:2], present[2:], strict=True))
        mask = _behind_sink(it, sink, None, _hidden_before(it, q, keys, first, it.length(q, 2), window))
        keys, values, seen = _with_zeros(it, keys), _with_zeros(it, values), it.add("Add", seen, _SECOND)
        y = it.add("Attention", q, keys, values, mask, None, None, seen, **more, **it.scale)
    it.builder.keep_results(it.node, it.merged(y), *present)


def _unpacked(it: _Attention, levels: Value, scales: Value, like: Value) -> Value:
    """Dequantise an int8 cache."""
    each = it.add("Unsqueeze", it.add("CastLike", scales, like), _LAST)
    return it.add("Mul", it.add("CastLike", levels, like), each)


def _hidden_before(it: _Attention, q: Value, keys: Value, first: Value, rows: Value, window: int) -> Value:
    """Return the additive sliding-window mask [batch, 1, seq, keys]: -inf for keys before the window.

    Without a window it is zeros of shape [1, 1, 1, keys].
    """
    count = it.length(keys, 2)
    none, hidden = (it.add("CastLike", np.array(value, np.float32), q) for value in (0, -np.inf))
    if window <= 0:
        return it.add("Expand", none, it.add("Concat", np.array([1, 1, 1]), count, axis=0))
    place = it.add(
        "Add", it.add("Reshape", first, np.array([-1, 1, 1, 1])), it.add("Unsqueeze", it.places(rows), _SECOND)
    )
    begin = it.add("Sub", place, np.array([window - 1]))
    return it.add("Where", it.add("Less", it.places(count), begin), hidden, none)


def _behind_sink(it: _Attention, sink: Value | Array, bias: Value | None, hidden: Value) -> Value:
    """Return the additive mask [batch, heads, seq, 1 + keys], with the sink's score in the first column."""
    if bias is not None:
        hidden = it.add("Add", it.add("Slice", hidden, _FIRST, it.length(bias, 3), np.array([3])), bias)
    shape = it.add("Shape", it.add("Add", hidden, it.add("CastLike", sink, hidden)))
    column = it.add("ScatterND", shape, np.array([[3]]), _SECOND)
    parts = it.add("Expand", it.add("CastLike", sink, hidden), column), it.add("Expand", hidden, shape)
    return it.add("Concat", *parts, axis=3)


def _with_zeros(it: _Attention, keys: Value) -> Value:
    """Prepend a zero row to keys or values."""
    shape = it.add("ScatterND", it.add("Shape", keys), np.array([[2]]), _SECOND)
    zeros = it.add("CastLike", it.add("ConstantOfShape", shape, value=np.zeros(1, np.float32)), keys)
    return it.add("Concat", zeros, keys, axis=2)


ATTENTION_NODES: dict[str, Callable[[Builder, NodeRecipe], None]] = {
    "com.microsoft::Attention": _self_attention,
    "com.microsoft::GroupQueryAttention": _grouped,
    "com.microsoft::MultiHeadAttention": _multi_head,
    "com.microsoft::RotaryEmbedding": _rotary,
}
