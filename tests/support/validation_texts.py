"""What the Khronos validation layer says, without what the engine does on purpose."""

from __future__ import annotations

from collections.abc import Iterable


def unexpected(messages: Iterable[str]) -> list[str]:
    """The messages that are a fault of the engine.

    Memory beyond maxMemoryAllocationSize is asked for where somebody wants it: NVIDIA's drivers give it, others refuse by an error.
    """
    return [one for one in messages if "larger than maxMemoryAllocationSize" not in one]
