"""Checks tensors stored by the optimised program's kernels: evaluates a kernel's nodes (members) on the kernel's inputs."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from onnx import AttributeProto

from ..._pumice import Program, UnsupportedError
from ...base.element_types import Array
from ...base.host_arrays import bitwise_equal
from ..reference.oracle import Oracle, Tolerance
from ..reference.reference_model import (
    GEMM_AND_CONV,
    REPORTS_ADDITIONS,
    REREADS_RESULTS,
    SCALING_OPERATORS,
    KernelInfo,
    ReferenceModel,
    ReferenceNode,
    ReferenceSubgraph,
    RuleRunner,
)
from ..report.deviation import RIGHT, UNPROVED, WRONG, compare_node_output
from ..report.findings import NOT_DETERMINISTIC, Finding
from ..report.report_rows import ValidationRow
from ..report.tensor_statistics import compute_statistics
from ..rules.bounded_tensor import BoundedTensor, UndecidedError, UnprovedError, Value, round_to_storage
from ..rules.float_types import SIXTEEN_BIT_FLOATS, ProgramTypes, dtype_name, is_float
from ..rules.lazy_values import LazyDeviceTensor
from ..rules.program_values import make_bounded_device_tensor, parse_attributes
from .live_values import (
    UNKNOWN_VALUE_NOTE,
    FusedNodeValues,
    IsolatedNodeResult,
    KernelCheck,
    LiveValues,
    MissingRuleError,
    StoredTensor,
    make_bounded_folded_constant,
    round_at_subgraph_border,
    round_folded_constant,
    to_common_float_type,
    use_attention_mask_types,
    widen_float_array,
)

if TYPE_CHECKING:
    from onnx import GraphProto

# Operators that may need no kernel to read their inputs: Concat inputs are written in place; Shape and Size read sizes.
_IGNORES_DATA = ("Concat", "Shape", "Size")
# Operators whose result may share memory with their input.
_VIEW_OPERATORS = {"Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}
_NOT_LOADED, _RELEASED = np.zeros(0), np.zeros(0)  # placeholders for tensors that are not yet loaded or already freed


def _load_no_tensors(node: ReferenceNode) -> None:
    """Load nothing, because all tensors are present."""


class KernelChecker:
    """Checks the kernels of a program. For each case, call `begin_case`, then `check_kernels` for each node in order.

    A kernel may round intermediates to storage, as the unfused program does, or keep them in float32; a tensor is right
    within either bound. skip_reason: why no kernel is checked, for example because control flow splits the dispatch list.
    """

    def __init__(
        self,
        program: Program,
        reference: ReferenceModel,
        tolerance: Tolerance | None = None,
        oracle: Oracle | None = None,
    ) -> None:
        self.program = program
        self._tolerance = tolerance
        self.reference = reference
        # Set only if the oracle has values of its own.
        self._oracle = oracle if oracle is not None and oracle.has_own_values else None
        self.types: ProgramTypes = reference.types
        self.skip_reason = ""
        self._position = {node.name: i for i, node in enumerate(reference.nodes)}
        self._producer = {name: node for node in reference.nodes for name in node.outputs}
        self._runners = self._make_runners(reference)
        # For each runner: inputs, constants, and values that the host computes from them.
        self._host_values: list[LiveValues] = []
        self.choices: dict[str, Array] = {}  # integers and booleans of the unfused program
        # Outputs of the observed run; None for streamed models.
        self.outputs: dict[str, Array] | None = None
        self._stored: dict[str, list[StoredTensor]] = {}
        # Stored tensors as later kernels read them; in streamed models they are converted on access.
        self._stored_values: dict[str, Value] = {}
        self._declared: dict[str, Any] = {}  # declared types of stored tensors, from the rules
        self._freed_names: dict[int, list[str]] = {}
        self._same_as_unfused: set[str] = set()  # tensors that have the same bits in the unfused program
        # Subset that both programs read back in the same type, so that the rules give identical results.
        self._same_as_read: set[str] = set()
        self._load: Callable[[ReferenceNode], None] = _load_no_tensors  # loads a node's tensors before they are checked
        # Results of nodes that were checked on their own, kept while a later kernel may have these nodes as members.
        self._isolated_results: dict[str, IsolatedNodeResult] = {}
        self._member_nodes: set[str] = set()  # names of nodes that are fused with others in a kernel
        # Maps the operators of a kernel's members to the index of the rounding assumption under which it was right.
        self._right_assumptions: dict[tuple[str, ...], int] = {}

    def _make_runners(self, reference: ReferenceModel) -> list[RuleRunner]:
        """Return a runner for each assumption about rounding inside kernels, common ones first, and for Gelu with Erf."""
        runners = [reference.runner]
        if self.types.precision != "fp32":
            exact, rounded, scaled = (
                reference.runner.with_types(self.types.for_fused_kernel(constant_rounding))
                for constant_rounding in ("exact", "rounded", "scaled")
            )
            runners = [exact, rounded, reference.runner, scaled]
        if any(node.op == "Erf" for node in reference.nodes):
            runner = reference.runner.with_types(runners[0].types.with_erf_from_normal_cdf())
            runners.insert(max(len(runners) - 1, 1), runner)
        return runners

    # ---- stored tensors

    def begin_case(
        self, inputs: Mapping[str, Array], case_inputs: Mapping[str, Any], window: int | None = None
    ) -> None:
        """Run the program on a case. window: maximum bytes of tensors kept at once, which requires several runs."""
        observed: dict[str, Any] = {"tensors": [], "outputs": {}}
        arrays = tuple(inputs[value.name] for value in self.program.inputs)
        try:
            observed = self.program.observe(arrays, None if window is None else set())
        except UnsupportedError as error:
            self.skip_reason = str(error)
        self.outputs = self.reference.decode_strings(observed["outputs"]) if window is None else None
        self.set_tensors(observed["tensors"], case_inputs, lazy=window is not None)
        if window is not None:
            self._member_nodes = set()
            self._load = lambda node: self._load_window(node, arrays, window)

    def _load_window(self, node: ReferenceNode, arrays: tuple[Array, ...], window: int) -> None:
        """Load the stored tensors of this node and of the following nodes, up to the window size."""
        if all(stored.array is not _NOT_LOADED for name in node.outputs for stored in self._stored.get(name, ())):
            return
        to_load: dict[str, tuple[str, int]] = {}
        total = 0
        for later in self.reference.nodes[self._position[node.name] :]:
            tensors = [(name, k, t) for name in later.outputs for k, t in enumerate(self._stored.get(name, ()))]
            total += sum(t.size for _, _, t in tensors)
            if to_load and total > window:
                break
            to_load.update({t.source: (name, k) for name, k, t in tensors})
        for stored in self.program.observe(arrays, set(to_load))["tensors"]:
            if stored["array"] is not None:
                name, k = to_load[stored["name"]]
                array = self.reference.decode_string(name, stored["array"])
                self._stored[name][k] = self._stored[name][k]._replace(array=array)

    def set_tensors(self, tensors: Sequence[Mapping[str, Any]], inputs: Mapping[str, Any], lazy: bool = False) -> None:
        """Set the tensors that the program or a region stored for these inputs. lazy: keep no float64 copies."""
        self._host_values = [LiveValues(self.reference, runner, inputs, lazy=lazy) for runner in self._runners]
        self._stored, self._stored_values, self.choices, self._freed_names = {}, {}, {}, {}
        self._same_as_unfused = {*inputs, *self.reference.constants}
        self._same_as_read = set(self._same_as_unfused)
        self._load, self._isolated_results = _load_no_tensors, {}
        internal_reads = {
            tensor["name"]: tensor["reads"] for tensor in tensors if not self._get_model_name(tensor["name"])
        }
        for tensor in tensors:
            if name := self._get_model_name(tensor["name"]):
                tensors_before = self._stored.setdefault(name, [])
                reads = frozenset(self._iter_model_reads(tensor["reads"], internal_reads))
                # A kernel that writes part of a 32-bit word reads its own result.
                is_cast = bool(tensors_before) and name in reads
                reads = reads if is_cast else (reads - {name} | self._resolve_view(name) if name in reads else reads)
                array = _NOT_LOADED if tensor["array"] is None else self.reference.decode_string(name, tensor["array"])
                tensor_fields = tensor["kernel"], reads, tensor["additions"], tensor["name"], tensor["bytes"]
                tensors_before.append(StoredTensor(array, *tensor_fields))
        self._plan_tensor_freeing()

    def _get_model_name(self, name: str) -> str:
        """Return the model's name of a tensor, or "" for an internal one. A boundary cast has the name of its source."""
        if name in self._producer:
            return name
        source = name.rpartition(" as ")[0]
        return source if source in self._producer else ""

    def _iter_model_reads(self, names: Sequence[str], internal_reads: Mapping[str, Sequence[str]]) -> Iterator[str]:
        """Yield the model's names of a kernel's inputs. An internal tensor is replaced by the inputs of its producer."""
        visited: set[str] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            if name in visited:
                continue
            visited.add(name)
            if model_name := self._get_model_name(name):
                yield model_name
            else:
                pending.extend(internal_reads.get(name, ()))

    def _resolve_view(self, name: str) -> set[str]:
        """Return the stored tensor that this name aliases through Identity, Reshape and the like; empty if there is none."""
        while name in self._producer and self._producer[name].op in _VIEW_OPERATORS:
            name = self._producer[name].inputs[0]
            if name in self._stored:
                return {name}
        return set()

    def _plan_tensor_freeing(self) -> None:
        """Record which tensors can be freed after each node, and which nodes are members of kernels."""
        last: dict[str, int] = {}
        self._member_nodes = set()
        for name, tensors in self._stored.items():
            node = self._producer[name]
            kernels = [self._find_members(node, stored.reads, self._stored) for stored in tensors]
            members = {member.name for kernel_nodes, _ in kernels for member in kernel_nodes if len(kernel_nodes) > 1}
            self._member_nodes |= members
            for read in {name, *members}.union(*(begins for _, begins in kernels)):
                last[read] = max(last.get(read, 0), self._position[node.name])
        for name, end in last.items():
            self._freed_names.setdefault(end, []).append(name)
        # Isolated results cannot be reused if kernels use other types (16-bit) or if the oracle has values of its own.
        if self._runners[0] is not self.reference.runner or self._oracle is not None:
            self._member_nodes = set()

    def _find_members(
        self, node: ReferenceNode, reads: frozenset[str], stored: Container[str]
    ) -> tuple[list[ReferenceNode], set[str]]:
        """Return the nodes from a kernel's inputs to `node` in model order, and the stored tensors that they read."""
        members, input_names = {node.name: node}, set()
        pending = [(node, False)]
        while pending:
            member, is_viewed = pending.pop()
            for name in member.inputs:
                if name in stored and (name in reads or is_viewed or member.op in _IGNORES_DATA):
                    input_names.add(name)
                    continue
                before = self._producer.get(name)
                if before is None or before.name in members:
                    continue
                # The host may have computed a non-float value. If the kernel does not read a folded constant, a
                # member computes it.
                if name in self._host_values[0].values and (not before.is_folded or name in reads):
                    continue
                members[before.name] = before
                # A kernel input that no kernel stored is a view or a concatenation of stored tensors.
                pending.append((before, is_viewed or name in reads))
        return sorted(members.values(), key=lambda n: self._position[n.name]), input_names

    # ---- checks

    def check_kernels(
        self,
        node: ReferenceNode,
        unfused: Mapping[str, Array],
        isolated: Mapping[str, Value] | None,
        tolerances: Mapping[str, float | None],
        additions: int = 0,
    ) -> list[KernelCheck]:
        """Check the stored tensors of the kernels whose last member is this node.

        unfused, isolated: the unfused program's tensors, and the rules' results for them. tolerances: the caller's
        absolute errors, by output. additions: reported by the node's unfused kernel.
        """
        if self.skip_reason:
            return []
        if node.name in self._member_nodes and isolated is not None and self._same_as_read.issuperset(node.inputs):
            self._isolated_results[node.name] = IsolatedNodeResult(isolated, additions)
        self._load(node)
        if not any(name in self._stored for name in node.outputs):
            self._propagate_host_values(node, unfused)
        checks = []
        for name in node.outputs:
            for stored in self._stored.get(name, ()):
                checks.append(self._check_stored_tensor(node, name, stored, isolated, tolerances.get(name)))
            if name in self._stored:
                self._keep_stored_value(name, unfused.get(name), (isolated or {}).get(name))
            elif name in unfused and not is_float(unfused[name].dtype):
                self.choices[name] = unfused[name]
        for name in self._stored.keys() & set(node.outputs):
            self._stored[name] = [stored._replace(array=_RELEASED) for stored in self._stored[name]]
        for name in self._freed_names.get(self._position[node.name], ()):
            for tensor_maps in (self._stored_values, self._stored, self._isolated_results):
                tensor_maps.pop(name, None)
        return checks

    def reads_value(self, node: ReferenceNode, name: str) -> bool:
        """Return whether `check_kernels` needs the values of this output in `isolated`, and not only its type."""
        tensors = self._stored.get(name, ())
        return any(self._is_unfused(node, self._find_members(node, t.reads, self._stored_values)[0]) for t in tensors)

    def _is_unfused(self, node: ReferenceNode, members: Sequence[ReferenceNode]) -> bool:
        """Return whether a kernel computes only this node, on the same input bits as in the unfused program."""
        return len(members) == 1 and self._same_as_unfused.issuperset(node.inputs)

    def _propagate_host_values(self, node: ReferenceNode, unfused: Mapping[str, Array]) -> None:
        """Evaluate a node on the host if it is a folded constant or computes non-floats from the model's inputs; store its results."""
        if not all(name in self._host_values[0].values or name in self.reference.constants for name in node.inputs):
            return
        if not node.is_folded and any(name in unfused and is_float(unfused[name].dtype) for name in node.outputs):
            return
        try:
            results = [node.run(host_values.get_inputs(node), host_values.runner) for host_values in self._host_values]
        except (UndecidedError, UnprovedError, IndexError, KeyError, MemoryError):
            return  # the check of the kernel that contains this node reports the error
        if not node.is_folded and any(
            isinstance(value, BoundedTensor) and value.is_float for value in results[0].values()
        ):
            return
        for host_values, evaluated in zip(self._host_values, results, strict=True):
            for name, value in evaluated.items():
                if node.is_folded:
                    value = self._fold_constant(host_values, node, value, unfused.get(name))
                host_values.values[name] = value
        for name, value in results[-1].items():
            if node.is_folded or _is_exact_copy(value, unfused.get(name)):
                self._same_as_unfused.add(name)

    def _fold_constant(
        self, host_values: LiveValues, node: ReferenceNode, value: Value, unfused: Array | None
    ) -> Value:
        """Return a folded constant as later nodes read it: the device's result if the rules allow either rounding."""
        if not isinstance(value, BoundedTensor) or host_values.runner.types.constant_rounding == "scaled":
            return value
        if host_values.runner is self.reference.runner and unfused is not None:
            return make_bounded_folded_constant(unfused, self.types.at_precision(node.precision))
        return round_folded_constant(value, self.types.at_precision(node.precision))

    def _keep_stored_value(self, name: str, unfused: Array | None, value: Value) -> None:
        array, types = self._stored[name][0].array, self.types.at_precision(self._producer[name].precision)
        dtype = value.dtype if isinstance(value, BoundedTensor) else self._declared.get(name)

        def bound_block(block: Array) -> BoundedTensor:
            # Stored arrays have the storage type, so a 16-bit array cannot come from float32 values.
            is_16_bit = dtype_name(block.dtype) in SIXTEEN_BIT_FLOATS
            float_dtype = dtype or (np.dtype("float32") if is_16_bit else block.dtype)
            value = make_bounded_device_tensor(widen_float_array(block, float_dtype), types)
            return BoundedTensor(value.value, value.error, dtype or block.dtype, stored=True)

        # Tensors that are read back have the declared type.
        if unfused is not None and bitwise_equal(array.astype(unfused.dtype, copy=False), unfused):
            self._same_as_unfused.add(name)
            if array.dtype == unfused.dtype:
                array = unfused  # keep a single array
                self._same_as_read.add(name)
        value_of = LazyDeviceTensor(array, bound_block)
        self._stored_values[name] = value_of.materialize() if self._load is _load_no_tensors else value_of

    def _check_stored_tensor(
        self,
        node: ReferenceNode,
        name: str,
        stored: StoredTensor,
        isolated: Mapping[str, Value] | None,
        allowed: float | None,
    ) -> KernelCheck:
        members, _ = self._find_members(node, stored.reads, self._stored_values)
        unchecked = KernelCheck(name, stored, tuple(member.name for member in members), None, "", ())
        if name in stored.reads:
            return self._check_cast(unchecked, node, allowed)
        if isolated is not None and self._is_unfused(node, members):
            return self._check_value(unchecked, node, isolated.get(name), False, allowed)
        ops = tuple(member.op for member in members)
        checks: dict[int, KernelCheck] = {}
        for i in self._order_rounding_assumptions(ops):
            check, value, is_chosen = self._check_under_rounding_assumption(
                unchecked, node, members, self._host_values[i], allowed
            )
            if check.verdict == RIGHT:
                self._right_assumptions[ops] = i
                return self._compare_with_oracle(check, members, value, is_chosen, allowed)
            checks[i] = check
            del value
        best = min((checks[i] for i in sorted(checks)), key=lambda check: (RIGHT, UNPROVED, WRONG).index(check.verdict))
        if best.verdict == WRONG and len(members) > 1:
            # Try again under the assumption that results between members overflow float32 to infinity.
            host_values = self._host_values[0].with_types(self._host_values[0].runner.types.with_overflow())
            check, _, _ = self._check_under_rounding_assumption(unchecked, node, members, host_values, allowed)
            return check if check.verdict == RIGHT else best
        return best

    def _order_rounding_assumptions(self, ops: tuple[str, ...]) -> list[int]:
        """Return the rounding assumptions to try for these member operators; the one that succeeded before comes first."""
        is_scaled = not (SCALING_OPERATORS.isdisjoint(ops) or GEMM_AND_CONV.isdisjoint(ops))
        indices = [
            i
            for i, types in enumerate(values.runner.types for values in self._host_values)
            if (types.constant_rounding != "scaled" or is_scaled) and (not types.erf_from_normal_cdf or "Erf" in ops)
        ]
        first = self._right_assumptions.get(ops, 0)
        return sorted(indices, key=lambda i: i != first)

    def _check_under_rounding_assumption(
        self,
        unchecked: KernelCheck,
        node: ReferenceNode,
        members: Sequence[ReferenceNode],
        host_values: LiveValues,
        allowed: float | None,
    ) -> tuple[KernelCheck, Value, bool]:
        """Check a kernel under a rounding assumption. Return the check, the expected value, and whether it used a choice."""
        kernel_info = self._make_kernel_info(members, unchecked.stored)
        tolerances = self._get_member_tolerances(members)
        values = use_attention_mask_types(host_values, members)
        kernel = FusedNodeValues(self.reference, self.choices, values, self._stored_values, kernel_info, tolerances)
        if host_values.runner is self.reference.runner:  # this runner also evaluates the checks of single nodes
            kernel.isolated_results = self._isolated_results
        try:
            value = kernel.evaluate_fused_nodes(members, unchecked.name, unchecked.stored.array)
        except MissingRuleError as error:
            return unchecked._replace(note=str(error), unproved=(error.node,)), None, False
        is_chosen = kernel.depends_on_choice
        return self._check_value(unchecked, node, value, is_chosen, allowed), value, is_chosen

    def _compare_with_oracle(
        self, check: KernelCheck, members: Sequence[ReferenceNode], value: Value, is_chosen: bool, allowed: float | None
    ) -> KernelCheck:
        """Compare a tensor that is right by the rules with the oracle's value."""
        if self._oracle is None:
            return check
        if is_chosen:
            note = f"by the rules: what {self._oracle.name} has depends on a choice that rounding may flip"
            return check._replace(note=note)
        host_values = next(values for values in self._host_values if values.runner is self.reference.runner)
        stored_values = self._stored_values
        expected = self._oracle.compute_expected_kernel_value(
            members, check.name, value, lambda name: stored_values[name] if name in stored_values else host_values[name]
        )
        oracle_check = self._check_value(check, members[-1], expected.value, False, allowed)
        return oracle_check._replace(note=expected.note or oracle_check.note, fault=expected.fault)

    def _get_member_tolerances(self, members: Sequence[ReferenceNode]) -> dict[str, float]:
        """Return the caller's absolute errors for the members, by output."""
        if self._tolerance is None:
            return {}
        tolerances = {name: self._tolerance(member.name, name) for member in members for name in member.outputs}
        return {name: allowed for name, allowed in tolerances.items() if allowed}

    def _make_kernel_info(self, members: Sequence[ReferenceNode], stored: StoredTensor) -> dict[str, KernelInfo]:
        """Return the members' properties: the additions if only one member has a sum, and results that are read back."""
        sums = [member.name for member in members if member.operator in REPORTS_ADDITIONS and not member.is_folded]
        kernel_info = {sums[0]: KernelInfo(stored.additions)} if len(sums) == 1 else {}
        last = members[-1]
        if last.op in REREADS_RESULTS:
            arrays = {name: self._stored[name][0].array for name in last.outputs if name in self._stored}
            kernel_info[last.name] = KernelInfo(
                0, {name: BoundedTensor(array) for name, array in arrays.items() if array.size}
            )
        return kernel_info

    def _check_cast(self, unchecked: KernelCheck, node: ReferenceNode, allowed: float | None) -> KernelCheck:
        """Check a kernel that only casts an already stored tensor."""
        source = self._stored[unchecked.name][0].array
        dtype = unchecked.stored.array.dtype
        read = BoundedTensor(np.asarray(source, np.float64), None, dtype)
        return self._check_value(
            unchecked._replace(members=()), node, round_to_storage(read, self.types), False, allowed
        )

    def _check_value(
        self, unchecked: KernelCheck, node: ReferenceNode, value: Value, is_chosen: bool, allowed: float | None
    ) -> KernelCheck:
        if not isinstance(value, BoundedTensor):
            return unchecked._replace(note="the reference has no such value", unproved=(node.name,))
        if unchecked.members:
            self._declared[unchecked.name] = value.dtype
        types, array = self.types.at_precision(node.precision), unchecked.stored.array
        if types is not self.types and str(array.dtype) == self.types.get_storage_type(value.dtype).name:
            types = self.types  # the kernel rounds an fp32 node's result for readers in 16 bits
            value = BoundedTensor(value.value, value.error, value.dtype).set_alternatives(value.alternatives)
            value = round_to_storage(value, types)
        array, expected = to_common_float_type(array, round_at_subgraph_border(array, value, types))
        is_unfused = len(unchecked.members) == 1
        deviation = compare_node_output(node.op, array, expected, types, allowed, unfused=is_unfused)
        if is_chosen and not deviation.ok and not deviation.kind:  # the kernel may have made a different choice
            return unchecked._replace(note="depends on a choice that rounding may flip", unproved=(node.name,))
        return unchecked._replace(deviation=deviation, statistics=compute_statistics(array, expected))


