"""Sources of the tensors under test: pumice's programs on a device, or another runtime."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import onnx

from ..._pumice import Context, Graph, IndexRangeError, Program
from ...base.element_types import Array
from ...base.string_table import StringTable, TensorStringTable
from ...importer.build.float32_node_collector import Float32NodeCollector
from ...importer.file.graph_recipe import NodeRecipe
from ...importer.file.model_file import Folder, ModelFile, Source
from ...importer.parse_onnx import parse_model
from ...model.model import Model
from ...model.precision_policy import Precision, parse_policy
from ..report.node_costs import NodeCost, measure_node_costs
from ..report.repeat_results import (
    SAME_RECORDING,
    Results,
    ResultTallies,
)
from ..report.subgraph import make_value_info
from ..rules.float_types import ProgramTypes
from . import streaming
from .loop_timeouts import get_graph_loop_timeout
from .oracle import TensorSource
from .reference_model import ReferenceModel, ReferenceNode
from .streaming import CANNOT_RUN_ERRORS, TensorMap, WindowedTensors, read_reported_additions


class ModelSplitter:
    """Splits a model into subgraphs. kept_inputs: inputs of every subgraph, with the initializers of the same names."""

    def __init__(
        self, source: Source, folder: Folder | None, reference: ReferenceModel, kept_inputs: Collection[str] = ()
    ) -> None:
        self._model = parse_model(ModelFile(source, folder), with_weights=True)
        graph = self._model.graph
        self.nodes = reference.nodes
        self.outputs = [value.name for value in graph.output]
        self._kept_inputs = set(kept_inputs)
        self._inputs = {value.name: value for value in graph.input}
        self._weights = {tensor.name: tensor for tensor in graph.initializer}
        self._sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        self._constants = {
            node.output[0]: node for node in graph.node if node.op_type == "Constant" and not node.domain
        }
        last = {name: index for index, node in enumerate(self.nodes) for name in node.inputs}
        last.update(dict.fromkeys(self.outputs, len(self.nodes)))
        self._last_readers = last

    def find_live_values(self, count: int) -> list[str]:
        """Return the values available after `count` nodes that later nodes or the caller read: names in graph order."""
        return [
            name
            for node in self.nodes[:count]
            if not node.is_folded
            for name in node.outputs
            if self._last_readers.get(name, -1) >= count
        ]

    def find_last_reader(self, name: str) -> int:
        """Return the index of the last node that reads a value; the number of nodes for an output, -1 if nothing reads it."""
        return self._last_readers.get(name, -1)

    def extract_prefix(self, count: int, outputs: Iterable[str]) -> onnx.ModelProto:
        """Return the first `count` nodes as a model, without those that `outputs` do not depend on."""
        return self.extract(self.nodes[:count], list(outputs), {})

    def extract(
        self, nodes: list[ReferenceNode], outputs: list[str], extra_inputs: dict[str, onnx.ValueInfoProto]
    ) -> onnx.ModelProto:
        """Return the nodes that `outputs` depend on as a model. extra_inputs: results of other nodes that become inputs."""
        needed, kept_nodes = set(outputs), []
        for node in reversed(nodes):
            if needed.intersection(node.outputs):
                needed.update(node.inputs)
                kept_nodes.append(node)
        read = self._kept_inputs.union(*(node.inputs for node in kept_nodes), outputs)
        submodel = onnx.ModelProto()
        submodel.ir_version = self._model.ir_version
        submodel.opset_import.extend(self._model.opset_import)
        graph = submodel.graph
        graph.name = self._model.graph.name
        graph.node.extend(node for name, node in self._constants.items() if name in read)
        for node in reversed(kept_nodes):
            graph.node.append(node.proto)
            graph.node[-1].name = node.name
        graph.input.extend(value for name, value in self._inputs.items() if name in read)
        graph.input.extend(value for name, value in extra_inputs.items() if name in read)
        graph.initializer.extend(tensor for name, tensor in self._weights.items() if name in read)
        graph.sparse_initializer.extend(tensor for name, tensor in self._sparse.items() if name in read)
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
        return submodel


class NodeWindows:
    """Windows of consecutive nodes of a model. Their programs are unfused and keep every tensor."""

    def __init__(
        self, model: Model, load: Callable[..., Any], reference: ReferenceModel, proto: onnx.ModelProto
    ) -> None:
        self._model = model
        self._load = load
        self._reference = reference
        self._loop_timeout = get_graph_loop_timeout(proto.graph)
        self._proto = proto
        self._folded = [node for node in reference.nodes if node.is_folded]
        self._policy = parse_policy(model.policy)
        self._float32 = {
            node.name for node in reference.nodes if node.precision == "fp32" and reference.has_mixed_precision
        }
        self._splitter: ModelSplitter | None = None
        self._ends: dict[Any, list[int]] = {}  # ends of the windows, by input shapes
        # Maps a node to its longest chain of additions, for windows that ran.
        self.additions: dict[str, int] | None = None

    def get_window_ends(self, inputs: Mapping[str, Array]) -> list[int]:
        """Return the end of each window for inputs of these shapes; [] if all tensors fit into one."""
        shapes = tuple(sorted((name, array.shape) for name, array in inputs.items()))
        if shapes not in self._ends:
            self._ends[shapes] = self._choose_window_ends(streaming.infer_tensor_bytes(self._proto, inputs))
        return list(self._ends[shapes])

    def _choose_window_ends(self, sizes: Mapping[str, int]) -> list[int]:
        ends, total = [], 0
        for index, node in enumerate(self._reference.nodes):
            node_bytes = 0 if node.is_folded else sum(sizes.get(name, 0) for name in node.outputs)
            if total and total + node_bytes > streaming.WINDOW_BYTES:
                ends.append(index)
                total = 0
            total += node_bytes
        return [*ends, len(self._reference.nodes)] if ends else []

    def run_window(
        self, inputs: Mapping[str, Array], start: int, end: int, live_tensors: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return the tensors of the nodes in [start, end). Raise UnsupportedError, GraphError or KeyError if the
        nodes cannot run as a separate program.
        """
        program, strings = self._compile_window(start, end, inputs, live_tensors)
        try:
            available = {**self._reference.decode_strings(inputs), **live_tensors}
            program_inputs = {program_input.name: available[program_input.name] for program_input in program.inputs}
            program_inputs = strings.encode_tensors(program_inputs) if strings else program_inputs
            results = dict(program(program_inputs, loop_timeout=self._loop_timeout, filled=True))
            results = strings.decode_tensors(results) if strings else results
            self.additions = {**(self.additions or {}), **read_reported_additions(program, program_inputs)}
            return results
        finally:
            program.close()  # frees the device memory of all its tensors

    def _is_float32(self, node: NodeRecipe, path: str) -> bool:
        """Return whether the whole program computes a node in float32, because of the policy or the engine's choice."""
        return path in self._float32 or self._policy.needs_float32(node, path)

    def _compile_window(
        self, start: int, end: int, inputs: Mapping[str, Array], live_tensors: Mapping[str, Array]
    ) -> tuple[Program, TensorStringTable | None]:
        model = self._model
        overridable = [value.name for value in model.overridable]
        if self._splitter is None:
            self._splitter = ModelSplitter(model.source, model.folder, self._reference, overridable)
        nodes = [node for node in self._reference.nodes[start:end] if not node.is_folded]
        produced = {name for node in (*nodes, *self._folded) for name in node.outputs}
        outputs = [name for node in nodes for name in node.outputs if self._splitter.find_last_reader(name) >= end]
        boundary_inputs = (
            {name for node in nodes for name in node.inputs} - produced - set(inputs) - set(self._reference.constants)
        )
        extra_inputs = {name: make_value_info(name, live_tensors[name]) for name in sorted(boundary_inputs)}
        submodel = self._splitter.extract([*self._folded, *nodes], outputs, extra_inputs)
        float32 = Float32NodeCollector(self._is_float32)
        graph, recipe = self._load(
            submodel, ModelFile(model.source, model.folder).folder, None, overridable, float32, model.kernel_table
        )
        program: Program = graph.compile(
            model.context, model.precision, keep_all=True, fuse=False, float32_nodes=float32.names
        )
        values = recipe.string_values
        return program, TensorStringTable(StringTable(recipe.strings), values) if values else None


