"""Programs of single nodes, and the values of the reference as their inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...base.element_types import Array
from ...model.model import Model
from ...model.precision_policy import Precision
from ..report.subgraph import MissingTensorError, ModelLoadSetup
from ..rules.bounded_tensor import BoundedTensor, UnprovedError, Value
from ..rules.float_types import FloatType, ProgramTypes, find_float_type, is_float
from ..rules.program_values import make_bounded_input
from .loop_timeouts import get_loop_timeout
from .oracle import TensorSource, drop_error_bound
from .reference_model import ReferenceModel, ReferenceNode
from .streaming import CANNOT_RUN_ERRORS, read_reported_additions
from .subgraph_extraction import extract_subgraph

OPTIMIZED_PROGRAM_NOT_RUN = (
    "each node ran by itself, an If, a Loop or a Scan together with its bodies, on the reference's values as the program would store them: "
    "the optimised program did not run, so its kernels and outputs were not checked"
)


class SingleNodeResult(NamedTuple):
    """Results of a single-node program, and the additions in its sums. failure: why it cannot run."""

    tensors: dict[str, Array]
    additions: Mapping[str, int]
    failure: str = ""


class SingleNodePrograms(TensorSource):
    """Runs single-node programs. Each is compiled for its inputs and closed before the next one is compiled."""

    def __init__(self, model: Model) -> None:
        self.types: Precision | ProgramTypes = model.policy
        self.loop_timeout = get_loop_timeout(model.source, model.folder)
        self._setup = ModelLoadSetup(model.context, model.precision, fuse=False, kernels=model.kernel_table)

    def run(
        self, reference: ReferenceModel, node: ReferenceNode, inputs: Mapping[str, Any], constants: Mapping[str, Array]
    ) -> SingleNodeResult:
        """Run a node. inputs: values computed by other nodes. constants: inputs that depend only on constants."""
        try:
            return self._run(reference, node, inputs, constants)
        except MissingTensorError as error:
            return SingleNodeResult({}, {}, str(error))
        except CANNOT_RUN_ERRORS as error:
            # As in the whole model, sizes and indices may have to be constants.
            float_inputs = {
                name: value for name, value in inputs.items() if isinstance(value, np.ndarray) and is_float(value.dtype)
            }
            if len(float_inputs) == len(inputs):
                return SingleNodeResult({}, {}, _describe_failure(error))
            folded_inputs = {**constants, **{name: value for name, value in inputs.items() if name not in float_inputs}}
        try:
            return self._run(reference, node, float_inputs, folded_inputs)
        except (MissingTensorError, *CANNOT_RUN_ERRORS) as error:
            return SingleNodeResult({}, {}, _describe_failure(error))

    def _run(
        self,
        reference: ReferenceModel,
        node: ReferenceNode,
        node_inputs: Mapping[str, Any],
        constants: Mapping[str, Array],
    ) -> SingleNodeResult:
        subgraph = extract_subgraph(reference, [node.name], node_inputs, node.outputs, constants)
        with self._setup._replace(precision=node.precision).load_subgraph(subgraph.proto) as model:
            names = [program_input.name for program_input in model.program.inputs]
            inputs = dict(zip(names, model._indexed_arguments(**subgraph.inputs), strict=True))
            results = dict(model.program(inputs, loop_timeout=self.loop_timeout))
            results = model._tensor_strings.decode_tensors(results) if model._tensor_strings else results
            return SingleNodeResult(results, read_reported_additions(model.program, inputs))


def _describe_failure(error: BaseException) -> str:
    return f"it does not run by itself: {error}"


class ReferenceValues:
    """The reference's values, computed from the model's inputs, in float32 or in a wider declared type."""

    def __init__(self, reference: ReferenceModel, case_inputs: Mapping[str, Any]) -> None:
        self._reference = reference
        self._runner = reference.runner.with_types(reference.types.without_errors())
        self._values: dict[str, Any] = dict(case_inputs)
        self._dtypes: dict[str, Any] = {}
        self._stored: dict[str, str] = {}  # maps a tensor to the precision of its producer
        self.folded: set[str] = set()

    def forget(self, name: str) -> None:
        """Drop a value after its last reader."""
        self._values.pop(name, None)

    def get_node_inputs(self, node: ReferenceNode) -> dict[str, Any]:
        """Return a node's inputs in their declared types, rounded to storage.

        Finite numbers beyond a type saturate, because infinite inputs would not show whether the node is right.
        """
        inputs = {}
        for name in node.inputs:
            if name not in self._values:
                continue
            value = self._values[name]
            if name not in self.folded and isinstance(value, np.ndarray) and is_float(value.dtype):
                value = self._round_to_declared(name, value, node)
            elif name in self.folded and isinstance(value, np.ndarray):
                value = value.astype(self._dtypes[name], copy=False)
            inputs[name] = value
        return inputs

    def _round_to_declared(self, name: str, value: Array, node: ReferenceNode) -> Array:
        dtype = np.dtype(self._dtypes.get(name, value.dtype))
        precisions = (self._stored.get(name, node.precision), node.precision)
        targets = [self._reference.types.at_precision(precision).get_storage_type(dtype) for precision in precisions]
        return _round_to_finite(value, [*targets, find_float_type(str(dtype))]).astype(dtype)

    def advance(self, node: ReferenceNode, device_results: Mapping[str, Array]) -> None:
        """Evaluate a node by the rules. If no rule covers it, continue from `device_results`."""
        try:
            results = node.run({name: self._get_value(name) for name in node.inputs}, self._runner)
        except (UnprovedError, IndexError, KeyError, MemoryError):
            results = {}
        for name in node.outputs:
            value = results.get(name)
            if value is None and name not in device_results:
                continue
            self._values[name] = _to_array(value) if value is not None else device_results[name]
            self._dtypes[name] = (
                value.dtype if isinstance(value, BoundedTensor) else getattr(device_results.get(name), "dtype", None)
            )
            self._stored[name] = node.precision
            if node.is_folded:
                self.folded.add(name)

    def _get_value(self, name: str) -> Value:
        """Return a value as an exact BoundedTensor. Raise KeyError if there is none."""
        if name not in self._values:
            return drop_error_bound(self._reference.get_constant(name))
        value = self._values[name]
        if isinstance(value, np.ndarray):
            return BoundedTensor(value, None, self._dtypes.get(name, value.dtype), True, name in self.folded)
        return make_bounded_input(value, self._runner.types)


def _to_array(value: Value) -> Any:
    """Return a value as an array, in float32 unless the declared type is wider."""
    if isinstance(value, list):
        return [_to_array(item) for item in value]
    if not isinstance(value, BoundedTensor) or not value.is_float:
        return value.value if isinstance(value, BoundedTensor) else value
    dtype = np.dtype(np.float64 if value.dtype == np.float64 else np.float32)
    return _round_to_finite(value.value, [find_float_type(str(dtype))]).astype(dtype)


def _round_to_finite(value: Array, types: Iterable[FloatType]) -> Array:
    """Round to the nearest finite number of each type in turn. Infinity and NaN stay unchanged."""
    rounded = np.asarray(value, np.float64)
    for float_format in types:
        rounded = np.where(
            np.isfinite(rounded),
            float_format.round(np.clip(rounded, -float_format.largest, float_format.largest)),
            rounded,
        )
    return rounded
