"""The values that validation compares with: from the float64 rules, or a reference with its own bounds (Valued)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..base.element_types import Array
from .bounds.bounded import Bounded
from .bounds.registry import Undecided, Unproved, Value
from .bounds.rule_runner import Runner, SingleTypeRunner, given_input
from .bounds.float_types import SPREAD, Types, is_float
from .deviation import Deviation, judged
from .reference import Reference, ReferenceNode
from .report_rows import Finding
from .monte_carlo import Samples

if TYPE_CHECKING:
    from .tensor_sources import Tensors

Tolerance = Callable[[str, str], "float | None"]  # (node, tensor) -> the caller's tolerance


class Expected(NamedTuple):
    """The value that a kernel's tensor is compared with.

    note: why it comes from the rules only. fault: how the reference contradicts the rules.
    """

    value: Value
    note: str = ""
    fault: str = ""


class Against:
    """Compares with the float64 rules. Subclasses use the values of another reference instead.

    chained: the reference only has values from the model's inputs on, so no node is checked on the device's inputs.
    held, values: by name, kept until the last reader. notes: per tensor, why the rules are used instead. faults: per
    tensor, how the reference itself exceeds its bound.
    """

    name = "float64"
    chained = False
    reads_values = False  # whether the comparison needs the nodes' inputs
    judges_kernels = True  # by the rules, because nothing else covers intermediates inside a kernel

    def __init__(self) -> None:
        self.held: dict[str, Value] = {}
        self.values: dict[str, Array] = {}
        self.notes: dict[str, str] = {}
        self.faults: dict[str, str] = {}

    def bind(self, reference: Reference, tolerance: Tolerance, tensors: Tensors) -> None:
        """Prepare for a model, once before any case. Raise InputError if the reference does not fit the model."""

    def begin(self, inputs: Mapping[str, Array], given: Mapping[str, Any], case: int, sampled: bool = False) -> None:
        """Start a case, given the program's inputs and the model's.

        sampled: track dependent errors by sampling.
        """

    def forget(self, name: str) -> None:
        """Drop a value after its last reader."""
        self.held.pop(name, None)
        self.values.pop(name, None)

    def node(
        self, node: ReferenceNode, alone: Mapping[str, Value], made: dict[str, Value] | None
    ) -> dict[str, Value] | None:
        """Return the values to compare a node's outputs with. alone: the device's inputs. made: the rules' results."""
        return made

    def follow(self, node: ReferenceNode) -> None:
        """Replace `node` when the case is checked again from the model's inputs on."""

    def far(self, name: str, made: Value, chosen: bool) -> Value:
        """Return the value to compare a tensor with from the model's inputs on. made: the rules' result. chosen:
        whether it depends on an undecided choice.
        """
        return made

    def kernel(
        self, members: Sequence[ReferenceNode], name: str, made: Value, read: Callable[[str], Value]
    ) -> Expected:
        """Return the value to compare a kernel's tensor with; its last member computes it. made: the rules' result.

        read: returns a kernel input by name. Raise KeyError if there is no such value.
        """
        return Expected(made)

    def compared(self, node: str, output: str, actual: Array, case: int) -> Finding | None:
        """Return a finding about a device tensor in addition to its verdict. output: "" for a result of the fused
        program.
        """
        return None

    def close(self) -> None:
        """Free resources."""


