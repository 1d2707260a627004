"""Checks each node on the reference's values, in a program of one node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..base.element_types import Array
from ..base.string_indices import KeptStrings
from ..model.model import Model
from ..model.precision_policy import Precision
from .oracle import Against, exactly
from .bounds.bounded import Bounded
from .bounds.registry import Unproved, Value
from .bounds.rule_runner import constant, given_input
from .bounds.float_types import FloatType, Types, float_type, is_float, name_of
from .live_values import Carried
from .error_propagation import overflow_of
from .subgraph import MissingTensor, cut
from .loop_limits import loop_timeout
from .options import Options
from .model_validation import Proof
from .reference import Reference, ReferenceNode
from .report_rows import ValidationRow
from .load_setup import Setup
from .streaming import CANNOT, Held, told_additions
from .work import Work

NOT_RUN = (
    "each node ran by itself, an If, a Loop or a Scan with its bodies as one, on the reference's values as the program would store them: "
    "the program as it ships did not run, so that nothing is said of its kernels and outputs"
)


class Ran(NamedTuple):
    """Results of a single-node program and the additions in its sums; `why` if it cannot run."""

    tensors: dict[str, Array]
    additions: Mapping[str, int]
    why: str = ""


class SingleNodes:
    """Single-node programs, each compiled for its inputs and closed before the next one."""

    absent = ""
    single = True
    strings: KeptStrings | None = None

    def __init__(self, model: Model) -> None:
        self.types: Precision | Types = model.policy
        self.loop_timeout = loop_timeout(model.source, model.folder)
        self._setup = Setup(model.context, model.precision, fuse=False, kernels=model.kernel_table)

    def run(
        self, reference: Reference, node: ReferenceNode, given: Mapping[str, Any], constants: Mapping[str, Array]
    ) -> Ran:
        """Run a node. given: inputs from other nodes. constants: those that depend only on constants."""
        try:
            return self._run(reference, node, given, constants)
        except MissingTensor as error:
            return Ran({}, {}, str(error))
        except CANNOT as error:
            # As in the whole model, the engine may need sizes and indices before it runs.
            whole = {name: one for name, one in given.items() if isinstance(one, np.ndarray) and is_float(one.dtype)}
            if len(whole) == len(given):
                return Ran({}, {}, _cannot(error))
            known = {**constants, **{name: one for name, one in given.items() if name not in whole}}
        try:
            return self._run(reference, node, whole, known)
        except (MissingTensor, *CANNOT) as error:
            return Ran({}, {}, _cannot(error))

    def _run(
        self, reference: Reference, node: ReferenceNode, given: Mapping[str, Any], constants: Mapping[str, Array]
    ) -> Ran:
        part = cut(reference, [node.name], given, node.outputs, constants)
        with self._setup._replace(precision=node.precision).load(part.proto) as model:
            names = [one.name for one in model.program.inputs]
            inputs = dict(zip(names, model._kept_arguments(**part.inputs), strict=True))
            made = dict(model.program(inputs, loop_timeout=self.loop_timeout))
            made = model._kept_strings.texts(made) if model._kept_strings else made
            return Ran(made, told_additions(model.program, inputs))

    def set_float32(self, reference: Reference) -> None:
        """No-op: a node runs at its precision in the policy."""

    def tensors(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return {}: each node gets the reference's inputs instead."""
        return {}

    def stream(self, inputs: dict[str, Array], reference: Reference) -> Held:
        """Return an empty mapping: each node gets the reference's inputs instead."""
        return Held()

    def additions(self, inputs: dict[str, Array]) -> dict[str, int]:
        """Return {}: each program reports its additions."""
        return {}

    def work(self, inputs: dict[str, Array]) -> dict[str, Work]:
        """Return {}: no program has all nodes, so work is not counted."""
        return {}

    def results(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return {}: the optimised program does not run."""
        return {}

    def check_indices(self, inputs: dict[str, Array]) -> None:
        """No-op: the rules check the nodes' indices."""

    def close(self) -> None:
        """No-op: each program is closed after its node."""


def _cannot(error: BaseException) -> str:
    return f"it does not run by itself: {error}"


class ReferenceValues:
    """The reference's values from the model's inputs on, in float32 or a wider declared type."""

    def __init__(self, reference: Reference, given: Mapping[str, Any]) -> None:
        self._reference = reference
        self._runner = reference.runner.with_types(reference.types.for_values())
        self._held: dict[str, Any] = dict(given)
        self._dtypes: dict[str, Any] = {}
        self._stored: dict[str, str] = {}  # precision of the node that computes the tensor
        self.folded: set[str] = set()

    def forget(self, name: str) -> None:
        """Drop a value after its last reader."""
        self._held.pop(name, None)

    def given(self, node: ReferenceNode) -> dict[str, Any]:
        """Return a node's inputs, rounded to storage, in their declared types.

        Finite numbers beyond a type saturate: with infinite inputs, the result would not show whether the node is
        right.
        """
        made = {}
        for name in node.inputs:
            if name not in self._held:
                continue
            value = self._held[name]
            if name not in self.folded and isinstance(value, np.ndarray) and is_float(value.dtype):
                value = self._rounded(name, value, node)
            elif name in self.folded and isinstance(value, np.ndarray):
                value = value.astype(self._dtypes[name], copy=False)
            made[name] = value
        return made

    def _rounded(self, name: str, value: Array, node: ReferenceNode) -> Array:
        dtype = np.dtype(self._dtypes.get(name, value.dtype))
        precisions = (self._stored.get(name, node.precision), node.precision)
        kept = [self._reference.types.at(one).storage(dtype) for one in precisions]
        return _nearest(value, [*kept, float_type(str(dtype))]).astype(dtype)

    def follow(self, node: ReferenceNode, made: Mapping[str, Array]) -> None:
        """Evaluate a node; if no rule covers it, continue from the device's results `made`."""
        try:
            results = node.run({name: self._value(name) for name in node.inputs}, self._runner)
        except (Unproved, IndexError, KeyError, MemoryError):
            results = {}
        for name in node.outputs:
            value = results.get(name)
            if value is None and name not in made:
                continue
            self._held[name] = _plain(value) if value is not None else made[name]
            self._dtypes[name] = value.dtype if isinstance(value, Bounded) else getattr(made.get(name), "dtype", None)
            self._stored[name] = node.precision
            if node.folded:
                self.folded.add(name)

    def _value(self, name: str) -> Value:
        """Return a value as an exact Bounded. Raise KeyError if there is none."""
        if name not in self._held:
            return exactly(self._reference.held(name))
        value = self._held[name]
        if isinstance(value, np.ndarray):
            return Bounded(value, None, self._dtypes.get(name, value.dtype), True, name in self.folded)
        return given_input(value, self._runner.types)


def _plain(value: Value) -> Any:
    """Return a value as an array, in float32 unless the declared type is wider."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, Bounded) or not value.is_float:
        return value.value if isinstance(value, Bounded) else value
    wide = np.dtype(np.float64 if value.dtype == np.float64 else np.float32)
    return _nearest(value.value, [float_type(str(wide))]).astype(wide)


def _nearest(value: Array, types: Iterable[FloatType]) -> Array:
    """Round to the nearest finite number of each type in turn; infinity and NaN are kept."""
    made = np.asarray(value, np.float64)
    for one in types:
        made = np.where(np.isfinite(made), one.rounded(np.clip(made, -one.largest, one.largest)), made)
    return made


class ReferenceInputs(Proof):
    """Checks nodes on their own, on the reference's values."""

    def __init__(self, fused: Model, options: Options, against: Against) -> None:
        self._nodes = SingleNodes(fused)
        super().__init__(fused, options, against, self._nodes)

    @property
    def refused(self) -> str:
        """Why kernels are not checked."""
        return NOT_RUN

    def run(self, inputs: dict[str, Array], given: dict[str, Any], case: int, step: Callable[[], None]) -> None:
        """Check every node of a case."""
        constants = self.reference.constants
        values = ReferenceValues(self.reference, {k: v for k, v in given.items() if k not in constants or k in inputs})
        self._case = case
        step()
        for index, node in enumerate(self.reference.nodes):
            values.follow(node, self._by_itself(node, values, case))
            for name in self._readers.get(index, ()):
                values.forget(name)
            step()

    def _by_itself(self, node: ReferenceNode, values: ReferenceValues, case: int) -> dict[str, Array]:
        """Check a node and return the device's results."""
        given = values.given(node)
        constants = {name: given.pop(name) for name in values.folded.intersection(given)}
        ran = self._nodes.run(self.reference, node, given, constants)
        types = self.reference.runner.at(node.precision).types
        alone = Carried(self.reference, self.reference.runner, {})
        alone.held = {name: given_input(one, types) for name, one in given.items()}
        alone.held.update((name, constant(one, types)) for name, one in constants.items())
        alone.additions, alone.stored = ran.additions, ran.tensors
        local, note = self._evaluated(node, alone, {}, case)
        for one in self.ranges.of_node(node, alone, local or {}, ran.tensors):
            self._find(one._replace(case=case))
        for name in node.outputs:
            self._judge_output(node, name, ran, (local or {}).get(name), note)
        return ran.tensors

    def _judge_output(self, node: ReferenceNode, name: str, ran: Ran, expected: Value, note: str) -> None:
        if name not in ran.tensors:
            if node.folded and not note:
                return  # folded before the program runs
            row = ValidationRow(node.name, node.op, name, "", (), self._case, None, None, note or ran.why)
            if isinstance(expected, Bounded):
                row = row._replace(dtype=name_of(expected.dtype), shape=expected.shape)
            waived = self.options.allows(node.op, node.operator, node.name, name)
            self._keep(row._replace(unproved=(node.name,), waived=waived))
            return
        actual = ran.tensors[name]
        if isinstance(expected, Bounded):
            types = self.reference.types.at(node.precision)
            if found := overflow_of(node.name, actual, expected, types, self.fused.precision):
                self._find(found._replace(case=self._case))
        self._judge(node, name, actual, self._near(node, name, actual, expected), None, note)
