"""State of a run: the cells, the opened contexts, and the findings of each test."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import pytest

from .._pumice import Context, DeviceInfo, Error
from ..device.context import default_context, replace_default_context
from .cells import Cell, MatrixDevice, make_cells, matrix_devices

FIXTURES = frozenset(("pumice_cell", "pumice_context", "pumice_device", "pumice_precision", "pumice_validate"))
CELL = pytest.StashKey[Cell]()
FINDINGS = pytest.StashKey["TestFindings"]()
RUN = pytest.StashKey["Run"]()


class TestFindings:
    """Findings of one test: validation records, baselines to write, and notes for the end of the run."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.baselines: list[dict[str, Any]] = []
        self.notes: list[str] = []


class Run:
    """The cells of a run and their contexts, opened on first use."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        requested = config.getoption("--pumice-device")
        self.requested = bool(requested)
        self.matrix_devices = matrix_devices(requested, config.getoption("--pumice-allow-software"))
        self.cells = make_cells(self.matrix_devices, config.getoption("--pumice-precision"))
        self.isolated = bool(config.getoption("--pumice-isolate"))
        self.lost: dict[str, str] = {}  # cell label -> test in which its device was lost
        self._contexts: dict[str, Context] = {}
        self._current = self.matrix_devices[0].device
        self.has_env_device = bool(os.environ.get("PUMICE_DEVICE"))
        self._saved_environment = os.environ.get("PUMICE_DEVICE")
        if self.requested:
            os.environ["PUMICE_DEVICE"] = self._current

    @property
    def is_matrix(self) -> bool:
        """Whether tests run in more than one cell."""
        return len(self.cells) > 1

    def activate(self, matrix_device: MatrixDevice) -> None:
        """Make this device the default, for everything without an explicit context."""
        if self._current == matrix_device.device:
            return
        os.environ["PUMICE_DEVICE"] = matrix_device.device
        replace_default_context(self._contexts.get(matrix_device.device))
        self._current = matrix_device.device

    def context(self, matrix_device: MatrixDevice) -> Context:
        """Return the context of a device, which is the default context while its tests run. Raise DeviceError if it cannot be opened."""
        self.activate(matrix_device)
        context = default_context()
        self._contexts[matrix_device.device] = context
        return context

    def info(self, matrix_device: MatrixDevice) -> DeviceInfo | None:
        """Return the device's info; None if it is not known yet."""
        context = self._contexts.get(matrix_device.device)
        return context.info if context is not None and not context.closed else matrix_device.info

    def get_opened_context(self, matrix_device: MatrixDevice) -> Context | None:
        """Return the context of a device if a test has opened it."""
        return self._contexts.get(matrix_device.device)

    def mark_lost(self, cell: Cell, where: str) -> None:
        """Record that a cell's device was lost in a test. Its context is dead; the next cell on this device opens another."""
        self.lost.setdefault(cell.label, where)
        if self._contexts.pop(cell.matrix_device.device, None) is not None:
            replace_default_context(None)

    def close(self) -> None:
        """Close the contexts and restore the environment."""
        for context in self._contexts.values():
            with contextlib.suppress(Error):
                context.close()
        self._contexts.clear()
        if self.requested:
            if self._saved_environment is None:
                os.environ.pop("PUMICE_DEVICE", None)
            else:
                os.environ["PUMICE_DEVICE"] = self._saved_environment


def get_run(config: pytest.Config) -> Run:
    """Return the run's state."""
    return config.stash[RUN]


def get_cell(item: pytest.Item) -> Cell | None:
    """Return the cell in which a test runs; None for a test that uses none of the plugin's device fixtures."""
    if CELL in item.stash:
        return item.stash[CELL]
    if FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
        return None
    callspec = getattr(item, "callspec", None)
    cell: Cell = (callspec.params if callspec else {}).get("pumice_cell", get_run(item.config).cells[0])
    item.stash[CELL] = cell
    return cell


def get_findings(item: pytest.Item) -> TestFindings:
    """Return the findings of a test so far."""
    return item.stash.setdefault(FINDINGS, TestFindings())
