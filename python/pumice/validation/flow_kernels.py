"""The kernels of a program with control flow: its regions one by one, each run on what the program has given it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from onnx import AttributeProto

from .._pumice import Program
from ..base.element_types import Array
from .against import Tolerance
from .bounds.run import attributes_of
from .kernel_members import UNKNOWN
from .kernels import Judged, ShippedKernels
from .options import Options
from .reference import BodyReference, Reference, ReferenceNode
from .rows import DIFFERS, Finding, ValidationRow

if TYPE_CHECKING:
    from onnx import GraphProto

MOST_RUNS = 2  # of a region that are judged: the first ones, so that each kernel of a loop's body has seen what an iteration leaves


_ROLES = {"then_branch": "then", "else_branch": "else"}  # the importer's names of attributes, in those of graphs


class FlowJudged(NamedTuple):
    """The judgement of a tensor that a kernel has stored. `owner`: the node of the model that it is of, or that runs the graph it is of.

    `graph`: of that graph, "" for the model's own. `run`: which run of the kernel's region it was, from 0 on.
    """

    owner: ReferenceNode
    graph: str
    run: int
    node: ReferenceNode
    judged: Judged

    @property
    def shown(self) -> Judged:
        """The same; what is not proved in a body or a branch is not of the node that runs it."""
        if not self.graph or not self.judged.unproved:
            return self.judged
        return self.judged._replace(unproved=(self.owner.name,))

    def placed(self, row: ValidationRow, waived: bool) -> ValidationRow:
        """A row of the owner, told of at the graph that it is of. waived: the owner may be unproved."""
        if not self.graph:
            return row
        inside = tuple(f"{self.graph}/{one}" for one in row.members)
        note = f"run {self.run + 1}: {row.note}" if row.note else ""
        row = row._replace(op=self.node.op, output=f"{self.graph}/{row.output}", members=inside)
        return row._replace(note=note, waived=row.waived or waived)


class _Graph(NamedTuple):
    """A graph of the model that the program runs: the main one, a body or a branch."""

    name: str
    node: ReferenceNode | None  # that runs it; none: the main one
    owner: ReferenceNode | None  # the node of the main graph that it is in
    inputs: tuple[str, ...]
    kernels: ShippedKernels

    def given(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The inputs that a region of it was given, with what the importer makes of that by the names that the model has for it."""
        made = self.kernels.reference.texts(inputs)
        counter = inputs.get(f"{self.node.name}/counter") if self.node else None
        if self.node is None or counter is None:
            return made
        count = int(counter.reshape(-1)[0])
        if self.node.op == "Loop":
            shape = [one.dim_value for one in _shape_of(self.node, self.inputs[0])]
            made.setdefault(self.inputs[0], np.full(shape, count, np.int64))
            made.setdefault(self.inputs[1], np.asarray(True))
        elif self.node.op == "Scan":
            made.update(self._slices(inputs, count))
        return made

    def _slices(self, inputs: Mapping[str, Array], count: int) -> Iterator[tuple[str, Array]]:
        """The slices that an iteration of a Scan takes of each input that it goes along."""
        assert self.node is not None
        attributes = attributes_of(self.node.proto)
        number = attributes["num_scan_inputs"]
        for i, name in enumerate(self.inputs[len(self.inputs) - number :]):
            whole = inputs.get(f"{self.node.name}/sliced{i}")
            if whole is None:
                continue
            axis = (attributes.get("scan_input_axes") or [0] * number)[i]
            is_back = (attributes.get("scan_input_directions") or [0] * number)[i]
            place = whole.shape[axis] - 1 - count if is_back else count
            yield name, np.take(whole, place, axis)


