"""References other than the float64 rules: runtimes, devices, precisions, stored results, and the caller's functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ..._pumice import Context
from ...base.element_types import PRECISIONS, Array
from ...base.errors import InputError
from ...base.host_arrays import bitwise_equal, find_bit_differences
from ...importer.file.model_file import ModelFile, to_path_or_bytes
from ...importer.load_graph import load_graph
from ...model.array_files import read_npz
from ...model.model import Model
from ..report.findings import NOT_DETERMINISTIC, Finding
from ..rules.bounded_tensor import BoundedTensor, OperatorCall, Rule, UndecidedError, UnprovedError, Value, find_rule
from ..rules.float_types import DeclaredTypes, ProgramTypes, is_float
from ..rules.user_kernel_rules import describe_kernel_nodes
from .onnx_runtimes import (
    add_all_tensors_as_outputs,
    evaluate_with_onnx,
    import_onnxruntime,
    load_whole_model,
    make_session,
    make_single_node_model,
    run_session,
)
from .oracle import (
    ExpectedValue,
    Oracle,
    TensorSource,
    Tolerance,
    ValidationSubject,
    ValueOracle,
    drop_error_bound,
    to_declared_array,
)
from .reference_model import ReferenceModel, ReferenceNode, RuleRunner
from .tensor_sources import DeviceTensors

if TYPE_CHECKING:
    from onnx import NodeProto


class FusedNodeResults(NamedTuple):
    """Results by name: the runtime's arrays, and the rules' values with error bounds for the runtime's types."""

    values: Mapping[str, Any]
    bounded: Mapping[str, Value]


def evaluate_fused_nodes(
    members: Sequence[ReferenceNode],
    read: Callable[[str], Value],
    runner: RuleRunner,
    evaluate: Callable[[ReferenceNode, Mapping[str, Array | None]], Mapping[str, Any]],
) -> FusedNodeResults:
    """Evaluate the members in order. read: function that returns a kernel input by name.

    Raise UnprovedError with the reason if the runtime fails, or if a result depends on a choice that the runtime may
    have made differently.
    """
    values: dict[str, Any] = {}
    bounded: dict[str, Value] = {}
    for member in members:
        for name in member.inputs:
            if name not in bounded:
                bounded[name], values[name] = _read_member_input(name, read)
        try:
            results = evaluate(member, {name: values[name] for name in member.inputs})
        except Exception as error:  # the runtime may raise any exception
            raise UnprovedError(f"it fails on node '{member.name}': {get_first_line(error)}") from None
        try:
            bounds = member.run(bounded, runner)
        except UndecidedError:
            raise UnprovedError(f"node '{member.name}' depends on a choice that rounding may flip") from None
        except (IndexError, KeyError, MemoryError) as error:
            raise UnprovedError(f"no bound of its own at node '{member.name}': {get_first_line(error)}") from None
        for name in member.outputs:
            values[name], bounded[name] = results.get(name), bounds.get(name)
            if member is not members[-1] and _is_undecided(bounded[name]):
                raise UnprovedError(f"node '{member.name}' depends on a choice that rounding may flip")
    return FusedNodeResults(values, bounded)


def _read_member_input(name: str, read: Callable[[str], Value]) -> tuple[Value, Array | None]:
    try:
        value = drop_error_bound(read(name))
    except KeyError as error:
        raise UnprovedError(f"nothing is known of {error}") from None
    array = None if value is None else to_declared_array(value)
    if array is None and value is not None:
        raise UnprovedError(f"'{name}' is not a tensor, or has a number that its type cannot hold")
    return value, array


def _is_undecided(value: Value) -> bool:
    return isinstance(value, BoundedTensor) and not value.is_float and bool(np.any(value.get_errors() > 0))


def get_first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if it is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


_Function: TypeAlias = Callable[[dict[str, Any], list[Any]], Any]
_RUNTIME_NAMES = ("onnx", "onnxruntime")


