"""Runs a model in windows of nodes, each compiled as a subgraph, if its tensors do not fit into memory together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ..._pumice import GraphError, Program, UnsupportedError
from ...base.element_types import Array
from ...base.string_table import StringTable, TensorStringTable
from ...importer.build.float32_node_collector import Float32NodeCollector
from ...importer.file.graph_recipe import NodeRecipe
from ...importer.file.model_file import ModelFile
from ...model.model import Model
from ...model.precision_policy import parse_policy
from .loop_timeouts import get_graph_loop_timeout
from .model_splitter import ModelSplitter
from .reference_model import ReferenceModel
from .subgraph_extraction import make_value_info

WINDOW_BYTES = 64 << 20  # bytes of tensors on the host at once; larger models are streamed


class TensorMap(dict[str, Array]):
    """Tensors by name, all present from the start."""

    def load(self, index: int) -> None:
        """Load a node's outputs before the node is checked."""


class WindowedTensors(TensorMap):
    """Tensors by name, loaded window by window: a window runs when its first node is needed."""

    def __init__(self, ends: list[int], run: Callable[[int, int, Mapping[str, Array]], dict[str, Array]]) -> None:
        super().__init__()
        self._ends = ends
        self._run = run
        self._start = 0
        # Callback that receives each window's tensors.
        self.on_window_loaded: Callable[[Mapping[str, Array]], None] = lambda tensors: None

    def load(self, index: int) -> None:
        """Run the next window, whose inputs are among the tensors still present."""
        if self._ends and index >= self._start:
            end = self._ends.pop(0)
            tensors = self._run(self._start, end, self)
            self.on_window_loaded(tensors)
            self.update(tensors)
            self._start = end