class Valued(Against):
    """A reference with its own values, each within the rules' bound for the types in which it computes.

    A tensor may differ from such a value by the sum of both bounds. A value beyond its own bound is a fault whatever
    the device computed: two runtimes with the same error prove nothing. Without a value, or after an undecided choice
    that the reference may have made differently, the tensor is compared with the rules only.
    any_float: values may have other float types.
    """

    any_float = False
    mixed = False  # whether nodes compute at different precisions, as in the program under test
    reads_values = True
    judges_kernels = False

    def __init__(self, types: Types) -> None:
        super().__init__()
        self.types = types
        self._own: set[str] = set()  # tensors that depend on the reference's own choices
        self._tolerance: Tolerance = lambda node, output: None
        self._makers: dict[str, str] = {}
        self._samples: Samples | None = None
        self._case = -1
        self._first: dict[str, Array] = {}  # the reference's tensors of the current case
        self._first_notes: dict[str, str] = {}

    def bind(self, reference: Reference, tolerance: Tolerance, tensors: Tensors) -> None:
        """Create runners for the rules in this reference's types."""
        self.reference = reference
        self._tolerance = tolerance
        self._makers = {name: node.name for node in reference.nodes for name in node.outputs}
        kind = Runner if self.mixed else SingleTypeRunner
        self._runner = kind(reference.opsets, self.types)
        self._chain = kind(reference.opsets, self.types.as_independent())
        for runner in (self._runner, self._chain):
            runner.operators = dict(reference.runner.operators)  # user kernels

    def begin(self, inputs: Mapping[str, Array], given: Mapping[str, Any], case: int, sampled: bool = False) -> None:
        """Start a case and drop the previous one."""
        self.held = {name: given_input(value, self.types) for name, value in given.items()}
        self._samples = Samples() if sampled else None
        if self._samples is not None:
            self._samples.begin(self.held, self.types)
        self._own = set()
        self.notes, self.faults = {}, {}
        if case != self._case:  # a repeated check uses the results of the first run
            self._case, self._first = case, self.case(inputs, given, case)
            self._first_notes = dict(self.notes)
        self.values, self.notes = dict(self._first), dict(self._first_notes)

    def forget(self, name: str) -> None:
        """Drop a value after its last reader."""
        super().forget(name)
        if self._samples is not None:
            self._samples.pop(name)

    def case(self, inputs: Mapping[str, Array], given: Mapping[str, Any], case: int) -> dict[str, Array]:
        """Return the reference's tensors of a case by name, as far as it has them."""
        raise NotImplementedError

    def alone(self, node: ReferenceNode, arrays: Mapping[str, Array | None]) -> Mapping[str, Any] | None:
        """Return the reference's results for a node's inputs by name, or None with a note."""
        return None

    def node(
        self, node: ReferenceNode, alone: Mapping[str, Value], made: dict[str, Value] | None
    ) -> dict[str, Value] | None:
        """Return the reference's values for the device's inputs, with the sum of both bounds."""
        self.follow(node)
        if self.chained or made is None:
            return made
        exact = {name: exactly(value) for name, value in alone.items()}
        arrays = {name: None if value is None else array_of(value) for name, value in exact.items()}
        if any(arrays[name] is None and exact[name] is not None for name in arrays):
            self._note(node, "an input is no tensor, or no number of its type")
            return made
        values = self.alone(node, arrays)
        mine = self._evaluated(node, lambda: node.run(exact, self._runner))
        if values is None or mine is None:
            return made
        runner = self._runner
        return {name: self._noted(name, values.get(name), one, mine.get(name), runner) for name, one in made.items()}

    def far(self, name: str, made: Value, chosen: bool) -> Value:
        """Return the reference's tensor, with the sum of both bounds."""
        value = self.values.get(name)
        if value is None:
            return made
        if made is None:
            allowed = self._tolerance(self._makers.get(name, name), name)
            return None if allowed is None else Bounded(value, np.full(value.shape, allowed), value.dtype)
        if chosen or name in self._own:
            self.notes[name] = f"by the rules: what {self.name} has rests on a choice that rounding may turn"
            return made
        return self._noted(name, value, made, self.held.get(name), self._chain)

    def _note(self, node: ReferenceNode, why: str) -> None:
        self.notes.update((name, f"by the rules, not by {self.name}: {why}") for name in node.outputs)

    def _evaluated(self, node: ReferenceNode, run: Callable[[], dict[str, Value]]) -> dict[str, Value] | None:
        try:
            return run()
        except Undecided:
            self._own.update(node.outputs)
        except (Unproved, IndexError, KeyError, MemoryError):
            pass
        return None

    def follow(self, node: ReferenceNode) -> None:
        """Propagate the reference's own bounds, from its own value if no rule covers the node."""
        given = {name: self._value(name) for name in node.inputs}
        samples, chain = self._samples, self._chain
        made = (
            self._evaluated(node, lambda: samples.run(node, given, chain) if samples else node.run(given, chain)) or {}
        )
        behind = any(name in self._own for name in node.inputs)
        for name in node.outputs:
            value, own = made.get(name), self.values.get(name)
            if isinstance(value, Bounded) and node.folded:
                value = value.as_constant()
            unsure = isinstance(value, Bounded) and not value.is_float and bool(np.isinf(value.errors()).any())
            if (value is None or unsure) and own is not None:
                value = Bounded(own, None, own.dtype)
            if behind or unsure or (value is not None and name not in made):
                self._own.add(name)
            self.held[name] = value

    def _value(self, name: str) -> Value:
        if name in self.held:
            return self.held[name]
        return self.reference.held(name, self._chain) if name in self.reference.constants else None

    def _noted(self, name: str, value: Any, made: Value, mine: Value, runner: Runner) -> Value:
        """Return the reference's value with the sum of both bounds, and record a contradiction."""
        found = self._beside(value, made, mine, runner)
        if found.fault:
            self.faults[name] = found.fault
        return found.value

    def _beside(self, value: Any, made: Value, mine: Value, runner: Runner) -> Expected:
        """Return the reference's value with the sum of both bounds, or the rules' value if its types cannot represent a
        number.
        """
        if not isinstance(made, Bounded) or not isinstance(mine, Bounded) or not isinstance(value, np.ndarray):
            return Expected(made)
        alike = value.dtype == made.dtype or (self.any_float and made.is_float and is_float(value.dtype))
        if value.shape != made.shape or not alike or mine.shape != made.shape:
            return Expected(Bounded(value, None, value.dtype))
        spread = SPREAD if runner.types.independent else 1.0
        alone = Bounded(mine.value, mine.error, value.dtype).with_sides(mine.sides)
        own_deviation = judged(value, alone, runner.types)
        fault = "" if own_deviation.ok else _contradiction(self.name, own_deviation)
        if not made.is_float:
            error = made.errors() + mine.errors()
            beside = Bounded(value, error if np.any(error) else None, made.dtype)
            return Expected(_undecided(beside, made, mine), "", fault)
        kept, read = self.types.storage(made.dtype), self.types.read_back(value.dtype)
        with np.errstate(all="ignore"):
            exact = np.asarray(value, np.float64)
            own = mine.errors() + (np.abs(exact) * read.unit + read.step if read.unit > kept.unit else 0.0)
            apart = np.abs(made.value - mine.value) / spread  # the weights may be rounded to either type
            own = np.where(np.isfinite(exact), own, mine.errors()) + np.where(np.isfinite(apart), apart, 0.0)
            most = np.abs(made.value) + own * spread
            beyond = np.isfinite(made.value) & (most * (1 + kept.unit) > min(kept.largest, read.largest))
            taken = np.where(beyond, made.value, exact)
        beside = Bounded(taken, made.errors() + own, made.dtype, made.stored)
        return Expected(_undecided(beside, made, mine), "", fault)


