"""What the engine has to say that is no error goes to Python's logging, under the name "pumice"."""

from __future__ import annotations

from .._pumice import forward_log as forward_log
from .errors import bounded


def log_warning(text: str) -> None:
    """To the logger "pumice", at the level of warnings."""
    import logging

    logging.getLogger("pumice").warning("%s", bounded(text))