class NodeWindows:
    """Windows of consecutive nodes of a model. Their programs are unfused and keep every tensor."""

    def __init__(
        self, model: Model, load: Callable[..., Any], reference: ReferenceModel, proto: onnx.ModelProto
    ) -> None:
        self._model = model
        self._load = load
        self._reference = reference
        self._loop_timeout = get_graph_loop_timeout(proto.graph)
        self._proto = proto
        self._folded = [node for node in reference.nodes if node.is_folded]
        self._policy = parse_policy(model.policy)
        self._float32 = {
            node.name for node in reference.nodes if node.precision == "fp32" and reference.has_mixed_precision
        }
        self._splitter: ModelSplitter | None = None
        self._ends: dict[Any, list[int]] = {}  # ends of the windows, by input shapes
        # Maps a node to its longest chain of additions, for windows that ran.
        self.additions: dict[str, int] | None = None

    def get_window_ends(self, inputs: Mapping[str, Array]) -> list[int]:
        """Return the end of each window for inputs of these shapes; [] if all tensors fit into one."""
        shapes = tuple(sorted((name, array.shape) for name, array in inputs.items()))
        if shapes not in self._ends:
            self._ends[shapes] = self._choose_window_ends(infer_tensor_bytes(self._proto, inputs))
        return list(self._ends[shapes])

    def _choose_window_ends(self, sizes: Mapping[str, int]) -> list[int]:
        ends, total = [], 0
        for index, node in enumerate(self._reference.nodes):
            node_bytes = 0 if node.is_folded else sum(sizes.get(name, 0) for name in node.outputs)
            if total and total + node_bytes > WINDOW_BYTES:
                ends.append(index)
                total = 0
            total += node_bytes
        return [*ends, len(self._reference.nodes)] if ends else []

    def run_window(
        self, inputs: Mapping[str, Array], start: int, end: int, live_tensors: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return the tensors of the nodes in [start, end). Raise UnsupportedError, GraphError or KeyError if the
        nodes cannot run as a separate program.
        """
        program, strings = self._compile_window(start, end, inputs, live_tensors)
        try:
            available = {**self._reference.decode_strings(inputs), **live_tensors}
            program_inputs = {program_input.name: available[program_input.name] for program_input in program.inputs}
            program_inputs = strings.encode_tensors(program_inputs) if strings else program_inputs
            results = dict(program(program_inputs, loop_timeout=self._loop_timeout, filled=True))
            results = strings.decode_tensors(results) if strings else results
            self.additions = {**(self.additions or {}), **read_reported_additions(program, program_inputs)}
            return results
        finally:
            program.close()  # frees the device memory of all its tensors

    def _is_float32(self, node: NodeRecipe, path: str) -> bool:
        """Return whether the whole program computes a node in float32, because of the policy or the engine's choice."""
        return path in self._float32 or self._policy.needs_float32(node, path)

    def _compile_window(
        self, start: int, end: int, inputs: Mapping[str, Array], live_tensors: Mapping[str, Array]
    ) -> tuple[Program, TensorStringTable | None]:
        model = self._model
        overridable = [value.name for value in model.overridable]
        if self._splitter is None:
            self._splitter = ModelSplitter(model.source, model.folder, self._reference, overridable)
        nodes = [node for node in self._reference.nodes[start:end] if not node.is_folded]
        produced = {name for node in (*nodes, *self._folded) for name in node.outputs}
        outputs = [name for node in nodes for name in node.outputs if self._splitter.find_last_reader(name) >= end]
        boundary_inputs = (
            {name for node in nodes for name in node.inputs} - produced - set(inputs) - set(self._reference.constants)
        )
        extra_inputs = {name: make_value_info(name, live_tensors[name]) for name in sorted(boundary_inputs)}
        submodel = self._splitter.extract([*self._folded, *nodes], outputs, extra_inputs)
        float32 = Float32NodeCollector(self._is_float32)
        graph, recipe = self._load(
            submodel, ModelFile(model.source, model.folder).folder, None, overridable, float32, model.kernel_table
        )
        program: Program = graph.compile(
            model.context, model.precision, keep_all=True, fuse=False, float32_nodes=float32.names
        )
        values = recipe.string_values
        return program, TensorStringTable(StringTable(recipe.strings), values) if values else None


def read_reported_additions(program: Program, inputs: Mapping[str, Array]) -> dict[str, int]:
    """Return each node's longest chain of additions; {} for control flow. Kernels that report none are omitted."""
    try:
        steps = program.plan([inputs[program_input.name] for program_input in program.inputs])
    except UnsupportedError:  # a program with control flow has no plan
        return {}
    return {step["label"]: step["additions"] for step in steps if step["additions"] > 0}


CANNOT_RUN_ERRORS = (UnsupportedError, GraphError, KeyError)  # errors raised for a subgraph that cannot run separately


_MAX_KEPT_ELEMENTS = 1024  # constants with more elements cannot be shapes


def _replace_weights(source: onnx.ModelProto) -> onnx.ModelProto:
    """Replace large constants with inputs, so that shape inference does not copy them."""
    proto = onnx.ModelProto(ir_version=max(source.ir_version, 4), opset_import=source.opset_import)
    proto.functions.extend(source.functions)
    graph, input_names = source.graph, {value.name for value in source.graph.input}
    proto.graph.name = graph.name
    for field in ("node", "input", "output", "value_info"):
        getattr(proto.graph, field).extend(getattr(graph, field))
    for tensor in graph.initializer:
        if math.prod(tensor.dims) <= _MAX_KEPT_ELEMENTS:
            proto.graph.initializer.append(tensor)
        elif tensor.name not in input_names:
            proto.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    proto.graph.sparse_initializer.extend(graph.sparse_initializer)
    return proto


def infer_tensor_bytes(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, int]:
    """Return the bytes of each tensor whose shape onnx infers for these inputs, by name."""
    proto = _replace_weights(model)
    for i, value in enumerate(proto.graph.input):
        if value.name in inputs and value.type.HasField("tensor_type"):
            proto.graph.input[i].CopyFrom(make_value_info(value.name, inputs[value.name]))
    try:
        graph = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph
    except Exception:  # onnx does not know an operator, or the model is too large
        return {}
    sizes_by_name = {}
    for value in (*graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        if tensor.elem_type and tensor.elem_type != onnx.TensorProto.STRING and tensor.HasField("shape"):
            sizes = [dim.dim_value for dim in tensor.shape.dim if dim.HasField("dim_value")]
            if len(sizes) == len(tensor.shape.dim):
                sizes_by_name[value.name] = (
                    math.prod(sizes) * np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)).itemsize
                )
    return sizes_by_name
