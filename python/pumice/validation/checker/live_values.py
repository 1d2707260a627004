"""Live values during validation: bounded tensors by name, and which are unproved or come from the device."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from types import MappingProxyType
from typing import Any

import numpy as np

from ...base.element_types import Array
from ..reference.monte_carlo import MonteCarloSamples
from ..reference.reference_model import ReferenceModel, ReferenceNode
from ..rules.alternative_values import count_undecided, is_undecided
from ..rules.bounded_tensor import BoundedTensor, UndecidedError, Value, round_to_type
from ..rules.float_types import SIXTEEN_BIT_FLOATS, ProgramTypes, find_float_type, is_float
from ..rules.lazy_values import MIN_LAZY_SIZE, LazyDeviceTensor
from ..rules.rule_runner import (
    REREADS_RESULTS,
    KernelInfo,
    RuleRunner,
    make_bounded_constant,
    make_bounded_device_tensor,
    make_bounded_input,
)

RuleResults = dict[str, Value] | None  # the rules' results of a node; None if missing or not requested


class LiveValues:
    """Bounded tensors by name. Constants are created on access.

    sampled: whether to track correlated errors by sampling; otherwise errors are independent. lazy: whether to keep no
    float64 copies of the model's inputs. device: the device's values, whose integers settle choices that a rule cannot
    leave undecided.
    """

    def __init__(
        self,
        reference: ReferenceModel,
        runner: RuleRunner,
        case_inputs: Mapping[str, Any],
        sampled: bool = False,
        lazy: bool = False,
        device: LiveValues | None = None,
    ) -> None:
        self.device = device
        self.reference = reference
        self.runner = runner
        exact = runner.types.at_precision("fp32")
        types = exact if reference.has_mixed_precision else runner.types  # fp32 nodes read unrounded inputs
        self.values: dict[str, Value] = {
            name: _make_bounded_case_input(value, exact if name in reference.host_inputs else types, lazy)
            for name, value in case_inputs.items()
        }
        self.unproved: dict[str, tuple[str, ...]] = {}  # maps a tensor to the unproved nodes that it depends on
        self.choice_sources: dict[str, str] = {}  # maps a tensor to the node whose undecided choice the device settled
        # Maps a tensor computed only from device tensors to the node that no rule covers.
        self.device_sources: dict[str, str] = {}
        # The reference's results with undecided choices, before the device settled these.
        self.undecided_values: dict[str, BoundedTensor] = {}
        # Maps a node to the additions that its kernel reports; set only if nodes are checked on their own.
        self.additions: Mapping[str, int] = {}
        # Maps a tensor to the device's result; set together with `additions`.
        self.device_results: Mapping[str, Array] = {}
        self.samples = MonteCarloSamples() if sampled else None
        if self.samples is not None:
            self.samples.add_inputs(self.values, types)

    def with_types(self, types: ProgramTypes) -> LiveValues:
        """Return a view of these values for nodes that compute in other types."""
        copied = copy(self)
        copied.runner = self.runner.with_types(types)
        return copied

    def __getitem__(self, name: str) -> Value:
        return self._get_value(name, self.runner)

    def _get_value(self, name: str, runner: RuleRunner) -> Value:
        return self.values[name] if name in self.values else self.reference.get_constant(name, runner)

    def get_inputs(self, node: ReferenceNode) -> dict[str, Value]:
        """Return a node's inputs by name, as the node reads them."""
        runner = self.runner.at_precision(node.precision)
        values = {name: self._get_value(name, runner) for name in node.inputs}
        return {name: self.reference.read_value(node, name, value, runner.types) for name, value in values.items()}

    def run(self, node: ReferenceNode, device_tensors: Mapping[str, Array] = MappingProxyType({})) -> dict[str, Value]:
        """Evaluate a node by the rules. Raise whatever the rule raises.

        device_tensors: device tensors by name; large results are stored as float32 differences from them.
        """
        values = self.get_inputs(node)
        try:
            return self._run_node(node, values, device_tensors)
        except UndecidedError:
            device_values = self.device.values if self.device is not None else {}
            settled = {name: adopt_device_integers(value, device_values.get(name)) for name, value in values.items()}
            if all(settled[name] is value for name, value in values.items()):
                raise
            results = self._run_node(node, settled, device_tensors)
        self.choice_sources.update(dict.fromkeys(node.outputs, node.name))
        return results

    def _run_node(
        self, node: ReferenceNode, values: Mapping[str, Value], device_tensors: Mapping[str, Array]
    ) -> dict[str, Value]:
        if self.samples is not None:
            return self.samples.run(node, values, self.runner)
        names = node.outputs if node.op in REREADS_RESULTS else ()
        stored = {name: BoundedTensor(self.device_results[name]) for name in names if name in self.device_results}
        return node.run(values, self.runner, KernelInfo(self.additions.get(node.name, 0), stored, device_tensors))

    def store_isolated(
        self, node: ReferenceNode, name: str, array: Array | None, device: BoundedTensor | None, results: RuleResults
    ) -> None:
        """Store a result for later nodes that are checked on the device's inputs: the device's tensor if there is one.

        array, device: the device's tensor, as an array and with its error. results: the rules' results.
        """
        value = (results or {}).get(name)
        if node.is_folded and isinstance(value, BoundedTensor):
            # The program folds this node into a constant, possibly without rounding intermediates.
            types = self.reference.types.at_precision(node.precision)
            self.values[name] = (
                round_folded_constant(value, types) if array is None else make_bounded_folded_constant(array, types)
            )
        elif device is not None:
            self.values[name] = device
        elif results is not None:
            self.values[name] = value

    def store_chained(self, node: ReferenceNode, name: str, device: BoundedTensor | None, results: RuleResults) -> None:
        """Store a result for nodes that are checked from the model's inputs on: the reference's value, else the device's."""
        value = (results or {}).get(name)
        if node.is_folded and isinstance(value, BoundedTensor):
            value = round_folded_constant(value, self.runner.types.at_precision(node.precision))
        if source := next((self.choice_sources[x] for x in node.inputs if x in self.choice_sources), ""):
            self.choice_sources[name] = source
        if isinstance(value, BoundedTensor) and device is not None:
            settled = adopt_device_choices(value, device)
            if settled is not value:
                self.choice_sources.setdefault(name, node.name)
                self.undecided_values[name] = value
            self.values[name] = settled
        elif results is not None and name in results:
            self.values[name] = value
        elif device is not None:
            self.values[name] = device
            self.device_sources[name] = node.name

    def get_live_values(self) -> dict[str, Value]:
        """Return all live values by name, without constants."""
        return dict(self.values)

    def forget(self, name: str) -> None:
        """Drop a value after its last reader."""
        self.values.pop(name, None)
        if self.samples is not None:
            self.samples.pop(name)

    def track_device_values(self, node: ReferenceNode) -> None:
        """Record outputs that depend only on device tensors; the reference cannot verify them."""
        variable = [name for name in node.inputs if name not in self.reference.constants]
        if variable and all(name in self.device_sources for name in variable):
            self.device_sources.update(dict.fromkeys(node.outputs, self.device_sources[variable[0]]))

    def describe_choice(self, node: ReferenceNode, results: Mapping[str, Value] | None) -> str:
        """Return a sentence if the node makes an undecided choice although its inputs are decided, else ""."""
        inputs = [self.values.get(name) for name in node.inputs]
        if not results or any(isinstance(value, BoundedTensor) and is_undecided(value) for value in inputs):
            return ""
        for name in node.outputs:
            value = results.get(name)
            if isinstance(value, BoundedTensor) and (count := count_undecided(value)):
                return f"{count} of {value.size} elements of '{name}' depend on a choice that rounding may flip, from the inputs on"
        return ""

    def find_unproved_inputs(self, node: ReferenceNode) -> tuple[str, ...]:
        """Return the unproved nodes that a node depends on."""
        return tuple(dict.fromkeys(source for name in node.inputs for source in self.unproved.get(name, ())))


