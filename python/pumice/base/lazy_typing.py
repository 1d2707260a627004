"""Lazy numpy.typing, imported when an annotation is evaluated. The import takes as long as several modules here, and no call needs it."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from numpy import typing

    return getattr(typing, name)
