"""Keeps what was made last of arrays that are read again soon: by the next way to judge the same node, or the next node."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from .bounded import Bounded

MOST = 64 << 20  # bytes of arrays


class Recent:
    """Values by key, of which the oldest go where all of them are more than `MOST` bytes."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._bytes = 0
        self._values: dict[Hashable, tuple[Bounded, int, Any]] = {}

    def of(self, key: Hashable, make: Callable[[], Bounded], source: Any = None) -> Bounded:
        """The value of a key, made where it is not there. source: what the key has the identity of, which lives as long as the value."""
        found = self._values.pop(key, None)
        if found is None:
            value = make()
            size = value.value.nbytes + (0 if value.error is None else value.error.nbytes)
            if size > self._most:
                return value
            found = value, size, source
            self._bytes += size
        self._values[key] = found  # as the newest
        while self._bytes > self._most:
            self._bytes -= self._values.pop(next(iter(self._values)))[1]
        return found[0]
