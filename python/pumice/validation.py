"""Node by node against a reference: is every node right by itself, and is the whole program?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ._pumice import Context, Program
from .element_types import Array
from .errors import validation_error
from .graph_cache import load_graph
from .log import forward_log
from .model import Model
from .model_file import Source
from .reference import Reference, ReferenceNode

if TYPE_CHECKING:
    from rich.table import Table

Case: TypeAlias = "Sequence[Any] | Mapping[str, Any] | Array"
Progress: TypeAlias = Callable[[int, int], None]

# Largest error over the largest magnitude of a tensor: of a node by itself, and of everything up to it.
_LOCAL = {"fp32": 2e-5, "fp16": 4e-3, "bf16": 3.2e-2}
_ACCUMULATED = {"fp32": 2e-4, "fp16": 2e-2, "bf16": 0.16}
_FLOAT_PRECISION = {"float16": "fp16", "bfloat16": "bf16"}
_TEXT_WIDTH = 160
_LEAST_SCALE = 1e-6  # a tensor of zeros has to be met this closely, times the tolerance


class Deviation(NamedTuple):
    """How far a tensor is from the reference: the largest absolute error, where, and what is allowed."""

    error: float
    allowed: float
    at: tuple[int, ...]
    actual: Any
    expected: Any

    @property
    def ok(self) -> bool:
        return self.error <= self.allowed

    @property
    def severity(self) -> float:
        """Error over what is allowed: over 1 is too much."""
        if self.allowed > 0:
            return self.error / self.allowed
        return math.inf if self.error > 0 else 0.0


class ValidationRow(NamedTuple):
    """One output of one node, in the case where it was worst; or an output of the fused program (op "output").

    `local`: from the inputs that the device made. `accumulated`: from the model's inputs on. A node is judged by `local`, an
    output of the program by `accumulated`. `note` says why there is no comparison, where there is none.
    """

    node: str
    op: str
    output: str
    dtype: str
    shape: tuple[int, ...]
    case: int
    local: Deviation | None
    accumulated: Deviation | None
    note: str = ""

    @property
    def judged(self) -> Deviation | None:
        return self.accumulated if self.op == "output" else self.local

    @property
    def ok(self) -> bool:
        return self.judged is None or self.judged.ok

    @property
    def checked(self) -> bool:
        return self.judged is not None


class ValidationReport:
    """What a validation found: `rows` in graph order, the outputs of the fused program last."""

    def __init__(self, model: str, device: str, precision: str, cases: int, rows: list[ValidationRow]) -> None:
        self.model = model
        self.device = device
        self.precision = precision
        self.cases = cases
        self.rows = rows

    @property
    def ok(self) -> bool:
        return all(row.ok for row in self.rows)

    @property
    def first_divergence(self) -> ValidationRow | None:
        """The first row in graph order that is too far from the reference."""
        return next((row for row in self.rows if not row.ok), None)

    @property
    def unchecked(self) -> list[ValidationRow]:
        """Rows that could not be compared; their notes say why."""
        return [row for row in self.rows if not row.checked]

    @property
    def verdict(self) -> str:
        compared = f"{sum(row.checked for row in self.rows)} of {len(self.rows)} tensors compared"
        wrong = sum(not row.ok for row in self.rows)
        return f"{compared}, {f'{wrong} too far from the reference' if wrong else 'all within tolerance'}"

    @property
    def summary(self) -> str:
        """One line: what was compared, the verdict, and the first divergence."""
        cases = f"{self.cases} case{'' if self.cases == 1 else 's'}"
        first = self.first_divergence
        where = "" if first is None else f"; first {_divergence(first)}"
        return f"'{self.model}' on {self.device}, {self.precision}, {cases}: {self.verdict}{where}"

    def table(self) -> Table:
        """For rich."""
        from rich.table import Table

        title = f"'{self.model}' on {self.device}, {self.precision}"
        columns = ("node", "op", "output", "type", "error", "allowed", "accumulated", "result")
        table = Table(*columns, title=title, caption=self.verdict)
        for column in table.columns[4:7]:
            column.justify = "right"
        for row in self.rows:
            table.add_row(*_cells(row), style=None if row.ok else "bold red")
        return table

    def __str__(self) -> str:
        from io import StringIO

        from rich.console import Console

        text = StringIO()
        Console(file=text, width=_TEXT_WIDTH, color_system=None).print(self.table(), markup=False)
        return f"{text.getvalue()}{self.summary}"

    def __repr__(self) -> str:
        return f"<ValidationReport {'ok' if self.ok else 'DIVERGED'}: {self.summary}>"

    def raise_if_failed(self) -> None:
        """Raises ValidationError naming the first row that is too far from the reference."""
        first = self.first_divergence
        if first is not None:
            raise validation_error(first.node, self.summary)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        first = self.first_divergence
        return {
            "model": self.model,
            "device": self.device,
            "precision": self.precision,
            "cases": self.cases,
            "ok": self.ok,
            "first_divergence": None if first is None else first.node,
            "rows": [_record(row) for row in self.rows],
        }


def _divergence(row: ValidationRow) -> str:
    deviation = row.judged
    assert deviation is not None
    where = f"{deviation.error:.3g} at {list(deviation.at)} ({deviation.actual} instead of {deviation.expected})"
    what = f"output '{row.output}'" if row.op == "output" else f"node '{row.node}' ({row.op}), output '{row.output}'"
    return f"{what}, case {row.case}: error {where}, allowed {deviation.allowed:.3g}"


def _cells(row: ValidationRow) -> list[str]:
    judged = row.judged
    shape = "x".join(map(str, row.shape))
    return [
        row.node,
        row.op,
        row.output,
        f"{row.dtype} {shape}".strip(),
        f"{judged.error:.2e}" if judged else "",
        f"{judged.allowed:.2e}" if judged else "",
        f"{row.accumulated.error:.2e}" if row.accumulated else "",
        ("ok" if row.ok else "DIVERGES") if row.checked else f"not compared: {row.note}",
    ]


def _record(row: ValidationRow) -> dict[str, Any]:
    """JSON has no infinity: null stands for it, and for what was not compared."""

    def error(deviation: Deviation | None) -> float | None:
        return deviation.error if deviation and math.isfinite(deviation.error) else None

    return {
        "node": row.node,
        "op": row.op,
        "output": row.output,
        "dtype": row.dtype,
        "shape": list(row.shape),
        "case": row.case,
        "error": error(row.judged),
        "allowed": row.judged.allowed if row.judged else None,
        "index": list(row.judged.at) if row.judged else None,
        "accumulated": error(row.accumulated),
        "ok": row.ok,
        "note": row.note,
    }


# ---- comparing


def _tolerance(table: dict[str, float], precision: str, array: Array) -> float:
    """Of the coarser of the program's precision and the tensor's own type; 0 for what has to be equal."""
    if array.dtype.kind in "biu":
        return 0.0
    own = _FLOAT_PRECISION.get(str(array.dtype), precision)
    return max(table[precision], table[own])


def deviation(actual: Array, expected: Array, tolerance: float) -> Deviation:
    """By the tensor's largest finite magnitude, so that small numbers beside large ones are no false alarm."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        given, wanted = (f"{array.dtype}{list(array.shape)}" for array in (actual, expected))
        return Deviation(math.inf, 0.0, (), given, wanted)
    if expected.size == 0:
        return Deviation(0.0, 0.0, (), None, None)
    exact = tolerance == 0.0
    a, b = (array if exact else array.astype(np.float64) for array in (actual, expected))
    same = (a == b) | ((a != a) & (b != b))
    with np.errstate(all="ignore"):
        errors = np.where(same, 0.0, np.abs(a.astype(np.float64) - b.astype(np.float64)))
    errors[~same & ~np.isfinite(errors)] = np.inf
    if exact:
        errors[~same & (errors == 0)] = 1.0  # large integers that float64 cannot tell apart
    magnitudes = np.abs(b[np.isfinite(b)]) if not exact else np.zeros(0)
    allowed = tolerance * max(float(magnitudes.max(initial=0.0)), _LEAST_SCALE)
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(errors)), errors.shape))
    return Deviation(float(errors[at]), allowed, at, actual[at], expected[at])


