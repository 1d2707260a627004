"""Tracks how errors propagate through a model: where they arise, and which nodes amplify them (rule V12)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...base.element_types import Array
from ..reference.reference_model import ReferenceNode
from ..report.accuracy import find_loosest_bound
from ..report.deviation import find_overflowing_number
from ..report.findings import Finding
from ..rules.bounded_tensor import BoundedTensor
from ..rules.float_types import FloatType, ProgramTypes, is_float
from ..rules.lazy_values import iter_block_pairs

_MIN_AMPLIFICATION = 8.0  # minimum amplification of the relative error that is reported
_ILL_CONDITIONED_SHARE = 0.1  # an output whose bound exceeds this share of its scale is ill-conditioned
_MAX_CHOICES = 8  # maximum number of choices tracked per tensor
# Operators whose integer outputs are rounded floats.
_QUANTIZATION_OPERATORS = {
    "ConvInteger",
    "DynamicQuantizeLinear",
    "MatMulInteger",
    "QLinearConv",
    "QLinearMatMul",
    "QuantizeLinear",
}
_MIN_ERROR_UNITS = 64.0  # minimum relative error, in roundings, of a result that is analysed


class PropagatedError(NamedTuple):
    """Relative error of a tensor that was computed from the model's inputs, its producer, and the origin of the error.

    amplification: this error divided by the error of the inputs; both are capped at 1, at which all precision is lost.
    changed_choices: number of booleans, indices and integers that differ on the device. choices: which of this tensor and
    the tensors that it depends on have such differences.
    """

    relative_error: float
    node: str
    op: str
    amplification: float
    source: str  # the input with the largest relative error
    flushed: int  # number of elements that are zero on the device, but should be subnormal in its type
    size: int
    changed_choices: int
    choices: tuple[str, ...]


def compute_relative_error(actual: Array, expected: BoundedTensor) -> float:
    """Return the largest error of a tensor, divided by its largest expected magnitude."""
    if actual.shape != expected.shape or not actual.size or not expected.is_float:
        return 0.0
    scale = worst = 0.0
    for _, array, block in iter_block_pairs(actual, expected):
        with np.errstate(all="ignore"):
            actual64, value = np.asarray(array, np.float64), block.value
            errors = np.abs(actual64 - value)
            farthest = float(errors.max())
            if farthest < math.inf:  # false if any error is infinite or NaN
                scale = max(scale, abs(float(value.max())), abs(float(value.min())))
                worst = max(worst, farthest)
                continue
            errors = np.where((actual64 == value) | (np.isnan(actual64) & np.isnan(value)), 0.0, errors)
            finite = np.abs(value[np.isfinite(value)])
            scale = max(scale, float(finite.max(initial=0.0)))
            worst = max(worst, float(np.max(np.where(np.isnan(errors), np.inf, errors), initial=0.0)))
    if worst == 0:
        return 0.0
    return worst / scale if scale > 0 else math.inf


def _count_flushed(actual: Array, expected: BoundedTensor, storage: FloatType) -> int:
    """Return the number of elements that are zero on the device but subnormal in the reference."""
    if np.count_nonzero(actual) == actual.size:
        return 0
    size = np.abs(expected.value)
    return int(((np.asarray(actual, np.float64) == 0) & (size > 0) & (size < storage.normal)).sum())


def _count_changed_choices(op: str, actual: Array, expected: BoundedTensor) -> int:
    """Return the number of choices that differ on the device. One quantisation step counts as rounding, not as a choice."""
    if actual.shape != expected.shape or actual.dtype.kind not in "biu" or op in _QUANTIZATION_OPERATORS:
        return 0
    return sum(int(np.not_equal(array, block.value).sum()) for _, array, block in iter_block_pairs(actual, expected))


def make_overflow_finding(
    node: str, actual: Array, expected: BoundedTensor, types: ProgramTypes, precision: str
) -> Finding | None:
    """Return a finding if a number overflows storage, unless the program keeps the tensor in a wider type."""
    over = find_overflowing_number(expected, types)
    if over is None or not is_float(actual.dtype):
        return None
    largest = types.get_storage_type(expected.dtype).largest
    with np.errstate(all="ignore"):
        size = np.abs(actual)
    if bool(((size > largest) & (size < np.inf)).any()):
        return None
    number = f"{over:,.0f}" if abs(over) < 1e12 else f"{over:.3g}"
    return Finding("overflow", node, f"{precision} overflow: {number} in {expected.dtype} at node '{node}'", over)


def iter_ill_conditioned_findings(
    output: str, expected: BoundedTensor, scale: Array | None, case: int
) -> Iterator[Finding]:
    """Yield a finding if an output's bound is a large share of its scale. scale: by default one per sample."""
    if not expected.is_float or not expected.size:
        return
    bound, scale_there = find_loosest_bound(expected, scale)
    if bound > _ILL_CONDITIONED_SHARE * scale_there:
        text = f"output '{output}' may be off by {bound:.2g} at this precision, where its scale is {scale_there:.3g}"
        yield Finding("ill-conditioned", output, text, bound / scale_there if scale_there else math.inf, case)


