"""Explains the first wrong node: extracts it as a model, lists its kernels and tries variations."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .._pumice import Context, Error, another_context, devices
from ..base.element_types import Array
from ..base.errors import InputError
from ..base.printable_text import plain, printable, shell_word
from ..importer.file.model_file import Folder
from ..model.precision_policy import Precision, policy_of
from .subgraph import Cut, cut, part_precision
from .onnx_test_folder import DATA, expected_results, files_of, typed, write_folder
from .repeatability import FAMILIES, ONE_LIST, differing_runs
from .report_rows import ValidationRow
from .load_setup import Origin, Setup
from .shrink import fails_by, parts_of, shrinker

if TYPE_CHECKING:
    from .report import ValidationReport

MOST_BYTES = 1 << 20  # size limit of the model and its inputs, small enough to mail
_AS_IT_WAS = "as it was"


class Explanation(NamedTuple):
    """A fault reduced to the nodes that it needs, usually one, with the device's inputs.

    node, op, output, case, said: from the wrong row, with its verdict in words; without a wrong row, the tensor that
    differs between runs. repeat: number of runs. part, expected: the subgraph with its inputs, and the reference's
    results. fails: whether the subgraph fails on its own. kernels: a line per dispatch. trials: variation -> verdict.
    setup: device, driver and precision in words.
    """

    node: str
    op: str
    output: str
    case: int
    said: str
    part: Cut
    expected: dict[str, Array]
    fails: bool
    kernels: list[str]
    trials: dict[str, str]
    setup: str
    precision: Precision
    repeat: int = 0

    @property
    def line(self) -> str:
        """Line of Python that reproduces the fault in the folder written by `save`."""
        load = f'{{t.name: n.to_array(t) for t in map(onnx.load_tensor, glob.glob("{DATA}/input_*.pb"))}}'
        repeat = f", repeat={self.repeat}" if self.repeat else ""
        precision = self.precision if isinstance(self.precision, str) else dict(policy_of(self.precision).entries)
        return (
            "import glob, onnx, pumice; from onnx import numpy_helper as n; "
            f'print(pumice.validate("model.onnx", [{load}], precision={precision!a}{repeat}))'
        )

    def __str__(self) -> str:
        alone = (
            f"The part {'differs from run to run' if self.repeat else 'is wrong'} by itself."
            if self.fails
            else f"The part {'is the same at every run' if self.repeat else 'is right'} by itself: the fault needs what stands around it."
        )
        shapes = [f"  {plain(name)}: {array.dtype}{list(array.shape)}" for name, array in self.part.inputs.items()]
        nodes = [f"  {plain(node.name)} ({plain(node.op_type)})" for node in self.part.proto.graph.node]
        return "\n".join(
            [
                printable(self.said),
                printable(self.setup),
                *([f"PUMICE_SHADERS={shell_word(folder)}"] if (folder := os.environ.get("PUMICE_SHADERS")) else []),
                "",
                f"The part, {self.part.bytes:,} bytes with its inputs:",
                *nodes,
                "on",
                *shapes,
                alone,
                "",
                "What runs it:",
                *(f"  {printable(line)}" for line in self.kernels),
                "",
                "What a validation says of it:",
                *(f"  {printable(what)}: {printable(said)}" for what, said in self.trials.items()),
                "",
                "To see it again, in this folder:",
                f"  python -c {shell_word(self.line)}",
                "",
            ]
        )

    def save(self, folder: Folder) -> None:
        """Write model.onnx, test_data_set_0, explanation.txt and reproduce.py into a new or empty folder, atomically.

        Raise InputError if the folder is not empty, or OSError.
        """
        texts = {"explanation.txt": str(self), "reproduce.py": f"{self.line}\n"}
        files = {**files_of(self.part, self.expected), **{name: text.encode() for name, text in texts.items()}}
        write_folder(Path(folder), files)


class _Fault(NamedTuple):
    """The fault to explain. parts: groups of nodes that may fail on their own; empty for an output. repeat: number of
    runs if they differ, 0 for a wrong value.
    """

    node: str
    op: str
    output: str
    case: int
    parts: list[list[str]]
    repeat: int


def _fault(report: ValidationReport) -> _Fault | None:
    row = report.first_divergence
    if row is not None:
        return _Fault(row.node, row.op, row.output, row.case, parts_of(row), 0)
    one = next((one for one in report.repeats if not one.deterministic), None)
    if one is None:
        return None
    op = next((row.op for row in report.rows if row.node == one.node), "output")
    parts = [[one.node]] if one.node else []
    return _Fault(one.node or one.output, op, one.output, one.case, parts, one.runs[ONE_LIST])


def explain(report: ValidationReport, most_bytes: int = MOST_BYTES) -> Explanation:
    """Explain the first wrong row, or else the first tensor that differs between runs.

    Raise InputError if there is neither, and whatever loading a model raises.
    """
    fault, origin = _fault(report), report.origin
    if origin is None:
        raise InputError(
            "explain: expected a report of `validate` of a model, given one without its model: pickled, or of a candidate"
        )
    if fault is None:
        raise InputError(f"explain: expected a report with a wrong row, given one without: {report.summary}")
    setup = origin.setup
    finder = shrinker(origin, fault.case, fails_by(origin, fault.repeat))
    part = next((found for nodes in fault.parts if (found := finder.part(nodes))), None) or finder.smallest()
    fails = part is not None
    if part is None:  # nothing fails on its own: use the node unchanged, or the whole model
        every = [node.name for node in finder.reference.nodes]
        part = cut(finder.reference, [fault.node] if fault.node in every else every, finder.values)
    elif part.bytes > most_bytes:
        part = finder.smaller(part, most_bytes)
    precision = part_precision(setup.precision, part.proto)
    expected = expected_results(part, precision, setup.kernels)
    return Explanation(
        fault.node,
        fault.op,
        fault.output,
        fault.case,
        report.summary,
        typed(part, expected),
        expected,
        fails,
        _kernels(part, setup),
        dict(_trials(part, origin, fault.repeat)),
        _described(origin),
        precision,
        fault.repeat,
    )


def _described(origin: Origin) -> str:
    info = origin.setup.context.info
    quirks = ", ".join(quirk.name for quirk in origin.setup.context.driver_quirks) or "none"
    driver = f"{info.driver} {info.driver_info}".strip()
    return f"{info.name} ({info.kind}), {driver}, Vulkan {info.api_version}, quirks: {quirks}; {origin.setup.precision}"


def _kernels(part: Cut, setup: Setup) -> list[str]:
    """Return the kernels and their grids, from the program's report and plan."""
    lines = []
    try:
        with setup.load(part.proto) as model:
            inputs = model.arguments(**part.inputs)
            model.program.call(inputs, None, None)
            for row in model.program.report():
                what = row["kernel"] or row["note"] or "no kernel"
                note = f", {row['note']}" if row["kernel"] and row["note"] else ""
                lines.append(f"{row['node']} ({row['op']}): {what} {row['precision']}{note}")
            for step in model.program.plan([array.shape for array in inputs]):
                groups = "x".join(map(str, step["groups"]))
                memory = ", ".join(
                    f"{one['name']} {one['end'] - one['begin']} bytes at {one['begin']} of {one['place']}"
                    for one in step["operands"]
                )
                barrier = ", behind a barrier" if step["barrier"] else ""
                lines.append(f"  {step['label']}: {step['kernel']}, {groups} workgroups{barrier}; {memory}")
    except Error as error:
        lines.append(f"does not run: {error}")
    return lines


