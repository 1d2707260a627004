"""Helpers of the probes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pytest

import pumice


class Probe(Protocol):
    """`covers` names the arguments that the probe is about, as "Class.method.argument"."""

    covers: tuple[str, ...]

    def __call__(self, context: pumice.Context) -> None: ...


def covers(*names: str) -> Callable[[Callable[[pumice.Context], None]], Probe]:
    def mark(function: Callable[[pumice.Context], None]) -> Probe:
        function.covers = names  # type: ignore[attr-defined]
        return function  # type: ignore[return-value]

    return mark


def differ(*results: Any) -> None:
    """Check that no two results are equal."""
    texts = [repr(one.tolist() if isinstance(one, np.ndarray) else one) for one in results]
    assert len(set(texts)) == len(texts), texts


def expect_error(call: Callable[[], Any], text: str = "", error: type[BaseException] = pumice.Error) -> None:
    with pytest.raises(error, match=text or None):
        call()


def times_out(call: Callable[[], Any]) -> None:
    expect_error(call, error=pumice.TimeoutError)
