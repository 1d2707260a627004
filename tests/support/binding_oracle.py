"""A direct implementation of the binding table rules, as the oracle for the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Memory:
    """A buffer, identified by its name."""

    name: str
    bytes: int
    heap: str = "default"
    foreign: bool = False


@dataclass(frozen=True)
class Range:
    memory: Memory
    offset: int
    bytes: int
    tensor: tuple[str, tuple[int, ...], tuple[int, ...]] | None = None  # dtype, shape, strides if it is a Tensor

    @property
    def end(self) -> int:
        return self.offset + self.bytes


@dataclass(frozen=True)
class Described:
    """A slot: a tensor of the operator; None if it has no bytes."""

    bytes: int | None
    owned: bool = False
    alignment: int = 16
    tensor: tuple[str, tuple[int, ...], tuple[int, ...]] | None = None


@dataclass(frozen=True)
class Model:
    """The properties of a dispatchable that the oracle needs."""

    inputs: tuple[Described, ...] = ()
    outputs: tuple[Described, ...] = ()
    temporary: int = 0
    persistent: int = 0
    in_place: frozenset[tuple[int, int]] = frozenset()
    targets: tuple[Model, ...] | None = None  # operators of an initializer


Binding = Range | list[Range | None] | None


class Rejection(Exception):
    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


def need(condition: bool, rule: str) -> None:
    if not condition:
        raise Rejection(rule)


@dataclass
class Entry:
    """One range of a call, and its slot's requirements."""

    given: Range | None
    bytes: int
    alignment: int
    may: bool
    must: bool
    rule: str  # violated if it is missing or not allowed
    heaps: tuple[str, ...] = ("default",)
    alignment_rule: str = "R3"
    size_rule: str = "R2"
    tensor: Any = None


def check_entries(entries: Sequence[Entry]) -> None:
    """Check rule by rule, each for all ranges of the call."""
    for item in entries:
        need(item.may or item.given is None, item.rule)
        need(not item.must or item.given is not None, item.rule)
    for item in entries:
        if item.given:
            need(not item.given.memory.foreign, "M3")
            need(item.given.memory.heap in item.heaps, "M2" if "upload" in item.heaps else "M1")
    bound = [(entry, entry.given) for entry in entries if entry.given and entry.bytes > 0]
    for _, given in bound:
        need(given.end <= given.memory.bytes, "R1")
    for item, given in bound:
        need(given.offset % item.alignment == 0, item.alignment_rule)
    for item, given in bound:
        need(given.bytes >= item.bytes, item.size_rule)
    for item in entries:
        if item.given and item.given.tensor and item.tensor:
            (dtype, shape, strides), (wanted, sizes, steps) = item.given.tensor, item.tensor
            need(dtype == wanted, "T1")
            need(shape == sizes, "T2")
            need(all(a == b for a, b, size in zip(strides, steps, sizes, strict=True) if size > 1), "T3")


def execution_entry(slot: Described, given: Range | None) -> Entry:
    if slot.bytes is None:
        return Entry(given, 0, 1, False, False, "C4")
    if slot.owned:
        return Entry(given, slot.bytes, 1, False, False, "O2")
    return Entry(given, slot.bytes, slot.alignment, True, slot.bytes > 0, "C5", tensor=slot.tensor)


def initialisation_entry(slot: Described, given: Range | None) -> Entry:
    if slot.bytes is None or not slot.owned:
        return Entry(given, 0, 1, False, False, "O3")
    heaps = ("default", "upload")
    return Entry(given, slot.bytes, slot.alignment, True, slot.bytes > 0, "O2", heaps, tensor=slot.tensor)


def resource_entry(given: Range | None, size: int, rule: str, must: bool) -> Entry:
    return Entry(given, size, 256, size > 0, must and size > 0, rule, alignment_rule="P2", size_rule="P2")


def overlap(a: Range, b: Range) -> bool:
    return a.memory == b.memory and a.offset < b.end and b.offset < a.end


