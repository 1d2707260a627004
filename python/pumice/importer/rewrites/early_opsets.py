"""Upgrade nodes from opsets 1 to 6 to opset 7. later_opsets.py continues from there."""

from __future__ import annotations

import numpy as np

from ...base.errors import graph_error
from ..file.graph_recipe import (
    NodeRecipe,
    UnrepresentableError,
    get_ints_attr,
    get_number_attr,
    strip_trailing_empty,
)
from .rewrite_helpers import NodeRewrite, Nodes, RewriteScope, drop_attributes, get_input

_INT64 = 7  # TensorProto.DataType
_SLICE_END = np.array([2**62], np.int64)
_CONSUMED_INPUTS_OPSET = 6  # first opset without consumed_inputs
_DTYPE_NUMBERS = {
    "FLOAT": 1,
    "UINT8": 2,
    "INT8": 3,
    "UINT16": 4,
    "INT16": 5,
    "INT32": 6,
    "INT64": 7,
    "STRING": 8,
    "BOOL": 9,
    "FLOAT16": 10,
    "DOUBLE": 11,
    "UINT32": 12,
    "UINT64": 13,
}


def drop_consumed_inputs(node: NodeRecipe, version: int) -> NodeRecipe:
    """Drop the attribute `consumed_inputs`, which declares in-place buffers up to opset 5."""
    if version >= _CONSUMED_INPUTS_OPSET or node.domain or "consumed_inputs" not in node.attributes:
        return node
    return node._replace(attributes=drop_attributes(node, "consumed_inputs"))


def _align_axes(node: NodeRecipe, scope: RewriteScope, name: str, axis: int) -> tuple[Nodes, str]:
    """Add nodes that append axes of size 1 to a value, so that it broadcasts to input 0 from `axis` on.

    Return the nodes and the result's name. The rank of input 0 may be unknown here: the nodes read its shape.
    """
    constant_recipe = scope.constants.get(name)
    if axis < 0:
        if constant_recipe is None:
            raise UnrepresentableError(f"axis={axis} with an operand of computed shape")
        if axis + len(constant_recipe.shape) == 0:
            return [], name  # already aligned with the trailing axes
    shape, operand_shape, trailing_shape, count, ones_shape, target_shape, aligned = (
        scope.make_name(node, role) for role in ("shape", "own", "rest", "count", "ones", "target", "aligned")
    )
    nodes = [
        NodeRecipe("Shape", shape, [node.inputs[0]], [shape], {}),
        NodeRecipe("Shape", operand_shape, [name], [operand_shape], {}),
    ]
    if constant_recipe is not None:
        begin = scope.add_constant(node, "begin", np.array([axis + len(constant_recipe.shape)], np.int64))
    else:
        rank, begin = scope.make_name(node, "rank"), scope.make_name(node, "begin")
        first = scope.add_constant(node, "axis", np.array([axis], np.int64))
        nodes += [
            NodeRecipe("Shape", rank, [operand_shape], [rank], {}),
            NodeRecipe("Add", begin, [rank, first], [begin], {}),
        ]
    slice_end = scope.add_constant(node, "far", _SLICE_END)
    int_one = scope.add_constant(node, "one", np.array([1], np.int64))
    return [
        *nodes,
        NodeRecipe("Slice", trailing_shape, [shape, begin, slice_end], [trailing_shape], {}),
        NodeRecipe("Shape", count, [trailing_shape], [count], {}),
        NodeRecipe("Expand", ones_shape, [int_one, count], [ones_shape], {}),
        NodeRecipe("Concat", target_shape, [operand_shape, ones_shape], [target_shape], {"axis": 0}),
        NodeRecipe("Reshape", aligned, [name, target_shape], [aligned], {}),
    ], aligned


