"""Translate ONNX operators with data-dependent output sizes to nodes that select elements, then NonZero, a host sync point."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._pumice import Graph
from ...base.errors import graph_error
from ..build.builder import Builder, Refused
from ..file.recipe import NodeRecipe

if TYPE_CHECKING:
    from ..._pumice import Value

INT32, INT64, BOOL = 6, 7, 9  # TensorProto.DataType


def _non_max_suppression(builder: Builder, node: NodeRecipe) -> None:
    inputs = [builder.tensor(name) if name else None for name in node.inputs]
    inputs += [None] * (5 - len(inputs))
    boxes, scores, *limits = inputs
    if boxes is None or scores is None:
        raise graph_error("node", node.name, "expected boxes and scores, given none")
    helper = builder.helper
    count = helper(node, "Shape", scores, start=2, end=3)
    best, order = _added(builder, node, "TopK", scores, count, outputs=2, axis=-1)
    (chosen,) = _added(builder, node, "pumice::SelectBoxes", boxes, best, order, *limits, outputs=1, **node.attributes)
    found = helper(node, "NonZero", chosen)
    numbers = helper(node, "GatherND", chosen, helper(node, "Transpose", found))
    numbers = helper(node, "Cast", helper(node, "Sub", numbers, np.array(1, np.int32)), to=INT64)
    rows = helper(node, "Slice", found, np.array([0]), np.array([2]), np.array([0]))
    both = helper(node, "Concat", rows, helper(node, "Unsqueeze", numbers, np.array([0])), axis=0)
    builder.keep(node.outputs, (helper(node, "Transpose", both, output=node.outputs[0]),))


def _added(
    builder: Builder, node: NodeRecipe, op: str, *inputs: Value | None, outputs: int, **attributes: Any
) -> tuple[Value, ...]:
    name = builder.helper_name(node, op)
    made = builder.graph.add(op, *inputs, outputs=outputs, name=name, **attributes)
    return made if isinstance(made, tuple) else (made,)


def _unique(builder: Builder, node: NodeRecipe) -> None:
    """Translate Unique: sort, then start a new group at each slice that differs from its predecessor."""
    helper = builder.helper
    one, first, far = np.array([1]), np.array([0]), np.array([2**31])
    x, axes = _slices_first(builder, node)
    count = helper(node, "Shape", x, end=1)
    places = _order(builder, node, x, count)
    ordered = helper(node, "Gather", x, places)
    before = helper(node, "Slice", ordered, first, np.array([-1]), first)
    after = helper(node, "Slice", ordered, one, far, first)
    changes = helper(node, "Not", _same(builder, node, before, after))
    if len(axes) > 1:
        changes = helper(node, "Cast", changes, to=INT32)
        changes = helper(node, "ReduceSum", changes, np.arange(1, len(axes)), keepdims=0)
        changes = helper(node, "Cast", changes, to=BOOL)
    any_first = helper(node, "Expand", np.array([True]), helper(node, "Min", count, one))
    begins = helper(node, "Concat", any_first, changes, axis=0)
    starts = helper(node, "Reshape", helper(node, "NonZero", begins), np.array([-1]))
    total = helper(node, "Shape", starts)
    ends = helper(node, "Concat", helper(node, "Slice", starts, one, far), count, axis=0)
    ends = helper(node, "Slice", ends, first, total)
    groups = helper(node, "Sub", helper(node, "CumSum", helper(node, "Cast", begins, to=INT64), np.array(0)), one)
    inverse = helper(node, "ScatterElements", groups, places, groups)
    indices, counts = helper(node, "Gather", places, starts), helper(node, "Sub", ends, starts)
    if node.attributes.get("sorted", 1) == 0:  # return the slices in order of first occurrence
        order = _added(builder, node, "TopK", indices, total, outputs=2, largest=0)[1]
        indices, counts = (helper(node, "Gather", value, order) for value in (indices, counts))
        numbers = helper(node, "Range", np.array(0), helper(node, "Squeeze", total), np.array(1))
        inverse = helper(node, "Gather", helper(node, "ScatterElements", numbers, order, numbers), inverse)
    y = helper(node, "Gather", x, indices)
    if axes:
        y = helper(node, "Transpose", y, perm=np.argsort(axes).tolist())
    for name, result in zip(node.outputs, (y, indices, inverse, counts), strict=False):
        if name:
            builder.keep([name], (helper(node, "Identity", result, output=name),))


def _slices_first(builder: Builder, node: NodeRecipe) -> tuple[Value, list[int]]:
    """Return x with the compared axis first, and the permutation; flattened, without a permutation, if elements are compared."""
    x, axis = builder.tensor(node.inputs[0]), node.attributes.get("axis")
    if axis is None:
        return builder.helper(node, "Reshape", x, np.array([-1])), []
    if x.shape is None:
        builder.unsupported.append(
            f"node '{builder.path(node)}': operator Unique: along an axis of a tensor of unknown rank"
        )
        raise Refused
    rank = len(x.shape)
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise graph_error("node", node.name, f"expected an axis of {rank}, given {axis!r}")
    axes = [axis % rank, *(other for other in range(rank) if other != axis % rank)]
    return builder.helper(node, "Transpose", x, perm=axes), axes


def _same(builder: Builder, node: NodeRecipe, a: Value, b: Value) -> Value:
    """Compare elements; NaN equals NaN here."""
    helper = builder.helper
    same = helper(node, "Equal", a, b)
    if not a.dtype.startswith(("float", "bfloat")):
        return same
    return helper(node, "Or", same, helper(node, "And", helper(node, "IsNaN", a), helper(node, "IsNaN", b)))


def _order(builder: Builder, node: NodeRecipe, x: Value, count: Value) -> Value:
    """Return the indices that sort the slices in ascending order; the sort is stable."""
    if x.shape is not None and len(x.shape) == 1:
        return _added(builder, node, "TopK", x, count, outputs=2, largest=0)[1]
    helper = builder.helper
    sizes = helper(node, "Shape", x, start=1)
    size = helper(node, "ReduceProd", sizes, np.array([0]), keepdims=1)
    columns = helper(
        node, "Transpose", helper(node, "Reshape", x, helper(node, "Concat", count, size, axis=0), allowzero=1)
    )
    # Radix sort by columns, the last column first, which relies on a stable sort.
    condition, body = (Graph(f"{builder.path(node)}.{role}") for role in ("condition", "body"))
    left, _, _ = _sort_inputs(condition, columns)
    condition.output("more", condition.add("Greater", left, condition.constant(np.array([0]))))
    left, order, given = _sort_inputs(body, columns)
    last = body.add("Sub", left, body.constant(np.array([1])))
    column = body.add("Reshape", body.add("Gather", given, last), body.constant(np.array([-1])))
    alike = body.add("Gather", column, order)
    _, found = body.add("TopK", alike, body.add("Shape", alike), outputs=2, largest=0)
    body.output("left", last)
    body.output("order", body.add("Gather", order, found))
    numbers = helper(node, "Range", np.array(0), helper(node, "Squeeze", count), np.array(1))
    name = builder.helper_name(node, "While")
    made = builder.graph.while_(condition, body, carried=[size, numbers], invariant=[columns], name=name)
    return made[1]


def _sort_inputs(graph: Graph, columns: Value) -> tuple[Value, Value, Value]:
    return (
        graph.input("left", "int64", [1]),
        graph.input("order", "int64", [None]),
        graph.input("columns", columns.dtype, [None, None]),
    )


SELECTION_NODES: dict[str, Callable[[Builder, NodeRecipe], None]] = {
    "NonMaxSuppression": _non_max_suppression,
    "Unique": _unique,
}
