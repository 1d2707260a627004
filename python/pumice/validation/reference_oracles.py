"""References other than the float64 rules: runtimes, devices, precisions, stored results, and the caller's functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .._pumice import Context
from ..base.element_types import PRECISIONS, Array
from ..base.errors import InputError
from ..base.host_arrays import differing, same_bits
from ..importer.file.model_file import ModelFile, portable
from ..importer.load import load_graph
from ..model.array_files import npz_arrays
from ..model.model import Model
from .oracle import Against, Expected, Tolerance, Valued, array_of
from .bounds.bounded import Bounded
from .bounds.registry import Call, Rule, Undecided, Unproved, Value, rule_of
from .bounds.rule_runner import Runner
from .bounds.float_types import DeclaredTypes, Types, is_float
from .user_kernel_rules import kernel_nodes
from .member_evaluation import by_members, first_line
from .reference import Reference, ReferenceNode
from .report_rows import Finding
from .onnx_runtimes import alone, by_onnx, run, runtime, session, whole_model, with_every_tensor
from .tensor_sources import DeviceTensors, Subject, Tensors

if TYPE_CHECKING:
    from onnx import NodeProto

_Function: TypeAlias = Callable[[dict[str, Any], list[Any]], Any]
_RUNTIMES = ("onnx", "onnxruntime")


def against_of(reference: Any, subject: Subject, cases: int) -> Against:
    """Return the reference for the `reference` argument of validate. Raise InputError if the argument is not supported.

    Loading a model on another device may raise its own errors.
    """
    if reference is None or (isinstance(reference, str) and reference == "float64"):
        return Against()
    if isinstance(reference, str) and reference in _RUNTIMES:
        return ByOnnx() if reference == "onnx" else ByRuntime(subject)
    if reference is subject or (isinstance(reference, str) and reference == "run"):
        return AnotherRun()
    if isinstance(reference, Mapping) and reference and all(callable(one) for one in reference.values()):
        return Functions(reference)
    if isinstance(reference, Mapping | os.PathLike) or (isinstance(reference, str) and reference.endswith(".npz")):
        return Stored([reference], cases)
    if isinstance(reference, list | tuple):
        return Stored(reference, cases)
    if isinstance(reference, Model):
        return _of_model(reference, subject)
    if isinstance(reference, str | Context):
        return _elsewhere(reference, subject)
    raise InputError(
        "validate: reference: expected 'float64', 'onnx', 'onnxruntime', 'run', a precision, a device, a Context, a Model, stored tensors "
        f"or functions by operator, given {reference!r}"
    )


def _is_same(model: Model, subject: Subject) -> bool:
    """Whether both are the same program, which would prove nothing: the same file, kernels, device and precisions."""
    if not isinstance(subject, Model) or _precisions(model) != _precisions(subject):
        return False
    files = [ModelFile(portable(one.source), one.folder) for one in (model, subject)]
    if model.device.uuid != subject.device.uuid or bytes(files[0].skeleton) != bytes(files[1].skeleton):
        return False
    return model.kernel_table is subject.kernel_table or kernel_nodes(model) == kernel_nodes(subject)


def _precisions(model: Model) -> tuple[str, list[str]]:
    return model.precision, sorted(model.float32_nodes)


def _of_model(model: Model, subject: Subject) -> Against:
    if _is_same(model, subject):
        return AnotherRun()
    if model.float32_nodes and not (isinstance(subject, Model) and _precisions(model) == _precisions(subject)):
        raise InputError(
            f"validate: reference: expected a model at one precision, or at those of the one that is judged, given '{model.name}' with "
            f"{len(model.float32_nodes)} nodes in fp32"
        )
    return OtherProgram(model)


def _elsewhere(reference: str | Context, subject: Subject) -> Against:
    """Return the model on another device or at another precision as the reference, by default on the subject's."""
    context, precision = (subject.context if isinstance(subject, Model) else None), None
    opened = None
    if isinstance(reference, Context):
        context = reference
    elif reference in PRECISIONS:
        precision = reference
    else:
        context = opened = Context(reference)
    owned: list[Any] = [opened] if opened else []
    try:
        if isinstance(subject, Model):
            same = precision is None or (precision, []) == _precisions(subject)
            if same and context is not None and context.info.uuid == subject.context.info.uuid:
                return AnotherRun()
            model = subject.loaded_again(context, precision)
        else:
            kernels = subject.kernel_table
            model = Model(
                subject.source, context, precision or "fp32", folder=subject.folder, progress=False, kernels=kernels
            )
        owned.insert(0, model)
        made = OtherProgram(model, owned)
        owned = []
        return made
    finally:
        for one in owned:
            one.close()


