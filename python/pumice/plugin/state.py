"""What the plugin knows of a run: the cells, the contexts that were opened, and what each test found."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import pytest

from .._pumice import Context, DeviceInfo, Error
from ..device.context import default_context, replace_default_context
from .cells import Cell, Place, matrix, places

FIXTURES = frozenset(("pumice_cell", "pumice_context", "pumice_device", "pumice_precision", "pumice_validate"))
CELL = pytest.StashKey[Cell]()
FOUND = pytest.StashKey["Found"]()
RUN = pytest.StashKey["Run"]()


class Found:
    """What one test found: records of validations, baselines to write, and notes for the end of the run."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.baselines: list[dict[str, Any]] = []
        self.notes: list[str] = []


class Run:
    """The cells of a run and their contexts, each of which is opened when a test first asks for it."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        asked = config.getoption("--pumice-device")
        self.asked = bool(asked)
        self.places = places(asked, config.getoption("--pumice-allow-software"))
        self.cells = matrix(self.places, config.getoption("--pumice-precision"))
        self.isolated = bool(config.getoption("--pumice-isolate"))
        self.lost: dict[str, str] = {}  # label of a cell -> the test in which its device was lost
        self._contexts: dict[str, Context] = {}
        self._current = self.places[0].device
        self.was_named = bool(os.environ.get("PUMICE_DEVICE"))
        self._environment = os.environ.get("PUMICE_DEVICE")
        if self.asked:
            os.environ["PUMICE_DEVICE"] = self._current

    @property
    def is_matrix(self) -> bool:
        """Whether tests run in more than one cell."""
        return len(self.cells) > 1

    def use(self, place: Place) -> None:
        """Makes the device that of the default context, as of everything that is given none."""
        if self._current == place.device:
            return
        os.environ["PUMICE_DEVICE"] = place.device
        replace_default_context(self._contexts.get(place.device))
        self._current = place.device

    def context(self, place: Place) -> Context:
        """The context of a device, which is the default one while its tests run. Raises DeviceError."""
        self.use(place)
        context = default_context()
        self._contexts[place.device] = context
        return context

    def info(self, place: Place) -> DeviceInfo | None:
        """The device, if it is known by now."""
        context = self._contexts.get(place.device)
        return context.info if context is not None and not context.closed else place.info

    def opened(self, place: Place) -> Context | None:
        """The context of a device, where a test has opened it."""
        return self._contexts.get(place.device)

    def lose(self, cell: Cell, where: str) -> None:
        """Notes that a cell's device was lost in a test. Its context is dead, and the next cell on this device makes another."""
        self.lost.setdefault(cell.label, where)
        if self._contexts.pop(cell.place.device, None) is not None:
            replace_default_context(None)

    def close(self) -> None:
        """Closes the contexts, and leaves the environment as it was."""
        for context in self._contexts.values():
            with contextlib.suppress(Error):
                context.close()
        self._contexts.clear()
        if self.asked:
            if self._environment is None:
                os.environ.pop("PUMICE_DEVICE", None)
            else:
                os.environ["PUMICE_DEVICE"] = self._environment


def run_of(config: pytest.Config) -> Run:
    """The run's state."""
    return config.stash[RUN]


def cell_of(item: pytest.Item) -> Cell | None:
    """The cell in which a test runs; None for a test that uses no device by the plugin's fixtures."""
    if CELL in item.stash:
        return item.stash[CELL]
    if FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
        return None
    callspec = getattr(item, "callspec", None)
    cell: Cell = (callspec.params if callspec else {}).get("pumice_cell", run_of(item.config).cells[0])
    item.stash[CELL] = cell
    return cell


def found_of(item: pytest.Item) -> Found:
    """What a test has found so far."""
    return item.stash.setdefault(FOUND, Found())
