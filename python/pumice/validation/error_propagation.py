"""How errors propagate through a model: where they arise, and which node amplifies them (rule V12)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..base.element_types import Array
from .accuracy import loosest
from .bounds.lazy_values import pairs
from .bounds.bounded import Bounded
from .bounds.float_types import FloatType, Types, is_float
from .deviation import overflowing
from .reference import ReferenceNode
from .report_rows import Finding

_AMPLIFIES = 8.0  # reported factor on the relative error
_ILL = 0.1  # bounds above this share of the scale are ill-conditioned
_CHOICES = 8  # maximum number of choices tracked per tensor
# Operators whose integer outputs are rounded floats.
_STEPS = {"ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul", "QuantizeLinear"}
_MATTERS = 64.0  # results with a relative error above this many roundings are analysed


class Drift(NamedTuple):
    """Relative error of a tensor from the model's inputs on, the node that computed it, and where the error came from.

    amplified: ratio of this error to the error of the inputs; both are capped at 1, where all precision is lost.
    turned: number of booleans, indices and integers that differ on the device. choices: this tensor and the tensors
    that it depends on, if they have such differences.
    """

    relative: float
    node: str
    op: str
    amplified: float
    source: str  # input with the largest relative error
    flushed: int  # elements that are zero only on the device, and subnormal in its type
    size: int
    turned: int
    choices: tuple[str, ...]


def relative_error(actual: Array, expected: Bounded) -> float:
    """Return the largest error divided by the largest magnitude."""
    if actual.shape != expected.shape or not actual.size or not expected.is_float:
        return 0.0
    scale = worst = 0.0
    for _, array, block in pairs(actual, expected):
        with np.errstate(all="ignore"):
            given, value = np.asarray(array, np.float64), block.value
            errors = np.abs(given - value)
            farthest = float(errors.max())
            if farthest < math.inf:  # not if any number is infinite or NaN
                scale = max(scale, abs(float(value.max())), abs(float(value.min())))
                worst = max(worst, farthest)
                continue
            errors = np.where((given == value) | (np.isnan(given) & np.isnan(value)), 0.0, errors)
            finite = np.abs(value[np.isfinite(value)])
            scale = max(scale, float(finite.max(initial=0.0)))
            worst = max(worst, float(np.max(np.where(np.isnan(errors), np.inf, errors), initial=0.0)))
    if worst == 0:
        return 0.0
    return worst / scale if scale > 0 else math.inf


def _flushed(actual: Array, expected: Bounded, kept: FloatType) -> int:
    """Return how many subnormal elements are zero only on the device."""
    if np.count_nonzero(actual) == actual.size:
        return 0
    size = np.abs(expected.value)
    return int(((np.asarray(actual, np.float64) == 0) & (size > 0) & (size < kept.normal)).sum())


def _turned(op: str, actual: Array, expected: Bounded) -> int:
    """Return how many choices differ on the device. A quantisation step counts as rounding, not as a choice."""
    if actual.shape != expected.shape or actual.dtype.kind not in "biu" or op in _STEPS:
        return 0
    return sum(int(np.not_equal(array, block.value).sum()) for _, array, block in pairs(actual, expected))


def overflow_of(node: str, actual: Array, expected: Bounded, types: Types, precision: str) -> Finding | None:
    """Return the finding of a number that overflows storage, unless the program kept the tensor in a wider type."""
    over = overflowing(expected, types)
    if over is None or not is_float(actual.dtype):
        return None
    largest = types.storage(expected.dtype).largest
    with np.errstate(all="ignore"):
        size = np.abs(actual)
    if bool(((size > largest) & (size < np.inf)).any()):
        return None
    number = f"{over:,.0f}" if abs(over) < 1e12 else f"{over:.3g}"
    return Finding("overflow", node, f"{precision} overflow: {number} in {expected.dtype} at node '{node}'", over)


def ill_conditioned(output: str, expected: Bounded, scale: Array | None, case: int) -> Iterator[Finding]:
    """Yield a finding if an output's bound is a large share of its scale (by default per sample)."""
    if not expected.is_float or not expected.size:
        return
    bound, scale_there = loosest(expected, scale)
    if bound > _ILL * scale_there:
        text = f"output '{output}' may be off by {bound:.2g} at this precision, where its scale is {scale_there:.3g}"
        yield Finding("ill-conditioned", output, text, bound / scale_there if scale_there else math.inf, case)


class Drifts:
    """The drift of every tensor of a case, and the findings from it."""

    def __init__(self) -> None:
        self._of: dict[str, Drift] = {}

    def add(self, node: ReferenceNode, output: str, actual: Array, expected: Bounded, types: Types) -> None:
        """Add a node's output, in the types of its precision."""
        relative = relative_error(actual, expected)
        source, read = "", 0.0
        for name in node.inputs:
            if name in self._of and self._of[name].relative > read:
                source, read = name, self._of[name].relative
        kept = types.storage(expected.dtype) if expected.is_float else None
        amplified = min(relative, 1.0) / max(read, kept.unit if kept else 0.0) if read > 0 else 0.0
        flushed = 0
        if kept and actual.shape == expected.shape:
            flushed = sum(_flushed(array, block, kept) for _, array, block in pairs(actual, expected))
        turned = 0 if expected.is_float else _turned(node.op, actual, expected)
        before = [one for name in node.inputs if name in self._of for one in self._of[name].choices]
        choices = tuple(dict.fromkeys([*before, *([output] if turned else [])]))[:_CHOICES]
        self._of[output] = Drift(relative, node.name, node.op, amplified, source, flushed, actual.size, turned, choices)

    def way(self, output: str) -> list[Drift]:
        """Return the path from a result back to the origin of its error, along the inputs with the largest error."""
        found: list[Drift] = []
        seen: set[str] = set()
        while output in self._of and output not in seen:
            seen.add(output)
            found.append(self._of[output])
            output = self._of[output].source
        return found

    def findings(self, output: str, case: int, unit: float) -> Iterator[Finding]:
        """Yield the nodes that amplified a result's error, and the choices before it that differ on the device."""
        for name in self._of[output].choices if output in self._of else ():
            one = self._of[name]
            text = f"node '{one.node}' ({one.op}) chooses otherwise at {one.turned} of {one.size} places, for {self._small(one)}"
            yield Finding("amplified", one.node, text, one.turned, case)
        way = self.way(output)
        if not way or not way[0].relative > _MATTERS * unit:
            return
        worst = max(way, key=lambda one: one.amplified)
        if worst.amplified >= _AMPLIFIES:
            text = f"node '{worst.node}' makes {self._small(worst, f' one of {worst.relative:.2g}')}"
            yield Finding("amplified", worst.node, text, worst.amplified, case)
        # Start where the error arose, because zeros from a flush stay zeros in later nodes.
        for place in range(len(way) - 1, -1, -1):
            one, is_amplified = way[place], place > 0 and way[place - 1].amplified >= _AMPLIFIES
            if one.flushed and (one.relative > _MATTERS * unit or is_amplified):
                text = f"{one.flushed} elements of node '{one.node}' are zero on the device, and are not"
                yield Finding("underflow", one.node, text, one.flushed, case)
                return

    def _small(self, one: Drift, made: str = "") -> str:
        """Return a phrase about the error in a node's input, and where it came from."""
        if one.source not in self._of:
            return f"what is lost where the model's inputs are rounded{made}"
        before = self._of[one.source]
        origin = next((each for each in self.way(one.source) if not each.source or each.amplified > 2), before)
        return f"a relative error of {before.relative:.2g}{made}; the small error is of node '{origin.node}'"
