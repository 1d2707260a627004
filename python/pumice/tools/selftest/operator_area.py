"""Operator areas of the self-test: a model at each precision, whose nodes are judged by their derived error bounds."""

from __future__ import annotations

from collections.abc import Sequence

from ..._pumice import Context, UnsupportedError
from ...base.element_types import PRECISIONS
from ...validation.report.deviation import RIGHT, UNPROVED, WRONG
from ...validation.report.report import ValidationReport
from ...validation.report.report_rows import ValidationRow, select_deciding_rows
from ...validation.validate import validate
from .models import build_model, get_output_name
from .operands import Case
from .operator_table import OPERATOR_AREAS
from .results import AreaResult, CaseResult


def run_operator_area(context: Context, result: AreaResult) -> None:
    """Validate the model of the area `result.name` at each precision, and add its cases."""
    opset, all_cases = OPERATOR_AREAS[result.name]
    for precision in PRECISIONS:
        cases = [case for case in all_cases if precision in case.precisions]
        model, inputs = build_model(result.name, opset, cases)
        try:
            report = validate(
                model.SerializeToString(), [inputs], context=context, precision=precision, allow_ill_conditioned=True
            )
        except UnsupportedError as error:
            for case in cases:
                result.skip(case.name, str(error), precision)
            result.notes.append(f"{precision} skipped: {error}")
            continue
        result.cases += judge_cases(report, cases, precision)


def judge_cases(report: ValidationReport, cases: Sequence[Case], precision: str) -> list[CaseResult]:
    """Return a result for each case, with the row furthest from its bound. Rows of nodes that the engine adds get their own results."""
    deciding = select_deciding_rows([*report.rows, *report.kernels])
    rows_by_case: dict[str, list[ValidationRow]] = {case.name: [] for case in cases}
    case_by_output = {get_output_name(case.name, i): case.name for case in cases for i in range(case.outputs)}
    for row in deciding:
        name = case_by_output.get(row.output, row.node)
        if name in rows_by_case or not row.ok:
            rows_by_case.setdefault(name, []).append(row)
    for name, rows in rows_by_case.items():
        if not rows:  # no kernel stores the result, and the unfused node does not count: the kernels that contain it do
            rows += [row for row in deciding if name in row.members]
    return [_judge_rows(name, rows, precision) for name, rows in rows_by_case.items()]


def _judge_rows(name: str, rows: Sequence[ValidationRow], precision: str) -> CaseResult:
    if not rows:
        return CaseResult(name, UNPROVED, precision, "no tensor of it was checked")
    row = max(rows, key=lambda row: row.severity)
    verdict = RIGHT if row.ok else WRONG if row.verdict == WRONG else UNPROVED
    deviation = row.deviation
    text = row.fault or row.note
    if verdict == WRONG and not text and deviation is not None:
        text = f"{deviation.actual} instead of {deviation.expected} at {list(deviation.at)}"
        text += f", {deviation.kind}" if deviation.kind else ""
    if verdict != RIGHT and row.kernel:
        text += f" (kernel {row.kernel})"
    if verdict == RIGHT:
        text = ""
    error, allowed = (deviation.error, deviation.allowed) if deviation is not None else (None, None)
    return CaseResult(name, verdict, precision, text, error, allowed)
