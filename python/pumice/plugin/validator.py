"""Validation in a test's cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest

from .._pumice import Context
from ..base.errors import InputError
from ..model.model import Model
from ..validation.validate import Case, validate
from . import baselines
from .options import path_option
from .state import cell_of, found_of, run_of

if TYPE_CHECKING:
    from ..importer.file.model_file import Source
    from ..validation.report import ValidationReport


class Validator:
    """The value of the fixture `pumice_validate`: validates in the cell of a test."""

    def __init__(self, item: pytest.Item) -> None:
        cell = cell_of(item)
        assert cell is not None
        self.item = item
        self.cell = cell

    def __call__(self, model: Model | Source, cases: Iterable[Case], **options: Any) -> ValidationReport:
        """Return the report of a successful validation.

        Raise the errors of `validate`, ValidationError if a result is not proved right, BaselineError if one is worse than its baseline.
        """
        __tracebackhide__ = True
        return self.judge(model, cases, options)

    def judge(
        self,
        model: Model | Source,
        cases: Iterable[Case],
        options: dict[str, Any],
        complete: Callable[[ValidationReport], None] | None = None,
    ) -> ValidationReport:
        """Validate and record the report; `complete` adds to the report before that. Raise the errors of a call."""
        __tracebackhide__ = True
        for name in ("context", "precision"):
            if name in options:
                raise InputError(
                    f"pumice_validate: {name}: it is the cell's, {self.cell.label}; pumice.validate takes any"
                )
        context = run_of(self.item.config).context(self.cell.place)
        kept = list(cases)
        report = validate(model, kept, context=context, precision=self.cell.precision, **options)
        record = {**report.as_dict(), "pytest": {"test": self.item.nodeid, "cell": self.cell.label}}
        found_of(self.item).records.append(record)
        if complete is not None:
            complete(report)
            record.update(report.as_dict())
        report.raise_if_failed()
        self._check_baseline(model, kept[0], record, context)
        return report

    def _check_baseline(self, model: Model | Source, case: Case, record: dict[str, Any], context: Context) -> None:
        """Record the case's baseline, or compare the case with its baseline."""
        config = self.item.config
        folder = path_option(config, "baseline")
        if folder is None:
            return
        found, info = found_of(self.item), context.info
        name = f"{record['model']} {len(found.records)}"  # a test may validate several models, or one several times
        path = baselines.file_of(folder, self.item.nodeid, name, self.cell, info)
        update = config.getoption("--pumice-update")
        then = None if update else baselines.stored(path, info)
        if not update and then is None:
            found.notes.append(f"no baseline: {self.item.nodeid} ({path}); --pumice-update writes it")
            return
        factors = config.getoption("--pumice-factors")
        enough = then["time_ratio"] * factors["time"] if then else None
        now = self._measured(model, case, record, context, enough)
        if then is None:
            found.baselines.append({"path": str(path), "test": self.item.nodeid, "entry": now})
            return
        found.notes += [f"{self.item.nodeid}: {line} ({path})" for line in baselines.changed(now, then)]
        if lines := baselines.worse(now, then, factors):
            driver = f"{then['driver']} {then['driver_version']}".strip()
            raise baselines.BaselineError("\n".join([f"worse than the baseline of {driver} ({path}):", *lines]))

    def _measured(
        self, model: Model | Source, case: Case, record: dict[str, Any], context: Context, enough: float | None
    ) -> dict[str, Any]:
        if isinstance(model, Model):
            loaded = model.loaded_again(context, self.cell.precision)
        else:
            loaded = Model(model, context, self.cell.precision, progress=False)
        with loaded:
            arrays = _arguments(loaded, case)
            clock = baselines.Clock(context)
            times = clock.middle(loaded, arrays) if enough is None else clock.least(loaded, arrays, enough)
            dispatches = baselines.dispatches_of(loaded, loaded.arguments(*arrays))
            digests = baselines.digests_of(loaded, arrays)
            return baselines.entry(record, context.info, dispatches, times, digests)


def _arguments(model: Model, case: Any) -> list[Any]:
    """Return the arguments of a `validate` case: a sequence, a dict by name, or the only input."""
    if isinstance(case, dict):
        return list(model.named(**case).values())
    return list(case) if isinstance(case, list | tuple) else [case]