# ---- runtimes


class _Runtime(Valued):
    """A runtime that evaluates single nodes and keeps the results; operators without a rule use the caller's tolerance."""

    judges_kernels = True  # kernels are checked by evaluating their members in order

    def __init__(self, types: Types) -> None:
        super().__init__(types)
        self._tolerated: dict[str, float] = {}

    def bind(self, reference: Reference, tolerance: Tolerance, tensors: Tensors) -> None:
        """Bind, and add rules for operators without one if the caller gives their nodes a tolerance."""
        super().bind(reference, tolerance, tensors)
        for node in reference.nodes:
            allowed = {name: tolerance(node.name, name) for name in node.outputs}
            if rule_of(node.op, node.domain) is None and None not in allowed.values():
                self._tolerated.update((name, one) for name, one in allowed.items() if one is not None)
                for runner in (reference.runner, reference.chained):
                    runner.operators[node.operator] = self._rule

    def alone(self, node: ReferenceNode, arrays: Mapping[str, Array | None]) -> Mapping[str, Any] | None:
        """Evaluate the node in the runtime; add a note if that fails."""
        try:
            return self.evaluated(node, arrays)
        except Exception as error:  # the runtime may raise anything
            self._note(node, f"it fails: {first_line(error)}")
            return None

    def kernel(
        self, members: Sequence[ReferenceNode], name: str, made: Value, read: Callable[[str], Value]
    ) -> Expected:
        """Evaluate a kernel's members in the runtime; if that fails, return the rules' result with a note."""
        try:
            found = by_members(members, read, self._runner, self.evaluated)
        except Unproved as error:
            return Expected(made, f"by the rules, not by {self.name}: {error}")
        value = found.values.get(name)
        if not isinstance(value, np.ndarray):
            return Expected(made, f"by the rules, not by {self.name}: it gives no tensor")
        return self._beside(value, made, found.bounded.get(name), self._runner)

    def evaluated(self, node: ReferenceNode, arrays: Mapping[str, Array | None]) -> dict[str, Any]:
        """Return a node's outputs by name. Raise whatever the runtime raises."""
        raise NotImplementedError

    def _rule(self, call: Call) -> list[Any]:
        names = [name for name in call.node.output if name]
        if any(name not in self._tolerated for name in names):
            return Runner(call.opsets, call.types).node(call.node, call.given, call.outer or {})
        node = ReferenceNode(names[0], call.node)
        values = {**(call.outer or {}), **dict(zip(call.node.input, call.given, strict=False))}
        arrays = {name: _exact(values.get(name), call.op) for name in node.inputs}
        try:
            made = self.evaluated(node, arrays)
        except Exception as error:
            raise Unproved(f"no rule for {node.operator}, and {self.name} fails: {first_line(error)}") from None
        bounds = self._tolerated
        return [
            Bounded(made[name], np.full(made[name].shape, bounds[name]), made[name].dtype, True) if name else None
            for name in call.node.output
        ]


