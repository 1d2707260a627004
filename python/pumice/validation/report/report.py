"""Result of a validation: the verdicts of all rows, and their table."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..._pumice import DeviceInfo, __version__
from ...base.atomic_files import Path, write_text_atomic
from ...base.deprecation import make_deprecated_attribute
from ...base.element_types import Array
from ...base.errors import InputError, validation_error
from ...base.printable_text import MAX_SENTENCE_CHARS, shorten_and_escape
from ...importer.file.model_file import Folder, Source
from ...model.model import Model
from .deviation import ILL_CONDITIONED, RIGHT, UNPROVED, WRONG, Deviation
from .explanation import Explanation
from .findings import CASE_OP, NOT_DETERMINISTIC, Finding
from .node_costs import NodeCost, describe_cost_share, format_percent
from .repeat_results import Repeatability
from .report_rows import ValidationRow, describe_tensor, select_deciding_rows
from .subgraph import ModelLoadSetup, Subgraph

if TYPE_CHECKING:
    from rich.table import Table

    from .accuracy import Inaccuracy

_DEVICE = ("name", "kind", "uuid", "driver", "driver_info", "driver_version", "api_version")


class _GraphNode(Protocol):
    name: str
    op: str
    inputs: list[str]
    outputs: list[str]


class ReportMetadata(NamedTuple):
    """Facts about a validation.

    nodes: name, op, inputs and outputs of each node, in execution order. generated: how each input was generated.
    made_up: sizes that were chosen automatically. data: names of the cases that came from files. policy: precision of
    each node.
    """

    device: Mapping[str, Any]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    nodes: tuple[Mapping[str, Any], ...] = ()
    options: Mapping[str, Any] = {}
    generated: Mapping[str, str] = {}
    policy: Mapping[str, str] = {}
    made_up: Mapping[str, int] = {}
    data: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return the facts for JSON; `policy` only if the model has one."""
        record = {
            "device": dict(self.device),
            "options": dict(self.options),
            "generated": dict(self.generated),
            "made_up": dict(self.made_up),
            "data": list(self.data),
            "graph": {"inputs": list(self.inputs), "outputs": list(self.outputs), "nodes": [*map(dict, self.nodes)]},
        }
        return {**record, "policy": dict(self.policy)} if self.policy else record


def get_device_metadata(device: DeviceInfo) -> dict[str, Any]:
    """Return the name, kind, UUID and driver of a device."""
    return {name: getattr(device, name) for name in _DEVICE}


def collect_model_metadata(model: Model, nodes: Iterable[_GraphNode], options: Mapping[str, Any]) -> ReportMetadata:
    """Return the facts about a model and the options, to which the model's seed is added."""
    nodes_record = (
        {"name": node.name, "op": node.op, "inputs": [*node.inputs], "outputs": [*node.outputs]} for node in nodes
    )
    return ReportMetadata(
        get_device_metadata(model.device),
        tuple(value.name for value in model.inputs),
        tuple(value.name for value in model.outputs),
        tuple(nodes_record),
        {**options, "seed": model.seed},
    )


# Increment this number if a field is removed or changes its meaning. New fields need no new number.
SCHEMA_VERSION = 1


def make_report_record(report: ValidationReport) -> dict[str, Any]:
    """Return the whole report as a record."""
    first = report.first_divergence
    verdicts = [row.verdict for row in report.rows]
    verdict_names = ["right", "wrong", "unproved", *(["ill-conditioned"] if ILL_CONDITIONED in verdicts else [])]
    return {
        "schema": SCHEMA_VERSION,
        "pumice": __version__,
        "model": report.model,
        "precision": report.precision,
        "reference": report.reference,
        "cases": report.cases,
        "ok": report.ok,
        "verdict": report.state,
        "counts": {verdict: verdicts.count(verdict) for verdict in verdict_names},
        "undecided": report.undecided,
        "unknown": report.unknown,
        "summary": report.summary,
        "first_divergence": None if first is None else first.node,
        "deterministic": report.deterministic,
        "repeats": [
            {**repeat.as_dict(), "waived": report.allows_differences and not repeat.deterministic}
            for repeat in report.repeats
        ],
        **report.facts.record(),
        "findings": [_make_finding_record(repeat) for repeat in report.findings],
        "rows": [_make_row_record(row) for row in (*report.rows, *report.kernels)],
    }


