"""Expand operators that ONNX defines as functions, and model-local functions, into the nodes of their bodies.

The body of an ONNX function may depend on the node and its input types. Each such node is therefore turned into the
only call of a new model-local function, and the `onnx` package inlines it: it avoids name clashes and handles omitted
inputs and attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import onnx
import onnx.defs
import onnx.helper
import onnx.inliner
import onnx.shape_inference
from onnx import AttributeProto, FunctionProto, ModelProto, TypeProto

from ..base.errors import graph_error
from .file.node_names import node_names
from .file.onnx_tensor import DTYPES
from .file.recipe import NodeRecipe
from .rewrites.rewrite_table import NEWEST, OLDEST

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

    Schema: TypeAlias = Any  # onnx.defs.OpSchema, whose type stub lacks the members about functions
    # (operator, domain, element type of the first input) -> whether the engine or importer supports it
    Claimed: TypeAlias = Callable[[str, str, str], bool]

_DOMAIN = "pumice.functions"
_DEEPEST = 16  # maximum nesting levels of function calls
_MOST_NODES = 1 << 20  # maximum node count of a model after expansion
_MOST_BYTES = 1 << 30  # maximum number of bytes that expansion may add, including tensor attributes
_NEWEST_SET = (1 << 31) - 1  # largest opset version that onnx.defs accepts
_MAKES_TYPES = ("Cast", "Constant", "ConstantOfShape")
_SMALL = 64  # tensors with up to this many elements are kept, because they may contain a shape
OPSET = "pumice.opset"  # attribute with the node's ONNX opset if it differs from the model's
_ANY, _RARE = "", "float64"  # element types: any type; a type that not all claimed operators support


def expanded(model: ModelProto, claimed: Claimed, name: str, *, in_place: bool = False) -> ModelProto:
    """Return the model with model-local functions and ONNX function operators expanded.

    Nodes claimed for their element type stay, and so do nodes whose types are unknown. A model with nothing to expand
    is returned unchanged. in_place: modify and return `model` itself. Raise GraphError if a function cannot be expanded or becomes too
    large.
    """
    if not model.functions and not _has_function_nodes(model, claimed):
        return model
    _check_expansion(model, name)
    light = _without_weights(model)
    _give_defaults(light)
    _note_versions(light)
    try:
        for _ in range(_DEEPEST):
            if not light.functions and not _make_calls(light, claimed):
                break
            light = onnx.inliner.inline_local_functions(light)
    except Exception as error:  # onnx's C++ checks raise arbitrary exception types
        raise graph_error("model", name, f"its functions cannot be expanded ({error})") from None
    result = model
    if not in_place:
        result = ModelProto()
        result.CopyFrom(model)
    for field in ("functions", "opset_import"):
        result.ClearField(field)
    result.opset_import.extend(entry for entry in light.opset_import if entry.domain != _DOMAIN)
    result.graph.ClearField("node")
    result.graph.node.extend(light.graph.node)
    return result


class _Size(NamedTuple):
    """The size of a graph after expansion of the functions that it calls."""

    nodes: int
    bytes: int


def _check_expansion(model: ModelProto, name: str) -> None:
    """Reject functions whose expansion would be too large: a few bytes can encode 2**39 nested calls.

    Raise GraphError for a too large expansion, and for recursion.
    """
    functions = {(function.domain, function.name, _overload(function)): function for function in model.functions}
    sizes: dict[tuple[str, str, str], _Size | None] = {}  # None while being counted

    def size_of(graph: GraphProto | FunctionProto) -> _Size:
        nodes = total = 0
        for node in (node for inner in _graphs(graph) for node in inner.node):
            made = called_size(node)
            nodes, total = nodes + made.nodes, total + made.bytes
        return _Size(nodes, total)

    def called_size(node: NodeProto) -> _Size:
        key = (node.domain, node.op_type, _overload(node))
        if key not in functions:
            return _Size(1, node.ByteSize())
        if key not in sizes:
            sizes[key] = None
            sizes[key] = size_of(functions[key])
        size = sizes[key]
        if size is None:
            which = f"'{node.op_type}' of domain '{node.domain}'"
            raise graph_error("model", name, f"its functions cannot be expanded: {which} calls itself")
        return _Size(size.nodes, size.bytes + node.ByteSize())

    try:
        nodes, total = size_of(model.graph)
    except RecursionError:
        raise graph_error("model", name, "its functions call one another too deeply to be expanded") from None
    most = _MOST_BYTES + model.ByteSize()
    if nodes > _MOST_NODES or total > most:
        expected = f"functions that expand to at most {_MOST_NODES} nodes of {most} bytes"
        raise graph_error("model", name, f"expected {expected}, given {nodes} nodes of {total} bytes")


def _without_weights(model: ModelProto) -> ModelProto:
    """Return the model with large initializers replaced by inputs: expansion needs only their types."""
    light = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    graph = model.graph
    light.graph.name = graph.name
    for field in ("node", "input", "output", "value_info"):
        getattr(light.graph, field).extend(getattr(graph, field))
    given = {value.name for value in graph.input}
    for tensor in graph.initializer:
        count = 1
        for size in tensor.dims:
            count *= size
        if count <= _SMALL and not tensor.external_data:
            light.graph.initializer.append(tensor)
        elif tensor.name not in given:
            light.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return light


def _give_defaults(model: ModelProto) -> None:
    """Add the default attributes that calls to model-local functions omit; the `onnx` package would omit them in the body, too."""
    defaults = {
        (function.domain, function.name, _overload(function)): function.attribute_proto for function in model.functions
    }
    bodies = [model.graph, *model.functions]
    for node in (node for body in bodies for graph in _graphs(body) for node in graph.node):
        given = {attribute.name for attribute in node.attribute}
        values = defaults.get((node.domain, node.op_type, _overload(node)), ())
        node.attribute.extend(value for value in values if value.name not in given)


def _note_versions(model: ModelProto) -> None:
    """Record the opset on the nodes of functions that import another opset than the model, so that one expansion handles all nodes."""
    versions = _versions(model)
    for function in model.functions:
        imported = _versions(function)
        version = imported.get("")
        if version is not None and version != versions.get("", version):
            for node in (node for graph in _graphs(function) for node in graph.node):
                if node.domain in ("", "ai.onnx") and _differs(node.op_type, version, versions[""]):
                    node.attribute.append(onnx.helper.make_attribute(OPSET, version))
        for domain, version in imported.items():
            if domain not in versions:
                versions[domain] = version
                model.opset_import.append(onnx.helper.make_opsetid(domain, version))
    for function in model.functions:
        function.ClearField("opset_import")
        function.opset_import.extend(model.opset_import)


def _differs(op: str, version: int, other: int) -> bool:
    """Return whether an operator differs between two opsets. All versions of Constant are read in the same way."""
    if op == "Constant":
        return False
    one, two = schema_of(op, version, ""), schema_of(op, other, "")
    return not OLDEST <= version <= NEWEST or one is None or two is None or bool(one.since_version != two.since_version)


def version_of(node: NodeProto | NodeRecipe, default: int) -> int:
    """Return a node's ONNX opset; `default` is the model's."""
    if isinstance(node, NodeRecipe):
        noted = node.attributes.get(OPSET, default)
        return noted if isinstance(noted, int) else default
    return next((int(one.i) for one in node.attribute if one.name == OPSET), default)


def unversioned(node: NodeProto) -> NodeProto:
    """Return the node without the OPSET attribute."""
    plain = onnx.NodeProto()
    plain.CopyFrom(node)
    del plain.attribute[:]
    plain.attribute.extend(one for one in node.attribute if one.name != OPSET)
    return plain


def _overload(message: FunctionProto | NodeProto) -> str:
    return getattr(message, "overload", "")  # the field exists since onnx 1.16


def schema_of(op: str, version: int, domain: str) -> Schema | None:
    """Return the schema of an operator in an opset; None if the opset lacks the operator."""
    try:
        return onnx.defs.get_schema(op, max(0, min(version, _NEWEST_SET)), domain)
    except onnx.defs.SchemaError:
        return None


# ---- ONNX's functions


def _versions(model: ModelProto | FunctionProto) -> dict[str, int]:
    return {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in model.opset_import}


def _subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    return (attribute.g for attribute in node.attribute if attribute.type == AttributeProto.GRAPH)


def _graphs(graph: GraphProto | FunctionProto) -> Iterator[GraphProto | FunctionProto]:
    yield graph
    for node in graph.node:
        for inner in _subgraphs(node):
            yield from _graphs(inner)


def _schema(node: NodeProto, versions: dict[str, int], claimed: Claimed, dtype: str) -> Schema | None:
    """Return the schema of a node that must be expanded; None for a node that stays."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    if domain not in versions or claimed(node.op_type, domain, dtype) or not onnx.defs.has(node.op_type, domain):
        return None
    schema = schema_of(node.op_type, version_of(node, versions[domain]), domain)
    return schema if schema and (schema.has_function or schema.has_context_dependent_function) else None


