"""State of a pytest run: the cells, their contexts, and the findings of each test."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import pytest

from .._pumice import Context, DeviceInfo, Error
from ..device.context import default_context, replace_default_context
from .matrix_cells import DeviceUnderTest, MatrixCell, make_cells, select_devices

FIXTURES = frozenset(("pumice_cell", "pumice_context", "pumice_device", "pumice_precision", "pumice_validate"))
CELL = pytest.StashKey[MatrixCell]()
FINDINGS = pytest.StashKey["TestFindings"]()
RUN = pytest.StashKey["MatrixRun"]()


class TestFindings:
    """Findings of one test: validation records, baselines to write, and notes for the end of the run."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.baselines: list[dict[str, Any]] = []
        self.notes: list[str] = []


class MatrixRun:
    """The cells of a pytest run and their contexts, which are opened on first use."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        requested = config.getoption("--pumice-device")
        self.requested = bool(requested)
        self.devices_under_test = select_devices(requested, config.getoption("--pumice-allow-software"))
        self.cells = make_cells(self.devices_under_test, config.getoption("--pumice-precision"))
        self.isolated = bool(config.getoption("--pumice-isolate"))
        self.lost_devices: dict[str, str] = {}  # cell label -> test in which its device was lost
        self._contexts: dict[str, Context] = {}
        self._current = self.devices_under_test[0].device
        self.has_env_device = bool(os.environ.get("PUMICE_DEVICE"))
        self._saved_environment = os.environ.get("PUMICE_DEVICE")
        if self.requested:
            os.environ["PUMICE_DEVICE"] = self._current

    @property
    def has_several_cells(self) -> bool:
        """Whether tests run in more than one cell."""
        return len(self.cells) > 1

    def make_default(self, device_under_test: DeviceUnderTest) -> None:
        """Make this device the default for calls without an explicit context."""
        if self._current == device_under_test.device:
            return
        os.environ["PUMICE_DEVICE"] = device_under_test.device
        replace_default_context(self._contexts.get(device_under_test.device))
        self._current = device_under_test.device

    def get_context(self, device_under_test: DeviceUnderTest) -> Context:
        """Return the context of a device, which is the default context while its tests run. Raise DeviceError if it cannot be opened."""
        self.make_default(device_under_test)
        context = default_context()
        self._contexts[device_under_test.device] = context
        return context

    def get_info(self, device_under_test: DeviceUnderTest) -> DeviceInfo | None:
        """Return the device's info; None if it is not known yet."""
        context = self._contexts.get(device_under_test.device)
        return context.info if context is not None and not context.closed else device_under_test.info

    def mark_device_lost(self, cell: MatrixCell, test: str) -> None:
        """Record that a cell's device was lost in a test, and drop its context: the next cell on this device opens another."""
        self.lost_devices.setdefault(cell.label, test)
        if self._contexts.pop(cell.device_under_test.device, None) is not None:
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


def get_matrix_run(config: pytest.Config) -> MatrixRun:
    """Return the state of the run."""
    return config.stash[RUN]


def get_cell(item: pytest.Item) -> MatrixCell | None:
    """Return the cell in which a test runs; None for a test that uses none of the plugin's device fixtures."""
    if CELL in item.stash:
        return item.stash[CELL]
    if FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
        return None
    callspec = getattr(item, "callspec", None)
    cell: MatrixCell = (callspec.params if callspec else {}).get("pumice_cell", get_matrix_run(item.config).cells[0])
    item.stash[CELL] = cell
    return cell


def get_findings(item: pytest.Item) -> TestFindings:
    """Return the findings of a test so far."""
    return item.stash.setdefault(FINDINGS, TestFindings())