def _upgrade_broadcast(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Upgrade arithmetic and comparison operators, whose attributes `broadcast` and `axis` aligned input 1 with input 0."""
    without_broadcast = node._replace(attributes=drop_attributes(node, "broadcast", "axis"))
    axis = node.attributes.get("axis")
    if not node.attributes.get("broadcast", 0) or axis is None or len(node.inputs) < 2:
        return [without_broadcast]
    if not isinstance(axis, int):
        raise graph_error("node", node.name, f"attribute 'axis': expected an integer, given {axis!r}")
    preceding_nodes, aligned = _align_axes(node, scope, node.inputs[1], axis)
    return [*preceding_nodes, without_broadcast._replace(inputs=[node.inputs[0], aligned])]


def _upgrade_prelu_slopes(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Upgrade PRelu, whose slope was a scalar or one slope per channel (axis 1)."""
    if len(node.inputs) < 2:
        return [node]
    constant_recipe = scope.constants.get(node.inputs[1])
    if constant_recipe is not None and (len(constant_recipe.shape) != 1 or constant_recipe.shape == [1]):
        return [node]
    if constant_recipe is None:
        raise UnrepresentableError("slopes that are computed")
    preceding_nodes, aligned = _align_axes(node, scope, node.inputs[1], 1)
    return [*preceding_nodes, node._replace(inputs=[node.inputs[0], aligned])]


def _make_attribute_dropper(*names: str) -> NodeRewrite:
    def upgrade(node: NodeRecipe, scope: RewriteScope) -> Nodes:
        return [node._replace(attributes=drop_attributes(node, *names))]

    return upgrade


def _require_inference_mode(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    if not node.attributes.get("is_test", 0):
        raise UnrepresentableError("is_test=0, which asks for training")
    return [node._replace(attributes=drop_attributes(node, "is_test"))]


def _make_default_setter(name: str, value: float) -> NodeRewrite:
    def upgrade(node: NodeRecipe, scope: RewriteScope) -> Nodes:
        return [node._replace(attributes={name: value, **node.attributes})]

    return upgrade


def _make_integer_converter(name: str) -> NodeRewrite:
    def upgrade(node: NodeRecipe, scope: RewriteScope) -> Nodes:
        if name not in node.attributes:
            return [node]
        value = get_number_attr(node, name, 0)
        if value != int(value):
            raise UnrepresentableError(f"{name}={value}")
        return [node._replace(attributes={**node.attributes, name: int(value)})]

    return upgrade


def _fix_direction_typo(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    if node.attributes.get("direction") == "foward":  # a typo in the default of opset 1
        return [node._replace(attributes={**node.attributes, "direction": "forward"})]
    return [node]


def _upgrade_cast(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Upgrade Cast, whose attribute `to` was the element type's name instead of its number."""
    to = node.attributes.get("to")
    if isinstance(to, int):
        return [node]
    if not isinstance(to, str) or to.upper() not in _DTYPE_NUMBERS:
        raise graph_error("node", node.name, f"attribute 'to': expected the name of an element type, given {to!r}")
    return [node._replace(attributes={**node.attributes, "to": _DTYPE_NUMBERS[to.upper()]})]


def _upgrade_pad(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    pads = node.attributes.get("paddings")
    return [node if pads is None else node._replace(attributes={**drop_attributes(node, "paddings"), "pads": pads})]


def _upgrade_reshape(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    sizes = get_ints_attr(node, "shape")
    if sizes is None:
        raise graph_error("node", node.name, "Reshape without the attribute 'shape'")
    name = scope.add_constant(node, "shape", np.array(sizes, np.int64))
    return [node._replace(inputs=[node.inputs[0], name], attributes=drop_attributes(node, "shape"))]


def _upgrade_split(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Upgrade Split, whose optional input with the sizes had the data's float type."""
    sizes = get_input(node, 1)
    if not sizes:
        return [node._replace(inputs=strip_trailing_empty(node.inputs))]
    name = scope.make_name(node, "sizes")
    return [
        NodeRecipe("Cast", name, [sizes], [name], {"to": _INT64}),
        node._replace(inputs=[node.inputs[0], name], attributes=drop_attributes(node, "split")),
    ]


def _upgrade_tile(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Upgrade Tile, which repeated along one axis; its inputs `tiles` and `axis` had the data's element type."""
    if len(node.inputs) != 3:
        raise graph_error("node", node.name, f"expected 3 inputs of Tile, given {node.inputs}")
    shape, rank, axes, tiles, axis, axis_matches, repeats = (
        scope.make_name(node, role) for role in ("shape", "rank", "axes", "tiles", "axis", "at", "repeats")
    )
    zero, int_one = (
        scope.add_constant(node, role, np.array(value, np.int64)) for role, value in (("zero", 0), ("one", 1))
    )
    return [
        NodeRecipe("Shape", shape, [node.inputs[0]], [shape], {}),
        NodeRecipe("Size", rank, [shape], [rank], {}),
        NodeRecipe("Range", axes, [zero, rank, int_one], [axes], {}),
        NodeRecipe("Cast", tiles, [node.inputs[1]], [tiles], {"to": _INT64}),
        NodeRecipe("Cast", axis, [node.inputs[2]], [axis], {"to": _INT64}),
        NodeRecipe("Equal", axis_matches, [axes, axis], [axis_matches], {}),
        NodeRecipe("Where", repeats, [axis_matches, tiles, int_one], [repeats], {}),
        node._replace(inputs=[node.inputs[0], repeats]),
    ]


def _upgrade_upsample(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    scales = [1.0, 1.0, get_number_attr(node, "height_scale", 1.0), get_number_attr(node, "width_scale", 1.0)]
    return [node._replace(attributes={**drop_attributes(node, "height_scale", "width_scale"), "scales": scales})]


def _upgrade_selu(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    return [node._replace(attributes={"alpha": 1.6732, "gamma": 1.0507, **node.attributes})]


# Operator -> [(first opset with the change, function that upgrades nodes of older opsets)], oldest change first.
FIRST_UPGRADES: dict[str, list[tuple[int, NodeRewrite]]] = {
    "BatchNormalization": [(7, _require_inference_mode)],
    "Cast": [(6, _upgrade_cast)],
    "Clip": [(6, _make_attribute_dropper())],
    "Concat": [(4, _make_default_setter("axis", 1))],
    "Dropout": [(7, _require_inference_mode)],
    "GRU": [(3, _fix_direction_typo), (7, _make_attribute_dropper("output_sequence"))],
    "Gemm": [(7, _make_attribute_dropper("broadcast"))],
    "GlobalLpPool": [(2, _make_integer_converter("p"))],
    "LSTM": [(7, _make_attribute_dropper("output_sequence"))],
    "LpPool": [(2, _make_integer_converter("p"))],
    "PRelu": [(7, _upgrade_prelu_slopes)],
    "Pad": [(2, _upgrade_pad)],
    "RNN": [(7, _make_attribute_dropper("output_sequence"))],
    "Reshape": [(5, _upgrade_reshape)],
    "Selu": [(6, _upgrade_selu)],
    "Split": [(2, _upgrade_split)],
    "Tile": [(6, _upgrade_tile)],
    "Upsample": [(7, _upgrade_upsample)],
    **{
        name: [(7, _upgrade_broadcast)]
        for name in ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")
    },
}