def _finite_or_none(value: float | None) -> float | None:
    """Return a finite number unchanged, else None, because JSON has no infinity or NaN."""
    return float(value) if value is not None and math.isfinite(value) else None


def _make_finding_record(finding: Finding) -> dict[str, Any]:
    return {**finding._asdict(), "number": _finite_or_none(finding.number)}


def _make_row_record(row: ValidationRow) -> dict[str, Any]:
    return {
        "node": row.node,
        "op": row.op,
        "output": row.output,
        "program": "outputs" if row.op == "output" else row.program,
        "kernel": row.kernel,
        "members": list(row.members),
        "dtype": row.dtype,
        "shape": list(row.shape),
        "case": row.case,
        "verdict": row.verdict,
        "waived": row.waived,
        "note": row.note,
        "fault": row.fault,
        "unproved": list(row.unproved),
        **_make_deviation_record(row.deviation),
        "accumulated": _finite_or_none(row.accumulated.error if row.accumulated else None),
        "inaccuracy": None if row.inaccuracy is None else _make_inaccuracy_record(row.inaccuracy),
        "statistics": None if row.statistics is None else row.statistics.record(),
    }


def _make_inaccuracy_record(inaccuracy: Inaccuracy) -> dict[str, Any]:
    """Return the record of the element that exceeds the accuracy limit most."""
    numbers = {name: _finite_or_none(getattr(inaccuracy, name)) for name in ("error", "limit", "scale")}
    return {
        **numbers,
        "index": list(inaccuracy.at),
        "actual": str(inaccuracy.actual),
        "expected": str(inaccuracy.expected),
        "elements": inaccuracy.elements,
    }


def _make_deviation_record(deviation: Deviation | None) -> dict[str, Any]:
    """Return the deviation that decides the verdict; `compared` distinguishes an infinite error from an unknown one."""
    if deviation is None:
        nothing = dict.fromkeys(("error", "allowed", "ratio", "index", "actual", "expected"))
        return {
            "compared": False,
            **nothing,
            "kind": "",
            "undecided": 0,
            "unknown": 0,
            "nans": 0,
            "infinities": 0,
            "ratios": [],
        }
    return {
        "compared": True,
        "error": _finite_or_none(deviation.error),
        "allowed": _finite_or_none(deviation.allowed),
        "ratio": _finite_or_none(deviation.severity),
        "index": list(deviation.at),
        "actual": None if deviation.actual is None else str(deviation.actual),
        "expected": None if deviation.expected is None else str(deviation.expected),
        "kind": deviation.kind,
        "undecided": deviation.undecided,
        "unknown": deviation.unknown,
        "nans": deviation.nans,
        "infinities": deviation.infinities,
        "ratios": list(deviation.ratios),
    }


class ReportOrigin(NamedTuple):
    """What a report was made from: the model file, its setup, and for each case the program's and the model's inputs.

    validate_subgraph, explain: functions that validate a subgraph with a setup, and explain a report.
    """

    source: Source
    folder: Folder | None
    overridable: tuple[str, ...]
    setup: ModelLoadSetup
    cases: list[tuple[dict[str, Array], dict[str, Any]]]
    validate_subgraph: Callable[[Subgraph, ModelLoadSetup], ValidationReport]
    explain: Callable[[ValidationReport], Explanation]

    @staticmethod
    def from_model(
        model: Model,
        cases: list[tuple[dict[str, Array], dict[str, Any]]],
        tolerances: Mapping[str, float],
        validate_subgraph: Callable[[Subgraph, ModelLoadSetup], ValidationReport],
        explain: Callable[[ValidationReport], Explanation],
    ) -> ReportOrigin:
        """Return the origin of the report on a validated model."""
        names = tuple(value.name for value in model.overridable)
        fusion = (model.fuse, model.deterministic)
        setup = ModelLoadSetup(
            model.context, model.policy, *fusion, tolerances, model.kernel_table, model.step_variants
        )
        strings = model._tensor_strings
        cases = [(strings.decode_tensors(arrays), inputs) for arrays, inputs in cases] if strings else cases
        return ReportOrigin(model.source, model.folder, names, setup, cases, validate_subgraph, explain)

    def load_model(self) -> Model:
        """Load the model again. Raise whatever loading a model raises."""
        setup, names = self.setup, list(self.overridable)
        return Model(
            self.source,
            setup.context,
            setup.precision,
            folder=self.folder,
            overridable=names,
            progress=False,
            kernels=setup.kernels,
            tuned=setup.variants or False,
        )


