"""Sources of the tensors to validate: pumice's programs on a device, or another runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from .._pumice import Context, Graph, IndexRangeError, Program
from ..base.element_types import Array
from ..base.string_indices import KeptStrings
from ..importer.file.model_file import ModelFile
from ..importer.parse import parse
from ..model.model import Model
from ..model.precision_policy import Precision
from .bounds.float_types import Types
from .loop_limits import timeout_of
from .reference import Reference
from .streaming import CANNOT, Held, Windowed, Windows, told_additions
from .work import Work, work_of

# Notes in report() about nodes that a 16-bit program computes in float32 although nobody requested it.
_FLOAT32_NOTES = (
    "float32: computes positions",
    "float32: reads positions",
    "float32: integers",
    "float32: computes scores",
)


def _is_float32(row: Mapping[str, Any]) -> bool:
    return any(note.startswith(_FLOAT32_NOTES) for note in row["note"].split("; "))


def _converted(rows: Sequence[Mapping[str, Any]], verb: str) -> set[str]:
    """Return the values that the engine's added nodes of this kind convert, including those in subgraphs."""
    names = [row["node"] for row in rows if row["added"]]
    return {name[name.index(verb) + len(verb) : name.rindex("' to ")] for name in names if verb in name}


class Subject(Protocol):
    """The subject of a validation: a loaded model or a candidate."""

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
        """An object whose `outputs` have names: the tensors that reach the caller."""
        ...

    @property
    def outputs(self) -> Any:
        """The model's outputs, which may be sequences."""
        ...

    def packed_outputs(self, values: Any) -> dict[str, Array]:
        """Return the program's tensors for outputs that are sequences or optional values."""
        ...