def make_oracle(reference: Any, subject: ValidationSubject, cases: int) -> Oracle:
    """Return the reference for the `reference` argument of validate. Raise InputError if the argument is not supported.

    Loading a model on another device may raise its own errors.
    """
    if reference is None or (isinstance(reference, str) and reference == "float64"):
        return Oracle()
    if isinstance(reference, str) and reference in _RUNTIME_NAMES:
        return OnnxReferenceOracle() if reference == "onnx" else OnnxRuntimeOracle(subject)
    if reference is subject or (isinstance(reference, str) and reference == "run"):
        return RepeatedRunOracle()
    if isinstance(reference, Mapping) and reference and all(callable(function) for function in reference.values()):
        return FunctionOracle(reference)
    if isinstance(reference, Mapping | os.PathLike) or (isinstance(reference, str) and reference.endswith(".npz")):
        return StoredTensorOracle([reference], cases)
    if isinstance(reference, list | tuple):
        return StoredTensorOracle(reference, cases)
    if isinstance(reference, Model):
        return _make_model_oracle(reference, subject)
    if isinstance(reference, str | Context):
        return _make_device_oracle(reference, subject)
    raise InputError(
        "validate: reference: expected 'float64', 'onnx', 'onnxruntime', 'run', a precision, a device, a Context, a Model, stored tensors "
        f"or functions by operator, given {reference!r}"
    )


def _is_same_program(model: Model, subject: ValidationSubject) -> bool:
    """Return whether model and subject are the same program, so that a comparison would prove nothing."""
    if not isinstance(subject, Model) or _list_precisions(model) != _list_precisions(subject):
        return False
    files = [ModelFile(to_path_or_bytes(loaded.source), loaded.folder) for loaded in (model, subject)]
    if model.device.uuid != subject.device.uuid or bytes(files[0].stripped_data) != bytes(files[1].stripped_data):
        return False
    return model.kernel_table is subject.kernel_table or describe_kernel_nodes(model) == describe_kernel_nodes(subject)


def _list_precisions(model: Model) -> tuple[str, list[str]]:
    return model.precision, sorted(model.float32_nodes)


def _make_model_oracle(model: Model, subject: ValidationSubject) -> Oracle:
    if _is_same_program(model, subject):
        return RepeatedRunOracle()
    if model.float32_nodes and not (
        isinstance(subject, Model) and _list_precisions(model) == _list_precisions(subject)
    ):
        raise InputError(
            f"validate: reference: expected a model at one precision, or at those of the one being judged, given '{model.name}' with "
            f"{len(model.float32_nodes)} nodes in fp32"
        )
    return OtherProgramOracle(model)


def _make_device_oracle(reference: str | Context, subject: ValidationSubject) -> Oracle:
    """Return the model on another device or at another precision as the reference, by default on the subject's."""
    context, precision = (subject.context if isinstance(subject, Model) else None), None
    opened_context = None
    if isinstance(reference, Context):
        context = reference
    elif reference in PRECISIONS:
        precision = reference
    else:
        context = opened_context = Context(reference)
    owned: list[Any] = [opened_context] if opened_context else []
    try:
        if isinstance(subject, Model):
            is_same_precision = precision is None or (precision, []) == _list_precisions(subject)
            if is_same_precision and context is not None and context.info.uuid == subject.context.info.uuid:
                return RepeatedRunOracle()
            model = subject.loaded_again(context, precision)
        else:
            kernels = subject.kernel_table
            model = Model(
                subject.source, context, precision or "fp32", folder=subject.folder, progress=False, kernels=kernels
            )
        owned.insert(0, model)
        oracle = OtherProgramOracle(model, owned)
        owned = []
        return oracle
    finally:
        for resource in owned:
            resource.close()


# ---- runtimes