_TABLE_WIDTH = 160
_MAX_LISTED = 8
_COLUMNS = ("node", "op", "type", "error", "allowed", "accumulated", "result")


class ValidationReport:
    """Result of a validation: `rows` in graph order, ending with the optimised program's outputs, `kernels` and
    `findings`.

    `kernels` are rows of tensors stored by the optimised program's kernels. Rows of a body or branch belong to the
    node that runs it, with the graph's name before the output and members. Every row counts towards the verdict, except
    a node that is wrong only in the unfused program, if all kernels that contain it are right. `facts`: the graph,
    device, driver and options, and how inputs were generated.
    """

    def __init__(
        self,
        model: str,
        device: str,
        precision: str,
        cases: int,
        rows: list[ValidationRow],
        findings: Collection[Finding],
        reference: str = "float64",
        *,
        facts: ReportMetadata | None = None,
    ) -> None:
        self.model = model
        self.device = device
        self.precision = precision
        self.cases = cases
        self.rows = [row for row in rows if row.program != "kernels"]
        self.kernels = [row for row in rows if row.program == "kernels"]
        self._deciding = select_deciding_rows(rows)
        self.findings = list(findings)
        self.reference = reference
        self.facts = ReportMetadata({"name": device}) if facts is None else facts
        # Results of repeated runs, one per output of the fused program.
        self.repeats: list[Repeatability] = []
        self.allows_differences = False
        self.work: Mapping[str, NodeCost] = {}  # cost of each node; empty if nothing is unproved
        self.origin: ReportOrigin | None = None  # the model and the cases; not pickled

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "origin": None}

    def add_repeats(self, repeats: Collection[Repeatability], findings: Collection[Finding]) -> None:
        """Add the results of repeated runs."""
        self.repeats.extend(repeats)
        self.findings.extend(findings)

    def add_stored(self, rows: Collection[ValidationRow], findings: Collection[Finding]) -> None:
        """Add rows for the outputs stored with the test cases; they also count towards the verdict."""
        self.rows.extend(rows)
        self._deciding.extend(rows)
        self.findings.extend(findings)

    @property
    def deterministic(self) -> bool | None:
        """Whether all runs of each case gave the same bits; None without repeated runs or a known difference."""
        if any(finding.kind == NOT_DETERMINISTIC for finding in self.findings):
            return False
        return True if self.repeats else None

    @property
    def _has_unwaived_differences(self) -> bool:
        return self.deterministic is False and not self.allows_differences

    @property
    def _is_empty(self) -> bool:
        """Whether no element of any tensor was checked."""
        return not any(row.checked and (row.fault or row.elements) for row in self._deciding)

    @property
    def ok(self) -> bool:
        """Whether something was checked, every row is right or allowed to be unproved, and all runs have the same bits
        or are allowed to differ.
        """
        return all(row.ok for row in self._deciding) and not self._has_unwaived_differences and not self._is_empty

    @property
    def state(self) -> str:
        """The overall verdict.

        "wrong" if a row is wrong; else "ill-conditioned" if a row is, unless that is allowed; else "right" if the
        report is ok; else "unproved": a row is unproved, nothing was checked, or runs differ.
        """
        verdicts = {row.verdict for row in self._deciding if not row.ok}
        verdict = next((verdict for verdict in (WRONG, ILL_CONDITIONED) if verdict in verdicts), None)
        return verdict or (RIGHT if self.ok else UNPROVED)

    @property
    def _first_difference(self) -> tuple[str, str]:
        """The first node or output that differs between runs, and a sentence about the difference."""
        if (repeat := next((repeat for repeat in self.repeats if not repeat.deterministic), None)) is not None:
            return repeat.node or repeat.output, repeat.summary
        finding = next(finding for finding in self.findings if finding.kind == NOT_DETERMINISTIC)
        return finding.node, finding.text

    @property
    def first_divergence(self) -> ValidationRow | None:
        """The first wrong row in graph order that counts towards the verdict."""
        return next((row for row in self._deciding if row.verdict == WRONG), None)

    @property
    def unchecked(self) -> list[ValidationRow]:
        """Unproved rows; their notes give the reason."""
        return [row for row in self._deciding if not row.checked]

    @property
    def undecided(self) -> int:
        """Number of elements that depend on choices that rounding may change."""
        return sum(row.deviation.undecided for row in self._deciding if row.deviation)

    @property
    def unknown(self) -> int:
        """Number of elements without a finite bound."""
        return sum(row.deviation.unknown for row in self._deciding if row.deviation)

    @property
    def verdict(self) -> str:
        """The state, the number of right, wrong and unproved tensors, and the unproved share of the model's work."""
        right = sum(row.verdict == RIGHT for row in self.rows)
        wrong = sum(row.verdict == WRONG for row in self._deciding)
        missing = self.unchecked
        parts = [f"{right} of {len(self.rows)} tensors proved right"]
        if self.kernels:
            right = sum(row.verdict == RIGHT for row in self.kernels)
            parts.append(f"{right} of {len(self.kernels)} that its kernels store")
        if wrong:
            parts.append(f"{wrong} wrong")
        if ill := [row for row in self._deciding if row.verdict == ILL_CONDITIONED]:
            parts.append(f"{len(ill)} ill-conditioned{' (allowed)' if all(row.waived for row in ill) else ''}")
        if missing:
            allowed = " (allowed)" if all(row.waived for row in missing) else ""
            parts.append(f"{len(missing)} unproved, {self._describe_share(missing)}{allowed}")
        if self.undecided:
            parts.append(f"{self.undecided} elements undecided")
        if self.unknown:
            parts.append(f"{self.unknown} elements without a finite bound")
        if not_finite := sum(row.deviation.not_finite for row in self._deciding if row.deviation):
            parts.append(f"{not_finite} elements NaN or infinite where the reference is finite")
        if self.repeats:
            runs = max(sum(repeat.runs.values()) for repeat in self.repeats)
            rate = max(repeat.rate for repeat in self.repeats)
            parts.append(f"{runs} runs of {f'which {rate:.1%} have other bits' if rate else 'the same bits'}")
        return f"{self.state}: {', '.join(parts)}"

    def _describe_share(self, missing: Collection[ValidationRow]) -> str:
        """Return the unproved share of the model's work, or of the elements if the work is unknown."""
        producers = {output: node["name"] for node in self.facts.nodes for output in node["outputs"]}
        nodes: set[str] = set()
        for row in missing:
            row_nodes = (
                [row.node] if row.program == "nodes" else row.members or row.unproved or [producers.get(row.output, "")]
            )
            nodes.update(row_nodes)
        elements = sum(row.elements for row in missing) / max(sum(row.elements for row in self._deciding), 1)
        known = {node["name"] for node in self.facts.nodes}
        share = describe_cost_share(nodes, known, self.work)
        return share or f"{format_percent(elements)} of the elements, because the work is not known"

    @property
    def summary(self) -> str:
        """One line: the model, device and reference, the verdict, and the first divergence."""
        cases = f"{self.cases} case{'' if self.cases == 1 else 's'}"
        first = self.first_divergence
        where = "" if first is None else f"; first {_describe_divergence(first)}"
        row = next((row for row in self._deciding if row.verdict == ILL_CONDITIONED and not row.waived), None)
        row = row or next((row for row in self.unchecked if not row.waived), None)
        if first is None and row is not None:
            where = f"; first {_make_full_name(row)}: {shorten_and_escape(row.note, MAX_SENTENCE_CHARS)}"
        elif first is None and self._has_unwaived_differences:
            where = f"; {NOT_DETERMINISTIC}: {shorten_and_escape(self._first_difference[1], MAX_SENTENCE_CHARS)}"
        elif first is None and self.unchecked:
            where = f"; not checked: {_list_names(self.unchecked)}"
        against = "" if self.reference == "float64" else f" against {self.reference}"
        precision = shorten_and_escape(self.precision, MAX_SENTENCE_CHARS)
        subject = f"'{shorten_and_escape(self.model)}' on {shorten_and_escape(self.device)}, {precision}"
        return f"{subject}, {cases}{against}: {self.verdict}{where}"

    def table(self) -> Table:
        """Return a table for rich. Numbers are never truncated; long texts are wrapped."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        precision = shorten_and_escape(self.precision, MAX_SENTENCE_CHARS)
        title = f"'{shorten_and_escape(self.model)}' on {shorten_and_escape(self.device)}, {precision}"
        table = Table(title=Text(title), caption=Text(self.verdict), box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column in _COLUMNS:
            if column in ("error", "allowed", "accumulated"):
                table.add_column(column, justify="right", no_wrap=True)
            else:
                table.add_column(column, overflow="fold")
        styles = {RIGHT: None, WRONG: "bold red", ILL_CONDITIONED: "red", UNPROVED: "yellow"}
        # Rows of right kernels would only repeat their nodes' rows.
        failed_kernels = [row for row in self.kernels if not row.ok]
        for row in [*self.rows, *failed_kernels]:
            table.add_row(*map(Text, _make_table_cells(row)), style=styles[row.verdict])
        return table

    def __str__(self) -> str:
        from io import StringIO

        from rich.console import Console

        text = StringIO()
        Console(file=text, width=_TABLE_WIDTH, color_system=None).print(self.table(), markup=False)
        lines = "".join(f"{line}\n" for line in self.finding_lines())
        return f"{text.getvalue()}{lines}{self.summary}"

    def __repr__(self) -> str:
        state = {RIGHT: "ok", WRONG: "DIVERGED", ILL_CONDITIONED: "ILL-CONDITIONED", UNPROVED: "UNPROVED"}[self.state]
        return f"<ValidationReport {state}: {self.summary}>"

    def _repr_html_(self) -> str:
        from ...base.html import render_properties, render_table
        from .html_page import make_notebook_view

        failing = [i for i, row in enumerate(self.rows) if not row.ok]
        texts = {
            f"{shorten_and_escape(finding.kind)}: {shorten_and_escape(finding.node)}": shorten_and_escape(
                finding.text, MAX_SENTENCE_CHARS
            )
            for finding in self.findings
        }
        html = render_properties(self.summary, texts) + make_notebook_view(self.as_dict())
        return html + render_table(_COLUMNS, map(_make_table_cells, self.rows), failing)

    told = make_deprecated_attribute("ValidationReport.told")

    def finding_lines(self) -> list[str]:
        """Return a line per finding, safe for terminals."""
        return [
            f"{shorten_and_escape(finding.kind)}: {shorten_and_escape(finding.text, MAX_SENTENCE_CHARS)}"
            for finding in self.findings
        ]

    def raise_if_failed(self) -> None:
        """Raise ValidationError for the first wrong row, else for the first unproved row that is not allowed, else if
        runs differ.
        """
        first = self.first_divergence or next((row for row in self._deciding if not row.ok), None)
        if first is not None:
            raise validation_error(first.node, self.summary)
        if self._has_unwaived_differences:
            raise validation_error(self._first_difference[0], self.summary)
        if self._is_empty:
            raise validation_error(self.model, self.summary)

    def explain(self, folder: Folder | None = None) -> Explanation:
        """Explain the first wrong row: a small model that still fails, its kernels, and variations.

        folder: a new or empty folder for the model, its inputs, expected results and explanation. Raise InputError if
        nothing is wrong, the report was pickled or the folder is not empty, and OSError if writing fails.
        """
        if self.origin is None:
            raise InputError(
                "explain: expected a report that has its model; a pickled report or one of a candidate has none"
            )
        explanation = self.origin.explain(self)
        if folder is not None:
            explanation.save(folder)
        return explanation

    def as_dict(self) -> dict[str, Any]:
        """Return the record described in docs/validation_report.md, schema 1, for JSON."""
        return make_report_record(self)

    def to_html(self, path: Path) -> None:
        """Write the report's HTML page, a single file. Raise OSError if writing fails."""
        from .html_page import make_page

        write_text_atomic(path, make_page([self.as_dict()], f"Validation of {shorten_and_escape(self.model)}"))

    def to_junit(self, path: Path) -> None:
        """Write JUnit XML with a test case per row. Raise OSError if writing fails."""
        from .junit import make_junit_xml

        write_text_atomic(path, make_junit_xml([self.as_dict()]))

    def to_json(self, path: Path) -> None:
        """Write `as_dict` as JSON. Raise OSError if writing fails."""
        write_text_atomic(path, json.dumps(self.as_dict(), indent=2) + "\n")


