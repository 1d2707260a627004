"""Import numpy.typing only when an annotation is evaluated, because the import is slow and no call needs it."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from numpy import typing

    return getattr(typing, name)
