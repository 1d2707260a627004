"""Translate AffineGrid. ONNX's function body is not used, because it squeezes a batch axis of size 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...base.errors import graph_error
from ..build.builder import GraphBuilder
from ..file.graph_recipe import NodeRecipe

if TYPE_CHECKING:
    from ..._pumice import Value

FLOAT = 1  # TensorProto.DataType
ARRAY_1, ARRAY_0 = np.array([1]), np.array([0])


def add_affine_grid(builder: GraphBuilder, node: NodeRecipe) -> None:
    """Add AffineGrid for D spatial axes: theta [N, D, D + 1] and D + 2 sizes -> coordinates [N, ..., D], innermost axis first."""
    if len(node.inputs) != 2:
        raise graph_error("node", node.name, f"expected theta and sizes, given {len(node.inputs)} inputs")
    theta, sizes = (builder.require_tensor(name) for name in node.inputs)
    num_dims = sizes.shape[0] - 2 if sizes.shape and sizes.shape[0] is not None else None
    if num_dims is None and theta.shape is not None:
        num_dims = theta.shape[1]
    if num_dims not in (2, 3):
        raise graph_error("node", node.name, f"expected 4 or 5 sizes, given {sizes.shape} of them")
    add_helper = builder.add_helper
    spatial_sizes = add_helper(node, "Slice", sizes, np.array([2]), np.array([2 + num_dims]), ARRAY_0)
    rows = []
    for axis in reversed(range(num_dims)):  # x, the innermost axis, comes first
        steps = _make_axis_coordinates(
            builder, node, add_helper(node, "Slice", spatial_sizes, np.array([axis]), np.array([axis + 1]), ARRAY_0)
        )
        unsqueezed_steps = (
            add_helper(node, "Unsqueeze", steps, np.arange(1, num_dims - axis)) if axis < num_dims - 1 else steps
        )
        rows.append(
            add_helper(node, "Reshape", add_helper(node, "Expand", unsqueezed_steps, spatial_sizes), np.array([1, -1]))
        )
    ones = add_helper(node, "Expand", np.ones((1, 1), np.float32), add_helper(node, "Shape", rows[0]))
    homogeneous_coordinates = add_helper(node, "CastLike", add_helper(node, "Concat", *rows, ones, axis=0), theta)
    transposed = add_helper(
        node, "Transpose", add_helper(node, "MatMul", theta, homogeneous_coordinates), perm=[0, 2, 1]
    )
    batch = add_helper(node, "Shape", theta, end=1)
    shape = add_helper(node, "Concat", batch, spatial_sizes, np.array([num_dims]), axis=0)
    name = node.outputs[0]
    builder.set_values([name], (add_helper(node, "Reshape", transposed, shape, output=name, allowzero=1),))


def _make_axis_coordinates(builder: GraphBuilder, node: NodeRecipe, size: Value) -> Value:
    """Return the coordinates along an axis. [-1, 1] spans the outer edges, or with align_corners the centers of the end elements."""
    add_helper = builder.add_helper
    count = add_helper(node, "Reshape", size, np.zeros(0, np.int64))
    indices = add_helper(node, "Range", np.array(0), count, np.array(1))
    size_minus_1 = add_helper(node, "Sub", size, ARRAY_1)
    doubled_offset = add_helper(node, "Sub", add_helper(node, "Mul", indices, np.array(2)), size_minus_1)
    divisor = add_helper(node, "Max", size_minus_1, ARRAY_1) if node.attributes.get("align_corners", 0) else size
    return add_helper(
        node, "Div", add_helper(node, "Cast", doubled_offset, to=FLOAT), add_helper(node, "Cast", divisor, to=FLOAT)
    )
