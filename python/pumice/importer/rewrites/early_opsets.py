"""Upgrade nodes from opsets 1 to 6 to opset 7; the module `opset` continues from there."""

from __future__ import annotations

import numpy as np

from ...base.errors import graph_error
from ..file.recipe import NodeRecipe, NotExpressible, get_integers, get_number, strip_trailing_empty
from .rewrite_helpers import Nodes, RewriteScope, Upgrade, drop_attributes, get_input

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
    """Drop `consumed_inputs`, with which the first opsets declared the buffers that a node may overwrite."""
    if version >= _CONSUMED_INPUTS_OPSET or node.domain or "consumed_inputs" not in node.attributes:
        return node
    return node._replace(attributes=drop_attributes(node, "consumed_inputs"))


def _align_axes(node: NodeRecipe, scope: RewriteScope, name: str, axis: int) -> tuple[Nodes, str]:
    """Reshape a value to align with input 0 from `axis` on, appending axes of size 1.

    The rank of input 0 is computed from its shape at run time, so it may be unknown here.
    """
    constant_recipe = scope.constants.get(name)
    if axis < 0:
        if constant_recipe is None:
            raise NotExpressible(f"axis={axis} with an operand of computed shape")
        if axis + len(constant_recipe.shape) == 0:
            return [], name  # these are the trailing axes, which broadcasting aligns anyway
    shape, operand_shape, trailing_shape, count, ones_shape, target_shape, aligned = (
        scope.make_name(node, role) for role in ("shape", "own", "rest", "count", "ones", "target", "aligned")
    )
    nodes = [
        NodeRecipe("Shape", shape, [node.inputs[0]], [shape], {}),
        NodeRecipe("Shape", operand_shape, [name], [operand_shape], {}),
    ]
    if constant_recipe is not None:
        begin = scope.constant(node, "begin", np.array([axis + len(constant_recipe.shape)], np.int64))
    else:
        rank, begin = scope.make_name(node, "rank"), scope.make_name(node, "begin")
        first = scope.constant(node, "axis", np.array([axis], np.int64))
        nodes += [
            NodeRecipe("Shape", rank, [operand_shape], [rank], {}),
            NodeRecipe("Add", begin, [rank, first], [begin], {}),
        ]
    slice_end = scope.constant(node, "far", _SLICE_END)
    int_one = scope.constant(node, "one", np.array([1], np.int64))
    return [
        *nodes,
        NodeRecipe("Slice", trailing_shape, [shape, begin, slice_end], [trailing_shape], {}),
        NodeRecipe("Shape", count, [trailing_shape], [count], {}),
        NodeRecipe("Expand", ones_shape, [int_one, count], [ones_shape], {}),
        NodeRecipe("Concat", target_shape, [operand_shape, ones_shape], [target_shape], {"axis": 0}),
        NodeRecipe("Reshape", aligned, [name, target_shape], [aligned], {}),
    ], aligned


