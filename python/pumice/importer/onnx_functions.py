"""Expand model-local functions, and operators that ONNX defines as functions, into the nodes of their bodies.

The body of an ONNX function may depend on the node and its input types. Each such node therefore becomes the only call of a
new model-local function. The `onnx` package then inlines all functions: it avoids name clashes and handles omitted inputs and
attributes.
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
from .file.graph_recipe import NodeRecipe
from .file.node_names import make_node_names
from .file.onnx_tensor import DTYPES
from .rewrites.rewrite_table import MAX_OPSET, MIN_OPSET

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

    Schema: TypeAlias = Any  # onnx.defs.OpSchema, whose type stub lacks the function members
    # (operator, domain, element type of the first input) -> whether the engine or importer supports it
    IsSupported: TypeAlias = Callable[[str, str, str], bool]

_DOMAIN = "pumice.functions"
_MAX_CALL_DEPTH = 16  # maximum nesting levels of function calls
_MAX_NODES = 1 << 20  # maximum node count of a model after expansion
_MAX_BYTES = 1 << 30  # maximum number of bytes that expansion may add, including tensor attributes
_MAX_OPSET = (1 << 31) - 1  # largest opset version that onnx.defs accepts
_TYPE_SETTING_OPERATORS = ("Cast", "Constant", "ConstantOfShape")
_MAX_KEPT_ELEMENTS = 64  # smaller initializers are kept for expansion, because they may contain a shape
OPSET = "pumice.opset"  # attribute with a node's ONNX opset if it differs from the model's
_ANY_DTYPE, _RARE_DTYPE = "", "float64"  # matches any dtype; a dtype that only some engine operators support


def expand_functions(model: ModelProto, is_supported: IsSupported, name: str, *, in_place: bool = False) -> ModelProto:
    """Return the model with model-local functions and ONNX function operators expanded.

    Nodes that are supported for their dtype, or whose function body needs unknown types, are kept. A model with nothing to expand is
    returned unchanged. in_place: modify and return `model` itself. Raise GraphError if a function cannot be expanded or is too large.
    """
    if not model.functions and not _has_function_nodes(model, is_supported):
        return model
    _check_expansion(model, name)
    weightless = _strip_weights(model)
    _add_default_attributes(weightless)
    _record_node_opsets(weightless)
    try:
        for _ in range(_MAX_CALL_DEPTH):
            if not weightless.functions and not _replace_nodes_by_calls(weightless, is_supported):
                break
            weightless = onnx.inliner.inline_local_functions(weightless)
    except Exception as error:  # onnx's C++ checks raise arbitrary exception types
        raise graph_error("model", name, f"its functions cannot be expanded ({error})") from None
    result = model
    if not in_place:
        result = ModelProto()
        result.CopyFrom(model)
    for field in ("functions", "opset_import"):
        result.ClearField(field)
    result.opset_import.extend(entry for entry in weightless.opset_import if entry.domain != _DOMAIN)
    result.graph.ClearField("node")
    result.graph.node.extend(weightless.graph.node)
    return result


class _ExpandedSize(NamedTuple):
    """The size of a graph after expanding all function calls."""

    nodes: int
    bytes: int


def _check_expansion(model: ModelProto, name: str) -> None:
    """Raise GraphError if the functions are recursive or their expansion would be too large.

    A few bytes can encode 2**39 nested calls.
    """
    functions = {(function.domain, function.name, _get_overload(function)): function for function in model.functions}
    sizes: dict[tuple[str, str, str], _ExpandedSize | None] = {}  # None while the function is being counted

    def get_graph_size(graph: GraphProto | FunctionProto) -> _ExpandedSize:
        nodes = total = 0
        for node in (node for inner in _iterate_graphs(graph) for node in inner.node):
            callee_size = get_call_size(node)
            nodes, total = nodes + callee_size.nodes, total + callee_size.bytes
        return _ExpandedSize(nodes, total)

    def get_call_size(node: NodeProto) -> _ExpandedSize:
        key = (node.domain, node.op_type, _get_overload(node))
        if key not in functions:
            return _ExpandedSize(1, node.ByteSize())
        if key not in sizes:
            sizes[key] = None
            sizes[key] = get_graph_size(functions[key])
        size = sizes[key]
        if size is None:
            function_label = f"'{node.op_type}' of domain '{node.domain}'"
            raise graph_error("model", name, f"its functions cannot be expanded: {function_label} calls itself")
        return _ExpandedSize(size.nodes, size.bytes + node.ByteSize())

    try:
        nodes, total = get_graph_size(model.graph)
    except RecursionError:
        raise graph_error("model", name, "its functions call one another too deeply to be expanded") from None
    max_bytes = _MAX_BYTES + model.ByteSize()
    if nodes > _MAX_NODES or total > max_bytes:
        expected = f"functions that expand to at most {_MAX_NODES} nodes of {max_bytes} bytes"
        raise graph_error("model", name, f"expected {expected}, given {nodes} nodes of {total} bytes")


def _strip_weights(model: ModelProto) -> ModelProto:
    """Return the model with large initializers replaced by inputs, because expansion needs only their types."""
    weightless = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    graph = model.graph
    weightless.graph.name = graph.name
    for field in ("node", "input", "output", "value_info"):
        getattr(weightless.graph, field).extend(getattr(graph, field))
    input_names = {value.name for value in graph.input}
    for tensor in graph.initializer:
        count = 1
        for size in tensor.dims:
            count *= size
        if count <= _MAX_KEPT_ELEMENTS and not tensor.external_data:
            weightless.graph.initializer.append(tensor)
        elif tensor.name not in input_names:
            weightless.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    return weightless


def _add_default_attributes(model: ModelProto) -> None:
    """Add default attributes to calls of model-local functions that omit them, because the `onnx` inliner would drop them."""
    defaults = {
        (function.domain, function.name, _get_overload(function)): function.attribute_proto
        for function in model.functions
    }
    bodies = [model.graph, *model.functions]
    for node in (node for body in bodies for graph in _iterate_graphs(body) for node in graph.node):
        attribute_names = {attribute.name for attribute in node.attribute}
        values = defaults.get((node.domain, node.op_type, _get_overload(node)), ())
        node.attribute.extend(value for value in values if value.name not in attribute_names)


def _record_node_opsets(model: ModelProto) -> None:
    """Record the opset on the nodes of each function whose opset differs from the model's: the expanded model has only one opset."""
    versions = _get_opset_versions(model)
    for function in model.functions:
        imported = _get_opset_versions(function)
        version = imported.get("")
        if version is not None and version != versions.get("", version):
            for node in (node for graph in _iterate_graphs(function) for node in graph.node):
                if node.domain in ("", "ai.onnx") and _schemas_differ(node.op_type, version, versions[""]):
                    node.attribute.append(onnx.helper.make_attribute(OPSET, version))
        for domain, version in imported.items():
            if domain not in versions:
                versions[domain] = version
                model.opset_import.append(onnx.helper.make_opsetid(domain, version))
    for function in model.functions:
        function.ClearField("opset_import")
        function.opset_import.extend(model.opset_import)


