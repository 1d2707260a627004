"""Progress bars for long operations, only on a terminal or in a notebook."""

from __future__ import annotations

import functools
import sys
import time
from types import TracebackType
from typing import Any

from .log import is_interactive_terminal
from .printable_text import shorten_and_escape

_SHOW_DELAY_SECONDS = 1.0


def _can_show_notebook_bar() -> bool:
    """Return whether this is a notebook with ipywidgets, which rich needs to show a bar."""
    if "ipykernel" not in sys.modules:
        return False
    from importlib.util import find_spec

    if find_spec("ipywidgets") is not None:
        return True
    _log_missing_ipywidgets()
    return False


@functools.cache  # log the hint once per process
def _log_missing_ipywidgets() -> None:
    import logging

    logging.getLogger("pumice").info("progress bars in a notebook need ipywidgets: pip install 'pumice[notebook]'")


def _escape_label(label_text: str) -> str:
    """Escape a label for rich, which parses brackets as styles: the label may contain a file name."""
    return shorten_and_escape(label_text).replace("[", "\\[")


class Progress:
    """A context manager that shows a progress bar on a terminal's stderr or in a notebook after one second, and nothing elsewhere."""

    def __init__(self, label_text: str, enabled: bool = True) -> None:
        self._label_text = _escape_label(label_text)
        self.visible = enabled and (is_interactive_terminal() or _can_show_notebook_bar())
        self._begin = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def set_phase(self, label_text: str, done: int, total: int) -> None:
        """Set the label of the bar and its progress, `done` of `total`."""
        label_text = _escape_label(label_text)
        if label_text != self._label_text and self._bar is not None:
            self._bar.update(self._task, description=label_text, completed=done, total=total, refresh=True)
        self._label_text = label_text
        self(done, total)

    def __call__(self, done: int, total: int) -> None:
        if not self.visible or (self._bar is None and time.monotonic() - self._begin < _SHOW_DELAY_SECONDS):
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
            progress.TaskProgressColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
        )
        self._bar = progress.Progress(*columns, console=Console(stderr=not _can_show_notebook_bar()), transient=True)
        self._task = self._bar.add_task(self._label_text, total=None)
        self._bar.start()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
