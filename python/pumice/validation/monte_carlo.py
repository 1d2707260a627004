"""Dependent errors: Monte Carlo samples of a model's roundings, propagated next to the reference's values.

Rules combine element errors by root-sum-square, which is wrong if elements share inputs: a GEMM that expands few
channels to many, followed by one that contracts them, adds up the effects of one rounding. To first order, roundings
r_s change a number by the sum of c_s r_s. If the roundings are independent, its standard deviation is the root of the
sum of (c_s r_s)^2. The factors c_s are unknown, but with random signs the mean square of the sum equals that sum of
squares. So a few extra values are propagated by the same rules, each with its own random rounding signs.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..base.element_types import Array
from .bounds.bounded import Bounded
from .bounds.registry import Unproved, Value
from .bounds.rule_runner import Runner
from .bounds.alternatives import Sides
from .bounds.float_types import FloatType, Types
from .reference import ReferenceNode

COUNT = 8  # number of samples
_POOLED = 32  # minimum elements per slice for a slice-wise deviation, which is then estimated from 256 values


class Samples:
    """`COUNT` alternative values of each tensor of a case, by name."""

    def __init__(self) -> None:
        self._of: dict[str, list[Array]] = {}
        self._runners: dict[Runner, Runner] = {}

    def copy(self) -> Samples:
        """Return a copy, to continue along another path."""
        made = Samples()
        made._of, made._runners = dict(self._of), self._runners
        return made

    def begin(self, given: Mapping[str, Value], types: Types) -> None:
        """Add the model's inputs; a whole input is either exact or rounded to storage."""
        for name, value in given.items():
            if isinstance(value, Bounded) and value.is_float and value.error is not None:
                self._of[name] = _either(name, value, types.storage(value.dtype))

    def pop(self, name: str) -> None:
        """Drop a tensor after its last reader."""
        self._of.pop(name, None)

    def run(self, node: ReferenceNode, values: Mapping[str, Value], runner: Runner) -> dict[str, Value]:
        """Evaluate a node and widen its errors to those of the samples. Raise whatever the node raises.

        Inputs without samples (sequences, tensors taken from the device) contribute independent errors.
        """
        made = node.run(values, runner)
        found: dict[str, list[Array]] = {
            name: []
            for name, one in made.items()
            if isinstance(one, Bounded) and one.is_float and one.size and one.error is not None
        }
        types = runner.at(node.precision).types
        inputs = {name: self._inputs(name, value, types) for name, value in values.items()}
        own: dict[str, _Own | None] = {}  # the node's own roundings, computed for the first sample
        for index in range(COUNT if found else 0):
            using = self._values_of(runner) if index else runner
            try:
                sample = node.run({name: several[index] for name, several in inputs.items()}, using)
            except (Unproved, IndexError, KeyError, MemoryError):
                return made
            for name in found:
                value, one = made[name], sample.get(name)
                assert isinstance(value, Bounded)
                if not isinstance(one, Bounded) or one.shape != value.shape:
                    return made
                if not index:
                    own[name] = _own(name, value, one)
                found[name].append(_moved(value, one, own[name], index))
        for name, moved in found.items():
            one = made[name]
            assert isinstance(one, Bounded)
            widened = _widened(one.errors(), moved)
            kept = Bounded(one.value, widened, one.dtype, one.stored, one.constant)
            made[name] = kept.with_sides(_sides(one, widened)).with_unrounded(one.unrounded)
            with np.errstate(all="ignore"):
                self._of[name] = [one.value + each for each in moved]
        return made

    def _values_of(self, runner: Runner) -> Runner:
        if runner not in self._runners:
            self._runners[runner] = runner.with_types(runner.types.for_values())
        return self._runners[runner]

    def _inputs(self, name: str, value: Value, types: Types) -> list[Value]:
        """Return a node's input for each sample. Constants get an error array of zeros, so that rules round them like
        kernels.
        """
        if not isinstance(value, Bounded) or not value.is_float or value.error is None:
            return [value] * COUNT
        arrays = self._of.get(name)
        if arrays is None and not value.constant:
            return [value] * COUNT
        if arrays is None:
            arrays = _either(name, value, types.constant(value.dtype))
        error = np.zeros(value.shape) if value.constant else None
        return [Bounded(one, error, value.dtype, value.stored, value.constant) for one in arrays]