def _make_bounded_case_input(value: Any, types: ProgramTypes, lazy: bool) -> Value:
    if not lazy or not isinstance(value, np.ndarray) or not is_float(value.dtype):
        return make_bounded_input(value, types)

    def make_value(block: Array) -> BoundedTensor:
        value = make_bounded_input(block, types)
        assert isinstance(value, BoundedTensor)
        return value

    return LazyDeviceTensor(value, make_value)


def make_bounded_folded_constant(array: Array, types: ProgramTypes) -> BoundedTensor:
    """Return a folded constant as the program computed it. If it was read back in 16 bits, the device may have float32."""
    device_value = make_bounded_device_tensor(array, types)
    return device_value if str(array.dtype) in SIXTEEN_BIT_FLOATS else make_bounded_constant(array, types)


def round_folded_constant(value: BoundedTensor, types: ProgramTypes) -> BoundedTensor:
    """Return a folded constant rounded to its declared type.

    The host stores it in that type, which may be 16-bit even in an fp32 program.
    """
    constant = value.as_constant()
    if str(value.dtype) not in SIXTEEN_BIT_FLOATS or types.get_storage_type(value.dtype).name == str(value.dtype):
        return constant
    return round_to_type(constant, find_float_type(str(value.dtype)), types)


def make_device_value(array: Array, types: ProgramTypes, chained_value: Value, lazy: bool) -> BoundedTensor:
    """Return a device tensor as later nodes read it. lazy: whether to convert blocks on access instead of keeping a copy."""
    if not lazy or array.size < MIN_LAZY_SIZE or (is_float(array.dtype) and np.isinf(array).any()):
        return confirm_infinities(make_bounded_device_tensor(array, types), chained_value)
    return LazyDeviceTensor(array, lambda block: make_bounded_device_tensor(block, types))


