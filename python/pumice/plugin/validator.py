"""Validate models in the cell of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest

from .._pumice import Context
from ..base.errors import InputError
from ..model.model import Model
from ..validation.checker.options import Case
from ..validation.validate import validate
from . import baselines
from .options import get_path_option
from .run_state import get_cell, get_findings, get_matrix_run

if TYPE_CHECKING:
    from ..importer.file.model_file import Source
    from ..validation.report.report import ValidationReport


class CellValidator:
    """The value of the fixture `pumice_validate`: validates in the cell of a test."""

    def __init__(self, item: pytest.Item) -> None:
        cell = get_cell(item)
        assert cell is not None
        self.item = item
        self.cell = cell

    def __call__(self, model: Model | Source, cases: Iterable[Case], **options: Any) -> ValidationReport:
        """Return the report of a successful validation.

        Raise the errors of `validate`, ValidationError if a result is not proved right, BaselineError if one is worse than its baseline.
        """
        __tracebackhide__ = True
        return self.validate_and_record(model, cases, options)

    def validate_and_record(
        self,
        model: Model | Source,
        cases: Iterable[Case],
        options: dict[str, Any],
        add_checks: Callable[[ValidationReport], None] | None = None,
    ) -> ValidationReport:
        """Validate and record the report. add_checks: a function that adds findings to the report. Raise the errors of a call."""
        __tracebackhide__ = True
        for name in ("context", "precision"):
            if name in options:
                raise InputError(
                    f"pumice_validate: {name}: it is set by the cell, {self.cell.label}; pumice.validate takes any"
                )
        context = get_matrix_run(self.item.config).get_context(self.cell.device_under_test)
        case_list = list(cases)
        report = validate(model, case_list, context=context, precision=self.cell.precision, **options)
        record = {**report.as_dict(), "pytest": {"test": self.item.nodeid, "cell": self.cell.label}}
        get_findings(self.item).records.append(record)
        if add_checks is not None:
            add_checks(report)
            record.update(report.as_dict())
        report.raise_if_failed()
        self._check_baseline(model, case_list[0], record, context)
        return report

    def _check_baseline(self, model: Model | Source, case: Case, record: dict[str, Any], context: Context) -> None:
        """Record the case's baseline, or compare the case with its baseline."""
        config = self.item.config
        folder = get_path_option(config, "baseline")
        if folder is None:
            return
        findings, info = get_findings(self.item), context.info
        name = f"{record['model']} {len(findings.records)}"  # a test may validate several models, or one several times
        path = baselines.get_baseline_path(folder, self.item.nodeid, name, self.cell, info)
        update = config.getoption("--pumice-update")
        baseline = None if update else baselines.load_baseline(path, info)
        if not update and baseline is None:
            findings.notes.append(f"no baseline: {self.item.nodeid} ({path}); --pumice-update writes it")
            return
        factors = config.getoption("--pumice-factors")
        target_ratio = baseline["time_ratio"] * factors["time"] if baseline else None
        current = self._measure_baseline_entry(model, case, record, context, target_ratio)
        if baseline is None:
            findings.baselines.append({"path": str(path), "test": self.item.nodeid, "entry": current})
            return
        findings.notes += [
            f"{self.item.nodeid}: {line} ({path})" for line in baselines.find_harmless_changes(current, baseline)
        ]
        if lines := baselines.find_regressions(current, baseline, factors):
            driver = f"{baseline['driver']} {baseline['driver_version']}".strip()
            raise baselines.BaselineError("\n".join([f"worse than the baseline of {driver} ({path}):", *lines]))

    def _measure_baseline_entry(
        self, model: Model | Source, case: Case, record: dict[str, Any], context: Context, target_ratio: float | None
    ) -> dict[str, Any]:
        if isinstance(model, Model):
            loaded_model = model.loaded_again(context, self.cell.precision)
        else:
            loaded_model = Model(model, context, self.cell.precision, progress=False)
        with loaded_model:
            arrays = _get_case_arguments(loaded_model, case)
            clock = baselines.RelativeTimer(context)
            times = (
                clock.measure_median(loaded_model, arrays)
                if target_ratio is None
                else clock.measure_min(loaded_model, arrays, target_ratio)
            )
            dispatches = baselines.count_dispatches(loaded_model, loaded_model.arguments(*arrays))
            digests = baselines.hash_model_call(loaded_model, arrays)
            return baselines.make_baseline_entry(record, context.info, dispatches, times, digests)


def _get_case_arguments(model: Model, case: Any) -> list[Any]:
    """Return the arguments of a `validate` case: a sequence, a dict by name, or the only input."""
    if isinstance(case, dict):
        return list(model.named(**case).values())
    return list(case) if isinstance(case, list | tuple) else [case]
