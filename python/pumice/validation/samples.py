"""Errors that depend on one another: samples of a model's roundings, carried through its nodes beside the reference's values.

Rules join the errors of a tensor's elements as independent ones. They are not where elements are made of the same numbers before: a
product that makes many channels of few, and the next one that makes few of many, add again what came of one rounding. What many roundings
r_s make of a number is, to first order, the sum of c_s r_s, and the root of the sum of (c_s r_s)^2 is its deviation where roundings, not
elements, are independent. The factors c_s are not known, but the mean square of the sum with signs by chance is that sum of squares. So a
few values beside the reference's own are carried through the same rules, each with roundings of signs of its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..base.element_types import Array
from .bounds.bounded import Bounded
from .bounds.registry import Unproved, Value
from .bounds.run import Runner
from .bounds.sides import Sides
from .bounds.types import FloatType, Types
from .reference import ReferenceNode

COUNT = 8  # samples
_POOLED = 32  # elements in a slice of a tensor from which on it has a deviation of its own, from 256 numbers


class Samples:
    """The values that each tensor of one case may have had instead of the reference's, `COUNT` times, by the tensor's name."""

    def __init__(self) -> None:
        self._of: dict[str, list[Array]] = {}
        self._runners: dict[Runner, Runner] = {}

    def copy(self) -> Samples:
        """The same samples, from which another walk goes on."""
        made = Samples()
        made._of, made._runners = dict(self._of), self._runners
        return made

    def begin(self, given: Mapping[str, Value], types: Types) -> None:
        """Enters the model's inputs, each of which is as it is or rounded to storage, all of it."""
        for name, value in given.items():
            if isinstance(value, Bounded) and value.is_float and value.error is not None:
                self._of[name] = _either(name, value, types.storage(value.dtype))

    def pop(self, name: str) -> None:
        """Forgets a tensor that no node reads any more."""
        self._of.pop(name, None)

    def run(self, node: ReferenceNode, values: Mapping[str, Value], runner: Runner) -> dict[str, Value]:
        """The node's outputs, with errors that are not less than their samples say. Raises what the node does.

        What has no samples (a sequence, a tensor of which the device's is taken) brings its error in as one of independent elements.
        """
        made = node.run(values, runner)
        found: dict[str, list[Array]] = {
            name: []
            for name, one in made.items()
            if isinstance(one, Bounded) and one.is_float and one.size and one.error is not None
        }
        types = runner.at(node.precision).types
        inputs = {name: self._inputs(name, value, types) for name, value in values.items()}
        own: dict[str, _Own | None] = {}  # the node's own roundings, as the first sample has them
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
        """A node's input as each sample has it. Constants keep an error of zeros, by which rules round them where kernels do."""
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
    """Samples of a tensor that half of them have as it is and half rounded: kernels do one or the other with all of it."""
    rounded = kept.rounded(value.value)
    rounded = np.where(np.isfinite(rounded), rounded, value.value)
    order = np.random.default_rng(zlib.crc32(name.encode())).permutation(COUNT)
    return [rounded if place < COUNT // 2 else value.value for place in order]


class _Own(NamedTuple):
    """The roundings of one node: how large they are, and for each element as many bits of chance as there are samples."""

    error: Array
    signs: Array


def _own(name: str, value: Bounded, sample: Bounded) -> _Own | None:
    """A node's own roundings of an output; None where it makes none: a constant is rounded where it is read.

    Equal numbers of a tensor are rounded alike.
    """
    if sample.error is None or value.constant:
        return None
    bits = np.ascontiguousarray(value.value, np.float64).view(np.uint64)
    mixed = (bits + np.uint64(1 << 15)) >> np.uint64(16)  # the last bits depend on the order of the reference's sums
    mixed = mixed ^ np.uint64(zlib.crc32(name.encode()) << 32)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # the finalizer of SplitMix64
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    signs = np.asarray(mixed ^ (mixed >> np.uint64(31))).reshape(value.shape)
    return _Own(np.where(np.isfinite(sample.error), sample.error, 0.0), signs)


def _moved(value: Bounded, sample: Bounded, own: _Own | None, index: int) -> Array:
    """How far a sample is from the value, with the node's own roundings in it; nothing where that is no number."""
    with np.errstate(all="ignore"):
        moved = sample.value - value.value
        if own is not None:
            moved = moved + np.where((own.signs >> np.uint64(index)) & np.uint64(1), own.error, -own.error)
    return np.where(np.isfinite(moved), moved, 0.0)


def _widened(error: Array, moved: list[Array]) -> Array:
    """The error of each element: not below the deviation of its own samples, nor below that of the slices in which it lies.

    An element has few samples. A slice (a channel, a row) has enough of them for the factor by which errors that depend on one another
    are larger than independent ones are there.
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
    """The sides of undecided choices, whose own errors grow as those of the decided numbers of the tensor do."""
    if value.sides is None:
        return None
    sure = ~value.sides.mask & np.isfinite(value.errors())
    before, after = (float(np.sum(np.square(one), where=sure)) for one in (value.errors(), widened))
    factor = float(np.sqrt(_ratio(after, before)))
    return value.sides.scaled(factor)


def _ratio(seen: Any, independent: Any) -> Array:
    """The ratio by which squared errors that were seen exceed independent ones; 1 where they do not, or where there are none."""
    return np.maximum(np.where(independent > 0, seen / np.where(independent > 0, independent, 1.0), 1.0), 1.0)
