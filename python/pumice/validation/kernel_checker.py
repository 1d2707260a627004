"""Checks each tensor that a kernel of the optimised program stores by evaluating its members on the kernel's inputs."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._pumice import Program, UnsupportedError
from ..base.element_types import Array
from ..base.host_arrays import same_bits
from .oracle import Against, Tolerance
from .bounds.lazy_values import Read
from .bounds.blockwise import MAPS, OLDEST
from .bounds.bounded import Bounded
from .bounds.bounded import stored as as_stored
from .bounds.registry import Undecided, Unproved, Value
from .bounds.rule_runner import REREAD, TOLD, Runner, Told, from_device
from .bounds.float_types import HALVES, Types, is_float, name_of
from .live_values import Carried, computed_beforehand, folded
from .deviation import RIGHT, UNPROVED, WRONG, Deviation, node_deviation
from .kernel_members import Alone, Members, Missing, after_border, alike, as_kept, with_masks
from .reference import PRODUCTS, SCALES, Reference, ReferenceNode
from .tensor_statistics import Statistics, statistics

# Concat inputs may be written in place; the other operators only read sizes.
_READS_WITHOUT = ("Concat", "Shape", "Size")
# Operators whose result may alias their input.
_VIEWS = {"Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}
_ABSENT, _DONE = np.zeros(0), np.zeros(0)  # placeholders for tensors that are not loaded yet, or already freed


def _nothing(node: ReferenceNode) -> None:
    """No-op loader: all tensors are present."""


class Stored(NamedTuple):
    """A tensor stored by a kernel, in the program's dtype.

    reads: the kernel's inputs. additions: longest chain in its sums, 0 if unknown. source, size: its name in the
    program, and its bytes. array: empty before the tensor is loaded and after it is freed.
    """

    array: Array
    kernel: str
    reads: frozenset[str]
    additions: int = 0
    source: str = ""
    size: int = 0


class Judged(NamedTuple):
    """Check of a stored tensor. `members`: the model's nodes between the kernel's inputs and the tensor."""

    name: str
    stored: Stored
    members: tuple[str, ...]
    deviation: Deviation | None
    note: str
    unproved: tuple[str, ...]  # names of nodes without a rule
    statistics: Statistics | None = None
    fault: str = ""  # how a reference contradicts the rules

    @property
    def verdict(self) -> str:
        """ "right", "wrong" or "unproved"."""
        return self.deviation.verdict if self.deviation else UNPROVED


class ShippedKernels:
    """Checks a program's kernels. Call `begin` for each case, then `judged` for each node in order.

    A kernel may round intermediates to storage, as the unfused program does, or keep them in float32; a tensor is right
    within either bound. `refused`: why nothing is checked, for example because control flow splits the dispatch list.
    """

    def __init__(
        self,
        program: Program,
        reference: Reference,
        tolerance: Tolerance | None = None,
        against: Against | None = None,
    ) -> None:
        self.program = program
        self._tolerance = tolerance
        self.reference = reference
        # Only a reference with its own values.
        self._against = against if against is not None and against.reads_values else None
        self.types: Types = reference.types
        self.refused = ""
        self._position = {node.name: i for i, node in enumerate(reference.nodes)}
        self._producer = {name: node for node in reference.nodes for name in node.outputs}
        self._runners = self._runners_of(reference)
        self._known: list[Carried] = []  # per runner: inputs, constants and values computed from them
        self.choices: dict[str, Array] = {}  # integers and booleans of the unfused program
        # Outputs of the observed run; None for streamed models.
        self.outputs: dict[str, Array] | None = None
        self._stored: dict[str, list[Stored]] = {}
        # Stored tensors as later kernels read them; for streamed models converted on access.
        self._held: dict[str, Value] = {}
        self._declared: dict[str, Any] = {}  # declared types of stored tensors, from the rules
        self._freed: dict[int, list[str]] = {}
        self._same: set[str] = set()  # tensors that are bit-identical in the unfused program
        # Those of them that are read back in the same type, so the rules give identical results.
        self._read_alike: set[str] = set()
        self._load: Callable[[ReferenceNode], None] = _nothing  # loads a node's tensors before they are checked
        # Results of nodes inside kernels that were checked on their own, kept while a kernel may have them as members.
        self._alone: dict[str, Alone] = {}
        self._inside: set[str] = set()  # names of these nodes
        # Member operators -> index of the rounding assumption under which such a kernel was right.
        self._first: dict[tuple[str, ...], int] = {}

    def _runners_of(self, reference: Reference) -> list[Runner]:
        """Return a runner per assumption on rounding in a kernel, common ones first, and one for Gelu with Erf."""
        runners = [reference.runner]
        if self.types.precision != "fp32":
            exact, rounded, scaled = (
                reference.runner.with_types(self.types.within_kernel(one)) for one in ("exact", "rounded", "scaled")
            )
            runners = [exact, rounded, reference.runner, scaled]
        if any(node.op == "Erf" for node in reference.nodes):
            view = reference.runner.with_types(runners[0].types.with_erf_by_cdf())
            runners.insert(max(len(runners) - 1, 1), view)
        return runners

    # ---- stored tensors

    def begin(self, inputs: Mapping[str, Array], given: Mapping[str, Any], window: int | None = None) -> None:
        """Run the program on a case. window: bytes of tensors kept at once, with several runs."""
        found: dict[str, Any] = {"tensors": [], "outputs": {}}
        arrays = tuple(inputs[value.name] for value in self.program.inputs)
        try:
            found = self.program.observe(arrays, None if window is None else set())
        except UnsupportedError as error:
            self.refused = str(error)
        self.outputs = self.reference.texts(found["outputs"]) if window is None else None
        self.take(found["tensors"], given, by_parts=window is not None)
        if window is not None:
            self._inside = set()
            self._load = lambda node: self._window(node, arrays, window)

    def _window(self, node: ReferenceNode, arrays: tuple[Array, ...], window: int) -> None:
        """Load the stored tensors of this node and of later ones, up to the window size."""
        if all(one.array is not _ABSENT for name in node.outputs for one in self._stored.get(name, ())):
            return
        wanted: dict[str, tuple[str, int]] = {}
        total = 0
        for behind in self.reference.nodes[self._position[node.name] :]:
            own = [(name, k, one) for name in behind.outputs for k, one in enumerate(self._stored.get(name, ()))]
            total += sum(one.size for _, _, one in own)
            if wanted and total > window:
                break
            wanted.update({one.source: (name, k) for name, k, one in own})
        for one in self.program.observe(arrays, set(wanted))["tensors"]:
            if one["array"] is not None:
                name, k = wanted[one["name"]]
                self._stored[name][k] = self._stored[name][k]._replace(array=self.reference.text(name, one["array"]))

    def take(self, tensors: Sequence[Mapping[str, Any]], given: Mapping[str, Any], by_parts: bool = False) -> None:
        """Set the tensors that the program or a region stored for these inputs. by_parts: keep no float64 copies."""
        self._known = [Carried(self.reference, runner, given, by_parts=by_parts) for runner in self._runners]
        self._stored, self._held, self.choices, self._freed = {}, {}, {}, {}
        self._same = {*given, *self.reference.constants}
        self._read_alike = set(self._same)
        self._load, self._alone = _nothing, {}
        own = {one["name"]: one["reads"] for one in tensors if not self._name(one["name"])}
        for one in tensors:
            if name := self._name(one["name"]):
                tensors_before = self._stored.setdefault(name, [])
                reads = frozenset(self._reads(one["reads"], own))
                # Kernels that write parts of 32-bit words read their own result.
                is_cast = bool(tensors_before) and name in reads
                reads = reads if is_cast else (reads - {name} | self._viewed(name) if name in reads else reads)
                array = _ABSENT if one["array"] is None else self.reference.text(name, one["array"])
                facts = one["kernel"], reads, one["additions"], one["name"], one["bytes"]
                tensors_before.append(Stored(array, *facts))
        self._plan_freeing()

    def _name(self, name: str) -> str:
        """Return the model's name of a tensor, "" for an internal one. For a boundary cast, its source's name."""
        if name in self._producer:
            return name
        source = name.rpartition(" as ")[0]
        return source if source in self._producer else ""

    def _reads(self, names: Sequence[str], own: Mapping[str, Sequence[str]]) -> Iterator[str]:
        """Yield the model's names of a kernel's inputs; for internal tensors, the inputs of their producers."""
        seen: set[str] = set()
        left = list(names)
        while left:
            name = left.pop()
            if name in seen:
                continue
            seen.add(name)
            if found := self._name(name):
                yield found
            else:
                left.extend(own.get(name, ()))

    def _viewed(self, name: str) -> set[str]:
        """Return the stored tensor that this name aliases, through Identity, Reshape etc.; empty if none."""
        while name in self._producer and self._producer[name].op in _VIEWS:
            name = self._producer[name].inputs[0]
            if name in self._stored:
                return {name}
        return set()

    def _plan_freeing(self) -> None:
        """Record, by node position, which tensors have no later reader, and which nodes are members of kernels."""
        last: dict[str, int] = {}
        self._inside = set()
        for name, tensors in self._stored.items():
            node = self._producer[name]
            kernels = [self._kernel(node, one.reads, self._stored) for one in tensors]
            members = {member.name for found, _ in kernels for member in found if len(found) > 1}
            self._inside |= members
            for read in {name, *members}.union(*(begins for _, begins in kernels)):
                last[read] = max(last.get(read, 0), self._position[node.name])
        for name, end in last.items():
            self._freed.setdefault(end, []).append(name)
        # 16-bit kernels use other types, other references have other values, and streamed tensors are not kept.
        if self._runners[0] is not self.reference.runner or self._against is not None:
            self._inside = set()

    def _kernel(
        self, node: ReferenceNode, reads: frozenset[str], stored: Container[str]
    ) -> tuple[list[ReferenceNode], set[str]]:
        """Return the nodes from a kernel's inputs to `node` in model order, and the stored tensors that they read."""
        found, begins = {node.name: node}, set()
        left = [(node, False)]
        while left:
            one, is_viewed = left.pop()
            for name in one.inputs:
                if name in stored and (name in reads or is_viewed or one.op in _READS_WITHOUT):
                    begins.add(name)
                    continue
                before = self._producer.get(name)
                if before is None or before.name in found:
                    continue
                # The host may have computed a non-float value. A folded constant is an input if the kernel reads
                # it; otherwise a member computes it.
                if name in self._known[0].held and (not before.folded or name in reads):
                    continue
                found[before.name] = before
                # A kernel input that no kernel stored is an alias of stored values, or a concatenation of them.
                left.append((before, is_viewed or name in reads))
        return sorted(found.values(), key=lambda one: self._position[one.name]), begins

    # ---- verdicts

    def judged(
        self,
        node: ReferenceNode,
        other: Mapping[str, Array],
        local: Mapping[str, Value] | None,
        tolerances: Mapping[str, float | None],
        additions: int = 0,
    ) -> list[Judged]:
        """Check the stored tensors of the kernels that end at this node.

        other, local: the unfused program's tensors, and the rules' results for them. tolerances: the caller's absolute
        errors, by output. additions: reported by the node's unfused kernel.
        """
        if self.refused:
            return []
        if node.name in self._inside and local is not None and self._read_alike.issuperset(node.inputs):
            self._alone[node.name] = Alone(local, additions)
        self._load(node)
        if not any(name in self._stored for name in node.outputs):
            self._pass(node, other)
        found = []
        for name in node.outputs:
            for one in self._stored.get(name, ()):
                found.append(self._judge(node, name, one, local, tolerances.get(name)))
            if name in self._stored:
                self._hold(name, other.get(name), (local or {}).get(name))
            elif name in other and not is_float(other[name].dtype):
                self.choices[name] = other[name]
        for name in self._stored.keys() & set(node.outputs):
            self._stored[name] = [one._replace(array=_DONE) for one in self._stored[name]]
        for name in self._freed.get(self._position[node.name], ()):
            for kept in (self._held, self._stored, self._alone):
                kept.pop(name, None)
        return found

    def reads(self, node: ReferenceNode, name: str) -> bool:
        """Whether `judged` reads the values of this output in `local`; otherwise it reads only the type."""
        tensors = self._stored.get(name, ())
        return any(self._is_alone(node, self._kernel(node, one.reads, self._held)[0]) for one in tensors)

    def _is_alone(self, node: ReferenceNode, members: Sequence[ReferenceNode]) -> bool:
        """Whether a kernel computes the same as the unfused node, from the same inputs."""
        return len(members) == 1 and self._same.issuperset(node.inputs)

    def _pass(self, node: ReferenceNode, other: Mapping[str, Array]) -> None:
        """Keep folded constants, and non-float values that the host may compute from inputs."""
        if not all(name in self._known[0].held or name in self.reference.constants for name in node.inputs):
            return
        if not node.folded and any(name in other and is_float(other[name].dtype) for name in node.outputs):
            return
        try:
            results = [node.run(known.of(node), known.runner) for known in self._known]
        except (Undecided, Unproved, IndexError, KeyError, MemoryError):
            return  # reported by the kernel with this member
        if not node.folded and any(isinstance(one, Bounded) and one.is_float for one in results[0].values()):
            return
        for known, made in zip(self._known, results, strict=True):
            for name, value in made.items():
                known.held[name] = self._constant(known, node, value, other.get(name)) if node.folded else value
        for name, value in results[-1].items():
            if node.folded or _is_moved(value, other.get(name)):
                self._same.add(name)

    def _constant(self, known: Carried, node: ReferenceNode, value: Value, other: Array | None) -> Value:
        """Return a folded constant; if the rules allow any rounding, return the device's own result."""
        if not isinstance(value, Bounded) or known.runner.types.constants == "scaled":
            return value
        if known.runner is self.reference.runner and other is not None:
            return folded(other, self.types.at(node.precision))
        return computed_beforehand(value, self.types.at(node.precision))

    def _hold(self, name: str, other: Array | None, value: Value) -> None:
        array, types = self._stored[name][0].array, self.types.at(self._producer[name].precision)
        dtype = value.dtype if isinstance(value, Bounded) else self._declared.get(name)

        def held(part: Array) -> Bounded:
            # The program stores these values exactly; a 16-bit array is not a read-back of wider values.
            wide = dtype or (np.dtype("float32") if name_of(part.dtype) in HALVES else part.dtype)
            made = from_device(as_kept(part, wide), types)
            return Bounded(made.value, made.error, dtype or part.dtype, stored=True)

        # Read-back tensors have the declared type.
        if other is not None and same_bits(array.astype(other.dtype, copy=False), other):
            self._same.add(name)
            if array.dtype == other.dtype:
                array = other  # share one copy
                self._read_alike.add(name)
        value_of = Read(array, held)
        self._held[name] = value_of.whole() if self._load is _nothing else value_of

    def _judge(
        self, node: ReferenceNode, name: str, stored: Stored, local: Mapping[str, Value] | None, allowed: float | None
    ) -> Judged:
        members, _ = self._kernel(node, stored.reads, self._held)
        blank = Judged(name, stored, tuple(one.name for one in members), None, "", ())
        if name in stored.reads:
            return self._cast(blank, node, allowed)
        if local is not None and self._is_alone(node, members):
            return self._verdict(blank, node, local.get(name), False, allowed)
        ops = tuple(member.op for member in members)
        found: dict[int, Judged] = {}
        for view in self._views(ops):
            verdict, value, is_chosen = self._tried(blank, node, members, self._known[view], allowed)
            if verdict.verdict == RIGHT:
                self._first[ops] = view
                return self._referred(verdict, members, value, is_chosen, allowed)
            found[view] = verdict
            del value
        worst = min(
            (found[view] for view in sorted(found)), key=lambda one: (RIGHT, UNPROVED, WRONG).index(one.verdict)
        )
        if worst.verdict == WRONG and len(members) > 1:
            # Try again, allowing float32 overflow between two members.
            known = self._known[0].with_types(self._known[0].runner.types.with_overflow())
            verdict, _, _ = self._tried(blank, node, members, known, allowed)
            return verdict if verdict.verdict == RIGHT else worst
        return worst

    def _views(self, ops: tuple[str, ...]) -> list[int]:
        """Return the rounding assumptions for a kernel of these operators, the one that worked before first."""
        is_scaled = not (SCALES.isdisjoint(ops) or PRODUCTS.isdisjoint(ops))
        views = [
            view
            for view, types in enumerate(known.runner.types for known in self._known)
            if (types.constants != "scaled" or is_scaled) and (not types.erf_by_cdf or "Erf" in ops)
        ]
        first = self._first.get(ops, 0)
        return sorted(views, key=lambda view: view != first)

    def _tried(
        self,
        blank: Judged,
        node: ReferenceNode,
        members: Sequence[ReferenceNode],
        known: Carried,
        allowed: float | None,
    ) -> tuple[Judged, Value, bool]:
        """Check a kernel under one rounding assumption. Return also the value, and whether it depends on a choice."""
        told = self._told(members, blank.stored)
        carried = with_masks(known, members)
        inside = Members(self.reference, self.choices, carried, self._held, told, self._allowed(members))
        if known.runner is self.reference.runner:  # the runner of the unfused checks
            inside.alone = self._alone
        try:
            value = self._value(inside, members, blank.name, blank.stored.array)
        except Missing as error:
            return blank._replace(note=str(error), unproved=(error.node,)), None, False
        return self._verdict(blank, node, value, inside.is_chosen, allowed), value, inside.is_chosen

    def _value(self, inside: Members, members: Sequence[ReferenceNode], name: str, beside: Array) -> Value:
        """Evaluate the members for the stored tensor `beside`. Raise Missing if no rule covers a member."""
        last = {name: i for i, member in enumerate(members) for name in [*member.inputs, *member.outputs]}
        begin = len(members) - self._maps_at_end(members)
        has_product = 0 < begin < len(members) and members[begin - 1].op == "MatMul"
        has_product = has_product and not inside.has(members[begin - 1])
        value: Value = None
        for i, member in enumerate(members):
            if i == begin or (has_product and i == begin - 1):
                first = member if i < begin else None
                if (value := inside.run_maps(members[begin:], name, beside, first)) is not None:
                    break
            value = inside.run(member, member is members[-1]).get(name)
            inside.forget(name for name in [*member.inputs, *member.outputs] if last[name] == i)
        return value

    def _referred(
        self, found: Judged, members: Sequence[ReferenceNode], value: Value, is_chosen: bool, allowed: float | None
    ) -> Judged:
        """Compare a tensor that is right by the rules with a reference that has its own values."""
        if self._against is None:
            return found
        if is_chosen:
            note = f"by the rules: what {self._against.name} has rests on a choice that rounding may turn"
            return found._replace(note=note)
        known = next(one for one in self._known if one.runner is self.reference.runner)
        held = self._held
        expected = self._against.kernel(
            members, found.name, value, lambda name: held[name] if name in held else known[name]
        )
        judged = self._verdict(found, members[-1], expected.value, False, allowed)
        return judged._replace(note=expected.note or judged.note, fault=expected.fault)

    def _maps_at_end(self, members: Sequence[ReferenceNode]) -> int:
        """Return the number of elementwise members at the end."""
        if self.reference.opsets.get("", 1) < OLDEST:
            return 0
        count = 0
        for member in reversed(members):
            is_map = member.op in MAPS and not member.domain and member.op not in self.reference.runner.operators
            if not is_map or len(member.outputs) != 1 or member.folded:
                break
            count += 1
        return count

    def _allowed(self, members: Sequence[ReferenceNode]) -> dict[str, float]:
        """Return the caller's absolute errors for the members, by output."""
        if self._tolerance is None:
            return {}
        given = {name: self._tolerance(one.name, name) for one in members for name in one.outputs}
        return {name: allowed for name, allowed in given.items() if allowed}

    def _told(self, members: Sequence[ReferenceNode], stored: Stored) -> dict[str, Told]:
        """Return facts about the members: the additions if only one has a sum, and results that are read back."""
        sums = [member.name for member in members if member.operator in TOLD and not member.folded]
        told = {sums[0]: Told(stored.additions)} if len(sums) == 1 else {}
        last = members[-1]
        if last.op in REREAD:
            arrays = {name: self._stored[name][0].array for name in last.outputs if name in self._stored}
            told[last.name] = Told(0, {name: Bounded(array) for name, array in arrays.items() if array.size})
        return told

    def _cast(self, blank: Judged, node: ReferenceNode, allowed: float | None) -> Judged:
        """Check a kernel that only casts a stored tensor."""
        source = self._stored[blank.name][0].array
        dtype = blank.stored.array.dtype
        read = Bounded(np.asarray(source, np.float64), None, dtype)
        return self._verdict(blank._replace(members=()), node, as_stored(read, self.types), False, allowed)

    def _verdict(
        self, blank: Judged, node: ReferenceNode, value: Value, is_chosen: bool, allowed: float | None
    ) -> Judged:
        if not isinstance(value, Bounded):
            return blank._replace(note="the reference has no such value", unproved=(node.name,))
        if blank.members:
            self._declared[blank.name] = value.dtype
        types = self.types.at(node.precision)
        if types is not self.types and str(blank.stored.array.dtype) == self.types.storage(value.dtype).name:
            types = self.types  # the kernel rounds an fp32 node's result for its readers
            value = as_stored(Bounded(value.value, value.error, value.dtype).with_sides(value.sides), types)
        array, expected = alike(blank.stored.array, after_border(blank.stored.array, value, types))
        alone = len(blank.members) == 1
        deviation = node_deviation(node.op, array, expected, types, allowed, moved_alone=alone)
        if is_chosen and not deviation.ok and not deviation.kind:  # the kernel may have chosen differently
            return blank._replace(note="rests on a choice that rounding may turn", unproved=(node.name,))
        return blank._replace(deviation=deviation, statistics=statistics(array, expected))


def _is_moved(value: Value, other: Array | None) -> bool:
    """Whether the reference's value is exact and equals the device's."""
    if not isinstance(value, Bounded) or other is None:
        return False
    return value.exact and bool(np.array_equal(value.value, other))
