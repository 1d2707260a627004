"""The NNAPI operations that `Graph.add` accepts by name."""

from __future__ import annotations

from typing import NamedTuple

from . import _pumice

__all__ = ["EXPERIMENTAL", "Operation", "operations"]

EXPERIMENTAL = 2**31 - 1
"""The feature level of operations that have none yet."""


class Operation(NamedTuple):
    """An NNAPI operation: its name in `Graph.add`, the feature level that introduced it, and a description."""

    name: str
    level: int
    summary: str


def operations(level: int = EXPERIMENTAL) -> list[Operation]:
    """Return the operations available at an NNAPI feature level (1 for API 27, and so on), by name; all by default.

    Raise ValueError for a level below 1.
    """
    if level < 1:
        raise ValueError(f"level: expected a positive feature level; given {level}")
    rows = [Operation(operation.name, operation.level, operation.summary) for operation in _pumice.nnapi_operations()]
    return sorted(operation for operation in rows if operation.level <= level)