class ByOnnx(_Runtime):
    """onnx.reference, node by node."""

    name = "onnx"

    def __init__(self) -> None:
        super().__init__(DeclaredTypes(narrow=True))
        self._made: dict[str, Any] = {}

    def begin(self, inputs: Mapping[str, Array], given: Mapping[str, Any], case: int, sampled: bool = False) -> None:
        """Start a case and drop the previous one."""
        super().begin(inputs, given, case, sampled)
        self._made = self.values = dict(given)

    def case(self, inputs: Mapping[str, Array], given: Mapping[str, Any], case: int) -> dict[str, Array]:
        """Return {}: values are added as the nodes run."""
        return {}

    def follow(self, node: ReferenceNode) -> None:
        """Also run the node on onnx's own values."""
        known = {**self.reference.constants, **self._made}
        if any(name not in known for name in node.inputs):
            self._note(node, "it failed before")
        else:
            try:
                arrays = {name: known[name] for name in node.inputs}
                self._made.update(by_onnx(node, arrays, self.reference.opsets))
            except Exception as error:  # then later nodes have no values
                self._note(node, f"it fails: {first_line(error)}")
        super().follow(node)

    def evaluated(self, node: ReferenceNode, arrays: Mapping[str, Array | None]) -> dict[str, Any]:
        """Evaluate a node in onnx.reference."""
        return by_onnx(node, arrays, self.reference.opsets)


class ByRuntime(_Runtime):
    """ONNX Runtime on the CPU without graph optimisations: every node on its own, and every tensor of the model."""

    name = "onnxruntime"

    def __init__(self, subject: Subject) -> None:
        super().__init__(DeclaredTypes())
        runtime()
        self._why = ""
        self._session: Any = None
        try:
            self._session = session(with_every_tensor(whole_model(subject.source, subject.folder)))
        except Exception as error:
            self._why = first_line(error)
        self._nodes: dict[str, Any] = {}

    def case(self, inputs: Mapping[str, Array], given: Mapping[str, Any], case: int) -> dict[str, Array]:
        """Return every tensor; {} if the runtime rejects the model."""
        made: dict[str, Any] = {}
        if self._session is not None:
            try:
                made = run(self._session, given)
            except Exception as error:
                self._why = first_line(error)
        if self._why:
            self.notes.update((name, f"by the rules: {self.name} fails: {self._why}") for name in self._makers)
        return {name: value for name, value in made.items() if isinstance(value, np.ndarray)}

    def evaluated(self, node: ReferenceNode, arrays: Mapping[str, Array | None]) -> dict[str, Any]:
        """Evaluate a node in its own session, cached for the next case."""
        key = f"{node.name} {[(one.dtype, one.ndim) for one in arrays.values() if one is not None]}"
        if key not in self._nodes:
            self._nodes[key] = session(alone(node, arrays, self.reference.opsets), threads=1)
        return run(self._nodes[key], arrays)

    def close(self) -> None:
        """Free the sessions."""
        self._nodes.clear()
        self._session = None


# ---- programs of pumice, and stored tensors


class OtherProgram(Valued):
    """Another device, precision or file of the model: every tensor of its unfused program."""

    chained = True

    def __init__(self, model: Model, owned: Sequence[Any] = ()) -> None:
        super().__init__(Types(model.precision))
        self.name = f"{model.device.name}, {model.precision}"
        self.mixed = bool(model.float32_nodes)
        self._model = model
        self._owned = owned
        self._tensors = DeviceTensors(model, load_graph)

    def case(self, inputs: Mapping[str, Array], given: Mapping[str, Any], case: int) -> dict[str, Array]:
        """Return the program's tensors for its inputs."""
        wanted = [value.name for value in self._model.program.inputs]
        if missing := [name for name in wanted if name not in inputs]:
            raise InputError(
                f"validate: reference: model '{self._model.name}' has an input '{missing[0]}', the other none"
            )
        texts = self.reference.texts({name: inputs[name] for name in wanted})
        strings = self._model._kept_strings
        return self._tensors.tensors(strings.places(texts) if strings else texts)

    def close(self) -> None:
        """Close the compiled programs, and the model and context unless the caller owns them."""
        self._tensors.close()
        for one in self._owned:
            one.close()


