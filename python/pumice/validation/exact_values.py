"""A model's exact outputs: in float64, of weights and inputs as they are given, whatever the program rounds them to."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from ..base.element_types import Array
from .accuracy import Inaccuracy, inaccuracy
from .bounds.bounded import Bounded
from .bounds.registry import Unproved, Value
from .bounds.run import SingleTypeRunner
from .bounds.types import FLOAT32, Types
from .carried import Carried
from .reference import Reference


class ExactOutputs:
    """The exact outputs of one case, with which the accuracy limit compares the outputs of a program in 16 bits.

    Bounds start from weights as the program rounds them. What that rounding does to an output is no error of the device, but it is one to
    whoever uses the output. They are evaluated once, when the first of them is asked for. A program in float32 rounds no weights and needs
    none. given: the inputs of the case; None if there is no memory for another evaluation.
    """

    def __init__(self, reference: Reference, given: Mapping[str, Any] | None) -> None:
        self._reference = reference
        self._given = given
        self._outputs: dict[str, Value] | None = None

    def inaccuracy(
        self, name: str, actual: Array, expected: Bounded, limit: float | None, scale: Array | None, is_exact: bool
    ) -> Inaccuracy | None:
        """Return the worst element of an output above the accuracy limit; None if there is none, or no limit.

        is_exact: compare with the exact value where there is one, else with `expected`. Elements of undecided choices are compared with
        `expected` in any case.
        """
        if limit is None:
            return None
        return inaccuracy(actual, self._of(name, expected) if is_exact else expected, limit, scale)

    def _of(self, name: str, expected: Bounded) -> Bounded:
        if self._outputs is None:
            self._outputs = self._evaluated()
        exact = self._outputs.get(name)
        if not isinstance(exact, Bounded) or exact.shape != expected.shape or not exact.is_float:
            return expected
        if expected.sides is None:
            return exact
        value = np.where(expected.sides.mask, expected.whole().value, exact.whole().value)
        return Bounded(value, expected.error, expected.dtype).with_sides(expected.sides)

    def _evaluated(self) -> dict[str, Value]:
        reference = self._reference
        if self._given is None or reference.types.storage(np.dtype(np.float32)).unit <= FLOAT32.unit:
            return {}
        runner = SingleTypeRunner(reference.runner.opsets, Types("fp32").for_values())
        runner.operators = reference.runner.operators
        values = Carried(reference, runner, self._given)
        readers = reference.last_readers(reference.outputs)
        for index, node in enumerate(reference.nodes):
            with suppress(Unproved, IndexError, KeyError, MemoryError):  # what follows has no exact value either
                values.held.update(values.run(node))
            for name in readers.get(index, ()):
                values.forget(name)
        return values.known()
