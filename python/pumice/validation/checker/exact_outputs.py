"""Computes the exact outputs of a model, in float64 from unrounded weights and inputs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from ...base.element_types import Array
from ..reference.reference_model import ReferenceModel
from ..report.accuracy import Inaccuracy, find_accuracy_violation
from ..rules.bounded_tensor import BoundedTensor, UnprovedError, Value
from ..rules.float_types import FLOAT32, ProgramTypes
from ..rules.rule_runner import UniformPrecisionRunner
from .live_values import LiveValues


class ExactOutputs:
    """Exact outputs of a case, for checking the accuracy limit of 16-bit programs.

    Bounds start from the program's rounded weights. Rounding weights is not a device error, but it affects the output.
    The outputs are evaluated on first use. They are not needed for fp32 programs, which round no weights.
    case_inputs: inputs of the case; None if there is not enough memory for another evaluation.
    """

    def __init__(self, reference: ReferenceModel, case_inputs: Mapping[str, Any] | None) -> None:
        self._reference = reference
        self._case_inputs = case_inputs
        self._outputs: dict[str, Value] | None = None

    def find_accuracy_violation(
        self,
        name: str,
        actual: Array,
        expected: BoundedTensor,
        limit: float | None,
        scale: Array | None,
        is_exact: bool,
    ) -> Inaccuracy | None:
        """Return the element of an output that exceeds the accuracy limit most; None without such an element or limit.

        is_exact: whether to compare with the exact value, if it is known, instead of `expected`. Elements that depend on
        undecided choices are always compared with `expected`.
        """
        if limit is None:
            return None
        return find_accuracy_violation(
            actual, self._get_exact_or_expected(name, expected) if is_exact else expected, limit, scale
        )

    def _get_exact_or_expected(self, name: str, expected: BoundedTensor) -> BoundedTensor:
        if self._outputs is None:
            self._outputs = self._evaluate()
        exact = self._outputs.get(name)
        if not isinstance(exact, BoundedTensor) or exact.shape != expected.shape or not exact.is_float:
            return expected
        if expected.alternatives is None:
            return exact
        value = np.where(expected.alternatives.mask, expected.materialize().value, exact.materialize().value)
        return BoundedTensor(value, expected.error, expected.dtype).set_alternatives(expected.alternatives)

    def _evaluate(self) -> dict[str, Value]:
        reference = self._reference
        if self._case_inputs is None or reference.types.get_storage_type(np.dtype(np.float32)).unit <= FLOAT32.unit:
            return {}
        runner = UniformPrecisionRunner(reference.runner.opsets, ProgramTypes("fp32").without_errors())
        runner.custom_rules = reference.runner.custom_rules
        values = LiveValues(reference, runner, self._case_inputs)
        readers = reference.find_last_readers(reference.outputs)
        for index, node in enumerate(reference.nodes):
            with suppress(
                UnprovedError, IndexError, KeyError, MemoryError
            ):  # then later nodes have no exact value either
                values.values.update(values.run(node))
            for name in readers.get(index, ()):
                values.forget(name)
        return values.get_live_values()
