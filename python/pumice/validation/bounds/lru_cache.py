"""Caches results for arrays that are read again soon, by another check of the same node or by the next node."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from .bounded import Bounded

MOST = 64 << 20  # maximum bytes of all arrays


class Recent:
    """Values by key; the oldest are evicted beyond `MOST` bytes."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._bytes = 0
        self._values: dict[Hashable, tuple[Bounded, int, Any]] = {}

    def of(self, key: Hashable, make: Callable[[], Bounded], source: Any = None) -> Bounded:
        """Return the value of a key, computed on a miss. source: kept alive with the value if the key contains its id."""
        found = self._values.pop(key, None)
        if found is None:
            value = make()
            size = value.value.nbytes + (0 if value.error is None else value.error.nbytes)
            if size > self._most:
                return value
            found = value, size, source
            self._bytes += size
        self._values[key] = found  # move it to the newest end
        while self._bytes > self._most:
            self._bytes -= self._values.pop(next(iter(self._values)))[1]
        return found[0]
