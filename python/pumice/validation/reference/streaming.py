"""Tensors that are loaded window by window if they do not fit into memory together, and their sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import helper

from ..._pumice import GraphError, Program, UnsupportedError
from ...base.element_types import Array
from ..report.subgraph import make_value_info

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
