"""Where the tensors come from that a validation judges: pumice's programs on a device, or another runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from .._pumice import Context, Graph, IndexRangeError, Program
from ..base.element_types import Array
from ..base.string_table import KeptStrings
from ..importer.file.model_file import ModelFile
from ..importer.parse import parse
from ..model.model import Model
from ..model.policy import Precision
from .bounds.types import Types
from .loops import timeout_of
from .reference import Reference
from .streaming import CANNOT, Held, Windowed, Windows, told_additions
from .work import Work, work_of

# Notes of report() on nodes that a program of 16-bit floats computes in float32 of its own accord.
_FLOAT32_NOTES = (
    "float32: computes positions",
    "float32: reads positions",
    "float32: integers",
    "float32: computes scores",
)


def _is_float32(row: Mapping[str, Any]) -> bool:
    return any(note.startswith(_FLOAT32_NOTES) for note in row["note"].split("; "))


def _converted(rows: Sequence[Mapping[str, Any]], verb: str) -> set[str]:
    """The values that nodes convert which the engine adds, of those whose names begin so, also inside of other graphs."""
    names = [row["node"] for row in rows if row["added"]]
    return {name[name.index(verb) + len(verb) : name.rindex("' to ")] for name in names if verb in name}


class Subject(Protocol):
    """What is judged: a loaded model, or a candidate that stands for one."""

    source: Any
    folder: Any
    name: str
    precision: Any
    kernel_table: Any

    @property
    def device(self) -> Any:
        """Where it runs: an object with a `name`."""
        ...

    @property
    def program(self) -> Any:
        """An object whose `outputs` have names: tensors that reach the caller."""
        ...

    @property
    def outputs(self) -> Any:
        """The model's outputs, which may be sequences."""
        ...

    def packed_outputs(self, values: Any) -> dict[str, Array]:
        """The program's tensors for given values of outputs that are sequences or optional values."""
        ...


class Tensors(Protocol):
    """A source of tensors: `tensors` for the judgement node by node, `results` of the program that ships.

    absent: what is said of a tensor that is not among them; nothing where only outputs are judged. single: both are of one run, so that
    one says nothing of the other. types: the precision, or the types, in which it computes.
    """

    absent: str
    single: bool
    types: Precision | Types
    loop_timeout: float | None
    strings: KeptStrings | None  # which the program has by their places

    def set_float32(self, reference: Reference) -> None:
        """Tell the reference which nodes compute in float32, and which values in float32 are rounded for some of their readers."""
        ...

    def tensors(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Every tensor that there is, by name."""
        ...

    def stream(self, inputs: dict[str, Array], reference: Reference) -> Held:
        """The same, of which those of later nodes may come later."""
        ...

    def additions(self, inputs: dict[str, Array]) -> dict[str, int]:
        """The longest chain of additions in the sums of each node's kernel, of what has been streamed; without those that do not tell."""
        ...

    def work(self, inputs: dict[str, Array]) -> dict[str, Work]:
        """The work of each node, where it is known."""
        ...

    def results(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """The outputs by name. Raises IndexRangeError where a program that checks its indices meets a wrong one."""
        ...

    def check_indices(self, inputs: dict[str, Array]) -> None:
        """Raises IndexRangeError for an index out of range that only the device knows."""
        ...

    def close(self) -> None:
        """Frees what was made for it."""
        ...


class DeviceTensors:
    """Tensors that pumice makes: all those of a program without fusion, the results of the fused one. load: load_graph."""

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
        # Which look at indices too; of a model without any the first one is `_every`. The second is for tensors that are too many to keep.
        self._every_checked: Program | None = None
        self._checking: Program | None = None
        self._checked: dict[str, Array] | None = None  # inputs whose indices are right

    def tensors(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Every tensor of the program without fusion."""
        try:
            made = self._ran(self._checked_nodes(), inputs)
        except IndexRangeError:  # which `check_indices` says of them too
            return self._ran(self._single_nodes(), inputs)
        self._checked = inputs
        return made

    def _ran(self, program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The results of a run on filled memory: what a run on the same inputs has left there would hide a missing barrier."""
        made = dict(program(dict(inputs), loop_timeout=self.loop_timeout, filled=True))
        return self.strings.texts(made) if self.strings else made

    def _single_nodes(self) -> Program:
        """The program without fusion, compiled when it is first asked for."""
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
        """The model's graph, which is read once, compiled for a context, by default the model's, at its precision."""
        model = self._model
        options |= {"float32_nodes": model.float32_nodes, "measured": model.step_variants}
        return self._graph.compile(context or model.context, model.precision, **options)

    def shipped(self, context: Context) -> Program:
        """The program that ships once more, for another context."""
        model = self._model
        options = {"fuse": model.fuse, "check_indices": model.check_indices, "deterministic": model.deterministic}
        return self.compiled(context, **options)

    def additions(self, inputs: dict[str, Array]) -> dict[str, int]:
        """The additions of the program without fusion, or of its parts. A program with control flow has no one plan, and tells nothing."""
        if self._windows is not None and self._windows.additions is not None:
            return self._windows.additions
        program = self._every or self._every_checked
        return told_additions(program, inputs) if program is not None else {}

    def set_float32(self, reference: Reference) -> None:
        """Read both from the report of the program without fusion."""
        if self._model.precision == "fp32":
            return
        rows = self._checked_nodes().report()
        stored = {row["node"] for row in rows if row["precision"] == "fp32"}
        reference.keep_float32({row["node"] for row in rows if _is_float32(row)}, stored)
        reference.saturated = _converted(rows, "saturate '")
        if reference.mixed:
            reference.narrowed = _converted(rows, "cast '")

    def stream(self, inputs: dict[str, Array], reference: Reference) -> Held:
        """Streams by windows of nodes where all tensors are more than WINDOW bytes."""
        if self._windows is None:
            self._windows = Windows(self._model, self._load, reference, self._proto)
        windows = self._windows
        windows.additions = None  # those of a case before may be of other sizes
        ends = windows.ends(inputs)
        if not ends:
            return Held(self.tensors(inputs))

        def run(start: int, end: int, known: Mapping[str, Array]) -> dict[str, Array]:
            try:
                return windows.run(inputs, start, end, known)
            except CANNOT:  # of a part with values that are no tensors, for one
                wanted = {name for node in reference.nodes[start:end] for name in node.outputs}
                return {name: array for name, array in self.tensors(inputs).items() if name in wanted}

        return Windowed(ends, run)

    def work(self, inputs: dict[str, Array]) -> dict[str, Work]:
        """The work of each node of the program without fusion; not known where that is run in parts."""
        if self._every is None and self._checked is None:
            return {}
        return work_of(self._single_nodes(), inputs, self.loop_timeout)

    def results(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """The outputs of the fused program."""
        return self._ran(self._model.program, inputs)

    def run_before(self, inputs: Mapping[str, Array]) -> None:
        """Runs the fused program on another case than the first one that is judged: memory that is not filled holds its values then."""
        with suppress(IndexRangeError):  # a fault of that case
            self._ran(self._model.program, inputs)

    def check_indices(self, inputs: dict[str, Array]) -> None:
        """Raises IndexRangeError, which names the node."""
        if self._checked is inputs:
            return
        if self._checking is None:
            self._checking = self.compiled(check_indices=True)
        if self._checking.checks_indices:
            self._checking(inputs, loop_timeout=self.loop_timeout)

    def close(self) -> None:
        """Closes the programs that were compiled for it."""
        for program in (self._every, self._every_checked, self._checking):
            if program is not None:
                program.close()
