"""Operators that ONNX defines by others: their parts bound one that has no rule of its own.

The definition is the standard's, which the engine does not compute by: its rows are kernels of their own. A part's result counts as
stored, as a program of the parts would store it, so that the bound holds for that program and for one kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, helper

from .bounded import Bounded

Schema: TypeAlias = Any  # onnx.defs.OpSchema, whose stub knows nothing of functions

_NEWEST_SET = onnx.defs.onnx_opset_version()


def definition(node: NodeProto, inputs: Sequence[Any], opset: int) -> FunctionProto | None:
    """What ONNX says a node is made of in an operator set, with the node's attributes in it; None where it says nothing."""
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
    """Whether the newest form of an operator is defined by others."""
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
    # The code behind a definition that depends on types ends the process where it is not told those of a sequence.
    if not schema.has_context_dependent_function or any(isinstance(one, list) for one in inputs):
        return None
    version = _of(schema.context_dependent_function_opset_versions, opset)
    types = [_type_of(one).SerializeToString() for one in inputs]
    body.ParseFromString(
        schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), types)
    )
    return body


def _of(versions: Sequence[int], opset: int) -> int:
    """The newest definition up to an operator set; the first one, whose parts are of a newer set, where the operator is older than it."""
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
    """Puts the values of attributes in the place of their names; what has none is left out."""
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