class _RuntimeOracle(ValueOracle):
    """A runtime that evaluates single nodes. Operators without a rule are checked with the caller's tolerance."""

    checks_kernels = True  # the runtime can evaluate a kernel's members in order

    def __init__(self, types: ProgramTypes) -> None:
        super().__init__(types)
        self._tolerances_by_name: dict[str, float] = {}

    def prepare_for_model(self, reference: ReferenceModel, tolerance: Tolerance, tensors: TensorSource) -> None:
        """Bind the model. Add rules for operators without one if the caller set a tolerance for their nodes."""
        super().prepare_for_model(reference, tolerance, tensors)
        for node in reference.nodes:
            allowed = {name: tolerance(node.name, name) for name in node.outputs}
            if find_rule(node.op, node.domain) is None and None not in allowed.values():
                self._tolerances_by_name.update((name, x) for name, x in allowed.items() if x is not None)
                for runner in (reference.runner, reference.chained):
                    runner.custom_rules[node.operator] = self._evaluate_by_runtime

    def evaluate_isolated(self, node: ReferenceNode, arrays: Mapping[str, Array | None]) -> Mapping[str, Any] | None:
        """Evaluate a node in the runtime. If that fails, add a note."""
        try:
            return self.evaluate_node(node, arrays)
        except Exception as error:  # the runtime may raise any exception
            self._add_note(node, f"it fails: {get_first_line(error)}")
            return None

    def compute_expected_kernel_value(
        self, members: Sequence[ReferenceNode], name: str, rule_value: Value, read: Callable[[str], Value]
    ) -> ExpectedValue:
        """Evaluate a kernel's members in the runtime; if that fails, return the rules' result with a note."""
        try:
            member_values = evaluate_fused_nodes(members, read, self._runner, self.evaluate_node)
        except UnprovedError as error:
            return ExpectedValue(rule_value, f"by the rules, not by {self.name}: {error}")
        value = member_values.values.get(name)
        if not isinstance(value, np.ndarray):
            return ExpectedValue(rule_value, f"by the rules, not by {self.name}: it does not return a tensor")
        return self._combine_bounds(value, rule_value, member_values.bounded.get(name), self._runner)

    def evaluate_node(self, node: ReferenceNode, arrays: Mapping[str, Array | None]) -> dict[str, Any]:
        """Return a node's outputs by name. Raise whatever the runtime raises."""
        raise NotImplementedError

    def _evaluate_by_runtime(self, call: OperatorCall) -> list[Any]:
        names = [name for name in call.node.output if name]
        if any(name not in self._tolerances_by_name for name in names):
            return RuleRunner(call.opsets, call.types).run_node(call.node, call.inputs, call.outer or {})
        node = ReferenceNode(names[0], call.node)
        values = {**(call.outer or {}), **dict(zip(call.node.input, call.inputs, strict=False))}
        arrays = {name: _read_exact_input(values.get(name), call.op) for name in node.inputs}
        try:
            outputs = self.evaluate_node(node, arrays)
        except Exception as error:
            raise UnprovedError(
                f"no rule for {node.operator}, and {self.name} fails: {get_first_line(error)}"
            ) from None
        bounds = self._tolerances_by_name
        return [
            BoundedTensor(outputs[n], np.full(outputs[n].shape, bounds[n]), outputs[n].dtype, True) if n else None
            for n in call.node.output
        ]


class OnnxReferenceOracle(_RuntimeOracle):
    """Expected values from onnx.reference, node by node."""

    name = "onnx"

    def __init__(self) -> None:
        super().__init__(DeclaredTypes(low_precision=True))
        self._chain_values: dict[str, Any] = {}

    def begin_case(
        self, inputs: Mapping[str, Array], case_inputs: Mapping[str, Any], case: int, sampled: bool = False
    ) -> None:
        """Start a case and drop the previous one."""
        super().begin_case(inputs, case_inputs, case, sampled)
        self._chain_values = self.own_values = dict(case_inputs)

    def run_reference(self, inputs: Mapping[str, Array], case_inputs: Mapping[str, Any], case: int) -> dict[str, Array]:
        """Return {}: values are added as nodes are evaluated."""
        return {}

    def advance_past_node(self, node: ReferenceNode) -> None:
        """Propagate the bounds, and evaluate the node on onnx.reference's own values."""
        known_values = {**self.reference.constants, **self._chain_values}
        if any(name not in known_values for name in node.inputs):
            self._add_note(node, "it failed before")
        else:
            try:
                arrays = {name: known_values[name] for name in node.inputs}
                self._chain_values.update(evaluate_with_onnx(node, arrays, self.reference.opsets))
            except Exception as error:  # then later nodes have no values either
                self._add_note(node, f"it fails: {get_first_line(error)}")
        super().advance_past_node(node)

    def evaluate_node(self, node: ReferenceNode, arrays: Mapping[str, Array | None]) -> dict[str, Any]:
        """Evaluate a node in onnx.reference."""
        return evaluate_with_onnx(node, arrays, self.reference.opsets)


