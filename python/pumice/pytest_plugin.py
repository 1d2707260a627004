"""The pytest plugin: the device and precision matrix, its fixtures, and its header and summary."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pumice

from .plugin import memory_leaks, model_collection, options, process_isolation
from .plugin.matrix_cells import MatrixCell, get_device_type_label
from .plugin.outcome_hooks import OutcomeHooks
from .plugin.run_state import FIXTURES, RUN, MatrixRun, get_cell, get_matrix_run

if TYPE_CHECKING:
    from .validation.report.report import ValidationReport

pytest_addoption = options.add_options

# ---- configuration and header of the run


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Make the first requested device the default for contexts, also in subprocesses of the tests."""
    for marker in options.MARKERS:
        config.addinivalue_line("markers", marker)
    run = config.stash[RUN] = MatrixRun(config)
    config.add_cleanup(run.close)
    is_subprocess = process_isolation.is_cell_process(config) or hasattr(config, "workerinput")
    config.pluginmanager.register(OutcomeHooks(config, is_subprocess), "pumice-outcomes")
    model_collection.add_model_folders(config)
    process_isolation.register_isolation_plugin(config)


def _needs_header(config: pytest.Config) -> bool:
    """Return whether to print the header; False for runs that do not use pumice, because opening a device is slow."""
    if config.getoption("--pumice-device") or get_matrix_run(config).has_env_device:
        return True
    plugins = (plugin for plugin in config.pluginmanager.get_plugins() if getattr(plugin, "__name__", "") != __name__)
    return any(getattr(plugin, "pumice", None) is pumice for plugin in plugins)


def _format_device_lines(run: MatrixRun) -> list[str]:
    """Return a line per device. Open a context only if there is a single device and its tests run in this process."""
    begin = f"pumice {pumice.__version__}:"
    precisions = ", ".join(dict.fromkeys(cell.precision for cell in run.cells))
    if run.has_several_cells or run.isolated:
        lines = []
        for device_under_test in run.devices_under_test:
            name = (
                f"{device_under_test.info.name} ({get_device_type_label(device_under_test.info)})"
                if device_under_test.info
                else "the default device"
            )
            lines.append(f"{begin} {name}, {precisions}{device_under_test.note and '; ' + device_under_test.note}")
        return lines
    (device_under_test,) = run.devices_under_test
    try:
        context = run.get_context(device_under_test)
    except pumice.Error as error:
        return [f"{begin} no device: {error}"]
    choice = f"{context.choice}{device_under_test.note and ', ' + device_under_test.note}"
    return [f"{begin} {context.info.name} ({get_device_type_label(context.info)}), {precisions}; {choice}"]


def pytest_report_header(config: pytest.Config) -> list[str] | None:
    return _format_device_lines(get_matrix_run(config)) if _needs_header(config) else None


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str] | None:
    """Print the device lines if tests use the fixtures although no conftest imports pumice."""
    if _needs_header(config) or not any(get_cell(item) for item in items):
        return None
    return _format_device_lines(get_matrix_run(config))


# ---- test collection and calls


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    run = get_matrix_run(metafunc.config)
    if run.has_several_cells and not FIXTURES.isdisjoint(metafunc.fixturenames):
        labels = [cell.label for cell in run.cells]
        metafunc.parametrize("pumice_cell", run.cells, ids=labels, indirect=True, scope="session")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    return model_collection.collect_model_file(file_path, parent)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests by cell, tests without a cell first."""
    run = get_matrix_run(config)
    if run.has_several_cells or run.isolated:
        items.sort(key=lambda item: run.cells.index(cell) if (cell := get_cell(item)) else -1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    cell = get_cell(item)
    leak_check = cell and (item.config.getoption("--pumice-leaks") or item.get_closest_marker("pumice_leaks"))
    with (
        memory_leaks.check_leaks(get_matrix_run(item.config).get_context(cell.device_under_test))
        if cell and leak_check
        else nullcontext()
    ):
        return (yield)


# ---- fixtures


@pytest.fixture(scope="session")
def pumice_cell(request: pytest.FixtureRequest) -> MatrixCell:
    """The cell of the test matrix: a device and a precision."""
    current_cell: MatrixCell = getattr(request, "param", None) or get_matrix_run(request.config).cells[0]
    return current_cell


@pytest.fixture(scope="session")
def pumice_context(request: pytest.FixtureRequest, pumice_cell: MatrixCell) -> pumice.Context:
    """The context of the device under test, shared by the whole run; the default context during its tests."""
    return get_matrix_run(request.config).get_context(pumice_cell.device_under_test)


@pytest.fixture(scope="session")
def pumice_device(pumice_context: pumice.Context) -> pumice.DeviceInfo:
    """The device under test."""
    return pumice_context.info


@pytest.fixture(scope="session")
def pumice_precision(pumice_cell: MatrixCell) -> str:
    """The precision under test: "fp32", "fp16" or "bf16"."""
    return pumice_cell.precision


@pytest.fixture
def pumice_validate(request: pytest.FixtureRequest, pumice_context: pumice.Context) -> Callable[..., ValidationReport]:
    """`pumice.validate` on the device and at the precision under test.

    Pass a model, cases, and validate's options except `context` and `precision`. It returns the report, adds it to the page
    and the properties of the run, compares it with the golden baseline if there is one, and raises ValidationError unless everything is
    proved right, BaselineError if a value is worse than its baseline.
    """
    from .plugin.validator import CellValidator

    return CellValidator(request.node)
