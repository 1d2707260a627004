"""Progress bars for what takes long, on a terminal only."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

_PATIENCE_SECONDS = 1.0


class Progress:
    """A bar on stderr that appears after a second; nothing where stderr is no terminal. A context manager."""

    def __init__(self, what: str, wanted: bool = True) -> None:
        self._what = what
        self._shown = wanted and sys.stderr.isatty() and sys.stdout.isatty()
        self._begin = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, done: int, total: int) -> None:
        if not self._shown or (self._bar is None and time.monotonic() - self._begin < _PATIENCE_SECONDS):
            return
        if self._bar is None:
            self._start()
        self._bar.update(self._task, completed=done, total=total)

    def _start(self) -> None:
        from rich import progress
        from rich.console import Console

        columns = (
            "{task.description}",
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
        )
        self._bar = progress.Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(self._what, total=None)
        self._bar.start()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