@dataclass
class Table:
    """The state of a table; every call either raises Refused without effect or is recorded."""

    model: Model
    inputs: list[Binding] | None = None
    outputs: list[Binding] | None = None
    temporary: Range | None = None
    persistent: Range | None = None
    _names: tuple[str, ...] = field(default=("inputs", "outputs", "temporary", "persistent"), repr=False)

    def bind_inputs(self, given: list[Binding] | None) -> None:
        if given:
            if self.model.targets is None:
                self._check_list(given, self.model.inputs, "C1")
            else:
                self._check_arrays(given)
        self._keep(inputs=given or None)

    def bind_outputs(self, given: list[Binding] | None) -> None:
        if given:
            if self.model.targets is None:
                self._check_list(given, self.model.outputs, "C2")
            else:
                need(not any(isinstance(value, list) for value in given), "C6")
                need(len(given) == len(self.model.targets), "I4")
                sizes = [target.persistent for target in self.model.targets]
                check_entries([resource_entry(item, size, "I4", True) for item, size in zip(given, sizes, strict=True)])  # type: ignore[arg-type]
        self._keep(outputs=given or None)

    def bind_temporary(self, given: Binding) -> None:
        need(not isinstance(given, list), "C6")
        check_entries([resource_entry(given, self.model.temporary, "P3", False)])  # type: ignore[arg-type]
        self._keep(temporary=given)

    def bind_persistent(self, given: Binding) -> None:
        need(not isinstance(given, list), "C6")
        rule = "P3" if self.model.targets is None else "I6"
        check_entries([resource_entry(given, self.model.persistent, rule, False)])  # type: ignore[arg-type]
        self._keep(persistent=given)

    def dispatch(self) -> None:
        if self.inputs is None:
            targets = self.model.targets
            slots = self.model.inputs if targets is None else [value for target in targets for value in target.inputs]
            need(not any(bool(slot.bytes) and slot.owned == (targets is not None) for slot in slots), "C9")
        if self.outputs is None:
            targets = self.model.targets
            sizes = [slot.bytes for slot in self.model.outputs] if targets is None else [t.persistent for t in targets]
            need(not any(sizes), "C9")
        need(not self.model.temporary or self.temporary is not None, "P2")
        need(not self.model.persistent or self.persistent is not None, "P2")

    def _check_list(self, given: list[Binding], slots: Sequence[Described], count: str) -> None:
        need(not any(isinstance(value, list) for value in given), "C6")
        need(len(given) == len(slots), count)
        check_entries([execution_entry(slot, item) for slot, item in zip(slots, given, strict=True)])  # type: ignore[arg-type]

    def _check_arrays(self, given: list[Binding]) -> None:
        targets = self.model.targets or ()
        need(not any(isinstance(value, Range) for value in given), "I1")
        need(len(given) == len(targets), "I1")
        pairs = list(zip(given, targets, strict=True))
        need(all(not array or len(array) == len(target.inputs) for array, target in pairs), "I2")  # type: ignore[arg-type]
        for array, target in pairs:
            need(bool(array) or not any(slot.owned and slot.bytes for slot in target.inputs), "I3")
        check_entries(
            [
                initialisation_entry(slot, item)
                for array, target in pairs
                if array
                for slot, item in zip(target.inputs, array, strict=True)  # type: ignore[arg-type]
            ]
        )

    def _keep(self, **changed: Any) -> None:
        state = {name: getattr(self, name) for name in self._names} | changed
        self._check_hazards(**state)
        for name, value in state.items():
            setattr(self, name, value)

    def _ranges(self, bindings: list[Binding] | None, slots: Sequence[Described]) -> list[tuple[int, Described, Range]]:
        return [
            (i, slot, item)
            for i, (slot, item) in enumerate(zip(slots, bindings or [None] * len(slots), strict=True))
            if isinstance(item, Range) and slot.bytes
        ]

    def _check_hazards(
        self,
        inputs: list[Binding] | None,
        outputs: list[Binding] | None,
        temporary: Range | None,
        persistent: Range | None,
    ) -> None:
        targets = self.model.targets
        if targets is None:
            read = self._ranges(inputs, self.model.inputs)
            written = self._ranges(outputs, self.model.outputs)
        else:
            arrays = inputs or [None] * len(targets)
            read = [
                one
                for array, target in zip(arrays, targets, strict=True)
                for one in self._ranges(array or None, target.inputs)  # type: ignore[arg-type]
            ]
            written = self._ranges(outputs, [Described(target.persistent) for target in targets])
        for j, result, out in written:
            for i, taken, source in read:
                if targets is not None:
                    need(out.memory != source.memory, "H11")
                elif overlap(out, source):
                    need((out.offset, out.bytes) == (source.offset, source.bytes), "H5")
                    need((i, j) in self.model.in_place, "H4")
                    need(result.tensor == taken.tensor, "H6")
        for k, (_, result, out) in enumerate(written):
            for _, earlier, other in written[:k]:
                a = Range(out.memory, out.offset, result.bytes or 0)
                b = Range(other.memory, other.offset, earlier.bytes or 0)
                need(not overlap(a, b), "H7" if targets is None else "H12")
        if persistent:
            need(not any(overlap(persistent, out) for _, _, out in written), "H8")
        if temporary:
            others = [item for _, _, item in (*read, *written)] + ([persistent] if persistent else [])
            need(not any(overlap(temporary, element) for element in others), "H10")