# Notes in report() about nodes that a 16-bit program computes in float32 on the engine's own decision.
_FLOAT32_NOTE_PREFIXES = (
    "float32: computes positions",
    "float32: reads positions",
    "float32: integers",
    "float32: computes scores",
)


def _is_computed_in_float32(row: Mapping[str, Any]) -> bool:
    return any(note.startswith(_FLOAT32_NOTE_PREFIXES) for note in row["note"].split("; "))


def _find_converted_values(rows: Sequence[Mapping[str, Any]], verb: str) -> set[str]:
    """Return the values converted by nodes that the engine added and reports with `verb`, also in subgraphs."""
    names = [row["node"] for row in rows if row["added"]]
    return {name[name.index(verb) + len(verb) : name.rindex("' to ")] for name in names if verb in name}


class DeviceTensors(TensorSource):
    """Tensors from pumice: all tensors of the unfused program, and the fused program's outputs. load: the function load_graph."""

    missing_note = "not made by the program"
    from_one_run = False

    def __init__(self, model: Model, load: Callable[..., Any]) -> None:
        overridable = [value.name for value in model.overridable]
        graph, _ = load(model.source, model.folder, None, overridable, kernels=model.kernel_table)
        self.types: Precision | ProgramTypes = model.policy
        self._model = model
        self.strings = model._tensor_strings
        self._load = load
        self._proto = parse_model(ModelFile(model.source, model.folder))
        self.loop_timeout = get_graph_loop_timeout(self._proto.graph)
        self._graph: Graph = graph
        self._unfused: Program | None = None
        self._windows: NodeWindows | None = None
        # Programs that check indices: the unfused program (`_unfused` itself if the model has no indices), and one for
        # streamed models.
        self._unfused_checked: Program | None = None
        self._index_checker: Program | None = None
        self._checked: dict[str, Array] | None = None  # inputs with valid indices

    def compute_tensors(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return every tensor of the unfused program."""
        try:
            results = self._run_program(self._checked_program(), inputs)
        except IndexRangeError:  # `check_indices` reports the error
            return self._run_program(self._unfused_program(), inputs)
        self._checked = inputs
        return results

    def _run_program(self, program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run a program on memory filled with NaN, because data of an earlier run could hide a missing barrier."""
        results = dict(program(dict(inputs), loop_timeout=self.loop_timeout, filled=True))
        return self.strings.decode_tensors(results) if self.strings else results

    def _unfused_program(self) -> Program:
        """Return the unfused program, compiled on first use."""
        if self._unfused is None:
            self._unfused = self.compile(keep_all=True, fuse=False)
        return self._unfused

    def _checked_program(self) -> Program:
        if self._unfused_checked is None:
            self._unfused_checked = self.compile(keep_all=True, fuse=False, check_indices=True)
            if not self._unfused_checked.checks_indices and self._unfused is None:
                self._unfused = self._unfused_checked
        return self._unfused_checked

    def compile(self, context: Context | None = None, **options: Any) -> Program:
        """Compile the unfused program, by default for the model's context. The model's graph is read only once."""
        model = self._model
        options |= {"float32_nodes": model.float32_nodes, "measured": model.step_variants}
        return self._graph.compile(context or model.context, model.precision, **options)

    def compile_optimized(self, context: Context) -> Program:
        """Compile the optimised program for another context."""
        model = self._model
        options = {"fuse": model.fuse, "check_indices": model.check_indices, "deterministic": model.deterministic}
        return self.compile(context, **options)

    def get_addition_counts(self, inputs: dict[str, Array]) -> dict[str, int]:
        """Return the addition counts of the unfused or streamed program; {} for control flow, which has no single plan."""
        if self._windows is not None and self._windows.additions is not None:
            return self._windows.additions
        program = self._unfused or self._unfused_checked
        return read_reported_additions(program, inputs) if program is not None else {}

    def mark_float32_nodes(self, reference: ReferenceModel) -> None:
        """Set the reference's float32 nodes and rounded values from the report of the unfused program."""
        if self._model.precision == "fp32":
            return
        rows = self._checked_program().report()
        stored = {row["node"] for row in rows if row["precision"] == "fp32"}
        reference.set_float32_nodes({row["node"] for row in rows if _is_computed_in_float32(row)}, stored)
        reference.saturated_reads = _find_converted_values(rows, "saturate '")
        if reference.has_mixed_precision:
            reference.rounded_reads = _find_converted_values(rows, "cast '")

    def stream(self, inputs: dict[str, Array], reference: ReferenceModel) -> TensorMap:
        """Stream the tensors in windows of nodes if together they exceed WINDOW_BYTES."""
        if self._windows is None:
            self._windows = NodeWindows(self._model, self._load, reference, self._proto)
        windows = self._windows
        windows.additions = None  # those of an earlier case may belong to other sizes
        ends = windows.get_window_ends(inputs)
        if not ends:
            return TensorMap(self.compute_tensors(inputs))

        def run_window(start: int, end: int, live_tensors: Mapping[str, Array]) -> dict[str, Array]:
            try:
                return windows.run_window(inputs, start, end, live_tensors)
            except CANNOT_RUN_ERRORS:  # for example a subgraph with values that are not tensors
                node_outputs = {name for node in reference.nodes[start:end] for name in node.outputs}
                return {name: array for name, array in self.compute_tensors(inputs).items() if name in node_outputs}

        return WindowedTensors(ends, run_window)

    def measure_node_costs(self, inputs: dict[str, Array]) -> dict[str, NodeCost]:
        """Return the cost of each node of the unfused program by name; {} if it is streamed."""
        if self._unfused is None and self._checked is None:
            return {}
        return measure_node_costs(self._unfused_program(), inputs, self.loop_timeout)

    def compute_outputs(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return the outputs of the fused program."""
        return self._run_program(self._model.program, inputs)

    def run_preceding_case(self, inputs: Mapping[str, Array]) -> None:
        """Run the fused program on another case, so that stale memory contains values of that case."""
        with suppress(IndexRangeError):  # reported when that case is checked
            self._run_program(self._model.program, inputs)

    def check_indices(self, inputs: dict[str, Array]) -> None:
        """Raise IndexRangeError, which names the node, if an index is out of range."""
        if self._checked is inputs:
            return
        if self._index_checker is None:
            self._index_checker = self.compile(check_indices=True)
        if self._index_checker.checks_indices:
            self._index_checker(inputs, loop_timeout=self.loop_timeout)

    def close(self) -> None:
        """Close the compiled programs."""
        for program in (self._unfused, self._unfused_checked, self._index_checker):
            if program is not None:
                program.close()


# Device features that select between kernels of an operator.
OPTIONAL_FEATURES = ("cooperativeMatrix", "subgroupShuffle")


def make_replay(program: Program, inputs: Results) -> Callable[[], Results]:
    """Return a function that replays the program's recording on these inputs and waits."""
    execution = program.execution()
    for name, array in inputs.items():
        execution.set(name, array)
    return lambda: execution.compute(loop_timeout=None)


def tally_runs(run: Callable[[], Results], count: int) -> ResultTallies:
    tallies = ResultTallies()
    for _ in range(count):
        tallies.add(SAME_RECORDING, run())
    return tallies


def count_differing_runs(model: Model, inputs: Results, count: int) -> int:
    """Return how many of `count` runs differ from the most common result, for the output with the most."""
    names = (value.name for value in model.program.inputs)
    run = make_replay(model.program, dict(zip(names, model.arguments(**inputs), strict=True)))
    return tally_runs(run, count).max_differing
