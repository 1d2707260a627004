"""Explains the first wrong node: extracts it as a model, lists its kernels and tries variations of the setup."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import onnx

from ..._pumice import Context, Error, IndexRangeError, another_context, devices, sha256
from ...base.element_types import Array
from ...base.errors import InputError
from ...base.host_arrays import view_element_bytes
from ...importer.load_graph import load_graph
from ...model.precision_policy import parse_policy
from ..reference.reference_model import ReferenceModel
from ..reference.subgraph_extraction import compute_expected_results, extract_subgraph
from ..reference.tensor_sources import OPTIONAL_FEATURES, DeviceTensors, count_differing_runs
from ..report.deviation import WRONG
from ..report.explanation import Explanation
from ..report.repeat_results import SAME_RECORDING
from ..report.report import ReportOrigin
from ..report.report_rows import ValidationRow
from ..report.subgraph import (
    MissingTensorError,
    ModelLoadSetup,
    Subgraph,
    declare_outputs,
    make_subgraph_precision,
)

if TYPE_CHECKING:
    from ..report.report import ValidationReport

FailureTest: TypeAlias = Callable[[onnx.ModelProto, dict[str, Array]], bool]
TrialCallback: TypeAlias = Callable[[int, int], None]


class SubgraphShrinker:
    """Searches for small failing subgraphs. values: the device's tensors by name."""

    def __init__(
        self, reference: ReferenceModel, values: Mapping[str, Array], fails: FailureTest, step: TrialCallback | None
    ) -> None:
        self.reference = reference
        self.values = dict(values)
        self.num_trials = 0
        self._failure_test = fails
        self._step = step
        self._cache: dict[str, bool] = {}

    def does_fail(self, subgraph: Subgraph) -> bool:
        """Return whether a subgraph fails; one that does not run does not fail."""
        key = sha256(
            subgraph.proto.SerializeToString(),
            *(view_element_bytes(array).tobytes() for array in subgraph.inputs.values()),
        )
        if key not in self._cache:
            self.num_trials += 1
            try:
                self._cache[key] = bool(self._failure_test(subgraph.proto, subgraph.inputs))
            except Error:
                self._cache[key] = False
            if self._step:
                self._step(self.num_trials, self.num_trials)
        return self._cache[key]

    def try_subgraph(self, nodes: Sequence[str], outputs: Iterable[str] | None = None) -> Subgraph | None:
        """Return the subgraph of these nodes if it can be built and fails, else None."""
        try:
            subgraph = extract_subgraph(self.reference, nodes, self.values, outputs)
        except MissingTensorError:
            return None
        return subgraph if subgraph.outputs and self.does_fail(subgraph) else None

    def find_smallest(self, first: Sequence[Sequence[str]] = ()) -> Subgraph | None:
        """Return the smallest failing subgraph found, or None. first: groups of nodes to try first."""
        subgraph = next(
            (candidate_subgraph for nodes in first if (candidate_subgraph := self.try_subgraph(nodes))), None
        )
        subgraph = subgraph or self.try_subgraph([node.name for node in self.reference.nodes])
        if subgraph is None:
            return None
        return self.shrink_tensors(self._remove_outputs(self._remove_nodes(subgraph)))

    def _remove_nodes(self, subgraph: Subgraph) -> Subgraph:
        """Remove groups of nodes (halves, quarters, ..., single nodes) as long as the remaining subgraph fails."""
        size = max(len(subgraph.nodes) // 2, 1)
        while len(subgraph.nodes) > 1:
            begin, before = 0, len(subgraph.nodes)
            while begin < len(subgraph.nodes) and len(subgraph.nodes) > 1:
                rest = subgraph.nodes[:begin] + subgraph.nodes[begin + size :]
                candidate_subgraph = self.try_subgraph(rest) if rest else None
                subgraph = candidate_subgraph or subgraph
                begin += 0 if candidate_subgraph else size
            if size == 1 and len(subgraph.nodes) == before:
                break
            size = max(size // 2, 1)
        return subgraph

    def _remove_outputs(self, subgraph: Subgraph) -> Subgraph:
        for name in list(subgraph.outputs):
            rest = [other for other in subgraph.outputs if other != name]
            subgraph = (self.try_subgraph(subgraph.nodes, rest) if rest else None) or subgraph
        return subgraph

    # ---- sizes

    def shrink_tensors(self, subgraph: Subgraph, max_bytes: int = 0) -> Subgraph:
        """Halve axes while the subgraph fails and has more than `max_bytes` bytes.

        First halve axis n of all inputs in which it has the same size, then all axes of one size, including those of
        constants.
        """
        for axis in range(max((array.ndim for array in subgraph.inputs.values()), default=0)):
            sizes = {array.shape[axis] for array in subgraph.inputs.values() if array.ndim > axis}
            for size in sorted(sizes, reverse=True):
                subgraph = self._halve_axis(subgraph, size, axis, max_bytes)
        sizes = {size for array in [*subgraph.inputs.values(), *subgraph.constants.values()] for size in array.shape}
        for size in sorted(sizes, reverse=True):
            subgraph = self._halve_axis(subgraph, size, None, max_bytes)
        return subgraph

    def _halve_axis(self, subgraph: Subgraph, size: int, axis: int | None, max_bytes: int) -> Subgraph:
        while size > 1 and subgraph.bytes > max_bytes:
            half = (size + 1) // 2
            halves = (self._slice_axis(subgraph, size, axis, begin) for begin in (0, size - half))
            smaller = next((half_subgraph for half_subgraph in halves if half_subgraph is not None), None)
            if smaller is None:
                break
            subgraph, size = smaller, half
        return subgraph

    def _slice_axis(self, subgraph: Subgraph, size: int, axis: int | None, begin: int) -> Subgraph | None:
        """Return the subgraph with axes of this size halved, starting at `begin`, if it still fails; else None.

        axis: which axis of the inputs; None for all axes, including those of constants.
        """
        chosen = slice(begin, begin + (size + 1) // 2)

        def take_half(array: Array) -> Array:
            axes = [
                axis_size == size and axis in (None, axis_index) for axis_index, axis_size in enumerate(array.shape)
            ]
            return np.ascontiguousarray(array[tuple(chosen if axis_size else slice(None) for axis_size in axes)])

        inputs = {name: take_half(array) for name, array in subgraph.inputs.items()}
        constants = {
            name: array if axis is not None else take_half(array) for name, array in subgraph.constants.items()
        }
        candidate_subgraph = extract_subgraph(self.reference, subgraph.nodes, inputs, subgraph.outputs, constants)
        return candidate_subgraph if self.does_fail(candidate_subgraph) else None


def compute_device_tensors(origin: ReportOrigin, case: int) -> dict[str, Array]:
    """Return the inputs of a case and every tensor of the unfused program, by name."""
    with origin.load_model() as model:
        tensors = DeviceTensors(model, load_graph)
        inputs = origin.cases[case][0]
        try:
            tensors_by_name = tensors.compute_tensors(
                model._tensor_strings.encode_tensors(inputs) if model._tensor_strings else inputs
            )
        except IndexRangeError:  # an index computed by the faulty node is out of range
            tensors_by_name = {}
        finally:
            tensors.close()
    return {**origin.cases[case][0], **tensors_by_name}


def make_failure_test(origin: ReportOrigin, repeat: int) -> FailureTest:
    """Return a predicate: whether validation finds a subgraph wrong or, with `repeat`, whether that many runs differ."""

    def is_wrong(proto: onnx.ModelProto, inputs: dict[str, Array]) -> bool:
        return origin.validate_subgraph(Subgraph(proto, inputs), origin.setup).state == WRONG

    def has_differing_runs(proto: onnx.ModelProto, inputs: dict[str, Array]) -> bool:
        with origin.setup.load_subgraph(proto) as model:
            return count_differing_runs(model, inputs, repeat) > 0

    return has_differing_runs if repeat else is_wrong


def make_subgraph_shrinker(
    origin: ReportOrigin, case: int, fails: FailureTest, step: TrialCallback | None = None
) -> SubgraphShrinker:
    """Return a SubgraphShrinker for a case of the report."""
    reference = ReferenceModel(origin.source, origin.folder, origin.setup.precision, origin.setup.kernels)
    return SubgraphShrinker(reference, compute_device_tensors(origin, case), fails, step)


def list_suspect_node_groups(row: ValidationRow) -> list[list[str]]:
    """Return groups of nodes that may cause a wrong row on their own: the node, then all nodes of its kernel.

    There are none for an output.
    """
    if row.op == "output":
        return []
    # Whether the members are in a subgraph that the node runs.
    is_inside = any(member.startswith(f"{row.node}.") for member in row.members)
    return [[row.node], list(row.members)] if len(row.members) > 1 and not is_inside else [[row.node]]


# ---- the first wrong node: its model, its kernels and variations of the setup


MAX_SUBGRAPH_BYTES = 1 << 20  # maximum size of the model and its inputs, small enough for an email
_UNCHANGED = "as it was"


class _FaultLocation(NamedTuple):
    """The fault to explain.

    suspect_groups: groups of nodes that may fail on their own; empty for an output. repeat: number of runs if runs
    differ, 0 for a wrong value.
    """

    node: str
    op: str
    output: str
    case: int
    suspect_groups: list[list[str]]
    repeat: int


def _find_fault(report: ValidationReport) -> _FaultLocation | None:
    row = report.first_divergence
    if row is not None:
        return _FaultLocation(row.node, row.op, row.output, row.case, list_suspect_node_groups(row), 0)
    result = next((r for r in report.repeats if not r.deterministic), None)
    if result is None:
        return None
    op = next((row.op for row in report.rows if row.node == result.node), "output")
    parts = [[result.node]] if result.node else []
    return _FaultLocation(
        result.node or result.output, op, result.output, result.case, parts, result.runs[SAME_RECORDING]
    )


def explain(report: ValidationReport, max_bytes: int = MAX_SUBGRAPH_BYTES) -> Explanation:
    """Explain the first wrong row, or else the first tensor that differs between runs.

    Raise InputError if there is neither, and whatever loading a model raises.
    """
    fault, origin = _find_fault(report), report.origin
    assert origin is not None  # ValidationReport.explain requires it
    if fault is None:
        raise InputError(f"explain: expected a report with a wrong row; this one has none: {report.summary}")
    setup = origin.setup
    finder = make_subgraph_shrinker(origin, fault.case, make_failure_test(origin, fault.repeat))
    subgraph = next(filter(None, map(finder.try_subgraph, fault.suspect_groups)), None) or finder.find_smallest()
    fails = subgraph is not None
    if subgraph is None:  # no group fails on its own: use the unchanged node, or the whole model
        names = [node.name for node in finder.reference.nodes]
        subgraph = extract_subgraph(finder.reference, [fault.node] if fault.node in names else names, finder.values)
    elif subgraph.bytes > max_bytes:
        subgraph = finder.shrink_tensors(subgraph, max_bytes)
    precision = make_subgraph_precision(setup.precision, subgraph.proto)
    expected = compute_expected_results(subgraph, precision, setup.kernels)
    return Explanation(
        fault.node,
        fault.op,
        fault.output,
        fault.case,
        report.summary,
        declare_outputs(subgraph, expected),
        expected,
        fails,
        _list_kernels(subgraph, setup),
        dict(_run_trials(subgraph, origin, fault.repeat)),
        _describe_origin(origin),
        precision,
        fault.repeat,
    )


def _describe_origin(origin: ReportOrigin) -> str:
    info = origin.setup.context.info
    quirks = ", ".join(quirk.name for quirk in origin.setup.context.driver_quirks) or "none"
    driver = f"{info.driver} {info.driver_info}".strip()
    return f"{info.name} ({info.kind}), {driver}, Vulkan {info.api_version}, quirks: {quirks}; {origin.setup.precision}"


def _list_kernels(subgraph: Subgraph, setup: ModelLoadSetup) -> list[str]:
    """Return a line for each kernel with its dispatch size, from the program's report and plan."""
    lines = []
    try:
        with setup.load_subgraph(subgraph.proto) as model:
            inputs = model.arguments(**subgraph.inputs)
            model.program.call(inputs, None, None)
            for row in model.program.report():
                kernel_name = row["kernel"] or row["note"] or "no kernel"
                note = f", {row['note']}" if row["kernel"] and row["note"] else ""
                lines.append(f"{row['node']} ({row['op']}): {kernel_name} {row['precision']}{note}")
            for step in model.program.plan([array.shape for array in inputs]):
                groups = "x".join(map(str, step["groups"]))
                memory = ", ".join(
                    f"{operand['name']} {operand['end'] - operand['begin']} bytes at {operand['begin']} of {operand['place']}"
                    for operand in step["operands"]
                )
                barrier = ", behind a barrier" if step["barrier"] else ""
                lines.append(f"  {step['label']}: {step['kernel']}, {groups} workgroups{barrier}; {memory}")
    except Error as error:
        lines.append(f"does not run: {error}")
    return lines


def _summarize_validation(subgraph: Subgraph, origin: ReportOrigin, repeat: int) -> str:
    """Validate the subgraph and compare its runs; return the result as one line."""
    try:
        report = origin.validate_subgraph(subgraph, origin.setup)
        bits = ""
        if repeat:
            with origin.setup.load_subgraph(subgraph.proto) as model:
                differing = count_differing_runs(model, subgraph.inputs, repeat)
            bits = f"; {differing} of {repeat} runs differ" if differing else f"; the same bits in {repeat} runs"
    except Error as error:
        return f"does not run ({error})"
    first = report.first_divergence
    deviation = first.deviation if first else None
    if first is None or deviation is None:
        return f"{report.state}{f' ({first.fault})' if first else ''}{bits}"
    where = f"{deviation.actual} instead of {deviation.expected} at {list(deviation.at)}"
    return f"wrong: {_describe_tensor(first)} has {where}, error {deviation.error:.3g}, allowed {deviation.allowed:.3g}{bits}"


def _describe_tensor(row: ValidationRow) -> str:
    if row.program == "kernels":
        return f"kernel {row.kernel} ({', '.join(row.members)})"
    return f"output '{row.output}'" if row.op == "output" else f"node '{row.node}'"


def _run_trials(subgraph: Subgraph, origin: ReportOrigin, repeat: int) -> Iterator[tuple[str, str]]:
    setup = origin.setup

    def run_trial(setup_variant: ModelLoadSetup) -> str:
        return _summarize_validation(subgraph, origin._replace(setup=setup_variant), repeat)

    yield _UNCHANGED, run_trial(setup)
    yield "fuse=False", run_trial(setup._replace(fuse=False))
    yield "deterministic=True", run_trial(setup._replace(deterministic=True))
    if parse_policy(setup.precision).precision != "fp32":
        yield "fp32", run_trial(setup._replace(precision="fp32"))
    for name in OPTIONAL_FEATURES:
        if setup.context.feature(name):
            with another_context(setup.context, [name]) as lesser:
                yield f"without {name}, by other kernels", run_trial(setup._replace(context=lesser))
    with _open_software_context(setup.context) as driver:
        if driver is not None:
            yield f"on {driver.info.name}", run_trial(setup._replace(context=driver))


@contextmanager
def _open_software_context(context: Context) -> Iterator[Context | None]:
    """Yield a context on the first other software driver of the machine, or None if there is none."""
    software_device = next(
        (device for device in devices() if device.kind == "software" and device.uuid != context.info.uuid), None
    )
    if software_device is None:
        yield None
        return
    with Context(f"uuid:{software_device.uuid}") as software:
        yield software