def _either(name: str, value: Bounded, kept: FloatType) -> list[Array]:
    """Return samples of a tensor, half exact and half rounded: a kernel does one or the other for the whole tensor."""
    rounded = kept.rounded(value.value)
    rounded = np.where(np.isfinite(rounded), rounded, value.value)
    order = np.random.default_rng(zlib.crc32(name.encode())).permutation(COUNT)
    return [rounded if place < COUNT // 2 else value.value for place in order]


class _Own(NamedTuple):
    """A node's own roundings: their size, and random sign bits per element, one for each sample."""

    error: Array
    signs: Array


def _own(name: str, value: Bounded, sample: Bounded) -> _Own | None:
    """Return a node's own roundings of an output; None for constants, which are rounded on reading.

    Equal values in a tensor round alike.
    """
    if sample.error is None or value.constant:
        return None
    bits = np.ascontiguousarray(value.value, np.float64).view(np.uint64)
    # The low bits depend on the reference's summation order.
    mixed = (bits + np.uint64(1 << 15)) >> np.uint64(16)
    mixed = mixed ^ np.uint64(zlib.crc32(name.encode()) << 32)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # SplitMix64 finalizer
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    signs = np.asarray(mixed ^ (mixed >> np.uint64(31))).reshape(value.shape)
    return _Own(np.where(np.isfinite(sample.error), sample.error, 0.0), signs)


def _moved(value: Bounded, sample: Bounded, own: _Own | None, index: int) -> Array:
    """Return the sample's difference from the value, including the node's own roundings; 0 if it is not finite."""
    with np.errstate(all="ignore"):
        moved = sample.value - value.value
        if own is not None:
            moved = moved + np.where((own.signs >> np.uint64(index)) & np.uint64(1), own.error, -own.error)
    return np.where(np.isfinite(moved), moved, 0.0)


def _widened(error: Array, moved: list[Array]) -> Array:
    """Widen errors to the deviation of an element's samples, and to that of the slices that contain it.

    An element has few samples. A slice (channel, row) has enough to estimate the factor by which dependent errors
    exceed independent ones.
    """
    with np.errstate(all="ignore"):
        seen = np.mean([np.square(one) for one in moved], axis=0)
        known = np.isfinite(error)
        ours, theirs = np.where(known, seen, 0.0), np.where(known, np.square(error), 0.0)
        factor = np.full((1,) * error.ndim, _ratio(ours.sum(), theirs.sum()))
        for axis in range(error.ndim):
            others = tuple(i for i in range(error.ndim) if i != axis)
            if error.shape[axis] > 1 and error.size >= _POOLED * error.shape[axis]:
                slices = _ratio(ours.sum(others, keepdims=True), theirs.sum(others, keepdims=True))
                factor = np.maximum(factor, slices)
        return np.asarray(np.maximum(error * np.sqrt(factor), np.sqrt(seen)))


def _sides(value: Bounded, widened: Array) -> Sides | None:
    """Return the alternatives with their errors scaled like those of the tensor's decided elements."""
    if value.sides is None:
        return None
    sure = ~value.sides.mask & np.isfinite(value.errors())
    before, after = (float(np.sum(np.square(one), where=sure)) for one in (value.errors(), widened))
    factor = float(np.sqrt(_ratio(after, before)))
    return value.sides.scaled(factor)


def _ratio(seen: Any, independent: Any) -> Array:
    """Return the ratio of sampled to independent squared errors, at least 1."""
    return np.maximum(np.where(independent > 0, seen / np.where(independent > 0, independent, 1.0), 1.0), 1.0)