def _undecided(beside: Bounded, made: Bounded, mine: Bounded) -> Bounded:
    """Return the reference's value, but the rules' alternatives for choices that it may have made differently."""
    several = [one.sides.mask for one in (made, mine) if one.sides is not None]
    if not several:
        return beside
    mask = np.any(several, axis=0)
    error = np.where(mask, made.errors(), beside.errors())
    value = np.where(mask, made.value, beside.value)
    return Bounded(value, error if error.any() else None, made.dtype, made.stored).with_sides(made.sides)


def _contradiction(name: str, found: Deviation) -> str:
    where = f"{found.error:.3g} at {list(found.at)} ({found.actual} instead of {found.expected})"
    return f"{name} differs from the rules by {where}, allowed {found.allowed:.3g}: one of them is wrong"


def exactly(value: Value) -> Value:
    """Return the value without its error."""
    return Bounded(value.value, None, value.dtype, True, value.constant) if isinstance(value, Bounded) else value


def array_of(value: Value) -> Array | None:
    """Return an array of the declared type; None if that is lossy, or the value is not a tensor."""
    if not isinstance(value, Bounded):
        return None
    with np.errstate(all="ignore"):
        array = np.asarray(value.value).astype(value.dtype, order="C")
        same = not value.is_float or np.array_equal(np.asarray(array, np.float64), value.value, equal_nan=True)
    return array if same else None
