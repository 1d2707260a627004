"""Operators shared by the binding table tests."""

from __future__ import annotations

import pytest

import pumice
from binding_tables import F64, OWNED, ROWS, operator


@pytest.fixture
def relu(context: pumice.Context) -> pumice.CompiledOperator:
    """Return an operator without temporary or persistent resources."""
    return operator(context, "Relu", [F64], [F64])


@pytest.fixture
def multiply(context: pumice.Context) -> pumice.CompiledOperator:
    """Return an operator with an owned input, which needs a persistent resource."""
    return operator(context, "MatMul", [ROWS, OWNED], [ROWS])
