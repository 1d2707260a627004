"""The models that are called while somebody asks for them: a profile draws the memory of those that ran in its block."""

from __future__ import annotations

from typing import Any

MOST = 16  # pairs of a model and shapes that are noted

# The calls by the model's identity and the shapes of its arguments: the model and these arguments. None: nobody asks.
noted: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...]]] | None = None


def note(model: Any, signature: tuple[Any, ...], arrays: tuple[Any, ...]) -> None:
    """Keeps a model and the arguments of its first call with such shapes."""
    calls = noted  # another thread may end it meanwhile
    if calls is not None and len(calls) < MOST:
        calls.setdefault((id(model), signature), (model, arrays))


def begin() -> None:
    """From now on calls are noted."""
    global noted
    noted = {}


def end() -> list[tuple[Any, tuple[Any, ...]]]:
    """What was called since begin(), in the order of the first calls."""
    global noted
    calls, noted = list((noted or {}).values()), None
    return calls
