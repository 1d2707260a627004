"""Explains the first wrong node: extracts it as a model, lists its kernels and tries variations of the setup."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..._pumice import Context, Error, another_context, devices
from ...base.element_types import Array
from ...base.errors import InputError
from ...base.printable_text import escape_unprintable, quote_shell_word, shorten_and_escape
from ...importer.file.model_file import Folder
from ...model.precision_policy import Precision, parse_policy
from ..reference.onnx_test_folder import (
    DATA_SET_FOLDER,
    compute_expected_results,
    declare_outputs,
    make_test_files,
    write_folder,
)
from ..reference.subgraph_extraction import Subgraph, extract_subgraph, make_subgraph_precision
from ..report.model_load_setup import ModelLoadSetup, ReportOrigin
from ..report.report_rows import ValidationRow
from .repeatability import OPTIONAL_FEATURES, SAME_RECORDING, count_differing_runs
from .subgraph_shrinker import list_suspect_node_groups, make_failure_test, make_subgraph_shrinker

if TYPE_CHECKING:
    from ..report.report import ValidationReport

MAX_SUBGRAPH_BYTES = 1 << 20  # maximum size of the model and its inputs, small enough for an email
_UNCHANGED = "as it was"


class Explanation(NamedTuple):
    """A fault reduced to as few nodes as possible, usually one, with the inputs that the device computed.

    node, op, output, case: of the wrong row, or of the tensor that differs between runs. said: the verdict in words.
    repeat: number of runs. part, expected: the subgraph with its inputs, and the reference's results. fails: whether the
    subgraph fails on its own. kernels: a line per dispatch. trials: variation -> verdict. setup: device, driver and
    precision in words.
    """

    node: str
    op: str
    output: str
    case: int
    said: str
    part: Subgraph
    expected: dict[str, Array]
    fails: bool
    kernels: list[str]
    trials: dict[str, str]
    setup: str
    precision: Precision
    repeat: int = 0

    @property
    def line(self) -> str:
        """One line of Python that reproduces the fault, to run in the folder written by `save`."""
        load = f'{{t.name: n.to_array(t) for t in map(onnx.load_tensor, glob.glob("{DATA_SET_FOLDER}/input_*.pb"))}}'
        repeat = f", repeat={self.repeat}" if self.repeat else ""
        precision = self.precision if isinstance(self.precision, str) else dict(parse_policy(self.precision).entries)
        return (
            "import glob, onnx, pumice; from onnx import numpy_helper as n; "
            f'print(pumice.validate("model.onnx", [{load}], precision={precision!a}{repeat}))'
        )

    def __str__(self) -> str:
        verdict = (
            f"The part {'differs from run to run' if self.repeat else 'is wrong'} by itself."
            if self.fails
            else f"The part {'is the same at every run' if self.repeat else 'is right'} by itself: the fault needs what stands around it."
        )
        folder = os.environ.get("PUMICE_SHADERS")
        shapes = [f"  {shorten_and_escape(name)}: {x.dtype}{list(x.shape)}" for name, x in self.part.inputs.items()]
        nodes = [
            f"  {shorten_and_escape(node.name)} ({shorten_and_escape(node.op_type)})"
            for node in self.part.proto.graph.node
        ]
        return "\n".join(
            [
                escape_unprintable(self.said),
                escape_unprintable(self.setup),
                *([f"PUMICE_SHADERS={quote_shell_word(folder)}"] if folder else []),
                "",
                f"The part, {self.part.bytes:,} bytes with its inputs:",
                *nodes,
                "on",
                *shapes,
                verdict,
                "",
                "What runs it:",
                *(f"  {escape_unprintable(line)}" for line in self.kernels),
                "",
                "What a validation says of it:",
                *(
                    f"  {escape_unprintable(variant)}: {escape_unprintable(outcome)}"
                    for variant, outcome in self.trials.items()
                ),
                "",
                "To see it again, in this folder:",
                f"  python -c {quote_shell_word(self.line)}",
                "",
            ]
        )

    def save(self, folder: Folder) -> None:
        """Write model.onnx, test_data_set_0, explanation.txt and reproduce.py into a new or empty folder, atomically.

        Raise InputError if the folder is not empty, or OSError.
        """
        texts = {"explanation.txt": str(self), "reproduce.py": f"{self.line}\n"}
        files = {**make_test_files(self.part, self.expected), **{name: text.encode() for name, text in texts.items()}}
        write_folder(Path(folder), files)


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
    if origin is None:
        raise InputError(
            "explain: expected a report of `validate` of a model, given one without its model: pickled, or of a candidate"
        )
    if fault is None:
        raise InputError(f"explain: expected a report with a wrong row, given one without: {report.summary}")
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
