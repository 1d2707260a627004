"""Out-of-bounds accesses that checked kernels must detect."""

from __future__ import annotations

from typing import Any

import pytest

import pumice


def caught(kernel: pumice.Kernel, **arguments: Any) -> pumice.OutOfBoundsError:
    """Return the error that a kernel call with debug=True raises."""
    with pytest.raises(pumice.OutOfBoundsError) as error:
        kernel(**arguments)
    return error.value
