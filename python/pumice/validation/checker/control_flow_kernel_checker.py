"""Checks the kernels of a program with control flow: each region on the values that it received from the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from onnx import AttributeProto

from ..._pumice import Program
from ...base.element_types import Array
from ..reference.oracle import Tolerance
from ..reference.reference_model import ReferenceModel, ReferenceNode, ReferenceSubgraph
from ..report.report_rows import NOT_DETERMINISTIC, Finding, ValidationRow
from ..rules.rule_runner import parse_attributes
from .fused_node_values import UNKNOWN_VALUE_NOTE
from .kernel_checker import KernelCheck, KernelChecker
from .options import ValidationOptions

if TYPE_CHECKING:
    from onnx import GraphProto

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

    def make_unrun_rows(self, options: ValidationOptions) -> Iterator[ValidationRow]:
        """Yield a row for each branch that no case took and each loop body that never ran."""
        for name in self._list_unrun_graphs():
            graph = self._graphs.get(name)
            if graph is None or graph.owner is None:
                continue
            owner = graph.owner
            row = ValidationRow(
                owner.name, owner.op, name, "", (), 0, None, None, f"graph '{name}' did not run in any case"
            )
            waived = options.allows_unproved(owner.op, owner.operator, owner.name)
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
