"""Translate ONNX's sequence and optional operators."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...base.element_types import Array
from ...base.errors import graph_error
from ..build.builder import GraphBuilder
from ..build.non_tensor_values import (
    ARRAY_0,
    ARRAY_1,
    ARRAY_MINUS_1,
    OptionalValue,
    SequenceValue,
    ValueKind,
    get_rank,
    pack_tensor,
)
from ..file.graph_recipe import ConstantRecipe, GraphRecipe, InputRecipe, NodeRecipe

if TYPE_CHECKING:
    from ..._pumice import Value

Packed = tuple["Value", "Value", "Value"]
SCALAR = np.zeros(0, np.int64)  # shape of a scalar
_MAX_CHUNKS = 1 << 12  # maximum number of chunks that become separate graph values; above it, a loop splits the tensor


def _get_sequence(builder: GraphBuilder, node: NodeRecipe, index: int = 0) -> SequenceValue:
    name = node.inputs[index] if index < len(node.inputs) else ""
    value = builder.require_value(name)
    if isinstance(value, OptionalValue):
        value = _get_optional_element(node, value)
    if not isinstance(value, SequenceValue):
        raise graph_error("node", node.name, f"'{name}': expected a sequence, given a tensor")
    return value


def _get_index(builder: GraphBuilder, node: NodeRecipe, name: str) -> int | Value:
    """Return an index as an int if it is constant, else as int64[1]. Raise GraphError if a constant is not a single integer."""
    array = builder.get_constant_array(name)
    if array is None:
        single = builder.add_helper(node, "Reshape", builder.require_tensor(name), ARRAY_1)
        return builder.add_helper(node, "Cast", single, to=7)
    if array.size != 1 or array.dtype.kind != "i":
        raise graph_error("node", node.name, f"'{name}': expected one integer, given {array.dtype}{array.shape}")
    return int(array.reshape(1)[0])


def _get_sequence_length(builder: GraphBuilder, node: NodeRecipe, packed: Packed) -> Value:
    """Return the number of tensors in a packed sequence as int64[1]."""
    return builder.add_helper(node, "Gather", builder.add_helper(node, "Shape", packed[2]), ARRAY_0)


def _normalize_index(
    builder: GraphBuilder, node: NodeRecipe, index: int | Value, packed: Packed, accepts_end: bool = False
) -> Value:
    """Return a possibly negative index as a non-negative int64[1]. A run-time check compares it with the number of tensors.

    accepts_end: also accept the position after the last tensor.
    """
    index_array = np.array([index]) if isinstance(index, int) else index
    return builder.add_helper(
        node, "pumice::Position", index_array, _get_sequence_length(builder, node, packed), past=int(accepts_end)
    )


def _slice_packed(
    builder: GraphBuilder, node: NodeRecipe, packed: Packed, begin: Value | Array, end: Value | Array | None
) -> Packed:
    """Return tensors `begin` to `end` (exclusive) of a packed sequence; None: to its end."""
    data, dims, rows = packed
    add_helper = builder.add_helper

    def get_offsets(index: Value | Array) -> tuple[Value, Value]:
        before = add_helper(node, "Slice", rows, ARRAY_0, index, ARRAY_0)
        sums = add_helper(node, "ReduceSum", before, ARRAY_0, keepdims=0)
        return add_helper(node, "Gather", sums, ARRAY_0), add_helper(node, "Gather", sums, ARRAY_1)

    slice_end = np.array([2**62])
    first = get_offsets(begin)
    last: tuple[Value | Array, Value | Array] = (slice_end, slice_end) if end is None else get_offsets(end)
    return (
        add_helper(node, "Slice", data, first[1], last[1], ARRAY_0),
        add_helper(node, "Slice", dims, first[0], last[0], ARRAY_0),
        add_helper(node, "Slice", rows, begin, slice_end if end is None else end, ARRAY_0),
    )


def _concat_packed(
    builder: GraphBuilder, node: NodeRecipe, sequence: SequenceValue, *packed_sequences: Packed
) -> SequenceValue:
    """Concatenate packed sequences. The result has the dtype and rank of `sequence`."""
    fields = zip(*packed_sequences, strict=True)
    data, dims, rows = (builder.add_helper(node, "Concat", *field, axis=0) for field in fields)
    concatenated = SequenceValue(sequence.dtype, None, (data, dims, rows))
    concatenated.rank = sequence.rank
    return concatenated


def _add_rank_hint(builder: GraphBuilder, value: Value, rank: int | None) -> Value:
    """Pass the rank of a value to the graph as a hint, and return the value."""
    if rank is not None:
        builder.graph.expect(value, [None] * rank)
    return value


def _set_output(builder: GraphBuilder, node: NodeRecipe, value: Any) -> None:
    builder.values[node.outputs[0]] = value


# ---- translators of sequence operators


def _translate_sequence_empty(builder: GraphBuilder, node: NodeRecipe) -> None:
    dtype = node.attributes.get("dtype")
    if not isinstance(dtype, str):
        raise graph_error("node", node.name, f"expected an element type as 'dtype', given {dtype!r}")
    _set_output(builder, node, SequenceValue(dtype, []))


def _translate_sequence_construct(builder: GraphBuilder, node: NodeRecipe) -> None:
    items = [builder.require_tensor(name) for name in node.inputs]
    _set_output(builder, node, SequenceValue(items[0].dtype, items))


def _translate_sequence_insert(builder: GraphBuilder, node: NodeRecipe) -> None:
    sequence, item = _get_sequence(builder, node), builder.require_tensor(node.inputs[1])
    if item.dtype != sequence.dtype:
        raise graph_error("node", node.name, f"expected a tensor of {sequence.dtype}, given one of {item.dtype}")
    index = _get_index(builder, node, node.inputs[2]) if len(node.inputs) > 2 else None
    if sequence.items is not None and (index is None or isinstance(index, int)):
        count = len(sequence.items)
        i = count if index is None else index
        if not -count <= i <= count:
            raise graph_error("node", node.name, f"expected a position in a sequence of {count}, given {i}")
        i += count if i < 0 else 0
        _set_output(builder, node, SequenceValue(sequence.dtype, [*sequence.items[:i], item, *sequence.items[i:]]))
        return
    packed, packed_item = sequence.get_packed(builder, node), pack_tensor(builder, node, item)
    parts = [packed, packed_item]
    if index is not None:
        begin = _normalize_index(builder, node, index, packed, accepts_end=True)
        before = _slice_packed(builder, node, packed, ARRAY_0, begin)
        parts = [before, packed_item, _slice_packed(builder, node, packed, begin, None)]
    concatenated = _concat_packed(builder, node, sequence, *parts)
    concatenated.rank = sequence.rank if sequence.rank == get_rank(item) else None
    _set_output(builder, node, concatenated)


def _translate_sequence_erase(builder: GraphBuilder, node: NodeRecipe) -> None:
    sequence = _get_sequence(builder, node)
    index = _get_index(builder, node, node.inputs[1]) if len(node.inputs) > 1 else -1
    if sequence.items is not None and isinstance(index, int):
        items = list(sequence.items)
        _check_index(node, index, len(items))
        del items[index]
        _set_output(builder, node, SequenceValue(sequence.dtype, items))
        return
    packed = sequence.get_packed(builder, node)
    begin = _normalize_index(builder, node, index, packed)
    end = builder.add_helper(node, "Add", begin, ARRAY_1)
    before = _slice_packed(builder, node, packed, ARRAY_0, begin)
    after = _slice_packed(builder, node, packed, end, None)
    _set_output(builder, node, _concat_packed(builder, node, sequence, before, after))


def _check_index(node: NodeRecipe, index: int, count: int) -> None:
    if not -count <= index < count:
        raise graph_error("node", node.name, f"expected a position in a sequence of {count}, given {index}")


def _translate_sequence_at(builder: GraphBuilder, node: NodeRecipe) -> None:
    sequence, index = _get_sequence(builder, node), _get_index(builder, node, node.inputs[1])
    if sequence.items is not None and isinstance(index, int):
        _check_index(node, index, len(sequence.items))
        _set_output(builder, node, sequence.items[index])
        return
    packed = sequence.get_packed(builder, node)
    begin = _normalize_index(builder, node, index, packed)
    data, dims, _ = _slice_packed(builder, node, packed, begin, builder.add_helper(node, "Add", begin, ARRAY_1))
    result = builder.add_helper(node, "Reshape", data, dims, output=node.outputs[0], allowzero=1)
    builder.set_values(node.outputs, (_add_rank_hint(builder, result, sequence.rank),))


def _translate_sequence_length(builder: GraphBuilder, node: NodeRecipe) -> None:
    sequence = _get_sequence(builder, node)
    if sequence.items is not None:
        _set_constant_output(builder, node, np.array(len(sequence.items)))
        return
    length = _get_sequence_length(builder, node, sequence.get_packed(builder, node))
    builder.set_values(node.outputs, (builder.add_helper(node, "Reshape", length, SCALAR, output=node.outputs[0]),))


def _set_constant_output(builder: GraphBuilder, node: NodeRecipe, array: Array) -> None:
    """Register an array as the constant output of a node."""
    name = node.outputs[0]
    recipe = ConstantRecipe(name, str(array.dtype), list(array.shape), array.tobytes())
    builder.constants = {**builder.constants, name: recipe}


def _translate_concat_from_sequence(builder: GraphBuilder, node: NodeRecipe) -> None:
    sequence = _get_sequence(builder, node)
    axis, is_new_axis = node.attributes.get("axis"), node.attributes.get("new_axis", 0) == 1
    if not isinstance(axis, int):
        raise graph_error("node", node.name, f"expected an integer as 'axis', given {axis!r}")
    add_helper = builder.add_helper
    if sequence.items is not None:
        items = [
            add_helper(node, "Unsqueeze", item, np.array([axis])) if is_new_axis else item for item in sequence.items
        ]
        builder.set_values(node.outputs, (add_helper(node, "Concat", *items, output=node.outputs[0], axis=axis),))
        return
    packed = sequence.get_packed(builder, node)
    rank = None if sequence.rank is None else sequence.rank + is_new_axis
    if axis != 0:
        concatenated = _concat_packed_on_axis(builder, node, packed, axis, is_new_axis)
        _set_output(builder, node, _add_rank_hint(builder, concatenated, rank))
        return
    data, dims, _ = packed
    count = _get_sequence_length(builder, node, packed)
    table = add_helper(node, "Reshape", dims, add_helper(node, "Concat", count, ARRAY_MINUS_1, axis=0))
    if is_new_axis:
        shape = add_helper(node, "Concat", count, add_helper(node, "ReduceMax", table, ARRAY_0, keepdims=0), axis=0)
    else:
        total = add_helper(node, "Gather", add_helper(node, "ReduceSum", table, ARRAY_0, keepdims=0), ARRAY_0)
        sizes = add_helper(node, "ReduceMax", table, ARRAY_0, keepdims=0)
        rest = add_helper(node, "Slice", sizes, ARRAY_1, np.array([2**31]))
        shape = add_helper(node, "Concat", total, rest, axis=0)
    # Reshape fails for tensors of unequal sizes, because the element count does not match.
    result = add_helper(node, "Reshape", data, shape, output=node.outputs[0], allowzero=1)
    builder.set_values(node.outputs, (_add_rank_hint(builder, result, rank),))


def _concat_packed_on_axis(
    builder: GraphBuilder, node: NodeRecipe, packed: Packed, axis: int, is_new_axis: bool
) -> Value:
    """Concatenate a packed sequence along an axis other than the first, for any number of tensors of any rank.

    Each row of the result consists of one contiguous run from each tensor. is_new_axis: concatenate along a new axis.
    """
    add = functools.partial(builder.add_helper, node)
    data, dims, _ = packed
    count, end = _get_sequence_length(builder, node, packed), np.array([2**31])
    table = add("Reshape", dims, add("Concat", count, ARRAY_MINUS_1, axis=0))
    after_axis = end if axis == -1 else np.array([axis + 1 if axis < 0 or not is_new_axis else axis])
    axis_begin = after_axis if is_new_axis else np.array([axis])
    run_lengths = add("ReduceProd", add("Slice", table, axis_begin, end, ARRAY_1), ARRAY_1, keepdims=0)
    shape = add("ReduceMax", table, ARRAY_0, keepdims=0)
    outer = add("Slice", shape, ARRAY_0, axis_begin, ARRAY_0)
    inner = add("Slice", shape, after_axis, end, ARRAY_0)
    num_rows = add("ReduceProd", outer, ARRAY_0, keepdims=0)
    ends = add("CumSum", run_lengths, np.array(0))
    begins = add("Sub", ends, run_lengths)
    num_columns = add("ReduceSum", run_lengths, ARRAY_0, keepdims=0)
    column_index = add("Range", np.array(0), num_columns, np.array(1))
    is_past_end = add("GreaterOrEqual", add("Unsqueeze", column_index, ARRAY_1), ends)
    tensor_index = add("ReduceSum", add("Cast", is_past_end, to=7), ARRAY_1, keepdims=0)
    # Offset of each tensor in `data`, minus the offset of its run within a row.
    offset_shift = add("Sub", add("Mul", begins, num_rows), begins)
    first = add("Add", add("Gather", offset_shift, tensor_index), column_index)
    row = add("Unsqueeze", add("Range", np.array(0), num_rows, np.array(1)), ARRAY_1)
    source_indices = add("Add", add("Mul", row, add("Gather", run_lengths, tensor_index)), first)
    # Reshape fails for tensors of unequal sizes, because the element count does not match.
    flat = add("Reshape", data, add("Reshape", add("Mul", num_rows, num_columns), ARRAY_1), allowzero=1)
    size = count
    if not is_new_axis:
        size = add("ReduceSum", add("Slice", table, axis_begin, after_axis, ARRAY_1), ARRAY_0, keepdims=0)
    target = add("Concat", outer, size, inner, axis=0)
    result: Value = add("Reshape", add("Gather", flat, source_indices), target, output=node.outputs[0], allowzero=1)
    return result


def _translate_split_to_sequence(builder: GraphBuilder, node: NodeRecipe) -> None:
    x = builder.require_tensor(node.inputs[0])
    axis = node.attributes.get("axis", 0)
    split = node.inputs[1] if len(node.inputs) > 1 else ""
    keeps_axis = node.attributes.get("keepdims", 1) != 0 or bool(split)
    if not isinstance(axis, int):
        raise graph_error("node", node.name, f"expected an integer as 'axis', given {axis!r}")
    size = x.shape[axis] if x.shape is not None else None
    sizes = builder.get_constant_array(split) if split else np.array(1)
    lengths = builder.require_tensor(split) if sizes is None else None
    count: int | None = None
    if lengths is not None and lengths.shape is not None and len(lengths.shape) == 1:
        count = lengths.shape[0]
    elif sizes is not None and sizes.ndim == 1:
        count = sizes.size
    elif sizes is not None and size is not None:
        chunk_size = max(int(sizes), 1)
        count = -(-size // chunk_size)
        if count > _MAX_CHUNKS:
            count = None
        else:
            sizes = np.array([min(chunk_size, size - i) for i in range(0, size, chunk_size)], np.int64)
    if count is not None and count > _MAX_CHUNKS:
        raise builder.reject(node, f"{count} parts of sizes of their own; there can be {_MAX_CHUNKS}")
    if count is None:
        if lengths is not None and lengths.shape != ():
            raise builder.reject(node, "a number of parts that is known only at run time")
        _split_with_loop(builder, node, axis, keeps_axis)
        return
    if count == 0:
        _set_output(builder, node, SequenceValue(x.dtype, []))
        return
    chunk_sizes = lengths if sizes is None else sizes.astype(np.int64)
    label = builder.make_helper_name(node, "Split")
    items = builder.graph.add("Split", x, chunk_sizes, outputs=count, name=label, axis=axis)
    chunks = list(items) if isinstance(items, tuple) else [items]
    if not keeps_axis:
        chunks = [builder.add_helper(node, "Squeeze", chunk, np.array([axis])) for chunk in chunks]
    _set_output(builder, node, SequenceValue(x.dtype, chunks))


# ---- generated loops


def _make_inner_name(node: NodeRecipe, name: str) -> str:
    return f"{node.name}/{name}"


def _make_integer_constant(name: str, *values: int) -> ConstantRecipe:
    return ConstantRecipe(name, "int64", [len(values)], np.array(values, np.int64).tobytes())


class _LoopBody(NamedTuple):
    """The body of a generated loop. Its nodes read the iteration number as "<node>/number".

    collected_dtypes: values that each iteration appends to the output sequences -> their dtypes.
    """

    nodes: list[NodeRecipe]
    collected_dtypes: dict[str, str]
    constants: dict[str, ConstantRecipe]
    captured: list[str]


def _add_collecting_loop(builder: GraphBuilder, node: NodeRecipe, count: Value, loop_body: _LoopBody) -> None:
    """Add a Loop with `count` iterations that appends one tensor per iteration to each output sequence."""
    names = list(node.outputs)
    states = [_make_inner_name(node, f"made{j}") for j in range(len(names))]
    insertions = [
        NodeRecipe("SequenceInsert", f"{node.name}/insert{j}", [state, source], [f"{state}.next"], {})
        for j, (state, source) in enumerate(zip(states, loop_body.collected_dtypes, strict=True))
    ]
    dtypes = list(loop_body.collected_dtypes.values())
    body = GraphRecipe(
        node.name,
        [
            InputRecipe(_make_inner_name(node, "number"), "int64", [], []),
            InputRecipe(_make_inner_name(node, "go on"), "bool", [], []),
            *(InputRecipe(state, f"sequence({dtype})", None, []) for state, dtype in zip(states, dtypes, strict=True)),
        ],
        loop_body.constants,
        [*loop_body.nodes, *insertions],
        [
            InputRecipe(_make_inner_name(node, "go on"), "bool", [], []),
            *(
                InputRecipe(f"{state}.next", f"sequence({dtype})", None, [])
                for state, dtype in zip(states, dtypes, strict=True)
            ),
        ],
        [],
        loop_body.captured,
    )
    for state, dtype in zip(states, dtypes, strict=True):
        builder.values[f"{state}.first"] = SequenceValue(dtype, [])
    builder.values[_make_inner_name(node, "count")] = count
    inputs = [_make_inner_name(node, "count"), "", *(f"{state}.first" for state in states)]
    builder.add_node(NodeRecipe("Loop", node.name, inputs, names, {"body": body}))


def _split_with_loop(builder: GraphBuilder, node: NodeRecipe, axis: int, keeps_axis: bool) -> None:
    """Translate SplitToSequence to a Loop that emits equal chunks, for a chunk size or axis length known only at run time."""
    add = functools.partial(builder.add_helper, node)
    name = functools.partial(_make_inner_name, node)
    x = builder.require_tensor(node.inputs[0])
    split = node.inputs[1] if len(node.inputs) > 1 else ""
    size: Value | Array = np.array([1])
    if split:
        size = add("Reshape", add("Cast", builder.require_tensor(split), to=7), ARRAY_1)
    length = add("Gather", add("Shape", x), np.array([axis]))
    rest = add("Sub", size, ARRAY_1)
    builder.values[name("size")] = size if not isinstance(size, np.ndarray) else builder.graph.constant(size)
    count = add("Div", add("Add", length, rest), size)
    nodes = [
        NodeRecipe("Reshape", name("row"), [name("number"), name("one")], [name("n")], {}),
        NodeRecipe("Mul", name("mul"), [name("n"), name("size")], [name("begin")], {}),
        NodeRecipe("Add", name("add"), [name("begin"), name("size")], [name("end")], {}),
        NodeRecipe(
            "Slice", name("slice"), [node.inputs[0], name("begin"), name("end"), name("axis")], [name("part")], {}
        ),
    ]
    if not keeps_axis:
        nodes.append(NodeRecipe("Squeeze", name("squeeze"), [name("part"), name("axis")], [name("item")], {}))
    constants = {
        name("one"): _make_integer_constant(name("one"), 1),
        name("axis"): _make_integer_constant(name("axis"), axis),
    }
    dtypes = {name("part" if keeps_axis else "item"): x.dtype}
    _add_collecting_loop(builder, node, count, _LoopBody(nodes, dtypes, constants, [node.inputs[0], name("size")]))
    seq = builder.values[node.outputs[0]]
    if isinstance(seq, SequenceValue) and x.shape is not None:
        seq.rank = len(x.shape) - (0 if keeps_axis else 1)


def _translate_sequence_map(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Translate SequenceMap to a Loop that applies the body to one tensor of each sequence per iteration."""
    body = node.attributes.get("body")
    if (
        not isinstance(body, GraphRecipe)
        or len(body.inputs) != len(node.inputs)
        or len(body.outputs) < len(node.outputs)
    ):
        raise graph_error("node", node.name, f"expected a body of {len(node.inputs)} inputs as attribute 'body'")
    for value in (*body.inputs, *body.outputs):
        if ValueKind.parse(value.dtype).is_non_tensor:
            expected = f"'{value.name}' of its body to be a tensor, given {value.dtype}"
            raise graph_error("node", node.name, f"expected {expected}")
    first = _get_sequence(builder, node)
    input_nodes = []
    for name, value in zip(node.inputs, body.inputs, strict=True):
        is_sequence = isinstance(builder.require_value(name), SequenceValue)
        inputs = [name, _make_inner_name(node, "number")] if is_sequence else [name]
        op, label = "SequenceAt" if is_sequence else "Identity", _make_inner_name(node, f"take {value.name}")
        input_nodes.append(NodeRecipe(op, label, inputs, [value.name], {}))
    dtypes: dict[str, str] = {}
    output_nodes = []
    for output in body.outputs[: len(node.outputs)]:
        name = _make_inner_name(node, f"give{len(dtypes)}")
        output_nodes.append(NodeRecipe("Identity", name, [output.name], [name], {}))
        dtypes[name] = output.dtype
    if "" in dtypes.values():
        raise builder.reject(node, "a body that does not declare the element types of its outputs")
    count: Any
    if first.items is not None:
        count = builder.graph.constant(np.array([len(first.items)], np.int64))
    else:
        count = _get_sequence_length(builder, node, first.get_packed(builder, node))
    captured = list(dict.fromkeys([*node.inputs, *body.captured]))
    nodes = [*input_nodes, *body.nodes, *output_nodes]
    _add_collecting_loop(builder, node, count, _LoopBody(nodes, dtypes, body.constants, captured))


