"""Estimates correlated errors by Monte Carlo samples of a model's roundings, propagated with the reference's values.

Rules combine element errors by root-sum-square, which is wrong if elements share inputs: a GEMM that expands few
channels to many, followed by one that contracts them, adds up the effects of one rounding. To first order, roundings
r_s change a number by the sum of c_s r_s. If the roundings are independent, its standard deviation is the root of the
sum of (c_s r_s)^2. The factors c_s are unknown, but with random signs the mean square of the sum equals that sum of
squares. So a few extra values are propagated by the same rules, each with its own random rounding signs.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...base.element_types import Array
from ..rules.alternative_values import AlternativeValues
from ..rules.bounded_tensor import BoundedTensor, UnprovedError, Value
from ..rules.float_types import FloatType, ProgramTypes

NUM_SAMPLES = 8  # samples per tensor
_MIN_SLICE_ELEMENTS = (
    32  # minimum elements of a slice; with 8 samples, its deviation is estimated from at least 256 values
)


class _Runner(Protocol):
    types: ProgramTypes

    def at_precision(self, precision: str) -> _Runner: ...

    def with_types(self, types: ProgramTypes) -> _Runner: ...


class _Node(Protocol):
    precision: str

    def run(self, values: Mapping[str, Value], runner: Any) -> dict[str, Value]: ...


class MonteCarloSamples:
    """`NUM_SAMPLES` randomly rounded copies of each tensor of a case, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[Array]] = {}
        self._runners: dict[_Runner, _Runner] = {}

    def copy(self) -> MonteCarloSamples:
        """Return a copy to which nodes can be added independently."""
        copied = MonteCarloSamples()
        copied._by_name, copied._runners = dict(self._by_name), self._runners
        return copied

    def add_inputs(self, case_inputs: Mapping[str, Value], types: ProgramTypes) -> None:
        """Add the model's inputs. In each sample, an input is either entirely exact or entirely rounded to storage."""
        for name, value in case_inputs.items():
            if isinstance(value, BoundedTensor) and value.is_float and value.error is not None:
                self._by_name[name] = _sample_exact_or_rounded(name, value, types.get_storage_type(value.dtype))

    def pop(self, name: str) -> None:
        """Drop a tensor after its last reader."""
        self._by_name.pop(name, None)

    def run(self, node: _Node, values: Mapping[str, Value], runner: _Runner) -> dict[str, Value]:
        """Evaluate a node and widen its errors to the samples' errors. Raise whatever the node raises.

        Inputs without samples (sequences, tensors taken from the device) contribute independent errors.
        """
        results = node.run(values, runner)
        differences: dict[str, list[Array]] = {
            name: []
            for name, sampled in results.items()
            if isinstance(sampled, BoundedTensor) and sampled.is_float and sampled.size and sampled.error is not None
        }
        types = runner.at_precision(node.precision).types
        inputs = {name: self._make_input_samples(name, value, types) for name, value in values.items()}
        roundings: dict[str, _RandomRounding | None] = {}  # by output name; drawn for the first sample
        for index in range(NUM_SAMPLES if differences else 0):
            sample_runner = self._make_runner_without_errors(runner) if index else runner
            try:
                sample = node.run({name: samples[index] for name, samples in inputs.items()}, sample_runner)
            except (UnprovedError, IndexError, KeyError, MemoryError):
                return results
            for name in differences:
                value, sampled = results[name], sample.get(name)
                assert isinstance(value, BoundedTensor)
                if not isinstance(sampled, BoundedTensor) or sampled.shape != value.shape:
                    return results
                if not index:
                    roundings[name] = _draw_random_rounding(name, value, sampled)
                differences[name].append(_compute_sample_difference(value, sampled, roundings[name], index))
        for name, node_differences in differences.items():
            sampled = results[name]
            assert isinstance(sampled, BoundedTensor)
            errors = _widen_errors(sampled.get_errors(), node_differences)
            widened_value = BoundedTensor(sampled.value, errors, sampled.dtype, sampled.stored, sampled.constant)
            results[name] = widened_value.set_alternatives(_scale_alternatives(sampled, errors)).set_exact_sums(
                sampled.exact_sums
            )
            with np.errstate(all="ignore"):
                self._by_name[name] = [sampled.value + difference for difference in node_differences]
        return results

    def _make_runner_without_errors(self, runner: _Runner) -> _Runner:
        if runner not in self._runners:
            self._runners[runner] = runner.with_types(runner.types.without_errors())
        return self._runners[runner]

    def _make_input_samples(self, name: str, value: Value, types: ProgramTypes) -> list[Value]:
        """Return an input of a node in each sample.

        Constants get an error array of zeros, so that the rules round them as kernels do.
        """
        if not isinstance(value, BoundedTensor) or not value.is_float or value.error is None:
            return [value] * NUM_SAMPLES
        arrays = self._by_name.get(name)
        if arrays is None and not value.constant:
            return [value] * NUM_SAMPLES
        if arrays is None:
            arrays = _sample_exact_or_rounded(name, value, types.get_constant_type(value.dtype))
        error = np.zeros(value.shape) if value.constant else None
        return [BoundedTensor(array, error, value.dtype, value.stored, value.constant) for array in arrays]