def _has_function_nodes(model: ModelProto, claimed: Claimed) -> bool:
    versions = _versions(model)
    dtype = _RARE if _has_doubles(model.graph) else _ANY
    return any(_schema(node, versions, claimed, dtype) for graph in _graphs(model.graph) for node in graph.node)


def _has_doubles(graph: GraphProto) -> bool:
    double = onnx.TensorProto.DOUBLE
    return (
        any(value.type.tensor_type.elem_type == double for value in graph.input)
        or any(tensor.data_type == double for tensor in graph.initializer)
        or any(node.op_type in _MAKES_TYPES for inner in _graphs(graph) for node in inner.node if _names(node, double))
    )


def _names(node: NodeProto, dtype: int) -> bool:
    """Return whether an attribute of the node is this element type, or a tensor with it."""
    return any(attribute.i == dtype or attribute.t.data_type == dtype for attribute in node.attribute)


def _make_calls(model: ModelProto, claimed: Claimed) -> bool:
    """Turn each node that must be expanded into a call of its own function. Return whether the model then has functions."""
    if not _has_function_nodes(model, claimed):
        return False
    versions = _versions(model)
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    types: dict[str, TypeProto] = {}  # names in subgraphs may shadow others; the last declaration wins
    for graph in _graphs(inferred.graph):
        types.update((value.name, value.type) for value in (*graph.input, *graph.value_info, *graph.output))
        for tensor in graph.initializer:
            types[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    for graph in _graphs(model.graph):
        for node, name in zip(graph.node, node_names(graph), strict=True):
            first = types.get(node.input[0]) if node.input else None
            schema = _schema(node, versions, claimed, DTYPES.get(first.tensor_type.elem_type, _ANY) if first else _ANY)
            version = version_of(node, versions[schema.domain]) if schema else 0
            body = schema and _body(node, schema, version, types)
            if not schema or not body:
                continue
            given = {attribute.name for attribute in node.attribute}
            defaults = (one.default_value for one in schema.attributes.values() if one.name not in given)
            node.attribute.extend(value for value in defaults if value.name)
            body.name, body.domain = f"{node.op_type}.{len(model.functions)}", _DOMAIN
            body.ClearField("opset_import")
            body.opset_import.extend(model.opset_import)
            for index, inner in enumerate(body.node):
                if version_of(node, 0):
                    inner.attribute.append(onnx.helper.make_attribute(OPSET, version))
                inner.name = f"{name} ({node.op_type})/{inner.op_type}_{index}"
            node.op_type, node.domain = body.name, _DOMAIN
            model.functions.append(body)
    if model.functions and _DOMAIN not in versions:
        model.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
    return bool(model.functions)


def _body(node: NodeProto, schema: Schema, version: int, types: dict[str, TypeProto]) -> FunctionProto | None:
    """Return the latest function body up to the opset version; None if it depends on types that are unknown."""
    body = FunctionProto()
    if versions := [known for known in schema.function_opset_versions if known <= version]:
        body.ParseFromString(schema.get_function_with_opset_version(max(versions)))
        return body
    versions = [known for known in schema.context_dependent_function_opset_versions if known <= version]
    if not versions or any(name and name not in types for name in node.input):
        return None
    inputs = [types.get(name, TypeProto()).SerializeToString() for name in node.input]
    made = schema.get_context_dependent_function_with_opset_version(max(versions), node.SerializeToString(), inputs)
    body.ParseFromString(made)
    return body