def _is_exact_copy(value: Value, unfused: Array | None) -> bool:
    """Return whether the reference's value is exact and equals the device's value."""
    if not isinstance(value, BoundedTensor) or unfused is None:
        return False
    return value.is_exact and bool(np.array_equal(value.value, unfused))


# ---- control flow: each region is checked on the values that it received from the device


MAX_CHECKED_RUNS = 2  # runs checked per region; in the second run, a loop body reads the results of an iteration


_BRANCH_NAMES = {
    "then_branch": "then",
    "else_branch": "else",
}  # maps an attribute of If to its name in the importer's graph names


class ControlFlowCheck(NamedTuple):
    """The check of a tensor that a kernel stored.

    owner: the main-graph node that contains the kernel. graph: name of the body or branch, "" for the main graph. run:
    index of the region's run.
    """

    owner: ReferenceNode
    graph: str
    run: int
    node: ReferenceNode
    check: KernelCheck

    @property
    def attributed_check(self) -> KernelCheck:
        """The check, with unproved nodes of a body or branch replaced by the owner of that graph."""
        if not self.graph or not self.check.unproved:
            return self.check
        return self.check._replace(unproved=(self.owner.name,))

    def attribute_row(self, row: ValidationRow, waived: bool) -> ValidationRow:
        """Return a row that names the graph of this check. waived: whether the owner may be unproved."""
        if not self.graph:
            return row
        inside = tuple(f"{self.graph}/{member}" for member in row.members)
        note = f"run {self.run + 1}: {row.note}" if row.note else ""
        row = row._replace(op=self.node.op, output=f"{self.graph}/{row.output}", members=inside)
        return row._replace(note=note, waived=row.waived or waived)


