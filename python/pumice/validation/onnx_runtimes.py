"""onnx.reference and ONNX Runtime: single nodes, and every tensor of a model."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ..base.element_types import Array
from ..base.errors import InputError
from ..importer.file.model_file import Folder, ModelFile, Source
from ..importer.parse import parse
from .reference import ReferenceNode

_IR_VERSION = 10  # IR version of single-node models, which recent runtimes support
# First opset for which onnx.reference does not mix in batch statistics.
_NORMALISATION = 15


def alone(node: ReferenceNode, arrays: Mapping[str, Array | None], opsets: Mapping[str, int]) -> onnx.ModelProto:
    """Return a single-node model with the arrays' types and ranks; outer-scope values of a body are inputs too."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
        for name, array in arrays.items()
        if array is not None
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.outputs]
    graph = helper.make_graph([node.proto], "one", inputs, outputs)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=_IR_VERSION)


def by_onnx(node: ReferenceNode, arrays: Mapping[str, Array | None], opsets: Mapping[str, int]) -> dict[str, Any]:
    """Return a node's outputs by name, from onnx.reference. Raise whatever it raises."""
    from onnx.reference import ReferenceEvaluator

    opsets = dict(opsets)
    if node.operator == "BatchNormalization" and 9 <= opsets.get("", 1) < _NORMALISATION:
        opsets[""] = _NORMALISATION
    given = {name: array for name, array in arrays.items() if array is not None}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = ReferenceEvaluator(alone(node, arrays, opsets)).run(None, given)
    made = dict(zip(node.outputs, results, strict=True))
    return {
        name: _array(value) if isinstance(value, np.generic | np.ndarray) else value for name, value in made.items()
    }


def _array(value: Any) -> Array:
    """Return a result as an array; strings become objects."""
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "UT" else array


def runtime() -> Any:
    """Return the package onnxruntime. Raise InputError if it is not installed."""
    try:
        return importlib.import_module("onnxruntime")
    except ImportError:
        raise InputError("ONNX Runtime is asked for, which is not installed: pip install onnxruntime") from None


def session(model: onnx.ModelProto, optimized: bool = False, providers: Any = None, threads: int = 0) -> Any:
    """Return an InferenceSession, by default on the CPU without graph optimisations. Raise whatever the runtime raises.

    threads: 0 for one per core. For single nodes, starting threads takes longer than computing.
    """
    package = runtime()
    options = package.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    levels = package.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    chosen = providers or ["CPUExecutionProvider"]
    return package.InferenceSession(model.SerializeToString(), options, providers=chosen)


def whole_model(source: Source, folder: Folder | None = None) -> onnx.ModelProto:
    """Return a copy of a model with its weights loaded. Raise whatever loading the weights raises."""
    file = ModelFile(source, folder)
    model = onnx.ModelProto()
    model.CopyFrom(parse(file, whole=True))
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            _fill(tensor, file)
    return model


def _fill(tensor: onnx.TensorProto, file: ModelFile) -> None:
    place = {entry.key: entry.value for entry in tensor.external_data}
    data = file.beside(place.get("location", ""), tensor.name)
    begin = int(place.get("offset", 0))
    tensor.raw_data = bytes(data[begin : begin + int(place["length"])] if "length" in place else data[begin:])
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def with_every_tensor(model: onnx.ModelProto) -> onnx.ModelProto:
    """Add every node output to the model's outputs, in place."""
    known = {value.name for value in model.graph.output}
    for node in model.graph.node:
        for name in filter(None, node.output):
            if name not in known:
                known.add(name)
                model.graph.output.append(onnx.ValueInfoProto(name=name))
    return model


def run(made: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Run a session with those of `inputs` that it declares. Return all outputs by name."""
    wanted = {value.name for value in made.get_inputs()}
    names = [value.name for value in made.get_outputs()]
    results = made.run(None, {name: value for name, value in inputs.items() if name in wanted})
    return dict(zip(names, results, strict=True))
