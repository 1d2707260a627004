"""Upgrade nodes from older opsets to the latest version of their operator.

Only breaking changes are handled: attributes that became inputs, changed defaults, renamed operators. Pure additions
(element types, optional inputs and attributes) need no upgrade.
"""

from __future__ import annotations

import numpy as np

from ...base.errors import graph_error
from ..file.recipe import Attribute, NodeRecipe, NotExpressible, integers, number, without_trailing_gaps
from .batched_scan import unbatched_scan
from .rewrite_helpers import Nodes, Scope, Upgrade, input_of, like_input, padded, without

_INT64 = 7  # TensorProto.DataType


def _axes_as_input(node: NodeRecipe, scope: Scope) -> Nodes:
    axes = integers(node, "axes")
    if axes is None:
        return [node]
    name = scope.constant(node, "axes", np.array(axes, np.int64))
    return [node._replace(inputs=[*node.inputs[:1], name], attributes=without(node, "axes"))]


def _clip(node: NodeRecipe, scope: Scope) -> Nodes:
    before: Nodes = []
    inputs = node.inputs[:1]
    for role in ("min", "max"):
        if role not in node.attributes:
            inputs.append("")
            continue
        casts, name = like_input(node, scope, role, number(node, role, 0))
        before += casts
        inputs.append(name)
    return [*before, node._replace(inputs=without_trailing_gaps(inputs), attributes=without(node, "min", "max"))]


def _pad(node: NodeRecipe, scope: Scope) -> Nodes:
    pads = integers(node, "pads")
    if pads is None:
        raise graph_error("node", node.name, "Pad without the attribute 'pads'")
    inputs = [node.inputs[0], scope.constant(node, "pads", np.array(pads, np.int64))]
    casts: Nodes = []
    value = number(node, "value", 0.0)
    if value != 0:
        casts, name = like_input(node, scope, "value", value)
        inputs.append(name)
    return [*casts, node._replace(inputs=inputs, attributes=without(node, "pads", "value"))]


def _slice(node: NodeRecipe, scope: Scope) -> Nodes:
    inputs = node.inputs[:1]
    for role in ("starts", "ends", "axes"):
        values = integers(node, role)
        if values is not None:
            inputs.append(scope.constant(node, role, np.array(values, np.int64)))
        elif role != "axes":
            raise graph_error("node", node.name, f"Slice without the attribute '{role}'")
    return [node._replace(inputs=inputs, attributes=without(node, "starts", "ends", "axes"))]


def _split_sizes(node: NodeRecipe, scope: Scope) -> Nodes:
    sizes = integers(node, "split")
    if sizes is None:
        return [node]
    name = scope.constant(node, "split", np.array(sizes, np.int64))
    return [node._replace(inputs=[node.inputs[0], name], attributes=without(node, "split"))]


def _split_count(node: NodeRecipe, scope: Scope) -> Nodes:
    if input_of(node, 1):
        return [node]
    return [node._replace(attributes={**node.attributes, "num_outputs": len(node.outputs)})]


def _dropout(node: NodeRecipe, scope: Scope) -> Nodes:
    """Upgrade Dropout at inference, where the ratio has no effect."""
    return [node._replace(inputs=node.inputs[:1], attributes=without(node, "ratio", "is_test"))]


def _dropout_mask(node: NodeRecipe, scope: Scope) -> Nodes:
    if len(without_trailing_gaps(node.outputs)) > 1:
        raise NotExpressible("a mask of the input's element type")
    return [node]


def _top_k(node: NodeRecipe, scope: Scope) -> Nodes:
    k = node.attributes.get("k")
    if not isinstance(k, int):
        raise graph_error("node", node.name, f"attribute 'k': expected an integer, given {k!r}")
    name = scope.constant(node, "k", np.array([k], np.int64))
    return [node._replace(inputs=[node.inputs[0], name], attributes=without(node, "k"))]


_OLD_RESIZE: dict[str, Attribute] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def _upsample(node: NodeRecipe, scope: Scope) -> Nodes:
    scales = input_of(node, 1)
    given = node.attributes.get("scales")
    if isinstance(given, list):
        scales = scope.constant(node, "scales", np.array(given, np.float32))
    if not scales:
        raise graph_error("node", node.name, "Upsample without scales")
    attributes = {**without(node, "scales"), **_OLD_RESIZE}
    return [node._replace(op="Resize", inputs=[node.inputs[0], "", scales], attributes=attributes)]


def _resize(node: NodeRecipe, scope: Scope) -> Nodes:
    inputs = [node.inputs[0], "", input_of(node, 1)]
    return [node._replace(inputs=inputs, attributes={**node.attributes, **_OLD_RESIZE})]


def _scatter(node: NodeRecipe, scope: Scope) -> Nodes:
    return [node._replace(op="ScatterElements")]


def _softmax(node: NodeRecipe, scope: Scope) -> Nodes:
    """Upgrade Softmax, LogSoftmax and Hardmax: up to opset 12 the input was flattened to 2D at `axis`."""
    axis = node.attributes.get("axis", 1)
    source = node.inputs[0]
    if axis == -1 or (axis == 1 and scope.producers.get(source) in ("Flatten", "Gemm")):
        return [node._replace(attributes={**node.attributes, "axis": -1})]
    shape, matrix, rows = (scope.fresh(node, role) for role in ("shape", "matrix", "rows"))
    return [
        NodeRecipe("Shape", shape, [source], [shape], {}),
        NodeRecipe("Flatten", matrix, [source], [matrix], {"axis": axis}),
        NodeRecipe(node.op, rows, [matrix], [rows], {"axis": -1}),
        NodeRecipe("Reshape", node.name, [rows, shape], node.outputs, {}),
    ]


