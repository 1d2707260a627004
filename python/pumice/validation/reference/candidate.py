"""Validates a callable (a candidate, such as ONNX Runtime) instead of a device, with the same bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import onnx

from ...base.element_types import PRECISIONS, Array, get_numpy_dtype
from ...base.errors import InputError, binding_error, unsupported_error
from ...importer.file.graph_recipe import STRING, InputRecipe, UnrepresentableError
from ...importer.file.model_file import Folder, ModelFile, Source
from ...importer.onnx_values import read_value_info
from ...importer.parse_onnx import parse_model
from ...model.model import Model
from ...model.model_values import format_shape, shape_matches
from ...model.precision_policy import Precision
from ..rules.float_types import DeclaredTypes, ProgramTypes, is_float
from ..rules.program_values import strings_to_objects
from .onnx_runtimes import add_all_tensors_as_outputs, import_onnxruntime, load_whole_model, make_session, run_session
from .oracle import TensorSource

Candidate: TypeAlias = "Callable[[dict[str, Array]], Mapping[str, Any] | Sequence[Any] | Array]"
CandidatePrecision: TypeAlias = "str | tuple[str, str] | None"


class CandidateModel:
    """The model that a candidate implements: parsed, but not compiled for a device."""

    def __init__(self, model: Model | Source, candidate: Candidate, precision: CandidatePrecision) -> None:
        self.source: Any = model.source if isinstance(model, Model) else model
        self.folder: Folder | None = model.folder if isinstance(model, Model) else None
        self.kernel_table = model.kernel_table if isinstance(model, Model) else None
        file = ModelFile(self.source, self.folder)
        proto = parse_model(file)
        self.name = proto.graph.name or file.name
        self.types = get_candidate_types(precision)
        self.precision = self.types.precision
        self.device = SimpleNamespace(name=get_candidate_name(candidate))
        constants = {tensor.name for tensor in proto.graph.initializer}
        self.inputs = _parse_inputs([value for value in proto.graph.input if value.name not in constants])
        self.outputs = [SimpleNamespace(name=value.name) for value in proto.graph.output]
        self.program = SimpleNamespace(outputs=self.outputs)
        self.tensors = {name for node in proto.graph.node for name in node.output}
        self.dtypes = _infer_element_types(proto)

    def packed_outputs(self, values: Any) -> dict[str, Array]:
        """Return {}: all outputs of a candidate are tensors."""
        return {}

    def case(self, case: Any) -> dict[str, Array]:
        """Return the inputs of a case by name. Raise BindingError if they do not match the inputs that the model declares."""
        names = [value.name for value in self.inputs]
        if isinstance(case, Mapping):
            arrays_by_name = dict(case)
        else:
            is_sequence = isinstance(case, Sequence) and not isinstance(case, np.ndarray)
            arrays = list(case) if is_sequence else [case]
            if len(arrays) != len(names):
                raise binding_error("K4", "", f"{len(names)} ({', '.join(names)})", str(len(arrays)))
            arrays_by_name = dict(zip(names, arrays, strict=True))
        for name in arrays_by_name:
            if name not in names:
                raise binding_error("K4", name, f"one of the inputs {', '.join(names)}", f"'{name}'")
        return {value.name: _check_input(value, arrays_by_name) for value in self.inputs}


class CandidateTensors(TensorSource):
    """A candidate's results: the outputs, and optionally other tensors by name."""

    def __init__(self, model: CandidateModel, candidate: Candidate, first: dict[str, Array]) -> None:
        self._model = model
        self._candidate = candidate
        self.types: Precision | ProgramTypes = model.types
        self._outputs = [value.name for value in model.outputs]
        results = self._call_candidate(first)
        # Inputs and results of the candidate's last call.
        self._first_call: tuple[dict[str, Array], dict[str, Array]] | None = (first, results)
        self.only_outputs = not set(results).difference(self._outputs)
        self.missing_note = "" if self.only_outputs else "not given by the candidate"
        self._last: dict[str, Array] = {}

    def compute_tensors(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return all tensors that the candidate computes for these inputs."""
        if self._first_call is not None and self._first_call[0] is inputs:
            results, self._first_call = self._first_call[1], None
        else:
            results = self._call_candidate(inputs)
        self._last = {name: results[name] for name in self._outputs}
        return results

    def compute_outputs(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return the outputs from the candidate's last call."""
        return self._last

    def _call_candidate(self, inputs: dict[str, Array]) -> dict[str, Array]:
        results = self._candidate({name: array.copy() for name, array in inputs.items()})
        if isinstance(results, Mapping):
            named = dict(results)
        else:
            is_sequence = isinstance(results, Sequence) and not isinstance(results, np.ndarray)
            outputs = list(results) if is_sequence else [results]
            if len(outputs) != len(self._outputs):
                names = ", ".join(self._outputs)
                raise InputError(
                    f"validate: candidate: expected {len(self._outputs)} outputs ({names}), given {len(outputs)}"
                )
            named = dict(zip(self._outputs, outputs, strict=True))
        if missing := [name for name in self._outputs if name not in named]:
            raise InputError(
                f"validate: candidate: expected an output '{missing[0]}', given {', '.join(named) or 'none'}"
            )
        return {name: self._to_array(name, value) for name, value in named.items()}

    def _to_array(self, name: str, value: Any) -> Array:
        if name not in self._model.tensors and name not in self._outputs:
            raise InputError(f"validate: candidate: the model has no tensor '{name}'")
        if value is None or isinstance(value, list | tuple | Mapping):
            raise InputError(f"validate: candidate: expected an array as '{name}', given a {type(value).__name__}")
        array = strings_to_objects(np.array(value))  # copy, because the candidate may reuse its memory
        declared = self._model.dtypes.get(name)
        if declared is not None and is_float(array.dtype) and is_float(declared) and declared != array.dtype:
            is_narrower = np.can_cast(array.dtype, declared) or (
                str(array.dtype) == "bfloat16" and str(declared) != "float16"
            )
            if is_narrower and self._model.precision != "declared":
                return array.astype(declared)
        return array


def get_candidate_types(precision: CandidatePrecision) -> ProgramTypes:
    """Return the storage and accumulation types of a candidate.

    precision: None for the declared types, a storage precision with float32 accumulation, or a tuple (storage,
    accumulation). Raise InputError for anything else.
    """
    if precision is None:
        return DeclaredTypes()
    precisions = precision if isinstance(precision, tuple) else (precision, "fp32")
    if len(precisions) != 2 or any(name not in PRECISIONS for name in precisions):
        expected = ", ".join(f"'{name}'" for name in PRECISIONS)
        raise InputError(
            f"validate: candidate_precision: expected {expected}, or two of these for storage and sums, given {precision!r}"
        )
    return ProgramTypes(precisions[0], other_runtime=True, accumulation=precisions[1])


def get_candidate_name(candidate: Any) -> str:
    """Return the candidate's name in a report."""
    return str(getattr(candidate, "name", None) or getattr(candidate, "__name__", None) or type(candidate).__name__)


def _parse_inputs(values: Sequence[onnx.ValueInfoProto]) -> list[InputRecipe]:
    inputs = []
    for value in values:
        try:
            declared = read_value_info(value)
        except UnrepresentableError:
            declared = InputRecipe(value.name, "(", None, [])
        if "(" in declared.dtype:
            raise unsupported_error("validation of a candidate", [f"input '{value.name}', which is not a tensor"])
        inputs.append(declared)
    return inputs


def _infer_element_types(proto: onnx.ModelProto) -> dict[str, np.dtype[Any]]:
    """Return the element types of all tensors that are declared or can be inferred, by name."""
    try:
        graph = onnx.shape_inference.infer_shapes(proto).graph
    except Exception:  # onnx does not know an operator, or the model is too large
        graph = proto.graph
    dtypes = {}
    for value in (*graph.value_info, *graph.output):
        if value.type.HasField("tensor_type") and value.type.tensor_type.elem_type:
            dtypes[value.name] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
    return dtypes


def _is_string_array(array: Array) -> bool:
    return array.dtype == object and all(isinstance(element, str) for element in array.flat)


def _check_input(value: InputRecipe, arrays: Mapping[str, Any]) -> Array:
    name = "str" if value.dtype == STRING else value.dtype
    if value.name not in arrays:
        raise binding_error("K3", value.name, f"an array of {name}", "nothing")
    array = strings_to_objects(arrays[value.name])
    if not _is_string_array(array) if value.dtype == STRING else array.dtype != get_numpy_dtype(name):
        raise binding_error("K5", value.name, f"an array of {name}", str(array.dtype), f'.astype("{name}") converts')
    if value.shape is not None and not shape_matches(array.shape, value.shape):
        expected = f"shape {format_shape(value.shape)}"
        raise binding_error("K10", value.name, expected, f"shape {format_shape(array.shape)}")
    return array


class _OnnxRuntimeCandidate:
    """A callable that runs a model in ONNX Runtime."""

    def __init__(self, session_object: Any) -> None:
        self._session = session_object
        self.name = f"onnxruntime {import_onnxruntime().__version__} ({session_object.get_providers()[0]})"

    def __call__(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return all tensor outputs of the session by name."""
        return {
            name: value for name, value in run_session(self._session, inputs).items() if isinstance(value, np.ndarray)
        }


def onnxruntime_candidate(
    model: Model | Source,
    *,
    intermediate: bool = True,
    providers: Sequence[str] | None = None,
    folder: Folder | None = None,
) -> Callable[[dict[str, Array]], dict[str, Array]]:
    """Return the model in ONNX Runtime as a candidate for `validate`.

    The candidate maps a dict of inputs to a dict of outputs and other tensors.

    intermediate: if true, return every tensor and disable graph optimisations, so that `validate` can find the wrong
    node. If false, return only the outputs, with all optimisations.
    providers: execution providers, by default the CPU's.
    folder: location of external weights, if not next to the model.
    Raise InputError if onnxruntime is not installed or lacks a provider, OSError if a file cannot be read, and whatever
    the runtime raises for a model it rejects.
    """
    package = import_onnxruntime()
    for name in providers or ():
        if name not in package.get_available_providers():
            known = ", ".join(package.get_available_providers())
            raise InputError(f"onnxruntime_candidate: providers: expected one of {known}, given '{name}'")
    if isinstance(model, Model):
        folder = model.folder if folder is None else folder
        model = model.source
    proto = load_whole_model(model, folder)
    if intermediate:
        add_all_tensors_as_outputs(proto)
    return _OnnxRuntimeCandidate(
        make_session(proto, optimized=not intermediate, providers=list(providers) if providers else None)
    )