# ---- translators of optional operators


def _translate_optional(builder: GraphBuilder, node: NodeRecipe) -> None:
    if node.inputs:
        value = builder.require_value(node.inputs[0])
        if isinstance(value, OptionalValue):
            raise graph_error("node", node.name, "expected a tensor or a sequence, given an optional value")
        kind = ValueKind(value.dtype, isinstance(value, SequenceValue), True)
        _set_output(builder, node, OptionalValue(kind, True, value))
        return
    type_text = node.attributes.get("type")
    if not isinstance(type_text, str):
        raise graph_error("node", node.name, "expected an input or a type, given none")
    _set_output(builder, node, OptionalValue(ValueKind.parse(type_text)._replace(optional=True), False, None))


def _get_optional_element(node: NodeRecipe, value: OptionalValue) -> Any:
    if value.element is None:
        raise graph_error("node", node.name, "expected a value, given an optional one that is empty")
    return value.element


def _translate_optional_get_element(builder: GraphBuilder, node: NodeRecipe) -> None:
    value = builder.require_value(node.inputs[0])
    _set_output(builder, node, _get_optional_element(node, value) if isinstance(value, OptionalValue) else value)


def _translate_optional_has_element(builder: GraphBuilder, node: NodeRecipe) -> None:
    value = builder.require_value(node.inputs[0]) if node.inputs else None
    is_present = value.is_present if isinstance(value, OptionalValue) else value is not None
    if isinstance(is_present, bool):
        _set_constant_output(builder, node, np.array(is_present))
        return
    builder.set_values(node.outputs, (builder.add_helper(node, "Reshape", is_present, SCALAR, output=node.outputs[0]),))


SEQUENCE_NODES: dict[str, Callable[[GraphBuilder, NodeRecipe], None]] = {
    "ConcatFromSequence": _translate_concat_from_sequence,
    "Optional": _translate_optional,
    "OptionalGetElement": _translate_optional_get_element,
    "OptionalHasElement": _translate_optional_has_element,
    "SequenceAt": _translate_sequence_at,
    "SequenceConstruct": _translate_sequence_construct,
    "SequenceEmpty": _translate_sequence_empty,
    "SequenceErase": _translate_sequence_erase,
    "SequenceInsert": _translate_sequence_insert,
    "SequenceLength": _translate_sequence_length,
    "SequenceMap": _translate_sequence_map,
    "SplitToSequence": _translate_split_to_sequence,
}
