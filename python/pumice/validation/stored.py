"""Results that were stored beside a model, against the device's: within the bounds of the reference and the rounding of what is stored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..base.element_types import Array
from ..model.model import Model
from .bounds.bounded import Bounded
from .bounds.registry import Undecided, Unproved, Value
from .bounds.run import given_input
from .bounds.types import SPREAD, Types, is_float
from .judge import UNPROVED, Deviation, judged
from .reference import Reference


class StoredRow(NamedTuple):
    """One output: how far the device's is from the stored one, and how far the stored one is from the reference."""

    output: str
    deviation: Deviation | None  # None where nothing was compared, of which `note` says why
    of_stored: Deviation | None
    note: str = ""

    @property
    def verdict(self) -> str:
        """ "right", "wrong" or "unproved"."""
        return self.deviation.verdict if self.deviation else UNPROVED

    def __str__(self) -> str:
        if self.deviation is None or self.verdict == UNPROVED:
            return f"output '{self.output}': unproved: {self.note or 'more than half of the elements have no bound'}"
        one = self.deviation
        text = (
            f"output '{self.output}': {one.actual} on the device, {one.expected} stored at {list(one.at)}: "
            f"apart by {one.error:.3g}, allowed {one.allowed:.3g}"
        )
        if self.of_stored and not self.of_stored.ok:
            far = self.of_stored
            text += (
                f"; the stored result itself is {far.error:.3g} from the reference ({far.expected}) at {list(far.at)}"
            )
        return text

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity: null stands for it, and for what was not compared."""
        numbers = (self.deviation.error, self.deviation.allowed) if self.deviation else (None, None)
        error, allowed = (one if one is not None and math.isfinite(one) else None for one in numbers)
        return {"output": self.output, "error": error, "allowed": allowed, "verdict": self.verdict, "note": self.note}


def compared(model: Model, inputs: Mapping[str, Any], stored: Mapping[str, Any]) -> list[StoredRow]:
    """Runs the model on one case, and compares its outputs with the stored ones.

    Element by element the two may be apart by what the reference in float64 allows the device at this precision, from the model's inputs
    on, and by one rounding to the stored array's type: |device - stored| <= bound + u |stored|. Integers and booleans are equal but for
    undecided choices. An output that the reference cannot bound is unproved. `inputs` and `stored`: by name; outputs that are not stored
    are left alone. Raises as a call of the model does.
    """
    results = model(**inputs)
    names = [value.name for value in model.outputs]
    made = dict(zip(names, [results] if len(names) == 1 else results, strict=True))
    reference = Reference(model.source, model.folder, model.precision)
    values, notes = _reference_values(reference, {**model.named(**inputs)})
    types = reference.chained.types
    return [_row(name, made[name], stored[name], values.get(name), notes, types) for name in names if name in stored]


def _reference_values(reference: Reference, given: Mapping[str, Any]) -> tuple[dict[str, Value], dict[str, str]]:
    """Everything that follows from the inputs, and by name why something does not."""
    runner = reference.chained
    values: dict[str, Value] = {
        **{name: reference.held(name, runner) for name in reference.constants},
        **{name: given_input(value, runner.types) for name, value in given.items()},
    }
    notes: dict[str, str] = {}
    for node in reference.nodes:
        if missing := next((notes[name] for name in node.inputs if name in notes), ""):
            notes.update(dict.fromkeys(node.outputs, missing))
            continue
        try:
            made = node.run(values, runner)
        except (Undecided, Unproved, IndexError, KeyError, MemoryError) as error:
            notes.update(dict.fromkeys(node.outputs, f"node '{node.name}': {error}"))
            continue
        for name, one in made.items():
            folded = node.folded and isinstance(one, Bounded)
            values[name] = Bounded(one.value, one.error, one.dtype, True, True) if folded else one  # type: ignore[union-attr]
    return values, notes


def _row(name: str, actual: Any, stored: Any, expected: Value, notes: Mapping[str, str], types: Types) -> StoredRow:
    if name in notes:
        return StoredRow(name, None, None, notes[name])
    if not isinstance(actual, np.ndarray) or not isinstance(stored, np.ndarray) or not isinstance(expected, Bounded):
        return StoredRow(name, None, None, "sequences and optional values are not compared with stored ones")
    about = Bounded(stored, _allowance(stored, expected, types), stored.dtype)
    return StoredRow(name, judged(actual, about, types), judged(stored, expected, types))


def _allowance(stored: Array, expected: Bounded, types: Types) -> Array | None:
    """The reference's bound and one rounding of what is stored; `judged` takes it SPREAD times where errors are independent ones."""
    if expected.shape != stored.shape:
        return None  # the shapes differ, which is what is told
    if not is_float(stored.dtype):
        return expected.error
    kept = types.read_back(stored.dtype)
    with np.errstate(all="ignore"):
        own = np.abs(np.asarray(stored, np.float64)) * kept.unit + kept.step
        own = np.where(np.isfinite(own), own, 0.0) / (SPREAD if types.independent else 1.0)
    return np.asarray(expected.errors() + own)
