"""Caches results for arrays that are read again soon, by another check of the same node or by the next node."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from .bounded_tensor import BoundedTensor

MAX_BYTES = 64 << 20  # maximum total bytes of the cached arrays


class LruCache:
    """Values by key; the oldest are evicted beyond `MAX_BYTES` bytes."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._values: dict[Hashable, tuple[BoundedTensor, int, Any]] = {}

    def get_or_compute(self, key: Hashable, make: Callable[[], BoundedTensor], source: Any = None) -> BoundedTensor:
        """Return the value of a key, computed on a miss. source: kept alive with the value if the key contains its id."""
        entry = self._values.pop(key, None)
        if entry is None:
            value = make()
            size = value.value.nbytes + (0 if value.error is None else value.error.nbytes)
            if size > self._max_bytes:
                return value
            entry = value, size, source
            self._bytes += size
        self._values[key] = entry  # reinsert the entry as the newest
        while self._bytes > self._max_bytes:
            self._bytes -= self._values.pop(next(iter(self._values)))[1]
        return entry[0]
