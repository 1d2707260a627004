"""Translate ONNX operators on sequences and optional values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...base.element_types import Array
from ...base.errors import graph_error
from ..build.builder import Builder
from ..build.compound_values import FIRST, FLAT, SINGLE, Kind, OptionalValue, SequenceValue, packed_item, rank_of
from ..file.recipe import ConstantRecipe, InputRecipe, NodeRecipe, Recipe

if TYPE_CHECKING:
    from ..._pumice import Value

Packed = tuple["Value", "Value", "Value"]
SCALAR = np.zeros(0, np.int64)  # the shape of a scalar
_MOST_PARTS = 1 << 12  # maximum number of chunks that become separate graph values; a loop produces larger numbers


def _sequence(builder: Builder, node: NodeRecipe, index: int = 0) -> SequenceValue:
    name = node.inputs[index] if index < len(node.inputs) else ""
    value = builder.operand(name)
    if isinstance(value, OptionalValue):
        value = _element(node, value)
    if not isinstance(value, SequenceValue):
        raise graph_error("node", node.name, f"'{name}': expected a sequence, given a tensor")
    return value


def _integer(builder: Builder, node: NodeRecipe, name: str) -> int | Value:
    """Return an index: an integer if constant, else int64[1]. Raise GraphError if a constant is not one integer."""
    array = builder.array(name)
    if array is None:
        single = builder.helper(node, "Reshape", builder.tensor(name), SINGLE)
        return builder.helper(node, "Cast", single, to=7)
    if array.size != 1 or array.dtype.kind != "i":
        raise graph_error("node", node.name, f"'{name}': expected one integer, given {array.dtype}{array.shape}")
    return int(array.reshape(1)[0])


def _length(builder: Builder, node: NodeRecipe, packed: Packed) -> Value:
    """Return the number of tensors in a packed sequence as int64[1]."""
    return builder.helper(node, "Gather", builder.helper(node, "Shape", packed[2]), FIRST)


def _from_the_start(
    builder: Builder, node: NodeRecipe, index: int | Value, packed: Packed, past: bool = False
) -> Value:
    """Return a non-negative index as int64[1], checked at run time against the number of tensors.

    past: whether the position after the last tensor is valid, too.
    """
    given = np.array([index]) if isinstance(index, int) else index
    return builder.helper(node, "pumice::Position", given, _length(builder, node, packed), past=int(past))


def _segment(
    builder: Builder, node: NodeRecipe, packed: Packed, begin: Value | Array, end: Value | Array | None
) -> Packed:
    """Return the tensors in a packed sequence from `begin` to `end`, or to the last one."""
    data, dims, rows = packed
    helper = builder.helper

    def offsets(index: Value | Array) -> tuple[Value, Value]:
        before = helper(node, "Slice", rows, FIRST, index, FIRST)
        sums = helper(node, "ReduceSum", before, FIRST, keepdims=0)
        return helper(node, "Gather", sums, FIRST), helper(node, "Gather", sums, SINGLE)

    far = np.array([2**62])
    first = offsets(begin)
    last: tuple[Value | Array, Value | Array] = (far, far) if end is None else offsets(end)
    return (
        helper(node, "Slice", data, first[1], last[1], FIRST),
        helper(node, "Slice", dims, first[0], last[0], FIRST),
        helper(node, "Slice", rows, begin, far if end is None else end, FIRST),
    )


def _joined(builder: Builder, node: NodeRecipe, sequence: SequenceValue, *parts: Packed) -> SequenceValue:
    """Concatenate packed sequences, whose tensors have the same rank as those in `sequence`."""
    data, dims, rows = (builder.helper(node, "Concat", *same, axis=0) for same in zip(*parts, strict=True))
    made = SequenceValue(sequence.dtype, None, (data, dims, rows))
    made.rank = sequence.rank
    return made


def _ranked(builder: Builder, value: Value, rank: int | None) -> Value:
    """Return the value, after passing its rank to the graph as a hint."""
    if rank is not None:
        builder.graph.expect(value, [None] * rank)
    return value


def _keep(builder: Builder, node: NodeRecipe, value: Any) -> None:
    builder.values[node.outputs[0]] = value


# ---- sequences


def _empty(builder: Builder, node: NodeRecipe) -> None:
    dtype = node.attributes.get("dtype")
    if not isinstance(dtype, str):
        raise graph_error("node", node.name, f"expected an element type as 'dtype', given {dtype!r}")
    _keep(builder, node, SequenceValue(dtype, []))


def _construct(builder: Builder, node: NodeRecipe) -> None:
    items = [builder.tensor(name) for name in node.inputs]
    _keep(builder, node, SequenceValue(items[0].dtype, items))


def _insert(builder: Builder, node: NodeRecipe) -> None:
    sequence, item = _sequence(builder, node), builder.tensor(node.inputs[1])
    if item.dtype != sequence.dtype:
        raise graph_error("node", node.name, f"expected a tensor of {sequence.dtype}, given one of {item.dtype}")
    at = _integer(builder, node, node.inputs[2]) if len(node.inputs) > 2 else None
    if sequence.items is not None and (at is None or isinstance(at, int)):
        count = len(sequence.items)
        place = count if at is None else at
        if not -count <= place <= count:
            raise graph_error("node", node.name, f"expected a position in a sequence of {count}, given {place}")
        place += count if place < 0 else 0
        _keep(builder, node, SequenceValue(sequence.dtype, [*sequence.items[:place], item, *sequence.items[place:]]))
        return
    packed, one = sequence.packed(builder, node), packed_item(builder, node, item)
    parts = [packed, one]
    if at is not None:
        begin = _from_the_start(builder, node, at, packed, past=True)
        before, after = _segment(builder, node, packed, FIRST, begin), _segment(builder, node, packed, begin, None)
        parts = [before, one, after]
    made = _joined(builder, node, sequence, *parts)
    made.rank = sequence.rank if sequence.rank == rank_of(item) else None
    _keep(builder, node, made)


def _erase(builder: Builder, node: NodeRecipe) -> None:
    sequence = _sequence(builder, node)
    at = _integer(builder, node, node.inputs[1]) if len(node.inputs) > 1 else -1
    if sequence.items is not None and isinstance(at, int):
        items = list(sequence.items)
        _checked_index(node, at, len(items))
        del items[at]
        _keep(builder, node, SequenceValue(sequence.dtype, items))
        return
    packed = sequence.packed(builder, node)
    begin = _from_the_start(builder, node, at, packed)
    end = builder.helper(node, "Add", begin, SINGLE)
    before, after = _segment(builder, node, packed, FIRST, begin), _segment(builder, node, packed, end, None)
    _keep(builder, node, _joined(builder, node, sequence, before, after))


def _checked_index(node: NodeRecipe, index: int, count: int) -> None:
    if not -count <= index < count:
        raise graph_error("node", node.name, f"expected a position in a sequence of {count}, given {index}")


def _at(builder: Builder, node: NodeRecipe) -> None:
    sequence, at = _sequence(builder, node), _integer(builder, node, node.inputs[1])
    if sequence.items is not None and isinstance(at, int):
        _checked_index(node, at, len(sequence.items))
        _keep(builder, node, sequence.items[at])
        return
    packed = sequence.packed(builder, node)
    begin = _from_the_start(builder, node, at, packed)
    data, dims, _ = _segment(builder, node, packed, begin, builder.helper(node, "Add", begin, SINGLE))
    made = builder.helper(node, "Reshape", data, dims, output=node.outputs[0], allowzero=1)
    builder.keep(node.outputs, (_ranked(builder, made, sequence.rank),))


def _count(builder: Builder, node: NodeRecipe) -> None:
    sequence = _sequence(builder, node)
    if sequence.items is not None:
        _constant(builder, node, np.array(len(sequence.items)))
        return
    length = _length(builder, node, sequence.packed(builder, node))
    builder.keep(node.outputs, (builder.helper(node, "Reshape", length, SCALAR, output=node.outputs[0]),))


def _constant(builder: Builder, node: NodeRecipe, array: Array) -> None:
    """Make an array the output of a node."""
    name = node.outputs[0]
    recipe = ConstantRecipe(name, str(array.dtype), list(array.shape), array.tobytes())
    builder.constants = {**builder.constants, name: recipe}


def _concat(builder: Builder, node: NodeRecipe) -> None:
    sequence = _sequence(builder, node)
    axis, new = node.attributes.get("axis"), node.attributes.get("new_axis", 0) == 1
    if not isinstance(axis, int):
        raise graph_error("node", node.name, f"expected an integer as 'axis', given {axis!r}")
    helper = builder.helper
    if sequence.items is not None:
        items = [helper(node, "Unsqueeze", item, np.array([axis])) if new else item for item in sequence.items]
        builder.keep(node.outputs, (helper(node, "Concat", *items, output=node.outputs[0], axis=axis),))
        return
    packed = sequence.packed(builder, node)
    rank = None if sequence.rank is None else sequence.rank + new
    if axis != 0:
        _keep(builder, node, _ranked(builder, _concat_inside(builder, node, packed, axis, new), rank))
        return
    data, dims, _ = packed
    count = _length(builder, node, packed)
    table = helper(node, "Reshape", dims, helper(node, "Concat", count, FLAT, axis=0))
    if new:
        shape = helper(node, "Concat", count, helper(node, "ReduceMax", table, FIRST, keepdims=0), axis=0)
    else:
        total = helper(node, "Gather", helper(node, "ReduceSum", table, FIRST, keepdims=0), FIRST)
        rest = helper(node, "Slice", helper(node, "ReduceMax", table, FIRST, keepdims=0), SINGLE, np.array([2**31]))
        shape = helper(node, "Concat", total, rest, axis=0)
    # Reshape rejects tensors of unequal sizes: there are too few elements.
    made = helper(node, "Reshape", data, shape, output=node.outputs[0], allowzero=1)
    builder.keep(node.outputs, (_ranked(builder, made, rank),))


def _concat_inside(builder: Builder, node: NodeRecipe, packed: Packed, axis: int, new: bool) -> Value:
    """Concatenate a packed sequence along an axis other than the first, for any number of tensors of any rank.

    A row of the result holds one contiguous run of each tensor.
    """
    helper = builder.helper
    data, dims, _ = packed
    count, far = _length(builder, node, packed), np.array([2**31])
    table = helper(node, "Reshape", dims, helper(node, "Concat", count, FLAT, axis=0))
    cut = np.array([axis if axis >= 0 or not new else axis + 1]) if axis != -1 or not new else far
    past = cut if new else np.array([axis + 1]) if axis != -1 else far
    stretches = helper(node, "ReduceProd", helper(node, "Slice", table, cut, far, SINGLE), SINGLE, keepdims=0)
    shape = helper(node, "ReduceMax", table, FIRST, keepdims=0)
    outer, inner = helper(node, "Slice", shape, FIRST, cut, FIRST), helper(node, "Slice", shape, past, far, FIRST)
    rows = helper(node, "ReduceProd", outer, FIRST, keepdims=0)
    ends = helper(node, "CumSum", stretches, np.array(0))
    begins = helper(node, "Sub", ends, stretches)
    columns = helper(node, "ReduceSum", stretches, FIRST, keepdims=0)
    place = helper(node, "Range", np.array(0), columns, np.array(1))
    passed = helper(node, "GreaterOrEqual", helper(node, "Unsqueeze", place, SINGLE), ends)
    which = helper(node, "ReduceSum", helper(node, "Cast", passed, to=7), SINGLE, keepdims=0)
    # Offset of a tensor's elements in `data`, minus the offset of its run in a row.
    moved = helper(node, "Sub", helper(node, "Mul", begins, rows), begins)
    first = helper(node, "Add", helper(node, "Gather", moved, which), place)
    row = helper(node, "Unsqueeze", helper(node, "Range", np.array(0), rows, np.array(1)), SINGLE)
    places = helper(node, "Add", helper(node, "Mul", row, helper(node, "Gather", stretches, which)), first)
    # Reshape rejects tensors of unequal sizes: there are too few elements.
    whole = helper(
        node, "Reshape", data, helper(node, "Reshape", helper(node, "Mul", rows, columns), SINGLE), allowzero=1
    )
    joined = count
    if not new:
        joined = helper(node, "ReduceSum", helper(node, "Slice", table, cut, past, SINGLE), FIRST, keepdims=0)
    target = helper(node, "Concat", outer, joined, inner, axis=0)
    found = helper(node, "Gather", whole, places)
    made: Value = helper(node, "Reshape", found, target, output=node.outputs[0], allowzero=1)
    return made


def _split(builder: Builder, node: NodeRecipe) -> None:
    x = builder.tensor(node.inputs[0])
    axis = node.attributes.get("axis", 0)
    split = node.inputs[1] if len(node.inputs) > 1 else ""
    keeps = node.attributes.get("keepdims", 1) != 0 or bool(split)
    if not isinstance(axis, int):
        raise graph_error("node", node.name, f"expected an integer as 'axis', given {axis!r}")
    size = x.shape[axis] if x.shape is not None else None
    sizes = builder.array(split) if split else np.array(1)
    lengths = builder.tensor(split) if sizes is None else None
    count: int | None = None
    if lengths is not None and lengths.shape is not None and len(lengths.shape) == 1:
        count = lengths.shape[0]
    elif sizes is not None and sizes.ndim == 1:
        count = sizes.size
    elif sizes is not None and size is not None:
        part = max(int(sizes), 1)
        count = -(-size // part)
        if count > _MOST_PARTS:
            count = None
        else:
            sizes = np.array([min(part, size - first) for first in range(0, size, part)], np.int64)
    if count is not None and count > _MOST_PARTS:
        raise builder.refuse(node, f"{count} parts of sizes of their own; there can be {_MOST_PARTS}")
    if count is None:
        if lengths is not None and lengths.shape != ():
            raise builder.refuse(node, "a number of parts that is known only when it runs")
        _split_in_a_loop(builder, node, axis, keeps)
        return
    if count == 0:
        _keep(builder, node, SequenceValue(x.dtype, []))
        return
    sizes_of_parts = lengths if sizes is None else sizes.astype(np.int64)
    label = builder.helper_name(node, "Split")
    items = builder.graph.add("Split", x, sizes_of_parts, outputs=count, name=label, axis=axis)
    parts = list(items) if isinstance(items, tuple) else [items]
    if not keeps:
        parts = [builder.helper(node, "Squeeze", part, np.array([axis])) for part in parts]
    _keep(builder, node, SequenceValue(x.dtype, parts))


# ---- in loops


def _named(node: NodeRecipe, name: str) -> str:
    return f"{node.name}/{name}"


def _integer_constant(name: str, *values: int) -> ConstantRecipe:
    return ConstantRecipe(name, "int64", [len(values)], np.array(values, np.int64).tobytes())


class _Turn(NamedTuple):
    """The body of a generated loop: its nodes read the iteration number as "<node>/number"; `given` maps the values
    that the sequences collect to their dtypes.
    """

    nodes: list[NodeRecipe]
    given: dict[str, str]
    constants: dict[str, ConstantRecipe]
    captured: list[str]


def _loop(builder: Builder, node: NodeRecipe, count: Value, turn: _Turn) -> None:
    """Add a Loop of `count` iterations that collects a sequence for each output."""
    names = list(node.outputs)
    states = [_named(node, f"made{j}") for j in range(len(names))]
    insertions = [
        NodeRecipe("SequenceInsert", f"{node.name}/insert{j}", [state, source], [f"{state}.next"], {})
        for j, (state, source) in enumerate(zip(states, turn.given, strict=True))
    ]
    dtypes = list(turn.given.values())
    body = Recipe(
        node.name,
        [
            InputRecipe(_named(node, "number"), "int64", [], []),
            InputRecipe(_named(node, "go on"), "bool", [], []),
            *(InputRecipe(state, f"sequence({dtype})", None, []) for state, dtype in zip(states, dtypes, strict=True)),
        ],
        turn.constants,
        [*turn.nodes, *insertions],
        [
            InputRecipe(_named(node, "go on"), "bool", [], []),
            *(
                InputRecipe(f"{state}.next", f"sequence({dtype})", None, [])
                for state, dtype in zip(states, dtypes, strict=True)
            ),
        ],
        [],
        turn.captured,
    )
    for state, dtype in zip(states, dtypes, strict=True):
        builder.values[f"{state}.first"] = SequenceValue(dtype, [])
    builder.values[_named(node, "count")] = count
    inputs = [_named(node, "count"), "", *(f"{state}.first" for state in states)]
    builder.add_node(NodeRecipe("Loop", node.name, inputs, names, {"body": body}))


def _split_in_a_loop(builder: Builder, node: NodeRecipe, axis: int, keeps: bool) -> None:
    """Translate SplitToSequence to a Loop: equal chunks, if the size or the axis length is known only at run time."""
    helper = builder.helper
    x = builder.tensor(node.inputs[0])
    split = node.inputs[1] if len(node.inputs) > 1 else ""
    size: Value | Array = np.array([1])
    if split:
        size = helper(node, "Reshape", helper(node, "Cast", builder.tensor(split), to=7), SINGLE)
    length = helper(node, "Gather", helper(node, "Shape", x), np.array([axis]))
    rest = helper(node, "Sub", size, SINGLE)
    builder.values[_named(node, "size")] = size if not isinstance(size, np.ndarray) else builder.graph.constant(size)
    count = helper(node, "Div", helper(node, "Add", length, rest), size)
    name = functools.partial(_named, node)
    nodes = [
        NodeRecipe("Reshape", name("row"), [name("number"), name("one")], [name("n")], {}),
        NodeRecipe("Mul", name("mul"), [name("n"), name("size")], [name("begin")], {}),
        NodeRecipe("Add", name("add"), [name("begin"), name("size")], [name("end")], {}),
        NodeRecipe(
            "Slice", name("slice"), [node.inputs[0], name("begin"), name("end"), name("axis")], [name("part")], {}
        ),
    ]
    if not keeps:
        nodes.append(NodeRecipe("Squeeze", name("squeeze"), [name("part"), name("axis")], [name("item")], {}))
    constants = {name("one"): _integer_constant(name("one"), 1), name("axis"): _integer_constant(name("axis"), axis)}
    given = {name("part" if keeps else "item"): x.dtype}
    _loop(builder, node, count, _Turn(nodes, given, constants, [node.inputs[0], name("size")]))
    made = builder.values[node.outputs[0]]
    if isinstance(made, SequenceValue) and x.shape is not None:
        made.rank = len(x.shape) - (0 if keeps else 1)


def _map(builder: Builder, node: NodeRecipe) -> None:
    """Translate SequenceMap to a Loop whose body reads one tensor from each sequence."""
    body = node.attributes.get("body")
    if not isinstance(body, Recipe) or len(body.inputs) != len(node.inputs) or len(body.outputs) < len(node.outputs):
        raise graph_error("node", node.name, f"expected a body of {len(node.inputs)} inputs as attribute 'body'")
    for value in (*body.inputs, *body.outputs):
        if Kind.of(value.dtype).compound:
            expected = f"'{value.name}' of its body to be a tensor, given {value.dtype}"
            raise graph_error("node", node.name, f"expected {expected}")
    first = _sequence(builder, node)
    takes = []
    for name, value in zip(node.inputs, body.inputs, strict=True):
        whole = isinstance(builder.operand(name), SequenceValue)
        inputs = [name, _named(node, "number")] if whole else [name]
        takes.append(
            NodeRecipe(
                "SequenceAt" if whole else "Identity", _named(node, f"take {value.name}"), inputs, [value.name], {}
            )
        )
    given: dict[str, str] = {}
    gives = []
    for output in body.outputs[: len(node.outputs)]:
        name = _named(node, f"give{len(given)}")
        gives.append(NodeRecipe("Identity", name, [output.name], [name], {}))
        given[name] = output.dtype
    if "" in given.values():
        raise builder.refuse(node, "a body that does not declare the element types of its outputs")
    count: Any
    if first.items is not None:
        count = builder.graph.constant(np.array([len(first.items)], np.int64))
    else:
        count = _length(builder, node, first.packed(builder, node))
    captured = list(dict.fromkeys([*node.inputs, *body.captured]))
    _loop(builder, node, count, _Turn([*takes, *body.nodes, *gives], given, body.constants, captured))


# ---- optional values


def _optional(builder: Builder, node: NodeRecipe) -> None:
    if node.inputs:
        value = builder.operand(node.inputs[0])
        if isinstance(value, OptionalValue):
            raise graph_error("node", node.name, "expected a tensor or a sequence, given an optional value")
        kind = Kind(value.dtype, isinstance(value, SequenceValue), True)
        _keep(builder, node, OptionalValue(kind, True, value))
        return
    given = node.attributes.get("type")
    if not isinstance(given, str):
        raise graph_error("node", node.name, "expected an input or a type, given none")
    _keep(builder, node, OptionalValue(Kind.of(given)._replace(optional=True), False, None))


def _element(node: NodeRecipe, value: OptionalValue) -> Any:
    if value.element is None:
        raise graph_error("node", node.name, "expected a value, given an optional one that is empty")
    return value.element


def _get(builder: Builder, node: NodeRecipe) -> None:
    value = builder.operand(node.inputs[0])
    _keep(builder, node, _element(node, value) if isinstance(value, OptionalValue) else value)


def _has(builder: Builder, node: NodeRecipe) -> None:
    value = builder.operand(node.inputs[0]) if node.inputs else None
    has = value.has if isinstance(value, OptionalValue) else value is not None
    if isinstance(has, bool):
        _constant(builder, node, np.array(has))
        return
    builder.keep(node.outputs, (builder.helper(node, "Reshape", has, SCALAR, output=node.outputs[0]),))


SEQUENCE_NODES: dict[str, Callable[[Builder, NodeRecipe], None]] = {
    "ConcatFromSequence": _concat,
    "Optional": _optional,
    "OptionalGetElement": _get,
    "OptionalHasElement": _has,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _empty,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _count,
    "SequenceMap": _map,
    "SplitToSequence": _split,
}