class AnotherRun(Against):
    """Another run of the same program, to compare the bits. The bounds come from the rules."""

    name = "float64, and another run"

    def __init__(self) -> None:
        super().__init__()
        self._case = -1
        self._again: dict[str, Array] = {}
        self._results: dict[str, Array] = {}

    def bind(self, reference: Reference, tolerance: Tolerance, tensors: Tensors) -> None:
        """Keep the program."""
        self._source = tensors

    def begin(self, inputs: Mapping[str, Array], given: Mapping[str, Any], case: int, sampled: bool = False) -> None:
        """Run the program."""
        super().begin(inputs, given, case, sampled)
        if case == self._case:
            return
        self._case = case
        self._again = self._source.tensors(dict(inputs))
        self._results = self._source.results(dict(inputs))

    def compared(self, node: str, output: str, actual: Array, case: int) -> Finding | None:
        """Return a finding if the bits differ from the other run."""
        other = self._again.pop(output, None) if output else self._results.get(node)
        if other is None or same_bits(other, actual):
            return None
        differ = int(differing(other, actual).sum())
        text = f"{differ} of {actual.size} elements of '{output or node}' have other bits in another run"
        return Finding("not deterministic", node, text, differ, case)


class Stored(Valued):
    """Stored tensors by name, a mapping or .npz file per case; floats have the precision of the least precise tensor."""

    name = "stored tensors"
    chained = True
    any_float = True

    def __init__(self, given: Iterable[Any], cases: int) -> None:
        self._cases = [_loaded(one) for one in given]
        if len(self._cases) != cases:
            raise InputError(
                f"validate: reference: expected stored tensors of {cases} cases, given those of {len(self._cases)}"
            )
        dtypes = {str(array.dtype) for one in self._cases for array in one.values()}
        names = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}
        precision = next((names[dtype] for dtype in names if dtype in dtypes), "fp32")
        super().__init__(Types(precision, sums="fp64" if precision == "fp64" else "fp32"))

    def bind(self, reference: Reference, tolerance: Tolerance, tensors: Tensors) -> None:
        """Bind. Raise InputError if the model has no tensor of a stored name."""
        super().bind(reference, tolerance, tensors)
        for one in self._cases:
            if unknown := [name for name in one if name not in self._makers]:
                raise InputError(f"validate: reference: no node of the model makes a tensor '{unknown[0]}'")

    def case(self, inputs: Mapping[str, Array], given: Mapping[str, Any], case: int) -> dict[str, Array]:
        """Return the stored tensors of a case."""
        return dict(self._cases[case])


def _loaded(given: Any) -> dict[str, Array]:
    if isinstance(given, Mapping):
        made = {str(name): np.asarray(array) for name, array in given.items()}
    else:
        if not isinstance(given, str | os.PathLike):
            raise InputError(f"validate: reference: expected an .npz file of tensors, given {given!r:.200}")
        try:
            made = npz_arrays(given)
        except (InputError, OSError) as error:
            raise InputError(f"validate: reference: expected an .npz file of tensors: {error}") from None
    texts = {name: array.astype(object) for name, array in made.items() if array.dtype.kind in "UTO"}
    if not made or any(not isinstance(one, str) for array in texts.values() for one in array.flat):
        raise InputError("validate: reference: expected arrays by the names of tensors, given none or other objects")
    return {**made, **texts}


# ---- the caller's functions