class _CheckedGraph(NamedTuple):
    """A graph that the program runs: the main graph, a body or a branch."""

    name: str
    node: ReferenceNode | None  # the node that runs this graph; None for the main graph
    owner: ReferenceNode | None  # the main-graph node that contains this graph
    inputs: tuple[str, ...]
    kernels: KernelChecker

    def get_model_inputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the inputs of a region by the model's names, including values that the importer derives from them."""
        named = self.kernels.reference.decode_strings(inputs)
        counter = inputs.get(f"{self.node.name}/counter") if self.node else None
        if self.node is None or counter is None:
            return named
        count = int(counter.reshape(-1)[0])
        if self.node.op == "Loop":
            shape = [dim.dim_value for dim in _get_declared_dims(self.node, self.inputs[0])]
            named.setdefault(self.inputs[0], np.full(shape, count, np.int64))
            named.setdefault(self.inputs[1], np.asarray(True))
        elif self.node.op == "Scan":
            named.update(self._iter_slices(inputs, count))
        return named

    def _iter_slices(self, inputs: Mapping[str, Array], count: int) -> Iterator[tuple[str, Array]]:
        """Yield the slices of each scanned input in an iteration of Scan."""
        assert self.node is not None
        attributes = parse_attributes(self.node.proto)
        number = attributes["num_scan_inputs"]
        for i, name in enumerate(self.inputs[len(self.inputs) - number :]):
            whole = inputs.get(f"{self.node.name}/sliced{i}")
            if whole is None:
                continue
            axis = (attributes.get("scan_input_axes") or [0] * number)[i]
            is_back = (attributes.get("scan_input_directions") or [0] * number)[i]
            index = whole.shape[axis] - 1 - count if is_back else count
            yield name, np.take(whole, index, axis)


