"""Translate AffineGrid. ONNX's function body cannot be used, because it squeezes away the batch axis of size 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...base.errors import graph_error
from ..build.builder import Builder
from ..file.recipe import NodeRecipe

if TYPE_CHECKING:
    from ..._pumice import Value

FLOAT = 1  # TensorProto.DataType
ONE, FIRST = np.array([1]), np.array([0])


def add_affine_grid(builder: Builder, node: NodeRecipe) -> None:
    """Add AffineGrid: theta [N, A, A + 1] and A + 2 sizes -> coordinates [N, ..., A] in [-1, 1], the innermost axis first."""
    if len(node.inputs) != 2:
        raise graph_error("node", node.name, f"expected theta and sizes, given {len(node.inputs)} inputs")
    theta, sizes = (builder.tensor(name) for name in node.inputs)
    known = sizes.shape[0] - 2 if sizes.shape and sizes.shape[0] is not None else None
    if known is None and theta.shape is not None:
        known = theta.shape[1]
    if known not in (2, 3):
        raise graph_error("node", node.name, f"expected 4 or 5 sizes, given {sizes.shape} of them")
    helper = builder.helper
    image = helper(node, "Slice", sizes, np.array([2]), np.array([2 + known]), FIRST)
    rows = []
    for axis in reversed(range(known)):  # x, the innermost axis, comes first
        steps = _steps(builder, node, helper(node, "Slice", image, np.array([axis]), np.array([axis + 1]), FIRST))
        along = helper(node, "Unsqueeze", steps, np.arange(1, known - axis)) if axis < known - 1 else steps
        rows.append(helper(node, "Reshape", helper(node, "Expand", along, image), np.array([1, -1])))
    ones = helper(node, "Expand", np.ones((1, 1), np.float32), helper(node, "Shape", rows[0]))
    places = helper(node, "CastLike", helper(node, "Concat", *rows, ones, axis=0), theta)
    turned = helper(node, "Transpose", helper(node, "MatMul", theta, places), perm=[0, 2, 1])
    batch = helper(node, "Shape", theta, end=1)
    shape = helper(node, "Concat", batch, image, np.array([known]), axis=0)
    name = node.outputs[0]
    builder.keep([name], (helper(node, "Reshape", turned, shape, output=name, allowzero=1),))


def _steps(builder: Builder, node: NodeRecipe, size: Value) -> Value:
    """Return coordinates along an axis. [-1, 1] spans the outer edges, or with align_corners the first to the last element's center."""
    helper = builder.helper
    count = helper(node, "Reshape", size, np.zeros(0, np.int64))
    places = helper(node, "Range", np.array(0), count, np.array(1))
    gaps = helper(node, "Sub", size, ONE)
    twice = helper(node, "Sub", helper(node, "Mul", places, np.array(2)), gaps)
    parts = helper(node, "Max", gaps, ONE) if node.attributes.get("align_corners", 0) else size
    return helper(node, "Div", helper(node, "Cast", twice, to=FLOAT), helper(node, "Cast", parts, to=FLOAT))
