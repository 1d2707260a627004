"""The values that a judgement carries from node to node: what the reference has, what the device has, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from types import MappingProxyType
from typing import Any

import numpy as np

from ..base.element_types import Array
from .bounds.blocks import FEW, Read
from .bounds.bounded import Bounded, rounded_to
from .bounds.registry import Undecided, Value
from .bounds.run import REREAD, Runner, Told, constant, from_device, given_input
from .bounds.sides import is_undecided, undecided
from .bounds.types import HALVES, Types, float_type, is_float
from .reference import Reference, ReferenceNode
from .samples import Samples


class Carried:
    """Bounded values by name, of which constants are made when they are read.

    sampled: errors that depend on one another are taken as such, by samples of them; else they are independent ones. by_parts: of the
    model's inputs no doubles are kept. device: the device's values, whose integers decide where a node cannot go on otherwise.
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
        types = runner.types.at("fp32") if reference.mixed else runner.types  # nodes in fp32 take inputs as they are
        exact = runner.types.at("fp32")
        self.held: dict[str, Value] = {
            name: _given(value, exact if name in reference.host_inputs else types, by_parts)
            for name, value in given.items()
        }
        self.unproved: dict[str, tuple[str, ...]] = {}  # name -> the nodes whose proof is missing on the way to it
        self.chosen: dict[str, str] = {}  # name -> the node whose choice, undecided, is the device's there
        # Tensors of the device that follow from nothing else than its own, each with the node whose result it is, which no rule gives.
        self.taken: dict[str, str] = {}
        self.open: dict[str, Bounded] = {}  # such results as the reference has them, with what is undecided
        self.additions: Mapping[
            str, int
        ] = {}  # by node: what kernels tell of their sums, where these are judged by themselves
        self.stored: Mapping[str, Array] = {}  # what the device has, likewise
        self.samples = Samples() if sampled else None
        if self.samples is not None:
            self.samples.begin(self.held, types)

    def with_types(self, types: Types) -> Carried:
        """Return the same values for nodes that are computed in other types."""
        made = copy(self)
        made.runner = self.runner.with_types(types)
        return made

    def __getitem__(self, name: str) -> Value:
        return self._value(name, self.runner)

    def _value(self, name: str, runner: Runner) -> Value:
        return self.held[name] if name in self.held else self.reference.held(name, runner)

    def of(self, node: ReferenceNode) -> dict[str, Value]:
        """What a node reads."""
        runner = self.runner.at(node.precision)
        values = {name: self._value(name, runner) for name in node.inputs}
        return {name: self.reference.read(node, name, one, runner.types) for name, one in values.items()}

    def run(self, node: ReferenceNode, beside: Mapping[str, Array] = MappingProxyType({})) -> dict[str, Value]:
        """The values that the rules make of the node's inputs. Raises what the node does.

        beside: what the device has of them by name, beside which large ones are kept in float32.
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
        """All values but constants that have not been forgotten."""
        return dict(self.held)

    def forget(self, name: str) -> None:
        """Drops a value that no node reads any more."""
        self.held.pop(name, None)
        if self.samples is not None:
            self.samples.pop(name)

    def follow(self, node: ReferenceNode) -> None:
        """What a node makes of the device's own tensors alone is no proof of these either."""
        variable = [name for name in node.inputs if name not in self.reference.constants]
        if variable and all(name in self.taken for name in variable):
            self.taken.update(dict.fromkeys(node.outputs, self.taken[variable[0]]))

    def decides(self, node: ReferenceNode, made: Mapping[str, Value] | None) -> str:
        """A sentence on a node that makes an undecided choice of what rests on none; "" of others."""
        given = [self.held.get(name) for name in node.inputs]
        if not made or any(isinstance(one, Bounded) and is_undecided(one) for one in given):
            return ""
        for name in node.outputs:
            value = made.get(name)
            if isinstance(value, Bounded) and (count := undecided(value)):
                return f"{count} of {value.size} elements of '{name}' rest on a choice that rounding may turn, from the inputs on"
        return ""

    def missing(self, node: ReferenceNode) -> tuple[str, ...]:
        """The nodes before a node whose proof is missing."""
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
    """A constant that the program has computed; what is read back as a half may be kept in float32."""
    device = from_device(array, types)
    return device if str(array.dtype) in HALVES else constant(array, types)


def computed_beforehand(value: Bounded, types: Types) -> Bounded:
    """A value of constants alone. The host stores it in the type that the file declares, which may be a half in a program of float32."""
    made = value.as_constant()
    if str(value.dtype) not in HALVES or types.storage(value.dtype).name == str(value.dtype):
        return made
    return rounded_to(made, float_type(str(value.dtype)), types)


def read(array: Array, types: Types, far: Value, by_parts: bool) -> Bounded:
    """What the nodes behind it read of a tensor of the device; by_parts: it is made of the tensor where it is read, and not kept."""
    if not by_parts or array.size < FEW or (is_float(array.dtype) and np.isinf(array).any()):
        return infinite(from_device(array, types), far)
    return Read(array, lambda part: from_device(part, types))


def infinite(device: Bounded, far: Value) -> Bounded:
    """A tensor of which halves are read back, where infinity may have been a number: it was none where the reference has it too."""
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
    """Where a choice is undecided, what follows goes on from the device's if it is one of its sides.

    A number about which nothing is known stays one, and so does a choice that is none: the tensor is wrong there.
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
    """Integers as the device has them, if each of them is one of the sides of its choice; else the value itself."""
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
    """The arrays of a sequence or an optional value, or their errors, in the declared element types."""
    if isinstance(value, list):
        return [arrays_of(one, errors) for one in value]
    if value is None:
        return None
    given = value.errors() if errors else value.value
    with np.errstate(all="ignore"):
        return np.asarray(given).astype(value.dtype, order="C")


def widened(value: Value, allowed: float | None, types: Types) -> Value:
    """A value that may be as far off as the caller allows its node, and at least as far as the rules do."""
    if not allowed or not isinstance(value, Bounded) or not value.is_float:
        return value
    error = np.maximum(value.errors(), types.share(np.asarray(allowed)))
    return Bounded(value.value, error, value.dtype, value.stored, value.constant).with_sides(value.sides)
