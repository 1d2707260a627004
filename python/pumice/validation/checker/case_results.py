"""Results of the current case: outputs that are computed once, the rows and findings, and comparisons of runs."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..._pumice import Program, UnsupportedError
from ...base.element_types import Array
from ...base.host_arrays import bitwise_equal, find_bit_differences, view_element_bytes
from ..reference.oracle import TensorSource
from ..reference.reference_model import ReferenceModel, ReferenceNode
from ..reference.streaming import TensorMap, WindowedTensors
from ..report.deviation import UNPROVED, WRONG
from ..report.findings import CASE_OP, NOT_DETERMINISTIC, RACE, Finding
from ..report.report_rows import ValidationRow
from ..rules.float_types import dtype_name


class CaseResultCache:
    """Results of the programs for the current case.

    differing: tensors of a streamed model whose checksum changed in a later run; the tensors themselves are not kept.
    """

    def __init__(self, tensors: TensorSource) -> None:
        self._tensors = tensors
        self._tensor_map: dict[str, Array] | None = None
        self._results: dict[str, Array] | None = None
        self._checksums: dict[str, int] = {}
        self.differing: list[str] = []

    def begin_case(self) -> None:
        """Drop the results of the previous case."""
        self._tensor_map, self._results, self._checksums, self.differing = None, None, {}, []

    def stream(self, inputs: dict[str, Array], reference: ReferenceModel) -> TensorMap:
        """Return every tensor of the unfused program, from the first run of the case."""
        if self._tensor_map is not None:
            return TensorMap(self._tensor_map)
        tensors = self._tensors.stream(inputs, reference)
        if isinstance(tensors, WindowedTensors):
            tensors.on_window_loaded = self._record_differences
        else:
            self._tensor_map = dict(tensors)
        return tensors

    def compute_outputs(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return the outputs of the optimised program, from the first run of the case.

        Raise IndexRangeError if an index is out of range.
        """
        if self._results is None:
            self._results = self._tensors.compute_outputs(inputs)
        return dict(self._results)

    def _record_differences(self, tensors: Mapping[str, Array]) -> None:
        for name, array in tensors.items():
            bits = zlib.crc32(view_element_bytes(array).data)
            if self._checksums.setdefault(name, bits) != bits:
                self.differing.append(name)


def get_observed_outputs(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of an observed run, as in the kernel checks; {} if the program cannot be observed."""
    try:
        observed = program.observe(tuple(inputs[value.name] for value in program.inputs), set())
    except UnsupportedError:
        return {}
    return dict(observed["outputs"])


def compare_output_bits(
    results: Mapping[str, Array], others: Mapping[str, Array], run: str, case: int
) -> list[Finding]:
    """Return a finding for each output whose bits differ between two runs. run: a phrase that describes the run of `others`."""
    findings = []
    for name, array in results.items():
        other = others.get(name)
        if other is None or bitwise_equal(array, other):
            continue
        number = int(find_bit_differences(array, other).sum())
        text = f"{number} of {array.size} elements of output '{name}' have other bits in {run}"
        findings.append(Finding(NOT_DETERMINISTIC, name, text, number, case))
    return findings


class ResultCollector:
    """The worst row of each tensor over all cases, the findings, and the nodes' faults.

    A case may be rechecked with another error model. Rows and findings that do not depend on the error model (`fixed`)
    come from the first check.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, str], ValidationRow] = {}
        self.findings_by_key: dict[tuple[str, str], Finding] = {}
        self.faults: dict[str, tuple[int, str]] = {}  # maps a node to (first case with a fault, description)
        self._positions: dict[tuple[str, str, str], int] = {}  # maps a row's key to its position in the first check
        self._before_case = dict(self.rows), dict(self.findings_by_key)
        self._fixed_results: tuple[list[ValidationRow], list[Finding]] = ([], [])
        self._case_rows: list[ValidationRow] = []

    def begin_case(self) -> None:
        """Start the next case."""
        self._before_case = dict(self.rows), dict(self.findings_by_key)
        self._fixed_results, self._case_rows = ([], []), []

    def restart_case(self) -> None:
        """Restore the state before the case, plus the fixed results of its first check."""
        self.rows, self.findings_by_key = dict(self._before_case[0]), dict(self._before_case[1])
        rows, findings = self._fixed_results
        self._fixed_results, self._case_rows = ([], []), []
        for row in rows:
            self.add_row(row, fixed=True)
        for finding in findings:
            self.add_finding(finding, fixed=True)

    def add_finding(self, finding: Finding, fixed: bool = False) -> None:
        """Add a finding. For each kind and node, only the one of the first case is kept."""
        if fixed:
            self._fixed_results[1].append(finding)
        key = (finding.kind, finding.node)
        if key not in self.findings_by_key or finding.case < self.findings_by_key[key].case:
            self.findings_by_key[key] = finding

    def add_fault(self, node: str, case: int, text: str) -> None:
        """Add a fault of a node, which makes the node wrong regardless of its results."""
        if node not in self.faults or case < self.faults[node][0]:
            self.faults[node] = (case, text)

    def add_row(self, row: ValidationRow, fixed: bool = False) -> None:
        """Add a row. For each key, the row of the worst case is kept; ties go to the first."""
        if row.verdict == UNPROVED and not row.note:
            row = row._replace(note=row.deviation.missing if row.deviation else "the reference has no such value")
        if fixed:
            self._fixed_results[0].append(row)
        self._case_rows.append(row)
        key = (row.program + row.op, row.node, row.output)
        self._positions.setdefault(key, len(self._positions))
        if key not in self.rows or (row.severity, -row.case) > (self.rows[key].severity, -self.rows[key].case):
            self.rows[key] = row

    def get_ordered_rows(self) -> list[ValidationRow]:
        """Return the rows in graph order, with the optimised program's outputs last."""
        keys = sorted(self.rows, key=lambda key: (self.rows[key].op == "output", self._positions[key]))
        return [self.rows[key] for key in keys]

    def make_racing_row(self, step: RacingStep, case: int) -> ValidationRow:
        """Return the row of the tensor that a racing step stored, with the step as its fault."""
        name = step.tensor.rpartition(" as ")[0] or step.tensor
        candidates = (row for row in self._case_rows if row.program == "kernels" and row.output in (name, step.tensor))
        unchecked_row = ValidationRow(step.node, "kernel", step.tensor, "", (step.size,), case, None, None)
        unchecked_row = unchecked_row._replace(program="kernels", members=(step.node,), kernel=step.kernel)
        return next(candidates, unchecked_row)._replace(fault=str(step))

    def get_wrong_rows(self) -> list[ValidationRow]:
        """Return the wrong rows of the current case."""
        return [row for row in self._case_rows if row.verdict == WRONG]


