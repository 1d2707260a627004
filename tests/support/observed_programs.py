"""Programs that are observed to store something else than they do, for tests of what a validation finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pumice


class ObservedProgram:
    """A program in all but what `observe` and `observe_runs` of its own class spoil by `change`."""

    def __init__(self, program: pumice.Program, change: Callable[[dict[str, Any]], None]) -> None:
        self._program = program
        self._change = change

    def __call__(self, *given: Any, **limits: Any) -> Any:
        return self._program(*given, **limits)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)
