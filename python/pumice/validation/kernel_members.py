"""Evaluates the model's nodes inside a kernel on the kernel's inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..base.element_types import Array
from ..base.host_arrays import same_bits
from .bounds.lazy_values import Collector, Fed, Retyped
from .bounds.blockwise import blocks_of
from .bounds.bounded import Bounded, rounded_to
from .bounds.registry import Undecided, Unproved, Value
from .bounds.rule_runner import NOTHING, REREAD, Runner, Told, from_device
from .bounds.float_types import HALVES, Types, float_type, is_float, name_of
from .live_values import Carried, decided, settled_integers, widened
from .reference import Reference, ReferenceNode

# Begins the note of a tensor that is not checked because a kernel input is unknown.
UNKNOWN = "nothing is known of "
# Errors that a member raises if no rule covers one of its inputs.
_CANNOT = (Undecided, Unproved, IndexError, KeyError, MemoryError)


class Missing(Exception):
    """No rule covers a member of a kernel."""

    def __init__(self, node: str, note: str) -> None:
        super().__init__(note)
        self.node = node


class Alone(NamedTuple):
    """Results of a node that was checked on its own with the same inputs. additions: reported by its unfused kernel."""

    values: Mapping[str, Value]
    additions: int


class Members:
    """Values of a kernel's members, computed from its inputs under one assumption on rounding.

    choices: integers and booleans of the unfused program. known: inputs, constants, and values that the host computes
    from them. held: the kernel's inputs. told: facts about each member. allowed: the caller's absolute errors, by
    output of a member.
    """

    def __init__(
        self,
        reference: Reference,
        choices: Mapping[str, Array],
        known: Carried,
        held: Mapping[str, Value],
        told: Mapping[str, Told],
        allowed: Mapping[str, float],
    ) -> None:
        self._allowed = allowed
        self._reference = reference
        self._choices = choices
        self._told = told
        self._known = known
        self._made: dict[str, Value] = {}
        self._held = held
        self.alone: Mapping[str, Alone] = {}  # results of the members, if computed with the same rounding
        self.is_chosen = False  # whether a result depends on a choice of the unfused program

    def __getitem__(self, name: str) -> Value:
        # A tensor stored by another kernel is recomputed here, unless this kernel reads it.
        if name in self._made:
            return self._made[name]
        return self._held[name] if name in self._held else self._known[name]

    def has(self, node: ReferenceNode) -> bool:
        """Whether a member was already evaluated on the same tensors with the same number of additions."""
        one = self.alone.get(node.name)
        is_same = one is not None and one.additions == self._told.get(node.name, NOTHING).additions
        return is_same and self._made.keys().isdisjoint(node.inputs) and node.op not in REREAD

    def run(self, node: ReferenceNode, is_last: bool) -> dict[str, Value]:
        """Return a member's results. Raise Missing if no rule covers the member."""
        runner = self._reference.runner if is_last else self._known.runner
        choices = self._choices
        try:
            made = dict(self.alone[node.name].values) if self.has(node) else self._evaluated(node, runner)
        except Undecided as error:
            if not is_last and set(node.outputs) <= set(choices):
                made = {name: from_device(choices[name], runner.types) for name in node.outputs}
            elif (settled := self._settled(node, runner)) is not None:
                made = settled
            else:
                raise Missing(node.name, f"undecided: {error}") from None
            self.is_chosen = True
        except Unproved as error:
            raise Missing(node.name, str(error)) from None
        except IndexError as error:
            raise Missing(node.name, f"an index is out of range: {error}") from None
        except KeyError as error:
            raise Missing(node.name, f"{UNKNOWN}{error}") from None
        except MemoryError as error:
            raise Missing(node.name, f"the reference fails: {type(error).__name__}: {error}") from None
        if not is_last:
            types, allowed = runner.types, self._allowed
            made = {name: widened(value, allowed.get(name), types) for name, value in made.items()}
            self._made.update({name: self._agreed(name, value) for name, value in made.items()})
        return made

    def _evaluated(self, node: ReferenceNode, runner: Runner) -> dict[str, Value]:
        given = {name: self._read(node, name, runner) for name in node.inputs}
        return node.run(given, runner, self._told.get(node.name, NOTHING))

    def _settled(self, node: ReferenceNode, runner: Runner) -> dict[str, Value] | None:
        """Evaluate a member with the unfused program's integers instead of undecided ones; None if there are none."""
        given = {name: self._read(node, name, runner) for name in node.inputs}
        known = {name: from_device(self._choices[name], runner.types) for name in given if name in self._choices}
        settled = {name: settled_integers(value, known.get(name)) for name, value in given.items()}
        if all(settled[name] is value for name, value in given.items()):
            return None
        try:
            return node.run(settled, runner, self._told.get(node.name, NOTHING))
        except _CANNOT:
            return None

    def run_maps(
        self, nodes: Sequence[ReferenceNode], name: str, beside: Array, first: ReferenceNode | None = None
    ) -> Value | None:
        """Evaluate a chain of elementwise members block by block, and return its result `name`.

        first: a member before them that is also evaluated by blocks and read only by them. Return None if the result is
        small, depends on a choice, or cannot be evaluated by blocks.
        """
        made = {output for node in [*nodes, *([first] if first else [])] for output in node.outputs}
        if not self._choices.keys().isdisjoint(made) or not self._allowed.keys().isdisjoint(made - {name}):
            return None
        try:
            inputs = {one: self[one] for node in nodes for one in node.inputs if one not in made}
            fed = self._fed(first) if first else None
        except _CANNOT:
            return None
        if first and fed is None:
            return None
        parts = blocks_of([*inputs.values(), *([fed] if fed else [])])
        if parts is None or parts.shape != beside.shape or (fed and fed.shape != beside.shape):
            return None
        joined = Collector(parts.shape, beside)
        names = [*inputs, *(first.outputs if first else ())]
        try:
            with np.errstate(all="ignore"):
                for index in fed.indices() if fed else parts.blocks:
                    block = self._mapped(nodes, dict(zip(names, parts.inputs(index), strict=True)))[name]
                    if not isinstance(block, Bounded):
                        return None
                    joined.add(index, block)
        except _CANNOT:
            return None  # evaluation member by member reports the error
        return joined.value()

    def _fed(self, node: ReferenceNode) -> Fed | None:
        """Return a member's result, evaluated block by block."""
        runner = self._known.runner
        given = {name: self._read(node, name, runner) for name in node.inputs}
        found = node.by_blocks(given, runner, self._told.get(node.name, NOTHING))
        return found and Fed(found.shape, found.blocks, found.block)

    def _mapped(self, nodes: Sequence[ReferenceNode], values: dict[str, Value]) -> dict[str, Value]:
        """Evaluate the chain on one block of its inputs."""
        known, runner = self._known, self._reference.runner
        last = {one: node for node in nodes for one in [*node.inputs, *node.outputs]}
        for node in nodes:
            view = runner if node is nodes[-1] else known.runner
            given = {
                one: self._reference.read(node, one, values[one], view.at(node.precision).types) for one in node.inputs
            }
            values.update(node.run(given, view, self._told.get(node.name, NOTHING)))
            for one in node.inputs:
                if last[one] is node:
                    values.pop(one, None)
        return values

    def forget(self, names: Iterable[str]) -> None:
        """Drop values after their last reader."""
        for name in names:
            self._made.pop(name, None)

    def _read(self, node: ReferenceNode, name: str, runner: Runner) -> Value:
        return self._reference.read(node, name, self[name], runner.at(node.precision).types)

    def _agreed(self, name: str, value: Value) -> Value:
        """Adopt the unfused program's choice, if it is a valid alternative: any choice that explains the kernel's
        result is right.
        """
        if not isinstance(value, Bounded) or name not in self._choices:
            return value
        agreed = decided(value, from_device(self._choices[name], self._reference.types))
        self.is_chosen = self.is_chosen or agreed is not value
        return agreed