def _severity(row: ValidationRow) -> float:
    return row.judged.severity if row.judged else -1.0


# ---- running


class _Validation:
    """A program that keeps every tensor, the fused program, and the reference beside them."""

    def __init__(self, source: Source, fused: Model) -> None:
        graph, _ = load_graph(source)
        self.fused = fused
        self.precision = fused.precision
        self.every: Program = graph.compile(fused.context, fused.precision, keep_all=True, fuse=False)
        self.reference = Reference(source)
        self.rows: dict[tuple[str, str, str], ValidationRow] = {}

    def run(self, inputs: dict[str, Array], case: int, step: Callable[[], None]) -> None:
        ours: dict[str, Array] = {**self.reference.constants, **inputs, **self.every(inputs)}
        chain: dict[str, Array] = {**self.reference.constants, **inputs}
        step()
        for node in self.reference.nodes:
            self._check_node(node, ours, chain, case)
            step()
        for name, result in self.fused.program(inputs).items():
            self._check_output(name, result, chain.get(name), case)

    def _check_node(self, node: ReferenceNode, ours: dict[str, Array], chain: dict[str, Array], case: int) -> None:
        if node.random:
            self._skip(node, ours, chain, case, "random")
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
        if key not in self.rows or _severity(row) > _severity(self.rows[key]):
            self.rows[key] = row

    def report(self, cases: int) -> ValidationReport:
        rows = sorted(self.rows.values(), key=lambda row: row.op == "output")
        return ValidationReport(self.fused.name, self.fused.device.name, self.precision, cases, rows)


def _by_name(model: Model, case: Case) -> dict[str, Array]:
    """The checked inputs of one case. An array alone stands for the only input."""
    if isinstance(case, Mapping):
        arrays = model.arguments(**case)
    elif isinstance(case, np.ndarray) or not isinstance(case, Sequence):
        arrays = model.arguments(case)
    else:
        arrays = model.arguments(*case)
    return {value.name: array for value, array in zip(model.inputs, arrays, strict=True)}


def validate(
    model: Model | Source,
    cases: Iterable[Case],
    *,
    context: Context | None = None,
    precision: str = "fp32",
    progress: Progress | None = None,
) -> ValidationReport:
    """Compares every tensor of the model with onnx's reference implementation, and the fused program's outputs as well.

    Each case is a tuple of inputs, a dict by name, or the only input. A node is judged by what it makes of the inputs that the
    device computed, so that the first divergence is where the fault is. `context` and `precision` are for a model that is not
    loaded yet; a loaded one keeps its own. Raises BindingError for wrong inputs, UnsupportedError, GraphError.
    """
    if not isinstance(model, Model):
        with Model(model, context, precision) as loaded:
            return validate(loaded, cases, progress=progress)
    inputs = [_by_name(model, case) for case in cases]
    validation = _Validation(model.source, model)
    total = len(inputs) * (len(validation.reference.nodes) + 1)
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    try:
        for index, case in enumerate(inputs):
            validation.run(case, index, step)
    finally:
        validation.every.close()
        forward_log()
    return validation.report(len(inputs))