class OnnxRuntimeOracle(_RuntimeOracle):
    """Expected values from ONNX Runtime on the CPU, without graph optimisations: of single nodes and of the whole model."""

    name = "onnxruntime"

    def __init__(self, subject: ValidationSubject) -> None:
        super().__init__(DeclaredTypes())
        import_onnxruntime()
        self._failure = ""
        self._session: Any = None
        try:
            self._session = make_session(add_all_tensors_as_outputs(load_whole_model(subject.source, subject.folder)))
        except Exception as error:
            self._failure = get_first_line(error)
        self._nodes: dict[str, Any] = {}

    def run_reference(self, inputs: Mapping[str, Array], case_inputs: Mapping[str, Any], case: int) -> dict[str, Array]:
        """Return every tensor of the model by name; {} if the runtime rejects the model."""
        results: dict[str, Any] = {}
        if self._session is not None:
            try:
                results = run_session(self._session, case_inputs)
            except Exception as error:
                self._failure = get_first_line(error)
        if self._failure:
            self.notes.update((name, f"by the rules: {self.name} fails: {self._failure}") for name in self._producers)
        return {name: value for name, value in results.items() if isinstance(value, np.ndarray)}

    def evaluate_node(self, node: ReferenceNode, arrays: Mapping[str, Array | None]) -> dict[str, Any]:
        """Evaluate a node in a session of its own, which is cached for the next case."""
        key = f"{node.name} {[(array.dtype, array.ndim) for array in arrays.values() if array is not None]}"
        if key not in self._nodes:
            self._nodes[key] = make_session(make_single_node_model(node, arrays, self.reference.opsets), threads=1)
        return run_session(self._nodes[key], arrays)

    def close(self) -> None:
        """Free the sessions."""
        self._nodes.clear()
        self._session = None


# ---- programs of pumice, and stored tensors


class OtherProgramOracle(ValueOracle):
    """Expected values from another program of pumice: the model on another device, at another precision, or another file."""

    chained = True

    def __init__(self, model: Model, owned: Sequence[Any] = ()) -> None:
        super().__init__(ProgramTypes(model.precision))
        self.name = f"{model.device.name}, {model.precision}"
        self.has_mixed_precision = bool(model.float32_nodes)
        self._model = model
        self._owned = owned
        self._tensors = DeviceTensors(model, load_graph)

    def run_reference(self, inputs: Mapping[str, Array], case_inputs: Mapping[str, Any], case: int) -> dict[str, Array]:
        """Return the tensors that the other program computes for these inputs."""
        input_names = [value.name for value in self._model.program.inputs]
        if missing := [name for name in input_names if name not in inputs]:
            raise InputError(
                f"validate: reference: model '{self._model.name}' has an input '{missing[0]}', which the other lacks"
            )
        texts = self.reference.decode_strings({name: inputs[name] for name in input_names})
        strings = self._model._tensor_strings
        return self._tensors.compute_tensors(strings.encode_tensors(texts) if strings else texts)

    def close(self) -> None:
        """Close the compiled programs, and the model and context unless the caller owns them."""
        self._tensors.close()
        for resource in self._owned:
            resource.close()


