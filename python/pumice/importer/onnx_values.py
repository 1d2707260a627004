"""Read node attributes and value declarations from ONNX messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto

from ..base.element_types import Array
from ..base.errors import graph_error
from .file.graph_recipe import Attribute, GraphRecipe, InputRecipe, Sizes, UnrepresentableError
from .file.model_file import ModelFile
from .file.onnx_tensor import get_dtype_from_onnx_type, make_constant

if TYPE_CHECKING:
    from onnx import GraphProto, TypeProto, ValueInfoProto

ONNX_DOMAINS = ("", "ai.onnx")
_SUBGRAPH_OPERATORS = ("If", "Loop", "Scan", "SequenceMap")
# Placeholder names that converters write for unknown sizes; two sizes with the same placeholder may differ.
_UNKNOWN_SIZE_NAMES = {
    "",
    "?",
    "*",
    "-1",
    "unk",
    "unknown",
    "none",
    "null",
    "nan",
    "any",
    "dyn",
    "dynamic",
    "undefined",
}


# ---- node attributes


def _decode_utf8(value: bytes, node: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise graph_error("node", node, f"expected UTF-8 text, given {value[:40]!r}") from None


def read_attribute(attribute: AttributeProto, node: str, file: ModelFile) -> Attribute:
    """Return the value of a non-graph attribute. Raise GraphError if it is invalid, UnrepresentableError for an unsupported kind."""
    kind = attribute.type
    if kind == AttributeProto.FLOAT:
        return attribute.f
    if kind == AttributeProto.INT:
        return attribute.i
    if kind == AttributeProto.STRING:
        return _decode_utf8(attribute.s, node)
    if kind == AttributeProto.FLOATS:
        return list(attribute.floats)
    if kind == AttributeProto.INTS:
        return list(attribute.ints)
    if kind == AttributeProto.STRINGS:
        return [_decode_utf8(value, node) for value in attribute.strings]
    if kind == AttributeProto.TENSOR:
        return make_constant(attribute.t, attribute.t.name or attribute.name, file)
    if kind == AttributeProto.UNDEFINED or kind not in AttributeProto.AttributeType.values():
        raise graph_error("node", node, f"expected an attribute with a kind, given kind {kind}")
    if kind == AttributeProto.TYPE_PROTO:
        return format_type(attribute.tp)
    raise UnrepresentableError(
        f"attribute '{attribute.name}' of kind {AttributeProto.AttributeType.Name(kind).lower()}"
    )


def read_attributes(
    proto: NodeProto, node: str, file: ModelFile, subgraph: Callable[[GraphProto], GraphRecipe]
) -> dict[str, Attribute]:
    """Return a node's attributes by name. subgraph: function that imports a graph attribute.

    Raise GraphError for a duplicate attribute or a reference outside a function, UnrepresentableError for an unsupported kind.
    """
    attributes: dict[str, Attribute] = {}
    for attribute in proto.attribute:
        if attribute.name in attributes:
            raise graph_error("node", node, f"attribute '{attribute.name}' is given twice")
        if attribute.ref_attr_name:
            raise graph_error(
                "node",
                node,
                f"attribute '{attribute.name}' refers to an attribute of a function, outside of a function",
            )
        runs_subgraphs = proto.op_type in _SUBGRAPH_OPERATORS and proto.domain in ONNX_DOMAINS
        if runs_subgraphs and attribute.type == AttributeProto.GRAPH:
            attributes[attribute.name] = subgraph(attribute.g)
        else:
            attributes[attribute.name] = read_attribute(attribute, node, file)
    if proto.op_type == "SequenceEmpty" and proto.domain in ONNX_DOMAINS:
        number = attributes.get("dtype", TensorProto.FLOAT)
        attributes["dtype"] = get_dtype_from_onnx_type(number) if isinstance(number, int) else number
    return attributes


def make_constant_array(name: str, value: Attribute) -> Array:
    """Return the array of a Constant node from its attribute `name`. Raise UnrepresentableError for an unsupported attribute."""
    if name in ("value_float", "value_floats") and isinstance(value, float | list):
        return np.array(value, np.float32)
    if name in ("value_string", "value_strings"):
        string_array = np.array(value, object)
        if all(isinstance(text, str) for text in string_array.reshape(-1)):
            return string_array
    if name in ("value_int", "value_ints") and isinstance(value, int | list):
        return np.array(value, np.int64)
    raise UnrepresentableError(f"Constant with the attribute '{name}'")


# ---- value declarations


def _read_shape(shape: Any) -> tuple[Sizes, list[str]]:
    sizes: list[int | None] = []
    names = []
    for dimension in shape.dim:
        is_known = dimension.HasField("dim_value") and dimension.dim_value > 0
        sizes.append(dimension.dim_value if is_known else None)
        names.append(
            "" if is_known or dimension.dim_param.strip().lower() in _UNKNOWN_SIZE_NAMES else dimension.dim_param
        )
    return sizes, names


def format_type(type_proto: TypeProto) -> str:
    """Format a type for ValueKind.parse(): the dtype, wrapped in "sequence()" and "optional()" if needed.

    Raise UnrepresentableError for other types.
    """
    kind = str(type_proto.WhichOneof("value")).removesuffix("_type")
    if kind == "tensor":
        return get_dtype_from_onnx_type(type_proto.tensor_type.elem_type)
    if kind == "optional":
        inner = format_type(type_proto.optional_type.elem_type)
        if not inner.startswith("optional("):
            return f"optional({inner})"
    if kind == "sequence" and type_proto.sequence_type.elem_type.WhichOneof("value") == "tensor_type":
        return f"sequence({format_type(type_proto.sequence_type.elem_type)})"
    raise UnrepresentableError(
        f"{kind} that holds no tensors" if kind in ("optional", "sequence") else f"{kind} instead of a tensor"
    )


def read_value_info(info: ValueInfoProto) -> InputRecipe:
    """Return the declaration of a value. Raise GraphError if it has no type, UnrepresentableError if the type is unsupported."""
    if info.type.WhichOneof("value") is None:
        raise graph_error("value", info.name, "expected an element type, given none")
    dtype = format_type(info.type)
    tensor: TypeProto.Tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return InputRecipe(info.name, dtype, None, [])
    return InputRecipe(info.name, dtype, *_read_shape(tensor.shape))


def read_declared_output(info: ValueInfoProto) -> InputRecipe:
    """Return an output as declared in the file, unchecked: declarations of outputs are only compared and displayed."""
    shape = info.type.tensor_type.shape if info.type.tensor_type.HasField("shape") else None
    try:
        dtype = format_type(info.type)
    except UnrepresentableError:
        dtype = ""
    return InputRecipe(info.name, dtype, *(_read_shape(shape) if shape is not None else (None, [])))
