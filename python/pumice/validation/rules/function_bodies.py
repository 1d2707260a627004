"""Expands operators without a rule into function bodies of ONNX operators, which then supply the bounds.

The body is the standard's definition of the operator, or the one of the operator table if the standard has none; the
engine may use a kernel of its own. Every intermediate is assumed to be rounded to storage, so the bound holds for the
expanded nodes and for a single kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx
import onnx.parser
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, helper

import pumice._pumice as _pumice

from .bounded_tensor import BoundedTensor

if TYPE_CHECKING:
    from ..._pumice import OperatorRow

Schema: TypeAlias = Any  # onnx.defs.OpSchema, whose type stub lacks the function members

_LATEST_OPSET = onnx.defs.onnx_opset_version()


def find_function_body(node: NodeProto, inputs: Sequence[Any], opset: int) -> FunctionProto | None:
    """Return the function body of a node for an opset, with its attributes filled in; None if there is none.

    It comes from ONNX, or from the operator table if ONNX has none.
    """
    found = _find_onnx_body(node, inputs, opset) or _find_definition(node)
    if found is None:
        return None
    body, defaults = found
    attributes_by_name = {attribute.name: attribute for attribute in [*defaults, *node.attribute]}
    for graph in _iter_graphs(body):
        for body_node in graph.node:
            _fill_attributes(body_node, attributes_by_name)
    return body


def has_function_body(op: str, domain: str = "") -> bool:
    """Return whether the latest version of an operator has a function body."""
    if (f"{domain}::{op}" if domain else op) in _get_defined_rows():
        return True
    try:
        schema: Schema = onnx.defs.get_schema(op, domain=domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


@functools.cache
def _get_defined_rows() -> dict[str, OperatorRow]:
    return {row.name: row for row in _pumice.operators() if row.definition}


def _find_definition(node: NodeProto) -> tuple[FunctionProto, list[AttributeProto]] | None:
    """Return the definition in the operator table and the defaults of its attributes; None if there is none."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    row = _get_defined_rows().get(f"{domain}::{node.op_type}" if domain else node.op_type)
    if row is None:
        return None
    inputs, outputs = (", ".join(role.name for role in roles) for roles in (row.inputs, row.outputs))
    header = f'<opset_import: ["" : {_LATEST_OPSET}], domain: "{domain}"> {node.op_type} ({inputs}) => ({outputs})'
    defaults = [helper.make_attribute(x.name, x.default) for x in row.attributes if x.default is not None]
    return onnx.parser.parse_function(f"{header} {{ {row.definition} }}"), defaults


def _find_onnx_body(
    node: NodeProto, inputs: Sequence[Any], opset: int
) -> tuple[FunctionProto, list[AttributeProto]] | None:
    domain = "" if node.domain == "ai.onnx" else node.domain
    try:
        schema = onnx.defs.get_schema(node.op_type, max(1, min(opset, _LATEST_OPSET)), domain)
        body = _get_body(node, schema, inputs, opset)
    except (onnx.defs.SchemaError, RuntimeError, TypeError, ValueError):
        return None
    defaults = [attribute.default_value for attribute in schema.attributes.values() if attribute.default_value.name]
    return (body, defaults) if body is not None else None


def _get_body(node: NodeProto, schema: Schema, inputs: Sequence[Any], opset: int) -> FunctionProto | None:
    body = FunctionProto()
    if schema.has_function:
        body.ParseFromString(
            schema.get_function_with_opset_version(_pick_version(schema.function_opset_versions, opset))
        )
        return body
    # Context-dependent bodies crash the process if the type of a sequence is unknown.
    if not schema.has_context_dependent_function or any(isinstance(input_value, list) for input_value in inputs):
        return None
    version = _pick_version(schema.context_dependent_function_opset_versions, opset)
    types = [_make_type_proto(input_value).SerializeToString() for input_value in inputs]
    body.ParseFromString(
        schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), types)
    )
    return body


def _pick_version(versions: Sequence[int], opset: int) -> int:
    """Return the newest version up to an opset, or the oldest version if all are newer."""
    return max((version for version in versions if version <= opset), default=min(versions))


def _make_type_proto(value: Any) -> onnx.TypeProto:
    if not isinstance(value, BoundedTensor):
        return onnx.TypeProto()
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype)), value.shape)


def _iter_graphs(body: FunctionProto | GraphProto) -> Iterator[FunctionProto | GraphProto]:
    yield body
    for body_node in body.node:
        for attribute in body_node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _iter_graphs(attribute.g)


def _fill_attributes(body_node: NodeProto, attributes_by_name: dict[str, AttributeProto]) -> None:
    """Replace references to function attributes with their values, and drop references to missing attributes."""
    kept_attributes = []
    for attribute in body_node.attribute:
        if not attribute.ref_attr_name:
            kept_attributes.append(attribute)
        elif value := attributes_by_name.get(attribute.ref_attr_name):
            copied = AttributeProto()
            copied.CopyFrom(value)
            copied.name = attribute.name
            kept_attributes.append(copied)
    body_node.ClearField("attribute")
    body_node.attribute.extend(kept_attributes)
