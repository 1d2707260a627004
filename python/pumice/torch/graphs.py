"""Graphs captured by torch: their arguments and results, and their conversion to ONNX."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .._pumice import Error, UnsupportedError
from .decompositions import DECOMPOSITIONS
from .host_scalars import find_host_scalar_nodes, find_used_nodes, is_float_argument

_MAX_INLINE_BYTES = (
    1 << 30
)  # half of protobuf's limit of 2 GiB; the weights of larger models are stored in a separate file


@dataclass
class GraphParameter:
    """One argument of a captured graph.

    kind: "weight" (a parameter or buffer of the module, which becomes a constant in the model), "tensor" (an input), "number" (a size or
    int passed along with the tensors) or "float" (passed by torch as a one-element tensor). dynamic_axes: the axes of a tensor whose size
    is symbolic. is_used: whether an operator on tensors depends on the argument.
    """

    name: str
    kind: str
    dynamic_axes: tuple[int, ...] = ()
    size_of: tuple[int, int] | None = (
        None  # (position, axis) of the tensor argument whose size is passed as this number
    )
    is_used: bool = True


@dataclass
class GraphSignature:
    """The arguments and results of a captured graph.

    results: for each result "tensor", "number" (computed by the model), "host" (computed from sizes and numbers only), the position of an
    argument that is returned as is, or a constant in a one-element tuple. dtypes: dtypes of tensor results, else None.
    """

    parameters: list[GraphParameter] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    dtypes: list[Any] = field(default_factory=list)

    @property
    def inputs(self) -> list[int]:
        """Positions of the arguments that are inputs of the model."""
        return [i for i, parameter in enumerate(self.parameters) if parameter.kind == "tensor"]

    @property
    def weights(self) -> list[int]:
        return [i for i, parameter in enumerate(self.parameters) if parameter.kind == "weight"]

    @property
    def free_int_positions(self) -> list[int]:
        """Positions of ints that are not a tensor's size: the model is exported once per value."""
        return [
            i
            for i, parameter in enumerate(self.parameters)
            if parameter.kind == "number" and parameter.size_of is None and parameter.is_used
        ]

    @property
    def float_positions(self) -> list[int]:
        """Positions of floats on which tensor operators depend: constants or inputs of the model."""
        return [i for i, parameter in enumerate(self.parameters) if parameter.kind == "float" and parameter.is_used]


def _is_symbolic(size: Any) -> bool:
    return isinstance(size, torch.SymInt)


def _is_weight(example: Any) -> bool:
    if not isinstance(example, torch.Tensor) or example.is_inference():
        return False  # inference tensors have no version counter, so they are inputs of each call
    return isinstance(example, torch.nn.Parameter) or getattr(example, "_dynamo_static_input_type", None) is not None


def make_signature(graph: Any, examples: Sequence[Any]) -> GraphSignature:
    """Return the graph's arguments and results. examples: the arguments with which torch captured the graph."""
    nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
    signature = GraphSignature()
    sizes: dict[str, tuple[int, int]] = {}
    for position, (node, example) in enumerate(zip(nodes, examples, strict=True)):
        meta = node.meta.get("example_value", example)
        if not isinstance(meta, torch.Tensor):
            signature.parameters.append(GraphParameter(node.name, "number"))
        elif is_float_argument(node):
            signature.parameters.append(GraphParameter(node.name, "float"))
        elif _is_weight(example):
            signature.parameters.append(GraphParameter(node.name, "weight"))
        else:
            dynamic_axes = tuple(axis for axis, size in enumerate(meta.shape) if _is_symbolic(size))
            signature.parameters.append(GraphParameter(node.name, "tensor", dynamic_axes))
            for axis in dynamic_axes:
                sizes.setdefault(str(meta.shape[axis]), (position, axis))
    for node, example, parameter in zip(nodes, examples, signature.parameters, strict=True):
        if parameter.kind == "number":
            parameter.size_of = sizes.get(str(node.meta.get("example_value", example)))
    used_by_tensors = find_used_nodes(graph)
    for node, parameter in zip(nodes, signature.parameters, strict=True):
        parameter.is_used = node in used_by_tensors
    signature.results = _classify_results(graph, nodes)
    signature.dtypes = _get_result_dtypes(graph)
    return signature


