"""LRU cache for arrays derived from a tensor, which the next check or the next node often needs again."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from .bounded_tensor import BoundedTensor

MAX_BYTES = 64 << 20  # maximum total bytes of the cached arrays


class LruCache:
    """Maps keys to values. The least recently used values are evicted if the total exceeds `max_bytes`."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._values: dict[Hashable, tuple[BoundedTensor, int, Any]] = {}

    def get_or_compute(self, key: Hashable, make: Callable[[], BoundedTensor], source: Any = None) -> BoundedTensor:
        """Return the value of a key; on a miss, compute it with `make`. source: object whose id the key contains, kept alive."""
        entry = self._values.pop(key, None)
        if entry is None:
            value = make()
            size = value.value.nbytes + (0 if value.error is None else value.error.nbytes)
            if size > self._max_bytes:
                return value
            entry = value, size, source
            self._bytes += size
        self._values[key] = entry  # reinsert the entry as the most recently used
        while self._bytes > self._max_bytes:
            self._bytes -= self._values.pop(next(iter(self._values)))[1]
        return entry[0]
