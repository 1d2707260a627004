"""Collect models with stored inputs and outputs from folders as tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .._pumice import Error
from .matrix_cells import MatrixCell
from .run_state import CELL, get_matrix_run

if TYPE_CHECKING:
    from ..validation.report.report import ValidationReport

_MODEL_FOLDERS = pytest.StashKey[frozenset[Path]]()


def add_model_folders(config: pytest.Config) -> None:
    """Record the model folders. Folders on the command line are searched, as are configured folders if the
    command line names no tests; other folders are searched only when pytest visits them. Raise UsageError for a path
    that is not a folder.
    """
    command_line_folders = [
        config.invocation_params.dir / folder for folder in config.getoption("--pumice-models") or ()
    ]
    configured_folders = [Path(folder) for folder in config.getini("pumice_models")]
    for folder in (*command_line_folders, *configured_folders):
        if not folder.is_dir():
            raise pytest.UsageError(f"--pumice-models: expected a folder, given '{folder}'")
    config.stash[_MODEL_FOLDERS] = frozenset(
        folder.resolve() for folder in (*command_line_folders, *configured_folders)
    )
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        command_line_folders += configured_folders
    requested_paths = {
        (config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args
    }
    config.args.extend(
        str(folder)
        for folder in command_line_folders
        if requested_paths.isdisjoint((folder.resolve(), *folder.resolve().parents))
    )


def collect_model_file(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return a collector for a model file in one of the folders."""
    folder = path.parent.resolve()  # resolve the folder only, because the file may be a link to another folder
    if path.suffix != ".onnx" or parent.config.stash[_MODEL_FOLDERS].isdisjoint((folder, *folder.parents)):
        return None
    collector: pytest.Collector = ModelFile.from_parent(parent, path=path)
    return collector


class ModelFile(pytest.File):
    """A model file, with one test per cell."""

    def collect(self) -> Iterator[ModelItem]:
        """Yield the tests of the file."""
        run = get_matrix_run(self.config)
        for cell in run.cells:
            name = f"validate[{cell.label}]" if run.has_several_cells else "validate"
            yield ModelItem.from_parent(self, name=name, cell=cell)


class StoredResultError(AssertionError):
    """Raised if a stored result differs from the reference although the device's results agree with it."""


class ModelItem(pytest.Item):
    """Validates a model on its stored inputs and compares the results with the stored outputs."""

    def __init__(self, *, cell: MatrixCell, **options: Any) -> None:
        super().__init__(**options)
        self.stash[CELL] = cell
        self.cell = cell
        # Differences between stored results and the reference, found although the device's results are right.
        self.lines: list[str] = []

    def runtest(self) -> None:
        """Run the validation. Raise ValidationError, BaselineError, StoredResultError, and the errors of loading."""
        from ..base.errors import ValidationError
        from ..model.datasets import find_datasets, read_dataset
        from ..model.model import Model
        from ..validation.checker.stored_output_comparison import STORED_OUTPUT, check_stored_outputs
        from .validator import CellValidator

        paths = find_datasets(self.path)
        if not paths:
            pytest.skip("no test_data_set_* and no .npz next to it")
        context = get_matrix_run(self.config).get_context(self.cell.device_under_test)
        with Model(self.path, context, self.cell.precision, progress=False) as model:
            cases = [read_dataset(path, model) for path in paths]
            names = self.config.getoption("--pumice-allow-unchecked")
            allowed: Any = True if "all" in names else names
            validator = CellValidator(self)
            ill_conditioned = self.config.getoption("--pumice-allow-ill-conditioned")
            options = {
                "allow_unchecked": allowed,
                "accuracy": self.config.getoption("--pumice-accuracy"),
                "allow_ill_conditioned": True if "all" in ill_conditioned else ill_conditioned,
            }

            def raise_if_stored_outputs_differ(report: ValidationReport) -> None:
                device_ok = report.ok
                check_stored_outputs(report, model, cases, {}, bool(names))
                self.lines = (
                    [finding.text for finding in report.findings if finding.kind == STORED_OUTPUT] if device_ok else []
                )

            try:
                validator.validate_and_record(
                    model, [case.inputs for case in cases], options, raise_if_stored_outputs_differ
                )
            except ValidationError:
                if self.lines:
                    raise StoredResultError("\n".join(self.lines)) from None
                raise

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the error message without a traceback."""
        if isinstance(excinfo.value, Error | AssertionError):
            return f"{type(excinfo.value).__name__}: {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the file and the name of the test."""
        return self.path, None, self.name