class ControlFlowKernelChecker:
    """Checks the kernels of a program with control flow, case by case. `skip_reason` names kernels that were not checked."""

    def __init__(
        self, program: Program, reference: ReferenceModel, tolerance: Tolerance | None = None, is_enabled: bool = True
    ) -> None:
        self._program = program
        self._max_runs = MAX_CHECKED_RUNS if is_enabled else 0
        self._main = _CheckedGraph("", None, None, (), KernelChecker(program, reference, tolerance))
        self._graphs = dict(_iter_subgraphs(program, reference, None, ""))
        self._has_run: dict[int, bool] = {}  # region index -> whether it ran
        self._names: list[str] = []
        self._single_kernel_loops: set[str] = set()
        self._unchecked: set[str] = set()
        self._reason = ""
        self._inputs: Mapping[str, Array] = {}  # inputs of the current case
        self.outputs: dict[str, Array] = {}  # the program's outputs in the observed run
        self._differing: list[tuple[str, int, list[str]]] = []  # (graph, index of the run, outputs whose bits differ)

    def skip_case(self, reason: str) -> None:
        """Skip the kernel checks of a case and record the reason."""
        self._reason = reason

    def check_kernels(
        self,
        inputs: Mapping[str, Array],
        others: Mapping[str, Array],
        tolerances: Mapping[str, float | None],
        loop_timeout: float | None,
    ) -> Iterator[ControlFlowCheck]:
        """Run the program on a case and yield the checks of all tensors that its kernels stored.

        others: tensors of the unfused program. tolerances: the caller's absolute errors, by main-graph tensor.
        """
        self._inputs = inputs
        arguments = tuple(inputs[value.name] for value in self._program.inputs)
        observed = self._program.observe_runs(arguments, 0 if self._reason else self._max_runs, loop_timeout)
        self.outputs = self._main.kernels.reference.decode_strings(observed["outputs"])
        self._differing = [
            (run["graph"], run["number"], run["differing"]) for run in observed["runs"] if run["differing"]
        ]
        self._names = [region["graph"] for region in observed["regions"]]
        for i, region in enumerate(observed["regions"]):
            self._has_run[i] = self._has_run.get(i, False) or region["runs"] > 0
        self._single_kernel_loops.update(observed["single_loops"])
        for run in observed["runs"]:
            yield from self._check_run(run, others, tolerances)

    def _check_run(
        self, run: Mapping[str, Any], others: Mapping[str, Array], tolerances: Mapping[str, float | None]
    ) -> Iterator[ControlFlowCheck]:
        graph = self._graphs.get(run["graph"], self._main if run["graph"] == self._program.name else None)
        if graph is None:
            # A loop's condition graph only compares the counter with the limit; it contains no node of the model.
            if not run["graph"].endswith(".condition"):
                self._unchecked.add(f"graph '{run['graph']}': it was added by the importer")
            return
        is_main = graph is self._main
        graph.kernels.set_tensors(
            run["tensors"], {**self._get_main_inputs(is_main), **graph.get_model_inputs(run["inputs"])}
        )
        for node in graph.kernels.reference.nodes:
            if _has_subgraphs(node.proto):
                continue  # the program runs this graph between regions
            allowed = {name: tolerances.get(name) for name in node.outputs} if is_main else {}
            for check in graph.kernels.check_kernels(node, others if is_main else {}, None, allowed):
                # The tensor is an element of a sequence, under a name that the importer chose.
                if check.deviation is None and check.note.startswith(UNKNOWN_VALUE_NOTE):
                    self._unchecked.add(
                        f"tensor '{check.name}'{f' in {graph.name}' if graph.name else ''}: {check.note}"
                    )
                else:
                    yield ControlFlowCheck(graph.owner or node, graph.name, run["number"], node, check)

    def _get_main_inputs(self, is_main: bool) -> dict[str, Array]:
        """Return the main graph's inputs in the current case."""
        return self._main.kernels.reference.decode_strings(self._inputs) if is_main else {}

    def make_difference_findings(self, case: int) -> list[Finding]:
        """Return findings for region outputs whose bits differ in a run without synchronising copies after each step."""
        return [
            Finding(
                NOT_DETERMINISTIC,
                graph,
                f"'{name}' in run {number + 1} of graph '{graph}' has other bits than with copies after each step",
                len(names),
                case,
            )
            for graph, number, names in self._differing
            for name in names
        ]

    def make_unrun_rows(self, allows_unproved: Callable[..., bool]) -> Iterator[ValidationRow]:
        """Yield a row for each branch that no case took and each loop body that never ran."""
        for name in self._list_unrun_graphs():
            graph = self._graphs.get(name)
            if graph is None or graph.owner is None:
                continue
            owner = graph.owner
            row = ValidationRow(
                owner.name, owner.op, name, "", (), 0, None, None, f"graph '{name}' did not run in any case"
            )
            waived = allows_unproved(owner.op, owner.operator, owner.name)
            yield row._replace(program="kernels", members=(owner.name,), unproved=(owner.name,), waived=waived)

    def _list_unrun_graphs(self) -> list[str]:
        """Return the graphs that ran in no case."""
        idle = dict.fromkeys(self._names[i] for i, ran in self._has_run.items() if not ran)
        return [name for name in idle if not any(name.startswith(f"{loop}.") for loop in self._single_kernel_loops)]

    @property
    def skip_reason(self) -> str:
        """A sentence about the kernels that were not checked; "" if all were checked."""
        if not self._max_runs:
            return ""
        reasons = [self._reason] if self._reason else []
        reasons += [f"graph '{name}' did not run in any case" for name in self._list_unrun_graphs()]
        reasons += [
            f"loop '{name}' is one kernel, checked as a single node" for name in sorted(self._single_kernel_loops)
        ]
        reasons += sorted(self._unchecked)
        return "; ".join(reasons)