class RepeatedRunOracle(Oracle):
    """Another run of the same program, whose bits are compared. Expected values and bounds come from the rules."""

    name = "float64, and another run"

    def __init__(self) -> None:
        super().__init__()
        self._case = -1
        self._other_tensors: dict[str, Array] = {}
        self._results: dict[str, Array] = {}

    def prepare_for_model(self, reference: ReferenceModel, tolerance: Tolerance, tensors: TensorSource) -> None:
        """Bind the model, and keep its tensor source for the other run."""
        self._source = tensors

    def begin_case(
        self, inputs: Mapping[str, Array], case_inputs: Mapping[str, Any], case: int, sampled: bool = False
    ) -> None:
        """Start a case, and run the program again."""
        super().begin_case(inputs, case_inputs, case, sampled)
        if case == self._case:
            return
        self._case = case
        self._other_tensors = self._source.compute_tensors(dict(inputs))
        self._results = self._source.compute_outputs(dict(inputs))

    def compare_bits(self, node: str, output: str, actual: Array, case: int) -> Finding | None:
        """Return a finding if the bits differ from those of the other run."""
        other = self._other_tensors.pop(output, None) if output else self._results.get(node)
        if other is None or bitwise_equal(other, actual):
            return None
        differ = int(find_bit_differences(other, actual).sum())
        text = f"{differ} of {actual.size} elements of '{output or node}' have other bits in another run"
        return Finding(NOT_DETERMINISTIC, node, text, differ, case)


class StoredTensorOracle(ValueOracle):
    """Stored tensors by name: a mapping or .npz file per case. The least precise tensor determines the precision."""

    name = "stored tensors"
    chained = True
    any_float = True

    def __init__(self, stored_cases: Iterable[Any], cases: int) -> None:
        self._cases = [_load_stored_tensors(tensors) for tensors in stored_cases]
        if len(self._cases) != cases:
            raise InputError(
                f"validate: reference: expected stored tensors of {cases} cases, given those of {len(self._cases)}"
            )
        dtypes = {str(array.dtype) for tensors in self._cases for array in tensors.values()}
        names = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}
        precision = next((names[dtype] for dtype in names if dtype in dtypes), "fp32")
        super().__init__(ProgramTypes(precision, accumulation="fp64" if precision == "fp64" else "fp32"))

    def prepare_for_model(self, reference: ReferenceModel, tolerance: Tolerance, tensors: TensorSource) -> None:
        """Bind the model. Raise InputError if a stored name is not a tensor of the model."""
        super().prepare_for_model(reference, tolerance, tensors)
        for case_tensors in self._cases:
            if unknown := [name for name in case_tensors if name not in self._producers]:
                raise InputError(f"validate: reference: no node of the model makes a tensor '{unknown[0]}'")

    def run_reference(self, inputs: Mapping[str, Array], case_inputs: Mapping[str, Any], case: int) -> dict[str, Array]:
        """Return the stored tensors of a case."""
        return dict(self._cases[case])


def _load_stored_tensors(source: Any) -> dict[str, Array]:
    if isinstance(source, Mapping):
        arrays = {str(name): np.asarray(array) for name, array in source.items()}
    else:
        if not isinstance(source, str | os.PathLike):
            raise InputError(f"validate: reference: expected an .npz file of tensors, given {source!r:.200}")
        try:
            arrays = read_npz(source)
        except (InputError, OSError) as error:
            raise InputError(f"validate: reference: expected an .npz file of tensors: {error}") from None
    texts = {name: array.astype(object) for name, array in arrays.items() if array.dtype.kind in "UTO"}
    if not arrays or any(not isinstance(item, str) for array in texts.values() for item in array.flat):
        raise InputError("validate: reference: expected arrays by the names of tensors, given none or other objects")
    return {**arrays, **texts}


# ---- the caller's functions


class FunctionOracle(Oracle):
    """The caller's functions by operator, which replace the rules.

    function(attributes, inputs) returns outputs, optionally with bounds.
    """

    name = "functions of the caller's"

    def __init__(self, functions: Mapping[str, _Function]) -> None:
        super().__init__()
        self._functions = {name.removeprefix("ai.onnx::"): function for name, function in functions.items()}

    def prepare_for_model(self, reference: ReferenceModel, tolerance: Tolerance, tensors: TensorSource) -> None:
        """Register the functions as rules. Raise InputError if the model has no such operator."""
        known = set(_iter_operator_names(node.proto for node in reference.nodes))
        for name, function in self._functions.items():
            if name not in known:
                raise InputError(f"validate: reference: the model has no operator '{name}'")
            domain, _, op = name.rpartition("::")
            for runner in (reference.runner, reference.chained):
                runner.custom_rules[name] = _make_function_rule(name, function, find_rule(op, domain))


