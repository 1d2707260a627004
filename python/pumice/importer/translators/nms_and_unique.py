"""Translate NonMaxSuppression and Unique, whose output sizes depend on data and are determined by a NonZero (a host sync point)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._pumice import Graph
from ...base.errors import graph_error
from ..build.builder import GraphBuilder, NodeRejectedError
from ..file.graph_recipe import NodeRecipe

if TYPE_CHECKING:
    from ..._pumice import Value

INT32, INT64, BOOL = 6, 7, 9  # TensorProto.DataType


def _translate_non_max_suppression(builder: GraphBuilder, node: NodeRecipe) -> None:
    inputs = [builder.require_tensor(name) if name else None for name in node.inputs]
    inputs += [None] * (5 - len(inputs))
    boxes, scores, *limits = inputs
    if boxes is None or scores is None:
        raise graph_error("node", node.name, "expected boxes and scores, given none")
    add_helper = builder.add_helper
    count = add_helper(node, "Shape", scores, start=2, end=3)
    best, order = _add_multi_output_helper(builder, node, "TopK", scores, count, outputs=2, axis=-1)
    (selected,) = _add_multi_output_helper(
        builder, node, "pumice::NMS", boxes, best, order, *limits, outputs=1, **node.attributes
    )
    positions = add_helper(node, "NonZero", selected)
    numbers = add_helper(node, "GatherND", selected, add_helper(node, "Transpose", positions))
    numbers = add_helper(node, "Cast", add_helper(node, "Sub", numbers, np.array(1, np.int32)), to=INT64)
    rows = add_helper(node, "Slice", positions, np.array([0]), np.array([2]), np.array([0]))
    indices_columns = add_helper(node, "Concat", rows, add_helper(node, "Unsqueeze", numbers, np.array([0])), axis=0)
    builder.set_values(node.outputs, (add_helper(node, "Transpose", indices_columns, output=node.outputs[0]),))


def _add_multi_output_helper(
    builder: GraphBuilder, node: NodeRecipe, op: str, *inputs: Value | None, outputs: int, **attributes: Any
) -> tuple[Value, ...]:
    name = builder.make_helper_name(node, op)
    helper_outputs = builder.graph.add(op, *inputs, outputs=outputs, name=name, **attributes)
    return helper_outputs if isinstance(helper_outputs, tuple) else (helper_outputs,)


def _translate_unique(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Translate Unique: sort, then start a new group at each slice that differs from its predecessor."""
    add_helper = builder.add_helper
    one, first, slice_end = np.array([1]), np.array([0]), np.array([2**31])
    x, axes = _move_axis_first(builder, node)
    count = add_helper(node, "Shape", x, end=1)
    sort_order = _sort_slices(builder, node, x, count)
    ordered = add_helper(node, "Gather", x, sort_order)
    predecessors = add_helper(node, "Slice", ordered, first, np.array([-1]), first)
    successors = add_helper(node, "Slice", ordered, one, slice_end, first)
    changes = add_helper(node, "Not", _compare_equal_nan(builder, node, predecessors, successors))
    if len(axes) > 1:
        changes = add_helper(node, "Cast", changes, to=INT32)
        changes = add_helper(node, "ReduceSum", changes, np.arange(1, len(axes)), keepdims=0)
        changes = add_helper(node, "Cast", changes, to=BOOL)
    first_flag = add_helper(node, "Expand", np.array([True]), add_helper(node, "Min", count, one))
    begins = add_helper(node, "Concat", first_flag, changes, axis=0)
    starts = add_helper(node, "Reshape", add_helper(node, "NonZero", begins), np.array([-1]))
    total = add_helper(node, "Shape", starts)
    ends = add_helper(node, "Concat", add_helper(node, "Slice", starts, one, slice_end), count, axis=0)
    ends = add_helper(node, "Slice", ends, first, total)
    groups = add_helper(
        node, "Sub", add_helper(node, "CumSum", add_helper(node, "Cast", begins, to=INT64), np.array(0)), one
    )
    inverse = add_helper(node, "ScatterElements", groups, sort_order, groups)
    indices, counts = add_helper(node, "Gather", sort_order, starts), add_helper(node, "Sub", ends, starts)
    if node.attributes.get("sorted", 1) == 0:  # return unique slices in order of first occurrence
        order = _add_multi_output_helper(builder, node, "TopK", indices, total, outputs=2, largest=0)[1]
        indices, counts = (add_helper(node, "Gather", value, order) for value in (indices, counts))
        numbers = add_helper(node, "Range", np.array(0), add_helper(node, "Squeeze", total), np.array(1))
        inverse = add_helper(node, "Gather", add_helper(node, "ScatterElements", numbers, order, numbers), inverse)
    y = add_helper(node, "Gather", x, indices)
    if axes:
        y = add_helper(node, "Transpose", y, perm=np.argsort(axes).tolist())
    for name, result in zip(node.outputs, (y, indices, inverse, counts), strict=False):
        if name:
            builder.set_values([name], (add_helper(node, "Identity", result, output=name),))