def _broadcast(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Upgrade arithmetic and comparisons: without `axis` the trailing axes are aligned, as in newer opsets."""
    without_broadcast = node._replace(attributes=drop_attributes(node, "broadcast", "axis"))
    axis = node.attributes.get("axis")
    if not node.attributes.get("broadcast", 0) or axis is None or len(node.inputs) < 2:
        return [without_broadcast]
    if not isinstance(axis, int):
        raise graph_error("node", node.name, f"attribute 'axis': expected an integer, given {axis!r}")
    preceding_nodes, aligned = _align_axes(node, scope, node.inputs[1], axis)
    return [*preceding_nodes, without_broadcast._replace(inputs=[node.inputs[0], aligned])]


def _slopes(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Upgrade PRelu with a single slope or one slope per channel."""
    if len(node.inputs) < 2:
        return [node]
    constant_recipe = scope.constants.get(node.inputs[1])
    if constant_recipe is not None and (len(constant_recipe.shape) != 1 or constant_recipe.shape == [1]):
        return [node]
    if constant_recipe is None:
        raise NotExpressible("slopes that are computed")
    preceding_nodes, aligned = _align_axes(node, scope, node.inputs[1], 1)
    return [*preceding_nodes, node._replace(inputs=[node.inputs[0], aligned])]


def _make_attribute_dropper(*names: str) -> Upgrade:
    def upgrade(node: NodeRecipe, scope: RewriteScope) -> Nodes:
        return [node._replace(attributes=drop_attributes(node, *names))]

    return upgrade


def _require_inference(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    if not node.attributes.get("is_test", 0):
        raise NotExpressible("is_test=0, which asks for training")
    return [node._replace(attributes=drop_attributes(node, "is_test"))]


def _make_default_setter(name: str, value: float) -> Upgrade:
    def upgrade(node: NodeRecipe, scope: RewriteScope) -> Nodes:
        return [node._replace(attributes={name: value, **node.attributes})]

    return upgrade


def _make_integer_converter(name: str) -> Upgrade:
    def upgrade(node: NodeRecipe, scope: RewriteScope) -> Nodes:
        if name not in node.attributes:
            return [node]
        value = get_number(node, name, 0)
        if value != int(value):
            raise NotExpressible(f"{name}={value}")
        return [node._replace(attributes={**node.attributes, name: int(value)})]

    return upgrade


def _direction(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    if node.attributes.get("direction") == "foward":  # a typo in opset 1's default
        return [node._replace(attributes={**node.attributes, "direction": "forward"})]
    return [node]


def _cast(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Upgrade Cast, whose attribute `to` was the name of the element type."""
    to = node.attributes.get("to")
    if isinstance(to, int):
        return [node]
    if not isinstance(to, str) or to.upper() not in _DTYPE_NUMBERS:
        raise graph_error("node", node.name, f"attribute 'to': expected the name of an element type, given {to!r}")
    return [node._replace(attributes={**node.attributes, "to": _DTYPE_NUMBERS[to.upper()]})]


def _pad(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    pads = node.attributes.get("paddings")
    return [node if pads is None else node._replace(attributes={**drop_attributes(node, "paddings"), "pads": pads})]


def _reshape(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    sizes = get_integers(node, "shape")
    if sizes is None:
        raise graph_error("node", node.name, "Reshape without the attribute 'shape'")
    name = scope.constant(node, "shape", np.array(sizes, np.int64))
    return [node._replace(inputs=[node.inputs[0], name], attributes=drop_attributes(node, "shape"))]


def _split(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Upgrade Split with its sizes as an input: a float tensor, because the operator then supported only floats."""
    sizes = get_input(node, 1)
    if not sizes:
        return [node._replace(inputs=strip_trailing_empty(node.inputs))]
    name = scope.make_name(node, "sizes")
    return [
        NodeRecipe("Cast", name, [sizes], [name], {"to": _INT64}),
        node._replace(inputs=[node.inputs[0], name], attributes=drop_attributes(node, "split")),
    ]


def _tile(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Upgrade Tile along one axis; tiles and axis had the input's element type."""
    if len(node.inputs) != 3:
        raise graph_error("node", node.name, f"expected 3 inputs of Tile, given {node.inputs}")
    shape, rank, axes, tiles, axis, axis_matches, repeats = (
        scope.make_name(node, role) for role in ("shape", "rank", "axes", "tiles", "axis", "at", "repeats")
    )
    zero, int_one = (scope.constant(node, role, np.array(value, np.int64)) for role, value in (("zero", 0), ("one", 1)))
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


def _upsample(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    scales = [1.0, 1.0, get_number(node, "height_scale", 1.0), get_number(node, "width_scale", 1.0)]
    return [node._replace(attributes={**drop_attributes(node, "height_scale", "width_scale"), "scales": scales})]


def _selu(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    return [node._replace(attributes={"alpha": 1.6732, "gamma": 1.0507, **node.attributes})]


# Operator -> (opset that introduced the change, function that upgrades nodes from older opsets), oldest change first.
FIRST_UPGRADES: dict[str, list[tuple[int, Upgrade]]] = {
    "BatchNormalization": [(7, _require_inference)],
    "Cast": [(6, _cast)],
    "Clip": [(6, _make_attribute_dropper())],
    "Concat": [(4, _make_default_setter("axis", 1))],
    "Dropout": [(7, _require_inference)],
    "GRU": [(3, _direction), (7, _make_attribute_dropper("output_sequence"))],
    "Gemm": [(7, _make_attribute_dropper("broadcast"))],
    "GlobalLpPool": [(2, _make_integer_converter("p"))],
    "LSTM": [(7, _make_attribute_dropper("output_sequence"))],
    "LpPool": [(2, _make_integer_converter("p"))],
    "PRelu": [(7, _slopes)],
    "Pad": [(2, _pad)],
    "RNN": [(7, _make_attribute_dropper("output_sequence"))],
    "Reshape": [(5, _reshape)],
    "Selu": [(6, _selu)],
    "Split": [(2, _split)],
    "Tile": [(6, _tile)],
    "Upsample": [(7, _upsample)],
    **{
        name: [(7, _broadcast)]
        for name in ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")
    },
}
