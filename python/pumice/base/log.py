"""Messages of the engine that are no errors go to Python's logger "pumice"."""

from __future__ import annotations

from .._pumice import forward_log as forward_log
from .errors import bounded


def log_warning(text: str) -> None:
    """Logs a warning to the logger "pumice"."""
    import logging

    logging.getLogger("pumice").warning("%s", bounded(text))
