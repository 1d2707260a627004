"""Pass the engine's messages to Python's logger "pumice", and detect terminals."""

from __future__ import annotations

import sys

from .._pumice import forward_log as forward_log
from .errors import truncate_middle
from .printable_text import escape_unprintable


def log_warning(text: str) -> None:
    """Log a warning to the logger "pumice"."""
    import logging

    logging.getLogger("pumice").warning("%s", truncate_middle(escape_unprintable(text)))


def is_interactive_terminal() -> bool:
    """Return whether stdout and stderr are both terminals."""
    return sys.stderr.isatty() and sys.stdout.isatty()
