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
        try:
            result.cases += _check_cases(context, result.name, opset, cases, precision)
        except UnsupportedError:
            _check_each_case(context, result, opset, cases, precision)


def _check_cases(
    context: Context, area: str, opset: int, cases: Sequence[Case], precision: str
) -> Sequence[CaseResult]:
    model, inputs = build_model(area, opset, cases)
    report = validate(
        model.SerializeToString(), [inputs], context=context, precision=precision, allow_ill_conditioned=True
    )
    return judge_cases(report, cases, precision)


def _check_each_case(context: Context, result: AreaResult, opset: int, cases: Sequence[Case], precision: str) -> None:
    """Check each case in a model of its own, with the cases that it reads, and skip those that the device refuses."""
    refusals = []
    for case in cases:
        sources = _find_sources(case, cases)
        try:
            results = _check_cases(context, result.name, opset, [*sources, case], precision)
        except UnsupportedError as error:
            result.skip(case.name, str(error), precision)
            refusals.append(str(error))
            continue
        source_names = {source.name for source in sources}
        result.cases += [case_result for case_result in results if case_result.name not in source_names]
    if refusals:
        count = "" if len(refusals) == len(cases) else f" {len(refusals)} of {len(cases)} cases"
        result.notes.append(f"{precision} skipped{count}: {refusals[0]}")


def _find_sources(case: Case, cases: Sequence[Case]) -> list[Case]:
    """Return the cases whose outputs a case reads, directly or through others, in their order."""
    names = {operand for operand in case.operands if isinstance(operand, str)}
    direct = [other for other in cases if other.name in names]
    needed = {other.name for source in direct for other in [*_find_sources(source, cases), source]}
    return [other for other in cases if other.name in needed]


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