def _get_short_name(row: ValidationRow) -> str:
    if row.op == CASE_OP:
        return shorten_and_escape(row.node)
    return (
        f"output '{shorten_and_escape(row.output)}'" if row.op == "output" else f"node '{shorten_and_escape(row.node)}'"
    )


def _make_full_name(row: ValidationRow) -> str:
    if row.program == "kernels":
        return f"tensor {describe_tensor(row)}"
    if row.op == CASE_OP:
        return shorten_and_escape(row.node)
    if row.op == "output" or row.program == "stored":
        return f"{shorten_and_escape(row.op)} '{shorten_and_escape(row.output)}'"
    return f"node '{shorten_and_escape(row.node)}' ({shorten_and_escape(row.op)}), output '{shorten_and_escape(row.output)}'"


def _list_names(rows: list[ValidationRow]) -> str:
    """Return the names of the rows' nodes and outputs; only the first few if there are many."""
    names = list(dict.fromkeys(_get_short_name(row) for row in rows))
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more


def _describe_divergence(row: ValidationRow) -> str:
    deviation = row.deviation
    name = _make_full_name(row)
    if row.fault or deviation is None:
        return f"{name}, case {row.case}: {shorten_and_escape(row.fault, MAX_SENTENCE_CHARS)}"
    values = f"{shorten_and_escape(deviation.actual)} instead of {shorten_and_escape(deviation.expected)}"
    where = f"{deviation.error:.3g} at {list(deviation.at)} ({values})"
    kind = f"{shorten_and_escape(deviation.kind)}, " if deviation.kind else ""
    return f"{name}, case {row.case}: {kind}error {where}, allowed {deviation.allowed:.3g}"


