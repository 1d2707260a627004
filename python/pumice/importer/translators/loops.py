"""Translate ONNX's Loop and Scan. The engine counts iterations in int32: a Loop's trip count is clamped to 2^31 - 1, and a Scan
over more slices is rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...base.errors import graph_error
from ..build.builder import GraphBuilder, NodeRejectedError
from ..build.non_tensor_values import OptionalValue, ValueKind
from ..build.subgraphs import SHAPE_1, get_condition, get_subgraphs
from ..file.graph_recipe import GraphRecipe, NodeRecipe
from .loop_builder import INT32, SCALAR, LoopBuilder
from .loop_types import SlicedValue, get_declared_rank

if TYPE_CHECKING:
    from ..._pumice import Value
    from ...base.element_types import Array

_MAX_TRIPS = 2**31 - 1


# ---- the Loop operator


def _set_trip_count(loop: LoopBuilder, name: str) -> None:
    """Set the loop's trip limit, clamped to 0 .. 2^31 - 1. Raise GraphError if it is not a single integer."""
    builder, node = loop.builder, loop.node
    array = builder.get_constant_array(name)
    if array is not None:
        if array.size != 1 or array.dtype.kind not in "iu":
            raise graph_error(
                "node", node.name, f"trip count '{name}': expected one integer, given {array.dtype}{array.shape}"
            )
        loop.max_trips = max(0, min(int(array.reshape(1)[0]), _MAX_TRIPS))
        loop.trip_limit = np.array([loop.max_trips], np.int32)
        return
    count = builder.add_helper(node, "Reshape", builder.require_tensor(name), SHAPE_1)
    if count.dtype != "int64":
        raise graph_error("node", node.name, f"trip count '{name}': expected int64, given {count.dtype}")
    loop.max_trips = builder.add_helper(node, "Clip", count, np.array(0), np.array(_MAX_TRIPS))
    loop.trip_limit = builder.add_helper(node, "Cast", loop.max_trips, to=INT32)


def _is_identity(node: NodeRecipe) -> bool:
    return node.op == "Identity" and len(node.inputs) == 1


def _is_always_true(builder: GraphBuilder, body: GraphRecipe) -> bool:
    """Return whether the body's condition provably stays true: it is its own input or a true constant."""
    name = body.outputs[0].name
    sources = {output: node.inputs[0] for node in body.nodes if _is_identity(node) for output in node.outputs}
    while name in sources:
        name = sources[name]
    if name == body.inputs[1].name:
        return True
    constant = body.constants.get(name) or (builder.constants.get(name) if name in body.captured else None)
    return constant is not None and constant.dtype == "bool" and any(bytes(constant.raw))


