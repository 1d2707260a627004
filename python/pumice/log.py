"""What the engine has to say that is no error goes to Python's logging, under the name "pumice"."""

from __future__ import annotations

import sys

from ._pumice import take_log

_WARNING = 30


def forward_log() -> None:
    """Hands over what has come together since the last call."""
    entries = take_log()
    if not entries:
        return
    if "logging" not in sys.modules and all(level < _WARNING for level, _ in entries):
        return  # nobody listens to less than a warning
    import logging

    logger = logging.getLogger("pumice")
    for level, text in entries:
        logger.log(level, "%s", text)
