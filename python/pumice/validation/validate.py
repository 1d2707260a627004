"""Node by node against a reference: is every node right by itself, and is the whole program?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from .._pumice import Context, IndexRangeError, Program
from ..base.element_types import Array
from ..base.errors import InputError, unsupported_error
from ..base.log import forward_log
from ..importer.file.model_file import Source
from ..importer.load import load_graph
from ..model.model import Model
from .reference import Reference, ReferenceNode
from .report import Deviation, ValidationReport, ValidationRow, deviation

Case: TypeAlias = "Sequence[Any] | Mapping[str, Any] | Array"
Progress: TypeAlias = Callable[[int, int], None]

# Largest error over the largest magnitude of a tensor: of a node by itself, and of everything up to it.
_LOCAL = {"fp32": 2e-5, "fp16": 4e-3, "bf16": 3.2e-2}
_ACCUMULATED = {"fp32": 2e-4, "fp16": 2e-2, "bf16": 0.16}
_FLOAT_PRECISION = {"float16": "fp16", "bfloat16": "bf16"}


def _tolerance(table: dict[str, float], precision: str, array: Array) -> float:
    """Of the coarser of the program's precision and the tensor's own type; 0 for what has to be equal."""
    if array.dtype.kind in "biu":
        return 0.0
    own = _FLOAT_PRECISION.get(str(array.dtype), precision)
    return max(table[precision], table[own])


class _Validation:
    """A program that keeps every tensor, the fused program, and the reference beside them."""

    def __init__(self, fused: Model) -> None:
        graph, _ = load_graph(fused.source, fused.folder, None, [value.name for value in fused.overridable])
        self.fused = fused
        self.precision = fused.precision
        self.every: Program = graph.compile(fused.context, fused.precision, keep_all=True, fuse=False)
        self.checking: Program | None = graph.compile(fused.context, fused.precision, check_indices=True)
        if not self.checking.checks_indices:
            self.checking.close()
            self.checking = None
        self.faults: dict[str, tuple[int, str]] = {}  # by node: the first case, and what is wrong
        self.reference = Reference(fused.source, fused.folder)
        self.rows: dict[tuple[str, str, str], ValidationRow] = {}

    def run(self, inputs: dict[str, Array], given: dict[str, Any], case: int, step: Callable[[], None]) -> None:
        ours: dict[str, Any] = {**self.reference.constants, **given, **self.every(inputs, loop_timeout=None)}
        chain: dict[str, Any] = {**self.reference.constants, **given}
        self._check_indices(inputs, case)
        step()
        for node in self.reference.nodes:
            self._check_node(node, ours, chain, case)
            step()
        chain.update(self.fused.packed_outputs(chain))
        try:
            results = self.fused.program(inputs, loop_timeout=None)
        except IndexRangeError:  # of a model that was loaded so; it is among the faults
            return
        for name, result in results.items():
            self._check_output(name, result, chain.get(name), case)

    def _check_indices(self, inputs: dict[str, Array], case: int) -> None:
        """Those that only the device knows; the reference fails at others, or takes them for indices from the end."""
        try:
            if self.checking:
                self.checking(inputs, loop_timeout=None)
        except IndexRangeError as error:
            self.faults.setdefault(error.node, (case, str(error)))

    def close(self) -> None:
        self.every.close()
        if self.checking:
            self.checking.close()

    def _check_node(self, node: ReferenceNode, ours: dict[str, Array], chain: dict[str, Array], case: int) -> None:
        if node.incomparable:
            self._skip(node, ours, chain, case, node.incomparable)
            return
        try:
            accumulated, local = node.run(chain), node.run(ours)
        except Exception as error:  # whatever the reference cannot do
            self._skip(node, ours, chain, case, f"the reference fails: {error}")
            return
        chain.update(accumulated)
        for name in node.outputs:
            if name in ours:
                row = self._row(node, name, ours[name], case)
                errors = (
                    self._deviation(ours[name], local[name], _LOCAL),
                    self._deviation(ours[name], accumulated[name], _ACCUMULATED),
                )
                self._keep(row._replace(local=errors[0], accumulated=errors[1]))
            else:
                ours[name] = local[name]
                if isinstance(local[name], np.ndarray):  # no sequence
                    self._keep(self._row(node, name, local[name], case, "not made by the program"))

    def _skip(self, node: ReferenceNode, ours: dict[str, Array], chain: dict[str, Array], case: int, note: str) -> None:
        """Goes on with the device's own results."""
        for name in node.outputs:
            if name in ours:
                chain[name] = ours[name]
                self._keep(self._row(node, name, ours[name], case, note))

    @staticmethod
    def _row(node: ReferenceNode, output: str, array: Array, case: int, note: str = "") -> ValidationRow:
        return ValidationRow(node.name, node.op, output, str(array.dtype), array.shape, case, None, None, note)

    def _deviation(self, actual: Array, expected: Array, table: dict[str, float]) -> Deviation:
        return deviation(actual, expected, _tolerance(table, self.precision, actual))

    def _check_output(self, name: str, result: Array, expected: Array | None, case: int) -> None:
        row = ValidationRow(name, "output", name, str(result.dtype), result.shape, case, None, None)
        if expected is None:
            self._keep(row._replace(note="the reference has no such value"))
        else:
            self._keep(row._replace(accumulated=self._deviation(result, expected, _ACCUMULATED)))

    def _keep(self, row: ValidationRow) -> None:
        """The worst case of each row."""
        key = (row.op, row.node, row.output)
        if key not in self.rows or row.severity > self.rows[key].severity:
            self.rows[key] = row

    def report(self, cases: int) -> ValidationReport:
        rows = sorted(self.rows.values(), key=lambda row: row.op == "output")
        for node, (case, fault) in self.faults.items():
            own = [i for i, row in enumerate(rows) if row.node == node and row.op != "output"]
            for i in own:
                rows[i] = rows[i]._replace(case=case, fault=fault)
            if not own:  # it is in a body or a branch
                rows.insert(0, ValidationRow(node, "indices", "", "", (), case, None, None, "", fault))
        return ValidationReport(self.fused.name, self.fused.device.name, self.precision, cases, rows)


