"""Choices of programs for their steps."""

from __future__ import annotations

from typing import Any

import pumice


def choice_of(model: pumice.Model, x: Any) -> dict[str, Any]:
    """Return the choice of a model's only step with several variants."""
    (found,) = [step["choice"] for step in model.program.plan([x]) if "choice" in step]
    return found  # type: ignore[no-any-return]
