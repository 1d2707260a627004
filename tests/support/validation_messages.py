"""Messages of the Khronos validation layer, without messages that the engine causes on purpose."""

from __future__ import annotations

from collections.abc import Iterable


def unexpected(messages: Iterable[str]) -> list[str]:
    """Return the messages that indicate a fault of the engine.

    Memory beyond maxMemoryAllocationSize is allocated on request: NVIDIA's drivers allow it, others return an error.
    """
    return [message for message in messages if "larger than maxMemoryAllocationSize" not in message]
