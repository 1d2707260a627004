"""Accesses out of bounds that kernels with checks are to find."""

from __future__ import annotations

from typing import Any

import pytest

import pumice


def caught(kernel: pumice.Kernel, **arguments: Any) -> pumice.OutOfBoundsError:
    """The error that a call of a kernel with debug=True raises."""
    with pytest.raises(pumice.OutOfBoundsError) as error:
        kernel(**arguments)
    return error.value
