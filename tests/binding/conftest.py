"""Operators that several tests of binding tables bind."""

from __future__ import annotations

import pytest

import pumice
from binding_tables import F64, OWNED, ROWS, operator


@pytest.fixture
def relu(context: pumice.Context) -> pumice.CompiledOperator:
    """An operator without temporary and persistent resources."""
    return operator(context, "Relu", [F64], [F64])


@pytest.fixture
def multiply(context: pumice.Context) -> pumice.CompiledOperator:
    """An operator with an owned input, and so with a persistent resource."""
    return operator(context, "MatMul", [ROWS, OWNED], [ROWS])
