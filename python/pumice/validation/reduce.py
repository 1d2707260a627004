"""Reduces a failing model to a small subgraph that still fails: fewer nodes, fewer outputs, smaller tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import onnx

from .._pumice import Context
from ..base.element_types import Array
from ..base.errors import InputError
from ..base.printable_text import escape_unprintable, shorten_and_escape
from ..importer.file.model_file import Folder, Source
from ..model.model import Model
from ..model.precision_policy import Precision, parse_policy
from .reference.onnx_test_folder import compute_expected_results, declare_outputs, make_test_files, write_folder
from .reference.subgraph_extraction import Subgraph, make_subgraph_precision
from .report.deviation import WRONG
from .report.model_load_setup import ModelLoadSetup
from .report.report_rows import select_deciding_rows
from .search.subgraph_shrinker import (
    FailureTest,
    TrialCallback,
    list_suspect_node_groups,
    make_failure_test,
    make_subgraph_shrinker,
)
from .validate import Case, validate


class Reduction(NamedTuple):
    """A reduced model: `proto`, its `inputs` by name, and the reference's results where known.

    before, after: number of nodes of the model and of the subgraph. tried: number of subgraphs that ran. precision: the
    precision at which the model fails.
    """

    proto: onnx.ModelProto
    inputs: dict[str, Array]
    expected: dict[str, Array]
    before: int
    after: int
    tried: int
    precision: Precision

    def __str__(self) -> str:
        nodes = ", ".join(
            f"'{shorten_and_escape(node.name)}' ({shorten_and_escape(node.op_type)})"
            for node in self.proto.graph.node[:4]
        )
        more = f" and {self.after - 4} more" if self.after > 4 else ""
        shapes = ", ".join(
            f"{shorten_and_escape(name)} {array.dtype}{list(array.shape)}" for name, array in self.inputs.items()
        )
        which = f"{self.after} of {self.before} nodes still fail at {_format_precision(self.precision)}: {nodes}{more}"
        return f"{which}, on {shapes or 'no inputs'} ({self.tried} parts tried)"

    def save(self, folder: Folder) -> None:
        """Write model.onnx and test_data_set_0, in the layout of ONNX's tests, into a new or empty folder, atomically.

        Raise InputError if the folder is not empty, or OSError.
        """
        write_folder(folder, make_test_files(Subgraph(self.proto, self.inputs), self.expected))


def _format_precision(precision: Precision) -> str:
    return precision if isinstance(precision, str) else escape_unprintable(parse_policy(precision).entries)


def reduce(
    model: Model | Source,
    cases: Iterable[Case],
    *,
    context: Context | None = None,
    precision: Precision | None = None,
    fails: FailureTest | None = None,
    repeat: int = 0,
    progress: TrialCallback | None = None,
) -> Reduction:
    """Find a small subgraph of the model that still fails: fewer nodes, fewer outputs, smaller inputs.

    Results of removed nodes become inputs, with the device's values from the first failing case. A subgraph fails if
    `validate` finds it wrong at this precision; with `repeat`, and no wrong row in the model, if the bits of that many
    runs differ; with `fails`, if fails(ModelProto, inputs by name) returns true. A subgraph that raises an Error does
    not fail. Axes of inputs, and equal axes of constants, are halved while the subgraph fails.

    context, precision: as in `validate`. progress: called as progress(n, n) with the number of subgraphs tried.
    Raise InputError if no case fails, or for `fails` with `repeat`, and whatever `validate` raises.
    """
    if fails and repeat:
        raise InputError(f"reduce: expected `fails` or `repeat`, given both (repeat={repeat})")
    allowed: dict[str, Any] = {"allow_unchecked": True, "allow_ill_conditioned": True}
    report = validate(model, cases, context=context, precision=precision, repeat=repeat, **allowed)
    assert report.origin is not None
    wrong = [row for row in select_deciding_rows([*report.rows, *report.kernels]) if row.verdict == WRONG]
    unstable = [] if wrong else [r for r in report.repeats if not r.deterministic]
    if not fails and report.ok:
        raise InputError(f"reduce: expected a model that fails, given one that does not: {report.summary}")
    first = [nodes for row in wrong for nodes in list_suspect_node_groups(row)] + [[r.node] for r in unstable if r.node]
    fails_test = fails or make_failure_test(report.origin, repeat if unstable else 0)
    tried = 0
    for case in range(len(report.origin.cases)) if fails else [(wrong or unstable)[0].case]:
        shrinker = make_subgraph_shrinker(report.origin, case, fails_test, progress)
        subgraph = shrinker.find_smallest(first)
        tried += shrinker.num_trials
        if subgraph is not None:
            return _make_reduction(subgraph, report.origin.setup, len(shrinker.reference.nodes), tried)
    raise InputError(f"reduce: expected a part that fails, given none that fails by itself: {report.summary}")


def _make_reduction(subgraph: Subgraph, setup: ModelLoadSetup, before: int, tried: int) -> Reduction:
    precision = make_subgraph_precision(setup.precision, subgraph.proto)
    expected = compute_expected_results(subgraph, precision, setup.kernels)
    done = declare_outputs(subgraph, expected)
    return Reduction(done.proto, done.inputs, expected, before, len(done.nodes), tried, precision)
