"""Evaluates single nodes and whole models in onnx.reference and ONNX Runtime."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ...base.element_types import Array
from ...base.errors import InputError
from ...importer.file.model_file import Folder, ModelFile, Source
from ...importer.parse_onnx import parse_model
from ..rules.program_values import strings_to_objects
from .reference_model import ReferenceNode

_IR_VERSION = 10  # IR version of single-node models; all recent runtimes support it
# First opset for which onnx.reference runs BatchNormalization in inference mode.
_MIN_BATCH_NORM_OPSET = 15


def make_single_node_model(
    node: ReferenceNode, arrays: Mapping[str, Array | None], opsets: Mapping[str, int]
) -> onnx.ModelProto:
    """Return a single-node model. Its inputs have the arrays' types and ranks, and include a body's outer-scope values."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
        for name, array in arrays.items()
        if array is not None
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.outputs]
    graph = helper.make_graph([node.proto], "one", inputs, outputs)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=_IR_VERSION)


def evaluate_with_onnx(
    node: ReferenceNode, arrays: Mapping[str, Array | None], opsets: Mapping[str, int]
) -> dict[str, Any]:
    """Return a node's outputs by name, from onnx.reference. Raise whatever it raises."""
    from onnx.reference import ReferenceEvaluator

    opsets = dict(opsets)
    if node.operator == "BatchNormalization" and 9 <= opsets.get("", 1) < _MIN_BATCH_NORM_OPSET:
        opsets[""] = _MIN_BATCH_NORM_OPSET
    inputs = {name: array for name, array in arrays.items() if array is not None}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = ReferenceEvaluator(make_single_node_model(node, arrays, opsets)).run(None, inputs)
    outputs = dict(zip(node.outputs, results, strict=True))
    return {
        name: strings_to_objects(value) if isinstance(value, np.generic | np.ndarray) else value
        for name, value in outputs.items()
    }


def import_onnxruntime() -> Any:
    """Return the package onnxruntime. Raise InputError if it is not installed."""
    try:
        return importlib.import_module("onnxruntime")
    except ImportError:
        raise InputError("ONNX Runtime was requested but is not installed: pip install onnxruntime") from None


def make_session(model: onnx.ModelProto, optimized: bool = False, providers: Any = None, threads: int = 0) -> Any:
    """Return an InferenceSession, by default on the CPU without graph optimisations. Raise whatever the runtime raises.

    threads: 0 for one thread per core. For a single node, starting threads takes longer than the computation.
    """
    package = import_onnxruntime()
    options = package.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    levels = package.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    chosen = providers or ["CPUExecutionProvider"]
    return package.InferenceSession(model.SerializeToString(), options, providers=chosen)


def load_whole_model(source: Source, folder: Folder | None = None) -> onnx.ModelProto:
    """Return a copy of a model with its weights loaded. Raise whatever loading the weights raises."""
    file = ModelFile(source, folder)
    model = onnx.ModelProto()
    model.CopyFrom(parse_model(file, with_weights=True))
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            _load_external_data(tensor, file)
    return model


def _load_external_data(tensor: onnx.TensorProto, file: ModelFile) -> None:
    location = {entry.key: entry.value for entry in tensor.external_data}
    data = file.read_external(location.get("location", ""), tensor.name)
    begin = int(location.get("offset", 0))
    tensor.raw_data = bytes(data[begin : begin + int(location["length"])] if "length" in location else data[begin:])
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def add_all_tensors_as_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """Add every node output to the model's outputs, in place."""
    known_names = {value.name for value in model.graph.output}
    for node in model.graph.node:
        for name in filter(None, node.output):
            if name not in known_names:
                known_names.add(name)
                model.graph.output.append(onnx.ValueInfoProto(name=name))
    return model


def run_session(session_object: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Run a session with the `inputs` that it declares. Return all outputs by name."""
    input_names = {value.name for value in session_object.get_inputs()}
    names = [value.name for value in session_object.get_outputs()]
    results = session_object.run(None, {name: value for name, value in inputs.items() if name in input_names})
    return dict(zip(names, results, strict=True))