def _format_result(row: ValidationRow) -> str:
    if row.fault:
        return shorten_and_escape(row.fault, MAX_SENTENCE_CHARS)
    if row.verdict == UNPROVED:
        return f"unproved{' (allowed)' if row.waived else ''}: {shorten_and_escape(row.note, MAX_SENTENCE_CHARS)}"
    if row.verdict == ILL_CONDITIONED:
        return (
            f"{ILL_CONDITIONED}{' (allowed)' if row.waived else ''}: {shorten_and_escape(row.note, MAX_SENTENCE_CHARS)}"
        )
    if row.verdict == WRONG:
        return "DIVERGES"
    undecided = row.deviation.undecided if row.deviation else 0
    return f"ok, {undecided} undecided" if undecided else "ok"


def _make_table_cells(row: ValidationRow) -> list[str]:
    deviation = row.deviation
    shape = "x".join(map(str, row.shape))
    return [
        shorten_and_escape(row.node)
        if row.output == row.node
        else f"{shorten_and_escape(row.node)}: {shorten_and_escape(row.output)}",
        f"{shorten_and_escape(row.op)} in {shorten_and_escape(row.kernel)}"
        if row.program == "kernels"
        else shorten_and_escape(row.op),
        f"{row.dtype} {shape}".strip(),
        f"{deviation.error:.2e}" if deviation else "",
        f"{deviation.allowed:.2e}" if deviation else "",
        f"{row.accumulated.error:.2e}" if row.accumulated else "",
        _format_result(row),
    ]