def _said(part: Cut, origin: Origin, repeat: int) -> str:
    """Validate the subgraph and compare its runs; return the result as one line."""
    try:
        report = origin.validated(part, origin.setup)
        bits = ""
        if repeat:
            with origin.setup.load(part.proto) as model:
                differing = differing_runs(model, part.inputs, repeat)
            bits = f"; {differing} of {repeat} runs differ" if differing else f"; the same bits in {repeat} runs"
    except Error as error:
        return f"does not run ({error})"
    first = report.first_divergence
    deviation = first.judged if first else None
    if first is None or deviation is None:
        return f"{report.state}{f' ({first.fault})' if first else ''}{bits}"
    where = f"{deviation.actual} instead of {deviation.expected} at {list(deviation.at)}"
    return f"wrong: {_where(first)} has {where}, error {deviation.error:.3g}, allowed {deviation.allowed:.3g}{bits}"


def _where(row: ValidationRow) -> str:
    if row.program == "kernels":
        return f"kernel {row.kernel} ({', '.join(row.members)})"
    return f"output '{row.output}'" if row.op == "output" else f"node '{row.node}'"


def _trials(part: Cut, origin: Origin, repeat: int) -> Iterator[tuple[str, str]]:
    setup = origin.setup

    def said(tried: Setup) -> str:
        return _said(part, origin._replace(setup=tried), repeat)

    yield _AS_IT_WAS, said(setup)
    yield "fuse=False", said(setup._replace(fuse=False))
    yield "deterministic=True", said(setup._replace(deterministic=True))
    if policy_of(setup.precision).precision != "fp32":
        yield "fp32", said(setup._replace(precision="fp32"))
    for name in FAMILIES:
        if setup.context.feature(name):
            with another_context(setup.context, [name]) as lesser:
                yield f"without {name}, by other kernels", said(setup._replace(context=lesser))
    with _software(setup.context) as driver:
        if driver is not None:
            yield f"on {driver.info.name}", said(setup._replace(context=driver))


@contextmanager
def _software(context: Context) -> Iterator[Context | None]:
    """Yield a context on the machine's first software driver, or None if there is no other driver."""
    found = next((one for one in devices() if one.kind == "software" and one.uuid != context.info.uuid), None)
    if found is None:
        yield None
        return
    with Context(f"uuid:{found.uuid}") as made:
        yield made