class FlowKernels:
    """Judges the kernels of a program with control flow, case by case. `refused` says what is not judged of all of them."""

    def __init__(
        self, program: Program, reference: Reference, tolerance: Tolerance | None = None, judges: bool = True
    ) -> None:
        self._program = program
        self._most = MOST_RUNS if judges else 0
        self._main = _Graph("", None, None, (), ShippedKernels(program, reference, tolerance))
        self._graphs = dict(_inner(program, reference, None, ""))
        self._ran: dict[int, bool] = {}  # by region, in the order in which the program lists them
        self._names: list[str] = []
        self._single: set[str] = set()
        self._lost: set[str] = set()
        self._reason = ""
        self._inputs: Mapping[str, Array] = {}  # of the case at hand
        self.outputs: dict[str, Array] = {}  # of the program, in the run that is observed
        self._differing: list[tuple[str, int, list[str]]] = []  # graphs, their runs, and outputs with other bits

    def refuse(self, reason: str) -> None:
        """Nothing of a case is judged, for that reason."""
        self._reason = reason

    def judged(
        self,
        inputs: Mapping[str, Array],
        others: Mapping[str, Array],
        tolerances: Mapping[str, float | None],
        loop_timeout: float | None,
    ) -> Iterator[FlowJudged]:
        """Runs the program on the inputs of a case, and gives what its kernels have stored. `others`: what the program of single nodes has.

        tolerances: absolute errors that the caller gives, by tensor of the main graph.
        """
        self._inputs = inputs
        given = tuple(inputs[value.name] for value in self._program.inputs)
        found = self._program.observe_runs(given, 0 if self._reason else self._most, loop_timeout)
        self.outputs = self._main.kernels.reference.texts(found["outputs"])
        self._differing = [(run["graph"], run["number"], run["differing"]) for run in found["runs"] if run["differing"]]
        self._names = [region["graph"] for region in found["regions"]]
        for i, region in enumerate(found["regions"]):
            self._ran[i] = self._ran.get(i, False) or region["runs"] > 0
        self._single.update(found["single_loops"])
        for run in found["runs"]:
            yield from self._run(run, others, tolerances)

    def _run(
        self, run: Mapping[str, Any], others: Mapping[str, Array], tolerances: Mapping[str, float | None]
    ) -> Iterator[FlowJudged]:
        graph = self._graphs.get(run["graph"], self._main if run["graph"] == self._program.name else None)
        if graph is None:
            # A loop's own condition compares its counter with its limit: no node of the model is in it.
            if not run["graph"].endswith(".condition"):
                self._lost.add(f"graph '{run['graph']}': it is the importer's own")
            return
        is_main = graph is self._main
        graph.kernels.take(run["tensors"], {**self._given(is_main), **graph.given(run["inputs"])})
        for node in graph.kernels.reference.nodes:
            if _has_graphs(node.proto):
                continue  # which the program runs between its regions
            allowed = {name: tolerances.get(name) for name in node.outputs} if is_main else {}
            for one in graph.kernels.judged(node, others if is_main else {}, None, allowed):
                if one.deviation is None and one.note.startswith(
                    UNKNOWN
                ):  # a sequence, whose parts have names of the importer's
                    self._lost.add(f"tensor '{one.name}'{f' in {graph.name}' if graph.name else ''}: {one.note}")
                else:
                    yield FlowJudged(graph.owner or node, graph.name, run["number"], node, one)

    def _given(self, is_main: bool) -> dict[str, Array]:
        """The inputs of the case at hand, which the main graph reads."""
        return self._main.kernels.reference.texts(self._inputs) if is_main else {}

    def differing(self, case: int) -> list[Finding]:
        """The outputs of regions that have other bits where no copies after each step make the device wait."""
        return [
            Finding(
                DIFFERS,
                graph,
                f"'{name}' in run {number + 1} of graph '{graph}' has other bits than with copies after each step",
                len(names),
                case,
            )
            for graph, number, names in self._differing
            for name in names
        ]

    def idle(self, options: Options) -> Iterator[ValidationRow]:
        """A row for each branch that no case took, and for each loop whose body never ran."""
        for name in self._idle():
            graph = self._graphs.get(name)
            if graph is None or graph.owner is None:
                continue
            owner = graph.owner
            row = ValidationRow(
                owner.name, owner.op, name, "", (), 0, None, None, f"graph '{name}' did not run in any case"
            )
            waived = options.allows(owner.op, owner.operator, owner.name)
            yield row._replace(program="kernels", members=(owner.name,), unproved=(owner.name,), waived=waived)

    def _idle(self) -> list[str]:
        """The graphs that did not run."""
        idle = dict.fromkeys(self._names[i] for i, ran in self._ran.items() if not ran)
        return [name for name in idle if not any(name.startswith(f"{loop}.") for loop in self._single)]

    @property
    def refused(self) -> str:
        """Kernels that were not judged, by the names of their graphs and loops; "" where there are none."""
        if not self._most:
            return ""
        said = [self._reason] if self._reason else []
        said += [f"graph '{name}' did not run in any case" for name in self._idle()]
        said += [f"loop '{name}' is one kernel, judged as a node alone" for name in sorted(self._single)]
        said += sorted(self._lost)
        return "; ".join(said)


def _shape_of(node: ReferenceNode, name: str) -> Any:
    """The sizes that a body declares of an input."""
    (body,) = (attribute.g for attribute in node.proto.attribute if attribute.type == AttributeProto.GRAPH)
    return next(value.type.tensor_type.shape.dim for value in body.input if value.name == name)


def _has_graphs(proto: Any) -> bool:
    return any(attribute.type == AttributeProto.GRAPH for attribute in proto.attribute)


def _inner(
    program: Program, outer: Reference, owner: ReferenceNode | None, prefix: str
) -> Iterator[tuple[str, _Graph]]:
    """The graphs in a graph's nodes, by the names that the importer gives them."""
    for node in outer.nodes:
        for attribute in node.proto.attribute:
            if attribute.type != AttributeProto.GRAPH:
                continue
            name = f"{prefix}{node.name}.{_ROLES.get(attribute.name, attribute.name)}"
            graph: GraphProto = attribute.g
            reference = BodyReference(outer, graph, node, name)
            root = owner or node
            inputs = tuple(value.name for value in graph.input)
            yield name, _Graph(name, node, root, inputs, ShippedKernels(program, reference))
            yield from _inner(program, reference, root, f"{name}/")
