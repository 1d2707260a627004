"""Result of a validation: the verdicts of all rows, and their table."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ...base.atomic_files import Path, write_text_atomic
from ...base.deprecation import make_deprecated_attribute
from ...base.errors import validation_error
from ...base.printable_text import MAX_SENTENCE_CHARS, shorten_and_escape
from .deviation import ILL_CONDITIONED, RIGHT, UNPROVED, WRONG
from .node_costs import NodeCost, describe_cost_share, format_percent
from .report_metadata import ReportMetadata
from .report_record import make_report_record
from .report_rows import CASE_OP, NOT_DETERMINISTIC, Finding, ValidationRow, describe_tensor, select_deciding_rows

if TYPE_CHECKING:
    from rich.table import Table

    from ...importer.file.model_file import Folder
    from ..search.explain import Explanation
    from ..search.repeatability import Repeatability
    from .model_load_setup import ReportOrigin

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
        from ..search.explain import explain

        explanation = explain(self)
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