def add_loop(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Add ONNX's Loop. Raise GraphError if the body does not fit the node, NodeRejectedError if an optional input is omitted."""
    (body,) = get_subgraphs(builder, node, "body")
    inputs = node.inputs + [""] * (2 - len(node.inputs))
    num_states = len(inputs) - 2
    min_outputs = 1 + max(num_states, len(node.outputs))
    if len(body.inputs) != len(inputs) or len(body.outputs) < min_outputs:
        expected = f"a body of {len(inputs)} inputs and at least {min_outputs} outputs"
        raise graph_error("node", node.name, f"expected {expected}, given {len(body.inputs)} and {len(body.outputs)}")
    if "" in inputs[2:]:
        builder.unsupported.append(
            f"node '{builder.get_node_path(node)}': operator Loop: an optional value that is left out"
        )
        raise NodeRejectedError
    loop = LoopBuilder(builder, node, body)
    for name, declared, output in zip(inputs[2:], body.inputs[2:], body.outputs[1:], strict=False):
        loop.add_state(declared, output, builder.require_value(name))
    if inputs[0]:
        _set_trip_count(loop, inputs[0])
    first = get_condition(builder, node, inputs[1]) if inputs[1] else np.array([True])
    starts_true = isinstance(first, np.ndarray) and bool(first[0])
    # As in ONNX, a Loop with a trip count but no initial condition ignores the condition that its body returns.
    ignores_condition = bool(inputs[0]) and not inputs[1]
    if not (starts_true and (ignores_condition or _is_always_true(builder, body))):
        loop.loop_condition = first
    loop.iteration_name, loop.condition_in = body.inputs[0].name, body.inputs[1].name
    loop.iteration_shape = SHAPE_1 if len(body.inputs[0].shape or ()) == 1 else SCALAR
    loop.condition_out = body.outputs[0].name
    names = node.outputs + [""] * (num_states - len(node.outputs))
    scans = [j for j in range(num_states, len(names)) if names[j]]
    results = [body.outputs[1 + j] for j in scans]
    loop.scan_outputs = [SlicedValue(result.name, rank=get_declared_rank(result)) for result in results]
    loop.add_to_graph(names[:num_states] + [names[j] for j in scans])
    for name, output in zip(names[:num_states], body.outputs[1:], strict=False):
        value = builder.values.get(name)
        element = value.element if isinstance(value, OptionalValue) and output.dtype else None
        if element and not ValueKind.parse(output.dtype).optional:
            builder.values[name] = element  # the body declares a plain value, so it is always present


# ---- the Scan operator


def _get_integer_list(node: NodeRecipe, name: str, count: int) -> list[int]:
    attribute_value = node.attributes.get(name, [0] * count)
    if (
        not isinstance(attribute_value, list)
        or len(attribute_value) != count
        or not all(isinstance(item, int) for item in attribute_value)
    ):
        raise graph_error(
            "node", node.name, f"attribute '{name}': expected {count} integers, given {attribute_value!r}"
        )
    return [int(item) for item in attribute_value]


def _get_scan_directions(node: NodeRecipe, name: str, count: int) -> list[bool]:
    attribute_value = _get_integer_list(node, name, count)
    if not set(attribute_value) <= {0, 1}:
        raise graph_error("node", node.name, f"attribute '{name}': expected 0 or 1, given {attribute_value!r}")
    return [direction == 1 for direction in attribute_value]


def add_scan(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Add ONNX's Scan. Raise GraphError if the body does not fit the node, NodeRejectedError if an input could not be built."""
    (body,) = get_subgraphs(builder, node, "body")
    slices = node.attributes.get("num_scan_inputs")
    if not isinstance(slices, int) or not 1 <= slices <= len(node.inputs) or "" in node.inputs:
        expected = f"between 1 and all {len(node.inputs)} of its inputs as 'num_scan_inputs'"
        raise graph_error("node", node.name, f"expected {expected}, given {slices!r}")
    num_states = len(node.inputs) - slices
    results = len(body.outputs) - num_states
    if len(body.inputs) != len(node.inputs) or results < 0 or len(node.outputs) > len(body.outputs):
        expected = f"a body of {len(node.inputs)} inputs and at least {max(num_states, len(node.outputs))} outputs"
        raise graph_error("node", node.name, f"expected {expected}, given {len(body.inputs)} and {len(body.outputs)}")
    loop = LoopBuilder(builder, node, body)
    loop.keeps_shapes = True
    for name, declared, output in zip(node.inputs[:num_states], body.inputs, body.outputs, strict=False):
        loop.add_state(declared, output, builder.require_tensor(name))
    axes = _get_integer_list(node, "scan_input_axes", slices)
    reverse = _get_scan_directions(node, "scan_input_directions", slices)
    loop.slices = [SlicedValue(body.inputs[num_states + i].name, axes[i], reverse[i]) for i in range(slices)]
    _set_scan_inputs(loop, [builder.require_tensor(name) for name in node.inputs[num_states:]])
    axes, reverse = (
        _get_integer_list(node, "scan_output_axes", results),
        _get_scan_directions(node, "scan_output_directions", results),
    )
    names = node.outputs + [""] * (num_states - len(node.outputs))
    scans = [j for j in range(num_states, len(names)) if names[j]]
    loop.scan_outputs = [
        SlicedValue(
            body.outputs[j].name, axes[j - num_states], reverse[j - num_states], get_declared_rank(body.outputs[j])
        )
        for j in scans
    ]
    loop.add_to_graph(names[:num_states] + [names[j] for j in scans])


def _set_scan_inputs(loop: LoopBuilder, values: list[Value]) -> None:
    """Set the loop's sliced inputs and its trip count. Raise GraphError if slice counts differ or exceed 2^31 - 1.

    A slice count that is unknown at import is checked at run time by a Reshape.
    """
    builder, node = loop.builder, loop.node
    lengths: list[int | None] = []
    for value, scanned in zip(values, loop.slices, strict=True):
        rank = None if value.shape is None else len(value.shape)
        if rank is not None and not -rank <= scanned.axis < rank:
            raise graph_error("node", node.name, f"'{value.name}': expected an axis of {rank}, given {scanned.axis}")
        lengths.append(value.shape[scanned.axis] if value.shape is not None else None)
    num_slices = next((length for length in lengths if length is not None), None)
    for length, value in zip(lengths, values, strict=True):
        if length not in (num_slices, None):
            raise graph_error("node", node.name, f"'{value.name}': expected {num_slices} slices, given {length}")
    if num_slices is not None and num_slices > _MAX_TRIPS:
        raise graph_error(
            "node", node.name, f"'{values[0].name}': expected at most {_MAX_TRIPS} slices, given {num_slices}"
        )
    trip_count: Value | Array
    if num_slices is not None:
        trip_count = np.array([num_slices])
        loop.max_trips, loop.trip_limit = num_slices, np.array([num_slices], np.int32)
    else:
        shape = builder.add_helper(node, "Shape", values[0])
        slice_count = builder.add_helper(node, "Gather", shape, np.array([loop.slices[0].axis]), axis=0)
        trip_count = loop.max_trips = builder.add_helper(node, "Clip", slice_count, np.array(0), np.array(_MAX_TRIPS))
        loop.trip_limit = builder.add_helper(node, "Cast", trip_count, to=INT32)
    for i, (length, value) in enumerate(zip(lengths, values, strict=True)):
        if num_slices is not None and length == num_slices:
            continue
        shape = builder.add_helper(node, "Shape", value)
        axis = loop.slices[i].axis
        index = np.array([[axis]]) if axis >= 0 or value.shape is None else np.array([[len(value.shape) + axis]])
        values[i] = builder.add_helper(
            node, "Reshape", value, builder.add_helper(node, "ScatterND", shape, index, trip_count)
        )
    loop.sliced_inputs = values
