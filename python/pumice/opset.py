"""Brings nodes of older ONNX operator sets into the newest form of their operator.

Only what changed in meaning or in place is here: attributes that became inputs, defaults that changed, operators that were
renamed. What a newer set merely added (element types, optional inputs and attributes) needs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from .batched_scan import unbatched_scan
from .element_types import Array, numpy_dtype
from .errors import graph_error
from .recipe import Attribute, ConstantRecipe, NodeRecipe, NotExpressible, integers, number, without_trailing_gaps

_INT64 = 7  # TensorProto.DataType
OLDEST = 7
NEWEST = 28

Nodes: TypeAlias = "list[NodeRecipe]"


class Scope:
    """The values of one model: which are constant, what makes the others, which kinds of floats there are."""

    def __init__(
        self, constants: dict[str, ConstantRecipe], known: set[str], producers: dict[str, str], float_types: set[str]
    ) -> None:
        self.constants = constants
        self.taken = {*known, *producers}
        self.producers = producers  # value -> operator
        self.float_types = float_types

    def fresh(self, node: NodeRecipe, role: str) -> str:
        """A name that no value of the model has."""
        name = f"{node.name}/{role}"
        while name in self.taken:
            name += "'"
        self.taken.add(name)
        return name

    def constant(self, node: NodeRecipe, role: str, value: Array) -> str:
        name = self.fresh(node, role)
        self.constants[name] = ConstantRecipe(name, str(value.dtype), list(value.shape), value.tobytes())
        return name


Upgrade: TypeAlias = "Callable[[NodeRecipe, Scope], Nodes]"


def input_of(node: NodeRecipe, index: int) -> str:
    return node.inputs[index] if index < len(node.inputs) else ""


def _padded(names: list[str], count: int) -> list[str]:
    return names + [""] * (count - len(names))


def _without(node: NodeRecipe, *names: str) -> dict[str, Attribute]:
    return {name: value for name, value in node.attributes.items() if name not in names}


def _axes_as_input(node: NodeRecipe, scope: Scope) -> Nodes:
    axes = integers(node, "axes")
    if axes is None:
        return [node]
    name = scope.constant(node, "axes", np.array(axes, np.int64))
    return [node._replace(inputs=[*node.inputs[:1], name], attributes=_without(node, "axes"))]


def like_input(node: NodeRecipe, scope: Scope, role: str, value: float) -> tuple[Nodes, str]:
    """A scalar of the element type of input 0; a node casts it where the model has floats of several kinds."""
    if len(scope.float_types) <= 1:
        dtype = next(iter(scope.float_types), "float32")
        return [], scope.constant(node, role, np.array(value, numpy_dtype(dtype)))
    scalar = scope.constant(node, f"{role}.float32", np.array(value, np.float32))
    name = scope.fresh(node, role)
    return [NodeRecipe("CastLike", name, [scalar, node.inputs[0]], [name], {})], name


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
    return [*before, node._replace(inputs=without_trailing_gaps(inputs), attributes=_without(node, "min", "max"))]


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
    return [*casts, node._replace(inputs=inputs, attributes=_without(node, "pads", "value"))]


def _slice(node: NodeRecipe, scope: Scope) -> Nodes:
    inputs = node.inputs[:1]
    for role in ("starts", "ends", "axes"):
        values = integers(node, role)
        if values is not None:
            inputs.append(scope.constant(node, role, np.array(values, np.int64)))
        elif role != "axes":
            raise graph_error("node", node.name, f"Slice without the attribute '{role}'")
    return [node._replace(inputs=inputs, attributes=_without(node, "starts", "ends", "axes"))]


def _split_sizes(node: NodeRecipe, scope: Scope) -> Nodes:
    sizes = integers(node, "split")
    if sizes is None:
        return [node]
    name = scope.constant(node, "split", np.array(sizes, np.int64))
    return [node._replace(inputs=[node.inputs[0], name], attributes=_without(node, "split"))]


def _split_count(node: NodeRecipe, scope: Scope) -> Nodes:
    if input_of(node, 1):
        return [node]
    return [node._replace(attributes={**node.attributes, "num_outputs": len(node.outputs)})]


def _dropout(node: NodeRecipe, scope: Scope) -> Nodes:
    """The ratio means nothing outside training."""
    return [node._replace(inputs=node.inputs[:1], attributes=_without(node, "ratio", "is_test"))]


def _dropout_mask(node: NodeRecipe, scope: Scope) -> Nodes:
    if len(without_trailing_gaps(node.outputs)) > 1:
        raise NotExpressible("a mask of the input's element type")
    return [node]


def _top_k(node: NodeRecipe, scope: Scope) -> Nodes:
    k = node.attributes.get("k")
    if not isinstance(k, int):
        raise graph_error("node", node.name, f"attribute 'k': expected an integer, given {k!r}")
    name = scope.constant(node, "k", np.array([k], np.int64))
    return [node._replace(inputs=[node.inputs[0], name], attributes=_without(node, "k"))]


_OLD_RESIZE: dict[str, Attribute] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def _upsample(node: NodeRecipe, scope: Scope) -> Nodes:
    scales = input_of(node, 1)
    given = node.attributes.get("scales")
    if isinstance(given, list):
        scales = scope.constant(node, "scales", np.array(given, np.float32))
    if not scales:
        raise graph_error("node", node.name, "Upsample without scales")
    attributes = {**_without(node, "scales"), **_OLD_RESIZE}
    return [node._replace(op="Resize", inputs=[node.inputs[0], "", scales], attributes=attributes)]


def _resize(node: NodeRecipe, scope: Scope) -> Nodes:
    inputs = [node.inputs[0], "", input_of(node, 1)]
    return [node._replace(inputs=inputs, attributes={**node.attributes, **_OLD_RESIZE})]


def _scatter(node: NodeRecipe, scope: Scope) -> Nodes:
    return [node._replace(op="ScatterElements")]


def _softmax(node: NodeRecipe, scope: Scope) -> Nodes:
    """Up to operator set 12 the input was taken as a matrix: the sizes before `axis` by all the others."""
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
    return [node._replace(outputs=node.outputs[:1], attributes=_without(node, "spatial", "is_test"))]


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
    return [node._replace(inputs=[*_padded(node.inputs, 2)[:2], axis], attributes=_without(node, "axis"))]


def _group_normalization(node: NodeRecipe, scope: Scope) -> Nodes:
    """Scale and bias were those of groups."""
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
    """Indices below 0 were nowhere, as one beyond the depth is."""
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


def _refused(why: str) -> Upgrade:
    def upgrade(node: NodeRecipe, scope: Scope) -> Nodes:
        raise NotExpressible(why)

    return upgrade


# Operator -> (operator set that brought the change, what to do with nodes of older ones), oldest change first.
UPGRADES: dict[str, list[tuple[int, Upgrade]]] = {
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


def upgraded(node: NodeRecipe, version: int, scope: Scope) -> Nodes:
    """The node in its newest form, with what it needs before it. Raises NotExpressible, GraphError."""
    nodes = [node]
    for since, upgrade in UPGRADES.get(node.op, ()):
        if version >= since or node.domain:
            continue
        if not input_of(node, 0) and node.op != "Scan":  # whose first input was optional
            raise graph_error("node", node.name, f"{node.op} without its first input")
        nodes = [*nodes[:-1], *upgrade(nodes[-1], scope)]
    return nodes