def _get_declared_dims(node: ReferenceNode, name: str) -> Any:
    """Return the dimensions that a body declares for an input."""
    (body,) = (attribute.g for attribute in node.proto.attribute if attribute.type == AttributeProto.GRAPH)
    return next(value.type.tensor_type.shape.dim for value in body.input if value.name == name)


def _has_subgraphs(proto: Any) -> bool:
    return any(attribute.type == AttributeProto.GRAPH for attribute in proto.attribute)


def _iter_subgraphs(
    program: Program, outer: ReferenceModel, owner: ReferenceNode | None, prefix: str
) -> Iterator[tuple[str, _CheckedGraph]]:
    """Yield the subgraphs of a graph's nodes under the importer's names."""
    for node in outer.nodes:
        for attribute in node.proto.attribute:
            if attribute.type != AttributeProto.GRAPH:
                continue
            name = f"{prefix}{node.name}.{_BRANCH_NAMES.get(attribute.name, attribute.name)}"
            graph: GraphProto = attribute.g
            reference = ReferenceSubgraph(outer, graph, node, name)
            root = owner or node
            inputs = tuple(value.name for value in graph.input)
            yield name, _CheckedGraph(name, node, root, inputs, KernelChecker(program, reference))
            yield from _iter_subgraphs(program, reference, root, f"{name}/")
