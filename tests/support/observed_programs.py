"""Programs with falsified observations, to test what validation finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pumice


class ObservedProgram:
    """A program whose `observe` and `observe_runs` results are altered by `change`."""

    def __init__(self, program: pumice.Program, change: Callable[[dict[str, Any]], None]) -> None:
        self._program = program
        self._change = change

    def __call__(self, *arguments: Any, **limits: Any) -> Any:
        return self._program(*arguments, **limits)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)