class Tensors(Protocol):
    """A source of tensors: `tensors` for checking node by node, `results` of the optimised program.

    absent: note for a missing tensor; "" if only outputs are checked. single: whether both come from one run, so that
    comparing them proves nothing. types: the precision or types it computes in.
    """

    absent: str
    single: bool
    types: Precision | Types
    loop_timeout: float | None
    strings: KeptStrings | None  # strings of a program that represents them as indices

    def set_float32(self, reference: Reference) -> None:
        """Set which nodes compute in float32, and which float32 values are rounded for some of their readers."""
        ...

    def tensors(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return every available tensor by name."""
        ...

    def stream(self, inputs: dict[str, Array], reference: Reference) -> Held:
        """Return the same tensors, possibly loading those of later nodes on demand."""
        ...

    def additions(self, inputs: dict[str, Array]) -> dict[str, int]:
        """Return the longest chain of additions in each node's kernel, in a streamed model for the nodes that ran;
        kernels that do not report it are omitted.
        """
        ...

    def work(self, inputs: dict[str, Array]) -> dict[str, Work]:
        """Return the work of each node, if known."""
        ...

    def results(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return the outputs by name. Raise IndexRangeError if the program checks indices and finds a wrong one."""
        ...

    def check_indices(self, inputs: dict[str, Array]) -> None:
        """Raise IndexRangeError for an out-of-range index that only the device knows."""
        ...

    def close(self) -> None:
        """Free resources."""
        ...


class DeviceTensors:
    """Tensors from pumice: all tensors of the unfused program, and the fused program's outputs. load: load_graph."""

    absent = "not made by the program"
    single = False

    def __init__(self, model: Model, load: Callable[..., Any]) -> None:
        overridable = [value.name for value in model.overridable]
        graph, _ = load(model.source, model.folder, None, overridable, kernels=model.kernel_table)
        self.types: Precision | Types = model.policy
        self._model = model
        self.strings = model._kept_strings
        self._load = load
        self._proto = parse(ModelFile(model.source, model.folder))
        self.loop_timeout = timeout_of(self._proto.graph)
        self._graph: Graph = graph
        self._every: Program | None = None
        self._windows: Windows | None = None
        # Programs that also check indices. Without any indices, the first is `_every`. The second is for tensors too
        # large to keep.
        self._every_checked: Program | None = None
        self._checking: Program | None = None
        self._checked: dict[str, Array] | None = None  # inputs with valid indices

    def tensors(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return every tensor of the unfused program."""
        try:
            made = self._ran(self._checked_nodes(), inputs)
        except IndexRangeError:  # reported by `check_indices` too
            return self._ran(self._single_nodes(), inputs)
        self._checked = inputs
        return made

    def _ran(self, program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run on filled memory; a previous run's data could otherwise hide a missing barrier."""
        made = dict(program(dict(inputs), loop_timeout=self.loop_timeout, filled=True))
        return self.strings.texts(made) if self.strings else made

    def _single_nodes(self) -> Program:
        """Return the unfused program, compiled on first use."""
        if self._every is None:
            self._every = self.compiled(keep_all=True, fuse=False)
        return self._every

    def _checked_nodes(self) -> Program:
        if self._every_checked is None:
            self._every_checked = self.compiled(keep_all=True, fuse=False, check_indices=True)
            if not self._every_checked.checks_indices and self._every is None:
                self._every = self._every_checked
        return self._every_checked

    def compiled(self, context: Context | None = None, **options: Any) -> Program:
        """Compile the model's graph, which is read once, by default for the model's context."""
        model = self._model
        options |= {"float32_nodes": model.float32_nodes, "measured": model.step_variants}
        return self._graph.compile(context or model.context, model.precision, **options)

    def shipped(self, context: Context) -> Program:
        """Compile the optimised program for another context."""
        model = self._model
        options = {"fuse": model.fuse, "check_indices": model.check_indices, "deterministic": model.deterministic}
        return self.compiled(context, **options)

    def additions(self, inputs: dict[str, Array]) -> dict[str, int]:
        """Return the additions of the unfused or streamed program; {} with control flow, which has no single plan."""
        if self._windows is not None and self._windows.additions is not None:
            return self._windows.additions
        program = self._every or self._every_checked
        return told_additions(program, inputs) if program is not None else {}

    def set_float32(self, reference: Reference) -> None:
        """Read the nodes and values from the report of the unfused program."""
        if self._model.precision == "fp32":
            return
        rows = self._checked_nodes().report()
        stored = {row["node"] for row in rows if row["precision"] == "fp32"}
        reference.keep_float32({row["node"] for row in rows if _is_float32(row)}, stored)
        reference.saturated = _converted(rows, "saturate '")
        if reference.mixed:
            reference.narrowed = _converted(rows, "cast '")

    def stream(self, inputs: dict[str, Array], reference: Reference) -> Held:
        """Stream by windows of nodes if all tensors exceed WINDOW bytes."""
        if self._windows is None:
            self._windows = Windows(self._model, self._load, reference, self._proto)
        windows = self._windows
        windows.additions = None  # an earlier case may have had different sizes
        ends = windows.ends(inputs)
        if not ends:
            return Held(self.tensors(inputs))

        def run(start: int, end: int, known: Mapping[str, Array]) -> dict[str, Array]:
            try:
                return windows.run(inputs, start, end, known)
            except CANNOT:  # for example a subgraph with values that are not tensors
                wanted = {name for node in reference.nodes[start:end] for name in node.outputs}
                return {name: array for name, array in self.tensors(inputs).items() if name in wanted}

        return Windowed(ends, run)

    def work(self, inputs: dict[str, Array]) -> dict[str, Work]:
        """Return the work of each node of the unfused program; {} if streamed."""
        if self._every is None and self._checked is None:
            return {}
        return work_of(self._single_nodes(), inputs, self.loop_timeout)

    def results(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return the outputs of the fused program."""
        return self._ran(self._model.program, inputs)

    def run_before(self, inputs: Mapping[str, Array]) -> None:
        """Run the fused program on a case other than the first, so that unfilled memory contains its values."""
        with suppress(IndexRangeError):  # reported when that case is checked
            self._ran(self._model.program, inputs)

    def check_indices(self, inputs: dict[str, Array]) -> None:
        """Raise IndexRangeError, which names the node."""
        if self._checked is inputs:
            return
        if self._checking is None:
            self._checking = self.compiled(check_indices=True)
        if self._checking.checks_indices:
            self._checking(inputs, loop_timeout=self.loop_timeout)

    def close(self) -> None:
        """Close the compiled programs."""
        for program in (self._every, self._every_checked, self._checking):
            if program is not None:
                program.close()