def _by_name(model: Model, case: Case) -> tuple[dict[str, Array], dict[str, Any]]:
    """The checked inputs of one case: of the program, and as the model names them. An array alone stands for the only input."""
    positional: Sequence[Any] = ()
    named: Mapping[str, Any] = {}
    if isinstance(case, Mapping):
        named = case
    elif isinstance(case, np.ndarray) or not isinstance(case, Sequence):
        positional = [case]
    else:
        positional = case
    arrays = model.arguments(*positional, **named)
    inputs = {value.name: array for value, array in zip(model.program.inputs, arrays, strict=True)}
    return inputs, {**model.named(*positional, **named), **inputs}


def validate(
    model: Model | Source,
    cases: Iterable[Case],
    *,
    context: Context | None = None,
    precision: str | None = None,
    progress: Progress | None = None,
) -> ValidationReport:
    """Compares every tensor of the model with onnx's reference implementation, and the fused program's outputs as well.

    Each case is a tuple of inputs, a dict by name, or the only input. A node is judged by what it makes of the inputs that the
    device computed, so that the first divergence is where the fault is. An index out of range that only the device knows is a fault
    of the node that reads it. `context` and `precision`: by default those of a model that is loaded, else the default context and
    "fp32"; a loaded model of others is loaded once more for the validation.
    Raises BindingError for wrong inputs, UnsupportedError, GraphError.
    """
    if not isinstance(model, Model):
        with Model(model, context, "fp32" if precision is None else precision) as loaded:
            return validate(loaded, cases, progress=progress)
    if (context or model.context) is not model.context or (precision or model.precision) != model.precision:
        with model.loaded_again(context, precision) as other:
            return validate(other, cases, progress=progress)
    if strings := [str(value) for value in (*model.inputs, *model.outputs) if value.dtype == object]:
        raise unsupported_error(f"validation of model '{model.name}'", strings)
    inputs = [_by_name(model, case) for case in cases]
    if not inputs:
        raise InputError("validate: expected at least one case, given none")
    validation = _Validation(model)
    total = len(inputs) * (len(validation.reference.nodes) + 1)
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    try:
        for index, (arrays, given) in enumerate(inputs):
            validation.run(arrays, given, index, step)
    finally:
        validation.close()
        forward_log()
    return validation.report(len(inputs))
