"""Values that validation carries from node to node: the reference's, the device's, and which of them are unproved."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from types import MappingProxyType
from typing import Any

import numpy as np

from ..base.element_types import Array
from .bounds.lazy_values import FEW, Read
from .bounds.bounded import Bounded, rounded_to
from .bounds.registry import Undecided, Value
from .bounds.rule_runner import REREAD, Runner, Told, constant, from_device, given_input
from .bounds.alternatives import is_undecided, undecided
from .bounds.float_types import HALVES, Types, float_type, is_float
from .reference import Reference, ReferenceNode
from .monte_carlo import Samples


class Carried:
    """Bounded values by name; constants are created on access.

    sampled: track dependent errors by sampling; otherwise errors are independent. by_parts: keep no float64 copies of
    the model's inputs. device: the device's values; their integers decide choices if a node cannot go on otherwise.
    """

    def __init__(
        self,
        reference: Reference,
        runner: Runner,
        given: Mapping[str, Any],
        sampled: bool = False,
        by_parts: bool = False,
        device: Carried | None = None,
    ) -> None:
        self.device = device
        self.reference = reference
        self.runner = runner
        types = runner.types.at("fp32") if reference.mixed else runner.types  # fp32 nodes read the inputs unrounded
        exact = runner.types.at("fp32")
        self.held: dict[str, Value] = {
            name: _given(value, exact if name in reference.host_inputs else types, by_parts)
            for name, value in given.items()
        }
        self.unproved: dict[str, tuple[str, ...]] = {}  # tensor -> unproved nodes it depends on
        self.chosen: dict[str, str] = {}  # tensor -> node whose undecided choice is taken from the device
        # Tensors computed only from device tensors -> the node that no rule covers.
        self.taken: dict[str, str] = {}
        self.open: dict[str, Bounded] = {}  # results whose choices the device settled, as the reference left them
        # Set if nodes are checked on their own: the additions that each node's kernel reports.
        self.additions: Mapping[str, int] = {}
        self.stored: Mapping[str, Array] = {}  # and the device's tensors
        self.samples = Samples() if sampled else None
        if self.samples is not None:
            self.samples.begin(self.held, types)

    def with_types(self, types: Types) -> Carried:
        """Return the same values for nodes computed in other types."""
        made = copy(self)
        made.runner = self.runner.with_types(types)
        return made

    def __getitem__(self, name: str) -> Value:
        return self._value(name, self.runner)

    def _value(self, name: str, runner: Runner) -> Value:
        return self.held[name] if name in self.held else self.reference.held(name, runner)

    def of(self, node: ReferenceNode) -> dict[str, Value]:
        """Return a node's inputs."""
        runner = self.runner.at(node.precision)
        values = {name: self._value(name, runner) for name in node.inputs}
        return {name: self.reference.read(node, name, one, runner.types) for name, one in values.items()}

    def run(self, node: ReferenceNode, beside: Mapping[str, Array] = MappingProxyType({})) -> dict[str, Value]:
        """Evaluate a node by the rules. Raise whatever the rule raises.

        beside: device tensors by name; large results are stored as float32 differences from them.
        """
        values = self.of(node)
        try:
            return self._run(node, values, beside)
        except Undecided:
            known = self.device.held if self.device is not None else {}
            settled = {name: settled_integers(value, known.get(name)) for name, value in values.items()}
            if all(settled[name] is value for name, value in values.items()):
                raise
            made = self._run(node, settled, beside)
        self.chosen.update(dict.fromkeys(node.outputs, node.name))
        return made

    def _run(self, node: ReferenceNode, values: Mapping[str, Value], beside: Mapping[str, Array]) -> dict[str, Value]:
        if self.samples is not None:
            return self.samples.run(node, values, self.runner)
        names = node.outputs if node.op in REREAD else ()
        stored = {name: Bounded(self.stored[name]) for name in names if name in self.stored}
        return node.run(values, self.runner, Told(self.additions.get(node.name, 0), stored, beside))

    def known(self) -> dict[str, Value]:
        """Return all live values except constants."""
        return dict(self.held)

    def forget(self, name: str) -> None:
        """Drop a value after its last reader."""
        self.held.pop(name, None)
        if self.samples is not None:
            self.samples.pop(name)

    def follow(self, node: ReferenceNode) -> None:
        """Mark results computed only from device tensors as unverified."""
        variable = [name for name in node.inputs if name not in self.reference.constants]
        if variable and all(name in self.taken for name in variable):
            self.taken.update(dict.fromkeys(node.outputs, self.taken[variable[0]]))

    def decides(self, node: ReferenceNode, made: Mapping[str, Value] | None) -> str:
        """Return a sentence about the choice if the node makes an undecided choice from decided inputs, else ""."""
        given = [self.held.get(name) for name in node.inputs]
        if not made or any(isinstance(one, Bounded) and is_undecided(one) for one in given):
            return ""
        for name in node.outputs:
            value = made.get(name)
            if isinstance(value, Bounded) and (count := undecided(value)):
                return f"{count} of {value.size} elements of '{name}' rest on a choice that rounding may turn, from the inputs on"
        return ""

    def missing(self, node: ReferenceNode) -> tuple[str, ...]:
        """Return the unproved nodes that a node depends on."""
        return tuple(dict.fromkeys(one for name in node.inputs for one in self.unproved.get(name, ())))