def _classify_results(graph: Any, placeholders: list[Any]) -> list[Any]:
    on_host = find_host_scalar_nodes(graph)
    (output_nodes,) = next(node for node in graph.graph.nodes if node.op == "output").args
    results: list[Any] = []
    for output_node in output_nodes:
        if not isinstance(output_node, torch.fx.Node):
            results.append((output_node,))
        elif output_node in placeholders:
            results.append(placeholders.index(output_node))
        elif output_node in on_host:
            results.append("host")
        else:
            results.append("tensor" if isinstance(output_node.meta.get("example_value"), torch.Tensor) else "number")
    return results


def _get_result_dtypes(graph: Any) -> list[Any]:
    (output_nodes,) = next(node for node in graph.graph.nodes if node.op == "output").args
    values = [
        output_node.meta.get("example_value") if isinstance(output_node, torch.fx.Node) else None
        for output_node in output_nodes
    ]
    return [value.dtype if isinstance(value, torch.Tensor) else None for value in values]


# ---- conversion of a captured graph to a module whose only arguments are the model's inputs


def make_module(
    graph: Any, signature: GraphSignature, arguments: Sequence[Any], float_inputs: Sequence[int] = ()
) -> torch.nn.Module:
    """Return the graph as a module that takes the inputs and the floats in `float_inputs`; weights and other numbers become constants."""
    copied_graph = torch.fx.Graph()
    root = torch.nn.Module()
    for name, value in graph.named_parameters(remove_duplicate=False):
        _register_buffer(root, name, value)
    for name, value in graph.named_buffers(remove_duplicate=False):
        _register_buffer(root, name, value)
    for name, child in graph.named_children():
        root.add_module(name, child)
    copied_nodes: dict[Any, Any] = {}
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    for position in (*signature.inputs, *float_inputs):
        copied_nodes[placeholders[position]] = copied_graph.placeholder(placeholders[position].name)
    for position, (node, parameter) in enumerate(zip(placeholders, signature.parameters, strict=True)):
        if parameter.kind == "weight":
            _register_buffer(root, f"weight_{position}", arguments[position].detach())
            copied_nodes[node] = copied_graph.get_attr(f"weight_{position}")
        elif parameter.size_of is not None:
            source_position, axis = parameter.size_of
            source = copied_nodes[placeholders[source_position]]
            copied_nodes[node] = copied_graph.call_function(torch.ops.aten.sym_size.int, (source, axis))
        elif parameter.kind == "number":
            copied_nodes[node] = arguments[position]
        elif parameter.kind == "float" and position not in float_inputs:
            copied_nodes.update(dict.fromkeys(node.users, arguments[position].item()))
    _copy_tensor_nodes(graph, copied_graph, copied_nodes, signature)
    return torch.fx.GraphModule(root, copied_graph)


def _register_buffer(root: torch.nn.Module, name: str, value: Any) -> None:
    *path, last = name.split(".")
    for child_name in path:
        if not hasattr(root, child_name):
            root.add_module(child_name, torch.nn.Module())
        root = getattr(root, child_name)
    if last not in root._buffers:
        root.register_buffer(last, value.detach())


def _copy_tensor_nodes(
    graph: Any, copied_graph: torch.fx.Graph, copied_nodes: dict[Any, Any], signature: GraphSignature
) -> None:
    """Copy all nodes except computations of numbers only for the results, which the host does."""
    skipped = find_host_scalar_nodes(graph) - find_used_nodes(graph)
    for node in graph.graph.nodes:
        if node.op == "output":
            outputs = [
                value
                for value, kind in zip(node.args[0], signature.results, strict=True)
                if kind in ("tensor", "number")
            ]
            copied_graph.output(tuple(copied_nodes[value] for value in outputs))
        elif node.op != "placeholder" and node not in copied_nodes and node not in skipped:
            copied_nodes[node] = copied_graph.node_copy(node, lambda old: copied_nodes[old])


