"""Data-movement operators on int2, int4, float4 and float8 tensors, which the engine can only quantise and dequantise.

Such a tensor is cast to a wider dtype that represents it exactly, moved, and cast back. Constants are transposed and
reshaped at import and stay packed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.element_types import BITS, array_from_bytes, pack_low_bit_codes
from ..file.graph_recipe import get_ints_attr

if TYPE_CHECKING:
    from ..._pumice import Value
    from ..file.graph_recipe import ConstantRecipe, NodeRecipe
    from .builder import GraphBuilder

# Low-bit dtype -> (its ONNX type number, a wider dtype, the wider dtype's type number). float16 represents all low-bit floats exactly.
_WIDE_TYPES = {
    "float8_e4m3fn": (17, "float16", 10),
    "float8_e4m3fnuz": (18, "float16", 10),
    "float8_e5m2": (19, "float16", 10),
    "float8_e5m2fnuz": (20, "float16", 10),
    "uint4": (21, "uint8", 2),
    "int4": (22, "int8", 3),
    "float4_e2m1fn": (23, "float16", 10),
    "uint2": (25, "uint8", 2),
    "int2": (26, "int8", 3),
}
# Operator -> indices of its data inputs; None: all inputs.
_MOVED_INPUTS: dict[str, tuple[int, ...] | None] = {
    "Concat": None,
    "DepthToSpace": (0,),
    "Expand": (0,),
    "Flatten": (0,),
    "Gather": (0,),
    "GatherElements": (0,),
    "GatherND": (0,),
    "Identity": (0,),
    "Pad": (0, 2),
    "Reshape": (0,),
    "ReverseSequence": (0,),
    "ScatterElements": (0, 2),
    "ScatterND": (0, 2),
    "Shape": (0,),
    "Size": (0,),
    "Slice": (0,),
    "SpaceToDepth": (0,),
    "Split": (0,),
    "Squeeze": (0,),
    "Tile": (0,),
    "Transpose": (0,),
    "Unsqueeze": (0,),
    "Where": (1, 2),
}
_SHAPE_OPERATORS = ("Shape", "Size")


def get_low_bit_dtype(node: NodeRecipe, inputs: list[Value | None]) -> str:
    """Return the dtype of the node's data inputs if it is a low-bit dtype; else ""."""
    if node.domain or node.op not in _MOVED_INPUTS:
        return ""
    first = (_MOVED_INPUTS[node.op] or (0,))[0]
    value = inputs[first] if first < len(inputs) else None
    return value.dtype if value is not None and value.dtype in _WIDE_TYPES else ""


def add_low_bit_movement_op(
    builder: GraphBuilder, node: NodeRecipe, inputs: list[Value | None], names: list[str]
) -> tuple[Value, ...]:
    """Add a data-movement node on low-bit tensors and return its outputs. Raise the errors of Graph.add."""
    dtype = get_low_bit_dtype(node, inputs)
    dtype_code, wide_dtype, wide_code = _WIDE_TYPES[dtype]
    if (folded := _fold_constant(builder, node, dtype)) is not None:
        return (folded,)
    moved_inputs = _MOVED_INPUTS[node.op]
    wide_inputs: list[Any] = list(inputs)
    for i, value in enumerate(inputs):
        if value is not None and value.dtype == dtype and (moved_inputs is None or i in moved_inputs):
            wide_inputs[i] = _cast_pad_value(builder, node, i, wide_dtype) or builder.add_helper(
                node, "Cast", value, to=wide_code
            )
    only_shapes = node.op in _SHAPE_OPERATORS
    wide_names = (
        names
        if only_shapes
        else [builder.make_unique_name(f"{name} as {wide_dtype}") if name else "" for name in names]
    )
    engine_outputs = builder.graph.add(
        node.op,
        *wide_inputs,
        outputs=len(names),
        name=node.name,
        output_names=wide_names,
        **builder.get_attributes(node),
    )
    results = engine_outputs if isinstance(engine_outputs, tuple) else (engine_outputs,)
    if only_shapes:
        return results
    # Cast back without saturation, to preserve infinities and NaN.
    cast_attributes = {"saturate": 0} if wide_dtype == "float16" and BITS[dtype] == 8 else {}
    return tuple(
        builder.add_helper(node, "Cast", result, output=name, to=dtype_code, **cast_attributes)
        for result, name in zip(results, names, strict=True)
    )


def _cast_pad_value(builder: GraphBuilder, node: NodeRecipe, i: int, wide_dtype: str) -> Value | None:
    """Return the constant fill value of a Pad in the wide dtype; None for any other input.

    The fill value must stay constant, because the host reads it.
    """
    constant = builder.constants.get(node.inputs[i]) if node.op == "Pad" and i == 2 else None
    if constant is None:
        return None
    pad_value = np.asarray(array_from_bytes(constant.raw, constant.dtype, constant.shape)).astype(wide_dtype)
    return builder.graph.constant_bytes(
        pad_value.tobytes(),
        wide_dtype,
        list(constant.shape),
        builder.make_unique_name(f"{node.inputs[i]} as {wide_dtype}"),
    )


def _fold_constant(builder: GraphBuilder, node: NodeRecipe, dtype: str) -> Value | None:
    """Return the result of a Transpose or Reshape of a constant; None for other nodes."""
    constant = builder.constants.get(node.inputs[0])
    if constant is None or BITS[dtype] == 8:
        return None
    if node.op == "Transpose":
        codes = array_from_bytes(constant.raw, dtype, constant.shape)
        order = get_ints_attr(node, "perm") or [*range(codes.ndim)][::-1]
        if sorted(order) != [*range(codes.ndim)]:
            return None  # invalid; the engine will reject the node
        transposed = np.ascontiguousarray(np.transpose(codes, order).view(np.uint8))
        return builder.graph.constant_bytes(
            pack_low_bit_codes(transposed, BITS[dtype]), dtype, list(transposed.shape), node.outputs[0]
        )
    shape = _infer_reshaped_shape(builder, node, constant)
    return None if shape is None else builder.graph.constant_bytes(constant.raw, dtype, shape, node.outputs[0])


def _infer_reshaped_shape(builder: GraphBuilder, node: NodeRecipe, constant: ConstantRecipe) -> list[int] | None:
    """Return the output shape of a constant's Reshape; None if the shape is not constant or not valid."""
    target = builder.get_constant_array(node.inputs[1]) if node.op == "Reshape" and len(node.inputs) > 1 else None
    if target is None or node.attributes.get("allowzero", 0) or (target < -1).any():
        return None
    try:
        sizes = [constant.shape[i] if size == 0 else size for i, size in enumerate(target.reshape(-1).tolist())]
        return list(np.empty(constant.shape, np.bool_).reshape(sizes).shape)
    except (IndexError, ValueError):
        return None
