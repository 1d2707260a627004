"""The smallest part of a model that still fails: fewer nodes, fewer results, smaller tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import onnx

from .._pumice import Context, Error, sha256
from ..base.element_types import Array
from ..base.errors import InputError
from ..importer.file.model_file import Folder, Source
from ..importer.load import load_graph
from ..model.model import Model
from ..model.policy import Precision, policy_of
from .cut import Cut, MissingTensor, cut, part_precision
from .example import expected_results, files_of, typed, write_folder
from .judge import WRONG
from .reference import Reference
from .repeat import differing_runs
from .report import ValidationReport, ValidationRow, deciding_rows
from .setup import Origin, Setup
from .sources import DeviceTensors
from .validate import Case, validate

Fails: TypeAlias = Callable[[onnx.ModelProto, dict[str, Array]], bool]
Tried: TypeAlias = Callable[[int, int], None]


class Reduction(NamedTuple):
    """A model that is reduced: `proto`, its `inputs` by name, and of its results what the reference expects of those that it knows.

    before, after: the number of nodes; tried: how many parts were run; precision: at which the model fails.
    """

    proto: onnx.ModelProto
    inputs: dict[str, Array]
    expected: dict[str, Array]
    before: int
    after: int
    tried: int
    precision: Precision

    def __str__(self) -> str:
        nodes = ", ".join(f"'{node.name}' ({node.op_type})" for node in self.proto.graph.node[:4])
        more = f" and {self.after - 4} more" if self.after > 4 else ""
        shapes = ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in self.inputs.items())
        which = f"{self.after} of {self.before} nodes still fail at {_named(self.precision)}: {nodes}{more}"
        return f"{which}, on {shapes or 'no inputs'} ({self.tried} parts tried)"

    def save(self, folder: Folder) -> None:
        """Writes model.onnx and test_data_set_0, in the form of ONNX's own tests, into a folder that is new or empty: all or nothing.

        Raises InputError where the folder holds something, OSError.
        """
        write_folder(folder, files_of(Cut(self.proto, self.inputs), self.expected))


def _named(precision: Precision) -> str:
    return precision if isinstance(precision, str) else str(policy_of(precision).entries)


def validated(part: Cut, setup: Setup) -> ValidationReport:
    """What a validation says of a part. Raises as validate does."""
    names = {*part.nodes, *(name for node in part.proto.graph.node for name in node.output)}
    tolerances = {name: number for name, number in (setup.tolerances or {}).items() if name in names}
    with setup.load(part.proto) as model:
        return validate(model, [part.inputs], tolerances=tolerances, allow_unchecked=True)


class Shrinker:
    """Looks for small parts of a model that fail. `values`: the tensors that the device made, by name."""

    def __init__(self, reference: Reference, values: Mapping[str, Array], fails: Fails, step: Tried | None) -> None:
        self.reference = reference
        self.values = dict(values)
        self.tried = 0
        self._fails = fails
        self._step = step
        self._known: dict[str, bool] = {}

    def fails(self, part: Cut) -> bool:
        """Whether a part fails; one that does not run at all does not."""
        key = sha256(part.proto.SerializeToString(), *(array.tobytes() for array in part.inputs.values()))
        if key not in self._known:
            self.tried += 1
            try:
                self._known[key] = bool(self._fails(part.proto, part.inputs))
            except Error:
                self._known[key] = False
            if self._step:
                self._step(self.tried, self.tried)
        return self._known[key]

    def part(self, nodes: Sequence[str], outputs: Iterable[str] | None = None) -> Cut | None:
        """The part of these nodes, where it can be made and fails."""
        try:
            made = cut(self.reference, nodes, self.values, outputs)
        except MissingTensor:
            return None
        return made if made.outputs and self.fails(made) else None

    def smallest(self, first: Sequence[Sequence[str]] = ()) -> Cut | None:
        """The smallest part that fails; None where none does. `first`: nodes that are tried before all others."""
        found = next((part for nodes in first if (part := self.part(nodes))), None)
        found = found or self.part([node.name for node in self.reference.nodes])
        if found is None:
            return None
        return self.smaller(self._fewer_results(self._fewer_nodes(found)))

    def _fewer_nodes(self, found: Cut) -> Cut:
        """Leaves out halves, quarters and so on down to single nodes, as long as the rest fails."""
        size = max(len(found.nodes) // 2, 1)
        while len(found.nodes) > 1:
            begin, before = 0, len(found.nodes)
            while begin < len(found.nodes) and len(found.nodes) > 1:
                rest = found.nodes[:begin] + found.nodes[begin + size :]
                part = self.part(rest) if rest else None
                found = part or found
                begin += 0 if part else size
            if size == 1 and len(found.nodes) == before:
                break
            size = max(size // 2, 1)
        return found

    def _fewer_results(self, found: Cut) -> Cut:
        for name in list(found.outputs):
            rest = [other for other in found.outputs if other != name]
            found = (self.part(found.nodes, rest) if rest else None) or found
        return found

    # ---- sizes

    def smaller(self, found: Cut, enough: int = 0) -> Cut:
        """Halves axes as long as the part fails and has more than `enough` bytes.

        First the n-th axes of all inputs where they have one size, then all axes of one size, those of constants too.
        """
        for axis in range(max((array.ndim for array in found.inputs.values()), default=0)):
            sizes = {array.shape[axis] for array in found.inputs.values() if array.ndim > axis}
            for size in sorted(sizes, reverse=True):
                found = self._halved(found, size, axis, enough)
        sizes = {size for array in [*found.inputs.values(), *found.constants.values()] for size in array.shape}
        for size in sorted(sizes, reverse=True):
            found = self._halved(found, size, None, enough)
        return found

    def _halved(self, found: Cut, size: int, axis: int | None, enough: int) -> Cut:
        while size > 1 and found.bytes > enough:
            half = (size + 1) // 2
            parts = (self._sliced(found, size, axis, begin) for begin in (0, size - half))
            less = next((part for part in parts if part is not None), None)
            if less is None:
                break
            found, size = less, half
        return found

    def _sliced(self, found: Cut, size: int, axis: int | None, begin: int) -> Cut | None:
        """The part on half of such axes, from `begin` on, where that fails. No axis: all, and those of constants."""
        chosen = slice(begin, begin + (size + 1) // 2)

        def half(array: Array) -> Array:
            axes = [one == size and axis in (None, place) for place, one in enumerate(array.shape)]
            return np.ascontiguousarray(array[tuple(chosen if one else slice(None) for one in axes)])

        inputs = {name: half(array) for name, array in found.inputs.items()}
        constants = {name: array if axis is not None else half(array) for name, array in found.constants.items()}
        part = cut(self.reference, found.nodes, inputs, found.outputs, constants)
        return part if self.fails(part) else None


def device_tensors(origin: Origin, case: int) -> dict[str, Array]:
    """Every tensor of the unfused program, and the inputs, as the device has them."""
    with origin.load() as model:
        tensors = DeviceTensors(model, load_graph)
        try:
            made = tensors.tensors(origin.cases[case][0])
        finally:
            tensors.close()
    return {**origin.cases[case][0], **made}


def fails_by(setup: Setup, repeat: int) -> Fails:
    """Whether a part fails: a validation finds it wrong, or with `repeat` the bits of so many runs differ."""

    def wrong(proto: onnx.ModelProto, inputs: dict[str, Array]) -> bool:
        return validated(Cut(proto, inputs), setup).state == WRONG

    def differs(proto: onnx.ModelProto, inputs: dict[str, Array]) -> bool:
        with setup.load(proto) as model:
            return differing_runs(model, inputs, repeat) > 0

    return differs if repeat else wrong


def shrinker(origin: Origin, case: int, fails: Fails, step: Tried | None = None) -> Shrinker:
    """A Shrinker of one case."""
    reference = Reference(origin.source, origin.folder, origin.setup.precision, origin.setup.kernels)
    return Shrinker(reference, device_tensors(origin, case), fails, step)


def reduce(
    model: Model | Source,
    cases: Iterable[Case],
    *,
    context: Context | None = None,
    precision: Precision | None = None,
    fails: Fails | None = None,
    repeat: int = 0,
    progress: Tried | None = None,
) -> Reduction:
    """Finds a small part of the model that still fails: fewer nodes, fewer results, smaller inputs.

    What nodes that are left out would have made is an input of the part, with the values that the device made in the first case that
    fails. A part fails where `validate` finds it wrong at this precision; with `repeat`, and no row of the model wrong, where the bits of
    so many runs differ; with `fails`, where that says so, which is called with a ModelProto and its inputs by name. A part that raises
    an Error does not fail. `context`, `precision`: as in `validate`. `progress`: called with the number of parts tried so far, twice.
    Axes of inputs, and those of constants of the same size, are halved as long as the part fails.
    Raises InputError where no case fails, and for `fails` beside `repeat`, and as `validate` does.
    """
    if fails and repeat:
        raise InputError(f"reduce: expected `fails` or `repeat`, given both (repeat={repeat})")
    report = validate(model, cases, context=context, precision=precision, allow_unchecked=True, repeat=repeat)
    assert report.origin is not None
    wrong = [row for row in deciding_rows([*report.rows, *report.kernels]) if row.verdict == WRONG]
    restless = [] if wrong else [one for one in report.repeats if not one.deterministic]
    if not fails and report.ok:
        raise InputError(f"reduce: expected a model that fails, given one that does not: {report.summary}")
    first = [nodes for row in wrong for nodes in parts_of(row)] + [[one.node] for one in restless if one.node]
    failing = fails or fails_by(report.origin.setup, repeat if restless else 0)
    tried = 0
    for case in range(len(report.origin.cases)) if fails else [(wrong or restless)[0].case]:
        found = shrinker(report.origin, case, failing, progress)
        part = found.smallest(first)
        tried += found.tried
        if part is not None:
            return _reduction(part, report.origin.setup, len(found.reference.nodes), tried)
    raise InputError(f"reduce: expected a part that fails, given none that does by itself: {report.summary}")


def parts_of(row: ValidationRow) -> list[list[str]]:
    """The nodes that may be at fault by themselves where a row is wrong: the node, or those in the kernel. None for an output."""
    if row.op == "output":
        return []
    is_inside = any(member.startswith(f"{row.node}.") for member in row.members)  # of a graph that the node runs
    return [[row.node], list(row.members)] if len(row.members) > 1 and not is_inside else [[row.node]]


def _reduction(part: Cut, setup: Setup, before: int, tried: int) -> Reduction:
    precision = part_precision(setup.precision, part.proto)
    expected = expected_results(part, precision, setup.kernels)
    done = typed(part, expected)
    return Reduction(done.proto, done.inputs, expected, before, len(done.nodes), tried, precision)