# ---- export to an ONNX model


def export_program(module: torch.nn.Module, signature: GraphSignature, inputs: Sequence[Any]) -> Any:
    """Return the program from torch.export, decomposed to operators that ONNX can express. Raise UnsupportedError listing all problems."""
    axes = [signature.parameters[position].dynamic_axes for position in signature.inputs]
    axes += [()] * (len(inputs) - len(axes))  # floats have no dynamic axes
    shapes = tuple(dict.fromkeys(dynamic_axes, torch.export.Dim.AUTO) for dynamic_axes in axes)
    program = torch.export.export(module, tuple(inputs), dynamic_shapes=shapes if any(shapes) else None, strict=False)
    program = program.run_decompositions(DECOMPOSITIONS)  # in-place writes become results of the signature
    reasons = [*_find_mutations(program), *_find_random_operators(program)]
    if reasons:
        raise UnsupportedError("; ".join(reasons))
    return program


def _find_mutations(program: Any) -> list[str]:
    changed = [spec.target for spec in program.graph_signature.output_specs if "MUTATION" in spec.kind.name]
    return [f"the graph writes to its argument '{name}'" for name in changed]


def _find_random_operators(program: Any) -> list[str]:
    names = {
        str(node.target) for node in program.graph.nodes if node.op == "call_function" and _draws_random_numbers(node)
    }
    return [f"{name} draws random numbers from torch's generator" for name in sorted(names)]


def _draws_random_numbers(node: Any) -> bool:
    """Return whether a node draws random numbers; attention and dropout do not if p is 0 or during inference."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    operator_arguments = {argument.name: argument.default_value for argument in node.target._schema.arguments}
    operator_arguments |= dict(zip(operator_arguments, node.args, strict=False)) | node.kwargs
    return operator_arguments.get("dropout_p", 1) != 0 and operator_arguments.get("train", True) is not False


def export_onnx(program: Any, folder: str) -> Any:
    """Return the exported program as an ONNX model: a ModelProto, or a path in `folder` if the weights are large.

    Raise UnsupportedError listing the operators that torch's exporter cannot convert.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            onnx_program: Any = torch.onnx.export(
                program, dynamo=True, external_data=False, verbose=False, optimize=True
            )
    except Exception as error:
        raise UnsupportedError(_describe_export_error(error)) from error
    weights = sum(value.numel() * value.element_size() for value in program.state_dict.values())
    if weights <= _MAX_INLINE_BYTES:
        return onnx_program.model_proto
    path = f"{folder}/model.onnx"
    onnx_program.save(path, external_data=True)
    return path


def _describe_export_error(error: BaseException) -> str:
    """Return a message with the unsupported operators named by an error of torch's exporter, or else with the start of the error."""
    texts = []
    current_error: BaseException | None = error
    while current_error is not None:
        texts.append(str(current_error))
        current_error = current_error.__cause__
    missing = sorted(set(re.findall(r"No ONNX function found for <OpOverload\(op='([^']+)'", "\n".join(texts))))
    if missing:
        return f"torch's exporter has no ONNX for {', '.join(missing)}"
    return "torch's exporter failed: " + " ".join(texts[-1].split())[:500]


def load_module(
    module: torch.nn.Module, signature: GraphSignature, inputs: Sequence[Any], options: dict[str, Any]
) -> Any:
    """Return a pumice Model of the module. Raise UnsupportedError or another pumice error naming what cannot run."""
    from ..model.loading import load

    try:
        program = export_program(module, signature, inputs)
    except Error:
        raise
    except Exception as error:
        raise UnsupportedError(f"torch.export failed: {' '.join(str(error).split())[:500]}") from error
    with tempfile.TemporaryDirectory() as folder:
        return load(export_onnx(program, folder), progress=False, **options)
