"""What becomes of errors on their way through a model: where they are made, and which node makes small ones large (rule V12)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..base.element_types import Array
from .bounds.blocks import pairs
from .bounds.bounded import Bounded
from .bounds.types import Types
from .rows import Finding

_AMPLIFIES = 8.0  # a node that makes a relative error this many times as large
_MATTERS = 64.0  # relative errors of a result from this many roundings on are looked into


class Drift(NamedTuple):
    """A Drift has a tensor's relative error from the model's inputs on, which node made it, and of which inputs it took the error."""

    relative: float
    node: str
    amplified: float
    source: str  # the tensor read with the largest relative error
    flushed: int  # elements that are zero on the device alone
    overflow: float | None


def relative_error(actual: Array, expected: Bounded) -> float:
    """The largest error in parts of the largest number."""
    if actual.shape != expected.shape or not actual.size or not expected.is_float:
        return 0.0
    scale = worst = 0.0
    for _, array, block in pairs(actual, expected):
        with np.errstate(all="ignore"):
            given, value = np.asarray(array, np.float64), block.value
            errors = np.where((given == value) | (np.isnan(given) & np.isnan(value)), 0.0, np.abs(given - value))
            finite = np.abs(value[np.isfinite(value)])
            scale = max(scale, float(finite.max(initial=0.0)))
            worst = max(worst, float(np.max(np.where(np.isnan(errors), np.inf, errors), initial=0.0)))
    if worst == 0:
        return 0.0
    return worst / scale if scale > 0 else math.inf


def _flushed(actual: Array, expected: Bounded) -> int:
    """How many elements are zero on the device alone."""
    return int(((np.asarray(actual, np.float64) == 0) & (expected.value != 0)).sum())


class Drifts:
    """The drift of every tensor of one case, and what it says of the results."""

    def __init__(self, types: Types) -> None:
        self.types = types
        self._of: dict[str, Drift] = {}

    def add(
        self, node: str, inputs: list[str], output: str, actual: Array, expected: Bounded, over: float | None
    ) -> None:
        """Enters a tensor that a node made; over: the number in it that the program's storage cannot hold."""
        relative = relative_error(actual, expected)
        source, largest = "", 0.0
        for name in inputs:
            if name in self._of and self._of[name].relative > largest:
                source, largest = name, self._of[name].relative
        unit = self.types.storage(expected.dtype).unit if expected.is_float else 0.0
        amplified = relative / max(largest, unit) if relative > 0 and largest > 0 else 0.0
        flushed = 0
        if expected.is_float and actual.shape == expected.shape:
            flushed = sum(_flushed(array, block) for _, array, block in pairs(actual, expected))
        self._of[output] = Drift(relative, node, amplified, source, flushed, over)

    def way(self, output: str) -> list[Drift]:
        """The way from a result back to where its error was made, at each node to the input that had the largest one."""
        found: list[Drift] = []
        seen: set[str] = set()
        while output in self._of and output not in seen:
            seen.add(output)
            found.append(self._of[output])
            output = self._of[output].source
        return found

    def findings(self, output: str, case: int, unit: float) -> list[Finding]:
        """What made the error of a result many roundings large."""
        way = self.way(output)
        if not way or not way[0].relative > _MATTERS * unit:
            return []
        found: list[Finding] = []
        worst = max(way, key=lambda one: one.amplified)
        if worst.amplified >= _AMPLIFIES:
            before = self._of[worst.source]
            origin = next((one for one in self.way(worst.source) if not one.source or one.amplified > 2), before)
            text = (
                f"node '{worst.node}' makes a relative error of {before.relative:.2g} one of {worst.relative:.2g}; the small error is of "
                f"node '{origin.node}'"
            )
            found.append(Finding("amplified", worst.node, text, worst.amplified, case))
        for one in way:
            if one.flushed and one.relative > _MATTERS * unit:
                text = f"{one.flushed} elements of node '{one.node}' are zero on the device, and are not"
                found.append(Finding("underflow", one.node, text, one.flushed, case))
                break
        return found