class Functions(Against):
    """The caller's functions by operator, which replace the rules: function(attributes, inputs) -> outputs, optionally
    with bounds.
    """

    name = "functions of the caller's"

    def __init__(self, functions: Mapping[str, _Function]) -> None:
        super().__init__()
        self._functions = {name.removeprefix("ai.onnx::"): one for name, one in functions.items()}

    def bind(self, reference: Reference, tolerance: Tolerance, tensors: Tensors) -> None:
        """Register the functions as rules. Raise InputError if the model has no such operator."""
        known = set(_operators(node.proto for node in reference.nodes))
        for name, function in self._functions.items():
            if name not in known:
                raise InputError(f"validate: reference: the model has no operator '{name}'")
            domain, _, op = name.rpartition("::")
            for runner in (reference.runner, reference.chained):
                runner.operators[name] = _rule_by(name, function, rule_of(op, domain))


def _operators(nodes: Iterable[NodeProto]) -> Iterator[str]:
    for node in nodes:
        domain = "" if node.domain == "ai.onnx" else node.domain
        yield f"{domain}::{node.op_type}" if domain else node.op_type
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _operators(attribute.g.node)


def _rule_by(name: str, function: _Function, beneath: Rule | None) -> Rule:
    """Return a rule with the function's values and bounds; if there was a rule, it propagates the errors of the
    inputs.
    """

    def rule(call: Call) -> list[Any]:
        made: list[Any] = []
        if beneath is not None:
            made = beneath(call)
        inputs = [_exact(value, name, beneath is None) for value in call.given]
        floats = [np.asarray(one, np.float64) if one is not None and is_float(one.dtype) else one for one in inputs]
        try:
            given = list(_pairs(function(dict(call.attributes), floats), call.outputs))
        except Unproved:
            raise
        except Exception as error:  # the caller's function may raise anything
            text = f"{type(error).__name__}: {first_line(error)}"
            raise Unproved(f"the caller's function for {name} fails: {text}") from None
        dtype = next((one.dtype for one in inputs if one is not None and is_float(one.dtype)), np.dtype(np.float32))
        bounded = [_given(value, bound, dtype) for value, bound in given]
        return [_joined(one, made[i] if i < len(made) else None, call.types) for i, one in enumerate(bounded)]

    return rule


def _exact(value: Any, name: str, needed: bool = True) -> Array | None:
    """Return an input as an array. Raise Unproved if it is not a tensor, Undecided if it has an error the function
    cannot propagate.
    """
    if value is None:
        return None
    if not isinstance(value, Bounded):
        raise Unproved(f"an input of {name} is no tensor")
    if needed and value.error is not None and np.any(value.error > 0):
        raise Undecided(f"no rule says what {name} makes of its inputs' errors")
    array = array_of(value)
    return array if array is not None else np.asarray(value.value)


def _pairs(result: Any, count: int) -> Iterator[tuple[Any, Any]]:
    """Yield each output with its bound or None. Raise ValueError if their number is wrong."""
    alone = not isinstance(result, list | tuple) or (count == 1 and isinstance(result, tuple) and len(result) == 2)
    outputs = [result] if alone else list(result)
    if len(outputs) != count:
        raise ValueError(f"expected {count} outputs, given {len(outputs)}")
    for one in outputs:
        yield one if isinstance(one, tuple) and len(one) == 2 else (one, None)


def _given(value: Any, bound: Any, dtype: Any) -> Bounded:
    array = np.asarray(value)
    if array.dtype == object:
        raise Unproved("the caller's function gives what is no tensor")
    error = None if bound is None else np.array(np.broadcast_to(np.asarray(bound, np.float64), array.shape))
    if error is not None and not (error >= 0).all():
        raise Unproved("the caller's function gives a bound below 0")
    double = array.dtype == np.float64
    return Bounded(array, error, dtype if double else array.dtype)


def _joined(given: Bounded, made: Any, types: Types) -> Bounded:
    """Return the given values with the rule's error and type."""
    if not isinstance(made, Bounded) or made.shape != given.shape or made.is_float != given.is_float:
        return given
    joined = Bounded(given.value, types.joined(given.error, made.error), made.dtype, made.stored, made.constant)
    return joined.with_sides(made.sides)