def _batch_normalization(node: NodeRecipe, scope: Scope) -> Nodes:
    if node.attributes.get("spatial", 1) != 1:
        raise NotExpressible("spatial=0")
    if len(without_trailing_gaps(node.outputs)) > 1:
        raise NotExpressible("the outputs of training")
    return [node._replace(outputs=node.outputs[:1], attributes=without(node, "spatial", "is_test"))]


def _grid_sample(node: NodeRecipe, scope: Scope) -> Nodes:
    mode = node.attributes.get("mode", "bilinear")
    newest = {"bilinear": "linear", "bicubic": "cubic"}.get(str(mode), mode)
    return [node._replace(attributes={**node.attributes, "mode": newest})]


def _roi_align(node: NodeRecipe, scope: Scope) -> Nodes:
    return [node._replace(attributes={"coordinate_transformation_mode": "output_half_pixel", **node.attributes})]


def _dft(node: NodeRecipe, scope: Scope) -> Nodes:
    given = node.attributes.get("axis", 1)
    if not isinstance(given, int):
        raise graph_error("node", node.name, f"attribute 'axis': expected an integer, given {given!r}")
    axis = scope.constant(node, "axis", np.array(given, np.int64))
    return [node._replace(inputs=[*padded(node.inputs, 2)[:2], axis], attributes=without(node, "axis"))]


def _group_normalization(node: NodeRecipe, scope: Scope) -> Nodes:
    """Upgrade GroupNormalization with scale and bias per group instead of per channel."""
    groups = scope.constant(node, "groups", np.array([node.attributes.get("num_groups", 1)], np.int64))
    one = scope.constant(node, "one", np.array([1], np.int64))
    flat = scope.constant(node, "flat", np.array([-1], np.int64))
    channels, each, shape = (scope.fresh(node, role) for role in ("channels", "each", "shape"))
    nodes = [
        NodeRecipe("Shape", channels, [node.inputs[0]], [channels], {"start": 1, "end": 2}),
        NodeRecipe("Div", each, [channels, groups], [each], {}),
        NodeRecipe("Concat", shape, [groups, each], [shape], {"axis": 0}),
    ]
    inputs = node.inputs[:1]
    for role, given in zip(("scale", "bias"), node.inputs[1:], strict=False):
        column, repeated, made = (scope.fresh(node, f"{role}.{step}") for step in ("column", "repeated", "made"))
        nodes += [
            NodeRecipe("Unsqueeze", column, [given, one], [column], {}),
            NodeRecipe("Expand", repeated, [column, shape], [repeated], {}),
            NodeRecipe("Reshape", made, [repeated, flat], [made], {}),
        ]
        inputs.append(made)
    return [*nodes, node._replace(inputs=inputs)]


def _one_hot(node: NodeRecipe, scope: Scope) -> Nodes:
    """Upgrade OneHot: before opset 11 a negative index gave an all-off row, as an index beyond the depth still does."""
    if len(node.inputs) < 2:
        return [node]
    indices, depth, below, made = (scope.fresh(node, role) for role in ("indices", "depth", "below", "nowhere"))
    zero = scope.constant(node, "zero", np.array(0, np.int64))
    return [
        NodeRecipe("Cast", indices, node.inputs[:1], [indices], {"to": _INT64}),
        NodeRecipe("Cast", depth, node.inputs[1:2], [depth], {"to": _INT64}),
        NodeRecipe("Less", below, [indices, zero], [below], {}),
        NodeRecipe("Where", made, [below, depth, indices], [made], {}),
        node._replace(inputs=[made, *node.inputs[1:]]),
    ]


# Operator -> (opset that introduced the change, function that upgrades older nodes), oldest first; applied after FIRST_UPGRADES.
LATER_UPGRADES: dict[str, list[tuple[int, Upgrade]]] = {
    "BatchNormalization": [(14, _batch_normalization)],
    "Clip": [(11, _clip)],
    "DFT": [(20, _dft)],
    "Dropout": [(10, _dropout_mask), (12, _dropout)],
    "GridSample": [(20, _grid_sample)],
    "GroupNormalization": [(21, _group_normalization)],
    "OneHot": [(11, _one_hot)],
    "Pad": [(11, _pad)],
    "Resize": [(11, _resize)],
    "RoiAlign": [(16, _roi_align)],
    "Scan": [(9, unbatched_scan)],
    "Scatter": [(11, _scatter)],
    "Slice": [(10, _slice)],
    "Split": [(13, _split_sizes), (18, _split_count)],
    "TopK": [(10, _top_k)],
    "Upsample": [(10, _upsample)],
    **{name: [(13, _axes_as_input)] for name in ("ReduceSum", "Squeeze", "Unsqueeze")},
    **{name: [(13, _softmax)] for name in ("Hardmax", "LogSoftmax", "Softmax")},
    **{
        f"Reduce{name}": [(18, _axes_as_input)]
        for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
    },
}
