"""What a validation found: how far each tensor is from the reference, and the table of it all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..base.element_types import Array
from ..base.errors import validation_error

if TYPE_CHECKING:
    from rich.table import Table

_TEXT_WIDTH = 160
_COLUMNS = ("node", "op", "type", "error", "allowed", "accumulated", "result")
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
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(errors)), errors.shape)) if errors.shape else ()
    return Deviation(float(errors[at]), allowed, at, actual[at], expected[at])


class ValidationRow(NamedTuple):
    """One output of one node, in the case where it was worst; or an output of the fused program (op "output").

    `local`: from the inputs that the device made. `accumulated`: from the model's inputs on. A node is judged by `local`, an
    output of the program by `accumulated`. `note` says why there is no comparison, where there is none. A `fault` is wrong whatever came
    of it: an index out of range.
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
    fault: str = ""

    @property
    def judged(self) -> Deviation | None:
        return self.accumulated if self.op == "output" else self.local

    @property
    def ok(self) -> bool:
        return not self.fault and (self.judged is None or self.judged.ok)

    @property
    def checked(self) -> bool:
        return self.judged is not None

    @property
    def severity(self) -> float:
        if self.fault:
            return math.inf
        return self.judged.severity if self.judged else -1.0


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
        """For rich. Numbers are never cut; texts that are too long for the console are folded."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        title = f"'{self.model}' on {self.device}, {self.precision}"
        table = Table(title=Text(title), caption=self.verdict, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column in _COLUMNS:
            if column in ("error", "allowed", "accumulated"):
                table.add_column(column, justify="right", no_wrap=True)
            else:
                table.add_column(column, overflow="fold")
        for row in self.rows:
            table.add_row(*map(Text, _cells(row)), style=None if row.ok else "bold red")
        return table

    def __str__(self) -> str:
        from io import StringIO

        from rich.console import Console

        text = StringIO()
        Console(file=text, width=_TEXT_WIDTH, color_system=None).print(self.table(), markup=False)
        return f"{text.getvalue()}{self.summary}"

    def __repr__(self) -> str:
        return f"<ValidationReport {'ok' if self.ok else 'DIVERGED'}: {self.summary}>"

    def _repr_html_(self) -> str:
        from ..base.html import facts, table

        diverging = [i for i, row in enumerate(self.rows) if not row.ok]
        return facts(self.summary, {}) + table(_COLUMNS, map(_cells, self.rows), diverging)

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
    what = f"output '{row.output}'" if row.op == "output" else f"node '{row.node}' ({row.op}), output '{row.output}'"
    if row.fault or deviation is None:
        return f"{what}, case {row.case}: {row.fault}"
    where = f"{deviation.error:.3g} at {list(deviation.at)} ({deviation.actual} instead of {deviation.expected})"
    return f"{what}, case {row.case}: error {where}, allowed {deviation.allowed:.3g}"


def _cells(row: ValidationRow) -> list[str]:
    judged = row.judged
    shape = "x".join(map(str, row.shape))
    return [
        row.node if row.output == row.node else f"{row.node}: {row.output}",
        row.op,
        f"{row.dtype} {shape}".strip(),
        f"{judged.error:.2e}" if judged else "",
        f"{judged.allowed:.2e}" if judged else "",
        f"{row.accumulated.error:.2e}" if row.accumulated else "",
        row.fault or (("ok" if row.ok else "DIVERGES") if row.checked else f"not compared: {row.note}"),
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
        "fault": row.fault,
    }
