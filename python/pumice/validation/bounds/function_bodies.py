"""ONNX function bodies, which give bounds for operators without a rule.

The body is the standard's definition; the engine uses its own kernels. Every intermediate counts as stored, so the
bound holds for the expanded program and for a single kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, helper

from .bounded import Bounded

Schema: TypeAlias = Any  # an onnx.defs.OpSchema, whose stub lacks the function members

_NEWEST_SET = onnx.defs.onnx_opset_version()


def definition(node: NodeProto, inputs: Sequence[Any], opset: int) -> FunctionProto | None:
    """Return the ONNX function body of a node for an opset, with its attributes filled in; None if there is none."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    try:
        schema = onnx.defs.get_schema(node.op_type, max(1, min(opset, _NEWEST_SET)), domain)
        body = _body(node, schema, inputs, opset)
    except (onnx.defs.SchemaError, RuntimeError, TypeError, ValueError):
        return None
    if body is not None:
        given = {name: attribute.default_value for name, attribute in schema.attributes.items()}
        given = {name: value for name, value in given.items() if value.name}
        given |= {attribute.name: attribute for attribute in node.attribute}
        for graph in _graphs(body):
            for part in graph.node:
                _give(part, given)
    return body


def is_defined(op: str, domain: str = "") -> bool:
    """Whether the latest version of an operator has a function body."""
    try:
        schema: Schema = onnx.defs.get_schema(op, domain=domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _body(node: NodeProto, schema: Schema, inputs: Sequence[Any], opset: int) -> FunctionProto | None:
    body = FunctionProto()
    if schema.has_function:
        body.ParseFromString(schema.get_function_with_opset_version(_of(schema.function_opset_versions, opset)))
        return body
    # Context-dependent bodies crash the process if the type of a sequence is unknown.
    if not schema.has_context_dependent_function or any(isinstance(one, list) for one in inputs):
        return None
    version = _of(schema.context_dependent_function_opset_versions, opset)
    types = [_type_of(one).SerializeToString() for one in inputs]
    body.ParseFromString(
        schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), types)
    )
    return body


def _of(versions: Sequence[int], opset: int) -> int:
    """Return the newest definition up to an opset, else the oldest one, whose nodes use a newer opset."""
    return max((one for one in versions if one <= opset), default=min(versions))


def _type_of(value: Any) -> onnx.TypeProto:
    if not isinstance(value, Bounded):
        return onnx.TypeProto()
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype)), value.shape)


def _graphs(body: FunctionProto | GraphProto) -> Iterator[FunctionProto | GraphProto]:
    yield body
    for part in body.node:
        for attribute in part.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def _give(part: NodeProto, given: dict[str, AttributeProto]) -> None:
    """Replace attribute references with their values; drop references without a value."""
    kept = []
    for attribute in part.attribute:
        if not attribute.ref_attr_name:
            kept.append(attribute)
        elif value := given.get(attribute.ref_attr_name):
            made = AttributeProto()
            made.CopyFrom(value)
            made.name = attribute.name
            kept.append(made)
    part.ClearField("attribute")
    part.attribute.extend(kept)