def _schemas_differ(op: str, version: int, other: int) -> bool:
    """Return whether an operator differs between two opsets. Constant never does: all its versions are read the same way."""
    if op == "Constant":
        return False
    version_schema, other_schema = find_schema(op, version, ""), find_schema(op, other, "")
    return (
        not MIN_OPSET <= version <= MAX_OPSET
        or version_schema is None
        or other_schema is None
        or bool(version_schema.since_version != other_schema.since_version)
    )


def get_node_opset(node: NodeProto | NodeRecipe, default: int) -> int:
    """Return the ONNX opset recorded on a node, or `default`."""
    if isinstance(node, NodeRecipe):
        recorded_version = node.attributes.get(OPSET, default)
        return recorded_version if isinstance(recorded_version, int) else default
    return next((int(attribute_item.i) for attribute_item in node.attribute if attribute_item.name == OPSET), default)


def drop_opset_attribute(node: NodeProto) -> NodeProto:
    """Return the node without the OPSET attribute."""
    stripped = onnx.NodeProto()
    stripped.CopyFrom(node)
    del stripped.attribute[:]
    stripped.attribute.extend(attribute_item for attribute_item in node.attribute if attribute_item.name != OPSET)
    return stripped


def _get_overload(message: FunctionProto | NodeProto) -> str:
    return getattr(message, "overload", "")  # the field exists since onnx 1.16


def find_schema(op: str, version: int, domain: str) -> Schema | None:
    """Return the schema of an operator in an opset; None if the opset lacks the operator."""
    try:
        return onnx.defs.get_schema(op, max(0, min(version, _MAX_OPSET)), domain)
    except onnx.defs.SchemaError:
        return None


# ---- operators that ONNX defines as functions


def _get_opset_versions(model: ModelProto | FunctionProto) -> dict[str, int]:
    return {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in model.opset_import}


def _iterate_subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    return (attribute.g for attribute in node.attribute if attribute.type == AttributeProto.GRAPH)