class ErrorPropagation:
    """Records the relative errors of all tensors of a case, and derives findings from them."""

    def __init__(self) -> None:
        self._by_tensor: dict[str, PropagatedError] = {}

    def add(
        self, node: ReferenceNode, output: str, actual: Array, expected: BoundedTensor, types: ProgramTypes
    ) -> None:
        """Add an output of a node. types: the types in which the node computes."""
        relative = compute_relative_error(actual, expected)
        source, read = "", 0.0
        for name in node.inputs:
            if name in self._by_tensor and self._by_tensor[name].relative_error > read:
                source, read = name, self._by_tensor[name].relative_error
        storage = types.get_storage_type(expected.dtype) if expected.is_float else None
        amplified = min(relative, 1.0) / max(read, storage.unit if storage else 0.0) if read > 0 else 0.0
        flushed = 0
        if storage and actual.shape == expected.shape:
            flushed = sum(
                _count_flushed(array, block, storage) for _, array, block in iter_block_pairs(actual, expected)
            )
        changed_choices = 0 if expected.is_float else _count_changed_choices(node.op, actual, expected)
        before = [choice for name in node.inputs if name in self._by_tensor for choice in self._by_tensor[name].choices]
        choices = tuple(dict.fromkeys([*before, *([output] if changed_choices else [])]))[:_MAX_CHOICES]
        self._by_tensor[output] = PropagatedError(
            relative, node.name, node.op, amplified, source, flushed, actual.size, changed_choices, choices
        )

    def find_path_to_origin(self, output: str) -> list[PropagatedError]:
        """Return the path from a result back to the origin of its error, along the inputs with the largest error."""
        path: list[PropagatedError] = []
        seen: set[str] = set()
        while output in self._by_tensor and output not in seen:
            seen.add(output)
            path.append(self._by_tensor[output])
            output = self._by_tensor[output].source
        return path

    def iter_findings(self, output: str, case: int, unit: float) -> Iterator[Finding]:
        """Yield findings about nodes that amplified a result's error, and choices before it that differ on the device."""
        for name in self._by_tensor[output].choices if output in self._by_tensor else ():
            error = self._by_tensor[name]
            places = f"{error.changed_choices} of {error.size} places"
            text = f"node '{error.node}' ({error.op}) chooses otherwise at {places}, for {self._describe_input_error(error)}"
            yield Finding("amplified", error.node, text, error.changed_choices, case)
        path = self.find_path_to_origin(output)
        if not path or not path[0].relative_error > _MIN_ERROR_UNITS * unit:
            return
        worst = max(path, key=lambda error: error.amplification)
        if worst.amplification >= _MIN_AMPLIFICATION:
            text = (
                f"node '{worst.node}' makes {self._describe_input_error(worst, f' one of {worst.relative_error:.2g}')}"
            )
            yield Finding("amplified", worst.node, text, worst.amplification, case)
        # Start at the origin of the error: flushed zeros stay zero in later nodes.
        for index in range(len(path) - 1, -1, -1):
            error, is_amplified = path[index], index > 0 and path[index - 1].amplification >= _MIN_AMPLIFICATION
            if error.flushed and (error.relative_error > _MIN_ERROR_UNITS * unit or is_amplified):
                text = f"{error.flushed} elements of node '{error.node}' are zero on the device, and are not"
                yield Finding("underflow", error.node, text, error.flushed, case)
                return

    def _describe_input_error(self, error: PropagatedError, suffix: str = "") -> str:
        """Return a phrase about the error in a node's input and the origin of that error."""
        if error.source not in self._by_tensor:
            return f"what is lost where the model's inputs are rounded{suffix}"
        before = self._by_tensor[error.source]
        origin = next(
            (entry for entry in self.find_path_to_origin(error.source) if not entry.source or entry.amplification > 2),
            before,
        )
        return f"a relative error of {before.relative_error:.2g}{suffix}; the small error is of node '{origin.node}'"
