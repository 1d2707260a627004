"""Messages of the engine that are no errors go to Python's logger "pumice"; others only where somebody sees them."""

from __future__ import annotations

import sys

from .._pumice import forward_log as forward_log
from .errors import bounded
from .plain_text import printable


def log_warning(text: str) -> None:
    """Logs a warning to the logger "pumice"."""
    import logging

    logging.getLogger("pumice").warning("%s", bounded(printable(text)))


def at_terminal() -> bool:
    """Whether output and errors both go to a terminal, where a person sees progress."""
    return sys.stderr.isatty() and sys.stdout.isatty()