def _iterate_graphs(graph: GraphProto | FunctionProto) -> Iterator[GraphProto | FunctionProto]:
    yield graph
    for node in graph.node:
        for inner in _iterate_subgraphs(node):
            yield from _iterate_graphs(inner)


def _find_expandable_schema(
    node: NodeProto, versions: dict[str, int], is_supported: IsSupported, dtype: str
) -> Schema | None:
    """Return the schema of a node that must be expanded; None if the node is kept."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    if domain not in versions or is_supported(node.op_type, domain, dtype) or not onnx.defs.has(node.op_type, domain):
        return None
    schema = find_schema(node.op_type, get_node_opset(node, versions[domain]), domain)
    return schema if schema and (schema.has_function or schema.has_context_dependent_function) else None


def _has_function_nodes(model: ModelProto, is_supported: IsSupported) -> bool:
    versions = _get_opset_versions(model)
    dtype = _RARE_DTYPE if _may_have_float64(model.graph) else _ANY_DTYPE
    return any(
        _find_expandable_schema(node, versions, is_supported, dtype)
        for graph in _iterate_graphs(model.graph)
        for node in graph.node
    )


def _may_have_float64(graph: GraphProto) -> bool:
    double = onnx.TensorProto.DOUBLE
    return (
        any(value.type.tensor_type.elem_type == double for value in graph.input)
        or any(tensor.data_type == double for tensor in graph.initializer)
        or any(
            node.op_type in _TYPE_SETTING_OPERATORS
            for inner in _iterate_graphs(graph)
            for node in inner.node
            if _mentions_dtype(node, double)
        )
    )


def _mentions_dtype(node: NodeProto, dtype: int) -> bool:
    """Return whether an integer attribute of the node equals this type number, or a tensor attribute has this type."""
    return any(attribute.i == dtype or attribute.t.data_type == dtype for attribute in node.attribute)


def _replace_nodes_by_calls(model: ModelProto, is_supported: IsSupported) -> bool:
    """Replace each node that must be expanded by a call of a new function. Return whether the model then has functions."""
    if not _has_function_nodes(model, is_supported):
        return False
    versions = _get_opset_versions(model)
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    types: dict[str, TypeProto] = {}  # if a name in a subgraph shadows another, the last declaration wins
    for graph in _iterate_graphs(inferred.graph):
        types.update((value.name, value.type) for value in (*graph.input, *graph.value_info, *graph.output))
        for tensor in graph.initializer:
            types[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    for graph in _iterate_graphs(model.graph):
        for node, name in zip(graph.node, make_node_names(graph), strict=True):
            first = types.get(node.input[0]) if node.input else None
            dtype = DTYPES.get(first.tensor_type.elem_type, _ANY_DTYPE) if first else _ANY_DTYPE
            schema = _find_expandable_schema(node, versions, is_supported, dtype)
            version = get_node_opset(node, versions[schema.domain]) if schema else 0
            body = schema and _get_function_body(node, schema, version, types)
            if not schema or not body:
                continue
            names = {attribute.name for attribute in node.attribute}
            defaults = (x.default_value for x in schema.attributes.values() if x.name not in names)
            node.attribute.extend(value for value in defaults if value.name)
            body.name, body.domain = f"{node.op_type}.{len(model.functions)}", _DOMAIN
            body.ClearField("opset_import")
            body.opset_import.extend(model.opset_import)
            for index, inner in enumerate(body.node):
                if get_node_opset(node, 0):
                    inner.attribute.append(onnx.helper.make_attribute(OPSET, version))
                inner.name = f"{name} ({node.op_type})/{inner.op_type}_{index}"
            node.op_type, node.domain = body.name, _DOMAIN
            model.functions.append(body)
    if model.functions and _DOMAIN not in versions:
        model.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
    return bool(model.functions)


def _get_function_body(
    node: NodeProto, schema: Schema, version: int, types: dict[str, TypeProto]
) -> FunctionProto | None:
    """Return the latest function body for an opset up to `version`; None if it depends on unknown types."""
    body = FunctionProto()
    if versions := [version_item for version_item in schema.function_opset_versions if version_item <= version]:
        body.ParseFromString(schema.get_function_with_opset_version(max(versions)))
        return body
    versions = [
        version_item for version_item in schema.context_dependent_function_opset_versions if version_item <= version
    ]
    if not versions or any(name and name not in types for name in node.input):
        return None
    inputs = [types.get(name, TypeProto()).SerializeToString() for name in node.input]
    function_bytes = schema.get_context_dependent_function_with_opset_version(
        max(versions), node.SerializeToString(), inputs
    )
    body.ParseFromString(function_bytes)
    return body