def confirm_infinities(device: BoundedTensor, chained_value: Value) -> BoundedTensor:
    """Return a device tensor whose infinities count as exact only where the reference is infinite too.

    A value that was read back as infinity in 16 bits may be finite on the device.
    """
    if (
        device.error is None
        or not isinstance(chained_value, BoundedTensor)
        or chained_value.shape != device.shape
        or not np.isinf(device.error).any()
    ):
        return device
    error = np.where(np.isinf(device.value) & (chained_value.value == device.value), 0.0, device.error)
    return BoundedTensor(device.value, error, device.dtype, device.stored)


def adopt_device_choices(expected: BoundedTensor, device: BoundedTensor) -> BoundedTensor:
    """Replace undecided elements with the device's values where these are valid alternatives.

    Elements without a bound stay unknown. If the device's value is not a valid alternative, the element stays
    undecided, and the tensor is reported as wrong at this element.
    """
    if expected.is_float or expected.error is None or expected.alternatives is None or expected.shape != device.shape:
        return expected
    alternative, error = expected.alternatives.find_nearest(device.value, expected.value)
    is_settled = expected.alternatives.mask & np.isinf(expected.error) & (alternative == device.value) & (error == 0)
    if not is_settled.any():
        return expected
    remaining_error = np.where(is_settled, 0.0, expected.error)
    result = BoundedTensor(
        np.where(is_settled, device.value, expected.value),
        remaining_error if remaining_error.any() else None,
        expected.dtype,
    )
    return result if result.error is None else result.set_alternatives(expected.alternatives.drop_decided(is_settled))


def adopt_device_integers(value: Value, device: Value) -> Value:
    """Return the device's integers if all of them are valid alternatives, else the unchanged value."""
    if (
        not isinstance(value, BoundedTensor)
        or value.dtype.kind not in "iu"
        or value.is_exact
        or value.alternatives is None
    ):
        return value
    if not isinstance(device, BoundedTensor) or not device.is_exact or device.shape != value.shape:
        return value
    alternative, error = value.alternatives.find_nearest(device.value, value.value)
    has_alternatives = value.alternatives.mask & (error == 0)
    agrees = np.where(has_alternatives, alternative, value.value) == device.value
    is_sure = np.where(has_alternatives, 0.0, value.get_errors()) == 0
    return BoundedTensor(device.value, None, value.dtype) if (agrees & is_sure).all() else value


def to_declared_arrays(value: Value, errors: bool) -> Any:
    """Return the arrays or errors of a sequence or optional value, in the declared types."""
    if isinstance(value, list):
        return [to_declared_arrays(item, errors) for item in value]
    if value is None:
        return None
    array = value.get_errors() if errors else value.value
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(value.dtype, order="C")


def widen_error(value: Value, allowed: float | None, types: ProgramTypes) -> Value:
    """Return the value with an error of at least the caller's tolerance."""
    if not allowed or not isinstance(value, BoundedTensor) or not value.is_float:
        return value
    error = np.maximum(value.get_errors(), types.from_max_deviation(np.asarray(allowed)))
    return BoundedTensor(value.value, error, value.dtype, value.stored, value.constant).set_alternatives(
        value.alternatives
    )