def _given(value: Any, types: Types, by_parts: bool) -> Value:
    if not by_parts or not isinstance(value, np.ndarray) or not is_float(value.dtype):
        return given_input(value, types)

    def make(part: Array) -> Bounded:
        made = given_input(part, types)
        assert isinstance(made, Bounded)
        return made

    return Read(value, make)


def folded(array: Array, types: Types) -> Bounded:
    """Return a constant computed by the program. A 16-bit result may hide a float32 value on the device."""
    device = from_device(array, types)
    return device if str(array.dtype) in HALVES else constant(array, types)


def computed_beforehand(value: Bounded, types: Types) -> Bounded:
    """Return a value computed from constants. The host stores it in the declared type, which may be 16-bit in an fp32
    program.
    """
    made = value.as_constant()
    if str(value.dtype) not in HALVES or types.storage(value.dtype).name == str(value.dtype):
        return made
    return rounded_to(made, float_type(str(value.dtype)), types)


def read(array: Array, types: Types, far: Value, by_parts: bool) -> Bounded:
    """Return a device tensor as later nodes read it. by_parts: convert blocks on access instead of keeping a copy."""
    if not by_parts or array.size < FEW or (is_float(array.dtype) and np.isinf(array).any()):
        return infinite(from_device(array, types), far)
    return Read(array, lambda part: from_device(part, types))


def infinite(device: Bounded, far: Value) -> Bounded:
    """Settle infinities in a 16-bit result, which may be finite on the device. An infinity is exact if the reference
    has it too.
    """
    if (
        device.error is None
        or not isinstance(far, Bounded)
        or far.shape != device.shape
        or not np.isinf(device.error).any()
    ):
        return device
    error = np.where(np.isinf(device.value) & (far.value == device.value), 0.0, device.error)
    return Bounded(device.value, error, device.dtype, device.stored)


def decided(expected: Bounded, device: Bounded) -> Bounded:
    """Replace undecided choices with the device's choices if these are valid alternatives.

    Elements without a bound stay unknown. If the device's choice is invalid, the element stays undecided, and the
    tensor is reported wrong there.
    """
    if expected.is_float or expected.error is None or expected.sides is None or expected.shape != device.shape:
        return expected
    side, error = expected.sides.nearest(device.value, expected.value)
    unsure = expected.sides.mask & np.isinf(expected.error) & (side == device.value) & (error == 0)
    if not unsure.any():
        return expected
    left = np.where(unsure, 0.0, expected.error)
    made = Bounded(np.where(unsure, device.value, expected.value), left if left.any() else None, expected.dtype)
    return made if made.error is None else made.with_sides(expected.sides.without(unsure))


def settled_integers(value: Value, device: Value) -> Value:
    """Return the device's integers if each is a valid alternative, else the value unchanged."""
    if not isinstance(value, Bounded) or value.dtype.kind not in "iu" or value.exact or value.sides is None:
        return value
    if not isinstance(device, Bounded) or not device.exact or device.shape != value.shape:
        return value
    side, error = value.sides.nearest(device.value, value.value)
    open_ = value.sides.mask & (error == 0)
    agrees = np.where(open_, side, value.value) == device.value
    is_sure = np.where(open_, 0.0, value.errors()) == 0
    return Bounded(device.value, None, value.dtype) if (agrees & is_sure).all() else value


def arrays_of(value: Value, errors: bool) -> Any:
    """Return the arrays or errors of a sequence or optional value, in the declared types."""
    if isinstance(value, list):
        return [arrays_of(one, errors) for one in value]
    if value is None:
        return None
    given = value.errors() if errors else value.value
    with np.errstate(all="ignore"):
        return np.asarray(given).astype(value.dtype, order="C")


def widened(value: Value, allowed: float | None, types: Types) -> Value:
    """Widen a value's error to the caller's tolerance; never narrow its error."""
    if not allowed or not isinstance(value, Bounded) or not value.is_float:
        return value
    error = np.maximum(value.errors(), types.share(np.asarray(allowed)))
    return Bounded(value.value, error, value.dtype, value.stored, value.constant).with_sides(value.sides)