def make_unchecked_row(node: ReferenceNode, output: str, array: Array, case: int) -> ValidationRow:
    """Return a row for a node's output that was not checked."""
    return ValidationRow(node.name, node.op, output, dtype_name(array.dtype), array.shape, case, None, None)


def describe_unproved_nodes(nodes: tuple[str, ...]) -> str:
    """Return the note for a tensor that is unproved because of these nodes."""
    return f"depends on node{'s' if len(nodes) > 1 else ''} {', '.join(map(repr, nodes[:4]))}" if nodes else ""


_NUM_TRIES = 3  # runs per prefix; a race does not show in every run


class RacingStep(NamedTuple):
    """The first step after which a tensor's bits differ from the observed run.

    number: 1-based index of the step. of: number of steps. tensor: name of the tensor in the program. elements: how
    many of its `size` elements differ.
    """

    number: int
    of: int
    node: str
    kernel: str
    tensor: str
    elements: int
    size: int

    def __str__(self) -> str:
        return (
            f"{RACE}: {self.elements} of {self.size} elements of '{self.tensor}' have other bits than with copies after each step, and "
            f"are the first: step {self.number} of {self.of}, node '{self.node}' (kernel {self.kernel}), does not wait for what it needs"
        )


def find_racing_step(program: Program, arrays: Sequence[Array], nodes: Sequence[ReferenceNode]) -> RacingStep | None:
    """Find the step by binary search over prefixes of the program.

    Return None if a plain run of the whole program gives the same bits as the observed run.

    nodes: the model's nodes, to name the producer of the tensor.
    """
    steps = program.plan(list(arrays))
    # Copy every tensor after its step, even those not compared below, so that these values have no race.
    expected = {
        tensor_and_count["name"]: tensor_and_count["array"]
        for tensor_and_count in program.observe(tuple(arrays))["tensors"]
    }
    low, high = 0, len(steps)
    differing_tensors = _find_differing_tensors(program, arrays, high, expected)
    if not differing_tensors:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if earlier := _find_differing_tensors(program, arrays, middle, expected):
            high, differing_tensors = middle, earlier
        else:
            low = middle
    step = steps[high - 1]
    tensor, elements = next(
        (tensor_and_count for tensor_and_count in differing_tensors if tensor_and_count[0]["node"] == step["label"]),
        differing_tensors[0],
    )
    name = tensor["name"].rpartition(" as ")[0] or tensor["name"]
    node = next((node.name for node in nodes if name in node.outputs), step["label"])
    return RacingStep(high, len(steps), node, step["kernel"], tensor["name"], elements, tensor["array"].size)


def _find_differing_tensors(
    program: Program, arrays: Sequence[Array], steps: int, expected: Mapping[str, Array | None]
) -> list[tuple[dict[str, Any], int]]:
    """Run the first `steps` steps. Return the tensors whose bits differ, with the number of differing elements."""
    for _ in range(_NUM_TRIES):
        observed = program.observe(tuple(arrays), None, steps)["tensors"]
        tensors = [(tensor, tensor["array"], expected[tensor["name"]]) for tensor in observed]
        differing_tensors = [
            (tensor, int(find_bit_differences(array, other).sum()))
            for tensor, array, other in tensors
            if array is not None and other is not None and not bitwise_equal(array, other)
        ]
        if differing_tensors:
            return differing_tensors
    return []


# ---- a plain run and an observed run of the optimised program


OBSERVED_RUN = "the run that is observed, with a copy after each step"


def make_empty_case_rows(
    results: Mapping[str, Array], case: int, allows_unproved: Callable[[str], bool]
) -> list[ValidationRow]:
    """Return a row for the case if all outputs are empty, so that nothing was checked; else []."""
    if not results or any(np.size(array) for array in results.values()):
        return []
    name = f"case {case}"
    note = f"no output of case {case} has elements: nothing was checked"
    row = ValidationRow(name, CASE_OP, name, "", (0,), case, None, None, note, unproved=(name,), program="outputs")
    return [row._replace(waived=all(allows_unproved(output) for output in results))]