def _iter_operator_names(nodes: Iterable[NodeProto]) -> Iterator[str]:
    for node in nodes:
        domain = "" if node.domain == "ai.onnx" else node.domain
        yield f"{domain}::{node.op_type}" if domain else node.op_type
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _iter_operator_names(attribute.g.node)


def _make_function_rule(name: str, function: _Function, base_rule: Rule | None) -> Rule:
    """Return a rule with the function's values and bounds.

    base_rule: the rule that it replaces, which propagates the errors of the inputs; None if there was none.
    """

    def rule(call: OperatorCall) -> list[Any]:
        rule_results: list[Any] = []
        if base_rule is not None:
            rule_results = base_rule(call)
        inputs = [_read_exact_input(value, name, base_rule is None) for value in call.inputs]
        floats = [np.asarray(x, np.float64) if x is not None and is_float(x.dtype) else x for x in inputs]
        try:
            outputs = list(_pair_outputs_with_bounds(function(dict(call.attributes), floats), call.outputs))
        except UnprovedError:
            raise
        except Exception as error:  # the caller's function may raise any exception
            text = f"{type(error).__name__}: {get_first_line(error)}"
            raise UnprovedError(f"the caller's function for {name} fails: {text}") from None
        dtype = next((item.dtype for item in inputs if item is not None and is_float(item.dtype)), np.dtype(np.float32))
        bounded = [_make_bounded_output(value, bound, dtype) for value, bound in outputs]
        return [
            _combine_with_rule(item, rule_results[i] if i < len(rule_results) else None, call.types)
            for i, item in enumerate(bounded)
        ]

    return rule


def _read_exact_input(value: Any, name: str, needed: bool = True) -> Array | None:
    """Return an input as an array. Raise UndecidedError if it has an error that the function cannot propagate."""
    if value is None:
        return None
    if not isinstance(value, BoundedTensor):
        raise UnprovedError(f"an input of {name} is not a tensor")
    if needed and value.error is not None and np.any(value.error > 0):
        raise UndecidedError(f"no rule says how {name} propagates its inputs' errors")
    array = to_declared_array(value)
    return array if array is not None else np.asarray(value.value)


def _pair_outputs_with_bounds(result: Any, count: int) -> Iterator[tuple[Any, Any]]:
    """Yield each output with its bound or None. Raise ValueError if the number of outputs is wrong."""
    is_single = not isinstance(result, list | tuple) or (count == 1 and isinstance(result, tuple) and len(result) == 2)
    outputs = [result] if is_single else list(result)
    if len(outputs) != count:
        raise ValueError(f"expected {count} outputs, given {len(outputs)}")
    for output in outputs:
        yield output if isinstance(output, tuple) and len(output) == 2 else (output, None)


def _make_bounded_output(value: Any, bound: Any, dtype: Any) -> BoundedTensor:
    array = np.asarray(value)
    if array.dtype == object:
        raise UnprovedError("the caller's function does not return a tensor")
    error = None if bound is None else np.array(np.broadcast_to(np.asarray(bound, np.float64), array.shape))
    if error is not None and not (error >= 0).all():
        raise UnprovedError("the caller's function returns a negative bound")
    double = array.dtype == np.float64
    return BoundedTensor(array, error, dtype if double else array.dtype)


def _combine_with_rule(output: BoundedTensor, rule_value: Any, types: ProgramTypes) -> BoundedTensor:
    """Return the output with the sum of its own and the rule's error bound, and the rule's dtype."""
    if (
        not isinstance(rule_value, BoundedTensor)
        or rule_value.shape != output.shape
        or rule_value.is_float != output.is_float
    ):
        return output
    error = types.combine_errors(output.error, rule_value.error)
    combined = BoundedTensor(output.value, error, rule_value.dtype, rule_value.stored, rule_value.constant)
    return combined.set_alternatives(rule_value.alternatives)
