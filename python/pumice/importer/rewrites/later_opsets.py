"""Upgrade nodes from opset 7 or later to the latest version of their operator.

Only breaking changes are handled: attributes that became inputs, changed defaults, renamed operators. Additions (element types,
optional inputs and attributes) need no upgrade.
"""

from __future__ import annotations

import numpy as np

from ...base.errors import graph_error
from ..file.graph_recipe import (
    Attribute,
    NodeRecipe,
    UnrepresentableError,
    get_ints_attr,
    get_number_attr,
    strip_trailing_empty,
)
from .batched_scan import rewrite_batched_scan
from .rewrite_helpers import (
    NodeRewrite,
    Nodes,
    RewriteScope,
    drop_attributes,
    get_input,
    make_constant_like_input,
    pad_names,
)

_INT64 = 7  # TensorProto.DataType


def _move_axes_to_input(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    axes = get_ints_attr(node, "axes")
    if axes is None:
        return [node]
    name = scope.add_constant(node, "axes", np.array(axes, np.int64))
    return [node._replace(inputs=[*node.inputs[:1], name], attributes=drop_attributes(node, "axes"))]


def _upgrade_clip(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    preceding_nodes: Nodes = []
    inputs = node.inputs[:1]
    for role in ("min", "max"):
        if role not in node.attributes:
            inputs.append("")
            continue
        casts, name = make_constant_like_input(node, scope, role, get_number_attr(node, role, 0))
        preceding_nodes += casts
        inputs.append(name)
    return [
        *preceding_nodes,
        node._replace(inputs=strip_trailing_empty(inputs), attributes=drop_attributes(node, "min", "max")),
    ]


def _upgrade_pad(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    pads = get_ints_attr(node, "pads")
    if pads is None:
        raise graph_error("node", node.name, "Pad without the attribute 'pads'")
    inputs = [node.inputs[0], scope.add_constant(node, "pads", np.array(pads, np.int64))]
    casts: Nodes = []
    value = get_number_attr(node, "value", 0.0)
    if value != 0:
        casts, name = make_constant_like_input(node, scope, "value", value)
        inputs.append(name)
    return [*casts, node._replace(inputs=inputs, attributes=drop_attributes(node, "pads", "value"))]


def _upgrade_slice(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    inputs = node.inputs[:1]
    for role in ("starts", "ends", "axes"):
        values = get_ints_attr(node, role)
        if values is not None:
            inputs.append(scope.add_constant(node, role, np.array(values, np.int64)))
        elif role != "axes":
            raise graph_error("node", node.name, f"Slice without the attribute '{role}'")
    return [node._replace(inputs=inputs, attributes=drop_attributes(node, "starts", "ends", "axes"))]


def _move_split_to_input(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    sizes = get_ints_attr(node, "split")
    if sizes is None:
        return [node]
    name = scope.add_constant(node, "split", np.array(sizes, np.int64))
    return [node._replace(inputs=[node.inputs[0], name], attributes=drop_attributes(node, "split"))]


def _set_num_outputs(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    if get_input(node, 1):
        return [node]
    return [node._replace(attributes={**node.attributes, "num_outputs": len(node.outputs)})]


def _upgrade_dropout(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Upgrade Dropout, which ran only in inference mode, so the ratio has no effect."""
    return [node._replace(inputs=node.inputs[:1], attributes=drop_attributes(node, "ratio", "is_test"))]


def _reject_dropout_mask(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    if len(strip_trailing_empty(node.outputs)) > 1:
        raise UnrepresentableError("a mask of the input's element type")
    return [node]


def _upgrade_top_k(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    k = node.attributes.get("k")
    if not isinstance(k, int):
        raise graph_error("node", node.name, f"attribute 'k': expected an integer, given {k!r}")
    name = scope.add_constant(node, "k", np.array([k], np.int64))
    return [node._replace(inputs=[node.inputs[0], name], attributes=drop_attributes(node, "k"))]


_OLD_RESIZE_ATTRIBUTES: dict[str, Attribute] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def _replace_upsample_by_resize(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    scales = get_input(node, 1)
    scales_attribute = node.attributes.get("scales")
    if isinstance(scales_attribute, list):
        scales = scope.add_constant(node, "scales", np.array(scales_attribute, np.float32))
    if not scales:
        raise graph_error("node", node.name, "Upsample without scales")
    attributes = {**drop_attributes(node, "scales"), **_OLD_RESIZE_ATTRIBUTES}
    return [node._replace(op="Resize", inputs=[node.inputs[0], "", scales], attributes=attributes)]


def _upgrade_resize(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    inputs = [node.inputs[0], "", get_input(node, 1)]
    return [node._replace(inputs=inputs, attributes={**node.attributes, **_OLD_RESIZE_ATTRIBUTES})]


def _upgrade_scatter(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    return [node._replace(op="ScatterElements")]


def _upgrade_softmax(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Upgrade Softmax, LogSoftmax and Hardmax, which flattened the input to 2D at `axis` up to opset 12."""
    axis = node.attributes.get("axis", 1)
    source = node.inputs[0]
    if axis == -1 or (axis == 1 and scope.producers.get(source) in ("Flatten", "Gemm")):
        return [node._replace(attributes={**node.attributes, "axis": -1})]
    shape, matrix, rows = (scope.make_name(node, role) for role in ("shape", "matrix", "rows"))
    return [
        NodeRecipe("Shape", shape, [source], [shape], {}),
        NodeRecipe("Flatten", matrix, [source], [matrix], {"axis": axis}),
        NodeRecipe(node.op, rows, [matrix], [rows], {"axis": -1}),
        NodeRecipe("Reshape", node.name, [rows, shape], node.outputs, {}),
    ]


def _upgrade_batch_normalization(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    if node.attributes.get("spatial", 1) != 1:
        raise UnrepresentableError("spatial=0")
    if len(strip_trailing_empty(node.outputs)) > 1:
        raise UnrepresentableError("the outputs of training")
    return [node._replace(outputs=node.outputs[:1], attributes=drop_attributes(node, "spatial", "is_test"))]


def _upgrade_grid_sample(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    mode = node.attributes.get("mode", "bilinear")
    current_mode = {"bilinear": "linear", "bicubic": "cubic"}.get(str(mode), mode)
    return [node._replace(attributes={**node.attributes, "mode": current_mode})]


def _upgrade_roi_align(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    return [node._replace(attributes={"coordinate_transformation_mode": "output_half_pixel", **node.attributes})]


def _upgrade_dft(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    axis_attribute = node.attributes.get("axis", 1)
    if not isinstance(axis_attribute, int):
        raise graph_error("node", node.name, f"attribute 'axis': expected an integer, given {axis_attribute!r}")
    axis = scope.add_constant(node, "axis", np.array(axis_attribute, np.int64))
    return [node._replace(inputs=[*pad_names(node.inputs, 2)[:2], axis], attributes=drop_attributes(node, "axis"))]


def _upgrade_group_normalization(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Upgrade GroupNormalization, whose scale and bias had one element per group instead of per channel."""
    groups = scope.add_constant(node, "groups", np.array([node.attributes.get("num_groups", 1)], np.int64))
    int_one = scope.add_constant(node, "one", np.array([1], np.int64))
    flat = scope.add_constant(node, "flat", np.array([-1], np.int64))
    channels, channels_per_group, shape = (scope.make_name(node, role) for role in ("channels", "each", "shape"))
    nodes = [
        NodeRecipe("Shape", channels, [node.inputs[0]], [channels], {"start": 1, "end": 2}),
        NodeRecipe("Div", channels_per_group, [channels, groups], [channels_per_group], {}),
        NodeRecipe("Concat", shape, [groups, channels_per_group], [shape], {"axis": 0}),
    ]
    inputs = node.inputs[:1]
    for role, group_values in zip(("scale", "bias"), node.inputs[1:], strict=False):
        column, repeated, per_channel = (
            scope.make_name(node, f"{role}.{step}") for step in ("column", "repeated", "made")
        )
        nodes += [
            NodeRecipe("Unsqueeze", column, [group_values, int_one], [column], {}),
            NodeRecipe("Expand", repeated, [column, shape], [repeated], {}),
            NodeRecipe("Reshape", per_channel, [repeated, flat], [per_channel], {}),
        ]
        inputs.append(per_channel)
    return [*nodes, node._replace(inputs=inputs)]


def _upgrade_one_hot(node: NodeRecipe, scope: RewriteScope) -> Nodes:
    """Upgrade OneHot: before opset 11, a negative index selected no class. It is replaced by `depth`, which still does that."""
    if len(node.inputs) < 2:
        return [node]
    indices, depth, is_negative, safe_indices = (
        scope.make_name(node, role) for role in ("indices", "depth", "below", "nowhere")
    )
    zero = scope.add_constant(node, "zero", np.array(0, np.int64))
    return [
        NodeRecipe("Cast", indices, node.inputs[:1], [indices], {"to": _INT64}),
        NodeRecipe("Cast", depth, node.inputs[1:2], [depth], {"to": _INT64}),
        NodeRecipe("Less", is_negative, [indices, zero], [is_negative], {}),
        NodeRecipe("Where", safe_indices, [is_negative, depth, indices], [safe_indices], {}),
        node._replace(inputs=[safe_indices, *node.inputs[1:]]),
    ]


# Operator -> [(first opset with the change, function that upgrades nodes of older opsets)], oldest first; applied after FIRST_UPGRADES.
LATER_UPGRADES: dict[str, list[tuple[int, NodeRewrite]]] = {
    "BatchNormalization": [(14, _upgrade_batch_normalization)],
    "Clip": [(11, _upgrade_clip)],
    "DFT": [(20, _upgrade_dft)],
    "Dropout": [(10, _reject_dropout_mask), (12, _upgrade_dropout)],
    "GridSample": [(20, _upgrade_grid_sample)],
    "GroupNormalization": [(21, _upgrade_group_normalization)],
    "OneHot": [(11, _upgrade_one_hot)],
    "Pad": [(11, _upgrade_pad)],
    "Resize": [(11, _upgrade_resize)],
    "RoiAlign": [(16, _upgrade_roi_align)],
    "Scan": [(9, rewrite_batched_scan)],
    "Scatter": [(11, _upgrade_scatter)],
    "Slice": [(10, _upgrade_slice)],
    "Split": [(13, _move_split_to_input), (18, _set_num_outputs)],
    "TopK": [(10, _upgrade_top_k)],
    "Upsample": [(10, _replace_upsample_by_resize)],
    **{name: [(13, _move_axes_to_input)] for name in ("ReduceSum", "Squeeze", "Unsqueeze")},
    **{name: [(13, _upgrade_softmax)] for name in ("Hardmax", "LogSoftmax", "Softmax")},
    **{
        f"Reduce{name}": [(18, _move_axes_to_input)]
        for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
    },
}