def _move_axis_first(builder: GraphBuilder, node: NodeRecipe) -> tuple[Value, list[int]]:
    """Return x with the node's axis moved first, and the permutation. Without an axis: x flattened, and []."""
    x, axis = builder.require_tensor(node.inputs[0]), node.attributes.get("axis")
    if axis is None:
        return builder.add_helper(node, "Reshape", x, np.array([-1])), []
    if x.shape is None:
        builder.unsupported.append(
            f"node '{builder.get_node_path(node)}': operator Unique: along an axis of a tensor of unknown rank"
        )
        raise NodeRejectedError
    rank = len(x.shape)
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise graph_error("node", node.name, f"expected an axis of {rank}, given {axis!r}")
    axes = [axis % rank, *(other for other in range(rank) if other != axis % rank)]
    return builder.add_helper(node, "Transpose", x, perm=axes), axes


def _compare_equal_nan(builder: GraphBuilder, node: NodeRecipe, a: Value, b: Value) -> Value:
    """Return a == b elementwise, with NaN equal to NaN."""
    add_helper = builder.add_helper
    is_equal = add_helper(node, "Equal", a, b)
    if not a.dtype.startswith(("float", "bfloat")):
        return is_equal
    return add_helper(
        node, "Or", is_equal, add_helper(node, "And", add_helper(node, "IsNaN", a), add_helper(node, "IsNaN", b))
    )


def _sort_slices(builder: GraphBuilder, node: NodeRecipe, x: Value, count: Value) -> Value:
    """Return the indices that sort the slices of x along axis 0 in ascending order. The sort is stable. count: number of slices."""
    if x.shape is not None and len(x.shape) == 1:
        return _add_multi_output_helper(builder, node, "TopK", x, count, outputs=2, largest=0)[1]
    add_helper = builder.add_helper
    sizes = add_helper(node, "Shape", x, start=1)
    size = add_helper(node, "ReduceProd", sizes, np.array([0]), keepdims=1)
    columns = add_helper(
        node, "Transpose", add_helper(node, "Reshape", x, add_helper(node, "Concat", count, size, axis=0), allowzero=1)
    )
    # LSD radix sort: a stable sort by each column, from the last to the first.
    condition, body = (Graph(f"{builder.get_node_path(node)}.{role}") for role in ("condition", "body"))
    columns_left, _, _ = _add_sort_inputs(condition, columns)
    condition.output("more", condition.add("Greater", columns_left, condition.constant(np.array([0]))))
    columns_left, order, columns_input = _add_sort_inputs(body, columns)
    last = body.add("Sub", columns_left, body.constant(np.array([1])))
    column = body.add("Reshape", body.add("Gather", columns_input, last), body.constant(np.array([-1])))
    sorted_column = body.add("Gather", column, order)
    _, positions = body.add("TopK", sorted_column, body.add("Shape", sorted_column), outputs=2, largest=0)
    body.output("left", last)
    body.output("order", body.add("Gather", order, positions))
    numbers = add_helper(node, "Range", np.array(0), add_helper(node, "Squeeze", count), np.array(1))
    name = builder.make_helper_name(node, "While")
    loop_outputs = builder.graph.while_(condition, body, carried=[size, numbers], invariant=[columns], name=name)
    return loop_outputs[1]


def _add_sort_inputs(graph: Graph, columns: Value) -> tuple[Value, Value, Value]:
    return (
        graph.input("left", "int64", [1]),
        graph.input("order", "int64", [None]),
        graph.input("columns", columns.dtype, [None, None]),
    )


NMS_AND_UNIQUE_NODES: dict[str, Callable[[GraphBuilder, NodeRecipe], None]] = {
    "NonMaxSuppression": _translate_non_max_suppression,
    "Unique": _translate_unique,
}