def _sample_exact_or_rounded(name: str, value: BoundedTensor, storage: FloatType) -> list[Array]:
    """Return samples of a tensor: half exact, half rounded, because a kernel rounds either all elements or none."""
    rounded = storage.round(value.value)
    rounded = np.where(np.isfinite(rounded), rounded, value.value)
    order = np.random.default_rng(zlib.crc32(name.encode())).permutation(NUM_SAMPLES)
    return [rounded if position < NUM_SAMPLES // 2 else value.value for position in order]


class _RandomRounding(NamedTuple):
    """Rounding errors that a node adds: their magnitudes, and for each element one random sign bit per sample."""

    error: Array
    signs: Array


def _draw_random_rounding(name: str, value: BoundedTensor, sample: BoundedTensor) -> _RandomRounding | None:
    """Return the rounding errors that a node adds to an output; None for constants, which are rounded on reading.

    Equal values in a tensor get equal rounding errors.
    """
    if sample.error is None or value.constant:
        return None
    bits = np.ascontiguousarray(value.value, np.float64).view(np.uint64)
    # Drop the low bits, which depend on the order of additions in the reference.
    mixed = (bits + np.uint64(1 << 15)) >> np.uint64(16)
    mixed = mixed ^ np.uint64(zlib.crc32(name.encode()) << 32)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # SplitMix64 finalizer
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    signs = np.asarray(mixed ^ (mixed >> np.uint64(31))).reshape(value.shape)
    return _RandomRounding(np.where(np.isfinite(sample.error), sample.error, 0.0), signs)


def _compute_sample_difference(
    value: BoundedTensor, sample: BoundedTensor, rounding: _RandomRounding | None, index: int
) -> Array:
    """Return the difference between a sample and the value, with the node's own rounding; 0 if it is not finite."""
    with np.errstate(all="ignore"):
        difference = sample.value - value.value
        if rounding is not None:
            difference = difference + np.where(
                (rounding.signs >> np.uint64(index)) & np.uint64(1), rounding.error, -rounding.error
            )
    return np.where(np.isfinite(difference), difference, 0.0)


def _widen_errors(error: Array, differences: list[Array]) -> Array:
    """Widen each element's error to the deviation of its samples, and to that of the slices that contain it.

    A single element has few samples. A slice (channel or row) has enough to estimate by which factor correlated errors
    exceed independent ones.
    """
    with np.errstate(all="ignore"):
        sampled = np.mean([np.square(difference) for difference in differences], axis=0)
        is_finite = np.isfinite(error)
        sampled_squares, independent_squares = (
            np.where(is_finite, sampled, 0.0),
            np.where(is_finite, np.square(error), 0.0),
        )
        factor = np.full((1,) * error.ndim, _compute_error_ratio(sampled_squares.sum(), independent_squares.sum()))
        for axis in range(error.ndim):
            others = tuple(i for i in range(error.ndim) if i != axis)
            if error.shape[axis] > 1 and error.size >= _MIN_SLICE_ELEMENTS * error.shape[axis]:
                slices = _compute_error_ratio(
                    sampled_squares.sum(others, keepdims=True), independent_squares.sum(others, keepdims=True)
                )
                factor = np.maximum(factor, slices)
        return np.asarray(np.maximum(error * np.sqrt(factor), np.sqrt(sampled)))


def _scale_alternatives(value: BoundedTensor, widened: Array) -> AlternativeValues | None:
    """Return the alternatives, with errors scaled by the same factor as those of the decided elements."""
    if value.alternatives is None:
        return None
    is_decided = ~value.alternatives.mask & np.isfinite(value.get_errors())
    before, after = (float(np.sum(np.square(errors), where=is_decided)) for errors in (value.get_errors(), widened))
    factor = float(np.sqrt(_compute_error_ratio(after, before)))
    return value.alternatives.scale_errors(factor)


def _compute_error_ratio(sampled: Any, independent: Any) -> Array:
    """Return the ratio of sampled to independent squared errors, at least 1."""
    return np.maximum(np.where(independent > 0, sampled / np.where(independent > 0, independent, 1.0), 1.0), 1.0)