def with_masks(known: Carried, members: Sequence[ReferenceNode]) -> Carried:
    """Return the same values with the types for attention masks, if the members are unfused attention."""
    ops = [one.op for one in members]
    if members[-1].precision == "fp32" or "Softmax" not in ops or "MatMul" not in ops[ops.index("Softmax") :]:
        return known
    return known.with_types(known.runner.types.with_masks())


def alike(array: Array, expected: Bounded) -> tuple[Array, Bounded]:
    """Convert the device's array and the reference's value to a common float type, if storage differs from the declared
    type.
    """
    made = as_kept(array, expected.dtype)
    if made is array:
        return array, expected
    return made, Retyped(expected, made.dtype)


def after_border(array: Array, value: Bounded, types: Types) -> Bounded:
    """Round a float32 tensor declared as 16-bit, if a subgraph boundary has rounded it: tensors there have the declared
    type.
    """
    dtype = str(value.dtype)
    if dtype not in HALVES or name_of(array.dtype) != "float32":
        return value
    with np.errstate(all="ignore"):
        is_half = same_bits(array.astype(value.dtype).astype(array.dtype), array)
    return rounded_to(value, float_type(dtype), types) if is_half else value


def as_kept(array: Array, dtype: Any) -> Array:
    """Convert an array to the wider of its type and the declared float type."""
    if array.dtype == dtype or not (is_float(array.dtype) and is_float(dtype)):
        return array
    return array.astype(np.float64 if "float64" in (name_of(array.dtype), name_of(dtype)) else np.float32)
