"""Sources of the tensors under test: pumice's programs on a device, or another runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from ..._pumice import Context, Graph, IndexRangeError, Program
from ...base.element_types import Array
from ...base.string_table import TensorStringTable
from ...importer.file.model_file import ModelFile
from ...importer.parse_onnx import parse_model
from ...model.model import Model
from ...model.precision_policy import Precision
from ..report.node_costs import NodeCost, measure_node_costs
from ..rules.float_types import ProgramTypes
from .loop_timeouts import get_graph_loop_timeout
from .reference_model import ReferenceModel
from .streaming import CANNOT_RUN_ERRORS, NodeWindows, TensorMap, WindowedTensors, read_reported_additions

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


class ValidationSubject(Protocol):
    """What is validated: a loaded model or a candidate."""

    source: Any
    folder: Any
    name: str
    precision: Any
    kernel_table: Any

    @property
    def device(self) -> Any:
        """The device, an object with a `name`."""
        ...

    @property
    def program(self) -> Any:
        """An object with `outputs`, the named tensors that the caller receives."""
        ...

    @property
    def outputs(self) -> Any:
        """The model's outputs, which may be sequences."""
        ...

    def packed_outputs(self, values: Any) -> dict[str, Array]:
        """Return the program's tensors for outputs that are sequences or optional values."""
        ...


class TensorSource(Protocol):
    """Source of the tensors under test: all tensors for checks of single nodes, and the optimised program's outputs.

    missing_note: note for a missing tensor; "" if only outputs are checked. from_one_run: whether tensors and outputs
    come from the same run, so that comparing them proves nothing. types: the precision, or the types, of the computation.
    """

    missing_note: str
    from_one_run: bool
    types: Precision | ProgramTypes
    loop_timeout: float | None
    strings: TensorStringTable | None  # string table of a program that represents strings as indices

    def mark_float32_nodes(self, reference: ReferenceModel) -> None:
        """Tell the reference which nodes compute in float32, and which float32 values are rounded for some readers."""
        ...

    def compute_tensors(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return every available tensor by name."""
        ...

    def stream(self, inputs: dict[str, Array], reference: ReferenceModel) -> TensorMap:
        """Return the same tensors as `compute_tensors`, possibly loading those of later nodes on demand."""
        ...

    def get_addition_counts(self, inputs: dict[str, Array]) -> dict[str, int]:
        """Return the longest chain of additions in the kernel of each node.

        Kernels that do not report it are omitted. For a streamed model, only nodes that ran are included.
        """
        ...

    def measure_node_costs(self, inputs: dict[str, Array]) -> dict[str, NodeCost]:
        """Return the cost of each node by name; {} if it is unknown."""
        ...

    def compute_outputs(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return the outputs by name. Raise IndexRangeError if the program checks indices and finds a wrong one."""
        ...

    def check_indices(self, inputs: dict[str, Array]) -> None:
        """Raise IndexRangeError for an out-of-range index that only the device knows."""
        ...

    def close(self) -> None:
        """Free resources."""
        ...


class DeviceTensors:
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
